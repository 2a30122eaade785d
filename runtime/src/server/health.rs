//! What probes are told: whether the process works, and whether it wants to be asked.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use penstock_shard::cluster::{PartitionRole, ReplicationStatus};
use penstock_shard::replication::Duty;
use penstock_storage::store::clock::REPORTED_BEHIND_MS;

use super::audit::Audit;
use crate::directory::Segments;
use crate::startup::span;
use crate::stats::{Reading, Stats};
use crate::system::boot_clock::BootClock;
use crate::system::line_queue::LineQueue;
use crate::system::memory::MemoryBound;
use crate::tls::ServedByPort;

/// A loop with nothing to do turns each second all the same; one that has not turned for so long
/// hangs.
const STANDSTILL_US_MAX: u64 = 5_000_000;

/// How far the life of the process is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It makes itself ready.
    Starting,
    /// Every shard serves.
    Serving,
    /// It takes no more requests.
    Stopping,
    /// A shard has failed: nothing is acknowledged any more, and the process ends.
    Failed(String),
}

/// The parts of the node that tell how it is.
pub(crate) struct Watched {
    pub(crate) stats: Arc<Stats>,
    /// The data directory.
    pub(crate) data: PathBuf,
    /// It is no node of a cluster.
    pub(crate) is_alone: bool,
    pub(crate) segments: Segments,
    pub(crate) memory: Option<Arc<MemoryBound>>,
    /// The clock of the shards.
    pub(crate) clock: BootClock,
    /// The wall clock when that began.
    pub(crate) unix_ms_at_start: u64,
    /// The certificate, if the ports speak TLS.
    pub(crate) tls: ServedByPort,
    /// Listeners that anyone who reaches them may use.
    pub(crate) open_to_anyone: usize,
    pub(crate) log: LineQueue,
    pub(crate) audit: Audit,
}

/// What the admin port has turned away.
#[derive(Debug, Default)]
pub(crate) struct AdminCounts {
    /// Requests without a proof for pages that need one.
    pub(crate) refused: AtomicU64,
    /// Connections whose TLS failed, or took too long.
    pub(crate) handshakes_failed: AtomicU64,
}

/// The state that main thread and admin thread share.
pub(crate) struct Health {
    pub(crate) admin: AdminCounts,
    phase: Mutex<Phase>,
    watched: OnceLock<Watched>,
}

impl Health {
    pub(crate) fn new() -> Self {
        Health {
            admin: AdminCounts::default(),
            phase: Mutex::new(Phase::Starting),
            watched: OnceLock::new(),
        }
    }

    /// From now on there is more to tell. Once.
    pub(crate) fn watch(&self, watched: Watched) {
        assert!(self.watched.set(watched).is_ok(), "a process has one node");
    }

    pub(crate) fn watched(&self) -> Option<&Watched> {
        self.watched.get()
    }

    pub(crate) fn enter(&self, phase: Phase) {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner) = phase;
    }

    fn phase(&self) -> Phase {
        let phase = self.phase.lock();
        phase.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How far the start is, in percent.
    pub(crate) fn start_percent(&self) -> u64 {
        match (self.phase(), self.watched()) {
            (Phase::Starting, None) => 0,
            (Phase::Starting, Some(watched)) => watched.segments.progress().percent(),
            _ => 100,
        }
    }

    /// Whether clients should come, and what this node is to them, or why not; with `wanted`,
    /// clients who want that.
    pub(crate) fn ready(&self, wanted: Option<Wanted>) -> Result<Ready, NotReady> {
        let (mut readings, mut cores) = (Vec::new(), Vec::new());
        let mut is_alone = true;
        if let Some(watched) = self.watched() {
            readings = watched.stats.read();
            cores = watched.stats.replication();
            is_alone = watched.is_alone;
        }
        judge_ready(&self.phase(), self.start_percent(), &readings)?;
        match is_alone {
            true => Ok(Ready::Alone),
            false => judge_role(&cores, wanted),
        }
    }

    /// By how much the time of a store is ahead of the clock of this machine, if that is worth
    /// telling, in milliseconds.
    pub(crate) fn clock_behind_ms(&self) -> Option<u64> {
        let ms = self.watched()?.stats.store_ahead_us() / 1_000;
        (ms > REPORTED_BEHIND_MS).then_some(ms)
    }

    /// Whether every loop turns, or which one does not.
    pub(crate) fn live(&self) -> Result<(), Standstill> {
        let Some(watched) = self.watched() else {
            return Ok(());
        };
        judge_live(
            &self.phase(),
            watched.clock.now_us(),
            watched.stats.turned_us(),
        )
    }
}

/// What a client may want of a node besides that it is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// It writes.
    Primary,
}

/// What a node that is ready is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ready {
    /// A node alone.
    Alone,
    /// It writes so many partitions of its cluster and follows so many.
    InCluster { written: usize, followed: usize },
}

impl fmt::Display for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ready::Alone => f.write_str("ready"),
            Ready::InCluster { written, followed } => {
                f.write_str("ready:")?;
                if *written > 0 {
                    write!(f, " primary of {written} partitions")?;
                }
                let comma = if *written > 0 { "," } else { "" };
                match followed {
                    0 => Ok(()),
                    followed => write!(f, "{comma} follows {followed} partitions"),
                }
            }
        }
    }
}

/// Why clients should stay away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotReady {
    Starting {
        percent: u64,
    },
    Stopping,
    Failed(String),
    DiskFull {
        shard: usize,
    },
    NoDescriptor {
        shard: usize,
    },
    NoSegmentFile {
        shard: usize,
    },
    LogFull {
        shard: usize,
    },
    MemoryFull {
        shard: usize,
    },
    /// Partitions that are this node's to write or to hold, and which it does not.
    Role {
        role: PartitionRole,
        count: usize,
        /// It is to write some of them.
        is_to_write: bool,
    },
    /// The cluster's file gives it nothing, or does not name it.
    HasNothing,
    /// It writes nothing, and somebody who writes is wanted.
    WritesNothing,
}

impl fmt::Display for NotReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotReady::Starting { percent } => write!(f, "starting, {percent} %"),
            NotReady::Stopping => f.write_str("stopping: no more requests are taken"),
            NotReady::Failed(text) => write!(f, "failed: {text}"),
            NotReady::DiskFull { shard } => write!(
                f,
                "FULL: shard {shard} can make no more segments, the disk is full; what grows is \
                 refused, the rest goes on"
            ),
            NotReady::NoDescriptor { shard } => write!(
                f,
                "BUSY: no file descriptor is left for a segment of shard {shard}; what grows is \
                 refused, the rest goes on; close connections, or raise LimitNOFILE (ulimit -n)"
            ),
            NotReady::NoSegmentFile { shard } => write!(
                f,
                "BUSY: the system refuses a segment file to shard {shard}, and the log tells why; \
                 what grows is refused, the rest goes on"
            ),
            NotReady::LogFull { shard } => write!(
                f,
                "FULL: the log of shard {shard} has as many segments as it may have; what grows \
                 is refused, the rest goes on"
            ),
            NotReady::MemoryFull { shard } => write!(
                f,
                "FULL: the index of shard {shard} has all the memory that memory_max leaves it, \
                 and hardly any of its keys has expired; new keys are refused, the rest goes on"
            ),
            NotReady::Role {
                role,
                count,
                is_to_write,
            } => {
                write!(
                    f,
                    "{}: {count} partitions: {}",
                    role.name(),
                    cause_of(*role, *is_to_write)
                )
            }
            NotReady::HasNothing => f.write_str(
                "no partition: the cluster's file gives this node nothing, or does not name it \
                 any more",
            ),
            NotReady::WritesNothing => {
                f.write_str("not primary: it writes no partition of its cluster")
            }
        }
    }
}

/// A loop that hangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standstill {
    shard: usize,
    us: u64,
}

impl fmt::Display for Standstill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the loop of shard {} has not turned for {} ms, and {} ms are the limit",
            self.shard,
            self.us / 1000,
            STANDSTILL_US_MAX / 1000
        )
    }
}

fn judge_ready(phase: &Phase, percent: u64, shards: &[Reading]) -> Result<(), NotReady> {
    match phase {
        Phase::Starting => return Err(NotReady::Starting { percent }),
        Phase::Stopping => return Err(NotReady::Stopping),
        Phase::Failed(text) => return Err(NotReady::Failed(text.clone())),
        Phase::Serving => {}
    }
    for (shard, reading) in shards.iter().enumerate() {
        if reading.figure("disk_full") > 0 {
            return Err(NotReady::DiskFull { shard });
        }
        if reading.figure("no_file_descriptor") > 0 {
            return Err(NotReady::NoDescriptor { shard });
        }
        if reading.figure("no_segment_file") > 0 {
            return Err(NotReady::NoSegmentFile { shard });
        }
        if reading.figure("log_full") > 0 {
            return Err(NotReady::LogFull { shard });
        }
        if reading.figure("memory_full") > 0 {
            return Err(NotReady::MemoryFull { shard });
        }
    }
    Ok(())
}

/// What a clock that is so far behind means, for people.
pub(crate) fn clock_behind_text(ms: u64) -> String {
    format!(
        "the time of the store is {} ahead of the clock of this machine: expiries and tokens go by \
         the time of the store, which falls back to the clock by at most a 64th of the time that \
         passes",
        span(ms)
    )
}

/// What is wrong with a partition in this role, for people.
fn cause_of(role: PartitionRole, is_to_write: bool) -> &'static str {
    match role {
        PartitionRole::Primary | PartitionRole::Following => "nothing is wrong",
        PartitionRole::Beginning => {
            "they are this node's to write, and it has no lease of them now, or what must be on \
             its disk first is not there yet"
        }
        PartitionRole::Draining => "they are handed over to another node",
        PartitionRole::CatchingUp => "their primary ships what is missing here",
        PartitionRole::Scanning => {
            "their primary ships all of them anew; what is here is incomplete until then"
        }
        PartitionRole::Rewinding => {
            "what this node had written alone goes to lostfound and is taken back"
        }
        PartitionRole::Followed => "no link to their primary any more",
        PartitionRole::Idle if is_to_write => {
            "they are this node's to write and it has not begun: it waits for the node that wrote \
             them to hand them over, or may not begin, and its log says why"
        }
        PartitionRole::Idle => "no link to their primary since the start",
    }
}

/// All partitions that the plan gives this node must be well. The node may tell of other
/// partitions, too.
fn judge_role(cores: &[ReplicationStatus], wanted: Option<Wanted>) -> Result<Ready, NotReady> {
    // Every shard has some, and tells them in its first turn.
    if cores.iter().any(|core| core.partitions.is_empty()) {
        return Err(NotReady::Starting { percent: 100 });
    }
    let all = || cores.iter().flat_map(|it| &it.partitions);
    let own = || all().filter(|it| it.duty != Duty::None || it.role == PartitionRole::Primary);
    let count = |role| own().filter(|it| it.role == role).count();
    // The worst is told.
    let worst = own().map(|it| it.role).max();
    if let Some(role) = worst.filter(|role| !role.is_well()) {
        let count = count(role);
        let is_to_write = own().any(|it| it.role == role && it.duty == Duty::Primary);
        return Err(NotReady::Role {
            role,
            count,
            is_to_write,
        });
    }
    if worst.is_none() {
        return Err(NotReady::HasNothing);
    }
    let written = count(PartitionRole::Primary);
    match wanted {
        Some(Wanted::Primary) if written == 0 => Err(NotReady::WritesNothing),
        _ => Ok(Ready::InCluster {
            written,
            followed: count(PartitionRole::Following),
        }),
    }
}

/// A start may replay for long, and a stop may wait for the disk: only a loop that serves has to
/// turn.
fn judge_live(
    phase: &Phase,
    now_us: u64,
    turned_us: impl Iterator<Item = u64>,
) -> Result<(), Standstill> {
    if *phase != Phase::Serving {
        return Ok(());
    }
    for (shard, turned_us) in turned_us.enumerate() {
        let us = now_us.saturating_sub(turned_us);
        if us > STANDSTILL_US_MAX {
            return Err(Standstill { shard, us });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use penstock_net::link::Membership;
    use penstock_shard::cluster::PartitionStatus;
    use penstock_shard::replication::Epoch;

    use super::*;
    use crate::stats::{FIGURES, total};

    fn reading(full: &str) -> Reading {
        let mut reading = total(&[]);
        let at = FIGURES.iter().position(|figure| figure.name == full);
        at.into_iter().for_each(|at| reading.figures[at] = 1);
        reading
    }

    #[test]
    fn only_a_server_that_serves_and_has_room_is_ready() {
        let sound = [reading(""), reading("")];
        let judge = |phase: Phase| judge_ready(&phase, 43, &sound);
        assert_eq!(judge(Phase::Serving), Ok(()));
        let starting = judge(Phase::Starting).unwrap_err();
        assert_eq!(starting.to_string(), "starting, 43 %");
        assert_eq!(judge(Phase::Stopping), Err(NotReady::Stopping));
        let failed = judge(Phase::Failed("shard 1: EIO".into())).unwrap_err();
        assert_eq!(failed.to_string(), "failed: shard 1: EIO");
        let of = |full| judge_ready(&Phase::Serving, 100, &[reading(""), reading(full)]);
        assert_eq!(of("disk_full"), Err(NotReady::DiskFull { shard: 1 }));
        let lacking = of("no_file_descriptor").unwrap_err();
        assert_eq!(lacking, NotReady::NoDescriptor { shard: 1 });
        let text = lacking.to_string();
        assert!(
            text.starts_with("BUSY: no file descriptor is left for a segment of shard 1"),
            "{text}"
        );
        assert_eq!(
            of("no_segment_file"),
            Err(NotReady::NoSegmentFile { shard: 1 })
        );
        assert_eq!(of("log_full"), Err(NotReady::LogFull { shard: 1 }));
        assert_eq!(of("memory_full"), Err(NotReady::MemoryFull { shard: 1 }));
    }

    #[test]
    fn a_node_of_a_cluster_is_ready_when_all_that_is_its_own_is_well() {
        let member = Duty::Member(Membership::Sync);
        let status = |roles: &[(PartitionRole, Duty)]| {
            let partitions = roles.iter().zip(0..);
            let partitions = partitions.map(|(&(role, duty), partition)| PartitionStatus {
                partition,
                role,
                duty,
                epoch: Epoch::default(),
                applied: 0,
                received: 0,
                was_last: false,
                waits_for: Vec::new(),
                durable: 0,
                hangs_on: None,
            });
            vec![ReplicationStatus {
                partitions: partitions.collect(),
                peers: Vec::new(),
            }]
        };
        let readiness =
            |roles: &[(PartitionRole, Duty)], wanted| match judge_role(&status(roles), wanted) {
                Ok(ready) => ready.to_string(),
                Err(not) => not.to_string(),
            };
        use PartitionRole::{Following, Idle, Primary, Rewinding, Scanning};
        let early = [status(&[(Following, member)]), status(&[])].concat();
        let early = judge_role(&early, None);
        assert_eq!(early, Err(NotReady::Starting { percent: 100 }));
        let mixed = [(Primary, Duty::Primary), (Following, member)];
        let ready = "ready: primary of 1 partitions, follows 1 partitions";
        assert_eq!(readiness(&mixed, None), ready);
        assert_eq!(readiness(&mixed, Some(Wanted::Primary)), ready);
        let follower = [(Following, member), (Idle, Duty::None)];
        assert_eq!(readiness(&follower, None), "ready: follows 1 partitions");
        let refused = readiness(&follower, Some(Wanted::Primary));
        assert!(refused.starts_with("not primary: "), "{refused}");
        let worse = [(Following, member), (Scanning, member), (Rewinding, member)];
        let refused = readiness(&worse, None);
        assert!(
            refused.starts_with("rewinding: 1 partitions: "),
            "{refused}"
        );
        let begins = [(Primary, Duty::Primary), (Idle, Duty::Primary)];
        let refused = readiness(&begins, Some(Wanted::Primary));
        assert!(
            refused.starts_with("idle: 1 partitions: they are this node's to write"),
            "{refused}"
        );
        let other = [(Idle, Duty::None)];
        let refused = readiness(&other, None);
        assert!(refused.starts_with("no partition: "), "{refused}");
    }

    #[test]
    fn only_a_loop_that_should_turn_and_has_not_is_dead() {
        let now_us = 60_000_000;
        let judge = |phase, turned_us: [u64; 2]| judge_live(&phase, now_us, turned_us.into_iter());
        let late = now_us - STANDSTILL_US_MAX - 1;
        assert_eq!(judge(Phase::Serving, [now_us, late + 1]), Ok(()));
        // The clock of the shard may be read later than that of the thread that asks.
        assert_eq!(judge(Phase::Serving, [now_us, now_us + 9]), Ok(()));
        let dead = judge(Phase::Serving, [now_us, late]).unwrap_err();
        assert!(dead.to_string().starts_with("the loop of shard 1 "));
        for phase in [
            Phase::Starting,
            Phase::Stopping,
            Phase::Failed(String::new()),
        ] {
            assert_eq!(judge(phase, [0, 0]), Ok(()));
        }
    }
}
