//! What a run of items is to the batch that it stands in.

use std::ops::Range;

use penstock_net::level::AckLevel;
use penstock_net::request::Verb;
use penstock_net::status::Status;

use super::Ran;

/// An item that was answered.
pub(crate) struct Answered<'b> {
    /// The item.
    pub(crate) item: &'b [u8],
    /// Where its answer stands in the output.
    pub(crate) answer: Range<usize>,
    /// The level that the answer tells.
    pub(crate) level: AckLevel,
    pub(crate) status: Status,
    /// The instruction that did not hold, if one did not.
    pub(crate) instruction: u8,
}

/// Items that repeat one another. What all of them have in common is found out once.
pub(crate) trait RepeatedItems<'b> {
    /// Their verb.
    const VERB: Verb;

    /// Answers the next item, which has this number in its request, at the end of `out`. `None` if
    /// it must run by itself: nothing has changed then.
    fn next(&mut self, number: u16, item: &'b [u8], out: &mut Vec<u8>) -> Option<Ran>;
}
