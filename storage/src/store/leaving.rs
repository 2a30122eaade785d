//! Changes of keys of several shards: room for a part is kept before it is decided, and each of its
//! keys is left with what was decided.

use crate::format::record::{ValueKind, part_bytes};
use crate::format::redo::Outcome;
use crate::format::system_key::token_time_ms;
use crate::log::room::{Purpose, Room};
use crate::memory::cache::cells::cell_bytes;
use crate::memory::keys::Found;
use crate::store::commit::{ChangeKey, NoRoom};
use crate::store::data::Data;
use crate::store::owed::Owed;
use crate::store::store::Store;
use crate::types::io::Blocks;
use crate::types::key_home::KeyHome;
use crate::types::place::{Lsn, Place};

impl Data {
    /// What is owed.
    #[must_use]
    pub fn owed(&self) -> &Owed {
        &self.owed
    }

    /// Finds the redo records in the index, once a start has filled it. Each key of `redo_keys` is
    /// that of one. Returns those that are there.
    pub fn find_redo<K: AsRef<[u8]>>(
        &mut self,
        redo_keys: impl Iterator<Item = K>,
        home_of: &impl Fn(&[u8]) -> KeyHome,
    ) -> Vec<K> {
        let mut found = Vec::new();
        for key in redo_keys {
            let home = home_of(key.as_ref());
            if self.keys.own_key(home, key.as_ref()).is_some() {
                self.owed.records.push(home);
                found.push(key);
            }
        }
        found
    }

    /// A redo record of this slot and hash was logged.
    pub fn redo_begins(&mut self, home: KeyHome) {
        self.owed.records.push(home);
    }

    /// The end of a redo record of this slot and hash is durable.
    pub fn redo_ends(&mut self, home: KeyHome) {
        let records = &mut self.owed.records;
        let at = records.iter().position(|record| *record == home);
        records.swap_remove(at.expect("it has begun"));
    }
}

/// What a part of a change needs: what its keys are left with.
#[derive(Clone, Debug, Default)]
pub struct PartNeeds {
    /// Bytes of its records.
    bytes: usize,
    /// How many they are.
    records: usize,
    /// Bytes of the longest one.
    longest_bytes: usize,
    /// Bytes of memory.
    memory_bytes: usize,
    /// The store holds more after it.
    grows: bool,
    /// Keys that the index does not have.
    new: Vec<KeyHome>,
}

/// What became of a key that is to be left with something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving {
    /// It must be read from the disk first.
    Cold(Place),
    /// The log takes nothing now.
    Wait,
    /// It is as it is to be; the record that made it so, unless it was so.
    Done(Option<Lsn>),
}

impl PartNeeds {
    /// Bytes of the record of a key and a value of so many bytes.
    #[must_use]
    pub fn record_bytes(key_bytes: usize, value_bytes: usize) -> usize {
        part_bytes(key_bytes, value_bytes, true, 0)
    }

    /// Adds a record of a key and a value of so many bytes. It is of a change that makes the store
    /// hold more, or not.
    pub fn add_record(&mut self, key_bytes: usize, value_bytes: usize, grows: bool) {
        self.add(part_bytes(key_bytes, value_bytes, true, 0));
        if grows {
            self.grows = true;
            self.memory_bytes += cell_bytes(key_bytes, value_bytes, true);
        }
    }

    fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.records += 1;
        self.longest_bytes = self.longest_bytes.max(bytes);
    }

    /// Bytes of memory that are kept for it.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }
}

impl<P: Blocks> Store<P> {
    /// Adds what a key needs that is to be left with something.
    pub fn add_needs(&self, home: KeyHome, outcome: &Outcome<'_>, needs: &mut PartNeeds) {
        let keys = &self.data.keys;
        let found = keys.find(home.slot, home.hash, outcome.key);
        let Some(left) = outcome.left else {
            return needs.add(part_bytes(outcome.key.len(), 0, false, 0));
        };
        let (held, effects_bytes) = match found {
            Found::Cached(id) if !keys.cell(id).is_deleted() => {
                (Some(keys.cell(id).value().len()), keys.effects_bytes(id))
            }
            _ => (None, 0),
        };
        let effects_bytes = if left.keeps_effects { effects_bytes } else { 0 };
        let (key_bytes, value_bytes) = (outcome.key.len(), left.value.bytes.len());
        needs.add(part_bytes(key_bytes, value_bytes, true, effects_bytes));
        let is_longer = held.is_none_or(|held| value_bytes > held.next_multiple_of(8));
        let adds_version = self.data.adds_version(home.slot, home.hash, outcome.key);
        needs.grows |= is_longer || adds_version;
        if is_longer {
            needs.memory_bytes += cell_bytes(key_bytes, value_bytes, true);
        }
        if found == Found::Absent {
            needs.new.push(home);
        }
    }

    /// Keeps room for a part in the log and in memory: nobody else takes it.
    ///
    /// # Errors
    /// [`NoRoom`]: nothing is kept.
    pub fn reserve_part(&mut self, needs: &PartNeeds) -> Result<(), NoRoom> {
        if !needs.new.is_empty() && !self.data.has_room_for_spread(needs.new.clone()) {
            return Err(self.waits_or_lacks_memory());
        }
        if needs.memory_bytes > 0 && self.data.is_memory_short() {
            return Err(NoRoom::Wait);
        }
        let purpose = if needs.grows {
            Purpose::Grow
        } else {
            Purpose::Keep
        };
        let room = self
            .log
            .reserve(purpose, (needs.bytes, needs.records), needs.longest_bytes);
        match room {
            Room::Yes => {
                self.data.owed.reserved_bytes += needs.memory_bytes;
                Ok(())
            }
            Room::Wait => Err(NoRoom::Wait),
            Room::Full => Err(NoRoom::Log),
        }
    }

    /// Gives back what was kept for a part.
    pub fn unreserve_part(&mut self, needs: &PartNeeds) {
        self.log.unreserve(needs.bytes, needs.records);
        self.data.owed.reserved_bytes -= needs.memory_bytes;
    }

    /// Leaves a key of this home with what was decided, unless it has another version than the one
    /// that was seen: then it is so already, or was written since.
    pub fn leave(&mut self, now_us: u64, home: KeyHome, outcome: &Outcome<'_>) -> Leaving {
        let there = match self.data.keys.find(home.slot, home.hash, outcome.key) {
            Found::Cold(place) => return Leaving::Cold(place),
            Found::Cached(id) if !self.data.keys.cell(id).is_deleted() => Some(id),
            Found::Cached(_) | Found::Absent => None,
        };
        let is_other = |id| Some(self.data.keys.version(id)) != outcome.seen;
        match there.is_some_and(is_other) {
            true => Leaving::Done(None),
            false => self.leave_any(now_us, home, outcome),
        }
    }

    /// The same, whatever version it has.
    pub fn leave_any(&mut self, now_us: u64, home: KeyHome, outcome: &Outcome<'_>) -> Leaving {
        let KeyHome { slot, hash } = home;
        let cell = match self.data.keys.find(slot, hash, outcome.key) {
            Found::Cold(place) => return Leaving::Cold(place),
            Found::Cached(id) => Some(id),
            Found::Absent => None,
        };
        // What has expired meanwhile is there: its effects have not run.
        let there = cell.filter(|id| !self.data.keys.cell(*id).is_deleted());
        if outcome.left.is_none() && there.is_none() {
            return Leaving::Done(None);
        }
        let found = ChangeKey {
            key: outcome.key,
            hash,
            cell,
            exists: there.is_some(),
            kind: there.map_or(ValueKind::Plain, |id| self.data.keys.cell(id).value_kind()),
            expiry_ms: there.and_then(|id| self.data.keys.cell(id).expiry_ms()),
        };
        let mut change = self.change(slot, [found], 1);
        match outcome.left {
            None => change.delete(0),
            Some(left) if left.keeps_effects && there.is_some() => {
                change.put_keeping(0, left.value);
                change.expire(0, left.expiry_ms);
            }
            Some(left) => change.put(0, left.value, left.expiry_ms),
        }
        let Ok(committed) = change.commit_owed(now_us) else {
            return Leaving::Wait;
        };
        let token_ms = token_time_ms(outcome.key, self.data.time_ms());
        if let Some(token_ms) = token_ms
            && let Found::Cached(id) = self.data.keys.find(slot, hash, outcome.key)
        {
            self.data.note_token(slot, id, token_ms);
        }
        Leaving::Done(Some(committed.lsn))
    }
}
