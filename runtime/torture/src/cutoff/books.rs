//! What buyers were told, held against what the nodes that are left show.
//!
//! A purchase takes one unit of the stock and writes an order of its own in the same record. So the
//! orders that are there name the purchases that were executed in the history that is left, and the
//! stock lacks as many units. An acknowledged purchase without its order was taken back: its unit
//! was sold to somebody else as well, or stands in the stock again. A unit is named by the stock
//! that was left behind it, as the answer tells. Versions of what is shown name nothing: a key that
//! a node lacks which comes back is written anew.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use penstock_net::level::AckLevel;
use penstock_net::request::Version;

use crate::ledger::Shown;

/// All keys of a sale are of one slot.
pub const STOCK: &[u8] = b"{cutoff}stock";
const ORDER: &str = "{cutoff}order:";

/// The order of a buyer.
pub fn order(buyer: u64) -> Vec<u8> {
    format!("{ORDER}{buyer}").into_bytes()
}

/// How a purchase ended, as its buyer knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Sold {
        version: Version,
        /// What the stock was behind it.
        left: u64,
        /// The level that the answer tells.
        level: AckLevel,
    },
    /// By the first answer, at this time.
    SoldOut { answered: Duration },
    /// Refused before it ran.
    NotExecuted,
    /// The last answer leaves it open, or the buyer has given up.
    Unknown,
}

/// One purchase. A buyer makes one.
#[derive(Clone, Copy, Debug)]
pub struct Purchase {
    pub buyer: u64,
    /// When it was asked first.
    pub asked: Duration,
    pub end: End,
}

/// All that was answered.
#[derive(Default)]
pub struct Books {
    pub purchases: Vec<Purchase>,
    /// The stock as reads have shown it, with its version.
    pub reads: BTreeSet<(u64, Version)>,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// Purchases that were acknowledged.
    pub sold: u64,
    /// Of these, those at a lower level than the one that was asked for, as the answer tells.
    pub sold_lower: u64,
    /// Of those that were acknowledged, those without an order.
    pub taken_back: u64,
    /// Units that were acknowledged to more than one buyer, once for each buyer behind the first.
    pub doubled: u64,
    /// Units that were acknowledged, or executed for a buyer who does not know, beyond the stock.
    pub oversold: u64,
    pub unknown: u64,
    /// Of these, those with an order.
    pub unknown_executed: u64,
    /// Buyers who were told before the purchase ran that it would not.
    pub not_executed: u64,
    /// Buyers who were told that nothing is left.
    pub sold_out: u64,
    /// Of these, those with an order.
    pub sold_out_executed: u64,
    /// Purchases that were executed although nothing was left when they were asked for.
    pub behind_sold_out: u64,
    /// States that reads have shown and that are not in the history that is left.
    pub reads_taken_back: u64,
    /// Units that the stock has.
    pub left: u64,
}

impl Audit {
    /// Whether each answer was final, as levels `replica` and above promise.
    pub fn is_exact(&self) -> bool {
        self.taken_back == 0
            && self.doubled == 0
            && self.oversold == 0
            && self.sold_out_executed == 0
            && self.behind_sold_out == 0
            && self.reads_taken_back == 0
    }

    fn count(&mut self, purchase: &Purchase, asked_for: AckLevel, is_there: bool) {
        match purchase.end {
            End::Sold { level, .. } => {
                self.sold += 1;
                self.sold_lower += u64::from(level < asked_for);
                self.taken_back += u64::from(!is_there);
            }
            End::SoldOut { .. } => {
                self.sold_out += 1;
                self.sold_out_executed += u64::from(is_there);
            }
            End::NotExecuted => self.not_executed += 1,
            End::Unknown => {
                self.unknown += 1;
                self.unknown_executed += u64::from(is_there);
            }
        }
    }
}

impl Books {
    pub fn add(&mut self, other: Books) {
        self.purchases.extend(other.purchases);
        self.reads.extend(other.reads);
    }

    /// Holds the books against what is shown: `first` is the version of the stock before the sale.
    ///
    /// # Errors
    /// What no level permits, in words.
    pub fn audit(
        &self,
        (initial, first): (u64, Version),
        asked_for: AckLevel,
        shown: &Shown,
    ) -> Result<Audit, String> {
        let stock = shown.get(STOCK).ok_or("the stock is gone")?;
        let left = stock.1[..].try_into().map(u64::from_le_bytes);
        let left = left.map_err(|_| "the stock is no number")?;
        let mut buyers = buyers(shown)?;
        let executed = buyers.len() as u64;
        if initial.checked_sub(left) != Some(executed) {
            return Err(format!(
                "of {initial} units {left} are left, and there are {executed} orders"
            ));
        }
        let nothing_left = self.purchases.iter().filter_map(|it| match it.end {
            End::SoldOut { answered } => Some(answered),
            _ => None,
        });
        let nothing_left = nothing_left.min();
        let mut audit = Audit {
            left,
            ..Audit::default()
        };
        // Of the history that is left: which version has left how much.
        let mut history = BTreeMap::from([(initial, first)]);
        let mut units = BTreeSet::new();
        for purchase in &self.purchases {
            let buyer = purchase.buyer;
            let is_there = buyers.remove(&buyer);
            if purchase.end == End::NotExecuted && is_there {
                return Err(format!(
                    "buyer {buyer} was told that nothing was executed, and has an order"
                ));
            }
            let is_sold = matches!(purchase.end, End::Sold { .. });
            if let End::Sold { left, version, .. } = purchase.end {
                audit.doubled += u64::from(!units.insert(left));
                let before = is_there.then(|| history.insert(left, version)).flatten();
                if let Some(before) = before {
                    return Err(format!(
                        "{left} are left behind {before:?} and behind {version:?} of buyer {buyer}"
                    ));
                }
            }
            audit.count(purchase, asked_for, is_there);
            let is_behind = nothing_left.is_some_and(|at| at < purchase.asked);
            audit.behind_sold_out += u64::from(is_behind && (is_sold || is_there));
        }
        if let Some(buyer) = buyers.first() {
            return Err(format!("the order of buyer {buyer} is nobody's"));
        }
        // A later version of the same state is that of a key that was written anew.
        let is_gone = |(left, version): &&(u64, Version)| {
            history.get(left).is_some_and(|there| version < there)
        };
        let gave_out = audit.sold + audit.unknown_executed;
        audit.oversold = gave_out.saturating_sub(initial);
        audit.reads_taken_back = self.reads.iter().filter(is_gone).count() as u64;
        // What is left, acknowledged and kept, and executed for those who do not know: all units.
        let kept = audit.sold - audit.taken_back;
        let all = left + kept + audit.unknown_executed + audit.sold_out_executed;
        match all == initial {
            true => Ok(audit),
            false => Err(format!("{initial} units became {all}: {audit:?}")),
        }
    }
}

/// The buyers who have an order.
fn buyers(shown: &Shown) -> Result<BTreeSet<u64>, String> {
    let mut buyers = BTreeSet::new();
    for key in shown.keys().filter(|&key| key != STOCK) {
        let name = key.escape_ascii().to_string();
        let buyer = name.strip_prefix(ORDER).and_then(|it| it.parse().ok());
        let buyer = buyer.ok_or(format!("{name} is no key of the sale"))?;
        buyers.insert(buyer);
    }
    Ok(buyers)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INITIAL: u64 = 3;

    fn version(sequence: u64) -> Version {
        Version { epoch: 1, sequence }
    }

    fn shown(left: u64, buyers: &[u64]) -> Shown {
        let stock = (STOCK.to_vec(), (version(9), left.to_le_bytes().to_vec()));
        let orders = buyers
            .iter()
            .map(|&buyer| (order(buyer), (version(buyer), Vec::new())));
        orders.chain([stock]).collect()
    }

    /// Of the version that leaves so many.
    fn sold(left: u64) -> End {
        End::Sold {
            version: version(INITIAL - left),
            left,
            level: AckLevel::Disk,
        }
    }

    /// Buyers 1, 2, ..., each at its own millisecond.
    fn books(ends: &[End]) -> Books {
        let purchases = ends.iter().zip(1..).map(|(&end, buyer)| Purchase {
            buyer,
            asked: Duration::from_millis(buyer),
            end,
        });
        Books {
            purchases: purchases.collect(),
            reads: BTreeSet::new(),
        }
    }

    fn audit(books: &Books, shown: &Shown) -> Result<Audit, String> {
        books.audit((INITIAL, Version::default()), AckLevel::Disk, shown)
    }

    #[test]
    fn sold_units_unknown_ones_that_were_executed_and_the_rest_are_all_units() {
        let books = books(&[sold(2), End::Unknown, End::Unknown, End::NotExecuted]);
        let audit = audit(&books, &shown(1, &[1, 2])).expect("it adds up");
        assert!(audit.is_exact());
        assert_eq!((audit.sold, audit.left), (1, 1));
        assert_eq!((audit.unknown, audit.unknown_executed), (2, 1));
    }

    #[test]
    fn an_acknowledged_unit_that_was_sold_again_is_oversold() {
        let books = books(&[sold(2), sold(1), sold(2), sold(0)]);
        let audit = audit(&books, &shown(0, &[2, 3, 4])).expect("it adds up");
        assert!(!audit.is_exact());
        assert_eq!((audit.taken_back, audit.oversold, audit.doubled), (1, 1, 1));
    }

    #[test]
    fn an_acknowledged_unit_that_is_in_stock_again_is_taken_back_and_not_oversold() {
        let audit = audit(&books(&[sold(2)]), &shown(3, &[])).expect("it adds up");
        assert!(!audit.is_exact());
        assert_eq!((audit.taken_back, audit.oversold), (1, 0));
    }

    #[test]
    fn what_was_answered_to_be_not_executed_and_has_an_order_is_found() {
        assert!(audit(&books(&[End::NotExecuted]), &shown(2, &[1])).is_err());
    }

    #[test]
    fn an_order_of_nobody_and_a_unit_without_an_order_are_found() {
        assert!(audit(&books(&[sold(2)]), &shown(1, &[1, 7])).is_err());
        assert!(audit(&books(&[sold(2)]), &shown(1, &[1])).is_err());
    }

    #[test]
    fn one_unit_in_two_orders_is_found() {
        assert!(audit(&books(&[sold(2), sold(2)]), &shown(1, &[1, 2])).is_err());
    }

    #[test]
    fn a_sale_behind_the_answer_that_nothing_is_left_is_found() {
        let answered = Duration::from_micros(2_500);
        let books = books(&[sold(2), End::SoldOut { answered }, sold(1), sold(0)]);
        let audit = audit(&books, &shown(0, &[1, 3, 4])).expect("it adds up");
        assert_eq!((audit.sold_out, audit.behind_sold_out), (1, 2));
        assert!(!audit.is_exact());
    }

    #[test]
    fn a_read_of_a_state_that_is_gone_is_found_and_one_that_was_written_anew_is_not() {
        let version = |epoch| Version { epoch, sequence: 1 };
        let end = End::Sold {
            version: version(2),
            left: 2,
            level: AckLevel::Disk,
        };
        let mut books = books(&[end]);
        books.reads = [(3, Version::default()), (2, version(2)), (2, version(3))].into();
        let exact = audit(&books, &shown(2, &[1])).expect("it adds up");
        assert!(exact.is_exact());
        books.reads.insert((2, version(1)));
        let audit = audit(&books, &shown(2, &[1])).expect("it adds up");
        assert_eq!(audit.reads_taken_back, 1);
        assert!(!audit.is_exact());
    }
}
