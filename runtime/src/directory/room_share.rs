//! What the segments of a directory may have of the disk as it is now, and the share of each log.
//!
//! The thread that makes segments measures the room once in a while; shards read it without a
//! system call. Half of what is free is shared out by what each log has already, so a shard that
//! holds most of the data may take most of the room, and half evenly, so each may grow.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What is known of the directory.
#[derive(Debug, Default)]
struct Known {
    /// Bytes of all segment files and of those that can still be made; 0 before the first
    /// measurement.
    room_bytes: AtomicU64,
    /// Bytes of the logs of all shards, as their shares say.
    held_bytes: AtomicU64,
    /// How many logs have a share.
    logs: AtomicU64,
}

/// The room of one directory; a clone has the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct RoomFigures {
    known: Arc<Known>,
}

impl RoomFigures {
    /// All segments may have so many bytes, those that are there included.
    pub(crate) fn set(&self, room_bytes: u64) {
        self.known.room_bytes.store(room_bytes, Ordering::Relaxed);
    }

    /// For one log, which has no segment yet.
    pub(crate) fn share(&self) -> RoomShare {
        self.known.logs.fetch_add(1, Ordering::Relaxed);
        RoomShare {
            known: Arc::clone(&self.known),
            held_bytes: 0,
        }
    }
}

/// The share of one log.
#[derive(Debug)]
pub(crate) struct RoomShare {
    known: Arc<Known>,
    /// What the log had at the last call.
    held_bytes: u64,
}

impl RoomShare {
    /// Bytes that a log of `held_bytes` may have in all; `None` before the first measurement.
    pub(crate) fn log_bytes(&mut self, held_bytes: u64) -> Option<u64> {
        let before = std::mem::replace(&mut self.held_bytes, held_bytes);
        // Modulo 2^64, so the order of two steps does not matter.
        let change = held_bytes.wrapping_sub(before);
        let all = &self.known.held_bytes;
        let all_bytes = all
            .fetch_add(change, Ordering::Relaxed)
            .wrapping_add(change);
        let room_bytes = self.known.room_bytes.load(Ordering::Relaxed);
        let half = room_bytes.saturating_sub(all_bytes) / 2;
        let evenly = half / self.known.logs.load(Ordering::Relaxed).max(1);
        // While no log has a segment all have the same.
        let by_held = match all_bytes {
            0 => evenly,
            all => {
                let by_held = u128::from(half) * u128::from(held_bytes) / u128::from(all);
                u64::try_from(by_held).unwrap_or(half)
            }
        };
        (room_bytes > 0).then(|| held_bytes.saturating_add(by_held).saturating_add(evenly))
    }
}

impl Drop for RoomShare {
    fn drop(&mut self) {
        let all = &self.known.held_bytes;
        all.fetch_sub(self.held_bytes, Ordering::Relaxed);
        self.known.logs.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_room_follows_what_each_log_has_and_one_log_has_all_of_it() {
        let figures = RoomFigures::default();
        let (mut one, mut other) = (figures.share(), figures.share());
        assert_eq!(one.log_bytes(100), None, "nothing is measured");
        figures.clone().set(1_000);
        assert_eq!(one.log_bytes(0), Some(500), "no log has a segment");
        assert_eq!(one.log_bytes(100), Some(100 + 450 + 225));
        assert_eq!(other.log_bytes(300), Some(300 + 225 + 150));
        assert_eq!(one.log_bytes(100), Some(100 + 75 + 150));
        assert_eq!(other.log_bytes(100), Some(500), "segments went back");
        drop(other);
        assert_eq!(one.log_bytes(0), Some(1_000));
        assert_eq!(one.log_bytes(100), Some(1_000));
        figures.set(10);
        assert_eq!(one.log_bytes(100), Some(100), "what is there is there");
    }
}
