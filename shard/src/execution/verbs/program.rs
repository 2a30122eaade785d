//! The program of an APPLY or UPDATE_IF: guards and effects on keys of a slot. All of them take
//! effect, or none. That of a script may have keys of several slots of its shard, at a node alone.
//!
//! The keys are looked up together, so that all that are cold are read side by side. The
//! instructions edit an open change, which becomes one record at the end. An UPDATE_IF begins with
//! the start value of its first key, and ends with the expiry of that key.

use penstock_net::apply::{self, ApplyKeys, ApplyRequest, Cause, Denial, Effects, Terms};
use penstock_net::limits::{EXPIRY_MS_MAX, FEW_KEYS_MAX};
use penstock_net::refusal::Refusal;
use penstock_net::reply::{ITEM_FLAG_OVERFLOW, REPLY_ITEM_BYTES};
use penstock_net::request::{Expiry, Version};
use penstock_net::slot::slot_of;
use penstock_net::status::Status;
use penstock_storage::extension::EffectsArea;
use penstock_storage::if_planted;
use penstock_storage::io::Blocks;
use penstock_storage::place::Lsn;
use penstock_storage::planted::{self, Bug, is_planted};
use penstock_storage::record::{KindedValue, ValueKind};
use penstock_storage::store::{
    Change, ChangeKey, Committed, FewKeys, Found, KeyNumbers, KeySlots, ManyKeys, SpreadKeys, Store,
};

use super::repeat_updates::answer_alone;
use super::{
    Cold, Context, Key, Ran, Spread, expiry_after, no, no_room, not_past_by_store_alone, refused,
    stored, token, wire,
};

/// Runs `request`, whose keys are spread as the context says, and writes its reply item at the end
/// of `out`.
/// [`Ran::Cold`] names the first of the keys that must be read; [`cold_keys`] tells all.
pub(crate) fn run<P: Blocks>(
    store: &mut Store<P>,
    context: &Context<'_>,
    request: &ApplyRequest<'_>,
    out: &mut Vec<u8>,
) -> Ran {
    if context.answer.is_none()
        && let Some(ran) = answer_alone(store, context, request, out)
    {
        return ran;
    }
    if context.spread == Spread::Slots {
        let names: Vec<&[u8]> = request.keys().collect();
        return run_on::<SpreadKeys, P>(store, context, (request, &names), out);
    }
    let names = request.first_keys();
    match request.key_count() {
        1 => run_on::<FewKeys<1>, P>(store, context, (request, names), out),
        2 => run_on::<FewKeys<2>, P>(store, context, (request, names), out),
        3 | 4 => run_on::<FewKeys<4>, P>(store, context, (request, names), out),
        5..=FEW_KEYS_MAX => {
            run_on::<FewKeys<FEW_KEYS_MAX>, P>(store, context, (request, names), out)
        }
        _ => {
            let names: Vec<&[u8]> = request.keys().collect();
            run_on::<ManyKeys, P>(store, context, (request, &names), out)
        }
    }
}

/// The same with room for so many keys, which have these names.
fn run_on<'k, K: KeyNumbers, P: Blocks>(
    store: &mut Store<P>,
    context: &Context<'_>,
    (request, names): (&ApplyRequest<'k>, &[&'k [u8]]),
    out: &mut Vec<u8>,
) -> Ran {
    let found = match find_keys::<K, P>(store, context, names) {
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
    let seen = planted::or(Bug::ApplyGateOfFirst, found.keys()[0].lsn, seen);
    found.touch(store);
    let first = found.keys()[0];
    let first_version = first.version;
    let mut expires = None;
    if let Some(terms) = request.terms() {
        expires = match expires_by(store, terms, &first) {
            Ok(None) if lacks_first(terms, &first) => {
                return no(context, Status::NotFound, &first, out);
            }
            Ok(expires) => expires,
            Err(refusal) => return refused(context, refusal, out),
        };
    }
    let mut keys = found.open(store);
    keys.is_asked = true;
    if !first.at.exists
        && let Some(start) = request.terms().and_then(|terms| terms.start)
        && let Err(refusal) = keys.put(0, start)
    {
        return refused(context, refusal, out);
    }
    let from = out.len();
    out.extend_from_slice(&[0; REPLY_ITEM_BYTES]);
    let now_ms = keys.change.time_ms();
    let ran = apply::run(request, now_ms, &mut keys, out);
    let mut change = keys.into_change();
    if let Some(expiry_ms) = expires {
        change.expire(0, expiry_ms);
        change.log_unchanged(0);
    }
    let (bytes, bytes_max) = (change.record_bytes(), change.record_bytes_max());
    if let Err(denial) = ran {
        out.truncate(from);
        if is_planted(Bug::ApplyHalf) && (1..=bytes_max).contains(&bytes) {
            let _ = change.commit(context.now_us);
        }
        return denied(context, denial, request, (first_version, seen), out);
    }
    if let Some(answer) = context.answer {
        out.truncate(from + REPLY_ITEM_BYTES);
        out.extend_from_slice(answer);
    }
    if bytes == 0 {
        drop(change);
        return token::end_unchanged(store, context, (first_version, seen), from, out);
    }
    if bytes > bytes_max && !is_planted(Bug::ApplyUnbounded) {
        out.truncate(from);
        return refused(context, writes_too_much(bytes, bytes_max), out);
    }
    match token::commit(change, context, (out, from)) {
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
    request.keys().filter_map(move |key| {
        let hash = hash_of(key);
        match store.keys().find(slot, hash, key) {
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

/// Keys as they are before a program.
pub(super) struct FoundKeys<'k, K: KeyNumbers> {
    all: K::Of<Key<'k>>,
    count: usize,
    slots: K::Slots,
}

/// Looks all keys up. What they hold takes at most the largest record, which is judged before
/// anything is read.
#[inline]
pub(super) fn find_keys<'k, K: KeyNumbers, P: Blocks>(
    store: &Store<P>,
    context: &Context<'_>,
    names: &[&'k [u8]],
) -> Result<FoundKeys<'k, K>, Missing> {
    let slots = K::Slots::of_keys(context.slot, names.len(), |which| slot_of(names[which]));
    let (mut bytes_max, mut cold) = (0, None);
    let none = Key::new(store, context.key_hash, names[0], Found::Absent);
    let mut all = K::make(names.len(), |_| none);
    for (number, (key, &name)) in all.as_mut().iter_mut().zip(names).enumerate() {
        let hash = match number {
            0 => context.key_hash,
            _ => context.hash.of(name),
        };
        let slot = slots.of(number);
        let found = match store.keys().find(slot, hash, name) {
            Found::Cold(_) if is_planted(Bug::ApplyMissesCold) => Found::Absent,
            found => found,
        };
        *key = Key::new(store, hash, name, found);
        // The largest record has room for what any two keys hold.
        if names.len() <= 2 && !matches!(found, Found::Cold(_)) {
            continue;
        }
        if let Found::Cold(place) = found {
            bytes_max += place.part_bytes_min();
            cold = cold.or(Some(Cold {
                slot,
                hash,
                place,
                version: None,
            }));
        } else if let Some(id) = key.value_cell() {
            bytes_max += store.keys().part_bytes_max_of(id);
        }
    }
    let max = store.log().record_bytes_max();
    if bytes_max > max {
        let bytes = held_bytes(store, &slots, &all.as_ref()[..names.len()]);
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
            slots,
        }),
    }
}

/// Bytes of the parts of these keys, those of cold ones at least.
#[cold]
fn held_bytes<P: Blocks>(store: &Store<P>, slots: &impl KeySlots, keys: &[Key<'_>]) -> usize {
    let bytes = (0..).zip(keys).map(|(number, key)| match key.value_cell() {
        Some(id) => store.keys().part_bytes_of(id),
        None => match store.keys().find(slots.of(number), key.at.hash, key.at.key) {
            Found::Cold(place) => place.part_bytes_min(),
            Found::Cached(_) | Found::Absent => 0,
        },
    });
    bytes.sum()
}

impl<'k, K: KeyNumbers> FoundKeys<'k, K> {
    pub(super) fn keys(&self) -> &[Key<'k>] {
        &self.all.as_ref()[..self.count]
    }

    /// The first key is this one.
    pub(super) fn begin_with(&mut self, key: ChangeKey<'k>) {
        self.all.as_mut()[0].at = key;
    }

    /// The first key that is to fire before anything looks at it.
    #[inline]
    fn unfired<P: Blocks>(&self, store: &Store<P>, context: &Context<'_>) -> Option<Ran> {
        let mut keys = (0..).zip(self.keys());
        keys.find_map(|(number, key)| key.unfired(store, context, self.slots.of(number)))
    }

    /// Notes that the keys were used: what a guard reads stays in memory, too.
    #[inline]
    fn touch<P: Blocks>(&self, store: &mut Store<P>) {
        for id in self.keys().iter().filter_map(Key::value_cell) {
            store.keys_mut().touch(id);
        }
    }

    /// Opens a change of the keys.
    #[inline(always)]
    pub(super) fn open<'s, P: Blocks>(self, store: &'s mut Store<P>) -> OpenKeys<'s, 'k, P, K> {
        let is_ruled = !store.keyspaces().is_empty();
        let all = self.all.as_ref();
        let ttls_ms = K::make(self.count, |number| match all.get(number) {
            Some(key) if is_ruled && number < self.count => {
                let keyspace = store.keyspaces().of(self.slots.of(number), key.at.key);
                keyspace.map_or(0, |(_, settings)| settings.ttl_ms)
            }
            _ => 0,
        });
        let keys = K::make(self.count, |number| all[number].at);
        OpenKeys {
            change: store.change_of(self.slots, keys.as_ref(), self.count),
            existed: K::make(self.count, |number| all[number].at.exists),
            versions: K::make(self.count, |number| all[number].version),
            ttls_ms,
            put_bytes: 0,
            is_asked: false,
        }
    }
}

/// The keys of a program that runs.
pub(super) struct OpenKeys<'s, 'k, P: Blocks, K: KeyNumbers> {
    change: Change<'s, 'k, P, K>,
    /// Which keys had a value before, and its version.
    existed: K::Of<bool>,
    versions: K::Of<Version>,
    /// The lifetimes that keyspaces give values that begin anew, in milliseconds; 0 is none.
    ttls_ms: K::Of<u64>,
    /// Bytes of all values that were put.
    put_bytes: usize,
    /// A request runs, and no effects of an expiry, which nobody could ask again.
    is_asked: bool,
}

impl<'s, 'k, P: Blocks, K: KeyNumbers> OpenKeys<'s, 'k, P, K> {
    /// The time of the store in unix milliseconds.
    pub(super) fn time_ms(&self) -> u64 {
        self.change.time_ms()
    }

    /// Gives a key a value with the lifetime of its keyspace.
    fn begin_anew(&mut self, key: usize, value: KindedValue<'k>) -> Result<(), Refusal> {
        let (ms, now_ms) = (self.ttls_ms.as_ref()[key], self.change.lifetimes_from_ms());
        if now_ms + ms > EXPIRY_MS_MAX {
            return Err(Refusal::Lifetime { ms, now_ms });
        }
        self.change.put(key, value, (ms > 0).then_some(now_ms + ms));
        self.bound_puts(value.bytes)
    }

    /// Bounds what is put at once, because it is copied when it is edited.
    fn bound_puts(&mut self, value: &[u8]) -> Result<(), Refusal> {
        self.put_bytes += value.len();
        let bytes_max = self.change.record_bytes_max();
        let is_much = self.put_bytes > bytes_max && !is_planted(Bug::ApplyUnbounded);
        match is_much && self.change.record_bytes() > bytes_max {
            true => Err(writes_too_much(self.change.record_bytes(), bytes_max)),
            false => Ok(()),
        }
    }

    #[inline(always)]
    pub(super) fn into_change(self) -> Change<'s, 'k, P, K> {
        self.change
    }
}

impl<'k, P: Blocks, K: KeyNumbers> ApplyKeys<'k> for OpenKeys<'_, 'k, P, K> {
    #[inline]
    fn existed(&self, key: usize) -> bool {
        self.existed.as_ref()[key]
    }

    #[inline]
    fn version(&self, key: usize) -> Version {
        self.versions.as_ref()[key]
    }

    fn lifetimes_from_ms(&self, _now_ms: u64) -> u64 {
        self.change.lifetimes_from_ms()
    }

    fn may_have_changed(&self, key: usize, since: Version) -> bool {
        self.change.may_have_changed(key, stored(since))
    }

    #[inline]
    fn value(&self, key: usize) -> Option<&[u8]> {
        self.change.value(key)
    }

    #[inline]
    fn field_mut(&mut self, key: usize, start: usize, width: usize) -> &mut [u8] {
        self.change.field_mut(key, start, width)
    }

    #[inline]
    fn log_unchanged(&mut self, key: usize) {
        self.change.log_unchanged(key);
    }

    fn replace(&mut self, key: usize, value: &[u8]) {
        self.change.replace(key, value);
    }

    fn put(&mut self, key: usize, value: &'k [u8]) -> Result<(), Refusal> {
        self.begin_anew(key, KindedValue::plain(value))
    }

    fn put_keeping(&mut self, key: usize, value: &'k [u8]) -> Result<(), Refusal> {
        self.change.put_keeping(key, KindedValue::plain(value));
        self.bound_puts(value)
    }

    fn has_members(&self, key: usize) -> bool {
        self.change.value_kind(key) != ValueKind::Plain
    }

    fn put_head(&mut self, key: usize, value: &'k [u8]) -> Result<(), Refusal> {
        self.begin_anew(key, KindedValue::head(value))
    }

    fn replace_head(&mut self, key: usize, value: &'k [u8]) -> Result<(), Refusal> {
        if_planted!(Bug::MembersEditedAnew, return self.put_head(key, value));
        self.change.put_keeping(key, KindedValue::head(value));
        self.bound_puts(value)
    }

    #[inline]
    fn delete(&mut self, key: usize) {
        if_planted!(Bug::MembersStay, self.has_members(key), return);
        self.change.delete(key);
    }

    fn takes_expiry(&self, expiry_ms: u64) -> Result<(), Refusal> {
        match self.is_asked {
            true => {
                let (now_ms, behind_ms) = (self.time_ms(), self.change.clock_behind_ms());
                not_past_by_store_alone(expiry_ms, now_ms, behind_ms)
            }
            false => Ok(()),
        }
    }

    #[inline]
    fn expire(&mut self, key: usize, expiry_ms: Option<u64>) {
        self.change.expire(key, expiry_ms);
    }

    fn expiry_ms(&self, key: usize) -> Option<u64> {
        self.change.expiry_ms(key)
    }

    fn arm(&mut self, key: usize, effects: &Effects<'k>) {
        self.change.arm(key, EffectsArea::new(&effects.item()));
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

/// The expiry that the terms of an UPDATE_IF give its first key behind the instructions, which may
/// be none. `None` if the expiry is not theirs.
fn expires_by<P: Blocks>(
    store: &Store<P>,
    terms: &Terms<'_>,
    first: &Key<'_>,
) -> Result<Option<Option<u64>>, Refusal> {
    if terms.expiry == Expiry::Keep || lacks_first(terms, first) {
        return Ok(None);
    }
    let expiry_ms = expiry_after(store, terms.expiry, first)?;
    // A key that never expires stays as it is.
    let is_never = terms.expiry == Expiry::Never;
    let is_kept = is_never && first.at.exists && first.at.expiry_ms.is_none();
    Ok((!is_kept).then_some(expiry_ms))
}

/// Whether the terms of an UPDATE_IF give an expiry to a first key that has no value and gets none.
fn lacks_first(terms: &Terms<'_>, first: &Key<'_>) -> bool {
    terms.expiry != Expiry::Keep && !first.at.exists && terms.start.is_none()
}

/// The reply of a program that was denied. It shows the keys as they were, so it waits for what
/// they show.
pub(super) fn denied(
    context: &Context<'_>,
    denial: Denial,
    request: &ApplyRequest<'_>,
    (version, seen): (Version, Lsn),
    out: &mut Vec<u8>,
) -> Ran {
    let status = match denial.cause {
        Cause::NotFound => Status::NotFound,
        Cause::Guard { .. } => Status::GuardFailed,
        Cause::Version(_) => Status::VersionMismatch,
        Cause::Refused(refusal) => refusal.status(),
    };
    let mut head = context.head(status, version);
    // The message of an UPDATE_IF that is refused names the instruction, and its head does not.
    let is_named = request.terms().is_none() || !matches!(denial.cause, Cause::Refused(_));
    if is_named {
        head.reason = denial.reason;
        head.instruction = u8::try_from(denial.instruction).expect("at most 255 instructions");
    }
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
