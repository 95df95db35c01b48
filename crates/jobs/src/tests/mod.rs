//! Small lakes → jobs, against figures worked out by hand.

mod fixture;
mod lake;
mod reports;
mod share;
