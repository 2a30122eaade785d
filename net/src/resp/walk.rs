//! KEYS and RANDOMKEY: pages of SCAN, one behind the other, until all keys were passed or one was
//! found. No more than one page is under way, and what was found is bounded by the reply.

use crate::limits::{KEY_BYTES_MAX, SCAN_BYTES_MAX, SCAN_ENTRIES_MAX};
use crate::request::BatchRequest;
use crate::scan::{ScanPage, ScanRequest};
use crate::status::Status;

use super::answer::{self, ItemAnswer};
use super::bound::ReplyBound;
use super::glob;
use super::host::Host;
use super::pattern::Pattern;
use super::reply::Replies;
use super::scan::{
    cursor_at, cursor_within, is_inside_slot, long_cursor, short_cursor, slot_of_cursor,
};

/// Which keys are walked to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Aim {
    /// All that match the pattern.
    All(Box<[u8]>),
    /// Any one: the first behind a place that follows from this number.
    One(u64),
}

/// How a walk goes on behind a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Another page is to be read.
    Next,
    /// The reply is written.
    Done,
}

/// A walk under way.
#[derive(Debug)]
pub(super) struct Walk {
    aim: Aim,
    /// Where the next page begins, short.
    cursor: u64,
    order: u64,
    /// The walk to any one key has begun anew at the first slot.
    has_turned: bool,
    /// The keys that were found, as they stand in the reply, and how many.
    found: Vec<u8>,
    count: usize,
}

impl Walk {
    /// A walk over what the port stands for.
    pub(super) fn new(aim: Aim, host: &dyn Host) -> Self {
        let (share, order) = (host.share(), host.scan_order());
        let cursor = match aim {
            Aim::All(_) => cursor_at(*share.start(), order),
            Aim::One(number) => {
                let slots = u64::from(share.end() - share.start()) + 1;
                let slot = u16::try_from((number >> 32) % slots).expect("a slot");
                // The low half is a place among the hashes of the slot.
                let place = u32::try_from(number & u64::from(u32::MAX)).expect("32 bits");
                cursor_within(share.start() + slot, place, order)
            }
        };
        Walk {
            aim,
            cursor,
            order,
            has_turned: false,
            found: Vec::new(),
            count: 0,
        }
    }

    /// Whether no key can match.
    pub(super) fn is_vain(&self) -> bool {
        self.prefix().len() > KEY_BYTES_MAX
    }

    /// Bytes of memory that it keeps.
    pub(super) fn found_bytes(&self) -> usize {
        self.found.capacity()
    }

    /// Bytes of its pattern.
    pub(super) fn pattern_bytes(&self) -> usize {
        match &self.aim {
            Aim::All(pattern) => pattern.len(),
            Aim::One(_) => 0,
        }
    }

    /// Drops what was found.
    pub(super) fn forget(&mut self) {
        (self.found, self.count) = (Vec::new(), 0);
    }

    fn prefix(&self) -> &[u8] {
        match &self.aim {
            Aim::All(pattern) => glob::literal_prefix(pattern),
            Aim::One(_) => &[],
        }
    }

    /// Adds the item that asks for the next page.
    pub(super) fn send(&self, batch: &mut BatchRequest, out: &mut Vec<u8>) {
        let request = ScanRequest {
            cursor: long_cursor(self.cursor, self.order),
            prefix: self.prefix(),
            entries_max: match self.aim {
                Aim::All(_) => SCAN_ENTRIES_MAX,
                Aim::One(_) => 1,
            },
            bytes_max: SCAN_BYTES_MAX,
            wants_values: false,
            wants_types: false,
        };
        batch.scan(out, &request);
    }

    /// Takes an answer to the item; writes the reply if that was the last one.
    pub(super) fn answered(
        &mut self,
        answer: ItemAnswer<'_>,
        bound: Option<ReplyBound>,
        replies: &mut Replies<'_>,
    ) -> Step {
        let slot = slot_of_cursor(self.cursor);
        let next = match answer.item.head.status {
            Status::Ok => match ScanPage::read(answer.item.value) {
                Ok(page) => {
                    self.take(&page, replies);
                    let cursor = short_cursor(page.cursor);
                    answer::cursor_behind_page(cursor, answer.host)
                }
                Err(_) => {
                    replies.error(b"ERR a page of keys has another form than expected");
                    return Step::Done;
                }
            },
            // Some keys of the slot were told, so the rest may not be passed over.
            Status::Moved if matches!(self.aim, Aim::All(_)) && is_inside_slot(self.cursor) => {
                let text = format!(
                    "TRYAGAIN slot {slot} went to another node while its keys were collected"
                );
                replies.error(text.as_bytes());
                return Step::Done;
            }
            Status::Moved => match answer::cursor_behind_others(slot, answer.host) {
                Ok(cursor) => cursor,
                Err(text) => {
                    replies.error(text.as_bytes());
                    return Step::Done;
                }
            },
            _ => {
                answer::failed(answer, slot, replies);
                return Step::Done;
            }
        };
        match &self.aim {
            Aim::All(_) => self.behind_page(next, bound, replies),
            Aim::One(_) if self.count > 0 => Step::Done,
            Aim::One(_) if next > 0 => self.goes_on(next),
            Aim::One(_) if self.has_turned => {
                replies.null();
                Step::Done
            }
            Aim::One(_) => {
                self.has_turned = true;
                self.goes_on(cursor_at(*answer.host.share().start(), self.order))
            }
        }
    }

    fn goes_on(&mut self, cursor: u64) -> Step {
        self.cursor = cursor;
        Step::Next
    }

    fn behind_page(
        &mut self,
        next: u64,
        bound: Option<ReplyBound>,
        replies: &mut Replies<'_>,
    ) -> Step {
        if let Some(bound) = bound.filter(|bound| self.found.len() > bound.bytes_max()) {
            let (count, bytes) = (self.count, self.found.len());
            self.forget();
            let text = format!(
                "ERR KEYS: {count} keys that match take {bytes} bytes already, and {bound}; SCAN \
                 tells any number of keys"
            );
            replies.error(text.as_bytes());
            return Step::Done;
        }
        if next > 0 {
            return self.goes_on(next);
        }
        replies.array(self.count);
        replies.raw(&self.found);
        self.forget();
        Step::Done
    }

    fn take(&mut self, page: &ScanPage<'_>, replies: &mut Replies<'_>) {
        let mut keys = page.entries().map(|entry| entry.key);
        match &self.aim {
            Aim::One(_) => {
                if let Some(key) = keys.next() {
                    self.count = 1;
                    replies.bulk(key);
                }
            }
            Aim::All(pattern) => {
                let (protocol, pattern) = (replies.protocol(), Pattern::new(pattern));
                for key in keys.filter(|key| pattern.matches(key)) {
                    self.count += 1;
                    Replies::new(&mut self.found, protocol).bulk(key);
                }
            }
        }
    }
}
