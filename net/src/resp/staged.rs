//! The keys of a script while it runs: what it has read, and what it would write.
//!
//! The commands of a script are those of a transaction, by the same functions. A key is read from
//! the store when the first command names it. Nothing is written before the script has ended: then
//! all changes are one APPLY.

use crate::apply::{Action, ApplyInstruction, write_apply};
use crate::limits::{APPLY_KEYS_MAX, FEW_KEYS_MAX, KEY_BYTES_MAX};
use crate::request::is_reserved;
use crate::script::ScriptAccess;
use crate::version::Version;

use super::key_state::{Expires, KeyLeft, KeyState, ReadKey, UntilMs};
use super::local;
use super::model::Model;
use super::parser::{Arguments, KeptArguments};
use super::pubsub::check_name;
use super::reply::{Protocol, Replies};
use super::request::{Fault, Request};
use super::table::{self, Name};
use super::transaction_keys::TransactionKeys;
use super::watch::Seen;
use super::words;

/// Keys that the commands of a script may name, at most.
pub const SCRIPT_KEYS_MAX: usize = 1024;
/// Bytes of the values that a script reads and writes, at most, but for one of the longest values.
pub const SCRIPT_VALUES_BYTES_MAX: usize = 16 << 20;

/// A key as it is in the store.
#[derive(Clone, Copy, Debug)]
pub struct KeyRead<'a> {
    /// The version of its value.
    pub version: Version,
    /// Its value.
    pub value: &'a [u8],
    /// The value is one with members.
    pub has_members: bool,
    /// When it expires, in unix milliseconds, if it does.
    pub expiry_ms: Option<u64>,
    /// Effects run when it expires.
    pub is_armed: bool,
}

/// Why a key is not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unread {
    /// It must be brought first: the run ends, and is repeated later.
    Missing,
    /// The script may not use it. The text is an error of RESP.
    Refused(String),
}

/// The store, as a script reads it: all keys as they are at one instant.
pub trait KeySource {
    /// Reads a key; `None` if it has no value.
    ///
    /// # Errors
    /// Why it is not read.
    fn read(&mut self, key: &[u8]) -> Result<Option<KeyRead<'_>>, Unread>;

    /// Whether a key that has no value now, and was read, may have had one since this version of
    /// its partition.
    fn may_have_changed(&mut self, key: &[u8], since: Version) -> bool;

    /// How many times a message of PUBLISH to a channel would be received.
    ///
    /// # Errors
    /// Why nothing may be published: an error of RESP.
    fn receivers(&mut self, _channel: &[u8]) -> Result<usize, String> {
        Ok(0)
    }
}

/// Messages that a script or an EXEC may publish, ...
pub const SCRIPT_MESSAGES_MAX: usize = 1024;
/// ... and their bytes.
pub const SCRIPT_MESSAGES_BYTES_MAX: usize = 1 << 20;
const NO_WRITES: &[u8] = b"ERR Write commands are not allowed from read-only scripts.";

/// A command was not run, because a key of it must be brought first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MustWait;

/// The keys of a script, and what its commands have made of them.
#[derive(Debug)]
pub struct Staged {
    keys: TransactionKeys,
    /// The time of the run, which stands still.
    time_us: u64,
    value_bytes_max: usize,
    access: ScriptAccess,
    /// The arguments of the command that runs.
    arguments: KeptArguments,
    /// Messages of PUBLISH, which leave with the changes.
    messages: Vec<StagedMessage>,
    /// Commands with keys so far: each has numbers of its own where it takes any.
    commands: u64,
}

/// A message that leaves with the changes of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagedMessage {
    /// Where it is published.
    pub channel: Box<[u8]>,
    /// What is published.
    pub payload: Box<[u8]>,
}

impl StagedMessage {
    fn bytes(&self) -> usize {
        size_of::<StagedMessage>() + self.channel.len() + self.payload.len()
    }
}

/// What was staged at a moment, for [`Staged::restore`].
#[derive(Debug)]
pub(super) struct Saved {
    keys: TransactionKeys,
    /// How many messages there were.
    messages: usize,
}

impl Staged {
    /// No key yet, at this time in unix microseconds.
    #[must_use]
    pub fn new(time_us: u64, value_bytes_max: usize, access: ScriptAccess) -> Self {
        Staged {
            keys: TransactionKeys::default(),
            time_us,
            value_bytes_max,
            access,
            arguments: KeptArguments::default(),
            messages: Vec::new(),
            commands: 0,
        }
    }

    /// Runs one command of the script and appends its reply, which may be an error.
    ///
    /// # Errors
    /// [`MustWait`] if a key must be brought first. Nothing was staged and no reply is written.
    pub fn call(
        &mut self,
        arguments: &[&[u8]],
        protocol: Protocol,
        source: &mut dyn KeySource,
        reply: &mut Vec<u8>,
    ) -> Result<(), MustWait> {
        let mut kept = std::mem::take(&mut self.arguments);
        kept.fill(arguments);
        let done = self.command(kept.view(), protocol, source, reply);
        self.arguments = kept;
        done
    }

    fn command(
        &mut self,
        args: Arguments<'_>,
        protocol: Protocol,
        source: &mut dyn KeySource,
        reply: &mut Vec<u8>,
    ) -> Result<(), MustWait> {
        let from = reply.len();
        let bytes_max = from.saturating_add(self.value_bytes_max);
        let replies = &mut Replies::bounded(reply, protocol, bytes_max);
        let name = args.from(0).next().unwrap_or_default();
        let Some(command) = table::find(name) else {
            replies.error(b"ERR Unknown command called from script");
            return Ok(());
        };
        if !command.takes(args.len()) {
            replies.error(b"ERR Wrong number of args calling command from script");
            return Ok(());
        }
        let is_reading = self.access == ScriptAccess::Reads;
        if is_reading && command.flags().any(|flag| flag == "write") {
            replies.error(NO_WRITES);
            return Ok(());
        }
        let now_ms = self.now_ms();
        let request = match Request::read(command, args) {
            Ok(Some(request)) if request.is_too_far(|| now_ms) => {
                Err(Fault::ExpireTime(command.name))
            }
            other => other,
        };
        match request {
            Ok(Some(request)) => {
                self.keyed(&request, source, replies)?;
                self.note_script_read(&request);
            }
            Ok(None) if command.id == Name::Publish => self.publish(args, source, replies),
            Ok(None) => self.unkeyed(command.id, args, replies),
            Err(fault) => {
                let mut text = Vec::new();
                fault.write(args, &mut text);
                replies.error(&text);
            }
        }
        let bytes = replies.bytes();
        if bytes > bytes_max {
            let text = format!(
                "ERR the reply of '{}' would take {} bytes, and a command of a script may reply \
                 {} (option value_bytes_max)",
                command.name,
                bytes - from,
                self.value_bytes_max
            );
            reply.truncate(from);
            Replies::new(reply, protocol).error(text.as_bytes());
        }
        Ok(())
    }

    /// Runs a command of EXEC, or one by itself.
    pub(super) fn queued(
        &mut self,
        args: Arguments<'_>,
        source: &mut dyn KeySource,
        replies: &mut Replies<'_>,
    ) -> Result<(), MustWait> {
        let now_ms = self.now_ms();
        let Some(command) = table::find(args.get(0)) else {
            refuse_queued(None, args, replies);
            return Ok(());
        };
        match Request::read(command, args) {
            // Its lifetime counts from the time of the shard, so it is judged here and not before.
            Ok(Some(request)) if request.is_too_far(|| now_ms) => {
                refuse_queued(Some(Fault::ExpireTime(command.name)), args, replies);
            }
            Ok(Some(request)) => return self.keyed(&request, source, replies),
            Ok(None) if command.id == Name::Publish => self.publish(args, source, replies),
            // Arguments of a command that is queued are good, but for those of Redis's words.
            Ok(None) => refuse_queued(None, args, replies),
            Err(fault) => refuse_queued(Some(fault), args, replies),
        }
        Ok(())
    }

    /// Whether a watched key is as it was seen.
    pub(super) fn is_unchanged(
        &mut self,
        name: &[u8],
        seen: Option<Seen>,
        source: &mut dyn KeySource,
    ) -> Result<bool, Unread> {
        self.bring(name, source)?;
        let state = self.keys.find(name).expect("it was brought");
        let changed_since = |since| source.may_have_changed(name, since);
        Ok(is_as_seen(state, seen, changed_since))
    }

    /// What is staged now, for [`Staged::restore`].
    pub(super) fn save(&self) -> Saved {
        Saved {
            keys: self.keys.clone(),
            messages: self.messages.len(),
        }
    }

    /// Drops what was staged since. Keys that were read since stay, as they were read: the answer
    /// shows them, too.
    pub(super) fn restore(
        &mut self,
        saved: Saved,
        source: &mut dyn KeySource,
    ) -> Result<(), MustWait> {
        self.messages.truncate(saved.messages);
        let read = std::mem::replace(&mut self.keys, saved.keys);
        for key in read.iter() {
            if self.bring(key.name(), source) == Err(Unread::Missing) {
                return Err(MustWait);
            }
            if key.is_read_by_script()
                && let Some(state) = self.keys.find_mut(key.name())
            {
                state.note_script_read();
            }
        }
        Ok(())
    }

    /// Has commands only read from now on, or change keys, too; what held before.
    pub fn set_access(&mut self, access: ScriptAccess) -> ScriptAccess {
        std::mem::replace(&mut self.access, access)
    }

    fn keyed(
        &mut self,
        request: &Request<'_>,
        source: &mut dyn KeySource,
        replies: &mut Replies<'_>,
    ) -> Result<(), MustWait> {
        if request.is_change() && self.access == ScriptAccess::Reads {
            replies.error(NO_WRITES);
            return Ok(());
        }
        let mut end = Ok(());
        request.for_each_key(|key| {
            if end.is_ok() {
                end = self.bring(key, source);
            }
        });
        match end {
            Ok(()) => {}
            Err(Unread::Missing) => return Err(MustWait),
            Err(Unread::Refused(text)) => {
                replies.error(text.as_bytes());
                return Ok(());
            }
        }
        let values = self.keys.iter().map(KeyState::value_bytes).sum::<usize>();
        if values > SCRIPT_VALUES_BYTES_MAX.max(self.value_bytes_max) {
            replies.error(values_too_long(values).as_bytes());
            return Ok(());
        }
        self.commands += 1;
        let mut model = Model {
            seed: self
                .time_us
                .wrapping_mul(0x9E37_79B9)
                .wrapping_add(self.commands << 32),
            now_ms: self.now_ms(),
            value_bytes_max: self.value_bytes_max,
            keys: &mut self.keys,
        };
        model.run(request, replies);
        Ok(())
    }

    /// Notes the keys that a command of a script has read: the client may keep their values.
    fn note_script_read(&mut self, request: &Request<'_>) {
        if !request.is_change() {
            request.for_each_key(|key| {
                if let Some(state) = self.keys.find_mut(key) {
                    state.note_script_read();
                }
            });
        }
    }

    /// Reads a key that no command has named before.
    fn bring(&mut self, name: &[u8], source: &mut dyn KeySource) -> Result<(), Unread> {
        if self.keys.find(name).is_some() {
            return Ok(());
        }
        let refuse = |text: String| Err(Unread::Refused(text));
        if !(1..=KEY_BYTES_MAX).contains(&name.len()) || is_reserved(name) {
            return refuse(format!(
                "ERR a key has 1 to {KEY_BYTES_MAX} bytes and is none of the server's own"
            ));
        }
        if self.keys.len() == SCRIPT_KEYS_MAX {
            return refuse(format!("ERR a script uses at most {SCRIPT_KEYS_MAX} keys"));
        }
        let read = source.read(name)?;
        // Judged before the value is copied.
        let bytes = read.map_or(0, |read| read.value.len());
        let held = self.keys.iter().map(KeyState::value_bytes).sum::<usize>() + bytes;
        if held > SCRIPT_VALUES_BYTES_MAX.max(self.value_bytes_max) {
            return refuse(values_too_long(held));
        }
        let read = read.map(|read| ReadKey {
            version: read.version,
            value: read.value,
            has_members: read.has_members,
            expires: match read.expiry_ms {
                Some(ms) => Expires::Until(UntilMs::At(ms)),
                None => Expires::Never,
            },
            is_armed: read.is_armed,
        });
        self.keys.add(name);
        let state = self.keys.find_mut(name).expect("it was added");
        state.learn(read);
        Ok(())
    }

    /// Keeps a message. It counts who subscribes now, and leaves with the changes.
    fn publish(
        &mut self,
        args: Arguments<'_>,
        source: &mut dyn KeySource,
        replies: &mut Replies<'_>,
    ) {
        if self.access == ScriptAccess::Reads {
            return replies.error(NO_WRITES);
        }
        let (channel, payload) = (args.get(1), args.get(2));
        if let Err(text) = check_name(channel) {
            return replies.error(&text);
        }
        let message = StagedMessage {
            channel: channel.into(),
            payload: payload.into(),
        };
        let held = self
            .messages
            .iter()
            .map(StagedMessage::bytes)
            .sum::<usize>();
        let bytes = held + message.bytes();
        if self.messages.len() == SCRIPT_MESSAGES_MAX || bytes > SCRIPT_MESSAGES_BYTES_MAX {
            let text = format!(
                "ERR the {} messages that are published here take {bytes} bytes; \
                 {SCRIPT_MESSAGES_MAX} and {SCRIPT_MESSAGES_BYTES_MAX} are the limits",
                self.messages.len() + 1
            );
            return replies.error(text.as_bytes());
        }
        match source.receivers(channel) {
            Ok(receivers) => {
                self.messages.push(message);
                replies.integer(i64::try_from(receivers).unwrap_or(i64::MAX));
            }
            Err(text) => replies.error(text.as_bytes()),
        }
    }

    /// The messages, in their order.
    #[must_use]
    pub fn messages(&self) -> &[StagedMessage] {
        &self.messages
    }

    fn unkeyed(&self, id: Name, args: Arguments<'_>, replies: &mut Replies<'_>) {
        match id {
            Name::Time => local::write_time(self.time_us, replies),
            _ if local::answer_of_arguments(id, args, replies) => {}
            _ => words::not_from_script(args, replies),
        }
    }

    /// Lifetimes count from the end of a millisecond that has begun.
    fn now_ms(&self) -> u64 {
        self.time_us.div_ceil(1000)
    }

    /// The names of all keys that commands have named.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.iter().map(KeyState::name)
    }

    /// The names of the keys that scripts have read by commands that only read.
    pub fn script_reads(&self) -> impl Iterator<Item = &[u8]> {
        let read = self.keys.iter().filter(|key| key.is_read_by_script());
        read.map(KeyState::name)
    }

    /// How many keys are changed.
    #[must_use]
    pub fn changed(&self) -> usize {
        self.keys.iter().filter(|key| key.is_changed()).count()
    }

    /// How many effects the changes are.
    #[must_use]
    pub fn effects(&self) -> usize {
        self.keys.iter().map(KeyState::effects).sum()
    }

    /// What the changes leave of each key that they concern.
    pub fn left(&self) -> impl Iterator<Item = KeyLeft<'_>> {
        let now_ms = self.now_ms();
        self.keys.iter().filter_map(move |key| key.left(now_ms))
    }

    /// Whether a key was brought that is not changed. The key with this name is.
    fn is_changed(&self, name: &[u8]) -> bool {
        self.keys.find(name).is_some_and(KeyState::is_changed)
    }

    /// Appends the item of the APPLY that makes all changes, and guards that each of its keys is as
    /// it was read, where it has few. Its keys are those that are changed, at most
    /// [`APPLY_KEYS_MAX`], and `newest` if there is room for one more: the key that was read with
    /// the newest change, which the answer must wait for.
    pub fn write_apply(&self, newest: Option<KeySeen<'_>>, out: &mut Vec<u8>) {
        let keys: Vec<&KeyState> = self.keys.iter().filter(|key| key.is_changed()).collect();
        let newest = newest.filter(|it| keys.len() < APPLY_KEYS_MAX && !self.is_changed(it.name));
        let names = keys.iter().map(|key| key.name());
        let names: Vec<&[u8]> = names.chain(newest.map(|it| it.name)).collect();
        let (mut instructions, mut data) = (Vec::new(), Vec::new());
        // They hold in any case: nothing runs between the reads and this.
        if names.len() <= FEW_KEYS_MAX {
            let guards = keys.iter().map(|key| key.guard());
            let guards = guards.chain(newest.map(KeySeen::guard)).enumerate();
            instructions.extend(guards.map(|(number, action)| ApplyInstruction {
                key: number_of(number),
                reason: 0,
                action,
            }));
        }
        for (number, key) in keys.iter().enumerate() {
            key.write(number_of(number), &mut instructions, &mut data);
        }
        write_apply(out, &names, &instructions, &data);
    }
}

/// A key as a source has read it, whether the commands could use it or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySeen<'k> {
    /// Its name.
    pub name: &'k [u8],
    /// `None` if it was missing.
    pub version: Option<Version>,
}

impl KeySeen<'_> {
    fn guard(self) -> Action {
        self.version.map_or(Action::Absent, Action::Version)
    }

    /// Appends the item of an APPLY that guards that the key is as it was read, and changes
    /// nothing.
    pub fn write_guard(self, out: &mut Vec<u8>) {
        let guard = ApplyInstruction {
            key: 0,
            reason: 0,
            action: self.guard(),
        };
        write_apply(out, &[self.name], &[guard], &[]);
    }
}

/// Writes the error of a command that is refused when it runs, as in Redis: syntax is not judged
/// before.
fn refuse_queued(fault: Option<Fault>, args: Arguments<'_>, replies: &mut Replies<'_>) {
    let mut text = Vec::new();
    match fault {
        Some(fault) => fault.write(args, &mut text),
        None => text.extend_from_slice(b"ERR Command not allowed inside a transaction"),
    }
    replies.error(&text);
}

/// Whether a watched key is as it was: what [`KeyState`] has read, and what the source knows of a
/// key that was missing.
fn is_as_seen(
    state: &KeyState,
    seen: Option<Seen>,
    changed_since: impl FnOnce(Version) -> bool,
) -> bool {
    match seen {
        Some(Seen::Version(before)) => state.version() == Some(before),
        Some(Seen::Absent(newest)) => state.version().is_none() && !changed_since(newest),
        None => false,
    }
}

fn values_too_long(bytes: usize) -> String {
    format!(
        "ERR the values that this script has read and written take {bytes} bytes, and \
         {SCRIPT_VALUES_BYTES_MAX} is the limit"
    )
}

/// The number of a key of an APPLY.
fn number_of(place: usize) -> u8 {
    u8::try_from(place).expect("at most 255 keys are changed")
}
