//! What a frame of a link says: one message, about one partition if it is about any.

use crate::batch::{padded, read_u16, read_u32, read_u64};
use crate::limits::KEY_BYTES_MAX;
use crate::link::fault::LinkFault;
use crate::link::handshake::{Hello, PROOF_BYTES, Proof, Welcome};

/// Partitions of a cluster.
pub const LINK_PARTITIONS: u16 = 256;
/// Epochs of a history, at most.
pub const LINK_EPOCHS_MAX: usize = 64;
/// Keys of one REWIND, at most.
pub const REWIND_KEYS_MAX: usize = 256;
/// Bytes of the text of a refusal, at most.
pub const REFUSED_TEXT_BYTES_MAX: usize = 512;

/// A place in the history of a partition; compared by epoch, then sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The epoch.
    pub epoch: u32,
    /// The sequence; 0 is before the first record.
    pub sequence: u64,
}

/// Why a link is ended by the side that says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum RefusalCode {
    /// No version of the link in common.
    LinkVersion = 1,
    /// Records of another format.
    LogFormat = 2,
    /// A node of another cluster.
    Cluster = 3,
    /// Not the node or shard that was wanted.
    Destination = 4,
    /// The same node at both ends.
    Itself = 5,
    /// The secret of the cluster is not known.
    Credentials = 6,
    /// A start of the node that is older than one that was seen.
    Incarnation = 7,
    /// Records that may be larger than what is taken.
    RecordBytes = 8,
    /// Bytes that do not check.
    Fault = 9,
    /// A message that has no place here.
    Order = 10,
    /// Records that do not check, or not the next ones of their partition.
    Records = 11,
    /// The histories of a partition have nothing in common.
    Unrelated = 12,
    /// A node that the cluster's file does not name.
    NotNamed = 13,
}

impl RefusalCode {
    /// Every code, ascending from 1.
    pub const ALL: [RefusalCode; 13] = [
        RefusalCode::LinkVersion,
        RefusalCode::LogFormat,
        RefusalCode::Cluster,
        RefusalCode::Destination,
        RefusalCode::Itself,
        RefusalCode::Credentials,
        RefusalCode::Incarnation,
        RefusalCode::RecordBytes,
        RefusalCode::Fault,
        RefusalCode::Order,
        RefusalCode::Records,
        RefusalCode::Unrelated,
        RefusalCode::NotNamed,
    ];

    /// For counters and people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            RefusalCode::LinkVersion => "link_version",
            RefusalCode::LogFormat => "log_format",
            RefusalCode::Cluster => "cluster",
            RefusalCode::Destination => "destination",
            RefusalCode::Itself => "itself",
            RefusalCode::Credentials => "credentials",
            RefusalCode::Incarnation => "incarnation",
            RefusalCode::RecordBytes => "record_bytes",
            RefusalCode::Fault => "fault",
            RefusalCode::Order => "order",
            RefusalCode::Records => "records",
            RefusalCode::Unrelated => "unrelated",
            RefusalCode::NotNamed => "not_named",
        }
    }

    fn from_code(code: u16) -> Option<Self> {
        let before = usize::from(code).checked_sub(1)?;
        RefusalCode::ALL.get(before).copied()
    }
}

/// The last frame of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused<'a> {
    /// Why.
    pub code: RefusalCode,
    /// For people.
    pub text: &'a str,
}

/// What a member is to its partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Membership {
    /// Waited for at level `replica`, and may be promoted.
    Sync = 1,
    /// Neither.
    Learner = 2,
}

/// By the source: it writes this partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// The partition.
    pub partition: u16,
    /// What the destination is to it.
    pub membership: Membership,
    /// The epoch in which it writes.
    pub epoch: u32,
}

/// What a destination says to an OPEN, or later, when another one took its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Answer {
    /// The epoch is promised.
    Accepted = 1,
    /// A higher one was promised: nothing of this partition is taken from this link.
    Rejected = 2,
}

/// What a destination had begun and not finished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum UnderWay {
    /// Nothing: it is complete up to the highest version that it holds.
    #[default]
    Nothing = 0,
    /// A scan.
    Scan = 1,
    /// The keys of a diverged tail are to be written anew.
    Rewind = 2,
}

/// By the destination: where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State<'a> {
    /// The partition.
    pub partition: u16,
    /// To the epoch of OPEN.
    pub answer: Answer,
    /// What it has to finish.
    pub under_way: UnderWay,
    /// The epoch that is promised.
    pub promised: u32,
    /// It is complete up to here.
    pub complete: Position,
    /// The history up to there.
    pub epochs: Epochs<'a>,
}

/// How a partition goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    /// Every sequence behind the position.
    Dense = 1,
    /// What counts, in any order, until JOIN.
    Scan = 2,
}

/// By the source: from where it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begin<'a> {
    /// The partition.
    pub partition: u16,
    /// How.
    pub mode: Mode,
    /// The epoch of OPEN.
    pub epoch: u32,
    /// The last position that both have in common, durable at the source. What the destination has
    /// behind it and is not of the history has diverged.
    pub from: Position,
    /// The source's history.
    pub epochs: Epochs<'a>,
}

/// By the source: records as they stand in its log, of any partitions that have begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Records<'a> {
    /// How many; at least one.
    pub count: u32,
    /// Their parts, without gaps. Not looked at here.
    pub bytes: &'a [u8],
}

/// By the source: the destination has caught up and is complete up to here when it has applied this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Join {
    /// The partition.
    pub partition: u16,
    /// The last record before.
    pub at: Position,
}

/// By the destination: keys of its diverged tail, to be written anew by the source. One is under way
/// at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rewind<'a> {
    /// The partition.
    pub partition: u16,
    /// No more follow.
    pub is_last: bool,
    /// How many keys.
    pub count: u16,
    keys: &'a [u8],
}

/// By the source: the keys of one REWIND were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rewound {
    /// The partition.
    pub partition: u16,
    /// The last of their records.
    pub at: Position,
}

/// By a source that drains: the destination has all, and is to begin this epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handover {
    /// The partition.
    pub partition: u16,
    /// Of the destination.
    pub epoch: u32,
    /// The last record of the source.
    pub at: Position,
}

/// A history: which epochs wrote, and the first sequence of each, ascending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Epochs<'a> {
    bytes: &'a [u8],
}

const EPOCH_BYTES: usize = 16;

impl<'a> Epochs<'a> {
    /// Encodes a history into `into`.
    ///
    /// # Panics
    /// If it has more than [`LINK_EPOCHS_MAX`] entries.
    pub fn write(
        into: &'a mut Vec<u8>,
        entries: impl IntoIterator<Item = (u32, u64)>,
    ) -> Epochs<'a> {
        into.clear();
        for (epoch, first) in entries {
            into.extend_from_slice(&epoch.to_le_bytes());
            into.extend_from_slice(&[0; 4]);
            into.extend_from_slice(&first.to_le_bytes());
        }
        assert!(
            into.len() <= LINK_EPOCHS_MAX * EPOCH_BYTES,
            "histories are bounded"
        );
        Epochs { bytes: into }
    }

    fn read(count: u32, bytes: &'a [u8], kind: &'static str) -> Result<Self, LinkFault> {
        if count as usize > LINK_EPOCHS_MAX {
            return Err(LinkFault::Field {
                name: "the number of epochs of a history",
                found: count.into(),
                max: LINK_EPOCHS_MAX as u64,
            });
        }
        let needed = count as usize * EPOCH_BYTES;
        if bytes.len() != needed {
            return Err(LinkFault::BodyLength {
                kind,
                len: bytes.len(),
                needed,
            });
        }
        let mut before = (0, 0);
        for (entry, bytes) in bytes.chunks_exact(EPOCH_BYTES).enumerate() {
            let (epoch, first) = (read_u32(bytes, 0), read_u64(bytes, 8));
            if read_u32(bytes, 4) != 0 {
                return Err(LinkFault::Reserved {
                    name: "the word behind the epoch in a history",
                });
            }
            // An epoch begins with a record of its own, so none is empty.
            if epoch <= before.0 || first <= before.1 {
                return Err(LinkFault::HistoryOrder { entry });
            }
            before = (epoch, first);
        }
        Ok(Epochs { bytes })
    }

    /// Epochs and their first sequences.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u64)> + use<'a> {
        let entry = |bytes: &'a [u8]| (read_u32(bytes, 0), read_u64(bytes, 8));
        self.bytes.chunks_exact(EPOCH_BYTES).map(entry)
    }

    fn count(&self) -> u32 {
        u32::try_from(self.bytes.len() / EPOCH_BYTES).expect("at most 64")
    }
}

impl<'a> Rewind<'a> {
    /// Encodes keys into `into`.
    ///
    /// # Panics
    /// If there are more than [`REWIND_KEYS_MAX`], or one is no key.
    pub fn write(
        into: &'a mut Vec<u8>,
        partition: u16,
        is_last: bool,
        keys: &[&[u8]],
    ) -> Rewind<'a> {
        assert!(keys.len() <= REWIND_KEYS_MAX, "{} keys", keys.len());
        into.clear();
        for key in keys {
            assert!((1..=KEY_BYTES_MAX).contains(&key.len()), "no key");
            let len = u16::try_from(key.len()).expect("checked above");
            into.extend_from_slice(&len.to_le_bytes());
            into.extend_from_slice(&[0; 6]);
            into.extend_from_slice(key);
            into.resize(into.len().next_multiple_of(8), 0);
        }
        Rewind {
            partition,
            is_last,
            count: u16::try_from(keys.len()).expect("checked above"),
            keys: into,
        }
    }

    fn read(partition: u16, is_last: bool, count: u16, keys: &'a [u8]) -> Result<Self, LinkFault> {
        let mut rest = keys;
        for _ in 0..count {
            rest = next_key(rest)?.1;
        }
        match rest.is_empty() {
            true => Ok(Rewind {
                partition,
                is_last,
                count,
                keys,
            }),
            false => Err(LinkFault::BodyLength {
                kind: "REWIND",
                len: keys.len(),
                needed: keys.len() - rest.len(),
            }),
        }
    }

    /// The keys.
    pub fn keys(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut rest = self.keys;
        std::iter::from_fn(move || {
            let (key, behind) = next_key(rest).ok()?;
            rest = behind;
            Some(key)
        })
    }
}

fn next_key(bytes: &[u8]) -> Result<(&[u8], &[u8]), LinkFault> {
    let length = |needed| LinkFault::BodyLength {
        kind: "REWIND",
        len: bytes.len(),
        needed,
    };
    let head = bytes.first_chunk::<8>().ok_or(length(8))?;
    let len = usize::from(read_u16(head, 0));
    if !(1..=KEY_BYTES_MAX).contains(&len) {
        return Err(LinkFault::Field {
            name: "the length of a key",
            found: len as u64,
            max: KEY_BYTES_MAX as u64,
        });
    }
    let end = 8 + padded(len);
    let padding = bytes.get(8 + len..end).ok_or(length(end))?;
    if head[2..].iter().chain(padding).any(|&byte| byte != 0) {
        return Err(LinkFault::Reserved {
            name: "what stands around a key",
        });
    }
    Ok((&bytes[8..8 + len], &bytes[end..]))
}

/// What a frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkMessage<'a> {
    /// The first frame of the source.
    Hello(Hello),
    /// The first frame of the destination.
    Welcome(Welcome),
    /// The second frame of the source: that it knows the secret.
    Proof(Proof),
    /// The last frame of either.
    Refused(Refused<'a>),
    /// Nothing but marks and time.
    Beat,
    /// See [`Open`].
    Open(Open),
    /// See [`State`].
    State(State<'a>),
    /// See [`Begin`].
    Begin(Begin<'a>),
    /// See [`Records`].
    Records(Records<'a>),
    /// See [`Join`].
    Join(Join),
    /// See [`Rewind`].
    Rewind(Rewind<'a>),
    /// See [`Rewound`].
    Rewound(Rewound),
    /// See [`Handover`].
    Handover(Handover),
}

const HELLO: u8 = 1;
const WELCOME: u8 = 2;
const PROOF: u8 = 3;
const REFUSED: u8 = 4;
const BEAT: u8 = 5;
const OPEN: u8 = 6;
const STATE: u8 = 7;
const BEGIN: u8 = 8;
/// The kind of RECORDS, whose body its sender writes in place.
pub const RECORDS: u8 = 9;
const JOIN: u8 = 10;
const REWIND: u8 = 11;
const REWOUND: u8 = 12;
const HANDOVER: u8 = 13;

const STATE_BYTES: usize = 32;
const BEGIN_BYTES: usize = 32;
/// Bytes of RECORDS before the first part.
pub const RECORDS_HEAD_BYTES: usize = 8;

/// A body of exactly so many bytes, the first of which name a partition.
fn fixed<'a, const N: usize>(
    body: &'a [u8],
    kind: &'static str,
) -> Result<(&'a [u8; N], u16), LinkFault> {
    let fixed =
        body.first_chunk::<N>()
            .filter(|_| body.len() == N)
            .ok_or(LinkFault::BodyLength {
                kind,
                len: body.len(),
                needed: N,
            })?;
    Ok((fixed, partition_at(fixed)?))
}

/// A body of at least so many bytes, the first of which name a partition, and what follows.
fn head<'a, const N: usize>(
    body: &'a [u8],
    kind: &'static str,
) -> Result<(&'a [u8; N], &'a [u8], u16), LinkFault> {
    let (head, rest) = body.split_first_chunk::<N>().ok_or(LinkFault::BodyLength {
        kind,
        len: body.len(),
        needed: N,
    })?;
    Ok((head, rest, partition_at(head)?))
}

fn partition_at(body: &[u8]) -> Result<u16, LinkFault> {
    let partition = read_u16(body, 0);
    match partition < LINK_PARTITIONS {
        true => Ok(partition),
        false => Err(LinkFault::Field {
            name: "a partition",
            found: partition.into(),
            max: u64::from(LINK_PARTITIONS) - 1,
        }),
    }
}

pub(super) fn zero(bytes: &[u8], name: &'static str) -> Result<(), LinkFault> {
    match bytes.iter().all(|&byte| byte == 0) {
        true => Ok(()),
        false => Err(LinkFault::Reserved { name }),
    }
}

/// A position of 16 bytes: epoch, a reserved word, sequence.
fn position_at(body: &[u8], at: usize) -> Result<Position, LinkFault> {
    zero(&body[at + 4..at + 8], "the word behind an epoch")?;
    Ok(Position {
        epoch: read_u32(body, at),
        sequence: read_u64(body, at + 8),
    })
}

fn put_position(out: &mut Vec<u8>, position: Position) {
    out.extend_from_slice(&position.epoch.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&position.sequence.to_le_bytes());
}

fn put_epochs(out: &mut Vec<u8>, epochs: Epochs<'_>) {
    out.extend_from_slice(&epochs.count().to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(epochs.bytes);
}

fn one_of<T>(found: u8, name: &'static str, choices: [(u8, T); 2]) -> Result<T, LinkFault> {
    let fault = LinkFault::Field {
        name,
        found: found.into(),
        max: 2,
    };
    choices
        .into_iter()
        .find_map(|(code, choice)| (code == found).then_some(choice))
        .ok_or(fault)
}

impl<'a> LinkMessage<'a> {
    /// Its name in `LINK.md`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            LinkMessage::Hello(_) => "HELLO",
            LinkMessage::Welcome(_) => "WELCOME",
            LinkMessage::Proof(_) => "PROOF",
            LinkMessage::Refused(_) => "REFUSED",
            LinkMessage::Beat => "BEAT",
            LinkMessage::Open(_) => "OPEN",
            LinkMessage::State(_) => "STATE",
            LinkMessage::Begin(_) => "BEGIN",
            LinkMessage::Records(_) => "RECORDS",
            LinkMessage::Join(_) => "JOIN",
            LinkMessage::Rewind(_) => "REWIND",
            LinkMessage::Rewound(_) => "REWOUND",
            LinkMessage::Handover(_) => "HANDOVER",
        }
    }

    /// The code of its kind.
    #[must_use]
    pub fn kind(&self) -> u8 {
        match self {
            LinkMessage::Hello(_) => HELLO,
            LinkMessage::Welcome(_) => WELCOME,
            LinkMessage::Proof(_) => PROOF,
            LinkMessage::Refused(_) => REFUSED,
            LinkMessage::Beat => BEAT,
            LinkMessage::Open(_) => OPEN,
            LinkMessage::State(_) => STATE,
            LinkMessage::Begin(_) => BEGIN,
            LinkMessage::Records(_) => RECORDS,
            LinkMessage::Join(_) => JOIN,
            LinkMessage::Rewind(_) => REWIND,
            LinkMessage::Rewound(_) => REWOUND,
            LinkMessage::Handover(_) => HANDOVER,
        }
    }

    pub(crate) fn read(kind: u8, body: &'a [u8]) -> Result<Self, LinkFault> {
        match kind {
            HELLO => Hello::read(body).map(LinkMessage::Hello),
            WELCOME => Welcome::read(body).map(LinkMessage::Welcome),
            PROOF => match body.try_into() {
                Ok(proof) => Ok(LinkMessage::Proof(proof)),
                Err(_) => Err(LinkFault::BodyLength {
                    kind: "PROOF",
                    len: body.len(),
                    needed: PROOF_BYTES,
                }),
            },
            REFUSED => read_refused(body).map(LinkMessage::Refused),
            BEAT if body.is_empty() => Ok(LinkMessage::Beat),
            BEAT => Err(LinkFault::BodyLength {
                kind: "BEAT",
                len: body.len(),
                needed: 0,
            }),
            OPEN => {
                let (body, partition) = fixed::<8>(body, "OPEN")?;
                zero(&body[3..4], "the byte behind the membership")?;
                Ok(LinkMessage::Open(Open {
                    partition,
                    membership: one_of(
                        body[2],
                        "a membership",
                        [(1, Membership::Sync), (2, Membership::Learner)],
                    )?,
                    epoch: read_u32(body, 4),
                }))
            }
            STATE => {
                let (head, rest, partition) = head::<STATE_BYTES>(body, "STATE")?;
                zero(&head[28..], "the word behind the number of epochs")?;
                Ok(LinkMessage::State(State {
                    partition,
                    answer: one_of(
                        head[2],
                        "an answer",
                        [(1, Answer::Accepted), (2, Answer::Rejected)],
                    )?,
                    under_way: match head[3] {
                        0 => UnderWay::Nothing,
                        1 => UnderWay::Scan,
                        2 => UnderWay::Rewind,
                        found => {
                            return Err(LinkFault::Field {
                                name: "what is under way",
                                found: found.into(),
                                max: 2,
                            });
                        }
                    },
                    promised: read_u32(head, 4),
                    complete: position_at(head, 8)?,
                    epochs: Epochs::read(read_u32(head, 24), rest, "the history in STATE")?,
                }))
            }
            BEGIN => {
                let (head, rest, partition) = head::<BEGIN_BYTES>(body, "BEGIN")?;
                zero(&head[3..4], "the byte behind the mode")?;
                zero(&head[28..], "the word behind the number of epochs")?;
                Ok(LinkMessage::Begin(Begin {
                    partition,
                    mode: one_of(head[2], "a mode", [(1, Mode::Dense), (2, Mode::Scan)])?,
                    epoch: read_u32(head, 4),
                    from: position_at(head, 8)?,
                    epochs: Epochs::read(read_u32(head, 24), rest, "the history in BEGIN")?,
                }))
            }
            RECORDS => read_records(body).map(LinkMessage::Records),
            JOIN => {
                let (body, partition) = fixed::<24>(body, "JOIN")?;
                zero(&body[2..8], "what stands behind the partition in JOIN")?;
                Ok(LinkMessage::Join(Join {
                    partition,
                    at: position_at(body, 8)?,
                }))
            }
            REWIND => {
                let (head, rest, partition) = head::<8>(body, "REWIND")?;
                let (count, last) = (read_u16(head, 2), read_u32(head, 4));
                let limit = |name, found: u64, max: u64| match found <= max {
                    true => Ok(()),
                    false => Err(LinkFault::Field { name, found, max }),
                };
                limit("keys", count.into(), REWIND_KEYS_MAX as u64)?;
                limit("whether it is the last", last.into(), 1)?;
                Rewind::read(partition, last == 1, count, rest).map(LinkMessage::Rewind)
            }
            REWOUND => {
                let (body, partition) = fixed::<24>(body, "REWOUND")?;
                zero(&body[2..8], "what stands behind the partition in REWOUND")?;
                Ok(LinkMessage::Rewound(Rewound {
                    partition,
                    at: position_at(body, 8)?,
                }))
            }
            HANDOVER => {
                let (body, partition) = fixed::<24>(body, "HANDOVER")?;
                zero(&body[2..4], "what stands behind the partition in HANDOVER")?;
                Ok(LinkMessage::Handover(Handover {
                    partition,
                    epoch: read_u32(body, 4),
                    at: position_at(body, 8)?,
                }))
            }
            _ => Err(LinkFault::Kind(kind)),
        }
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        match self {
            LinkMessage::Hello(hello) => out.extend_from_slice(&hello.encode()),
            LinkMessage::Welcome(welcome) => out.extend_from_slice(&welcome.encode()),
            LinkMessage::Proof(proof) => out.extend_from_slice(proof),
            LinkMessage::Refused(refused) => write_refused(out, refused),
            LinkMessage::Beat => {}
            LinkMessage::Open(open) => {
                out.extend_from_slice(&open.partition.to_le_bytes());
                out.extend_from_slice(&[open.membership as u8, 0]);
                out.extend_from_slice(&open.epoch.to_le_bytes());
            }
            LinkMessage::State(state) => {
                out.extend_from_slice(&state.partition.to_le_bytes());
                out.extend_from_slice(&[state.answer as u8, state.under_way as u8]);
                out.extend_from_slice(&state.promised.to_le_bytes());
                put_position(out, state.complete);
                put_epochs(out, state.epochs);
            }
            LinkMessage::Begin(begin) => {
                out.extend_from_slice(&begin.partition.to_le_bytes());
                out.extend_from_slice(&[begin.mode as u8, 0]);
                out.extend_from_slice(&begin.epoch.to_le_bytes());
                put_position(out, begin.from);
                put_epochs(out, begin.epochs);
            }
            LinkMessage::Records(records) => {
                out.extend_from_slice(&records_head(records.count));
                out.extend_from_slice(records.bytes);
            }
            LinkMessage::Join(join) => {
                out.extend_from_slice(&join.partition.to_le_bytes());
                out.extend_from_slice(&[0; 6]);
                put_position(out, join.at);
            }
            LinkMessage::Rewind(rewind) => {
                out.extend_from_slice(&rewind.partition.to_le_bytes());
                out.extend_from_slice(&rewind.count.to_le_bytes());
                out.extend_from_slice(&u32::from(rewind.is_last).to_le_bytes());
                out.extend_from_slice(rewind.keys);
            }
            LinkMessage::Rewound(rewound) => {
                out.extend_from_slice(&rewound.partition.to_le_bytes());
                out.extend_from_slice(&[0; 6]);
                put_position(out, rewound.at);
            }
            LinkMessage::Handover(handover) => {
                out.extend_from_slice(&handover.partition.to_le_bytes());
                out.extend_from_slice(&[0; 2]);
                out.extend_from_slice(&handover.epoch.to_le_bytes());
                put_position(out, handover.at);
            }
        }
    }
}

/// What stands before the parts of RECORDS.
#[must_use]
pub fn records_head(count: u32) -> [u8; RECORDS_HEAD_BYTES] {
    let mut head = [0; RECORDS_HEAD_BYTES];
    head[..4].copy_from_slice(&count.to_le_bytes());
    head
}

fn read_records(body: &[u8]) -> Result<Records<'_>, LinkFault> {
    let length = |needed| LinkFault::BodyLength {
        kind: "RECORDS",
        len: body.len(),
        needed,
    };
    let (head, bytes) = body
        .split_first_chunk::<RECORDS_HEAD_BYTES>()
        .ok_or(length(RECORDS_HEAD_BYTES))?;
    zero(&head[4..], "the word behind the number of records")?;
    let count = read_u32(head, 0);
    // A part is not shorter than 48 bytes: 40 of header, and a key.
    let max = (bytes.len() / 48) as u64;
    if count == 0 || u64::from(count) > max {
        return Err(LinkFault::Field {
            name: "the number of records",
            found: count.into(),
            max,
        });
    }
    Ok(Records { count, bytes })
}

fn read_refused(body: &[u8]) -> Result<Refused<'_>, LinkFault> {
    let length = |needed| LinkFault::BodyLength {
        kind: "REFUSED",
        len: body.len(),
        needed,
    };
    let (head, rest) = body.split_first_chunk::<8>().ok_or(length(8))?;
    let (code, text_bytes) = (read_u16(head, 0), read_u32(head, 4));
    zero(&head[2..4], "what stands behind the code")?;
    let code = RefusalCode::from_code(code).ok_or(LinkFault::Field {
        name: "the code of a refusal",
        found: code.into(),
        max: 13,
    })?;
    if text_bytes as usize > REFUSED_TEXT_BYTES_MAX {
        return Err(LinkFault::Field {
            name: "the length of a refusal's text",
            found: text_bytes.into(),
            max: REFUSED_TEXT_BYTES_MAX as u64,
        });
    }
    let text_bytes = text_bytes as usize;
    if rest.len() != padded(text_bytes) {
        return Err(length(8 + padded(text_bytes)));
    }
    zero(&rest[text_bytes..], "what stands behind the text")?;
    let text = std::str::from_utf8(&rest[..text_bytes]).map_err(|_| LinkFault::Text)?;
    Ok(Refused { code, text })
}

fn write_refused(out: &mut Vec<u8>, refused: &Refused<'_>) {
    let end = refused.text.floor_char_boundary(REFUSED_TEXT_BYTES_MAX);
    let text = &refused.text.as_bytes()[..end];
    out.extend_from_slice(&(refused.code as u16).to_le_bytes());
    out.extend_from_slice(&[0; 2]);
    let len = u32::try_from(text.len()).expect("cut above");
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(text);
    out.resize(out.len() + padded(text.len()) - text.len(), 0);
}
