//! Runs: items of a request that repeat the one before them are answered together with it. They
//! stand in one batch, here, or came from another shard in one mail.
//!
//! The first item of a run goes the way of every item. Its answer tells that it was executed here
//! and at once, and at which level. Nothing comes between it and the items behind it, so all that
//! was asked on that way has the same answer for them: the deadline, the owner of the slot, what
//! waits before it, the settings of its keyspace, the part of this node in a cluster. A denied item
//! may be followed by items with other keys; [`crate::execution::verbs::repeat_denials`] asks what
//! those keys can change.

use penstock_net::batch::Batch;
use penstock_storage::io::Blocks;

use crate::execution::batch_run::{BatchRun, Passed, Progress};
use crate::execution::repeats::{BehindInWait, is_followed};
use crate::now::Now;
use crate::replication::Waiting;
use crate::shard::Shard;

impl<P: Blocks> Shard<P> {
    /// Answers the items behind one whose answer has just begun to wait for members, as long as
    /// they repeat it: all of them share a record, and wait together.
    #[cold]
    pub(super) fn go_on_waiting(
        &mut self,
        now: Now,
        run: &mut BatchRun,
        batch: Batch<'_>,
    ) -> Passed {
        let next = run.next + 1;
        let answer = self.execution.replica_waits.newest_answer();
        if next >= batch.len() || !is_followed(batch.item(run.next), answer, batch.item(next)) {
            return Passed::On;
        }
        let Some(waiting) = self.take_newest_wait() else {
            return Passed::On;
        };
        let Waiting {
            partition,
            deadline_us,
            mut whom,
            ..
        } = waiting;
        let (rights, item) = (run.rights.take(), batch.item(run.next));
        let answer = 0..whom.item.len();
        let mut behind = BehindInWait {
            run,
            batch,
            end: answer.end,
            whom: &mut whom,
            room: self.execution.replica_waits.room(),
            full_bytes: self.execution.setup.frame_full_bytes(),
        };
        self.execution
            .answer_behind(now, rights.as_deref(), item, answer, &mut behind);
        run.rights = rights;
        run.owes(whom.behind.len());
        self.wait_for_members(partition, deadline_us, whom);
        match self.front.sessions.has_room_for_replies(run.session()) {
            true => Passed::On,
            false => Passed::Stop(Progress::NoRoom),
        }
    }
}
