//! The ledger: the server's own records, read by a scan, against what the buyers know.
//!
//! | check | holds if |
//! |---|---|
//! | stock | initial = available + held + sold, held = sum of the holds, sold = sum of the orders |
//! | tokens | each token that was answered has one effect in its buyer's record |
//! | limit | nobody has more than the limit, and each has what holds and orders say |
//! | orders | every acknowledged order is there, and no other |
//! | holds | every cart that stays open is held, and no other |
//! | records | every record is one that a sale writes |

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use penstock_client::{Client, ClientError, ClientOptions, Verbs};

use crate::entry::Access;
use serde_json::{Value, json};

use crate::sale::book::{Book, CartState};
use crate::sale::shop::{BuyerRecord, CartRecord, Record, Shop, Stock};

/// Contradictions of one check that are told in words.
const SHOWN_MAX: usize = 5;
/// How long a read may take.
const DEADLINE: Duration = Duration::from_secs(30);
/// How long a look at the stock may take while the sale runs.
const WATCH_DEADLINE: Duration = Duration::from_secs(1);

/// One check: what it found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Check {
    pub(crate) name: &'static str,
    /// What was compared, in words.
    pub(crate) text: String,
    pub(crate) faults: u64,
    /// The first of them.
    pub(crate) shown: Vec<String>,
}

/// The whole ledger.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    pub(crate) checks: Vec<Check>,
    /// Of all articles together, as the server has it.
    pub(crate) stock: Stock,
}

/// What is known of one cart by its records.
#[derive(Clone, Copy, Default)]
struct Found {
    hold: Option<CartRecord>,
    order: Option<CartRecord>,
}

/// What the carts of one buyer come to.
#[derive(Clone, Copy, Default)]
struct Tally {
    /// By the records.
    held_units: u32,
    holds: u32,
    ordered_units: u32,
    /// By the answers that the buyer got.
    bought: u32,
    doubtful: u32,
    paid: u32,
    cancelled: u32,
}

impl Check {
    fn new(name: &'static str) -> Check {
        Check {
            name,
            ..Check::default()
        }
    }

    fn expect(&mut self, holds: bool, text: impl FnOnce() -> String) {
        if holds {
            return;
        }
        self.faults += 1;
        if self.shown.len() < SHOWN_MAX {
            self.shown.push(text());
        }
    }

    pub(crate) fn holds(&self) -> bool {
        self.faults == 0
    }
}

impl Ledger {
    /// Reads all records of a sale and compares them with the book. Nothing may be under way.
    ///
    /// # Errors
    /// The scan.
    pub(crate) fn read(client: &Client, book: &Book) -> Result<Ledger, ClientError> {
        let mut entries = Vec::new();
        for entry in client.scan(book.shop.prefix().as_bytes(), true) {
            let entry = entry?;
            entries.push((entry.key, entry.value.unwrap_or_default()));
        }
        Ok(Ledger::compare(
            book,
            entries.iter().map(|(key, value)| (&key[..], &value[..])),
        ))
    }

    /// Compares records with the book.
    pub(crate) fn compare<'a>(
        book: &Book,
        records: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Ledger {
        let mut found = Records::default();
        for (key, value) in records {
            found.add(book, key, value);
        }
        let tallies = found.tallies(book);
        let checks = vec![
            found.stock(book),
            found.tokens(book, &tallies),
            found.limit(book, &tallies),
            found.orders(book),
            found.holds(book),
            found.strange,
        ];
        let stocks = found.stocks.values();
        let stock = stocks.fold(Stock::default(), |sum, it| sum.plus(*it));
        Ledger { checks, stock }
    }

    pub(crate) fn holds(&self) -> bool {
        self.checks.iter().all(Check::holds)
    }

    pub(crate) fn json(&self) -> Value {
        let check = |it: &Check| {
            json!({
                "name": it.name, "holds": it.holds(), "text": it.text,
                "faults": it.faults, "told": it.shown,
            })
        };
        json!({
            "passes": self.holds(),
            "initial": self.stock.initial,
            "available": self.stock.available,
            "held": self.stock.held,
            "sold": self.stock.sold,
            "checks": self.checks.iter().map(check).collect::<Vec<_>>(),
        })
    }
}

impl std::fmt::Display for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for check in &self.checks {
            let outcome = if check.holds() { "ok  " } else { "FAIL" };
            writeln!(f, "  {outcome} {:<8} {}", check.name, check.text)?;
            for shown in &check.shown {
                writeln!(f, "                {shown}")?;
            }
            let left_out = check.faults - check.shown.len() as u64;
            if left_out > 0 {
                writeln!(f, "                and {left_out} more")?;
            }
        }
        Ok(())
    }
}

/// A client that looks at the stock while the server may be killed.
pub(crate) fn watching(address: SocketAddr, access: &Access) -> Result<Client, ClientError> {
    Client::connect(address, access.client("penstock sale", WATCH_DEADLINE))
}

/// A client for what surrounds a sale.
pub(crate) fn client(address: SocketAddr, access: &Access) -> Result<Client, ClientError> {
    Client::connect(address, access.client("penstock sale", DEADLINE))
}

/// A client that writes at the level of the sale.
pub(crate) fn writing(address: SocketAddr, access: &Access) -> Result<Client, ClientError> {
    let options = ClientOptions {
        level: access.level(),
        ..access.client("penstock sale", DEADLINE)
    };
    Client::connect(address, options)
}

/// The stock of all articles, as the server has it now. What is missing counts as nothing.
pub(crate) fn stock_now(client: &Client, shop: &Shop, skus: u32) -> Result<Stock, ClientError> {
    let asked: Vec<_> = (0..skus)
        .map(|sku| client.get(&shop.stock_key(sku)))
        .collect();
    let mut all = Stock::default();
    for stock in asked {
        let value = stock.wait()?;
        let stock = value.and_then(|value| Stock::read(&value.bytes));
        all = all.plus(stock.unwrap_or_default());
    }
    Ok(all)
}

/// The records of a sale, sorted.
#[derive(Default)]
struct Records {
    stocks: BTreeMap<u32, Stock>,
    buyers: BTreeMap<u32, BuyerRecord>,
    /// By number, with the article of the keys.
    carts: BTreeMap<u64, (u32, Found)>,
    strange: Check,
    count: u64,
}

impl Records {
    fn add(&mut self, book: &Book, key: &[u8], value: &[u8]) {
        self.count += 1;
        self.strange.name = "records";
        self.strange.text = format!("{} records, all of this sale", self.count);
        let is_known = match book.shop.read(key, value) {
            None => false,
            Some((sku, Record::Stock(stock))) => {
                sku < book.plan.skus && self.stocks.insert(sku, stock).is_none()
            }
            Some((_, Record::Buyer(buyer, record))) => {
                buyer < book.plan.buyers && self.buyers.insert(buyer, record).is_none()
            }
            Some((sku, Record::Hold(cart, record))) => self
                .cart(sku, cart)
                .is_some_and(|it| it.hold.replace(record).is_none()),
            Some((sku, Record::Order(cart, record))) => self
                .cart(sku, cart)
                .is_some_and(|it| it.order.replace(record).is_none()),
        };
        self.strange.expect(is_known, || {
            format!("no sale writes {} so", String::from_utf8_lossy(key))
        });
    }

    /// What is found of a cart; nothing if it has records of another article.
    fn cart(&mut self, sku: u32, cart: u64) -> Option<&mut Found> {
        let (of, found) = self.carts.entry(cart).or_insert((sku, Found::default()));
        (*of == sku).then_some(found)
    }

    fn tallies(&self, book: &Book) -> Vec<Tally> {
        let mut tallies = vec![Tally::default(); book.plan.buyers as usize];
        for (purchase, state) in book.carts() {
            let tally = &mut tallies[purchase.buyer as usize];
            match state {
                CartState::NotAsked | CartState::Asking => {}
                CartState::SoldOut | CartState::OverLimit => {}
                CartState::Doubtful => tally.doubtful += 1,
                CartState::Held
                | CartState::TooLate
                | CartState::Abandoned
                | CartState::Open
                | CartState::Paid
                | CartState::Cancelled => tally.bought += 1,
            }
            tally.paid += u32::from(state == CartState::Paid);
            tally.cancelled += u32::from(state == CartState::Cancelled);
        }
        for (_, found) in self.carts.values() {
            if let Some(it) = found.hold
                && let Some(tally) = tallies.get_mut(it.buyer as usize)
            {
                tally.holds += 1;
                tally.held_units = tally.held_units.wrapping_add(it.units);
            }
            if let Some(it) = found.order
                && let Some(tally) = tallies.get_mut(it.buyer as usize)
            {
                tally.ordered_units = tally.ordered_units.wrapping_add(it.units);
            }
        }
        tallies
    }

    fn stock(&self, book: &Book) -> Check {
        let mut check = Check::new("stock");
        let mut sums = BTreeMap::<u32, (u64, u64)>::new();
        for (sku, found) in self.carts.values() {
            let units = |it: Option<CartRecord>| it.map_or(0, |it| u64::from(it.units));
            let (held, sold) = sums.entry(*sku).or_default();
            *held += units(found.hold);
            *sold += units(found.order);
        }
        let mut all = Stock::default();
        for sku in 0..book.plan.skus {
            let Some(stock) = self.stocks.get(&sku) else {
                check.expect(false, || format!("article {sku} has no stock"));
                continue;
            };
            all = all.plus(*stock);
            let units = book.plan.units_of(sku);
            let sum = stock
                .available
                .wrapping_add(stock.held)
                .wrapping_add(stock.sold);
            check.expect(stock.initial == units && sum == units, || {
                format!("article {sku} began with {units} and has {stock:?}")
            });
            let (held, sold) = sums.get(&sku).copied().unwrap_or_default();
            check.expect(stock.held == held, || {
                format!("article {sku}: {} held, and holds of {held}", stock.held)
            });
            check.expect(stock.sold == sold, || {
                format!("article {sku}: {} sold, and orders of {sold}", stock.sold)
            });
        }
        check.text = format!(
            "{} initial = {} available + {} held + {} sold",
            all.initial, all.available, all.held, all.sold
        );
        check
    }

    fn tokens(&self, book: &Book, tallies: &[Tally]) -> Check {
        let mut check = Check::new("tokens");
        for fault in book.faults() {
            check.expect(false, || fault.clone());
        }
        for (buyer, tally) in (0u32..).zip(tallies) {
            let record = self.buyers.get(&buyer).copied().unwrap_or_default();
            let bought = tally.bought..=tally.bought + tally.doubtful;
            check.expect(
                bought.contains(&record.buys)
                    && record.pays == tally.paid
                    && record.cancels == tally.cancelled,
                || {
                    format!(
                        "buyer {buyer} was answered {} buys, {} pays, {} cancels: {record:?}",
                        tally.bought, tally.paid, tally.cancelled
                    )
                },
            );
            let ends = u64::from(record.pays)
                + u64::from(record.cancels)
                + u64::from(record.expiries)
                + u64::from(tally.holds);
            check.expect(u64::from(record.buys) == ends, || {
                format!("buyer {buyer} has {} holds and {record:?}", tally.holds)
            });
        }
        let counts = book.counts();
        check.text = format!(
            "one effect each: {} buys, {} pays, {} cancels; {} sent twice, {} asked again, {} \
             answers repeated, {} in doubt",
            counts.bought,
            counts.paid,
            counts.cancelled,
            counts.doubled,
            counts.again,
            counts.replayed,
            counts.doubtful
        );
        check
    }

    fn limit(&self, book: &Book, tallies: &[Tally]) -> Check {
        let mut check = Check::new("limit");
        for (&buyer, record) in &self.buyers {
            check.expect(record.units <= book.plan.limit, || {
                format!("buyer {buyer} has {} units", record.units)
            });
        }
        for (buyer, tally) in (0u32..).zip(tallies) {
            let units = self.buyers.get(&buyer).map_or(0, |it| it.units);
            let has = tally.held_units.wrapping_add(tally.ordered_units);
            check.expect(units == has && has <= book.plan.limit, || {
                format!("buyer {buyer} is said to have {units} units, and has {has}")
            });
        }
        check.text = format!(
            "nobody of {} has more than {}; {} were refused for it",
            self.buyers.len(),
            book.plan.limit,
            book.counts().over_limit
        );
        check
    }

    fn orders(&self, book: &Book) -> Check {
        let mut check = Check::new("orders");
        let mut expected = 0u64;
        for (it, state) in book.carts() {
            if state != CartState::Paid {
                continue;
            }
            expected += 1;
            let record = CartRecord {
                buyer: it.buyer,
                units: it.units,
            };
            let order = self.carts.get(&it.cart).filter(|(sku, _)| *sku == it.sku);
            let order = order.and_then(|(_, found)| found.order);
            check.expect(order == Some(record), || {
                format!("order {} of buyer {} is {order:?}", it.cart, it.buyer)
            });
        }
        let carts = self.carts.values();
        let there = carts.filter(|(_, found)| found.order.is_some()).count() as u64;
        check.expect(there == expected, || {
            format!("{there} orders are there, and {expected} were acknowledged")
        });
        check.text = format!("{expected} acknowledged, {there} there");
        check
    }

    fn holds(&self, book: &Book) -> Check {
        let mut check = Check::new("holds");
        let mut open = 0u64;
        let mut doubtful = 0u64;
        for (it, state) in book.carts() {
            doubtful += u64::from(state == CartState::Doubtful);
            if state != CartState::Open {
                continue;
            }
            open += 1;
            let record = CartRecord {
                buyer: it.buyer,
                units: it.units,
            };
            let hold = self.carts.get(&it.cart).and_then(|(_, found)| found.hold);
            check.expect(hold == Some(record), || {
                format!(
                    "the open cart {} of buyer {} is {hold:?}",
                    it.cart, it.buyer
                )
            });
        }
        let carts = self.carts.values();
        let there = carts.filter(|(_, found)| found.hold.is_some()).count() as u64;
        check.expect((open..=open + doubtful).contains(&there), || {
            format!("{there} holds are there, and {open} carts are open")
        });
        let counts = book.counts();
        check.text = format!(
            "{there} are held: {open} carts stay open, {} had no answer; \
             {} abandoned and {} paid too late came back",
            there.saturating_sub(open),
            counts.abandoned,
            counts.too_late
        );
        check
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sale::book::Verdict;
    use crate::sale::plan::{Arrivals, Plan, tests::plan};
    use penstock_net::request::Version;

    type Map = BTreeMap<Vec<u8>, Vec<u8>>;

    /// A sale of a few carts, in which all is well: the book, and the records.
    fn sale() -> (Book, Map) {
        let plan = Plan {
            arrivals: Arrivals::Closed,
            buyers: 40,
            skus: 1,
            abandoned_percent: 0,
            cancelled_percent: 0,
            open_percent: 30,
            greedy_percent: 0,
            cut_percent: 0,
            think_max: Duration::ZERO,
            ..plan()
        };
        let mut book = Book::new(plan, Shop::new("drop:".into()));
        let mut sequence = 0;
        while let Some(mut ask) = book.due(Duration::ZERO, 1) {
            sequence += 1;
            let version = Version {
                sequence,
                ..Version::default()
            };
            let verdict = Verdict::Done {
                version,
                is_replayed: false,
            };
            book.take_answer(&mut ask, verdict);
            book.answered(ask, verdict, Duration::ZERO, 1);
        }
        let mut map = Map::new();
        let mut stock = Stock::of(1_000);
        for (it, state) in book.carts() {
            let units = u64::from(it.units);
            let (is_paid, kind) = match state {
                CartState::Paid => (true, "order"),
                CartState::Open => (false, "hold"),
                _ => panic!("{state:?}"),
            };
            stock.available -= units;
            match is_paid {
                true => stock.sold += units,
                false => stock.held += units,
            }
            let pair = [it.buyer.to_le_bytes(), it.units.to_le_bytes()].concat();
            map.insert(format!("drop:{{0}}:{kind}:{}", it.cart).into(), pair);
            let numbers = [it.units, 1, u32::from(is_paid), 0, 0].map(u32::to_le_bytes);
            map.insert(
                format!("drop:{{0}}:buyer:{}", it.buyer).into(),
                numbers.concat(),
            );
        }
        map.insert(b"drop:{0}:stock".to_vec(), stock.bytes().to_vec());
        (book, map)
    }

    fn failing(book: &Book, map: &Map) -> Vec<&'static str> {
        let records = map.iter().map(|(key, value)| (&key[..], &value[..]));
        let ledger = Ledger::compare(book, records);
        let failing = ledger.checks.iter().filter(|it| !it.holds());
        failing.map(|it| it.name).collect()
    }

    fn first(map: &Map, kind: &str) -> Vec<u8> {
        let mut keys = map.keys();
        let is_of = |key: &&Vec<u8>| String::from_utf8_lossy(key).contains(kind);
        keys.find(is_of).expect(kind).clone()
    }

    #[test]
    fn a_ledger_in_which_all_is_well_has_no_fault() {
        let (book, map) = sale();
        assert_eq!(failing(&book, &map), Vec::<&str>::new());
    }

    #[test]
    fn every_record_that_is_changed_lost_or_added_is_a_fault() {
        let (book, map) = sale();
        for kind in [":stock", ":buyer:", ":hold:", ":order:"] {
            let key = first(&map, kind);
            for at in (0..map[&key].len()).step_by(4) {
                let mut forged = map.clone();
                forged.get_mut(&key).expect("there")[at] ^= 1;
                assert!(!failing(&book, &forged).is_empty(), "{kind} at {at}");
            }
            let mut forged = map.clone();
            forged.remove(&key);
            assert!(!failing(&book, &forged).is_empty(), "{kind} lost");
        }
        for key in [
            "drop:{0}:order:1",
            "drop:{0}:hold:1",
            "drop:{0}:other",
            "drop:{9}:stock",
        ] {
            let mut forged = map.clone();
            forged.insert(key.into(), vec![0; 8]);
            assert!(!failing(&book, &forged).is_empty(), "{key} added");
        }
    }

    #[test]
    fn a_unit_that_was_sold_twice_fails_stock_and_not_only_one_check() {
        let (book, mut map) = sale();
        let key = b"drop:{0}:stock".to_vec();
        let mut stock = Stock::read(&map[&key]).expect("a stock");
        stock.available += 1;
        map.insert(key, stock.bytes().to_vec());
        assert_eq!(failing(&book, &map), ["stock"]);
    }
}
