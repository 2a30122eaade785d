//! How a primary is cut off: drawn from the seed, the same at each level.

use std::time::Duration;

use crate::failover::nodes::Nodes;
use crate::failover::port_of;
use crate::network::{NODES, Traffic};
use crate::options::Rules;
use crate::process;
use crate::random::Random;

/// Sales a second that are drawn.
const RATES: [u64; 5] = [100, 200, 500, 1_000, 2_000];

/// What the primary and its members do not get from each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Nothing gets through.
    Both,
    /// The primary is not heard.
    Out,
    /// The primary hears nobody.
    In,
    /// Nothing gets through to one member, and later to the other one.
    Apart,
}

impl Way {
    const ALL: [Way; 4] = [Way::Both, Way::Out, Way::In, Way::Apart];

    pub fn name(self) -> &'static str {
        match self {
            Way::Both => "both",
            Way::Out => "out",
            Way::In => "in",
            Way::Apart => "apart",
        }
    }

    /// The way of this name.
    ///
    /// # Errors
    /// One line with the names that there are.
    pub fn named(name: &str) -> Result<Way, String> {
        let found = Way::ALL.into_iter().find(|it| it.name() == name);
        found.ok_or_else(|| {
            let names = Way::ALL.map(Way::name).join(", ");
            format!("{name:?} is no way of a cut; these are: {names}")
        })
    }
}

/// One cut under one sale.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    pub way: Way,
    /// Sales a second.
    pub rate: u64,
    /// From the begin of the sale to the cut.
    pub after: Duration,
    /// From the cut of the first member to the one of the other.
    pub between: Duration,
    /// From the first cut until all is as it was.
    pub lasts: Duration,
    /// The primary does not reach etcd either, from the cut of its last member on: one that was cut
    /// before is removed by then.
    pub is_from_home: bool,
}

impl Cut {
    /// Each choice is drawn, also one that is given: the rest of a round is the same then.
    pub fn draw(rules: Rules, way: Option<Way>, rate: Option<u64>, random: &mut Random) -> Cut {
        let some = |count: usize, random: &mut Random| {
            usize::try_from(random.below(count as u64)).expect("few")
        };
        let drawn_way = Way::ALL[some(Way::ALL.len(), random)];
        let drawn_rate = RATES[some(RATES.len(), random)];
        let way = way.unwrap_or(drawn_way);
        let lease = rules.lease();
        let permille = random.below(1_000) as f64 / 1_000.0;
        let between = match way {
            Way::Apart => lease.mul_f64(0.25 + 1.25 * permille),
            _ => Duration::ZERO,
        };
        let length = random.below(1_000) as f64 / 1_000.0;
        // A takeover comes behind 5 / 4 of a lease. Some cuts heal before.
        let lasts = match random.once_in(6) {
            true => lease.mul_f64(0.1 + 1.1 * length),
            false => lease.mul_f64(1.5 + 0.5 * length),
        };
        Cut {
            way,
            rate: rate.unwrap_or(drawn_rate),
            after: Duration::from_millis(100 + random.below(300)),
            between,
            lasts: between + lasts,
            is_from_home: random.once_in(4),
        }
    }

    /// Units of a sale that this cut strikes: what is sold in 5 / 4 of a lease.
    pub fn stock(&self, rules: Rules) -> u64 {
        self.rate * u64::try_from(rules.lease().as_millis()).expect("short") * 5 / 4 / 1_000
    }

    /// Cuts the primary off, lets it last, and undoes it.
    ///
    /// # Errors
    /// The system refuses, or somebody wants this process to end.
    pub fn strike(
        &self,
        nodes: &Nodes<'_>,
        primary: usize,
        random: &mut Random,
    ) -> Result<(), String> {
        let struck = self.cut(nodes, primary, random);
        let healed = nodes.network.heal();
        struck.and(healed)
    }

    fn cut(&self, nodes: &Nodes<'_>, primary: usize, random: &mut Random) -> Result<(), String> {
        let network = &nodes.network;
        let mut members: Vec<usize> = (0..NODES).filter(|&node| node != primary).collect();
        if random.once_in(2) {
            members.reverse();
        }
        for (number, &member) in members.iter().enumerate() {
            if number > 0 {
                process::pass(self.between)?;
            }
            if self.way != Way::In {
                network.cut_direct(primary, member, Traffic::Links)?;
            }
            if self.way != Way::Out {
                network.cut_direct(member, primary, Traffic::Links)?;
            }
            if self.is_from_home && number + 1 == members.len() {
                network.cut_port(primary, port_of(primary), false)?;
            }
        }
        process::pass(self.lasts - self.between)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_given_rate_leaves_the_other_choices_of_a_seed_as_they_were() {
        for round in 0..50 {
            let cut = |rate| {
                let mut random = Random::of_round(7, round);
                let cut = Cut::draw(Rules::Starved, None, rate, &mut random);
                (cut.way, cut.after, cut.between, cut.lasts, random.next())
            };
            assert_eq!(cut(None), cut(Some(500)), "seed 7, round {round}");
        }
    }

    #[test]
    fn a_way_is_found_by_its_name_and_another_word_is_refused_with_the_names_there_are() {
        for way in Way::ALL {
            assert_eq!(Way::named(way.name()), Ok(way));
        }
        let message = Way::named("up").expect_err("there is none");
        assert!(message.ends_with("both, out, in, apart"), "{message}");
    }
}
