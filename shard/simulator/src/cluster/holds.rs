//! Holds in the traffic of a cluster, whose nodes have wall clocks of their own.

use penstock_net::level::AckLevel;
use penstock_net::reply::ReplyItem;
use penstock_net::request::BatchRequest;
use penstock_shard::FailedEffects;

use crate::holds::Holds;
use crate::plan::sends_holds;
use crate::random::Random;
use crate::sales::{Excuses, Moment};

use super::client::What;
use super::{NODES, Step, World};

/// Seeds below are from before keys had effects that run when they expire, and have no holds.
const HOLDS_FROM: u64 = 660_000_000;
/// How long holds live, in milliseconds.
const LIFETIMES_MS: &[u64] = &[20, 200, 200, 1_000, 1_000, 4_000, 15_000];
/// So long behind the last expiry, and since all partitions are served, all effects have run.
const FIRED_MS_MAX: u64 = 1_000;

/// How far the wall clock of each node is ahead of the slowest: not so far that a run waits for it
/// in the end.
pub(super) fn walls_ms(random: &mut Random) -> [u64; NODES] {
    let far_ms = random.pick(&[0, 0, 500, 3_000, 20_000]);
    [(); NODES].map(|()| random.below(far_ms + 1))
}

/// How far the time of a shard may be behind the wall clock of its node.
const CLOCK_LAG_MS_MAX: u64 = 2;

/// The holds of a run, if it has some, at desks whose keys have these tags.
pub(super) fn holds_of(seed: u64, tags: &[(u64, u16)], may_fail: bool) -> Option<Holds> {
    let desk = |(tag, _): &(u64, u16)| format!("{{{tag}}}desk");
    sends_holds(seed, HOLDS_FROM).then(|| {
        let desks: Vec<String> = tags.iter().map(desk).collect();
        Holds::new(Random::new(seed, 110), &desks, LIFETIMES_MS, may_fail)
    })
}

impl World {
    /// Sends the next try at a desk.
    pub(super) fn send_hold(&mut self, client: usize, desk: usize, level: AckLevel) {
        let node = self.clients[client].node;
        let least_ms = (0..NODES).map(|node| self.now_of(node).unix_ms).min();
        // A shard looks at its clocks now and then, and is behind them until then.
        let least_ms = least_ms.map(|least_ms| least_ms - CLOCK_LAG_MS_MAX);
        let time_ms = self.now_of(node).unix_ms;
        let now = Moment {
            us: self.now_us,
            time_ms,
            least_ms: least_ms.expect("there are nodes"),
            wall_ms: time_ms,
        };
        let request = self.clients[client].request + 1;
        let holds = self.holds.as_mut().expect("the caller looked");
        let number = holds.next(desk, level, now);
        let level = holds.level(number);
        let partition = u16::try_from(holds.partition(desk)).expect("256 partitions");
        let mut out = Vec::new();
        let mut batch = BatchRequest::begin(&mut out, request, level, 0, 1);
        holds.write(number, &mut batch, &mut out);
        batch.finish(&mut out);
        self.issued += 1;
        let home = (Vec::new(), partition);
        self.send(client, out, home, level, What::Hold(number));
    }

    pub(super) fn changes_hold(&self, number: usize, item: &ReplyItem<'_>) -> bool {
        let holds = self.holds.as_ref().expect("it has tries");
        holds.is_change(number, item)
    }

    pub(super) fn answer_hold(&mut self, number: usize, item: &ReplyItem<'_>) -> Step {
        let excuses = Excuses {
            may_be_full: true,
            may_fail_to_read: true,
            is_cluster: true,
            must_execute: false,
        };
        let holds = self.holds.as_mut().expect("it has tries");
        match self.is_incomplete_accepted {
            // Half of a scan may have an order without its units.
            true => Ok(()),
            false => holds.answer(number, item, self.now_us, excuses),
        }
    }

    pub(super) fn lose_hold(&mut self, number: usize) {
        let holds = self.holds.as_mut().expect("it has tries");
        holds.lost(number, self.now_us);
    }

    /// Effects fail if their keys cannot be read, or if half of a scan lacks them.
    pub(super) fn judge_failed(&self, failed: &[FailedEffects]) -> Step {
        let may_fail = self.holds.as_ref().is_none_or(Holds::may_fail);
        match failed.first() {
            Some(it) if !may_fail && !self.is_incomplete_accepted => {
                let key = String::from_utf8_lossy(&it.key);
                Err(format!("effects of {key} failed: {}", it.why))
            }
            _ => Ok(()),
        }
    }

    /// The keys of holds, with their partitions.
    pub(super) fn hold_keys(&self) -> Vec<(Vec<u8>, u16)> {
        let keys = self.holds.iter().flat_map(|holds| holds.keys());
        let partition = |partition| u16::try_from(partition).expect("256 partitions");
        keys.map(|(key, of)| (key, partition(of))).collect()
    }

    /// The nodes are the same now, and each partition has a writer that serves it; or not.
    pub(super) fn note_rest(&mut self, is_at_rest: bool) {
        if let Some(holds) = &mut self.holds {
            holds.note_rest(self.now_us, is_at_rest);
        }
    }

    /// Whether effects may still be to run, at rest. A hold may expire by the slowest clock, or has
    /// just done so. Or a writer has just got its lease back: it comes to what has expired without
    /// one in a later turn.
    pub(super) fn may_fire(&mut self) -> bool {
        let slowest_ms = (0..NODES).map(|node| self.now_of(node).unix_ms).min();
        let Some(holds) = &mut self.holds else {
            return false;
        };
        holds.close();
        slowest_ms < Some(holds.last_expiry_ms() + FIRED_MS_MAX)
            || !holds.has_rested(FIRED_MS_MAX * 1_000)
    }
}
