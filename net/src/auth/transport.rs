//! What a connection proves by itself, before anybody says who they are.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// Bytes of a channel binding.
pub const BINDING_BYTES: usize = 32;

/// A connection as the one who accepted it, or made it, knows it.
#[derive(Clone, Default)]
pub struct Transport {
    /// Nobody between the two ends reads or changes its bytes.
    pub is_encrypted: bool,
    /// What both ends of this one encrypted connection know, and those of no other: `tls-exporter`
    /// of RFC 9266. `None` on a plain connection.
    pub channel_binding: Option<[u8; BINDING_BYTES]>,
    /// The name in the certificate of the peer, which was checked. `None` without one.
    pub certificate_name: Option<Arc<str>>,
    /// Where the peer is; `None` if nobody knows.
    pub peer: Option<IpAddr>,
}

impl Transport {
    /// A connection without encryption.
    #[must_use]
    pub fn plain(peer: Option<IpAddr>) -> Self {
        Transport {
            peer,
            ..Transport::default()
        }
    }

    /// Whether a secret may be sent by it as it is: nobody else hears it.
    #[must_use]
    pub fn may_carry_secrets(&self) -> bool {
        let is_loopback = |peer: IpAddr| peer.to_canonical().is_loopback();
        self.is_encrypted || self.peer.is_some_and(is_loopback)
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport")
            .field("is_encrypted", &self.is_encrypted)
            .field("certificate_name", &self.certificate_name)
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_go_over_encrypted_connections_and_within_this_machine_alone() {
        let from = |text: &str| Transport::plain(Some(text.parse().expect("an address")));
        assert!(from("127.0.0.1").may_carry_secrets());
        assert!(from("::1").may_carry_secrets());
        assert!(from("::ffff:127.0.0.1").may_carry_secrets());
        assert!(!from("10.0.0.1").may_carry_secrets());
        assert!(!Transport::plain(None).may_carry_secrets());
        let encrypted = Transport {
            is_encrypted: true,
            ..from("10.0.0.1")
        };
        assert!(encrypted.may_carry_secrets());
    }
}
