//! What stands on the disk: `FORMAT.md` describes every byte. Encoders and readers over bytes; they
//! use the small types and nothing else.

pub mod checksum;
pub mod contents;
pub mod corruption;
pub mod direct_part;
pub mod extension;
pub mod frame;
pub(crate) mod frame_body;
pub mod head;
pub mod horizon;
pub mod layout;
pub mod reached;
pub mod record;
pub mod redo;
pub mod row;
pub mod segment;
pub mod spare;
pub mod summary;
pub mod system_key;
pub mod token;
