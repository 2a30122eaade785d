//! A command that pops, and waits until it can.
//!
//! ```text
//!  begins --> waits for its keys --> tries those that it may, shard after shard
//!                  ^                        |                         |
//!                  |      nothing there     |                         | an element, an error
//!                  +------------------------+                         v
//!                  |                                                reply
//!                  +-- its time is over, CLIENT UNBLOCK: null, an error --^
//! ```
//!
//! A try is an item that runs in the shard of its keys as any other: the same command with those
//! keys alone, which never waits there. So an element is popped by one durable change, and the
//! reply waits for its level.

use std::collections::{HashSet, VecDeque};
use std::ops::Range;

use crate::limits::KEY_BYTES_MAX;
use crate::request::BatchRequest;
use crate::script::{ScriptAccess, ScriptItem, ScriptName, ScriptReach};
use crate::slot::slot_of;
use crate::status::Status;

use super::answer::{self, Fold, ItemAnswer};
use super::members::head::MemberType;
use super::model::WRONG_TYPE;
use super::number::read_integer;
use super::parser::{Arguments, KeptArguments};
use super::queued::put_command;
use super::reply::{Protocol, Replies};
use super::table::Name;
use super::timeout::read_timeout;
use super::waited_keys::{KeyHas, MayTry};
use super::waiting::KeyWaiters;

const UNBLOCKED: &[u8] = b"UNBLOCKED client unblocked via CLIENT UNBLOCK";

/// Where a command that blocks has what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PopForm {
    /// The arguments that are keys which it waits for.
    keys: Range<usize>,
    /// The argument that is the timeout.
    timeout: usize,
    /// What it pops from.
    of: MemberType,
    takes: Takes,
}

/// Which of its keys a try may take alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    /// Any of them.
    Any,
    /// Any of them, with their number in front.
    Counted,
    /// None: the command names the key, too, that gets the element.
    Whole,
}

impl PopForm {
    /// The form of a command whose arguments were read; `None` of one that never blocks.
    pub(super) fn of(id: Name, args: Arguments<'_>) -> Option<Self> {
        let last = args.len() - 1;
        let of_all = |of| PopForm {
            keys: 1..last,
            timeout: last,
            of,
            takes: Takes::Any,
        };
        let of_counted = |of| {
            let count = read_integer(args.get(2)).and_then(|it| usize::try_from(it).ok());
            let keys = 3..(3 + count?).min(args.len());
            Some(PopForm {
                keys,
                timeout: 1,
                of,
                takes: Takes::Counted,
            })
        };
        match id {
            Name::BLPop | Name::BRPop => Some(of_all(MemberType::List)),
            Name::BLMPop => of_counted(MemberType::List),
            Name::BLMove | Name::BRPopLPush => Some(PopForm {
                keys: 1..2,
                takes: Takes::Whole,
                ..of_all(MemberType::List)
            }),
            Name::BzPopMax | Name::BzPopMin => Some(of_all(MemberType::Zset)),
            Name::BzMPop => of_counted(MemberType::Zset),
            _ => None,
        }
    }

    /// How many keys it names.
    pub(super) fn keys(&self) -> usize {
        self.keys.len()
    }
}

/// A key that it waits for.
#[derive(Clone, Copy, Debug)]
struct WaitedKey {
    /// The argument.
    place: usize,
    shard: u16,
    /// It was tried, and had nothing.
    was_tried: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The first try that waits is to be sent.
    MayAsk,
    Asked,
    /// Its keys have nothing.
    Waits,
    Done,
}

/// What ends a wait without an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unblocked {
    AsByTimeout,
    ByError,
}

/// A command that pops, or waits until it can.
#[derive(Debug)]
pub(super) struct BlockedPop {
    form: PopForm,
    args: KeptArguments,
    keys: Vec<WaitedKey>,
    /// The place of the connection in the order of all who wait.
    ticket: u64,
    /// When its time is over, by the clock of the host.
    until_us: Option<u64>,
    phase: Phase,
    /// The keys of each try that is to come, as places in `keys`; the first one is under way in
    /// [`Phase::Asked`].
    tries: VecDeque<Vec<usize>>,
    /// It may try a key that it has not tried since.
    is_notified: bool,
    /// It tries all keys once more, because its time is over.
    is_last: bool,
    unblocked: Option<Unblocked>,
    reply: Vec<u8>,
    /// The slot that it has popped from.
    popped_slot: Option<u16>,
    /// How far a try reaches whose keys are of several slots.
    far: ScriptReach,
}

impl BlockedPop {
    /// Begins to wait for the keys of a command whose arguments were read, at this time.
    ///
    /// # Errors
    /// The text of an error.
    pub(super) fn begin(
        form: PopForm,
        args: Arguments<'_>,
        (client, now_us, joins_cores): (u64, u64, bool),
        waiters: &dyn KeyWaiters,
    ) -> Result<Self, String> {
        let timeout_ms = read_timeout(args.get(form.timeout)).ok().flatten();
        let mut names = HashSet::new();
        let places = form.keys.clone();
        let keys = places.filter(|place| names.insert(args.get(*place)));
        let keys: Vec<WaitedKey> = keys
            .map(|place| WaitedKey {
                place,
                shard: waiters.shard_of(args.get(place)),
                was_tried: false,
            })
            .collect();
        let names: Vec<&[u8]> = keys.iter().map(|key| args.get(key.place)).collect();
        let begun = waiters.begin(client, form.of.number(), &names);
        let mut pop = BlockedPop {
            ticket: begun.map_err(|full| full.text())?,
            until_us: timeout_ms.map(|ms| now_us.saturating_add(ms.saturating_mul(1000))),
            form,
            args: KeptArguments::of(args),
            keys,
            phase: Phase::Waits,
            tries: VecDeque::new(),
            is_notified: true,
            is_last: false,
            unblocked: None,
            reply: Vec::new(),
            popped_slot: None,
            far: ScriptReach::Node,
        };
        if pop.form.takes == Takes::Whole && joins_cores {
            let shards = [1, 2].map(|place| waiters.shard_of(args.get(place)));
            if shards[0] != shards[1] {
                pop.far = ScriptReach::Shards;
            }
        }
        pop.go_on(now_us, waiters);
        Ok(pop)
    }

    /// The ticket of the connection, if it waits.
    pub(super) fn waits(&self) -> Option<u64> {
        let has_tried = self.keys.iter().any(|key| key.was_tried);
        let waits = self.phase == Phase::Waits || has_tried && self.phase != Phase::Done;
        waits.then_some(self.ticket)
    }

    /// When its time is over, if it has one and no try is under way.
    pub(super) fn until_us(&self) -> Option<u64> {
        self.until_us.filter(|_| self.phase == Phase::Waits)
    }

    /// Whether a try is to come for a reason other than its time.
    pub(super) fn is_notified(&self) -> bool {
        self.phase == Phase::Waits && self.is_notified
    }

    /// Whether CLIENT UNBLOCK has named the connection.
    pub(super) fn is_unblocked(&self) -> bool {
        self.unblocked.is_some()
    }

    /// It may try a key.
    pub(super) fn notify(&mut self) {
        self.is_notified = true;
    }

    /// CLIENT UNBLOCK has named the connection while it had this ticket.
    pub(super) fn unblock(&mut self, ticket: u64, is_error: bool) {
        if ticket == self.ticket {
            self.unblocked = Some(match is_error {
                true => Unblocked::ByError,
                false => Unblocked::AsByTimeout,
            });
        }
    }

    /// Bytes of what the client has sent for it.
    pub(super) fn bytes(&self) -> usize {
        self.args.bytes() + self.keys.capacity() * size_of::<WaitedKey>()
    }

    /// Room that a try needs.
    pub(super) fn try_bytes(&self) -> usize {
        self.bytes() + KEY_BYTES_MAX
    }

    /// Whether a try is to be sent.
    pub(super) fn may_ask(&self) -> bool {
        self.phase == Phase::MayAsk
    }

    /// Goes on from a wait: with tries of the keys that it may try, or to its end.
    pub(super) fn go_on(&mut self, now_us: u64, waiters: &dyn KeyWaiters) {
        if self.phase != Phase::Waits {
            return;
        }
        let is_late = self.until_us.is_some_and(|until_us| now_us >= until_us);
        if let Some(unblocked) = self.unblocked {
            return self.end_without(unblocked, waiters);
        }
        if !std::mem::take(&mut self.is_notified) && !is_late {
            return;
        }
        let (mut tried, mut has_later) = (Vec::new(), false);
        for (number, key) in self.keys.iter().enumerate() {
            match waiters.may_try(self.args.view().get(key.place), self.ticket) {
                MayTry::Now => tried.push(number),
                MayTry::Later => has_later = true,
                MayTry::Nothing => {}
            }
        }
        if is_late && (has_later || !tried.is_empty()) {
            // A key that it has never tried may have had an element all the time.
            tried = (0..self.keys.len()).collect();
            self.is_last = true;
        }
        for number in tried {
            let shard = self.keys[number].shard;
            match self.tries.back_mut() {
                Some(before) if self.keys[before[0]].shard == shard => before.push(number),
                _ => self.tries.push_back(vec![number]),
            }
        }
        match () {
            () if !self.tries.is_empty() => self.phase = Phase::MayAsk,
            () if is_late => self.end_without(Unblocked::AsByTimeout, waiters),
            () => {}
        }
    }

    /// Adds the item of the next try.
    pub(super) fn send(&mut self, protocol: Protocol, batch: &mut BatchRequest, out: &mut Vec<u8>) {
        self.phase = Phase::Asked;
        let (args, tried) = (self.args.view(), &self.tries[0]);
        let keys = tried
            .iter()
            .map(|number| args.get(self.keys[*number].place));
        let slot = keys.clone().next().map(slot_of);
        let mut is_one_slot = keys.clone().all(|key| Some(slot_of(key)) == slot);
        if self.form.takes == Takes::Whole {
            is_one_slot = Some(slot_of(args.get(2))) == slot;
        }
        let count = keys.len().to_string();
        let mut words: Vec<&[u8]> = args.from(0).take(self.form.keys.start).collect();
        words.extend(keys);
        words.extend(args.from(self.form.keys.end));
        if self.form.takes == Takes::Counted {
            words[self.form.keys.start - 1] = count.as_bytes();
        }
        let mut kept = KeptArguments::default();
        kept.fill(&words);
        let mut command = Vec::new();
        put_command(kept.view(), &mut command);
        let item = ScriptItem {
            script: ScriptName::Command,
            access: ScriptAccess::Changes,
            reach: match is_one_slot {
                true => ScriptReach::Slot,
                false => self.far,
            },
            is_of_resp3: protocol == Protocol::Resp3,
            slot,
            reply_bytes_max: u32::MAX,
        };
        batch.script(out, &item, 0, std::iter::once(&command[..]));
    }

    /// Takes the answer to a try.
    pub(super) fn answered(
        &mut self,
        answer: ItemAnswer<'_>,
        protocol: Protocol,
        waiters: &dyn KeyWaiters,
    ) {
        let Some(tried) = self.tries.pop_front() else {
            return;
        };
        let value = answer.item.value;
        let slot = slot_of(self.args.view().get(self.keys[tried[0]].place));
        let were_tried = tried.iter().all(|number| self.keys[*number].was_tried);
        let is_move = self.form.takes == Takes::Whole;
        let found = match answer.item.head.status {
            Status::Ok if is_null(value) => KeyHas::Nothing,
            // Who waits already takes a value of another type for none.
            Status::Ok if were_tried && !is_move && is_wrong_type(value) => KeyHas::OtherValue,
            Status::Ok => {
                self.popped_slot = (!value.starts_with(b"-")).then_some(slot);
                self.reply = value.to_vec();
                return self.end(waiters);
            }
            _ => {
                let replies = &mut Replies::new(&mut self.reply, protocol);
                answer::write(&Fold::Script, &mut 0, answer, slot, replies);
                return self.end(waiters);
            }
        };
        if found == KeyHas::OtherValue && tried.len() > 1 {
            // That is so of one of them: each is tried alone.
            let alone = tried.into_iter().map(|number| vec![number]);
            alone.rev().for_each(|one| self.tries.push_front(one));
            self.phase = Phase::MayAsk;
            return;
        }
        for number in tried {
            let key = &mut self.keys[number];
            key.was_tried = true;
            waiters.found(self.args.view().get(key.place), self.ticket, found);
        }
        match () {
            () if !self.tries.is_empty() => self.phase = Phase::MayAsk,
            () if self.is_last => self.end_without(Unblocked::AsByTimeout, waiters),
            () => self.phase = Phase::Waits,
        }
    }

    /// Ends the wait: its reply is made, or nobody is there for one.
    pub(super) fn end(&mut self, waiters: &dyn KeyWaiters) {
        self.phase = Phase::Done;
        let args = self.args.view();
        let keys: Vec<&[u8]> = self.keys.iter().map(|key| args.get(key.place)).collect();
        waiters.end(self.ticket, &keys);
    }

    fn end_without(&mut self, why: Unblocked, waiters: &dyn KeyWaiters) {
        if why == Unblocked::ByError {
            Replies::new(&mut self.reply, Protocol::Resp2).error(UNBLOCKED);
        }
        self.end(waiters);
    }

    /// Its reply and the slot that it has popped from, when all is done.
    pub(super) fn outcome(&mut self, protocol: Protocol) -> Option<(Vec<u8>, Option<u16>)> {
        if self.phase != Phase::Done {
            return None;
        }
        if self.reply.is_empty() {
            Replies::new(&mut self.reply, protocol).null_array();
        }
        Some((std::mem::take(&mut self.reply), self.popped_slot.take()))
    }
}

fn is_null(reply: &[u8]) -> bool {
    matches!(reply, b"*-1\r\n" | b"$-1\r\n" | b"_\r\n")
}

fn is_wrong_type(reply: &[u8]) -> bool {
    reply
        .strip_prefix(b"-")
        .is_some_and(|text| text.starts_with(WRONG_TYPE))
}
