//! The store of one shard: keys in memory, the log behind them, and the jobs that keep both in
//! shape. The layer uses memory and log. It does not know how a directory is read at a start.

// ---- pages
pub(crate) mod change;
pub(crate) mod changed_keys;
pub mod cleaning;
pub mod clock;
pub(crate) mod cold;
pub(crate) mod commit;
pub(crate) mod data;
pub(crate) mod direct_get;
pub(crate) mod direct_set;
pub(crate) mod edited_values;
pub(crate) mod expiry;
pub(crate) mod fields;
pub(crate) mod flush;
pub(crate) mod flush_marks;
pub(crate) mod history;
pub mod inheritance;
pub(crate) mod inheriting;
pub(crate) mod key_numbers;
pub mod keyspace;
pub(crate) mod leaving;
pub(crate) mod loaded;
pub mod local;
pub(crate) mod numbering;
pub(crate) mod owed;
pub(crate) mod removals;
pub(crate) mod repeat;
pub mod replica;
pub mod scrub;
pub(crate) mod scrubbing;
#[expect(
    clippy::module_inception,
    reason = "the type gives its name to the layer"
)]
pub(crate) mod store;
pub(crate) mod tokens;
pub(crate) mod upkeep;
pub(crate) mod usage;
pub mod versions;
pub use crate::memory::keys::{Found, Keys, PREFETCH_KEYS_MAX, TimedKey};

pub use change::Change;
pub use changed_keys::{ChangedKeys, KeyChange, NOTED_BYTES_MAX, Noted, Writer};
pub use cleaning::Cleaning;
pub use cold::{AdmitError, aligned_span, part_read};
pub use commit::{ChangeKey, Committed, NoRoom, TokenPart};
pub use data::Data;
pub use direct_get::DirectRead;
pub use fields::{FieldBefore, Fields};
pub use flush_marks::Flushes;
pub use history::{At, WasAt};
pub use key_numbers::{FewKeys, KeyNumbers, KeySlots, ManyKeys, OneSlot, SlotOfEach, SpreadKeys};
pub use leaving::{Leaving, PartNeeds};
pub use loaded::Loaded;
pub use local::LocalRecords;
pub use numbering::Numbering;
pub use owed::Owed;
pub use repeat::{RepeatStep, Run};
pub use store::Store;
pub use tokens::horizons::{HORIZON_MS, Horizons};
pub use usage::Usage;
