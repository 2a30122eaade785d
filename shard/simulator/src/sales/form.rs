//! What a sale asks for: the bytes of its request, and of another one under the same token.

use penstock_net::apply::Apply;
use penstock_net::instruction::{FieldType, Instruction, Operation};
use penstock_net::request::{BatchRequest, Condition};

use super::Till;

/// Sales of one book.
pub(super) const CELLS: usize = 12;
/// Keys that are set and deleted.
pub(super) const SLIPS: usize = 3;
/// The other request of a sale counts so many in its cell, and takes one unit more.
pub(super) const OTHERS: u32 = 1 << 16;

/// The kinds of sales.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// UPDATE_IF of the book.
    Mark,
    /// UPDATE_IF of stock and book.
    Both,
    /// APPLY on both.
    Buy,
    /// APPLY that tells the stock and changes nothing.
    Glance,
    /// SET of a slip that is not there.
    Note,
    /// DEL of a slip that is there.
    Discard,
}

/// The frequent ones more than once.
pub(super) const FORMS: &[Form] = &[
    Form::Mark,
    Form::Both,
    Form::Both,
    Form::Buy,
    Form::Buy,
    Form::Buy,
    Form::Glance,
    Form::Note,
    Form::Discard,
];

/// One request of a sale.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) form: Form,
    pub(super) units: u64,
    pub(super) place: usize,
    pub(super) is_other: bool,
}

impl Form {
    /// Whether it counts in a cell.
    pub(super) fn has_cell(self) -> bool {
        matches!(self, Form::Mark | Form::Both | Form::Buy)
    }

    /// Whether it takes units.
    pub(super) fn takes(self) -> bool {
        matches!(self, Form::Both | Form::Buy)
    }
}

impl Till {
    /// The stock is at place 0, its books behind.
    pub(super) fn key(&self, place: usize) -> Vec<u8> {
        match place {
            0 => format!("{}stock", self.tag),
            book => format!("{}book {book}", self.tag),
        }
        .into_bytes()
    }

    pub(super) fn slip(&self, slip: usize) -> Vec<u8> {
        format!("{}slip {slip}", self.tag).into_bytes()
    }

    /// Makes a key.
    pub(super) fn open(&self, place: usize, batch: &mut BatchRequest, out: &mut Vec<u8>) {
        let (key, stock, cells) = (self.key(place), self.units.to_le_bytes(), [0; 4 * CELLS]);
        let value = match place {
            0 => &stock[..],
            _ => &cells[..],
        };
        batch.set(out, &key, value, Condition::Absent);
    }

    pub(super) fn ask(&self, request: Request, batch: &mut BatchRequest, out: &mut Vec<u8>) {
        let Request {
            form,
            units,
            place,
            is_other,
        } = request;
        let (stock, book) = (self.key(0), self.key(1 + place / CELLS));
        let offset = u32::try_from(4 * (place % CELLS)).expect("a small value");
        let (units, count) = match is_other {
            true => (units + 1, u64::from(OTHERS)),
            false => (units, 1),
        };
        let step = |operation, field_type, key, offset, immediate| Instruction {
            operation,
            field_type,
            key,
            reason: 1,
            offset,
            immediate,
        };
        let counts = |key| step(Operation::Add, FieldType::U32, key, offset, count);
        match form {
            Form::Mark => batch.update_if(out, &book, None, &[counts(0)], None),
            Form::Both => {
                let steps = [
                    step(Operation::Ge, FieldType::U64, 0, 0, units),
                    step(Operation::Sub, FieldType::U64, 0, 0, units),
                    counts(1),
                ];
                batch.update_if(out, &stock, Some(&book), &steps, None);
            }
            Form::Buy => {
                let mut apply = Apply::new();
                let (stock, book) = (apply.key(&stock), apply.key(&book));
                apply.then(stock.u64(0).at_least(units).or_else(1));
                apply.then(stock.u64(0).decrease(units));
                apply.then(book.u32(offset).increase(count));
                apply.then(stock.u64(0).returned());
                batch.apply(out, &apply);
            }
            Form::Glance => {
                let mut apply = Apply::new();
                let stock = apply.key(&stock).u64(0);
                apply.then(stock.decrease(0_u64));
                apply.then(stock.returned());
                if is_other {
                    apply.then(stock.returned());
                }
                batch.apply(out, &apply);
            }
            Form::Note => {
                let value = [u8::from(is_other); 24];
                batch.set(out, &self.slip(place), &value, Condition::Absent);
            }
            Form::Discard => {
                let condition = match is_other {
                    true => Condition::Always,
                    false => Condition::Present,
                };
                batch.del(out, &self.slip(place), condition);
            }
        }
    }
}
