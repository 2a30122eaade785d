//! Why no segment file can be made ready though the disk may have room.

/// What refuses a segment file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpareFailure {
    /// The process, or the machine, has no file descriptor left.
    NoDescriptor,
    /// Anything else of the system, which the log of the server tells.
    System,
}

impl SpareFailure {
    /// What a client is told with BUSY.
    pub(crate) fn message(self) -> &'static str {
        match self {
            SpareFailure::NoDescriptor => {
                "no file descriptor is left for a segment file (nofile), so nothing that grows is \
                 taken: try again"
            }
            SpareFailure::System => {
                "the server cannot make a segment file ready for new records, which its own log \
                 explains: try again"
            }
        }
    }
}
