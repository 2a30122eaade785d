//! What connections of the RESP port are told of their server.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use penstock_net::limits::Limits;
use penstock_net::link::Membership;
use penstock_net::link::message::LINK_PARTITIONS;
use penstock_net::program::ServedSchema;
use penstock_net::request::Verb;
use penstock_net::resp::{
    Broker, BrokerFull, COMMANDS, Client, ClusterNode, ClusterView, CorePorts, Counts, Facts, Host,
    KeyHas, KeyTracker, KeyWaiters, Kind, MayTry, Name, NotificationFigures, Notifications,
    OwnCore, Pause, PauseControl, ProcessUse, SLOW_COMMANDS_MAX, ScriptLibrary, SlotRange,
    SlowCommand, Switches, TrackingFigures, TrackingOptions, TrackingRefused, WaitersFull,
    WaitingFigures,
};
use penstock_net::slot::SLOTS;
use penstock_net::status::Status;
use penstock_scripts::ScriptTexts;
use penstock_shard::accounts::answers::Asked;
use penstock_shard::cursor_order;
use penstock_storage::store::clock::REPORTED_BEHIND_MS;
use tracing::warn;

use super::channels::{NodeChannels, Unblocked};
use super::client_place::ClientPlace;
use super::debug_sleep;
use super::expirations::NodeExpirations;
use super::hashing::Hashing;
use super::listen::KEEPALIVE_S;
use super::node_pause::NodePause;
use super::tracking::NodeTracking;
use super::waiting::NodeWaiters;
use crate::cluster::plan::file::ClusterFile;
use crate::config::Config;
use crate::startup::node::Node;
use crate::stats::{Reading, Stats, total};
use crate::system::memory::resident_bytes;
use crate::system::process_use;

/// All connections of the RESP port, of all cores. Locked when one comes, goes or gets a name.
#[derive(Debug, Default)]
pub(crate) struct RespClients {
    last_id: AtomicU64,
    all: Mutex<BTreeMap<u64, Open>>,
}

/// An open connection.
#[derive(Debug)]
struct Open {
    client: Client,
    /// Its socket, which is closed when the entry is gone, and never before.
    descriptor: RawFd,
    place: ClientPlace,
}

impl RespClients {
    fn all(&self) -> MutexGuard<'_, BTreeMap<u64, Open>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection between these addresses was accepted, whose socket stays open until
    /// [`RespClients::remove`].
    pub(crate) fn add(
        &self,
        address: &str,
        local_address: &str,
        (descriptor, place): (RawFd, ClientPlace),
    ) -> Client {
        let client = Client {
            id: self.last_id.fetch_add(1, Ordering::Relaxed) + 1,
            address: address.to_string(),
            local_address: local_address.to_string(),
            since_s: unix_us() / 1_000_000,
            protocol: 2,
            ..Client::default()
        };
        let open = Open {
            client: client.clone(),
            descriptor,
            place,
        };
        self.all().insert(client.id, open);
        client
    }

    /// Ends a connection in both directions, so that its tasks end. `false` if there is none.
    fn end(&self, id: u64) -> bool {
        // The lock is held until the socket is shut: nobody closes it meanwhile.
        let all = self.all();
        let open = all.get(&id);
        if let Some(open) = open {
            crate::system::shut_down_socket(open.descriptor);
        }
        open.is_some()
    }

    /// Where a connection is, and where the other one is that it names, if that is of the same
    /// user.
    fn places(&self, id: u64, other: u64) -> Option<(ClientPlace, ClientPlace)> {
        let all = self.all();
        let (open, other) = (all.get(&id)?, all.get(&other)?);
        (open.client.user == other.client.user).then_some((open.place, other.place))
    }

    /// A connection has ended.
    pub(crate) fn remove(&self, id: u64) {
        self.all().remove(&id);
    }
}

/// How often each command came to one core, by its name as a number.
#[derive(Debug)]
#[repr(align(128))]
struct CoreCalls([AtomicU64; COMMANDS.len()]);

impl CoreCalls {
    fn new() -> Self {
        CoreCalls([const { AtomicU64::new(0) }; COMMANDS.len()])
    }
}

/// What CONFIG RESETSTAT and the last INFO have left.
#[derive(Debug, Default)]
struct Noted {
    /// What was counted when counts began anew.
    from: Counts,
    /// When operations were counted last, in microseconds, and how many there were.
    asked_us: u64,
    operations: u64,
    operations_per_s: u64,
}

/// How far apart the moments are, at the least, between which a rate is told.
const RATE_US_MIN: u64 = 500_000;

impl Noted {
    /// The rate of operations, of which there were so many at this time.
    fn rate(&mut self, operations: u64, now_us: u64) -> u64 {
        let passed_us = now_us.saturating_sub(self.asked_us);
        if passed_us >= RATE_US_MIN {
            let more = u128::from(operations.saturating_sub(self.operations));
            let per_s = more * 1_000_000 / u128::from(passed_us);
            self.operations_per_s = u64::try_from(per_s).unwrap_or(u64::MAX);
            (self.asked_us, self.operations) = (now_us, operations);
        }
        self.operations_per_s
    }
}

/// Commands whose answers took long, of all cores, the newest first. Locked when there is one more.
#[derive(Debug, Default)]
struct SlowCommands {
    commands: VecDeque<SlowCommand>,
    next_id: u64,
}

/// What is counted for INFO beside [`Stats`].
#[derive(Clone)]
struct Counting {
    /// Of all cores.
    calls: Arc<[CoreCalls]>,
    /// The core whose connections these are.
    core: u16,
    noted: Arc<Mutex<Noted>>,
}

impl Counting {
    fn new(cores: u16) -> Self {
        Counting {
            calls: (0..cores).map(|_| CoreCalls::new()).collect(),
            core: 0,
            noted: Arc::default(),
        }
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The server around a connection of the RESP port.
#[derive(Clone)]
pub(crate) struct RespHost {
    /// What never changes; the rest is filled in when it is asked for.
    facts: Facts,
    /// The node is one of a cluster.
    is_clustered: bool,
    /// The core by whose own port the connections come.
    own: Option<OwnCore>,
    limits: Limits,
    /// Bytes of a reply of EXEC and of CLIENT LIST, at most.
    reply_bytes_max: usize,
    order: u64,
    began: Instant,
    stats: Arc<Stats>,
    pub(crate) clients: Arc<RespClients>,
    /// Connections of all ports.
    open: Arc<AtomicU32>,
    slow: Arc<Mutex<SlowCommands>>,
    counting: Counting,
    /// As the cluster's file was read last.
    cluster: Arc<RwLock<Option<ClusterView>>>,
    hashing: Arc<Hashing>,
    /// Of all cores.
    channels: Arc<NodeChannels>,
    /// The keys that connections track, of all cores.
    tracking: Arc<NodeTracking>,
    /// The scripts that clients have sent, of all cores.
    scripts: Arc<ScriptTexts>,
    /// That of the core's shard.
    schema: Arc<RwLock<Arc<ServedSchema>>>,
    /// How far the time of the core's shard is ahead of the wall clock, in milliseconds.
    ahead_ms: Arc<AtomicI64>,
    /// What was set while the node runs, at all cores.
    set: Arc<NodeSettings>,
}

/// What commands of clients have set, and wait for, at all cores.
#[derive(Debug)]
struct NodeSettings {
    /// What CLIENT PAUSE holds back.
    pause: NodePause,
    /// The keys that are announced when they expire.
    expirations: Arc<NodeExpirations>,
    /// The keys that connections wait for.
    waiters: Arc<NodeWaiters>,
}

impl RespHost {
    /// The host of all connections to `address`; `open` counts those of all ports.
    pub(crate) fn new(
        node: &Node,
        address: SocketAddr,
        open: &Arc<AtomicU32>,
        channels: NodeChannels,
    ) -> Self {
        let (config, identity) = (&node.config, node.directory.identity());
        let cluster = node.cluster_file();
        let cluster = cluster.map(|file| view_of(file, config.cluster_node));
        let announced_cores = announced_cores(config, node.shards());
        if let Some(view) = &cluster {
            warn_of_ports(announced_cores, view);
        }
        let channels = Arc::new(channels);
        let tracked_bytes_max = node.channel_bytes_max();
        let tracking = NodeTracking::new(node.shards(), tracked_bytes_max, &channels);
        let waiters = NodeWaiters::new(node.shards(), &channels);
        let cluster = Arc::new(RwLock::new(cluster));
        let expirations =
            NodeExpirations::new(node.shards(), tracked_bytes_max, &channels, &cluster);
        RespHost {
            facts: Facts {
                version: env!("CARGO_PKG_VERSION"),
                port: address.port(),
                ip: address.ip().to_string(),
                announced_host: announced_host(config, address),
                announced_cores,
                node: identity.node_id,
                pid: std::process::id(),
                clients_max: node.connection_bound().max.into(),
                memory_max: node.memory().map_or(0, |memory| memory.max()),
                durability: config.durability.name(),
                idle_s: config.resp_idle_timeout_s.into(),
                keepalive_s: KEEPALIVE_S,
                shards: node.shards(),
                is_clustered: config.is_clustered() || config.resp_cluster_enabled,
                switches: Switches {
                    refuses_flush: !config.resp_flush,
                    takes_debug: config.resp_debug,
                    joins_cores: config.resp_several_shards && !config.is_clustered(),
                },
                ..Facts::default()
            },
            is_clustered: config.is_clustered(),
            own: None,
            limits: Limits {
                frame_bytes_max: config.frame_bytes_max,
                value_bytes_max: config.value_bytes_max,
            },
            reply_bytes_max: usize::try_from(config.output_bytes_max).unwrap_or(usize::MAX),
            order: cursor_order(identity.hash_seed),
            began: Instant::now(),
            stats: Arc::clone(&node.stats),
            clients: Arc::default(),
            open: Arc::clone(open),
            slow: Arc::default(),
            counting: Counting::new(node.shards()),
            cluster,
            hashing: Arc::default(),
            channels,
            tracking: Arc::new(tracking),
            scripts: Arc::default(),
            schema: Arc::default(),
            ahead_ms: Arc::default(),
            set: Arc::new(NodeSettings {
                pause: NodePause::default(),
                expirations: Arc::new(expirations),
                waiters: Arc::new(waiters),
            }),
        }
    }

    /// The same for the connections of one core, whose shard runs this schema.
    pub(crate) fn of_core(self, core: u16, schema: Option<Arc<ServedSchema>>) -> Self {
        let schema = Arc::new(RwLock::new(schema.unwrap_or_default()));
        let counting = Counting {
            core,
            ..self.counting.clone()
        };
        RespHost {
            schema,
            counting,
            ahead_ms: Arc::default(),
            ..self
        }
    }

    /// The same for connections to `port`, which belongs to this core alone.
    pub(crate) fn by_own_port(&self, core: u16, port: u16) -> Self {
        let cores = self.facts.shards;
        let facts = Facts {
            port,
            ..self.facts.clone()
        };
        RespHost {
            facts,
            own: Some(OwnCore { core, cores }),
            ..self.clone()
        }
    }

    /// The shard of the core runs another schema.
    pub(crate) fn serve_schema(&self, schema: Arc<ServedSchema>) {
        *self.schema.write().unwrap_or_else(PoisonError::into_inner) = schema;
    }

    /// The time of the core's shard is so far ahead of the wall clock. Both are told in whole
    /// milliseconds, so one of them is no difference.
    pub(crate) fn follow(&self, ahead_ms: i64) {
        let is_apart = ahead_ms.unsigned_abs() > 1;
        let ahead_ms = if is_apart { ahead_ms } else { 0 };
        self.ahead_ms.store(ahead_ms, Ordering::Relaxed);
    }

    /// The cluster's file says something else.
    pub(crate) fn learn(&self, file: &ClusterFile) {
        let mut cluster = self.cluster.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = &*cluster {
            let view = view_of(file, before.me);
            if view.nodes != before.nodes {
                warn_of_ports(self.facts.announced_cores, &view);
            }
            *cluster = Some(view);
        }
    }

    /// The scripts that clients have sent.
    pub(super) fn script_texts(&self) -> Arc<ScriptTexts> {
        Arc::clone(&self.scripts)
    }

    /// The channels of all cores.
    pub(super) fn channels(&self) -> &Arc<NodeChannels> {
        &self.channels
    }

    /// The keys that connections track, of all cores.
    pub(super) fn tracking(&self) -> &Arc<NodeTracking> {
        &self.tracking
    }

    /// The keys that connections wait for, of all cores.
    pub(super) fn waiters(&self) -> &Arc<NodeWaiters> {
        &self.set.waiters
    }

    /// The keys that are announced when they expire, of all cores.
    pub(super) fn expirations(&self) -> &Arc<NodeExpirations> {
        &self.set.expirations
    }

    /// The core whose connections these are.
    pub(super) fn number_of_core(&self) -> u16 {
        self.counting.core
    }

    /// Where passwords are hashed.
    pub(super) fn hashing(&self) -> &Hashing {
        &self.hashing
    }

    /// Whether the node is one of several.
    pub(crate) fn is_clustered(&self) -> bool {
        self.is_clustered
    }

    /// What was counted since the start.
    fn counted(&self, now: &Reading) -> Counts {
        let gets = answers_of(now, Verb::Get);
        Counts {
            operations: now.answers.as_flattened().iter().sum(),
            operations_per_s: 0,
            connections: now.figure("connections_opened"),
            connections_refused: now.figure("connections_refused"),
            received_bytes: now.figure("received_bytes"),
            sent_bytes: now.figure("sent_bytes"),
            hits: status_of(gets, Status::Ok),
            misses: status_of(gets, Status::NotFound),
            fired: now.figure("expiries_fired"),
        }
    }

    fn slow(&self) -> MutexGuard<'_, SlowCommands> {
        self.slow.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection that says nothing for so long is closed, in microseconds; 0 is never.
    pub(crate) fn idle_us_max(&self) -> u64 {
        self.facts.idle_s * 1_000_000
    }

    /// Bytes of a reply that a short command can make long, at most.
    pub(super) fn reply_bytes_max(&self) -> usize {
        self.reply_bytes_max
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }
}

impl Host for RespHost {
    fn unix_us(&self) -> u64 {
        // Keys expire by the time of the store.
        let ahead_us = self.stats.store_ahead_us();
        unix_us()
            + match ahead_us > REPORTED_BEHIND_MS * 1_000 {
                true => ahead_us,
                false => 0,
            }
    }

    fn time_us(&self) -> u64 {
        let ahead_us = self.ahead_ms.load(Ordering::Relaxed).saturating_mul(1_000);
        unix_us().saturating_add_signed(ahead_us)
    }

    fn joined_cores(&self) -> u16 {
        match self.facts.switches.joins_cores {
            true => self.facts.shards,
            false => 0,
        }
    }

    fn facts(&self) -> Facts {
        let readings = self.stats.read();
        let now = total(&readings);
        let keys_of = self
            .own
            .map_or(&now, |own| &readings[usize::from(own.core)]);
        let counted = self.counted(&now);
        let mut noted = self.counting.noted();
        let operations_per_s = noted.rate(counted.operations, self.elapsed_us());
        let counts = Counts {
            operations_per_s,
            ..since(&counted, &noted.from)
        };
        drop(noted);
        let (used, resident) = (process_use(), resident_bytes().unwrap_or(0));
        Facts {
            uptime_s: self.began.elapsed().as_secs(),
            clients: self.open.load(Ordering::Relaxed).into(),
            used: ProcessUse {
                user_us: used.user_us,
                system_us: used.system_us,
                resident_bytes: resident,
                // The kernel notes the most at times only.
                resident_bytes_most: used.resident_bytes_most.max(resident),
            },
            keys: keys_of.figure("keys"),
            counts,
            ..self.facts.clone()
        }
    }

    fn clients(&self) -> Vec<Client> {
        let all = self.clients.all();
        all.values().map(|open| open.client.clone()).collect()
    }

    fn end_client(&self, id: u64) -> bool {
        self.clients.end(id)
    }

    fn was_called(&self, name: Name, times: u64) {
        let CoreCalls(calls) = &self.counting.calls[usize::from(self.counting.core)];
        calls[name as usize].fetch_add(times, Ordering::Relaxed);
    }

    fn calls_of(&self, name: Name) -> u64 {
        let cores = self.counting.calls.iter();
        cores
            .map(|CoreCalls(calls)| calls[name as usize].load(Ordering::Relaxed))
            .sum()
    }

    fn forget_counts(&self) {
        let counted = self.counted(&total(&self.stats.read()));
        self.counting.noted().from = counted;
        for CoreCalls(calls) in self.counting.calls.iter() {
            calls
                .iter()
                .for_each(|count| count.store(0, Ordering::Relaxed));
        }
    }

    fn client_changed(&self, client: &Client) {
        if let Some(known) = self.clients.all().get_mut(&client.id) {
            known.client.clone_from(client);
        }
    }

    fn elapsed_us(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn was_slow(&self, mut command: SlowCommand) {
        let mut slow = self.slow();
        command.id = slow.next_id;
        slow.next_id += 1;
        slow.commands.truncate(SLOW_COMMANDS_MAX - 1);
        slow.commands.push_front(command);
    }

    fn slow_commands(&self) -> Vec<SlowCommand> {
        self.slow().commands.iter().cloned().collect()
    }

    fn forget_slow_commands(&self) {
        self.slow().commands.clear();
    }

    fn core(&self) -> Option<OwnCore> {
        self.own
    }

    fn cluster(&self) -> Option<ClusterView> {
        let cluster = self.cluster.read().unwrap_or_else(PoisonError::into_inner);
        cluster.clone()
    }

    fn serves(&self, slot: u16, as_member: bool) -> bool {
        let cluster = self.cluster.read().unwrap_or_else(PoisonError::into_inner);
        let view = cluster.as_ref();
        view.is_none_or(|view| view.serves(slot, as_member))
    }

    fn schema(&self) -> Arc<ServedSchema> {
        let schema = self.schema.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&schema)
    }

    fn scan_order(&self) -> u64 {
        self.order
    }

    fn scripts(&self) -> Option<&dyn ScriptLibrary> {
        Some(&*self.scripts)
    }

    fn notifications(&self) -> Notifications {
        self.set.expirations.wanted()
    }

    fn notify(&self, notifications: Notifications) {
        self.set.expirations.want(notifications);
    }

    fn notified(&self) -> NotificationFigures {
        self.set.expirations.figures()
    }

    fn stand_still(&self, us: u64) {
        let until = Instant::now() + Duration::from_micros(us);
        debug_sleep::begin(until);
        self.channels.mail_sleep(self.number_of_core(), until);
        debug_sleep::stand_still(until);
    }

    fn pauses(&self) -> Option<&dyn PauseControl> {
        Some(self)
    }

    fn broker(&self) -> Option<&dyn Broker> {
        Some(self)
    }

    fn is_client(&self, id: u64) -> bool {
        self.clients.all().contains_key(&id)
    }

    fn tracker(&self) -> Option<&dyn KeyTracker> {
        Some(self)
    }

    fn waiters(&self) -> Option<&dyn KeyWaiters> {
        Some(self)
    }
}

impl PauseControl for RespHost {
    fn pause(&self) -> Option<Pause> {
        self.set.pause.at(|| self.elapsed_us())
    }

    fn begin(&self, pause: Pause) {
        self.set.pause.begin(pause, self.elapsed_us());
    }

    fn end(&self) {
        self.set.pause.end();
        self.channels.mail_unpaused();
    }
}

impl KeyWaiters for RespHost {
    fn shard_of(&self, key: &[u8]) -> u16 {
        self.set.waiters.shard_of(key)
    }

    fn begin(&self, client: u64, of_type: u8, keys: &[&[u8]]) -> Result<u64, WaitersFull> {
        let place = self.clients.all().get(&client).map(|open| open.place);
        let place = place.expect("a connection that asks is open");
        self.set.waiters.begin(client, place, of_type, keys)
    }

    fn may_try(&self, key: &[u8], ticket: u64) -> MayTry {
        self.set.waiters.may_try(key, ticket)
    }

    fn found(&self, key: &[u8], ticket: u64, has: KeyHas) {
        self.set.waiters.found(key, ticket, has);
    }

    fn end(&self, ticket: u64, keys: &[&[u8]]) {
        self.set.waiters.end(ticket, keys);
    }

    fn unblock(&self, client: u64, is_error: bool) -> bool {
        let all = self.clients.all();
        let open = all.get(&client);
        let waits = open.and_then(|open| Some((open.place.core, open.client.ticket?)));
        drop(all);
        if let Some((core, ticket)) = waits {
            let unblocked = Unblocked {
                client,
                ticket,
                is_error,
            };
            self.channels.mail_unblocked(core, unblocked);
        }
        waits.is_some()
    }

    fn blocked_clients(&self) -> usize {
        let all = self.clients.all();
        let is_blocked = |open: &&Open| open.client.is_held || open.client.ticket.is_some();
        all.values().filter(is_blocked).count()
    }

    fn figures(&self) -> WaitingFigures {
        self.set.waiters.figures()
    }
}

impl KeyTracker for RespHost {
    fn begin(&self, client: u64, options: &TrackingOptions) -> Result<(), TrackingRefused> {
        let receiver = options.redirect.unwrap_or(client);
        let places = self.clients.places(client, receiver);
        let (place, receiver) = places.ok_or(TrackingRefused::NoSuchClient)?;
        self.tracking.begin(client, place, receiver.core, options)
    }

    fn end(&self, client: u64) {
        self.tracking.end(client);
    }

    fn reads(&self, client: u64, key: &[u8]) {
        self.tracking.reads(client, key);
    }

    fn figures(&self) -> TrackingFigures {
        self.tracking.figures()
    }
}

impl Broker for RespHost {
    fn subscribe(&self, kind: Kind, name: &[u8], client: u64) -> Result<(), BrokerFull> {
        self.channels
            .subscribe(self.number_of_core(), (kind, name), client)
    }

    fn unsubscribe(&self, kind: Kind, name: &[u8], client: u64) {
        self.channels
            .unsubscribe(self.number_of_core(), (kind, name), client);
    }

    fn publish(&self, kind: Kind, channel: &[u8], payload: &[u8]) -> Result<usize, BrokerFull> {
        self.channels.publish((kind, channel), payload)
    }

    fn mail(&self) -> (u64, u64) {
        self.channels.mail(self.number_of_core())
    }

    fn steps(&self, kind: Kind, channel: &[u8]) -> usize {
        self.channels.steps(kind, channel)
    }

    fn subscribers(&self, kind: Kind, name: &[u8]) -> usize {
        // A client of a cluster adds up what the ports of all cores tell.
        let core = self.own.map(|own| own.core);
        self.channels.subscribers(core, kind, name)
    }

    fn visit_names(&self, kind: Kind, visit: &mut dyn FnMut(&[u8]) -> bool) {
        self.channels.visit_names(kind, visit);
    }

    fn clients(&self) -> usize {
        let all = self.clients.all();
        let subscribes = |open: &&Open| open.client.subscriptions != [0; 3];
        all.values().filter(subscribes).count()
    }
}

/// How often items of a verb were answered, by status.
fn answers_of(reading: &Reading, verb: Verb) -> &[u64] {
    let place = Asked::ALL.iter().position(|asked| *asked == verb.into());
    &reading.answers[place.expect("each verb is counted")]
}

fn status_of(answers: &[u64], status: Status) -> u64 {
    let place = Status::ALL.iter().position(|known| *known == status);
    answers[place.expect("each status is counted")]
}

/// What was counted since counts began anew.
fn since(now: &Counts, from: &Counts) -> Counts {
    Counts {
        operations: now.operations.saturating_sub(from.operations),
        operations_per_s: 0,
        connections: now.connections.saturating_sub(from.connections),
        connections_refused: now
            .connections_refused
            .saturating_sub(from.connections_refused),
        received_bytes: now.received_bytes.saturating_sub(from.received_bytes),
        sent_bytes: now.sent_bytes.saturating_sub(from.sent_bytes),
        hits: now.hits.saturating_sub(from.hits),
        misses: now.misses.saturating_sub(from.misses),
        fired: now.fired.saturating_sub(from.fired),
    }
}

/// The host that CLUSTER names of a node alone. An address that stands for all of the machine is
/// none that a client could ask: it keeps the one that it has.
fn announced_host(config: &Config, address: SocketAddr) -> String {
    match (&config.resp_announce, address.ip()) {
        (Some(host), _) => host.clone(),
        (None, ip) if ip.is_unspecified() => String::new(),
        (None, ip) => ip.to_string(),
    }
}

/// The ports that CLUSTER names for the cores of a node alone, if they have any.
fn announced_cores(config: &Config, shards: u16) -> Option<CorePorts> {
    match (config.resp_shard_ports, config.resp_announce_ports) {
        (0, _) => None,
        (base, 0) | (_, base) => CorePorts::new(base, shards),
    }
}

/// Warns where the plan names other cores of this node than have a port: clients would go to ports
/// that nobody opens, or past cores that have one.
fn warn_of_ports(own: Option<CorePorts>, view: &ClusterView) {
    let node = view.nodes.iter().find(|node| node.number == view.me);
    let planned = node.and_then(|node| node.cores);
    let [planned, opened] = [planned, own].map(|ports| ports.map_or(0, CorePorts::cores));
    if planned != opened {
        warn!(
            planned,
            opened,
            "the plan names {planned} ports of cores of this node (resp_ports), and {opened} are \
             opened (resp_shard_ports)"
        );
    }
}

/// What connections are told of a cluster's file by node `me`.
fn view_of(file: &ClusterFile, me: u8) -> ClusterView {
    let nodes = file.nodes.iter().map(|node| ClusterNode {
        number: node.number,
        resp: node.resp.clone(),
        cores: node.resp_ports,
    });
    let slots = SLOTS / LINK_PARTITIONS;
    let mut ranges: Vec<SlotRange> = Vec::new();
    for (partition, assignment) in (0..LINK_PARTITIONS).zip(&file.assignments) {
        let members = assignment.members.iter();
        let sync = members
            .clone()
            .filter(|(_, membership)| *membership == Membership::Sync);
        let range = SlotRange {
            first: partition * slots,
            last: partition * slots + (slots - 1),
            writer: assignment.primary,
            members: members.map(|(node, _)| *node).collect(),
            sync: sync.map(|(node, _)| *node).collect(),
        };
        match ranges.last_mut() {
            Some(before)
                if (before.writer, &before.members, &before.sync)
                    == (range.writer, &range.members, &range.sync) =>
            {
                before.last = range.last;
            }
            _ => ranges.push(range),
        }
    }
    ClusterView {
        id: file.cluster_id,
        me,
        nodes: nodes.collect(),
        ranges,
    }
}

fn unix_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_keep_the_host_that_they_asked_where_all_addresses_are_listened_on() {
        let mut config = Config::default();
        let host = |config: &Config, address: &str| {
            announced_host(config, address.parse().expect("an address"))
        };
        assert_eq!(host(&config, "10.0.0.1:7413"), "10.0.0.1");
        assert_eq!(host(&config, "0.0.0.0:7413"), "");
        assert_eq!(host(&config, "[::]:7413"), "");
        config.resp_announce = Some("shop.example".into());
        assert_eq!(host(&config, "0.0.0.0:7413"), "shop.example");
        assert_eq!(announced_cores(&config, 2), None);
        config.resp_shard_ports = 7430;
        assert_eq!(announced_cores(&config, 2), CorePorts::new(7430, 2));
        config.resp_announce_ports = 30_000;
        assert_eq!(announced_cores(&config, 2), CorePorts::new(30_000, 2));
    }
}
