//! The sockets and threads of a client. Each node that is asked has a socket and two threads: one
//! connects and writes, the other reads. All threads end when the last handle is dropped.
//!
//! The nodes tell which node writes a partition: in HELLO, and in answers that name another node. A
//! node that cannot be reached is passed over while another node can be reached, and is tried again
//! meanwhile.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::channel::{Channel, WRITE_MIN};
use crate::connection::Connection;
use crate::jitter::random;
use crate::named::{NamedWrite, new_token_at};
use crate::node::{Link, Node};
use crate::operation::{Answer, ClientError, Pending, Promise};
use crate::options::ClientOptions;
use crate::queued::{AnswerWaiter, Item, MemberTry, Queued, ReplyWaiter, What};
use crate::server_time::ServerTime;
use crate::silence::{Silence, Step};
use crate::state::State;
use penstock_net::frame::Opcode;
use penstock_net::hello::ServerHello;
use penstock_net::level::AckLevel;
use penstock_net::receive::is_tls;
use penstock_net::request::{Ask, Token};

/// The time in which one of several nodes must accept a connection, and then answer for the first
/// time, before the next node is asked.
const CONNECT_MAX: Duration = Duration::from_secs(1);
/// What the callers are told whose operations a silent node may have executed.
const SILENT: &str = "the server is silent";
/// How often deadlines are checked.
const TICK: Duration = Duration::from_millis(20);

/// A handle of the sockets and threads.
#[derive(Clone)]
pub(crate) struct Driver {
    shared: Arc<Shared>,
    /// What the answers to this handle's operations must have reached.
    level: AckLevel,
    /// Counts the handles: the threads hold only `Shared`.
    _alive: Arc<Alive>,
}

struct Shared {
    options: ClientOptions,
    server_time: ServerTime,
    state: Mutex<State>,
}

struct Alive(Arc<Shared>);

impl Drop for Alive {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_over = true;
        for node in &mut state.nodes {
            if let Some(link) = &node.link {
                let _ = link.stream.shutdown(Shutdown::Both);
            }
            node.wake();
        }
        // No thread is left that could send these operations.
        for (_, queued) in std::mem::take(&mut state.held) {
            queued.fail(over());
        }
    }
}

fn over() -> ClientError {
    ClientError::NotSent("the client was dropped".into())
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
        // No code under the lock panics between two states, so a poisoned state is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands an operation to the node that is to be asked.
    fn hand_on(self: &Arc<Self>, state: &mut State, queued: Queued) {
        let number = match &queued.member {
            None => state.node_of(queued.partition),
            Some(member) => state.member_of(queued.partition, member),
        };
        let node = &mut state.nodes[number];
        if !node.has_thread {
            let shared = Arc::clone(self);
            let started = std::thread::Builder::new()
                .name("penstock-client".into())
                .spawn(move || write(&shared, number));
            if let Err(error) = started {
                let error = ClientError::NotSent(format!("no thread: {error}"));
                return queued.fail(error);
            }
            node.has_thread = true;
        }
        node.queue.push_back(queued);
        node.wake();
    }

    /// Hands on the operations that have waited long enough.
    fn release(self: &Arc<Self>, state: &mut State, now: Instant) {
        while let Some(first) = state.held.first_entry()
            && first.key().0 <= now
        {
            let queued = first.remove();
            self.hand_on(state, queued);
        }
    }
}

impl Driver {
    pub(crate) fn start(
        addresses: &[String],
        options: ClientOptions,
    ) -> Result<Driver, ClientError> {
        let until = Instant::now() + options.deadline;
        let level = options.level;
        let state = State::new(addresses.iter().cloned().map(Node::new).collect());
        let shared = Arc::new(Shared {
            options,
            server_time: ServerTime::default(),
            state: Mutex::new(state),
        });
        let driver = Driver {
            _alive: Arc::new(Alive(Arc::clone(&shared))),
            shared: Arc::clone(&shared),
            level,
        };
        let mut last = ClientError::NotSent("no address was given".into());
        for number in 0..addresses.len() {
            let reader = match dial(&shared, number, until) {
                Ok(reader) => reader,
                Err(error) => {
                    shared.lock().nodes[number].failed();
                    last = error;
                    continue;
                }
            };
            shared.lock().home = number;
            let longest = match addresses.len() {
                1 => until,
                _ => until.min(Instant::now() + CONNECT_MAX),
            };
            // The answer to HELLO shows whether it is a Penstock server. A refusal that the reader
            // hears answers what is queued, so PING is queued before the reader starts. Behind the
            // refusal PING would make the writer connect, and be refused, once more.
            let ping = driver.frame(Opcode::Ping, &[], |_| Ok(()), longest);
            match reader.start(&shared).and_then(|()| ping.wait()) {
                Ok(()) => return Ok(driver),
                // Each try was turned back: the reason says more than that the time is over.
                Err(ClientError::Deadline) => {
                    let turned_back = shared.lock().nodes[number].turned_back.take();
                    last = turned_back.unwrap_or(ClientError::Deadline);
                }
                Err(error) => last = error,
            }
            shared.lock().nodes[number].failed();
        }
        Err(last)
    }

    pub(crate) fn ask<T: Send + 'static>(
        &self,
        ask: Ask<'_>,
        read: fn(Answer) -> Result<T, ClientError>,
    ) -> Pending<T> {
        self.ask_until(ask, None, read, Instant::now() + self.deadline())
    }

    pub(crate) fn ask_member<T: Send + 'static>(
        &self,
        ask: Ask<'_>,
        member: Option<MemberTry>,
        read: fn(Answer) -> Result<T, ClientError>,
    ) -> Pending<T> {
        self.ask_until(ask, member, read, Instant::now() + self.deadline())
    }

    /// The same connections with answers of another level.
    pub(crate) fn with_level(&self, level: AckLevel) -> Driver {
        Driver {
            level,
            ..self.clone()
        }
    }

    /// The HELLO that came last. A driver that has started has one: its PING was sent behind it.
    pub(crate) fn hello(&self) -> ServerHello {
        self.shared.lock().hello.clone().expect("it has started")
    }

    /// The time from the call of an operation to its answer.
    pub(crate) fn deadline(&self) -> Duration {
        self.shared.options.deadline
    }

    /// A new token, by the time of the server as far as it was told.
    ///
    /// # Errors
    /// The error of the system if it gives no random numbers.
    pub(crate) fn new_token(&self) -> std::io::Result<Token> {
        new_token_at(self.shared.server_time.now_ms(Instant::now()))
    }

    /// Bytes of a value that a node takes, at most, as far as nodes have told it.
    pub(crate) fn value_bytes_max(&self) -> Option<u32> {
        self.shared.lock().value_bytes_max
    }

    /// Asks an operation that must be answered by `until`.
    pub(crate) fn ask_until<T: Send + 'static>(
        &self,
        ask: Ask<'_>,
        member: Option<MemberTry>,
        read: fn(Answer) -> Result<T, ClientError>,
        until: Instant,
    ) -> Pending<T> {
        let item = match self.shared.options.names_writes && ask.needs_token() {
            false => Item::of(&ask),
            true => match self.new_token() {
                Ok(token) => Item::Named {
                    write: NamedWrite::new(&ask, token),
                    by_caller: false,
                },
                Err(error) => {
                    let text = format!("no random numbers for a token: {error}");
                    return Pending::of_error(ClientError::NotSent(text));
                }
            },
        };
        self.queue_item(ask.partition(), member, item, read, until, false)
    }

    /// Asks a write with a token of the caller. `is_in_doubt`: it was asked before.
    pub(crate) fn ask_named<T: Send + 'static>(
        &self,
        write: NamedWrite,
        read: fn(Answer) -> Result<T, ClientError>,
        is_in_doubt: bool,
    ) -> Pending<T> {
        let until = Instant::now() + self.deadline();
        let partition = write.partition();
        let by_caller = true;
        let item = Item::Named { write, by_caller };
        self.queue_item(partition, None, item, read, until, is_in_doubt)
    }

    fn queue_item<T: Send + 'static>(
        &self,
        partition: Option<u16>,
        member: Option<MemberTry>,
        item: Item,
        read: fn(Answer) -> Result<T, ClientError>,
        until: Instant,
        is_in_doubt: bool,
    ) -> Pending<T> {
        let promise = Promise::new();
        let pending = Pending {
            promise: Arc::clone(&promise),
            until,
            write: item.write().cloned(),
        };
        let done = Box::new(AnswerWaiter { promise, read });
        if is_in_doubt {
            pending.promise.mark_sent(true);
        }
        let what = What::Item { item, done };
        self.queue(partition, member, what, until, is_in_doubt);
        pending
    }

    pub(crate) fn ask_frame<T: Send + 'static>(
        &self,
        opcode: Opcode,
        body: &'static [u8],
        read: fn(&[u8]) -> Result<T, ClientError>,
    ) -> Pending<T> {
        let until = Instant::now() + self.shared.options.deadline;
        self.frame(opcode, body, read, until)
    }

    fn frame<T: Send + 'static>(
        &self,
        opcode: Opcode,
        body: &'static [u8],
        read: fn(&[u8]) -> Result<T, ClientError>,
        until: Instant,
    ) -> Pending<T> {
        let promise = Promise::new();
        let pending = Pending {
            promise: Arc::clone(&promise),
            until,
            write: None,
        };
        let done = Box::new(ReplyWaiter { promise, read });
        self.queue(None, None, What::Frame { opcode, body, done }, until, false);
        pending
    }

    fn queue(
        &self,
        partition: Option<u16>,
        member: Option<MemberTry>,
        what: What,
        until: Instant,
        is_in_doubt: bool,
    ) {
        let mut state = self.shared.lock();
        let pending_max = self.shared.options.pending_max;
        let is_full = state.pending.load(Ordering::Relaxed) >= pending_max;
        let queued = Queued {
            level: self.level,
            partition,
            member,
            is_in_doubt,
            ..Queued::new(what, until, &state.pending)
        };
        if is_full {
            let text = format!("{pending_max} operations are pending, which is the limit");
            return queued.fail(ClientError::Busy(text));
        }
        if matches!(queued.what, What::Item { .. }) {
            state.budget.earn();
        }
        self.shared.hand_on(&mut state, queued);
    }
}

/// Connects to a node, says HELLO and starts the reader.
fn connect(shared: &Arc<Shared>, number: usize, until: Instant) -> Result<(), ClientError> {
    dial(shared, number, until)?.start(shared)
}

/// The reader of a connection that has said HELLO, before its thread starts.
struct Reader {
    number: usize,
    generation: u64,
    stream: TcpStream,
    channel: Channel,
}

impl Reader {
    fn start(self, shared: &Arc<Shared>) -> Result<(), ClientError> {
        let (number, generation) = (self.number, self.generation);
        let of_thread = Arc::clone(shared);
        let started = std::thread::Builder::new()
            .name("penstock-client-read".into())
            .spawn(move || read(&of_thread, self));
        started.map(drop).map_err(|error| {
            // Nobody would hear what the connection brings.
            let cause = format!("no thread: {error}");
            lose(&mut shared.lock(), number, Some(generation), &cause);
            ClientError::NotSent(cause)
        })
    }
}

/// Connects to a node and says HELLO.
fn dial(shared: &Arc<Shared>, number: usize, until: Instant) -> Result<Reader, ClientError> {
    let (address, count) = {
        let state = shared.lock();
        (state.nodes[number].address.clone(), state.nodes.len())
    };
    let mut left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(ClientError::Deadline);
    }
    if count > 1 {
        left = left.min(CONNECT_MAX);
    }
    let not_sent = |error: std::io::Error| ClientError::NotSent(format!("{address}: {error}"));
    let options = &shared.options;
    let (mut stream, channel) = Channel::open(options, &address, left)?;
    let (connection, mut hello) = Connection::begin(options, channel.binding())?;
    channel.seal(&mut hello);
    stream.write_all(&hello).map_err(not_sent)?;
    let to_read = stream.try_clone().map_err(not_sent)?;
    let mut state = shared.lock();
    let node = &mut state.nodes[number];
    node.generation += 1;
    node.link = Some(Link {
        connection,
        stream,
        channel: channel.clone(),
        silence: Silence::new(Instant::now()),
    });
    Ok(Reader {
        number,
        generation: node.generation,
        stream: to_read,
        channel,
    })
}

/// Sends what is queued for a node, connects again when the connection is gone, and watches the
/// deadlines.
fn write(shared: &Arc<Shared>, number: usize) {
    let mut out = Vec::new();
    let mut next_tick = Instant::now();
    loop {
        let mut state = shared.lock();
        state.nodes[number].is_up();
        let now = Instant::now();
        if state.is_over {
            give_up(&mut state.nodes[number], "the client was dropped");
            return;
        }
        shared.release(&mut state, now);
        let are_several = state.nodes.len() > 1;
        let node = &mut state.nodes[number];
        let is_to_be_tried = node.is_to_be_tried();
        let Node { queue, link, .. } = node;
        while queue.front().is_some_and(|queued| queued.until <= now) {
            if let Some(queued) = queue.pop_front() {
                queued.fail(ClientError::Deadline);
            }
        }
        match link {
            Some(link) => {
                if now >= next_tick {
                    next_tick = now + TICK;
                    link.connection.expire(now);
                    if are_several && check_silence(shared, &mut state, number, now) {
                        continue;
                    }
                }
                let Node { queue, link, .. } = &mut state.nodes[number];
                let Some(link) = link else { continue };
                // Before the answer to HELLO the limits are not known.
                let may_send = link.connection.has_hello() && !queue.is_empty();
                let has_own = link.connection.has_output() || link.channel.has_output();
                if may_send || has_own {
                    out.clear();
                    link.connection.take_output(&mut out);
                    if may_send {
                        link.connection.send(queue, now, &mut out);
                        link.silence.sent(now);
                    }
                    let (stream, channel) = (link.stream.try_clone(), link.channel.clone());
                    drop(state);
                    channel.seal(&mut out);
                    // Written without the lock, so that callers and the reader go on meanwhile.
                    let written = stream.and_then(|stream| send_out(shared, number, stream, &out));
                    if let Err(error) = written {
                        let cause = format!("the connection broke: {error}");
                        let mut state = shared.lock();
                        lose(&mut state, number, None, &cause);
                        if error.kind() == ErrorKind::TimedOut {
                            // It takes nothing, but would accept a new connection.
                            pass_over(shared, &mut state, number);
                        }
                    }
                    continue;
                }
            }
            None if (!queue.is_empty() || is_to_be_tried) && now >= node.try_at => {
                let until = now + shared.options.deadline;
                drop(state);
                if connect(shared, number, until).is_err() {
                    pass_over(shared, &mut shared.lock(), number);
                }
                continue;
            }
            None => node.answer_unwelcome(),
        }
        let next = state.held.first_key_value();
        let next = next.map_or(TICK, |((at, _), _)| at.saturating_duration_since(now));
        let wake = state.nodes[number].sleeps();
        drop(wake.wait_timeout(state, next.min(TICK)));
    }
}

/// Looks at the silence of a node that has a connection, if there are other nodes. Returns whether
/// the connection was closed.
fn check_silence(shared: &Arc<Shared>, state: &mut State, number: usize, now: Instant) -> bool {
    let options = &shared.options;
    let node = &mut state.nodes[number];
    let Some(link) = &mut node.link else {
        return false;
    };
    let lasts = link.silence.lasts(now);
    if !link.connection.has_hello() {
        if lasts >= CONNECT_MAX && !node.queue.is_empty() {
            pass_over(shared, state, number);
        }
    } else {
        match link.silence.step(now, options.silence_max) {
            Step::Wait => {}
            Step::Probe => link.connection.probe(),
            Step::TurnAway => {
                let again = link.connection.take_repeatable();
                pass_over(shared, state, number);
                for queued in again {
                    state.send_again(queued, SILENT, now, random());
                }
            }
        }
    }
    // A silent node may yet answer what was sent without a token. Behind its deadline none is owed.
    let node = &state.nodes[number];
    let is_over = node.link.as_ref().is_some_and(|link| {
        let is_given_up = !link.connection.has_hello() || link.silence.is_turned_away();
        is_given_up && lasts >= options.deadline && !link.connection.is_owed()
    });
    if is_over {
        lose(state, number, None, SILENT);
        pass_over(shared, state, number);
    }
    is_over
}

/// Sends bytes while the node takes some. Of several nodes, one that takes none must be heard
/// meanwhile.
///
/// # Errors
/// Those of the socket; `TimedOut` from a node that is given up.
fn send_out(
    shared: &Arc<Shared>,
    number: usize,
    mut stream: TcpStream,
    mut bytes: &[u8],
) -> std::io::Result<()> {
    let options = &shared.options;
    let mut took = Instant::now();
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(sent) => {
                bytes = &bytes[sent..];
                took = Instant::now();
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                let now = Instant::now();
                let state = shared.lock();
                let waited = now.saturating_duration_since(took);
                let link = state.nodes[number].link.as_ref();
                let silent = link.map_or(waited, |link| waited.min(link.silence.lasts(now)));
                let is_given_up = state.nodes.len() > 1 && silent >= options.silence_max;
                if state.is_over || is_given_up || waited >= options.deadline.max(WRITE_MIN) {
                    return Err(ErrorKind::TimedOut.into());
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A node cannot be asked now: the operations that wait for it go to another node, if there is one.
fn pass_over(shared: &Arc<Shared>, state: &mut State, number: usize) {
    if state.is_over {
        // The other threads may have ended, so this one gives up the operations of its queue.
        return;
    }
    state.nodes[number].failed();
    for queued in std::mem::take(&mut state.nodes[number].queue) {
        shared.hand_on(state, queued);
    }
}

/// Hands the bytes that arrive to the connection, until it is gone or replaced.
fn read(shared: &Arc<Shared>, reader: Reader) {
    let Reader {
        number,
        generation,
        mut stream,
        channel,
    } = reader;
    let mut chunk = vec![0; 64 << 10];
    let mut plaintext = Vec::new();
    let cause = loop {
        match stream.read(&mut chunk) {
            Ok(0) => break "the server closed the connection".to_string(),
            Ok(read) => {
                let now = Instant::now();
                plaintext.clear();
                let (bytes, unsealed) = channel.receive(&chunk[..read], &mut plaintext);
                let mut state = shared.lock();
                let node = &mut state.nodes[number];
                if channel.has_output() {
                    node.wake();
                }
                if node.generation != generation {
                    return;
                }
                let Some(link) = &mut node.link else { return };
                let had_hello = link.connection.has_hello();
                let is_refused = !had_hello && (unsealed.is_err() || is_tls(bytes));
                let outcome = link.connection.receive(bytes).and(unsealed);
                let is_refused = is_refused || link.connection.is_of_another_kind();
                let elsewhere = link.connection.take_elsewhere();
                let refused = link.connection.take_refused();
                let hello = link.connection.take_hello();
                if is_refused && let Err(error) = &outcome {
                    node.refused(error);
                }
                node.received(now);
                node.greeted(hello.is_some());
                if let Some(hello) = hello {
                    shared.server_time.note(hello.time_ms, now);
                    state.greeted(hello, shared.options.follows);
                }
                for (queued, answer) in elsewhere {
                    state.put_back(queued, answer, now);
                }
                if !refused.is_empty() {
                    refused
                        .into_iter()
                        .for_each(|refused| state.retry(refused, now, random()));
                    // It may sleep longer than until the first of them is to be sent.
                    state.nodes[number].wake();
                }
                shared.release(&mut state, now);
                if let Err(error) = outcome {
                    if !had_hello {
                        state.nodes[number].turned_back = Some(error.clone());
                    }
                    // Under the same lock: nothing is queued for a connection that is given up.
                    return lose(&mut state, number, Some(generation), &error.to_string());
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => break format!("the connection broke: {error}"),
        }
    };
    lose(&mut shared.lock(), number, Some(generation), &cause);
}

/// The connection is gone. Operations that were sent end as unknown, but for reads and writes with
/// a token, which are sent again. Operations that were not sent stay queued for the next
/// connection.
fn lose(state: &mut State, number: usize, generation: Option<u64>, cause: &str) {
    let node = &mut state.nodes[number];
    if generation.is_some_and(|generation| generation != node.generation) {
        return;
    }
    if let Some(mut link) = node.link.take() {
        let _ = link.stream.shutdown(Shutdown::Both);
        if !link.connection.has_hello() {
            node.failed();
        }
        let now = Instant::now();
        for queued in link.connection.lose(cause) {
            state.send_again(queued, cause, now, random());
        }
    }
    state.nodes[number].wake();
}

fn give_up(node: &mut Node, cause: &str) {
    if let Some(mut link) = node.link.take() {
        // The connection may have been made after the end, and its reader waits for it.
        let _ = link.stream.shutdown(Shutdown::Both);
        for queued in link.connection.lose(cause) {
            queued.fail(ClientError::Unknown(cause.into()));
        }
    }
    for queued in node.queue.drain(..) {
        queued.fail(ClientError::NotSent(cause.into()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More than a busy machine takes for any of it.
    const LONG: Duration = Duration::from_secs(60);
    use std::net::TcpListener;

    fn shared(addresses: &[&str]) -> Arc<Shared> {
        let nodes = addresses.iter().map(|it| Node::new((*it).to_string()));
        Arc::new(Shared {
            options: ClientOptions::default(),
            server_time: ServerTime::default(),
            state: Mutex::new(State::new(nodes.collect())),
        })
    }

    #[test]
    fn what_waits_for_a_node_that_fails_behind_the_end_is_given_up_and_goes_to_no_thread_that_has_ended()
     {
        let shared = shared(&["first", "second"]);
        let promise = Promise::new();
        let read: fn(&[u8]) -> Result<(), ClientError> = |_| Ok(());
        let mut state = shared.lock();
        let what = What::Frame {
            opcode: Opcode::Ping,
            body: &[],
            done: Box::new(ReplyWaiter {
                promise: Arc::clone(&promise),
                read,
            }),
        };
        let queued = Queued::new(what, Instant::now() + LONG, &state.pending);
        state.nodes[0].queue.push_back(queued);
        state.nodes[1].has_thread = true;
        state.is_over = true;
        drop(state);
        let mut state = shared.lock();
        pass_over(&shared, &mut state, 0);
        assert_eq!(state.pending.load(Ordering::Relaxed), 1);
        give_up(&mut state.nodes[0], "the end");
        assert_eq!(state.pending.load(Ordering::Relaxed), 0);
        let until = Instant::now() + LONG;
        let write = None;
        let pending = Pending {
            promise,
            until,
            write,
        };
        let outcome = pending.wait();
        assert!(
            matches!(outcome, Err(ClientError::NotSent(_))),
            "{outcome:?}"
        );
    }

    #[test]
    fn a_connection_that_was_made_behind_the_end_is_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound").to_string();
        let shared = shared(&[&address]);
        connect(&shared, 0, Instant::now() + LONG).expect("it listens");
        let (mut server, _) = listener.accept().expect("connected to");
        give_up(&mut shared.lock().nodes[0], "the end");
        let mut hello = Vec::new();
        // The read ends only if the client has closed both of its handles, the reader's included.
        server.read_to_end(&mut hello).expect("closed");
        assert!(!hello.is_empty());
    }

    #[test]
    fn a_server_that_speaks_tls_is_asked_once_for_each_client() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound").to_string();
        let clients = 100;
        let server = std::thread::spawn(move || {
            let mut accepted = 0;
            loop {
                let (mut stream, _) = listener.accept().expect("connected to");
                let mut first = [0];
                if stream.read(&mut first).expect("HELLO, or the end") == 0 {
                    break accepted;
                }
                accepted += 1;
                // The alert `unexpected_message`. A server may send it before the client is done.
                stream.write_all(&[0x15, 3, 3, 0, 2, 2, 10]).expect("sent");
                let _ = stream.shutdown(Shutdown::Write);
                let _ = stream.read_to_end(&mut Vec::new());
            }
        });
        // A client that is held up for a second tries once more.
        let mut clients_max = clients;
        for _ in 0..clients {
            let began = Instant::now();
            let options = ClientOptions {
                deadline: LONG,
                ..ClientOptions::default()
            };
            let refused = Driver::start(std::slice::from_ref(&address), options);
            let error = refused.expect_err("no TLS").to_string();
            assert!(error.contains("speaks TLS"), "{error}");
            clients_max += began.elapsed().as_secs();
        }
        drop(TcpStream::connect(&address).expect("it listens"));
        let accepted = server.join().expect("no panic");
        assert!((clients..=clients_max).contains(&accepted), "{accepted}");
    }
}
