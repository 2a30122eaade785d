//! The answer to an operation that another node is to execute.

use std::fmt;

use penstock_net::placement::Writer;
use penstock_net::request::Version;
use penstock_net::status::Status;

use crate::replication::PartitionId;

/// Why an operation is not answered here.
pub(crate) struct Redirect {
    pub(super) partition: PartitionId,
    /// The node that writes it, in which generation, and where clients find that node.
    pub(super) primary: u8,
    pub(super) generation: u32,
    pub(super) clients: String,
    /// This node.
    pub(super) me: u8,
    /// It is this node's to write, and its lease is not there.
    pub(super) lacks_lease: bool,
}

impl Redirect {
    /// What the reply's version tells.
    pub(crate) fn version(&self) -> Version {
        Writer::version(self.primary, self.generation)
    }

    /// How the reply answers.
    pub(crate) fn status(&self) -> Status {
        match self.primary == self.me {
            true => Status::NotPrimary,
            false => Status::Moved,
        }
    }
}

impl fmt::Display for Redirect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.primary == self.me {
            true if self.lacks_lease => write!(
                f,
                "partition {}: this node is to write it and has no lease of it now",
                self.partition
            ),
            true => write!(
                f,
                "partition {}: this node is to write it and has not begun",
                self.partition
            ),
            false => write!(
                f,
                "partition {} is written by node {} at {}",
                self.partition, self.primary, self.clients
            ),
        }
    }
}
