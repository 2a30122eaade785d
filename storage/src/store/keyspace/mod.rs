//! Keyspaces: settings by the prefixes of keys.

// ---- pages
pub(crate) mod first_bytes;
pub(crate) mod floor;
pub(crate) mod keyspaces;
pub(crate) mod rule;
pub(crate) mod settings;

pub use floor::{
    FLOOR_AT, FLOOR_TIME_AT, LOCAL_BYTES, LOCAL_BYTES_WITH_FLOOR, LOCAL_HAS_FLOOR,
    LOCAL_HAS_REWIND, LOCAL_HAS_SCAN, LOCAL_VERSION,
};
pub use keyspaces::{KeyspaceError, Keyspaces};
pub use rule::Rule;
pub use settings::{
    KEYSPACES_MAX, PREFIX_BYTES_MAX, SETTINGS_BYTES, Settings, SettingsEntry, Since, is_understood,
    keyspace_key, prefix_of, settings_in,
};
