//! The parts of changes that this shard holds: claimed, copied, prepared, made.

use penstock_net::resp::SCRIPT_VALUES_BYTES_MAX;
use penstock_net::slot::slot_of;
use penstock_net::status::Status;
use penstock_storage::io::Blocks;
use penstock_storage::key_home::KeyHome;
use penstock_storage::place::{Lsn, Place};
use penstock_storage::record::ValueKind;
use penstock_storage::store::{Leaving, NoRoom, Noted, PartNeeds, Writer};
use penstock_storage::system_key::is_token;

use crate::execution::Execution;
use crate::execution::operation::{check_members, check_value};
use crate::execution::verbs::Cold;
use crate::execution::verbs::copied::{self, Copying};
use crate::execution::verbs::fire::Fired;
use crate::joint::claims::ChangeName;
use crate::joint::held::{Held, HeldPhase};
use crate::joint::message::{ClaimedKey, LeftKey, Message, ReadKey};
use crate::joint::{READ_AGAIN_US, place_of};
use crate::now::Now;
use crate::step::Step;

use super::JointStep;

/// Bytes of copies of one change in one shard, at most; as many as a script may read.
const COPIES_BYTES_MAX: usize = SCRIPT_VALUES_BYTES_MAX + (1 << 20);

/// Why a part does not go on now.
enum Stays {
    /// Something must end first.
    Waits,
    /// Nothing can be had.
    Refused(Status, String),
    /// There is no room for it now.
    LacksRoom,
}

impl<P: Blocks> JointStep<'_, P> {
    /// A leader claims keys.
    pub(super) fn claim(&mut self, leader: u16, change: u64, keys: Vec<ClaimedKey>) {
        let name = ChangeName { leader, change };
        let mut slots: Vec<u16> = keys.iter().map(|key| slot_of(&key.key)).collect();
        slots.sort_unstable();
        slots.dedup();
        let joint = &mut self.0.execution.joint;
        joint.claim(name, slots);
        joint.held.push(Held::of_claim(name, keys));
    }

    /// Notes what a script has read of this shard, for clients that keep values.
    pub(super) fn note_read_keys(&mut self, reader: Writer, keys: &[ReadKey]) {
        let execution = &mut self.0.execution;
        let names = keys.iter().map(|(key, _)| &key[..]);
        execution.tracking.read_by_script(reader, names);
        for (key, expiry_ms) in keys {
            if let Some(expiry_ms) = expiry_ms {
                execution.store.data_mut().note_shown(key, *expiry_ms);
            }
        }
    }

    /// Goes on with all parts, as far as they can.
    pub(super) fn step_held(&mut self, step: &mut Step<'_, P::Block>) {
        self.0.execution.joint.grant();
        for flush in self.0.execution.joint.claims.granted_flushes() {
            // It runs while all else waits for its claim, which then goes on.
            self.claim_ends(step, place_of(flush));
            self.0.execution.joint.flushed(flush);
            self.claim_ends(step, place_of(flush));
            self.0.execution.joint.grant();
        }
        let mut all = std::mem::take(&mut self.0.execution.joint.held);
        for held in &mut all {
            while let Some(said) = PartStep(&mut self.0.execution).step_part(step.now, held) {
                if let Some(message) = said {
                    self.send_joint(held.name.leader, message);
                }
            }
        }
        all.append(&mut self.0.execution.joint.held);
        self.0.execution.joint.held = all;
    }
}

/// A step of one part.
pub(super) struct PartStep<'a, P: Blocks>(pub(super) &'a mut Execution<P>);

impl<P: Blocks> PartStep<'_, P> {
    /// Goes one step on with a part, and what the leader is told. `None`: it waits.
    fn step_part(&mut self, now: Now, held: &mut Held) -> Option<Option<Message>> {
        let change = held.name.change;
        let durable = self.0.store.log().durable();
        let stays = match held.phase {
            HeldPhase::Waiting if self.0.joint.claims.is_granted(held.name) => {
                held.phase = HeldPhase::Copying;
                return Some(None);
            }
            HeldPhase::Copying => match self.copy_keys(now, held) {
                Ok(()) => {
                    self.0.store.log_mut().want_durable(held.shown);
                    held.phase = HeldPhase::Copied(held.shown);
                    return Some(None);
                }
                Err(stays) => stays,
            },
            HeldPhase::Copied(lsn) if lsn <= durable => {
                held.phase = HeldPhase::Granted;
                self.0.joint.copied_bytes -= held.copies_bytes();
                return Some(Some(Message::Granted(change, held.take_copies())));
            }
            HeldPhase::Preparing => match self.prepare(held) {
                Ok(()) => {
                    self.note_coming(held);
                    held.phase = HeldPhase::Ready;
                    return Some(Some(Message::Ready(change)));
                }
                Err(stays) => stays,
            },
            HeldPhase::Applying(done, lsn) if done == held.left.len() => {
                self.0.store.log_mut().want_durable(lsn);
                held.phase = HeldPhase::Logged(lsn);
                return Some(None);
            }
            HeldPhase::Applying(done, lsn) => {
                let made = self.leave_key(now, &held.left[done], false)?;
                held.phase = HeldPhase::Applying(done + 1, made.map_or(lsn, |made| lsn.max(made)));
                return Some(None);
            }
            HeldPhase::Logged(lsn) if lsn <= durable => {
                if let Some(reserved) = held.reserved.take() {
                    self.0.store.unreserve_part(&reserved);
                }
                held.phase = HeldPhase::Done;
                return Some(Some(Message::Applied(change)));
            }
            _ => Stays::Waits,
        };
        match stays {
            Stays::Waits => None,
            Stays::LacksRoom => {
                held.phase = HeldPhase::Done;
                self.drop_copies(held);
                Some(Some(Message::LacksRoom(change)))
            }
            Stays::Refused(status, text) => {
                held.phase = HeldPhase::Done;
                self.drop_copies(held);
                Some(Some(Message::Refused(change, status, text)))
            }
        }
    }

    /// Copies the keys of a claim that are not copied yet.
    fn copy_keys(&mut self, now: Now, held: &mut Held) -> Result<(), Stays> {
        if self.0.phase.is_stopping() {
            let text = "the server is stopping".to_string();
            return Err(Stays::Refused(Status::Draining, text));
        }
        while let Some(claimed) = held.keys.get(held.copies.len()) {
            let copying = copied::copy(&mut self.0.store, self.0.setup.hash(), claimed);
            match copying {
                Copying::Cold(cold) if self.0.joint.take_unread(cold.home()) => {
                    let text = "a key of this change cannot be read".to_string();
                    return Err(Stays::Refused(Status::Io, text));
                }
                Copying::Cold(cold) => {
                    self.read_for_part(cold);
                    return Err(Stays::Waits);
                }
                Copying::Unfired(home, id) => match self.0.fire_first(now, home, id) {
                    // Its effects may have changed what is copied.
                    Fired::Ran | Fired::Failed(_) => self.drop_copies(held),
                    Fired::Full(_) => {
                        let text = "a key of this change has expired, and there is no room yet, on \
                                    the disk or in memory, for what is to happen then";
                        return Err(Stays::Refused(Status::Full, text.to_string()));
                    }
                    Fired::Cold | Fired::Wait | Fired::Behind(..) => return Err(Stays::Waits),
                },
                Copying::Copied(copy, lsn) => {
                    self.0.joint.copied_bytes += copy.bytes();
                    held.copied(copy, lsn);
                    self.bound_copies(held)?;
                }
            }
        }
        Ok(())
    }

    /// Bounds the copies of a part, and of all parts: what is too much for all rests.
    fn bound_copies(&mut self, held: &mut Held) -> Result<(), Stays> {
        let bytes_max = self.0.setup.config().parked_bytes_max / 2;
        let (own, all) = (held.copies_bytes(), self.0.joint.copied_bytes);
        if own > bytes_max.max(COPIES_BYTES_MAX) {
            let text = format!(
                "the values of its keys take {own} bytes in one shard, and {COPIES_BYTES_MAX} is \
                 the limit for keys of several shards"
            );
            return Err(Stays::Refused(Status::TooLarge, text));
        }
        match all > bytes_max && all > own {
            true => Err(Stays::LacksRoom),
            false => Ok(()),
        }
    }

    /// Forgets the copies of a part.
    fn drop_copies(&mut self, held: &mut Held) {
        self.0.joint.copied_bytes -= held.copies_bytes();
        held.take_copies();
    }

    /// Judges a part, and keeps room for it.
    fn prepare(&mut self, held: &mut Held) -> Result<(), Stays> {
        let mut needs = PartNeeds::default();
        let hash = self.0.setup.hash();
        for key in &held.left {
            let home = hash.home_of(&key.key);
            if is_token(&key.key) {
                // No keyspace has it.
                self.0.store.add_needs(home, &key.outcome(), &mut needs);
                continue;
            }
            let value = key.left.as_ref().map(|left| &left.bytes[..]);
            check_value(
                &self.0.store,
                home.slot,
                &key.key,
                value.unwrap_or_default(),
            )
            .and_then(|()| match &key.left {
                Some(left) if left.kind == ValueKind::Head => {
                    check_members(&self.0.store, home.slot, &key.key)
                }
                _ => Ok(()),
            })
            .map_err(|refusal| Stays::Refused(refusal.status(), refusal.to_string()))?;
            self.0.store.add_needs(home, &key.outcome(), &mut needs);
        }
        let shard = self.0.setup.shard();
        match self.0.store.reserve_part(&needs) {
            Ok(()) => {
                held.reserved = Some(needs);
                Ok(())
            }
            // Who waits here holds room that others wait for.
            Err(NoRoom::Wait) => Err(Stays::LacksRoom),
            Err(NoRoom::Log) => {
                let text = format!(
                    "the disk is full, or disk_bytes_max is used up: shard {shard} has no room for \
                     its part of this change"
                );
                Err(Stays::Refused(Status::Full, text))
            }
            Err(NoRoom::Memory | NoRoom::Timers | NoRoom::Record { .. }) => {
                let text = format!("no memory for another key in shard {shard}");
                Err(Stays::Refused(Status::Full, text))
            }
        }
    }

    /// Notes what a part changes before it is decided, so before the answer leaves. Nobody reads
    /// its keys until it is made or given up.
    fn note_coming(&mut self, held: &Held) {
        if let Some(changed) = self.0.store.data_mut().changed_keys() {
            for key in held.left.iter().filter(|key| !is_token(&key.key)) {
                let writer = held.writer;
                changed.note(&key.key, Noted::Coming { writer });
            }
        }
    }

    /// Leaves a key with what was decided, or a redo record with what it is to have. The
    /// record that made it so, if there is one; the outer `None`: it must wait.
    pub(super) fn leave_key(
        &mut self,
        now: Now,
        key: &LeftKey,
        is_redo: bool,
    ) -> Option<Option<Lsn>> {
        let home = self.0.setup.hash().home_of(&key.key);
        if let Some(changed) = self.0.store.data_mut().changed_keys() {
            changed.makes();
        }
        let left = match is_redo {
            true => self.0.store.leave_any(now.us, home, &key.outcome()),
            false => self.0.store.leave(now.us, home, &key.outcome()),
        };
        if let Some(changed) = self.0.store.data_mut().changed_keys() {
            changed.asks(None);
        }
        match left {
            Leaving::Done(lsn) => Some(lsn),
            Leaving::Wait => None,
            Leaving::Cold(place) => {
                self.read_owed(now, home, place);
                None
            }
        }
    }

    /// Reads a key that a decided part needs, also one that could not be read before.
    pub(super) fn read_owed(&mut self, now: Now, home: KeyHome, place: Place) {
        if self.0.joint.take_unread(home) {
            self.0.joint.read_again_us = now.us + READ_AGAIN_US;
        }
        if now.us >= self.0.joint.read_again_us {
            self.read_for_part(Cold {
                slot: home.slot,
                hash: home.hash,
                place,
                version: None,
            });
        }
    }

    /// Reads a key, unless that goes on. Each part reads one key at a time, so no other bound is
    /// asked: what fills it may wait for this part.
    pub(super) fn read_for_part(&mut self, cold: Cold) {
        let parking = &mut self.0.requests.parking;
        if !parking.has_read_for(&cold) {
            parking.fetch(cold);
        }
    }
}
