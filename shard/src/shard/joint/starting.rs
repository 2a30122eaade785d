//! A start finishes what an earlier run has decided, before anything is served.

use std::collections::BTreeMap;

use penstock_net::slot::slot_of;
use penstock_storage::io::Blocks;
use penstock_storage::redo;
use penstock_storage::store::Found;
use penstock_storage::system_key::REDO_KEY_BYTES;

use crate::joint::led::{Led, RedoRecord};
use crate::joint::message::{LeftKey, Message};
use crate::joint::start::Start;
use crate::joint::{OF_START, place_of};
use crate::shard::Shard;
use crate::step::Step;

impl<P: Blocks> Shard<P> {
    /// The start has found these redo records. Nothing is served before they are finished.
    pub(crate) fn found_redo(&mut self, records: Vec<[u8; REDO_KEY_BYTES]>) {
        if !records.is_empty() {
            let own = self.execution.setup.shard();
            self.begin_start(records, own..own + 1);
        }
    }

    /// Whether the log may hold a change that is decided and not made by all shards. All shards of
    /// the node are to be told then by [`Shard::resume_changes`].
    #[must_use]
    pub fn may_have_redo(&self) -> bool {
        self.execution.joint.start.is_some()
    }

    /// A shard of the node may have redo records: this one serves when all have finished theirs.
    /// Told before the first event.
    pub fn resume_changes(&mut self) {
        let start = self.execution.joint.start.take();
        let records = start.map_or(Vec::new(), |start| start.records);
        let shards = self.execution.setup.config().topology.shards();
        self.begin_start(records, 0..shards);
    }

    fn begin_start(&mut self, records: Vec<[u8; REDO_KEY_BYTES]>, shards: std::ops::Range<u16>) {
        self.execution.joint.start = Some(Start::new(records, shards));
        self.execution.joint.note_holds();
    }

    /// What keeps the shard from serving, if anything does.
    #[must_use]
    pub fn resuming(&self) -> Option<String> {
        let joint = &self.execution.joint;
        let start = joint.start.as_ref()?;
        let shard = self.execution.setup.shard();
        Some(match (start.trouble, start.has_told) {
            (Some(trouble), _) => format!("shard {shard}: {trouble}"),
            (None, true) => format!("shard {shard} waits for shards {:?}", start.awaited),
            (None, false) => {
                let parts: Vec<u16> = joint.led.iter().flat_map(Led::awaited).collect();
                format!(
                    "shard {shard} finishes {} changes of an earlier run; parts of shards {parts:?} \
                     are missing",
                    start.records.len() + joint.led.len()
                )
            }
        })
    }

    /// Finishes one redo record behind the other.
    pub(super) fn step_start(&mut self, step: &mut Step<'_, P::Block>) {
        let joint = &mut self.execution.joint;
        let is_busy = joint.led.iter().any(Led::is_decided);
        let Some(start) = &mut joint.start else {
            return;
        };
        if is_busy || start.has_told {
            return;
        }
        let Some(key) = start.records.last().copied() else {
            start.has_told = true;
            for shard in 0..self.execution.setup.config().topology.shards() {
                self.send_joint(shard, Message::Resumed);
            }
            return;
        };
        let home = self.execution.setup.hash().home_of(&key);
        let found = self.execution.store.keys().find(home.slot, home.hash, &key);
        let parts = match found {
            Found::Cold(place) => {
                self.execution.read_owed(step.now, home, place);
                let is_unread = self.execution.joint.read_again_us > step.now.us;
                let trouble = is_unread.then_some("a redo record cannot be read");
                self.start_mut().trouble = trouble;
                return;
            }
            Found::Absent => None,
            Found::Cached(id) => {
                let cell = self.execution.store.keys().cell(id);
                (!cell.is_deleted()).then(|| self.parts_of(cell.value()))
            }
        };
        let start = self.start_mut();
        start.trouble = None;
        start.records.pop();
        let Some(parts) = parts else {
            // It was another key of the same hash, or is closed.
            return self.execution.store.data_mut().redo_ends(home);
        };
        let change = self.execution.joint.next_change();
        for (shard, left) in &parts {
            self.send_joint(*shard, Message::Redo(change, left.clone()));
        }
        let letter = None;
        let redo = RedoRecord { key, home, letter };
        let led = Led::resumed(change, redo, parts);
        self.execution.joint.led.push_front(led);
    }

    fn start_mut(&mut self) -> &mut Start {
        let start = self.execution.joint.start.as_mut();
        start.expect("it goes on")
    }

    /// The parts in the value of a redo record, by shard.
    fn parts_of(&self, value: &[u8]) -> BTreeMap<u16, Vec<LeftKey>> {
        let outcomes = redo::outcomes(value).expect("a start refuses other values");
        let mut parts: BTreeMap<u16, Vec<LeftKey>> = BTreeMap::new();
        for outcome in outcomes {
            let owner = self.execution.setup.owner(slot_of(outcome.key));
            parts.entry(owner).or_default().push(LeftKey::of(&outcome));
        }
        parts
    }

    /// A shard has finished all that it had decided.
    pub(super) fn resumed(&mut self, step: &mut Step<'_, P::Block>, from: u16) {
        let Some(start) = &mut self.execution.joint.start else {
            return;
        };
        start.awaited.retain(|shard| *shard != from);
        if start.awaited.is_empty() && start.has_told {
            self.execution.joint.start = None;
            self.execution.joint.note_holds();
            self.claim_ends(step, place_of(OF_START));
        }
    }
}
