//! Commands that run together in the shard that owns their keys: those of EXEC, and one that is
//! more than an item.
//!
//! ```text
//! a command in an item:   u32 arguments | u32 length of each | the arguments
//! a reply in its place:   u32 0         | the reply
//! ```
//!
//! The reply of a command without keys follows from the connection, so it is made there.

use crate::rights::{Denied, Need, Rights};
use crate::script::{ScriptAccess, ScriptName, ScriptRequest};
use crate::version::Version;

use super::parser::{Arguments, KeptArguments};
use super::reply::{Protocol, Replies};
use super::request::Request;
use super::scripts::Eval;
use super::staged::{KeySource, MustWait, Staged, Unread};
use super::table::{self, Name};
use super::watch::Seen;

/// Appends a command.
pub(super) fn put_command(args: Arguments<'_>, out: &mut Vec<u8>) {
    let short = |number: usize| u32::try_from(number).expect("a command is bounded");
    out.extend_from_slice(&short(args.len()).to_le_bytes());
    for argument in args.from(0) {
        out.extend_from_slice(&short(argument.len()).to_le_bytes());
    }
    args.from(0)
        .for_each(|argument| out.extend_from_slice(argument));
}

/// Appends a reply that stands in the place of a command.
pub(super) fn put_reply(reply: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&0_u32.to_le_bytes());
    out.extend_from_slice(reply);
}

/// The reply that stands in the place of a command; `None` of a command.
pub(super) fn reply_of(bytes: &[u8]) -> Option<&[u8]> {
    bytes.strip_prefix(&[0; 4])
}

/// A command of an item.
enum Queued<'a> {
    Reply(&'a [u8]),
    Command(Vec<&'a [u8]>),
}

/// Reads a command; `None` if the bytes are none.
fn read_queued(bytes: &[u8]) -> Option<Queued<'_>> {
    let (count, rest) = bytes.split_first_chunk::<4>()?;
    let count = u32::from_le_bytes(*count) as usize;
    if count == 0 {
        return Some(Queued::Reply(rest));
    }
    let (lengths, mut rest) = rest.split_at_checked(count.checked_mul(4)?)?;
    let mut arguments = Vec::with_capacity(count);
    for len in lengths.as_chunks::<4>().0 {
        let (argument, others) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        arguments.push(argument);
        rest = others;
    }
    rest.is_empty().then_some(Queued::Command(arguments))
}

/// How the commands of an item have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueuedEnd {
    /// The reply is that of the commands; what they have staged is to be kept.
    Done,
    /// The reply is null, because a watched key has changed, or an error. Nothing is kept.
    Void,
}

/// Runs the scripts among the commands of EXEC.
pub trait Evals {
    /// Runs a script on what was staged before it, and appends its reply, of at most `bytes_max`.
    /// `false`: the reply is an error, and what the script has staged is to be dropped.
    ///
    /// # Errors
    /// [`MustWait`] if a key must be brought first.
    fn eval(
        &mut self,
        eval: &Eval<'_>,
        protocol: Protocol,
        staged: &mut Staged,
        source: &mut dyn KeySource,
        bytes_max: usize,
        reply: &mut Vec<u8>,
    ) -> Result<bool, MustWait>;
}

/// Runs the commands of an item and appends their reply, of at most `bytes_max`.
///
/// # Errors
/// [`MustWait`] if a key must be brought first. The reply is to be dropped.
pub fn run_queued(
    request: &ScriptRequest<'_>,
    bytes_max: usize,
    (staged, source): (&mut Staged, &mut dyn KeySource),
    evals: &mut dyn Evals,
    reply: &mut Vec<u8>,
) -> Result<QueuedEnd, MustWait> {
    let (from, protocol) = (reply.len(), protocol_of(request));
    let mut arguments = request.arguments();
    for key in request.keys() {
        let seen = arguments.next().and_then(Seen::read);
        match staged.is_unchanged(key, seen, source) {
            Ok(true) => {}
            Ok(false) => {
                Replies::new(reply, protocol).null_array();
                return Ok(QueuedEnd::Void);
            }
            Err(Unread::Missing) => return Err(MustWait),
            Err(Unread::Refused(text)) => {
                Replies::new(reply, protocol).error(text.as_bytes());
                return Ok(QueuedEnd::Void);
            }
        }
    }
    let mut replies = Replies::bounded(reply, protocol, from.saturating_add(bytes_max));
    if request.script() == ScriptName::Commands {
        replies.array(arguments.clone().count());
    }
    let mut kept = KeptArguments::default();
    for bytes in arguments {
        match read_queued(bytes) {
            Some(Queued::Reply(bytes)) => replies.raw(bytes),
            Some(Queued::Command(arguments)) => {
                kept.fill(&arguments);
                let args = kept.view();
                let command = table::find(args.get(0));
                match command.and_then(|command| Eval::read(command.id, args)) {
                    None => staged.queued(args, source, &mut replies)?,
                    Some(Err(text)) => replies.error(text),
                    Some(Ok(eval)) => {
                        let before = staged.save();
                        let mut reply = Vec::new();
                        let left = bytes_max.saturating_sub(replies.bytes() - from);
                        if !evals.eval(&eval, protocol, staged, source, left, &mut reply)? {
                            staged.restore(before, source)?;
                        }
                        replies.raw(&reply);
                        if replies.bytes() - from > bytes_max {
                            break;
                        }
                    }
                }
            }
            None => replies.error(b"ERR a command of EXEC has another form than expected"),
        }
    }
    let bytes = replies.bytes() - from;
    if bytes <= bytes_max {
        return Ok(QueuedEnd::Done);
    }
    reply.truncate(from);
    let text = format!(
        "EXECABORT Transaction discarded because its reply would take {bytes} bytes, and \
         {bytes_max} is the limit: output_bytes_max, or what is left for replies now."
    );
    Replies::new(reply, protocol).error(text.as_bytes());
    Ok(QueuedEnd::Void)
}

/// Shows each key that a command names. Whether the command may change one.
pub(super) fn for_each_key<'a>(
    command: &table::Command,
    args: Arguments<'a>,
    mut visit: impl FnMut(&'a [u8]),
) -> bool {
    if let Some(Ok(eval)) = Eval::read(command.id, args) {
        eval.keys().for_each(visit);
        return eval.access == ScriptAccess::Changes;
    }
    match Request::read(command, args) {
        Ok(Some(request)) => {
            request.for_each_key(&mut visit);
            request.is_change()
        }
        _ => false,
    }
}

/// Shows each key that an item names: those of its head and of its commands.
pub fn for_each_named_key(request: &ScriptRequest<'_>, mut visit: impl FnMut(&[u8])) {
    request.keys().for_each(&mut visit);
    if !matches!(request.script(), ScriptName::Commands | ScriptName::Command) {
        return;
    }
    let mut kept = KeptArguments::default();
    for bytes in request.arguments() {
        if let Some(Queued::Command(arguments)) = read_queued(bytes) {
            kept.fill(&arguments);
            let args = kept.view();
            if let Some(command) = table::find(args.get(0)) {
                for_each_key(command, args, &mut visit);
            }
        }
    }
}

/// The newest version of the partition of a key that was missing when it was watched, for each
/// such key that an item names.
pub fn for_each_missing_key(request: &ScriptRequest<'_>, mut visit: impl FnMut(&[u8], Version)) {
    if request.script() != ScriptName::Commands {
        return;
    }
    for (key, seen) in request.keys().zip(request.arguments()) {
        if let Some(Seen::Absent(newest)) = Seen::read(seen) {
            visit(key, newest);
        }
    }
}

/// The form of the reply of an item.
#[must_use]
pub fn protocol_of(request: &ScriptRequest<'_>) -> Protocol {
    match request.is_of_resp3() {
        true => Protocol::Resp3,
        false => Protocol::Resp2,
    }
}

/// Whether a user may have a SCRIPT executed: a script, or each of the commands.
///
/// # Errors
/// The first key where a right is missing.
pub fn judge_script<'a>(rights: &'a Rights, request: &ScriptRequest<'a>) -> Result<(), Denied<'a>> {
    match request.script() {
        ScriptName::Text(_) | ScriptName::Digest(_) => return rights.judge_script(request),
        ScriptName::Commands | ScriptName::Command => {}
    }
    request
        .keys()
        .try_for_each(|key| rights.demand(Need::READ, key))?;
    let mut kept = KeptArguments::default();
    for bytes in request.arguments() {
        let Some(Queued::Command(arguments)) = read_queued(bytes) else {
            continue;
        };
        kept.fill(&arguments);
        let args = kept.view();
        let Some(command) = table::find(args.get(0)) else {
            continue;
        };
        if let (Name::Publish, [_, channel, ..]) = (command.id, &arguments[..]) {
            rights.demand(Need::WRITE, channel)?;
        }
        let Ok(Some(asked)) = Request::read(command, args) else {
            continue;
        };
        let is_alone = request.script() == ScriptName::Command;
        let need = match asked {
            // By itself it shows no more than the items do that it is for other keys.
            Request::MSet(_) | Request::Del(_) if is_alone => Need::WRITE,
            _ if asked.is_change() => Need::READ_WRITE,
            _ => Need::READ,
        };
        // The places of keys are those of the arguments, which live as long as the item.
        let mut lacking = None;
        asked.for_each_key(|key| {
            if lacking.is_none() && !rights.allows(need, key) {
                lacking = arguments.iter().find(|argument| **argument == key).copied();
            }
        });
        if let Some(key) = lacking {
            rights.demand(need, key)?;
        }
    }
    Ok(())
}
