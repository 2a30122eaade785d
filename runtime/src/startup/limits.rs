//! Whether the disk has the room, and segments have the length, that this start and what earlier
//! starts wrote need.

use penstock_shard::opening::Inventory;
use penstock_storage::io::BLOCK_BYTES;
use penstock_storage::log::SPARES_READY;
use penstock_storage::sizing::{
    DiskShare, SEGMENTS_BESIDE, segment_bytes_fitting, segment_bytes_within,
};

use super::banner::{Say, report_problem};
use super::error::{OpenError, system};
use crate::config::{Config, segment_bytes_for, size_text};
use crate::directory::Directory;
use crate::directory::room::DiskRoom;
use crate::system as os;
use crate::system::advice::{self, Problem};

/// What the file system of a directory has for segments.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoomFound {
    /// Bytes that are free, and those of segments and key tables.
    bytes: u64,
    /// Bytes of the longest segment that is there.
    longest_bytes: u64,
}

impl RoomFound {
    /// Measures the file system.
    pub(super) fn of(directory: &Directory) -> Result<RoomFound, OpenError> {
        const ACTION: &str = "measure the room of the file system";
        let segments = directory.segments();
        let lengths = segments.list().map_err(system(ACTION))?;
        let tables = directory.key_tables().list().unwrap_or_default();
        let free_bytes = os::free_bytes(segments.folder()).map_err(system(ACTION))?;
        let held = lengths.iter().map(|&(_, bytes)| bytes);
        let tables = tables.iter().map(|&(_, bytes)| bytes);
        Ok(RoomFound {
            bytes: held
                .clone()
                .chain(tables)
                .fold(free_bytes, u64::saturating_add),
            longest_bytes: held.max().unwrap_or(0),
        })
    }
}

/// A segment is a file, so one that is longer than `file_bytes_max` could never be made.
pub(super) fn check_file_bytes(segment_bytes: u64, file_bytes_max: u64) -> Result<(), OpenError> {
    if segment_bytes <= file_bytes_max {
        return Ok(());
    }
    Err(OpenError::Option(format!(
        "a file of this process may have {file_bytes_max} bytes, and a segment has \
         {segment_bytes}: {}",
        advice::file_bytes()
    )))
}

/// Whether a generation of logs for `shards` has the room that it takes: what is there stays as a
/// whole until the `counted_bytes` of it that count are written again. Without that neither would
/// ever end, and in the end deletions would be refused.
pub(super) fn check_change(
    config: &Config,
    room: &DiskRoom,
    inventory: &Inventory,
    shards: u16,
    counted_bytes: u64,
) -> Result<(), OpenError> {
    const ACTION: &str = "look how much room the disk has";
    // What is rewritten takes no spare, and frames are not filled to the last byte.
    let segments = u64::from(shards) * (1 + SPARES_READY as u64);
    let needed = counted_bytes + counted_bytes / 16 + segments * config.segment_bytes;
    let left = &inventory.left;
    let spares = left.spares.iter().chain(&left.superfluous);
    let spare_bytes: u64 = spares.map(|(_, bytes)| bytes).sum();
    let missing = needed.saturating_sub(spare_bytes);
    if room.has_for_segment(missing).map_err(system(ACTION))? {
        return Ok(());
    }
    let taken = room.segments().bytes().map_err(system(ACTION))? - spare_bytes;
    let limit = match config.disk_bytes_max {
        0 => "the disk has less".to_string(),
        max => format!("disk_bytes_max {max} or the disk leaves less"),
    };
    Err(OpenError::Option(format!(
        "--shards {shards}: the segments of --shards {} take {} MiB and stay until what counts in \
         them, about {} MiB, is written again. That needs {} MiB beside them, and {limit}: start \
         with --shards {} as before, or with room for {} MiB",
        inventory.layout.shards,
        taken.div_ceil(1 << 20),
        counted_bytes.div_ceil(1 << 20),
        needed.div_ceil(1 << 20),
        inventory.layout.shards,
        // A start as before takes a segment of each shard.
        (taken + needed + u64::from(inventory.layout.shards) * config.segment_bytes)
            .div_ceil(1 << 20),
    )))
}

/// Bytes of a segment: what was asked for, or what the limit of the disk and values of up to
/// `value_bytes` from earlier starts leave. No longer than the room of the file system wants.
pub(super) fn segment_bytes_of(
    config: &Config,
    shards: u16,
    value_bytes: u32,
    room: Option<RoomFound>,
) -> u64 {
    let least_bytes = segment_bytes_for(value_bytes.max(config.value_bytes_max));
    let least_bytes = least_bytes.next_multiple_of(BLOCK_BYTES as u64);
    let shards = u64::from(shards);
    let asked_bytes = match config.segment_bytes {
        0 => segment_bytes_within(config.disk_bytes_max / shards, least_bytes),
        asked => asked,
    };
    let Some(room) = room else {
        return asked_bytes;
    };
    let share = (room.bytes / shards).max(1);
    let by_room = match config.segment_bytes {
        0 => segment_bytes_within(share, least_bytes),
        asked => segment_bytes_fitting(asked, share, least_bytes),
    };
    // What counts in a segment has room in the next one, unless few of that length fit.
    let longest_bytes = match room.longest_bytes <= share / SEGMENTS_OF_BEFORE_MIN {
        true => room.longest_bytes,
        false => 0,
    };
    by_room.max(longest_bytes).min(asked_bytes)
}

/// Segments are as long as those of earlier starts only if so many have room.
const SEGMENTS_OF_BEFORE_MIN: u64 = 4;

/// Values that earlier starts accepted are still served, edited and cleaned: only new ones are held
/// to the limit of this start.
pub(super) fn hold_values(
    config: &mut Config,
    value_bytes: u32,
    say: Say,
) -> Result<(), OpenError> {
    let needed = segment_bytes_for(value_bytes);
    if config.segment_bytes < needed {
        return Err(OpenError::Option(format!(
            "--segment-bytes {} is too small for this directory, which may hold values of up to \
             {value_bytes} bytes from earlier starts: four of the largest records must fit, and \
             these take {needed} bytes",
            config.segment_bytes
        )));
    }
    if value_bytes > config.value_bytes_max {
        say(format_args!(
            "values       up to {} may be there from earlier starts; new ones up to {}",
            size_text(value_bytes.into()),
            size_text(config.value_bytes_max.into())
        ));
    }
    config.make_room_for(value_bytes);
    Ok(())
}

/// A bound under which no shard could write at all is a mistake, and told before anybody waits for
/// FULL. What the limit or the file system carries is told at each start.
pub(super) fn check_disk_bytes(
    config: &Config,
    shards: u16,
    short_bytes: u64,
    value_bytes: u32,
    (room, say): (RoomFound, Say),
) -> Result<(), OpenError> {
    let (max, least) = (
        config.disk_bytes_max,
        SEGMENTS_MIN * u64::from(shards) * short_bytes,
    );
    if 0 < max && max < least {
        return Err(OpenError::Option(format!(
            "disk_bytes_max {max} is too small: {SEGMENTS_MIN} of the smallest segments for each \
             of {shards} shards take {least} bytes, with values of up to {value_bytes} bytes"
        )));
    }
    let bound = match max {
        0 => DiskBound::Room(room.bytes),
        max if max > room.bytes => DiskBound::Room(room.bytes),
        max => DiskBound::Limit(max),
    };
    let share = DiskShare {
        log_bytes_max: bound.bytes() / u64::from(shards),
        segment_bytes: config.segment_bytes,
        space_percent_max: config.space_percent_max,
    };
    let carried = u64::from(shards) * share.live_bytes_max();
    let (name, word, of) = match bound {
        DiskBound::Limit(_) => ("disk limit", "limit", ""),
        DiskBound::Room(_) => ("disk room", "room", ", free or of segments,"),
    };
    say(format_args!(
        "{name:<12} {}{of} carries {} of records without FULL: ({word} - {SEGMENTS_BESIDE} \
         segments of {} a shard) / {} %",
        size_text(bound.bytes()),
        size_text(carried),
        size_text(config.segment_bytes),
        config.space_percent_max
    ));
    if carried == 0 {
        report_problem(&tight(bound, shards, short_bytes, config), say);
    }
    Ok(())
}

/// What bounds the segments, in bytes.
#[derive(Clone, Copy)]
enum DiskBound {
    /// `disk_bytes_max`.
    Limit(u64),
    /// What the file system has, which is less.
    Room(u64),
}

impl DiskBound {
    fn bytes(self) -> u64 {
        match self {
            DiskBound::Limit(bytes) | DiskBound::Room(bytes) => bytes,
        }
    }
}

/// A bound that carries no data for sure, because segments are as large.
fn tight(bound: DiskBound, shards: u16, short_bytes: u64, config: &Config) -> Problem {
    let segments = SEGMENTS_BESIDE * u64::from(shards);
    let usual = 2 * segments * config.segment_bytes;
    let fits = bound.bytes() / (2 * segments) / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
    let smaller = match fits >= short_bytes {
        true => format!(" or --segment-bytes {fits}"),
        false => String::new(),
    };
    let (what, more) = match bound {
        DiskBound::Limit(max) => (
            format!("disk_bytes_max {max} is"),
            format!("--disk-bytes-max {usual}"),
        ),
        DiskBound::Room(bytes) => (
            format!("the file system has room for {bytes} bytes, which is"),
            format!("it {usual} bytes"),
        ),
    };
    Problem {
        cause: format!(
            "{what} no more than {SEGMENTS_BESIDE} segments for each of {shards} shards: what \
             grows is answered FULL early, perhaps at once"
        ),
        mend: format!("give {more}{smaller}"),
    }
}

/// Segments of the smallest length that a shard needs to write, clean and tell a release.
const SEGMENTS_MIN: u64 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_as_short_as_the_room_of_the_file_system_wants() {
        const MIB: u64 = 1 << 20;
        let least_bytes = segment_bytes_for(Config::default().value_bytes_max);
        let least_bytes = least_bytes.next_multiple_of(BLOCK_BYTES as u64);
        let of = |disk_bytes_max, mib, longest_mib| {
            let config = Config {
                disk_bytes_max,
                ..Config::default()
            };
            let room = RoomFound {
                bytes: mib * MIB,
                longest_bytes: longest_mib * MIB,
            };
            segment_bytes_of(&config, 1, 0, Some(room))
        };
        for (disk_bytes_max, mib, longest_mib, expected) in [
            (0, 1 << 20, 0, 64 * MIB),
            (0, 1_536, 0, 64 * MIB),
            (0, 1_535, 0, 32 * MIB),
            (0, 133, 0, least_bytes),
            (0, 195, 0, least_bytes),
            (0, 0, 0, least_bytes),
            // The lesser of limit and room.
            (256 * MIB, 1 << 20, 0, least_bytes.max(8 * MIB)),
            (1 << 40, 1_000, 0, 32 * MIB),
            // What is there has room in what comes, if four of it fit.
            (0, 1_000, 64, 64 * MIB),
            (0, 133, 64, least_bytes),
        ] {
            let found = of(disk_bytes_max, mib, longest_mib);
            assert_eq!(found, expected, "{disk_bytes_max} {mib} {longest_mib}");
        }
        let asked = Config {
            segment_bytes: 9 * MIB,
            ..Config::default()
        };
        let room = RoomFound {
            bytes: 30 * MIB,
            longest_bytes: 0,
        };
        assert_eq!(segment_bytes_of(&asked, 1, 0, Some(room)), least_bytes);
        let wide = RoomFound {
            bytes: 108 * MIB,
            ..room
        };
        assert_eq!(segment_bytes_of(&asked, 1, 0, Some(wide)), 9 * MIB);
    }
}
