//! One operation on the store: find its keys, decide, change, log, write the reply item.
//!
//! Nothing is changed unless everything holds and the log has room: the edits of a failed or
//! postponed operation are undone in the cells before anything else runs.

pub(crate) mod past;

use std::sync::Arc;

use penstock_net::instruction::{Instruction, Operation, Outcome};
use penstock_net::level::AckLevel;
use penstock_net::limits::EXPIRY_MS_MAX;
use penstock_net::pieces::Pieces;
use penstock_net::refusal::Refusal;
use penstock_net::reply::{
    ExpiryTold, ITEM_FLAG_OVERFLOW, ITEM_FLAG_SHOWN, REPLY_ITEM_BYTES, ReplyHead, Standing,
};
use penstock_net::request::{Condition, Expiry, Extra, Request, Verb, Version, Wanted};
use penstock_net::slot::slot_of;
use penstock_net::status::Status;
use penstock_storage::index::CellId;
use penstock_storage::io::Blocks;
use penstock_storage::log::{Purpose, Room};
use penstock_storage::place::{Lsn, Place};
use penstock_storage::planted::{Bug, is_planted};
use penstock_storage::record::part_bytes;
use penstock_storage::store::{Found, Store};
use penstock_storage::version::Version as Stored;
use rapidhash::v3::{RapidSecrets, rapidhash_v3_micro_inline};

use crate::spare_failure::SpareFailure;

/// The hash of keys, with a secret of this process: nobody outside can aim at one run of the index.
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
    pub(crate) fn home_of(&self, key: &[u8]) -> (u16, u32) {
        (slot_of(key), self.of(key))
    }

    /// What it makes of constants: another for another seed.
    pub(crate) fn check(&self) -> u64 {
        (u64::from(self.of(b"penstock")) << 32) | u64::from(self.of(b"snapshot"))
    }

    #[inline]
    pub(crate) fn of(&self, key: &[u8]) -> u32 {
        let [a, b, c, d, ..] =
            rapidhash_v3_micro_inline::<true, false>(key, &self.secrets).to_le_bytes();
        u32::from_le_bytes([a, b, c, d])
    }
}

/// What became of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ran {
    /// The reply item was written; it shows what the records up to `gate` made.
    Answered { gate: Lsn, status: Status },
    /// A key must be read from the disk first. Nothing was written.
    Cold(Cold),
    /// Likewise the second key, or an older version of the first one, which is in memory.
    SecondCold(Cold),
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

/// Runs `request` and writes its reply item at the end of `out`. `undo` is scratch memory.
#[inline]
pub(crate) fn run<P: Blocks>(
    store: &mut Store<P>,
    context: &Context<'_>,
    request: &Request<'_>,
    undo: &mut Vec<Undo>,
    out: &mut Pieces,
) -> Ran {
    let hash = context.key_hash;
    let found = store.find(context.slot, hash, request.key);
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
    match request.verb {
        Verb::UpdateIf if request.second_key.is_none() => {
            update_if::<1, P>(store, context, request, [key], undo, out.written())
        }
        Verb::UpdateIf => update_if_on_two(store, context, request, key, undo, out.written()),
        Verb::Get => get(store, context, request, &key, out),
        Verb::Set => set(store, context, request, &key, out),
        Verb::Del => del(store, context, request, &key, out),
        Verb::GetAt => past::get_at(store, context, request, &key, out.written()),
        Verb::History => past::history(store, context, request, &key, out.written()),
        Verb::Keyspace => unreachable!("the shard decides about keyspaces"),
    }
}

/// What a GET shows of a key that needs no read: its cell if it has a value, the version, and the
/// last change that this shows. `None` if the key must be read from the disk.
#[inline]
pub(crate) fn look<P: Blocks>(
    store: &Store<P>,
    hash: u32,
    slot: u16,
    key: &[u8],
) -> Option<(Option<CellId>, Version, Lsn)> {
    match store.find(slot, hash, key) {
        Found::Cold(_) => None,
        found => {
            let key = Key::new(store, hash, key, found);
            Some((key.cell.filter(|_| key.exists), key.version, key.lsn))
        }
    }
}

/// A key of the operation, as it was before it.
#[derive(Clone, Copy)]
struct Key<'a> {
    bytes: &'a [u8],
    hash: u32,
    cell: Option<CellId>,
    /// It has a value: its cell is neither a deletion nor expired.
    exists: bool,
    /// What its cell tells, also of one that has expired.
    expiry_ms: Option<u64>,
    /// The last change that a reply about the key shows.
    lsn: Lsn,
    version: Version,
}

impl<'a> Key<'a> {
    #[inline]
    fn new<P: Blocks>(store: &Store<P>, hash: u32, bytes: &'a [u8], found: Found) -> Self {
        match found {
            Found::Cached(id) => {
                let (exists, expiry_ms, version, lsn) = store.standing(id);
                let version = match exists {
                    true => Version {
                        epoch: version.epoch,
                        sequence: version.sequence,
                    },
                    false => Version::default(),
                };
                Key {
                    bytes,
                    hash,
                    cell: Some(id),
                    exists,
                    expiry_ms,
                    lsn,
                    version,
                }
            }
            Found::Absent | Found::Cold(_) => Key {
                bytes,
                hash,
                cell: None,
                exists: false,
                expiry_ms: None,
                lsn: Lsn(0),
                version: Version::default(),
            },
        }
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
    let status = if key.exists {
        Status::Ok
    } else {
        Status::NotFound
    };
    match key.cell {
        Some(id) if key.exists => {
            let head = context.head(status, key.version);
            let cell = store.cell(id);
            let is_used = cell.is_used();
            let is_plain = request.wanted == Wanted::Value && context.standing.is_none();
            if is_plain && cell.value().len() < context.shared_bytes_min {
                head.write(out.written(), cell.value());
            } else {
                write_telling(store, context, request.wanted, id, head, out);
            }
            if !is_used {
                store.touch(id);
            }
        }
        _ => {
            let head = context.head(status, key.version);
            head.write_telling(out.written(), None, context.standing, &[]);
        }
    }
    Ran::Answered {
        gate: match is_planted(Bug::AnswerUnflushed) {
            true => Lsn(0),
            false => key.lsn,
        },
        status,
    }
}

/// The reply that shows a long value, or tells more than the value.
fn write_telling<P: Blocks>(
    store: &Store<P>,
    context: &Context<'_>,
    wanted: Wanted,
    id: CellId,
    head: ReplyHead,
    out: &mut Pieces,
) {
    let cell = store.cell(id);
    let told = (wanted != Wanted::Value).then(|| ExpiryTold {
        expiry_ms: cell.expiry_ms().unwrap_or(0),
        time_ms: store.time_ms(),
    });
    let value = match wanted {
        Wanted::Expiry => &[],
        Wanted::Value | Wanted::ValueAndExpiry => cell.value(),
    };
    match store.shared_value(id) {
        Some((block, range)) if value.len() >= context.shared_bytes_min => {
            head.share(out, told, context.standing, Arc::clone(block), range);
        }
        _ => head.write_telling(out.written(), told, context.standing, value),
    }
}

/// What keeps SET and DEL from applying.
fn condition_fails(condition: Condition, key: &Key<'_>) -> Option<Status> {
    match condition {
        Condition::Always => None,
        Condition::Absent if is_planted(Bug::AbsentIgnoresExpiry) => {
            key.cell.map(|_| Status::Exists)
        }
        Condition::Absent => key.exists.then_some(Status::Exists),
        Condition::Present => (!key.exists).then_some(Status::NotFound),
        Condition::Version(_) if !key.exists => Some(Status::NotFound),
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
    match key.cell {
        Some(id) if key.exists && request.extra == Extra::Show => {
            let mut head = context.head(status, key.version);
            head.flags = ITEM_FLAG_SHOWN;
            write_telling(store, context, Wanted::Value, id, head, out);
            store.touch(id);
            Ran::Answered {
                gate: key.lsn,
                status,
            }
        }
        _ => no(context, status, key, out.written()),
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
fn full<P: Blocks>(store: &Store<P>, context: &Context<'_>, out: &mut Vec<u8>) -> Ran {
    let log = store.log();
    let failure = context.spare_failure.filter(|_| !log.has_most_segments());
    let status = failure.map_or(Status::Full, |_| Status::Busy);
    let head = context.head(status, Version::default());
    if let Some(failure) = failure {
        head.write_message(out, &failure.message());
    } else if log.has_most_segments() {
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
        let carries = store.disk_share().map_or_else(String::new, |share| {
            let (counting, most) = (store.counting_bytes() >> 20, share.live_bytes_max() >> 20);
            format!("; {counting} MiB of records count in this shard, and its share of disk_bytes_max carries {most} MiB")
        });
        let message = format_args!(
            "the disk is full, or disk_bytes_max is used up: no segment can be made ready for new records{carries}{mend}"
        );
        head.write_message(out, &message);
    }
    Ran::Answered {
        gate: Lsn(0),
        status,
    }
}

/// Whether the value of a key may grow, the key come to be, or one more version of it be kept.
/// Without room for it the answer is `Some`: postponed while others leave, refused when there is no
/// memory for more.
#[inline]
fn lacks_memory<P: Blocks>(
    store: &Store<P>,
    context: &Context<'_>,
    key: &Key<'_>,
    adds_version: bool,
    out: &mut Vec<u8>,
) -> Option<Ran> {
    let is_new = key.cell.is_none() && !store.has_room_for_key((context.slot, key.hash));
    if is_new || (adds_version && !store.has_room_for_keys()) {
        return Some(match store.waits_for_keys() {
            true => Ran::Postponed,
            false => no_memory(store, context, out),
        });
    }
    store.is_memory_short().then_some(Ran::Postponed)
}

#[cold]
fn no_memory<P: Blocks>(store: &Store<P>, context: &Context<'_>, out: &mut Vec<u8>) -> Ran {
    let usage = store.usage();
    let mut message = format!(
        "no memory for another key: memory_max = {} leaves this shard {} bytes, and the index of its {} keys takes {} of at most {}",
        context.memory_max,
        store.budget().memory_bytes_max,
        usage.keys,
        usage.index_bytes,
        store.budget().index_bytes_max(),
    );
    if store.keyspaces().keeps_versions() || usage.versions > 0 {
        message = format!(
            "no memory for another key or kept version: memory_max = {} leaves this shard {} bytes, and its {} keys and {} kept versions take {} of at most {}",
            context.memory_max,
            store.budget().memory_bytes_max,
            usage.keys,
            usage.versions,
            usage.index_bytes + usage.version_bytes,
            store.budget().index_bytes_max(),
        );
    }
    context
        .head(Status::Full, Version::default())
        .write_message(out, &message);
    Ran::Answered {
        gate: Lsn(0),
        status: Status::Full,
    }
}

/// Logs the cells and writes the head of the reply over the placeholder at `from`.
#[inline]
fn commit<P: Blocks>(
    store: &mut Store<P>,
    context: &Context<'_>,
    cells: &[(u32, CellId)],
) -> (Lsn, Version) {
    let (lsn, version) = store.commit(context.now_us, context.slot, cells);
    (
        lsn,
        Version {
            epoch: version.epoch,
            sequence: version.sequence,
        },
    )
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
        Expiry::Never | Expiry::Keep => Ok(key.expiry_ms.filter(|_| key.exists)),
        Expiry::At(ms) => Ok(Some(ms)),
        Expiry::In(ms) => {
            let now_ms = match is_planted(Bug::LifetimeIsTime) {
                true => 0,
                false => store.time_ms(),
            };
            Some(now_ms + ms)
                .filter(|&at_ms| at_ms <= EXPIRY_MS_MAX)
                .map(Some)
                .ok_or(Refusal::Lifetime { ms, now_ms })
        }
    }
}

/// The reply of an operation that the shard does not accept.
#[cold]
fn refused(context: &Context<'_>, refusal: Refusal, out: &mut Vec<u8>) -> Ran {
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
        Expiry::Keep if !key.exists => context.unsaid(Expiry::Keep),
        expiry => expiry,
    };
    let expiry_ms = match expiry_after(store, expiry, key) {
        Ok(expiry_ms) => expiry_ms,
        Err(refusal) => return refused(context, refusal, out),
    };
    let adds_version = store.adds_version(context.slot, key.hash, key.bytes);
    if let Some(ran) = lacks_memory(store, context, key, adds_version, out) {
        return ran;
    }
    let purpose = match key.cell.filter(|_| key.exists && !adds_version) {
        Some(id) if request.value.len() <= store.cell(id).value().len().next_multiple_of(8) => {
            Purpose::Keep
        }
        _ => Purpose::Grow,
    };
    match store.room(
        purpose,
        key.bytes.len(),
        request.value.len(),
        expiry_ms.is_some(),
    ) {
        Room::Yes => {}
        Room::Wait => return Ran::Postponed,
        Room::Full => return full(store, context, out),
    }
    let home = (context.slot, key.hash);
    let id = match key.cell {
        Some(id) => store.set_value(home, id, request.value, expiry_ms),
        None => store.insert(home, key.bytes, request.value, expiry_ms),
    };
    let (gate, version) = commit(store, context, &[(key.hash, id)]);
    context.head(Status::Ok, version).write(out, &[]);
    Ran::Answered {
        gate,
        status: Status::Ok,
    }
}

fn del<P: Blocks>(
    store: &mut Store<P>,
    context: &Context<'_>,
    request: &Request<'_>,
    key: &Key<'_>,
    out: &mut Pieces,
) -> Ran {
    let fails =
        condition_fails(request.condition, key).or((!key.exists).then_some(Status::NotFound));
    if let Some(status) = fails {
        return lost(store, context, request, status, key, out);
    }
    let out = out.written();
    // Where versions are kept, a deletion is one more.
    if store.adds_version(context.slot, key.hash, key.bytes) && !store.has_room_for_keys() {
        return no_memory(store, context, out);
    }
    match store.room(Purpose::Keep, key.bytes.len(), 0, false) {
        Room::Yes => {}
        Room::Wait => return Ran::Postponed,
        Room::Full => return full(store, context, out),
    }
    let id = key
        .cell
        .expect("a key that exists and is not cold has a cell");
    store.delete(id);
    let (gate, version) = commit(store, context, &[(key.hash, id)]);
    context.head(Status::Ok, version).write(out, &[]);
    Ran::Answered {
        gate,
        status: Status::Ok,
    }
}

/// One edit to be taken back if a later instruction fails.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Undo {
    /// The instruction that made it.
    number: usize,
    /// The field before it.
    before: u64,
}

/// Why the program stopped.
enum Stop {
    Failed {
        instruction: Instruction,
        number: usize,
        status: Status,
        actual: u64,
        overflow: bool,
    },
    Refused(Refusal),
}

fn update_if_on_two<'a, P: Blocks>(
    store: &mut Store<P>,
    context: &Context<'_>,
    request: &Request<'a>,
    first: Key<'a>,
    undo: &mut Vec<Undo>,
    out: &mut Vec<u8>,
) -> Ran {
    let second = request.second_key.expect("the caller looked");
    let slot = slot_of(second);
    if slot != context.slot {
        let refusal = Refusal::CrossSlot {
            first: context.slot,
            second: slot,
        };
        return refused(context, refusal, out);
    }
    let hash = context.hash.of(second);
    let found = store.find(slot, hash, second);
    if let Found::Cold(place) = found {
        let cold = Cold {
            slot,
            hash,
            place,
            version: None,
        };
        return match first.cell {
            Some(_) => Ran::SecondCold(cold),
            None => Ran::Cold(cold),
        };
    }
    let second = Key::new(store, hash, second, found);
    update_if::<2, P>(store, context, request, [first, second], undo, out)
}

/// Runs the instructions over `KEYS` keys, 1 or 2; compiled for each, because nearly all have one.
#[inline]
fn update_if<'a, const KEYS: usize, P: Blocks>(
    store: &mut Store<P>,
    context: &Context<'_>,
    request: &Request<'a>,
    keys: [Key<'a>; KEYS],
    undo: &mut Vec<Undo>,
    out: &mut Vec<u8>,
) -> Ran {
    let first = keys[0];
    let home = (context.slot, first.hash);
    let seen = keys.iter().fold(Lsn(0), |seen, key| seen.max(key.lsn));
    let starts = request.has_start && !first.exists;
    if request.expiry != Expiry::Keep && !first.exists && !starts {
        return no(context, Status::NotFound, &first, out);
    }
    // Of the first key as it is, or of an expired one whose cell is used again.
    let held_ms = first.expiry_ms;
    let expiry = match request.expiry {
        Expiry::Keep if starts => context.unsaid(Expiry::Keep),
        expiry => expiry,
    };
    let expiry_ms = match expiry_after(store, expiry, &first) {
        Ok(expiry_ms) => expiry_ms,
        Err(refusal) => return refused(context, refusal, out),
    };
    let changes_expiry = match expiry {
        Expiry::Keep => false,
        Expiry::Never => held_ms.is_some(),
        Expiry::At(_) | Expiry::In(_) => true,
    };
    if starts && let Some(ran) = lacks_memory(store, context, &first, false, out) {
        return ran;
    }
    let mut cells = keys.map(|key| key.cell);
    let mut is_there = keys.map(|key| key.exists);
    if starts {
        let id = match first.cell {
            Some(id) => store.set_value(home, id, request.value, None),
            None => store.insert(home, first.bytes, request.value, None),
        };
        // The same key named twice is one key.
        for which in 0..KEYS {
            if keys[which].bytes == first.bytes {
                (cells[which], is_there[which]) = (Some(id), true);
            }
        }
    }

    let from = out.len();
    out.extend_from_slice(&[0; REPLY_ITEM_BYTES]);
    undo.clear();
    let mut changed = [false; KEYS];
    changed[0] = (starts && !is_planted(Bug::StartNotLogged)) || changes_expiry;
    let mut stop = None;
    // The value that was edited last, and whose it is: the next instruction is mostly about the
    // same.
    let mut held: Option<(CellId, &mut [u8])> = None;
    for number in 0..request.instruction_count() {
        // Decoded where it is used: through an iterator it would go through memory.
        let instruction = request.instruction(number);
        let which = usize::from(instruction.key);
        let failed = |status, actual, overflow| {
            Some(Stop::Failed {
                instruction,
                number,
                status,
                actual,
                overflow,
            })
        };
        match instruction.operation {
            Operation::Exists if keys[which].exists => continue,
            Operation::Absent if !keys[which].exists => continue,
            Operation::Absent => {
                stop = failed(Status::GuardFailed, 1, false);
                break;
            }
            _ => {}
        }
        let Some(id) =
            cells[which].filter(|_| is_there[which] && instruction.operation != Operation::Exists)
        else {
            stop = failed(Status::NotFound, 0, false);
            break;
        };
        let value = match held {
            Some((whose, value)) if whose == id => value,
            _ => store.value_mut(id),
        };
        let outcome = instruction.run(value);
        let value_len = value.len();
        held = Some((id, value));
        match outcome {
            Outcome::Holds => {}
            Outcome::Changed { before, after } => {
                undo.push(Undo { number, before });
                changed[which] = true;
                out.extend_from_slice(&after.to_le_bytes());
            }
            Outcome::Failed { actual, overflow } => {
                stop = failed(Status::GuardFailed, actual, overflow);
                break;
            }
            Outcome::OutsideValue => {
                stop = Some(Stop::Refused(Refusal::Field {
                    instruction: number,
                    offset: instruction.offset,
                    width: instruction.field_type.width(),
                    value_len,
                }));
                break;
            }
        }
    }

    if stop.is_none() && changed == [false; KEYS] {
        context.head(Status::Ok, first.version).patch(out, from);
        return Ran::Answered {
            gate: seen,
            status: Status::Ok,
        };
    }
    let mut logged = [(0, CellId(0)); KEYS];
    let mut count = 0;
    let mut bytes = 0;
    let mut adds_version = false;
    for which in 0..KEYS {
        let id = cells[which].filter(|_| changed[which]);
        if let Some(id) = id
            && !logged[..count].iter().any(|&(_, other)| other == id)
        {
            logged[count] = (keys[which].hash, id);
            count += 1;
            let key = keys[which];
            adds_version |= store.adds_version(context.slot, key.hash, key.bytes);
            if count == 1 || !is_planted(Bug::RoomForOnePart) {
                let cell = store.cell(id);
                let expires = match which {
                    0 => expiry_ms.is_some(),
                    _ => cell.expiry_ms().is_some(),
                };
                bytes += part_bytes(keys[which].bytes.len(), cell.value().len(), expires, 0);
            }
        }
    }
    let has_memory = !adds_version || store.has_room_for_keys();
    let room = if stop.is_none() {
        let purpose = match starts || adds_version {
            true => Purpose::Grow,
            false => Purpose::Keep,
        };
        match has_memory {
            true => store.room_for(purpose, bytes),
            false => Room::Full,
        }
    } else {
        Room::Yes
    };
    if stop.is_none() && room == Room::Yes {
        if changes_expiry || (is_planted(Bug::EditForgetsExpiry) && first.exists) {
            let id = cells[0].expect("it exists or starts");
            let expiry_ms = expiry_ms.filter(|_| changes_expiry);
            let now = store.set_expiry(home, id, expiry_ms);
            cells[0] = Some(now);
            for (_, logged) in &mut logged[..count] {
                if *logged == id {
                    *logged = now;
                }
            }
        }
        let (gate, version) = commit(store, context, &logged[..count]);
        // A change of the second key alone leaves the first one's version.
        let is_logged = |id| logged[..count].iter().any(|&(_, logged)| logged == id);
        let version = if cells[0].is_some_and(is_logged) || is_planted(Bug::VersionOfOtherKey) {
            version
        } else {
            first.version
        };
        context.head(Status::Ok, version).patch(out, from);
        return Ran::Answered {
            gate,
            status: Status::Ok,
        };
    }

    let undone = match is_planted(Bug::UndoOnlyLast) {
        true => 1,
        false => undo.len(),
    };
    for Undo { number, before } in undo.iter().rev().take(undone) {
        let instruction = request.instruction(*number);
        let id = cells[usize::from(instruction.key)].expect("what was edited is there");
        instruction.undo(*before, store.value_mut(id));
    }
    if starts && (first.cell.is_none() || !is_planted(Bug::ResurrectDeleted)) {
        let id = cells[0].expect("made above");
        match (first.cell, held_ms) {
            // Nobody reads the value of an expired key again.
            (Some(_), Some(_)) if is_planted(Bug::StartRevivesExpired) => {
                store.set_value(home, id, &[], None);
            }
            (Some(_), Some(_)) => {
                store.set_value(home, id, &[], held_ms);
            }
            (Some(_), None) => store.delete(id),
            (None, _) => store.discard(home, id),
        }
    }
    out.truncate(from);
    let status = match stop {
        None if room == Room::Wait => return Ran::Postponed,
        None if has_memory => return full(store, context, out),
        None => return no_memory(store, context, out),
        Some(Stop::Refused(refusal)) => {
            context
                .head(refusal.status(), first.version)
                .write_message(out, &refusal);
            refusal.status()
        }
        Some(Stop::Failed {
            instruction,
            number,
            status,
            actual,
            overflow,
        }) => {
            let mut head = context.head(status, first.version);
            head.reason = instruction.reason;
            head.instruction = u8::try_from(number).expect("at most 64 instructions");
            head.flags = if overflow { ITEM_FLAG_OVERFLOW } else { 0 };
            let value = actual.to_le_bytes();
            head.write(
                out,
                if status == Status::GuardFailed {
                    &value
                } else {
                    &[]
                },
            );
            status
        }
    };
    Ran::Answered {
        gate: match is_planted(Bug::UngatedFailure) {
            true => Lsn(0),
            false => seen,
        },
        status,
    }
}
