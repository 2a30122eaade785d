//! One version of a key, as the table keeps it in few bytes.

use crate::format::checksum::crc32;
use crate::format::record::SEQUENCE_MAX;
use crate::types::key_home::KeyHome;
use crate::types::packed_place::PackedPlace;
use crate::types::place::Place;
use crate::types::version::{PARTITIONS, SLOTS, Version};
use std::ops::RangeInclusive;

/// The entries of one key: an entry's number without its sequence and keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyId(pub(super) u128);

const SLOT_SHIFT: u32 = 114;

const HASH_SHIFT: u32 = 82;

const CHECK_SHIFT: u32 = 58;

const SEQUENCE_SHIFT: u32 = 10;

const _: () = assert!(SEQUENCE_MAX >> (CHECK_SHIFT - SEQUENCE_SHIFT) == 0);

/// Bits of another hash of a key.
pub(crate) const CHECK_MAX: u32 = (1 << (HASH_SHIFT - CHECK_SHIFT)) - 1;

pub(super) const KEYSPACE_MASK: u128 = (1 << SEQUENCE_SHIFT) - 1;

impl KeyId {
    pub(crate) fn new(slot: u16, hash: u32, key: &[u8]) -> Self {
        let check = crc32(key) & CHECK_MAX;
        KeyId(
            u128::from(slot) << SLOT_SHIFT
                | u128::from(hash) << HASH_SHIFT
                | u128::from(check) << CHECK_SHIFT,
        )
    }

    /// The entries of all keys of a partition.
    pub(super) fn all_of(partition: usize) -> RangeInclusive<u128> {
        let slots = u128::from(SLOTS) / PARTITIONS as u128;
        let first = partition as u128 * slots;
        first << SLOT_SHIFT..=(first + slots - 1) << SLOT_SHIFT | ((1 << SLOT_SHIFT) - 1)
    }

    pub(super) fn all(self) -> RangeInclusive<u128> {
        self.up_to(SEQUENCE_MAX)
    }

    pub(super) fn up_to(self, sequence: u64) -> RangeInclusive<u128> {
        self.0..=self.number(sequence) | KEYSPACE_MASK
    }

    pub(super) fn at(self, sequence: u64) -> RangeInclusive<u128> {
        self.number(sequence)..=self.number(sequence) | KEYSPACE_MASK
    }

    pub(super) fn number(self, sequence: u64) -> u128 {
        assert!(sequence <= SEQUENCE_MAX, "sequence {sequence}");
        self.0 | u128::from(sequence) << SEQUENCE_SHIFT
    }

    pub(super) fn of(number: u128) -> Self {
        KeyId(number >> CHECK_SHIFT << CHECK_SHIFT)
    }

    pub(crate) fn slot(self) -> u16 {
        u16::try_from(self.0 >> SLOT_SHIFT).expect("14 bits")
    }

    pub(crate) fn hash(self) -> u32 {
        u32::try_from(self.0 >> HASH_SHIFT & u128::from(u32::MAX)).expect("32 bits")
    }

    pub(crate) fn home(self) -> KeyHome {
        KeyHome::new(self.slot(), self.hash())
    }

    fn check(self) -> u32 {
        u32::try_from(self.0 >> CHECK_SHIFT & u128::from(CHECK_MAX)).expect("24 bits")
    }
}

/// A version of a key as a snapshot tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionEntry {
    /// The slot of the key.
    pub slot: u16,
    /// Its hash, as the index keeps it.
    pub hash: u32,
    /// The low 24 bits of its CRC-32.
    pub check: u32,
    /// The number of its keyspace.
    pub keyspace: u16,
    /// The version; its sequence has 48 bits.
    pub version: Version,
    /// It is a deletion.
    pub is_deletion: bool,
    /// Its part is a copy that names its successor.
    pub is_marked: bool,
    /// The version that took its place.
    pub successor: Option<Version>,
    /// When it was written, in unix milliseconds; 0 if that was before versions were kept.
    pub time_ms: u64,
    /// From when on it was gone by itself; 0 is never, or not known.
    pub expiry_ms: u64,
    /// Where its part stands.
    pub place: Place,
}

impl VersionEntry {
    /// What entries ascend by.
    #[must_use]
    pub fn order(&self) -> (u16, u32, u32, u64) {
        (self.slot, self.hash, self.check, self.version.sequence)
    }

    pub(super) fn new(number: u128, entry: &Entry, successor: Option<Version>) -> Self {
        let id = KeyId::of(number);
        let kept = entry.version(number);
        VersionEntry {
            slot: id.slot(),
            hash: id.hash(),
            check: id.check(),
            keyspace: keyspace_of(number),
            version: kept.version,
            is_deletion: kept.is_deletion,
            is_marked: kept.is_marked,
            successor,
            time_ms: kept.time_ms,
            expiry_ms: kept.expiry_ms,
            place: kept.place,
        }
    }

    pub(super) fn number(&self) -> u128 {
        let id = KeyId(
            u128::from(self.slot) << SLOT_SHIFT
                | u128::from(self.hash) << HASH_SHIFT
                | u128::from(self.check) << CHECK_SHIFT,
        );
        id.number(self.version.sequence) | u128::from(self.keyspace)
    }
}

pub(super) fn keyspace_of(number: u128) -> u16 {
    u16::try_from(number & KEYSPACE_MASK).expect("10 bits")
}

/// One version of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptVersion {
    /// The version.
    pub version: Version,
    /// It is a deletion.
    pub is_deletion: bool,
    /// When it was written, in unix milliseconds; 0 if that is not known, for it was before
    /// versions were kept.
    pub time_ms: u64,
    /// From when on it was gone by itself; 0 is never, or not known.
    pub expiry_ms: u64,
    /// Where its part stands.
    pub place: Place,
    /// Its part may not be durable yet.
    pub is_young: bool,
    /// Its bytes are counted as live on behalf of this entry.
    pub(crate) is_counted: bool,
    /// Its part is a copy that names its successor already.
    pub(crate) is_marked: bool,
}

/// An entry as it is stored: 24 bytes, and 16 for its number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// The place, with flags where an index entry has bits of the sequence.
    pub(super) place: PackedPlace,
    /// 48 bits of time, the high 16 of the expiry.
    time: u64,
    /// The low 32 bits of the expiry, the epoch.
    rest: u64,
}

const FLAG_DELETION: u64 = 1;

const FLAG_COUNTED: u64 = 2;

const FLAG_YOUNG: u64 = 4;

const FLAG_MARKED: u64 = 8;

impl Entry {
    pub(super) fn new(version: &KeptVersion) -> Self {
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let flags = flag(version.is_deletion, FLAG_DELETION)
            | flag(version.is_counted, FLAG_COUNTED)
            | flag(version.is_young, FLAG_YOUNG)
            | flag(version.is_marked, FLAG_MARKED);
        Entry {
            place: PackedPlace::new(version.place, flags),
            time: version.time_ms << 16 | version.expiry_ms >> 32,
            rest: version.expiry_ms << 32 | u64::from(version.version.epoch),
        }
    }

    pub(super) fn version(&self, number: u128) -> KeptVersion {
        let flags = self.place.bits() & u64::from(u8::MAX);
        let sequence = number >> SEQUENCE_SHIFT & u128::from(SEQUENCE_MAX);
        KeptVersion {
            version: Version {
                epoch: u32::try_from(self.rest & u64::from(u32::MAX)).expect("32 bits"),
                sequence: u64::try_from(sequence).expect("48 bits"),
            },
            is_deletion: flags & FLAG_DELETION != 0,
            time_ms: self.time >> 16,
            expiry_ms: (self.time & 0xFFFF) << 32 | self.rest >> 32,
            place: self.place.place().expect("a version has a place"),
            is_young: flags & FLAG_YOUNG != 0,
            is_counted: flags & FLAG_COUNTED != 0,
            is_marked: flags & FLAG_MARKED != 0,
        }
    }
}
