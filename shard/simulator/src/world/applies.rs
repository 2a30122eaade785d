//! APPLYs in the traffic: which keys, and what becomes of each.

use penstock_net::apply::Rate;
use penstock_net::level::AckLevel;
use penstock_net::request::Expiry;
use penstock_net::status::Status;
use penstock_shard::{Shard, Topology};
use penstock_storage::key_home::KeyHome;
use penstock_storage::store::Found;

use crate::disk::Pool;
use crate::operation::Operation;
use crate::oracle;
use crate::oracle::{Act, DRAINED_MAX, Guard, Part};
use crate::random::Random;

use super::World;

/// What traffic picks from, the frequent ones more than once.
const OPERATIONS: &[Operation] = &[
    Operation::Buy,
    Operation::Buy,
    Operation::Buy,
    Operation::Buy,
    Operation::BuyAndFail,
    Operation::BuyAndFail,
    Operation::Pour,
    Operation::Pour,
    Operation::Pour,
    Operation::Drain,
    Operation::Renew,
    Operation::Renew,
    Operation::Renew,
    Operation::Renew,
    Operation::InTime,
    Operation::OnVersion,
    Operation::Rated,
    Operation::Sum,
    Operation::Sum,
];

impl World {
    /// Now and then an APPLY, in a run that has them.
    pub(super) fn plan_apply(&mut self, level: AckLevel) -> Option<oracle::Plan> {
        if self.plan.groups.is_empty() || !self.applies.chance(200_000) {
            return None;
        }
        let random = &mut self.applies;
        // The last groups have keys for this alone.
        let groups = &self.plan.groups;
        let group = match random.chance(500_000) {
            true => groups.iter().max_by_key(|group| group.len()).expect("some"),
            false => &groups[random.index(groups.len())],
        };
        let mut keys = group.clone();
        for place in 1..keys.len() {
            keys.swap(place, random.index(place + 1));
        }
        keys.truncate(8);
        let mut operation = random.pick(OPERATIONS);
        // So many of the longest values are more than a record holds.
        let is_much = keys.len() * self.value_bytes_max > 2 * (self.plan.value_bytes_max + 1_200);
        if is_much && random.chance(10_000) {
            operation = Operation::ApplyTooMuch;
        }
        let time_ms = self.time_ms(keys[0]);
        let random = &mut self.applies;
        let units = random.pick(&[1, 1, 2, 5]);
        let fill = self.value_bytes_max;
        let (acts, guard) = acts_of(random, operation, keys.len(), (units, fill, time_ms));
        let mut parts = Vec::new();
        for (&key, act) in keys.iter().zip(acts) {
            let can_expire = self.plan.expiring[key];
            let expiry = expiry_of(random, act, can_expire, time_ms);
            parts.push(Part { key, act, expiry });
        }
        Some(oracle::Plan {
            units,
            expected: self.oracle.seen_version(keys[0]),
            parts,
            guard,
            ..oracle::Plan::new(operation, keys[0], level)
        })
    }

    /// Notes an APPLY that is sent while several of its keys are on disk alone.
    pub(super) fn count_cold(&self, plan: &oracle::Plan) {
        if plan.parts.len() < 2 {
            return;
        }
        let slot = self.plan.keys[plan.key].1;
        let owner = usize::from(Topology::new(self.layout.shards).owner(slot));
        let Some(node) = &self.node else { return };
        let store = node.cores[owner].shard.store();
        let home_of = Shard::<Pool>::home_of(self.hash_seed);
        let is_cold = |part: &&Part| {
            let key = &self.plan.keys[part.key].0;
            let KeyHome { slot, hash } = home_of(key);
            matches!(store.keys().find(slot, hash, key), Found::Cold(_))
        };
        if plan.parts.iter().filter(is_cold).count() > 1 {
            let mut coverage = self.coverage.borrow_mut();
            coverage.operation(Operation::ApplyCold);
        }
    }

    /// Notes how an APPLY was answered.
    pub(super) fn count_apply(&self, number: usize, status: Status) {
        let plan = &self.oracle.records[number].plan;
        if !plan.operation.is_apply() {
            return;
        }
        let mut coverage = self.coverage.borrow_mut();
        if status == Status::Ok && plan.parts.len() == 8 {
            coverage.operation(Operation::ApplyWide);
        }
        coverage.operation(match status {
            Status::Ok => Operation::ApplyDone,
            Status::GuardFailed => Operation::ApplyDenied,
            Status::NotFound => Operation::ApplyMissed,
            Status::VersionMismatch => Operation::ApplyOutrun,
            Status::TooLarge => Operation::ApplyRefused,
            _ => return,
        });
    }
}

/// What becomes of each key, and on what all of it depends.
fn acts_of(
    random: &mut Random,
    operation: Operation,
    keys: usize,
    (units, fill, time_ms): (u64, usize, u64),
) -> (Vec<Act>, Guard) {
    let stock = random.pick(&[0, 3, 40, 100_000]);
    let several = 2 + random.index(keys - 1);
    let time = || {
        let off_ms = random.pick(&[0, 1, 5, 50]);
        match random.chance(500_000) {
            true => time_ms + off_ms,
            false => time_ms.saturating_sub(off_ms),
        }
    };
    match operation {
        Operation::InTime => {
            let mut time = time;
            let at_ms = time().max(1);
            let guard = match random.chance(500_000) {
                true => Guard::Before(at_ms),
                false => Guard::Since(at_ms),
            };
            (vec![Act::Take(units), Act::Give(units)], guard)
        }
        Operation::Buy | Operation::BuyAndFail => {
            let hold = random.pick(&[
                Act::Put(stock),
                Act::Put(stock),
                Act::PutAbsent(stock),
                Act::Start(units),
                Act::Give(units),
            ]);
            let limit = random.pick(&[Act::Limit(3), Act::Limit(1 << 30), Act::Start(units)]);
            let guard = match operation {
                Operation::BuyAndFail => Guard::Never,
                _ => Guard::Nothing,
            };
            (vec![Act::Take(units), hold, limit], guard)
        }
        Operation::Pour => {
            let given: Vec<u64> = (1..several).map(|_| random.within(1, 3)).collect();
            let acts = given.iter().map(|&units| Act::Give(units));
            let first = Act::Take(given.iter().sum());
            (std::iter::once(first).chain(acts).collect(), Guard::Nothing)
        }
        Operation::Drain => {
            let most = random.within(1, DRAINED_MAX);
            (vec![Act::Drain(most), Act::Receive], Guard::Nothing)
        }
        Operation::Renew => {
            let acts = (0..several.min(4)).map(|_| {
                random.pick(&[
                    Act::Put(stock),
                    Act::Put(stock),
                    Act::Put(stock),
                    Act::Start(units),
                    Act::Start(units),
                    Act::Give(1),
                    Act::Delete,
                ])
            });
            (acts.collect(), Guard::Nothing)
        }
        Operation::OnVersion => {
            let second = random.pick(&[Act::Give(units), Act::Put(stock), Act::Start(units)]);
            (vec![Act::Take(units), second], Guard::Version)
        }
        Operation::Rated => {
            let rate = Rate {
                interval_us: random.pick(&[1_000, 100_000, 10_000_000]),
                burst: random.pick(&[1, 3]),
                quantity: 1,
            };
            (vec![Act::Rate(rate), Act::Give(units)], Guard::Nothing)
        }
        Operation::Sum => (vec![Act::Read; several], Guard::Nothing),
        Operation::ApplyTooMuch => (vec![Act::Fill(fill); keys], Guard::Nothing),
        other => panic!("{other:?} is no APPLY"),
    }
}

/// What becomes of the expiry of a key.
fn expiry_of(random: &mut Random, act: Act, can_expire: bool, time_ms: u64) -> Expiry {
    let is_put = matches!(act, Act::Put(_) | Act::PutAbsent(_));
    let can_be_given = !matches!(act, Act::Read | Act::Delete | Act::Fill(_));
    let lifetime_ms = random.pick(&[1, 5, 20, 100, 500, 100_000]);
    let given = match random.below(4) {
        0 => Expiry::At(time_ms.saturating_sub(20).max(1) + lifetime_ms),
        1 => Expiry::Never,
        _ => Expiry::In(lifetime_ms),
    };
    match can_expire && can_be_given && random.chance(400_000) {
        true => given,
        false if is_put => Expiry::Never,
        false => Expiry::Keep,
    }
}
