//! A store that runs on the calling thread.

use std::fmt;
use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use penstock_client::{FromAnswer, Token, Updated, Verbs};
use penstock_net::frame::{FLAG_MORE, Medium};
use penstock_net::level::AckLevel;
use penstock_net::limits::BATCH_ITEMS_MAX;
use penstock_net::request::{BatchRequest, Condition, Expiry, Version};
use penstock_shard::{Event, Now, SessionId};

use super::callers::Callers;
use super::core::{frame_at, hello, take_output};
use super::doorbell::Doorbell;
use super::watch::Watch;
use super::{
    Answer, Ask, Changed, ClientError, CloseError, Options, Page, ProgramId, Scan, ScanRequest,
    Scanned, Value, deadline_ms, read_found, read_info, reply, write_info,
};
use crate::directory::spares::SpareOutcome;
use crate::event_loop::engine::{Engine, Turn};
use crate::event_loop::spin::Spin;
use crate::startup::node::{Bound, Node, OpenError, system};
use crate::system::wall::WallClock;

/// Calls that need no disk between two turns.
const CALLS_PER_TURN_MAX: u32 = 16;
/// A turn that is this old is ended at the next call, in microseconds.
const TURN_US_MAX: u64 = 1_000;
/// How long requests to the disk may take when the store is closed.
const FAREWELL: Duration = Duration::from_secs(10);

/// A store of one shard that runs on the thread that opened it. It is the shortest way to a value:
/// a GET of a key in memory is a call of a function. Every method blocks until it is answered. What
/// can be asked stands in [`Verbs`].
///
/// The store works only while one of its methods runs. So the time that level `interval` promises
/// begins at the next call: a program that pauses calls [`Local::sync`] first.
///
/// ```
/// use penstock::{Options, Penstock, Verbs};
///
/// # let name = format!("penstock-doc-local-{}", std::process::id());
/// # let directory = std::env::temp_dir().join(name);
/// let mut store = Penstock::open_local(&directory, Options::default())?;
/// store.set(b"greeting", b"hello")?;
/// let length = store.get_with(b"greeting", |value, _version| value.len())?;
/// assert_eq!(length, Some(5));
/// store.close()?;
/// # std::fs::remove_dir_all(&directory)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Local {
    engine: Engine,
    watch: Watch,
    doorbell: Arc<Doorbell>,
    spares: flume::Receiver<SpareOutcome>,
    session: SessionId,
    /// The frame of the request, and the frames of its reply.
    request: Vec<u8>,
    reply: Vec<u8>,
    output: Vec<u8>,
    next_request_id: u64,
    level: AckLevel,
    deadline_us: u64,
    deadline_ms: u16,
    calls_in_turn: u32,
    turn_began_us: u64,
    frame_bytes_max: usize,
    value_bytes_max: u32,
    is_stopped: bool,
    cause: Option<String>,
    /// Holds the lock of the directory; dropped after the engine.
    node: Node,
    /// The ring belongs to one thread.
    _stays: PhantomData<*const ()>,
}

impl Local {
    pub(super) fn open(directory: &Path, options: Options) -> Result<Local, OpenError> {
        let options = options.shards(1);
        let node = Node::open(options.resolve(directory)?, 1, Bound::Data, |_| {})?;
        let start = node.shard(0, |_| 0)?;
        let doorbell = Arc::new(Doorbell::new().map_err(system("make the doorbell of a shard"))?);
        // The shard asks for a few segment files at a time, so the channel needs no bound.
        let (deliver, spares) = flume::unbounded();
        let mut engine = {
            let doorbell = Arc::clone(&doorbell);
            let deliver = move |outcome| {
                let _ = deliver.send(outcome);
                doorbell.ring();
            };
            start.open(Arc::new(deliver))?.engine
        };
        let disk = engine.disk.wake_fd().map_err(system("watch the disk"))?;
        let watch = Watch {
            clock: start.clock,
            wall: WallClock::default(),
            spin: Spin::new(Duration::from_micros(start.config.spin_us.into())),
            disk,
        };
        let session = engine.shard.front_mut().open_session_in_memory(watch.now());
        let mut store = Local {
            engine,
            watch,
            doorbell,
            spares,
            session,
            request: Vec::new(),
            reply: Vec::new(),
            output: Vec::new(),
            next_request_id: 0,
            level: options.level,
            deadline_us: u64::try_from(options.deadline.as_micros()).unwrap_or(u64::MAX),
            deadline_ms: deadline_ms(options.deadline),
            calls_in_turn: 0,
            turn_began_us: 0,
            frame_bytes_max: usize::try_from(start.config.frame_bytes_max).unwrap_or(usize::MAX),
            value_bytes_max: start.config.value_bytes_max,
            is_stopped: false,
            cause: None,
            node,
            _stays: PhantomData,
        };
        store.say_hello();
        Ok(store)
    }

    /// Bytes of a value, at most.
    pub(super) fn value_bytes_max(&self) -> u32 {
        self.value_bytes_max
    }

    /// How long a call may take.
    pub(super) fn deadline(&self) -> Duration {
        Duration::from_micros(self.deadline_us)
    }

    /// The id of a program of [`Options::schema`], by its name.
    #[must_use]
    pub fn program(&self, name: &str) -> Option<ProgramId> {
        let schema = self.node.schema()?.in_force();
        Some(schema.program(name)?.program.id())
    }

    /// Sets the ack level of later operations.
    pub fn set_level(&mut self, level: AckLevel) {
        self.level = level;
    }

    /// Reads a value where it stands, without a copy; `None` if the key is missing.
    ///
    /// # Errors
    /// [`ClientError`].
    #[inline]
    pub fn get_with<R>(
        &mut self,
        key: &[u8],
        read: impl FnOnce(&[u8], Version) -> R,
    ) -> Result<Option<R>, ClientError> {
        self.refuse_if_failed()?;
        let now = self.watch.now();
        if let Some(found) = self
            .engine
            .shard
            .execution_mut()
            .get_at_once(now, self.level, key)
        {
            let shown = found.map(|(value, version)| read(value, version));
            self.call_ends(now);
            return Ok(shown);
        }
        self.call_item(Ask::get(key), None)?;
        read_found(&self.reply, read)
    }

    /// Reads a value, lets `edit` change it, and writes it back. A missing key is an empty value;
    /// an expiry stays. `edit` returns whether to write. `Ok(None)` is a declined edit.
    ///
    /// # Errors
    /// As for [`Verbs::get`]. A write can lose only to an expiry between read and write, and is
    /// then tried again.
    pub fn update(
        &mut self,
        key: &[u8],
        edit: impl FnMut(&mut Vec<u8>) -> bool,
    ) -> Result<Option<Changed>, ClientError> {
        penstock_client::update(&mut LocalKey { store: self, key }, edit)
    }

    /// All keys that begin with `prefix`, with or without their values, one page of at most 256 KiB
    /// in memory at a time. The scan borrows the store. To write in between, go by
    /// [`Verbs::scan_page`]:
    ///
    /// ```
    /// use penstock::embedded::ScanRequest;
    /// use penstock::{Options, Penstock, Verbs};
    ///
    /// # let name = format!("penstock-doc-page-{}", std::process::id());
    /// # let directory = std::env::temp_dir().join(name);
    /// let mut store = Penstock::open_local(&directory, Options::default())?;
    /// for number in 0..1000u32 {
    ///     store.set(format!("item:{number}").as_bytes(), &number.to_le_bytes())?;
    /// }
    /// let mut cursor = Some(0);
    /// while let Some(from) = cursor {
    ///     let all = ScanRequest::begin(b"item:");
    ///     let request = ScanRequest { cursor: from, entries_max: 100, ..all };
    ///     let page = store.scan_page(&request)?;
    ///     for entry in page.entries {
    ///         store.del(&entry.key)?;
    ///     }
    ///     cursor = page.next;
    /// }
    /// assert_eq!(store.scan(b"", false).count(), 0);
    /// store.close()?;
    /// # std::fs::remove_dir_all(&directory)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn scan(&mut self, prefix: &[u8], wants_values: bool) -> Scan<&mut Local> {
        Scan::new(self, prefix, wants_values)
    }

    /// Runs operations in their order, in as few frames as possible. The operations of one frame
    /// share one wait for the disk. An outcome is `Ok` if the operation was answered, whatever its
    /// status.
    pub fn submit(&mut self, asks: &[Ask<'_>]) -> Vec<Result<Answer, ClientError>> {
        let mut outcomes = Vec::with_capacity(asks.len());
        let mut rest = asks;
        while !rest.is_empty() {
            let mut bytes = 0;
            let fitting = rest.iter().take(BATCH_ITEMS_MAX).take_while(|ask| {
                bytes += ask.bytes_max();
                bytes <= self.frame_bytes_max
            });
            // An operation too large for any frame goes alone: the refusal names the limit.
            let count = fitting.count().max(1);
            let (now, later) = rest.split_at(count);
            rest = later;
            let first = outcomes.len();
            let lost = ClientError::Protocol("an item was not answered".into());
            outcomes.resize(first + count, Err(lost));
            let mut batch = self.begin_frame(count);
            for ask in now {
                ask.write(&mut batch, &mut self.request);
            }
            batch.finish(&mut self.request);
            let answered = self.call().and_then(|()| {
                reply::items(&self.reply, |item| {
                    if let Some(outcome) = outcomes.get_mut(first + usize::from(item.head.item)) {
                        *outcome = Ok(Answer::of_item(&item));
                    }
                })
            });
            if let Err(error) = answered {
                outcomes[first..].fill(Err(error));
            }
        }
        outcomes
    }

    /// The store's state as JSON.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn info(&mut self) -> Result<String, ClientError> {
        self.request.clear();
        self.next_request_id += 1;
        write_info(&mut self.request, self.next_request_id);
        self.call()?;
        read_info(&self.reply)
    }

    /// Makes every executed operation durable, whatever its level was.
    ///
    /// # Errors
    /// [`ClientError::Unknown`] if the disk failed or took longer than the deadline.
    pub fn sync(&mut self) -> Result<(), ClientError> {
        self.refuse_if_failed()?;
        let began = self.watch.now();
        self.engine.step(began, Event::Sync);
        let until_us = began.us.saturating_add(self.deadline_us);
        self.turn(began)?;
        let is_durable = |engine: &Engine| {
            let log = engine.shard.store().log();
            log.durable() >= log.appended()
        };
        while !is_durable(&self.engine) {
            self.wait(until_us)?;
        }
        Ok(())
    }

    /// Makes everything durable and releases the directory. Dropping the store does the same and
    /// tells no error.
    ///
    /// # Errors
    /// [`CloseError`] if the disk had failed.
    pub fn close(mut self) -> Result<(), CloseError> {
        self.stop();
        self.cause
            .take()
            .map_or(Ok(()), |text| Err(CloseError(text)))
    }

    #[inline]
    fn call_item(&mut self, ask: Ask<'_>, token: Option<Token>) -> Result<(), ClientError> {
        let mut batch = self.begin_frame(1);
        if let Some(token) = token {
            batch.token(token);
        }
        ask.write(&mut batch, &mut self.request);
        batch.finish(&mut self.request);
        self.call()
    }

    #[inline]
    fn begin_frame(&mut self, items_max: usize) -> BatchRequest {
        self.request.clear();
        self.next_request_id += 1;
        let (id, deadline_ms) = (self.next_request_id, self.deadline_ms);
        BatchRequest::begin(&mut self.request, id, self.level, deadline_ms, items_max)
            .over(Medium::Memory)
    }

    /// Gives the shard the request and runs the shard until the reply is complete.
    #[inline]
    fn call(&mut self) -> Result<(), ClientError> {
        self.refuse_if_failed()?;
        self.reply.clear();
        let now = self.watch.now();
        let is_given = self.give(now);
        if !self.take_reply(now) {
            self.call_long(now, is_given)?;
        }
        self.call_ends(now);
        Ok(())
    }

    /// Ends the turn if it is due.
    #[inline]
    fn call_ends(&mut self, now: Now) {
        self.calls_in_turn += 1;
        if self.calls_in_turn >= CALLS_PER_TURN_MAX || now.us >= self.turn_began_us + TURN_US_MAX {
            // The reply is complete. If the turn fails, the next call returns the error.
            let _ = self.turn(now);
        }
    }

    /// The rest of a call that needs the disk or a turn.
    fn call_long(&mut self, began: Now, mut is_given: bool) -> Result<(), ClientError> {
        let until_us = began.us.saturating_add(self.deadline_us);
        self.turn(began)?;
        loop {
            let now = self.watch.now();
            is_given = is_given || self.give(now);
            if self.take_reply(now) {
                return Ok(());
            }
            if let Err(error) = self.wait(until_us) {
                self.begin_again();
                return Err(error);
            }
        }
    }

    /// Gives the shard the request; `false` if it must be given again.
    #[inline]
    fn give(&mut self, now: Now) -> bool {
        let (session, bytes) = (self.session, &self.request[..]);
        let consumed = self.engine.step(now, Event::Received { session, bytes });
        self.engine.traffic.received_bytes += consumed as u64;
        consumed == bytes.len()
    }

    /// Takes what the shard has answered; returns whether the reply is complete.
    #[inline]
    fn take_reply(&mut self, now: Now) -> bool {
        let mut is_complete = false;
        while let Some(session) = self.engine.outbox.sendable.pop() {
            self.output.clear();
            take_output(&mut self.engine, now, session, &mut self.output);
            let mut at = 0;
            while let Some(header) = frame_at(&self.output, at) {
                let end = at + header.len as usize;
                // A call that was given up may be answered late.
                if header.request_id == self.next_request_id {
                    is_complete |= header.flags & FLAG_MORE == 0;
                    if self.reply.is_empty() && at == 0 && end == self.output.len() {
                        std::mem::swap(&mut self.reply, &mut self.output);
                        break;
                    }
                    self.reply.extend_from_slice(&self.output[at..end]);
                }
                at = end;
            }
        }
        is_complete
    }

    /// Ends the turn.
    fn turn(&mut self, now: Now) -> Result<(), ClientError> {
        self.calls_in_turn = 0;
        self.turn_began_us = now.us;
        if self.doorbell.is_rung() {
            self.doorbell.answer();
            while let Ok(outcome) = self.spares.try_recv() {
                let _ = self.engine.take_spare(now, outcome);
            }
        }
        let mut callers = Callers { mailbox: None };
        match self.engine.end_turn(now, || now, &mut callers) {
            Turn::Ended { has_stopped, .. } => self.is_stopped |= has_stopped,
            Turn::Fatal(text) | Turn::Damaged(text) => self.cause = Some(text),
            Turn::Dead => {}
        }
        self.engine.outbox.resume.clear();
        match &self.cause {
            Some(text) => Err(ClientError::Unknown(text.as_str().into())),
            None => Ok(()),
        }
    }

    /// Waits for something to do, and does it.
    fn wait(&mut self, until_us: u64) -> Result<(), ClientError> {
        let now = self.watch.now();
        if now.us >= until_us {
            let text = "no answer within the deadline";
            return Err(ClientError::Unknown(text.into()));
        }
        let deadline_us = self.engine.shard.deadline_us(now);
        let deadline_us = deadline_us.map_or(until_us, |due_us| due_us.min(until_us));
        self.watch
            .wait(&mut self.engine, &self.doorbell, Some(deadline_us));
        self.turn(self.watch.now())
    }

    #[inline]
    fn refuse_if_failed(&self) -> Result<(), ClientError> {
        match &self.cause {
            Some(text) => Err(ClientError::NotSent(text.clone())),
            None => Ok(()),
        }
    }

    /// Begins a new session. Operations that are still under way on the old one answer nobody.
    fn begin_again(&mut self) {
        let (now, session) = (self.watch.now(), self.session);
        self.engine.step(now, Event::Closed { session });
        self.session = self.engine.shard.front_mut().open_session_in_memory(now);
        self.say_hello();
    }

    fn say_hello(&mut self) {
        self.request.clear();
        self.request.extend_from_slice(&hello());
        self.give(self.watch.now());
    }

    fn stop(&mut self) {
        let began = self.watch.now();
        let until_us = began.us + u64::try_from(FAREWELL.as_micros()).expect("seconds");
        self.engine.step(began, Event::Stop);
        let mut outcome = self.turn(began);
        while !self.is_stopped && outcome.is_ok() {
            outcome = self.wait(until_us);
        }
        if let Err(error) = outcome {
            self.cause.get_or_insert_with(|| error.to_string());
        }
        self.is_stopped = true;
    }
}

impl Verbs for &mut Local {
    type Answer<T> = Result<T, ClientError>;

    #[inline]
    fn ask_for<T: FromAnswer>(self, ask: Ask<'_>) -> Result<T, ClientError> {
        self.call_item(ask, None)?;
        T::from_item(&reply::only_item(&self.reply)?)
    }

    fn ask_named<T: FromAnswer>(self, ask: Ask<'_>, token: Token) -> Result<T, ClientError> {
        self.call_item(ask, Some(token))?;
        T::from_item(&reply::only_item(&self.reply)?)
    }

    /// By [`Local::get_with`], which needs no request for a key whose value is in memory.
    fn get(self, key: &[u8]) -> Result<Option<Value>, ClientError> {
        self.get_with(key, |value, version| Value {
            bytes: value.to_vec().into(),
            version,
        })
    }
}

impl Scanned for &mut Local {
    fn page(&mut self, request: &ScanRequest<'_>) -> Result<Page, ClientError> {
        self.scan_page(request)
    }

    fn value(&mut self, key: &[u8]) -> Result<Option<Value>, ClientError> {
        self.get(key)
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        if !self.is_stopped {
            self.stop();
        }
    }
}

impl fmt::Debug for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Local")
            .field("level", &self.level)
            .finish_non_exhaustive()
    }
}

/// A store with one caller gives up an update after so many lost writes. A write is lost if the key
/// expires after the read. The next write then finds no key that could expire.
const LOCAL_LOSSES_MAX: u32 = 8;

/// A key that nobody else writes.
struct LocalKey<'a> {
    store: &'a mut Local,
    key: &'a [u8],
}

impl Updated for LocalKey<'_> {
    fn read(&mut self) -> Result<Option<Value>, ClientError> {
        self.store.get(self.key)
    }

    fn write(&mut self, value: &[u8], condition: Condition) -> Result<Changed, ClientError> {
        self.store
            .set_with(self.key, value, condition.showing(), Expiry::Keep)
    }

    fn random(&mut self) -> u64 {
        0
    }

    fn pause(&mut self, _pause: Duration, losses: u32) -> Result<(), ClientError> {
        if losses > LOCAL_LOSSES_MAX {
            let text = format!("{losses} writes were lost, though nobody else writes");
            return Err(ClientError::Busy(text));
        }
        Ok(())
    }
}
