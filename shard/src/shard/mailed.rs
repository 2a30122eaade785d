//! Items that other shards sent: they run here in their order, and their answers go back by mail.
//!
//! Neighbours of one request that repeat one another run as they do in a batch: nothing comes
//! between them here either.

use penstock_net::pieces::Pieces;
use penstock_net::request::{likely_key, may_begin_run, may_repeat};
use penstock_storage::io::Blocks;
use penstock_storage::planted::{Bug, is_planted};
use penstock_storage::store::PREFETCH_KEYS_MAX;

use crate::busy::Told;
use crate::mail::{MailedRequest, RequestMail};
use crate::replica_waits::ReplicaReply;
use crate::replication::Waiting;
use crate::requests::mailboxes::bytes_beyond_kept;
use crate::requests::parking::Origin;

use super::look_ahead::is_same;
use super::operation::{Known, Operation, Step};
use super::runs::ItemsBehind;
use super::window::{Ahead, Homes, LookAhead};
use super::{Now, Shard};

impl<P: Blocks> Shard<P> {
    /// Runs the items that another shard sent. Items without room for their answers are held.
    pub(super) fn execute_mail(&mut self, now: Now, mail: &RequestMail) {
        let mut next = 0;
        let mut ahead = LookAhead::new();
        while next < mail.items.len() {
            if !ahead.covers(next) {
                self.look_at_mail(mail, next, &mut ahead);
            }
            next += self.execute_mailed(now, mail, next, ahead.known(next));
        }
    }

    /// Looks at the items of a mail from `next` on, and starts loading what they will look up.
    fn look_at_mail<'m>(&self, mail: &'m RequestMail, next: usize, ahead: &mut LookAhead<'m>) {
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
                    homes.push((slot, hash), |all| self.store.prefetch(all));
                    Known { key, slot, hash }
                }
            });
            *into = Ahead { known, plain: None };
            last = known.or(last);
        }
        self.store.prefetch(homes.all());
    }

    /// Runs the item at this place of a mail, and with it those behind it that repeat it. Returns
    /// how many they are.
    fn execute_mailed(
        &mut self,
        now: Now,
        mail: &RequestMail,
        at: usize,
        known: Option<Known<'_>>,
    ) -> usize {
        let (request, item) = (&mail.items[at], mail.item(at));
        let operation = Operation {
            origin: Origin::Shard(mail.from),
            address: request.address,
            level: request.level,
            deadline_us: request.deadline_us,
            came_us: request.came_us,
            item,
            brought: None,
            known,
            // The shard of its connection has judged it.
            rights: None,
            program: None,
        };
        let may_run = self.may_run_mailed(mail.from, request, item);
        if !may_run || self.is_held_back(now, request.deadline_us, item) {
            let held = operation.parked(request.slot, 0);
            self.requests.mail.hold(mail.from, held);
            return 1;
        }
        let mut out = self.requests.take_scratch();
        let mut count = 1;
        let waits = self.replica_waits.begun();
        let step = self.operation(now, &operation, &mut out);
        let has_begun_to_wait = self.replica_waits.begun() > waits;
        if let Some(told) = self.told(&step) {
            let mail_to = &mut self.requests.mail;
            mail_to.answer(mail.from, request.address, told, &out);
            if matches!(step, Step::Answered(_)) && mail.is_repeated(at) {
                count += self.execute_behind(now, mail, at, &mut out);
            }
            self.stats
                .answer_at_once(now.us, request.came_us, count as u64);
            self.stats.execute_for_other(count as u64);
        } else if matches!(step, Step::Postponed) {
            let postponed = operation.parked(request.slot, 0);
            self.requests.postponed.push(postponed);
        } else if has_begun_to_wait && mail.is_repeated(at) {
            count += self.execute_waiting(now, mail, at);
        }
        self.requests.give_scratch(out);
        count
    }

    /// Runs the items that repeat the one at this place, whose answer has begun to wait for
    /// members. They wait with it. Returns how many they are.
    #[cold]
    fn execute_waiting(&mut self, now: Now, mail: &RequestMail, at: usize) -> usize {
        let mail_to = &self.requests.mail;
        if !mail_to.may_run(mail.from, self.phase.is_stopping()) {
            return 0;
        }
        let room_bytes = mail_to.room_for_answers(mail.from);
        let Some(waiting) = self.take_newest_wait() else {
            return 0;
        };
        let Waiting {
            partition,
            deadline_us,
            mut whom,
            ..
        } = waiting;
        let answer = 0..whom.item.len();
        let mut behind = BehindInMailWait {
            mail,
            last: at,
            end: answer.end,
            whom: &mut whom,
            room: self.replica_waits.room(),
            room_bytes,
        };
        self.answer_behind(now, None, mail.item(at), answer, &mut behind);
        let count = whom.behind.len();
        self.wait_for_members(partition, deadline_us, whom);
        count
    }

    /// Runs the items that repeat the one at this place, whose answer is all of `out`. Returns how
    /// many they are.
    fn execute_behind(
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
        let told = Told::behind(gate.unwrap_or_default());
        let mut answers = out.reader();
        answers.skip(first_bytes);
        let mut start = first_bytes;
        for (request, end) in mail.items[at + 1..].iter().zip(&ends) {
            let mail_to = &mut self.requests.mail;
            mail_to.answer_part(mail.from, request.address, told, end - start, &mut answers);
            start = *end;
        }
        let count = ends.len();
        ends.clear();
        self.requests.run_ends = ends;
        count
    }

    /// Whether an item of another shard may run now: there is room for its answer, and nothing that
    /// it must not pass waits.
    fn may_run_mailed(&self, from: u16, request: &MailedRequest, item: &[u8]) -> bool {
        if !self.requests.postponed.is_empty() {
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
    fn item(&self, at: usize) -> &[u8] {
        let start = at.checked_sub(1).map_or(0, |before| self.items[before].end);
        &self.bytes[start as usize..self.items[at].end as usize]
    }

    /// Whether the item behind this one may repeat it: both are of one request.
    fn is_repeated(&self, at: usize) -> bool {
        let Some(next) = self.items.get(at + 1) else {
            return false;
        };
        let (one, other) = (&self.items[at].address, &next.address);
        let is_of_request = one.session == other.session && one.request_id == other.request_id;
        is_of_request
            && may_begin_run(self.item(at))
            && may_repeat(self.item(at), self.item(at + 1))
    }
}

/// The items of a mail behind the one that was answered last.
struct BehindInMail<'o, 'm> {
    mail: &'m RequestMail,
    last: usize,
    /// The answers of the run, from the one of its first item on.
    out: &'o mut Pieces,
    /// Where the answer before the next one ends.
    end: usize,
    /// Where each answer behind the first one ends.
    ends: Vec<usize>,
    /// Bytes that are left for answers beyond those that the asking shard keeps free for them.
    room: usize,
}

impl<'m> ItemsBehind<'m> for BehindInMail<'_, 'm> {
    #[inline]
    fn next(&self) -> Option<(u16, &'m [u8])> {
        let next = self.last + 1;
        self.mail
            .is_repeated(self.last)
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
struct BehindInMailWait<'o, 'm> {
    mail: &'m RequestMail,
    last: usize,
    whom: &'o mut ReplicaReply,
    /// Where the last answer ends.
    end: usize,
    /// How many more answers may wait.
    room: usize,
    /// Bytes that are left for answers beyond those that the asking shard keeps free for them.
    room_bytes: usize,
}

impl<'m> ItemsBehind<'m> for BehindInMailWait<'_, 'm> {
    #[inline]
    fn next(&self) -> Option<(u16, &'m [u8])> {
        let next = self.last + 1;
        let has_room = self.whom.count() < self.room && self.room_bytes > 0;
        (has_room && self.mail.is_repeated(self.last))
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
