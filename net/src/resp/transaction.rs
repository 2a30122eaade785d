//! Transactions: commands that one item cannot say. Keys are read, a pure function runs the
//! commands, and one APPLY with a guard for each key writes what changed, or the keys are read
//! again.

use crate::apply::{Action, ApplyInstruction};
use crate::limits::APPLY_KEYS_MAX;
use crate::reply::{ITEM_FLAG_ARMED, ReplyItem};
use crate::request::{BatchRequest, MemberRead, Wanted};
use crate::slot::slot_of;
use crate::status::Status;
use crate::version::Version;

use super::answer::{self, Told};
use super::bound::ReplyBound;
use super::host::Host;
use super::key_state::{Expires, KeyState, ReadKey, UntilMs};
use super::local;
use super::model::Model;
use super::parser::{Arguments, KeptArguments};
use super::reply::{Protocol, Replies};
use super::request::{Fault, Request};
use super::table;
use super::walk::{Step, Walk};

/// How often the keys are read before a transaction gives up.
const READS_MAX: u32 = 64;

/// A key that WATCH named, and what it was then.
#[derive(Clone, Debug)]
pub(super) struct Watched {
    pub(super) key: Vec<u8>,
    seen: Seen,
}

/// What a watched key was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// It had this version.
    Version(Version),
    /// It had no value, and this was the newest version of its partition.
    Absent(Version),
}

impl Watched {
    /// Bytes that it takes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Watched>() + self.key.capacity()
    }
}

/// What a transaction is for.
#[derive(Debug)]
enum Work {
    /// One command.
    Command(KeptArguments),
    /// The commands of EXEC, and the keys that must be as they were.
    Exec(Vec<KeptArguments>, Vec<Watched>),
    /// What the keys are, and what was seen of each.
    Watch(Vec<Seen>),
    /// Pages of keys instead of keys.
    Walk(Walk),
}

/// A read that the node alone answers which writes the key, and that tells the newest version of
/// the partition: what ABSENT_SINCE asks for.
const AS_IT_IS_NOW: MemberRead = MemberRead {
    staleness_us_max: 0,
    version_min: Version {
        epoch: 0,
        sequence: 0,
    },
};

/// What must be done for a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The reads are to be sent.
    MayRead,
    /// So many reads are not answered.
    Reads(usize),
    /// The APPLY is to be sent.
    MayApply,
    /// It is not answered.
    Applies,
    Done,
}

/// Why a transaction does not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    CrossSlot,
    TooManyKeys,
}

/// A transaction under way.
#[derive(Debug)]
pub(super) struct Transaction {
    /// Its entry of the ring.
    pub(super) entry: u64,
    /// The number of its first item under way.
    first_item: u64,
    work: Work,
    protocol: Protocol,
    value_bytes_max: usize,
    /// What the reply may take.
    bound: Option<ReplyBound>,
    /// Bytes that `work` keeps.
    work_bytes: usize,
    phase: Phase,
    reads: u32,
    keys: Vec<KeyState>,
    now_ms: u64,
    reply: Vec<u8>,
}

impl Transaction {
    /// One command.
    pub(super) fn of_command(
        args: Arguments<'_>,
        request: &Request<'_>,
        protocol: Protocol,
        value_bytes_max: usize,
    ) -> Result<Self, Unfit> {
        let keys = keys_of(|visit| request.for_each_key(visit))?;
        let work = Work::Command(KeptArguments::of(args));
        Ok(Transaction::new(work, keys, protocol, value_bytes_max))
    }

    /// The commands behind MULTI.
    pub(super) fn of_exec(
        commands: Vec<KeptArguments>,
        watched: Vec<Watched>,
        protocol: Protocol,
        value_bytes_max: usize,
    ) -> Result<Self, Unfit> {
        let keys = keys_of(|visit| {
            for command in &commands {
                if let Some(request) = request_of(command.view()) {
                    request.for_each_key(&mut *visit);
                }
            }
            watched.iter().for_each(|watched| visit(&watched.key));
        })?;
        let work = Work::Exec(commands, watched);
        Ok(Transaction::new(work, keys, protocol, value_bytes_max))
    }

    /// A WATCH of these keys.
    pub(super) fn of_watch<'a>(keys: impl Iterator<Item = &'a [u8]>, protocol: Protocol) -> Self {
        let mut names = Vec::new();
        keys.for_each(|key| add_key(&mut names, key));
        let seen = vec![Seen::Absent(Version::default()); names.len()];
        Transaction::new(Work::Watch(seen), names, protocol, 0)
    }

    /// KEYS or RANDOMKEY.
    pub(super) fn of_walk(walk: Walk, protocol: Protocol) -> Self {
        Transaction::new(Work::Walk(walk), Vec::new(), protocol, 0)
    }

    fn new(work: Work, keys: Vec<KeyState>, protocol: Protocol, value_bytes_max: usize) -> Self {
        let work_bytes = match &work {
            Work::Command(command) => command.bytes(),
            Work::Exec(commands, watched) => {
                let commands = commands.iter().map(KeptArguments::bytes);
                commands.sum::<usize>() + watched.iter().map(Watched::bytes).sum::<usize>()
            }
            Work::Watch(seen) => seen.len() * size_of::<Seen>(),
            Work::Walk(walk) => walk.pattern_bytes(),
        };
        Transaction {
            entry: 0,
            first_item: 0,
            work,
            protocol,
            value_bytes_max,
            bound: None,
            work_bytes,
            phase: Phase::MayRead,
            reads: 0,
            keys,
            now_ms: 0,
            reply: Vec::new(),
        }
    }

    /// Refuses the transaction if its reply would be longer than that.
    pub(super) fn bound_reply(&mut self, bound: ReplyBound) {
        self.bound = Some(bound);
    }

    /// The bound is this one by now, if there is one.
    pub(super) fn bound_changes(&mut self, bound: ReplyBound) {
        self.bound = self.bound.map(|_| bound);
    }

    /// Bytes of the commands that it keeps.
    pub(super) fn work_bytes(&self) -> usize {
        self.work_bytes
    }

    /// Bytes of values that were read, and of its reply.
    pub(super) fn value_bytes(&self) -> usize {
        self.reply.capacity() + self.read_bytes()
    }

    /// Bytes of what was read.
    fn read_bytes(&self) -> usize {
        let values = self.keys.iter().map(KeyState::value_bytes);
        let found = match &self.work {
            Work::Walk(walk) => walk.found_bytes(),
            Work::Command(_) | Work::Exec(..) | Work::Watch(_) => 0,
        };
        values.sum::<usize>() + found
    }

    /// Refuses it with BUSY if it keeps values while it waits for more, and gives those back.
    /// `false` if there are none.
    pub(super) fn refuse_more_values(&mut self) -> bool {
        let waits = matches!(self.phase, Phase::Reads(_));
        if !waits || self.read_bytes() == 0 {
            return false;
        }
        self.forget_values();
        self.replies().error(
            b"BUSY nothing was executed: the values of the keys have no room beside the replies \
              of the shard",
        );
        true
    }

    fn forget_values(&mut self) {
        for key in &mut self.keys {
            key.learn(None);
        }
        if let Work::Walk(walk) = &mut self.work {
            walk.forget();
        }
    }

    /// Its reply and, of WATCH, what is watched from now on, when all is done.
    pub(super) fn outcome(&mut self) -> Option<(Vec<u8>, Vec<Watched>)> {
        if self.phase != Phase::Done {
            return None;
        }
        let watched = match &self.work {
            Work::Watch(seen) => {
                let keys = std::mem::take(&mut self.keys);
                let keys = keys.iter().zip(seen);
                keys.map(|(key, seen)| Watched {
                    key: key.name().to_vec(),
                    seen: *seen,
                })
                .collect()
            }
            Work::Command(_) | Work::Exec(..) | Work::Walk(_) => Vec::new(),
        };
        Some((std::mem::take(&mut self.reply), watched))
    }

    /// The slot of its keys, which is one.
    pub(super) fn slot(&self) -> Option<u16> {
        self.keys.first().map(|key| slot_of(key.name()))
    }

    /// How many items are to be sent now.
    pub(super) fn items_to_send(&self) -> usize {
        match self.phase {
            Phase::MayRead if matches!(self.work, Work::Walk(_)) => 1,
            Phase::MayRead => self.keys.len(),
            Phase::MayApply => 1,
            Phase::Reads(_) | Phase::Applies | Phase::Done => 0,
        }
    }

    /// Ends it at once if no key is named.
    pub(super) fn begin(&mut self, host: &dyn Host) {
        self.now_ms = host.time_us() / 1000;
        match &self.work {
            Work::Walk(walk) if walk.is_vain() => {
                self.replies().array(0);
                self.phase = Phase::Done;
            }
            Work::Walk(_) => {}
            _ if self.keys.is_empty() => {
                self.run(host);
                self.phase = Phase::Done;
            }
            _ => {}
        }
    }

    /// Adds the items that are to be sent. The first one gets the number `first_item`.
    pub(super) fn send(&mut self, first_item: u64, batch: &mut BatchRequest, out: &mut Vec<u8>) {
        self.first_item = first_item;
        match self.phase {
            Phase::MayRead => {
                if let Work::Walk(walk) = &self.work {
                    walk.send(batch, out);
                    self.phase = Phase::Reads(1);
                    return;
                }
                for key in &self.keys {
                    match self.work {
                        Work::Watch(_) => {
                            batch.get_of_member(out, key.name(), Wanted::Expiry, AS_IT_IS_NOW);
                        }
                        _ => batch.get_with(out, key.name(), Wanted::ValueExpiryAndEffects),
                    }
                }
                self.reads += 1;
                self.phase = Phase::Reads(self.keys.len());
            }
            Phase::MayApply => {
                let (instructions, data) = self.effects();
                let names: Vec<&[u8]> = self.keys.iter().map(KeyState::name).collect();
                batch.apply_of(out, &names, &instructions, &data);
                self.phase = Phase::Applies;
            }
            Phase::Reads(_) | Phase::Applies | Phase::Done => {}
        }
    }

    /// Takes the answer to one of its items.
    pub(super) fn answered(&mut self, item: u64, told: Told<'_>) {
        let reply = told.item;
        let status = reply.head.status;
        if matches!(self.work, Work::Walk(_)) {
            return self.walk_answered(told);
        }
        match self.phase {
            Phase::Reads(missing) => {
                match status {
                    // The others were read for nothing.
                    _ if !self.reply.is_empty() => {}
                    Status::Ok | Status::NotFound => self.take_read(item, reply),
                    _ => {
                        self.fail(told);
                        self.forget_values();
                    }
                }
                self.phase = Phase::Reads(missing - 1);
                if missing == 1 {
                    self.phase = self.behind_reads(told.host);
                }
            }
            Phase::Applies => {
                self.phase = Phase::Done;
                match status {
                    Status::Ok => {}
                    Status::GuardFailed if self.is_of_watch(reply.head.instruction) => {
                        self.reply.clear();
                        self.replies().null_array();
                    }
                    Status::VersionMismatch | Status::GuardFailed | Status::NotFound => {
                        self.reply.clear();
                        self.forget_values();
                        self.phase = Phase::MayRead;
                        if self.reads >= READS_MAX {
                            self.phase = Phase::Done;
                            self.replies()
                                .error(b"TRYAGAIN others changed the keys meanwhile");
                        }
                    }
                    _ => {
                        self.reply.clear();
                        self.fail(told);
                    }
                }
            }
            Phase::MayRead | Phase::MayApply | Phase::Done => {}
        }
    }

    /// Takes a page of a walk.
    fn walk_answered(&mut self, told: Told<'_>) {
        let Work::Walk(walk) = &mut self.work else {
            return;
        };
        // A walk that was refused for want of room has its reply.
        let step = match self.reply.is_empty() {
            true => {
                let replies = &mut Replies::new(&mut self.reply, self.protocol);
                walk.answered(told, self.bound, replies)
            }
            false => Step::Done,
        };
        self.phase = match step {
            Step::Next => Phase::MayRead,
            Step::Done => Phase::Done,
        };
    }

    fn take_read(&mut self, item: u64, reply: &ReplyItem<'_>) {
        let number = item.wrapping_sub(self.first_item);
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        let Some(key) = self.keys.get_mut(number) else {
            return;
        };
        let is_there = reply.head.status == Status::Ok;
        let expires = match reply.expiry {
            Some(told) if told.expiry_ms > 0 => Expires::Until(UntilMs::At(told.expiry_ms)),
            _ => Expires::Never,
        };
        key.learn(is_there.then_some(ReadKey {
            version: reply.head.version,
            value: reply.value,
            expires,
            is_armed: reply.head.flags & ITEM_FLAG_ARMED != 0,
        }));
        if let Some(told) = reply.expiry {
            // The time of the shard is what expiries are compared with.
            self.now_ms = told.time_ms;
        }
        if let Work::Watch(seen) = &mut self.work {
            let newest = reply.standing.map(|standing| standing.through);
            seen[number] = match is_there {
                true => Seen::Version(reply.head.version),
                false => Seen::Absent(newest.unwrap_or_default()),
            };
        }
    }

    /// What WATCH saw of a key, of those of an EXEC.
    fn seen(&self, place: usize) -> Option<Seen> {
        let Work::Exec(_, watched) = &self.work else {
            return None;
        };
        let name = self.keys.get(place)?.name();
        let watched = watched.iter().find(|watched| watched.key == name)?;
        Some(watched.seen)
    }

    /// The guard of a key: it is as it was read, and a watched one that is missing was so all the
    /// time.
    fn guard(&self, key: u8) -> Action {
        match (self.keys[usize::from(key)].guard(), self.seen(key.into())) {
            (Action::Absent, Some(Seen::Absent(newest))) => Action::AbsentSince(newest),
            (guard, _) => guard,
        }
    }

    /// Whether the instruction of the APPLY guards that a watched key was missing all the time. The
    /// guards of the keys come first, in their order.
    fn is_of_watch(&self, instruction: u8) -> bool {
        matches!(self.seen(instruction.into()), Some(Seen::Absent(_)))
    }

    /// Keeps the first error as the reply.
    fn fail(&mut self, told: Told<'_>) {
        if self.reply.is_empty() {
            let slot = self.slot().unwrap_or(0);
            let replies = &mut Replies::new(&mut self.reply, self.protocol);
            answer::failed(told, slot, replies);
        }
    }

    /// All keys were read: runs the commands.
    fn behind_reads(&mut self, host: &dyn Host) -> Phase {
        if !self.reply.is_empty() {
            return Phase::Done;
        }
        let (mut has_changed, mut was_absent) = (false, false);
        for (place, key) in self.keys.iter().enumerate() {
            match self.seen(place) {
                None => {}
                Some(Seen::Version(before)) => has_changed |= key.version() != Some(before),
                Some(Seen::Absent(_)) => {
                    has_changed |= key.version().is_some();
                    was_absent = true;
                }
            }
        }
        if has_changed {
            self.replies().null_array();
            return Phase::Done;
        }
        if !self.run(host) {
            return Phase::Done;
        }
        let changes = self.keys.iter().any(KeyState::is_changed);
        let is_watch = matches!(self.work, Work::Watch(_));
        match changes || was_absent || self.keys.len() > 1 && !is_watch {
            // Guards alone prove that all keys were so at one instant, and that a key that is
            // missing has not come and gone.
            true => Phase::MayApply,
            false => Phase::Done,
        }
    }

    /// Runs the commands on what was read. `false` if the reply would be too long: then nothing is
    /// to be changed.
    fn run(&mut self, host: &dyn Host) -> bool {
        let bytes_max = self.bound.map_or(usize::MAX, ReplyBound::bytes_max);
        let mut reply = std::mem::take(&mut self.reply);
        let replies = &mut Replies::bounded(&mut reply, self.protocol, bytes_max);
        let mut model = Model {
            keys: &mut self.keys,
            now_ms: self.now_ms,
            value_bytes_max: self.value_bytes_max,
        };
        match &self.work {
            Work::Command(args) => {
                let request = request_of(args.view()).expect("it was read before");
                model.run(&request, replies);
            }
            Work::Exec(commands, _) => {
                replies.array(commands.len());
                for command in commands {
                    run_queued(&mut model, command.view(), host, replies);
                }
            }
            Work::Watch(_) => replies.simple("OK"),
            Work::Walk(_) => unreachable!("it reads no keys by their names"),
        }
        let bytes = replies.bytes();
        let Some(bound) = self.bound.filter(|_| bytes > bytes_max) else {
            self.reply = reply;
            return true;
        };
        let text = format!(
            "EXECABORT Transaction discarded because its reply would take {bytes} bytes, and \
             {bound}."
        );
        self.replies().error(text.as_bytes());
        false
    }

    /// The guards and effects of the APPLY, and the values that they put.
    fn effects(&self) -> (Vec<ApplyInstruction>, Vec<u8>) {
        let (mut instructions, mut data) = (Vec::new(), Vec::new());
        for (key, _) in (0..).zip(&self.keys) {
            instructions.push(ApplyInstruction {
                key,
                reason: 0,
                action: self.guard(key),
            });
        }
        for (key, state) in (0..).zip(&self.keys) {
            state.write(key, &mut instructions, &mut data);
        }
        (instructions, data)
    }

    fn replies(&mut self) -> Replies<'_> {
        Replies::new(&mut self.reply, self.protocol)
    }
}

/// The keys of a transaction, each once: of one slot, and as many as an APPLY may have.
fn keys_of(for_each_key: impl Fn(&mut dyn FnMut(&[u8]))) -> Result<Vec<KeyState>, Unfit> {
    let (mut slot, mut is_one_slot) = (None, true);
    for_each_key(&mut |key| {
        let other = slot_of(key);
        is_one_slot &= *slot.get_or_insert(other) == other;
    });
    if !is_one_slot {
        return Err(Unfit::CrossSlot);
    }
    // A request may name a key for every few of its bytes, so no more names are compared than an
    // APPLY may have.
    let mut keys = Vec::new();
    for_each_key(&mut |key| {
        if keys.len() <= APPLY_KEYS_MAX {
            add_key(&mut keys, key);
        }
    });
    match keys.len() > APPLY_KEYS_MAX {
        true => Err(Unfit::TooManyKeys),
        false => Ok(keys),
    }
}

fn add_key(keys: &mut Vec<KeyState>, name: &[u8]) {
    if keys.iter().all(|key| key.name() != name) {
        keys.push(KeyState::new(name));
    }
}

/// The request of arguments that were read before.
fn request_of(args: Arguments<'_>) -> Option<Request<'_>> {
    let command = table::find(args.get(0))?;
    Request::read(command, args).ok().flatten()
}

/// Runs a command that stood behind MULTI.
fn run_queued(
    model: &mut Model<'_>,
    args: Arguments<'_>,
    host: &dyn Host,
    replies: &mut Replies<'_>,
) {
    let Some(command) = table::find(args.get(0)) else {
        return refuse_queued(None, args, replies);
    };
    match Request::read(command, args) {
        // Its lifetime counts from the time of the shard, so it is judged here and not before.
        Ok(Some(request)) if request.is_too_far(|| model.now_ms) => {
            refuse_queued(Some(Fault::ExpireTime(command.name)), args, replies);
        }
        Ok(Some(request)) => model.run(&request, replies),
        Ok(None) => match command.id {
            id if local::is_queued(id) => local::answer_queued(id, args, host, replies),
            // Arguments of a command that is queued are good, but for those of Redis's words.
            _ => refuse_queued(None, args, replies),
        },
        Err(fault) => refuse_queued(Some(fault), args, replies),
    }
}

/// A command that is refused when it runs, as in Redis: syntax is not looked at before.
fn refuse_queued(fault: Option<Fault>, args: Arguments<'_>, replies: &mut Replies<'_>) {
    let mut text = Vec::new();
    match fault {
        Some(fault) => fault.write(args, &mut text),
        None => text.extend_from_slice(b"ERR Command not allowed inside a transaction"),
    }
    replies.error(&text);
}
