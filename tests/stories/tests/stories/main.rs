//! What must be seen working, one file per story. One binary, so that all stories share one control plane.

mod chart;
mod control_plane;
