//! Where a connection of the RESP port is.

use penstock_storage::store::Writer;

/// Where a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientPlace {
    pub(crate) core: u16,
    /// As the shard of the core knows it.
    pub(crate) writer: Writer,
}
