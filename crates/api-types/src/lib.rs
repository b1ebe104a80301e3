//! Kinds, fields and names that the controllers read and write. No I/O.
