//! The port for clients of Redis around one run of a node: the scripts that the node knows, and who
//! tracks which keys. What a command means is in the conversations of `net`, as in the server.
//!
//! ```text
//! a change --> ShardReaders::changed --> the key leaves its table --> notices, in the same step
//! ```

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use penstock_net::resp::{
    Host, KeyTracker, OwnChanges, ScriptLibrary, TrackedKeys, TrackedPrefixes, TrackingFigures,
    TrackingOptions, TrackingRefused, TrackingWay,
};
use penstock_net::script::DIGEST_BYTES;
use penstock_net::slot::{core_of, slot_of};
use penstock_scripts::{Lua, ScriptLimits, ScriptTexts};
use penstock_shard::tracking::Tracker;
use penstock_storage::store::{KeyChange, Writer};

/// The connection that gets a changed key, and the key; `None` stands for all keys.
pub(crate) type Notice = (u64, Option<Box<[u8]>>);

/// A connection that tracks keys.
#[derive(Debug)]
struct Reader {
    options: TrackingOptions,
    writer: Option<Writer>,
}

#[derive(Debug, Default)]
struct Tables {
    shards: Vec<TrackedKeys>,
    readers: BTreeMap<u64, Reader>,
    /// The connections of each shard, whether they track or not.
    writers: BTreeMap<(u16, u64), u64>,
    prefixes: TrackedPrefixes,
    notices: Vec<Notice>,
    keys_max: usize,
}

/// The keys that connections track.
#[derive(Debug)]
pub(crate) struct Readers(RefCell<Tables>);

impl Tables {
    fn table(&mut self, key: &[u8]) -> &mut TrackedKeys {
        let shards = u16::try_from(self.shards.len()).expect("few shards");
        &mut self.shards[usize::from(core_of(slot_of(key), shards))]
    }

    fn add(&mut self, key: &[u8], client: u64) {
        self.table(key).add(key, client);
        self.bound(key);
    }

    /// Has keys give way that are too many in the table of this one.
    fn bound(&mut self, key: &[u8]) {
        let keys_max = self.keys_max;
        while let Some((key, clients)) = self.table(key).take_beyond(keys_max, usize::MAX) {
            self.notify(&key, &clients, None);
        }
        assert!(self.table(key).keys() <= keys_max, "a table is bounded");
    }

    /// Notes who is told of a key. Whoever has changed it himself and wants no word of that.
    fn notify(&mut self, key: &[u8], clients: &[u64], writer: Option<Writer>) -> Vec<u64> {
        let of_prefixes: Vec<u64> = self.prefixes.clients_of(key).collect();
        let mut own = Vec::new();
        for &client in clients.iter().chain(&of_prefixes) {
            let Some(reader) = self.readers.get(&client) else {
                continue;
            };
            let is_own = writer.is_some() && writer == reader.writer;
            match is_own && reader.options.own == OwnChanges::Skipped {
                true => own.push(client),
                false => self.notices.push((client, Some(key.into()))),
            }
        }
        own
    }
}

impl Readers {
    /// For the shards of a node, each with a table of so many keys at most.
    pub(crate) fn new(shards: u16, keys_max: usize) -> Rc<Self> {
        let tables = Tables {
            shards: (0..shards).map(|_| TrackedKeys::default()).collect(),
            keys_max,
            ..Tables::default()
        };
        Rc::new(Readers(RefCell::new(tables)))
    }

    /// A connection has come.
    pub(crate) fn connect(&self, client: u64, writer: Writer) {
        let mut tables = self.0.borrow_mut();
        tables
            .writers
            .insert((writer.shard, writer.session), client);
    }

    /// What is to be told, in order.
    pub(crate) fn take_notices(&self) -> Vec<Notice> {
        std::mem::take(&mut self.0.borrow_mut().notices)
    }
}

impl KeyTracker for Readers {
    fn begin(&self, client: u64, options: &TrackingOptions) -> Result<(), TrackingRefused> {
        self.end(client);
        let mut tables = self.0.borrow_mut();
        for prefix in &options.prefixes {
            tables.prefixes.add(prefix, client);
        }
        let mut writers = tables.writers.iter();
        let found = writers.find(|(_, id)| **id == client);
        let writer = found.map(|(&(shard, session), _)| Writer { shard, session });
        let options = options.clone();
        tables.readers.insert(client, Reader { options, writer });
        Ok(())
    }

    fn end(&self, client: u64) {
        let mut tables = self.0.borrow_mut();
        if let Some(reader) = tables.readers.remove(&client) {
            for prefix in &reader.options.prefixes {
                tables.prefixes.remove(prefix, client);
            }
        }
    }

    fn reads(&self, client: u64, key: &[u8]) {
        self.0.borrow_mut().add(key, client);
    }

    fn figures(&self) -> TrackingFigures {
        TrackingFigures::default()
    }
}

/// What one shard tells of its keys.
pub(crate) struct ShardReaders {
    pub(crate) readers: Rc<Readers>,
    pub(crate) shard: usize,
}

impl Tracker for ShardReaders {
    fn is_wanted(&self) -> bool {
        !self.readers.0.borrow().readers.is_empty()
    }

    fn changed(&self, key: &[u8], change: KeyChange, _: u64) {
        let KeyChange {
            expiry_ms, writer, ..
        } = change;
        let mut tables = self.readers.0.borrow_mut();
        let clients = tables.shards[self.shard].take(key).unwrap_or_default();
        let own = tables.notify(key, &clients, writer);
        for client in own {
            let options = &tables.readers[&client].options;
            if options.way != TrackingWay::Broadcast {
                tables.add(key, client);
            }
            if let Some(expiry_ms) = expiry_ms {
                tables.shards[self.shard].expires(key, expiry_ms);
                tables.bound(key);
            }
        }
    }

    fn comes(&self, key: &[u8], writer: Option<Writer>) {
        let change = KeyChange {
            expiry_ms: None,
            type_number: None,
            writer,
        };
        self.changed(key, change, 0);
    }

    fn made(&self, key: &[u8], change: KeyChange, _: u64) {
        if let Some(expiry_ms) = change.expiry_ms {
            self.shown(key, expiry_ms);
        }
    }

    fn shown(&self, key: &[u8], expiry_ms: u64) {
        let mut tables = self.readers.0.borrow_mut();
        let is_of_prefix = tables.prefixes.clients_of(key).next().is_some();
        let table = &mut tables.shards[self.shard];
        if is_of_prefix || table.has(key) {
            table.expires(key, expiry_ms);
            tables.bound(key);
        }
    }

    fn read_by_script(&self, key: &[u8], writer: Writer) {
        let mut tables = self.readers.0.borrow_mut();
        let client = tables.writers.get(&(writer.shard, writer.session));
        let client = client.copied().filter(|client| {
            let reader = tables.readers.get(client);
            reader.is_some_and(|it| it.options.way != TrackingWay::Broadcast)
        });
        if let Some(client) = client {
            tables.add(key, client);
        }
    }

    fn all_changed(&self) {
        let mut tables = self.readers.0.borrow_mut();
        drop(tables.shards[self.shard].take_all());
        let clients: Vec<u64> = tables.readers.keys().copied().collect();
        tables
            .notices
            .extend(clients.into_iter().map(|it| (it, None)));
    }

    fn expire(&self, time_ms: u64) -> Option<u64> {
        let mut tables = self.readers.0.borrow_mut();
        while let Some((key, clients)) = tables.shards[self.shard].take_expired(time_ms) {
            tables.notify(&key, &clients, None);
        }
        tables.shards[self.shard].next_expiry_ms()
    }
}

/// The scripts that a node knows.
#[derive(Debug)]
pub(crate) struct Library(pub(crate) Arc<ScriptTexts>);

impl Library {
    pub(crate) fn new() -> Self {
        Library(Arc::new(ScriptTexts::new()))
    }

    /// The interpreter of a shard. No clock ends a run: the same seed is the same run.
    pub(crate) fn interpreter(&self) -> Lua {
        Lua::new(Arc::clone(&self.0), ScriptLimits::default())
    }
}

impl ScriptLibrary for Library {
    fn load(&self, text: &[u8]) -> Result<[u8; DIGEST_BYTES], String> {
        self.0.load(text).map_err(|error| error.to_string())
    }

    fn knows(&self, digest: &[u8; DIGEST_BYTES]) -> bool {
        self.0.exists(digest)
    }

    fn text(&self, _: &[u8; DIGEST_BYTES]) -> Option<Vec<u8>> {
        None
    }

    fn flush(&self) {
        self.0.flush();
    }
}

/// The server around a connection, as it is now.
pub(crate) struct Around<'a> {
    pub(crate) unix_ms: u64,
    /// The time of the shard.
    pub(crate) time_ms: u64,
    pub(crate) elapsed_us: u64,
    pub(crate) library: &'a Library,
    pub(crate) readers: &'a Readers,
}

impl Host for Around<'_> {
    fn unix_us(&self) -> u64 {
        self.unix_ms * 1_000
    }

    fn time_us(&self) -> u64 {
        self.time_ms * 1_000
    }

    fn elapsed_us(&self) -> u64 {
        self.elapsed_us
    }

    fn scripts(&self) -> Option<&dyn ScriptLibrary> {
        Some(self.library)
    }

    fn tracker(&self) -> Option<&dyn KeyTracker> {
        Some(self.readers)
    }
}
