//! Records as they are shipped: their parts side by side, as they stand in a frame of the log.

use penstock_net::link::Position;
use penstock_storage::keyspace::is_understood;
use penstock_storage::record::PartView;
use penstock_storage::system_key::{is_flush, is_local, is_system, is_token};
use penstock_storage::version::{Version, partition_of};

use super::PartitionId;

/// One record: all of its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShippedRecord<'a> {
    /// Whose it is.
    pub partition: PartitionId,
    /// Its version.
    pub position: Position,
    /// How many changes it stands for: they have the sequences up to its own.
    pub changes: u64,
    /// Cleaning copied it: it is no news.
    pub is_copy: bool,
    /// It is a note of its node, and never shipped.
    pub is_local: bool,
    /// It is under a key of the store's own and nothing that this version understands: a log with
    /// it would be refused.
    pub is_strange: bool,
    /// Its parts.
    pub bytes: &'a [u8],
}

impl ShippedRecord<'_> {
    /// Whether its first change is the next one behind this sequence.
    #[must_use]
    pub fn follows(&self, sequence: u64) -> bool {
        self.position.sequence.checked_sub(self.changes) == Some(sequence)
    }
}

/// Why bytes are not whole records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordFault {
    /// The part at this offset does not check.
    Part {
        /// In the bytes.
        offset: usize,
    },
    /// The part at this offset is not the next one of its record.
    Order {
        /// In the bytes.
        offset: usize,
    },
    /// The last record goes on behind the end.
    Cut,
}

impl<'a> ShippedRecord<'a> {
    /// The record at the start of `bytes`, every part checked, and what stands behind it.
    ///
    /// # Errors
    /// [`RecordFault`].
    pub fn read(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), RecordFault> {
        let mut end = 0;
        let mut first: Option<PartView<'a>> = None;
        let mut is_strange = false;
        // Each part says of how many it is one, which is bounded.
        for ordinal in 0.. {
            if bytes.len() == end {
                return Err(RecordFault::Cut);
            }
            let fault = RecordFault::Part { offset: end };
            let part = PartView::read(&bytes[end..]).map_err(|_| fault)?;
            let head = *first.get_or_insert(part);
            let version = |part: &PartView<'_>| {
                (
                    part.slot(),
                    part.epoch(),
                    part.sequence(),
                    part.time_ms(),
                    part.count(),
                )
            };
            if part.ordinal() != ordinal || version(&part) != version(&head) {
                return Err(RecordFault::Order { offset: end });
            }
            // A token stands in the record of its change; all else of the store's own stands alone.
            let may_stand = part.count() == 1 || is_token(part.key());
            is_strange |= is_system(part.key()) && !(may_stand && is_understood(&part));
            // Only a node alone writes one, or a record of a group.
            is_strange |= is_flush(part.key()) || part.group().is_some();
            end += part.bytes().len();
            if ordinal + 1 == part.count() {
                break;
            }
        }
        let part = first.expect("a record has a part");
        let record = ShippedRecord {
            is_strange,
            ..Self::of(&part, &bytes[..end])
        };
        Ok((record, &bytes[end..]))
    }

    /// The record at the start of bytes that the log of this node has encoded, and what stands
    /// behind it. It needs no check, and a log with a strange one would be refused.
    ///
    /// # Panics
    /// If they do not begin with a whole record.
    #[inline(always)]
    #[must_use]
    pub fn own(bytes: &'a [u8]) -> (Self, &'a [u8]) {
        let (part, end) = own_head(bytes);
        let (bytes, rest) = bytes.split_at(end);
        (Self::of(&part, bytes), rest)
    }

    /// The record with this first part. Whether it is strange is not known.
    #[inline(always)]
    fn of(part: &PartView<'_>, bytes: &'a [u8]) -> Self {
        let partition = partition_of(part.slot());
        ShippedRecord {
            partition: PartitionId::try_from(partition).expect("there are 256"),
            position: Position {
                epoch: part.epoch(),
                sequence: part.sequence(),
            },
            changes: part.changes(),
            is_copy: part.is_copy(),
            is_local: is_local(part.key()),
            is_strange: false,
            bytes,
        }
    }
}

/// The records in `bytes`, up to the first that does not check.
pub fn records(mut bytes: &[u8]) -> impl Iterator<Item = Result<ShippedRecord<'_>, RecordFault>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let read = ShippedRecord::read(bytes);
        bytes = match &read {
            Ok((_, rest)) => rest,
            Err(_) => &[],
        };
        Some(read.map(|(record, _)| record))
    })
}

/// The first part of the record at the start of bytes that the log of this node has encoded, and
/// how many bytes the record has.
///
/// # Panics
/// If they do not begin with a record.
#[inline(always)]
pub(super) fn own_head(bytes: &[u8]) -> (PartView<'_>, usize) {
    let head = PartView::again(bytes);
    assert!(head.ordinal() == 0, "a record begins with its first part");
    let end = match head.count() {
        ..=1 => head.bytes().len(),
        count => own_end(bytes, count),
    };
    (head, end)
}

/// Bytes of the first so many parts.
#[cold]
fn own_end(bytes: &[u8], parts: usize) -> usize {
    (0..parts).fold(0, |end, _| {
        end + PartView::again(&bytes[end..]).bytes().len()
    })
}

/// The parts in bytes that were checked before, up to the first that does not check.
pub(super) fn parts_of(mut bytes: &[u8]) -> Vec<PartView<'_>> {
    let mut parts = Vec::new();
    while let Ok(part) = PartView::read(bytes) {
        bytes = &bytes[part.bytes().len()..];
        parts.push(part);
    }
    parts
}

/// The position that a version of the store is in its partition.
pub(super) fn position_of(version: Version) -> Position {
    Position {
        epoch: version.epoch,
        sequence: version.sequence,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replication::tests::{encoded, keys_of_partition};

    #[test]
    fn a_record_is_read_whole_or_not_at_all() {
        let keys = keys_of_partition(7, 3);
        let views: Vec<(&[u8], u64)> = keys.iter().map(|key| (key.as_slice(), 9)).collect();
        let at = Position {
            epoch: 256,
            sequence: 5,
        };
        let bytes = encoded(at, &views);
        let read: Vec<_> = records(&bytes).collect();
        assert_eq!(read.len(), 1);
        let record = read[0].expect("it checks");
        assert_eq!((record.partition, record.position), (7, at));
        assert!(!record.is_copy && record.bytes == bytes);
        let own = [&bytes[..], &[7; 50]].concat();
        assert_eq!(ShippedRecord::own(&own), (record, &[7; 50][..]));
        for cut in (8..bytes.len()).step_by(8) {
            assert!(ShippedRecord::read(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(ShippedRecord::read(&bytes).is_err(), "bit {bit}");
        }
        // Parts of two records that would make one.
        let one = bytes.len() / 3;
        let other = encoded(Position { sequence: 6, ..at }, &views);
        let mixed = [&bytes[..one], &other[one..]].concat();
        assert_eq!(
            ShippedRecord::read(&mixed),
            Err(RecordFault::Order { offset: one })
        );
        let twice = [&bytes[..], &bytes[..one]].concat();
        let read: Vec<_> = records(&twice).collect();
        assert!(matches!(read[..], [Ok(_), Err(RecordFault::Cut)]));
    }

    #[test]
    fn a_record_of_the_stores_own_that_is_not_understood_is_strange() {
        let at = Position {
            epoch: 256,
            sequence: 5,
        };
        for (keys, is_strange) in [
            (&[&b"key"[..]][..], false),
            (&[b"\0\0penstock/epochs/{7}"], false),
            (&[b"\0\0penstock/later/{7}"], true),
            // Eight bytes are no settings.
            (&[b"\0\0penstock/keyspace/{7}"], true),
            (&[b"{7}", b"\0\0penstock/epochs/{7}"], true),
        ] {
            let views: Vec<(&[u8], u64)> = keys.iter().map(|key| (*key, 9)).collect();
            let bytes = encoded(at, &views);
            let (record, rest) = ShippedRecord::read(&bytes).expect("it checks");
            assert_eq!(record.is_strange, is_strange, "{keys:?}");
            assert!(rest.is_empty());
        }
    }
}
