//! A run of additions: APPLYs that add to the decimal of one key, which is looked up once and whose
//! text is read once.
//!
//! An addition that the value takes in place is answered here, with the bytes that
//! [`super::apply`] would write. Every other one ends the run and goes that way: a sum that an i64
//! does not hold, a text of another length, an addition of nothing.

use penstock_net::apply::{Addition, Decimal};
use penstock_net::reply::{HeadTemplate, ReplyHead};
use penstock_net::request::Verb;
use penstock_net::status::Status;
use penstock_storage::index::CellId;
use penstock_storage::io::Blocks;
use penstock_storage::key_home::KeyHome;
use penstock_storage::store::{Run, Store};

use super::repeat_items::{Answered, RepeatedItems};
use super::{Ran, wire};

/// Additions that repeat one another.
pub(crate) struct RepeatedAdditions<'s, 'b, P: Blocks> {
    changes: Run<'s, P>,
    /// The heads of answers OK.
    heads: HeadTemplate,
    first: Addition<'b>,
    /// The last item that ran, and what it adds.
    item: &'b [u8],
    by: i64,
    /// The number that the key shows, and the bytes of its text.
    number: i64,
    text_bytes: usize,
}

impl<'s, 'b, P: Blocks> RepeatedAdditions<'s, 'b, P> {
    /// Items behind this one, which has just been executed on a key with this slot, hash and cell.
    /// `None` if each of them must run by itself.
    pub(crate) fn open(
        store: &'s mut Store<P>,
        now_us: u64,
        home: KeyHome,
        id: CellId,
        first: Addition<'b>,
        before: &Answered<'b>,
    ) -> Option<Self> {
        if before.status != Status::Ok {
            return None;
        }
        let changes = store.run(now_us, home, id)?;
        let text = changes.value();
        let (number, text_bytes) = (Decimal::read(text)?, text.len());
        let version = wire(changes.version());
        let head = ReplyHead::new(Status::Ok, 0, before.level, version);
        Some(RepeatedAdditions {
            changes,
            heads: HeadTemplate::new(&head),
            first,
            item: before.item,
            by: first.by(),
            number,
            text_bytes,
        })
    }
}

impl<'b, P: Blocks> RepeatedItems<'b> for RepeatedAdditions<'_, 'b, P> {
    const VERB: Verb = Verb::Apply;

    #[inline]
    fn next(&mut self, number: u16, item: &'b [u8], out: &mut Vec<u8>) -> Option<Ran> {
        if item != self.item {
            (self.item, self.by) = (item, self.first.repeated_by(item)?);
        }
        let after = self.number.checked_add(self.by)?;
        let text = Decimal::new(after);
        if self.by == 0 || text.bytes().len() != self.text_bytes {
            return None;
        }
        let gate = self.changes.replace(text.bytes())?;
        self.number = after;
        let sequence = self.changes.version().sequence;
        self.heads
            .write_number(out, number, sequence, after.cast_unsigned());
        Some(Ran::Answered {
            gate,
            status: Status::Ok,
        })
    }
}
