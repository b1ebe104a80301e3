//! Why something was decided: one word for metric and log.

use std::time::Duration;

use controller_kit::reasons;

reasons! {
    /// Why a decision was taken.
    pub enum Reason {
        Leaving: Kind::Rests, "The deleted guest still has a seat.";
        Left: Kind::Rests, "The deleted guest has no seat any more.";
        Seated: Kind::Rests, "The guest has its seat.";
        SeatLost: Kind::Waits, "The seat of the guest was given away or deleted.",
            "Delete the guest.";
        Taken: Kind::Rests, "The seat is the guest's, and is written on the guest next.";
        Taking: Kind::Rests, "The seat that the guest intends to take is free.";
        Found: Kind::Rests, "A free seat was found.", promise: Duration::from_secs(1);
        Beaten: Kind::Rests, "Another guest got the seat that the guest intended to take.";
        Waiting: Kind::Waits, "All seats are taken.", "Add a seat, or delete a guest.";
        Abandoned: Kind::Rests, "The guest of the seat is gone.";
        InOrder: Kind::Rests, "The seat is free, or its guest is there.";
    }
}
