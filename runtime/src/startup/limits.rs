//! Whether the disk has the room, and segments have the length, that this start and what earlier
//! starts wrote need.

use penstock_shard::opening::Inventory;
use penstock_storage::io::BLOCK_BYTES;
use penstock_storage::log::SPARES_READY;
use penstock_storage::sizing::{DiskShare, SEGMENTS_BESIDE, segment_bytes_within};

use super::banner::{Say, tell_problem};
use super::error::{OpenError, system};
use crate::config::{Config, segment_bytes_for, size_text};
use crate::directory::room::DiskRoom;
use crate::system::advice::{self, Problem};

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
/// `value_bytes` from earlier starts leave.
pub(super) fn segment_bytes_of(config: &Config, shards: u16, value_bytes: u32) -> u64 {
    let least_bytes = segment_bytes_for(value_bytes.max(config.value_bytes_max));
    match config.segment_bytes {
        0 => segment_bytes_within(
            config.disk_bytes_max / u64::from(shards),
            least_bytes.next_multiple_of(BLOCK_BYTES as u64),
        ),
        asked => asked,
    }
}

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
/// FULL.
pub(super) fn check_disk_bytes(
    config: &Config,
    shards: u16,
    short_bytes: u64,
    value_bytes: u32,
    say: Say,
) -> Result<(), OpenError> {
    let (max, least) = (
        config.disk_bytes_max,
        SEGMENTS_MIN * u64::from(shards) * short_bytes,
    );
    if max == 0 {
        return Ok(());
    }
    if max >= least {
        let share = DiskShare {
            log_bytes_max: max / u64::from(shards),
            segment_bytes: config.segment_bytes,
            space_percent_max: config.space_percent_max,
        };
        let carried = u64::from(shards) * share.live_bytes_max();
        say(format_args!(
            "disk limit   {} carries {} of records without FULL: (limit - {SEGMENTS_BESIDE} \
             segments of {} a shard) / {} %",
            size_text(max),
            size_text(carried),
            size_text(config.segment_bytes),
            config.space_percent_max
        ));
        if carried == 0 {
            tell_problem(&tight(max, shards, short_bytes, config), say);
        }
        return Ok(());
    }
    Err(OpenError::Option(format!(
        "disk_bytes_max {max} is too small: {SEGMENTS_MIN} of the smallest segments for each of \
         {shards} shards take {least} bytes, with values of up to {value_bytes} bytes"
    )))
}

/// A bound that carries no data for sure, because segments are as large.
fn tight(max: u64, shards: u16, short_bytes: u64, config: &Config) -> Problem {
    let segments = SEGMENTS_BESIDE * u64::from(shards);
    let usual = 2 * segments * config.segment_bytes;
    let fits = max / (2 * segments) / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
    let smaller = match fits >= short_bytes {
        true => format!(" or --segment-bytes {fits}"),
        false => String::new(),
    };
    Problem {
        cause: format!(
            "disk_bytes_max {max} is no more than {SEGMENTS_BESIDE} segments for each of {shards} \
             shards: what grows is answered FULL early, perhaps at once"
        ),
        mend: format!("give --disk-bytes-max {usual}{smaller}"),
    }
}

/// Segments of the smallest length that a shard needs to write, clean and tell a release.
const SEGMENTS_MIN: u64 = 3;
