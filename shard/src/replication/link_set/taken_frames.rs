//! What the frames ask for that a link has brought in one turn.

use std::collections::VecDeque;

use penstock_net::link::{LinkFault, RefusalCode, Refused};

use crate::replication::Work;
use crate::replication::receiver::LinkRefusal;

/// What became of the frames that a link has brought.
#[derive(Debug, Default)]
pub(super) struct TakenFrames {
    pub(super) work: VecDeque<Work>,
    pub(super) end: Option<LinkEnd>,
}

/// The side that ends a link, and why.
#[derive(Debug)]
pub(super) enum LinkEnd {
    Here(LinkRefusal),
    There(LinkRefusal),
}

impl LinkEnd {
    /// The peer has sent REFUSED.
    pub(super) fn there(refused: &Refused<'_>) -> Self {
        LinkEnd::There(LinkRefusal {
            code: refused.code,
            text: refused.text.to_string(),
        })
    }
}

/// The refusal of a frame that does not check.
pub(super) fn fault_refusal(fault: &LinkFault) -> LinkRefusal {
    LinkRefusal {
        code: RefusalCode::Fault,
        text: fault.to_string(),
    }
}
