//! Keyspaces and kept versions on the wire: what is asked besides keys and values, and the lists
//! that are answered.

use crate::batch::{padded, push_padded, read_u16, read_u32, read_u64};
use crate::level::AckLevel;
use crate::limits::{EXPIRY_MS_MAX, KEYSPACE_BYTES_MAX, KEYSPACE_TTL_MS_MAX, VALUE_BYTES_HARD_MAX};
use crate::refusal::Refusal;
use crate::version::Version;

/// Bytes of settings.
pub const SETTINGS_BYTES: usize = 32;
/// Bytes of a version in a history.
pub const KEPT_BYTES: usize = 32;
const LIST_HEAD_BYTES: usize = 8;
const KEYSPACE_HEAD_BYTES: usize = 16 + SETTINGS_BYTES;

/// Where settings have the default level.
const LEVEL_DEFAULT_AT: usize = 24;

const KIND_VALUE: u8 = 1;
const KIND_DELETION: u8 = 2;

/// The settings of a keyspace. All zeros have no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The least ack level; a request for less is raised to it.
    pub level_min: AckLevel,
    /// The ack level of requests that ask for `none`, which is to ask for no level. `None`: there
    /// is none.
    pub level_default: Option<AckLevel>,
    /// Superseded versions that are kept of a key, at most; 0 is any number if there is a
    /// retention.
    pub versions: u8,
    /// The layout that values are marked with, 0 opaque.
    pub layout: u16,
    /// Bytes of a value, at most; 0 is the server's limit.
    pub value_bytes_max: u32,
    /// How long a superseded version is kept, in milliseconds; 0 is for ever if versions are
    /// counted.
    pub retention_ms: u64,
    /// The lifetime of values that are written without an expiry, in milliseconds; 0 is none.
    pub ttl_ms: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            level_min: AckLevel::None,
            level_default: None,
            versions: 0,
            layout: 0,
            value_bytes_max: 0,
            retention_ms: 0,
            ttl_ms: 0,
        }
    }
}

impl Settings {
    /// The settings as bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; SETTINGS_BYTES] {
        let mut bytes = [0; SETTINGS_BYTES];
        bytes[0] = self.level_min.code();
        bytes[1] = self.versions;
        bytes[2..4].copy_from_slice(&self.layout.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.value_bytes_max.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.retention_ms.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.ttl_ms.to_le_bytes());
        bytes[LEVEL_DEFAULT_AT] = default_code(self.level_default);
        bytes
    }

    /// Whether a server without [`FEATURE_ALL`](crate::hello::FEATURE_ALL) refuses them.
    #[must_use]
    pub fn needs_feature(&self) -> bool {
        self.level_min == AckLevel::All || self.level_default.is_some()
    }

    /// Reads settings, checking every field.
    ///
    /// # Errors
    /// The first [`Refusal`] found.
    pub fn read(bytes: &[u8; SETTINGS_BYTES]) -> Result<Self, Refusal> {
        let level_min = AckLevel::from_code(bytes[0]).ok_or(Refusal::Level(bytes[0]))?;
        let level_default = read_default(bytes[LEVEL_DEFAULT_AT])?;
        if level_min == AckLevel::Replica || level_default == Some(AckLevel::Replica) {
            return Err(Refusal::Replica);
        }
        let settings = Settings {
            level_min,
            level_default,
            versions: bytes[1],
            layout: read_u16(bytes, 2),
            value_bytes_max: read_u32(bytes, 4),
            retention_ms: read_u64(bytes, 8),
            ttl_ms: read_u64(bytes, 16),
        };
        if settings.value_bytes_max as usize > VALUE_BYTES_HARD_MAX {
            return Err(Refusal::ValueLength {
                len: settings.value_bytes_max,
                max: u32::try_from(VALUE_BYTES_HARD_MAX).expect("16 MiB"),
            });
        }
        for (name, ms, max) in [
            ("a retention", settings.retention_ms, EXPIRY_MS_MAX),
            ("a lifetime", settings.ttl_ms, KEYSPACE_TTL_MS_MAX),
        ] {
            if ms > max {
                return Err(Refusal::Retention { name, ms, max });
            }
        }
        match read_u64(bytes, 24) >> 8 {
            0 => Ok(settings),
            found => Err(Refusal::Reserved {
                name: "the end of settings",
                found,
            }),
        }
    }
}

/// A default level as a byte of settings.
#[must_use]
pub fn default_code(level: Option<AckLevel>) -> u8 {
    level.map_or(0, |level| 1 + level.code())
}

/// The default level that a byte of settings tells.
///
/// # Errors
/// [`Refusal::Level`] if it tells a level that there is not.
pub fn read_default(code: u8) -> Result<Option<AckLevel>, Refusal> {
    match code.checked_sub(1) {
        None => Ok(None),
        Some(code) => match AckLevel::from_code(code) {
            None => Err(Refusal::Level(code)),
            level => Ok(level),
        },
    }
}

/// What KEYSPACE does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Sets it, made if it is missing.
    Set(Settings),
    /// Makes it; EXISTS if it is there.
    Create(Settings),
    /// Drops it; NOT_FOUND if it is not there.
    Drop,
    /// Tells all of them. The prefix is empty.
    List,
}

/// A keyspace as KEYSPACE tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyspace {
    /// What its keys begin with.
    pub prefix: Vec<u8>,
    /// Rises with every change.
    pub revision: u64,
    /// What it is set to.
    pub settings: Settings,
}

/// The point that GET_AT asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// Unix milliseconds, by the shard's time.
    TimeMs(u64),
    /// The value that was newest when the partition of the key was at this version.
    Version(Version),
}

/// One version of a key, without its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptVersion {
    /// The version.
    pub version: Version,
    /// It is a deletion.
    pub is_deletion: bool,
    /// When it was written, in unix milliseconds. 0 if the time is not known, because the version
    /// is older than the keeping of versions.
    pub time_ms: u64,
    /// When it expires or expired, in unix milliseconds; 0 is never.
    pub expiry_ms: u64,
}

impl KeptVersion {
    /// The version as bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; KEPT_BYTES] {
        let mut bytes = [0; KEPT_BYTES];
        bytes[0..8].copy_from_slice(&self.version.sequence.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.version.epoch.to_le_bytes());
        bytes[12] = match self.is_deletion {
            true => KIND_DELETION,
            false => KIND_VALUE,
        };
        bytes[16..24].copy_from_slice(&self.time_ms.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.expiry_ms.to_le_bytes());
        bytes
    }

    fn read(bytes: &[u8; KEPT_BYTES]) -> Option<Self> {
        let is_deletion = match bytes[12] {
            KIND_VALUE => false,
            KIND_DELETION => true,
            _ => return None,
        };
        Some(KeptVersion {
            version: Version {
                sequence: read_u64(bytes, 0),
                epoch: read_u32(bytes, 8),
            },
            is_deletion,
            time_ms: read_u64(bytes, 16),
            expiry_ms: read_u64(bytes, 24),
        })
    }
}

/// A part of a key's history, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The versions.
    pub versions: Vec<KeptVersion>,
    /// There are older ones: ask again with the sequence of the last one.
    pub has_more: bool,
}

impl History {
    /// Reads the value of a HISTORY reply.
    #[must_use]
    pub fn read(value: &[u8]) -> Option<Self> {
        let (head, versions) = value.split_first_chunk::<LIST_HEAD_BYTES>()?;
        let (versions, rest) = versions.as_chunks::<KEPT_BYTES>();
        let has_more = read_u32(head, 4);
        if versions.len() != read_u32(head, 0) as usize || !rest.is_empty() || has_more > 1 {
            return None;
        }
        Some(History {
            versions: versions
                .iter()
                .map(KeptVersion::read)
                .collect::<Option<_>>()?,
            has_more: has_more == 1,
        })
    }
}

/// Begins a list at the end of `out`; [`end_list`] completes it.
pub fn begin_list(out: &mut Vec<u8>) -> usize {
    let from = out.len();
    out.extend_from_slice(&[0; LIST_HEAD_BYTES]);
    from
}

/// Writes the number of entries, and whether there are more, over the placeholder at `from`.
pub fn end_list(out: &mut [u8], from: usize, count: u32, has_more: bool) {
    out[from..from + 4].copy_from_slice(&count.to_le_bytes());
    out[from + 4..from + 8].copy_from_slice(&u32::from(has_more).to_le_bytes());
}

/// Adds a keyspace to a list.
///
/// # Panics
/// If the prefix is over [`KEYSPACE_BYTES_MAX`].
pub fn push_keyspace(out: &mut Vec<u8>, prefix: &[u8], revision: u64, settings: &Settings) {
    assert!(prefix.len() <= KEYSPACE_BYTES_MAX, "a prefix is short");
    out.extend_from_slice(&revision.to_le_bytes());
    let len = u64::try_from(prefix.len()).expect("checked above");
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&settings.encode());
    push_padded(out, prefix);
}

/// Reads the value of a KEYSPACE reply.
#[must_use]
pub fn read_keyspaces(value: &[u8]) -> Option<Vec<Keyspace>> {
    let (head, mut rest) = value.split_first_chunk::<LIST_HEAD_BYTES>()?;
    let mut keyspaces = Vec::new();
    for _ in 0..read_u32(head, 0) {
        let (head, behind) = rest.split_first_chunk::<KEYSPACE_HEAD_BYTES>()?;
        let len = usize::try_from(read_u64(head, 8)).ok()?;
        let prefix = behind.get(..len.min(KEYSPACE_BYTES_MAX + 1))?;
        if prefix.len() != len {
            return None;
        }
        rest = behind.get(padded(len)..)?;
        keyspaces.push(Keyspace {
            prefix: prefix.to_vec(),
            revision: read_u64(head, 0),
            settings: Settings::read(head[16..].first_chunk()?).ok()?,
        });
    }
    (rest.is_empty() && read_u32(head, 4) == 0).then_some(keyspaces)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Batch;
    use crate::frame::HEADER_BYTES;
    use crate::request::{BatchRequest, Extra, Request};

    #[test]
    fn settings_are_accepted_where_no_value_is_as_long() {
        let mut out = Vec::new();
        let mut batch = BatchRequest::begin(&mut out, 1, AckLevel::None, 0, 1);
        batch.keyspace(&mut out, b"k", Action::Set(Settings::default()));
        batch.finish(&mut out);
        let batch = Batch::read(&out[HEADER_BYTES..]).expect("a batch");
        let request = Request::read(batch.item(0), 1).expect("its length is its own");
        assert_eq!(
            request.extra,
            Extra::Keyspace(Action::Set(Settings::default()))
        );
    }

    #[test]
    fn lists_are_read_back_and_no_cut_of_them_is() {
        let settings = Settings {
            level_min: AckLevel::Disk,
            level_default: Some(AckLevel::All),
            versions: 3,
            layout: 9,
            value_bytes_max: 77,
            retention_ms: 5,
            ttl_ms: 6,
        };
        let mut out = Vec::new();
        let from = begin_list(&mut out);
        push_keyspace(&mut out, b"", 4, &Settings::default());
        push_keyspace(&mut out, b"stock:", 5, &settings);
        end_list(&mut out, from, 2, false);
        let read = read_keyspaces(&out).unwrap();
        assert_eq!(
            (read[0].prefix.as_slice(), read[1].prefix.as_slice()),
            (&b""[..], &b"stock:"[..])
        );
        assert_eq!((read[1].revision, read[1].settings), (5, settings));
        for cut in 0..out.len() {
            assert_eq!(read_keyspaces(&out[..cut]), None, "cut at {cut}");
        }
        let version = KeptVersion {
            version: Version {
                epoch: 256,
                sequence: 7,
            },
            is_deletion: true,
            time_ms: 8,
            expiry_ms: 0,
        };
        let mut out = Vec::new();
        let from = begin_list(&mut out);
        out.extend_from_slice(&version.encode());
        end_list(&mut out, from, 1, true);
        let expected = History {
            versions: vec![version],
            has_more: true,
        };
        assert_eq!(History::read(&out), Some(expected));
        for cut in 0..out.len() {
            assert_eq!(History::read(&out[..cut]), None, "cut at {cut}");
        }
    }
}
