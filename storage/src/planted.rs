//! Bugs that are planted on purpose, to test the tests.
//!
//! Each [`Bug`] is one wrong turn in production code, taken only where [`is_planted`] says so. Without
//! the feature `planted` that is a constant `false` and nothing of it is compiled; with it, one
//! thread at a time can switch one bug on, run the simulator and expect it to object. A bug that
//! nothing catches shows what the tests do not see.
//!
//! The server refuses to be built with the feature.

/// Whether the planted bugs are compiled in.
pub const IS_COMPILED_IN: bool = cfg!(feature = "planted");

macro_rules! bugs {
    ($($(#[doc = $text:literal])+ $bug:ident = $name:literal,)+) => {
        /// One planted bug.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Bug {
            $($(#[doc = $text])+ $bug,)+
        }

        impl Bug {
            /// All of them.
            pub const ALL: &[Bug] = &[$(Bug::$bug,)+];

            /// Its name on the command line.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Bug::$bug => $name,)+
                }
            }

            /// What it does wrong.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self {
                    $(Bug::$bug => concat!($($text),+),)+
                }
            }
        }
    };
}

bugs! {
    // Planted by the simulator's author.

    /// Frames are written without asking for durability.
    SkipFlush = "skip-flush",
    /// A reply at level disk leaves before its record is durable.
    AckEarly = "ack-early",
    /// Recovery takes damage behind a durable mark for a torn tail.
    CutOnAnyBadFrame = "cut-on-any-bad-frame",
    /// Recovery replays a frame whose body does not check.
    ReplayHalfFrame = "replay-half-frame",
    /// Frames are not bound to the salt of their segment.
    ForgetSalt = "forget-salt",
    /// A new segment is written before the one before it is durable.
    HeaderTooEarly = "header-too-early",
    /// A read shows a value that a crash can still take back.
    AnswerUnflushed = "answer-unflushed",
    /// A batch for another shard is lost now and then.
    LoseMail = "lose-mail",
    /// A failed write counts as done.
    IgnoreWriteError = "ignore-write-error",
    /// A frame may take the place that a segment keeps for its end.
    SegmentEndOffByOne = "segment-end-off-by-one",
    /// A value that was read from disk is believed whatever version it has.
    BelieveAnyRead = "believe-any-read",
    /// A batch that was interrupted by a full log starts again at its first item.
    RepeatInterruptedBatch = "repeat-interrupted-batch",

    // Planted by somebody who had not seen the simulator or any test.
}

#[cfg(feature = "planted")]
std::thread_local! {
    static ACTIVE: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Switches one bug on for this thread, or all off.
#[cfg(feature = "planted")]
pub fn plant(bug: Option<Bug>) {
    ACTIVE.set(bug);
}

/// Whether this bug is switched on.
#[cfg(feature = "planted")]
#[inline]
#[must_use]
pub fn is_planted(bug: Bug) -> bool {
    ACTIVE.get() == Some(bug)
}

/// Whether this bug is switched on: never.
#[cfg(not(feature = "planted"))]
#[inline(always)]
#[must_use]
pub const fn is_planted(_: Bug) -> bool {
    false
}
