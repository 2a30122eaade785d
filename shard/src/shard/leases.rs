//! Answers of operations that may have run behind a lease do not leave.

use penstock_storage::io::Blocks;

use crate::mail::Mail;

use super::{Now, Outbox, Shard};

/// Why such connections end.
const ENDED: &str = "what it asked for may have run when the lease of this node was over: whether \
                     it was executed is unknown";

impl<P: Blocks> Shard<P> {
    /// Whether something may have run under a lease since the last look at the leases behind it.
    /// Always `false` of a node without leases.
    #[inline]
    #[must_use]
    pub fn is_unchecked(&self) -> bool {
        self.linked.as_ref().is_some_and(|it| it.is_unchecked())
    }

    /// A turn has ended, and `now` was read behind it: nothing of the outbox may have left. If a
    /// lease was over before, the connections with answers that have not left are ended.
    pub fn end_turn(&mut self, now: Now, outbox: &mut Outbox<P::Block>) {
        if !self.is_unchecked() {
            return;
        }
        if !self.check_leases(now) {
            for (_, mail) in &mut outbox.mail {
                if let Mail::Replies(mail) = mail {
                    mail.items.iter_mut().for_each(|it| it.is_void = true);
                }
            }
        }
        self.close_voided(outbox);
    }

    /// Notes that answers for other shards are not to leave before the check.
    pub(super) fn owe_check(&mut self, outbox: &Outbox<P::Block>) {
        if let Some(linked) = &mut self.linked
            && outbox
                .mail
                .iter()
                .any(|(_, mail)| matches!(mail, Mail::Replies(_)))
        {
            linked.owe_check();
        }
    }

    /// Whether all ran under its lease that has run since the last check. Otherwise all answers are
    /// void that have not left.
    pub(super) fn check_leases(&mut self, now: Now) -> bool {
        let Some(linked) = &mut self.linked else {
            return true;
        };
        let are_covered = linked.check_leases(now.us, &self.store);
        if !are_covered {
            self.sessions.void_unsent();
            self.requests.mail.void_unsent();
        }
        are_covered
    }

    /// Has the connections ended whose answers are void.
    pub(super) fn close_voided(&mut self, outbox: &mut Outbox<P::Block>) {
        let voided = self.sessions.take_voided();
        outbox.close.extend(voided.map(|id| (id, ENDED)));
    }
}
