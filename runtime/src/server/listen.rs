//! The listeners of a server: one port that all shards share, and one port per shard.
//!
//! A start takes its addresses early, so that one that is taken refuses the start, and opens them
//! late: until a core serves, a client is refused by the kernel. It never meets a port that takes a
//! connection and resets it, or lets it wait.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

use penstock_net::resp::CorePorts;
use socket2::TcpKeepalive;

use super::error::ServeError;
use crate::config::Config;

/// The sockets for clients of Redis.
pub(super) struct RespListeners {
    /// The address that all shards share.
    pub(super) address: SocketAddr,
    /// Of that address, one per shard.
    pub(super) entry: Vec<TcpListener>,
    /// The ports of the shards, in their order; none if they have no ports of their own.
    pub(super) own: Vec<TcpListener>,
}

impl RespListeners {
    /// The ports of the shards.
    pub(super) fn own_ports(&self) -> Vec<u16> {
        self.own.iter().map(port_of).collect()
    }
}

/// Takes the addresses for clients of Redis; `None` if they are off.
pub(super) fn bind_resp(config: &Config, shards: u16) -> Result<Option<RespListeners>, ServeError> {
    let Some(address) = config.resp_listen else {
        return Ok(None);
    };
    let bound = || {
        let (address, entry) = reserve_together(address, shards)?;
        let own = match config.resp_shard_ports {
            0 => Vec::new(),
            base => {
                let ports = CorePorts::new(base, shards).expect("judged with the options");
                reserve_each(address.ip(), ports.all())?
            }
        };
        Ok(RespListeners {
            address,
            entry,
            own,
        })
    };
    let bound = bound().map_err(|error| match error {
        ServeError::Listen { address, error } => ServeError::ListenResp { address, error },
        other => other,
    });
    bound.map(Some)
}

/// A socket for each port, for clients.
fn reserve_each(
    ip: IpAddr,
    ports: impl IntoIterator<Item = u16>,
) -> Result<Vec<TcpListener>, ServeError> {
    let ports = ports.into_iter();
    ports
        .map(|port| reserve(SocketAddr::new(ip, port), false, Some(&keepalive())))
        .collect()
}

/// The listener for other nodes.
pub(super) fn bind_links(address: SocketAddr) -> Result<TcpListener, ServeError> {
    let opened = reserve(address, false, None).and_then(|listener| {
        open(&listener)?;
        Ok(listener)
    });
    opened.map_err(|error| match error {
        ServeError::Listen { address, error } => ServeError::ListenLinks { address, error },
        other => other,
    })
}

/// Sockets for clients that share one address; 0 takes a free port. Returns the address, too.
fn reserve_together(
    mut address: SocketAddr,
    shards: u16,
) -> Result<(SocketAddr, Vec<TcpListener>), ServeError> {
    let mut shared = Vec::new();
    require_free([Some(address)])?;
    for _ in 0..shards {
        let listener = reserve(address, true, Some(&keepalive()))?;
        address.set_port(port_of(&listener));
        shared.push(listener);
    }
    Ok((address, shared))
}

/// Refuses addresses on which another process listens. Sharing a port also lets a second server
/// share it by mistake, so one socket tries to have it alone. It opens nothing. That this process
/// has taken an address itself does no harm.
pub(super) fn require_free<const N: usize>(
    addresses: [Option<SocketAddr>; N],
) -> Result<(), ServeError> {
    let mut given = addresses.into_iter().flatten();
    given.try_for_each(|address| reserve(address, false, None).map(drop))
}

/// Opens an address that was taken: from now on clients connect.
pub(super) fn open(listener: &TcpListener) -> Result<(), ServeError> {
    let opened = socket2::SockRef::from(listener).listen(CONNECTIONS_WAITING_MAX);
    opened.map_err(|error| {
        let address = listener.local_addr().unwrap_or(UNKNOWN);
        ServeError::Listen { address, error }
    })
}

/// Connections that wait for their accept, at most.
const CONNECTIONS_WAITING_MAX: i32 = 4096;

const UNKNOWN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// The sockets: of the shared port one per shard, and one port per shard. `port_conflict` has
/// judged the ports of the shards.
pub(super) fn bind(
    config: &Config,
    shards: u16,
) -> Result<(Vec<TcpListener>, Vec<TcpListener>), ServeError> {
    let (_, shared) = reserve_together(config.listen, shards)?;
    let port_of_shard = |shard| match config.shard_ports {
        0 => 0,
        base => base + shard,
    };
    let ports = (0..shards).map(port_of_shard);
    let own = reserve_each(config.listen.ip(), ports)?;
    Ok((shared, own))
}

/// How the kernel probes silent client connections: a peer that answers none of the probes is gone.
fn keepalive() -> TcpKeepalive {
    let after = Duration::from_secs(KEEPALIVE_S);
    TcpKeepalive::new()
        .with_time(after)
        .with_interval(after / KEEPALIVE_PROBES)
        .with_retries(KEEPALIVE_PROBES)
}

/// A client connection without traffic for this time is probed by the kernel, in seconds.
pub(super) const KEEPALIVE_S: u64 = 60;

/// Probes that a peer may leave without an answer.
const KEEPALIVE_PROBES: u32 = 3;

/// For how long an address that is taken is tried: longer than a loaded kernel needs to end a
/// process.
const LISTEN_TRIES: u32 = 100;

const LISTEN_PAUSE: Duration = Duration::from_millis(20);

/// Takes an address, and waits a while for one that is taken: the kernel takes down the rings of a
/// process behind its end, and what they accepted from is held until then. A start right behind
/// a crash would be refused.
fn reserve(
    address: SocketAddr,
    is_shared: bool,
    keepalive: Option<&TcpKeepalive>,
) -> Result<TcpListener, ServeError> {
    let reserved = || -> io::Result<TcpListener> {
        let domain = socket2::Domain::for_address(address);
        let socket =
            socket2::Socket::new(domain, socket2::Type::STREAM, Some(socket2::Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(is_shared)?;
        socket.set_nonblocking(true)?;
        if let Some(keepalive) = keepalive {
            // What is accepted has it, too.
            socket.set_tcp_keepalive(keepalive)?;
        }
        socket.bind(&address.into())?;
        Ok(TcpListener::from(socket))
    };
    let is_taken = |reserved: &io::Result<_>| {
        let error = reserved.as_ref().err();
        error.is_some_and(|it| it.kind() == io::ErrorKind::AddrInUse)
    };
    let mut tried = reserved();
    for _ in 1..LISTEN_TRIES {
        if !is_taken(&tried) {
            break;
        }
        std::thread::sleep(LISTEN_PAUSE);
        tried = reserved();
    }
    tried.map_err(|error| ServeError::Listen { address, error })
}

pub(super) fn port_of(listener: &TcpListener) -> u16 {
    listener.local_addr().unwrap_or(UNKNOWN).port()
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn an_address_that_becomes_free_is_waited_for_and_one_that_does_not_is_refused() {
        let taken = TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = taken.local_addr().expect("known");
        let message = reserve(address, false, None)
            .expect_err("it is taken")
            .to_string();
        assert!(message.contains("another process does"), "{message}");
        let waiting = std::thread::spawn(move || reserve(address, false, None));
        std::thread::sleep(LISTEN_PAUSE * 2);
        drop(taken);
        waiting.join().expect("no panic").expect("it is free");
    }

    #[test]
    fn a_taken_address_refuses_clients_until_it_is_opened_and_no_second_server_gets_it_then() {
        let any = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        let (address, shared) = reserve_together(any, 3).expect("three sockets");
        let connect = || TcpStream::connect(address).map(drop);
        for _ in 0..3 {
            let refused = connect().expect_err("nobody serves").kind();
            assert_eq!(refused, io::ErrorKind::ConnectionRefused);
        }
        require_free([Some(address)]).expect("it is our own");
        open(&shared[1]).expect("opened");
        connect().expect("a core serves");
        open(&shared[0]).expect("opened beside it");
        let taken = require_free([Some(address)])
            .expect_err("somebody serves")
            .to_string();
        assert!(taken.contains("another process does"), "{taken}");
    }
}
