//! What the tests of replication share: records as a log has them.

use penstock_net::link::Position;
use penstock_net::slot::slot_of;
use penstock_storage::place::Lsn;
use penstock_storage::record::{PartKind, PartSpec, RecordSpec, ValueKind};
use penstock_storage::version::partition_of;

use super::{Facts, Journal, PartitionId};

/// A journal whose notes are durable at once.
pub(super) struct Noted;

impl Journal for Noted {
    fn note(&mut self, _: PartitionId, _: &Facts) -> Lsn {
        Lsn(0)
    }
}

/// Keys of one slot of a partition.
pub(super) fn keys_of_partition(partition: usize, count: usize) -> Vec<Vec<u8>> {
    let tag = (0u32..)
        .find(|tag| partition_of(slot_of(format!("{{{tag}}}").as_bytes())) == partition)
        .expect("some number routes there");
    (0..count)
        .map(|number| format!("{{{tag}}}{number}").into_bytes())
        .collect()
}

/// A record that puts these values.
pub(super) fn encoded(at: Position, puts: &[(&[u8], u64)]) -> Vec<u8> {
    let values: Vec<[u8; 8]> = puts.iter().map(|(_, value)| value.to_le_bytes()).collect();
    let parts = puts.iter().zip(&values);
    let parts: Vec<_> = parts
        .map(|((key, _), value)| part(PartKind::Put, key, value))
        .collect();
    encoded_parts(at, &parts)
}

/// A record that deletes a key.
pub(super) fn encoded_deletion(at: Position, key: &[u8]) -> Vec<u8> {
    encoded_parts(at, &[part(PartKind::Tombstone, key, &[])])
}

fn part<'a>(kind: PartKind, key: &'a [u8], value: &'a [u8]) -> PartSpec<'a> {
    PartSpec {
        kind,
        key,
        value,
        expiry_ms: None,
        value_kind: ValueKind::Plain,
        layout: 0,
        is_crowded: false,
    }
}

fn encoded_parts(at: Position, parts: &[PartSpec<'_>]) -> Vec<u8> {
    let record = RecordSpec {
        slot: slot_of(parts[0].key),
        epoch: at.epoch,
        sequence: at.sequence,
        time_ms: 1_700_000_000_000,
        parts,
        extension: &[],
    };
    let mut bytes = vec![0; record.bytes()];
    let mut end = 0;
    for ordinal in 0..parts.len() {
        end += record.encode_part(ordinal, &mut bytes[end..]);
    }
    bytes
}
