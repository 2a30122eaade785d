//! What the shards of a node say to each other of a change over several shards.

use penstock_net::request::Version;
use penstock_net::status::Status;
use penstock_storage::record::{KindedValue, ValueKind};
use penstock_storage::redo::{Left, Outcome, entry_bytes};
use penstock_storage::store::Writer;
use penstock_storage::version::Version as Stored;

/// Messages from one shard to another, in their order.
#[derive(Clone, Debug)]
pub struct JointMail {
    pub(crate) from: u16,
    pub(crate) messages: Vec<Message>,
}

impl JointMail {
    pub(crate) fn new(from: u16, message: Message) -> Self {
        JointMail {
            from,
            messages: vec![message],
        }
    }
}

/// One message. The number is the name of a change at the shard that leads it.
#[derive(Clone, Debug)]
pub(crate) enum Message {
    /// The leader wants these keys.
    Claim(u64, Vec<ClaimedKey>),
    /// The slots of the keys are held; this is what the keys are.
    Granted(u64, Vec<KeyCopy>),
    /// Nothing can be had of this shard. The claim stays until it is released.
    Refused(u64, Status, String),
    /// There is no room for the part now. The claim stays until it is released.
    LacksRoom(u64),
    /// A script of this connection has read these keys of the shard, whose slots are held. Sent
    /// only where somebody wants to know, and before they are given back.
    Read(Writer, Vec<ReadKey>),
    /// This is what will be left of keys of the shard, as this connection has asked.
    Prepare(u64, Writer, Vec<LeftKey>),
    /// Room for it is kept.
    Ready(u64),
    /// It is decided.
    Decided(u64),
    /// A start has found that this was decided.
    Redo(u64, Vec<LeftKey>),
    /// The part is durable.
    Applied(u64),
    /// The change is over, done or not.
    Release(u64),
    /// A start has finished all that its shard had decided.
    Resumed,
}

/// A key that a change uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClaimedKey {
    pub(crate) key: Box<[u8]>,
    /// It was watched when it was missing: has it changed since then?
    pub(crate) since: Option<Version>,
}

/// A key that a script has read, and when its value expires, in unix milliseconds.
pub(crate) type ReadKey = (Box<[u8]>, Option<u64>);

/// A key as it was when its slot was claimed.
#[derive(Clone, Debug)]
pub(crate) struct KeyCopy {
    pub(crate) key: Box<[u8]>,
    pub(crate) value: Option<CopiedValue>,
    /// It may have changed since it was watched.
    pub(crate) may_have_changed: bool,
    /// The version that the index has of it, also if it has expired.
    pub(crate) seen: Option<Stored>,
    /// The lifetime that its keyspace gives a value that begins anew, in milliseconds; 0 is none.
    pub(crate) ttl_ms: u64,
}

/// The value of a key.
#[derive(Clone, Debug)]
pub(crate) struct CopiedValue {
    pub(crate) bytes: Box<[u8]>,
    pub(crate) kind: ValueKind,
    pub(crate) version: Version,
    pub(crate) expiry_ms: Option<u64>,
    pub(crate) is_armed: bool,
}

/// What a change leaves of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeftKey {
    pub(crate) key: Box<[u8]>,
    /// Its version before.
    pub(crate) seen: Option<Stored>,
    pub(crate) left: Option<LeftValue>,
}

/// The value that is left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeftValue {
    pub(crate) bytes: Box<[u8]>,
    pub(crate) kind: ValueKind,
    pub(crate) expiry_ms: Option<u64>,
    pub(crate) keeps_effects: bool,
}

impl LeftValue {
    pub(crate) fn kinded_value(&self) -> KindedValue<'_> {
        KindedValue {
            kind: self.kind,
            bytes: &self.bytes,
        }
    }
}

/// What a key takes beside its bytes, about.
const KEY_BYTES: usize = 96;

impl ClaimedKey {
    pub(crate) fn bytes(&self) -> usize {
        KEY_BYTES + self.key.len()
    }
}

impl KeyCopy {
    pub(crate) fn bytes(&self) -> usize {
        let value = self.value.as_ref();
        KEY_BYTES + self.key.len() + value.map_or(0, |value| value.bytes.len())
    }
}

impl LeftKey {
    pub(crate) fn of(outcome: &Outcome<'_>) -> Self {
        LeftKey {
            key: outcome.key.into(),
            seen: outcome.seen,
            left: outcome.left.map(|left| LeftValue {
                bytes: left.value.bytes.into(),
                kind: left.value.kind,
                expiry_ms: left.expiry_ms,
                keeps_effects: left.keeps_effects,
            }),
        }
    }

    pub(crate) fn outcome(&self) -> Outcome<'_> {
        Outcome {
            key: &self.key,
            seen: self.seen,
            left: self.left.as_ref().map(|left| Left {
                value: left.kinded_value(),
                expiry_ms: left.expiry_ms,
                keeps_effects: left.keeps_effects,
            }),
        }
    }

    pub(crate) fn value_bytes(&self) -> usize {
        self.left.as_ref().map_or(0, |left| left.bytes.len())
    }

    /// Bytes of it in a redo record.
    pub(crate) fn redo_bytes(&self) -> usize {
        entry_bytes(self.key.len(), self.value_bytes())
    }

    pub(crate) fn bytes(&self) -> usize {
        KEY_BYTES + self.key.len() + self.value_bytes()
    }
}
