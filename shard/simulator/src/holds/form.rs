//! What is asked about a lot and its orders: the bytes of each request, and what a look at a lot
//! shows.

use penstock_net::apply::{Apply, ApplyField, ApplyKey, Comparison, Operand};
use penstock_net::instruction::{FieldType, Instruction, Operation};
use penstock_net::reply::ReplyItem;
use penstock_net::request::{BatchRequest, Condition, Expiry, Wanted};

/// Orders of a lot.
pub(super) const CELLS: usize = 40;
/// Keys of holds of a lot, each for one order after the other.
pub(super) const SEATS: usize = 5;
/// Buyers of a lot.
pub(super) const BUYERS: usize = 2;
/// Numbers of the stock: available, held, sold, all.
const NUMBERS: usize = 4;

/// What each event of an order adds to its cell, a byte. Two bits count each kind.
pub(super) const BOUGHT: u8 = 1;
pub(super) const CONFIRMED: u8 = 1 << 2;
pub(super) const CANCELLED: u8 = 1 << 4;
pub(super) const EXPIRED: u8 = 1 << 6;

/// Offsets in the value of the stock.
const AVAILABLE: u32 = 0;
const HELD: u32 = 8;
const SOLD: u32 = 16;
const ALL: u32 = 24;

/// Offsets in the value of a hold: units, the cell of its order, its expiry, and a number that
/// people change.
const UNITS: u32 = 0;
const CELL: u32 = 8;
const UNTIL: u32 = 16;
const TOUCHED: u32 = 24;
/// Bytes of the value of a hold, at least. All starts of a node accept twice as many.
const HOLD_BYTES: usize = 32;

/// When a hold expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// At this time, in unix milliseconds.
    At(u64),
    /// So many milliseconds after the time of the shard.
    In(u64),
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// The keys of the lot are made, if they are not there.
    Open,
    /// Stock, buyers and cells are told as they are at one moment.
    Survey,
    /// The key of a hold is read.
    Read,
    /// Units are added.
    Restock,
    /// Units are taken for a hold, which gives them back when it expires.
    Buy(Until),
    /// The hold ends, and its units are sold.
    Confirm,
    /// The hold ends, and its units are given back.
    Cancel,
    /// The hold expires at another time; by UPDATE_IF or APPLY.
    Extend(Until, bool),
    /// So, and with effects of its own.
    Rearm(Until),
    /// The hold never expires; by UPDATE_IF or APPLY.
    Persist(bool),
    /// The value of the hold changes, and nothing else.
    Touch,
    /// The key of a hold is set to something else.
    Overwrite,
    /// The key of a hold is deleted.
    Clear,
    /// The units of an order whose hold was overwritten, or cleared, are given back.
    Release {
        /// There is no hold. Otherwise it is one of somebody else.
        is_absent: bool,
    },
}

impl Act {
    /// When the hold expires from then on, if this decides it.
    pub(super) fn until(self) -> Option<Until> {
        match self {
            Act::Buy(until) | Act::Extend(until, _) | Act::Rearm(until) => Some(until),
            _ => None,
        }
    }

    /// Whether it may end effects unrun, of any order whose hold is there.
    pub(super) fn is_of_any_order(self) -> bool {
        matches!(self, Act::Overwrite | Act::Clear)
    }

    /// Whether it changes nothing.
    pub(super) fn is_read(self) -> bool {
        matches!(self, Act::Survey | Act::Read)
    }
}

/// The keys of a lot.
#[derive(Debug)]
pub(super) struct Keys {
    /// What all of its keys begin with.
    pub(super) tag: String,
    /// Units at first.
    pub(super) units: u64,
    /// Units that one buyer may have.
    pub(super) units_max: u64,
}

/// What an order is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subject {
    pub(super) seat: usize,
    pub(super) buyer: usize,
    pub(super) units: u64,
    pub(super) cell: usize,
    /// A token sees to it that the order is made once, and its cell need not be looked at.
    pub(super) has_token: bool,
}

impl Keys {
    pub(super) fn stock(&self) -> Vec<u8> {
        format!("{}stock", self.tag).into_bytes()
    }

    pub(super) fn book(&self) -> Vec<u8> {
        format!("{}book", self.tag).into_bytes()
    }

    pub(super) fn buyer(&self, buyer: usize) -> Vec<u8> {
        format!("{}buyer {buyer}", self.tag).into_bytes()
    }

    pub(super) fn seat(&self, seat: usize) -> Vec<u8> {
        format!("{}seat {seat}", self.tag).into_bytes()
    }

    /// All of them.
    pub(super) fn all(&self) -> impl Iterator<Item = Vec<u8>> + '_ {
        let buyers = (0..BUYERS).map(|buyer| self.buyer(buyer));
        let seats = (0..SEATS).map(|seat| self.seat(seat));
        [self.stock(), self.book()]
            .into_iter()
            .chain(buyers)
            .chain(seats)
    }

    /// Writes an item.
    pub(super) fn ask(&self, act: Act, of: Subject, batch: &mut BatchRequest, out: &mut Vec<u8>) {
        let seat = self.seat(of.seat);
        let cell = of.cell as u64;
        let step = |operation, offset, immediate| Instruction {
            operation,
            field_type: FieldType::U64,
            key: 0,
            reason: 1,
            offset,
            immediate,
        };
        let is_it = step(Operation::Eq, CELL, cell);
        match act {
            Act::Read => batch.get_with(out, &seat, Wanted::ValueAndExpiry),
            Act::Overwrite => {
                let value = hold(0, u64::MAX - cell, 0, of.cell);
                batch.set(out, &seat, &value, Condition::Always);
            }
            Act::Clear => batch.del(out, &seat, Condition::Always),
            Act::Touch => {
                let steps = [is_it, step(Operation::Add, TOUCHED, 1)];
                batch.update_if(out, &seat, None, &steps, None);
            }
            Act::Extend(Until::At(ms), true) => {
                let steps = [is_it, step(Operation::Set, UNTIL, ms)];
                batch.update_if_with(out, &seat, None, &steps, None, Expiry::At(ms));
            }
            Act::Persist(true) => {
                let steps = [is_it, step(Operation::Set, UNTIL, 0)];
                batch.update_if_with(out, &seat, None, &steps, None, Expiry::Never);
            }
            _ => batch.apply(out, &self.apply(act, of)),
        }
    }

    fn apply(&self, act: Act, of: Subject) -> Apply {
        match act {
            Act::Open | Act::Survey | Act::Restock => self.apply_to_lot(act, of),
            _ => self.apply_to_order(act, of),
        }
    }

    fn apply_to_lot(&self, act: Act, of: Subject) -> Apply {
        let mut apply = Apply::new();
        let (stock, book) = (apply.key(&self.stock()), apply.key(&self.book()));
        match act {
            Act::Open => {
                let units = [self.units, 0, 0, self.units].map(u64::to_le_bytes);
                apply.start(stock, &units.concat());
                apply.start(book, &[0; CELLS]);
                for buyer in 0..BUYERS {
                    let buyer = apply.key(&self.buyer(buyer));
                    apply.start(buyer, &[0; 8]);
                }
            }
            Act::Survey => {
                for at in [AVAILABLE, HELD, SOLD, ALL] {
                    apply.then(stock.u64(at).returned());
                }
                for buyer in 0..BUYERS {
                    let buyer = apply.key(&self.buyer(buyer));
                    apply.then(buyer.u64(0).returned());
                }
                for at in 0..CELLS {
                    apply.then(cell_of(book, at).returned());
                }
            }
            _ => {
                apply.then(stock.u64(AVAILABLE).increase(of.units));
                apply.then(stock.u64(ALL).increase(of.units));
                apply.then(cell_of(book, of.cell).increase(u64::from(BOUGHT)));
            }
        }
        apply
    }

    fn apply_to_order(&self, act: Act, of: Subject) -> Apply {
        let mut apply = Apply::new();
        let (stock, book) = (apply.key(&self.stock()), apply.key(&self.book()));
        let cell = cell_of(book, of.cell);
        let seat = apply.key(&self.seat(of.seat));
        let buyer = apply.key(&self.buyer(of.buyer)).u64(0);
        let is_it = seat.u64(CELL).equals(of.cell as u64).or_else(1);
        let end = End {
            stock,
            cell,
            seat,
            buyer,
            units: of.units,
        };
        match act {
            Act::Buy(until) => {
                if !of.has_token {
                    apply.then(cell.equals(0_u64).or_else(2));
                }
                apply.then(seat.is_absent().or_else(3));
                apply.then(stock.u64(AVAILABLE).at_least(of.units).or_else(4));
                apply.then(buyer.at_most(self.units_max - of.units).or_else(5));
                apply.then(stock.u64(AVAILABLE).decrease(of.units));
                apply.then(stock.u64(HELD).increase(of.units));
                apply.then(buyer.increase(of.units));
                apply.then(cell.increase(u64::from(BOUGHT)));
                apply.put(seat, &hold(of.units, of.cell as u64, 0, of.cell));
                expires(&mut apply, seat, until);
                apply.on_expire(seat, |effects| end.gives_back(effects, EXPIRED, true));
                apply.then(stock.u64(AVAILABLE).returned());
            }
            Act::Confirm => {
                apply.then(is_it);
                apply.then(stock.u64(HELD).decrease(of.units));
                apply.then(stock.u64(SOLD).increase(of.units));
                apply.then(cell.increase(u64::from(CONFIRMED)));
                apply.then(seat.delete());
            }
            Act::Cancel => {
                apply.then(is_it);
                end.gives_back(&mut apply, CANCELLED, false);
                apply.then(seat.delete());
            }
            Act::Extend(until, _) => {
                apply.then(is_it);
                expires(&mut apply, seat, until);
            }
            Act::Rearm(until) => {
                apply.then(is_it);
                expires(&mut apply, seat, until);
                apply.on_expire(seat, |effects| end.gives_back(effects, EXPIRED, false));
            }
            Act::Persist(_) => {
                apply.then(is_it);
                apply.then(seat.u64(UNTIL).set(0_u64));
                apply.then(seat.expire_at(0_u64));
            }
            Act::Release { is_absent } => {
                apply.then(cell.equals(u64::from(BOUGHT)).or_else(2));
                apply.then(match is_absent {
                    true => seat.is_absent().or_else(3),
                    false => seat.u64(CELL).compares(Comparison::Ne, of.cell as u64),
                });
                end.gives_back(&mut apply, CANCELLED, false);
            }
            other => panic!("{other:?} is no APPLY on a hold"),
        }
        apply
    }
}

/// The cell of an order in its book.
fn cell_of(book: ApplyKey, cell: usize) -> ApplyField {
    book.field(FieldType::U8, u32::try_from(cell).expect("few"))
}

/// The end of a hold.
struct End {
    stock: ApplyKey,
    cell: ApplyField,
    seat: ApplyKey,
    buyer: ApplyField,
    units: u64,
}

impl End {
    /// Gives units back: as many as the hold tells, or as the order has.
    fn gives_back(&self, apply: &mut Apply, how: u8, is_returned: bool) {
        let units = match is_returned {
            true => Operand::from(self.seat.u64(UNITS)),
            false => Operand::from(self.units),
        };
        apply.then(self.stock.u64(HELD).decrease(units));
        apply.then(self.stock.u64(AVAILABLE).increase(units));
        apply.then(self.buyer.decrease(units));
        apply.then(self.cell.increase(u64::from(how)));
    }
}

fn expires(apply: &mut Apply, seat: ApplyKey, until: Until) {
    match until {
        Until::At(ms) => {
            apply.then(seat.u64(UNTIL).set(ms));
            apply.then(seat.expire_at(ms));
        }
        Until::In(ms) => {
            let plus_ms = i64::try_from(ms).expect("not long");
            apply.then(seat.u64(UNTIL).set(Operand::Now { plus_ms }));
            apply.then(seat.expire_in(ms));
        }
    }
}

/// The value of a hold, of a length that differs.
fn hold(units: u64, cell: u64, until: u64, more: usize) -> Vec<u8> {
    let mut value = [units, cell, until, 0].map(u64::to_le_bytes).concat();
    value.resize(HOLD_BYTES + more % HOLD_BYTES, 0xA5);
    value
}

/// What the key of a hold shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HoldShown {
    /// The cell of its order; that of nobody if it was overwritten.
    pub(super) cell: usize,
    pub(super) units: u64,
    pub(super) until_ms: u64,
}

impl HoldShown {
    /// Reads a value.
    pub(super) fn read(value: &[u8]) -> Option<Self> {
        let number = |at: u32| {
            let at = usize::try_from(at).expect("small");
            let bytes = value.get(at..at + 8)?;
            Some(u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
        };
        Some(HoldShown {
            cell: usize::try_from(number(CELL)?).unwrap_or(usize::MAX),
            units: number(UNITS)?,
            until_ms: number(UNTIL)?,
        })
    }
}

/// A lot at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LotShown {
    pub(super) available: u64,
    pub(super) held: u64,
    pub(super) sold: u64,
    pub(super) all: u64,
    pub(super) buyers: [u64; BUYERS],
    pub(super) cells: [u8; CELLS],
}

impl LotShown {
    /// As the answer to a look tells it.
    pub(super) fn read(item: &ReplyItem<'_>) -> Option<Self> {
        if item.value.len() != 8 * (NUMBERS + BUYERS + CELLS) {
            return None;
        }
        let field = |at: usize| item.field(at);
        let mut shown = LotShown {
            available: field(0)?,
            held: field(1)?,
            sold: field(2)?,
            all: field(3)?,
            buyers: [0; BUYERS],
            cells: [0; CELLS],
        };
        for (buyer, units) in shown.buyers.iter_mut().enumerate() {
            *units = field(NUMBERS + buyer)?;
        }
        for (at, cell) in shown.cells.iter_mut().enumerate() {
            *cell = u8::try_from(field(NUMBERS + BUYERS + at)?).ok()?;
        }
        Some(shown)
    }

    /// As the values of its keys are: stock, book, buyers.
    pub(super) fn of_values(stock: &[u8], book: &[u8], buyers: &[Vec<u8>]) -> Option<Self> {
        let numbers = stock.as_chunks::<8>().0;
        let number = |at: usize| numbers.get(at).map(|bytes| u64::from_le_bytes(*bytes));
        let mut shown = LotShown {
            available: number(0)?,
            held: number(1)?,
            sold: number(2)?,
            all: number(3)?,
            buyers: [0; BUYERS],
            cells: book.try_into().ok()?,
        };
        for (units, value) in shown.buyers.iter_mut().zip(buyers) {
            *units = u64::from_le_bytes(value[..].try_into().ok()?);
        }
        Some(shown)
    }
}
