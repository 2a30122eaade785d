//! The program of an APPLY on copies of its keys, for a change of several slots or shards.

use std::borrow::Cow;
use std::collections::HashMap;

use penstock_net::apply::{self, Action, ApplyKeys, ApplyRequest, Effects};
use penstock_net::limits::EXPIRY_MS_MAX;
use penstock_net::refusal::Refusal;
use penstock_net::reply::REPLY_ITEM_BYTES;
use penstock_net::request::Version;
use penstock_net::status::Status;
use penstock_storage::place::Lsn;
use penstock_storage::record::ValueKind;
use penstock_storage::redo::entry_bytes;
use penstock_storage::store::clock::Clock;
use penstock_storage::version::Version as Stored;

use crate::joint::message::{CopiedValue, KeyCopy, LeftKey, LeftValue};

use super::program::{denied, writes_too_much};
use super::{Context, Ran, not_past_by_store_alone, refused};

/// What a program on copies has led to.
pub(crate) enum ProgramRan {
    /// The effects of this key are due by now: it is to be copied anew.
    Due,
    /// It changes nothing, and its answer is written.
    Denied(Status),
    /// What it leaves of the keys that it changes. Its answer is written.
    Left(Vec<LeftKey>),
}

/// Since when keys of a program are to be missing, by their names: the earliest version for each.
pub(crate) fn missing_since<'k>(
    request: &ApplyRequest<'k>,
) -> impl Iterator<Item = (&'k [u8], Version)> {
    let mut all: Vec<(&[u8], Version)> = Vec::new();
    for instruction in request.instructions() {
        if let Action::AbsentSince(since) = instruction.action {
            let key = request.key_at(usize::from(instruction.key));
            match all.iter_mut().find(|(known, _)| *known == key) {
                Some((_, known)) => {
                    let order = |it: Version| (it.epoch, it.sequence);
                    *known = std::cmp::min_by_key(*known, since, |it| order(*it));
                }
                None => all.push((key, since)),
            }
        }
    }
    all.into_iter()
}

/// Runs a program on copies of its keys, which leaves so many bytes at most, and writes its reply
/// item at the end of `out`.
pub(crate) fn run<'k>(
    context: &Context<'_>,
    request: &ApplyRequest<'k>,
    copies: &'k HashMap<Box<[u8]>, KeyCopy>,
    (clock, bytes_max): (&Clock, usize),
    out: &mut Vec<u8>,
) -> ProgramRan {
    let now_ms = clock.time_ms();
    let mut keys = CopiedProgram {
        keys: Vec::new(),
        put_bytes: 0,
        bytes_max,
        now_ms,
        from_ms: clock.next_ms(),
        behind_ms: clock.behind_ms(),
    };
    for name in request.keys() {
        match ProgramKey::of(name, &copies[name], now_ms) {
            Some(key) => keys.keys.push(key),
            None => return ProgramRan::Due,
        }
    }
    let from = out.len();
    out.extend_from_slice(&[0; REPLY_ITEM_BYTES]);
    match apply::run(request, now_ms, &mut keys, out) {
        Ok(()) if keys.left_bytes() > bytes_max => {
            out.truncate(from);
            let refusal = writes_too_much(keys.left_bytes(), bytes_max);
            ProgramRan::Denied(refuse(context, refusal, out))
        }
        Ok(()) => {
            // No record is the one of this change.
            context
                .head(Status::Ok, Version::default())
                .patch(out, from);
            ProgramRan::Left(keys.keys.into_iter().filter_map(ProgramKey::left).collect())
        }
        Err(denial) => {
            out.truncate(from);
            let first = (keys.keys[0].version, Lsn(0));
            match denied(context, denial, request, first, out) {
                Ran::Answered { status, .. } => ProgramRan::Denied(status),
                _ => unreachable!("a denial is an answer"),
            }
        }
    }
}

/// Writes that a program of several slots is refused.
pub(crate) fn refuse(context: &Context<'_>, refusal: Refusal, out: &mut Vec<u8>) -> Status {
    refused(context, refusal, out);
    refusal.status()
}

/// The keys of a program.
struct CopiedProgram<'k> {
    keys: Vec<ProgramKey<'k>>,
    /// Bytes of all values that were put.
    put_bytes: usize,
    /// Bytes that it leaves, at most.
    bytes_max: usize,
    now_ms: u64,
    from_ms: u64,
    behind_ms: u64,
}

/// A key of a program: how it was, and how it is now.
struct ProgramKey<'k> {
    name: &'k [u8],
    existed: bool,
    version: Version,
    seen: Option<Stored>,
    ttl_ms: u64,
    may_have_changed: bool,
    value: Option<Cow<'k, [u8]>>,
    kind: ValueKind,
    expiry_ms: Option<u64>,
    keeps_effects: bool,
    is_changed: bool,
}

impl<'k> ProgramKey<'k> {
    /// As it was copied; `None` if its effects are due.
    fn of(name: &'k [u8], copy: &'k KeyCopy, now_ms: u64) -> Option<Self> {
        let is_past = |it: &&CopiedValue| it.expiry_ms.is_some_and(|ms| ms <= now_ms);
        let value = copy.value.as_ref();
        if value.as_ref().is_some_and(|it| it.is_armed && is_past(it)) {
            return None;
        }
        let value = value.filter(|it| !is_past(it));
        Some(ProgramKey {
            name,
            existed: value.is_some(),
            version: value.map_or(Version::default(), |it| it.version),
            seen: copy.seen,
            ttl_ms: copy.ttl_ms,
            may_have_changed: copy.may_have_changed,
            value: value.map(|it| Cow::Borrowed(&it.bytes[..])),
            kind: value.map_or(ValueKind::Plain, |it| it.kind),
            expiry_ms: value.and_then(|it| it.expiry_ms),
            keeps_effects: value.is_some_and(|it| it.is_armed),
            is_changed: false,
        })
    }

    /// What is left of it, if it has changed.
    fn left(self) -> Option<LeftKey> {
        let is_changed = self.is_changed && (self.existed || self.value.is_some());
        is_changed.then(|| LeftKey {
            key: self.name.into(),
            seen: self.seen,
            left: self.value.map(|value| LeftValue {
                bytes: value.into_owned().into(),
                kind: self.kind,
                expiry_ms: self.expiry_ms,
                keeps_effects: self.keeps_effects && self.expiry_ms.is_some(),
            }),
        })
    }

    fn set(&mut self, value: Option<Cow<'k, [u8]>>) {
        (self.value, self.kind) = (value, ValueKind::Plain);
        self.is_changed = true;
    }
}

impl CopiedProgram<'_> {
    /// Bytes that it leaves, in a redo record.
    fn left_bytes(&self) -> usize {
        let changed = self.keys.iter().filter(|key| key.is_changed);
        let bytes = changed.map(|key| {
            let value_bytes = key.value.as_ref().map_or(0, |value| value.len());
            entry_bytes(key.name.len(), value_bytes)
        });
        bytes.sum()
    }

    /// Bounds what is put at once, because it is copied when it is edited.
    fn bound_puts(&mut self, bytes: usize) -> Result<(), Refusal> {
        self.put_bytes += bytes;
        match self.put_bytes > self.bytes_max && self.left_bytes() > self.bytes_max {
            true => Err(writes_too_much(self.left_bytes(), self.bytes_max)),
            false => Ok(()),
        }
    }
}

impl<'k> ApplyKeys<'k> for CopiedProgram<'k> {
    fn existed(&self, key: usize) -> bool {
        self.keys[key].existed
    }

    fn version(&self, key: usize) -> Version {
        self.keys[key].version
    }

    fn may_have_changed(&self, key: usize, _: Version) -> bool {
        self.keys[key].may_have_changed
    }

    fn lifetimes_from_ms(&self, _now_ms: u64) -> u64 {
        self.from_ms
    }

    fn value(&self, key: usize) -> Option<&[u8]> {
        self.keys[key].value.as_deref()
    }

    fn has_members(&self, key: usize) -> bool {
        self.keys[key].kind != ValueKind::Plain
    }

    fn field_mut(&mut self, key: usize, start: usize, width: usize) -> &mut [u8] {
        let key = &mut self.keys[key];
        key.is_changed = true;
        let value = key.value.as_mut().expect("it has a value");
        &mut value.to_mut()[start..start + width]
    }

    fn log_unchanged(&mut self, key: usize) {
        self.keys[key].is_changed = true;
    }

    fn replace(&mut self, key: usize, value: &[u8]) {
        self.keys[key].set(Some(Cow::Owned(value.to_vec())));
    }

    fn put_keeping(&mut self, key: usize, value: &'k [u8]) -> Result<(), Refusal> {
        self.keys[key].set(Some(Cow::Borrowed(value)));
        self.bound_puts(value.len())
    }

    fn put(&mut self, key: usize, value: &'k [u8]) -> Result<(), Refusal> {
        let key = &mut self.keys[key];
        let (ms, now_ms) = (key.ttl_ms, self.from_ms);
        if now_ms + ms > EXPIRY_MS_MAX {
            return Err(Refusal::Lifetime { ms, now_ms });
        }
        key.set(Some(Cow::Borrowed(value)));
        key.expiry_ms = (ms > 0).then_some(now_ms + ms);
        key.keeps_effects = false;
        self.bound_puts(value.len())
    }

    fn delete(&mut self, key: usize) {
        let key = &mut self.keys[key];
        key.set(None);
        (key.expiry_ms, key.keeps_effects) = (None, false);
    }

    fn takes_expiry(&self, expiry_ms: u64) -> Result<(), Refusal> {
        not_past_by_store_alone(expiry_ms, self.now_ms, self.behind_ms)
    }

    fn expire(&mut self, key: usize, expiry_ms: Option<u64>) {
        let key = &mut self.keys[key];
        key.is_changed |= key.expiry_ms != expiry_ms;
        key.expiry_ms = expiry_ms;
        // What never expires runs nothing, also if it gets an expiry again.
        key.keeps_effects &= expiry_ms.is_some();
    }

    fn expiry_ms(&self, key: usize) -> Option<u64> {
        self.keys[key].expiry_ms
    }

    fn arm(&mut self, _: usize, _: &Effects<'k>) {
        unreachable!("a program with effects of an expiry is of one slot")
    }
}
