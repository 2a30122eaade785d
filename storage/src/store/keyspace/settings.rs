//! The settings of a keyspace and the records that carry them.

use crate::format::horizon::Horizon;
use crate::format::record::{PartKind, PartView, read_u32, read_u64};
use crate::format::redo;
use crate::format::system_key::{
    EPOCHS_BYTES_MAX, FLUSH_VALUE, LOCAL_BYTES_MAX, flush_tag, is_epochs, is_flush, is_horizon,
    is_local, is_redo, is_redo_key, is_token, is_token_key,
};
use crate::format::token::TokenAnswer;
use crate::types::place::Place;
use crate::types::version::Version;

/// Bytes of a prefix, at most.
pub const PREFIX_BYTES_MAX: usize = 64;

/// Prefixes that have settings or had some, at most.
pub const KEYSPACES_MAX: usize = 1024;

/// Bytes of settings in the log.
pub const SETTINGS_BYTES: usize = 64;

const KEYSPACE_KEY: &[u8] = b"\0\0penstock/keyspace/{";

const FLAG_DROPPED: u8 = 1;

/// The highest number of a level. Records of earlier builds have at most 3 and no default level.
const LEVEL_MAX: u8 = 4;

/// What a keyspace is set to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Rises with every change of the keyspace; the highest wins everywhere
    /// ([`Settings::outranks`]).
    pub revision: u64,
    /// The keyspace is no more.
    pub is_dropped: bool,
    /// The least ack level, by its number on the wire.
    pub level_min: u8,
    /// The ack level of requests that ask for none: 0 if there is no such level, otherwise one more
    /// than its number.
    pub level_default: u8,
    /// Superseded versions that are kept of a key, at most; 0 is any number if there is a
    /// retention.
    pub versions: u8,
    /// The layout of values, for those who read them.
    pub layout: u16,
    /// Bytes of a value, at most; 0 is what the server accepts.
    pub value_bytes_max: u32,
    /// How long a superseded version is kept, in milliseconds; 0 is for ever if versions are
    /// counted.
    pub retention_ms: u64,
    /// The lifetime of what is put without an expiry, in milliseconds; 0 is none.
    pub ttl_ms: u64,
}

impl Settings {
    /// Whether these settings win over other settings of the same prefix. Of equal revisions, which
    /// two nodes may give to different settings, the greater settings win: all nodes agree on those
    /// then, in whatever order they hear of them.
    #[must_use]
    pub fn outranks(&self, other: &Settings) -> bool {
        self.rank() > other.rank()
    }

    fn rank(&self) -> (u64, bool, [u64; 7]) {
        let numbers = [
            self.level_min.into(),
            self.versions.into(),
            self.layout.into(),
            self.value_bytes_max.into(),
            self.retention_ms,
            self.ttl_ms,
            self.level_default.into(),
        ];
        (self.revision, self.is_dropped, numbers)
    }

    /// Whether superseded versions are kept.
    #[inline]
    #[must_use]
    pub fn keeps_versions(&self) -> bool {
        !self.is_dropped && (self.versions > 0 || self.retention_ms > 0)
    }

    /// Whether these settings drop versions that `before` keeps, and keep no version that `before`
    /// drops.
    #[must_use]
    pub fn gives_back(&self, before: &Settings) -> bool {
        let is_less = !self.keeps_versions()
            || (self.versions, self.retention_ms) != (before.versions, before.retention_ms);
        before.keeps_versions()
            && is_less
            && !(self.keeps_versions() && self.keeps_more_than(before))
    }

    /// Whether these settings keep a version that `before` drops.
    pub(super) fn keeps_more_than(&self, before: &Settings) -> bool {
        let count = |settings: &Settings| match settings.versions {
            0 => u16::from(u8::MAX) + 1,
            count => u16::from(count),
        };
        let time = |settings: &Settings| match settings.retention_ms {
            0 => u64::MAX,
            ms => ms,
        };
        !before.keeps_versions() || count(self) > count(before) || time(self) > time(before)
    }

    pub(super) fn encode(&self, since: Since) -> [u8; SETTINGS_BYTES] {
        let mut bytes = [0; SETTINGS_BYTES];
        bytes[0..8].copy_from_slice(&self.revision.to_le_bytes());
        bytes[8] = if self.is_dropped { FLAG_DROPPED } else { 0 };
        bytes[9] = self.level_min;
        bytes[10] = self.versions;
        bytes[11] = self.level_default;
        bytes[12..14].copy_from_slice(&self.layout.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.value_bytes_max.to_le_bytes());
        bytes[20..24].copy_from_slice(&since.version.epoch.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.retention_ms.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.ttl_ms.to_le_bytes());
        bytes[40..48].copy_from_slice(&since.version.sequence.to_le_bytes());
        bytes[48..56].copy_from_slice(&since.time_ms.to_le_bytes());
        bytes
    }

    /// The settings in a value of the log, and since when versions are kept if it is not the
    /// record's own version. `None` if the value is not of this form.
    #[must_use]
    pub fn read(value: &[u8]) -> Option<(Settings, Option<Since>)> {
        let bytes: &[u8; SETTINGS_BYTES] = value.try_into().ok()?;
        // Behind a revision there must be another one.
        let is_known = read_u64(&bytes[0..8]) < u64::MAX
            && bytes[8] & !FLAG_DROPPED == 0
            && bytes[11] <= 1 + LEVEL_MAX
            && bytes[14..16] == [0; 2]
            && bytes[56..] == [0; 8]
            && bytes[9] <= LEVEL_MAX;
        let settings = Settings {
            revision: read_u64(&bytes[0..8]),
            is_dropped: bytes[8] & FLAG_DROPPED != 0,
            level_min: bytes[9],
            versions: bytes[10],
            level_default: bytes[11],
            layout: u16::from_le_bytes([bytes[12], bytes[13]]),
            value_bytes_max: read_u32(&bytes[16..20]),
            retention_ms: read_u64(&bytes[24..32]),
            ttl_ms: read_u64(&bytes[32..40]),
        };
        let since = Since {
            version: Version {
                epoch: read_u32(&bytes[20..24]),
                sequence: read_u64(&bytes[40..48]),
            },
            time_ms: read_u64(&bytes[48..56]),
        };
        is_known.then_some((settings, (since != Since::default()).then_some(since)))
    }
}

/// From when on every superseded version is there, but for those beyond the limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Since {
    /// The version, in the partition, behind which they were superseded.
    pub version: Version,
    /// Its time.
    pub time_ms: u64,
}

/// The record that is in force for a prefix in a partition, as a snapshot tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettingsEntry<'a> {
    /// The number of the keyspace.
    pub number: u16,
    /// The partition.
    pub partition: u8,
    /// The prefix.
    pub prefix: &'a [u8],
    /// What it is set to.
    pub settings: Settings,
    /// Since when versions are kept.
    pub since: Since,
    /// The version of the record.
    pub version: Version,
    /// Where it stands.
    pub place: Place,
}

impl SettingsEntry<'_> {
    /// The value that a record which tells all of this has.
    #[must_use]
    pub fn value(&self) -> [u8; SETTINGS_BYTES] {
        self.settings.encode(self.since)
    }
}

/// A record of settings as it was appended.
pub(crate) struct Record<'a> {
    pub(crate) slot: u16,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
    pub(crate) version: Version,
    pub(crate) time_ms: u64,
}

/// Whether a part under a key of the store's own is one that this version writes.
#[must_use]
pub fn is_understood(part: &PartView<'_>) -> bool {
    let note_bytes_max = match part.key() {
        key if is_local(key) => LOCAL_BYTES_MAX,
        key if is_epochs(key) => EPOCHS_BYTES_MAX,
        key if is_token(key) => return is_token_part(part),
        key if is_horizon(key) => {
            // A rewind deletes the one of a tail that the primary has no horizon for.
            let is_deleted = part.kind() == PartKind::Tombstone;
            return is_deleted || Horizon::decode(part.value()).is_some();
        }
        key if is_flush(key) => {
            let is_put = part.kind() == PartKind::Put;
            // A copy proves that a build that knows no marks has moved one: what it hid is back.
            let is_moved = part.is_copy();
            let is_known = flush_tag(key).is_some() && part.value() == FLUSH_VALUE;
            return is_put && is_known && !is_moved;
        }
        key if is_redo(key) => {
            let is_good = match part.kind() {
                PartKind::Put => redo::outcomes(part.value()).is_some(),
                PartKind::Tombstone => true,
            };
            return is_good && is_redo_key(key);
        }
        _ => return settings_in(part).is_some(),
    };
    part.kind() == PartKind::Put && part.value().len() <= note_bytes_max
}

fn is_token_part(part: &PartView<'_>) -> bool {
    let is_good = match part.kind() {
        PartKind::Put => TokenAnswer::decode(part.value()).is_some(),
        // What cleaning leaves of one that has expired.
        PartKind::Tombstone => true,
    };
    is_good && is_token_key(part.key())
}

/// The prefix and its settings, if the part is a record of them.
#[must_use]
pub fn settings_in<'a>(part: &PartView<'a>) -> Option<(&'a [u8], Settings)> {
    let prefix = prefix_of(part.key()).filter(|_| part.kind() == PartKind::Put)?;
    Settings::read(part.value()).map(|(settings, _)| (prefix, settings))
}

/// The key under which the settings of `prefix` are logged in a partition; `tag` is what routes it
/// there.
#[must_use]
pub fn keyspace_key(tag: u32, prefix: &[u8]) -> Vec<u8> {
    let mut key = KEYSPACE_KEY.to_vec();
    key.extend_from_slice(tag.to_string().as_bytes());
    key.push(b'}');
    key.extend_from_slice(prefix);
    key
}

/// The prefix whose settings stand under this key, if it is such a key.
#[must_use]
pub fn prefix_of(key: &[u8]) -> Option<&[u8]> {
    let tagged = key.strip_prefix(KEYSPACE_KEY)?;
    let end = tagged.iter().position(|&byte| byte == b'}')?;
    Some(&tagged[end + 1..]).filter(|prefix| prefix.len() <= PREFIX_BYTES_MAX)
}
