//! Reads of the disk: of cold keys and of cleaning, and what becomes of them.

use penstock_net::reply::ReplyHead;
use penstock_net::request::Version;
use penstock_net::status::Status;
use penstock_storage::io::{Blocks, Completion, IoToken};
use penstock_storage::key_home::KeyHome;
use penstock_storage::place::Lsn;
use penstock_storage::planted::{Bug, is_planted};

use crate::accounts::busy::AnswerTerms;
use crate::execution::operation::Operation;
use crate::execution::reads::Admitted;
use crate::execution::reads::bytes_read;
use crate::execution::verbs::Cold;
use crate::requests::parking::{Finished, Parked, Waiter};
use crate::shard::Shard;
use crate::step::Step;

impl<P: Blocks> Shard<P> {
    /// A read for parked operations ended. Their keys come into the cache, and the operations run.
    /// A read that brought something wrong is done once more, block by block.
    pub(super) fn key_read(
        &mut self,
        step: &mut Step<'_, P::Block>,
        completion: &Completion<P::Block>,
    ) {
        let token = completion.token;
        let brought = self.execution.requests.parking.again(token);
        let read = bytes_read(completion, brought);
        let (again, bad);
        let (bytes, bad) = if brought.is_none() {
            let bad = read.err().map(|failure| (0, failure));
            (read.unwrap_or_default(), Vec::from_iter(bad))
        } else if self.execution.requests.parking.add_block(token, read) {
            (again, bad) = self.execution.requests.parking.take_again(token);
            (&again[..], bad)
        } else {
            return;
        };
        let admitted = self.execution.admit_read(token, bytes, &bad);
        let has_failed = admitted.iter().any(Result::is_err);
        if has_failed && brought.is_none() && !is_planted(Bug::ReadOnce) {
            self.execution.stats.read_again();
            self.execution.requests.parking.read_again(token);
            return;
        }
        self.run_waiters(step, token, bytes, admitted);
    }

    /// Runs the operations that waited for a read, or tells them why their key cannot be read.
    pub(super) fn run_waiters(
        &mut self,
        step: &mut Step<'_, P::Block>,
        token: IoToken,
        bytes: &[u8],
        mut admitted: Vec<Result<Admitted, (Status, String)>>,
    ) {
        let Finished {
            colds,
            waiters,
            ends_pin,
        } = self.execution.requests.parking.finished(token);
        for (cold, admitted) in colds.iter().zip(&admitted) {
            if let Err((status, _)) = admitted {
                let home = cold.home();
                self.execution
                    .chores
                    .note_bad_place(home, cold.place, *status);
                self.execution.firing.note_unread(home);
                self.execution.joint.note_unread(home);
            }
        }
        for cold in &colds {
            self.execution.learn_horizon(cold.slot);
        }
        if ends_pin {
            // The operation that the keys are kept for runs before anything leaves.
            self.execution.store.data_mut().pin(None);
        }
        // The waiters are older than the postponed operations: they were parked before those, or
        // taken from their front. So waiters that find no room go to the front of the postponed
        // operations, in their order.
        let mut kept = 0;
        for waiter in waiters {
            let Waiter {
                number,
                is_behind,
                mut parked,
            } = waiter;
            self.front.renew_rights(&mut parked);
            let is_denied = self.execution.is_denied(&Operation::of(&parked));
            match &mut admitted[number] {
                Err((status, message)) if !is_behind && !is_denied => {
                    self.answer_unread(step, parked, *status, message);
                }
                admitted if kept == 0 => {
                    let brought = admitted.as_ref().ok().map(|it| (it.place, bytes));
                    if let Some(parked) = self.run_detached(step, parked, brought) {
                        self.execution.requests.postponed.insert(0, parked);
                        kept = 1;
                    }
                    if let Ok(admitted) = admitted
                        && std::mem::take(&mut admitted.is_new)
                    {
                        let Cold { slot, hash, .. } = colds[number];
                        self.execution
                            .store
                            .keys_mut()
                            .forget_use(KeyHome { slot, hash });
                    }
                }
                _ => {
                    self.execution.requests.postponed.insert(kept, parked);
                    kept += 1;
                }
            }
        }
    }

    /// Answers an operation whose key cannot be read.
    fn answer_unread(
        &mut self,
        step: &mut Step<'_, P::Block>,
        mut parked: Parked,
        status: Status,
        message: &str,
    ) {
        let asked = self.execution.asked_by(&parked.item);
        self.execution.stats.answer(asked, status);
        self.execution
            .stats
            .answer_later(step.now.us, parked.came_us);
        let mut out = Vec::new();
        let item = parked.address.item;
        ReplyHead::new(status, item, parked.level, Version::default())
            .write_message(&mut out, &message);
        self.unreserve(&mut parked);
        let terms = AnswerTerms::behind(Lsn(0));
        self.answer_detached(
            parked.origin,
            parked.address,
            terms,
            &out.into(),
            step.outbox,
        );
    }
}
