//! Key tables that were made well and then meddled with.
//!
//! An input is one byte for the table and a list of edits. As long as no edit repairs a checksum,
//! what is loaded is what was made, and a block that counts is the one that was written. Whatever
//! the bytes are, what is told of a part has its place and sequence, and no memory is taken for
//! what a length says.

use std::io;
use std::sync::OnceLock;

use penstock_storage::io::BLOCK_BYTES;
use penstock_storage::key_home::KeyHome;
use penstock_storage::key_table::{KeyTable, TableHome};
use penstock_storage::log::{Log, Purpose, Room, SyncMethod};
use penstock_storage::packed_place::PackedPlace;
use penstock_storage::place::{LogStart, Place};
use penstock_storage::record::{
    FEW_PARTS_MAX, KEY_BYTES_MAX, PartKind, PartSpec, RecordSpec, ValueKind,
};
use penstock_storage::version::{SLOTS, Version};

use crate::FOLDER;
use crate::directory::{OWNER, SEGMENT_BYTES, config, flush};
use crate::disk::Disk;
use crate::heap::Heap;
use crate::target::{Choices, keep};

const EDITS_MAX: usize = 24;
/// The checksums are put right behind an edit.
const SEALED: u8 = 0x80;
const SORT_BYTES_MAX: usize = 16 << 10;
/// What the CRCs of blocks and directory begin with.
const SEED: std::ops::Range<usize> = 48..88;
const BLOCKS: usize = 100;
const DIRECTORY_CRC: usize = 104;

/// A value of a segment.
struct Part {
    key: Vec<u8>,
    place: Place,
    version: Version,
    expiry_ms: Option<u64>,
}

/// A sealed segment, what it holds, and its table.
struct Sealed {
    home: TableHome,
    parts: Vec<Part>,
    table: KeyTable,
    file: Vec<u8>,
}

pub fn judge(input: &[u8]) {
    let mut choices = Choices::new(input);
    let all = all();
    let sealed = &all[choices.below(all.len())];
    let mut file = sealed.file.clone();
    let mut is_forged = false;
    for _ in 0..EDITS_MAX {
        if choices.is_empty() {
            break;
        }
        is_forged |= edit(&mut file, all, &mut choices);
    }
    let bytes = file.len() as u64;
    let mut loaded = None;
    let used = allocation_counter::measure(|| {
        loaded = KeyTable::load(&sealed.home, bytes, &mut reader(&file)).ok();
        drop(KeyTable::stored_end(&mut reader(&file)));
    });
    // The directory as it stands, and as it stays.
    assert!(used.bytes_max <= 2 * bytes, "{used:?} for {bytes} bytes");
    let verified = KeyTable::verify(&sealed.home, bytes, &mut reader(&file)).ok();
    assert!(verified.is_none() || verified == loaded);
    let Some(table) = loaded else {
        return;
    };
    assert_eq!((table.home(), table.file_bytes()), (&sealed.home, bytes));
    if !is_forged {
        assert!(table == sealed.table, "nobody made this table");
    }
    for part in &sealed.parts {
        search(&table, &file, part, is_forged);
    }
    for number in 0..table.blocks() {
        blocks(&table, &file, number);
    }
}

/// What is told of a part is true, and tells of that part.
fn search(table: &KeyTable, file: &[u8], part: &Part, is_forged: bool) {
    let Some(number) = table.block_of(at(&part.key)) else {
        return;
    };
    let Some(block) = table.check(number, block(file, number)) else {
        return;
    };
    let packed = PackedPlace::new(part.place, part.version.sequence);
    let Some(found) = block.find(at(&part.key), packed) else {
        return;
    };
    assert_eq!(
        (found.at, found.offset),
        (at(&part.key), part.place.offset),
        "it tells of another part"
    );
    if !is_forged {
        assert_eq!(
            (found.key, found.version, found.expiry_ms),
            (part.key.as_slice(), part.version, part.expiry_ms),
            "nobody wrote this"
        );
    }
}

/// What counts of a block can be read whole, and is in the place of no other.
fn blocks(table: &KeyTable, file: &[u8], number: u32) {
    let bytes = block(file, number);
    let Some(read) = table.check(number, bytes) else {
        return;
    };
    assert!(table.check(number + 1, bytes).is_none());
    for entry in read.entries() {
        assert!((1..=KEY_BYTES_MAX).contains(&entry.key.len()) && entry.at.slot < SLOTS);
    }
}

/// One edit; whether it may have forged a checksum.
fn edit(file: &mut Vec<u8>, all: &[Sealed], choices: &mut Choices<'_>) -> bool {
    let manner = choices.byte();
    let at = place(file, choices);
    match manner % 10 {
        0 if at < file.len() => file[at] ^= 1 << choices.below(8),
        1 if at < file.len() => file[at] = choices.byte(),
        2 | 3 => {
            let width = 1 << choices.below(4);
            let number = choices.number().to_le_bytes();
            for (byte, new) in file[at..].iter_mut().zip(&number[..width]) {
                *byte = *new;
            }
        }
        4 => {
            let start = at / 512 * 512;
            let end = (start + 512 * (1 + choices.below(16))).min(file.len());
            file[start..end].fill(0);
        }
        // A block of this table or of another one, in the place of a block.
        5 | 6 => {
            let other = match manner % 10 {
                5 => file.clone(),
                _ => all[choices.below(all.len())].file.clone(),
            };
            let from = choices.below(other.len() / BLOCK_BYTES + 1) * BLOCK_BYTES;
            let to = at / BLOCK_BYTES * BLOCK_BYTES;
            for (byte, new) in file[to..].iter_mut().zip(&other[from..]).take(BLOCK_BYTES) {
                *byte = *new;
            }
        }
        7 => file.truncate(at),
        8 => file.resize(file.len() + choices.below(4) * BLOCK_BYTES, 0),
        _ => *file = all[choices.below(all.len())].file.clone(),
    }
    let is_sealed = manner & SEALED != 0;
    if is_sealed {
        seal(file);
    }
    is_sealed
}

/// An offset in a file: mostly in its header, or where a block or the directory begins.
fn place(file: &[u8], choices: &mut Choices<'_>) -> usize {
    let start = match choices.byte() % 4 {
        0 => 0,
        1 => choices.below(file.len() + 1),
        _ => choices.below(file.len() / BLOCK_BYTES + 1) * BLOCK_BYTES,
    };
    (start + choices.below(160)).min(file.len())
}

/// Puts every checksum right, as far as there are blocks.
fn seal(file: &mut [u8]) {
    let blocks = file.len() / BLOCK_BYTES;
    if blocks == 0 {
        return;
    }
    let seed: Vec<u8> = file[SEED].to_vec();
    let crc = |bytes: &[u8]| crc32fast::hash(&[&seed, bytes].concat());
    let count = u32::from_le_bytes(file[BLOCKS..BLOCKS + 4].try_into().expect("four bytes"));
    let count = usize::try_from(count).map_or(blocks, |count| blocks.min(count.saturating_add(1)));
    for number in 1..count {
        let block = &mut file[number * BLOCK_BYTES..(number + 1) * BLOCK_BYTES];
        let crc = crc(&block[4..]);
        block[..4].copy_from_slice(&crc.to_le_bytes());
    }
    let directory = crc(&file[count * BLOCK_BYTES..]);
    file[DIRECTORY_CRC..DIRECTORY_CRC + 4].copy_from_slice(&directory.to_le_bytes());
    let end = BLOCK_BYTES - 4;
    let crc = crc32fast::hash(&file[..end]);
    file[end..BLOCK_BYTES].copy_from_slice(&crc.to_le_bytes());
}

/// All tables, made once: of two segments of a log of short keys, and of two of one of long ones.
fn all() -> &'static [Sealed] {
    static ALL: OnceLock<Vec<Sealed>> = OnceLock::new();
    ALL.get_or_init(|| made(3, 12).into_iter().chain(made(4, 600)).collect())
}

/// Two segments of a log with keys of up to so many bytes, and their tables.
fn made(log_id: u64, key_bytes_max: usize) -> Vec<Sealed> {
    let mut device = Disk::default();
    let config = config(log_id, 1, SyncMethod::DurableWrite);
    let mut log = Log::new(config, LogStart::default(), Heap);
    let mut parts = Vec::new();
    flush(&mut device, &mut log, 0);
    for sequence in 1.. {
        let (key, spec) = part(sequence, key_bytes_max);
        let record = RecordSpec {
            slot: at(&key).slot,
            epoch: 257,
            sequence,
            time_ms: 1_700_000_000_000,
            parts: &[PartSpec { key: &key, ..spec }],
            extension: &[],
        };
        while log.room(Purpose::Grow, record.bytes()) != Room::Yes {
            flush(&mut device, &mut log, 0);
        }
        let mut places = [Place::default(); FEW_PARTS_MAX];
        let lsn = log.append(0, &record, &mut places);
        log.want_durable(lsn);
        if sequence % 40 == 0 {
            flush(&mut device, &mut log, 0);
        }
        if spec.kind == PartKind::Put {
            parts.push(Part {
                key,
                place: places[0],
                version: Version {
                    epoch: 257,
                    sequence,
                },
                expiry_ms: spec.expiry_ms,
            });
        }
        if log.sealed_segments().len() == 2 && log.durable() == log.appended() {
            break;
        }
    }
    let of_segment = |part: &Part, home: &TableHome| part.place.file == home.file;
    let segments = log.sealed_segments().iter().map(|sealed| TableHome {
        owner: OWNER,
        file: sealed.file,
        log_id,
        sequence: sealed.end.sequence,
        salt: sealed.salt,
        end_offset: sealed.end.end_offset,
        hash_check: 0x0807_0605_0403_0201,
    });
    segments
        .map(|home| {
            let (table, file) = build(&home, &mut device);
            Sealed {
                parts: parts.extract_if(.., |it| of_segment(it, &home)).collect(),
                home,
                table,
                file,
            }
        })
        .collect()
}

/// A key and what is written of it: some are deletions, some expire.
fn part(sequence: u64, key_bytes_max: usize) -> (Vec<u8>, PartSpec<'static>) {
    let number = usize::try_from(sequence * 7 % 400).expect("small");
    let mut key = format!("key:{number}").into_bytes();
    key.resize(key.len().max(number * 37 % key_bytes_max), b'k');
    let is_put = sequence % 6 != 5;
    let spec = PartSpec {
        kind: match is_put {
            true => PartKind::Put,
            false => PartKind::Tombstone,
        },
        key: &[],
        value: if is_put { &[7; 40] } else { &[] },
        expiry_ms: (is_put && sequence % 4 == 1).then_some(5_000 + sequence),
        value_kind: ValueKind::Plain,
        layout: 0,
        is_crowded: false,
    };
    (key, spec)
}

fn build(home: &TableHome, device: &mut Disk) -> (KeyTable, Vec<u8>) {
    assert_eq!(device.files[&home.file].len(), SEGMENT_BYTES);
    let mut file = Vec::new();
    let home_of = |key: &[u8]| at(key);
    let write = &mut |offset: u64, bytes: &[u8]| {
        let offset = usize::try_from(offset).expect("small files");
        file.resize(file.len().max(offset + bytes.len()), 0);
        file[offset..offset + bytes.len()].copy_from_slice(bytes);
        Ok(())
    };
    let table = KeyTable::build(home, device, &home_of, SORT_BYTES_MAX, write);
    (table.expect("the segment is whole"), file)
}

/// Few slots and hashes, so that keys have them in common.
fn at(key: &[u8]) -> KeyHome {
    let step = |sum: u32, &byte: &u8| sum.wrapping_mul(31) ^ u32::from(byte);
    let sum = key.iter().fold(7, step);
    KeyHome::new(
        u16::try_from(sum % 5 * 3_000).expect("below 16384"),
        ((sum >> 4) % 37) << 26,
    )
}

fn reader(file: &[u8]) -> impl FnMut(u64, &mut [u8]) -> io::Result<usize> + '_ {
    |offset, into| {
        let start = usize::try_from(offset).map_or(file.len(), |at| at.min(file.len()));
        let len = into.len().min(file.len() - start);
        into[..len].copy_from_slice(&file[start..start + len]);
        Ok(len)
    }
}

fn block(file: &[u8], number: u32) -> &[u8] {
    let start = usize::try_from(KeyTable::offset_of(number)).expect("small files");
    &file[start..start + BLOCK_BYTES]
}

#[test]
fn tables_and_what_may_become_of_them_are_kept() {
    let mut inputs = Vec::new();
    let mut name = |name: String, bytes: &[u8]| inputs.push((name, bytes.to_vec()));
    for (which, sealed) in (0u8..).zip(all()) {
        let blocks = u8::try_from(sealed.table.blocks()).expect("few blocks");
        assert!(sealed.parts.len() > 30 && blocks > 1, "{blocks}");
        name(format!("table-{which}"), &[which]);
        // The kind of an edit, where, and what: see `edit` and `place`.
        name(format!("flipped-header-{which}"), &[which, 0, 0, 60, 3]);
        name(format!("flipped-entry-{which}"), &[which, 0, 2, 1, 90, 3]);
        name(format!("cut-{which}"), &[which, 7, 2, blocks, 77]);
        name(format!("longer-{which}"), &[which, 8, 0, 0, 1]);
        name(format!("swapped-blocks-{which}"), &[which, 5, 2, 1, 0, 2]);
        let other = (which + 1) % 4;
        name(format!("of-another-{which}"), &[which, 9, 0, 0, other]);
        let block_of_another = [which, 6, 2, 1, 0, other, 1];
        name(format!("block-of-another-{which}"), &block_of_another);
        // Forged: the number of blocks, where an entry begins, its length, the directory.
        let many = [which, 2 | SEALED, 0, 100, 2, 0xC0, 0, 0, 0, 8];
        name(format!("forged-many-blocks-{which}"), &many);
        let beyond = [which, 2 | SEALED, 2, 1, 12, 1, 0x80, 0];
        name(format!("forged-pointer-{which}"), &beyond);
        name(
            format!("forged-key-{which}"),
            &[which, 1 | SEALED, 2, 1, 98, 0xFF],
        );
        let directory = [which, 1 | SEALED, 2, blocks + 1, 3, 0xFF];
        name(format!("forged-directory-{which}"), &directory);
    }
    keep(FOLDER, "tables", &inputs);
}
