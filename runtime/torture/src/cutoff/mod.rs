//! A primary that is cut off from its members in the middle of a sale, while buyers still reach it.
//!
//! A round is a cluster of its own, a sale of a few seconds, and one cut. A member takes over when
//! the lease is over, and sells what is left by its account. So what the old primary alone had sold
//! is sold again. At level disk the answer of a run is how many units that are. At the levels above
//! it is none: each unit that was acknowledged twice, or taken back, fails the round.

mod books;
mod buyers;
mod cut;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use penstock_net::level::AckLevel;
use penstock_net::placement::partition_of;
use penstock_net::request::Version;
use penstock_net::slot::slot_of;
use serde_json::json;

use crate::failover::nodes::Nodes;
use crate::ledger::Shown;
use crate::network::{self, NODES};
use crate::options::{Rules, Setting};
use crate::random::Random;
use crate::{Done, Kind, Turn, process};
use books::{Audit, Books, STOCK};
pub use buyers::CASHIERS;
use buyers::Sale;
use cut::Cut;
pub use cut::Way;

/// How long a sale may take behind its cut.
const SALE_MAX: Duration = Duration::from_secs(60);
/// In one round of so many all nodes come back, and show the same.
const COMES_BACK_ONCE_IN: u64 = 16;

/// What is sold how.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    pub level: AckLevel,
    /// Sales a second; `None`: drawn.
    pub rate: Option<u64>,
    /// The only way of all cuts.
    pub way: Option<Way>,
    /// An answer that was not final fails the round at each level.
    pub is_exact: bool,
}

/// What one round has shown.
struct Figures {
    cut: Cut,
    units: u64,
    is_replaced: bool,
    audit: Audit,
}

pub struct Cutoff {
    folder: PathBuf,
    settings: Vec<Setting>,
    rules: Rules,
    has_tls: bool,
    terms: Terms,
    all: Vec<Figures>,
}

impl Cutoff {
    /// Needs namespaces and etcd.
    ///
    /// # Errors
    /// What this machine lacks.
    pub fn new(
        folder: PathBuf,
        (rules, has_tls): (Rules, bool),
        terms: Terms,
        settings: &[Setting],
    ) -> Result<Cutoff, String> {
        if !process::has_program("etcd") {
            return Err("no etcd: install etcd-server".into());
        }
        network::make_namespaces()?;
        Ok(Cutoff {
            folder,
            settings: settings.to_vec(),
            rules,
            has_tls,
            terms,
            all: Vec::new(),
        })
    }

    /// The sale and the cut: what buyers were told, and who wrote in the beginning.
    fn sell(
        &self,
        nodes: &mut Nodes<'_>,
        (cut, units): (&Cut, u64),
        random: &mut Random,
    ) -> Result<(Books, usize, Version), String> {
        let partition = u64::from(partition_of(slot_of(STOCK)));
        let primary = nodes.plan()?.primary_of(partition);
        let primary = primary.ok_or("nobody writes the stock")? - 1;
        let sale = Sale::new(self.terms.level, nodes.tls.clone());
        let addresses = nodes.addresses();
        let first = sale.open(&addresses, units)?;
        let (sale, addresses, rate) = (&sale, &addresses[..], cut.rate);
        std::thread::scope(|scope| {
            let cashiers: Vec<_> = (0..CASHIERS as u64)
                .map(|cashier| {
                    let random = random.fork();
                    scope.spawn(move || sale.sell(addresses, (cashier, rate), random))
                })
                .collect();
            let watches =
                [None, Some(primary)].map(|node| scope.spawn(move || sale.watch(addresses, node)));
            let struck = process::pass(cut.after).and_then(|()| {
                cut.strike(nodes, primary, random)?;
                let healed = sale.now();
                process::wait(SALE_MAX, || sale.is_sold_out_behind(healed))
            });
            sale.end();
            let mut books = Books::default();
            let mut wrong = Ok(());
            for cashier in cashiers {
                match cashier.join().expect("a cashier does not panic") {
                    Ok(own) => books.add(own),
                    Err(text) => wrong = wrong.and(Err(text)),
                }
            }
            for watch in watches {
                match watch.join().expect("a reader does not panic") {
                    Ok(reads) => books.reads.extend(reads),
                    Err(text) => wrong = wrong.and(Err(text)),
                }
            }
            wrong?;
            match struck? {
                true => Ok((books, primary, first)),
                false => Err(format!("the stock is not sold within {SALE_MAX:?}")),
            }
        })
    }

    /// One round with its nodes.
    fn suffer(
        &self,
        nodes: &mut Nodes<'_>,
        cut: &Cut,
        random: &mut Random,
    ) -> Result<Figures, String> {
        let units = cut.stock(self.rules);
        let (books, primary, first) = self.sell(nodes, (cut, units), random)?;
        let writer = nodes
            .plan()?
            .primary_of(u64::from(partition_of(slot_of(STOCK))));
        let writer = writer.ok_or("nobody writes the stock any more")? - 1;
        let shown = nodes.shown_at(writer)?;
        let level = self.terms.level;
        let audit = books.audit((units, first), level, &shown)?;
        let must_be_exact = self.terms.is_exact || level > AckLevel::Disk;
        if must_be_exact && !audit.is_exact() {
            return Err(format!(
                "of {units} units at level {}: {audit:?}",
                level.name()
            ));
        }
        if random.once_in(COMES_BACK_ONCE_IN) {
            for node in (0..NODES).map(|more| (writer + more) % NODES) {
                let here = nodes.shown_by(node)?;
                if let Some(text) = difference(&shown, &here) {
                    return Err(format!(
                        "node {} shows another state than when the sale was over: {text}",
                        node + 1
                    ));
                }
            }
        }
        Ok(Figures {
            cut: *cut,
            units,
            is_replaced: writer != primary,
            audit,
        })
    }
}

impl Kind for Cutoff {
    fn round(&mut self, turn: Turn<'_>) -> Result<Done, String> {
        let Turn {
            round,
            which,
            random,
            binary,
        } = turn;
        let folder = self.folder.join(format!("cutoff-{round}"));
        let how = (self.settings[which], self.rules, self.has_tls);
        let cut = Cut::draw(self.rules, self.terms.way, self.terms.rate, random);
        let mut nodes = Nodes::new(binary, folder.clone(), how, false)?;
        let figures = match self.suffer(&mut nodes, &cut, random) {
            Ok(figures) => figures,
            Err(text) => {
                nodes.keep_said();
                return Err(format!("{cut:?}: {text}\n{}", nodes.said()));
            }
        };
        drop(nodes);
        fs::remove_dir_all(&folder).map_err(|error| error.to_string())?;
        println!("  {}", figures.json(round, self.terms.level));
        let audit = figures.audit;
        let text = format!(
            "cut {:5} at {:4}/s, {:5} units, {:4} oversold",
            cut.way.name(),
            cut.rate,
            figures.units,
            audit.oversold
        );
        self.all.push(figures);
        Ok(Done {
            text,
            kills: 0,
            acked: audit.sold,
            unknown: audit.unknown,
        })
    }

    fn lost(&self) -> u64 {
        self.all.iter().map(|it| it.audit.taken_back).sum()
    }

    fn totals(&self) -> String {
        let sum =
            |count: fn(&Audit) -> u64| -> u64 { self.all.iter().map(|it| count(&it.audit)).sum() };
        let units: u64 = self.all.iter().map(|it| it.units).sum();
        let replaced = self.all.iter().filter(|it| it.is_replaced).count();
        let oversold = self.all.iter().filter(|it| it.audit.oversold > 0).count();
        format!(
            "level {}: {units} units, {} oversold in {oversold} rounds, {} of the outcomes that \
             stayed unknown executed, {replaced} replacements of the primary",
            self.terms.level.name(),
            sum(|it| it.oversold),
            sum(|it| it.unknown_executed)
        )
    }

    fn table(&self) -> Option<String> {
        Some(table(&self.all))
    }
}

impl Figures {
    /// One line for programs.
    fn json(&self, round: u64, level: AckLevel) -> String {
        let Figures { cut, audit, .. } = self;
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        json!({
            "round": round,
            "level": level.name(),
            "cut": cut.way.name(),
            "from_etcd": cut.is_from_home,
            "rate": cut.rate,
            "after_ms": ms(cut.after),
            "between_ms": ms(cut.between),
            "lasts_ms": ms(cut.lasts),
            "replaced": self.is_replaced,
            "units": self.units,
            "left": audit.left,
            "sold": audit.sold,
            "sold_at_a_lower_level": audit.sold_lower,
            "taken_back": audit.taken_back,
            "doubled": audit.doubled,
            "oversold": audit.oversold,
            "unknown": audit.unknown,
            "unknown_executed": audit.unknown_executed,
            "not_executed": audit.not_executed,
            "sold_out": audit.sold_out,
            "sold_behind_sold_out": audit.behind_sold_out,
            "reads_taken_back": audit.reads_taken_back,
        })
        .to_string()
    }
}

/// A key with another value in each of two states. Versions may differ: what a node that comes
/// back has otherwise is written anew.
fn difference(one: &Shown, other: &Shown) -> Option<String> {
    let keys = one.keys().chain(other.keys());
    let value = |shown: &Shown, key| shown.get(key).map(|(_, value)| value.clone());
    let mut differ = keys.filter(|&key| value(one, key) != value(other, key));
    let key = differ.next()?;
    let name = key.escape_ascii();
    Some(format!(
        "{name}: {:?} and {:?}",
        one.get(key),
        other.get(key)
    ))
}

/// A row for each way and rate.
fn table(all: &[Figures]) -> String {
    let mut rows: BTreeMap<(&str, u64), Vec<&Figures>> = BTreeMap::new();
    for figures in all {
        let row = (figures.cut.way.name(), figures.cut.rate);
        rows.entry(row).or_default().push(figures);
    }
    let mut text = format!(
        "{:6} {:>5} {:>4} {:>8} {:>7} {:>7} | {:>8} {:>6} {:>6} | {:>7} {:>8}",
        "cut",
        "rate",
        "n",
        "replaced",
        "units",
        "sold",
        "oversold",
        "median",
        "most",
        "unknown",
        "executed"
    );
    for ((way, rate), rows) in rows {
        let sum = |count: fn(&Figures) -> u64| rows.iter().map(|it| count(it)).sum::<u64>();
        let mut oversold: Vec<u64> = rows.iter().map(|it| it.audit.oversold).collect();
        oversold.sort_unstable();
        text.push_str(&format!(
            "\n{way:6} {rate:5} {:4} {:8} {:7} {:7} | {:8} {:6} {:6} | {:7} {:8}",
            rows.len(),
            sum(|it| u64::from(it.is_replaced)),
            sum(|it| it.units),
            sum(|it| it.audit.sold),
            sum(|it| it.audit.oversold),
            oversold[(oversold.len() - 1) / 2],
            oversold[oversold.len() - 1],
            sum(|it| it.audit.unknown),
            sum(|it| it.audit.unknown_executed),
        ));
    }
    text
}
