//! Small lakes → jobs, against figures worked out by hand.

mod fixture;
mod lake;
mod page;
mod reports;
mod share;
