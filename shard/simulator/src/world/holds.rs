//! Holds in the traffic of a node.

use penstock_net::reply::ReplyItem;
use penstock_net::request::BatchRequest;

use crate::holds::{Holds, LATE_MS_MAX};
use crate::plan::distinct_tags;
use crate::random::Random;
use crate::sales::Excuses;

use crate::coverage::Fault;

use super::{Asked, Phase, Step, World};

/// How long holds live, in milliseconds: also longer than a run.
const LIFETIMES_MS: &[u64] = &[5, 30, 30, 200, 200, 1_000, 5_000, 60_000, 600_000];
/// A node may come to effects this long after a start, if nothing holds it up.
const PROMPT_US: u64 = LATE_MS_MAX * 1_000;

/// The holds of a run.
pub(super) fn holds_of(seed: u64, may_fail: bool) -> Holds {
    let mut random = Random::new(seed, 31);
    let tags = distinct_tags(&mut random, "tdesk");
    Holds::new(random, &tags, LIFETIMES_MS, may_fail)
}

impl World {
    /// Whether the node has had the time to run effects of what expired long ago.
    fn is_prompt(&self) -> bool {
        let is_quiet = self.oracle.must_execute;
        let has_faults = self.plan.disk.stall > 0 || self.oracle.may_be_full;
        let since_us = self.now_us.saturating_sub(PROMPT_US);
        let is_held_up = has_faults || self.held_up_until_us > since_us;
        self.started_us <= since_us && (is_quiet || !is_held_up)
    }

    /// Sends a few tries.
    pub(super) fn send_holds(&mut self, link: usize) {
        let is_prompt = self.is_prompt();
        let level = self.expiries.pick(self.plan.levels);
        let count = 1 + self.expiries.index(self.plan.batch_max.min(4));
        let mut tries = Vec::new();
        for _ in 0..count {
            let holds = self.holds.as_ref().expect("the caller looked");
            let desk = self.expiries.index(holds.desks());
            let now = self.moment(holds.slot(desk));
            let holds = self.holds.as_mut().expect("the caller looked");
            holds.set_prompt(is_prompt);
            tries.push(holds.next(desk, level, now));
        }
        self.send_deals(link, tries);
    }

    /// A batch has one level: the highest that one of its tries asks for.
    fn send_deals(&mut self, link: usize, tries: Vec<usize>) {
        let request = self.next_request(link);
        let holds = self.holds.as_ref().expect("there are tries");
        let levels = tries.iter().map(|&number| holds.level(number));
        let level = levels.max().expect("some");
        let deadline_ms = match self.phase {
            Phase::Traffic if self.expiries.chance(self.plan.deadlines) => 2,
            _ => 0,
        };
        let mut out = Vec::new();
        let mut batch = BatchRequest::begin(&mut out, request, level, deadline_ms, tries.len());
        for &number in &tries {
            holds.write(number, &mut batch, &mut out);
        }
        batch.finish(&mut out);
        let asked = tries.into_iter().map(|number| Some(Asked::Hold(number)));
        let state = &mut self.links[link];
        state.alone = None;
        state.outstanding.insert(request, asked.collect());
        self.send_to_server(link, out);
    }

    pub(super) fn answer_hold(&mut self, number: usize, item: &ReplyItem<'_>) -> Step {
        let excuses = Excuses {
            may_be_full: self.oracle.may_be_full,
            may_fail_to_read: self.oracle.may_fail_to_read,
            is_cluster: false,
            must_execute: self.oracle.must_execute,
        };
        let holds = self.holds.as_mut().expect("it has tries");
        holds.answer(number, item, self.now_us, excuses)
    }

    pub(super) fn lose_hold(&mut self, number: usize) {
        let holds = self.holds.as_mut().expect("it has tries");
        holds.lost(number, self.now_us);
    }

    /// Moves the wall clock to where all holds have expired, before a start.
    pub(super) fn pass_expiries(&mut self) {
        let Some(holds) = &mut self.holds else {
            return;
        };
        holds.close();
        let last_ms = holds.last_expiry_ms();
        let ahead_ms = last_ms.saturating_sub(self.now().unix_ms);
        if ahead_ms > 0 {
            self.hit(Fault::ClockJump);
            let more_ms = ahead_ms + self.expiries.below(3_000);
            self.unix_offset_ms += i64::try_from(more_ms).expect("not far");
        }
    }

    /// What a last look waits for, for people.
    pub(super) fn state_of_holds(&self) -> String {
        let last_ms = self.holds.as_ref().map(Holds::last_expiry_ms);
        let cores = self.node.iter().flat_map(|node| &node.cores);
        let times: Vec<_> = cores
            .map(|core| core.shard.store().data().time_ms())
            .collect();
        format!("holds expire until {last_ms:?}, and the time of the shards is {times:?}")
    }

    /// Whether the last look has not made all of its tries.
    pub(super) fn has_holds_left(&self) -> bool {
        self.holds.as_ref().is_some_and(Holds::has_last)
    }

    pub(super) fn read_holds_again(&mut self) {
        if let Some(holds) = &mut self.holds {
            holds.begin_last();
        }
    }

    /// Sends the next tries of the last look, so few that no queue may be full. Nothing is under
    /// way.
    pub(super) fn read_holds(&mut self) {
        let Some(mut holds) = self.holds.take() else {
            return;
        };
        let cores = self.node.iter().flat_map(|node| &node.cores);
        let times = cores.map(|core| core.shard.store().data().time_ms());
        let is_over = times.min() > Some(holds.last_expiry_ms());
        let mut tries = Vec::new();
        if is_over && self.is_prompt() {
            holds.set_prompt(true);
            while tries.len() < 4
                && let Some(number) = holds.next_last(|slot| self.moment(slot), tries.is_empty())
            {
                tries.push(number);
            }
        } else {
            // Time goes by, and shards look at it.
            for shard in 0..usize::from(self.layout.shards) {
                self.turn_at(shard, self.now_us + 100_000);
            }
        }
        self.holds = Some(holds);
        if !tries.is_empty() {
            let link = self.clients[0].link.expect("all are connected");
            self.send_deals(link, tries);
        }
    }
}
