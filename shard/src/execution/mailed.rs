//! Items that other shards sent, before they run, and the runs among them.

use penstock_net::item::ItemForm;
use penstock_net::pieces::Pieces;
use penstock_net::request::{likely_key, may_begin_run};
use penstock_storage::io::Blocks;
use penstock_storage::key_home::KeyHome;
use penstock_storage::planted::{Bug, is_planted};
use penstock_storage::store::PREFETCH_KEYS_MAX;

use crate::accounts::busy::AnswerTerms;
use crate::execution::Execution;
use crate::execution::operation::Known;
use crate::execution::prefetch_items::is_same;
use crate::execution::repeats::{ItemsBehind, is_followed};
use crate::execution::window::{Ahead, Homes, Upcoming};
use crate::mail::{MailedRequest, RequestMail};
use crate::now::Now;
use crate::replica_waits::ReplicaReply;
use crate::requests::mailboxes::bytes_beyond_kept;

impl<P: Blocks> Execution<P> {
    /// Looks at the items of a mail from `next` on, and starts loading what they will look up.
    pub(crate) fn prefetch_mail<'m>(
        &self,
        mail: &'m RequestMail,
        next: usize,
        ahead: &mut Upcoming<'m>,
    ) {
        let count = PREFETCH_KEYS_MAX.min(mail.items.len() - next);
        let mut homes = Homes::default();
        let mut last: Option<Known<'m>> = None;
        for (at, into) in (next..).zip(ahead.begin(next, count)) {
            let slot = mail.items[at].slot;
            let known = likely_key(mail.item(at)).map(|key| match last {
                // The slot of a KEYSPACE or SCAN is not that of the key that its prefix is.
                Some(last) if last.slot == slot && is_same(last.key, key) => Known { key, ..last },
                _ => {
                    let hash = self.setup.hash().of(key);
                    homes.push(KeyHome { slot, hash }, |all| {
                        self.store.keys().prefetch(all)
                    });
                    Known { key, slot, hash }
                }
            });
            *into = Ahead { known, plain: None };
            last = known.or(last);
        }
        self.store.keys().prefetch(homes.all());
    }

    /// Runs the items that repeat the one at this place, whose answer is all of `out`. Returns how
    /// many they are.
    pub(crate) fn execute_behind(
        &mut self,
        now: Now,
        mail: &RequestMail,
        at: usize,
        out: &mut Pieces,
    ) -> usize {
        let mail_to = &self.requests.mail;
        if !mail_to.may_run(mail.from, self.phase.is_stopping()) {
            return 0;
        }
        let room = mail_to.room_for_answers(mail.from);
        let first_bytes = out.len();
        let mut behind = BehindInMail {
            mail,
            last: at,
            out,
            end: first_bytes,
            ends: std::mem::take(&mut self.requests.run_ends),
            room,
        };
        let gate = self.answer_behind(now, None, mail.item(at), 0..first_bytes, &mut behind);
        let mut ends = behind.ends;
        let terms = AnswerTerms::behind(gate.unwrap_or_default());
        let mut answers = out.reader();
        answers.skip(first_bytes);
        let mut start = first_bytes;
        for (request, end) in mail.items[at + 1..].iter().zip(&ends) {
            let mail_to = &mut self.requests.mail;
            mail_to.answer_part(mail.from, request.address, terms, end - start, &mut answers);
            start = *end;
        }
        let count = ends.len();
        ends.clear();
        self.requests.run_ends = ends;
        count
    }

    /// Whether an item of another shard may run now: there is room for its answer, and nothing that
    /// it must not pass waits.
    pub(crate) fn may_run_mailed(&self, from: u16, request: &MailedRequest, item: &[u8]) -> bool {
        let is_script = || ItemForm::of(item) == ItemForm::Script;
        if !self.requests.postponed.is_empty() || self.slice.is_over() && is_script() {
            return false;
        }
        let mail = &self.requests.mail;
        if mail.may_run(from, self.phase.is_stopping()) {
            return true;
        }
        // The asking shard keeps room for an answer that fits.
        let has_held = mail.holds_of(from, &request.address.session);
        let kept = request.address.answer_bytes as usize;
        (!has_held || is_planted(Bug::PassHeld)) && !self.asks_for_much(item, kept)
    }
}

impl RequestMail {
    /// The bytes of the item at this place.
    pub(crate) fn item(&self, at: usize) -> &[u8] {
        let start = at.checked_sub(1).map_or(0, |before| self.items[before].end);
        &self.bytes[start as usize..self.items[at].end as usize]
    }

    /// Whether the item behind this one may be answered with it: both are of one request, and this
    /// one has that answer.
    pub(crate) fn is_followed(&self, at: usize, answer: &[u8]) -> bool {
        self.goes_on(at)
            && may_begin_run(self.item(at))
            && is_followed(self.item(at), answer, self.item(at + 1))
    }

    /// Whether there is an item behind this one, of the same request.
    fn goes_on(&self, at: usize) -> bool {
        let one = &self.items[at].address;
        self.items.get(at + 1).is_some_and(|next| {
            let other = &next.address;
            one.session == other.session && one.request_id == other.request_id
        })
    }
}

/// The items of a mail behind the one that was answered last.
pub(crate) struct BehindInMail<'o, 'm> {
    pub(crate) mail: &'m RequestMail,
    pub(crate) last: usize,
    /// The answers of the run, from the one of its first item on.
    pub(crate) out: &'o mut Pieces,
    /// Where the answer before the next one ends.
    pub(crate) end: usize,
    /// Where each answer behind the first one ends.
    pub(crate) ends: Vec<usize>,
    /// Bytes that are left for answers beyond those that the asking shard keeps free for them.
    pub(crate) room: usize,
}

impl<'m> ItemsBehind<'m> for BehindInMail<'_, 'm> {
    #[inline]
    fn next(&self) -> Option<(u16, &'m [u8])> {
        let next = self.last + 1;
        self.mail
            .goes_on(self.last)
            .then(|| (self.mail.items[next].address.item, self.mail.item(next)))
    }

    #[inline]
    fn out(&mut self) -> &mut Vec<u8> {
        self.out.written()
    }

    #[inline]
    fn answered(&mut self) -> bool {
        self.last += 1;
        let bytes = self.out.len() - self.end;
        self.end += bytes;
        self.ends.push(self.end);
        let address = &self.mail.items[self.last].address;
        self.room = self.room.saturating_sub(bytes_beyond_kept(bytes, address));
        self.room > 0
    }
}

/// The items of a mail behind the one whose answer waits for members.
pub(crate) struct BehindInMailWait<'o, 'm> {
    pub(crate) mail: &'m RequestMail,
    pub(crate) last: usize,
    pub(crate) whom: &'o mut ReplicaReply,
    /// Where the last answer ends.
    pub(crate) end: usize,
    /// How many more answers may wait.
    pub(crate) room: usize,
    /// Bytes that are left for answers beyond those that the asking shard keeps free for them.
    pub(crate) room_bytes: usize,
}

impl<'m> ItemsBehind<'m> for BehindInMailWait<'_, 'm> {
    #[inline]
    fn next(&self) -> Option<(u16, &'m [u8])> {
        let next = self.last + 1;
        let has_room = self.whom.count() < self.room && self.room_bytes > 0;
        (has_room && self.mail.goes_on(self.last))
            .then(|| (self.mail.items[next].address.item, self.mail.item(next)))
    }

    #[inline]
    fn out(&mut self) -> &mut Vec<u8> {
        self.whom.item.written()
    }

    #[inline]
    fn answered(&mut self) -> bool {
        self.last += 1;
        let address = self.mail.items[self.last].address;
        self.whom.join(address, self.end);
        let bytes = self.whom.item.len() - self.end;
        self.end += bytes;
        self.room_bytes = self
            .room_bytes
            .saturating_sub(bytes_beyond_kept(bytes, &address));
        true
    }
}
