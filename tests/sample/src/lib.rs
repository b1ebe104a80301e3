//! A minimal controller on the kit, right or deliberately wrong, that the bench is tried on.
