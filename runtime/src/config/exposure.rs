//! The one rule about who may reach a server: a listener on an address that other machines can
//! reach needs TLS and credentials, or somebody who says that the network is theirs.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// What listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listener {
    /// The port that all shards share, and the ports of the shards beside it.
    Clients,
    /// Clients of Redis.
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
    Users,
    TlsAndUsers,
    LinkTls,
    /// This version has nothing to give for it.
    Everything,
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
        match self {
            Listener::Admin => Some(Lack::Everything),
            Listener::Links => (!protection.has_link_tls).then_some(Lack::LinkTls),
            Listener::Clients | Listener::Resp => match protection {
                Protection {
                    has_tls: true,
                    has_users: true,
                    ..
                } => None,
                Protection { has_tls: true, .. } => Some(Lack::Users),
                Protection {
                    has_users: true, ..
                } => Some(Lack::Tls),
                _ => Some(Lack::TlsAndUsers),
            },
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
        let users = "users (--users)";
        f.write_str("other machines could reach it, and ")?;
        match (self.lacks, self.listener) {
            (Lack::Tls, _) => write!(f, "it lacks {tls}"),
            (Lack::Users, _) => write!(f, "it lacks {users}"),
            (Lack::TlsAndUsers, _) => write!(f, "it lacks {tls} and {users}"),
            (Lack::LinkTls, _) => f.write_str(
                "it lacks TLS between nodes (--cluster-tls-cert, --cluster-tls-key and \
                 --cluster-tls-ca, without --cluster-tls-optional; penstock cluster certs makes \
                 the files)",
            ),
            (Lack::Everything, _) => f.write_str("it has neither TLS nor credentials yet"),
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

fn is_loopback(address: IpAddr) -> bool {
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
    fn what_others_can_reach_needs_tls_and_users_or_the_word_of_the_operator() {
        for address in [
            "0.0.0.0:7411",
            "[::]:7411",
            "10.0.0.1:7411",
            "[::ffff:10.0.0.1]:1",
        ] {
            for listener in ALL {
                for bits in 0..16 {
                    let can_be_safe = matches!(listener, Listener::Clients | Listener::Resp);
                    let is_link = listener == Listener::Links;
                    let is_safe = (can_be_safe && bits & 3 == 3) || (is_link && bits & 8 != 0);
                    match judged(listener, address, bits) {
                        Ok(exposed) if is_safe => assert_eq!(exposed, []),
                        Ok(exposed) => {
                            assert!(bits & 4 != 0, "{listener:?} {bits}");
                            assert_eq!(exposed[0].listener, listener);
                        }
                        Err(refused) => {
                            assert!(!is_safe && bits & 4 == 0, "{listener:?} {bits}");
                            let told = refused.to_string();
                            assert!(told.contains("--insecure") && !told.contains('\n'));
                            assert_eq!(told.contains("--cluster-tls-cert"), is_link);
                            if can_be_safe {
                                assert_eq!(told.contains("TLS (--tls-cert"), bits & 1 == 0);
                                assert_eq!(
                                    told.contains("lacks users") || told.contains("and users"),
                                    bits & 2 == 0
                                );
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn all_that_is_open_is_told_and_the_first_that_must_not_be_is_named() {
        let at = |text: &str| text.parse().expect("an address");
        let listeners = [
            (Listener::Clients, at("127.0.0.1:1")),
            (Listener::Resp, at("10.0.0.1:2")),
            (Listener::Admin, at("0.0.0.0:3")),
        ];
        let exposed = judge(&listeners, protection(4)).expect("it is their network");
        let told: Vec<String> = exposed.iter().map(Exposed::to_string).collect();
        assert_eq!(told, ["resp_listen 10.0.0.1:2", "admin_listen 0.0.0.0:3"]);
        let refused = judge(&listeners, protection(3)).expect_err("the admin port has nothing");
        assert_eq!(refused.listener, Listener::Admin);
    }
}
