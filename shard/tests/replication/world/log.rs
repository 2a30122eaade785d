//! The log of a node, in memory.

use super::*;

#[derive(Clone, Debug)]
pub(super) enum Entry {
    Record(Vec<u8>),
    Facts(PartitionId, Facts),
}

/// A log: the entry with LSN n stands at n - 1; what is released is none.
#[derive(Debug, Default)]
pub(super) struct Log {
    pub(super) entries: Vec<Option<Entry>>,
    pub(super) sealed: usize,
    pub(super) durable: usize,
    /// What was released, and how far its sequences went.
    pub(super) released: usize,
    pub(super) forgotten: BTreeMap<PartitionId, u64>,
}

impl Log {
    pub(super) fn append(&mut self, entry: Entry) -> Lsn {
        self.entries.push(Some(entry));
        Lsn(self.entries.len() as u64)
    }

    pub(super) fn last(&self) -> Lsn {
        Lsn(self.entries.len() as u64)
    }

    pub(super) fn durable(&self) -> Lsn {
        Lsn(self.durable as u64)
    }

    /// Records with their LSNs.
    pub(super) fn records(&self) -> impl Iterator<Item = (Lsn, ShippedRecord<'_>)> {
        (1..)
            .zip(&self.entries)
            .filter_map(|(lsn, entry)| match entry {
                Some(Entry::Record(bytes)) => {
                    let (record, rest) = ShippedRecord::read(bytes).expect("the log is sound");
                    assert!(rest.is_empty());
                    Some((Lsn(lsn), record))
                }
                _ => None,
            })
    }
}

impl Journal for Log {
    fn note(&mut self, partition: PartitionId, facts: &Facts) -> Lsn {
        self.append(Entry::Facts(partition, facts.clone()))
    }
}

impl LogReach for Log {
    fn reach(&self, partition: PartitionId, from: Position) -> Option<Lsn> {
        let forgotten = self.forgotten.get(&partition).copied().unwrap_or_default();
        (forgotten <= from.sequence).then_some(Lsn(self.released as u64))
    }

    fn oldest(&self) -> Lsn {
        Lsn(self.released as u64)
    }

    fn may_scan(&self) -> bool {
        true
    }
}

pub(super) fn encode(at: Position, puts: &[(&[u8], Option<Vec<u8>>)]) -> Vec<u8> {
    let parts: Vec<PartSpec<'_>> = puts
        .iter()
        .map(|(key, value)| PartSpec {
            kind: match value {
                Some(_) => PartKind::Put,
                None => PartKind::Tombstone,
            },
            key,
            value: value.as_deref().unwrap_or_default(),
            expiry_ms: None,
            layout: 0,
            is_crowded: false,
        })
        .collect();
    let record = RecordSpec {
        slot: slot_of(puts[0].0),
        epoch: at.epoch,
        sequence: at.sequence,
        time_ms: TIME_MS,
        parts: &parts,
        extension: &[],
    };
    let mut bytes = vec![0; record.bytes()];
    let mut end = 0;
    for ordinal in 0..parts.len() {
        end += record.encode_part(ordinal, &mut bytes[end..]);
    }
    bytes
}

pub(super) fn encode_history(history: &EpochHistory) -> Vec<u8> {
    let entry = |entry: EpochEntry| {
        let mut bytes = entry.epoch.to_le_bytes().to_vec();
        bytes.extend(entry.start_id.to_le_bytes());
        bytes.extend(entry.first.to_le_bytes());
        bytes
    };
    history.entries().flat_map(entry).collect()
}

pub(super) fn decode_history(bytes: &[u8]) -> EpochHistory {
    let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four bytes"));
    EpochHistory::of(bytes.chunks_exact(16).map(|entry| EpochEntry {
        epoch: word(&entry[..4]),
        start_id: word(&entry[4..8]),
        first: u64::from_le_bytes(entry[8..].try_into().expect("eight bytes")),
    }))
}

pub(super) fn parts(mut bytes: &[u8]) -> Vec<PartView<'_>> {
    let mut parts = Vec::new();
    while !bytes.is_empty() {
        let part = PartView::read(bytes).expect("it was checked");
        bytes = &bytes[part.bytes().len()..];
        parts.push(part);
    }
    parts
}

pub(super) fn value_of(part: &PartView<'_>) -> Option<u64> {
    (part.kind() == PartKind::Put).then(|| {
        let mut value = [0; 8];
        let len = part.value().len().min(8);
        value[..len].copy_from_slice(&part.value()[..len]);
        u64::from_le_bytes(value)
    })
}
