//! How much the answer of an operation may hold.

use std::fmt;

use penstock_net::keyspace::KEPT_BYTES;
use penstock_net::limits::HISTORY_VERSIONS_MAX;
use penstock_net::request::{AnswerContent, Extra, Request};

/// The answer to a read would have so many bytes, for which there is no room.
pub(crate) struct Outgrown(pub(crate) usize);

impl fmt::Display for Outgrown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outgrown(bytes) = self;
        write!(
            f,
            "the value has {bytes} bytes, for which there is no room: answers wait to be read"
        )
    }
}

/// What the answer of an operation on a value of so many bytes is taken to hold.
pub(crate) fn answer_bytes(request: &Request<'_>, value_bytes: usize) -> usize {
    match request.verb.answer_content() {
        AnswerContent::PastValue => value_bytes,
        AnswerContent::Versions => HISTORY_VERSIONS_MAX as usize * KEPT_BYTES,
        AnswerContent::Value | AnswerContent::Fields if may_show_value(request) => value_bytes,
        AnswerContent::Value
        | AnswerContent::Fields
        | AnswerContent::Keyspaces
        | AnswerContent::Page
        | AnswerContent::Echo => 0,
    }
}

/// Whether the answer may show the value that the key has now.
pub(crate) fn may_show_value(request: &Request<'_>) -> bool {
    request.verb.answer_content() == AnswerContent::Value || request.extra == Extra::Show
}
