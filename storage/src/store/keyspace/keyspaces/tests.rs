use super::*;
use crate::format::record::PartKind;
use crate::format::record::{PartSpec, RecordSpec, ValueKind};
use crate::store::keyspace::settings::keyspace_key;
use crate::types::place::FileId;
use crate::types::place::rounded_bytes;

fn settings(revision: u64, versions: u8, retention_ms: u64) -> Settings {
    Settings {
        revision,
        versions,
        retention_ms,
        ..Settings::default()
    }
}

fn write(keyspaces: &mut Keyspaces, prefix: &[u8], slot: u16, settings: Settings, at: u64) {
    keyspaces.learn(prefix, settings).unwrap();
    let value = keyspaces.to_log(prefix, partition_of(slot));
    let record = Record {
        slot,
        key: &keyspace_key(7, prefix),
        value: &value,
        version: Version {
            epoch: 256,
            sequence: at,
        },
        time_ms: 1_000 + at,
    };
    let place = Place {
        file: FileId(1),
        offset: 8 * at,
        bytes: rounded_bytes(160),
    };
    keyspaces.take_record(&record, place);
}

fn since(keyspaces: &Keyspaces, key: &[u8]) -> Option<u64> {
    let rule = keyspaces.rule(0, key)?;
    Some(rule.since.version.sequence)
}

#[test]
fn settings_that_go_on_with_the_history_of_settings_that_are_gone_are_late() {
    let is_late = |known: &Keyspaces, (value, sequence): (&[u8], u64)| {
        let part = PartSpec {
            kind: PartKind::Put,
            key: &keyspace_key(7, b"stock:"),
            value,
            expiry_ms: None,
            value_kind: ValueKind::Plain,
            layout: 0,
            is_crowded: false,
        };
        let record = RecordSpec {
            slot: 0,
            epoch: 256,
            sequence,
            time_ms: 1_000 + sequence,
            parts: &[part],
            extension: &[],
        };
        let mut bytes = vec![0; record.bytes()];
        record.encode_part(0, &mut bytes);
        known.is_late(&PartView::read(&bytes).unwrap())
    };
    let nothing = Keyspaces::default();
    let mut known = Keyspaces::default();
    known.learn(b"stock:", settings(1, 9, 0)).unwrap();
    let first = known.to_log(b"stock:", partition_of(0));
    assert!(!is_late(&nothing, (&first, 4)), "they begin a history");
    write(&mut known, b"stock:", 0, settings(1, 9, 0), 4);
    known.learn(b"stock:", settings(2, 8, 0)).unwrap();
    let second = known.to_log(b"stock:", partition_of(0));
    assert!(!is_late(&known, (&second, 6)), "the first are known");
    assert!(is_late(&nothing, (&second, 6)), "the first are gone");
    write(&mut known, b"stock:", 0, settings(2, 8, 0), 6);
    assert!(!is_late(&known, (&second, 6)), "the replay is the second");
}

#[test]
fn the_longest_prefix_counts_whatever_stands_between_in_order() {
    let mut keyspaces = Keyspaces::default();
    let prefixes: [&[u8]; 7] = [b"", b"a", b"ab", b"abc", b"abd", b"b", b"\xff\xff"];
    for (number, prefix) in (1..).zip(prefixes) {
        write(&mut keyspaces, prefix, 0, settings(number, 1, 0), number);
    }
    let keys: [&[u8]; 13] = [
        b"a",
        b"aa",
        b"ab",
        b"aba",
        b"abcz",
        b"abd",
        b"abe",
        b"ac",
        b"b",
        b"ba",
        b"c",
        b"\xff",
        b"\xff\xff\xff",
    ];
    for key in keys {
        let longest = prefixes
            .into_iter()
            .filter(|prefix| key.starts_with(prefix))
            .max_by_key(|prefix| prefix.len());
        assert_eq!(keyspaces.of(0, key).map(|(prefix, _)| prefix), longest);
    }
    assert_eq!(
        keyspaces.of(64, b"abc"),
        None,
        "nothing was written in this partition yet"
    );
}

#[test]
fn history_begins_anew_only_when_more_is_kept() {
    let mut keyspaces = Keyspaces::default();
    let mut at = 10;
    let mut set = |keyspaces: &mut Keyspaces, prefix: &[u8], versions, retention_ms| {
        at += 1;
        write(
            keyspaces,
            prefix,
            0,
            settings(at, versions, retention_ms),
            at,
        );
        at
    };
    let first = set(&mut keyspaces, b"a", 5, 0);
    assert_eq!(since(&keyspaces, b"ab"), Some(first));
    set(&mut keyspaces, b"a", 3, 0);
    set(&mut keyspaces, b"a", 3, 500);
    assert_eq!(since(&keyspaces, b"ab"), Some(first), "less is kept");
    for (versions, retention_ms) in [(4, 500), (4, 501), (4, 0), (0, 10)] {
        let raised = set(&mut keyspaces, b"a", versions, retention_ms);
        assert_eq!(since(&keyspaces, b"ab"), Some(raised));
    }
    set(&mut keyspaces, b"a", 0, 0);
    assert_eq!(keyspaces.rule(0, b"ab"), None);
    assert!(!keyspaces.keeps_versions());
    let again = set(&mut keyspaces, b"a", 1, 0);
    assert_eq!(since(&keyspaces, b"ab"), Some(again));
}

#[test]
fn a_dropped_keyspace_says_since_when_the_shorter_one_is_in_force() {
    let mut keyspaces = Keyspaces::default();
    write(&mut keyspaces, b"a", 0, settings(1, 5, 0), 1);
    write(&mut keyspaces, b"ab", 0, settings(2, 0, 0), 2);
    assert_eq!(keyspaces.rule(0, b"abc"), None);
    let dropped = Settings {
        is_dropped: true,
        ..settings(3, 0, 0)
    };
    write(&mut keyspaces, b"ab", 0, dropped, 3);
    assert_eq!(
        keyspaces.of(0, b"abc").map(|(prefix, _)| prefix),
        Some(&b"a"[..])
    );
    assert_eq!(
        (since(&keyspaces, b"abc"), since(&keyspaces, b"ac")),
        (Some(3), Some(1))
    );
}

#[test]
fn an_older_record_changes_nothing_and_a_copy_takes_its_place() {
    let mut keyspaces = Keyspaces::default();
    write(&mut keyspaces, b"a", 0, settings(1, 5, 0), 1);
    let old = keyspaces.to_log(b"a", 0);
    write(&mut keyspaces, b"a", 0, settings(2, 7, 0), 2);
    let place = |offset| Place {
        file: FileId(1),
        offset,
        bytes: rounded_bytes(160),
    };
    let record = |value, sequence| Record {
        slot: 0,
        key: b"\0\0penstock/keyspace/{7}a",
        value,
        version: Version {
            epoch: 256,
            sequence,
        },
        time_ms: 5,
    };
    let older = keyspaces.take_record(&record(&old, 1), place(80));
    assert_eq!(older, Replaced::default());
    let value = keyspaces.to_log(b"a", 0);
    let copy = keyspaces.take_record(&record(&value, 2), place(88));
    let expected = Replaced {
        gained: Some(place(88)),
        lost: Some(place(16)),
        keeps_others: false,
    };
    assert_eq!(copy, expected);
    assert!(keyspaces.moved(0, place(88), place(96)));
    assert!(!keyspaces.moved(0, place(88), place(104)));
    assert_eq!(keyspaces.first_behind(b"a", [0].into_iter()), None);
    assert_eq!(keyspaces.first_behind(b"a", [0, 2, 1].into_iter()), Some(2));
    keyspaces.learn(b"a", settings(3, 0, 0)).unwrap();
    let logged = |partitions: &[usize]| {
        let mut logged = keyspaces.logged(partitions);
        logged.next().map(|(_, settings)| settings.revision)
    };
    assert_eq!(
        (logged(&[0]), logged(&[1]), logged(&[])),
        (Some(2), None, Some(3))
    );
}

#[test]
fn memory_is_counted_as_a_walk_over_all_keyspaces_finds_it() {
    let mut keyspaces = Keyspaces::default();
    for at in 1..200 {
        let prefix = &b"a longer prefix"[..(at % 13) as usize];
        let slot = u16::try_from(at * 7 % 31).unwrap() * 64;
        let layout = u16::try_from(at % 2).unwrap();
        let settings = Settings {
            is_dropped: at % 11 == 0,
            layout,
            ..settings(at, 1, 0)
        };
        write(&mut keyspaces, prefix, slot, settings, at);
        let walked = |keyspace: &Keyspace| {
            let written = keyspace.partitions.iter().flatten().count();
            let partitions = size_of_val(&*keyspace.partitions);
            keyspace.prefix.len() + partitions + written * size_of::<InForce>()
        };
        let walked = keyspaces.keyspaces.iter().map(walked).sum::<usize>();
        let table = keyspaces.keyspaces.capacity() * size_of::<Keyspace>();
        assert_eq!(keyspaces.memory_bytes(), table + walked);
        if !settings.is_dropped {
            assert_eq!(keyspaces.layout(slot, prefix), layout);
        }
    }
    assert!(keyspaces.marking > 0 && keyspaces.marking < keyspaces.written);
}

#[test]
fn settings_are_read_back_and_unknown_bits_are_refused() {
    let all = Settings {
        revision: 9,
        is_dropped: false,
        level_min: 4,
        level_default: 5,
        versions: 255,
        layout: 513,
        value_bytes_max: 4096,
        retention_ms: 1 << 40,
        ttl_ms: 77,
    };
    let since = Since {
        version: Version {
            epoch: 256,
            sequence: 3,
        },
        time_ms: 8,
    };
    let bytes = all.encode(since);
    assert_eq!(Settings::read(&bytes), Some((all, Some(since))));
    assert_eq!(
        Settings::read(&all.encode(Since::default())),
        Some((all, None))
    );
    for (at, value) in [(8, 2), (9, 5), (11, 6), (14, 1), (15, 1), (56, 1), (63, 1)] {
        let mut wrong = bytes;
        wrong[at] = value;
        assert_eq!(Settings::read(&wrong), None, "byte {at}");
    }
    assert_eq!(Settings::read(&bytes[..63]), None);
    let last = Settings {
        revision: u64::MAX,
        ..all
    };
    let none_can_follow = last.encode(since);
    assert_eq!(Settings::read(&none_can_follow), None, "no change could");
}

/// The value of a record as builds wrote it that knew neither level `all` nor a default level.
const EARLIER: [u8; 64] = {
    let mut bytes = [0; 64];
    bytes[0] = 9;
    bytes[9] = 2;
    bytes[10] = 255;
    [bytes[12], bytes[13]] = [1, 2];
    bytes[17] = 0x10;
    bytes[29] = 1;
    bytes[32] = 77;
    bytes
};

#[test]
fn a_record_of_an_earlier_build_reads_as_it_was_meant_and_is_written_as_it_was() {
    let expected = Settings {
        revision: 9,
        level_min: 2,
        versions: 255,
        layout: 513,
        value_bytes_max: 4096,
        retention_ms: 1 << 40,
        ttl_ms: 77,
        ..Settings::default()
    };
    assert_eq!(Settings::read(&EARLIER), Some((expected, None)));
    assert_eq!(expected.encode(Since::default()), EARLIER);
}

#[test]
fn no_more_than_the_limit_are_taken() {
    let mut keyspaces = Keyspaces::default();
    for number in 0..KEYSPACES_MAX {
        let prefix = format!("k{number}");
        assert_eq!(
            keyspaces.learn(prefix.as_bytes(), settings(1, 1, 0)),
            Ok(true)
        );
    }
    assert_eq!(
        keyspaces.learn(b"one more", settings(1, 1, 0)),
        Err(KeyspaceError::TooMany)
    );
    assert_eq!(keyspaces.learn(b"k5", settings(1, 1, 0)), Ok(false));
}

#[test]
fn what_stands_in_no_record_is_forgotten_and_found_when_a_record_comes() {
    let mut keyspaces = Keyspaces::default();
    write(&mut keyspaces, b"a", 0, settings(1, 2, 0), 1);
    assert_eq!(keyspaces.found(), 1);
    for prefix in [&b""[..], b"a", b"b"] {
        assert_eq!(keyspaces.learn(prefix, settings(2, 0, 0)), Ok(true));
    }
    let logged = |keyspaces: &Keyspaces| {
        let all = keyspaces.recorded();
        let all = all.map(|(prefix, settings)| (prefix.to_vec(), settings.revision));
        all.collect::<Vec<_>>()
    };
    assert_eq!(logged(&keyspaces), [(b"a".to_vec(), 1)]);
    keyspaces.forget_unrecorded();
    let revision = |keyspaces: &Keyspaces, prefix: &[u8]| {
        let newest = keyspaces.newest(prefix);
        newest.map(|settings| settings.revision)
    };
    assert_eq!(revision(&keyspaces, b"a"), Some(1));
    assert_eq!(
        (keyspaces.iter().count(), since(&keyspaces, b"a1")),
        (1, Some(1))
    );
    // Another shard tells of a record, and then a partition of this one gets it.
    assert_eq!(keyspaces.learn_recorded(b"a", settings(2, 0, 0)), Ok(true));
    keyspaces.forget_unrecorded();
    assert_eq!(
        (revision(&keyspaces, b"a"), keyspaces.found()),
        (Some(2), 1)
    );
    write(&mut keyspaces, b"b", 0, settings(3, 0, 0), 2);
    assert_eq!(
        (revision(&keyspaces, b"b"), keyspaces.found()),
        (Some(3), 2)
    );
}

/// What is in force, by prefix and partition, as a search through all of it finds it.
#[derive(Default)]
struct Model(std::collections::BTreeMap<(&'static [u8], usize), Settings>);

impl Model {
    fn of(&self, partition: usize, key: &[u8]) -> Option<(&[u8], &Settings)> {
        let ruling = self.0.iter().filter(|(_, settings)| !settings.is_dropped);
        let of_key = ruling.filter(|((prefix, at), _)| *at == partition && key.starts_with(prefix));
        of_key
            .max_by_key(|((prefix, _), _)| prefix.len())
            .map(|((prefix, _), settings)| (*prefix, settings))
    }

    fn may_rule(&self, key: &[u8]) -> bool {
        let mut ruling = self.0.iter().filter(|(_, settings)| !settings.is_dropped);
        ruling.any(|((prefix, _), _)| prefix.is_empty() || prefix[0] == key[0])
    }
}

#[test]
fn what_may_rule_a_key_are_the_prefixes_in_force_that_begin_as_it_does() {
    const PREFIXES: [&[u8]; 9] = [b"", b"a", b"ab", b"abc", b"b", b"\0", b"\xFF", b"z", b"zz"];
    const KEYS: [&[u8]; 10] = [
        b"a",
        b"ab",
        b"abcd",
        b"ac",
        b"b",
        b"\0k",
        b"\xFF",
        b"\xFF\xFF",
        b"y",
        b"zz",
    ];
    let (mut ruled, mut free) = (0, 0);
    for seed in 0..40u64 {
        let mut state = seed;
        let mut below = |end: u64| {
            state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
            (state >> 33) % end
        };
        let (mut keyspaces, mut model) = (Keyspaces::default(), Model::default());
        for at in 1..200 {
            let prefix = PREFIXES[usize::try_from(below(9)).unwrap()];
            let slot = 64 * u16::try_from(below(3)).unwrap();
            let settings = Settings {
                is_dropped: below(if prefix.is_empty() { 8 } else { 2 }) > 0,
                ..settings(at, u8::try_from(below(3)).unwrap(), 0)
            };
            match below(8) {
                0 => drop(keyspaces.learn(prefix, settings)),
                1 => keyspaces.forget_unrecorded(),
                2 => {
                    let mut restored = Keyspaces::default();
                    let rest = keyspaces.walk(0, usize::MAX, &mut |entry| {
                        restored.restore(&entry).unwrap();
                    });
                    assert_eq!(rest, None);
                    keyspaces = restored;
                }
                _ => {
                    // The newest that was heard of is logged.
                    write(&mut keyspaces, prefix, slot, settings, at);
                    model.0.insert((prefix, partition_of(slot)), settings);
                }
            }
            for (key, slot) in KEYS
                .into_iter()
                .flat_map(|key| [0, 64, 128].map(|it| (key, it)))
            {
                let ruling = keyspaces.of(slot, key);
                let expected = model.of(partition_of(slot), key);
                let shown = |it: Option<(&[u8], &Settings)>| {
                    it.map(|(prefix, settings)| (prefix.to_vec(), settings.revision))
                };
                assert_eq!(
                    shown(ruling),
                    shown(expected),
                    "seed {seed}, step {at}: {key:?}"
                );
                let may_rule = keyspaces.may_rule(key);
                assert_eq!(
                    may_rule,
                    model.may_rule(key),
                    "seed {seed}, step {at}: {key:?}"
                );
                ruled += u64::from(ruling.is_some());
                free += u64::from(!may_rule);
            }
        }
    }
    assert!(
        ruled > 10_000 && free > 10_000,
        "{ruled} ruled, {free} free"
    );
}
