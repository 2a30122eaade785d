//! Armed keys whose time has come: those that an operation meets, and those that are due.

use penstock_storage::index::CellId;
use penstock_storage::io::Blocks;
use penstock_storage::key_home::KeyHome;
use penstock_storage::planted::{Bug, is_planted};
use penstock_storage::store::TimedKey;
use penstock_storage::timers::Timer;
use penstock_storage::version::partition_of;

use crate::cluster::ClusterMember;
use crate::execution::Execution;
use crate::execution::verbs::Cold;
use crate::execution::verbs::fire::{Failure, Fire, Fired};
use crate::firing::{CHAIN_MAX, CHAIN_STEPS_MAX, COUNTED_A_PAUSE_MAX, FIRES_A_TURN_MAX};
use crate::firing::{FULL_A_TURN_MAX, READS_A_TURN_MAX, TIMERS_A_TURN_MAX};
use crate::now::Now;
use crate::step::Step;

/// What a turn may still do.
struct Left {
    fires: usize,
    timers: usize,
    reads: usize,
    /// Keys that find no room.
    full: usize,
}

impl Left {
    fn is_any(&self) -> bool {
        self.fires > 0 && self.timers > 0 && self.reads > 0 && self.full > 0
    }
}

impl<P: Blocks> Execution<P> {
    /// Fires armed keys whose time has come, as many as a turn has room for. Keys that must be read
    /// for that are read side by side.
    pub(crate) fn fire_due(&mut self, step: &mut Step<'_, P::Block>) {
        let begins = self.firing.begins(step.now.us, self.phase.has_progress());
        if !self.store.data().has_due() {
            self.firing.has_room();
            return;
        }
        if self.phase.is_stopping() || !begins {
            return;
        }
        let mut left = Left {
            fires: FIRES_A_TURN_MAX,
            timers: TIMERS_A_TURN_MAX,
            reads: READS_A_TURN_MAX,
            full: FULL_A_TURN_MAX,
        };
        // The one whose keys are pinned has been waited for.
        if let Some(timer) = self.firing.pinned()
            && self.try_timer(step.now, timer, &mut left)
        {
            self.unpin_due();
        }
        let (begin, mut has_wrapped) = (self.firing.behind(), self.firing.behind().is_none());
        let (mut behind, mut has_seen_all) = (begin, false);
        while left.is_any() {
            let next = self.store.keys().timers().next_behind(behind);
            let time_ms = self.store.data().time_ms();
            let Some(timer) = next.filter(|timer| timer.expiry_ms <= time_ms) else {
                behind = None;
                if std::mem::replace(&mut has_wrapped, true) {
                    has_seen_all = true;
                    break;
                }
                continue;
            };
            if has_wrapped && begin.is_some_and(|begin| timer > begin) {
                has_seen_all = true;
                break;
            }
            behind = Some(timer);
            left.timers -= 1;
            self.try_timer(step.now, timer, &mut left);
        }
        self.firing.passed(behind);
        if left.fires < FIRES_A_TURN_MAX {
            // What waits for room or for these keys may go on.
            self.phase.note_progress(true);
        } else if left.full < FULL_A_TURN_MAX {
            self.firing.pauses_for_room(step.now.us);
            self.count_full();
        } else if has_seen_all || left.reads == 0 {
            self.firing.pauses(step.now.us);
        }
        step.outbox.failed_effects.extend(self.firing.take_failed());
    }

    /// Counts keys that are due, none of which finds room, from where the last count ended.
    fn count_full(&mut self) {
        let (mut behind, mut count) = (self.firing.counted(), 0);
        let time_ms = self.store.data().time_ms();
        for _ in 0..COUNTED_A_PAUSE_MAX {
            let next = self.store.keys().timers().next_behind(behind);
            behind = next.filter(|timer| timer.expiry_ms <= time_ms);
            let Some(timer) = behind else {
                break;
            };
            count += u64::from(!self.fires_elsewhere(timer));
        }
        self.firing.count(behind, count);
    }

    /// Whether another node fires the key of a timer.
    fn fires_elsewhere(&self, timer: Timer) -> bool {
        let elsewhere =
            |it: &ClusterMember<P::Block>| it.elsewhere(partition_of(timer.slot)).is_some();
        self.linked.as_deref().is_some_and(elsewhere) && !is_planted(Bug::FireAsMember)
    }

    /// When timers are to be looked at the next time.
    pub(crate) fn firing_deadline_us(&self, now: Now) -> Option<u64> {
        let earliest_ms = self.store.keys().timers().earliest_ms()?;
        let wait_ms = earliest_ms.saturating_sub(self.store.data().time_ms());
        let due_us = now.us.saturating_add(wait_ms.saturating_mul(1000));
        Some(due_us.max(self.firing.resume_us()))
    }

    /// Fires the key that an operation has met before its effects have run. `Ok` when it is gone.
    pub(crate) fn fire_first(&mut self, now: Now, home: KeyHome, id: CellId) -> Fired {
        let timer = Timer {
            expiry_ms: self.store.keys().cell(id).expiry_ms().unwrap_or_default(),
            slot: home.slot,
            hash: home.hash,
        };
        let mut reads = READS_A_TURN_MAX;
        let fired = self.fire(now, timer, id, &mut reads);
        if matches!(fired, Fired::Ran | Fired::Failed(_)) && self.firing.pinned() == Some(timer) {
            self.unpin_due();
        }
        fired
    }

    /// Looks at a timer that is due. Whether it is done with.
    fn try_timer(&mut self, now: Now, timer: Timer, left: &mut Left) -> bool {
        let home = timer.home();
        let is_claimed = self.joint.holds_any() && self.joint.claim_of(timer.slot).is_some();
        if is_claimed || self.fires_elsewhere(timer) {
            return false;
        }
        match self.store.keys().at_timer(timer) {
            TimedKey::Gone => {
                self.store.keys_mut().drop_timer(timer);
                self.firing.is_stale();
                true
            }
            TimedKey::Cold(_) if self.firing.take_unread(home) => {
                self.store.keys_mut().drop_timer(timer);
                self.firing.cannot_read();
                true
            }
            TimedKey::Cold(place) => {
                if !self.requests.parking.is_full() {
                    let cold = Cold {
                        slot: timer.slot,
                        hash: timer.hash,
                        place,
                        version: None,
                    };
                    self.firing.asks_for(home);
                    self.requests.parking.fetch(cold);
                    left.reads -= 1;
                }
                false
            }
            TimedKey::Armed(id) => {
                let ended_before = self.firing.ended();
                let fired = self.fire(now, timer, id, &mut left.reads);
                // Those that it waited for as well.
                let ended = self.firing.ended() - ended_before;
                left.fires = left.fires.saturating_sub(ended);
                let is_over = matches!(fired, Fired::Ran | Fired::Failed(_));
                if matches!(fired, Fired::Full(_)) {
                    left.full = left.full.saturating_sub(1);
                }
                // Another key of its hash may have kept it.
                if is_over && self.store.keys().at_timer(timer) == TimedKey::Gone {
                    self.store.keys_mut().drop_timer(timer);
                }
                is_over
            }
        }
    }

    /// Fires a key, and before it those that it waits for. Begins the reads that are needed.
    fn fire(&mut self, now: Now, timer: Timer, id: CellId, reads: &mut usize) -> Fired {
        let mut chain = std::mem::take(&mut self.firing.chain);
        chain.clear();
        // Whoever has met the key has not asked for its effects.
        if let Some(changed) = self.store.data_mut().changed_keys() {
            changed.asks(None);
        }
        chain.push((timer.hash, id));
        let fired = self.fire_chain(now, timer, &mut chain, reads);
        self.firing.chain = chain;
        fired
    }

    /// Fires the last key of a chain in which each waits for the next one, then the one before it,
    /// up to the first. What became of the first one, or of the one that cannot go on now.
    fn fire_chain(
        &mut self,
        now: Now,
        timer: Timer,
        chain: &mut Vec<(u32, CellId)>,
        reads: &mut usize,
    ) -> Fired {
        let slot = timer.slot;
        for _ in 0..CHAIN_STEPS_MAX {
            let (hash, id) = *chain.last().expect("the first one is there");
            let mut fired = self.fire_one(now, timer, KeyHome { slot, hash }, id, reads);
            if let Fired::Behind(next, hash) = fired {
                match chain.iter().position(|&(_, it)| it == next) {
                    None if chain.len() < CHAIN_MAX => {
                        chain.push((hash, next));
                        continue;
                    }
                    None => break,
                    // A circle: the one that was met first ends without its effects.
                    Some(at) => {
                        chain.truncate(at + 1);
                        fired = self.end(now, KeyHome { slot, hash }, next, Failure::Circle);
                    }
                }
            }
            let is_over = matches!(fired, Fired::Ran | Fired::Failed(_));
            if !is_over || chain.len() == 1 {
                return fired;
            }
            chain.pop();
        }
        // More wait for each other than are followed.
        let (hash, id) = chain[0];
        self.end(now, KeyHome { slot, hash }, id, Failure::Circle)
    }

    fn fire_one(
        &mut self,
        now: Now,
        timer: Timer,
        home: KeyHome,
        id: CellId,
        reads: &mut usize,
    ) -> Fired {
        let mut effects = std::mem::take(&mut self.firing.effects);
        effects.clear();
        effects.extend_from_slice(self.store.keys().effects(id).unwrap_or_default());
        let mut returned = std::mem::take(&mut self.firing.returned);
        let hash = self.setup.hash();
        let fire = Fire {
            now_us: now.us,
            hash,
            home,
            id,
            effects: &effects,
        };
        let mut fired = fire.run(&mut self.store, &mut returned);
        if fired == Fired::Cold {
            let (cold, homes) = fire.needs(&self.store);
            let is_unread = |it: &Cold| self.firing.take_unread(it.home());
            let is_unread = cold.iter().any(is_unread);
            if is_unread {
                fired = fire.end_alone(&mut self.store, Failure::Unread);
            } else {
                for cold in cold {
                    if !self.requests.parking.is_full() {
                        self.firing.asks_for(cold.home());
                        self.requests.parking.fetch(cold);
                        *reads = reads.saturating_sub(1);
                    }
                }
                if self.firing.pinned().is_none() {
                    self.firing.pins(Some(timer));
                    self.store.data_mut().pin_due(homes);
                }
            }
        }
        (self.firing.effects, self.firing.returned) = (effects, returned);
        // The cell of a key that is gone stays until that is durable.
        let store = &self.store;
        self.firing
            .note(|| store.keys().cell(id).key().to_vec(), fired);
        fired
    }

    /// Ends a key without its effects.
    fn end(&mut self, now: Now, home: KeyHome, id: CellId, why: Failure) -> Fired {
        let fire = Fire {
            now_us: now.us,
            hash: self.setup.hash(),
            home,
            id,
            effects: &[],
        };
        let fired = fire.end_alone(&mut self.store, why);
        let store = &self.store;
        self.firing
            .note(|| store.keys().cell(id).key().to_vec(), fired);
        fired
    }

    fn unpin_due(&mut self) {
        self.firing.pins(None);
        self.store.data_mut().pin_due(None);
    }
}
