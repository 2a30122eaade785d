//! The ends of disk requests: each goes to the part of the shard that asked.

use penstock_storage::io::{Asker, Blocks, Completion};

use crate::event::Outbox;
use crate::now::Now;
use crate::shard::Shard;

use super::Fatal;

impl<P: Blocks> Shard<P> {
    /// Hands the end of a read, write or sync to the part of the shard that asked for it.
    pub(super) fn completed(
        &mut self,
        now: Now,
        completion: Completion<P::Block>,
        outbox: &mut Outbox<P::Block>,
    ) {
        self.execution.phase.note_progress(true);
        match completion.token.asker {
            Asker::LogWrite | Asker::LogSync => self.log_written(now, completion, outbox),
            Asker::Cleaning => self.execution.store.cleaning_mut().read(completion),
            Asker::Scrub => self.execution.store.scrub_read(now.us, completion),
            Asker::Operation => self.key_read(now, &completion, outbox),
            Asker::Scan => self.execution.scan_read(&completion, outbox),
            Asker::Link => {
                if let Some(links) = self.execution.links() {
                    links.read(completion);
                }
            }
        }
    }

    /// The log is durable up to a later record, or the shard must end.
    fn log_written(
        &mut self,
        now: Now,
        completion: Completion<P::Block>,
        outbox: &mut Outbox<P::Block>,
    ) {
        let before = self.execution.store.log().durable();
        if let Err(poisoned) = self.execution.store.log_mut().completed(now.us, completion) {
            let fatal = Fatal::Log {
                shard: self.execution.setup.shard(),
                poisoned,
                durable: before,
            };
            self.execution.phase.end(fatal);
            outbox.fatal = Some(fatal);
            return;
        }
        if self.execution.store.log().durable() > before {
            // Operations that wait for a version to be in a file run before the turn ends.
            self.execution.store.settle_young();
            let durable = self.execution.store.log().durable();
            self.front.sessions.release(durable, &mut outbox.sendable);
        }
    }
}
