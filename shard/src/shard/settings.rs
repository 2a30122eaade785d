//! Requests about keyspaces: one shard decides, all of them log and follow.

use std::fmt;

use penstock_net::keyspace::{Action, begin_list, end_list, push_keyspace};
use penstock_net::level::AckLevel;
use penstock_net::refusal::KeyspaceName;
use penstock_net::reply::{REPLY_ITEM_BYTES, ReplyHead};
use penstock_net::request::Version;
use penstock_net::status::Status;
use penstock_storage::io::Blocks;
use penstock_storage::keyspace::{KEYSPACES_MAX, SETTINGS_BYTES, Settings, keyspace_key};
use penstock_storage::log::Room;
use penstock_storage::place::Lsn;

use crate::answers::Asked;
use crate::keyspaces::{Change, Done, Keyspaces, from_wire, purpose_of, to_wire};
use crate::requests::parking::Origin;

use super::{Counters, Operation, Outbox, Shard, Step};

impl<P: Blocks> Shard<P> {
    /// Takes a change of a keyspace in, or tells all of them. This shard decides.
    #[cold]
    pub(super) fn keyspace(
        &mut self,
        origin: Origin,
        operation: Operation<'_>,
        prefix: &[u8],
        action: Action,
        out: &mut Vec<u8>,
    ) -> Step {
        let Operation { address, level, .. } = operation;
        let head = |status| ReplyHead::new(status, address.item, level, Version::default());
        let no =
            |counters: &mut Counters, out: &mut Vec<u8>, status, message: &dyn fmt::Display| {
                counters.answers.add(Asked::Keyspace, status);
                head(status).write_message(out, message);
            };
        // All that is told here stands in records that were appended.
        let logged = self.store.log().appended();
        if action == Action::List {
            let from = out.len();
            out.resize(from + REPLY_ITEM_BYTES, 0);
            let list = begin_list(out);
            let mut count = 0;
            let there = self.store.keyspaces().logged(&self.partitions);
            for (prefix, settings) in there.filter(|(_, settings)| !settings.is_dropped) {
                push_keyspace(out, prefix, settings.revision, &to_wire(settings));
                count += 1;
            }
            end_list(out, list, count, false);
            head(Status::Ok).patch(out, from);
            self.counters.answers.add(Asked::Keyspace, Status::Ok);
            return Step::Answered(self.gate(level, logged));
        }
        if self.keyspaces.is_changing() {
            self.counters.refused += 1;
            let message = "another keyspace is being changed";
            no(&mut self.counters, out, Status::Busy, &message);
            return Step::Answered(Lsn(0));
        }
        let keyspaces = self.store.keyspaces();
        let known = keyspaces.newest(prefix).copied();
        let exists = known.filter(|settings| !settings.is_dropped);
        // A change that found a disk full may be nowhere in the log yet.
        let is_logged = keyspaces.first_behind(prefix, &self.partitions).is_none();
        let name = KeyspaceName::new(prefix);
        let revision = Keyspaces::next_revision(&self.store);
        let settings = match (action, exists) {
            (Action::Create(_), Some(_)) if is_logged => {
                let message = format_args!("keyspace {name:?} exists");
                no(&mut self.counters, out, Status::Exists, &message);
                return Step::Answered(self.gate(level, logged));
            }
            (Action::Drop, None) if is_logged => {
                let message = format_args!("keyspace {name:?} does not exist");
                no(&mut self.counters, out, Status::NotFound, &message);
                return Step::Answered(self.gate(level, logged));
            }
            (Action::Create(settings) | Action::Set(settings), _) => from_wire(&settings, revision),
            (Action::Drop | Action::List, _) => Settings {
                is_dropped: true,
                revision,
                ..known.unwrap_or_default()
            },
        };
        let key_bytes = keyspace_key(u32::MAX, prefix).len();
        let gives_back = known.is_some_and(|known| settings.gives_back(&known));
        let purpose = purpose_of(gives_back);
        let room = self.store.room(purpose, key_bytes, SETTINGS_BYTES, false);
        if room == Room::Full {
            self.counters.refused += 1;
            let (status, message) = match self.spare_failure {
                Some(failure) => (Status::Busy, failure.message()),
                None => (
                    Status::Full,
                    "the disk is full: no segment can be made ready for new records",
                ),
            };
            no(&mut self.counters, out, status, &message);
            return Step::Answered(Lsn(0));
        }
        if self.store.hear(prefix, settings).is_err() {
            self.counters.refused += 1;
            let message = format_args!(
                "{KEYSPACES_MAX} prefixes have settings or had some, which is the limit: keyspace {name:?} cannot be made"
            );
            no(&mut self.counters, out, Status::Full, &message);
            return Step::Answered(Lsn(0));
        }
        self.counters.keyspace_changes += 1;
        let change = Change {
            origin,
            address,
            level: level.max(AckLevel::Disk),
            prefix: prefix.into(),
            settings,
            left: self.config.topology.shards(),
        };
        self.keyspaces.begin(self.config.shard, change);
        Step::Later
    }

    /// A shard has logged a change; the last one, or one that cannot, lets it be answered.
    pub(super) fn keyspace_done(&mut self, done: Done, outbox: &mut Outbox<P::Block>) {
        let Some(change) = self.keyspaces.done(done) else {
            return;
        };
        let Done { revision, is_full } = done;
        if is_full {
            let status = Status::Indeterminate;
            self.counters.answers.add(Asked::Keyspace, status);
            let name = KeyspaceName::new(&change.prefix);
            let message = format_args!(
                "the disk is full: keyspace {name:?} is changed in a part of its partitions, and in the others as soon as there is room"
            );
            let mut out = Vec::new();
            let item = change.address.item;
            ReplyHead::new(status, item, change.level, Version::default())
                .write_message(&mut out, &message);
            self.answer_detached(change.origin, change.address, Lsn(0), &out.into(), outbox);
            return;
        }
        self.counters.answers.add(Asked::Keyspace, Status::Ok);
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
        self.answer_detached(change.origin, change.address, Lsn(0), &out.into(), outbox);
    }
}
