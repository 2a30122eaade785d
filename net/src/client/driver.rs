//! The shell around the client's connection: a socket and two threads, one that writes and
//! connects, one that reads. Both end when the last handle is gone.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::ClientOptions;
use super::connection::{Connection, FrameWaiter, Queued, Waiter, What};
use super::operation::{Answer, Ask, ClientError, Pending, Promise};
use crate::frame::Opcode;

/// The first wait between two tries to connect; each next one is twice as long.
const BACKOFF_MIN: Duration = Duration::from_millis(10);
/// The longest.
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// How often deadlines are looked at.
const TICK: Duration = Duration::from_millis(20);

/// A handle of the shell.
#[derive(Clone)]
pub(super) struct Driver {
    shared: Arc<Shared>,
    /// Counts the handles: the threads hold only `Shared`.
    _alive: Arc<Alive>,
}

struct Shared {
    options: ClientOptions,
    state: Mutex<State>,
    /// Something to send, or the end.
    wake_writer: Condvar,
}

struct State {
    queue: VecDeque<Queued>,
    link: Option<Link>,
    /// Rises with each connection, so that a reader knows whether it is still wanted.
    generation: u64,
    is_over: bool,
}

struct Link {
    connection: Connection,
    stream: TcpStream,
}

struct Alive(Arc<Shared>);

impl Drop for Alive {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_over = true;
        if let Some(link) = &state.link {
            let _ = link.stream.shutdown(Shutdown::Both);
        }
        drop(state);
        self.0.wake_writer.notify_all();
    }
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver")
            .field("options", &self.shared.options)
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic while the lock is held would be ours, and there is none between two states.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Driver {
    pub(super) fn start(
        address: SocketAddr,
        options: ClientOptions,
    ) -> Result<Driver, ClientError> {
        let until = Instant::now() + options.deadline;
        let state = State {
            queue: VecDeque::new(),
            link: None,
            generation: 0,
            is_over: false,
        };
        let shared = Arc::new(Shared {
            options,
            state: Mutex::new(state),
            wake_writer: Condvar::new(),
        });
        connect(&shared, address, until)?;
        let writer = Arc::clone(&shared);
        let started = std::thread::Builder::new()
            .name("penstock-client".into())
            .spawn(move || write(&writer, address));
        started.map_err(|error| ClientError::NotSent(format!("no thread: {error}")))?;
        let driver = Driver {
            _alive: Arc::new(Alive(Arc::clone(&shared))),
            shared,
        };
        // A server that is not ours shows itself in the answer to HELLO.
        driver.ask_frame(Opcode::Ping, |_| Ok(())).wait()?;
        Ok(driver)
    }

    pub(super) fn ask<T: Send + 'static>(
        &self,
        ask: Ask<'_>,
        read: fn(Answer) -> Result<T, ClientError>,
    ) -> Pending<T> {
        let item = ask.encode();
        let promise = Promise::new();
        let done = Box::new(Item {
            promise: Arc::clone(&promise),
            read,
        });
        self.queue(What::Item { item, done }, promise)
    }

    pub(super) fn ask_frame<T: Send + 'static>(
        &self,
        opcode: Opcode,
        read: fn(&[u8]) -> Result<T, ClientError>,
    ) -> Pending<T> {
        let promise = Promise::new();
        let done = Box::new(Frame {
            promise: Arc::clone(&promise),
            read,
        });
        self.queue(What::Frame { opcode, done }, promise)
    }

    fn queue<T>(&self, what: What, promise: Arc<Promise<T>>) -> Pending<T> {
        let until = Instant::now() + self.shared.options.deadline;
        let mut state = self.shared.lock();
        let under_way = state
            .link
            .as_ref()
            .map_or(0, |link| link.connection.under_way());
        if state.queue.len() + under_way >= self.shared.options.pending_max {
            drop(state);
            promise.keep(Err(ClientError::Busy(format!(
                "{} operations are pending, which is the limit",
                self.shared.options.pending_max
            ))));
        } else {
            state.queue.push_back(Queued { until, what });
            drop(state);
            self.shared.wake_writer.notify_one();
        }
        Pending { promise, until }
    }
}

struct Item<T> {
    promise: Arc<Promise<T>>,
    read: fn(Answer) -> Result<T, ClientError>,
}

impl<T: Send> Waiter for Item<T> {
    fn sent(&self) {
        self.promise.mark_sent();
    }

    fn done(&self, outcome: Result<Answer, ClientError>) {
        self.promise.keep(outcome.and_then(self.read));
    }
}

struct Frame<T> {
    promise: Arc<Promise<T>>,
    read: fn(&[u8]) -> Result<T, ClientError>,
}

impl<T: Send> FrameWaiter for Frame<T> {
    fn sent(&self) {
        self.promise.mark_sent();
    }

    fn done(&self, outcome: Result<&[u8], ClientError>) {
        self.promise.keep(outcome.and_then(self.read));
    }
}

/// Connects, says HELLO and starts the reader.
fn connect(shared: &Arc<Shared>, address: SocketAddr, until: Instant) -> Result<(), ClientError> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(ClientError::Deadline);
    }
    let not_sent = |error: std::io::Error| ClientError::NotSent(format!("{address}: {error}"));
    let mut stream = TcpStream::connect_timeout(&address, left).map_err(not_sent)?;
    stream.set_nodelay(true).map_err(not_sent)?;
    stream
        .set_write_timeout(Some(shared.options.deadline.max(TICK)))
        .map_err(not_sent)?;
    let (connection, hello) = Connection::begin(&shared.options.name, shared.options.level);
    stream.write_all(&hello).map_err(not_sent)?;
    let reader = stream.try_clone().map_err(not_sent)?;
    let mut state = shared.lock();
    state.generation += 1;
    let generation = state.generation;
    state.link = Some(Link { connection, stream });
    drop(state);
    let shared = Arc::clone(shared);
    let started = std::thread::Builder::new()
        .name("penstock-client-read".into())
        .spawn(move || read(&shared, reader, generation));
    started.map(drop).map_err(not_sent)
}

/// Sends what is queued, connects again when the connection is gone, and watches the deadlines.
fn write(shared: &Arc<Shared>, address: SocketAddr) {
    let mut backoff = BACKOFF_MIN;
    let mut try_at = Instant::now();
    let mut out = Vec::new();
    loop {
        let mut state = shared.lock();
        let now = Instant::now();
        if state.is_over {
            give_up(&mut state, "the client was dropped");
            return;
        }
        let State { queue, link, .. } = &mut *state;
        while queue.front().is_some_and(|queued| queued.until <= now) {
            if let Some(Queued { what, .. }) = queue.pop_front() {
                fail(&what, ClientError::Deadline);
            }
        }
        match link {
            Some(link) => {
                link.connection.expire(now);
                // Before the answer to HELLO the limits are not known.
                if link.connection.has_hello() && !queue.is_empty() {
                    backoff = BACKOFF_MIN;
                    out.clear();
                    link.connection.send(queue, now, &mut out);
                    let stream = link.stream.try_clone();
                    drop(state);
                    // Written without the lock, so that callers and the reader go on meanwhile.
                    let written = stream.and_then(|mut stream| stream.write_all(&out));
                    if let Err(error) = written {
                        lose(shared, None, &format!("the connection broke: {error}"));
                    }
                    continue;
                }
            }
            None if !queue.is_empty() && now >= try_at => {
                let until = now + shared.options.deadline;
                drop(state);
                if connect(shared, address, until).is_err() {
                    try_at = Instant::now() + backoff;
                    backoff = (backoff * 2).min(BACKOFF_MAX);
                }
                continue;
            }
            None => {}
        }
        drop(shared.wake_writer.wait_timeout(state, TICK));
    }
}

/// Hands what arrives to the connection, until it is gone or another has taken its place.
fn read(shared: &Arc<Shared>, mut stream: TcpStream, generation: u64) {
    let mut chunk = vec![0; 64 << 10];
    let cause = loop {
        match stream.read(&mut chunk) {
            Ok(0) => break "the server closed the connection".to_string(),
            Ok(read) => {
                let mut state = shared.lock();
                if state.generation != generation {
                    return;
                }
                let Some(link) = &mut state.link else { return };
                let had_hello = link.connection.has_hello();
                if let Err(error) = link.connection.receive(&chunk[..read]) {
                    break error.to_string();
                }
                if !had_hello && link.connection.has_hello() {
                    shared.wake_writer.notify_one();
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => break format!("the connection broke: {error}"),
        }
    };
    lose(shared, Some(generation), &cause);
}

/// The connection is gone: what was sent is unknown, what was not stays queued for the next one.
fn lose(shared: &Shared, generation: Option<u64>, cause: &str) {
    let mut state = shared.lock();
    if generation.is_some_and(|generation| generation != state.generation) {
        return;
    }
    if let Some(mut link) = state.link.take() {
        let _ = link.stream.shutdown(Shutdown::Both);
        link.connection.lose(cause);
    }
    drop(state);
    shared.wake_writer.notify_one();
}

fn give_up(state: &mut State, cause: &str) {
    if let Some(mut link) = state.link.take() {
        link.connection.lose(cause);
    }
    for Queued { what, .. } in state.queue.drain(..) {
        fail(&what, ClientError::NotSent(cause.into()));
    }
}

fn fail(what: &What, error: ClientError) {
    match what {
        What::Item { done, .. } => done.done(Err(error)),
        What::Frame { done, .. } => done.done(Err(error)),
    }
}
