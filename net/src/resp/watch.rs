//! WATCH: keys are read, and what they were goes with EXEC to the shard that judges it.

use crate::batch::{read_u32, read_u64};
use crate::request::{BatchRequest, MemberRead, Wanted};
use crate::slot::slot_of;
use crate::status::Status;
use crate::version::Version;

use super::answer::{self, ItemAnswer};
use super::reply::{Protocol, Replies};

/// A read that the node alone answers which writes the key, and that says the newest version of
/// the partition: what is asked of a key that was missing.
const AS_IT_IS_NOW: MemberRead = MemberRead {
    staleness_us_max: 0,
    version_min: Version {
        epoch: 0,
        sequence: 0,
    },
};

/// Keys that are read at once: however long they are, the smallest frame has room for them.
const AT_ONCE: usize = 8;

/// A key that WATCH named, and what it was then.
#[derive(Clone, Debug)]
pub(super) struct Watched {
    pub(super) key: Vec<u8>,
    pub(super) seen: Seen,
}

/// What a watched key was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// It had this version.
    Version(Version),
    /// It had no value, and this was the newest version of its partition.
    Absent(Version),
}

impl Seen {
    /// Bytes of it in an item.
    pub(super) const BYTES: usize = 13;

    /// As an item of EXEC has it: 1 of a key that was missing, 0 of another one, and the version.
    pub(super) fn to_bytes(self) -> [u8; Seen::BYTES] {
        let (kind, version) = match self {
            Seen::Version(version) => (0, version),
            Seen::Absent(newest) => (1, newest),
        };
        let mut bytes = [kind; Seen::BYTES];
        bytes[1..5].copy_from_slice(&version.epoch.to_le_bytes());
        bytes[5..].copy_from_slice(&version.sequence.to_le_bytes());
        bytes
    }

    /// The same from its bytes.
    pub(super) fn read(bytes: &[u8]) -> Option<Seen> {
        let bytes: &[u8; Seen::BYTES] = bytes.try_into().ok()?;
        let version = Version {
            epoch: read_u32(bytes, 1),
            sequence: read_u64(bytes, 5),
        };
        match bytes[0] {
            0 => Some(Seen::Version(version)),
            1 => Some(Seen::Absent(version)),
            _ => None,
        }
    }
}

impl Watched {
    /// Bytes that it takes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Watched>() + self.key.capacity()
    }
}

/// A WATCH under way.
#[derive(Debug)]
pub(super) struct Watching {
    /// The number of its first item.
    first_item: u64,
    keys: Vec<Watched>,
    /// Reads that are not sent, or not answered.
    missing: usize,
    /// How many are sent.
    sent: usize,
    /// The error of a read.
    reply: Vec<u8>,
}

impl Watching {
    /// A WATCH of these keys.
    pub(super) fn new<'a>(keys: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut all: Vec<Watched> = Vec::new();
        for key in keys {
            if all.iter().all(|other| other.key != key) {
                let seen = Seen::Absent(Version::default());
                let key = key.to_vec();
                all.push(Watched { key, seen });
            }
        }
        Watching {
            first_item: 0,
            missing: all.len(),
            keys: all,
            sent: 0,
            reply: Vec::new(),
        }
    }

    /// How many items are to be sent now.
    pub(super) fn items_to_send(&self) -> usize {
        (self.keys.len() - self.sent).min(AT_ONCE)
    }

    /// Adds the reads that are to be sent now. The first one gets the number `first_item`; those
    /// of all parts follow each other.
    pub(super) fn send(&mut self, first_item: u64, batch: &mut BatchRequest, out: &mut Vec<u8>) {
        if self.sent == 0 {
            self.first_item = first_item;
        }
        let (from, count) = (self.sent, self.items_to_send());
        self.sent += count;
        for watched in &self.keys[from..self.sent] {
            batch.get_of_member(out, &watched.key, Wanted::Expiry, AS_IT_IS_NOW);
        }
    }

    /// Takes the answer to one of its reads.
    pub(super) fn answered(&mut self, item: u64, answer: ItemAnswer<'_>, protocol: Protocol) {
        let (reply, number) = (answer.item, item.wrapping_sub(self.first_item));
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        let Some(watched) = self.keys.get_mut(number) else {
            return;
        };
        self.missing -= 1;
        let newest = reply.standing.map(|standing| standing.through);
        match reply.head.status {
            Status::Ok => watched.seen = Seen::Version(reply.head.version),
            Status::NotFound => watched.seen = Seen::Absent(newest.unwrap_or_default()),
            _ if self.reply.is_empty() => {
                let slot = slot_of(&watched.key);
                let replies = &mut Replies::new(&mut self.reply, protocol);
                answer::failed(answer, slot, replies);
            }
            _ => {}
        }
    }

    /// Its reply and what is watched from now on, when all is done.
    pub(super) fn outcome(&mut self, protocol: Protocol) -> Option<(Vec<u8>, Vec<Watched>)> {
        if self.missing > 0 {
            return None;
        }
        if self.reply.is_empty() {
            Replies::new(&mut self.reply, protocol).simple("OK");
            let keys = std::mem::take(&mut self.keys);
            return Some((std::mem::take(&mut self.reply), keys));
        }
        Some((std::mem::take(&mut self.reply), Vec::new()))
    }
}
