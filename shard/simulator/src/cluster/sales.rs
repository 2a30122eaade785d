//! Sales in the traffic of a cluster, whose nodes have wall clocks of their own.

use penstock_net::level::AckLevel;
use penstock_net::reply::ReplyItem;
use penstock_net::request::{BatchRequest, Token};

use crate::random::Random;
use crate::sales::{Excuses, Moment, Sales};

use super::client::What;
use super::{NODES, Step, World};

/// How long starts keep tokens, in milliseconds: also so short that they are gone within a run.
const HORIZONS_MS: &[u64] = &[300, 1_000, 5_000, 60_000, 600_000, 3_600_000];

/// How far the wall clock of each node is ahead of the slowest, in milliseconds: not at all in runs
/// without sales.
pub(super) fn walls_ms(sales: Option<&Sales>, random: &mut Random) -> [u64; NODES] {
    if sales.is_none() {
        return [0; NODES];
    }
    let far_ms = random.pick(&[0, 0, 500, 60_000, 240_000, 900_000]);
    [(); NODES].map(|()| random.below(far_ms + 1))
}

impl World {
    /// How long the next start of a node keeps tokens.
    pub(super) fn choose_horizon(&mut self, node: usize) {
        if self.sales.is_some() && (self.nodes[node].run == 0 || self.tokens.chance(500_000)) {
            self.nodes[node].token_horizon_ms = self.tokens.pick(HORIZONS_MS);
        }
    }

    /// The latest time of a node: of its wall clock, or of one of its shards.
    pub(super) fn time_ms_of(&self, node: usize) -> u64 {
        let cores = self.nodes[node].cores.iter().flatten();
        let times = cores.map(|core| core.shard.store().data().time_ms());
        times.fold(self.now_of(node).unix_ms, u64::max)
    }

    /// Sends the next try at a till.
    pub(super) fn send_sale(&mut self, client: usize, till: usize, level: AckLevel) {
        let node = self.clients[client].node;
        let least_ms = (0..NODES).map(|node| self.now_of(node).unix_ms).min();
        let any = self.tokens.index(NODES);
        let now = Moment {
            us: self.now_us,
            time_ms: self.now_of(node).unix_ms,
            least_ms: least_ms.expect("there are nodes"),
            wall_ms: self.now_of(any).unix_ms,
        };
        let request = self.clients[client].request + 1;
        let sales = self.sales.as_mut().expect("the caller looked");
        let number = sales.next(till, level, now);
        let level = sales.level(number);
        let partition = u16::try_from(sales.partition(till)).expect("256 partitions");
        let mut out = Vec::new();
        let mut batch = BatchRequest::begin(&mut out, request, level, 0, 1);
        sales.write(number, &mut batch, &mut out);
        batch.finish(&mut out);
        self.issued += 1;
        let home = (Vec::new(), partition);
        self.send(client, out, home, level, What::Try(number));
    }

    pub(super) fn is_change(&self, number: usize, item: &ReplyItem<'_>) -> bool {
        let sales = self.sales.as_ref().expect("it has tries");
        sales.is_change(number, item)
    }

    pub(super) fn answer_sale(&mut self, number: usize, item: &ReplyItem<'_>) -> Step {
        let excuses = Excuses {
            may_be_full: true,
            may_fail_to_read: true,
            is_cluster: true,
            must_execute: false,
        };
        let sales = self.sales.as_mut().expect("it has tries");
        match self.is_incomplete_accepted {
            // Half of a scan may have a change without its token.
            true => Ok(()),
            false => sales.answer(number, item, self.now_us, excuses),
        }
    }

    pub(super) fn lose_sale(&mut self, number: usize) {
        let sales = self.sales.as_mut().expect("it has tries");
        sales.lost(number, self.now_us);
    }

    /// Holds the tokens that are there for certain against all nodes, which are the same.
    pub(super) fn judge_tokens(&self) -> Step {
        let tokens: Vec<(u16, Token)> = self.sales.iter().flat_map(Sales::certain).collect();
        let mut nodes = self.nodes.iter();
        nodes.try_for_each(|node| node.judge_tokens(&tokens))
    }

    /// The keys of sales, with their partitions.
    pub(super) fn sale_keys(&self) -> Vec<(Vec<u8>, u16)> {
        let keys = self.sales.iter().flat_map(|sales| sales.keys());
        let partition = |partition| u16::try_from(partition).expect("256 partitions");
        keys.map(|(key, of)| (key, partition(of))).collect()
    }

    /// There may be two pasts of a partition.
    pub(super) fn part(&mut self, partition: u16) {
        self.oracle.parted(partition);
        self.keep_sales(Some(partition), Some(AckLevel::All));
    }

    /// What was acknowledged below this level may be gone from a partition, or from all.
    pub(super) fn keep_sales(&mut self, partition: Option<u16>, level: Option<AckLevel>) {
        let all = self.partitions.clone();
        if let Some(sales) = &mut self.sales {
            for of in partition.map_or(all, |partition| vec![partition]) {
                sales.keeps_from(usize::from(of), level);
            }
        }
        let all = self.partitions.clone();
        if let Some(holds) = &mut self.holds {
            for of in partition.map_or(all, |partition| vec![partition]) {
                holds.keeps_from(usize::from(of), level);
            }
        }
        let all = self.partitions.clone();
        if let Some(rushes) = &mut self.rushes {
            for of in partition.map_or(all, |partition| vec![partition]) {
                rushes.keeps_from(of, level);
            }
        }
    }
}
