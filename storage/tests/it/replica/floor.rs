//! Kept versions of a partition whose records did not all come in order: none that has diverged,
//! and none below the floor that its local record tells.

use penstock_storage::keyspace::{
    FLOOR_AT, FLOOR_TIME_AT, LOCAL_BYTES, LOCAL_BYTES_WITH_FLOOR, LOCAL_HAS_FLOOR,
    LOCAL_HAS_REWIND, LOCAL_HAS_SCAN, LOCAL_VERSION, SettingsEntry, Since, keyspace_key,
};
use penstock_storage::log::{Purpose, Room};
use penstock_storage::place::{FileId, Place};
use penstock_storage::store::{At, Found, WasAt};
use penstock_storage::version::{Version, partition_of};

use super::{
    Member, SLOTS, TIME_MS, Written, hash, home_of, key, local_key, parts, settings, shipped,
};

const SLOT: u16 = SLOTS[0];
/// Of the node itself, which wrote alone, and of the node that wrote instead.
const OWN: u32 = 1 << 8;
const OTHER: u32 = 2 << 8;

fn version(epoch: u32, sequence: u64) -> Version {
    Version { epoch, sequence }
}

impl Member {
    fn follow(&mut self, version: Version, key: &[u8], value: Option<&[u8]>) {
        self.rest();
        let change = vec![(key.to_vec(), value.map(|it| (it.to_vec(), None)))];
        let time_ms = TIME_MS + 10 * version.sequence;
        let bytes = shipped(SLOT, &Written { version, change }, time_ms);
        let parts = parts(&bytes);
        assert_eq!(self.store.room_for(Purpose::Grow, bytes.len()), Room::Yes);
        let lsn = self.store.apply(self.now_us, &parts, true, &hash);
        assert!(lsn.is_some(), "what is dense is appended");
        self.rest();
    }

    fn follow_settings(&mut self, at: Version) {
        let entry = SettingsEntry {
            number: 0,
            partition: 0,
            prefix: b"",
            settings: settings(1),
            since: Since::default(),
            version: at,
            place: Place::new(FileId(1), 0, 64),
        };
        self.follow(at, &keyspace_key(0, b""), Some(&entry.value()));
    }

    fn keep_note(&mut self, value: &[u8]) {
        self.rest();
        let key = local_key(SLOT);
        assert_eq!(
            self.store
                .room(Purpose::Keep, key.len(), value.len(), false),
            Room::Yes
        );
        let lsn = self.store.note_local(self.now_us, SLOT, &key, value);
        // What a start is to find.
        let notes = self.notes.get_mut(&SLOT).expect("all are there");
        notes.push((lsn, value.to_vec()));
        self.rest();
    }

    fn note_under_way(&mut self, flag: u8) {
        let mut value = [0; LOCAL_BYTES];
        (value[0], value[1]) = (LOCAL_VERSION, flag);
        self.keep_note(&value);
    }

    /// All up to there has come, and no past of it.
    fn join(&mut self, at: Version, time_ms: u64) {
        assert!(self.store.data_mut().forget_past(partition_of(SLOT)));
        let mut value = [0; LOCAL_BYTES_WITH_FLOOR];
        (value[0], value[1]) = (LOCAL_VERSION, LOCAL_HAS_FLOOR);
        value[FLOOR_TIME_AT..FLOOR_TIME_AT + 8].copy_from_slice(&time_ms.to_le_bytes());
        value[FLOOR_AT..FLOOR_AT + 4].copy_from_slice(&at.epoch.to_le_bytes());
        value[FLOOR_AT + 8..FLOOR_AT + 16].copy_from_slice(&at.sequence.to_le_bytes());
        self.keep_note(&value);
    }

    fn was(&self, key: &[u8], at: At) -> WasAt {
        let home = home_of(key);
        let current = match self.store.keys().find(home.slot, home.hash, key) {
            Found::Cached(id) => Some(id),
            Found::Absent => None,
            Found::Cold(_) => panic!("there is room for all of them"),
        };
        self.store.version_at(home, key, current, at)
    }

    /// The version that a key had; none if that is not kept.
    fn version_of(&self, key: &[u8], at: At) -> Option<Version> {
        match self.was(key, at) {
            WasAt::Version(kept) => Some(kept.version),
            WasAt::NotKept { from_ms, .. } => {
                assert!(from_ms > 0, "it is told from when on versions are kept");
                None
            }
            WasAt::Missing => panic!("the key was there"),
        }
    }

    fn versions_of(&self, key: &[u8]) -> Vec<Version> {
        let versions = self.history(key).into_iter();
        versions.map(|(version, ..)| version).collect()
    }
}

#[test]
fn a_version_that_has_diverged_is_shown_neither_behind_the_floor_nor_by_a_start() {
    let mut member = Member::new(3);
    member.link();
    let (one, two) = (key(SLOT, 1), key(SLOT, 2));
    member.follow_settings(version(OWN, 1));
    member.follow(version(OWN, 2), &one, Some(&[1; 40]));
    // Behind the fork: longer than what the other node wrote.
    for sequence in 3..9 {
        member.follow(version(OWN, sequence), &one, Some(&[66; 40]));
    }
    assert_eq!(member.versions_of(&one).len(), 4, "three before the newest");

    member.note_under_way(LOCAL_HAS_REWIND);
    member.follow(version(OTHER, 3), &two, Some(&[2; 40]));
    member.follow(version(OTHER, 4), &one, Some(&[1; 40]));
    let floor = version(OTHER, 4);
    let floor_ms = TIME_MS + 100;
    member.join(floor, floor_ms);
    let old = At::Version(version(OWN, 2));
    let lost = At::Version(version(OWN, 5));
    for life in 2..4 {
        for at in [old, lost, At::TimeMs(TIME_MS + 21)] {
            assert_eq!(member.version_of(&one, at), None, "life {life}");
        }
        assert_eq!(member.version_of(&one, At::Version(floor)), Some(floor));
        assert_eq!(member.version_of(&one, At::TimeMs(floor_ms)), Some(floor));
        assert_eq!(member.versions_of(&one), [floor]);
        member.crash(life);
        member.rest();
    }

    // Sequences that the lost records had, too.
    let since: Vec<Version> = (5..7).map(|sequence| version(OTHER, sequence)).collect();
    for &version in &since {
        member.follow(version, &one, Some(&[5; 40]));
    }
    for life in 4..6 {
        assert_eq!(
            member.versions_of(&one),
            [since[1], since[0], floor],
            "life {life}"
        );
        for (at, then) in [
            (old, None),
            (lost, None),
            (At::Version(floor), Some(floor)),
            (At::Version(since[0]), Some(since[0])),
            (At::Version(since[1]), Some(since[1])),
        ] {
            assert_eq!(member.version_of(&one, at), then, "life {life}");
        }
        member.crash(life);
        member.rest();
    }
}

#[test]
fn what_a_scan_brings_has_no_past_and_what_follows_it_has() {
    let mut member = Member::new(4);
    member.link();
    let (one, gone) = (key(SLOT, 1), key(SLOT, 2));
    member.follow_settings(version(OWN, 1));
    member.follow(version(OWN, 2), &one, Some(&[1; 40]));
    member.follow(version(OWN, 3), &gone, Some(&[1; 40]));
    member.note_under_way(LOCAL_HAS_SCAN);
    // Versions 4 to 9 of the first key do not come. Of the other one comes its deletion, which a
    // sweep would log with the version of the value.
    member.follow(version(OWN, 10), &one, Some(&[2; 40]));
    member.follow(version(OWN, 11), &gone, None);
    assert!(member.store.keyspaces().rule(SLOT, &one).is_none());
    let (floor, floor_ms) = (version(OWN, 11), TIME_MS + 500);
    member.join(floor, floor_ms);
    let next = version(OWN, 12);
    member.follow(next, &one, Some(&[3; 40]));
    for life in 2..4 {
        let at = |sequence| At::Version(version(OWN, sequence));
        // Version 2 was superseded, and nobody here knows when.
        for sequence in 2..10 {
            assert_eq!(member.version_of(&one, at(sequence)), None, "life {life}");
        }
        assert_eq!(member.version_of(&one, at(11)), Some(version(OWN, 10)));
        assert_eq!(member.version_of(&one, at(12)), Some(next));
        assert_eq!(member.was(&gone, At::TimeMs(floor_ms)), WasAt::Missing);
        let unknown = member.was(&gone, At::TimeMs(TIME_MS + 40));
        assert!(matches!(unknown, WasAt::NotKept { .. }), "{unknown:?}");
        member.crash(life);
        member.rest();
    }
}
