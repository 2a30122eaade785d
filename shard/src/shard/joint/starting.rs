//! A start finishes what an earlier run has decided, before anything is served.

use std::collections::BTreeMap;

use penstock_net::slot::slot_of;
use penstock_storage::io::Blocks;
use penstock_storage::redo;
use penstock_storage::store::Found;

use crate::joint::led::{Led, RedoRecord};
use crate::joint::message::{LeftKey, Message};
use crate::joint::start::Start;
use crate::joint::{OF_START, place_of};
use crate::step::Step;

use super::JointStep;
use super::parts::PartStep;

impl<P: Blocks> JointStep<'_, P> {
    /// Finishes one redo record behind the other.
    pub(super) fn step_start(&mut self, step: &mut Step<'_, P::Block>) {
        let joint = &mut self.0.execution.joint;
        let is_busy = joint.led.iter().any(Led::is_decided);
        let Some(start) = &mut joint.start else {
            return;
        };
        if is_busy || start.has_reported {
            return;
        }
        let Some(key) = start.records.last().copied() else {
            start.has_reported = true;
            for shard in 0..self.0.execution.setup.config().topology.shards() {
                self.send_joint(shard, Message::Resumed);
            }
            return;
        };
        let home = self.0.execution.setup.hash().home_of(&key);
        let found = self
            .0
            .execution
            .store
            .keys()
            .find(home.slot, home.hash, &key);
        let parts = match found {
            Found::Cold(place) => {
                PartStep(&mut self.0.execution).read_owed(step.now, home, place);
                let is_unread = self.0.execution.joint.read_again_us > step.now.us;
                let trouble = is_unread.then_some("a redo record cannot be read");
                self.start_mut().trouble = trouble;
                return;
            }
            Found::Absent => None,
            Found::Cached(id) => {
                let cell = self.0.execution.store.keys().cell(id);
                (!cell.is_deleted()).then(|| self.parts_of(cell.value()))
            }
        };
        let start = self.start_mut();
        start.trouble = None;
        start.records.pop();
        let Some(parts) = parts else {
            // It was another key of the same hash, or is closed.
            return self.0.execution.store.data_mut().redo_ends(home);
        };
        let change = self.0.execution.joint.next_change();
        for (shard, left) in &parts {
            self.send_joint(*shard, Message::Redo(change, left.clone()));
        }
        let letter = None;
        let redo = RedoRecord { key, home, letter };
        let led = Led::resumed(change, redo, parts);
        self.0.execution.joint.led.push_front(led);
    }

    fn start_mut(&mut self) -> &mut Start {
        let start = self.0.execution.joint.start.as_mut();
        start.expect("it goes on")
    }

    /// The parts in the value of a redo record, by shard.
    fn parts_of(&self, value: &[u8]) -> BTreeMap<u16, Vec<LeftKey>> {
        let outcomes = redo::outcomes(value).expect("a start refuses other values");
        let mut parts: BTreeMap<u16, Vec<LeftKey>> = BTreeMap::new();
        for outcome in outcomes {
            let owner = self.0.execution.setup.owner(slot_of(outcome.key));
            parts.entry(owner).or_default().push(LeftKey::of(&outcome));
        }
        parts
    }

    /// A shard has finished all that it had decided.
    pub(super) fn resumed(&mut self, step: &mut Step<'_, P::Block>, from: u16) {
        let Some(start) = &mut self.0.execution.joint.start else {
            return;
        };
        start.awaited.retain(|shard| *shard != from);
        if start.awaited.is_empty() && start.has_reported {
            self.0.execution.joint.start = None;
            self.0.execution.joint.note_holds();
            self.claim_ends(step, place_of(OF_START));
        }
    }
}
