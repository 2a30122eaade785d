//! A limit on operations that follows from how long they take, and equal shares of it.

/// A share is counted in parts of an operation, so that many connections have equal ones of little.
const PARTS: u64 = 256;
/// A round changes the limit by these factors, in quarters, at most. A turn in which the core ran
/// something else is long too, and is one among many: it is not to decide alone.
const FALL_QUARTERS: u64 = 3;
const RISE_QUARTERS: u64 = 5;
/// The most that a limit rises to.
const LIMIT_MAX: u64 = 1 << 16;

/// What one connection has of a budget.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Credit {
    /// What had been granted when it last got its part.
    seen: u64,
    /// Parts that are left; less than 0 if a frame took more than there was.
    left: i64,
}

/// What all connections may take together.
#[derive(Debug)]
pub(super) struct Budget {
    limit: u64,
    /// Parts that each connection was granted since the start.
    granted: u64,
    /// Parts that each was granted last.
    share: u64,
    /// Operations that were taken since the last grant.
    taken: u64,
    /// Operations that were refused in this round, and when it began.
    refused: u64,
    round_began_us: u64,
    /// Operations that were refused in this interval.
    refused_lately: u64,
    /// How long it would have taken to run what was refused in the last one.
    owed_us: u64,
}

impl Budget {
    pub(super) fn new(limit: u64) -> Budget {
        Budget {
            limit,
            granted: 0,
            share: limit * PARTS,
            taken: 0,
            refused: 0,
            round_began_us: 0,
            refused_lately: 0,
            owed_us: 0,
        }
    }

    /// Operations that may be taken in a round.
    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    /// Operations that were taken since the last grant.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// Whether operations were refused in this round.
    pub(super) fn has_refused(&self) -> bool {
        self.refused > 0
    }

    /// When the round began.
    pub(super) fn round_began_us(&self) -> u64 {
        self.round_began_us
    }

    /// How long it would have taken to run what was refused lately, in microseconds.
    pub(super) fn owed_us(&self) -> u64 {
        self.owed_us
    }

    /// Of a connection that takes part from now on.
    pub(super) fn first_credit(&self) -> Credit {
        Credit {
            seen: self.granted,
            left: i64::try_from(self.share).expect("limits are small"),
        }
    }

    /// Gives a connection what it was granted since, and tells whether anything is left. It may
    /// save up two shares of the limit.
    pub(super) fn has_credit(&self, credit: &mut Credit, connections: u64) -> bool {
        let saved_max = (4 * self.limit * PARTS / connections).max(PARTS);
        let granted = i64::try_from(self.granted - credit.seen).expect("limits are small");
        let saved_max = i64::try_from(saved_max).expect("limits are small");
        credit.seen = self.granted;
        credit.left = credit.left.saturating_add(granted).min(saved_max);
        credit.left > 0
    }

    /// Takes so many operations.
    pub(super) fn take(&mut self, credit: &mut Credit, operations: u64) {
        let parts = i64::try_from(operations * PARTS).expect("a frame has few operations");
        credit.left = credit.left.saturating_sub(parts);
        self.taken += operations;
    }

    /// So many operations were refused.
    pub(super) fn refuse(&mut self, operations: u64) {
        self.refused += operations;
        self.refused_lately += operations;
    }

    /// A round is over that took so long. If it refused something, the limit decided, and is set by
    /// that.
    pub(super) fn end_round(&mut self, now_us: u64, took_us: u64, target_us: u64, min: u64) {
        self.round_began_us = now_us;
        if std::mem::take(&mut self.refused) > 0 {
            let wanted = self.limit.saturating_mul(target_us) / took_us.max(1);
            self.set_limit(wanted, min);
        }
    }

    /// A round is over, and much is left for the next ones: the limit falls.
    pub(super) fn end_round_behind(&mut self, now_us: u64, min: u64) {
        self.round_began_us = now_us;
        self.refused = 0;
        self.set_limit(0, min);
    }

    fn set_limit(&mut self, wanted: u64, min: u64) {
        let least = self.limit * FALL_QUARTERS / 4;
        let most = self.limit * RISE_QUARTERS / 4;
        self.limit = wanted
            .clamp(least, most)
            .clamp(min.min(LIMIT_MAX), LIMIT_MAX);
    }

    /// Gives so many operations to so many connections in equal parts.
    pub(super) fn grant(&mut self, operations: u64, connections: u64) {
        self.share = operations * PARTS / connections;
        self.granted += self.share;
        self.taken = 0;
    }

    /// An interval of this length is over, in which so many operations ran.
    pub(super) fn end_interval(&mut self, length_us: u64, ran: u64) {
        let refused = std::mem::take(&mut self.refused_lately);
        self.owed_us = length_us.saturating_mul(refused) / ran.max(1);
    }
}
