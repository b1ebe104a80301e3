//! Pools of clusters whose names, addresses and hosts exist once.

mod courses;
mod ground;
mod invariants;
mod scene;

mod bad_input;
mod claims;
mod entries;
mod fill;
mod gitops;
mod handback;
mod hive;
mod mission;
mod model;
mod neighbours;
mod pools;
mod process;
mod rest;
mod sweeps;
mod takeover;
