//! The one rule about who may reach a server: a listener on an address that other machines can
//! reach needs TLS and credentials, or somebody who says that the network is theirs.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// What listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listener {
    /// The port that all shards share, and the ports of the shards beside it.
    Clients,
    /// Clients of Redis: the entry port, and the ports of the cores beside it.
    Resp,
    /// Probes and metrics.
    Admin,
    /// Other nodes of the cluster.
    Links,
}

/// What stands between a listener and whoever reaches it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Protection {
    /// The ports of clients speak TLS.
    pub(crate) has_tls: bool,
    /// Clients prove who they are.
    pub(crate) has_users: bool,
    /// Links speak TLS and nothing else.
    pub(crate) has_link_tls: bool,
    /// Who asks the admin port can prove to be somebody: by a token, or by a certificate.
    pub(crate) has_admin_proof: bool,
    /// `--insecure`: somebody has said that the network is theirs.
    pub(crate) is_insecure: bool,
}

/// A listener that anyone who reaches it may use, because somebody has said so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exposed {
    pub(crate) listener: Listener,
    pub(crate) address: SocketAddr,
}

/// A listener that must not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unprotected {
    pub(crate) listener: Listener,
    pub(crate) address: SocketAddr,
    lacks: Lack,
}

/// What a listener lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lack {
    Tls,
    /// What those who come prove themselves by.
    Proof,
    TlsAndProof,
    LinkTls,
}

impl Listener {
    /// The option that sets its address, or the key of the cluster's file.
    pub(crate) fn option(self) -> &'static str {
        match self {
            Listener::Clients => "listen",
            Listener::Resp => "resp_listen",
            Listener::Admin => "admin_listen",
            Listener::Links => "links",
        }
    }

    fn lacks(self, protection: Protection) -> Option<Lack> {
        let has_proof = match self {
            Listener::Links => return (!protection.has_link_tls).then_some(Lack::LinkTls),
            Listener::Admin => protection.has_admin_proof,
            Listener::Clients | Listener::Resp => protection.has_users,
        };
        match (protection.has_tls, has_proof) {
            (true, true) => None,
            (true, false) => Some(Lack::Proof),
            (false, true) => Some(Lack::Tls),
            (false, false) => Some(Lack::TlsAndProof),
        }
    }
}

impl fmt::Display for Exposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.listener.option(), self.address)
    }
}

/// Why it must not be opened and what to do, without the address.
impl fmt::Display for Unprotected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tls = "TLS (--tls-cert and --tls-key)";
        let proof = match self.listener {
            Listener::Admin => "a token (--admin-token-file) or certificates (--tls-client-ca)",
            _ => "users (--users)",
        };
        f.write_str("other machines could reach it, and ")?;
        match self.lacks {
            Lack::Tls => write!(f, "it lacks {tls}"),
            Lack::Proof => write!(f, "it lacks {proof}"),
            Lack::TlsAndProof => write!(f, "it lacks {tls} and {proof}"),
            Lack::LinkTls => f.write_str(
                "it lacks TLS between nodes (--cluster-tls-cert, --cluster-tls-key and \
                 --cluster-tls-ca, without --cluster-tls-optional; penstock cluster certs makes \
                 the files)",
            ),
        }?;
        let loopback = match self.listener {
            Listener::Links => "name an address of loopback",
            _ => "listen on 127.0.0.1",
        };
        write!(
            f,
            "; {loopback}, or give --insecure if the network is yours"
        )
    }
}

/// Judges what is to be opened. Returns what is open to anyone who reaches it.
///
/// # Errors
/// [`Unprotected`]: the first listener that must not be opened.
pub(crate) fn judge(
    listeners: &[(Listener, SocketAddr)],
    protection: Protection,
) -> Result<Vec<Exposed>, Unprotected> {
    let mut exposed = Vec::new();
    for &(listener, address) in listeners {
        let Some(lacks) = listener.lacks(protection) else {
            continue;
        };
        if is_loopback(address.ip()) {
            continue;
        }
        if !protection.is_insecure {
            return Err(Unprotected {
                listener,
                address,
                lacks,
            });
        }
        exposed.push(Exposed { listener, address });
    }
    Ok(exposed)
}

/// Whether only this machine reaches it.
pub(crate) fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Listener; 4] = [
        Listener::Clients,
        Listener::Resp,
        Listener::Admin,
        Listener::Links,
    ];

    fn protection(bits: u8) -> Protection {
        Protection {
            has_tls: bits & 1 != 0,
            has_users: bits & 2 != 0,
            has_admin_proof: bits & 2 != 0,
            is_insecure: bits & 4 != 0,
            has_link_tls: bits & 8 != 0,
        }
    }

    fn judged(listener: Listener, address: &str, bits: u8) -> Result<Vec<Exposed>, Unprotected> {
        judge(
            &[(listener, address.parse().expect("an address"))],
            protection(bits),
        )
    }

    #[test]
    fn loopback_is_open_to_this_machine_whatever_is_given() {
        for listener in ALL {
            for bits in 0..16 {
                for address in [
                    "127.0.0.1:1",
                    "127.9.9.9:0",
                    "[::1]:7",
                    "[::ffff:127.0.0.1]:7",
                ] {
                    assert_eq!(judged(listener, address, bits), Ok(Vec::new()));
                }
            }
        }
    }

    #[test]
    fn what_others_can_reach_needs_tls_and_a_proof_or_the_word_of_the_operator() {
        for address in [
            "0.0.0.0:7411",
            "[::]:7411",
            "10.0.0.1:7411",
            "[::ffff:10.0.0.1]:1",
        ] {
            for listener in ALL {
                for bits in 0..16 {
                    let is_link = listener == Listener::Links;
                    let is_safe = if is_link {
                        bits & 8 != 0
                    } else {
                        bits & 3 == 3
                    };
                    match judged(listener, address, bits) {
                        Ok(exposed) if is_safe => assert_eq!(exposed, []),
                        Ok(exposed) => {
                            assert!(bits & 4 != 0, "{listener:?} {bits}");
                            assert_eq!(exposed[0].listener, listener);
                        }
                        Err(refused) => {
                            assert!(!is_safe && bits & 4 == 0, "{listener:?} {bits}");
                            let message = refused.to_string();
                            assert!(message.contains("--insecure") && !message.contains('\n'));
                            assert_eq!(message.contains("--cluster-tls-cert"), is_link);
                            if !is_link {
                                assert_eq!(message.contains("TLS (--tls-cert"), bits & 1 == 0);
                                let proof = match listener {
                                    Listener::Admin => "a token (--admin-token-file)",
                                    _ => "users (--users)",
                                };
                                assert_eq!(message.contains(proof), bits & 2 == 0, "{message}");
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn all_that_is_open_is_reported_and_the_first_that_must_not_be_is_named() {
        let at = |text: &str| text.parse().expect("an address");
        let listeners = [
            (Listener::Clients, at("127.0.0.1:1")),
            (Listener::Resp, at("10.0.0.1:2")),
            (Listener::Admin, at("0.0.0.0:3")),
        ];
        let exposed = judge(&listeners, protection(4)).expect("it is their network");
        let lines: Vec<String> = exposed.iter().map(Exposed::to_string).collect();
        assert_eq!(lines, ["resp_listen 10.0.0.1:2", "admin_listen 0.0.0.0:3"]);
        let without = Protection {
            has_admin_proof: false,
            ..protection(3)
        };
        let refused = judge(&listeners, without).expect_err("the admin port asks for nothing");
        assert_eq!(refused.listener, Listener::Admin);
    }
}
