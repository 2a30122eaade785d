//! What this node decides by, and its connections for heartbeats: `shard/FAILOVER.md`.
//!
//! ```text
//!  penstock-lease, for each other node      penstock-failover, each 20 ms     penstock-plan
//!  sends, reads, answers ------.            notes, looks, wishes ---.         takes plans --.
//!                              v                                    v                       v
//!                           one lock: Failover, the plan's revision, who is connected
//!                              |
//!                              `--> LeaseTable: what shards may serve
//! ```
//!
//! What must hold:
//! - Nobody keeps the lock over a system call. The clock is read under it, without entering the
//!   kernel: so times never go back, a heartbeat is stamped before its bytes are written, and one
//!   that came is stamped behind the reading of its bytes.
//! - What shards may serve is published under the lock, and before the CONFIRM of it leaves.
//! - Of a connection that another one has replaced nothing counts any more.

pub(crate) mod failover;

mod serving;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use penstock_net::link::message::LINK_PARTITIONS;
use penstock_net::link::{Confirm, HEARTBEAT_FRAME_BYTES_MAX, Heartbeat, LinkMessage, NodeStart};
use penstock_shard::Topology;
use penstock_shard::lease::{Failover, FailoverPlan, LeaseRules, LeaseTable, Wish};
use penstock_shard::replication::handshake::{Introduction, Peer};
use penstock_storage::version::SLOTS;

use crate::cluster::links::blocking_line::{BlockingLine, LineRules, Outgoing};
use crate::cluster::links::greeting::Greeted;
use crate::cluster::plan::file::ClusterFile;
use crate::cluster::plan::home::Revision;
use crate::stats::Stats;
use crate::system::boot_clock::BootClock;

pub(crate) use self::serving::{End, Serving};

/// The longest wait for a frame: how soon a change of what is claimed leaves, too.
const READ_WAIT: Duration = Duration::from_millis(20);
const PIECE_BYTES: usize = 4096;

/// A connection for heartbeats that has proven itself; the dialling side `is_source`.
fn line_of_heartbeats(
    stream: Arc<TcpStream>,
    greeted: Greeted,
    is_source: bool,
) -> std::io::Result<BlockingLine> {
    let rules = LineRules {
        of: "heartbeats",
        read_wait: READ_WAIT,
        piece_bytes: PIECE_BYTES,
        frame_bytes_max: HEARTBEAT_FRAME_BYTES_MAX,
    };
    BlockingLine::new(stream, greeted, is_source, rules)
}

/// What leases of a node are made from.
pub(crate) struct LeaseParts {
    /// The clock of the shards, which began before anything else.
    pub(crate) clock: BootClock,
    /// What they are told.
    pub(crate) table: Arc<LeaseTable>,
    pub(crate) stats: Arc<Stats>,
}

/// What a node decides by.
pub(crate) struct Leases {
    me: Introduction,
    parts: LeaseParts,
    topology: Topology,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What it knows. Absent until a plan has failover for the first time.
    failover: Option<Failover>,
    /// Whether the plan in force has failover.
    is_on: bool,
    /// The plan in force, and the revision of the home that has exactly that.
    home: Option<(Arc<ClusterFile>, Revision)>,
    connected: BTreeMap<u8, Met>,
    connections: u64,
    /// No change is wished for before.
    wishes_from_us: u64,
}

/// What is known of another node.
struct Met {
    start: NodeStart,
    /// The connection that counts.
    connection: u64,
    /// `None` if it has ended.
    stream: Option<Arc<TcpStream>>,
}

/// A connection that both sides have proven themselves on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Connected {
    pub(crate) node: u8,
    number: u64,
}

/// What holds of a connection at a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pulse {
    pub(crate) rules: LeaseRules,
    /// See [`Failover::claim_changes`].
    pub(crate) changes: u64,
}

/// A change that this node asks the plan's home for.
pub(crate) struct Swap {
    pub(crate) wish: Wish,
    /// The plan that it was decided by, and the revision of the home that has exactly that.
    pub(crate) file: Arc<ClusterFile>,
    pub(crate) revision: Revision,
}

impl Leases {
    /// Of a node that starts, with the plan that it has read.
    pub(crate) fn new(me: Introduction, parts: LeaseParts, plan: Option<FailoverPlan>) -> Leases {
        let leases = Leases {
            me,
            topology: Topology::new(me.shards),
            parts,
            state: Mutex::default(),
        };
        leases.take_plan(plan, None);
        leases
    }

    /// A plan is in force, which the home has under a revision. To be told before the shards hear
    /// of the plan.
    pub(crate) fn take_plan(
        &self,
        plan: Option<FailoverPlan>,
        home: Option<(Arc<ClusterFile>, Revision)>,
    ) {
        let mut state = self.state();
        state.home = home;
        state.is_on = plan.is_some();
        self.parts.stats.failover.turn(state.is_on);
        let Some(plan) = plan else {
            if let Some(failover) = &mut state.failover {
                failover.turn_off();
            }
            return;
        };
        let now_us = self.parts.clock.now_us();
        match &mut state.failover {
            Some(failover) => failover.take_plan(now_us, plan),
            // It has lent nothing since its start, which was at 0.
            None => state.failover = Some(Failover::new(0, self.me.node, plan)),
        }
        self.publish(&state);
    }

    /// The home has the plan in force under this revision.
    pub(crate) fn note_home(&self, file: Arc<ClusterFile>, revision: Revision) {
        self.state().home = Some((file, revision));
    }

    /// The home has another plan than the one in force, which was refused, or none: a swap would
    /// fail.
    pub(crate) fn forget_home(&self) {
        self.state().home = None;
    }

    /// Whether the plan in force has failover.
    pub(crate) fn is_on(&self) -> bool {
        self.state().is_on
    }

    /// The other nodes that hold a partition which this one holds. None without failover.
    pub(crate) fn neighbours(&self) -> Vec<u8> {
        let state = self.state();
        let Some(failover) = state.failover.as_ref().filter(|_| state.is_on) else {
            return Vec::new();
        };
        let mut nodes: Vec<u8> = Vec::new();
        for placing in &failover.plan().placings {
            if placing.holds(self.me.node) {
                let members = &placing.assignment.members;
                nodes.push(placing.assignment.primary);
                nodes.extend(members.iter().map(|&(node, _)| node));
            }
        }
        nodes.sort_unstable();
        nodes.dedup();
        nodes.retain(|&node| node != self.me.node);
        nodes
    }

    // ---- connections ----

    /// A connection of another node, which replaces an older one. `None` without failover.
    pub(crate) fn connect(&self, peer: &Peer, stream: &Arc<TcpStream>) -> Option<Connected> {
        let mut state = self.state();
        let now_us = self.parts.clock.now_us();
        if !state.is_on {
            return None;
        }
        state.connections += 1;
        let number = state.connections;
        let met = Met {
            start: peer.start,
            connection: number,
            stream: Some(Arc::clone(stream)),
        };
        let before = state.connected.insert(peer.node, met);
        if before
            .as_ref()
            .is_none_or(|before| before.start != peer.start)
            && let Some(failover) = &mut state.failover
        {
            failover.meet(now_us, peer.node);
        }
        drop(state);
        if let Some(before) = before.and_then(|before| before.stream) {
            // The thread that reads from it hears that at once.
            let _ = before.shutdown(Shutdown::Both);
        }
        self.parts.stats.failover.note_connection(peer.node, true);
        let node = peer.node;
        Some(Connected { node, number })
    }

    /// A connection has ended.
    fn disconnect(&self, connected: Connected) {
        let mut state = self.state();
        if !state.is_current(connected) {
            return;
        }
        let met = state.connected.get_mut(&connected.node);
        let stream = met.and_then(|met| met.stream.take());
        let facts = &self.parts.stats.failover;
        facts.note_connection(connected.node, false);
        drop(state);
        drop(stream);
    }

    /// What holds now; `None` if the connection does not count any more.
    fn pulse(&self, connected: Connected) -> Option<Pulse> {
        let mut state = self.state();
        let failover = self.of(&mut state, connected)?;
        Some(Pulse {
            rules: failover.plan().rules,
            changes: failover.claim_changes(),
        })
    }

    /// Puts the next heartbeat, which is to be sent at once.
    fn beat(&self, connected: Connected, out: &mut Outgoing) {
        let mut state = self.state();
        let Some(failover) = self.of(&mut state, connected) else {
            return;
        };
        let mut claims = Vec::new();
        let now_us = self.parts.clock.now_us();
        let heartbeat = failover.send(now_us, connected.node, &mut claims);
        out.put(&LinkMessage::Heartbeat(heartbeat));
    }

    /// A heartbeat was read; puts the answer.
    fn answer_heartbeat(
        &self,
        connected: Connected,
        heartbeat: &Heartbeat<'_>,
        out: &mut Outgoing,
    ) {
        let mut state = self.state();
        let Some(failover) = self.of(&mut state, connected) else {
            return;
        };
        let now_us = self.parts.clock.now_us();
        let confirm = failover.read(now_us, connected.node, heartbeat);
        // Before it leaves: a shard here never begins within what is lent.
        failover.publish(&self.parts.table);
        out.put(&LinkMessage::Confirm(confirm));
    }

    /// The answer to a heartbeat was read.
    fn confirmed(&self, connected: Connected, confirm: &Confirm) {
        let mut state = self.state();
        let Some(failover) = self.of(&mut state, connected) else {
            return;
        };
        let now_us = self.parts.clock.now_us();
        let sent_us = failover.confirm(now_us, connected.node, confirm);
        failover.publish(&self.parts.table);
        if let Some(sent_us) = sent_us {
            let facts = &self.parts.stats.failover;
            facts.note_round_trip(connected.node, now_us - sent_us);
        }
    }

    /// What is known, if the connection counts: what the shards have told is noted.
    fn of<'a>(
        &self,
        state: &'a mut MutexGuard<'_, State>,
        connected: Connected,
    ) -> Option<&'a mut Failover> {
        let is_current = state.is_on && state.is_current(connected);
        let failover = state.failover.as_mut().filter(|_| is_current)?;
        self.note_shards(failover);
        Some(failover)
    }

    /// Notes what the shards have told, and that this node does not stand still.
    fn note_shards(&self, failover: &mut Failover) -> u64 {
        let now_us = self.parts.clock.now_us();
        let shard_of = |partition| self.topology.owner(partition * (SLOTS / LINK_PARTITIONS));
        failover.note_all(now_us, &self.parts.table, shard_of);
        failover.note_awake(now_us);
        now_us
    }

    // ---- decisions ----

    /// Looks, and returns a change that is to be asked for. [`Leases::swapped`] is to follow.
    pub(crate) fn next_swap(&self) -> Option<Swap> {
        let mut state = self.state();
        let state = &mut *state;
        let failover = state.failover.as_mut().filter(|_| state.is_on)?;
        let now_us = self.note_shards(failover);
        failover.publish(&self.parts.table);
        self.note_leases(failover, now_us);
        let (file, revision) = state.home.as_ref()?;
        let plan = failover.plan().number;
        // What the home has is the plan that is decided by: a swap replaces nothing else.
        if now_us < state.wishes_from_us || file.revision != plan {
            return None;
        }
        let is_complete = |node: u8, partition: u16| {
            let member = self.parts.table.member(node, partition);
            let is_joining = file.joining[usize::from(partition)].contains(&node);
            member.plan == plan
                && match is_joining {
                    true => member.is_proven,
                    false => member.has_joined,
                }
        };
        Some(Swap {
            wish: failover.wish(now_us, is_complete)?,
            file: Arc::clone(file),
            revision: revision.clone(),
        })
    }

    /// The swap is over. The next one is not asked for before `pause`.
    pub(crate) fn swapped(&self, pause: Duration) {
        let mut state = self.state();
        let pause_us = u64::try_from(pause.as_micros()).unwrap_or(u64::MAX);
        state.wishes_from_us = self.parts.clock.now_us().saturating_add(pause_us);
        if let Some(failover) = &mut state.failover {
            failover.swapped();
        }
    }

    /// Tells how long the leases of what is written here go on, and how long nothing is changed
    /// behind a change.
    fn note_leases(&self, failover: &Failover, now_us: u64) {
        let mut left_us: BTreeMap<u8, u64> = BTreeMap::new();
        let placings = (0..).zip(&failover.plan().placings);
        let mine = placings.filter(|it| it.1.assignment.primary == self.me.node);
        for (partition, placing) in mine {
            for node in placing.sync() {
                let end_us = failover.lease_end_by(node, partition);
                let least_us = left_us.entry(node).or_insert(u64::MAX);
                *least_us = end_us.saturating_sub(now_us).min(*least_us);
            }
        }
        let facts = &self.parts.stats.failover;
        for node in 1..=u8::MAX {
            facts.note_lease(node, left_us.get(&node).copied());
            facts.note_entry(node, failover.enters_in_us(now_us, node));
        }
        facts.note_hold(failover.held_us(now_us));
    }

    fn publish(&self, state: &State) {
        if let Some(failover) = &state.failover {
            failover.publish(&self.parts.table);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A thread that fails ends the process.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_current(&self, connected: Connected) -> bool {
        let met = self.connected.get(&connected.node);
        met.is_some_and(|met| met.connection == connected.number)
    }
}
