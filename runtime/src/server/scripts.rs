//! The interpreter of one core, whose scripts write to the log of the node.

use std::sync::Arc;
use std::time::{Duration, Instant};

use penstock_net::resp::Protocol;
use penstock_scripts::{Lua, Patience, ScriptLimits, ScriptTexts};
use penstock_shard::scripts::{Called, Calls, ScriptEnd, ScriptRun, Scripts, Spent};
use tracing::{info, warn};

use crate::system::thread_clock::thread_us;

/// Lines of scripts of one core in [`LINES_WITHIN`], at most; others are counted.
const LINES_MAX: u32 = 20;
const LINES_WITHIN: Duration = Duration::from_secs(1);
/// Bytes of a line that are logged.
const LINE_BYTES_MAX: usize = 256;
/// The time of a run on a CPU, at most, whatever its steps: twenty times what `script_steps_max`
/// usually takes.
const RUN_US_MAX: u64 = 100_000;
/// The level of `redis.log` from which a line is a warning.
const WARNING: u8 = 3;

/// An interpreter and the log of what its scripts say.
pub(super) struct LoggedScripts {
    lua: Lua,
    log: ScriptLog,
}

impl LoggedScripts {
    /// The interpreter of a shard, by these texts, for runs of so many steps at most.
    pub(super) fn new(texts: Arc<ScriptTexts>, steps_max: u64, shard: u16) -> Self {
        let limits = ScriptLimits {
            steps_max,
            patience: Some(Patience {
                elapsed_us: thread_us,
                us_max: RUN_US_MAX,
            }),
            ..ScriptLimits::default()
        };
        LoggedScripts {
            lua: Lua::new(texts, limits),
            log: ScriptLog {
                shard,
                since: None,
                lines: 0,
                dropped: 0,
            },
        }
    }
}

impl Scripts for LoggedScripts {
    fn run(
        &mut self,
        run: &ScriptRun<'_>,
        calls: &mut dyn Calls,
        reply: &mut Vec<u8>,
    ) -> ScriptEnd {
        let log = &mut self.log;
        self.lua.run(run, &mut LoggedCalls { calls, log }, reply)
    }

    fn may_run_again(&self, spent: Spent) -> bool {
        self.lua.may_run_again(spent)
    }

    fn bytes(&self) -> usize {
        self.lua.bytes()
    }
}

/// The calls of a run, whose lines are logged here.
struct LoggedCalls<'a> {
    calls: &'a mut dyn Calls,
    log: &'a mut ScriptLog,
}

impl Calls for LoggedCalls<'_> {
    fn call(&mut self, arguments: &[&[u8]], protocol: Protocol, reply: &mut Vec<u8>) -> Called {
        self.calls.call(arguments, protocol, reply)
    }

    fn declare_read_only(&mut self) {
        self.calls.declare_read_only();
    }

    fn log(&mut self, level: u8, text: &[u8]) {
        self.log.write(level, text);
    }
}

/// Lines of the scripts of one core.
struct ScriptLog {
    shard: u16,
    /// When the lines began that are counted.
    since: Option<Instant>,
    lines: u32,
    /// Lines since the last one that was logged.
    dropped: u64,
}

impl ScriptLog {
    fn write(&mut self, level: u8, text: &[u8]) {
        let now = Instant::now();
        if self.since.is_none_or(|since| now - since >= LINES_WITHIN) {
            (self.since, self.lines) = (Some(now), 0);
        }
        self.lines += 1;
        if self.lines > LINES_MAX {
            self.dropped += 1;
            return;
        }
        let (shard, dropped) = (self.shard, std::mem::take(&mut self.dropped));
        let text = text[..text.len().min(LINE_BYTES_MAX)].escape_ascii();
        match level {
            WARNING.. => warn!(shard, dropped, "shard {shard}: a script says: {text}"),
            _ => info!(shard, dropped, "shard {shard}: a script says: {text}"),
        }
    }
}
