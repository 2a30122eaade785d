//! What a shard asks of the interpreter of scripts, and what a script asks of its shard.
//!
//! A shard knows neither a language nor an interpreter: the shell that makes a shard gives it an
//! implementation of [`Scripts`]. The shard answers the commands of a script by [`Calls`] and
//! keeps or drops what they have staged by [`ScriptEnd`].

use std::cell::Cell;

use penstock_net::resp::Protocol;
pub use penstock_net::script::Spent;

/// Runs the scripts of one shard.
pub trait Scripts {
    /// Runs one script to its end, or until a call has no answer yet. Appends to `reply` what the
    /// client gets: the value of the script or an error, in the protocol of the run; nothing if the
    /// end is [`ScriptEnd::Unknown`] or [`ScriptEnd::Stopped`].
    ///
    /// The same run with the same answers of `calls` has the same calls and the same reply, in
    /// every process. One run leaves nothing that another one could see.
    fn run(&mut self, run: &ScriptRun<'_>, calls: &mut dyn Calls, reply: &mut Vec<u8>)
    -> ScriptEnd;

    /// Whether a script that was stopped may run again, if all runs of its item have taken so much.
    fn may_run_again(&self, spent: Spent) -> bool {
        let _ = spent;
        true
    }

    /// Bytes that the interpreter and the compiled scripts take: they count within `memory_max`.
    fn bytes(&self) -> usize;
}

/// One run of a script.
#[derive(Clone, Copy, Debug)]
pub struct ScriptRun<'a> {
    /// The script.
    pub script: Script<'a>,
    /// The table KEYS.
    pub keys: &'a [&'a [u8]],
    /// The table ARGV.
    pub arguments: &'a [&'a [u8]],
    /// The form of the reply.
    pub protocol: Protocol,
    /// Bytes of the reply, at most; a longer one is an error.
    pub reply_bytes_max: usize,
    /// Where the numbers of `math.random` begin.
    pub seed: u64,
    /// What the scripts before it have taken in this run of the item, as those of one EXEC. Its own
    /// steps and time are added: all are bounded as those of one script.
    pub spent: &'a Cell<Spent>,
}

/// How a client names a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Script<'a> {
    /// By its text, as EVAL does.
    Text(&'a [u8]),
    /// By the SHA-1 of its text, as EVALSHA does.
    Digest([u8; 20]),
}

/// What a script asks of its shard.
pub trait Calls {
    /// Runs one command of the script and appends its reply to `reply`, in `protocol`. A command
    /// that fails is answered by an error of the protocol.
    fn call(&mut self, arguments: &[&[u8]], protocol: Protocol, reply: &mut Vec<u8>) -> Called;

    /// The script says in its first line that it changes nothing (`no-writes`): each later call
    /// that would is answered by an error. Comes before the first call, in no other run.
    fn declare_read_only(&mut self) {}

    /// Writes a line to the log of the node. Levels are those of `redis.log`: 0 debug, 1 verbose,
    /// 2 notice, 3 warning. A shard has no log: its shell stands between it and the interpreter.
    fn log(&mut self, level: u8, text: &[u8]) {
        let _ = (level, text);
    }
}

/// What became of a command of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Called {
    /// Its reply is written.
    Answered,
    /// A key must be read first: the run ends at once, whatever the script does, and is repeated
    /// from its start later.
    Missing,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum ScriptEnd {
    /// The value that the script returned is the reply; what the run has staged is to be kept.
    Answered,
    /// The reply is an error; nothing of what the run has staged is kept.
    Failed,
    /// Nobody has sent a script of this digest.
    Unknown,
    /// A call was [`Called::Missing`].
    Stopped,
}
