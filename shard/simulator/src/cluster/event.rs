//! What happens in a cluster, and when.

use penstock_shard::Mail;
use penstock_shard::SnapshotWrite;
use penstock_shard::lease::{FailoverPlan, Wish};
use penstock_shard::replication::LinkId;
use penstock_storage::key_table::TableHome;
use penstock_storage::place::FileId;

pub(super) enum Event {
    Start {
        node: usize,
    },
    Turn {
        node: usize,
        run: u64,
        shard: usize,
    },
    DiskDone {
        node: usize,
        run: u64,
        shard: usize,
        ticket: u64,
    },
    Mail {
        node: usize,
        run: u64,
        to: usize,
        mail: Mail,
    },
    Spare {
        node: usize,
        run: u64,
        shard: usize,
    },
    Remove {
        node: usize,
        run: u64,
        file: FileId,
    },
    Snapshot {
        node: usize,
        run: u64,
        shard: usize,
        write: SnapshotWrite,
    },
    KeyTable {
        node: usize,
        run: u64,
        shard: usize,
        home: TableHome,
    },
    /// Lostfound is durable.
    Found {
        node: usize,
        run: u64,
        shard: usize,
        partition: u16,
        link: Option<LinkId>,
    },
    /// The operator empties the directory of a node that says that it must be.
    Empty {
        node: usize,
        run: u64,
    },
    /// The cluster's file has changed and is read.
    Plan {
        node: usize,
        run: u64,
    },
    /// Looks which links are wanted.
    Dial {
        node: usize,
        run: u64,
    },
    LinkBytes {
        link: u64,
        is_there: bool,
        bytes: Vec<u8>,
    },
    /// One end hears that the other is gone.
    LinkGone {
        link: u64,
        is_there: bool,
    },
    RunsAgain {
        node: usize,
    },
    Heal {
        from: usize,
        to: usize,
    },
    ToServer {
        client: usize,
        connection: u64,
        bytes: Vec<u8>,
    },
    ToClient {
        client: usize,
        connection: u64,
        bytes: Vec<u8>,
    },
    /// A client hears that its connection is gone.
    Closed {
        client: usize,
        connection: u64,
    },
    Client {
        client: usize,
    },
    Timeout {
        client: usize,
        connection: u64,
        request: u64,
    },
    Blow,
    Harm,
    Strike {
        strike: Strike,
    },
    /// A disk that was full is not any more.
    Roomy {
        node: usize,
    },
    /// The operator repairs a damaged disk.
    Repair {
        node: usize,
        run: u64,
    },
    /// It is durable that what all shards have taken over is void.
    TakenOver {
        node: usize,
        run: u64,
    },
    /// The operator looks.
    Operate,
    /// Something befalls nodes that decide by themselves.
    Outage,
    /// A writer and its members part.
    Parting,
    /// A node looks at what it is to decide.
    Decide {
        node: usize,
        run: u64,
    },
    /// A plan was read from the store.
    Loaded {
        node: usize,
        run: u64,
        document: Box<FailoverPlan>,
    },
    /// The plan of a node comes to one of its shards.
    ShardPlan {
        node: usize,
        run: u64,
        shard: usize,
    },
    /// A swap comes to the store.
    SwapLands {
        /// The node, and its start.
        author: (usize, u64),
        is_answered: bool,
        expected: u64,
        document: Box<FailoverPlan>,
        wish: Box<Wish>,
    },
    /// The author of a swap has an outcome, which is unknown if nothing is told.
    SwapEnds {
        node: usize,
        run: u64,
        is_answered: bool,
        wish: Box<Wish>,
    },
    /// Bytes of heartbeats.
    WireBytes {
        wire: u64,
        /// The end that they come to.
        to: usize,
        bytes: Vec<u8>,
    },
    /// One end of a connection of heartbeats hears that the other is gone.
    WireClosed {
        wire: u64,
        to: usize,
    },
}

/// The node whose process must run for an event to be seen.
pub(super) fn node_of(event: &Event) -> Option<usize> {
    match event {
        Event::Turn { node, .. }
        | Event::DiskDone { node, .. }
        | Event::Mail { node, .. }
        | Event::Spare { node, .. }
        | Event::Snapshot { node, .. }
        | Event::KeyTable { node, .. }
        | Event::Found { node, .. }
        | Event::Plan { node, .. }
        | Event::Empty { node, .. }
        | Event::TakenOver { node, .. }
        | Event::Decide { node, .. }
        | Event::Loaded { node, .. }
        | Event::ShardPlan { node, .. }
        | Event::SwapEnds { node, .. }
        | Event::Dial { node, .. } => Some(*node),
        _ => None,
    }
}

pub(super) fn code_of(event: &Event) -> u64 {
    match event {
        Event::Start { node } => 0x100 + *node as u64,
        Event::Turn { node, shard, .. } => 0x200 + (*node * 16 + *shard) as u64,
        Event::DiskDone { ticket, .. } => 0x1_0000 + ticket,
        Event::Mail { to, .. } => 0x300 + *to as u64,
        Event::Spare { .. } => 0x400,
        Event::Snapshot { .. } => 0x403,
        Event::KeyTable { .. } => 0x404,
        Event::Remove { .. } => 0x401,
        Event::Found { .. } => 0x402,
        Event::Plan { node, .. } => 0x410 + *node as u64,
        Event::Dial { node, .. } => 0x420 + *node as u64,
        Event::Empty { node, .. } => 0x430 + *node as u64,
        Event::LinkBytes { link, .. } => 0x1000 + link,
        Event::LinkGone { link, .. } => 0x2000 + link,
        Event::RunsAgain { .. } => 0x403,
        Event::Heal { .. } => 0x404,
        Event::ToServer { .. } => 0x405,
        Event::ToClient { .. } => 0x406,
        Event::Closed { .. } => 0x407,
        Event::Client { client } => 0x500 + *client as u64,
        Event::Timeout { .. } => 0x408,
        Event::Blow => 0x409,
        Event::Operate => 0x40A,
        Event::Harm => 0x40B,
        Event::Strike { .. } => 0x40C,
        Event::Roomy { node } => 0x440 + *node as u64,
        Event::Repair { node, .. } => 0x450 + *node as u64,
        Event::TakenOver { node, .. } => 0x460 + *node as u64,
        Event::Outage => 0x40D,
        Event::Parting => 0x40F,
        Event::Decide { node, .. } => 0x470 + *node as u64,
        Event::Loaded { node, .. } => 0x480 + *node as u64,
        Event::ShardPlan { node, .. } => 0x490 + *node as u64,
        Event::SwapLands { .. } => 0x40E,
        Event::SwapEnds { node, .. } => 0x4A0 + *node as u64,
        Event::WireBytes { wire, .. } => 0x3000 + wire,
        Event::WireClosed { wire, .. } => 0x4000 + wire,
    }
}

/// Who strikes whom in a handover.
#[derive(Clone, Copy, Debug)]
pub(super) enum Strike {
    Kill(usize),
    PowerCut(usize),
    Pause(usize),
    /// The links from the one to the other.
    Lose(usize, usize),
    /// The ways between them.
    Cut(usize, usize),
}
