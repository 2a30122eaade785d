//! What the replies of a connection may take.

use std::fmt;

/// Bytes of a reply that is given however little is left.
const ONE_BYTES_MIN: usize = 4 << 10;

/// What replies may take, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyBound {
    /// One reply that a short command can make long: of EXEC, of CLIENT LIST.
    pub one: usize,
    /// What is left for the replies of all connections.
    pub left: usize,
}

impl ReplyBound {
    /// Bytes of one reply, at most.
    #[must_use]
    pub fn bytes_max(self) -> usize {
        self.one.min(self.left.max(ONE_BYTES_MIN))
    }
}

impl fmt::Display for ReplyBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes_max = self.bytes_max();
        match bytes_max == self.one {
            true => write!(f, "output_bytes_max is {bytes_max}"),
            false => write!(f, "{bytes_max} are left for replies now: try again"),
        }
    }
}
