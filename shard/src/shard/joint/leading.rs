//! The changes that this shard leads: claimed, run on copies, decided, closed.

use std::collections::BTreeMap;

use penstock_net::item::ItemForm;
use penstock_net::limits::EXPIRY_MS_MAX;
use penstock_net::reply::ReplyHead;
use penstock_net::request::Version;
use penstock_net::resp::{
    ExpiryLeft, NO_SCRIPT, Replies, SCRIPT_KEYS_MAX, Staged, for_each_missing_key,
    for_each_named_key, protocol_of,
};
use penstock_net::script::{SCRIPT_RUNS_MAX, ScriptRequest};
use penstock_net::slot::{slot_of, tag_of};
use penstock_net::status::Status;
use penstock_storage::io::Blocks;
use penstock_storage::place::Lsn;
use penstock_storage::record::{VALUE_BYTES_MAX, ValueKind};
use penstock_storage::redo;
use penstock_storage::store::{NoRoom, PartNeeds, Writer};
use penstock_storage::system_key::{REDO_KEY_BYTES, redo_keys};
use penstock_storage::version::{PARTITIONS, SLOTS};

use crate::accounts::busy::AnswerTerms;
use crate::execution::operation::Operation;
use crate::execution::verbs::Cold;
use crate::execution::verbs::copied::CopiedKeys;
use crate::execution::verbs::script::{self, ASKED, Bounds, Ended, NO_MESSAGES, too_much_of};
use crate::joint::led::{Answer, Led, LedPhase, RedoRecord};
use crate::joint::message::{ClaimedKey, LeftKey, LeftValue, Message, ReadKey};
use crate::joint::{CHECK_US, LED_MAX, REST_US, RESTS_MAX};
use crate::now::Now;
use crate::scripts::{ScriptEnd, Scripts};
use crate::sessions::SMALL_ANSWER_BYTES;
use crate::shard::script_item::run_bytes;
use crate::step::Step;

use super::JointStep;
use super::parts::PartStep;

/// Why a change does not go on.
pub(super) type Refused = (Status, String);

/// What a run has led to.
pub(super) enum Ran {
    /// It needs this read first, and then runs with the same copies.
    Reads(Cold),
    /// There is no room for what it needs now.
    Rests,
    /// Effects of a key are due: all keys are copied anew.
    Anew,
    /// It needs this key, too.
    Wants(Box<[u8]>),
    Refused(Refused),
    /// It is to be decided, or has its answer already: it changes nothing.
    Ended(Answer),
}

impl<P: Blocks> JointStep<'_, P> {
    /// Goes on with all changes that this shard leads, as far as they can.
    pub(super) fn step_led(&mut self, step: &mut Step<'_, P::Block>) {
        let mut at = 0;
        while at < self.0.execution.joint.led.len() {
            let count = self.0.execution.joint.led.len();
            while self.0.execution.joint.led.len() == count && self.step_one(step, at) {}
            // One that is over has left its place to the next one.
            at += usize::from(self.0.execution.joint.led.len() == count);
            // All that have begun stand before those that wait.
            let joint = &self.0.execution.joint;
            let waits = joint.led.get(at).is_some_and(|led| !led.has_begun());
            if waits && (at >= LED_MAX || joint.start.is_some()) {
                return self.refuse_late(step, at);
            }
        }
    }

    /// Refuses those that wait and whose time is over, once in a while.
    fn refuse_late(&mut self, step: &mut Step<'_, P::Block>, from: usize) {
        let is_stopping = self.0.execution.phase.is_stopping();
        let joint = &mut self.0.execution.joint;
        if step.now.us < joint.next_check_us && !is_stopping {
            return;
        }
        joint.next_check_us = step.now.us + CHECK_US;
        let mut at = from;
        while let Some(led) = self.0.execution.joint.led.get(at) {
            match self.comes_too_late_to_join(step, led) {
                Some((status, text)) => self.refuse_led(step, at, status, text),
                None => at += 1,
            }
        }
    }

    /// Goes one step on with the change at this place. `false`: it waits.
    fn step_one(&mut self, step: &mut Step<'_, P::Block>, at: usize) -> bool {
        let durable = self.0.execution.store.log().durable();
        let is_on_hold = self.0.execution.joint.is_on_hold(step.now.us);
        let led = &self.0.execution.joint.led[at];
        if !led.is_decided()
            && let Some((status, text)) = self.comes_too_late_to_join(step, led)
        {
            self.refuse_led(step, at, status, text);
            return true;
        }
        match led.phase {
            LedPhase::Waiting => self.begin_led(step, at),
            LedPhase::Resting(until_us) if step.now.us >= until_us => {
                self.claim_all(at);
                true
            }
            LedPhase::Claiming | LedPhase::Preparing | LedPhase::Applying => false,
            LedPhase::Running if self.0.execution.slice.is_over() => {
                // The next turn goes on.
                self.0.execution.phase.note_progress(true);
                false
            }
            LedPhase::Running => self.run_led(step, at),
            LedPhase::Reserving => self.reserve_redo(step, at),
            LedPhase::Ready => !is_on_hold && self.decide(step, at),
            LedPhase::Decided(lsn) if lsn <= durable => {
                let led = &mut self.0.execution.joint.led[at];
                led.applies();
                let (change, shards) = (led.change, led.asked.clone());
                for shard in shards {
                    self.send_joint(shard, Message::Decided(change));
                }
                true
            }
            LedPhase::Closing => self.close_redo(step, at),
            LedPhase::Closed(lsn) if lsn <= durable => {
                self.end_led(at);
                true
            }
            LedPhase::Resting(_) | LedPhase::Decided(_) | LedPhase::Closed(_) => false,
        }
    }

    fn comes_too_late_to_join(
        &self,
        step: &Step<'_, P::Block>,
        led: &Led,
    ) -> Option<(Status, &'static str)> {
        let text = "nothing was executed: other changes over several shards, or a lack of room, \
                    kept this one from its keys until its time was over";
        let late = self.0.execution.comes_too_late(step.now, led.deadline_us);
        late.map(|(status, said)| match status {
            Status::Deadline => (Status::Deadline, text),
            status => (status, said),
        })
    }

    /// Begins a change, if few others are under way.
    fn begin_led(&mut self, step: &mut Step<'_, P::Block>, at: usize) -> bool {
        if at >= LED_MAX || self.0.execution.joint.start.is_some() {
            return false;
        }
        let parked = self.0.execution.joint.led[at].parked.as_ref();
        let item = parked.expect("it is not answered").item.clone();
        if ItemForm::of(&item) == ItemForm::Apply {
            self.begin_program(at, &item);
            return true;
        }
        let request = ScriptRequest::read(&item).expect("it was read before");
        let led = &mut self.0.execution.joint.led[at];
        (led.spent, led.time_us) = (request.spent(), request.time_us());
        let mut names: BTreeMap<Box<[u8]>, Option<Version>> = BTreeMap::new();
        for_each_named_key(&request, |key| {
            if names.len() <= SCRIPT_KEYS_MAX {
                names.insert(key.into(), None);
            }
        });
        if names.len() > SCRIPT_KEYS_MAX {
            let text = format!(
                "nothing was executed: more than {SCRIPT_KEYS_MAX} keys of several shards, which \
                 is the limit"
            );
            self.refuse_led(step, at, Status::TooLarge, &text);
            return true;
        }
        for_each_missing_key(&request, |key, since| {
            names.insert(key.into(), Some(since));
        });
        self.claim_names(at, names);
        true
    }

    /// Claims keys with these names, which were missing since these versions.
    pub(super) fn claim_names(
        &mut self,
        at: usize,
        names: impl IntoIterator<Item = (Box<[u8]>, Option<Version>)>,
    ) {
        let setup = &self.0.execution.setup;
        let mut keys: BTreeMap<u16, Vec<ClaimedKey>> = BTreeMap::new();
        for (key, since) in names {
            let owner = setup.owner(slot_of(&key));
            keys.entry(owner)
                .or_default()
                .push(ClaimedKey { key, since });
        }
        self.0.execution.joint.led[at].set_keys(keys);
        self.claim_all(at);
    }

    /// Gives up what a change has, because there is no room for it now. It begins anew.
    pub(super) fn rest(&mut self, now: Now, at: usize) {
        self.release_all(at);
        let shard = self.0.execution.setup.shard();
        let led = &mut self.0.execution.joint.led[at];
        let reserved = led.reserved.take();
        // Two that want each other's room do not rest equally long.
        let parts = 1 + (led.change + u64::from(shard)) % 8;
        led.rests = (led.rests + 1).min(RESTS_MAX);
        let rest_us = (REST_US << led.rests) / 8 * parts;
        led.rest(now.us + rest_us);
        if let Some(reserved) = reserved {
            self.0.execution.store.unreserve_part(&reserved);
        }
        self.0.execution.phase.note_progress(true);
    }

    /// Claims all keys of a change, from its first shard on.
    fn claim_all(&mut self, at: usize) {
        let joint = &mut self.0.execution.joint;
        let change = joint.next_change();
        let led = &mut joint.led[at];
        if let Some(first) = led.begin(change) {
            let keys = led.keys[&first].clone();
            self.send_joint(first, Message::Claim(change, keys));
        }
    }

    /// Runs a change on its copies. `false`: it waits for a read.
    fn run_led(&mut self, step: &mut Step<'_, P::Block>, at: usize) -> bool {
        if self.is_denied_by_now(at) {
            let text = "the rights of the user have changed meanwhile";
            self.refuse_led(step, at, Status::Denied, text);
            return true;
        }
        let parked = self.0.execution.joint.led[at].parked.as_ref();
        let item = &parked.expect("it is not answered").item;
        let ran = match ItemForm::of(item) {
            ItemForm::Apply => self.run_program(step.now, at),
            _ => {
                let mut scripts = self.0.execution.scripts.take();
                let ran = self.run_on_copies(at, &mut scripts);
                self.0.execution.scripts = scripts;
                ran
            }
        };
        match ran {
            Ran::Reads(cold) => {
                PartStep(&mut self.0.execution).read_for_part(cold);
                return false;
            }
            Ran::Rests => self.rest(step.now, at),
            Ran::Anew => {
                self.release_all(at);
                self.claim_all(at);
            }
            Ran::Refused((status, text)) => self.refuse_led(step, at, status, &text),
            Ran::Wants(key) => {
                self.release_all(at);
                let owner = self.0.execution.setup.owner(slot_of(&key));
                let led = &mut self.0.execution.joint.led[at];
                led.add_key(owner, ClaimedKey { key, since: None });
                self.claim_all(at);
            }
            Ran::Ended(answer) if self.0.execution.joint.led[at].parts.is_empty() => {
                self.release_all(at);
                let mut led = self.0.execution.joint.led.remove(at).expect("it is led");
                let gate = answer.gate;
                led.answer = Some(answer);
                self.answer_led(step, &mut led, gate);
            }
            Ran::Ended(answer) => {
                let led = &mut self.0.execution.joint.led[at];
                led.answer = Some(answer);
                led.phase = LedPhase::Reserving;
            }
        }
        true
    }

    /// Whether the rights of its user do not allow a change any more.
    fn is_denied_by_now(&mut self, at: usize) -> bool {
        let led = &mut self.0.execution.joint.led[at];
        let mut parked = led.parked.take().expect("it is not answered");
        self.0.front.renew_rights(&mut parked);
        let is_denied = self.0.execution.is_denied(&Operation::of(&parked));
        self.0.execution.joint.led[at].parked = Some(parked);
        is_denied
    }

    fn release_all(&mut self, at: usize) {
        let led = &self.0.execution.joint.led[at];
        let (change, shards) = (led.change, led.asked.clone());
        for shard in shards {
            self.send_joint(shard, Message::Release(change));
        }
    }

    /// Runs a change on its copies, and notes what it leaves.
    fn run_on_copies(&mut self, at: usize, scripts: &mut Option<Box<dyn Scripts>>) -> Ran {
        let value_bytes_max = self.0.execution.setup.limits().value_bytes_max as usize;
        let time_us = self.0.execution.store.data().clock().time_us().max(1);
        let led = &mut self.0.execution.joint.led[at];
        let (time_us, spent) = (*led.time_us.get_or_insert(time_us), led.spent);
        let parked = led.parked.as_ref().expect("it is not answered");
        let (item, origin, session) = (parked.item.clone(), parked.origin, parked.address.session);
        let request = ScriptRequest::read(&item).expect("it was read before");
        let mut reply = Vec::new();
        let bounds = Bounds {
            time_us,
            value_bytes_max,
            reply_bytes_max: self.0.reply_bytes_max(&request, value_bytes_max),
            spent,
        };
        let led = &self.0.execution.joint.led[at];
        let publisher = self.0.execution.publications.publisher();
        let now_ms = self.0.execution.store.data().time_ms();
        let mut keys = CopiedKeys::new(&request, &led.copies, now_ms, publisher);
        let interpreter = scripts.as_mut().map(|it| &mut **it as &mut dyn Scripts);
        let ended = script::run_on(interpreter, &request, bounds, &mut keys, &mut reply);
        let missing = keys.missing.take();
        let Ended { end, staged, .. } = &ended;
        let bytes = run_bytes(&item, &reply, staged);
        self.0.execution.slice.ran(bytes, ended.spent);
        let led = &mut self.0.execution.joint.led[at];
        led.spent = led.spent.and(ended.spent);
        if let Some(key) = missing {
            led.runs += 1;
            if led.runs < SCRIPT_RUNS_MAX && ended.may_run_again {
                return Ran::Wants(key);
            }
            let text = format!(
                "TRYAGAIN nothing was executed: in each of {} runs the script has met a key that \
                 it had not named",
                led.runs
            );
            reply.clear();
            Replies::new(&mut reply, protocol_of(&request)).error(text.as_bytes());
            return Ran::Ended(Answer::of_script(reply, Vec::new()));
        }
        let mut keeps = *end == ScriptEnd::Answered;
        if *end == ScriptEnd::Unknown {
            Replies::new(&mut reply, protocol_of(&request)).error(NO_SCRIPT);
        }
        if keeps && let Some(text) = too_much_of(staged) {
            reply.clear();
            keeps = false;
            Replies::new(&mut reply, protocol_of(&request)).error(text.as_bytes());
        }
        if reply.len() > SMALL_ANSWER_BYTES && !self.0.has_room_for_more(origin, session) {
            let text = format!(
                "the answer has {} bytes, and replies have taken their room",
                reply.len()
            );
            return Ran::Refused((Status::Busy, text));
        }
        let Ok(messages) = self.0.messages_of(staged, keeps) else {
            return Ran::Refused((Status::Busy, NO_MESSAGES.to_string()));
        };
        if keeps && let Err(refused) = self.note_parts(at, staged) {
            return Ran::Refused(refused);
        }
        self.note_reads(at, staged);
        Ran::Ended(Answer::of_script(reply, messages))
    }

    /// Bytes that a redo record has, at most.
    pub(super) fn redo_bytes_max(&self) -> usize {
        let longest = PartNeeds::record_bytes(REDO_KEY_BYTES, VALUE_BYTES_MAX);
        self.0.execution.store.log().record_bytes_max().min(longest)
    }

    /// Notes what a run leaves of each key, by shard.
    fn note_parts(&mut self, at: usize, staged: &Staged) -> Result<(), Refused> {
        let setup = &self.0.execution.setup;
        let record_bytes_max = self.redo_bytes_max();
        let from_ms = self.0.execution.store.data().clock().next_ms();
        let led = &mut self.0.execution.joint.led[at];
        let mut bytes = PartNeeds::record_bytes(REDO_KEY_BYTES, 0);
        for left in staged.left() {
            let ttl_ms = led.copies[left.name].ttl_ms;
            let expiry_ms = match left.expiry {
                ExpiryLeft::Never => None,
                ExpiryLeft::At(ms) => Some(ms.clamp(1, EXPIRY_MS_MAX)),
                ExpiryLeft::OfKeyspace => Some(ttl_ms)
                    .filter(|ms| *ms > 0)
                    .map(|ms| (from_ms + ms).min(EXPIRY_MS_MAX)),
            };
            let key = LeftKey {
                key: left.name.into(),
                seen: led.copies[left.name].seen,
                left: left.value.map(|value| LeftValue {
                    bytes: value.into(),
                    kind: match left.has_members {
                        true => ValueKind::Head,
                        false => ValueKind::Plain,
                    },
                    expiry_ms,
                    keeps_effects: left.keeps_effects,
                }),
            };
            bytes += key.redo_bytes();
            let shard = setup.owner(slot_of(left.name));
            led.leaves(shard, key);
        }
        match check_redo_bytes(bytes, record_bytes_max) {
            Ok(()) => Ok(()),
            Err(refused) => {
                led.parts.clear();
                Err(refused)
            }
        }
    }

    /// Tells the shards what a script has read, for clients that keep values.
    fn note_reads(&mut self, at: usize, staged: &Staged) {
        let execution = &mut self.0.execution;
        if execution.store.data_mut().changed_keys().is_none() {
            return;
        }
        let led = &execution.joint.led[at];
        let reader = writer_of_led(led, execution.setup.shard());
        let mut read: BTreeMap<u16, Vec<ReadKey>> = BTreeMap::new();
        for key in staged.script_reads() {
            let value = led.copies[key].value.as_ref();
            let expiry_ms = value.and_then(|value| value.expiry_ms);
            let owner = execution.setup.owner(slot_of(key));
            read.entry(owner).or_default().push((key.into(), expiry_ms));
        }
        for (shard, keys) in read {
            self.send_joint(shard, Message::Read(reader, keys));
        }
    }

    /// Keeps room for the redo record, and asks the shards for theirs.
    fn reserve_redo(&mut self, step: &mut Step<'_, P::Block>, at: usize) -> bool {
        let led = &self.0.execution.joint.led[at];
        let bytes = led.parts.values().flatten().map(LeftKey::redo_bytes);
        let mut needs = PartNeeds::default();
        needs.add_record(REDO_KEY_BYTES, bytes.sum(), led.grows);
        match self.0.execution.store.reserve_part(&needs) {
            Ok(()) => {}
            Err(NoRoom::Wait) => {
                self.rest(step.now, at);
                return true;
            }
            Err(_) => {
                let text = "the disk is full, or disk_bytes_max is used up: there is no room for \
                            the record that decides this change";
                self.refuse_led(step, at, Status::Full, text);
                return true;
            }
        }
        let shard = self.0.execution.setup.shard();
        let led = &mut self.0.execution.joint.led[at];
        led.reserved = Some(needs);
        let (change, without) = (led.change, led.prepares());
        let writer = writer_of_led(led, shard);
        let parts: Vec<(u16, Vec<LeftKey>)> = led
            .parts
            .iter()
            .map(|(shard, part)| (*shard, part.clone()))
            .collect();
        for shard in without {
            self.send_joint(shard, Message::Release(change));
        }
        for (shard, part) in parts {
            self.send_joint(shard, Message::Prepare(change, writer, part));
        }
        true
    }

    /// Logs the redo record: the change is decided when it is durable.
    fn decide(&mut self, step: &mut Step<'_, P::Block>, at: usize) -> bool {
        let Some(letter) = self.0.execution.joint.take_letter() else {
            return false;
        };
        let key = self.redo_key(letter);
        let mut value = Vec::new();
        let led = &self.0.execution.joint.led[at];
        for left in led.parts.values().flatten() {
            redo::write(&left.outcome(), &mut value);
        }
        let record = LeftKey {
            key: key.as_slice().into(),
            seen: None,
            left: Some(LeftValue {
                bytes: value.into(),
                kind: ValueKind::Plain,
                expiry_ms: None,
                keeps_effects: false,
            }),
        };
        let home = self.0.execution.setup.hash().home_of(&key);
        let Some(logged) = PartStep(&mut self.0.execution).leave_key(step.now, &record, true)
        else {
            self.0.execution.joint.give_letter(letter);
            return false;
        };
        let lsn = logged.expect("a record of this letter is gone");
        self.0.execution.store.data_mut().redo_begins(home);
        self.0.execution.store.log_mut().want_durable(lsn);
        self.0.execution.joint.counters.decided += 1;
        let mut led = self.0.execution.joint.led.remove(at).expect("it is led");
        led.phase = LedPhase::Decided(lsn);
        led.redo = Some(RedoRecord {
            key,
            home,
            letter: Some(letter),
        });
        self.answer_led(step, &mut led, lsn);
        led.parts.clear();
        self.0.execution.joint.led.insert(at, led);
        true
    }

    /// The key of the redo record with this letter: of the first partition of this shard.
    fn redo_key(&self, letter: usize) -> [u8; REDO_KEY_BYTES] {
        let partition = self.0.execution.setup.partitions()[0];
        let slot = partition * (usize::from(SLOTS) / PARTITIONS);
        let tag = tag_of(u16::try_from(slot).expect("256 partitions"));
        redo_keys(tag).nth(letter).expect("a letter of a record")
    }

    /// Answers a change, behind this record.
    fn answer_led(&mut self, step: &mut Step<'_, P::Block>, led: &mut Led, lsn: Lsn) {
        let mut parked = led.parked.take().expect("it is answered once");
        let answer = led.answer.take().expect("it has run");
        let Answer {
            reply,
            messages,
            of_program,
            ..
        } = answer;
        self.0.unreserve(&mut parked);
        let operation = Operation::of(&parked);
        let level = self.0.execution.reachable(operation.level);
        let level = level.max(penstock_net::level::AckLevel::Disk);
        let mut out = Vec::new();
        match of_program {
            Some(_) => out = reply,
            None => {
                let item = parked.address.item;
                ReplyHead::new(Status::Ok, item, level, Version::default()).write(&mut out, &reply);
            }
        }
        let status = of_program.unwrap_or(Status::Ok);
        self.0.execution.stats.answer(ASKED, status);
        self.0
            .execution
            .stats
            .answer_later(step.now.us, parked.came_us);
        self.0.publish(messages, lsn);
        let terms = AnswerTerms::behind(lsn);
        let (origin, address) = (parked.origin, parked.address);
        self.0
            .answer_detached(origin, address, terms, &out.into(), step.outbox);
    }

    /// Takes the redo record away: all parts are durable.
    fn close_redo(&mut self, step: &mut Step<'_, P::Block>, at: usize) -> bool {
        let led = &self.0.execution.joint.led[at];
        let key = led.redo.expect("it is decided").key;
        let gone = LeftKey {
            key: key.as_slice().into(),
            seen: None,
            left: None,
        };
        let Some(logged) = PartStep(&mut self.0.execution).leave_key(step.now, &gone, true) else {
            return false;
        };
        let lsn = logged.expect("it was there");
        self.0.execution.store.log_mut().want_durable(lsn);
        self.0.execution.joint.led[at].phase = LedPhase::Closed(lsn);
        true
    }

    /// The redo record is gone: slots are free.
    fn end_led(&mut self, at: usize) {
        self.release_all(at);
        let led = self.0.execution.joint.led.remove(at).expect("it is led");
        let redo = led.redo.expect("it is decided");
        self.0.execution.store.data_mut().redo_ends(redo.home);
        if let Some(reserved) = &led.reserved {
            self.0.execution.store.unreserve_part(reserved);
        }
        match redo.letter {
            Some(letter) => self.0.execution.joint.give_letter(letter),
            None => self.0.execution.joint.counters.resumed += 1,
        }
        self.0.execution.phase.note_progress(true);
    }
}

/// The connection that asks for a change that this shard leads.
fn writer_of_led(led: &Led, shard: u16) -> Writer {
    let parked = led.parked.as_ref().expect("it is not answered");
    parked.origin.writer(shard, parked.address.session)
}

/// Refuses a change whose redo record would have more bytes than a record may.
pub(super) fn check_redo_bytes(bytes: usize, bytes_max: usize) -> Result<(), Refused> {
    match bytes <= bytes_max {
        true => Ok(()),
        false => {
            let text = format!(
                "what this change leaves takes {bytes} bytes of the log, and {bytes_max} is the \
                 limit"
            );
            Err((Status::TooLarge, text))
        }
    }
}
