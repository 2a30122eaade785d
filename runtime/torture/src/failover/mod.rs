//! Three nodes and three members of etcd, with faults drawn from the seed, and nobody who helps.
//!
//! A round is a cluster of its own. Buyers buy at levels replica and disk, three others ask one
//! node alone each. After each fault every partition has a writer and two members again, by itself.
//! In the end what the nodes show is held against each answer that anybody got.

mod etcd;
mod faults;
mod figures;
mod judge;
pub mod nodes;
mod plan;
mod trade;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use penstock_net::level::AckLevel;
use penstock_net::placement::partition_of;
use penstock_net::slot::slot_of;

use crate::ledger::check_keys;
use crate::network::{self, NODES};
use crate::options::{Rules, Setting};
use crate::random::Random;
use crate::sales::Account;
use crate::{Done, Kind, Turn, process};
pub use etcd::port_of;
pub use faults::Fault;
use faults::Longest;
use figures::{Figures, table};
use judge::judge;
use nodes::Nodes;
pub use trade::BUYERS;
use trade::{STOCKS, Step, Trade, stock};

/// The stock of which times are measured: the hot one of level replica.
const HOT: usize = 0;
/// How long buyers may take for the purchases before a fault.
const WORK_MAX: Duration = Duration::from_secs(60);
/// Purchases of the hot stock before a fault.
const WORK: usize = 100;

/// The faults of a round.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    pub count: u64,
    /// All are of this kind; `None`: each is drawn.
    pub only: Option<Fault>,
}

pub struct Failover {
    folder: PathBuf,
    settings: Vec<Setting>,
    rules: Rules,
    has_tls: bool,
    faults: Faults,
    longest: Longest,
    all: Vec<Figures>,
    lost: u64,
    purchases: u64,
}

impl Failover {
    /// Needs namespaces and etcd.
    ///
    /// # Errors
    /// What this machine lacks.
    pub fn new(
        folder: PathBuf,
        (rules, has_tls): (Rules, bool),
        faults: Faults,
        (stop, home): (Duration, Duration),
        settings: &[Setting],
    ) -> Result<Failover, String> {
        if !process::has_program("etcd") {
            return Err("no etcd: install etcd-server".into());
        }
        network::make_namespaces()?;
        Ok(Failover {
            folder,
            settings: settings.to_vec(),
            rules,
            has_tls,
            faults,
            longest: Longest { stop, home },
            all: Vec::new(),
            lost: 0,
            purchases: 0,
        })
    }

    /// One fault under the trade, and what it cost.
    fn suffer(
        &self,
        round: u64,
        nodes: &mut Nodes<'_>,
        trade: &Trade,
        random: &mut Random,
    ) -> Result<Figures, String> {
        let fault = self.faults.only.unwrap_or_else(|| Fault::draw(random));
        let named = |text: String| format!("{}: {text}", fault.name());
        self.work(nodes, trade).map_err(named)?;
        let before = nodes.plan().map_err(named)?;
        let hot = u64::from(partition_of(slot_of(&stock(HOT))));
        let primary = before
            .primary_of(hot)
            .ok_or("nobody writes the hot stock")?
            - 1;
        let from = trade.now();
        println!(
            "  {:28} node {} writes, after {:.1} s",
            fault.name(),
            primary + 1,
            from.as_secs_f64()
        );
        let struck = fault.strike(nodes, primary, self.longest, random);
        let healed = nodes.network.heal();
        struck.and(healed).map_err(named)?;
        let undone = trade.now();
        let whole = nodes.whole().map_err(named)?;
        let until = trade.now();
        // A writer that has no lease yet serves nobody.
        let is_served = || purchases_of(&trade.seen().steps, HOT).any(|it| it.asked > until);
        let is_served = process::wait(WORK_MAX, || {
            std::thread::sleep(Duration::from_millis(5));
            is_served()
        })?;
        if !is_served {
            return Err(named(format!("nobody is served: {}", nodes.said())));
        }
        let until = trade.now();
        let after = nodes.plan().map_err(named)?;
        let seen = trade.seen();
        let failed = |is_unknown| {
            let failed = seen.failed.iter();
            let of = failed.filter(|it| it.is_unknown == is_unknown && it.at >= from);
            of.count() as u64
        };
        let lease = self.rules.lease();
        let figures = Figures {
            round,
            kind: fault.name(),
            is_kill: fault.is_kill(),
            rules: self.rules.name(),
            lasts: undone - from,
            first_write: first_write(&seen.steps, from),
            gap: longest_gap(&seen.steps, from, until),
            failed: failed(false),
            unknown: failed(true),
            whole: until - undone,
            scans: whole.scans,
            rewritten: whole.rewritten,
            ratio: ratio(&seen.steps, from, (2 * lease).min(until - from)),
            changes: after.revision - before.revision,
            takeovers: u64::from(before.primary_of(hot) != after.primary_of(hot)),
        };
        drop(seen);
        println!("  {}", figures.json());
        if fault.leaves_nodes_well() && figures.failed + figures.unknown > 0 {
            return Err(named(format!(
                "{} operations failed and {} are unknown, with all nodes well\n{}",
                figures.failed,
                figures.unknown,
                nodes.said()
            )));
        }
        Ok(figures)
    }

    /// Lets the buyers buy.
    fn work(&self, nodes: &mut Nodes<'_>, trade: &Trade) -> Result<(), String> {
        let bought = || purchases_of(&trade.seen().steps, HOT).count();
        let before = bought();
        let is_done = process::wait(WORK_MAX, || {
            std::thread::sleep(Duration::from_millis(20));
            bought() >= before + WORK
        })?;
        // So long, too, that a rate can be measured.
        process::pass(2 * self.rules.lease())?;
        match is_done {
            true => Ok(()),
            false => Err(format!(
                "{WORK} purchases took more than {WORK_MAX:?}\n{}",
                nodes.said()
            )),
        }
    }

    /// Holds what each node shows against all that was answered. Tells how much of what was
    /// acknowledged is in lostfound.
    fn check(
        nodes: &mut Nodes<'_>,
        trade: &Trade,
        accounts: &BTreeMap<AckLevel, Account>,
        random: &mut Random,
    ) -> Result<u64, String> {
        let first = usize::try_from(random.below(NODES as u64)).expect("few");
        let shown = nodes.shown_by(first)?;
        let lost = nodes.lostfound()?;
        let mut acked_and_lost = 0;
        for (&level, account) in accounts {
            acked_and_lost += check_keys(level, account, &shown, &lost)
                .map_err(|text| format!("at level {}: {text}", level.name()))?;
        }
        for number in 0..STOCKS {
            let verdict = judge(number, &trade.seen().steps, &shown, &lost)?;
            acked_and_lost += verdict.lost;
        }
        for more in 1..NODES {
            let node = (first + more) % NODES;
            let here = nodes.shown_by(node)?;
            if here != shown {
                let mut all = shown.iter();
                let differs = all.find(|(key, value)| here.get(*key) != Some(value));
                let more = here.keys().find(|key| !shown.contains_key(*key));
                return Err(format!(
                    "node {} shows something else than node {}: {differs:?}, or more: {more:?}",
                    node + 1,
                    first + 1
                ));
            }
        }
        Ok(acked_and_lost)
    }
}

impl Kind for Failover {
    fn round(&mut self, turn: Turn<'_>) -> Result<Done, String> {
        let Turn {
            round,
            which,
            random,
            binary,
        } = turn;
        let folder = self.folder.join(format!("failover-{round}"));
        let how = (self.settings[which], self.rules, self.has_tls);
        let mut nodes = Nodes::new(binary, folder.clone(), how, random.once_in(2))?;
        let trade = Trade::new(nodes.tls.clone());
        let addresses = nodes.addresses();
        trade.open(&addresses)?;
        let (trade, addresses) = (&trade, &addresses[..]);
        let mut figures = Vec::new();
        let accounts = std::thread::scope(|scope| {
            let buyers: Vec<_> = (0..BUYERS)
                .map(|buyer| {
                    let random = random.fork();
                    scope.spawn(move || trade.buy(addresses, buyer, random))
                })
                .collect();
            let probes: Vec<_> = (0..NODES)
                .map(|node| {
                    let random = random.fork();
                    scope.spawn(move || trade.probe(addresses, node, random))
                })
                .collect();
            let mut done = Ok(());
            for _ in 0..self.faults.count {
                match self.suffer(round, &mut nodes, trade, random) {
                    Ok(one) => figures.push(one),
                    Err(text) => {
                        done = Err(text);
                        break;
                    }
                }
            }
            trade.end();
            let mut wrong = Ok(());
            for probe in probes {
                let probed = probe.join().expect("it does not panic");
                wrong = wrong.and(probed.map_err(|text| format!("who asks one node: {text}")));
            }
            let mut accounts: BTreeMap<AckLevel, Account> = BTreeMap::new();
            for buyer in buyers {
                match buyer.join().expect("a buyer does not panic") {
                    Ok((level, account)) => accounts.entry(level).or_default().add(account),
                    Err(text) => wrong = wrong.and(Err(format!("a buyer: {text}"))),
                }
            }
            // What a buyer saw is the cause of what came of it.
            wrong.and(done).map(|()| accounts)
        })?;
        let kills = figures.iter().filter(|it| it.is_kill).count();
        let kinds: Vec<&str> = figures.iter().map(|it| it.kind).collect();
        let kinds = kinds.join(", ");
        self.all.extend(figures);
        let lost = Failover::check(&mut nodes, trade, &accounts, random)
            .map_err(|text| format!("{kinds}: {text}\n{}", nodes.said()))?;
        drop(nodes);
        let seen = trade.seen();
        let bought = seen.steps.iter().filter(|it| it.left.is_none()).count() as u64;
        self.lost += lost;
        self.purchases += bought;
        fs::remove_dir_all(&folder).map_err(|error| error.to_string())?;
        Ok(Done {
            text: format!("{kinds}, {lost} in lostfound"),
            kills: kills as u64,
            acked: bought + accounts.values().map(Account::acked).sum::<u64>(),
            unknown: seen.failed.iter().filter(|it| it.is_unknown).count() as u64,
        })
    }

    fn totals(&self) -> String {
        let replaced: u64 = self.all.iter().map(|it| it.takeovers).sum();
        format!(
            "{} faults, {replaced} replacements of the hot stock's writer, {} purchases, {} \
             acknowledged at level disk and kept in lostfound",
            self.all.len(),
            self.purchases,
            self.lost
        )
    }

    fn table(&self) -> Option<String> {
        Some(table(&self.all))
    }
}

fn purchases_of(steps: &[Step], number: usize) -> impl Iterator<Item = &Step> {
    let steps = steps.iter();
    steps.filter(move |it| it.stock == number && it.left.is_none())
}

/// From a moment until a write of the hot stock was acknowledged in a later epoch than any before.
fn first_write(steps: &[Step], from: Duration) -> Option<Duration> {
    let before = purchases_of(steps, HOT).filter(|it| it.answered < from);
    let epoch = before.map(|it| it.version.epoch).max()?;
    purchases_of(steps, HOT)
        .filter(|it| it.answered >= from && it.version.epoch > epoch)
        .map(|it| it.answered - from)
        .min()
}

/// The longest time between two acknowledged purchases of the hot stock.
fn longest_gap(steps: &[Step], from: Duration, until: Duration) -> Duration {
    let mut times: Vec<Duration> = purchases_of(steps, HOT)
        .map(|it| it.answered)
        .filter(|at| (from..=until).contains(at))
        .chain([from, until])
        .collect();
    times.sort_unstable();
    let gaps = times.windows(2).map(|pair| pair[1] - pair[0]);
    gaps.max().unwrap_or_default()
}

/// Purchases at level replica in this time behind a moment, as a part of those before it.
fn ratio(steps: &[Step], from: Duration, time: Duration) -> Option<f64> {
    let in_level = |it: &&Step| it.left.is_none() && trade::level_of(it.stock) == AckLevel::Replica;
    let within = |begin: Duration, end: Duration| {
        let steps = steps.iter().filter(in_level);
        let within = steps.filter(|it| (begin..end).contains(&it.answered));
        within.count() as f64
    };
    let before = within(from.checked_sub(time)?, from);
    (before > 0.0).then(|| within(from, from + time) / before)
}
