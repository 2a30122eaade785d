//! Reading keys as they were: GET_AT and HISTORY.

use std::fmt;

use penstock_net::keyspace::{self as wire, begin_list, end_list};
use penstock_net::reply::{KeyExpiry, REPLY_ITEM_BYTES};
use penstock_net::request::{Extra, Request, Version};
use penstock_net::status::Status;
use penstock_storage::io::{BLOCK_BYTES, Blocks};
use penstock_storage::key_home::KeyHome;
use penstock_storage::place::{Lsn, Place};
use penstock_storage::record::{PartKind, PartView, ValueKind};
use penstock_storage::store::{At, Store, WasAt};
use penstock_storage::version::Version as Stored;
use penstock_storage::versions::KeptVersion;

use super::{Cold, Context, Key, Ran, wrong_type};

/// Answers with the value that the key had then.
#[cold]
pub(super) fn get_at<P: Blocks>(
    store: &mut Store<P>,
    context: &Context<'_>,
    request: &Request<'_>,
    key: &Key<'_>,
    out: &mut Vec<u8>,
) -> Ran {
    let Extra::At(asked) = request.extra else {
        unreachable!("the request was read as GET_AT");
    };
    let at = match asked {
        wire::At::TimeMs(ms) => At::TimeMs(ms),
        wire::At::Version(Version { epoch, sequence }) => At::Version(Stored { epoch, sequence }),
    };
    let slot = context.slot;
    let home = KeyHome::new(slot, key.at.hash);
    let was = store.version_at(home, key.at.key, key.at.cell, at);
    let kept = match was {
        WasAt::Version(kept) => kept,
        WasAt::Missing => return answer(context, key, Status::NotFound, out),
        WasAt::NotKept { oldest, from_ms } => {
            return not_kept(context, key, (oldest, from_ms), out);
        }
    };
    let is_over = |expiry_ms: u64| match at {
        At::TimeMs(ms) => expiry_ms != 0 && expiry_ms <= ms,
        At::Version(_) => false,
    };
    if kept.is_deletion || is_over(kept.expiry_ms) {
        return answer(context, key, Status::NotFound, out);
    }
    let version = to_wire(kept.version);
    // The cell of an expired key need not have its value any more.
    let newest = key.at.cell.filter(|_| key.at.exists);
    if let Some(id) = newest.filter(|&id| store.keys().version(id) == kept.version) {
        store.keys_mut().touch(id);
        let expiry = KeyExpiry {
            expiry_ms: kept.expiry_ms,
            time_ms: kept.time_ms,
        };
        if key.has_members() {
            return wrong_type(context, key, out);
        }
        let value = store.keys().cell(id).value();
        context
            .head(Status::Ok, version)
            .write_extended(out, Some(expiry), None, value);
        return Ran::Answered {
            gate: key.lsn,
            status: Status::Ok,
        };
    }
    if kept.is_young {
        // It is in no file yet, and nowhere else any more.
        let log = store.log_mut();
        let lsn = log.appended();
        log.want_durable(lsn);
        return Ran::Postponed;
    }
    // Another operation's read of this place was checked for the newest version. One for this
    // version that brought another one was answered CORRUPT when it ended.
    let Some(part) = part_brought(context, &kept) else {
        let cold = Cold {
            slot,
            hash: key.at.hash,
            place: kept.place,
            version: Some(kept.version),
        };
        // What is kept of a key is looked for only while its newest version is in memory.
        return match key.at.cell {
            Some(_) => Ran::OtherCold(cold),
            None => Ran::Cold(cold),
        };
    };
    let is_later = matches!(at, At::TimeMs(ms) if part.time_ms() > ms);
    if part.key() != key.at.key || is_later {
        // Another key has the same hash, or has left a gap here.
        return not_kept(context, key, (None, 0), out);
    }
    let expiry_ms = part.expiry_ms().unwrap_or(0);
    if part.kind() == PartKind::Tombstone || is_over(expiry_ms) {
        return answer(context, key, Status::NotFound, out);
    }
    if part.value_kind() != ValueKind::Plain {
        return wrong_type(context, key, out);
    }
    let expiry = KeyExpiry {
        expiry_ms,
        time_ms: part.time_ms(),
    };
    context
        .head(Status::Ok, version)
        .write_extended(out, Some(expiry), None, part.value());
    Ran::Answered {
        gate: key.lsn,
        status: Status::Ok,
    }
}

/// The part of a kept version, if it is what the operation waited for.
fn part_brought<'a>(context: &Context<'a>, kept: &KeptVersion) -> Option<PartView<'a>> {
    let brought = context.brought.filter(|&(place, _)| place == kept.place);
    let part = brought.and_then(|(_, bytes)| {
        let bytes = bytes.get(in_block(kept.place)..)?;
        PartView::read(bytes).ok()
    });
    part.filter(|part| (part.version(), part.slot()) == (kept.version, context.slot))
}

/// Answers with the versions that are kept.
#[cold]
pub(super) fn history<P: Blocks>(
    store: &mut Store<P>,
    context: &Context<'_>,
    request: &Request<'_>,
    key: &Key<'_>,
    out: &mut Vec<u8>,
) -> Ran {
    let Extra::History { before, limit } = request.extra else {
        unreachable!("the request was read as HISTORY");
    };
    let at = KeyHome::new(context.slot, key.at.hash);
    let Some(mut versions) = store.history(at, key.at.key, key.at.cell, before) else {
        return not_kept(context, key, (None, 0), out);
    };
    let from = out.len();
    out.resize(from + REPLY_ITEM_BYTES, 0);
    let list = begin_list(out);
    let mut count = 0;
    for kept in versions.by_ref().take(limit as usize) {
        let version = wire::KeptVersion {
            version: to_wire(kept.version),
            is_deletion: kept.is_deletion,
            time_ms: kept.time_ms,
            expiry_ms: kept.expiry_ms,
        };
        out.extend_from_slice(&version.encode());
        count += 1;
    }
    end_list(out, list, count, versions.next().is_some());
    context.head(Status::Ok, key.version).patch(out, from);
    Ran::Answered {
        gate: key.lsn,
        status: Status::Ok,
    }
}

fn answer(context: &Context<'_>, key: &Key<'_>, status: Status, out: &mut Vec<u8>) -> Ran {
    context.head(status, Version::default()).write(out, &[]);
    Ran::Answered {
        gate: key.lsn,
        status,
    }
}

fn not_kept(
    context: &Context<'_>,
    key: &Key<'_>,
    (oldest, from_ms): (Option<KeptVersion>, u64),
    out: &mut Vec<u8>,
) -> Ran {
    let status = Status::NotKept;
    let ran = match oldest {
        None => {
            let since = match from_ms {
                0 => String::new(),
                ms => format!(" from before {ms} ms"),
            };
            let message = format_args!("no versions of this key are kept{since}");
            say(context, status, Version::default(), &message, out)
        }
        Some(oldest) => {
            let version = to_wire(oldest.version);
            // One that was there when history began has no time here.
            let since = match (oldest.time_ms, from_ms) {
                (0, 0) => String::new(),
                (0, ms) => format!(", known from {ms} ms on"),
                (ms, _) => format!(", from {ms} ms on"),
            };
            let message = format_args!(
                "the oldest version of this key that is kept is {}:{}{since}",
                version.epoch, version.sequence
            );
            say(context, status, version, &message, out)
        }
    };
    match ran {
        Ran::Answered { status, .. } => Ran::Answered {
            gate: key.lsn,
            status,
        },
        other => other,
    }
}

fn say(
    context: &Context<'_>,
    status: Status,
    version: Version,
    message: &dyn fmt::Display,
    out: &mut Vec<u8>,
) -> Ran {
    context.head(status, version).write_message(out, message);
    Ran::Answered {
        gate: Lsn(0),
        status,
    }
}

/// Where a part begins in the blocks that are read for it.
pub(crate) fn in_block(place: Place) -> usize {
    usize::try_from(place.offset % BLOCK_BYTES as u64).expect("less than a block")
}

fn to_wire(version: Stored) -> Version {
    Version {
        epoch: version.epoch,
        sequence: version.sequence,
    }
}
