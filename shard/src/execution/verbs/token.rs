//! The token of a write: if it is known, its answer is told again; if it is new, it is kept with
//! the change.
//!
//! ```text
//! token --> horizon of its partition --> key of the token -+- found --> the answer again
//!             | not known: read            | cold: read    +- gone, too old --> TOKEN_TOO_OLD
//!                                                          +- new --> run; token in its record
//! ```
//!
//! What must hold: a token that is not there is new only if the horizon of its partition says that
//! it would be there. So that horizon stands in the log before the first token does.

use penstock_net::limits::TOKEN_AHEAD_MS_MAX;
use penstock_net::refusal::Refusal;
use penstock_net::reply::{ITEM_FLAG_REPLAYED, REPLY_ITEM_BYTES};
use penstock_net::request::{Token, Version, request_hash};
use penstock_net::slot::tag_of;
use penstock_net::status::Status;
use penstock_storage::horizon::{AHEAD_MS_MAX, Horizon};
use penstock_storage::index::CellId;
use penstock_storage::io::Blocks;
use penstock_storage::place::Lsn;
use penstock_storage::planted::{self, Bug, is_planted};
use penstock_storage::record::ValueKind;
use penstock_storage::store::{
    Change, ChangeKey, Committed, Found, KeyNumbers, NoRoom, Store, TokenPart,
};
use penstock_storage::system_key::{HORIZON_KEY, TokenKey, token_key, token_time_ms};
use penstock_storage::token::TokenAnswer;
use penstock_storage::version::{PARTITIONS, SLOTS, Version as Stored, partition_of};

use crate::joint::message::{LeftKey, LeftValue};

use super::{Cold, Context, Key, KeyHash, Ran, no_room, refused, wire};

const _: () = assert!(AHEAD_MS_MAX == TOKEN_AHEAD_MS_MAX);

const HORIZON_KEY_BYTES: usize = HORIZON_KEY.len() + 3;

/// A token that is to be kept with the change that it names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewToken {
    key: TokenKey,
    at: TokenAt,
    request_hash: u64,
    expiry_ms: u64,
    token_ms: u64,
    /// Why it cannot be kept: there is no room for the horizon that must stand before it.
    lack: Option<NoRoom>,
}

/// What the index knows of the key of a token that has no value.
#[derive(Clone, Copy, Debug)]
struct TokenAt {
    hash: u32,
    cell: Option<CellId>,
}

/// What a token means for its request.
pub(crate) enum TokenVerdict {
    /// It is new: the request is to be executed, and the token kept with it.
    New(NewToken),
    /// The request is answered, or waits.
    Ran(Ran),
}

/// The key and hash of a token in a slot.
#[inline]
pub(crate) fn home_of(hash: &KeyHash, slot: u16, name: &[u8]) -> (TokenKey, u32) {
    let key = token_key(tag_of(slot), name);
    (key, hash.of(&key))
}

/// What is known of a token.
enum Standing {
    /// A read is needed first.
    Cold(Cold),
    /// A write with the token was executed, and this is its key.
    Kept(KeptToken),
    /// The token is refused: too old, or too far ahead.
    Refused(Refusal),
    /// No write with the token was executed.
    New(FoundNew),
}

/// The key of a token whose answer is kept.
struct KeptToken {
    id: CellId,
    lsn: Lsn,
    version: Version,
}

/// What a new token is kept by.
struct FoundNew {
    key: TokenKey,
    at: TokenAt,
    /// The horizon that is in force from now on, and the one that the log has.
    horizon: Horizon,
    known: Option<Horizon>,
}

/// Looks a token up in its slot. It has two callers, and what it returns is large.
#[inline(always)]
fn standing_of<P: Blocks>(
    store: &mut Store<P>,
    hash: &KeyHash,
    slot: u16,
    token: Token,
) -> Standing {
    let known = match horizon_of(store, hash, partition_of(slot)) {
        Ok(known) => known,
        Err(cold) => return Standing::Cold(cold),
    };
    let (key, hash) = home_of(hash, slot, token.name());
    let found = store.keys().find(slot, hash, &key);
    if let Found::Cold(place) = found {
        return Standing::Cold(Cold {
            slot,
            hash,
            place,
            version: None,
        });
    }
    let at = Key::new(store, hash, &key, found);
    if let Some(id) = at.value_cell() {
        return Standing::Kept(KeptToken {
            id,
            lsn: at.lsn,
            version: at.version,
        });
    }
    let (token_ms, now_ms) = (token.time_ms(), store.data().time_ms());
    let horizon = match known {
        None => Horizon::new(store.token_horizon_ms()),
        Some(known) if known.horizon_ms() != store.token_horizon_ms() => {
            let horizon_ms = store.token_horizon_ms();
            let falls = Horizon::new(horizon_ms);
            planted::or(
                Bug::TokenHorizonFalls,
                falls,
                known.with(horizon_ms, now_ms),
            )
        }
        Some(known) => known,
    };
    let from_ms = horizon.from_ms(now_ms);
    if token_ms < from_ms && !is_planted(Bug::TokenBorderUnasked) {
        return Standing::Refused(Refusal::TokenTooOld { token_ms, from_ms });
    }
    if token_ms > now_ms + TOKEN_AHEAD_MS_MAX {
        return Standing::Refused(Refusal::TokenAhead { token_ms, now_ms });
    }
    Standing::New(FoundNew {
        key,
        at: TokenAt {
            hash,
            cell: at.at.cell,
        },
        horizon,
        known,
    })
}

/// Whether a token is new, and nothing must be read or logged to know that.
#[inline]
pub(crate) fn is_new<P: Blocks>(
    store: &mut Store<P>,
    hash: &KeyHash,
    slot: u16,
    token: Token,
) -> bool {
    match standing_of(store, hash, slot, token) {
        Standing::New(found) => found.known == Some(found.horizon),
        Standing::Cold(_) | Standing::Kept(_) | Standing::Refused(_) => false,
    }
}

/// Looks the token of an item up, and writes the answer if that is known.
#[cold]
pub(crate) fn judge<P: Blocks>(
    store: &mut Store<P>,
    context: &Context<'_>,
    token: Token,
    item: &[u8],
    out: &mut Vec<u8>,
) -> TokenVerdict {
    let found = match standing_of(store, context.hash, context.slot, token) {
        Standing::New(found) => found,
        Standing::Cold(cold) => return TokenVerdict::Ran(Ran::Cold(cold)),
        Standing::Refused(refusal) => return TokenVerdict::Ran(refused(context, refusal, out)),
        Standing::Kept(kept) => {
            return TokenVerdict::Ran(answer_again(store, context, &kept, request_hash(item), out));
        }
    };
    let FoundNew {
        key,
        at,
        horizon,
        known,
    } = found;
    let mut lack = None;
    if known != Some(horizon) {
        let partition = partition_of(context.slot);
        match log_horizon(store, context.hash, context.now_us, partition, horizon) {
            Ok(()) => {}
            Err(Unlogged::Cold(cold)) => return TokenVerdict::Ran(Ran::Cold(cold)),
            Err(Unlogged::NoRoom(NoRoom::Wait)) => return TokenVerdict::Ran(Ran::Postponed),
            // A request that is answered "no" needs none.
            Err(Unlogged::NoRoom(no_room)) => lack = Some(no_room),
        }
    }
    let now_ms = store.data().time_ms();
    // A client may give a text the time of each try: from now on it is kept for a horizon.
    let kept_from_ms = match token.is_text() && !is_planted(Bug::TextKeptFromSent) {
        true => token.time_ms().max(now_ms),
        false => token.time_ms(),
    };
    TokenVerdict::New(NewToken {
        key,
        at,
        request_hash: request_hash(item),
        expiry_ms: horizon.expiry_ms(kept_from_ms),
        token_ms: token_time_ms(&key, now_ms).expect("the key of a token"),
        lack,
    })
}

/// The horizon of a partition, looked up if it is not known. `None` of a partition that never had a
/// token.
///
/// # Errors
/// The read that it needs.
pub(crate) fn horizon_of<P: Blocks>(
    store: &mut Store<P>,
    hash: &KeyHash,
    partition: usize,
) -> Result<Option<Horizon>, Cold> {
    if let Some(known) = store.horizon(partition) {
        return Ok(known);
    }
    let (slot, key) = horizon_key(partition);
    let hash = hash.of(&key);
    let horizon = match store.keys().find(slot, hash, &key) {
        Found::Cold(place) => {
            return Err(Cold {
                slot,
                hash,
                place,
                version: None,
            });
        }
        Found::Cached(id) if store.data().exists(id) => {
            let value = store.keys().cell(id).value();
            Some(Horizon::decode(value).expect("what a start does not understand it refuses"))
        }
        Found::Cached(_) | Found::Absent => None,
    };
    store.data_mut().learn_horizon(partition, horizon);
    Ok(horizon)
}

/// Why a horizon cannot be logged now.
pub(crate) enum Unlogged {
    /// Its key must be read first.
    Cold(Cold),
    /// There is no room.
    NoRoom(NoRoom),
}

/// Logs a horizon for a partition.
///
/// # Errors
/// [`Unlogged`].
pub(crate) fn log_horizon<P: Blocks>(
    store: &mut Store<P>,
    hash: &KeyHash,
    now_us: u64,
    partition: usize,
    horizon: Horizon,
) -> Result<(), Unlogged> {
    let (slot, key) = horizon_key(partition);
    let hash = hash.of(&key);
    let found = store.keys().find(slot, hash, &key);
    if let Found::Cold(place) = found {
        return Err(Unlogged::Cold(Cold {
            slot,
            hash,
            place,
            version: None,
        }));
    }
    let at = Key::new(store, hash, &key, found).at;
    let committed = store.commit_horizon(now_us, slot, at, horizon);
    committed.map(|_| ()).map_err(Unlogged::NoRoom)
}

/// The slot and key of the horizon of a partition.
fn horizon_key(partition: usize) -> (u16, [u8; HORIZON_KEY_BYTES]) {
    let slot = partition * (usize::from(SLOTS) / PARTITIONS);
    let slot = u16::try_from(slot).expect("256 partitions");
    let mut key = [b'}'; HORIZON_KEY_BYTES];
    key[..HORIZON_KEY.len()].copy_from_slice(HORIZON_KEY);
    key[HORIZON_KEY.len()..][..2].copy_from_slice(&tag_of(slot));
    (slot, key)
}

/// Writes the answer that the request with this token got, or refuses another request.
fn answer_again<P: Blocks>(
    store: &Store<P>,
    context: &Context<'_>,
    at: &KeptToken,
    request_hash: u64,
    out: &mut Vec<u8>,
) -> Ran {
    let kept = TokenAnswer::decode(store.keys().cell(at.id).value());
    let kept = kept.expect("what a start does not understand it refuses");
    if kept.request_hash != request_hash && !is_planted(Bug::TokenOfOtherRequest) {
        let Ran::Answered { status, .. } = refused(context, Refusal::TokenReused, out) else {
            unreachable!("a refusal is an answer");
        };
        return Ran::Answered {
            gate: at.lsn,
            status,
        };
    }
    let mut head = context.head(Status::Ok, kept.version.map_or(at.version, wire));
    head.flags = ITEM_FLAG_REPLAYED;
    head.write(out, kept.numbers);
    Ran::Answered {
        gate: planted::or(Bug::TokenReplayUngated, Lsn(0), at.lsn),
        status: Status::Ok,
    }
}

impl NewToken {
    /// What is left of its key with a change of several slots that was answered with these numbers,
    /// and no version.
    ///
    /// # Errors
    /// Why it cannot be kept.
    pub(crate) fn left<P: Blocks>(
        &self,
        store: &Store<P>,
        numbers: &[u8],
    ) -> Result<LeftKey, NoRoom> {
        if let Some(lack) = self.lack {
            return Err(lack);
        }
        let answer = TokenAnswer {
            request_hash: self.request_hash,
            version: Some(Stored::default()),
            numbers,
        };
        let mut value = Vec::new();
        answer.encode(&mut value);
        // One that has expired may be there.
        let cell = self.at.cell;
        let cell = cell.filter(|id| !store.keys().cell(*id).is_deleted());
        Ok(LeftKey {
            key: (*self.key).into(),
            seen: cell.map(|id| store.keys().version(id)),
            left: Some(LeftValue {
                bytes: value.into(),
                kind: ValueKind::Plain,
                expiry_ms: Some(self.expiry_ms),
                keeps_effects: false,
            }),
        })
    }

    /// The part that is kept with a change which was answered with these numbers.
    #[inline]
    fn part<'p>(&'p self, version: Option<Stored>, numbers: &'p [u8]) -> TokenPart<'p> {
        TokenPart {
            at: ChangeKey {
                key: &self.key,
                hash: self.at.hash,
                cell: self.at.cell,
                exists: false,
                expiry_ms: None,
                kind: ValueKind::Plain,
            },
            answer: TokenAnswer {
                request_hash: self.request_hash,
                version,
                numbers,
            },
            expiry_ms: self.expiry_ms,
            token_ms: self.token_ms,
        }
    }
}

/// Commits a change, with the token of its request if there is one. The numbers that the answer
/// tells stand in `out` behind its head, which begins at `from`.
#[inline(always)]
pub(super) fn commit<P: Blocks, K: KeyNumbers>(
    change: Change<'_, '_, P, K>,
    context: &Context<'_>,
    (out, from): (&[u8], usize),
) -> Result<Committed, NoRoom> {
    match context.token {
        None => change.commit(context.now_us),
        Some(_) if is_planted(Bug::TokenUnkept) => change.commit(context.now_us),
        Some(NewToken {
            lack: Some(lack), ..
        }) => Err(*lack),
        Some(token) => change.commit_with(context.now_us, &token.part(None, numbers(out, from))),
    }
}

/// What an answer tells besides its head, none of an answer that is not begun.
#[cold]
fn numbers(out: &[u8], from: usize) -> &[u8] {
    out.get(from + REPLY_ITEM_BYTES..).unwrap_or_default()
}

/// Ends a request that changed nothing and whose answer OK stands in `out` from `from` on. If it
/// has a token, the token is kept: later the same request might change something.
#[inline(always)]
pub(super) fn end_unchanged<P: Blocks>(
    store: &mut Store<P>,
    context: &Context<'_>,
    (version, seen): (Version, Lsn),
    from: usize,
    out: &mut Vec<u8>,
) -> Ran {
    let gate = match context.token {
        None => seen,
        Some(_) if is_planted(Bug::TokenOfNoChange) => seen,
        Some(token) => {
            let stored = Stored {
                epoch: version.epoch,
                sequence: version.sequence,
            };
            let part = token.part(Some(stored), numbers(out, from));
            let committed = match token.lack {
                Some(lack) => Err(lack),
                None => store.commit_token(context.now_us, context.slot, &part),
            };
            match committed {
                Ok(committed) => committed.lsn,
                Err(lack) => {
                    out.truncate(from);
                    return no_room(store, context, lack, out);
                }
            }
        }
    };
    context.head(Status::Ok, version).patch(out, from);
    Ran::Answered {
        gate,
        status: Status::Ok,
    }
}
