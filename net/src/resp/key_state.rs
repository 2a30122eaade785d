//! A key within a transaction: what its commands see of it, and what the APPLY of the commit says.
//!
//! One rule decides what a write leaves: **an edit of the value keeps the expiry and what runs
//! then; a put keeps neither.** A key that begins anew has the lifetime of its keyspace, unless the
//! transaction says another one. So an edit is REPLACE, and a put is PUT.

use crate::apply::{Action, ApplyInstruction, Operand};
use crate::version::Version;

use super::request::Until;

/// When a key expires, as far as a transaction knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Expires {
    #[default]
    Never,
    Until(UntilMs),
}

/// A time, or a lifetime whose begin is not known yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UntilMs {
    At(u64),
    In(u64),
}

impl From<Until> for Expires {
    fn from(until: Until) -> Self {
        Expires::Until(match until {
            Until::At(ms) => UntilMs::At(ms),
            Until::In(ms) => UntilMs::In(ms),
        })
    }
}

impl Expires {
    /// As a unix time; the greatest one for never.
    pub(super) fn at_ms(self, now_ms: u64) -> u64 {
        match self {
            Expires::Never => u64::MAX,
            Expires::Until(UntilMs::At(ms)) => ms,
            Expires::Until(UntilMs::In(ms)) => now_ms.saturating_add(ms),
        }
    }

    fn operand(self) -> Operand {
        match self {
            Expires::Never => Operand::Immediate(0),
            Expires::Until(UntilMs::At(ms)) => Operand::Immediate(ms),
            Expires::Until(UntilMs::In(ms)) => Operand::Now {
                plus_ms: i64::try_from(ms).unwrap_or(i64::MAX),
            },
        }
    }
}

/// What a transaction leaves of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyLeft<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// Its value; `None` if it is deleted.
    pub value: Option<&'a [u8]>,
    /// The value is one with members.
    pub has_members: bool,
    /// When it expires.
    pub expiry: ExpiryLeft,
    /// The effects that its expiry runs stay as they are.
    pub keeps_effects: bool,
}

/// When a key expires that a transaction has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpiryLeft {
    /// Never.
    Never,
    /// At this time, in unix milliseconds.
    At(u64),
    /// When its keyspace says.
    OfKeyspace,
}

/// Where the value of a key comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Life {
    /// The key is as it was read, or its value was edited.
    #[default]
    Kept,
    /// The transaction has put a value.
    Anew,
}

/// What a read tells of a key that has a value.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadKey<'a> {
    pub(super) version: Version,
    pub(super) value: &'a [u8],
    /// The value is one with members.
    pub(super) has_members: bool,
    pub(super) expires: Expires,
    /// Effects run when it expires.
    pub(super) is_armed: bool,
}

/// A value and what it is, on the way from one key to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WholeValue {
    bytes: Vec<u8>,
    has_members: bool,
}

/// A key within a transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KeyState {
    name: Vec<u8>,
    /// Its version as it was read; none if it had no value.
    version: Option<Version>,
    /// Its value now, also of a key that has ended.
    value: Option<Vec<u8>>,
    /// The value is one with members.
    has_members: bool,
    expires: Expires,
    life: Life,
    /// The value is to be written.
    is_written: bool,
    /// The expiry is to be written.
    is_moved: bool,
    /// The expiry that was read went in between, and what was to run then.
    is_disarmed: bool,
    /// Effects run when it expires.
    is_armed: bool,
    /// It has an expiry that is past: nobody sees the value any more.
    has_ended: bool,
    /// A script has read it by a command that only reads.
    is_read_by_script: bool,
}

impl KeyState {
    pub(super) fn new(name: &[u8]) -> Self {
        KeyState {
            name: name.to_vec(),
            ..KeyState::default()
        }
    }

    pub(super) fn name(&self) -> &[u8] {
        &self.name
    }

    /// A script reads it by a command that only reads.
    pub(super) fn note_script_read(&mut self) {
        self.is_read_by_script = true;
    }

    /// Whether a script has.
    pub(super) fn is_read_by_script(&self) -> bool {
        self.is_read_by_script
    }

    /// Its version as it was read; none if it had no value.
    pub(super) fn version(&self) -> Option<Version> {
        self.version
    }

    /// Takes in what a read has told; nothing of a key without a value.
    pub(super) fn learn(&mut self, read: Option<ReadKey<'_>>) {
        let name = std::mem::take(&mut self.name);
        *self = KeyState {
            name,
            version: read.map(|read| read.version),
            value: read.map(|read| read.value.to_vec()),
            has_members: read.is_some_and(|read| read.has_members),
            expires: read.map_or(Expires::Never, |read| read.expires),
            is_armed: read.is_some_and(|read| read.is_armed),
            ..KeyState::default()
        };
    }

    /// Whether it has a value.
    pub(super) fn is_there(&self) -> bool {
        self.value.is_some() && !self.has_ended
    }

    /// Its value, if that is a plain one.
    pub(super) fn plain(&self) -> Option<&[u8]> {
        let value = self.value.as_deref().filter(|_| !self.has_members);
        value.filter(|_| !self.has_ended)
    }

    /// Its value, if that is one with members.
    pub(super) fn members(&self) -> Option<&[u8]> {
        let value = self.value.as_deref().filter(|_| self.has_members);
        value.filter(|_| !self.has_ended)
    }

    /// Its value and what that is, for another key.
    pub(super) fn whole(&self) -> Option<WholeValue> {
        self.is_there().then(|| WholeValue {
            bytes: self.value.clone().expect("it is there"),
            has_members: self.has_members,
        })
    }

    /// Bytes of memory that its value takes.
    pub(super) fn value_bytes(&self) -> usize {
        self.value.as_ref().map_or(0, Vec::capacity)
    }

    /// When it expires; never if it has no value.
    pub(super) fn expires(&self) -> Expires {
        match self.is_there() {
            true => self.expires,
            false => Expires::Never,
        }
    }

    /// Whether effects run when it expires.
    pub(super) fn is_armed(&self) -> bool {
        self.is_armed && self.is_there()
    }

    /// The expiry that another key gets with its value. `None` if it is not known yet: the keyspace
    /// gives the value its lifetime when all is done.
    pub(super) fn carried(&self) -> Option<Expires> {
        (self.life == Life::Kept || self.is_moved).then_some(self.expires)
    }

    /// Whether the APPLY has an effect on it.
    pub(super) fn is_changed(&self) -> bool {
        let is_deleted = self.value.is_none() && self.version.is_some();
        self.is_written || self.is_moved || self.is_disarmed || is_deleted
    }

    /// Begins anew with this value, whatever it has, and with this expiry if one is said.
    pub(super) fn put(&mut self, value: Vec<u8>, expires: Option<Expires>) {
        let whole = WholeValue {
            bytes: value,
            has_members: false,
        };
        self.put_whole(whole, expires);
    }

    /// The same with the value of another key.
    pub(super) fn put_whole(&mut self, value: WholeValue, expires: Option<Expires>) {
        *self = KeyState {
            name: std::mem::take(&mut self.name),
            version: self.version,
            value: Some(value.bytes),
            has_members: value.has_members,
            expires: expires.unwrap_or_default(),
            life: Life::Anew,
            is_written: true,
            is_moved: expires.is_some(),
            is_disarmed: false,
            is_armed: false,
            has_ended: false,
            is_read_by_script: self.is_read_by_script,
        };
    }

    /// Its value, which is a plain one from now on, to be edited; all else stays. Without a plain
    /// value it has no byte, and a key that is not there begins anew.
    pub(super) fn edit(&mut self) -> &mut Vec<u8> {
        if !self.is_there() {
            self.put(Vec::new(), None);
        }
        self.is_written = true;
        let value = self.value.as_mut().expect("it has one now");
        if std::mem::take(&mut self.has_members) {
            value.clear();
        }
        value
    }

    /// Gives it these members; all else stays. A key that is not there begins anew.
    pub(super) fn set_members(&mut self, value: Vec<u8>) {
        *self.edit() = value;
        self.has_members = true;
    }

    /// Gives a key that has a value this expiry.
    pub(super) fn expire(&mut self, expires: Expires) {
        let is_same = self.expires == expires;
        match self.life {
            // Alone it would be a change, too: the version is another one afterwards.
            Life::Kept if is_same => self.is_written |= expires != Expires::Never,
            Life::Kept if expires == Expires::Never => {
                self.is_disarmed = true;
                self.is_armed = false;
                self.is_written |= self.is_moved;
                self.is_moved = false;
            }
            Life::Kept => self.is_moved = true,
            // The keyspace may have given it another one.
            Life::Anew => self.is_moved = true,
        }
        self.expires = expires;
    }

    /// Takes its value away; `false` if it has none.
    pub(super) fn delete(&mut self) -> bool {
        if !self.is_there() {
            return false;
        }
        *self = KeyState {
            name: std::mem::take(&mut self.name),
            version: self.version,
            is_read_by_script: self.is_read_by_script,
            ..KeyState::default()
        };
        true
    }

    /// Ends it if its expiry is past. What runs then runs behind the commit.
    pub(super) fn settle(&mut self, now_ms: u64) {
        self.has_ended |= self.value.is_some() && self.expires.at_ms(now_ms) <= now_ms;
    }

    /// The guard of the commit: the key is as it was read.
    pub(super) fn guard(&self) -> Action {
        self.version.map_or(Action::Absent, Action::Version)
    }

    /// What the commit leaves of it, at this time, if it has an effect on it.
    pub(super) fn left(&self, now_ms: u64) -> Option<KeyLeft<'_>> {
        if !self.is_changed() {
            return None;
        }
        let expiry = match (self.life, self.expires) {
            (Life::Anew, _) if !self.is_moved => ExpiryLeft::OfKeyspace,
            (_, Expires::Never) => ExpiryLeft::Never,
            (_, expires) => ExpiryLeft::At(expires.at_ms(now_ms)),
        };
        let keeps_effects = self.life == Life::Kept
            && self.is_armed
            && !self.is_disarmed
            && self.expires != Expires::Never;
        Some(KeyLeft {
            name: &self.name,
            value: self.value.as_deref(),
            has_members: self.has_members,
            expiry,
            keeps_effects,
        })
    }

    /// How many effects the commit has on it.
    pub(super) fn effects(&self) -> usize {
        match self.value {
            None => self.version.is_some().into(),
            Some(_) => [self.is_written, self.is_disarmed, self.is_moved]
                .into_iter()
                .map(usize::from)
                .sum(),
        }
    }

    /// Adds the effects of the commit on this key, [`KeyState::effects`], and the value that they
    /// name.
    pub(super) fn write(
        &self,
        key: u8,
        instructions: &mut Vec<ApplyInstruction>,
        data: &mut Vec<u8>,
    ) {
        let mut add = |action| {
            instructions.push(ApplyInstruction {
                key,
                reason: 0,
                action,
            });
        };
        let Some(value) = &self.value else {
            if self.version.is_some() {
                add(Action::Delete);
            }
            return;
        };
        if self.is_written {
            let short = |number| u32::try_from(number).unwrap_or(u32::MAX);
            let (start, len) = (short(data.len()), short(value.len()));
            data.extend_from_slice(value);
            add(match (self.life, self.has_members) {
                (Life::Kept, false) => Action::Replace { start, len },
                (Life::Kept, true) => Action::ReplaceHead { start, len },
                (Life::Anew, false) => Action::Put { start, len },
                (Life::Anew, true) => Action::PutHead { start, len },
            });
        }
        if self.is_disarmed {
            add(Action::Expire(Expires::Never.operand()));
        }
        if self.is_moved {
            add(Action::Expire(self.expires.operand()));
        }
    }
}
