//! Why something was decided, as data: the word that condition, event, log and metric share, what it means, what to do
//! about it, and how long it may last.

use std::fmt::{self, Debug, Display, Formatter};
use std::time::Duration;

/// What is known of a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About {
    /// The word. Conditions, metrics and alerts use it, so it never changes.
    pub word: &'static str,
    /// What it means.
    pub meaning: &'static str,
    /// What a person can do about it; empty where nothing is to be done.
    pub action: &'static str,
    /// What becomes of a key that rests in it.
    pub kind: Kind,
    /// How soon the look begins that decides this, once it is due: what users feel of the controller itself, and its error budget
    /// counts. None for all that does not count, such as a wait for somebody else.
    pub promise: Option<Duration>,
    /// Where a person reads the word; empty where only a metric or the log has it.
    pub places: &'static [Location],
    /// What else the page of reasons says, and what to do where a message cannot have it; empty where meaning and action say
    /// it all.
    pub more: &'static str,
    /// The page below `docs` that says how to do it, or empty.
    pub see: &'static str,
}

/// A part of an object that has reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectPart {
    /// A condition, by its name.
    Condition(&'static str),
    /// A list of its status, by its path.
    List(&'static str),
    /// Anything else on the object, as the page of reasons calls it.
    Field(&'static str),
    /// Its events.
    Event,
    /// A metric, by its name.
    Metric(&'static str),
}

impl Display for ObjectPart {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Condition(name) => write!(out, "condition `{name}`"),
            Self::List(path) => write!(out, "list `{path}`"),
            Self::Field(text) => out.write_str(text),
            Self::Event => out.write_str("event"),
            Self::Metric(name) => write!(out, "metric `{name}`"),
        }
    }
}

/// Where a person reads a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// The kind of the object.
    pub object: &'static str,
    /// The part of the object.
    pub part: ObjectPart,
    /// What that says of the object, as whole sentences.
    pub about: &'static str,
}

impl Location {
    /// A part of an object, and what it says.
    pub const fn new(object: &'static str, part: ObjectPart, about: &'static str) -> Self {
        Self { object, part, about }
    }
}

/// What becomes of a key that rests in a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing is to be done.
    Rests,
    /// Somebody or something is waited for, as long as that takes.
    Waits,
    /// Something is under way, or waited for, that ends within this time. What lasts longer is overdue.
    EndsWithin(Duration),
}

/// The closed set of a controller's reasons. [`reasons!`](crate::reasons) makes it.
pub trait Reason: Copy + Debug + Eq + Ord + Send + Sync + 'static {
    /// All of them, so that each is a series from the start.
    const ALL: &'static [Self];

    /// What is known of it.
    fn about(self) -> &'static About;

    /// Its word.
    fn as_str(self) -> &'static str {
        self.about().word
    }
}

/// Makes the reasons of a controller: name, kind, meaning, and what to do; `promise` where its error budget counts a reason. Where a
/// person reads a reason, `on` lists the places, and `more` and `see` are for its page alone.
#[macro_export]
macro_rules! reasons {
    (
        $(#[$doc:meta])*
        $visible:vis enum $Reason:ident {
            $( $Name:ident: $kind:expr, $meaning:literal $(, $action:literal)? $(, promise: $promise:expr)?
                $(, on: [$($place:expr),+])? $(, more: $more:literal)? $(, see: $see:literal)?; )+
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $visible enum $Reason {
            $( #[doc = $meaning] $Name, )+
        }

        impl $crate::engine::reasons::Reason for $Reason {
            const ALL: &'static [Self] = &[$( Self::$Name, )+];

            fn about(self) -> &'static $crate::engine::reasons::About {
                use $crate::engine::reasons::{About, Kind};
                match self {
                    $( Self::$Name => {
                        const ABOUT: About = About {
                            word: stringify!($Name),
                            meaning: $meaning,
                            action: concat!($( $action )?),
                            kind: $kind,
                            promise: [$( Some($promise), )? None][0],
                            places: &[$( $($place),+ )?],
                            more: concat!($( $more )?),
                            see: concat!($( $see )?),
                        };
                        &ABOUT
                    } )+
                }
            }
        }
    };
}
