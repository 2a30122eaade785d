//! What the buyers of a sale want and how they behave, from a seed. Pure.

use std::time::Duration;

use crate::workload::{Random, Zipf};

/// Carts of one buyer, at most.
pub(crate) const CARTS_MAX: u64 = 3;
/// A hold that nobody pays or gives back during the sale.
pub(crate) const OPEN_HOLD_MS: u64 = 60 * 60 * 1000;

/// When buyers come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// As soon as a connection is free: a closed loop.
    Closed,
    /// So many a second, whether or not the server keeps up.
    Rate(f64),
    /// More and more of them, all within this time.
    Ramp(Duration),
}

/// The terms of a sale.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Decides what each buyer does.
    pub seed: u64,
    /// Articles.
    pub skus: u32,
    /// Units of all articles together.
    pub units: u64,
    /// Buyers; each wants one article.
    pub buyers: u32,
    /// Units that one buyer may have, held or paid.
    pub limit: u32,
    /// Exponent of the law by which articles are wanted; 0 wants all alike.
    pub zipf: f64,
    /// Of a hundred carts, how many are left alone: their hold expires.
    pub abandoned_percent: u32,
    /// How many are given back.
    pub cancelled_percent: u32,
    /// How many are neither paid nor given back before the end, and expire long after it.
    pub open_percent: u32,
    /// How many requests are sent twice at once, with one token.
    pub doubled_percent: u32,
    /// How many requests lose their connection before the answer, and are asked again.
    pub cut_percent: u32,
    /// Of a hundred buyers, how many go on buying beyond the limit.
    pub greedy_percent: u32,
    /// How long a hold lasts.
    pub hold: Duration,
    /// How long a buyer thinks between hold and payment, at most.
    pub think_max: Duration,
    /// Whether nobody pays or gives back before all buyers have come.
    pub pays_last: bool,
    /// When buyers come.
    pub arrivals: Arrivals,
}

/// What becomes of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Pay,
    Cancel,
    Abandon,
    KeepOpen,
}

/// What a buyer does with one cart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CartPlan {
    pub(crate) sku: u32,
    pub(crate) units: u32,
    pub(crate) end: End,
    pub(crate) think: Duration,
    /// Of the purchase: it is sent twice; its connection is cut.
    pub(crate) is_doubled: bool,
    pub(crate) is_cut: bool,
    /// Of the payment or the cancellation.
    pub(crate) is_end_doubled: bool,
    pub(crate) is_end_cut: bool,
    /// Whether the buyer takes another cart behind this one.
    pub(crate) has_next: bool,
}

impl Plan {
    /// The law of articles.
    pub(crate) fn law(&self) -> Zipf {
        Zipf::new(self.skus, self.zipf)
    }

    /// Units of one article before the sale.
    pub(crate) fn units_of(&self, sku: u32) -> u64 {
        let skus = u64::from(self.skus);
        self.units / skus + u64::from(u64::from(sku) < self.units % skus)
    }

    /// What the buyer of a cart does with it.
    pub(crate) fn cart(&self, cart: u64, law: &Zipf) -> CartPlan {
        let buyer = cart / CARTS_MAX;
        let mut random = Random(mixed(self.seed, buyer));
        let sku = u32::try_from(law.draw(&mut random)).expect("below --skus");
        let is_greedy = percent(&mut random, self.greedy_percent);
        let mut random = Random(mixed(self.seed ^ 0xCA27, cart));
        let units = match is_greedy {
            true => self.limit,
            false => 1 + random.below(self.limit.min(2)),
        };
        let end = random.below(100);
        let (abandoned, cancelled) = (self.abandoned_percent, self.cancelled_percent);
        let end = match end {
            _ if end < abandoned => End::Abandon,
            _ if end < abandoned + cancelled => End::Cancel,
            _ if end < abandoned + cancelled + self.open_percent => End::KeepOpen,
            _ => End::Pay,
        };
        let think_us = u32::try_from(self.think_max.as_micros()).unwrap_or(u32::MAX - 1);
        CartPlan {
            sku,
            units,
            end,
            think: Duration::from_micros(random.below(think_us + 1).into()),
            is_doubled: percent(&mut random, self.doubled_percent),
            is_cut: percent(&mut random, self.cut_percent),
            is_end_doubled: percent(&mut random, self.doubled_percent),
            is_end_cut: percent(&mut random, self.cut_percent),
            has_next: is_greedy && cart % CARTS_MAX + 1 < CARTS_MAX,
        }
    }

    /// When a buyer comes, since the sale was opened.
    pub(crate) fn arrival(&self, buyer: u32) -> Duration {
        match self.arrivals {
            Arrivals::Closed => Duration::ZERO,
            Arrivals::Rate(rate) => Duration::from_secs_f64(f64::from(buyer) / rate),
            Arrivals::Ramp(all) => {
                all.mul_f64((f64::from(buyer) / f64::from(self.buyers.max(1))).sqrt())
            }
        }
    }
}

fn percent(random: &mut Random, of_hundred: u32) -> bool {
    random.below(100) < of_hundred
}

fn mixed(seed: u64, number: u64) -> u64 {
    Random(seed ^ number.wrapping_mul(0xD6E8_FEB8_6659_FD93)).next()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn plan() -> Plan {
        Plan {
            seed: 1,
            skus: 3,
            units: 1_000,
            buyers: 10_000,
            limit: 2,
            zipf: 1.0,
            abandoned_percent: 20,
            cancelled_percent: 5,
            open_percent: 1,
            doubled_percent: 10,
            cut_percent: 5,
            greedy_percent: 5,
            hold: Duration::from_secs(3),
            think_max: Duration::from_millis(300),
            pays_last: false,
            arrivals: Arrivals::Ramp(Duration::from_secs(20)),
        }
    }

    #[test]
    fn a_seed_decides_what_buyers_do_and_shares_are_what_the_plan_says() {
        let plan = plan();
        let law = plan.law();
        let carts: Vec<CartPlan> = (0..30_000).map(|it| plan.cart(it, &law)).collect();
        let again: Vec<CartPlan> = (0..30_000).map(|it| plan.cart(it, &law)).collect();
        assert_eq!(carts, again);
        let other = Plan {
            seed: 2,
            ..plan.clone()
        };
        assert_ne!(
            carts[..100],
            std::array::from_fn::<_, 100, _>(|it| other.cart(it as u64, &law))
        );
        let share = |of: &dyn Fn(&CartPlan) -> bool| {
            carts.iter().filter(|it| of(it)).count() * 100 / carts.len()
        };
        assert!((18..=22).contains(&share(&|it| it.end == End::Abandon)));
        assert!((4..=6).contains(&share(&|it| it.is_cut)));
        assert!((8..=12).contains(&share(&|it| it.is_end_doubled)));
        assert!(
            carts
                .iter()
                .all(|it| (1..=2).contains(&it.units) && it.sku < 3)
        );
        let wanted = |sku| carts.iter().filter(|it| it.sku == sku).count();
        assert!(wanted(0) > wanted(1) && wanted(1) > wanted(2));
        // The carts of one buyer are of one article.
        assert!(
            carts
                .chunks(3)
                .all(|of_one| of_one.iter().all(|it| it.sku == of_one[0].sku))
        );
    }

    #[test]
    fn all_units_are_given_to_articles_and_buyers_come_within_the_ramp() {
        let plan = plan();
        assert_eq!((0..3).map(|sku| plan.units_of(sku)).sum::<u64>(), 1_000);
        let times: Vec<Duration> = (0..10_000).map(|it| plan.arrival(it)).collect();
        assert!(times.is_sorted() && times[9_999] < Duration::from_secs(20));
        assert!(
            times[2_500] == Duration::from_secs(10),
            "{:?}",
            times[2_500]
        );
    }
}
