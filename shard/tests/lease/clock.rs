//! The clocks of a node: each has a rate and a begin of its own.

/// What one machine shows at a real time.
#[derive(Clone, Debug)]
pub struct Clock {
    /// Microseconds of this clock in a real second.
    pub rate: u64,
    pub offset_us: u64,
    /// How far the wall clock is off.
    pub wall_us: i64,
    /// For how much real time the machine was suspended.
    pub suspended_us: u64,
}

/// Which of them a node goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It goes on while the machine is suspended, and never steps.
    Boot,
    /// It stands still while the machine is suspended.
    Monotonic,
    /// It steps.
    Wall,
}

impl Clock {
    pub fn read(&self, real_us: u64, kind: Kind) -> u64 {
        let of = |us: u64| self.offset_us + us / 1000 * self.rate / 1000 + us % 1000;
        match kind {
            Kind::Boot => of(real_us),
            Kind::Monotonic => of(real_us.saturating_sub(self.suspended_us)),
            Kind::Wall => of(real_us).saturating_add_signed(self.wall_us),
        }
    }
}
