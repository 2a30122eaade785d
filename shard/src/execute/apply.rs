//! APPLY: guards and effects on up to eight keys of a slot. All of them take effect, or none.
//!
//! The keys are looked up together, so that all that are cold are read side by side. The
//! instructions run on copies, which become one record at the end.

use penstock_net::apply::{self, ApplyKeys, ApplyRequest, Cause, Denial, Effects};
use penstock_net::limits::{APPLY_KEYS_MAX, EXPIRY_MS_MAX};
use penstock_net::refusal::Refusal;
use penstock_net::reply::{ITEM_FLAG_OVERFLOW, REPLY_ITEM_BYTES};
use penstock_net::request::Version;
use penstock_net::status::Status;
use penstock_storage::extension::EffectsArea;
use penstock_storage::io::Blocks;
use penstock_storage::place::Lsn;
use penstock_storage::planted::{self, Bug, is_planted};
use penstock_storage::store::{ChangeKey, Committed, Found, Staged, Store};

use super::{
    Cold, Context, Key, Ran, no_room, not_past_by_store_alone, refused, stored, token, wire,
};

/// Runs `request`, whose keys are of one slot, and writes its reply item at the end of `out`.
/// [`Ran::Cold`] names the first of the keys that must be read; [`cold_keys`] tells all.
pub(crate) fn run<P: Blocks>(
    store: &mut Store<P>,
    context: &Context<'_>,
    request: &ApplyRequest<'_>,
    out: &mut Vec<u8>,
) -> Ran {
    match request.keys().len() {
        1 => run_on::<1, P>(store, context, request, out),
        2 => run_on::<2, P>(store, context, request, out),
        3 | 4 => run_on::<4, P>(store, context, request, out),
        _ => run_on::<APPLY_KEYS_MAX, P>(store, context, request, out),
    }
}

/// The same with room for so many keys.
fn run_on<const KEYS: usize, P: Blocks>(
    store: &mut Store<P>,
    context: &Context<'_>,
    request: &ApplyRequest<'_>,
    out: &mut Vec<u8>,
) -> Ran {
    let found = match look_up::<KEYS, P>(store, context, request.keys()) {
        Ok(found) => found,
        Err(Missing::Cold(cold)) => return Ran::Cold(cold),
        Err(Missing::TooLarge(refusal)) => return refused(context, refusal, out),
    };
    if let Some(unfired) = found.unfired(store, context) {
        return unfired;
    }
    let seen = found
        .keys()
        .iter()
        .fold(Lsn(0), |seen, key| seen.max(key.lsn));
    let seen = planted::or(Bug::ApplyGateOfFirst, found.all[0].lsn, seen);
    let first_version = found.all[0].version;
    let mut keys = found.stage(store, context);
    keys.is_asked = true;
    let from = out.len();
    out.extend_from_slice(&[0; REPLY_ITEM_BYTES]);
    let now_ms = keys.staged.time_ms();
    let ran = apply::run(request, now_ms, &mut keys, out);
    let mut staged = keys.into_staged();
    let (bytes, bytes_max) = (staged.record_bytes(), staged.record_bytes_max());
    if let Err(denial) = ran {
        out.truncate(from);
        if is_planted(Bug::ApplyHalf) && (1..=bytes_max).contains(&bytes) {
            let _ = staged.commit(context.now_us);
        }
        return denied(context, denial, first_version, seen, out);
    }
    if bytes == 0 {
        drop(staged);
        return token::end_unchanged(store, context, (first_version, seen), from, out);
    }
    if bytes > bytes_max && !is_planted(Bug::ApplyUnbounded) {
        out.truncate(from);
        return refused(context, writes_too_much(bytes, bytes_max), out);
    }
    match token::commit_staged(staged, context, (out, from)) {
        Ok(Committed { lsn, version }) => {
            // Whichever key has changed: a member that has this version has the change.
            let version = planted::or(Bug::VersionOfOtherKey, first_version, wire(version));
            context.head(Status::Ok, version).patch(out, from);
            Ran::Answered {
                gate: lsn,
                status: Status::Ok,
            }
        }
        Err(lack) => {
            out.truncate(from);
            no_room(store, context, lack, out)
        }
    }
}

/// The reads that the keys of a request need which are not in memory.
pub(crate) fn cold_keys<P: Blocks>(
    store: &Store<P>,
    slot: u16,
    request: &ApplyRequest<'_>,
    hash_of: impl Fn(&[u8]) -> u32,
) -> impl Iterator<Item = Cold> {
    request.keys().iter().filter_map(move |key| {
        let hash = hash_of(key);
        match store.find(slot, hash, key) {
            Found::Cold(place) => Some(Cold {
                slot,
                hash,
                place,
                version: None,
            }),
            Found::Cached(_) | Found::Absent => None,
        }
    })
}

/// Why keys cannot be looked at.
pub(super) enum Missing {
    Cold(Cold),
    TooLarge(Refusal),
}

/// Keys as they are before an APPLY.
pub(super) struct FoundKeys<'k, const KEYS: usize> {
    all: [Key<'k>; KEYS],
    count: usize,
}

/// Looks all keys up. What they hold takes at most the largest record, which is judged before
/// anything is read.
#[inline]
pub(super) fn look_up<'k, const KEYS: usize, P: Blocks>(
    store: &Store<P>,
    context: &Context<'_>,
    names: &[&'k [u8]],
) -> Result<FoundKeys<'k, KEYS>, Missing> {
    let (mut bytes_max, mut cold) = (0, None);
    let mut all = [Key::new(store, context.key_hash, names[0], Found::Absent); KEYS];
    for (number, (key, &name)) in all.iter_mut().zip(names).enumerate() {
        let hash = match number {
            0 => context.key_hash,
            _ => context.hash.of(name),
        };
        let found = match store.find(context.slot, hash, name) {
            Found::Cold(_) if is_planted(Bug::ApplyMissesCold) => Found::Absent,
            found => found,
        };
        *key = Key::new(store, hash, name, found);
        if let Found::Cold(place) = found {
            bytes_max += place.part_bytes_min();
            cold = cold.or(Some(Cold {
                slot: context.slot,
                hash,
                place,
                version: None,
            }));
        } else if let Some(id) = key.value_cell() {
            bytes_max += store.part_bytes_max_of(id);
        }
    }
    let max = store.record_bytes_max();
    if bytes_max > max {
        let bytes = held_bytes(store, context, &all[..names.len()]);
        if bytes > max {
            return Err(Missing::TooLarge(Refusal::ApplyBytes {
                what: "what the keys of this APPLY hold",
                bytes,
                max,
            }));
        }
    }
    match cold {
        Some(cold) => Err(Missing::Cold(cold)),
        None => Ok(FoundKeys {
            all,
            count: names.len(),
        }),
    }
}

/// Bytes of the parts of these keys, those of cold ones at least.
#[cold]
fn held_bytes<P: Blocks>(store: &Store<P>, context: &Context<'_>, keys: &[Key<'_>]) -> usize {
    let bytes = keys.iter().map(|key| match key.value_cell() {
        Some(id) => store.part_bytes_of(id),
        None => match store.find(context.slot, key.at.hash, key.at.key) {
            Found::Cold(place) => place.part_bytes_min(),
            Found::Cached(_) | Found::Absent => 0,
        },
    });
    bytes.sum()
}

impl<'k, const KEYS: usize> FoundKeys<'k, KEYS> {
    pub(super) fn keys(&self) -> &[Key<'k>] {
        &self.all[..self.count]
    }

    /// The first key is this one.
    pub(super) fn begin_with(&mut self, key: ChangeKey<'k>) {
        self.all[0].at = key;
    }

    /// The first key that is to fire before anything looks at it.
    #[inline]
    fn unfired<P: Blocks>(&self, store: &Store<P>, context: &Context<'_>) -> Option<Ran> {
        let mut keys = self.keys().iter();
        keys.find_map(|key| key.unfired(store, context))
    }

    /// Opens a change of the keys.
    #[inline(always)]
    pub(super) fn stage<'s, P: Blocks>(
        self,
        store: &'s mut Store<P>,
        context: &Context<'_>,
    ) -> StagedKeys<'s, 'k, P, KEYS> {
        let mut ttls_ms = [0; KEYS];
        if !store.keyspaces().is_empty() {
            for (ttl_ms, key) in ttls_ms.iter_mut().zip(self.keys()) {
                let keyspace = store.keyspaces().of(context.slot, key.at.key);
                *ttl_ms = keyspace.map_or(0, |(_, settings)| settings.ttl_ms);
            }
        }
        let keys = std::array::from_fn(|number| self.all[number].at);
        StagedKeys {
            staged: store.stage(context.slot, keys, self.count),
            existed: std::array::from_fn(|number| self.all[number].at.exists),
            versions: std::array::from_fn(|number| self.all[number].version),
            ttls_ms,
            put_bytes: 0,
            is_asked: false,
        }
    }
}

/// The keys of an APPLY that runs.
pub(super) struct StagedKeys<'s, 'k, P: Blocks, const KEYS: usize> {
    staged: Staged<'s, 'k, P, KEYS>,
    /// Which keys had a value before, and its version.
    existed: [bool; KEYS],
    versions: [Version; KEYS],
    /// The lifetimes that keyspaces give values that begin anew, in milliseconds; 0 is none.
    ttls_ms: [u64; KEYS],
    /// Bytes of all values that were put.
    put_bytes: usize,
    /// A request runs, and no effects of an expiry, which nobody could ask again.
    is_asked: bool,
}

impl<'s, 'k, P: Blocks, const KEYS: usize> StagedKeys<'s, 'k, P, KEYS> {
    /// The time of the store in unix milliseconds.
    pub(super) fn time_ms(&self) -> u64 {
        self.staged.time_ms()
    }

    /// Bounds what is put at once, because it is copied when it is edited.
    fn bound_puts(&mut self, value: &[u8]) -> Result<(), Refusal> {
        self.put_bytes += value.len();
        let bytes_max = self.staged.record_bytes_max();
        let is_much = self.put_bytes > bytes_max && !is_planted(Bug::ApplyUnbounded);
        match is_much && self.staged.record_bytes() > bytes_max {
            true => Err(writes_too_much(self.staged.record_bytes(), bytes_max)),
            false => Ok(()),
        }
    }

    #[inline(always)]
    pub(super) fn into_staged(self) -> Staged<'s, 'k, P, KEYS> {
        self.staged
    }
}

impl<'k, P: Blocks, const KEYS: usize> ApplyKeys<'k> for StagedKeys<'_, 'k, P, KEYS> {
    #[inline]
    fn existed(&self, key: usize) -> bool {
        self.existed[key]
    }

    #[inline]
    fn version(&self, key: usize) -> Version {
        self.versions[key]
    }

    fn lifetimes_from_ms(&self, _now_ms: u64) -> u64 {
        self.staged.lifetimes_from_ms()
    }

    fn may_have_changed(&self, key: usize, since: Version) -> bool {
        self.staged.may_have_changed(key, stored(since))
    }

    #[inline]
    fn value(&self, key: usize) -> Option<&[u8]> {
        self.staged.value(key)
    }

    #[inline]
    fn edit(&mut self, key: usize) -> &mut [u8] {
        self.staged.edit(key)
    }

    fn replace(&mut self, key: usize, value: &[u8]) {
        self.staged.replace(key, value);
    }

    fn put(&mut self, key: usize, value: &'k [u8]) -> Result<(), Refusal> {
        let (ms, now_ms) = (self.ttls_ms[key], self.staged.lifetimes_from_ms());
        if now_ms + ms > EXPIRY_MS_MAX {
            return Err(Refusal::Lifetime { ms, now_ms });
        }
        self.staged.put(key, value, (ms > 0).then_some(now_ms + ms));
        self.bound_puts(value)
    }

    fn put_keeping(&mut self, key: usize, value: &'k [u8]) -> Result<(), Refusal> {
        self.staged.put_keeping(key, value);
        self.bound_puts(value)
    }

    #[inline]
    fn delete(&mut self, key: usize) {
        self.staged.delete(key);
    }

    fn takes_expiry(&self, expiry_ms: u64) -> Result<(), Refusal> {
        match self.is_asked {
            true => {
                let (now_ms, behind_ms) = (self.time_ms(), self.staged.clock_behind_ms());
                not_past_by_store_alone(expiry_ms, now_ms, behind_ms)
            }
            false => Ok(()),
        }
    }

    #[inline]
    fn expire(&mut self, key: usize, expiry_ms: Option<u64>) {
        self.staged.expire(key, expiry_ms);
    }

    fn expiry_ms(&self, key: usize) -> Option<u64> {
        self.staged.expiry_ms(key)
    }

    fn arm(&mut self, key: usize, effects: &Effects<'k>) {
        self.staged.arm(key, EffectsArea::new(&effects.item()));
    }
}

#[cold]
pub(super) fn writes_too_much(bytes: usize, max: usize) -> Refusal {
    Refusal::ApplyBytes {
        what: "what this APPLY writes",
        bytes,
        max,
    }
}

/// The reply of an APPLY that was denied. It shows the keys as they were, so it waits for what they
/// show.
fn denied(
    context: &Context<'_>,
    denial: Denial,
    version: Version,
    seen: Lsn,
    out: &mut Vec<u8>,
) -> Ran {
    let status = match denial.cause {
        Cause::NotFound => Status::NotFound,
        Cause::Guard { .. } => Status::GuardFailed,
        Cause::Version(_) => Status::VersionMismatch,
        Cause::Refused(refusal) => refusal.status(),
    };
    let mut head = context.head(status, version);
    head.reason = denial.reason;
    head.instruction = u8::try_from(denial.instruction).expect("at most 64 instructions");
    match denial.cause {
        Cause::Guard { actual, overflow } => {
            head.flags = if overflow { ITEM_FLAG_OVERFLOW } else { 0 };
            head.write(out, &actual.to_le_bytes());
        }
        Cause::Version(actual) => head.write(out, &actual.to_bytes()),
        Cause::NotFound => head.write(out, &[]),
        Cause::Refused(refusal) => head.write_message(out, &refusal),
    }
    Ran::Answered {
        gate: planted::or(Bug::UngatedFailure, Lsn(0), seen),
        status,
    }
}
