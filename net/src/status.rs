//! What a reply says of its request, and whether the request was executed.

/// The outcome of a request or of one of its items. The high byte is the class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Status {
    /// Done.
    Ok = 0x0000,
    /// An instruction's condition did not hold; nothing was changed.
    GuardFailed = 0x0101,
    /// The key does not exist.
    NotFound = 0x0102,
    /// The key exists, and only-if-absent was asked.
    Exists = 0x0103,
    /// The key has another version, and only-if-version was asked.
    VersionMismatch = 0x0104,
    /// The version that is asked for is older than the versions that are kept of the key.
    NotKept = 0x0105,
    /// Another request had this token, and was executed.
    TokenReused = 0x0106,
    /// Another node has the slot.
    Moved = 0x0201,
    /// This node may not write.
    NotPrimary = 0x0202,
    /// A member that may answer a read has not come far enough.
    Stale = 0x0203,
    /// A bounded queue is full; retry after the time in the header.
    Busy = 0x0301,
    /// The deadline passed before execution.
    Deadline = 0x0302,
    /// The server is stopping.
    Draining = 0x0303,
    /// The disk is full; reads and retries later work.
    Full = 0x0304,
    /// Not a request of this protocol.
    Malformed = 0x0401,
    /// A length is over its limit.
    TooLarge = 0x0402,
    /// The keys of one operation route to different slots.
    CrossSlot = 0x0403,
    /// A known field has a value that this server does not support.
    Unsupported = 0x0404,
    /// A key is empty or over its limit.
    BadKey = 0x0405,
    /// A field lies outside its value.
    BadField = 0x0406,
    /// The first frame of a connection was not HELLO.
    HelloExpected = 0x0407,
    /// Authentication failed or is missing.
    Auth = 0x0408,
    /// No program of this node has the id that is asked for.
    UnknownProgram = 0x0409,
    /// The user of the connection lacks a right.
    Denied = 0x040A,
    /// The key has members, and what is asked for is of a plain value. A client that does not want
    /// [`FEATURE_WRONG_TYPE`](crate::hello::FEATURE_WRONG_TYPE) is told `UNSUPPORTED`.
    WrongType = 0x040B,
    /// The device reported an error; a write is not acknowledged.
    Io = 0x0501,
    /// The bytes that were read are not the bytes that were written.
    Corrupt = 0x0502,
    /// The shard has stopped.
    ShardDown = 0x0503,
    /// The outcome is not known.
    Indeterminate = 0x0601,
    /// At level replica. Either the operation was executed, and not every node of the sync set has
    /// told in time that it received the change; or the operation was not executed, because the
    /// sync set is empty. The message tells which.
    NoReplicas = 0x0602,
    /// The token is older than the answers that are kept. Nothing is executed now.
    TokenTooOld = 0x0603,
}

/// Whether a request took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Executed {
    /// It did.
    Yes,
    /// It did not and will not.
    No,
    /// Nobody can tell; a retry must be safe to run twice.
    Unknown,
}

impl Status {
    /// Every status. New ones stand at the end.
    pub const ALL: [Status; 31] = [
        Status::Ok,
        Status::GuardFailed,
        Status::NotFound,
        Status::Exists,
        Status::VersionMismatch,
        Status::Moved,
        Status::NotPrimary,
        Status::Busy,
        Status::Deadline,
        Status::Draining,
        Status::Full,
        Status::Malformed,
        Status::TooLarge,
        Status::CrossSlot,
        Status::Unsupported,
        Status::BadKey,
        Status::BadField,
        Status::HelloExpected,
        Status::Auth,
        Status::Io,
        Status::Corrupt,
        Status::ShardDown,
        Status::Indeterminate,
        Status::NotKept,
        Status::NoReplicas,
        Status::Stale,
        Status::TokenReused,
        Status::TokenTooOld,
        Status::UnknownProgram,
        Status::Denied,
        Status::WrongType,
    ];

    /// The number on the wire.
    #[inline]
    #[must_use]
    pub const fn code(self) -> u16 {
        self as u16
    }

    /// The status with this number.
    #[must_use]
    pub fn from_code(code: u16) -> Option<Self> {
        if code == 0 {
            return Some(Status::Ok);
        }
        Status::ALL.into_iter().find(|status| status.code() == code)
    }

    /// Whether a request that got this status took effect.
    #[must_use]
    pub fn executed(self) -> Executed {
        match self {
            Status::Ok => Executed::Yes,
            Status::ShardDown
            | Status::Io
            | Status::Indeterminate
            | Status::NoReplicas
            | Status::TokenTooOld => Executed::Unknown,
            _ => Executed::No,
        }
    }

    /// Its name as the documents write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Status::Ok => "OK",
            Status::GuardFailed => "GUARD_FAILED",
            Status::NotFound => "NOT_FOUND",
            Status::Exists => "EXISTS",
            Status::VersionMismatch => "VERSION_MISMATCH",
            Status::NotKept => "NOT_KEPT",
            Status::TokenReused => "TOKEN_REUSED",
            Status::TokenTooOld => "TOKEN_TOO_OLD",
            Status::NoReplicas => "NOREPLICAS",
            Status::Stale => "STALE",
            Status::Moved => "MOVED",
            Status::NotPrimary => "NOT_PRIMARY",
            Status::Busy => "BUSY",
            Status::Deadline => "DEADLINE",
            Status::Draining => "DRAINING",
            Status::Full => "FULL",
            Status::Malformed => "MALFORMED",
            Status::TooLarge => "TOO_LARGE",
            Status::CrossSlot => "CROSS_SLOT",
            Status::Unsupported => "UNSUPPORTED",
            Status::BadKey => "BAD_KEY",
            Status::BadField => "BAD_FIELD",
            Status::HelloExpected => "HELLO_EXPECTED",
            Status::Auth => "AUTH",
            Status::UnknownProgram => "UNKNOWN_PROGRAM",
            Status::Denied => "DENIED",
            Status::WrongType => "WRONG_TYPE",
            Status::Io => "IO",
            Status::Corrupt => "CORRUPT",
            Status::ShardDown => "SHARD_DOWN",
            Status::Indeterminate => "INDETERMINATE",
        }
    }
}
