//! A record that is in the log comes again, because it brings back one of its keys: which of its
//! parts the index points to, and what starts make of that.

use std::io;

use penstock_storage::cleaning::CleaningConfig;
use penstock_storage::key_home::KeyHome;
use penstock_storage::keyspace::{SETTINGS_BYTES, keyspace_key};
use penstock_storage::log::{Purpose, Room};
use penstock_storage::packed_place::NewestPart;
use penstock_storage::place::{Lsn, Place};
use penstock_storage::snapshot::{SnapshotName, SnapshotReader, Taken, Taking};
use penstock_storage::store::Found;
use penstock_storage::version::Version;

use super::{Change, Member, SLOTS, TIME_MS, Written, hash, key, parts, shipped};
use crate::journal::SEGMENT_BYTES;

/// A record of another node.
fn record(slot: u16, sequence: u64, change: &Change) -> Vec<u8> {
    let version = Version {
        epoch: 1 << 8,
        sequence,
    };
    let change = change.clone();
    shipped(slot, &Written { version, change }, TIME_MS)
}

impl Member {
    /// A record of another node comes, whether or not it came before; what it is in the log.
    fn ship(&mut self, slot: u16, sequence: u64, change: &Change) -> Option<Lsn> {
        self.rest();
        let bytes = record(slot, sequence, change);
        let parts = parts(&bytes);
        self.warm(&parts);
        assert_eq!(self.store.room_for(Purpose::Grow, bytes.len()), Room::Yes);
        let lsn = self.store.apply(self.now_us, &parts, false, &hash);
        self.rest();
        lsn
    }

    /// Where the newest parts of all keys stand.
    fn places(&self) -> Vec<(KeyHome, Place)> {
        let mut places = Vec::new();
        let mut note = |entry: NewestPart| places.push((entry.key, entry.place()));
        self.store
            .keys()
            .newest_parts(KeyHome::default(), usize::MAX, &mut note);
        places.sort_unstable_by_key(|&(at, place)| (at, place.file, place.offset));
        places
    }

    fn snapshot(&mut self) -> (SnapshotName, Vec<u8>) {
        self.rest();
        let (mut taking, mut bytes) = Taking::begin(&mut self.store, 1, 0).expect("there is a log");
        loop {
            match taking.step(&self.store, 100) {
                Taken::Nothing => {}
                Taken::Chunk(chunk) => bytes.extend(chunk),
                Taken::Last(last) => {
                    bytes.extend(last);
                    return (taking.name(), bytes);
                }
            }
        }
    }
}

/// Of a snapshot in memory.
pub(super) fn open(
    bytes: &[u8],
) -> SnapshotReader<impl FnMut(u64, &mut [u8]) -> io::Result<usize> + '_> {
    let read_at = move |offset: u64, into: &mut [u8]| {
        let rest = &bytes[usize::try_from(offset).expect("small")..];
        let read = into.len().min(rest.len());
        into[..read].copy_from_slice(&rest[..read]);
        Ok(read)
    };
    SnapshotReader::open(read_at, bytes.len() as u64).expect("it is whole")
}

/// A member to which a record came, and came again after another record had deleted one of its two
/// keys. Between them stands what fills a segment and is superseded, behind the second one what
/// fills a segment and counts. Also where the part of the other key stood first.
fn member_with_a_record_twice() -> (Member, Place) {
    let slot = SLOTS[0];
    let mut member = Member::new(1);
    member.link();
    // Cleaning begins with the next start.
    member
        .store
        .cleaning_mut()
        .configure(CleaningConfig::default());
    let [stays, goes] = [1, 2].map(|number| key(slot, number));
    let value = |byte: u8, len: usize| Some((vec![byte; len], None));
    let both = vec![(stays, value(1, 20)), (goes.clone(), value(2, 20))];
    let deletion = vec![(goes, None)];
    assert!(member.ship(slot, 1, &both).is_some());
    let [(_, first), _] = member.places()[..] else {
        panic!("two keys");
    };
    assert!(member.ship(slot, 2, &deletion).is_some());
    for sequence in 3..20 {
        let change = vec![(key(slot, 3), value(3, 8_000))];
        assert!(member.ship(slot, sequence, &change).is_some());
    }
    for (sequence, change) in [(1, both), (2, deletion)] {
        let lsn = member.ship(slot, sequence, &change);
        assert!(lsn.is_some(), "the deletion has left the index");
    }
    for sequence in 20..36 {
        let number = usize::try_from(sequence).expect("small");
        let change = vec![(key(slot, number), value(4, 8_000))];
        assert!(member.ship(slot, sequence, &change).is_some());
    }
    (member, first)
}

#[test]
fn a_start_points_to_the_part_of_a_record_that_came_again_that_the_index_pointed_to() {
    let (mut member, _) = member_with_a_record_twice();
    let before = member.places();
    let snapshot = member.snapshot();
    for snapshot in [None, Some(&snapshot)] {
        member.crash_beside(2, snapshot);
        assert_eq!(member.places(), before, "{}", snapshot.is_some());
    }
}

/// A start that cannot read the newest snapshot does without. A later one may read it again.
#[test]
fn a_key_of_a_record_that_came_again_survives_starts_without_and_with_a_snapshot() {
    let (mut member, first) = member_with_a_record_twice();
    let snapshot = member.snapshot();
    member.crash(2);
    // Room is short, so cleaning picks the segment that gives back most.
    member.store.cleaning_mut().configure(CleaningConfig {
        log_bytes_max: 4 * SEGMENT_BYTES as u64,
        ..CleaningConfig::default()
    });
    let is_there = |member: &Member| {
        let mut sealed = member.store.log().sealed_segments().iter();
        sealed.any(|segment| segment.file == first.file)
    };
    for _ in 0..10_000 {
        if !is_there(&member) {
            break;
        }
        member.now_us += 100;
        member.pump();
        member.complete();
    }
    assert!(!is_there(&member), "the segment of the first part");
    member
        .store
        .cleaning_mut()
        .configure(CleaningConfig::default());
    member.rest();
    let keys = |member: &Member| member.places().iter().map(|it| it.0).collect::<Vec<_>>();
    let before = keys(&member);
    member.crash_beside(3, Some(&snapshot));
    assert_eq!(keys(&member), before);
}

/// A member to which a record of three keys came again while the deletion of one of them was
/// durable and that of `last` was in the log alone, and both deletions again behind the record.
/// Whether each of the three was logged again.
fn member_with_a_deletion_twice(keeps_versions: bool) -> (Member, [bool; 3]) {
    let slot = SLOTS[0];
    let mut member = Member::new(1);
    if keeps_versions {
        member.rest();
        let learned = member.store.keyspaces_mut().learn(b"", super::settings(1));
        assert_eq!(learned, Ok(true));
        let key = keyspace_key(0, b"");
        let room = member
            .store
            .room(Purpose::Keep, key.len(), SETTINGS_BYTES, false);
        assert_eq!(room, Room::Yes);
        let now_us = member.now_us;
        member.store.commit_settings(now_us, slot, &key, b"");
    }
    member.link();
    member
        .store
        .cleaning_mut()
        .configure(CleaningConfig::default());
    let [stays, first, last] = [1, 2, 3].map(|number| key(slot, number));
    let value = |byte: u8| Some((vec![byte; 20], None));
    let all = vec![
        (stays, value(1)),
        (first.clone(), value(2)),
        (last.clone(), value(3)),
    ];
    let deletions = [first, last].map(|key| vec![(key, None)]);
    assert!(member.ship(slot, 11, &all).is_some());
    assert!(member.ship(slot, 12, &deletions[0]).is_some());
    let apply = |member: &mut Member, sequence: u64, change: &Change| {
        let bytes = record(slot, sequence, change);
        let parts = parts(&bytes);
        assert_eq!(member.store.room_for(Purpose::Grow, bytes.len()), Room::Yes);
        member.store.apply(member.now_us, &parts, false, &hash)
    };
    assert!(apply(&mut member, 13, &deletions[1]).is_some());
    let again = [(11, &all), (12, &deletions[0]), (13, &deletions[1])];
    let logged = again.map(|(sequence, change)| apply(&mut member, sequence, change).is_some());
    member.rest();
    (member, logged)
}

#[test]
fn a_key_whose_deletion_was_not_durable_when_its_record_came_again_stays_deleted() {
    for keeps_versions in [false, true] {
        let (mut member, logged) = member_with_a_deletion_twice(keeps_versions);
        let last = key(SLOTS[0], 3);
        let find = |member: &Member| member.store.keys().find(SLOTS[0], hash(&last), &last);
        assert_eq!(find(&member), Found::Absent);
        let before = member.places();
        let snapshot = member.snapshot();
        for snapshot in [None, Some(&snapshot)] {
            member.crash_beside(2, snapshot);
            assert_eq!(member.places(), before, "{logged:?}");
            assert_eq!(find(&member), Found::Absent);
        }
    }
}

/// Cleaning keeps the deletion that the table points to. It must be the one behind the record.
#[test]
fn of_equal_deletions_the_last_one_is_kept_as_a_version() {
    let (mut member, logged) = member_with_a_deletion_twice(true);
    assert_eq!(logged, [true; 3]);
    let deletions = |member: &Member| {
        let mut places = Vec::new();
        member.store.data().versions(&mut |entry| {
            if entry.is_deletion {
                places.push((entry.version.sequence, entry.place));
            }
        });
        places
    };
    let before = deletions(&member);
    assert_eq!(before.len(), 2);
    member.crash(2);
    assert_eq!(deletions(&member), before);
}

/// A record came, one of its keys was swept, and the record comes again, from a node that has the
/// key.
#[test]
fn a_key_that_was_swept_is_there_again_when_its_record_comes_again_behind_the_sweep() {
    let slot = SLOTS[0];
    let mut member = Member::new(1);
    member.link();
    member
        .store
        .cleaning_mut()
        .configure(CleaningConfig::default());
    let [stays, swept] = [1, 2].map(|number| key(slot, number));
    let value = |byte: u8| Some((vec![byte; 20], None));
    let all = vec![(stays, value(1)), (swept.clone(), value(2))];
    assert!(member.ship(slot, 11, &all).is_some());
    let home = KeyHome::new(slot, hash(&swept));
    let find = |member: &Member| member.store.keys().find(slot, home.hash, &swept);
    let Found::Cached(id) = find(&member) else {
        panic!("the key was just written");
    };
    let bytes = record(slot, 11, &all);
    let is_sweeping = |member: &Member| {
        let is_it = |part| member.store.keys().is_sweeping(part, hash(part.key()));
        parts(&bytes).iter().map(is_it).collect::<Vec<_>>()
    };
    assert_eq!(is_sweeping(&member), [false, false]);
    let room = member.store.room(Purpose::Keep, swept.len(), 0, false);
    assert_eq!(room, Room::Yes);
    assert!(member.store.sweep(member.now_us, home, id).is_some());
    assert_eq!(is_sweeping(&member), [false, true]);
    member.rest();
    assert_eq!(is_sweeping(&member), [false, false]);
    assert_eq!(find(&member), Found::Absent);

    assert!(member.ship(slot, 11, &all).is_some());
    assert!(matches!(find(&member), Found::Cached(_)));
    let before = member.places();
    let snapshot = member.snapshot();
    for snapshot in [None, Some(&snapshot)] {
        member.crash_beside(2, snapshot);
        assert_eq!(member.places(), before);
    }
}

/// The deletion of the sweep stands before the record that came again. A copy of that deletion
/// would stand behind the record, and a start would take the key out.
#[test]
fn a_key_that_came_again_survives_the_cleaning_of_the_segment_of_its_sweep() {
    let slot = SLOTS[0];
    let mut member = Member::new(1);
    member.link();
    let rests = CleaningConfig {
        space_percent_max: 10_000,
        ..CleaningConfig::default()
    };
    member.store.cleaning_mut().configure(rests);
    let [stays, swept, often] = [1, 2, 3].map(|number| key(slot, number));
    let value = |byte: u8, bytes: usize| Some((vec![byte; bytes], None));
    let all = vec![(stays, value(1, 20)), (swept.clone(), value(2, 20))];
    assert!(member.ship(slot, 11, &all).is_some());
    let home = KeyHome::new(slot, hash(&swept));
    let place_of = |member: &Member| {
        let at = KeyHome::new(slot, home.hash);
        let places = member.places();
        places.iter().find(|it| it.0 == at).map(|it| it.1)
    };
    let open = |member: &Member| member.store.log().open_segment().map(|(file, _)| file);
    let first = place_of(&member).expect("it is there").file;
    let mut sequence = 20;
    // All that the first segment has lives, so cleaning leaves it where it is.
    while open(&member) == Some(first) {
        let other = key(slot, usize::try_from(sequence).expect("small"));
        assert!(
            member
                .ship(slot, sequence, &vec![(other, value(3, 8_000))])
                .is_some()
        );
        sequence += 1;
    }
    let bytes = record(slot, 11, &all);
    member.rest();
    member.warm(&parts(&bytes));
    let Found::Cached(id) = member.store.keys().find(slot, home.hash, &swept) else {
        panic!("it is in memory");
    };
    assert_eq!(
        member.store.room(Purpose::Keep, swept.len(), 0, false),
        Room::Yes
    );
    assert!(member.store.sweep(member.now_us, home, id).is_some());
    member.rest();
    let second = open(&member).expect("a segment is open");
    let churn = |member: &mut Member, sequence: &mut u64, file| {
        while open(member) == Some(file) {
            let change = vec![(often.clone(), value(4, 8_000))];
            assert!(member.ship(slot, *sequence, &change).is_some());
            *sequence += 1;
        }
    };
    churn(&mut member, &mut sequence, second);
    assert!(member.ship(slot, 11, &all).is_some());
    let again = place_of(&member).expect("it is there again").file;
    churn(&mut member, &mut sequence, again);
    assert!(second != first && again != second);

    member
        .store
        .cleaning_mut()
        .configure(CleaningConfig::default());
    let has = |member: &Member, file| {
        let mut sealed = member.store.log().sealed_segments().iter();
        sealed.any(|segment| segment.file == file)
    };
    let pump = |member: &mut Member| {
        for _ in 0..1_000 {
            member.now_us += 1_000;
            member.pump();
            member.complete();
        }
    };
    // Each change has cleaning look for a segment, and the log does not rest behind it.
    for sequence in sequence..sequence + 100 {
        if !has(&member, second) {
            break;
        }
        let bytes = record(slot, sequence, &vec![(often.clone(), value(5, 8_000))]);
        let parts = parts(&bytes);
        member.warm(&parts);
        let room = member.store.room_for(Purpose::Grow, bytes.len());
        assert_eq!(room, Room::Yes);
        let now_us = member.now_us;
        assert!(member.store.apply(now_us, &parts, false, &hash).is_some());
        pump(&mut member);
    }
    assert!(has(&member, first) && !has(&member, second));
    member.store.cleaning_mut().configure(rests);
    pump(&mut member);
    member.rest();
    let before = member.places();
    member.crash(2);
    assert_eq!(member.places(), before);
    assert!(place_of(&member).is_some());
}
