//! What stands between the nodes of a cluster: a network that can be cut, in one direction or both,
//! and made slow.
//!
//! As root each node lives in a network namespace of its own, on a bridge, and what is cut is
//! dropped by nft. All of it lies in a network and a mount namespace of this process, so nothing is
//! left of it, however this process ends, and nothing of the machine's own network is touched.
//! Otherwise the nodes are on loopback, and what is cut is held up by the forwarders.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::forwarder::{Forwarder, Way};
use crate::process;

pub const NODES: usize = 3;
/// Addresses of links and of clients, of a node in a namespace.
const LINKS: u16 = 7414;
const CLIENTS: u16 = 7411;

/// What a direct cut drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// All that one machine sends to another one. Clients still reach both.
    All,
    /// Records and heartbeats.
    Links,
}

/// The network of one cluster. Nodes are 0, 1, 2 here, and 1, 2, 3 in its file.
pub struct Network {
    has_namespaces: bool,
    links: [SocketAddr; NODES],
    clients: [SocketAddr; NODES],
    /// From each node to each other one.
    forwarders: Vec<(usize, usize, Forwarder)>,
}

/// Names a node in the network of this process.
fn name(node: usize) -> String {
    format!("node{}", node + 1)
}

fn ip(arguments: &str) -> Result<(), String> {
    let words: Vec<&str> = arguments.split(' ').collect();
    process::run("ip", &words)
}

fn nft(node: usize, rules: &str) -> Result<(), String> {
    process::run("ip", &["netns", "exec", &name(node), "nft", rules])
}

/// Where a node is.
fn own(node: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, 1 + u8::try_from(node).expect("three"))
}

/// The address at which other nodes find this node, and from which its links come. The forwarders
/// use it.
fn alias(node: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, 101 + u8::try_from(node).expect("three"))
}

/// Makes namespaces and a bridge, which end with this process.
///
/// # Errors
/// Why this machine or this user cannot.
pub fn make_namespaces() -> Result<(), String> {
    for program in ["ip", "nft"] {
        if !process::has_program(program) {
            return Err(format!("no {program}: install iproute2 and nftables"));
        }
    }
    process::own_mounts()?;
    process::own_network()?;
    // Names of namespaces are mounts there: they are to be of this process alone.
    fs::create_dir_all("/run/netns").map_err(|error| format!("/run/netns: {error}"))?;
    process::run("mount", &["-t", "tmpfs", "none", "/run/netns"])?;
    ip("link set lo up")?;
    ip("link add bridge type bridge")?;
    ip("link set bridge up")?;
    // The first address is that of clients: it is none that is cut.
    ip("addr add 10.77.0.254/24 dev bridge")?;
    for node in 0..NODES {
        let name = name(node);
        ip(&format!("addr add {}/24 dev bridge", alias(node)))?;
        ip(&format!("netns add {name}"))?;
        ip(&format!(
            "link add to-{name} type veth peer name eth0 netns {name}"
        ))?;
        ip(&format!("link set to-{name} master bridge up"))?;
        ip(&format!("-n {name} addr add {}/24 dev eth0", own(node)))?;
        ip(&format!("-n {name} link set eth0 up"))?;
        ip(&format!("-n {name} link set lo up"))?;
        nft(
            node,
            "add table inet torture; \
             add chain inet torture out { type filter hook output priority 0; }",
        )?;
    }
    Ok(())
}

impl Network {
    /// Sets forwarders up between the nodes, in the namespaces if they were made.
    ///
    /// # Errors
    /// An address is taken.
    pub fn new(has_namespaces: bool) -> Result<Network, String> {
        let mut links = [SocketAddr::from(([127, 0, 0, 1], 0)); NODES];
        let mut clients = links;
        for node in 0..NODES {
            (links[node], clients[node]) = match has_namespaces {
                true => ((own(node), LINKS).into(), (own(node), CLIENTS).into()),
                false => (free()?, free()?),
            };
        }
        let mut forwarders = Vec::new();
        for from in 0..NODES {
            for to in (0..NODES).filter(|&to| to != from) {
                let (listen, source) = match has_namespaces {
                    true => {
                        let port = LINKS + 1 + u16::try_from(from).expect("three");
                        ((alias(to), port).into(), Some(alias(from)))
                    }
                    false => (SocketAddr::from(([127, 0, 0, 1], 0)), None),
                };
                let forwarder = Forwarder::start(listen, source, links[to])?;
                forwarders.push((from, to, forwarder));
            }
        }
        Ok(Network {
            has_namespaces,
            links,
            clients,
            forwarders,
        })
    }

    /// The same for nodes that reach each other without forwarders. Needs the namespaces.
    pub fn direct() -> Network {
        let at = |port| std::array::from_fn(|node| (own(node), port).into());
        Network {
            has_namespaces: true,
            links: at(LINKS),
            clients: at(CLIENTS),
            forwarders: Vec::new(),
        }
    }

    /// Where a node lives.
    pub fn address(node: usize) -> Ipv4Addr {
        own(node)
    }

    /// Nothing of this traffic gets from one node to another any more, without forwarders.
    pub fn cut_direct(&self, from: usize, to: usize, traffic: Traffic) -> Result<(), String> {
        let to = own(to);
        let rules = match traffic {
            Traffic::All => vec![format!("ip daddr {to}")],
            // Either side may have dialled.
            Traffic::Links => ["dport", "sport"]
                .iter()
                .map(|end| format!("ip daddr {to} tcp {end} {LINKS}"))
                .collect(),
        };
        for rule in rules {
            nft(from, &format!("add rule inet torture out {rule} drop"))?;
        }
        Ok(())
    }

    /// A node reaches nothing at this port any more, on no machine. Or its requests arrive and
    /// their answers do not.
    pub fn cut_port(&self, node: usize, port: u16, is_answers: bool) -> Result<(), String> {
        match is_answers {
            false => nft(
                node,
                &format!("add rule inet torture out tcp dport {port} drop"),
            ),
            true => (0..NODES).try_for_each(|other| {
                nft(
                    other,
                    &format!("add rule inet torture out tcp sport {port} drop"),
                )
            }),
        }
    }

    /// Where a node takes links.
    pub fn links(&self, node: usize) -> SocketAddr {
        self.links[node]
    }

    /// Where it takes clients.
    pub fn clients(&self, node: usize) -> SocketAddr {
        self.clients[node]
    }

    /// Where one node finds the links of another one.
    pub fn seen(&self, from: usize, to: usize) -> SocketAddr {
        let mut all = self.forwarders.iter();
        let (_, _, forwarder) = all
            .find(|(one, other, _)| (*one, *other) == (from, to))
            .expect("one for each pair");
        forwarder.address()
    }

    /// A command of a node, where it lives.
    pub fn command(&self, node: usize, program: &Path) -> Command {
        if !self.has_namespaces {
            return process::bound_to_us(program);
        }
        let mut command = process::bound_to_us("ip");
        command.args(["netns", "exec", &name(node)]).arg(program);
        command
    }

    /// Nothing of one node reaches another one any more.
    pub fn cut(&self, from: usize, to: usize) -> Result<(), String> {
        if self.has_namespaces {
            let to = alias(to);
            return nft(
                from,
                &format!("add rule inet torture out ip daddr {to} drop"),
            );
        }
        self.change(from, to, |way| way.is_cut = true);
        Ok(())
    }

    /// What one node sends to another one takes its time.
    pub fn slow(&self, from: usize, to: usize, pause: Duration) {
        self.change(from, to, |way| way.pause = pause);
    }

    /// All is as it was.
    pub fn heal(&self) -> Result<(), String> {
        for (from, to, _) in &self.forwarders {
            self.change(*from, *to, |way| *way = Way::default());
        }
        if self.has_namespaces {
            for node in 0..NODES {
                nft(node, "flush chain inet torture out")?;
            }
        }
        Ok(())
    }

    /// The traffic from one node to another: on connections that it has made, and on connections
    /// made to it.
    fn change(&self, from: usize, to: usize, change: impl Fn(&mut Way)) {
        for (one, other, forwarder) in &self.forwarders {
            if (*one, *other) == (from, to) {
                forwarder.change_onward(&change);
            } else if (*one, *other) == (to, from) {
                forwarder.change_back(&change);
            }
        }
    }
}

/// An address of loopback that nobody has.
fn free() -> Result<SocketAddr, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    listener.local_addr().map_err(|error| error.to_string())
}
