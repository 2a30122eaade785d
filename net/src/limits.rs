//! The limits of the protocol and of a server.

/// Bytes of a key, at most; at least 1.
pub const KEY_BYTES_MAX: usize = 1024;
/// Items of a batch, at most; at least 1.
pub const BATCH_ITEMS_MAX: usize = 1024;
/// Instructions of an operation on few keys, at most.
pub const INSTRUCTIONS_MAX: usize = 64;
/// Keys of one APPLY, at most; at least 1. Their numbers have 8 bits.
pub const APPLY_KEYS_MAX: usize = 255;
/// Keys of an APPLY that any server takes, of a RUN, and of what runs when a key expires, at most:
/// their lengths stand in the head of the item.
pub const FEW_KEYS_MAX: usize = 8;
/// Instructions of an APPLY of more than [`FEW_KEYS_MAX`] keys, at most: an answer has 8 bits for
/// the number of one, and 255 for none.
pub const MANY_INSTRUCTIONS_MAX: usize = 255;
/// Arguments of a program, at most.
pub const PROGRAM_ARGUMENTS_MAX: usize = 16;
/// Bytes of the name of a program and of its arguments and keys, at most.
pub const PROGRAM_NAME_BYTES_MAX: usize = 32;
/// Bytes that are stored of what runs when a key expires, at most: what a part of a record has room
/// for beside the longest key and value.
pub const EFFECTS_BYTES_MAX: usize = 2944;
/// Bytes of a value that no configuration can exceed.
pub const VALUE_BYTES_HARD_MAX: usize = 16 << 20;
/// An expiry in unix milliseconds, or a lifetime in milliseconds, at most: 48 bits, the year 10889.
pub const EXPIRY_MS_MAX: u64 = (1 << 48) - 1;
/// A token may be ahead of the shard's time by this much, in milliseconds: clocks differ.
pub const TOKEN_AHEAD_MS_MAX: u64 = 300_000;
/// Keys of a page of SCAN, at most; at least 1.
pub const SCAN_ENTRIES_MAX: u32 = 1024;
/// Bytes of a page of SCAN that may be asked for, at least.
pub const SCAN_BYTES_MIN: u32 = 4096;
/// Bytes of a page of SCAN that may be asked for, at most.
pub const SCAN_BYTES_MAX: u32 = 256 << 10;
/// Keys that begin so are the server's own.
pub const RESERVED_KEY: &[u8] = b"\0\0penstock/";
/// Bytes of the prefix of a keyspace, at most; 0 is the prefix of all keys.
pub const KEYSPACE_BYTES_MAX: usize = 64;
/// The lifetime of a keyspace in milliseconds, at most: what is put within four thousand years from
/// now may still have it.
pub const KEYSPACE_TTL_MS_MAX: u64 = (1 << 47) - 1;
/// Versions that one HISTORY tells, at most; at least 1.
pub const HISTORY_VERSIONS_MAX: u32 = 1024;
/// Bytes of a client's name, at most.
pub const CLIENT_NAME_BYTES_MAX: usize = 64;
/// Bytes of a prefix of keys that a right is granted for, at most; 0 is all keys.
pub const RIGHTS_PREFIX_BYTES_MAX: usize = 64;
/// Prefixes of one user, at most, those of each right and of each program counted.
pub const RIGHTS_PREFIXES_MAX: usize = 1000;
/// Programs that the rights of one user name, at most.
pub const RIGHTS_PROGRAMS_MAX: usize = 60;
/// Users of a server, at most.
pub const USERS_MAX: usize = 4096;
/// Bytes of a users' file, at most.
pub const USERS_FILE_BYTES_MAX: usize = 1 << 20;
/// Prefixes of all users together, at most.
pub const USERS_PREFIXES_MAX: usize = 16_384;
/// Bytes of the name of a user, at most.
pub const USER_NAME_BYTES_MAX: usize = 64;
/// Bytes of the name of a user's machine key, at most.
pub const KEY_NAME_BYTES_MAX: usize = 31;
/// Machine keys of one user, at most.
pub const USER_KEYS_MAX: usize = 16;
/// Bytes of the name in a certificate that logs a user in, at most.
pub const CERTIFICATE_NAME_BYTES_MAX: usize = 255;
/// Bytes of a frame before HELLO was accepted, at most.
pub const FRAME_BYTES_BEFORE_HELLO_MAX: u32 = 1024;

/// Instructions of an APPLY of so many keys, at most.
#[inline]
#[must_use]
pub const fn instructions_max(keys: usize) -> usize {
    if keys > FEW_KEYS_MAX {
        MANY_INSTRUCTIONS_MAX
    } else {
        INSTRUCTIONS_MAX
    }
}

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
