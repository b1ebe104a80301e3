//! Real neighbours for the tests: how they are built, started, disturbed and counted.
