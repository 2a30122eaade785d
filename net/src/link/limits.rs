//! The numbers that both ends of a link agree on before the first byte.

/// The version of the link.
pub const LINK_VERSION: u8 = 2;
/// From this version of the link on the node understands settings of keyspaces with ack level `all`
/// and with a default level. The frames are those of [`LINK_VERSION`].
pub const LINK_VERSION_LEVEL_ALL: u8 = 3;
/// From this version of the link on the node understands records of more than nine parts, and
/// tokens with more than 64 numbers. The frames are those of [`LINK_VERSION`].
pub const LINK_VERSION_MANY_PARTS: u8 = 4;
/// From this version of the link on the node takes connections for messages of channels. The frames
/// of records are those of [`LINK_VERSION`].
pub const LINK_VERSION_PUBLISH: u8 = 5;
/// From this version of the link on the node understands values with members. The frames of records
/// are those of [`LINK_VERSION`].
pub const LINK_VERSION_MEMBERS: u8 = 6;
/// The highest version of the link.
pub const LINK_VERSION_MAX: u8 = LINK_VERSION_MEMBERS;
/// Bytes of a frame before both sides have proven themselves, at most.
pub const LINK_FRAME_BYTES_BEFORE_PROOF_MAX: u32 = 1024;
/// Partitions of a cluster.
pub const LINK_PARTITIONS: u16 = 256;
/// The highest generation of a partition.
pub const GENERATION_MAX: u16 = (1 << 14) - 1;
/// Epochs of a history, at most.
pub const LINK_EPOCHS_MAX: usize = 64;
/// Keys of one REWIND, at most.
pub const REWIND_KEYS_MAX: usize = 256;
/// Bytes of the text of a refusal, at most.
pub const REFUSED_TEXT_BYTES_MAX: usize = 512;
