//! Pools of clusters whose names, addresses and hosts exist once.

mod ground;
mod scene;

mod claims;
mod entries;
mod fill;
mod mission;
mod pools;
mod rest;
mod sweeps;
