//! The limit of open files: how many a server needs, and which errors mean that none is left.

use std::fmt;
use std::io;

use crate::system::advice;
use crate::system::named_error::os_code;
use crate::system::{self, Resource};

/// Open files that a server should be allowed beside its connections.
const BESIDE_CONNECTIONS: u64 = 4096;
/// Open files that a process needs beside those of shards and segments: standard streams, the log,
/// the admin port, the lock, helpers and a few connections.
const OF_PROCESS: u64 = 32;
/// Open files that a shard needs: its rings or the queues of its threads, two listeners, three
/// spares and the segment that is written.
const OF_SHARD: u64 = 16;
/// Open files that connections leave to segments, at most.
const LEFT_TO_SEGMENTS_MAX: u64 = 4096;
/// Connections leave at most this part of the limit to segments: the limit divided by this number.
const LEFT_TO_SEGMENTS_DIVISOR: u64 = 4;

/// How many open files a server with so many connections should be allowed.
pub(crate) fn wanted(connections_max: u64) -> u64 {
    connections_max.saturating_add(BESIDE_CONNECTIONS)
}

/// How many open files of `limit` connections leave to segments.
pub(crate) fn left_to_segments(limit: u64) -> u64 {
    (limit / LEFT_TO_SEGMENTS_DIVISOR).min(LEFT_TO_SEGMENTS_MAX)
}

/// Raises the limit of open files as far as the process may, and refuses one with which a server
/// cannot work.
///
/// # Errors
/// [`TooFewOpenFiles`].
pub(crate) fn require(
    shards: u32,
    segments: u64,
    connections_max: u64,
) -> Result<(), TooFewOpenFiles> {
    // Where the limit is unknown, the first file that cannot be opened tells.
    let limit = system::raise_limit(Resource::OpenFiles).map_or(u64::MAX, |limit| limit.soft);
    judge(limit, shards, segments, connections_max)
}

fn judge(
    limit: u64,
    shards: u32,
    segments: u64,
    connections_max: u64,
) -> Result<(), TooFewOpenFiles> {
    // Connections leave a part of the limit to segments, so some are taken only if the rest is
    // enough for all else.
    let share = (segments / (LEFT_TO_SEGMENTS_DIVISOR - 1)).min(LEFT_TO_SEGMENTS_MAX);
    let needed = OF_PROCESS + u64::from(shards) * OF_SHARD + segments + share;
    match limit >= needed {
        true => Ok(()),
        false => Err(TooFewOpenFiles {
            limit,
            shards,
            segments,
            needed,
            wanted: wanted(connections_max).max(2 * needed),
        }),
    }
}

/// The limit of open files is too low for a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooFewOpenFiles {
    limit: u64,
    shards: u32,
    segments: u64,
    needed: u64,
    wanted: u64,
}

impl fmt::Display for TooFewOpenFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |number: u64| if number == 1 { "" } else { "s" };
        write!(
            f,
            "this process may have {} open files (nofile), and a start with {} shard{} and {} \
             segment file{} needs at least {}: {}",
            self.limit,
            self.shards,
            plural(self.shards.into()),
            self.segments,
            plural(self.segments),
            self.needed,
            advice::open_files(self.wanted)
        )
    }
}

/// Whether the process or the machine has no file descriptor left.
pub(crate) fn is_exhausted(error: &io::Error) -> bool {
    matches!(os_code(error), Some(libc::EMFILE | libc::ENFILE))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::system::named_error::named;

    #[test]
    fn a_limit_that_is_too_low_is_refused_with_the_need_and_the_way_to_raise_it() {
        assert_eq!(judge(48, 1, 0, 10_000), Ok(()));
        assert_eq!(judge(u64::MAX, 256, 1 << 22, 10_000), Ok(()));
        let message = judge(16, 1, 0, 10_000).expect_err("too low").to_string();
        assert_eq!(
            message,
            "this process may have 16 open files (nofile), and a start with 1 shard and 0 segment \
             files needs at least 48: ulimit -n 14096, or LimitNOFILE=14096 in the systemd unit"
        );
        // Three hundred segments leave no connection a place in the three quarters that they may
        // have of 400.
        assert!(judge(400, 2, 300, 10).is_err() && judge(464, 2, 300, 10).is_ok());
    }

    #[test]
    fn a_lack_of_descriptors_is_known_behind_a_path_too() {
        for code in [libc::EMFILE, libc::ENFILE] {
            let error = io::Error::from_raw_os_error(code);
            assert!(is_exhausted(&error));
            assert!(is_exhausted(&named(Path::new("/data"), &error)));
        }
        let full = io::Error::from_raw_os_error(libc::ENOSPC);
        assert!(!is_exhausted(&named(Path::new("/data"), &full)));
    }
}
