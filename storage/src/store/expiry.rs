//! When a part of the log stops to count by itself.

use crate::format::record::{PartView, part_bytes};
use crate::format::system_key::{is_text_token, is_token_key, time_of_token};
use crate::store::cleaning::expiring::Expires;
use crate::store::keyspace::keyspaces::Keyspaces;
use crate::store::tokens::horizons::{HORIZON_MS, raised_within_ms};

/// When a part with this expiry, which was written at `time_ms`, stops to count by itself. `None`
/// if that may be never: versions of its key are kept, and the newest of them has no end.
pub(crate) fn expires(
    keyspaces: &Keyspaces,
    slot: u16,
    key: &[u8],
    expiry_ms: Option<u64>,
    time_ms: u64,
) -> Option<Expires> {
    if is_token_key(key) {
        return token_expires(key, expiry_ms);
    }
    let expiry_ms = expiry_ms?;
    let by_ms = match keyspaces.rule(slot, key) {
        None => expiry_ms,
        Some(rule) => rule.release_ms(expiry_ms.max(time_ms))?,
    };
    Some(Expires {
        by_ms,
        deletion_bytes: deletion_bytes(key),
        is_token: false,
    })
}

/// The same of the key of a token. It stays behind its expiry until the log says that it may be
/// gone. That of a text stays for a horizon more, because its key does not tell its time. Which
/// horizon that is is not known here: with a longer one cleaning meets it too early, and keeps it.
pub(crate) fn token_expires(key: &[u8], expiry_ms: Option<u64>) -> Option<Expires> {
    let expiry_ms = expiry_ms?;
    let (kept_ms, horizon_ms) = match is_text_token(key) {
        true => (HORIZON_MS, HORIZON_MS),
        false => (0, expiry_ms.saturating_sub(time_of_token(key))),
    };
    Some(Expires {
        by_ms: expiry_ms + kept_ms + raised_within_ms(horizon_ms),
        deletion_bytes: deletion_bytes(key),
        is_token: true,
    })
}

fn deletion_bytes(key: &[u8]) -> u32 {
    u32::try_from(part_bytes(key.len(), 0, false, 0)).expect("a key is short")
}

/// The same of a part of the log. What has effects to run counts until they have run.
pub(crate) fn part_expires(keyspaces: &Keyspaces, part: &PartView<'_>) -> Option<Expires> {
    if part.effects().is_some() {
        return None;
    }
    expires(
        keyspaces,
        part.slot(),
        part.key(),
        part.expiry_ms(),
        part.time_ms(),
    )
}
