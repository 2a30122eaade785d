//! The keys that clients of Redis track: a table for each shard, who tracks, and how it is told.
//!
//! ```text
//! GET at core 0 --> table of the shard of its key --> item to that shard
//! shard 1: a change --> takes the key out of its table --> mail of the core of each connection
//!                       that tracks it --> list of each connection --> its socket
//! ```
//!
//! What must hold: a connection stands in the table before its read is sent, and a change takes
//! the key out behind the change. So a value that was read before the change is told of. No lock is
//! held while another one is taken, but that of the connections beside one table when nobody tracks
//! any more, and no more than a few keys are dropped behind one. A connection that cannot get
//! the invalidation of one key gets that of all keys.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use penstock_net::resp::{
    OwnChanges, TRACKED_KEYS_MAX, TrackedKeys, TrackedPrefixes, TrackingFigures, TrackingOptions,
    TrackingRefused, TrackingWay, subscription_bytes,
};
use penstock_net::slot::{core_of, slot_of};
use penstock_shard::tracking::Tracker;
use penstock_storage::store::{KeyChange, Writer};

use super::channels::{NodeChannels, Receiver};
use super::client_place::ClientPlace;
use super::expirations::ShardExpirations;
use super::waiting::NodeWaiters;

/// Keys whose values have expired that one turn of a shard takes out. The next turn goes on.
const EXPIRED_AT_ONCE: usize = 256;
/// Keys of a table that are dropped where it was taken out. More are dropped by a thread: a shard
/// has other things to do.
const DROPPED_AT_ONCE: usize = 1024;

/// A connection that tracks keys.
#[derive(Debug)]
struct TrackingClient {
    place: ClientPlace,
    options: TrackingOptions,
    /// The core of the connection that gets its keys.
    receiver_core: u16,
    /// That one is gone, and this one knows.
    is_broken: AtomicBool,
}

impl TrackingClient {
    /// Whether it is not told of what this connection changes.
    fn passes(&self, writer: Option<Writer>) -> bool {
        self.options.own == OwnChanges::Skipped && writer == Some(self.place.writer)
    }
}

/// The connections that track keys.
#[derive(Debug, Default)]
struct TrackingClients {
    all: BTreeMap<u64, TrackingClient>,
    /// By the connections of each shard that track what they read.
    readers: BTreeMap<(u16, u64), u64>,
    prefixes: TrackedPrefixes,
}

impl TrackingClients {
    /// The connection that gets the keys of this one, and its core.
    fn receiver(&self, id: u64) -> Option<(u16, Receiver)> {
        let client = self.all.get(&id)?;
        let receiver = client.options.redirect.unwrap_or(id);
        Some((
            client.receiver_core,
            Receiver {
                client: receiver,
                tracker: id,
            },
        ))
    }

    /// Takes a connection out; bytes of its prefixes.
    fn remove(&mut self, id: u64) -> Option<usize> {
        let client = self.all.remove(&id)?;
        self.readers
            .remove(&(client.place.writer.shard, client.place.writer.session));
        let prefixes = &client.options.prefixes;
        prefixes.iter().for_each(|it| self.prefixes.remove(it, id));
        Some(bytes_of(&client.options))
    }
}

/// Bytes that the prefixes of a connection take.
fn bytes_of(options: &TrackingOptions) -> usize {
    let prefixes = options.prefixes.iter();
    prefixes.map(|prefix| subscription_bytes(prefix)).sum()
}

/// Drops the keys of a table. The thread ends with them, and a table needs as many reads again to
/// be worth another one.
fn drop_keys(keys: TrackedKeys) {
    if keys.keys() > DROPPED_AT_ONCE {
        let dropper = std::thread::Builder::new().name("tracked-keys".to_string());
        // Without a thread they are dropped here.
        drop(dropper.spawn(move || drop(keys)));
    }
}

/// The keys that connections of a node track.
#[derive(Debug)]
pub(crate) struct NodeTracking {
    /// Somebody tracks keys.
    is_wanted: AtomicBool,
    /// How many prefixes are tracked: without one, the lock of the connections is taken only for a
    /// key that somebody has read.
    prefixes: AtomicUsize,
    tables: Box<[Mutex<TrackedKeys>]>,
    clients: RwLock<TrackingClients>,
    channels: Arc<NodeChannels>,
    /// Bytes of a table, at most.
    table_bytes_max: usize,
}

impl NodeTracking {
    /// For a node of so many shards, whose tables may take so many bytes together.
    pub(crate) fn new(shards: u16, bytes_max: usize, channels: &Arc<NodeChannels>) -> Self {
        NodeTracking {
            is_wanted: AtomicBool::new(false),
            prefixes: AtomicUsize::new(0),
            tables: (0..shards).map(|_| Mutex::default()).collect(),
            clients: RwLock::default(),
            channels: Arc::clone(channels),
            table_bytes_max: bytes_max / usize::from(shards),
        }
    }

    fn table(&self, shard: u16) -> MutexGuard<'_, TrackedKeys> {
        let table = &self.tables[usize::from(shard)];
        table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shard_of(&self, key: &[u8]) -> u16 {
        let shards = u16::try_from(self.tables.len()).expect("at most 256");
        core_of(slot_of(key), shards)
    }

    fn clients(&self) -> RwLockReadGuard<'_, TrackingClients> {
        self.clients.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection at this place tracks keys from now on. The core is that of the connection that
    /// gets them.
    pub(crate) fn begin(
        &self,
        id: u64,
        place: ClientPlace,
        receiver_core: u16,
        options: &TrackingOptions,
    ) -> Result<(), TrackingRefused> {
        let names = self.channels.names();
        let (bytes, bytes_max) = (bytes_of(options), self.channels.bytes_max());
        if !names.take(bytes, bytes_max) {
            return Err(TrackingRefused::Prefixes { bytes_max });
        }
        let mut clients = self.clients.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = clients.remove(id) {
            names.give(bytes);
        }
        let prefixes = options.prefixes.iter();
        prefixes.for_each(|prefix| clients.prefixes.add(prefix, id));
        if options.way != TrackingWay::Broadcast {
            let Writer { shard, session } = place.writer;
            clients.readers.insert((shard, session), id);
        }
        let client = TrackingClient {
            place,
            options: options.clone(),
            receiver_core,
            is_broken: AtomicBool::new(false),
        };
        clients.all.insert(id, client);
        self.count_prefixes(&clients);
        self.is_wanted.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// It does not any more.
    pub(crate) fn end(&self, id: u64) {
        let mut clients = self.clients.write().unwrap_or_else(PoisonError::into_inner);
        let Some(bytes) = clients.remove(id) else {
            return;
        };
        self.channels.names().give(bytes);
        self.count_prefixes(&clients);
        let mut taken = Vec::new();
        if clients.all.is_empty() {
            self.is_wanted.store(false, Ordering::SeqCst);
            let shards = 0..u16::try_from(self.tables.len()).expect("at most 256");
            taken.extend(shards.map(|shard| self.table(shard).take_all()));
        }
        drop(clients);
        taken.into_iter().for_each(drop_keys);
    }

    fn count_prefixes(&self, clients: &TrackingClients) {
        let prefixes = clients.prefixes.count();
        self.prefixes.store(prefixes, Ordering::SeqCst);
    }

    fn has_prefixes(&self) -> bool {
        self.prefixes.load(Ordering::SeqCst) > 0
    }

    /// A connection is about to read a key.
    pub(crate) fn reads(&self, id: u64, key: &[u8]) {
        let shard = self.shard_of(key);
        self.table(shard).add(key, id);
        self.bound(shard);
    }

    /// Has keys of a table give way that are beyond its bounds: they are told of as if they had
    /// changed.
    fn bound(&self, shard: u16) {
        let keys_max = TRACKED_KEYS_MAX / self.tables.len();
        loop {
            let beyond = self
                .table(shard)
                .take_beyond(keys_max, self.table_bytes_max);
            let Some((key, ids)) = beyond else {
                return;
            };
            self.notify(&key, &ids, None);
        }
    }

    /// Mails a key to those who track it and those who track its prefix. Returns who is skipped
    /// because the change is his own, and whether anybody tracks a prefix so.
    fn notify(&self, key: &[u8], ids: &[u64], writer: Option<Writer>) -> (Vec<u64>, bool) {
        let (mut own, mut is_own_prefix) = (Vec::new(), false);
        let mut by_core: BTreeMap<u16, Vec<Receiver>> = BTreeMap::new();
        let clients = self.clients();
        let mut add = |id: u64| {
            if let Some((core, receiver)) = clients.receiver(id) {
                by_core.entry(core).or_default().push(receiver);
            }
        };
        for id in ids {
            match clients.all.get(id) {
                Some(client) if client.passes(writer) => own.push(*id),
                Some(client) if client.options.way != TrackingWay::Broadcast => add(*id),
                _ => {}
            }
        }
        for id in clients.prefixes.clients_of(key) {
            match clients.all.get(&id) {
                Some(client) if client.passes(writer) => is_own_prefix = true,
                _ => add(id),
            }
        }
        drop(clients);
        if !self.channels.mail_invalidated(key, by_core) {
            self.channels.mail_all_invalidated();
        }
        (own, is_own_prefix)
    }

    /// The connections of a core that get a null when all keys have changed.
    pub(crate) fn receivers_of_all(&self, core: u16) -> Vec<Receiver> {
        let clients = self.clients();
        let all = clients.all.keys().filter_map(|id| clients.receiver(*id));
        let here = all.filter(|(receiver_core, _)| *receiver_core == core);
        here.map(|(_, receiver)| receiver).collect()
    }

    /// The connection is gone that gets the keys of another one. The core of that other one, if it
    /// does not know yet, and has not named another one meanwhile.
    pub(crate) fn broke(&self, receiver: Receiver) -> Option<u16> {
        let clients = self.clients();
        let client = clients.all.get(&receiver.tracker)?;
        if client.options.redirect != Some(receiver.client) {
            return None;
        }
        let knew = client.is_broken.swap(true, Ordering::Relaxed);
        (!knew).then_some(client.place.core)
    }

    /// What is tracked.
    pub(crate) fn figures(&self) -> TrackingFigures {
        let clients = self.clients();
        let mut figures = TrackingFigures {
            clients: clients.all.len() as u64,
            prefixes: clients.prefixes.count() as u64,
            ..TrackingFigures::default()
        };
        drop(clients);
        for shard in 0..u16::try_from(self.tables.len()).expect("at most 256") {
            let table = self.table(shard);
            figures.keys += table.keys() as u64;
            figures.items += table.items() as u64;
        }
        figures
    }
}

/// What one shard tells of its keys.
pub(super) struct ShardTracker {
    pub(super) tracking: Arc<NodeTracking>,
    pub(super) expirations: ShardExpirations,
    pub(super) waiters: Arc<NodeWaiters>,
    pub(super) shard: u16,
}

impl ShardTracker {
    fn is_tracked(&self) -> bool {
        self.tracking.is_wanted.load(Ordering::SeqCst)
    }

    /// Tells those of a key that have read it, or track its prefix, and takes it out of the table.
    fn invalidate(&self, key: &[u8], expiry_ms: Option<u64>, writer: Option<Writer>) {
        if !self.is_tracked() {
            return;
        }
        let tracking = &*self.tracking;
        let ids = tracking.table(self.shard).take(key).unwrap_or_default();
        if ids.is_empty() && !tracking.has_prefixes() {
            return;
        }
        let (own, is_own_prefix) = tracking.notify(key, &ids, writer);
        // Whoever has written a value may keep it, and is told of the next change.
        if own.is_empty() && !is_own_prefix {
            return;
        }
        let mut table = tracking.table(self.shard);
        own.iter().for_each(|id| table.add(key, *id));
        if let Some(expiry_ms) = expiry_ms {
            table.expires(key, expiry_ms);
        }
        drop(table);
        tracking.bound(self.shard);
    }

    /// Those of a key that may keep its value may do so until then.
    fn keeps_until(&self, key: &[u8], expiry_ms: u64) {
        if !self.is_tracked() {
            return;
        }
        let tracking = &*self.tracking;
        let is_of_prefix =
            tracking.has_prefixes() && tracking.clients().prefixes.clients_of(key).next().is_some();
        let mut table = tracking.table(self.shard);
        if is_of_prefix || table.has(key) {
            table.expires(key, expiry_ms);
            drop(table);
            tracking.bound(self.shard);
        }
    }

    /// Has connections told of keys whose values have expired. When the next one does.
    fn expire_tracked(&self, time_ms: u64) -> Option<u64> {
        let tracking = &*self.tracking;
        for _ in 0..EXPIRED_AT_ONCE {
            let mut table = tracking.table(self.shard);
            let Some((key, ids)) = table.take_expired(time_ms) else {
                return table.next_expiry_ms();
            };
            drop(table);
            tracking.notify(&key, &ids, None);
        }
        tracking.table(self.shard).next_expiry_ms()
    }
}

impl Tracker for ShardTracker {
    fn is_wanted(&self) -> bool {
        // Both, so that what is not wanted any more is forgotten.
        let is_announced = self.expirations.is_wanted();
        self.is_tracked() || is_announced || self.waiters.is_waited_at(self.shard)
    }

    fn changed(&self, key: &[u8], change: KeyChange, time_ms: u64) {
        let KeyChange {
            expiry_ms, writer, ..
        } = change;
        self.waiters.changed(self.shard, key, change);
        self.expirations.changed(key, expiry_ms, time_ms);
        self.invalidate(key, expiry_ms, writer);
    }

    fn comes(&self, key: &[u8], writer: Option<Writer>) {
        self.invalidate(key, None, writer);
    }

    fn made(&self, key: &[u8], change: KeyChange, time_ms: u64) {
        let expiry_ms = change.expiry_ms;
        self.waiters.changed(self.shard, key, change);
        self.expirations.changed(key, expiry_ms, time_ms);
        // Whoever is in the table has written it, or reads it behind this.
        if let Some(expiry_ms) = expiry_ms {
            self.keeps_until(key, expiry_ms);
        }
    }

    fn shown(&self, key: &[u8], expiry_ms: u64) {
        self.expirations.shown(key, expiry_ms);
        self.keeps_until(key, expiry_ms);
    }

    fn read_by_script(&self, key: &[u8], writer: Writer) {
        let id = {
            let clients = self.tracking.clients();
            clients
                .readers
                .get(&(writer.shard, writer.session))
                .copied()
        };
        if let Some(id) = id {
            self.tracking.table(self.shard).add(key, id);
            self.tracking.bound(self.shard);
        }
    }

    fn all_changed(&self) {
        self.waiters.all_changed(self.shard);
        if !self.is_tracked() {
            return;
        }
        let taken = self.tracking.table(self.shard).take_all();
        self.tracking.channels.mail_all_invalidated();
        drop_keys(taken);
    }

    fn all_replaced(&self) {
        self.expirations.forget();
    }

    fn expire(&self, time_ms: u64) -> Option<u64> {
        let tracked = match self.is_tracked() {
            true => self.expire_tracked(time_ms),
            false => None,
        };
        let announced = self.expirations.expire(time_ms);
        tracked.into_iter().chain(announced).min()
    }
}

#[cfg(test)]
mod tests {
    use penstock_net::resp::Kind;

    use super::*;
    use crate::server::channels::Mailed;
    use crate::server::expirations::NodeExpirations;

    type Mail = Vec<flume::Receiver<Mailed>>;

    fn node(bytes_max: usize) -> (Arc<NodeTracking>, Mail) {
        let (channels, mail) = NodeChannels::new(2, bytes_max, &Arc::default());
        let tracking = NodeTracking::new(2, bytes_max, &Arc::new(channels));
        (Arc::new(tracking), mail)
    }

    fn place(core: u16, session: u64) -> ClientPlace {
        ClientPlace {
            core,
            writer: Writer {
                shard: core,
                session,
            },
        }
    }

    fn change(expiry_ms: Option<u64>, writer: Option<Writer>) -> KeyChange {
        KeyChange {
            expiry_ms,
            type_number: Some(0),
            writer,
        }
    }

    fn shard_of(tracking: &Arc<NodeTracking>, key: &[u8]) -> ShardTracker {
        ShardTracker {
            tracking: Arc::clone(tracking),
            expirations: ShardExpirations::new(&Arc::new(NodeExpirations::new(
                1,
                0,
                &tracking.channels,
                &Arc::default(),
            ))),
            waiters: Arc::new(NodeWaiters::new(2, &tracking.channels)),
            shard: tracking.shard_of(key),
        }
    }

    /// What came for a core: keys and who is told, in the order of the mail.
    fn lines_of(mail: &flume::Receiver<Mailed>) -> Vec<String> {
        let line = |mailed| match mailed {
            Mailed::Invalidated(it) => {
                let clients: Vec<u64> = it.receivers.iter().map(|it| it.client).collect();
                format!("{} {clients:?}", it.key.payload().escape_ascii())
            }
            Mailed::AllInvalidated => "all".to_string(),
            other => format!("{other:?}"),
        };
        mail.try_iter().map(line).collect()
    }

    #[test]
    fn a_change_is_mailed_once_to_each_core_with_those_who_have_read_the_key() {
        let (tracking, mail) = node(1 << 20);
        let key = &b"k"[..];
        let shard = shard_of(&tracking, key);
        assert!(!shard.is_wanted());
        let on = TrackingOptions::default();
        for (id, core) in [(1, 0), (2, 1), (3, 1)] {
            tracking
                .begin(id, place(core, id), core, &on)
                .expect("room");
            tracking.reads(id, key);
        }
        let redirected = TrackingOptions {
            redirect: Some(3),
            ..TrackingOptions::default()
        };
        tracking
            .begin(4, place(0, 4), 1, &redirected)
            .expect("room");
        shard.read_by_script(key, place(0, 4).writer);
        assert!(shard.is_wanted());
        assert_eq!(tracking.figures().items, 4);
        shard.changed(key, change(None, None), 1);
        shard.changed(key, change(None, None), 1);
        assert_eq!(lines_of(&mail[0]), ["k [1]"]);
        assert_eq!(lines_of(&mail[1]), ["k [2, 3, 3]"]);
        let receiver = |client| Receiver { client, tracker: 4 };
        assert_eq!(tracking.broke(receiver(2)), None, "it has named another");
        assert_eq!(tracking.broke(receiver(3)), Some(0));
        assert_eq!(tracking.broke(receiver(3)), None, "it knows");
        (1..=4).for_each(|id| tracking.end(id));
        assert!(!shard.is_wanted());
        assert_eq!(tracking.figures(), TrackingFigures::default());
    }

    #[test]
    fn who_does_not_want_to_know_of_own_changes_stays_in_the_table() {
        let (tracking, mail) = node(1 << 20);
        let key = &b"k"[..];
        let shard = shard_of(&tracking, key);
        let silent = |prefixes: &[&[u8]]| TrackingOptions {
            own: OwnChanges::Skipped,
            way: match prefixes {
                [] => TrackingWay::Reads,
                _ => TrackingWay::Broadcast,
            },
            prefixes: prefixes.iter().copied().map(Box::from).collect(),
            redirect: None,
        };
        tracking
            .begin(1, place(0, 1), 0, &silent(&[]))
            .expect("room");
        tracking
            .begin(2, place(0, 2), 0, &silent(&[b"k"]))
            .expect("room");
        let [one, two] = [1, 2].map(|id| Some(place(0, id).writer));
        tracking.reads(1, key);
        shard.changed(key, change(Some(50), one), 1);
        assert_eq!(lines_of(&mail[0]), ["k [2]"]);
        // Of a change that was noted when it was coming, nobody is told when it is made.
        shard.comes(key, two);
        assert_eq!(lines_of(&mail[0]), ["k [1]"]);
        shard.made(key, change(Some(60), two), 1);
        assert!(lines_of(&mail[0]).is_empty());
        // What the second one has written expires.
        assert_eq!(shard.expire(59), Some(60));
        assert_eq!(shard.expire(60), None);
        assert_eq!(lines_of(&mail[0]), ["k [2]"]);
        // Of a value that is shown the expiry is kept if somebody may keep it.
        shard.shown(b"other", 70);
        assert_eq!(shard.expire(0), None);
        shard.shown(b"key", 70);
        assert_eq!(shard.expire(80), None);
        assert_eq!(lines_of(&mail[0]), ["key [2]"]);
    }

    #[test]
    fn tables_give_way_and_a_full_mail_stands_for_all_keys() {
        let (tracking, mail) = node(100_000);
        let on = TrackingOptions::default();
        tracking.begin(1, place(0, 1), 0, &on).expect("room");
        for number in 0..3_000 {
            tracking.reads(1, format!("key:{number}").as_bytes());
        }
        let figures = tracking.figures();
        assert!((500..800).contains(&figures.keys), "{figures:?}");
        let lines = lines_of(&mail[0]);
        assert!(lines.contains(&"all".to_string()) && lines.len() < 3_000);
        assert_eq!(lines_of(&mail[1]), ["all"]);
        let wanted: Vec<u64> = tracking
            .receivers_of_all(0)
            .iter()
            .map(|it| it.client)
            .collect();
        assert_eq!((wanted, tracking.receivers_of_all(1).len()), (vec![1], 0));
        // It is in the mail of a core once.
        let shard = shard_of(&tracking, b"k");
        (0..3).for_each(|_| shard.all_changed());
        assert!(
            lines_of(&mail[0]).is_empty(),
            "the one before was not given out"
        );
        tracking.channels.took_all_invalidated(0);
        (0..3).for_each(|_| shard.all_changed());
        assert_eq!(lines_of(&mail[0]), ["all"]);
        assert_eq!(tracking.table(shard.shard).keys(), 0);
    }

    #[test]
    fn values_that_expire_together_are_taken_out_a_part_each_turn() {
        let (tracking, mail) = node(1 << 20);
        let on = TrackingOptions::default();
        tracking.begin(1, place(0, 1), 0, &on).expect("room");
        let shard = shard_of(&tracking, b"{a}");
        let count = 2 * EXPIRED_AT_ONCE + 1;
        for number in 0..count {
            let key = format!("{{a}}{number}");
            tracking.reads(1, key.as_bytes());
            shard.shown(key.as_bytes(), 50);
        }
        let turn = || (shard.expire(60), lines_of(&mail[0]).len());
        assert_eq!(turn(), (Some(50), EXPIRED_AT_ONCE), "the next turn is due");
        assert_eq!(turn(), (Some(50), EXPIRED_AT_ONCE));
        assert_eq!(turn(), (None, 1));
    }

    #[test]
    fn tracked_keys_leave_half_of_the_mail_and_of_its_bytes_to_messages() {
        let key = &b"k"[..];
        for bytes_max in [1 << 30, 4_000] {
            let (tracking, mail) = node(bytes_max);
            let on = TrackingOptions::default();
            tracking.begin(1, place(0, 1), 0, &on).expect("room");
            let shard = shard_of(&tracking, key);
            let mut changes = 0;
            while !tracking.channels.is_all_mailed(0) {
                tracking.reads(1, key);
                shard.changed(key, change(None, None), 1);
                changes += 1;
                assert!(changes <= 1 << 16, "half of the places");
            }
            let news = (Kind::Channel, &b"news"[..]);
            let channels = &tracking.channels;
            channels.subscribe(0, news, 7).expect("there is room");
            assert_eq!(channels.publish(news, &[0; 1_000]), Ok(1));
            let lines = lines_of(&mail[0]);
            let keys = lines.iter().filter(|line| line.starts_with("k ")).count();
            assert!(keys + 1 == changes && keys > 5, "{keys} of {changes}");
        }
    }

    #[test]
    fn prefixes_count_as_names_and_are_refused_by_their_bytes() {
        let (tracking, _mail) = node(1_000);
        let prefix = |len| TrackingOptions {
            way: TrackingWay::Broadcast,
            prefixes: [Box::from(&[b'p'; 400][..len])].into(),
            ..TrackingOptions::default()
        };
        tracking
            .begin(1, place(0, 1), 0, &prefix(200))
            .expect("room");
        let full = Err(TrackingRefused::Prefixes { bytes_max: 1_000 });
        assert_eq!(tracking.begin(2, place(0, 2), 0, &prefix(200)), full);
        tracking.end(1);
        assert_eq!(tracking.begin(2, place(0, 2), 0, &prefix(400)), Ok(()));
        assert_eq!(tracking.figures().prefixes, 1);
    }
}
