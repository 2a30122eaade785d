//! The ends of disk requests: each goes to the part of the shard that asked.

use penstock_storage::io::{Asker, Blocks, Completion};

use crate::shard::Shard;
use crate::step::Step;

use super::Fatal;

impl<P: Blocks> Shard<P> {
    /// Hands the end of a read, write or sync to the part of the shard that asked for it.
    pub(super) fn completed(
        &mut self,
        step: &mut Step<'_, P::Block>,
        completion: Completion<P::Block>,
    ) {
        self.execution.phase.note_progress(true);
        match completion.token.asker {
            Asker::LogWrite | Asker::LogSync => self.log_written(step, completion),
            Asker::Cleaning => self.execution.store.cleaning_mut().read(completion),
            Asker::Scrub => self.execution.store.scrub_read(step.now.us, completion),
            Asker::Operation => self.key_read(step, &completion),
            Asker::Scan => self.execution.scan_read(&completion, step.outbox),
            Asker::Link => {
                if let Some(links) = self.execution.links() {
                    links.read(completion);
                }
            }
        }
    }

    /// The log is durable up to a later record, or the shard must end.
    fn log_written(&mut self, step: &mut Step<'_, P::Block>, completion: Completion<P::Block>) {
        let before = self.execution.store.log().durable();
        if let Err(poisoned) = self
            .execution
            .store
            .log_mut()
            .completed(step.now.us, completion)
        {
            let fatal = Fatal::Log {
                shard: self.execution.setup.shard(),
                poisoned,
                durable: before,
            };
            self.execution.phase.end(fatal);
            step.outbox.fatal = Some(fatal);
            return;
        }
        if self.execution.store.log().durable() > before {
            // Operations that wait for a version to be in a file run before the turn ends.
            self.execution.store.settle_young();
            let durable = self.execution.store.log().durable();
            // Before the answers: what a client publishes behind its answer comes behind these.
            self.execution.publications.release(durable);
            self.front
                .sessions
                .release(durable, &mut step.outbox.sendable);
        }
    }
}
