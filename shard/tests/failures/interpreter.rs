//! An interpreter of scripts for tests: each argument is a command, with blanks between its words.
//! `K` is the first key, `''` no byte, and a byte below a blank is a blank within a word.
//!
//! `all` replies an array of all replies, `last` the last one, `fail` an error behind all commands,
//! `long` more bytes than a value has. `dear` takes [`DEAR_STEPS`], and `spent` replies what was
//! taken before it. `heavy` takes [`HEAVY_STEPS`], and [`take_heavy_runs`] counts its runs.

use std::cell::Cell;

use penstock_shard::scripts::{Called, Calls, Script, ScriptEnd, ScriptRun, Scripts, Spent};

/// Steps of a script that is dear.
pub const DEAR_STEPS: u64 = 400;
/// Steps after which no script runs again.
pub const AGAIN_STEPS: u64 = 1_000;
/// Steps of a script that takes a slice by itself.
pub const HEAVY_STEPS: u64 = 60_000;

thread_local! {
    static HEAVY_RUNS: Cell<usize> = const { Cell::new(0) };
}

/// How often `heavy` has run in this thread since this was asked.
pub fn take_heavy_runs() -> usize {
    HEAVY_RUNS.take()
}

pub struct Lines;

impl Scripts for Lines {
    fn run(
        &mut self,
        run: &ScriptRun<'_>,
        calls: &mut dyn Calls,
        reply: &mut Vec<u8>,
    ) -> ScriptEnd {
        let Script::Text(text) = run.script else {
            return ScriptEnd::Unknown;
        };
        let from = reply.len();
        let spent = run.spent.get();
        if text == b"spent" {
            reply.extend(format!(":{}\r\n", spent.steps).bytes());
        }
        if text == b"dear" {
            let steps = DEAR_STEPS;
            run.spent.set(spent.and(Spent { steps, us: 7 }));
        }
        if text == b"heavy" {
            HEAVY_RUNS.set(HEAVY_RUNS.get() + 1);
            let steps = HEAVY_STEPS;
            run.spent.set(spent.and(Spent { steps, us: 7 }));
        }
        if text == b"all" {
            reply.extend(format!("*{}\r\n", run.arguments.len()).bytes());
        }
        for line in run.arguments {
            let words: Vec<Vec<u8>> = line
                .split(|byte| *byte == b' ')
                .map(|word| match word {
                    b"K" => run.keys[0].to_vec(),
                    b"''" => Vec::new(),
                    word => word.iter().map(|byte| *byte.max(&b' ')).collect(),
                })
                .collect();
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            if text == b"last" {
                reply.truncate(from);
            }
            if calls.call(&words, run.protocol, reply) == Called::Missing {
                // What a script does when it should have ended.
                assert_eq!(calls.call(&words, run.protocol, reply), Called::Missing);
                reply.truncate(from);
                return ScriptEnd::Stopped;
            }
        }
        if text == b"fail" {
            reply.truncate(from);
            reply.extend_from_slice(b"-ERR it failed\r\n");
            return ScriptEnd::Failed;
        }
        ScriptEnd::Answered
    }

    fn may_run_again(&self, spent: Spent) -> bool {
        spent.steps < AGAIN_STEPS
    }

    fn bytes(&self) -> usize {
        0
    }
}
