//! The end of an armed key whose time has come: its effects and its deletion, as one record.

use penstock_net::apply::{self, ApplyRequest, Cause, Denial};
use penstock_net::level::AckLevel;
use penstock_net::limits::FEW_KEYS_MAX;
use penstock_net::refusal::Refusal;
use penstock_net::slot::slot_of;
use penstock_storage::index::CellId;
use penstock_storage::io::Blocks;
use penstock_storage::key_home::KeyHome;
use penstock_storage::planted::{Bug, is_planted};
use penstock_storage::store::{ChangeKey, FewKeys, KeyNumbers, NoRoom, Store};

use super::program::{Missing, find_keys, writes_too_much};
use super::{Cold, Context, KeyHash, Spread, program::cold_keys};

/// What became of an armed key whose time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fired {
    /// It is gone, and its effects have run.
    Ran,
    /// It is gone. Its effects could not run.
    Failed(Failure),
    /// Keys of its effects must be read first. Nothing has changed.
    Cold,
    /// One of them is armed and has expired, and is to fire first. Nothing has changed.
    Behind(CellId, u32),
    /// There is no room now. Nothing has changed.
    Wait,
    /// There is no room on the disk or in memory. Nothing has changed.
    Full(NoRoom),
}

/// Why effects could not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// One of them did not hold.
    Denied(Denial),
    /// They do not suit what their keys hold.
    Refused(Refusal),
    /// What is stored of them is none that this version knows.
    Unknown,
    /// A key of theirs could not be read.
    Unread,
    /// Two keys wait for each other to fire.
    Circle,
}

/// What firing needs to know.
#[derive(Clone, Copy)]
pub(crate) struct Fire<'a> {
    pub(crate) now_us: u64,
    pub(crate) hash: &'a KeyHash,
    /// Slot and hash of the key.
    pub(crate) home: KeyHome,
    pub(crate) id: CellId,
    /// What runs, as it was stored.
    pub(crate) effects: &'a [u8],
}

impl Fire<'_> {
    /// Runs the effects of the key and deletes it.
    pub(crate) fn run<P: Blocks>(&self, store: &mut Store<P>, returned: &mut Vec<u8>) -> Fired {
        let Some(request) = self.request() else {
            return self.end_alone(store, Failure::Unknown);
        };
        match request.key_count() {
            1 => self.run_on::<FewKeys<1>, P>(store, &request, returned),
            2 => self.run_on::<FewKeys<2>, P>(store, &request, returned),
            3 | 4 => self.run_on::<FewKeys<4>, P>(store, &request, returned),
            _ => self.run_on::<FewKeys<FEW_KEYS_MAX>, P>(store, &request, returned),
        }
    }

    /// The reads that the effects need, and slots and hashes of all of their keys.
    pub(crate) fn needs<P: Blocks>(&self, store: &Store<P>) -> (Vec<Cold>, Vec<KeyHome>) {
        let Some(request) = self.request() else {
            return (Vec::new(), Vec::new());
        };
        let slot = self.home.slot;
        let cold = cold_keys(store, slot, &request, |key| self.hash.of(key)).collect();
        let hashes = request.keys().map(|key| self.hash.of(key));
        let homes = hashes.map(|hash| KeyHome { slot, hash });
        (cold, homes.collect())
    }

    /// Deletes the key, whose effects cannot run.
    pub(crate) fn end_alone<P: Blocks>(&self, store: &mut Store<P>, why: Failure) -> Fired {
        let key = store.keys().cell(self.id).key().to_vec();
        let mut change = store.change::<1>(self.home.slot, [self.expired(store, &key)], 1);
        change.delete(0);
        match change.commit(self.now_us) {
            Ok(_) => Fired::Failed(why),
            Err(NoRoom::Wait) => Fired::Wait,
            Err(lack) => Fired::Full(lack),
        }
    }

    fn request(&self) -> Option<ApplyRequest<'_>> {
        let request = ApplyRequest::read(self.effects, u32::MAX).ok();
        request.filter(|request| request.key_count() <= FEW_KEYS_MAX)
    }

    /// The key as its effects see it: with the value that it had.
    fn expired<'k, P: Blocks>(&self, store: &Store<P>, key: &'k [u8]) -> ChangeKey<'k> {
        ChangeKey {
            key,
            hash: self.home.hash,
            cell: Some(self.id),
            exists: true,
            expiry_ms: store.keys().cell(self.id).expiry_ms(),
            kind: store.keys().cell(self.id).value_kind(),
        }
    }

    fn run_on<K: KeyNumbers, P: Blocks>(
        &self,
        store: &mut Store<P>,
        request: &ApplyRequest<'_>,
        returned: &mut Vec<u8>,
    ) -> Fired {
        let names = request.first_keys();
        let (slot, key) = (self.home.slot, names[0]);
        let are_of_slot = names.iter().all(|name| slot_of(name) == slot);
        if !are_of_slot || key != store.keys().cell(self.id).key() {
            return self.end_alone(store, Failure::Unknown);
        }
        let context = self.context();
        let mut found = match find_keys::<K, P>(store, &context, names) {
            Ok(found) => found,
            Err(Missing::Cold(_)) => return Fired::Cold,
            Err(Missing::TooLarge(refusal)) => {
                return self.end_alone(store, Failure::Refused(refusal));
            }
        };
        for key in &found.keys()[1..] {
            if let Some(id) = key.unfired_cell(store) {
                return Fired::Behind(id, key.at.hash);
            }
        }
        found.begin_with(self.expired(store, key));
        let mut keys = found.open(store);
        let now_ms = keys.time_ms();
        // Nobody hears what they tell.
        returned.clear();
        let ran = apply::run(request, now_ms, &mut keys, returned);
        let mut change = keys.into_change();
        if let Err(denial) = ran {
            drop(change);
            return self.end_alone(store, Failure::Denied(denial));
        }
        if !is_planted(Bug::FireTwice) || change.record_bytes() == 0 {
            change.delete(0);
        }
        let (bytes, bytes_max) = (change.record_bytes(), change.record_bytes_max());
        if bytes > bytes_max {
            drop(change);
            let refusal = writes_too_much(bytes, bytes_max);
            return self.end_alone(store, Failure::Refused(refusal));
        }
        match change.commit(self.now_us) {
            Ok(_) => Fired::Ran,
            Err(NoRoom::Wait) => Fired::Wait,
            Err(lack) => Fired::Full(lack),
        }
    }

    /// The circumstances of an operation that nobody asked for.
    fn context(&self) -> Context<'_> {
        Context {
            now_us: self.now_us,
            hash: self.hash,
            slot: self.home.slot,
            key_hash: self.home.hash,
            item: 0,
            level: AckLevel::None,
            memory_max: 0,
            spare_failure: None,
            ttl_ms: 0,
            brought: None,
            standing: None,
            shared_bytes_min: usize::MAX,
            answers_repeats: false,
            hides_unfired: true,
            token: None,
            answer: None,
            spread: Spread::OneSlot,
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Denied(denial) => {
                write!(f, "effect {}: ", denial.instruction)?;
                match denial.cause {
                    Cause::NotFound => f.write_str("its key has no value"),
                    Cause::Guard { actual, .. } => {
                        write!(
                            f,
                            "the number is {actual} and would leave the range of its type"
                        )
                    }
                    Cause::Version(_) => f.write_str("the version is another one"),
                    Cause::Refused(refusal) => refusal.fmt(f),
                }
            }
            Failure::Refused(refusal) => refusal.fmt(f),
            Failure::Unknown => f.write_str("what is stored of them cannot be read here"),
            Failure::Unread => f.write_str("one of their keys could not be read"),
            Failure::Circle => f.write_str("armed keys that expired wait for each other"),
        }
    }
}
