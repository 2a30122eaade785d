//! Passes the bytes of connections on, slowly or not at all for as long as that is wanted.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use socket2::{Domain, Socket, Type};

/// How often a thread that has nothing to do looks whether it is to end.
const TICK: Duration = Duration::from_millis(5);
/// How long a connection may take to be made.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// Passed on at once; then comes the pause.
const CHUNK_BYTES: usize = 16 << 10;

/// What becomes of the bytes of one direction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Way {
    /// They wait.
    pub is_cut: bool,
    /// After each chunk.
    pub pause: Duration,
}

#[derive(Default)]
struct Shared {
    onward: Mutex<Way>,
    back: Mutex<Way>,
    is_over: AtomicBool,
}

impl Shared {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

fn lock(way: &Mutex<Way>) -> MutexGuard<'_, Way> {
    way.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One address whose connections go to another one; ends with all of them when dropped.
pub struct Forwarder {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepts: Option<JoinHandle<()>>,
}

impl Forwarder {
    /// Listens; connects by `source` if that is given.
    ///
    /// # Errors
    /// The address is taken.
    pub fn start(
        listen: SocketAddr,
        source: Option<Ipv4Addr>,
        to: SocketAddr,
    ) -> Result<Forwarder, String> {
        let failed = |error: std::io::Error| format!("a forwarder on {listen}: {error}");
        let listener = TcpListener::bind(listen).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let shared = Arc::new(Shared::default());
        let ours = Arc::clone(&shared);
        let accepts = std::thread::spawn(move || accept(&listener, source, to, &ours));
        Ok(Forwarder {
            address,
            shared,
            accepts: Some(accepts),
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Of what comes from who has connected.
    pub fn change_onward(&self, change: impl Fn(&mut Way)) {
        change(&mut lock(&self.shared.onward));
    }

    /// Of what comes from who was connected to.
    pub fn change_back(&self, change: impl Fn(&mut Way)) {
        change(&mut lock(&self.shared.back));
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        if let Some(accepts) = self.accepts.take() {
            let _ = accepts.join();
        }
    }
}

fn accept(listener: &TcpListener, source: Option<Ipv4Addr>, to: SocketAddr, shared: &Arc<Shared>) {
    while !shared.is_over() {
        let Ok((stream, _)) = listener.accept() else {
            std::thread::sleep(TICK);
            continue;
        };
        let shared = Arc::clone(shared);
        std::thread::spawn(move || {
            // What cannot be connected to ends the connection, as the node itself would.
            let Ok(other) = connect(source, to) else {
                return;
            };
            let (Ok(from), Ok(into)) = (stream.try_clone(), other.try_clone()) else {
                return;
            };
            let back = Arc::clone(&shared);
            let returns = std::thread::spawn(move || pass_on(other, stream, &back, &back.back));
            pass_on(from, into, &shared, &shared.onward);
            let _ = returns.join();
        });
    }
}

fn connect(source: Option<Ipv4Addr>, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    if let Some(source) = source {
        socket.bind(&SocketAddr::from((source, 0)).into())?;
    }
    socket.connect_timeout(&to.into(), CONNECT_MAX)?;
    Ok(socket.into())
}

/// Passes on what comes until one side ends, then ends both.
fn pass_on(mut from: TcpStream, mut to: TcpStream, shared: &Shared, way: &Mutex<Way>) {
    let _ = from.set_nodelay(true);
    let _ = to.set_nodelay(true);
    let _ = from.set_nonblocking(false);
    let _ = from.set_read_timeout(Some(TICK));
    let mut chunk = vec![0; CHUNK_BYTES];
    while !shared.is_over() {
        let Way { is_cut, pause } = *lock(way);
        if is_cut {
            std::thread::sleep(TICK);
            continue;
        }
        match from.read(&mut chunk) {
            Ok(0) => break,
            Ok(read) => {
                std::thread::sleep(pause);
                if to.write_all(&chunk[..read]).is_err() {
                    break;
                }
            }
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) => {}
            Err(_) => break,
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
