//! Two starts from one log, with a snapshot of the index and without: they must come to the same.

use std::collections::{BTreeMap, BTreeSet};

use penstock_shard::Shard;
use penstock_storage::contents::History;
use penstock_storage::io::SegmentSource;
use penstock_storage::key_home::KeyHome;
use penstock_storage::keyspace::{Keyspaces, Rule};
use penstock_storage::packed_place::NewestPart;
use penstock_storage::packed_place::PackedPlace;
use penstock_storage::record::PartView;
use penstock_storage::recovery::Replayed;
use penstock_storage::recovery::{Recovered, RecoveryError};
use penstock_storage::store::Store;
use penstock_storage::version::{PARTITIONS, SLOTS};
use penstock_storage::versions::VersionEntry;

use crate::disk::Pool;

/// Whether a start with a snapshot came to the same as one without, but for what had expired.
pub fn compare_starts(
    alone: Result<(Replayed, Recovered), RecoveryError>,
    shard: &Shard<Pool>,
    recovered: &Recovered,
    files: &mut impl SegmentSource,
) -> Result<(), String> {
    let (memory, other) =
        alone.map_err(|refusal| format!("the log alone is refused: {refusal}"))?;
    let store = shard.store();
    let (mut with, mut without) = (Vec::new(), Vec::new());
    let start = KeyHome::default();
    store
        .keys()
        .newest_parts(start, usize::MAX, &mut |entry| with.push(part_of(&entry)));
    memory.newest_parts(start, usize::MAX, &mut |entry| {
        without.push(part_of(&entry))
    });
    with.sort_unstable();
    without.sort_unstable();
    let only = |these: &[(KeyHome, u64)], those: &[(KeyHome, u64)]| {
        let is_only = |part: &&(KeyHome, u64)| those.binary_search(part).is_err();
        these.iter().filter(is_only).copied().collect::<Vec<_>>()
    };
    if let Some(part) = only(&with, &without).first() {
        return Err(format!("{part:?} is there that is not there without it"));
    }
    for (cursor, bits) in only(&without, &with) {
        let place = PackedPlace::read(bits).and_then(PackedPlace::place);
        let place = place.expect("it is one of an index");
        let mut bytes = vec![0; place.bytes as usize];
        let read = files.read_at(place.file, place.offset, &mut bytes);
        let part = PartView::read(&bytes[..read.expect("it was just replayed")]);
        let expiry_ms = part.expect("it was just replayed").expiry_ms();
        // Cleaning had taken it out, and its segment was not released yet.
        if expiry_ms.is_none_or(|expiry_ms| expiry_ms > store.carried_ms()) {
            return Err(format!("{cursor:?} at {place:?} is missing"));
        }
    }
    compare_pasts(store, &memory, files)?;
    let (history, other_history) = (&recovered.history, &other.history);
    let is_same = [
        ("start", recovered.start == other.start),
        ("torn end", recovered.torn == other.torn),
        ("last file", recovered.last_file == other.last_file),
        ("truncation", recovered.truncate == other.truncate),
        ("release", recovered.release == other.release),
        ("segments", history.segments == other_history.segments),
        (
            "releases",
            history.has_released == other_history.has_released,
        ),
        ("sequences", history.sequences == other_history.sequences),
        ("kind", history.is_linked == other_history.is_linked),
        ("epoch", history.epoch_max == other_history.epoch_max),
    ];
    if let Some((what, _)) = is_same.iter().find(|(_, is_same)| !is_same) {
        return Err(format!("another {what}"));
    }
    if store.carried_ms() < memory.time_ms() {
        return Err("an earlier time".into());
    }
    if history.is_linked {
        compare_notes(store, &memory, (history, other_history))?;
    }
    Ok(())
}

/// Whether a start with a snapshot knows the same of the partitions of a node of a cluster.
fn compare_notes(
    store: &Store<Pool>,
    memory: &Replayed,
    (with, without): (&History, &History),
) -> Result<(), String> {
    for slot in (0..SLOTS).step_by(usize::from(SLOTS) / PARTITIONS) {
        let notes = (
            store.data().locals().value(slot),
            store.data().locals().epochs_found(slot),
        );
        let other = memory.notes(slot);
        if notes != other {
            return Err(format!(
                "notes of slot {slot} are {notes:?} instead of {other:?}"
            ));
        }
    }
    for partition in 0..PARTITIONS {
        let [last, other] = [with, without].map(|it| it.last(partition));
        if last != other {
            return Err(format!(
                "partition {partition} is at {last:?} instead of {other:?}"
            ));
        }
        // What is released and not told yet is still there.
        if with.forgotten[partition] < without.forgotten[partition] {
            return Err(format!("partition {partition} has forgotten less"));
        }
        for segment in &without.segments {
            let end = segment.end.last_lsn;
            let [most, least] = [with, without].map(|it| it.reached.highest_at(partition, end));
            if least.is_some_and(|least| most.is_some_and(|most| most < least)) {
                return Err(format!(
                    "partition {partition} had come to {most:?} instead of {least:?} by {end:?}"
                ));
            }
        }
    }
    Ok(())
}

/// Compares a start with a snapshot and one without: both must know the same settings, and the same
/// versions of each key that are kept at the time of the first.
fn compare_pasts(
    store: &Store<Pool>,
    memory: &Replayed,
    files: &mut impl SegmentSource,
) -> Result<(), String> {
    let settings = |keyspaces: &Keyspaces| {
        let mut found = BTreeMap::new();
        keyspaces.walk(0, usize::MAX, &mut |it| {
            let about = (it.settings, it.since, it.version, it.place);
            found.insert((it.prefix.to_vec(), it.partition), about);
        });
        found
    };
    let (with, without) = (settings(store.keyspaces()), settings(memory.keyspaces()));
    if with != without {
        return Err(format!("settings are {with:?} instead of {without:?}"));
    }
    // The newest first, by what tells keys apart.
    type Pasts = BTreeMap<(u16, u32, u32), Vec<VersionEntry>>;
    let note = |pasts: &mut Pasts, it: VersionEntry| {
        let past = pasts.entry((it.slot, it.hash, it.check)).or_default();
        past.insert(0, it);
    };
    let (mut with, mut without) = (Pasts::new(), Pasts::new());
    store.data().versions(&mut |it| note(&mut with, it));
    memory.versions(&mut |it| note(&mut without, it));
    let now_ms = store.carried_ms();
    let none = Vec::new();
    let ids: BTreeSet<_> = with.keys().chain(without.keys()).collect();
    for id in ids {
        let [with, without] = [&with, &without].map(|pasts| pasts.get(id).unwrap_or(&none));
        let newest = without
            .first()
            .or(with.first())
            .expect("one of them has it");
        let mut bytes = vec![0; newest.place.bytes as usize];
        let read = files.read_at(newest.place.file, newest.place.offset, &mut bytes);
        let part = PartView::read(&bytes[..read.expect("it was just replayed")]);
        let key = part
            .map_err(|error| format!("{newest:?} is not there: {error:?}"))?
            .key();
        let Some(rule) = store.keyspaces().rule(newest.slot, key) else {
            continue;
        };
        let Some((with, without)) = shown(&rule, now_ms, with, without) else {
            continue;
        };
        let mut pairs = with.iter().zip(&without);
        if with.len() != without.len()
            || !pairs.all(|(with, without)| is_same(&rule, with, without))
        {
            return Err(format!(
                "the past of \"{}\" is {with:?} instead of {without:?} at {now_ms} by {rule:?}",
                key.escape_ascii()
            ));
        }
    }
    Ok(())
}

/// The versions of one key that a start must know, with a snapshot and without; none if it may know
/// nothing.
fn shown(
    rule: &Rule,
    now_ms: u64,
    with: &[VersionEntry],
    without: &[VersionEntry],
) -> Option<(Vec<VersionEntry>, Vec<VersionEntry>)> {
    let shown = |past: &[VersionEntry]| {
        let newer = past.iter().zip(1..);
        let kept = newer
            .take_while(|&(newer, rank)| rule.keeps(rank, newer.version, newer.time_ms, now_ms));
        let kept = past.len().min(kept.count() + 1);
        past[..kept].to_vec()
    };
    // A deletion from before the history of its keyspace says only that no version is known. A
    // value from before it needs no entry while it is the newest.
    let shown = |past: &[VersionEntry]| {
        let mut shown = shown(past);
        let is_alone = shown.len() == 1;
        shown
            .pop_if(|first| (first.is_deletion || is_alone) && first.version <= rule.since.version);
        shown
    };
    let (with, mut without) = (shown(with), shown(without));
    let newest = without.first().copied();
    let has_ended = newest.is_some_and(|newest| {
        let ended_ms = newest.expiry_ms.max(newest.time_ms);
        newest.expiry_ms > 0 && newest.expiry_ms <= now_ms && !rule.keeps_ended(ended_ms, now_ms)
    });
    let is_only_deletion = without.len() == 1 && newest.is_some_and(|it| it.is_deletion);
    if with.is_empty() && (has_ended || is_only_deletion) {
        return None;
    }
    // Cleaning drops a deletion together with the last older version of its key.
    if without.len() == with.len() + 1 {
        without.pop_if(|first| first.is_deletion);
    }
    // Cleaning drops a value that had expired before its history began, before anything supersedes
    // it. The log alone has it until its segment is released. Nobody is shown it either way.
    if without.len() == with.len() + 1 {
        let superseded_ms = without.iter().nth_back(1).map(|newer| newer.time_ms);
        without.pop_if(|oldest| {
            oldest.version <= rule.since.version
                && oldest.expiry_ms > 0
                && superseded_ms.is_some_and(|ms| oldest.expiry_ms <= ms)
        });
    }
    Some((with, without))
}

/// Whether two entries tell the same. The time of a version from before the history of its keyspace
/// need not be known.
fn is_same(rule: &Rule, with: &VersionEntry, without: &VersionEntry) -> bool {
    let with = match with.time_ms {
        0 if with.version <= rule.since.version => VersionEntry {
            time_ms: without.time_ms,
            expiry_ms: without.expiry_ms,
            ..*with
        },
        _ => *with,
    };
    // Numbers of keyspaces are those of one start. A successor need not be known.
    let compared = |entry| VersionEntry {
        keyspace: 0,
        successor: None,
        ..entry
    };
    compared(with) == compared(*without)
}

fn part_of(entry: &NewestPart) -> (KeyHome, u64) {
    (entry.key, entry.part.bits())
}
