//! Links to other nodes before they carry records: versions, encryption and the handshake.

pub(crate) mod blocking_line;
pub(crate) mod greeting;
pub(crate) mod greetings;
pub(crate) mod link_tls;
pub(crate) mod link_versions;
