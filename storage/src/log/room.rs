//! Whether a record can be appended, and for what it is.

/// Whether a record can be appended now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// It can.
    Yes,
    /// Frames wait for the disk, a spare segment is on its way, or no block is free: ask again
    /// after a completion, of a read as well.
    Wait,
    /// No spare segment can be had: the disk is full.
    Full,
}

/// What a record is appended for, and with it how deep it may reach into the last spare segments.
/// When no more can be had, the last ones belong to what makes room again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The store holds more after it: refused as soon as no more spares can be had.
    Grow,
    /// The store holds no more after it: a deletion, an edit, a value no longer than the one
    /// before.
    Keep,
    /// The store keeps less after it, which gives cleaning something to do where all else counts:
    /// few bytes, and as deep as cleaning itself.
    Relieve,
    /// It is decided, and room is reserved for it: as deep as cleaning itself.
    Owed,
    /// Cleaning moves what it found: every move leaves a segment nearer to its release.
    Clean,
}
