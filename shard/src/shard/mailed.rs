//! Items that other shards sent: they run here in their order, and their answers go back by mail.
//!
//! Neighbours of one request that repeat one another run as they do in a batch: nothing comes
//! between them here either.

use penstock_storage::io::Blocks;

use crate::execution::mailed::BehindInMailWait;
use crate::execution::operation::{Disposition, Known, Operation};
use crate::execution::window::Upcoming;
use crate::mail::RequestMail;
use crate::now::Now;
use crate::replication::Waiting;
use crate::requests::parking::{Order, Origin};
use crate::shard::Shard;

impl<P: Blocks> Shard<P> {
    /// Runs the items that another shard sent. Items without room for their answers are held.
    pub(super) fn execute_mail(&mut self, now: Now, mail: &RequestMail) {
        let mut next = 0;
        let mut ahead = Upcoming::new();
        self.execution.slice.begin();
        while next < mail.items.len() {
            if !ahead.covers(next) {
                self.execution.prefetch_mail(mail, next, &mut ahead);
            }
            next += self.execute_mailed(now, mail, next, ahead.known(next));
        }
        self.goes_on_behind_slice();
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
            answer: None,
            order: Order::OfAll,
        };
        let may_run = self.execution.may_run_mailed(mail.from, request, item);
        if !may_run || self.execution.is_held_back(now, request.deadline_us, item) {
            let held = operation.parked(request.slot, 0);
            self.execution.requests.mail.hold(mail.from, held);
            return 1;
        }
        let mut out = self.execution.requests.take_scratch();
        let mut count = 1;
        let waits = self.execution.replica_waits.begun();
        let disposition = self.operation(now, &operation, &mut out);
        let has_begun_to_wait = self.execution.replica_waits.begun() > waits;
        if let Some(terms) = self.execution.terms(&disposition) {
            let mail_to = &mut self.execution.requests.mail;
            mail_to.answer(mail.from, request.address, terms, &out);
            if matches!(disposition, Disposition::Answered(_))
                && mail.is_followed(at, out.written())
            {
                count += self.execution.execute_behind(now, mail, at, &mut out);
            }
            self.execution
                .stats
                .answer_at_once(now.us, request.came_us, count as u64);
            self.execution.stats.execute_for_other(count as u64);
        } else if matches!(disposition, Disposition::Postponed) {
            let postponed = operation.parked(request.slot, 0);
            self.execution.requests.postponed.push(postponed);
        } else if has_begun_to_wait
            && mail.is_followed(at, self.execution.replica_waits.newest_answer())
        {
            count += self.execute_waiting(now, mail, at);
        }
        self.execution.requests.give_scratch(out);
        count
    }

    /// Runs the items that repeat the one at this place, whose answer has begun to wait for
    /// members. They wait with it. Returns how many they are.
    #[cold]
    fn execute_waiting(&mut self, now: Now, mail: &RequestMail, at: usize) -> usize {
        let mail_to = &self.execution.requests.mail;
        if !mail_to.may_run(mail.from, self.execution.phase.is_stopping()) {
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
            room: self.execution.replica_waits.room(),
            room_bytes,
        };
        self.execution
            .answer_behind(now, None, mail.item(at), answer, &mut behind);
        let count = whom.behind.len();
        self.wait_for_members(partition, deadline_us, whom);
        count
    }
}
