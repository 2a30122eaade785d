//! How this node and another one stand to each other: their links, and what the other one lacks.

use penstock_net::link::Membership;

/// How far the links between two nodes are. The least of several is that of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinkState {
    /// There is none.
    Absent = 0,
    /// It has proven itself, and both sides tell where they stand.
    Handshake = 1,
    /// What is missing is shipped.
    CatchingUp = 2,
    /// What is sealed is shipped in the same turn.
    Live = 3,
}

impl LinkState {
    /// For people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            LinkState::Absent => "absent",
            LinkState::Handshake => "handshake",
            LinkState::CatchingUp => "catching up",
            LinkState::Live => "live",
        }
    }
}

/// What a node is to a partition by the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// It writes it.
    Primary,
    /// It holds it.
    Member(Membership),
    /// It has nothing of it.
    None,
}

impl Duty {
    /// For people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Duty::Primary => "primary",
            Duty::Member(Membership::Sync) => "sync",
            Duty::Member(Membership::Learner) => "learner",
            Duty::None => "none",
        }
    }
}

/// What a member has not told to have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lag {
    /// Records of its partitions.
    pub records: u64,
    /// Bytes of the log from the first of them on, of what was appended since this start.
    pub bytes: u64,
    /// How long ago the first of them was appended, in microseconds.
    pub us: u64,
}

/// What went over the links with a node in one direction since this start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Links that were made.
    pub links: u64,
    /// Bytes sent behind the handshake.
    pub sent_bytes: u64,
    /// Bytes received behind it.
    pub received_bytes: u64,
    /// Frames sent.
    pub sent_frames: u64,
    /// Frames received.
    pub received_frames: u64,
}

/// Another node, as one shard knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    /// Its number.
    pub node: u8,
    /// What it is to the partitions in question: a primary ships to this node, the others are
    /// shipped to.
    pub duty: Duty,
    /// How many there are of them.
    pub partitions: u64,
    /// Their links.
    pub state: LinkState,
    /// What it has not received; unknown of a primary, and of a member that has not been here since
    /// this start.
    pub lag: Option<Lag>,
    /// What it has not told durable on its disk.
    pub durable_lag: Option<Lag>,
    /// Greatest age of the records here of partitions that this node is primary of, in
    /// microseconds. `None` for other nodes, and while one of these partitions may not be read
    /// here.
    pub staleness_us: Option<u64>,
    /// By how many milliseconds the store's time of a primary is ahead of the clock here, less the
    /// time that a frame takes. Negative if it is behind. `None` for other nodes.
    pub clock_ahead_ms: Option<i64>,
    /// What went over the links.
    pub traffic: Traffic,
}
