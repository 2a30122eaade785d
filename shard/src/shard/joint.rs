//! Changes over several shards: what this shard leads, and its parts of those that it holds.
//! DESIGN.md, *The life of a change over several shards*.

mod leading;
mod parts;
mod program;
mod starting;

use penstock_net::status::Status;
use penstock_storage::io::Blocks;
use penstock_storage::place::{Lsn, Place};

use crate::accounts::busy::AnswerTerms;
use crate::execution::operation::{Disposition, Operation};
use crate::execution::reads::Admitted;
use crate::execution::verbs::script::ASKED;
use crate::joint::claims::ChangeName;
use crate::joint::held::{Held, HeldPhase};
use crate::joint::led::{Led, LedPhase};
use crate::joint::message::Message;
use crate::joint::{PATIENCE_US, place_of};
use crate::mail::Mail;
use crate::now::Now;
use crate::sessions::SMALL_ANSWER_BYTES;
use crate::shard::Shard;
use crate::step::Step;

/// Rounds of messages within this shard in a turn, at most.
const ROUNDS_MAX: usize = 64;

/// A step of the changes that a shard leads and holds.
pub(super) struct JointStep<'a, P: Blocks>(pub(super) &'a mut Shard<P>);

impl<P: Blocks> JointStep<'_, P> {
    /// Has an item that uses keys of several shards wait for its turn.
    pub(super) fn begin_joint(
        &mut self,
        now: Now,
        operation: &Operation<'_>,
        slot: u16,
        out: &mut Vec<u8>,
    ) -> Disposition {
        let joint = &self.0.execution.joint;
        let parking = &self.0.execution.requests.parking;
        let bytes_max = self.0.execution.setup.config().parked_bytes_max;
        let held_bytes = joint.bytes() + parking.parked_bytes();
        let is_first = joint.led.is_empty();
        if !joint.may_wait() || !is_first && held_bytes + operation.item.len() > bytes_max {
            let message = format!(
                "{} changes of keys of several shards wait, and what waits takes {held_bytes} \
                 bytes of {bytes_max}",
                joint.led.len()
            );
            let status = Status::Busy;
            return self
                .0
                .execution
                .refuse_item(ASKED, operation, status, &message, out);
        }
        let mut parked = operation.parked(slot, SMALL_ANSWER_BYTES);
        self.0
            .reserve(parked.origin, &parked.address, parked.reserved);
        let patience_us = now.us + PATIENCE_US;
        let deadline_us = match parked.deadline_us {
            0 => patience_us,
            us => us.min(patience_us),
        };
        parked.deadline_us = deadline_us;
        let led = Led::new(Some(parked), deadline_us);
        self.0.execution.joint.waits(led);
        Disposition::Later
    }

    /// Takes in what other shards said, and goes on with all that this shard leads and holds.
    pub(super) fn step_joint(&mut self, step: &mut Step<'_, P::Block>) {
        if self.0.execution.joint.is_idle() {
            return;
        }
        if self.0.execution.phase.is_stopping() && self.0.execution.joint.stops_us == 0 {
            self.0.execution.joint.stops_us = step.now.us;
        }
        if self.0.execution.joint.is_given_up(step.now.us) {
            return self.give_up_joint(step);
        }
        self.0.execution.slice.begin();
        for _ in 0..ROUNDS_MAX {
            while let Some((from, message)) = self.0.execution.joint.inbox.pop_front() {
                self.receive(step, from, message);
            }
            self.step_start(step);
            self.step_held(step);
            self.step_led(step);
            if self.0.execution.joint.inbox.is_empty() {
                break;
            }
        }
        self.0.execution.joint.count_bytes();
        let own = self.0.execution.setup.shard();
        let mails = self.0.execution.joint.take_mail(own).into_iter();
        let mails = mails.map(|(to, mail)| (to, Mail::Joint(mail)));
        step.outbox.mail.extend(mails);
    }

    /// A stop has waited long enough: the next start does the rest.
    fn give_up_joint(&mut self, step: &mut Step<'_, P::Block>) {
        let joint = &mut self.0.execution.joint;
        let claims = joint.give_up();
        for claim in claims {
            self.claim_ends(step, place_of(claim));
        }
    }

    /// Runs the operations that waited for a claim.
    fn claim_ends(&mut self, step: &mut Step<'_, P::Block>, place: Place) {
        if let Some(token) = self.0.execution.requests.parking.waits_for(place) {
            let colds = self.0.execution.requests.parking.colds(token).len();
            let is_new = false;
            let admitted = (0..colds).map(|_| Ok(Admitted { place, is_new }));
            self.0.run_waiters(step, token, &[], admitted.collect());
        }
    }

    fn send_joint(&mut self, to: u16, message: Message) {
        let own = self.0.execution.setup.shard();
        self.0.execution.joint.send(own, to, message);
    }

    /// Takes one message in.
    fn receive(&mut self, step: &mut Step<'_, P::Block>, from: u16, message: Message) {
        match message {
            Message::Claim(change, keys) => self.claim(from, change, keys),
            Message::Read(reader, keys) => self.note_read_keys(reader, &keys),
            Message::Prepare(change, writer, left) => {
                if let Some(held) = self.held(from, change) {
                    held.writer = Some(writer);
                    held.left = left;
                    held.phase = HeldPhase::Preparing;
                }
            }
            Message::Decided(change) => {
                let held = self.held(from, change).expect("its part is prepared");
                assert!(held.phase == HeldPhase::Ready, "{:?}", held.phase);
                held.phase = HeldPhase::Applying(0, Lsn(0));
            }
            Message::Redo(change, left) => {
                assert!(
                    self.0.execution.joint.start.is_some(),
                    "redo behind a start"
                );
                let leader = from;
                let held = Held::of_redo(ChangeName { leader, change }, left);
                self.0.execution.joint.held.push(held);
            }
            Message::Release(change) => self.release(step, from, change),
            Message::Granted(change, copies) => {
                let Some(led) = self.led(change) else { return };
                let next = led.granted(from, copies);
                let keys = next.map(|next| led.keys[&next].clone());
                if let Some((next, keys)) = next.zip(keys) {
                    self.send_joint(next, Message::Claim(change, keys));
                }
                self.bound_led(step.now, change);
            }
            Message::Refused(change, status, text) => {
                if let Some(at) = self.led_at(change)
                    && !self.0.execution.joint.led[at].is_decided()
                {
                    self.refuse_led(step, at, status, &text);
                }
            }
            Message::LacksRoom(change) => {
                if let Some(at) = self.led_at(change)
                    && !self.0.execution.joint.led[at].is_decided()
                {
                    self.rest(step.now, at);
                }
            }
            Message::Ready(change) => {
                if let Some(led) = self.led(change) {
                    led.is_ready(from);
                }
            }
            Message::Applied(change) => {
                if let Some(led) = self.led(change) {
                    led.applied(from);
                }
            }
            Message::Resumed => self.resumed(step, from),
        }
    }

    /// Has a change rest whose copies are too many beside those of others.
    fn bound_led(&mut self, now: Now, change: u64) {
        let bytes_max = self.0.execution.setup.config().parked_bytes_max / 2;
        let joint = &self.0.execution.joint;
        let all = joint.led.iter().map(Led::copies_bytes).sum::<usize>();
        if all > bytes_max
            && let Some(at) = self.led_at(change)
            && self.0.execution.joint.led[at].copies_bytes() < all
        {
            self.rest(now, at);
        }
    }

    fn held(&mut self, leader: u16, change: u64) -> Option<&mut Held> {
        let name = ChangeName { leader, change };
        let held = &mut self.0.execution.joint.held;
        held.iter_mut().find(|held| held.name == name)
    }

    fn led_at(&self, change: u64) -> Option<usize> {
        let mut led = self.0.execution.joint.led.iter();
        led.position(|led| led.has_begun() && led.change == change)
    }

    fn led(&mut self, change: u64) -> Option<&mut Led> {
        let at = self.led_at(change)?;
        self.0.execution.joint.led.get_mut(at)
    }

    /// Gives a claim back, and what was kept for its part. Operations that waited for it run.
    fn release(&mut self, step: &mut Step<'_, P::Block>, leader: u16, change: u64) {
        let name = ChangeName { leader, change };
        let joint = &mut self.0.execution.joint;
        if let Some(at) = joint.held.iter().position(|held| held.name == name) {
            let held = joint.held.remove(at);
            joint.copied_bytes -= held.copies_bytes();
            assert!(
                !held.is_owed(),
                "a part that is decided is released when it is durable"
            );
            if let Some(reserved) = held.reserved {
                self.0.execution.store.unreserve_part(&reserved);
            }
        }
        if let Some(number) = self.0.execution.joint.release(name) {
            self.claim_ends(step, place_of(number));
        }
        self.0.execution.phase.note_progress(true);
    }

    /// Answers a change that is not decided, and gives up all that it claimed.
    fn refuse_led(&mut self, step: &mut Step<'_, P::Block>, at: usize, status: Status, text: &str) {
        let led = self.0.execution.joint.led.remove(at).expect("it is led");
        self.give_up_claims(&led);
        self.0.execution.phase.note_progress(true);
        self.0.execution.joint.counters.refused += 1;
        let Some(mut parked) = led.parked else { return };
        if let Some(reserved) = &led.reserved {
            self.0.execution.store.unreserve_part(reserved);
        }
        self.0.unreserve(&mut parked);
        let operation = Operation::of(&parked);
        let mut out = Vec::new();
        let disposition = self
            .0
            .execution
            .refuse_item(ASKED, &operation, status, &text, &mut out);
        let terms = self.0.execution.terms(&disposition);
        let terms = terms.unwrap_or(AnswerTerms::behind(Lsn(0)));
        let (origin, address) = (parked.origin, parked.address);
        self.0
            .execution
            .stats
            .answer_later(step.now.us, parked.came_us);
        self.0
            .answer_detached(origin, address, terms, &out.into(), step.outbox);
    }

    /// Gives up what a change has claimed.
    fn give_up_claims(&mut self, led: &Led) {
        if led.phase == LedPhase::Waiting {
            return;
        }
        for shard in led.asked.clone() {
            self.send_joint(shard, Message::Release(led.change));
        }
    }
}
