//! What the links of a node are encrypted with.

use std::sync::Arc;

use crate::tls::ServedTls;

/// The certificate that is shown to other nodes, and whether links may do without.
#[derive(Clone)]
pub(crate) struct LinkTls {
    pub(crate) served: Arc<ServedTls>,
    /// Links without TLS are taken, and made to nodes that have none yet: for the time of a change.
    pub(crate) is_optional: bool,
}
