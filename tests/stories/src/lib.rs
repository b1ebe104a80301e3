//! What must be seen working, one file per story.
