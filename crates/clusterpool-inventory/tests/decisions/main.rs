//! The rules about whole pools, one by one.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on panics")]

mod attempts;
mod balance;
mod capacity;
mod care;
mod claims;
mod entries;
mod leases;
mod making;
mod world;
