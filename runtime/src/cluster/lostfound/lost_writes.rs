//! The writes that a node has in its lostfound, each with all of its keys and its token. Pure.

use std::collections::BTreeMap;

use penstock_net::request::Token;
use penstock_storage::system_key::token_of;

use crate::cluster::lostfound::lost::{AtFork, Lost, Writer};
use crate::cluster::lostfound::{KeptChange, KeptFile};

/// One write of a diverged tail: a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostWrite {
    /// The partition.
    pub partition: u16,
    /// Epoch and sequence of the record.
    pub version: (u32, u64),
    /// When it was written, in unix milliseconds.
    pub time_ms: u64,
    /// The token of its client, if it had one.
    pub token: Option<Token>,
    /// What it changed, by key.
    pub changes: Vec<LostChange>,
}

/// What a write changed of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostChange {
    /// The key.
    pub key: Vec<u8>,
    /// Its value; none is a deletion.
    pub value: Option<Vec<u8>>,
    /// When the value expires, in unix milliseconds.
    pub expiry_ms: Option<u64>,
    /// What the key was at the fork.
    pub at_fork: AtFork,
    /// What it was before this write, on the node that wrote it.
    pub before: AtFork,
}

impl LostWrite {
    /// The number of the node that wrote it.
    #[must_use]
    pub fn written_by(&self) -> u8 {
        Writer::of(self.version.0).node()
    }
}

/// The writes in these files, in the order in which each partition had them; `lost` tells what the
/// keys were at the fork. What the server writes for itself alone is left out.
#[must_use]
pub fn lost_writes(files: &[KeptFile], lost: &[Lost]) -> Vec<LostWrite> {
    let at_fork: BTreeMap<(&[u8], Writer), &AtFork> = lost
        .iter()
        .map(|it| ((&it.key[..], Writer::of(it.version.0)), &it.before))
        .collect();
    let mut records: BTreeMap<(u16, (u32, u64)), Vec<&KeptChange>> = BTreeMap::new();
    let mut tokens = BTreeMap::new();
    for change in files.iter().flat_map(|file| &file.changes) {
        if let Some(token) = token_of(&change.key).and_then(|it| Token::read(it).ok()) {
            tokens.insert((change.partition, change.version), token);
        }
    }
    for change in files.iter().flat_map(KeptFile::users) {
        let record = (change.partition, change.version);
        records.entry(record).or_default().push(change);
    }
    let mut newest: BTreeMap<(&[u8], Writer), Option<Vec<u8>>> = BTreeMap::new();
    let writes = records.into_iter().map(|((partition, version), changes)| {
        let writer = Writer::of(version.0);
        let time_ms = changes.first().map_or(0, |it| it.time_ms);
        let changes = changes.into_iter().map(|change| {
            let of_tail = (&change.key[..], writer);
            let known = at_fork.get(&of_tail).copied();
            let at_fork = known.cloned().unwrap_or(AtFork::Unknown);
            let before = newest.insert(of_tail, change.value.clone());
            LostChange {
                key: change.key.clone(),
                value: change.value.clone(),
                expiry_ms: change.expiry_ms,
                before: before.map_or_else(|| at_fork.clone(), AtFork::Was),
                at_fork,
            }
        });
        LostWrite {
            partition,
            version,
            time_ms,
            changes: changes.collect(),
            token: tokens.get(&(partition, version)).copied(),
        }
    });
    writes.collect()
}

#[cfg(test)]
mod tests {
    use penstock_shard::replication::Epoch;
    use penstock_storage::system_key::token_key;

    use super::*;

    #[test]
    fn a_write_has_its_keys_its_token_and_what_each_key_was_before_it() {
        let epoch = Epoch::new(3, 0, 1).0;
        let token = Token::new(1_700_000_000_000, [7; 10]);
        let change = |sequence, key: &[u8], value: Option<&[u8]>| KeptChange {
            partition: 5,
            version: (epoch, sequence),
            time_ms: 900 + sequence,
            key: key.to_vec(),
            value: value.map(<[u8]>::to_vec),
            expiry_ms: None,
        };
        let named = token_key(*b"ab", token.name());
        let files = [
            KeptFile {
                path: "1-0.records".into(),
                changes: vec![
                    change(11, b"order:1", Some(b"ann")),
                    change(11, b"stock", Some(b"99")),
                    change(11, &named, Some(b"a digest")),
                ],
                repeated: 0,
                torn_bytes: 0,
            },
            KeptFile {
                path: "2-0.records".into(),
                changes: vec![
                    change(12, b"order:1", None),
                    change(12, b"stock", Some(b"98")),
                    change(13, b"\0\0penstock/epochs/x", Some(b"own")),
                ],
                repeated: 0,
                torn_bytes: 0,
            },
        ];
        let lost = [Lost {
            key: b"stock".to_vec(),
            version: (epoch, 12),
            records: 2,
            before: AtFork::Was(Some(b"100".to_vec())),
            first: Some(b"99".to_vec()),
            after: Some(b"98".to_vec()),
            expiry_ms: None,
        }];
        let was = |value: Option<&[u8]>| AtFork::Was(value.map(<[u8]>::to_vec));
        let of = |key: &[u8], value: Option<&[u8]>, at_fork: AtFork, before: AtFork| LostChange {
            key: key.to_vec(),
            value: value.map(<[u8]>::to_vec),
            expiry_ms: None,
            at_fork,
            before,
        };
        let writes = lost_writes(&files, &lost);
        let fork = || was(Some(b"100"));
        let unknown = || AtFork::Unknown;
        assert_eq!(
            writes,
            [
                LostWrite {
                    partition: 5,
                    version: (epoch, 11),
                    time_ms: 911,
                    token: Some(token),
                    changes: vec![
                        of(b"order:1", Some(b"ann"), unknown(), unknown()),
                        of(b"stock", Some(b"99"), fork(), fork()),
                    ],
                },
                LostWrite {
                    partition: 5,
                    version: (epoch, 12),
                    time_ms: 912,
                    token: None,
                    changes: vec![
                        of(b"order:1", None, unknown(), was(Some(b"ann"))),
                        of(b"stock", Some(b"98"), fork(), was(Some(b"99"))),
                    ],
                },
            ]
        );
        assert_eq!(writes[0].written_by(), 1);
    }
}
