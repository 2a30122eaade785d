//! Requests about keyspaces: one shard decides, all of them log and follow.

use penstock_net::keyspace::{begin_list, end_list, push_keyspace};
use penstock_net::refusal::KeyspaceName;
use penstock_net::reply::{REPLY_ITEM_BYTES, ReplyHead};
use penstock_net::request::Version;
use penstock_net::status::Status;
use penstock_storage::io::Blocks;
use penstock_storage::place::Lsn;

use crate::accounts::busy::AnswerTerms;
use crate::event::Outbox;
use crate::execution::settings::KEYSPACE;
use crate::keyspaces::{Change, Done, to_wire};
use crate::shard::Shard;
use crate::step::Step;

impl<P: Blocks> Shard<P> {
    /// Tells the caller of a change that other nodes have not logged it in time.
    pub(super) fn end_late_keyspace(&mut self, step: &mut Step<'_, P::Block>) {
        let Some(change) = self.execution.keyspaces.take_late(step.now.us) else {
            return;
        };
        let name = KeyspaceName::new(&change.prefix);
        let message = format!(
            "keyspace {name:?} is changed in a part of its partitions: a node that writes others \
             has not told in time, and changes it as soon as it hears of it"
        );
        self.leave_keyspace_open(&change, &message, step.outbox);
    }

    /// Answers a change that is not logged everywhere and goes on without its caller.
    fn leave_keyspace_open(
        &mut self,
        change: &Change,
        message: &str,
        outbox: &mut Outbox<P::Block>,
    ) {
        let status = Status::Indeterminate;
        self.execution.stats.answer(KEYSPACE, status);
        let mut out = Vec::new();
        let item = change.address.item;
        ReplyHead::new(status, item, change.level, Version::default())
            .write_message(&mut out, &message);
        let terms = AnswerTerms::behind(Lsn(0));
        self.answer_detached(change.origin, change.address, terms, &out.into(), outbox);
    }

    /// A shard has logged a change; the last one, or one that cannot, lets it be answered.
    pub(super) fn keyspace_done(&mut self, done: Done, outbox: &mut Outbox<P::Block>) {
        let Some(change) = self.execution.keyspaces.done(done) else {
            return;
        };
        let Done { revision, is_full } = done;
        let terms = AnswerTerms::behind(Lsn(0));
        if is_full {
            let name = KeyspaceName::new(&change.prefix);
            let message = format!(
                "the disk is full: keyspace {name:?} is changed in a part of its partitions, \
                 and in the others as soon as there is room"
            );
            return self.leave_keyspace_open(&change, &message, outbox);
        }
        self.execution.stats.answer(KEYSPACE, Status::Ok);
        let head = ReplyHead::new(
            Status::Ok,
            change.address.item,
            change.level,
            Version::default(),
        );
        let mut out = vec![0; REPLY_ITEM_BYTES];
        let list = begin_list(&mut out);
        let is_there = !change.settings.is_dropped;
        if is_there {
            push_keyspace(
                &mut out,
                &change.prefix,
                revision,
                &to_wire(&change.settings),
            );
        }
        end_list(&mut out, list, u32::from(is_there), false);
        head.patch(&mut out, 0);
        self.answer_detached(change.origin, change.address, terms, &out.into(), outbox);
    }
}
