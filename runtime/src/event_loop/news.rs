//! What a shard found wrong on its disk, as log events for the operator.

use penstock_net::status::Status;
use penstock_shard::{BadPlace, FailedEffects};
use tracing::error;

use crate::directory::Segments;
use crate::system::advice;

/// Tells of a place for which a request was answered CORRUPT or IO.
pub(super) fn report_bad_place(shard: u16, segments: &Segments, place: &BadPlace) {
    let BadPlace {
        offset,
        slot,
        hash,
        status,
        is_last,
        ..
    } = *place;
    let path = segments.path(place.file);
    let file = path.display();
    let cause = match status {
        Status::Io => "cannot be read",
        _ => "does not hold what was written",
    };
    let more = match is_last {
        true => "; further places are neither told nor counted",
        false => "",
    };
    error!(
        shard,
        file = %file,
        offset,
        slot,
        key_hash = %format_args!("{hash:08x}"),
        answered = status.name(),
        "shard {shard}: {file} {cause} at offset {offset} (slot {slot}, key hash {hash:08x}): the \
         request was answered {}, and so is every one that needs this place; restore a backup \
         elsewhere, or see what a mend would give up, once the server is stopped: {}{more}",
        status.name(),
        advice::repair(segments.data())
    );
}

/// Tells of a key that ended without the effects of its expiry.
pub(super) fn report_failed_effects(shard: u16, failed: &FailedEffects) {
    let (key, why) = (failed.key.escape_ascii(), &failed.why);
    error!(
        shard,
        key = %key,
        "shard {shard}: {key} has expired, and its effects did not run: {why}; the key is gone all \
         the same, so what they were to give back must be given back by hand"
    );
}
