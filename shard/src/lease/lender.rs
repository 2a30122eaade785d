//! What a member lends: for which partitions it lets another node write, and until when.

use penstock_net::link::PartitionSet;
use penstock_net::link::message::LINK_PARTITIONS;

use super::rules::LeaseRules;

const PARTITIONS: usize = LINK_PARTITIONS as usize;

/// Whom a plan names as the primary of a partition, and in which generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    /// The node.
    pub primary: u8,
    /// The generation.
    pub generation: u32,
}

/// The grants of one start of a node.
#[derive(Debug)]
pub struct Lender {
    grace_us: u64,
    /// The end of the grace of the last grant of each partition to anybody.
    ends_us: Box<[u64; PARTITIONS]>,
    /// The highest generation in which it was granted.
    generations: Box<[u32; PARTITIONS]>,
    /// Since when it has looked without a standstill.
    awake_us: u64,
    noted_us: u64,
    /// Partitions that a swap under way takes over.
    withheld: PartitionSet,
}

impl Lender {
    /// Of a start. What an earlier start has granted is not known: it may have been just now.
    #[must_use]
    pub fn new(now_us: u64, rules: LeaseRules) -> Self {
        Lender {
            grace_us: rules.grace_us(),
            ends_us: Box::new([now_us + rules.grace_us(); PARTITIONS]),
            generations: Box::new([0; PARTITIONS]),
            awake_us: now_us,
            noted_us: now_us,
            withheld: PartitionSet::none(),
        }
    }

    /// What is granted from now on is waited for another time.
    pub fn set_rules(&mut self, rules: LeaseRules) {
        self.grace_us = rules.grace_us();
    }

    /// To be told often. A node that stood still cannot know who was silent meanwhile.
    pub fn note_awake(&mut self, now_us: u64) {
        if now_us.saturating_sub(self.noted_us) > self.grace_us / 4 {
            self.awake_us = now_us;
        }
        self.noted_us = now_us;
    }

    /// A heartbeat was read at `now_us`, of a node that has heard this one. Its claims are
    /// partitions and generations. Returns what is granted.
    pub fn judge(
        &mut self,
        now_us: u64,
        from: u8,
        claims: impl Iterator<Item = (u16, u32)>,
        named: impl Fn(u16) -> Named,
        is_turning: impl Fn(u16) -> bool,
    ) -> PartitionSet {
        let mut granted = PartitionSet::none();
        for (partition, generation) in claims {
            let (at, named) = (usize::from(partition), named(partition));
            let is_named = generation > named.generation
                || (generation, from) == (named.generation, named.primary);
            let is_past = generation < self.generations[at];
            if generation == 0 || !is_named || is_past {
                continue;
            }
            if self.withheld.has(partition) || !is_turning(partition) {
                continue;
            }
            self.generations[at] = generation;
            self.ends_us[at] = (now_us + self.grace_us).max(self.ends_us[at]);
            granted.insert(partition);
        }
        granted
    }

    /// Whether the leases are over that this node has granted for a partition, so that it may
    /// serve it itself.
    #[must_use]
    pub fn may_begin(&self, now_us: u64, partition: u16) -> bool {
        now_us >= self.begins_us(partition)
    }

    /// From when on that is so.
    #[must_use]
    pub fn begins_us(&self, partition: u16) -> u64 {
        self.ends_us[usize::from(partition)]
    }

    /// The highest generation in which it was granted to anybody; 0: it never was.
    #[must_use]
    pub fn generation(&self, partition: u16) -> u32 {
        self.generations[usize::from(partition)]
    }

    /// Since when the node of a partition may be taken for lost, if nothing is granted until then.
    #[must_use]
    pub fn lost_us(&self, partition: u16) -> u64 {
        self.ends_us[usize::from(partition)].max(self.awake_us + self.grace_us)
    }

    /// Since when it has looked without a standstill.
    #[must_use]
    pub fn awake_us(&self) -> u64 {
        self.awake_us
    }

    /// The old primary has promised the epoch of this node in a generation, and has stopped:
    /// nothing is to be waited for, unless somebody was granted this generation or a later one.
    pub fn handed_over(&mut self, partition: u16, generation: u32) {
        let at = usize::from(partition);
        if self.generations[at] < generation {
            self.ends_us[at] = 0;
        }
    }

    /// Grants none of these until [`Lender::release`].
    pub fn withhold(&mut self, partitions: PartitionSet) {
        self.withheld = partitions;
    }

    /// The swap is over.
    pub fn release(&mut self) {
        self.withheld = PartitionSet::none();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: LeaseRules = LeaseRules::QUIET;
    const G: u64 = RULES.grace_us();

    fn named(primary: u8, generation: u32) -> impl Fn(u16) -> Named {
        move |_| Named {
            primary,
            generation,
        }
    }

    fn judge(
        lender: &mut Lender,
        now_us: u64,
        (from, generation): (u8, u32),
        by: (u8, u32),
    ) -> bool {
        let claims = [(7, generation)].into_iter();
        let granted = lender.judge(now_us, from, claims, named(by.0, by.1), |_| true);
        granted.has(7)
    }

    #[test]
    fn only_the_writer_by_the_newest_plan_that_is_known_is_granted_anything() {
        let mut lender = Lender::new(0, RULES);
        assert!(judge(&mut lender, 1, (1, 5), (1, 5)));
        // It claims nothing, or what another node writes.
        assert!(!judge(&mut lender, 2, (1, 0), (1, 5)));
        assert!(!judge(&mut lender, 2, (2, 5), (1, 5)));
        assert!(!judge(&mut lender, 2, (1, 5), (2, 6)));
        // A later plan than the one here; the one before it is over for good.
        assert!(judge(&mut lender, 3, (2, 6), (1, 5)));
        assert!(!judge(&mut lender, 4, (1, 5), (1, 5)));
    }

    #[test]
    fn nobody_begins_within_the_grace_of_a_grant_or_of_its_own_start() {
        let mut lender = Lender::new(1000, RULES);
        assert!(!lender.may_begin(999 + G, 7) && lender.may_begin(1000 + G, 7));
        assert!(judge(&mut lender, 2000 + G, (1, 5), (1, 5)));
        assert!(!lender.may_begin(1999 + 2 * G, 7));
        assert!(lender.may_begin(2000 + 2 * G, 7) && lender.may_begin(1000 + G, 8));
    }

    #[test]
    fn a_handover_ends_the_grace_of_those_before_and_not_of_who_was_promoted_since() {
        let mut lender = Lender::new(0, RULES);
        assert!(judge(&mut lender, 1000, (1, 5), (1, 5)));
        // It stopped by itself.
        lender.handed_over(7, 6);
        assert!(lender.may_begin(1001, 7));
        // People have promoted another node, and the message of the handover came late.
        assert!(judge(&mut lender, 2000, (3, 7), (2, 6)));
        lender.handed_over(7, 6);
        assert!(!lender.may_begin(1999 + G, 7));
        assert!(lender.may_begin(2000 + G, 7));
    }

    #[test]
    fn who_stood_still_blames_nobody_for_a_grace_and_what_is_taken_over_is_not_granted() {
        let mut lender = Lender::new(0, RULES);
        assert!(judge(&mut lender, 1000, (1, 5), (1, 5)));
        lender.note_awake(2000);
        assert_eq!(lender.lost_us(7), 1000 + G);
        lender.note_awake(10 * G);
        assert_eq!(lender.lost_us(7), 11 * G);
        // What was granted before is over all the same.
        assert!(lender.may_begin(10 * G, 7));
        lender.withhold(PartitionSet::from_iter([7]));
        assert!(!judge(&mut lender, 11 * G, (1, 5), (1, 5)));
        lender.release();
        assert!(judge(&mut lender, 11 * G, (1, 5), (1, 5)));
    }

    #[test]
    fn a_shard_that_stands_still_lends_nothing() {
        let mut lender = Lender::new(0, RULES);
        let claims = [(7, 5), (8, 5)].into_iter();
        let granted = lender.judge(1, 1, claims, named(1, 5), |partition| partition == 8);
        assert_eq!(granted, PartitionSet::from_iter([8]));
    }
}
