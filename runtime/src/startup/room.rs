//! The memory that the shards of a process may take, and what each of them gets of it.

use std::io;
use std::sync::Arc;

use penstock_storage::budget::Budget;

use super::banner::{Say, report_problem};
use super::error::{OpenError, system};
use crate::config::{Config, record_bytes_for, size_text};
use crate::disk::arena::ArenaLayout;
use crate::system;
use crate::system::memory::{self, Fixed, MemoryBound, Watch};

/// The least that index and values of a shard need: an index without keys, and values on their way
/// to the disk.
const SHARE_BYTES_MIN: usize = 8 << 20;

const CANNOT_READ: &str = "read how much memory the process takes";

/// Beside the mapping of a shard's disk at least so much can be had, and the largest record.
const OVERFLOW_BYTES_MIN: usize = 2 << 20;

/// Most that the operations of a shard that wait for cold keys hold.
const PARKED_BYTES_MAX: usize = 64 << 20;

/// Most that the connections of a shard have sent that is not run.
const INPUT_BYTES_MAX: usize = 256 << 20;

/// Most that the replies of a shard's connections hold.
const REPLIES_BYTES_MAX: usize = 256 << 20;

/// Most empty room that the connections of a shard keep for what comes next, ...
const KEPT_BYTES_MAX: usize = 16 << 20;
/// ... and what they may keep however little there is.
const KEPT_BYTES_MIN: usize = 256 << 10;

/// What a connection costs that says nothing, with the little of a frame that it may have sent
/// without being counted.
const CONNECTION_BYTES: u64 = 8 << 10;
/// The same through TLS: its state and keys beside it.
const TLS_CONNECTION_BYTES: u64 = 64 << 10;

/// What a handshake of TLS that is not finished takes, at most, ...
const HANDSHAKE_BYTES: usize = 80 << 10;
/// ... and how many of them may be under way on one core.
const HANDSHAKES_MAX: u32 = 256;
const HANDSHAKES_MIN: u32 = 8;

/// The part of the memory that connections may take for being there.
const CONNECTIONS_DIVISOR: u64 = 4;

/// Blocks of this size go back to the system when they are freed: pages of cells are larger.
const MAPPED_BLOCK_BYTES: u32 = 192 << 10;

/// The memory that the shards of a process may take, and what each of them gets of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    shards: u16,
    memory_max: Option<u64>,
    /// The largest value that earlier starts accepted or this one accepts, in bytes.
    value_bytes: u32,
    /// The largest frame of a client.
    frame_bytes_max: u32,
    /// Connections that are asked for, at most.
    connections_max: u32,
    /// Clients speak TLS.
    has_tls: bool,
}

/// How many connections there may be at a time, and what says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionBound {
    pub(crate) max: u32,
    pub(crate) reason: String,
}

impl Room {
    /// The room of `shards` shards. A process that does nothing else (`is_of_process`) always has a
    /// bound, others only by an option.
    pub(super) fn of(config: &Config, is_of_process: bool, shards: u16, value_bytes: u32) -> Room {
        Room {
            shards,
            memory_max: match config.memory_max {
                0 => is_of_process.then(memory::default_bytes),
                max => Some(max),
            },
            value_bytes,
            frame_bytes_max: config.frame_bytes_max,
            connections_max: config.connections_max,
            has_tls: config.tls_cert.is_some(),
        }
    }

    /// Bounds the memory of the process, before any shard is opened; the bound holds while the
    /// thread that watches it lives.
    ///
    /// # Errors
    /// [`OpenError::Option`] if so little is left that no shard can work.
    pub(super) fn bound_memory(
        &self,
        is_default: bool,
        say: Say,
    ) -> Result<(Arc<MemoryBound>, Watch), OpenError> {
        system::map_blocks_from(MAPPED_BLOCK_BYTES);
        let bound = self.bound().map_err(system(CANNOT_READ))?;
        let max = bound.max();
        self.check("--memory-max", |room| room.bound().map(|it| it.share()))?;
        say(format_args!(
            "memory       at most {} MiB{}, of which {} MiB for index and values",
            max >> 20,
            match is_default {
                true => " (three quarters of what there is)",
                false => "",
            },
            (bound.share() as u64 * u64::from(self.shards)) >> 20
        ));
        let ConnectionBound {
            max: carried,
            reason,
        } = self.connection_bound();
        say(format_args!(
            "connections  at most {carried} at a time: {reason}"
        ));
        if let Some(problem) = memory::beyond_problem(max, memory::available_bytes()) {
            report_problem(&problem, say);
        }
        let bound = Arc::new(bound);
        let watch = bound
            .watch()
            .map_err(system("start the thread that watches the memory"))?;
        Ok((bound, watch))
    }

    /// The bound on the process, as if it were to begin now.
    fn bound(&self) -> io::Result<MemoryBound> {
        let layout = self.arena_layout();
        let fixed = Fixed {
            buffer_bytes: (layout.bytes()
                + layout.overflow_bytes_max
                + self.parked_bytes_max()
                + self.input_bytes_max()) as u64,
            cells_bytes_min: self.cells_bytes_min() as u64,
        };
        let max = self.memory_max.expect("a process has a bound");
        MemoryBound::new(max, self.shards, fixed)
    }

    /// Whether a shard can work with what is its `share` for index and values; `name` is the
    /// option's.
    pub(super) fn check(
        &self,
        name: &str,
        share: impl Fn(&Room) -> io::Result<usize>,
    ) -> Result<(), OpenError> {
        let is_enough = |max: u64| {
            let room = Room {
                memory_max: Some(max),
                ..*self
            };
            share(&room).map(|share| share >= SHARE_BYTES_MIN)
        };
        let Some(max) = self.memory_max else {
            return Ok(());
        };
        if is_enough(max).map_err(system(CANNOT_READ))? {
            return Ok(());
        }
        // By halves between what is not enough and what is.
        let (mut little, mut enough) = (max, max.max(1 << 20));
        while enough < 1 << 60 && !is_enough(enough).map_err(system(CANNOT_READ))? {
            (little, enough) = (enough, 2 * enough);
        }
        while enough - little > 1 << 20 {
            let middle = little + (enough - little) / 2;
            match is_enough(middle).map_err(system(CANNOT_READ))? {
                true => enough = middle,
                false => little = middle,
            }
        }
        Err(OpenError::Option(format!(
            "{name} {max} leaves each of {} shards less than the {SHARE_BYTES_MIN} bytes that \
             index and values need: raise it to {} MiB; values of up to {} bytes may be there",
            self.shards,
            // The next start may find a little more taken.
            enough.div_ceil(1 << 20) + 1,
            self.value_bytes
        )))
    }

    /// The bound on the memory, if there is one.
    pub(super) fn memory_max(&self) -> Option<u64> {
        self.memory_max
    }

    /// What a bound on all leaves a shard.
    fn share_of(&self, max: u64) -> usize {
        usize::try_from(max / u64::from(self.shards)).unwrap_or(usize::MAX)
    }

    /// What index and values of one shard may take beside what its cells may in any case, where
    /// nothing is measured.
    pub(super) fn data_share(&self) -> usize {
        self.memory_max.map_or(usize::MAX, |max| {
            self.share_of(max).saturating_sub(self.cells_bytes_min())
        })
    }

    /// The memory of a shard's disk: within a bound on all, what comes beside the mapping is less.
    pub(super) fn arena_layout(&self) -> ArenaLayout {
        let usual = ArenaLayout::default();
        let wanted = self.memory_max.map_or(usual.overflow_bytes_max, |max| {
            self.share_of(max / 32).clamp(
                OVERFLOW_BYTES_MIN,
                usual.overflow_bytes_max.max(OVERFLOW_BYTES_MIN),
            )
        });
        // The largest record needs a block, and cleaning a chunk as large beside it.
        let least = 2 * self.record_bytes_max() + OVERFLOW_BYTES_MIN;
        ArenaLayout {
            overflow_bytes_max: wanted.max(least),
            ..usual
        }
    }

    /// What the operations that wait for cold keys may hold, of one shard.
    pub(super) fn parked_bytes_max(&self) -> usize {
        self.memory_max.map_or(PARKED_BYTES_MAX, |max| {
            self.share_of(max / 32).min(PARKED_BYTES_MAX)
        })
    }

    /// What the replies of a shard's connections may hold: all together no more than grows unseen
    /// between two looks at the memory, but for two of the largest.
    pub(super) fn replies_bytes_max(&self) -> usize {
        self.memory_max
            .map_or(REPLIES_BYTES_MAX, |max| {
                self.share_of(max / 16).min(REPLIES_BYTES_MAX)
            })
            .max(self.record_bytes_max())
    }

    /// What messages of channels may hold that subscribers have not taken, of all shards, and the
    /// same for names that are subscribed to: a quarter of what replies may, and two of the longest
    /// messages in any case.
    pub(super) fn channel_bytes_max(&self) -> usize {
        let replies = self.replies_bytes_max() * usize::from(self.shards);
        (replies / 4).max(2 * self.frame_bytes_max as usize)
    }

    /// What the connections of a shard may have sent that is not run.
    pub(super) fn input_bytes_max(&self) -> usize {
        let least = 2 * self.frame_bytes_max as usize;
        self.memory_max
            .map_or(INPUT_BYTES_MAX, |max| {
                self.share_of(max / 32).min(INPUT_BYTES_MAX)
            })
            .max(least)
    }

    /// The empty room that the connections of a shard may keep. It is measured with all else that
    /// is no data, so what is left to data is no less before anybody comes.
    pub(super) fn kept_bytes_max(&self) -> usize {
        self.memory_max.map_or(KEPT_BYTES_MAX, |max| {
            self.share_of(max / 64)
                .clamp(KEPT_BYTES_MIN, KEPT_BYTES_MAX)
        })
    }

    /// How many handshakes of TLS may be under way on one core.
    pub(super) fn handshakes_max(&self) -> u32 {
        self.memory_max.map_or(HANDSHAKES_MAX, |max| {
            let carried = self.share_of(max / 16) / HANDSHAKE_BYTES;
            u32::try_from(carried)
                .unwrap_or(HANDSHAKES_MAX)
                .clamp(HANDSHAKES_MIN, HANDSHAKES_MAX)
        })
    }

    /// How many connections there may be: as many as are asked for, or as the memory carries.
    pub(super) fn connection_bound(&self) -> ConnectionBound {
        let bytes = match self.has_tls {
            true => TLS_CONNECTION_BYTES,
            false => CONNECTION_BYTES,
        };
        let asked = self.connections_max;
        let usual = ConnectionBound {
            max: asked,
            reason: "connections_max".to_string(),
        };
        let Some(max) = self.memory_max else {
            return usual;
        };
        match u32::try_from(max / CONNECTIONS_DIVISOR / bytes) {
            Ok(carried) if carried < asked => ConnectionBound {
                max: carried.max(1),
                reason: format!(
                    "memory_max of {} MiB carries so many of connections_max {asked}, {} each in \
                     a quarter of it",
                    max >> 20,
                    size_text(bytes)
                ),
            },
            _ => usual,
        }
    }

    /// What the cells of a shard may take in any case.
    pub(super) fn cells_bytes_min(&self) -> usize {
        Budget::cells_bytes_min(usize::try_from(self.value_bytes).unwrap_or(usize::MAX / 8))
    }

    /// The largest record that the logs may hold or take, in bytes.
    pub(super) fn record_bytes_max(&self) -> usize {
        record_bytes_for(self.value_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_memory_carries_fewer_connections_and_says_so() {
        let room = |memory_max, has_tls| Room {
            shards: 2,
            memory_max,
            value_bytes: 1 << 20,
            frame_bytes_max: 2 << 20,
            connections_max: 10_000,
            has_tls,
        };
        for memory_max in [None, Some(320 << 20), Some(1 << 40)] {
            let bound = room(memory_max, false).connection_bound();
            assert_eq!((bound.max, &bound.reason[..]), (10_000, "connections_max"));
        }
        let bound = room(Some(80 << 20), false).connection_bound();
        assert_eq!(bound.max, 2_560);
        assert!(
            bound.reason.contains("memory_max of 80 MiB"),
            "{}",
            bound.reason
        );
        assert_eq!(room(Some(80 << 20), true).connection_bound().max, 320);
        for memory_max in [Some(1 << 20), Some(80 << 20), Some(1 << 40), None] {
            let handshakes = room(memory_max, true).handshakes_max();
            assert!((HANDSHAKES_MIN..=HANDSHAKES_MAX).contains(&handshakes));
            let kept = room(memory_max, false).kept_bytes_max();
            assert!((KEPT_BYTES_MIN..=KEPT_BYTES_MAX).contains(&kept));
        }
    }
}
