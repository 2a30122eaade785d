//! The scripts of one core.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use penstock_shard::scripts::{Calls, ScriptEnd, ScriptRun, Scripts, Spent};

use crate::budget::ScriptLimits;
use crate::interpreter::Interpreter;
use crate::texts::ScriptTexts;

thread_local! {
    /// Interpreters belong to the thread that runs them: they count references without atomics.
    static INTERPRETERS: RefCell<Vec<(u64, Box<Interpreter>)>> = RefCell::default();
}

/// Takes an interpreter out of those of a thread, which are few.
fn take(all: &mut Vec<(u64, Box<Interpreter>)>, name: u64) -> Option<Box<Interpreter>> {
    let at = all.iter().position(|(other, _)| *other == name)?;
    Some(all.swap_remove(at).1)
}

/// Numbers that name interpreters.
static NAMES: AtomicU64 = AtomicU64::new(0);

/// Runs the Lua scripts of one core. Its interpreter is made by the first run.
///
/// A shard and its `Lua` may go to another thread: the first run there makes another interpreter,
/// and the old one goes when its thread ends.
pub struct Lua {
    name: u64,
    texts: Arc<ScriptTexts>,
    limits: ScriptLimits,
    bytes: usize,
}

impl Lua {
    /// Scripts by these texts, which all cores of the node share.
    #[must_use]
    pub fn new(texts: Arc<ScriptTexts>, limits: ScriptLimits) -> Self {
        Lua {
            name: NAMES.fetch_add(1, Ordering::Relaxed),
            texts,
            limits,
            bytes: 0,
        }
    }
}

impl Scripts for Lua {
    fn run(
        &mut self,
        run: &ScriptRun<'_>,
        calls: &mut dyn Calls,
        reply: &mut Vec<u8>,
    ) -> ScriptEnd {
        // Taken out while it runs, so that calls may use another one on this thread.
        let interpreter = INTERPRETERS.with_borrow_mut(|all| take(all, self.name));
        let mut interpreter =
            interpreter.unwrap_or_else(|| Box::new(Interpreter::new(self.limits)));
        let end = interpreter.run(&self.texts, run, calls, reply);
        self.bytes = interpreter.bytes();
        INTERPRETERS.with_borrow_mut(|all| all.push((self.name, interpreter)));
        end
    }

    fn may_run_again(&self, spent: Spent) -> bool {
        let patience = self.limits.patience;
        spent.steps < self.limits.steps_max
            && patience.is_none_or(|patience| spent.us < patience.us_max)
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Lua {
    fn drop(&mut self) {
        // At the end of a thread its interpreters are gone already.
        let interpreter = INTERPRETERS.try_with(|all| {
            all.try_borrow_mut()
                .ok()
                .and_then(|mut all| take(&mut all, self.name))
        });
        drop(interpreter);
    }
}

impl fmt::Debug for Lua {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Lua")
            .field("name", &self.name)
            .field("bytes", &self.bytes)
            .finish()
    }
}
