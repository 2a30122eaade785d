//! The clocks of a step.

/// The time of one step. It has no default: the first step decides where the shard's own time
/// begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Microseconds of a clock that all shards of the node share and that never steps back. Under
    /// leases it is the clock of the leases, CLOCK_BOOTTIME: it goes on while a machine is
    /// suspended.
    pub us: u64,
    /// Wall clock; it may step, the time of the store does not follow.
    pub unix_ms: u64,
}
