//! The limits of the protocol and of a server.

/// Bytes of a key, at most; at least 1.
pub const KEY_BYTES_MAX: usize = 1024;
/// Items of a batch, at most; at least 1.
pub const BATCH_ITEMS_MAX: usize = 1024;
/// Instructions of one operation, at most.
pub const INSTRUCTIONS_MAX: usize = 64;
/// Bytes of a value that no configuration can exceed.
pub const VALUE_BYTES_HARD_MAX: usize = 16 << 20;
/// An expiry in unix milliseconds, or a lifetime in milliseconds, at most: 48 bits, the year 10889.
pub const EXPIRY_MS_MAX: u64 = (1 << 48) - 1;
/// Bytes of a client's name, at most.
pub const CLIENT_NAME_BYTES_MAX: usize = 64;
/// Bytes of a frame before HELLO was accepted, at most.
pub const FRAME_BYTES_BEFORE_HELLO_MAX: u32 = 1024;

/// What a server was configured to accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a frame with its header.
    pub frame_bytes_max: u32,
    /// Bytes of a value.
    pub value_bytes_max: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            frame_bytes_max: 2 << 20,
            value_bytes_max: 1 << 20,
        }
    }
}
