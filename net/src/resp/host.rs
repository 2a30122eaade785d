//! What a connection asks of the server around it.

use std::borrow::Cow;
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::program::ServedSchema;
use crate::script::DIGEST_BYTES;
use crate::slot::SLOTS;

use super::broker::Broker;
use super::cores::{CorePorts, OwnCore};
use super::notifications::{NotificationFigures, Notifications};
use super::pause::PauseControl;
use super::table::Name;
use super::tracking::{ClientTracking, KeyTracker};
use super::waiting::KeyWaiters;

/// A connection, as CLIENT LIST tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Client {
    /// Its number; never given twice in the life of a process.
    pub id: u64,
    /// The address of its peer, and the one that it came to.
    pub address: String,
    /// The address of the server's end.
    pub local_address: String,
    /// Who has logged in; empty for nobody.
    pub user: String,
    /// What CLIENT SETNAME told.
    pub name: String,
    /// What CLIENT SETINFO told.
    pub library: String,
    /// What CLIENT SETINFO told.
    pub library_version: String,
    /// Unix seconds when it came.
    pub since_s: u64,
    /// 2 or 3.
    pub protocol: u8,
    /// How many channels, patterns and channels of SSUBSCRIBE it subscribes to.
    pub subscriptions: [u32; 3],
    /// Whether it tracks keys.
    pub tracking: ClientTracking,
    /// CLIENT PAUSE holds its next command.
    pub is_held: bool,
    /// Its ticket while it waits for keys ([`KeyWaiters::begin`]).
    pub ticket: Option<u64>,
}

/// What INFO, CONFIG GET, CLUSTER and HELLO tell of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The version of the server.
    pub version: &'static str,
    /// The port of RESP that the connection came by.
    pub port: u16,
    /// The address of RESP without the port.
    pub ip: String,
    /// The host that CLUSTER names of a node alone; empty for the one that the client asked.
    pub announced_host: String,
    /// The ports of the cores that CLUSTER names of a node alone, if they have any.
    pub announced_cores: Option<CorePorts>,
    /// The identity of the node.
    pub node: [u8; 16],
    /// The process.
    pub pid: u32,
    /// Seconds since the start.
    pub uptime_s: u64,
    /// Connections of all ports.
    pub clients: u64,
    /// Connections of all ports, at most.
    pub clients_max: u64,
    /// Resident bytes, at most.
    pub memory_max: u64,
    /// Keys of all shards, or of the core by whose own port the connection came.
    pub keys: u64,
    /// What is counted since the start, or since CONFIG RESETSTAT.
    pub counts: Counts,
    /// What the process has used.
    pub used: ProcessUse,
    /// The least level of a write.
    pub durability: &'static str,
    /// Seconds of silence after which a connection ends; 0 for never.
    pub idle_s: u64,
    /// Seconds of silence after which the kernel probes a connection; 0 for never.
    pub keepalive_s: u64,
    /// Shards.
    pub shards: u16,
    /// Whether INFO and HELLO name the node as one of a cluster.
    pub is_clustered: bool,
    /// What options refuse and take.
    pub switches: Switches,
}

/// Commands that options of the server refuse or take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    /// FLUSHALL and FLUSHDB are refused.
    pub refuses_flush: bool,
    /// DEBUG is taken.
    pub takes_debug: bool,
    /// Keys of all cores run together.
    pub joins_cores: bool,
}

/// What INFO counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Operations that were answered.
    pub operations: u64,
    /// Operations of a second, between the last two moments at which this was asked.
    pub operations_per_s: u64,
    /// How many connections were opened.
    pub connections: u64,
    /// How many were refused.
    pub connections_refused: u64,
    /// Bytes that came.
    pub received_bytes: u64,
    /// Bytes that left.
    pub sent_bytes: u64,
    /// Reads of one key that found it.
    pub hits: u64,
    /// Those that did not.
    pub misses: u64,
    /// Armed keys whose effects have run.
    pub fired: u64,
}

/// What the process has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessUse {
    /// Microseconds of a CPU outside the kernel.
    pub user_us: u64,
    /// Microseconds of a CPU in the kernel.
    pub system_us: u64,
    /// Resident bytes.
    pub resident_bytes: u64,
    /// Resident bytes at the moment when they were most.
    pub resident_bytes_most: u64,
}

/// A command whose answer took long.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlowCommand {
    /// Its number; the server gives it.
    pub id: u64,
    /// Unix seconds when it was answered.
    pub unix_s: u64,
    /// Microseconds from its arrival to its answer.
    pub took_us: u64,
    /// Its name, the begin of its first key, and how many more there were.
    pub arguments: Vec<Vec<u8>>,
    /// The address of the connection.
    pub address: String,
    /// The name of the connection.
    pub name: String,
}

/// A node of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterNode {
    /// Its number.
    pub number: u8,
    /// HOST:PORT of its RESP port, if the cluster's file tells it.
    pub resp: Option<String>,
    /// The ports of its cores at that host, if the cluster's file has them.
    pub cores: Option<CorePorts>,
}

/// Neighbouring slots with the same writer and members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotRange {
    /// First slot.
    pub first: u16,
    /// Last slot.
    pub last: u16,
    /// The node that writes them.
    pub writer: u8,
    /// The other nodes that hold them.
    pub members: Vec<u8>,
    /// Those of them that level `replica` waits for.
    pub sync: Vec<u8>,
}

/// The cluster of a node, as its file has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterView {
    /// The identity of the cluster.
    pub id: [u8; 16],
    /// The number of this node.
    pub me: u8,
    /// All nodes.
    pub nodes: Vec<ClusterNode>,
    /// All slots, ascending.
    pub ranges: Vec<SlotRange>,
}

impl ClusterView {
    /// HOST:PORT of the RESP port at which a node has a slot: that of the core that owns it, or of
    /// the node.
    #[must_use]
    pub fn address_of(&self, number: u8, slot: u16) -> Option<Cow<'_, str>> {
        let node = self.nodes.iter().find(|node| node.number == number)?;
        let resp = node.resp.as_deref()?;
        let Some(cores) = node.cores else {
            return Some(resp.into());
        };
        let (host, _) = resp.rsplit_once(':')?;
        Some(format!("{host}:{}", cores.port_of_slot(slot)).into())
    }

    /// Whether this node writes a slot of these.
    #[must_use]
    pub fn writes_in(&self, slots: RangeInclusive<u16>) -> bool {
        let mut own = self.ranges.iter().filter(|range| range.writer == self.me);
        own.any(|range| range.first <= *slots.end() && range.last >= *slots.start())
    }

    /// Whether this node answers reads of a slot: as its writer, or as a member, too.
    #[must_use]
    pub fn serves(&self, slot: u16, as_member: bool) -> bool {
        self.range_of(slot).is_some_and(|range| {
            range.writer == self.me || as_member && range.members.contains(&self.me)
        })
    }

    /// The range of a slot.
    #[must_use]
    pub fn range_of(&self, slot: u16) -> Option<&SlotRange> {
        let mut ranges = self.ranges.iter();
        ranges.find(|range| (range.first..=range.last).contains(&slot))
    }
}

/// The scripts that a node knows by their digests.
pub trait ScriptLibrary {
    /// Keeps a script; its SHA-1.
    ///
    /// # Errors
    /// Why it is not kept: it is no script, or there is no room. The text is an error of RESP.
    fn load(&self, text: &[u8]) -> Result<[u8; DIGEST_BYTES], String>;

    /// Whether the script of a digest is known.
    fn knows(&self, digest: &[u8; DIGEST_BYTES]) -> bool;

    /// The text of the script of a digest.
    fn text(&self, digest: &[u8; DIGEST_BYTES]) -> Option<Vec<u8>>;

    /// Forgets all scripts.
    fn flush(&self);
}

/// The server around a connection. One that says no more than the time is a node alone, without
/// facts, schema and other connections.
pub trait Host {
    /// Unix microseconds.
    fn unix_us(&self) -> u64;

    /// The time that expiries are compared with, in unix microseconds: that of the shard. It
    /// follows a wall clock that steps slowly.
    fn time_us(&self) -> u64 {
        self.unix_us()
    }

    /// Microseconds of a clock that never steps.
    fn elapsed_us(&self) -> u64;

    /// What holds now.
    fn facts(&self) -> Facts {
        Facts::default()
    }

    /// All connections of RESP, by number.
    fn clients(&self) -> Vec<Client> {
        Vec::new()
    }

    /// Ends a connection of RESP, of any core. `false` if there is none of this number.
    fn end_client(&self, _id: u64) -> bool {
        false
    }

    /// A command came so many times.
    fn was_called(&self, _name: Name, _times: u64) {}

    /// How often a command came, at all cores.
    fn calls_of(&self, _name: Name) -> u64 {
        0
    }

    /// Counts begin anew.
    fn forget_counts(&self) {}

    /// A connection has another name, library or protocol.
    fn client_changed(&self, _client: &Client) {}

    /// Keeps a command whose answer took long.
    fn was_slow(&self, _command: SlowCommand) {}

    /// The commands whose answers took long, the newest first.
    fn slow_commands(&self) -> Vec<SlowCommand> {
        Vec::new()
    }

    /// Drops them.
    fn forget_slow_commands(&self) {}

    /// The core by whose own port the connection came; `None` for the port that all share.
    fn core(&self) -> Option<OwnCore> {
        None
    }

    /// The cores of a node alone whose keys run together; 0: only those of one core do.
    fn joined_cores(&self) -> u16 {
        0
    }

    /// The slots that the port of the connection stands for: those of its core, or all.
    fn share(&self) -> RangeInclusive<u16> {
        self.core().map_or(0..=SLOTS - 1, OwnCore::slots)
    }

    /// The cluster, if the node is one of several.
    fn cluster(&self) -> Option<ClusterView> {
        None
    }

    /// Whether the node answers reads of a slot: as its writer, or as a member, too.
    fn serves(&self, slot: u16, as_member: bool) -> bool {
        let view = self.cluster();
        view.is_none_or(|view| view.serves(slot, as_member))
    }

    /// The schema that the shard of the connection runs.
    fn schema(&self) -> Arc<ServedSchema> {
        Arc::default()
    }

    /// The order of cursors of the shards: 17 bits, odd.
    fn scan_order(&self) -> u64 {
        1
    }

    /// The scripts that the node knows. `None`: it runs none.
    fn scripts(&self) -> Option<&dyn ScriptLibrary> {
        None
    }

    /// Whether a connection of this number is open.
    fn is_client(&self, id: u64) -> bool {
        self.clients().iter().any(|client| client.id == id)
    }

    /// Where connections track keys. `None`: nowhere.
    fn tracker(&self) -> Option<&dyn KeyTracker> {
        None
    }

    /// What the node announces on channels.
    fn notifications(&self) -> Notifications {
        Notifications::default()
    }

    /// The node announces this from now on.
    fn notify(&self, _notifications: Notifications) {}

    /// What it has announced.
    fn notified(&self) -> NotificationFigures {
        NotificationFigures::default()
    }

    /// All cores stand still for so long, and return then.
    fn stand_still(&self, _us: u64) {}

    /// Where connections are paused. `None`: nowhere.
    fn pauses(&self) -> Option<&dyn PauseControl> {
        None
    }

    /// Where connections wait for keys. `None`: nowhere, and commands that block never do.
    fn waiters(&self) -> Option<&dyn KeyWaiters> {
        None
    }

    /// Where connections subscribe and publish. `None`: nowhere.
    fn broker(&self) -> Option<&dyn Broker> {
        None
    }
}

/// Whether the node is one of a cluster and writes nothing of what the port stands for.
pub(super) fn is_replica(host: &dyn Host) -> bool {
    let view = host.cluster();
    view.is_some_and(|view| !view.writes_in(host.share()))
}
