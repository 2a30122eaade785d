//! Commands between MULTI and EXEC, and the keys that WATCH names.

use std::collections::HashSet;

use crate::limits::{APPLY_KEYS_MAX, KEY_BYTES_MAX};
use crate::script::{ScriptAccess, ScriptItem, ScriptName, ScriptReach};
use crate::slot::slot_of;

use super::super::host::Host;
use super::super::local;
use super::super::parser::{Arguments, KeptArguments};
use super::super::queued::{for_each_key, put_command, put_reply, reply_of};
use super::super::reply::{Protocol, Replies};
use super::super::request::Request;
use super::super::rights;
use super::super::scripts::Eval;
use super::super::sink::Sink;
use super::super::table::{self, Name};
use super::super::under_way::UnderWay;
use super::super::watch::{Seen, Watching};
use super::super::words;
use super::script::Cores;
use super::{CROSS_SLOT, NOT_ONE_ITEM, Passed, Talk};

/// Commands behind MULTI, at most.
const QUEUED_MAX: usize = 1024;
const TOO_MANY_KEYS: &[u8] = b"EXECABORT Transaction discarded because it has more than 255 keys, \
    watched ones included.";
const _: () = assert!(APPLY_KEYS_MAX == 255, "the text names the limit");
/// Scripts behind MULTI, at most: all of them run in one step of the shard.
const SCRIPTS_QUEUED_MAX: usize = 16;
const TOO_MANY_SCRIPTS: &[u8] = b"ERR at most 16 scripts may stand behind MULTI";
const _: () = assert!(SCRIPTS_QUEUED_MAX == 16, "the text names the limit");
const NO_SCRIPT_BEHIND_MULTI: &[u8] =
    b"NOPERM a user with rights runs no scripts behind MULTI: a script is a transaction";
/// Keys that WATCH may name together: as many as EXEC judges.
const WATCHED_MAX: usize = APPLY_KEYS_MAX;

/// Bytes that watched keys may take in the item of EXEC, however short a frame is.
const WATCHED_BYTES_MIN: usize = 8 * (KEY_BYTES_MAX + Seen::BYTES + 8);

/// Bytes that a watched key takes in the item of EXEC.
fn watched_bytes_of(key: &[u8]) -> usize {
    key.len() + Seen::BYTES + 8
}

/// What the commands of EXEC do with keys.
#[derive(Clone, Copy, Debug)]
struct ExecKeys {
    /// The slot of the first one. `None`: no key is named.
    slot: Option<u16>,
    reach: ScriptReach,
    /// A command may change one.
    is_change: bool,
}

/// Commands behind MULTI.
#[derive(Debug, Default)]
pub(super) struct Queue {
    commands: Vec<KeptArguments>,
    bytes: usize,
    /// How many of them are scripts.
    scripts: usize,
    /// A command was refused: EXEC will be, too.
    is_void: bool,
}

impl Queue {
    /// Bytes that its commands take.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Its commands, in their order.
    pub(super) fn kept(&self) -> &[KeptArguments] {
        &self.commands
    }

    /// Keeps a command. The error names the limit that leaves no room for it.
    fn keep(&mut self, args: Arguments<'_>, bytes_max: usize) -> Result<(), String> {
        let kept = KeptArguments::of(args);
        let (count, bytes) = (self.commands.len() + 1, self.bytes + kept.bytes());
        if count > QUEUED_MAX {
            return Err(format!(
                "ERR too many commands behind MULTI: this is number {count}, and {QUEUED_MAX} is \
                 the limit"
            ));
        }
        if bytes > bytes_max {
            return Err(format!(
                "ERR the {count} commands behind MULTI take {bytes} bytes, and {bytes_max} is the \
                 limit (option frame_bytes_max)"
            ));
        }
        self.bytes = bytes;
        self.commands.push(kept);
        Ok(())
    }

    /// A command was refused: EXEC will be, too, so nothing is kept for it.
    pub(super) fn make_void(&mut self) {
        *self = Queue {
            is_void: true,
            ..Queue::default()
        };
    }
}

impl Talk {
    /// Ends MULTI for an EXEC that cannot be read, in the words of Valkey.
    #[cold]
    pub(super) fn refuse_exec(&mut self) -> Passed {
        self.queue = None;
        self.watched.clear();
        self.refuse_only(
            b"EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' \
              command",
        )
    }

    /// Keeps a command for EXEC.
    pub(super) fn queue_command(
        &mut self,
        command: &table::Command,
        args: Arguments<'_>,
    ) -> Passed {
        let is_other = matches!(
            command.id,
            Name::Watch | Name::KvApply | Name::KvGet | Name::KvRun
        ) || command.group == "pubsub";
        let eval = Eval::read(command.id, args);
        let is_keyed = command.keys.0 > 0 && !is_other || eval.is_some();
        let is_keyed = is_keyed || command.id == Name::Publish;
        if !is_keyed && !local::is_queued(command.id) {
            // A secret is not kept until EXEC.
            if matches!(command.id, Name::Auth | Name::Hello) {
                self.note_secret();
            }
            return self.refuse(|out| not_behind_multi(args, out));
        }
        if let Some(rights) = &self.rights
            && let Some(text) = rights::refusal(command.id, args, rights)
        {
            return self.refuse(|out| out.extend_from_slice(&text));
        }
        if eval.is_some() && self.rights.is_some() {
            return self.refuse(|out| out.extend_from_slice(NO_SCRIPT_BEHIND_MULTI));
        }
        let scripts = &mut self.queue.as_mut().expect("the caller has looked").scripts;
        *scripts += usize::from(eval.is_some());
        if *scripts > SCRIPTS_QUEUED_MAX {
            return self.refuse(|out| out.extend_from_slice(TOO_MANY_SCRIPTS));
        }
        let mut is_good = true;
        for_each_key(command, args, |key| {
            is_good &= (1..=KEY_BYTES_MAX).contains(&key.len())
        });
        if !is_good {
            return self.refuse(words::bad_key);
        }
        let bytes_max = self.limits.frame_bytes_max as usize;
        let queue = self.queue.as_mut().expect("the caller has looked");
        if !queue.is_void
            && let Err(text) = queue.keep(args, bytes_max)
        {
            return self.refuse(|out| out.extend_from_slice(text.as_bytes()));
        }
        let protocol = self.protocol;
        self.ring
            .reply(protocol, &mut self.out, |replies| replies.simple("QUEUED"));
        Passed::Whole
    }

    /// EXEC: one item, if a command names a key.
    pub(super) fn exec(&mut self, sink: &mut Sink<'_>, host: &dyn Host) -> Passed {
        let queue = self.queue.as_ref().expect("the caller has looked");
        if queue.is_void {
            return self.end_exec(b"EXECABORT Transaction discarded because of previous errors.");
        }
        if self.options.token.is_some() {
            self.options.token = None;
            return self.end_exec(NOT_ONE_ITEM);
        }
        let names = queue
            .commands
            .iter()
            .map(|it| table::find(it.view().get(0)));
        let publishes = names.flatten().any(|it| it.id == Name::Publish);
        let ExecKeys {
            slot,
            reach,
            is_change,
        } = match self.keys_of_exec(queue, host.joined_cores()) {
            Ok(keys) => keys,
            Err(text) => return self.end_exec(text),
        };
        if let Some(text) = self.too_much_watched(queue) {
            return self.end_exec(text.as_bytes());
        }
        let has_scripts = queue.scripts > 0;
        // A script may publish, however few keys it names.
        let is_alone = publishes || has_scripts || reach == ScriptReach::Shards;
        if is_alone && !self.is_idle(sink) {
            return Passed::Waits;
        }
        let commands: Vec<Vec<u8>> = queue
            .commands
            .iter()
            .map(|it| self.in_item(it, host))
            .collect();
        let seen: Vec<[u8; Seen::BYTES]> =
            self.watched.iter().map(|it| it.seen.to_bytes()).collect();
        let keys = self.watched.iter().map(|it| &it.key[..]);
        let words = keys
            .chain(seen.iter().map(|it| &it[..]))
            .chain(commands.iter().map(|it| &it[..]));
        let replies = commands.iter().map(|it| reply_of(it));
        let replies_bytes = commands.iter().filter_map(|it| reply_of(it));
        let replies_bytes = replies_bytes.map(<[u8]>::len).sum::<usize>();
        let bytes_max = self
            .bound
            .bytes_max()
            .min(self.limits.frame_bytes_max as usize / 2);
        if replies_bytes > bytes_max {
            let text = format!(
                "EXECABORT Transaction discarded because its replies would take {replies_bytes} \
                 bytes, and {bytes_max} is the limit."
            );
            return self.end_exec(text.as_bytes());
        }
        if slot.is_none()
            && let Some(all) = replies.collect::<Option<Vec<&[u8]>>>()
        {
            let protocol = self.protocol;
            self.ring.reply(protocol, &mut self.out, |replies| {
                replies.array(all.len());
                all.iter().for_each(|it| replies.raw(it));
            });
            self.queue = None;
            return Passed::Whole;
        }
        let item = ScriptItem {
            script: ScriptName::Commands,
            access: match is_change || publishes {
                true => ScriptAccess::Changes,
                false => ScriptAccess::Reads,
            },
            reach,
            is_of_resp3: self.protocol == Protocol::Resp3,
            slot,
            reply_bytes_max: u32::try_from(self.bound.bytes_max()).unwrap_or(u32::MAX),
        };
        let words_bytes = words.clone().map(<[u8]>::len).sum();
        if !sink.has_room(1, item.item_bytes(words.clone().count(), words_bytes)) {
            return Passed::Part;
        }
        let subject = self.ring.subject();
        subject.set(Name::Exec, b"", 1, slot.unwrap_or(0));
        subject.is_noted = self.is_clustered && is_change && slot.is_some();
        if self.is_clustered && is_change && slot.is_none() {
            self.ring.written().note_all();
        }
        let (batch, out) = sink.batch(self.ring.next_item());
        batch.script(out, &item, self.watched.len(), words);
        if self.is_tracking() {
            self.note_queued(host);
        }
        self.queue = None;
        self.watched.clear();
        let entry = self.push_script_of(reach);
        if has_scripts {
            self.ring.brings_text(entry);
        }
        Passed::Whole
    }

    /// Ends MULTI with an error.
    fn end_exec(&mut self, text: &[u8]) -> Passed {
        self.queue = None;
        self.watched.clear();
        self.refuse_only(text)
    }

    /// The keys of EXEC, watched ones included.
    fn keys_of_exec(&self, queue: &Queue, joined: u16) -> Result<ExecKeys, &'static [u8]> {
        // A request may name a key for every few of its bytes, so no more names are kept than an
        // APPLY may have.
        let (mut slot, mut is_one_slot, mut is_change) = (None, true, false);
        let mut cores = Cores::of(joined);
        let mut names: HashSet<&[u8]> = HashSet::new();
        let mut add = |key| {
            let other = slot_of(key);
            is_one_slot &= *slot.get_or_insert(other) == other;
            cores.add(other);
            if names.len() <= APPLY_KEYS_MAX {
                names.insert(key);
            }
        };
        for kept in &queue.commands {
            if let Some(command) = table::find(kept.view().get(0)) {
                is_change |= for_each_key(command, kept.view(), &mut add);
            }
        }
        self.watched.iter().for_each(|watched| add(&watched.key));
        if self.is_clustered && !is_one_slot {
            return Err(CROSS_SLOT);
        }
        if names.len() > APPLY_KEYS_MAX {
            return Err(TOO_MANY_KEYS);
        }
        // A script may use keys that it does not name.
        let is_of_slot = self.is_clustered || is_one_slot && queue.scripts == 0;
        let reach = if cores.are_several(queue.scripts > 0) {
            ScriptReach::Shards
        } else if is_of_slot {
            ScriptReach::Slot
        } else {
            ScriptReach::Node
        };
        Ok(ExecKeys {
            slot,
            reach,
            is_change,
        })
    }

    /// A command as the item of EXEC has it: what names no key is answered here.
    fn in_item(&self, kept: &KeptArguments, host: &dyn Host) -> Vec<u8> {
        let (args, mut out) = (kept.view(), Vec::new());
        let command = table::find(args.get(0));
        let is_local = |command: &&table::Command| {
            local::is_queued(command.id) && !matches!(Request::read(command, args), Ok(Some(_)))
        };
        match command.filter(is_local) {
            Some(command) => {
                let mut reply = Vec::new();
                let replies = &mut Replies::new(&mut reply, self.protocol);
                local::answer_queued(command.id, args, host, replies);
                put_reply(&reply, &mut out);
            }
            None => put_command(args, &mut out),
        }
        out
    }

    /// A command that is more than an item.
    pub(super) fn command_by_itself(
        &mut self,
        request: &Request<'_>,
        args: Arguments<'_>,
        sink: &mut Sink<'_>,
        host: &dyn Host,
    ) -> Passed {
        let (mut slot, mut reach) = (None, ScriptReach::Slot);
        let mut cores = Cores::of(host.joined_cores());
        request.for_each_key(|key| {
            let other = slot_of(key);
            cores.add(other);
            if *slot.get_or_insert(other) != other {
                reach = ScriptReach::Node;
            }
        });
        if cores.are_several(false) {
            reach = ScriptReach::Shards;
            if !self.is_idle(sink) {
                return Passed::Waits;
            }
        }
        let item = ScriptItem {
            script: ScriptName::Command,
            access: ScriptAccess::Changes,
            reach,
            is_of_resp3: self.protocol == Protocol::Resp3,
            slot,
            reply_bytes_max: u32::MAX,
        };
        let mut command = Vec::new();
        put_command(args, &mut command);
        if !sink.has_room(1, item.item_bytes(1, command.len())) {
            return Passed::Part;
        }
        let (batch, out) = sink.batch(self.ring.next_item());
        batch.script(out, &item, 0, std::iter::once(&command[..]));
        self.push_script_of(reach);
        Passed::Whole
    }

    /// WATCH.
    pub(super) fn watch(&mut self, args: Arguments<'_>) -> Passed {
        if args.len() - 1 > WATCHED_MAX {
            return self.refuse_many_watched(args.len() - 1);
        }
        if args
            .from(1)
            .any(|key| !(1..=KEY_BYTES_MAX).contains(&key.len()))
        {
            return self.refuse(words::bad_key);
        }
        let is_known = |key: &[u8]| self.watched.iter().any(|watched| watched.key == key);
        let new: Vec<&[u8]> = args.from(1).filter(|key| !is_known(key)).collect();
        if self.watched.len() + new.len() > WATCHED_MAX {
            return self.refuse_many_watched(self.watched.len() + new.len());
        }
        let new_bytes: usize = new.iter().map(|key| watched_bytes_of(key)).sum();
        let bytes = self.watched_bytes() + new_bytes;
        let most = WATCHED_BYTES_MIN.max(self.limits.frame_bytes_max as usize / 4);
        if bytes > most {
            let text = format!(
                "ERR watched keys take {bytes} bytes, and {most} is the limit: a quarter of \
                 frame_bytes_max"
            );
            return self.refuse_only(text.as_bytes());
        }
        let watching = Watching::new(new.into_iter());
        self.begin_under_way(UnderWay::of_watch(watching, self.protocol));
        Passed::Whole
    }

    /// Why watched keys and commands are too much for an item, if they are.
    fn too_much_watched(&self, queue: &Queue) -> Option<String> {
        let most = self.limits.frame_bytes_max as usize;
        let (watched_bytes, queued_bytes) = (self.watched_bytes(), queue.bytes);
        let bytes = watched_bytes + queued_bytes;
        (watched_bytes > 0 && bytes > most).then(|| {
            format!(
                "EXECABORT Transaction discarded because its commands and watched keys take \
                 {bytes} bytes, and {most} is the limit (option frame_bytes_max)"
            )
        })
    }

    /// Bytes that watched keys take in an item.
    fn watched_bytes(&self) -> usize {
        let all = self.watched.iter();
        all.map(|it| watched_bytes_of(&it.key)).sum()
    }

    #[cold]
    fn refuse_many_watched(&mut self, count: usize) -> Passed {
        let text = format!("ERR {count} keys; at most {WATCHED_MAX} can be watched");
        self.refuse_only(text.as_bytes())
    }
}

/// The words of Valkey.
pub(super) fn not_behind_multi(args: Arguments<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"ERR Command '");
    out.extend(args.get(0).to_ascii_lowercase());
    out.extend_from_slice(b"' not allowed inside a transaction");
}
