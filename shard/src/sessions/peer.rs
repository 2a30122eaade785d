//! Who is at the other end of a connection, and what its client understands.

use penstock_net::frame::Medium;
use penstock_net::hello::{FEATURE_ALL, FEATURE_BEGAN, FEATURE_WRONG_TYPE};

/// The other end of one connection.
#[derive(Debug)]
pub(crate) struct Peer {
    /// What frames pass through.
    pub(crate) medium: Medium,
    /// A network is between: the peer takes its replies when it can.
    pub(crate) is_remote: bool,
    /// The client wants `FEATURE_BEGAN`.
    pub(crate) wants_began: bool,
    /// The client wants `FEATURE_ALL`.
    pub(crate) knows_all: bool,
    /// The client wants `FEATURE_WRONG_TYPE`, or is of this process.
    pub(crate) knows_wrong_type: bool,
}

impl Peer {
    pub(super) fn new(medium: Medium, is_remote: bool) -> Self {
        Peer {
            medium,
            is_remote,
            wants_began: false,
            knows_all: false,
            knows_wrong_type: medium == Medium::Memory,
        }
    }

    /// The client has offered features in its HELLO.
    pub(crate) fn offers(&mut self, features: u64) {
        self.wants_began = features & FEATURE_BEGAN != 0;
        self.knows_all = features & FEATURE_ALL != 0;
        self.knows_wrong_type |= features & FEATURE_WRONG_TYPE != 0;
    }
}
