//! The listeners of a server: one port that all shards share, and one port per shard.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

use socket2::TcpKeepalive;

use super::error::ServeError;
use crate::config::Config;
use crate::startup::node::OpenError;

/// The address for clients of Redis and its listeners, once per shard; `None` if it is off.
pub(super) fn bind_resp(
    config: &Config,
    shards: u16,
) -> Result<Option<(SocketAddr, Vec<TcpListener>)>, ServeError> {
    let Some(address) = config.resp_listen else {
        return Ok(None);
    };
    let listeners =
        listen_together(address, shards, keepalive(config)).map_err(|error| match error {
            ServeError::Listen { address, error } => ServeError::ListenResp { address, error },
            other => other,
        })?;
    Ok(Some(listeners))
}

/// The listener for other nodes.
pub(super) fn bind_links(address: SocketAddr) -> Result<TcpListener, ServeError> {
    listen(address, false, None).map_err(|error| match error {
        ServeError::Listen { address, error } => ServeError::ListenLinks { address, error },
        other => other,
    })
}

/// Listeners that share one address; 0 takes a free port. Returns the address, too.
fn listen_together(
    mut address: SocketAddr,
    shards: u16,
    keepalive: Option<TcpKeepalive>,
) -> Result<(SocketAddr, Vec<TcpListener>), ServeError> {
    let mut shared = Vec::new();
    // Sharing a port also lets a second server share it by mistake, so one listener first tries
    // to have it alone.
    drop(listen(address, false, None)?);
    for _ in 0..shards {
        let listener = listen(address, true, keepalive.as_ref())?;
        address.set_port(port_of(&listener));
        shared.push(listener);
    }
    Ok((address, shared))
}

/// The listeners: the shared port once per shard, and one port per shard.
pub(super) fn bind(
    config: &Config,
    shards: u16,
) -> Result<(Vec<TcpListener>, Vec<TcpListener>), ServeError> {
    let keepalive = keepalive(config);
    let (_, shared) = listen_together(config.listen, shards, keepalive.clone())?;
    let mut own = Vec::new();
    for shard in 0..shards {
        let port = match config.shard_ports {
            0 => 0,
            base => base.checked_add(shard).ok_or_else(|| {
                let ports_max = u16::MAX - base;
                OpenError::Option(format!(
                    "--shard-ports {base} leaves no port for shard {shard}; at most {ports_max} \
                     are possible"
                ))
            })?,
        };
        let address = SocketAddr::new(config.listen.ip(), port);
        own.push(listen(address, false, keepalive.as_ref())?);
    }
    Ok((shared, own))
}

/// How the kernel probes silent client connections, if it is to.
fn keepalive(config: &Config) -> Option<TcpKeepalive> {
    let after = Duration::from_secs(config.tcp_keepalive_s.into());
    (!after.is_zero()).then(|| {
        let between = (after / KEEPALIVE_PROBES).max(Duration::from_secs(1));
        TcpKeepalive::new()
            .with_time(after)
            .with_interval(between)
            .with_retries(KEEPALIVE_PROBES)
    })
}

/// Probes that a peer may leave without an answer.
const KEEPALIVE_PROBES: u32 = 3;

/// For how long an address that is taken is tried: longer than a loaded kernel needs to end a
/// process.
const LISTEN_TRIES: u32 = 100;

const LISTEN_PAUSE: Duration = Duration::from_millis(20);

/// Listens, and waits a while for an address that is taken: the kernel takes down the rings of a
/// process behind its end, and what they accepted from is held until then. A start right behind
/// a crash would be refused.
fn listen(
    address: SocketAddr,
    is_shared: bool,
    keepalive: Option<&TcpKeepalive>,
) -> Result<TcpListener, ServeError> {
    let listened = || -> io::Result<TcpListener> {
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
        socket.listen(4096)?;
        Ok(TcpListener::from(socket))
    };
    let is_taken = |listened: &io::Result<_>| {
        let error = listened.as_ref().err();
        error.is_some_and(|it| it.kind() == io::ErrorKind::AddrInUse)
    };
    let mut tried = listened();
    for _ in 1..LISTEN_TRIES {
        if !is_taken(&tried) {
            break;
        }
        std::thread::sleep(LISTEN_PAUSE);
        tried = listened();
    }
    tried.map_err(|error| ServeError::Listen { address, error })
}

pub(super) fn port_of(listener: &TcpListener) -> u16 {
    let unknown = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
    listener.local_addr().unwrap_or(unknown).port()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_becomes_free_is_waited_for_and_one_that_does_not_is_told() {
        let taken = TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = taken.local_addr().expect("known");
        let told = listen(address, false, None)
            .expect_err("it is taken")
            .to_string();
        assert!(told.contains("another process does"), "{told}");
        let waiting = std::thread::spawn(move || listen(address, false, None));
        std::thread::sleep(LISTEN_PAUSE * 2);
        drop(taken);
        waiting.join().expect("no panic").expect("it is free");
    }
}
