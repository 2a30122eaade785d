//! A store inside the caller's process: the server's shards without its sockets.
//!
//! [`Penstock`] runs each shard on a thread of its own and may be used from any number of threads;
//! every operation is a [`Pending`], as with the network's client. [`Local`] runs the one shard of
//! its directory on the calling thread, so that a call costs no switch between threads. Both use
//! the same files, recovery and operations as the server, and a directory can be served by any of
//! them in turn. What can be asked stands in [`Verbs`].

mod batch;
mod call;
mod callers;
mod core;
mod doorbell;
mod local;
mod mailbox;
mod options;
mod pending;
mod reply;
mod transaction;
mod update;
mod watch;

use std::cell::Cell;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use penstock_net::frame::{Header, Medium, Opcode, write_frame};
use penstock_net::level::AckLevel;
use penstock_net::request::{BatchRequest, Version};
use penstock_net::slot::slot_of;
use penstock_net::status::Status;
use penstock_shard::{Topology, slot_of_cursor};

pub use batch::Batch;
pub use local::Local;
pub use options::Options;
pub use pending::{Pending, PendingBatch};
pub use penstock_client::{
    Answer, Apply, ApplyField, ApplyInstruction, ApplyKey, Arithmetic, Ask, BitTest, Changed,
    ClientError, Comparison, Conflict, Entry, Field, Fields, FromAnswer, Instruction, Isolation,
    KeyState, Layout, LayoutError, LayoutMismatch, Named, NamedField, NumberAt, NumberKind,
    Operand, OwnedView, Page, Past, ProgramId, Rate, Run, RunArgument, Scan, Scanned, Text, Token,
    Transaction, TransactionError, TransactionRefusal, TransactionValue, Unknown, Value, Verbs,
    View, layout, new_token, transact,
};
pub use penstock_net::keyspace::{Action, At, History, KeptVersion, Keyspace, Settings};
pub use penstock_net::scan::ScanRequest;

use self::call::Call;
use self::core::LANES;
use crate::schema::Schema;
use crate::startup::node::{Bound, Node, OpenError, system};
use mailbox::{Letter, Mailbox};
use pending::Ticket;
use penstock_client::Patience;
use update::SharedKey;

/// A store whose shards run on threads of this process. Clones are handles of the same store. What
/// can be asked stands in [`Verbs`].
///
/// Operations of one thread on keys of one slot run in their order. A thread's reply does not wait
/// for the writes of another thread that it does not show, as long as no more than 64 threads ask.
#[derive(Clone)]
pub struct Penstock {
    store: Arc<Store>,
    level: AckLevel,
}

struct Store {
    mailboxes: Vec<Arc<Mailbox>>,
    topology: Topology,
    deadline: Duration,
    deadline_ms: u16,
    frame_bytes_max: usize,
    value_bytes_max: u32,
    schema: Option<Arc<Schema>>,
    running: Mutex<Option<Running>>,
}

struct Running {
    threads: Vec<JoinHandle<()>>,
    /// Holds the lock of the directory until the threads have ended.
    node: Node,
}

/// A shard failed while the store was open. Every acknowledged operation is as durable as its
/// answer said; operations that were not answered may be lost. Open the store again to recover from
/// the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloseError(pub String);

impl fmt::Display for CloseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CloseError {}

impl Penstock {
    /// Opens a data directory, recovers its logs and starts its shards. A missing directory is
    /// made.
    ///
    /// # Errors
    /// [`OpenError`] in one line with cause and mend; [`OpenError::Directory`] if another process
    /// or another handle of this one has the directory open.
    pub fn open(directory: impl AsRef<Path>, options: Options) -> Result<Penstock, OpenError> {
        let config = options.resolve(directory.as_ref())?;
        let node = Node::open(config, 1, Bound::Data, |_| {})?;
        let frame_bytes_max = usize::try_from(node.config.frame_bytes_max).unwrap_or(usize::MAX);
        let value_bytes_max = node.config.value_bytes_max;
        let (report, opened) = flume::unbounded();
        let (mut mailboxes, mut threads) = (Vec::new(), Vec::new());
        let mut outcome = Ok(());
        for shard in 0..node.shards() {
            match start_shard(&node, shard, &options, report.clone()) {
                Ok((mailbox, thread)) => {
                    mailboxes.push(mailbox);
                    threads.push(thread);
                }
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        drop(report);
        for mailbox in &mailboxes {
            mailbox.introduce(&mailboxes);
        }
        // On an error the store is dropped, which ends the threads that did start.
        let store = Store {
            mailboxes,
            topology: node.topology,
            deadline: options.deadline,
            deadline_ms: deadline_ms(options.deadline),
            frame_bytes_max,
            value_bytes_max,
            schema: node.schema().map(|it| it.in_force()),
            running: Mutex::new(Some(Running { threads, node })),
        };
        outcome?;
        opened.into_iter().collect::<Result<(), OpenError>>()?;
        Ok(Penstock {
            store: Arc::new(store),
            level: options.level,
        })
    }

    /// Opens a data directory and runs it on the calling thread, as one shard. A directory with
    /// more shards is changed to one. See [`Local`].
    ///
    /// # Errors
    /// As for [`Penstock::open`].
    pub fn open_local(directory: impl AsRef<Path>, options: Options) -> Result<Local, OpenError> {
        Local::open(directory.as_ref(), options)
    }

    /// The id of a program of [`Options::schema`], by its name.
    #[must_use]
    pub fn program(&self, name: &str) -> Option<ProgramId> {
        let named = self.store.schema.as_ref()?.program(name)?;
        Some(named.program.id())
    }

    /// A handle of the same store whose operations have another ack level. `replica` needs a
    /// second node and is refused, operation by operation.
    #[must_use]
    pub fn with_level(&self, level: AckLevel) -> Penstock {
        Penstock {
            store: Arc::clone(&self.store),
            level,
        }
    }

    /// Reads a value where it stands in the reply, without a copy; `None` if the key is missing.
    /// Blocks.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn get_with<R>(
        &self,
        key: &[u8],
        read: impl FnOnce(&[u8], Version) -> R,
    ) -> Result<Option<R>, ClientError> {
        let ticket = self.send_item(Ask::get(key), None)?;
        ticket.wait();
        ticket.read(|reply| read_found(reply, read))
    }

    /// Reads a value, lets `edit` change it, and writes it back if nobody else wrote the key
    /// meanwhile. If somebody did, `edit` runs again with the newer value. A missing key is an
    /// empty value; an expiry stays. `edit` returns whether to write. `Ok(None)` says that `edit`
    /// declined. Blocks.
    ///
    /// Between two tries the call pauses for a random time, 16 ms at most. The last try begins
    /// before [`Options::deadline`] has passed since the call.
    ///
    /// # Errors
    /// [`ClientError::Busy`] if other writers were faster until the deadline. Otherwise the errors
    /// of [`Verbs::get`] and [`Verbs::set_if`].
    pub fn update(
        &self,
        key: &[u8],
        edit: impl FnMut(&mut Vec<u8>) -> bool,
    ) -> Result<Option<Changed>, ClientError> {
        let mut updated = SharedKey {
            store: self,
            key,
            patience: Patience::begin(self.store.deadline),
        };
        penstock_client::update(&mut updated, edit)
    }

    /// All keys that begin with `prefix`, with or without their values, one page of at most 256 KiB
    /// in memory at a time; blocks. The scan has a handle of the store for itself.
    ///
    /// ```
    /// use penstock::{Options, Penstock, Verbs};
    ///
    /// # let name = format!("penstock-doc-scan-{}", std::process::id());
    /// # let directory = std::env::temp_dir().join(name);
    /// let store = Penstock::open(&directory, Options::default())?;
    /// for city in ["Lisbon", "Porto", "Braga"] {
    ///     store.set(format!("city:{city}").as_bytes(), city.as_bytes()).wait()?;
    /// }
    /// store.set(b"river:1", b"Tejo").wait()?;
    ///
    /// let mut cities = 0;
    /// for entry in store.scan(b"city:", true) {
    ///     let entry = entry?;
    ///     assert_eq!(entry.key[5..], entry.value.expect("it was asked for"));
    ///     // The store can be changed meanwhile.
    ///     store.del(&entry.key).wait()?;
    ///     cities += 1;
    /// }
    /// assert_eq!(cities, 3);
    /// assert_eq!(store.scan(b"", false).count(), 1);
    /// store.close()?;
    /// # std::fs::remove_dir_all(&directory)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn scan(&self, prefix: &[u8], wants_values: bool) -> Scan<Penstock> {
        Scan::new(self.clone(), prefix, wants_values)
    }

    /// Operations to submit together.
    pub fn batch(&self) -> Batch<'_> {
        Batch::new(self)
    }

    /// The store's state as JSON, all shards together.
    pub fn info(&self) -> Pending<String> {
        Pending::new(self.send_info(), read_info)
    }

    /// Takes no more operations, makes everything durable, ends the threads and releases the
    /// directory. Operations of other handles are answered [`ClientError::NotSent`] from then on.
    /// Dropping the last handle does the same and tells no error.
    ///
    /// # Errors
    /// [`CloseError`] if a shard had failed.
    pub fn close(self) -> Result<(), CloseError> {
        self.store.close()
    }

    #[inline]
    fn send_item(&self, ask: Ask<'_>, token: Option<Token>) -> Result<Ticket, ClientError> {
        let shard = self.owner(&ask);
        let call = self.store.mailboxes[shard].take_call()?;
        {
            let request = &mut call.lock().request;
            let mut batch = self.begin_frame(&call, request, 1);
            if let Some(token) = token {
                batch.token(token);
            }
            ask.write(&mut batch, request);
            batch.finish(request);
        }
        Ok(self.send(shard, call))
    }

    fn send_info(&self) -> Result<Ticket, ClientError> {
        let call = self.store.mailboxes[0].take_call()?;
        write_info(&mut call.lock().request, u64::from(call.id));
        Ok(self.send(0, call))
    }

    /// The shard that is asked: the owner of the key or of the cursor's slot. About keyspaces shard
    /// 0 decides.
    #[inline]
    fn owner(&self, ask: &Ask<'_>) -> usize {
        match (self.store.mailboxes.len(), ask) {
            (1, _) | (_, Ask::Keyspace { .. }) => 0,
            (_, Ask::Scan(request)) => {
                usize::from(self.store.topology.owner(slot_of_cursor(request.cursor)))
            }
            _ => usize::from(self.store.topology.owner(slot_of(ask.key()))),
        }
    }

    fn mailboxes(&self) -> &[Arc<Mailbox>] {
        &self.store.mailboxes
    }

    fn frame_bytes_max(&self) -> usize {
        self.store.frame_bytes_max
    }

    #[inline]
    fn begin_frame(&self, call: &Call, request: &mut Vec<u8>, items_max: usize) -> BatchRequest {
        let (id, deadline_ms) = (u64::from(call.id), self.store.deadline_ms);
        BatchRequest::begin(request, id, self.level, deadline_ms, items_max).over(Medium::Memory)
    }

    #[inline]
    fn send(&self, shard: usize, call: Arc<Call>) -> Ticket {
        let mailbox = &self.store.mailboxes[shard];
        mailbox.send(lane_of_thread(), &call);
        Ticket::new(call, mailbox)
    }
}

impl Verbs for &Penstock {
    type Answer<T> = Pending<T>;

    #[inline]
    fn ask_for<T: FromAnswer>(self, ask: Ask<'_>) -> Pending<T> {
        let read = |reply: &[u8]| T::from_item(&reply::only_item(reply)?);
        Pending::new(self.send_item(ask, None), read)
    }

    fn ask_named<T: FromAnswer>(self, ask: Ask<'_>, token: Token) -> Pending<T> {
        let read = |reply: &[u8]| T::from_item(&reply::only_item(reply)?);
        Pending::new(self.send_item(ask, Some(token)), read)
    }
}

impl Scanned for Penstock {
    fn page(&mut self, request: &ScanRequest<'_>) -> Result<Page, ClientError> {
        self.scan_page(request).wait()
    }

    fn value(&mut self, key: &[u8]) -> Result<Option<Value>, ClientError> {
        self.get(key).wait()
    }
}

impl fmt::Debug for Penstock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Penstock")
            .field("shards", &self.store.mailboxes.len())
            .field("level", &self.level)
            .finish_non_exhaustive()
    }
}

impl Store {
    fn close(&self) -> Result<(), CloseError> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Running { threads, node }) = running.take() {
            for mailbox in &self.mailboxes {
                mailbox.post(Letter::Stop);
            }
            for thread in threads {
                if thread.join().is_err() {
                    return Err(CloseError("the thread of a shard panicked".into()));
                }
            }
            drop(node);
        }
        match self.mailboxes.iter().find_map(|mailbox| mailbox.cause()) {
            Some(cause) => Err(CloseError(cause.into())),
            None => Ok(()),
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = self.close();
    }
}

fn start_shard(
    node: &Node,
    shard: u16,
    options: &Options,
    opened: flume::Sender<Result<(), OpenError>>,
) -> Result<(Arc<Mailbox>, JoinHandle<()>), OpenError> {
    let start = node.shard(shard, |_| 0)?;
    let (mailbox, letters) = Mailbox::new(options.pending_max, options.spin, options.deadline)
        .map_err(system("make the doorbell of a shard"))?;
    let mailbox = Arc::new(mailbox);
    let pin = start.core.filter(|_| options.is_pinned);
    let thread = std::thread::Builder::new()
        .name(format!("penstock-{shard}"))
        .spawn({
            let mailbox = Arc::clone(&mailbox);
            move || {
                if let Some(core) = pin {
                    core_affinity::set_for_current(core);
                }
                self::core::run(&start, &mailbox, letters, opened);
            }
        })
        .map_err(system("start the thread of a shard"))?;
    Ok((mailbox, thread))
}

/// The deadline of a request in the unit of its header. A longer one than the header can tell is 0:
/// none.
fn deadline_ms(deadline: std::time::Duration) -> u16 {
    u16::try_from(deadline.as_millis().max(1)).unwrap_or(0)
}

fn write_info(request: &mut Vec<u8>, request_id: u64) {
    let header = Header::request(Opcode::Info, request_id, AckLevel::None, 0);
    write_frame(request, header, &[]);
}

fn read_info(reply: &[u8]) -> Result<String, ClientError> {
    penstock_net::reply::text_of(reply::body(reply)?)
        .map(str::to_string)
        .ok_or_else(|| ClientError::Protocol("INFO is not a text".into()))
}

/// Shows the value of a GET's reply.
#[inline]
fn read_found<R>(
    reply: &[u8],
    read: impl FnOnce(&[u8], Version) -> R,
) -> Result<Option<R>, ClientError> {
    let item = reply::only_item(reply)?;
    match item.head.status {
        Status::Ok => Ok(Some(read(item.value, item.head.version))),
        _ => Answer::of_item(&item).found().map(|_| None),
    }
}

/// The lane of the calling thread. Threads get lanes in turn when they first ask.
#[inline]
fn lane_of_thread() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    thread_local! {
        static LANE: Cell<Option<u16>> = const { Cell::new(None) };
    }
    LANE.with(|lane| match lane.get() {
        Some(lane) => lane,
        None => {
            let dealt = NEXT.fetch_add(1, Ordering::Relaxed) % LANES;
            lane.set(Some(dealt));
            dealt
        }
    })
}
