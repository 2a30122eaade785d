//! One operation on the store: find its keys, decide, change, log, write the reply item.
//!
//! Nothing is changed unless everything holds and the log has room: the
//! [`penstock_storage::store::Change`] of a failed or postponed operation is dropped, which leaves
//! every key as it was.

pub(crate) mod copied;
pub(crate) mod copied_program;
pub(crate) mod fire;
pub(crate) mod past;
pub(crate) mod program;
pub(crate) mod repeat_additions;
pub(crate) mod repeat_denials;
pub(crate) mod repeat_items;
pub(crate) mod repeat_updates;
pub(crate) mod script;
pub(crate) mod token;

use std::sync::Arc;

use penstock_net::level::AckLevel;
use penstock_net::limits::EXPIRY_MS_MAX;
use penstock_net::pieces::Pieces;
use penstock_net::refusal::Refusal;
use penstock_net::reply::{ITEM_FLAG_SHOWN, KeyExpiry, ReplyHead, Standing};
use penstock_net::request::{Condition, Expiry, Extra, Request, Verb, Version, Wanted};
use penstock_net::slot::slot_of;
use penstock_net::status::Status;
use penstock_storage::index::CellId;
use penstock_storage::io::Blocks;
use penstock_storage::key_home::KeyHome;
use penstock_storage::place::{Lsn, Place};
use penstock_storage::planted::{self, Bug, is_planted};
use penstock_storage::record::{KindedValue, ValueKind};
use penstock_storage::store::clock::REPORTED_BEHIND_MS;
use penstock_storage::store::{ChangeKey, Committed, Found, NoRoom, Store};
use penstock_storage::system_key::is_token;
use penstock_storage::version::Version as Stored;
use rapidhash::v3::{RapidSecrets, rapidhash_v3_micro_inline};

use crate::spare_failure::SpareFailure;

use self::token::NewToken;

/// The hash of keys, with a secret of this process: nobody outside can aim at one run of the index.
/// Its lowest bit is 1 for tokens and 0 for all other keys, so the index tells tokens apart.
#[derive(Clone, Debug)]
pub(crate) struct KeyHash {
    secrets: RapidSecrets,
}

impl KeyHash {
    pub(crate) fn new(seed: u64) -> Self {
        KeyHash {
            secrets: RapidSecrets::seed(seed),
        }
    }

    /// The slot and hash of a key.
    #[inline]
    pub(crate) fn home_of(&self, key: &[u8]) -> KeyHome {
        KeyHome::new(slot_of(key), self.of(key))
    }

    /// What it makes of constants: another for another seed, and for the hash of earlier versions,
    /// which had another lowest bit.
    pub(crate) fn check(&self) -> u64 {
        let hashes = (u64::from(self.of(b"penstock")) << 32) | u64::from(self.of(b"snapshot"));
        hashes | 1
    }

    #[inline]
    pub(crate) fn of(&self, key: &[u8]) -> u32 {
        let [a, b, c, d, ..] =
            rapidhash_v3_micro_inline::<true, false>(key, &self.secrets).to_le_bytes();
        (u32::from_le_bytes([a, b, c, d]) & !1) | u32::from(is_token(key))
    }
}

/// What became of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ran {
    /// The reply item was written; it shows what the records up to `gate` made.
    Answered { gate: Lsn, status: Status },
    /// The reply item was written, and it is BUSY: nothing was executed.
    Busy,
    /// A key must be read from the disk first. Nothing was written.
    Cold(Cold),
    /// Likewise an older version of the key, which is in memory.
    OtherCold(Cold),
    /// This key of the operation is armed and has expired: its effects are to run first. Nothing
    /// was written.
    Unfired { slot: u16, hash: u32, id: CellId },
    /// The log has no room now. Nothing was written.
    Postponed,
}

/// A read that an operation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cold {
    /// The slot and hash of the key that is looked for.
    pub(crate) slot: u16,
    pub(crate) hash: u32,
    pub(crate) place: Place,
    /// The version that is looked for, if that is not the newest.
    pub(crate) version: Option<Stored>,
}

impl Cold {
    /// Where the index finds the key.
    pub(crate) fn home(&self) -> KeyHome {
        KeyHome::new(self.slot, self.hash)
    }
}

/// The circumstances of one operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    pub(crate) now_us: u64,
    pub(crate) hash: &'a KeyHash,
    /// The slot of the first key, and its hash.
    pub(crate) slot: u16,
    pub(crate) key_hash: u32,
    /// The item's number in its request.
    pub(crate) item: u16,
    /// The level that the reply reaches.
    pub(crate) level: AckLevel,
    /// The bound on the memory of the process, for messages.
    pub(crate) memory_max: u64,
    /// Why segments cannot be made ready, if that is not because the disk is full.
    pub(crate) spare_failure: Option<SpareFailure>,
    /// The lifetime of what is put without an expiry, in milliseconds; 0 is none.
    pub(crate) ttl_ms: u64,
    /// The read that the operation waited for.
    pub(crate) brought: Option<(Place, &'a [u8])>,
    /// How new it is what a GET shows that members may answer.
    pub(crate) standing: Option<Standing>,
    /// The shortest value that a GET shares with its cell instead of copying it.
    pub(crate) shared_bytes_min: usize,
    /// The token that is to be kept with the change.
    pub(crate) token: Option<&'a NewToken>,
    /// The reply of the script that has become this program: it stands in the answer.
    pub(crate) answer: Option<&'a [u8]>,
    /// A program on fields of one key may run as a run of one change.
    pub(crate) answers_repeats: bool,
    /// An armed key that has expired is missing although its effects have not run: they run
    /// elsewhere, or there is no room for them.
    pub(crate) hides_unfired: bool,
    /// The slots of the keys.
    pub(crate) spread: Spread,
}

/// Whether the keys of an item are of one slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spread {
    /// They are of the slot of the first one.
    OneSlot,
    /// They are of several slots of this shard.
    Slots,
}

impl Context<'_> {
    #[inline]
    fn head(&self, status: Status, version: Version) -> ReplyHead {
        ReplyHead::new(status, self.item, self.level, version)
    }

    /// The expiry of what is put without one, if its keyspace says one.
    #[inline]
    fn unsaid(&self, otherwise: Expiry) -> Expiry {
        match self.ttl_ms {
            0 => otherwise,
            ms => Expiry::In(ms),
        }
    }
}

/// Runs `request`, whose keys are of one slot, and writes its reply item at the end of `out`.
#[inline]
pub(crate) fn run<P: Blocks>(
    store: &mut Store<P>,
    context: &Context<'_>,
    request: &Request<'_>,
    out: &mut Pieces,
) -> Ran {
    let hash = context.key_hash;
    let found = store.keys().find(context.slot, hash, request.key);
    if let Found::Cold(place) = found {
        let slot = context.slot;
        return Ran::Cold(Cold {
            slot,
            hash,
            place,
            version: None,
        });
    }
    let key = Key::new(store, hash, request.key, found);
    if let Some(unfired) = key.unfired(store, context, context.slot) {
        return unfired;
    }
    match request.verb {
        Verb::Get => get(store, context, request, &key, out),
        Verb::Set => set(store, context, request, &key, out),
        Verb::Del => del(store, context, request, &key, out),
        Verb::GetAt => past::get_at(store, context, request, &key, out.written()),
        Verb::History => past::history(store, context, request, &key, out.written()),
        Verb::UpdateIf | Verb::Apply => unreachable!("they are programs: program::run"),
        Verb::Keyspace | Verb::Scan | Verb::Ping | Verb::Flush => {
            unreachable!("the shard itself answers")
        }
    }
}

/// What a GET shows of a key that needs no read: its cell if it has a value, the version, and the
/// last change that this shows. `None` if the key must be read from the disk, or has members.
#[inline]
pub(crate) fn shown_in_memory<P: Blocks>(
    store: &Store<P>,
    hash: u32,
    slot: u16,
    key: &[u8],
) -> Option<(Option<CellId>, Version, Lsn)> {
    match store.keys().find(slot, hash, key) {
        Found::Cold(_) => None,
        found => {
            let key = Key::new(store, hash, key, found);
            match key.unfired_cell(store) {
                Some(_) => None,
                None if key.has_members() => None,
                None => Some((key.value_cell(), key.version, key.lsn)),
            }
        }
    }
}

/// A key of the operation, as it was before it.
#[derive(Clone, Copy)]
struct Key<'a> {
    /// What a change of it must know.
    at: ChangeKey<'a>,
    /// The last change that a reply about the key shows.
    lsn: Lsn,
    version: Version,
}

impl<'a> Key<'a> {
    #[inline]
    fn new<P: Blocks>(store: &Store<P>, hash: u32, key: &'a [u8], found: Found) -> Self {
        match found {
            Found::Cached(id) => {
                let (exists, expiry_ms, kind, version, lsn) = store.data().standing(id);
                let at = ChangeKey {
                    key,
                    hash,
                    cell: Some(id),
                    exists,
                    expiry_ms,
                    kind,
                };
                let version = match exists {
                    true => wire(version),
                    false => Version::default(),
                };
                Key { at, lsn, version }
            }
            Found::Absent | Found::Cold(_) => Key {
                at: ChangeKey {
                    key,
                    hash,
                    cell: None,
                    exists: false,
                    expiry_ms: None,
                    kind: ValueKind::Plain,
                },
                lsn: Lsn(0),
                version: Version::default(),
            },
        }
    }

    /// What keeps an operation from looking at the key: it is armed and has expired, and its
    /// effects have not run.
    #[inline]
    fn unfired<P: Blocks>(
        &self,
        store: &Store<P>,
        context: &Context<'_>,
        slot: u16,
    ) -> Option<Ran> {
        if context.hides_unfired || is_planted(Bug::OverwriteUnfired) {
            return None;
        }
        let id = self.unfired_cell(store)?;
        Some(Ran::Unfired {
            slot,
            hash: self.at.hash,
            id,
        })
    }

    /// Its cell, if it is armed and has expired.
    #[inline]
    fn unfired_cell<P: Blocks>(&self, store: &Store<P>) -> Option<CellId> {
        // Nearly every key has a value or no cell.
        match (self.at.exists, self.at.cell) {
            (false, Some(id)) if store.data().must_fire(id) => Some(id),
            _ => None,
        }
    }

    /// Whether its value is one with members, which no verb reads.
    #[inline]
    fn has_members(&self) -> bool {
        self.at.kind != ValueKind::Plain
    }

    /// Its cell, if it has a value.
    #[inline]
    fn value_cell(&self) -> Option<CellId> {
        self.at.cell.filter(|_| self.at.exists)
    }
}

/// A version as the wire tells it.
#[inline]
fn wire(version: Stored) -> Version {
    Version {
        epoch: version.epoch,
        sequence: version.sequence,
    }
}

/// A version that the wire tells, as the store has it.
fn stored(version: Version) -> Stored {
    Stored {
        epoch: version.epoch,
        sequence: version.sequence,
    }
}

#[inline]
fn get<P: Blocks>(
    store: &mut Store<P>,
    context: &Context<'_>,
    request: &Request<'_>,
    key: &Key<'_>,
    out: &mut Pieces,
) -> Ran {
    let status = match key.at.exists {
        true => Status::Ok,
        false => Status::NotFound,
    };
    let head = context.head(status, key.version);
    match key.value_cell() {
        Some(_) if key.has_members() && request.wanted != Wanted::Expiry => {
            return wrong_type(context, key, out.written());
        }
        Some(id) => {
            let cell = store.keys().cell(id);
            let is_used = cell.is_used();
            let is_plain = request.wanted == Wanted::Value && context.standing.is_none();
            if is_plain && cell.value().len() < context.shared_bytes_min {
                head.write(out.written(), cell.value());
            } else {
                write_extended(store, context, request.wanted, id, head, out);
            }
            if !is_used {
                store.keys_mut().touch(id);
            }
            if let Some(expiry_ms) = key.at.expiry_ms {
                store.data_mut().note_shown(key.at.key, expiry_ms);
            }
        }
        None => head.write_extended(out.written(), None, context.standing, &[]),
    }
    Ran::Answered {
        gate: planted::or(Bug::AnswerUnflushed, Lsn(0), key.lsn),
        status,
    }
}

/// The reply that shows a long value, or tells more than the value.
fn write_extended<P: Blocks>(
    store: &Store<P>,
    context: &Context<'_>,
    wanted: Wanted,
    id: CellId,
    head: ReplyHead,
    out: &mut Pieces,
) {
    let cell = store.keys().cell(id);
    let expiry = (wanted != Wanted::Value).then(|| KeyExpiry {
        expiry_ms: cell.expiry_ms().unwrap_or(0),
        time_ms: store.data().clock().next_ms(),
    });
    let value = match wanted {
        Wanted::Expiry => &[],
        Wanted::Value | Wanted::ValueAndExpiry => cell.value(),
    };
    match store.keys().shared_value(id) {
        Some((block, range)) if value.len() >= context.shared_bytes_min => {
            head.share(out, expiry, context.standing, Arc::clone(block), range);
        }
        _ => head.write_extended(out.written(), expiry, context.standing, value),
    }
}

/// What keeps SET and DEL from applying.
fn condition_fails(condition: Condition, key: &Key<'_>) -> Option<Status> {
    match condition {
        Condition::Always => None,
        Condition::Absent => {
            let is_there = key.at.cell.is_some();
            let is_there = planted::or(Bug::AbsentIgnoresExpiry, is_there, key.at.exists);
            is_there.then_some(Status::Exists)
        }
        Condition::Present => (!key.at.exists).then_some(Status::NotFound),
        Condition::Version(_) if !key.at.exists => Some(Status::NotFound),
        Condition::Version(version) => (version != key.version).then_some(Status::VersionMismatch),
    }
}

/// The reply of a SET or DEL whose condition does not hold. It shows the value that is there to a
/// client that asks for it, behind the gate of a GET.
#[cold]
fn lost<P: Blocks>(
    store: &mut Store<P>,
    context: &Context<'_>,
    request: &Request<'_>,
    status: Status,
    key: &Key<'_>,
    out: &mut Pieces,
) -> Ran {
    match key.value_cell() {
        Some(_) if request.extra == Extra::Show && key.has_members() => {
            wrong_type(context, key, out.written())
        }
        Some(id) if request.extra == Extra::Show => {
            let mut head = context.head(status, key.version);
            head.flags = ITEM_FLAG_SHOWN;
            write_extended(store, context, Wanted::Value, id, head, out);
            store.keys_mut().touch(id);
            Ran::Answered {
                gate: key.lsn,
                status,
            }
        }
        _ => no(context, status, key, out.written()),
    }
}

/// The reply of an operation that would show or edit the value of a key with members. It shows
/// that the key has them.
#[cold]
fn wrong_type(context: &Context<'_>, key: &Key<'_>, out: &mut Vec<u8>) -> Ran {
    match refused(context, Refusal::WrongType { key: 0 }, out) {
        Ran::Answered { status, .. } => Ran::Answered {
            gate: key.lsn,
            status,
        },
        other => other,
    }
}

/// The reply of an operation that changed nothing.
fn no(context: &Context<'_>, status: Status, key: &Key<'_>, out: &mut Vec<u8>) -> Ran {
    context.head(status, key.version).write(out, &[]);
    Ran::Answered {
        gate: key.lsn,
        status,
    }
}

#[cold]
pub(crate) fn full<P: Blocks>(store: &Store<P>, context: &Context<'_>, out: &mut Vec<u8>) -> Ran {
    let log = store.log();
    let failure = context.spare_failure.filter(|_| !log.has_most_segments());
    if let Some(failure) = failure {
        let head = context.head(Status::Busy, Version::default());
        head.write_message(out, &failure.message());
        return Ran::Busy;
    }
    let status = Status::Full;
    let head = context.head(status, Version::default());
    if log.has_most_segments() {
        let (count, most) = (log.sealed_segments().len(), log.segments_max());
        head.write_message(
            out,
            &format_args!("the log has {count} segments of {most}, and what is in them counts"),
        );
    } else {
        let mend = match store.keyspaces().keeps_versions() {
            true => {
                "; a keyspace that keeps fewer versions, or for a shorter time, gives room back"
            }
            false => "",
        };
        let carries = store
            .cleaning()
            .disk_share(store.log())
            .map_or_else(String::new, |share| {
                let (counting, most) = (
                    store.cleaning().counting_bytes() >> 20,
                    share.live_bytes_max() >> 20,
                );
                format!(
                    "; {counting} MiB of records count in this shard, and its share of \
                     disk_bytes_max carries {most} MiB"
                )
            });
        let message = format_args!(
            "the disk is full, or disk_bytes_max is used up: no segment can be made ready for new \
             records{carries}{mend}"
        );
        head.write_message(out, &message);
    }
    Ran::Answered {
        gate: Lsn(0),
        status,
    }
}

/// The reply of a change for which there is no room; it has changed nothing.
#[cold]
fn no_room<P: Blocks>(
    store: &Store<P>,
    context: &Context<'_>,
    no_room: NoRoom,
    out: &mut Vec<u8>,
) -> Ran {
    match no_room {
        NoRoom::Wait => Ran::Postponed,
        NoRoom::Memory => no_memory(store, context, out),
        NoRoom::Timers => no_memory_for_timers(store, context, out),
        NoRoom::Log => full(store, context, out),
        NoRoom::Record { bytes, max } => {
            let what = "what this write and its token take in the log";
            refused(context, Refusal::ApplyBytes { what, bytes, max }, out)
        }
    }
}

#[cold]
fn no_memory<P: Blocks>(store: &Store<P>, context: &Context<'_>, out: &mut Vec<u8>) -> Ran {
    let usage = store.data().usage();
    let mut message = format!(
        "no memory for another key: memory_max = {} leaves this shard {} bytes, and the index of \
         its {} keys takes {} of at most {}",
        context.memory_max,
        store.data().budget().memory_bytes_max,
        usage.keys,
        usage.index_bytes,
        store.data().budget().index_bytes_max(),
    );
    if store.keyspaces().keeps_versions() || usage.versions > 0 {
        message = format!(
            "no memory for another key or kept version: memory_max = {} leaves this shard {} \
             bytes, and its {} keys and {} kept versions take {} of at most {}",
            context.memory_max,
            store.data().budget().memory_bytes_max,
            usage.keys,
            usage.versions,
            usage.index_bytes + usage.version_bytes,
            store.data().budget().index_bytes_max(),
        );
    }
    memory_full(context, &message, out)
}

#[cold]
fn no_memory_for_timers<P: Blocks>(
    store: &Store<P>,
    context: &Context<'_>,
    out: &mut Vec<u8>,
) -> Ran {
    let usage = store.data().usage();
    let message = format!(
        "no memory for another armed key: memory_max = {} leaves this shard {} bytes, and its {} \
         keys and {} timers of armed keys take {} of at most {}",
        context.memory_max,
        store.data().budget().memory_bytes_max,
        usage.keys,
        usage.timers,
        usage.index_bytes + usage.timer_bytes,
        store.data().budget().index_bytes_max(),
    );
    memory_full(context, &message, out)
}

/// FULL, for want of memory: nothing was executed, so the answer waits for nothing.
fn memory_full(context: &Context<'_>, message: &str, out: &mut Vec<u8>) -> Ran {
    context
        .head(Status::Full, Version::default())
        .write_message(out, &message);
    Ran::Answered {
        gate: Lsn(0),
        status: Status::Full,
    }
}

/// The expiry that the first key has after SET or UPDATE_IF.
#[inline]
fn expiry_after<P: Blocks>(
    store: &Store<P>,
    expiry: Expiry,
    key: &Key<'_>,
) -> Result<Option<u64>, Refusal> {
    match expiry {
        Expiry::Never if !is_planted(Bug::SetKeepsExpiry) => Ok(None),
        Expiry::Never | Expiry::Keep => Ok(key.at.expiry_ms.filter(|_| key.at.exists)),
        Expiry::At(ms) => {
            let (now_ms, behind_ms) = (store.data().time_ms(), store.data().clock().behind_ms());
            not_past_by_store_alone(ms, now_ms, behind_ms).map(|()| Some(ms))
        }
        Expiry::In(ms) => {
            let now_ms = planted::or(Bug::LifetimeIsTime, 0, store.data().clock().next_ms());
            Some(now_ms + ms)
                .filter(|&at_ms| at_ms <= EXPIRY_MS_MAX)
                .map(Some)
                .ok_or(Refusal::Lifetime { ms, now_ms })
        }
    }
}

/// Refuses a time that is past by a store which is far ahead of the wall clock, and not by the wall
/// clock: the key was meant to live, and would be gone at once.
#[inline]
fn not_past_by_store_alone(ms: u64, now_ms: u64, behind_ms: u64) -> Result<(), Refusal> {
    let wall_ms = now_ms.saturating_sub(behind_ms);
    match behind_ms > REPORTED_BEHIND_MS && (wall_ms + 1..=now_ms).contains(&ms) {
        true => Err(Refusal::ExpiryPast {
            ms,
            now_ms,
            wall_ms,
        }),
        false => Ok(()),
    }
}

/// The reply of an operation that the shard does not accept.
#[cold]
pub(crate) fn refused(context: &Context<'_>, refusal: Refusal, out: &mut Vec<u8>) -> Ran {
    context
        .head(refusal.status(), Version::default())
        .write_message(out, &refusal);
    Ran::Answered {
        gate: Lsn(0),
        status: refusal.status(),
    }
}

fn set<P: Blocks>(
    store: &mut Store<P>,
    context: &Context<'_>,
    request: &Request<'_>,
    key: &Key<'_>,
    out: &mut Pieces,
) -> Ran {
    if let Some(status) = condition_fails(request.condition, key) {
        return lost(store, context, request, status, key, out);
    }
    let out = out.written();
    let expiry = match request.expiry {
        Expiry::Never => context.unsaid(Expiry::Never),
        Expiry::Keep if !key.at.exists => context.unsaid(Expiry::Keep),
        expiry => expiry,
    };
    let expiry_ms = match expiry_after(store, expiry, key) {
        Ok(expiry_ms) => expiry_ms,
        Err(refusal) => return refused(context, refusal, out),
    };
    let value = KindedValue::plain(request.value);
    let mut change = store.change(context.slot, [key.at], 1);
    match request.expiry {
        // What keeps the expiry keeps what runs then.
        Expiry::Keep if key.at.exists => change.put_keeping(0, value),
        _ => change.put(0, value, expiry_ms),
    }
    let committed = token::commit(change, context, (&[], 0));
    end_change(store, context, committed, out)
}

fn del<P: Blocks>(
    store: &mut Store<P>,
    context: &Context<'_>,
    request: &Request<'_>,
    key: &Key<'_>,
    out: &mut Pieces,
) -> Ran {
    let fails =
        condition_fails(request.condition, key).or((!key.at.exists).then_some(Status::NotFound));
    if let Some(status) = fails {
        return lost(store, context, request, status, key, out);
    }
    let mut change = store.change(context.slot, [key.at], 1);
    change.delete(0);
    let committed = token::commit(change, context, (&[], 0));
    end_change(store, context, committed, out.written())
}

/// The reply of a change of one key.
#[inline]
fn end_change<P: Blocks>(
    store: &Store<P>,
    context: &Context<'_>,
    committed: Result<Committed, NoRoom>,
    out: &mut Vec<u8>,
) -> Ran {
    match committed {
        Ok(Committed { lsn, version, .. }) => {
            context.head(Status::Ok, wire(version)).write(out, &[]);
            Ran::Answered {
                gate: lsn,
                status: Status::Ok,
            }
        }
        Err(lack) => no_room(store, context, lack, out),
    }
}
