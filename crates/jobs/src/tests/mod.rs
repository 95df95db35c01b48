//! Small lakes → jobs, against figures worked out by hand.

mod fixture;
mod lake;
mod page;
mod profile;
mod reports;
mod share;
