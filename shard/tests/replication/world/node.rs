//! One node, with its log and its partitions.

use super::*;

pub(super) struct Node {
    pub(super) number: u8,
    /// Which start.
    pub(super) life: u64,
    pub(super) log: Log,
    pub(super) partitions: Partitions,
    pub(super) ring: Ring,
    pub(super) index: Index,
    pub(super) gates: ReplicaGates<Operation>,
    /// Acknowledged at level disk when this is durable.
    pub(super) disk_waits: VecDeque<(Lsn, Operation)>,
    pub(super) lostfound: BTreeSet<(PartitionId, Position)>,
}

impl Node {
    /// What a start makes of a log.
    pub(super) fn start(
        number: u8,
        life: u64,
        log: Log,
        ring_bytes: usize,
        found: BTreeSet<(PartitionId, Position)>,
    ) -> Node {
        let mut node = Node {
            number,
            life,
            log,
            partitions: Partitions::new(),
            ring: Ring::new(0, Lsn(0), []),
            index: Index::new(),
            gates: ReplicaGates::new(usize::MAX),
            disk_waits: VecDeque::new(),
            lostfound: found,
        };
        let mut highest: BTreeMap<PartitionId, Position> = BTreeMap::new();
        let mut histories: BTreeMap<PartitionId, (Position, EpochHistory)> = BTreeMap::new();
        let mut facts: BTreeMap<PartitionId, Facts> = BTreeMap::new();
        for (lsn, record) in node.log.records() {
            let position = highest.entry(record.partition).or_default();
            *position = (*position).max(record.position);
            for part in parts(record.bytes) {
                let newest = node
                    .index
                    .get(part.key())
                    .map_or(Position::default(), |found| found.0);
                if newest <= record.position {
                    let entry = (record.position, value_of(&part), lsn);
                    node.index.insert(part.key().to_vec(), entry);
                    if part.key().ends_with(b"epochs") {
                        let history = (record.position, decode_history(part.value()));
                        histories.insert(record.partition, history);
                    }
                }
            }
        }
        for entry in node.log.entries.iter().flatten() {
            if let Entry::Facts(partition, found) = entry {
                facts.insert(*partition, found.clone());
            }
        }
        for number in PARTITIONS {
            let history = histories
                .remove(&number)
                .map_or_else(EpochHistory::default, |it| it.1);
            let partition = Partition::recovered(
                number,
                facts.remove(&number).unwrap_or_default(),
                history,
                highest.get(&number).copied().unwrap_or_default(),
            );
            node.partitions.insert(number, partition);
        }
        node.log.sealed = node.log.entries.len();
        node.log.durable = node.log.sealed;
        node.ring = Ring::new(ring_bytes, node.log.last(), highest);
        node
    }

    pub(super) fn append(&mut self, bytes: Vec<u8>) -> Lsn {
        let lsn = self.log.append(Entry::Record(bytes.clone()));
        let (record, _) = ShippedRecord::read(&bytes).expect("just written");
        for part in parts(record.bytes) {
            let newest = self
                .index
                .get(part.key())
                .map_or(Position::default(), |found| found.0);
            if newest <= record.position {
                let entry = (record.position, value_of(&part), lsn);
                self.index.insert(part.key().to_vec(), entry);
            }
        }
        lsn
    }

    pub(super) fn seal(&mut self) {
        for at in self.log.sealed..self.log.entries.len() {
            let lsn = Lsn(at as u64 + 1);
            match &self.log.entries[at] {
                Some(Entry::Record(bytes)) => self.ring.push(lsn, bytes.clone()),
                _ => self.ring.pass(lsn),
            }
        }
        self.log.sealed = self.log.entries.len();
    }
}
