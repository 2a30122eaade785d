//! Answers of operations that may have run behind a lease do not leave.

use penstock_storage::io::Blocks;

use crate::event::Outbox;
use crate::mail::Mail;
use crate::now::Now;
use crate::shard::Shard;

impl<P: Blocks> Shard<P> {
    /// A turn has ended, and `now` was read behind it: nothing of the outbox may have left. If a
    /// lease was over before, the connections with answers that have not left are ended.
    pub fn end_turn(&mut self, now: Now, outbox: &mut Outbox<P::Block>) {
        if !self.execution.is_unchecked() {
            return;
        }
        if !self.check_leases(now) {
            for (_, mail) in &mut outbox.mail {
                if let Mail::Replies(mail) = mail {
                    mail.items.iter_mut().for_each(|it| it.is_void = true);
                }
            }
        }
        self.front.close_voided(outbox);
    }

    /// Whether all ran under its lease that has run since the last check. Otherwise all answers are
    /// void that have not left.
    pub(super) fn check_leases(&mut self, now: Now) -> bool {
        let Some(linked) = &mut self.execution.linked else {
            return true;
        };
        let are_covered = linked.check_leases(now.us, &self.execution.store);
        if !are_covered {
            self.front.sessions.void_unsent();
            self.execution.requests.mail.void_unsent();
        }
        are_covered
    }
}
