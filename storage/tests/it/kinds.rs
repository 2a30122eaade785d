//! The kind of a value goes wherever the value goes. The random worlds of the store and of a member
//! keep heads beside plain values: over crashes, snapshots, cold reads and cleaning.

use penstock_storage::direct_part::DirectBody;
use penstock_storage::head::{self, HeadType, HeadView};
use penstock_storage::key_home::KeyHome;
use penstock_storage::record::{
    KindedValue, PartError, PartSpec, PartView, RecordSpec, ValueKind, part_bytes,
};
use penstock_storage::store::Store;
use penstock_storage::system_key::LOCAL_KEY;
use penstock_storage::version::Version;

use crate::change::{KEYS, NOW_MS, SLOT, filled_store, found};
use crate::golden::hex_block;
use crate::heap::Heap;

const HEAD: [u8; 12] = [1, 0, 0, 0, 1, 0, 0, 0, 1, 1, b'f', b'v'];

/// Makes a value begin as a head does, if it is long enough.
pub fn begin_head(value: &mut [u8]) {
    if let Some(begin) = value.first_chunk_mut::<9>() {
        begin[..8].copy_from_slice(&HEAD[..8]);
    }
}

/// What is written as a head in these tests: all that could be one.
pub fn kinded(bytes: &[u8]) -> KindedValue<'_> {
    match head::check(bytes) {
        Ok(()) => KindedValue::head(bytes),
        Err(_) => KindedValue::plain(bytes),
    }
}

/// What the first key holds: its value and the kind, if it has one.
fn held(store: &Store<Heap>) -> Option<(Vec<u8>, ValueKind)> {
    let id = found(store, 0).cell.filter(|_| found(store, 0).exists)?;
    let KindedValue { kind, bytes } = store.keys().cell(id).kinded_value();
    Some((bytes.to_vec(), kind))
}

/// The part of a put of this value and kind, with a good CRC, whatever it says.
fn part(key: &[u8], value: &[u8], change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let parts = [PartSpec::put(key, value)];
    let version = Version {
        epoch: 1,
        sequence: 7,
    };
    let record = RecordSpec::new(SLOT, version, NOW_MS, &parts);
    let mut bytes = vec![0; part_bytes(key.len(), value.len(), false, 0)];
    record.encode_part(0, &mut bytes);
    change(&mut bytes);
    let crc = crc32fast::hash(&bytes[8..]);
    bytes[4..8].copy_from_slice(&crc.to_le_bytes());
    bytes
}

#[test]
fn the_head_in_the_document_is_one_of_a_hash() {
    let bytes: Vec<u8> = hex_block("## Heads\n").into_values().collect();
    let head = HeadView {
        head_type: HeadType::Hash,
        members: 1,
    };
    assert_eq!(HeadView::read(&bytes), Ok(head));
    assert_eq!(bytes[8..], [1, 2, b'f', b'v', b'7']);
}

#[test]
fn the_second_head_in_the_document_is_one_of_a_set_of_integers() {
    let bytes: Vec<u8> = hex_block("**Entry of a set**").into_values().collect();
    let head = HeadView {
        head_type: HeadType::Set,
        members: 2,
    };
    assert_eq!(HeadView::read(&bytes), Ok(head));
    assert_eq!(bytes[2], 2);
    assert_eq!(bytes[8..], *b"\x02-7\x0212");
}

#[test]
fn the_third_head_in_the_document_is_one_of_a_sorted_set() {
    let bytes: Vec<u8> = hex_block("**Entry of a zset**").into_values().collect();
    let head = HeadView {
        head_type: HeadType::Zset,
        members: 2,
    };
    assert_eq!(HeadView::read(&bytes), Ok(head));
    let scores = [1.5_f64, 2.0].map(f64::to_le_bytes);
    let members = [&scores[0], &b"\x01b"[..], &scores[1], b"\x01a"].concat();
    assert_eq!(bytes[8..], members);
}

#[test]
fn the_third_head_in_the_document_is_one_of_a_list() {
    let bytes: Vec<u8> = hex_block("**Entry of a list**").into_values().collect();
    let head = HeadView {
        head_type: HeadType::List,
        members: 3,
    };
    assert_eq!(HeadView::read(&bytes), Ok(head));
    assert_eq!(bytes[8..], *b"\x01a\x01b\x01a");
}

#[test]
fn a_put_gives_a_key_its_kind_and_an_edit_of_the_expiry_leaves_it() {
    let mut store = filled_store();
    let long = [&HEAD[..], &[b'v'; 3_000]].concat();
    let plain = |bytes: &[u8]| Some((bytes.to_vec(), ValueKind::Plain));
    let with_members = |bytes: &[u8]| Some((bytes.to_vec(), ValueKind::Head));
    for value in [&HEAD[..], &long] {
        change(&mut store, Edit::Put(value));
        assert_eq!(held(&store), with_members(value));
        change(&mut store, Edit::Expire);
        assert_eq!(held(&store), with_members(value));
        change(&mut store, Edit::Replace(b"ends plain"));
        assert_eq!(held(&store), plain(b"ends plain"));
        change(&mut store, Edit::Keep(value));
        assert_eq!(held(&store), with_members(value));
        // As long as the head is: the cell may stay, and its kind does not.
        let as_long = &vec![0; value.len()];
        change(&mut store, Edit::Replace(as_long));
        assert_eq!(held(&store), plain(as_long));
        change(&mut store, Edit::Put(value));
        change(&mut store, Edit::Delete);
        assert_eq!(held(&store), None);
        change(&mut store, Edit::Put(b"plain"));
        assert_eq!(held(&store), plain(b"plain"));
    }
    assert!(store.keys().has_heads());
}

#[derive(Clone, Copy)]
enum Edit<'e> {
    Put(&'e [u8]),
    Keep(&'e [u8]),
    Replace(&'e [u8]),
    Expire,
    Delete,
}

/// Changes the first key.
fn change(store: &mut Store<Heap>, edit: Edit<'_>) {
    let key = found(store, 0);
    let mut change = store.change(SLOT, [key], 1);
    match edit {
        Edit::Put(bytes) => change.put(0, kinded(bytes), None),
        Edit::Keep(bytes) => change.put_keeping(0, kinded(bytes)),
        Edit::Replace(bytes) => change.replace(0, bytes),
        Edit::Expire => change.expire(0, Some(NOW_MS + 1_000)),
        Edit::Delete => change.delete(0),
    }
    change.commit(0).expect("there is room");
}

#[test]
fn no_fast_path_shows_or_edits_a_head() {
    let mut store = filled_store();
    let key = found(&store, 0);
    let mut change = store.change(SLOT, [key], 1);
    change.put(0, KindedValue::head(&HEAD), None);
    change.commit(0).expect("there is room");
    let (id, home) = (
        found(&store, 0).cell.expect("there"),
        KeyHome::new(SLOT, key.hash),
    );
    assert!(store.run(0, home, id).is_none());
    assert!(store.data().direct_get(home, KEYS[0], Some(id)).is_none());
    let body = [b"aa\0\0\0\0\0\0".as_slice(), &[5; 16]].concat();
    let body = DirectBody::new(&body, 2, 16).expect("good");
    assert!(store.direct_set(0, home, body, Some(id)).is_none());
    assert_eq!(held(&store), Some((HEAD.to_vec(), ValueKind::Head)));
}

#[test]
#[should_panic(expected = "a head has no fields")]
fn a_field_of_a_head_is_never_edited() {
    let mut store = filled_store();
    let key = found(&store, 0);
    let mut change = store.change(SLOT, [key], 1);
    change.put(0, KindedValue::head(&HEAD), None);
    change.field_mut(0, 8, 1)[0] = 7;
}

#[test]
fn a_part_knows_a_head_by_its_encoding_and_only_where_one_may_be() {
    let as_head = |bytes: &mut Vec<u8>| bytes[11] = 1;
    let read = |bytes: &[u8]| PartView::read(bytes).map(|part| part.kinded_value().kind);
    assert_eq!(read(&part(b"key", &HEAD, |_| {})), Ok(ValueKind::Plain));
    assert_eq!(read(&part(b"key", &HEAD, as_head)), Ok(ValueKind::Head));
    // What is encoded is what is read.
    let parts = [PartSpec {
        value_kind: ValueKind::Head,
        ..PartSpec::put(b"key", &HEAD)
    }];
    let version = Version {
        epoch: 1,
        sequence: 7,
    };
    let record = RecordSpec::new(SLOT, version, NOW_MS, &parts);
    let mut bytes = vec![0; record.bytes()];
    record.encode_part(0, &mut bytes);
    assert_eq!(bytes, part(b"key", &HEAD, as_head));
    // A value without a member, a key of the store's own, and a deletion.
    let damaged = Err(PartError::Damaged);
    assert_eq!(read(&part(b"key", b"plain", as_head)), damaged);
    assert_eq!(read(&part(LOCAL_KEY, &HEAD, as_head)), damaged);
    let deletion = part(b"key", b"", |bytes| (bytes[8], bytes[11]) = (2, 1));
    assert_eq!(read(&deletion), damaged);
    // A later build's: another encoding, another type.
    let later = |bytes: &[u8]| matches!(read(bytes), Err(PartError::Unsupported { .. }));
    assert!(later(&part(b"key", &HEAD, |bytes| bytes[11] = 2)));
    let mut other_type = HEAD;
    other_type[0] = 9;
    assert!(later(&part(b"key", &other_type, as_head)));
}
