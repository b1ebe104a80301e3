//! A small controller with contested writes, for trying the bench on: right, or wrong on request.
//!
//! Guests and seats are `ConfigMap`s that share a namespace, told apart by the label
//! `sample.ferrite.metal3.io/role`. Every guest gets one seat, a seat has at most one guest.
//!
//! * Watches: `ConfigMap`s that bear the label.
//! * Reads: the seats and guests of the object's namespace, live, before every write.
//! * Writes: on a guest its finalizer, the seat it is going to take and the seat it has; on a seat
//!   the uid of its guest. Each write carries the resourceVersion of what it was decided on.
//! * Never: takes a seat that was taken since it looked, creates or deletes an object.
//!
//! The order of reading is part of the safety: the contested seat first, then who wants it. A guest
//! that is alive when it is read last was alive when the seat was read, so whatever happens to the
//! seat later moves the version that the claim insists on.

pub mod context;
pub mod controller;
pub mod decide;
pub mod model;
pub mod observe;
pub mod reason;
pub mod settings;
pub mod write;

/// Tells guests from seats; what bears no such label is not ours.
pub const ROLE: &str = "sample.ferrite.metal3.io/role";
/// The role of one who wants a seat.
pub const GUEST: &str = "guest";
/// The role of what is wanted.
pub const SEAT: &str = "seat";
/// On a guest: the seat that it is going to take. Written before the seat is touched.
pub const INTENT: &str = "sample.ferrite.metal3.io/intends";
/// On a guest: the seat that it intended and that somebody else got. Until that seat was marked as
/// passed over, a claim of it for this guest may still be on its way.
pub const GIVES_UP: &str = "sample.ferrite.metal3.io/gives-up";
/// On a seat: who gave it up last. Only there to move its version, which stops claims on their way.
pub const PASSED: &str = "sample.ferrite.metal3.io/passed-over-by";
/// On a guest: the seat that it has.
pub const RESULT: &str = "sample.ferrite.metal3.io/seated-on";
/// On a guest: when it was seated.
pub const SINCE: &str = "sample.ferrite.metal3.io/seated-at";
/// On a seat: the uid of its guest.
pub const HOLDER: &str = "sample.ferrite.metal3.io/holder";
/// Keeps a guest until its seat is free again.
pub const FINALIZER: &str = "sample.ferrite.metal3.io/seat";
