//! The engine: schedules, remembers, limits, retries and counts for every controller. A controller is its rule book, the
//! trait [`Controller`]; [`run`](fn@run) does the rest.
//!
//! * [`queue`]: which key is looked at next, by class and age.
//! * [`slots`]: a target that does not answer holds up nobody else. [`lanes`] is the same for calls to a neighbour.
//! * [`memory`]: one cell for each key.
//! * [`links`]: whom a change concerns; [`fresh`]: whether it is news at all; [`echoes`]: what else a pass wrote.
//! * [`decision`]: what a pass decided; [`reasons`]: why; [`rules`]: by which of the rules, in their order.
//!
//! It stands on the watches of kube-runtime and takes the place of its scheduler alone, which knows no classes, no slots and
//! no ages.

pub mod decision;
pub mod echoes;
pub mod error;
pub mod fresh;
mod key;
pub mod lanes;
pub mod links;
pub mod memory;
mod outbox;
pub mod queue;
pub mod reasons;
pub mod rules;
mod run;
pub mod slots;
mod waiting;

pub use decision::{Decision, Next, Now, Outcome};
pub use echoes::Echoes;
pub use error::{Error, asked, found, sent, written};
pub use key::ObjectKey;
pub use queue::Class;
pub use reasons::Reason;
pub use rules::Rule;
pub use run::{Controller, Lookout, register, run};

pub use crate::events::Event;
pub use crate::shared::Shared;
