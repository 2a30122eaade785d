//! When a part of the log stops to count by itself.

use crate::format::record::{PartView, part_bytes};
use crate::format::system_key::{is_token, token_time_ms};
use crate::store::cleaning::expiring::Expires;
use crate::store::keyspace::keyspaces::Keyspaces;
use crate::store::tokens::horizons::raised_within_ms;

/// When a part with this expiry, which was written at `time_ms`, stops to count by itself. `None`
/// if that may be never: versions of its key are kept, and the newest of them has no end.
pub(crate) fn expires(
    keyspaces: &Keyspaces,
    slot: u16,
    key: &[u8],
    expiry_ms: Option<u64>,
    time_ms: u64,
) -> Option<Expires> {
    let expiry_ms = expiry_ms?;
    let token_ms = is_token(key).then(|| token_time_ms(key)).flatten();
    let by_ms = match (token_ms, keyspaces.rule(slot, key)) {
        // It stays behind its expiry until the log says that it may be gone.
        (Some(token_ms), _) => expiry_ms + raised_within_ms(expiry_ms.saturating_sub(token_ms)),
        (None, None) => expiry_ms,
        (None, Some(rule)) => rule.release_ms(expiry_ms.max(time_ms))?,
    };
    let deletion_bytes = part_bytes(key.len(), 0, false, 0);
    Some(Expires {
        by_ms,
        deletion_bytes: u32::try_from(deletion_bytes).expect("a key is short"),
        is_token: token_ms.is_some(),
    })
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
