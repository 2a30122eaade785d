//! Transactions: commands that one item cannot say. Keys are read, a pure function runs the
//! commands, and one APPLY with a guard for each key writes what changed, or the keys are read
//! again.

use crate::apply::{Action, ApplyInstruction, Operand};
use crate::limits::APPLY_KEYS_MAX;
use crate::reply::ReplyItem;
use crate::request::{BatchRequest, Wanted};
use crate::slot::slot_of;
use crate::status::Status;
use crate::version::Version;

use super::answer::{self, Told};
use super::bound::ReplyBound;
use super::model::{Expires, KeyState, Model, UntilMs};
use super::parser::{Arguments, KeptArguments};
use super::reply::{Protocol, Replies};
use super::request::Request;
use super::table::{self, Name};

/// How often the keys are read before a transaction gives up.
const READS_MAX: u32 = 64;

/// A key that WATCH named, and its version then; none if it had no value.
#[derive(Clone, Debug)]
pub(super) struct Watched {
    pub(super) key: Vec<u8>,
    pub(super) version: Option<Version>,
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
    /// The versions of the keys.
    Watch,
}

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
    versions: Vec<Option<Version>>,
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
    ) -> Self {
        let mut keys = Vec::new();
        request.for_each_key(|key| add_key(&mut keys, key));
        let work = Work::Command(KeptArguments::of(args));
        Transaction::new(work, keys, protocol, value_bytes_max)
    }

    /// The commands behind MULTI.
    pub(super) fn of_exec(
        commands: Vec<KeptArguments>,
        watched: Vec<Watched>,
        protocol: Protocol,
        value_bytes_max: usize,
    ) -> Result<Self, Unfit> {
        let mut keys = Vec::new();
        for command in &commands {
            if let Some(request) = request_of(command.view()) {
                request.for_each_key(|key| add_key(&mut keys, key));
            }
        }
        for watched in &watched {
            add_key(&mut keys, &watched.key);
        }
        let slots = keys.iter().map(|key| slot_of(&key.name));
        if slots.clone().min() != slots.max() {
            return Err(Unfit::CrossSlot);
        }
        if keys.len() > APPLY_KEYS_MAX {
            return Err(Unfit::TooManyKeys);
        }
        let work = Work::Exec(commands, watched);
        Ok(Transaction::new(work, keys, protocol, value_bytes_max))
    }

    /// A WATCH of these keys.
    pub(super) fn of_watch<'a>(keys: impl Iterator<Item = &'a [u8]>, protocol: Protocol) -> Self {
        let mut names = Vec::new();
        keys.for_each(|key| add_key(&mut names, key));
        Transaction::new(Work::Watch, names, protocol, 0)
    }

    fn new(work: Work, keys: Vec<KeyState>, protocol: Protocol, value_bytes_max: usize) -> Self {
        let versions = vec![None; keys.len()];
        let work_bytes = match &work {
            Work::Command(command) => command.bytes(),
            Work::Exec(commands, watched) => {
                let commands = commands.iter().map(KeptArguments::bytes);
                commands.sum::<usize>() + watched.iter().map(Watched::bytes).sum::<usize>()
            }
            Work::Watch => 0,
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
            versions,
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
        let values = self.keys.iter().filter_map(|key| key.value.as_ref());
        self.reply.capacity() + values.map(Vec::capacity).sum::<usize>()
    }

    /// Its reply and, of WATCH, what is watched from now on, when all is done.
    pub(super) fn outcome(&mut self) -> Option<(Vec<u8>, Vec<Watched>)> {
        if self.phase != Phase::Done {
            return None;
        }
        let is_watch = matches!(self.work, Work::Watch);
        let keys = std::mem::take(&mut self.keys).into_iter();
        let watched = keys.zip(&self.versions).map(|(key, version)| Watched {
            key: key.name,
            version: *version,
        });
        let watched = if is_watch {
            watched.collect()
        } else {
            Vec::new()
        };
        Some((std::mem::take(&mut self.reply), watched))
    }

    /// The slot of its keys, which is one.
    pub(super) fn slot(&self) -> Option<u16> {
        self.keys.first().map(|key| slot_of(&key.name))
    }

    /// How many items are to be sent now.
    pub(super) fn items_to_send(&self) -> usize {
        match self.phase {
            Phase::MayRead => self.keys.len(),
            Phase::MayApply => 1,
            Phase::Reads(_) | Phase::Applies | Phase::Done => 0,
        }
    }

    /// Ends it at once if no key is named.
    pub(super) fn begin(&mut self, unix_ms: u64) {
        self.now_ms = unix_ms;
        if self.keys.is_empty() {
            self.run();
            self.phase = Phase::Done;
        }
    }

    /// Adds the items that are to be sent. The first one gets the number `first_item`.
    pub(super) fn send(&mut self, first_item: u64, batch: &mut BatchRequest, out: &mut Vec<u8>) {
        self.first_item = first_item;
        match self.phase {
            Phase::MayRead => {
                for key in &self.keys {
                    batch.get_with(out, &key.name, Wanted::ValueAndExpiry);
                }
                self.reads += 1;
                self.phase = Phase::Reads(self.keys.len());
            }
            Phase::MayApply => {
                let (instructions, data) = self.effects();
                let names: Vec<&[u8]> = self.keys.iter().map(|key| &key.name[..]).collect();
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
        match self.phase {
            Phase::Reads(missing) => {
                match status {
                    Status::Ok | Status::NotFound => self.take_read(item, reply),
                    _ => self.fail(told),
                }
                self.phase = Phase::Reads(missing - 1);
                if missing == 1 {
                    self.phase = self.behind_reads();
                }
            }
            Phase::Applies => {
                self.phase = Phase::Done;
                match status {
                    Status::Ok => {}
                    Status::VersionMismatch | Status::GuardFailed | Status::NotFound => {
                        self.reply.clear();
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

    fn take_read(&mut self, item: u64, reply: &ReplyItem<'_>) {
        let number = item.wrapping_sub(self.first_item);
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        let Some(key) = self.keys.get_mut(number) else {
            return;
        };
        let is_there = reply.head.status == Status::Ok;
        key.value = is_there.then(|| reply.value.to_vec());
        key.expires = match reply.expiry {
            Some(told) if told.expiry_ms > 0 => Expires::Until(UntilMs::At(told.expiry_ms)),
            _ => Expires::Never,
        };
        (key.is_put, key.is_moved) = (false, false);
        if let Some(told) = reply.expiry {
            // The time of the shard is what expiries are compared with.
            self.now_ms = told.time_ms;
        }
        self.versions[number] = is_there.then_some(reply.head.version);
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
    fn behind_reads(&mut self) -> Phase {
        if !self.reply.is_empty() {
            return Phase::Done;
        }
        if let Work::Exec(_, watched) = &self.work {
            let has_changed = watched.iter().any(|watched| {
                let place = self.keys.iter().position(|key| key.name == watched.key);
                place.is_none_or(|place| self.versions[place] != watched.version)
            });
            if has_changed {
                self.replies().null_array();
                return Phase::Done;
            }
        }
        if !self.run() {
            return Phase::Done;
        }
        let changes = self.keys.iter().any(|key| key.is_put || key.is_moved);
        match changes || self.keys.len() > 1 && !matches!(self.work, Work::Watch) {
            // Guards alone prove that all keys were so at one instant.
            true => Phase::MayApply,
            false => Phase::Done,
        }
    }

    /// Runs the commands on what was read. `false` if the reply would be too long: then nothing is
    /// to be changed.
    fn run(&mut self) -> bool {
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
                    run_queued(&mut model, command.view(), replies);
                }
            }
            Work::Watch => replies.simple("OK"),
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
        let numbered = || (0u8..).zip(self.keys.iter().zip(&self.versions));
        let mut add = |key, action| {
            instructions.push(ApplyInstruction {
                key,
                reason: 0,
                action,
            });
        };
        for (key, (_, version)) in numbered() {
            add(key, version.map_or(Action::Absent, Action::Version));
        }
        for (key, (state, version)) in numbered() {
            match &state.value {
                Some(value) if state.is_put => {
                    let short = |number| u32::try_from(number).unwrap_or(u32::MAX);
                    let (start, len) = (short(data.len()), short(value.len()));
                    data.extend_from_slice(value);
                    add(key, Action::Put { start, len });
                    if state.expires != Expires::Never {
                        add(key, Action::Expire(operand(state.expires)));
                    }
                }
                Some(_) if state.is_moved => add(key, Action::Expire(operand(state.expires))),
                None if version.is_some() => add(key, Action::Delete),
                Some(_) | None => {}
            }
        }
        (instructions, data)
    }

    fn replies(&mut self) -> Replies<'_> {
        Replies::new(&mut self.reply, self.protocol)
    }
}

fn operand(expires: Expires) -> Operand {
    match expires {
        Expires::Never => Operand::Immediate(0),
        Expires::Until(UntilMs::At(ms)) => Operand::Immediate(ms),
        Expires::Until(UntilMs::In(ms)) => Operand::Now {
            plus_ms: i64::try_from(ms).unwrap_or(i64::MAX),
        },
    }
}

fn add_key(keys: &mut Vec<KeyState>, name: &[u8]) {
    if keys.iter().all(|key| key.name != name) {
        keys.push(KeyState {
            name: name.to_vec(),
            ..KeyState::default()
        });
    }
}

/// The request of arguments that were read before.
fn request_of(args: Arguments<'_>) -> Option<Request<'_>> {
    let command = table::find(args.get(0))?;
    Request::read(command, args).ok().flatten()
}

/// Runs a command that stood behind MULTI.
fn run_queued(model: &mut Model<'_>, args: Arguments<'_>, replies: &mut Replies<'_>) {
    match request_of(args) {
        Some(request) => model.run(&request, replies),
        None => match table::find(args.get(0)).map(|command| command.id) {
            Some(Name::Ping) if args.len() > 1 => replies.bulk(args.get(1)),
            Some(Name::Ping) => replies.simple("PONG"),
            Some(Name::Echo) => replies.bulk(args.get(1)),
            // Arguments of a command that is queued are good, but for those of Redis's words.
            _ => queued_fault(args, replies),
        },
    }
}

/// A command that is refused when it runs, as in Redis: syntax is not looked at before.
fn queued_fault(args: Arguments<'_>, replies: &mut Replies<'_>) {
    let mut text = Vec::new();
    let read = table::find(args.get(0)).map(|command| Request::read(command, args));
    match read {
        Some(Err(fault)) => fault.write(args, &mut text),
        _ => text.extend_from_slice(b"ERR Command not allowed inside a transaction"),
    }
    replies.error(&text);
}
