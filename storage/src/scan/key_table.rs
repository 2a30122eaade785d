//! The key table of a sealed segment: what a scan asks of its parts, in the order of slots and
//! hashes.
//!
//! A scan goes through keys in an order that says nothing about places, so without a table each
//! cold key costs a read. A table is a file beside the segment, cut into blocks that each check by
//! themselves, and a scan that goes through all keys reads each block about once.
//!
//! A table is derived and never needed. Whatever is wrong with it, the part itself is read. It
//! decides nothing either: an entry counts only for the place that the index tells, so it says what
//! the part there says. What it is bound to is the salt of its segment, which no other use of a
//! file ever has. Byte layout in `SNAPSHOTS.md`.

use std::fmt;
use std::io;

use crate::format::frame::{FRAME_HEADER_BYTES, FrameHeader, FrameHome, FrameKind};
use crate::format::record::{EXPIRY_MS_MAX, KEY_BYTES_MAX, PartKind, PartView, read_u32, read_u64};
use crate::format::segment::{Owner, begin, is_sealed, owner_of, seal};
use crate::format::system_key::is_token;
use crate::types::io::{BLOCK_BYTES, SegmentSource};
use crate::types::key_home::KeyHome;
use crate::types::packed_place::{FILES_MAX, PackedPlace};
use crate::types::place::FileId;
use crate::types::version::{SLOTS, Version};

const MAGIC: [u8; 8] = *b"PSTKKEY1";
/// Before the entries of a block: CRC, number of the block, number of entries.
const HEAD_BYTES: usize = 12;
/// Where an entry of a block begins.
const POINTER_BYTES: usize = 2;
/// An entry without its key and expiry.
const ENTRY_BYTES: usize = 22;
const EXPIRY_BYTES: usize = 6;
/// The bit beside the length of a key that tells of an expiry.
const HAS_EXPIRY: u16 = 1 << 15;
/// What the directory has of each block.
const FIRST_BYTES: usize = 4;
/// Bits of a hash that are left out there.
const HASH_SHIFT: u32 = 14;
const _: () = assert!(SLOTS == 1 << HASH_SHIFT);
/// A segment has at most 1 GiB, and its parts have 40 bytes and a key.
const BLOCKS_MAX: u32 = 1 << 19;

/// The segment that a table is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableHome {
    /// Whose it is.
    pub owner: Owner,
    /// The file of the segment.
    pub file: FileId,
    /// The log of the segment.
    pub log_id: u64,
    /// Its sequence in the log.
    pub sequence: u64,
    /// Its salt, which no other segment has.
    pub salt: u64,
    /// Where its frames end.
    pub end_offset: u64,
    /// What the key hash makes of a constant: with another secret the order is another one.
    pub hash_check: u64,
}

impl TableHome {
    fn frames(&self) -> FrameHome {
        FrameHome {
            log_id: self.log_id,
            segment_sequence: self.sequence,
            salt: self.salt,
        }
    }
}

/// Why a file is no table that can be used, or none was made.
#[derive(Debug)]
pub enum TableError {
    /// It cannot be read or written.
    Io(io::Error),
    /// It is not whole, or damaged.
    Damaged,
    /// It is whole, and of another segment.
    OfAnother,
    /// The segment does not hold what it should. A reader of its parts gets the error.
    Segment,
    /// More keys of one hash than the memory for one pass holds.
    TooMany,
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TableError::Io(error) => error.fmt(f),
            TableError::Damaged => f.write_str("is damaged or not whole"),
            TableError::OfAnother => f.write_str("is of another segment"),
            TableError::Segment => f.write_str("cannot be made: its segment is not what it was"),
            TableError::TooMany => {
                f.write_str("cannot be made: too many keys of its segment have one hash")
            }
        }
    }
}

impl std::error::Error for TableError {}

impl From<io::Error> for TableError {
    fn from(error: io::Error) -> Self {
        TableError::Io(error)
    }
}

/// What stays in memory of a table: which block has which keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyTable {
    home: TableHome,
    /// Where each block begins in the order of keys, rounded down.
    firsts: Box<[u32]>,
    entries: u64,
}

/// A point in the order of keys in 32 bits, rounded down.
fn first_of(at: KeyHome) -> u32 {
    u32::from(at.slot) << (u32::BITS - HASH_SHIFT) | at.hash >> HASH_SHIFT
}

/// The same in 48 bits, whole.
fn order_of(at: KeyHome) -> u64 {
    u64::from(at.slot) << u32::BITS | u64::from(at.hash)
}

/// What the CRC of a block begins with, so that no block of another table checks.
fn seed_of(home: &TableHome) -> [u8; 40] {
    let mut seed = [0; 40];
    let words = [
        home.log_id,
        home.sequence,
        home.salt,
        home.end_offset,
        home.hash_check,
    ];
    for (into, word) in seed.chunks_exact_mut(8).zip(words) {
        into.copy_from_slice(&word.to_le_bytes());
    }
    seed
}

fn crc_of(home: &TableHome, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&seed_of(home));
    hasher.update(bytes);
    hasher.finalize()
}

impl KeyTable {
    /// The segment that it is of.
    #[must_use]
    pub fn home(&self) -> &TableHome {
        &self.home
    }

    /// Its blocks.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        u32::try_from(self.firsts.len()).expect("they are bounded")
    }

    /// The parts that it tells of.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// What it takes of the memory.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.firsts.len() * FIRST_BYTES
    }

    /// The length of the table's file in bytes.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        file_bytes(self.blocks())
    }

    /// The block that tells of a key, if the table does. Of keys of one hash in two blocks it may
    /// be told of some only.
    #[must_use]
    pub fn block_of(&self, at: KeyHome) -> Option<u32> {
        let first = first_of(at);
        let behind = self.firsts.partition_point(|&begins| begins <= first);
        let block = behind.checked_sub(1)?;
        Some(u32::try_from(block).expect("they are bounded"))
    }

    /// Where a block stands in the file.
    #[must_use]
    pub fn offset_of(block: u32) -> u64 {
        (u64::from(block) + 1) * BLOCK_BYTES as u64
    }

    /// What was read of a block, if it is what was written.
    #[must_use]
    pub fn check(&self, block: u32, bytes: &[u8]) -> Option<TableBlock> {
        TableBlock::read(&self.home, block, bytes)
    }

    /// Reads what stays in memory of the table of `home` from its file of `file_bytes`. `read`
    /// fills what it is given from an offset and returns how many bytes there were.
    ///
    /// # Errors
    /// [`TableError`]: nothing is to be read from this file.
    pub fn load(
        home: &TableHome,
        file_bytes: u64,
        read: &mut dyn FnMut(u64, &mut [u8]) -> io::Result<usize>,
    ) -> Result<KeyTable, TableError> {
        let header = Header::read(&read_block(0, read)?)?;
        if header.home != *home {
            return Err(TableError::OfAnother);
        }
        if file_bytes != self::file_bytes(header.blocks) {
            return Err(TableError::Damaged);
        }
        // The length of the file bounds it.
        let mut directory = vec![0; directory_bytes(header.blocks)];
        let at = KeyTable::offset_of(header.blocks);
        if read(at, &mut directory)? < directory.len()
            || crc_of(&header.home, &directory) != header.directory_crc
        {
            return Err(TableError::Damaged);
        }
        let firsts = directory.chunks_exact(FIRST_BYTES).map(read_u32);
        let firsts: Box<[u32]> = firsts.take(header.blocks as usize).collect();
        if !firsts.is_sorted() {
            return Err(TableError::Damaged);
        }
        Ok(KeyTable {
            home: TableHome {
                file: home.file,
                ..header.home
            },
            firsts,
            entries: header.entries,
        })
    }

    /// Where the segment of a table ends, as the header of its file tells.
    ///
    /// # Errors
    /// [`TableError`].
    pub fn stored_end(
        read: &mut dyn FnMut(u64, &mut [u8]) -> io::Result<usize>,
    ) -> Result<u64, TableError> {
        Ok(Header::read(&read_block(0, read)?)?.home.end_offset)
    }

    /// Reads all of a table's file, and holds it against its segment: for people.
    ///
    /// # Errors
    /// [`TableError`].
    pub fn verify(
        home: &TableHome,
        file_bytes: u64,
        read: &mut dyn FnMut(u64, &mut [u8]) -> io::Result<usize>,
    ) -> Result<KeyTable, TableError> {
        let table = KeyTable::load(home, file_bytes, read)?;
        let (mut entries, mut before) = (0, None);
        for (block, &begins) in (0..).zip(&table.firsts) {
            let bytes = read_block(KeyTable::offset_of(block), read)?;
            let block = table.check(block, &bytes).ok_or(TableError::Damaged)?;
            for entry in block.entries() {
                if before > Some(entry.at) {
                    return Err(TableError::Damaged);
                }
                before = Some(entry.at);
            }
            if block.entries().next().map(|it| first_of(it.at)) != Some(begins) {
                return Err(TableError::Damaged);
            }
            entries += block.entries().count() as u64;
        }
        match entries == table.entries {
            true => Ok(table),
            false => Err(TableError::Damaged),
        }
    }

    /// Makes the table of a sealed segment: reads it whole, once or several times, and hands the
    /// bytes of the file to `write` with their offsets. The header is the last of it, so what was
    /// not written to its end is no table. Of several parts of a key only the newest is told.
    /// Sorting takes at most `sort_bytes_max`, and a frame is in memory at a time.
    ///
    /// # Errors
    /// [`TableError`]; what was written is to be removed.
    pub fn build(
        home: &TableHome,
        source: &mut impl SegmentSource,
        home_of: &dyn Fn(&[u8]) -> KeyHome,
        sort_bytes_max: usize,
        write: &mut dyn FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> Result<KeyTable, TableError> {
        let mut writer = Writer {
            home,
            write,
            block: Vec::new(),
            pointers: Vec::new(),
            firsts: Vec::new(),
            entries: 0,
        };
        let mut from = Some(0);
        while let Some(begin) = from {
            let mut pass = Pass::new(begin, sort_bytes_max);
            read_parts(home, source, &mut |part, offset| {
                let KeyHome { slot, hash } = home_of(part.key());
                pass.take(KeyHome { slot, hash }, offset, part)
            })?;
            pass.sort();
            for entry in pass.entries() {
                writer.push(entry)?;
            }
            from = pass.until;
        }
        writer.finish()
    }
}

/// What the file of a table begins with.
struct Header {
    home: TableHome,
    blocks: u32,
    entries: u64,
    directory_crc: u32,
}

impl Header {
    fn encode(&self) -> [u8; BLOCK_BYTES] {
        let mut block = [0; BLOCK_BYTES];
        begin(&mut block, MAGIC, self.home.owner);
        let words = [
            self.home.log_id,
            self.home.sequence,
            self.home.salt,
            self.home.end_offset,
            self.home.hash_check,
            self.entries,
        ];
        for (into, word) in block[48..].chunks_exact_mut(8).zip(words) {
            into.copy_from_slice(&word.to_le_bytes());
        }
        block[96..100].copy_from_slice(&self.home.file.0.to_le_bytes());
        block[100..104].copy_from_slice(&self.blocks.to_le_bytes());
        block[104..108].copy_from_slice(&self.directory_crc.to_le_bytes());
        seal(&mut block);
        block
    }

    fn read(block: &[u8; BLOCK_BYTES]) -> Result<Header, TableError> {
        let (file, blocks) = (read_u32(&block[96..100]), read_u32(&block[100..104]));
        let word = |number: usize| read_u64(&block[48 + 8 * number..56 + 8 * number]);
        let header = Header {
            home: TableHome {
                owner: owner_of(block),
                file: FileId(file),
                log_id: word(0),
                sequence: word(1),
                salt: word(2),
                end_offset: word(3),
                hash_check: word(4),
            },
            blocks,
            entries: word(5),
            directory_crc: read_u32(&block[104..108]),
        };
        // One that is encoded in another way is of another version.
        let is_ours = is_sealed(block, MAGIC) && header.encode() == *block;
        match is_ours && (1..=BLOCKS_MAX).contains(&blocks) && (1..FILES_MAX).contains(&file) {
            true => Ok(header),
            false => Err(TableError::Damaged),
        }
    }
}

/// The bytes of a file with so many blocks: header, blocks, directory.
fn file_bytes(blocks: u32) -> u64 {
    KeyTable::offset_of(blocks) + directory_bytes(blocks) as u64
}

fn directory_bytes(blocks: u32) -> usize {
    (blocks as usize * FIRST_BYTES).next_multiple_of(BLOCK_BYTES)
}

fn read_block(
    offset: u64,
    read: &mut dyn FnMut(u64, &mut [u8]) -> io::Result<usize>,
) -> Result<[u8; BLOCK_BYTES], TableError> {
    let mut block = [0; BLOCK_BYTES];
    match read(offset, &mut block)? {
        BLOCK_BYTES => Ok(block),
        _ => Err(TableError::Damaged),
    }
}

/// A block of a table that was read and checked whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableBlock {
    bytes: Box<[u8]>,
    count: usize,
}

/// What a table tells of a part, which is a value and no deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableEntry<'a> {
    /// Slot and hash of its key.
    pub at: KeyHome,
    /// Where it begins in the segment.
    pub offset: u64,
    /// Its version.
    pub version: Version,
    /// When its key is gone.
    pub expiry_ms: Option<u64>,
    /// Its key.
    pub key: &'a [u8],
}

impl TableBlock {
    fn read(home: &TableHome, number: u32, bytes: &[u8]) -> Option<TableBlock> {
        let bytes: &[u8; BLOCK_BYTES] = bytes.first_chunk()?;
        let is_whole =
            read_u32(&bytes[0..4]) == crc_of(home, &bytes[4..]) && read_u32(&bytes[4..8]) == number;
        let count = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
        let block = TableBlock {
            bytes: bytes.as_slice().into(),
            count,
        };
        // Whoever looks an entry up relies on it.
        let is_sound = HEAD_BYTES + count * POINTER_BYTES <= BLOCK_BYTES
            && (0..count).all(|place| block.read_entry(place).is_some());
        (is_whole && is_sound && count > 0).then_some(block)
    }

    fn read_entry(&self, place: usize) -> Option<TableEntry<'_>> {
        let at = HEAD_BYTES + place * POINTER_BYTES;
        let begin = usize::from(u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]]));
        let bytes = self.bytes.get(begin..)?;
        let head: &[u8; ENTRY_BYTES] = bytes.first_chunk()?;
        let slot = u16::from_le_bytes([head[0], head[1]]);
        let lengths = u16::from_le_bytes([head[6], head[7]]);
        let key_len = usize::from(lengths & !HAS_EXPIRY);
        let key = bytes.get(ENTRY_BYTES..ENTRY_BYTES + key_len)?;
        let expiry_ms = match lengths & HAS_EXPIRY {
            0 => None,
            _ => {
                let behind = bytes.get(ENTRY_BYTES + key_len..)?;
                Some(read_u48(behind.first_chunk()?))
            }
        };
        let is_key = (1..=KEY_BYTES_MAX).contains(&key_len) && slot < SLOTS;
        is_key.then(|| TableEntry {
            at: KeyHome::new(slot, read_u32(&head[2..6])),
            offset: u64::from(read_u32(&head[8..12])) * 8,
            version: Version {
                epoch: read_u32(&head[12..16]),
                sequence: read_u48(head[16..22].first_chunk().expect("six bytes")),
            },
            expiry_ms,
            key,
        })
    }

    fn entry(&self, place: usize) -> TableEntry<'_> {
        self.read_entry(place).expect("it was checked")
    }

    /// What it tells, in order.
    pub fn entries(&self) -> impl Iterator<Item = TableEntry<'_>> {
        (0..self.count).map(|place| self.entry(place))
    }

    /// What it tells of the part to which the index points, if anything.
    #[must_use]
    pub fn find(&self, at: KeyHome, packed: PackedPlace) -> Option<TableEntry<'_>> {
        let offset = packed.place()?.offset;
        let order = order_of(at);
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low.midpoint(high);
            match order_of(self.entry(middle).at) < order {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        (low..self.count)
            .map(|place| self.entry(place))
            .take_while(|entry| order_of(entry.at) == order)
            .find(|entry| entry.offset == offset && packed.is_sequence(entry.version.sequence))
    }
}

fn read_u48(bytes: &[u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = *bytes;
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

/// Writes the file of a table, entry by entry.
struct Writer<'a> {
    home: &'a TableHome,
    write: &'a mut dyn FnMut(u64, &[u8]) -> io::Result<()>,
    /// Entries of the block that is filled.
    block: Vec<u8>,
    /// Where they begin in it.
    pointers: Vec<usize>,
    firsts: Vec<u32>,
    entries: u64,
}

impl Writer<'_> {
    fn push(&mut self, entry: &[u8]) -> Result<(), TableError> {
        let head = HEAD_BYTES + (self.pointers.len() + 1) * POINTER_BYTES;
        if head + self.block.len() + entry.len() > BLOCK_BYTES {
            self.flush()?;
        }
        if self.pointers.is_empty() {
            if self.firsts.len() >= BLOCKS_MAX as usize {
                return Err(TableError::TooMany);
            }
            self.firsts.push(first_of(at_of(entry)));
        }
        self.pointers.push(self.block.len());
        self.block.extend_from_slice(entry);
        self.entries += 1;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), TableError> {
        let number = u32::try_from(self.firsts.len() - 1).expect("they are bounded");
        let mut block = [0; BLOCK_BYTES];
        let count = u16::try_from(self.pointers.len()).expect("a block is small");
        block[4..8].copy_from_slice(&number.to_le_bytes());
        block[8..10].copy_from_slice(&count.to_le_bytes());
        let begin = HEAD_BYTES + self.pointers.len() * POINTER_BYTES;
        let pointers = block[HEAD_BYTES..].chunks_exact_mut(POINTER_BYTES);
        for (into, pointer) in pointers.zip(&self.pointers) {
            let at = u16::try_from(begin + pointer).expect("a block is small");
            into.copy_from_slice(&at.to_le_bytes());
        }
        block[begin..begin + self.block.len()].copy_from_slice(&self.block);
        let crc = crc_of(self.home, &block[4..]);
        block[0..4].copy_from_slice(&crc.to_le_bytes());
        (self.write)(KeyTable::offset_of(number), &block)?;
        self.block.clear();
        self.pointers.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<KeyTable, TableError> {
        if self.entries == 0 {
            return Err(TableError::Segment);
        }
        self.flush()?;
        let blocks = u32::try_from(self.firsts.len()).expect("they are bounded");
        let mut directory = vec![0; directory_bytes(blocks)];
        for (into, first) in directory.chunks_exact_mut(FIRST_BYTES).zip(&self.firsts) {
            into.copy_from_slice(&first.to_le_bytes());
        }
        let header = Header {
            home: *self.home,
            blocks,
            entries: self.entries,
            directory_crc: crc_of(self.home, &directory),
        };
        (self.write)(KeyTable::offset_of(header.blocks), &directory)?;
        (self.write)(0, &header.encode())?;
        Ok(KeyTable {
            home: *self.home,
            firsts: self.firsts.into(),
            entries: self.entries,
        })
    }
}

/// The entries of one pass over the segment: the first ones behind those of the passes before, as
/// many as find room.
struct Pass {
    from: u64,
    /// Where the next pass begins.
    until: Option<u64>,
    bytes_max: usize,
    encoded: Vec<u8>,
    /// Order and place in `encoded`.
    places: Vec<(u64, u32)>,
}

/// The key table's order and the place of an entry.
const PLACE_BYTES: usize = size_of::<(u64, u32)>();

impl Pass {
    fn new(from: u64, bytes_max: usize) -> Self {
        Pass {
            from,
            until: None,
            bytes_max,
            encoded: Vec::new(),
            places: Vec::new(),
        }
    }

    fn take(&mut self, at: KeyHome, offset: u64, part: &PartView<'_>) -> Result<(), TableError> {
        let order = order_of(at);
        if order < self.from || self.until.is_some_and(|until| order >= until) {
            return Ok(());
        }
        if self.bytes() + ENTRY_BYTES + part.key().len() + EXPIRY_BYTES + PLACE_BYTES
            > self.bytes_max
        {
            self.cut()?;
            if self.until.is_some_and(|until| order >= until) {
                return Ok(());
            }
        }
        let place = u32::try_from(self.encoded.len()).expect("the memory of a pass is small");
        encode_entry(at, offset, part, &mut self.encoded);
        self.places.push((order, place));
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.encoded.len() + self.places.len() * PLACE_BYTES
    }

    /// Makes room: what a newer part of the same key supersedes goes first, then the end of the
    /// order.
    fn cut(&mut self) -> Result<(), TableError> {
        self.sort();
        let mut left = self.bytes_max / 2;
        let mut kept = 0;
        // Keys of one hash stay together.
        let orders = self.places.chunk_by(|one, other| one.0 == other.0);
        for group in orders {
            let entries = group.iter().map(|&(_, place)| self.entry(place).len());
            let bytes = entries.sum::<usize>() + group.len() * PLACE_BYTES;
            match left.checked_sub(bytes) {
                Some(rest) => left = rest,
                None => break,
            }
            kept += group.len();
        }
        if let Some(&(order, _)) = self.places.get(kept) {
            if kept == 0 {
                return Err(TableError::TooMany);
            }
            self.until = Some(order);
            self.places.truncate(kept);
        }
        let mut encoded = Vec::with_capacity(self.encoded.len());
        for (_, place) in &mut self.places {
            let entry = entry_at(&self.encoded, *place);
            *place = u32::try_from(encoded.len()).expect("the memory of a pass is small");
            encoded.extend_from_slice(entry);
        }
        self.encoded = encoded;
        Ok(())
    }

    /// Brings the entries into their order, with the newest of each key alone.
    fn sort(&mut self) {
        let encoded = &self.encoded;
        let rank = |place: u32| {
            let entry = entry_at(encoded, place);
            (key_of(entry), std::cmp::Reverse(version_of(entry)))
        };
        self.places.sort_unstable_by(|one, other| {
            let orders = one.0.cmp(&other.0);
            orders.then_with(|| rank(one.1).cmp(&rank(other.1)))
        });
        self.places.dedup_by(|other, one| {
            one.0 == other.0
                && key_of(entry_at(encoded, one.1)) == key_of(entry_at(encoded, other.1))
        });
    }

    fn entry(&self, place: u32) -> &[u8] {
        entry_at(&self.encoded, place)
    }

    fn entries(&self) -> impl Iterator<Item = &[u8]> {
        self.places.iter().map(|&(_, place)| self.entry(place))
    }
}

fn encode_entry(at: KeyHome, offset: u64, part: &PartView<'_>, into: &mut Vec<u8>) {
    let expiry_ms = part.expiry_ms();
    let key_len = u16::try_from(part.key().len()).expect("keys are short");
    let lengths = key_len | expiry_ms.map_or(0, |_| HAS_EXPIRY);
    let offset = u32::try_from(offset / 8).expect("a segment has at most 1 GiB");
    into.extend_from_slice(&at.slot.to_le_bytes());
    into.extend_from_slice(&at.hash.to_le_bytes());
    into.extend_from_slice(&lengths.to_le_bytes());
    into.extend_from_slice(&offset.to_le_bytes());
    into.extend_from_slice(&part.epoch().to_le_bytes());
    into.extend_from_slice(&part.sequence().to_le_bytes()[..6]);
    into.extend_from_slice(part.key());
    if let Some(expiry_ms) = expiry_ms {
        assert!(expiry_ms <= EXPIRY_MS_MAX, "a part was checked");
        into.extend_from_slice(&expiry_ms.to_le_bytes()[..EXPIRY_BYTES]);
    }
}

/// The entry that begins there, as [`encode_entry`] wrote it.
fn entry_at(encoded: &[u8], place: u32) -> &[u8] {
    let bytes = &encoded[place as usize..];
    let lengths = u16::from_le_bytes([bytes[6], bytes[7]]);
    let expiry_bytes = match lengths & HAS_EXPIRY {
        0 => 0,
        _ => EXPIRY_BYTES,
    };
    &bytes[..ENTRY_BYTES + usize::from(lengths & !HAS_EXPIRY) + expiry_bytes]
}

fn at_of(entry: &[u8]) -> KeyHome {
    KeyHome::new(
        u16::from_le_bytes([entry[0], entry[1]]),
        read_u32(&entry[2..6]),
    )
}

fn key_of(entry: &[u8]) -> &[u8] {
    let lengths = u16::from_le_bytes([entry[6], entry[7]]);
    &entry[ENTRY_BYTES..ENTRY_BYTES + usize::from(lengths & !HAS_EXPIRY)]
}

fn version_of(entry: &[u8]) -> (u32, u64) {
    let sequence = entry[16..22].first_chunk().expect("six bytes");
    (read_u32(&entry[12..16]), read_u48(sequence))
}

/// Gives `take` all values of a segment but tokens with their offsets, frame by frame.
fn read_parts(
    home: &TableHome,
    source: &mut impl SegmentSource,
    take: &mut dyn FnMut(&PartView<'_>, u64) -> Result<(), TableError>,
) -> Result<(), TableError> {
    let frames = home.frames();
    let mut frame = vec![0; BLOCK_BYTES];
    let mut offset = BLOCK_BYTES as u64;
    while offset < home.end_offset {
        frame.resize(BLOCK_BYTES, 0);
        if source.read_at(home.file, offset, &mut frame)? < BLOCK_BYTES {
            return Err(TableError::Segment);
        }
        let header = FrameHeader::read(frames, offset, &frame).map_err(|_| TableError::Segment)?;
        let padded = header.padded_bytes();
        // Its header checks, so the log had room for it.
        if padded as u64 > home.end_offset - offset {
            return Err(TableError::Segment);
        }
        frame.resize(padded, 0);
        let rest = &mut frame[BLOCK_BYTES..];
        if source.read_at(home.file, offset + BLOCK_BYTES as u64, rest)? < rest.len()
            || !FrameHeader::body_is_intact(frames, &frame)
        {
            return Err(TableError::Segment);
        }
        let body = &frame[FRAME_HEADER_BYTES..][..header.body_bytes as usize];
        let mut at = 0;
        while at < body.len() && matches!(header.kind, FrameKind::Commit | FrameKind::Repair) {
            let Ok(part) = PartView::read(&body[at..]) else {
                // Behind the parts of a repair there are zeros.
                break;
            };
            let is_shown = part.kind() == PartKind::Put && !is_token(part.key());
            if is_shown && !part.is_superseded() {
                take(&part, offset + (FRAME_HEADER_BYTES + at) as u64)?;
            }
            at += part.bytes().len();
        }
        offset += padded as u64;
    }
    Ok(())
}
