//! Sales in the traffic of a node.

use penstock_net::reply::ReplyItem;
use penstock_net::request::BatchRequest;
use penstock_shard::{Shard, Topology};

use crate::border::judge_border;
use crate::disk::Pool;
use crate::sales::{Excuses, Moment, Sales};

use super::{Asked, Core, Phase, Step, World};

/// How long starts keep tokens, in milliseconds: also so short that they are gone within a run.
const HORIZONS_MS: &[u64] = &[20, 1_000, 5_000, 60_000, 600_000, 3_600_000];

impl World {
    /// How long the next start keeps tokens.
    pub(super) fn choose_horizon(&mut self) {
        if self.sales.is_some() && (self.run == 0 || self.tokens.chance(500_000)) {
            self.token_horizon_ms = self.tokens.pick(HORIZONS_MS);
        }
    }

    /// Now, at the shard that owns a slot.
    pub(super) fn moment(&self, slot: u16) -> Moment {
        let owner = usize::from(Topology::new(self.layout.shards).owner(slot));
        let time_ms = self.node.as_ref().map_or(self.now().unix_ms, |node| {
            node.cores[owner].shard.store().data().time_ms()
        });
        Moment {
            us: self.now_us,
            time_ms,
            least_ms: time_ms,
            wall_ms: self.now().unix_ms,
        }
    }

    /// Sends a few tries.
    pub(super) fn send_sales(&mut self, link: usize) {
        let level = self.tokens.pick(self.plan.levels);
        let count = 1 + self.tokens.index(self.plan.batch_max.min(4));
        let mut tries = Vec::new();
        for _ in 0..count {
            let sales = self.sales.as_ref().expect("the caller looked");
            let till = self.tokens.index(sales.tills());
            let now = self.moment(sales.slot(till));
            let sales = self.sales.as_mut().expect("the caller looked");
            tries.push(sales.next(till, level, now));
        }
        self.send_tries(link, tries);
    }

    /// A batch has one level: the highest that one of its tries asks for.
    fn send_tries(&mut self, link: usize, tries: Vec<usize>) {
        let request = self.next_request(link);
        let sales = self.sales.as_ref().expect("there are tries");
        let levels = tries.iter().map(|&number| sales.level(number));
        let level = levels.max().expect("some");
        let deadline_ms = match self.phase {
            Phase::Traffic if self.tokens.chance(self.plan.deadlines) => 2,
            _ => 0,
        };
        let mut out = Vec::new();
        let mut batch = BatchRequest::begin(&mut out, request, level, deadline_ms, tries.len());
        for &number in &tries {
            sales.write(number, &mut batch, &mut out);
        }
        batch.finish(&mut out);
        let asked = tries.into_iter().map(|number| Some(Asked::Try(number)));
        let state = &mut self.links[link];
        state.alone = None;
        state.outstanding.insert(request, asked.collect());
        self.send_to_server(link, out);
    }

    pub(super) fn answer_sale(&mut self, number: usize, item: &ReplyItem<'_>) -> Step {
        let excuses = Excuses {
            may_be_full: self.oracle.may_be_full,
            may_fail_to_read: self.oracle.may_fail_to_read,
            is_cluster: false,
            must_execute: self.oracle.must_execute,
        };
        let sales = self.sales.as_mut().expect("it has tries");
        sales.answer(number, item, self.now_us, excuses)
    }

    pub(super) fn lose_sale(&mut self, number: usize) {
        let sales = self.sales.as_mut().expect("it has tries");
        sales.lost(number, self.now_us);
    }

    /// Holds the tokens that are there for certain against the stores of a start or of a node.
    pub(super) fn judge_tokens(&self, cores: &[Core]) -> Step {
        let topology = Topology::new(self.layout.shards);
        let disk = self.disk.borrow();
        let home_of = Shard::<Pool>::home_of(self.hash_seed);
        for (shard, core) in cores.iter().enumerate() {
            let tokens = self.sales.iter().flat_map(Sales::certain);
            let owned = tokens.filter(|&(slot, _)| usize::from(topology.owner(slot)) == shard);
            judge_border((core.shard.store(), &disk), &home_of, owned)?;
        }
        Ok(())
    }

    /// Whether the last look has not made all of its tries.
    pub(super) fn has_sales_left(&self) -> bool {
        let sales = self.sales.as_ref();
        sales.is_some_and(|sales| self.last_reads.sales < sales.last_reads())
    }

    /// Sends the next tries of the last look, so few that no queue may be full.
    pub(super) fn read_sales(&mut self) {
        let Some(mut sales) = self.sales.take() else {
            return;
        };
        let mut tries = Vec::new();
        while tries.len() < 4 && self.last_reads.sales < sales.last_reads() {
            tries.push(sales.read_last(self.last_reads.sales, |slot| self.moment(slot)));
            self.last_reads.sales += 1;
        }
        self.sales = Some(sales);
        let link = self.clients[0].link.expect("all are connected");
        self.send_tries(link, tries);
    }
}
