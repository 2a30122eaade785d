//! Requests about keyspaces: one shard decides, all of them log and follow.

use penstock_net::keyspace::{Action, begin_list, end_list, push_keyspace};
use penstock_net::level::AckLevel;
use penstock_net::refusal::KeyspaceName;
use penstock_net::reply::{REPLY_ITEM_BYTES, ReplyHead};
use penstock_net::request::{Verb, Version};
use penstock_net::status::Status;
use penstock_storage::io::Blocks;
use penstock_storage::keyspace::{KEYSPACES_MAX, SETTINGS_BYTES, Settings, keyspace_key};
use penstock_storage::log::Room;

use crate::accounts::answers::Asked;
use crate::execution::Execution;
use crate::execution::operation::{Disposition, Operation, Own};
use crate::keyspaces::{Change, Keyspaces, from_wire, purpose_of, to_wire};
use crate::now::Now;
use crate::publisher::Publisher;
use crate::scripts::Scripts;

impl<P: Blocks> Execution<P> {
    /// Has scripts of clients run by this interpreter from now on. Without one they are refused.
    pub fn serve_scripts(&mut self, scripts: Box<dyn Scripts>) {
        self.scripts = Some(scripts);
    }

    /// Scripts and EXEC publish here from now on.
    pub fn serve_publisher(&mut self, publisher: Box<dyn Publisher>) {
        self.publications.begin(publisher);
    }

    /// Tells or changes settings of keyspaces, unless the cluster refuses that here.
    #[cold]
    pub(crate) fn keyspace_item(
        &mut self,
        now: Now,
        own: &Own<'_>,
        action: Action,
        out: &mut Vec<u8>,
    ) -> Disposition {
        if let Some(linked) = &self.linked {
            // The node that writes partition 0 gives the revisions.
            let decider = linked.elsewhere(0).filter(|_| action != Action::List);
            let refused = linked.refuses_settings(&action, own.operation.level);
            if let Some((status, message)) = refused {
                return self.refuse_item(own.asked, own.operation, status, &message, out);
            }
            if let Some(elsewhere) = decider {
                return self.refuse_elsewhere(own.asked, own.operation, &elsewhere, out);
            }
        }
        self.keyspace(now, own.operation, (own.asks.key(), action), out)
    }

    /// Takes a change of a keyspace in, or tells all of them. This shard decides.
    pub(crate) fn keyspace(
        &mut self,
        now: Now,
        operation: &Operation<'_>,
        (prefix, action): (&[u8], Action),
        out: &mut Vec<u8>,
    ) -> Disposition {
        let Operation { address, level, .. } = *operation;
        // All that is told here stands in records that were appended.
        let logged = self.store.log().appended();
        if action == Action::List {
            self.list_keyspaces(operation, out);
            return Disposition::Answered(self.gate(level, logged));
        }
        if self.keyspaces.is_changing() {
            let message = "another keyspace is being changed";
            return self.refuse_item(KEYSPACE, operation, Status::Busy, &message, out);
        }
        let keyspaces = self.store.keyspaces();
        let known = keyspaces.newest(prefix).copied();
        let exists = known.filter(|settings| !settings.is_dropped);
        // A change that found a disk full may be nowhere in the log yet.
        let partitions = self.setup.partitions().iter().copied();
        let behind = keyspaces.first_behind(prefix, partitions);
        let is_logged = behind.is_none();
        let name = KeyspaceName::new(prefix);
        let revision = Keyspaces::next_revision(&self.store);
        let settings = match (action, exists) {
            (Action::Create(_), Some(_)) if is_logged => {
                let message = format!("keyspace {name:?} exists");
                self.answer_keyspace(operation, Status::Exists, &message, out);
                return Disposition::Answered(self.gate(level, logged));
            }
            (Action::Drop, None) if is_logged => {
                let message = format!("keyspace {name:?} does not exist");
                self.answer_keyspace(operation, Status::NotFound, &message, out);
                return Disposition::Answered(self.gate(level, logged));
            }
            (Action::Create(settings) | Action::Set(settings), _) => from_wire(&settings, revision),
            (Action::Drop | Action::List, _) => Settings {
                is_dropped: true,
                revision,
                ..known.unwrap_or_default()
            },
        };
        let gives_back = known.is_some_and(|known| settings.gives_back(&known));
        if let Some((status, message)) = self.lacks_room_for_settings(prefix, gives_back) {
            return self.refuse_item(KEYSPACE, operation, status, &message, out);
        }
        if self.store.keyspaces_mut().learn(prefix, settings).is_err() {
            let message = format!(
                "{KEYSPACES_MAX} prefixes have settings or had some, which is the limit: \
                 keyspace {name:?} cannot be made"
            );
            return self.refuse_item(KEYSPACE, operation, Status::Full, &message, out);
        }
        self.stats.change_keyspace();
        let others = self.linked.as_ref().filter(|it| it.waits_for_others());
        let until_us = others.map(|it| now.us.saturating_add(it.replica_timeout_us()));
        let change = Change {
            origin: operation.origin,
            address,
            level: level.max(AckLevel::Disk),
            prefix: prefix.into(),
            settings,
            until_us,
            left: self.setup.config().topology.shards(),
        };
        self.keyspaces.begin(self.setup.shard(), change);
        Disposition::Later
    }

    /// Writes the settings of all keyspaces.
    pub(crate) fn list_keyspaces(&mut self, operation: &Operation<'_>, out: &mut Vec<u8>) {
        let from = out.len();
        out.resize(from + REPLY_ITEM_BYTES, 0);
        let list = begin_list(out);
        let mut count = 0;
        let there = self.store.keyspaces().logged(self.setup.partitions());
        for (prefix, settings) in there.filter(|(_, settings)| !settings.is_dropped) {
            push_keyspace(out, prefix, settings.revision, &to_wire(settings));
            count += 1;
        }
        end_list(out, list, count, false);
        let item = operation.address.item;
        ReplyHead::new(Status::Ok, item, operation.level, Version::default()).patch(out, from);
        self.stats.answer(KEYSPACE, Status::Ok);
    }

    /// Says what was found of a keyspace instead of changing it.
    pub(crate) fn answer_keyspace(
        &mut self,
        operation: &Operation<'_>,
        status: Status,
        message: &str,
        out: &mut Vec<u8>,
    ) {
        self.stats.answer(KEYSPACE, status);
        let item = operation.address.item;
        ReplyHead::new(status, item, operation.level, Version::default())
            .write_message(out, &message);
    }

    /// Why settings cannot be logged now, if so.
    pub(crate) fn lacks_room_for_settings(
        &mut self,
        prefix: &[u8],
        gives_back: bool,
    ) -> Option<(Status, &'static str)> {
        let key_bytes = keyspace_key(u32::MAX, prefix).len();
        let purpose = purpose_of(gives_back);
        let room = self.store.room(purpose, key_bytes, SETTINGS_BYTES, false);
        (room == Room::Full).then(|| match self.files.failure() {
            Some(failure) => (Status::Busy, failure.message()),
            None => (
                Status::Full,
                "the disk is full: no segment can be made ready for new records",
            ),
        })
    }
}

/// What answers count as.
pub(crate) const KEYSPACE: Asked = Asked::Verb(Verb::Keyspace);
