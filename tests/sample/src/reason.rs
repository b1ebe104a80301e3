//! Why something was decided: one word for the metric.

/// Why a decision was taken; closed, so that it can label a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Nothing of ours.
    NotOurs,
    /// A deleted guest still has a seat.
    Leaving,
    /// A deleted guest has no seat any more.
    Left,
    /// Seated, nothing to do.
    Seated,
    /// The guest's seat was given away or deleted by somebody.
    SeatLost,
    /// The seat is the guest's and the guest does not know it yet.
    Taken,
    /// The seat that the guest is going to take is free.
    Taking,
    /// A free seat was found.
    Found,
    /// Somebody else got the seat that the guest was going to take.
    Beaten,
    /// All seats are taken.
    Waiting,
    /// A seat is held by a guest that is no more.
    Abandoned,
    /// A seat is free or held by a guest that is there.
    InOrder,
}

impl Reason {
    /// All of them, so that each is a series from the start.
    pub const ALL: [Self; 12] = [
        Self::NotOurs,
        Self::Leaving,
        Self::Left,
        Self::Seated,
        Self::SeatLost,
        Self::Taken,
        Self::Taking,
        Self::Found,
        Self::Beaten,
        Self::Waiting,
        Self::Abandoned,
        Self::InOrder,
    ];

    /// As a label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotOurs => "NotOurs",
            Self::Leaving => "Leaving",
            Self::Left => "Left",
            Self::Seated => "Seated",
            Self::SeatLost => "SeatLost",
            Self::Taken => "Taken",
            Self::Taking => "Taking",
            Self::Found => "Found",
            Self::Beaten => "Beaten",
            Self::Waiting => "Waiting",
            Self::Abandoned => "Abandoned",
            Self::InOrder => "InOrder",
        }
    }
}
