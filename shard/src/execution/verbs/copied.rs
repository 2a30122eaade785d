//! Copies of keys, for changes over several shards, and scripts that run on them.

use std::collections::HashMap;

use penstock_net::request::Version;
use penstock_net::resp::{KeyRead, KeySource, Unread};
use penstock_net::script::ScriptRequest;
use penstock_storage::index::CellId;
use penstock_storage::io::Blocks;
use penstock_storage::key_home::KeyHome;
use penstock_storage::place::Lsn;
use penstock_storage::record::ValueKind;
use penstock_storage::store::{Found, Store};

use crate::joint::message::{ClaimedKey, CopiedValue, KeyCopy};
use crate::publisher::Publisher;

use super::script::{Received, is_undeclared};
use super::{Cold, Key, KeyHash, stored};

/// What became of a key that is to be copied.
pub(crate) enum Copying {
    /// It must be read from the disk first.
    Cold(Cold),
    /// Its effects are due, and are to run first.
    Unfired(KeyHome, CellId),
    /// The copy, and the newest record that it shows.
    Copied(KeyCopy, Lsn),
}

/// Copies a key.
pub(crate) fn copy<P: Blocks>(
    store: &mut Store<P>,
    hash: &KeyHash,
    claimed: &ClaimedKey,
) -> Copying {
    let home = hash.home_of(&claimed.key);
    let KeyHome { slot, hash } = home;
    let found = store.keys().find(slot, hash, &claimed.key);
    if let Found::Cold(place) = found {
        let version = None;
        return Copying::Cold(Cold {
            slot,
            hash,
            place,
            version,
        });
    }
    let key = Key::new(store, hash, &claimed.key, found);
    if let Some(id) = key.unfired_cell(store) {
        return Copying::Unfired(home, id);
    }
    let value = key.value_cell().map(|id| CopiedValue {
        bytes: store.keys().cell(id).value().into(),
        kind: store.keys().cell(id).value_kind(),
        version: key.version,
        expiry_ms: key.at.expiry_ms,
        is_armed: store.keys().effects(id).is_some(),
    });
    let data = store.data();
    let keyspace = store.keyspaces().of(slot, &claimed.key);
    let copy = KeyCopy {
        key: claimed.key.clone(),
        value,
        may_have_changed: claimed
            .since
            .is_some_and(|since| data.may_have_changed(home, key.at.cell, stored(since))),
        seen: key
            .at
            .cell
            .filter(|id| !store.keys().cell(*id).is_deleted())
            .map(|id| store.keys().version(id)),
        ttl_ms: keyspace.map_or(0, |(_, settings)| settings.ttl_ms),
    };
    // That it is missing may be the work of a flush.
    let lsn = key.lsn.max(data.flushes().lsn());
    if let Some(id) = key.value_cell() {
        store.data_mut().note_cell_shown(id);
        store.keys_mut().touch(id);
    }
    Copying::Copied(copy, lsn)
}

/// The keys of a run that has copies of them.
pub(crate) struct CopiedKeys<'a> {
    pub(crate) request: &'a ScriptRequest<'a>,
    pub(crate) copies: &'a HashMap<Box<[u8]>, KeyCopy>,
    /// The time of the run, in unix milliseconds.
    pub(crate) now_ms: u64,
    pub(crate) received: Received<'a>,
    /// A key of which there is no copy, or whose effects are due by now: the run is over.
    pub(crate) missing: Option<Box<[u8]>>,
}

impl<'a> CopiedKeys<'a> {
    pub(crate) fn new(
        request: &'a ScriptRequest<'a>,
        copies: &'a HashMap<Box<[u8]>, KeyCopy>,
        now_ms: u64,
        publisher: Option<&'a dyn Publisher>,
    ) -> Self {
        CopiedKeys {
            request,
            copies,
            now_ms,
            received: Received::new(publisher),
            missing: None,
        }
    }
}

impl KeySource for CopiedKeys<'_> {
    fn read(&mut self, key: &[u8]) -> Result<Option<KeyRead<'_>>, Unread> {
        if let Some(text) = is_undeclared(self.request, key) {
            return Err(Unread::Refused(text.to_string()));
        }
        let copy = self.copies.get(key);
        let is_past = |value: &CopiedValue| value.expiry_ms.is_some_and(|ms| ms <= self.now_ms);
        match copy.map(|copy| copy.value.as_ref()) {
            Some(Some(value)) if is_past(value) && !value.is_armed => Ok(None),
            Some(Some(value)) if !is_past(value) => Ok(Some(KeyRead {
                version: value.version,
                value: &value.bytes,
                has_members: value.kind == ValueKind::Head,
                expiry_ms: value.expiry_ms,
                is_armed: value.is_armed,
            })),
            Some(None) => Ok(None),
            None | Some(Some(_)) => {
                self.missing = Some(key.into());
                Err(Unread::Missing)
            }
        }
    }

    fn may_have_changed(&mut self, key: &[u8], _: Version) -> bool {
        self.copies
            .get(key)
            .is_none_or(|copy| copy.may_have_changed)
    }

    fn receivers(&mut self, channel: &[u8]) -> Result<usize, String> {
        self.received.by(self.request, channel)
    }
}
