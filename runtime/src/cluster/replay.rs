//! What a diverged tail did to each key, and what of it is to be done again where the partition is written now.
//!
//! A tail holds whole values, not what was asked for. So what it did to a key is told by two of them: the value that
//! the key had at the fork, which stands in the log of the node that wrote the tail, and the last one of the tail.

use std::collections::BTreeMap;
use std::path::Path;

use penstock_storage::inspect::inspect_laid_out;
use penstock_storage::record::PartKind;
use penstock_storage::recovery::Event;
use penstock_storage::segment::Owner;

use crate::directory::{Directory, DirectoryError};

use super::lostfound::{KeptChange, KeptFile, read_lostfound};

/// Which changes of a tail are done again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Of keys whose value is that of the fork now.
    Unchanged,
    /// Of all keys: what is there now is replaced.
    Overwrite,
    /// Of keys whose values are numbers of 8 bytes: the difference that the tail made is added to what is there
    /// now.
    Add,
}

/// The value of a key at the fork.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AtFork {
    /// It had this one, or was not there.
    Was(Option<Vec<u8>>),
    /// The log has released what might tell.
    Unknown,
}

/// What a tail did to one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The key.
    pub key: Vec<u8>,
    /// How many records of the tail changed it.
    pub records: usize,
    /// What it was before.
    pub before: AtFork,
    /// What it was behind the last of them; none if that deleted it.
    pub after: Option<Vec<u8>>,
    /// When that value expires.
    pub expiry_ms: Option<u64>,
}

/// What is to be done about a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Write this value.
    Set(Vec<u8>),
    /// Delete it.
    Delete,
    /// Nothing: it is as the tail left it.
    Same,
    /// It is left to a person, for this reason.
    Left(&'static str),
}

impl Lost {
    /// The difference that the tail made to a number of 8 bytes.
    #[must_use]
    pub fn units(&self) -> Option<i128> {
        let before = match &self.before {
            AtFork::Was(value) => number(value.as_deref()?)?,
            AtFork::Unknown => return None,
        };
        Some(number(self.after.as_deref()?)? - before)
    }

    /// What is to be done by this rule about the key, which is `present` now.
    #[must_use]
    pub fn judge(&self, rule: Rule, present: Option<&[u8]>) -> Verdict {
        let after = || match &self.after {
            Some(value) => Verdict::Set(value.clone()),
            None => Verdict::Delete,
        };
        let is_same = present == self.after.as_deref();
        match (rule, &self.before) {
            (Rule::Overwrite | Rule::Unchanged, _) if is_same => Verdict::Same,
            (Rule::Overwrite, _) => after(),
            (Rule::Unchanged | Rule::Add, AtFork::Unknown) => {
                Verdict::Left("what it was at the fork is not in the log any more")
            }
            (Rule::Unchanged, AtFork::Was(before)) => match present == before.as_deref() {
                true => after(),
                false => Verdict::Left("it was changed since"),
            },
            (Rule::Add, AtFork::Was(_)) => match (self.units(), present.and_then(number)) {
                (Some(0), _) => Verdict::Same,
                (Some(units), Some(now)) => match u64::try_from(now + units) {
                    Ok(sum) => Verdict::Set(sum.to_le_bytes().to_vec()),
                    Err(_) => Verdict::Left("the sum is no number of 8 bytes"),
                },
                _ => Verdict::Left("it is no number of 8 bytes before, behind and now"),
            },
        }
    }
}

/// Unsigned, as a counter is.
fn number(value: &[u8]) -> Option<i128> {
    let bytes: [u8; 8] = value.try_into().ok()?;
    Some(i128::from(u64::from_le_bytes(bytes)))
}

/// Why what was lost cannot be told.
#[derive(Debug)]
pub enum ReplayError {
    /// The directory cannot be looked at.
    Directory(DirectoryError),
    /// What stands in it, or what the system said.
    Unreadable(String),
}

impl std::fmt::Display for ReplayError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ReplayError::Directory(error) => error.fmt(f),
            ReplayError::Unreadable(text) => f.write_str(text),
        }
    }
}

/// What each file of a stopped node's lostfound did, key by key. Reads all of its log.
///
/// # Errors
/// [`ReplayError`].
pub fn read_lost(data: &Path) -> Result<Vec<(KeptFile, Vec<Lost>)>, ReplayError> {
    let unreadable = |error: &dyn std::fmt::Display| {
        ReplayError::Unreadable(format!("{}: {error}", data.display()))
    };
    let directory = Directory::inspect(data).map_err(ReplayError::Directory)?;
    let files = read_lostfound(data).map_err(|error| unreadable(&error))?;
    let mut tails: Vec<Tail> = files.iter().map(Tail::new).collect();
    let identity = directory.identity();
    let layout = identity
        .layout()
        .ok_or_else(|| unreadable(&"IDENTITY tells of more shards than any node has"))?;
    let owner = Owner {
        cluster_id: identity.cluster_id,
        node_id: identity.node_id,
    };
    // Of each log, the segment that comes next: where one is missing, what stood in it is.
    let mut next: BTreeMap<u64, u64> = BTreeMap::new();
    let mut is_whole = layout.inherited.is_empty();
    let mut source = directory.segments().reader();
    let report = inspect_laid_out(
        &mut source,
        Some(owner),
        &layout,
        &mut |event| match event {
            Event::Segment(segment) => {
                let wanted = next.entry(segment.header.log_id).or_insert(1);
                is_whole &= *wanted == segment.header.sequence;
                *wanted = segment.header.sequence + 1;
            }
            Event::Part(part, _) => {
                let version = (part.epoch(), part.sequence());
                let value = (part.kind() == PartKind::Put).then(|| part.value());
                for tail in &mut tails {
                    tail.note(part.key(), version, value);
                }
            }
            Event::Frame(..) | Event::Ahead(_) => {}
        },
    );
    if let Some(damage) = report.damage.first() {
        return Err(unreadable(damage));
    }
    let tails = tails.into_iter().map(|tail| tail.end(is_whole));
    Ok(files.into_iter().zip(tails).collect())
}

/// A tail as its file has it, and what the log tells of its keys.
struct Tail {
    /// The first version of it in each partition.
    from: BTreeMap<u16, (u32, u64)>,
    keys: BTreeMap<Vec<u8>, Changed>,
}

struct Changed {
    partition: u16,
    records: usize,
    last: KeptChange,
    /// The newest that the log has before the tail.
    before: Option<Before>,
}

struct Before {
    version: (u32, u64),
    value: Option<Vec<u8>>,
}

impl Tail {
    fn new(file: &KeptFile) -> Tail {
        let mut from: BTreeMap<u16, (u32, u64)> = BTreeMap::new();
        let mut keys: BTreeMap<Vec<u8>, Changed> = BTreeMap::new();
        // They come in the order of partitions and versions.
        for change in file.users() {
            from.entry(change.partition).or_insert(change.version);
            let changed = keys.entry(change.key.clone()).or_insert_with(|| Changed {
                partition: change.partition,
                records: 0,
                last: change.clone(),
                before: None,
            });
            changed.records += 1;
            changed.last = change.clone();
        }
        Tail { from, keys }
    }

    fn note(&mut self, key: &[u8], version: (u32, u64), value: Option<&[u8]>) {
        let Some(changed) = self.keys.get_mut(key) else {
            return;
        };
        let is_newer = changed
            .before
            .as_ref()
            .is_none_or(|it| it.version < version);
        if version < self.from[&changed.partition] && is_newer {
            let value = value.map(<[u8]>::to_vec);
            changed.before = Some(Before { version, value });
        }
    }

    fn end(self, is_whole: bool) -> Vec<Lost> {
        let lost = self.keys.into_iter().map(|(key, changed)| Lost {
            key,
            records: changed.records,
            before: match is_whole {
                true => AtFork::Was(changed.before.and_then(|before| before.value)),
                false => AtFork::Unknown,
            },
            after: changed.last.value,
            expiry_ms: changed.last.expiry_ms,
        });
        lost.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(before: AtFork, after: Option<&[u8]>) -> Lost {
        Lost {
            key: b"key".to_vec(),
            records: 2,
            before,
            after: after.map(<[u8]>::to_vec),
            expiry_ms: None,
        }
    }

    fn was(value: Option<&[u8]>) -> AtFork {
        AtFork::Was(value.map(<[u8]>::to_vec))
    }

    #[test]
    fn what_was_changed_since_is_left_unless_it_is_to_be_overwritten() {
        let set = |value: &[u8]| Verdict::Set(value.to_vec());
        let changed = lost(was(Some(b"old")), Some(b"new"));
        assert_eq!(changed.judge(Rule::Unchanged, Some(b"old")), set(b"new"));
        assert_eq!(changed.judge(Rule::Unchanged, Some(b"new")), Verdict::Same);
        for present in [None, Some(&b"other"[..])] {
            let verdict = changed.judge(Rule::Unchanged, present);
            assert!(matches!(verdict, Verdict::Left(_)), "{verdict:?}");
            assert_eq!(changed.judge(Rule::Overwrite, present), set(b"new"));
        }
        let made = lost(was(None), Some(b"new"));
        assert_eq!(made.judge(Rule::Unchanged, None), set(b"new"));
        let deleted = lost(was(Some(b"old")), None);
        assert_eq!(
            deleted.judge(Rule::Unchanged, Some(b"old")),
            Verdict::Delete
        );
        assert_eq!(deleted.judge(Rule::Overwrite, None), Verdict::Same);
        let unknown = lost(AtFork::Unknown, Some(b"new"));
        let verdict = unknown.judge(Rule::Unchanged, None);
        assert!(matches!(verdict, Verdict::Left(_)), "{verdict:?}");
    }

    #[test]
    fn of_a_counter_the_difference_is_added_to_what_is_there_now() {
        let bytes = |number: u64| number.to_le_bytes();
        let sold = lost(was(Some(&bytes(100))), Some(&bytes(90)));
        assert_eq!(sold.units(), Some(-10));
        // As many were sold elsewhere since.
        assert_eq!(
            sold.judge(Rule::Add, Some(&bytes(90))),
            Verdict::Set(bytes(80).to_vec())
        );
        for present in [None, Some(&bytes(9)[..]), Some(&b"word"[..])] {
            let verdict = sold.judge(Rule::Add, present);
            assert!(matches!(verdict, Verdict::Left(_)), "{verdict:?}");
        }
        let unknown = lost(AtFork::Unknown, Some(&bytes(90)));
        assert_eq!(unknown.units(), None);
        let verdict = unknown.judge(Rule::Add, Some(&bytes(100)));
        assert!(matches!(verdict, Verdict::Left(_)), "{verdict:?}");
    }
}
