//! What a run may take: steps, memory, bytes of its reply. The clock is an argument.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use mlua::{HookTriggers, Lua, VmState};
use penstock_shard::scripts::Spent;

use crate::failure::Failure;

/// Bounds of the scripts of one core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScriptLimits {
    /// Steps of one run, at most. A step is one instruction of the virtual machine, or as much
    /// work of a library function.
    pub steps_max: u64,
    /// Bytes of the interpreter of a core, at most, compiled scripts and what a run takes included.
    pub memory_bytes_max: usize,
    /// The time after which a run ends whose steps are dearer than their price.
    pub patience: Option<Patience>,
}

/// The last bound of a run, which no well-meant script meets: some instructions of Lua, such as an
/// addition to a string of a million digits, take longer than any price says. What a run changes
/// stands in one record, so nothing depends on where a run ended.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Microseconds of a clock that never steps, such as the time of this thread on a CPU.
    pub elapsed_us: fn() -> u64,
    /// Microseconds of a run, at most. The clock is read every [`TICK_STEPS`] instructions, sooner
    /// if these may read [`TIMED_BYTES`] of long strings, and every [`CHARGES_TIMED`] charges of
    /// library functions. It counts from its first reading on.
    pub us_max: u64,
}

impl PartialEq for Patience {
    fn eq(&self, other: &Self) -> bool {
        self.us_max == other.us_max
    }
}

impl Eq for Patience {}

impl Default for ScriptLimits {
    fn default() -> Self {
        ScriptLimits {
            steps_max: 500_000,
            memory_bytes_max: 16 << 20,
            patience: None,
        }
    }
}

/// Instructions after which growth of memory is counted anew and the clock is read. A new coroutine
/// costs as many.
pub(crate) const TICK_STEPS: u64 = 250;
/// Instructions between two readings of the budget, at most. So few, because `..` makes a string
/// longer by a factor of 1.32 for each instruction at most (four operands are four instructions and
/// one more), so one of 1 KiB has 1 MiB after 25 of them.
const INSTRUCTIONS_MAX: u64 = 25;
/// As many instructions less for each factor of four in the length of the longest string: so much
/// can `..` do with them.
const INSTRUCTIONS_OF_FACTOR: u64 = 5;
/// Bytes of long strings that instructions may read between two readings of the clock.
const TIMED_BYTES: u64 = 1 << 20;
/// Strings that an instruction reads.
const OPERANDS: u64 = 2;
/// A string that is no number is read so many times faster than one that is.
const NUMBER_FACTOR: usize = 8;
/// Bytes that are copied in the time of a step.
const BYTES_PER_STEP: usize = 64;
/// Bytes of a copy that are as cheap as that. The others take pages that are not there yet.
const NEAR_BYTES: usize = 64 << 10;
/// Bytes of a long copy that are copied in the time of a step.
const FAR_BYTES_PER_STEP: usize = 32;
/// Bytes of a number that are read in the time of a step.
const NUMBER_BYTES_PER_STEP: usize = 8;
/// Bytes of a string that are examined: one that begins with so many bytes of a number counts as a
/// number as long as the string.
const EXAMINED_BYTES: usize = 64 << 10;
/// Bytes that a tick may allocate before they cost steps: what small tables and strings need, and
/// more than what earlier runs left behind could save.
const GROWTH_FREE_BYTES: usize = 64 << 10;
/// A string above this length makes each instruction dearer, because one instruction can compare
/// the whole of it.
const LONG_BYTES: usize = 64 << 10;
/// The same for a string that is all digits, because one instruction can read it as a number.
const LONG_NUMBER_BYTES: usize = 4 << 10;
/// The clock is read once in so many charges of library functions.
const CHARGES_TIMED: u32 = 256;
/// Strings below this length are not examined.
const SHORT_BYTES: usize = 1 << 10;

/// Whether a byte can stand in a number, or in blanks around it.
const IS_OF_NUMBER: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte: u8 = 0;
    while byte < 128 {
        table[byte as usize] = byte.is_ascii_hexdigit()
            || matches!(
                byte,
                b'\t'..=b'\r' | b' ' | b'.' | b'+' | b'-' | b'p' | b'P' | b'x' | b'X'
            );
        byte += 1;
    }
    table
};

/// How many bytes at the begin of a string, at most, are read when it is read as a number; and how
/// many have been examined for that.
fn number_bytes(bytes: &[u8]) -> (usize, usize) {
    if matches!(bytes.first(), Some(byte) if byte.is_ascii_alphabetic() && !b"nN".contains(byte)) {
        return (0, 1);
    }
    let near = &bytes[..bytes.len().min(EXAMINED_BYTES)];
    let is_of_number = |byte: &&u8| IS_OF_NUMBER[usize::from(**byte)];
    let examined = near.iter().take_while(is_of_number).count();
    // Behind `nan(` any letters may follow.
    let is_nan = bytes[examined..]
        .first_chunk::<4>()
        .is_some_and(|begin| begin.eq_ignore_ascii_case(b"nan("));
    match examined == EXAMINED_BYTES || is_nan {
        true => (bytes.len(), examined),
        false => (examined, examined),
    }
}

/// Why a run ends that the script cannot prevent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// A call has no answer yet.
    Missing,
    /// Too many steps.
    Steps,
    /// Too many bytes.
    Memory,
    /// Too long.
    Time {
        /// Microseconds that it has run.
        us: u64,
    },
    /// The reply is too long.
    Reply {
        /// Bytes, at most.
        bytes_max: usize,
    },
}

impl Stop {
    /// The error reply: limit and value by their names.
    pub(crate) fn text(self, meter: &Meter) -> String {
        let limits = meter.limits;
        match self {
            Stop::Missing => String::from("ERR script stopped: a key must be read first"),
            Stop::Steps => format!(
                "ERR script stopped: it has taken {} steps, the limit is {} (option \
                 script_steps_max)",
                meter.steps.get(),
                limits.steps_max
            ),
            Stop::Time { us } => format!(
                "ERR script stopped: it has run {us} microseconds, the limit is {}; it has taken \
                 {} steps",
                limits.patience.map_or(0, |patience| patience.us_max),
                meter.steps.get()
            ),
            Stop::Memory => format!(
                "ERR script stopped: it needs more memory than the limit of {} bytes of \
                 each core",
                limits.memory_bytes_max
            ),
            Stop::Reply { bytes_max } => format!(
                "ERR script stopped: its reply is longer than the limit of {bytes_max} bytes"
            ),
        }
    }
}

/// Counts what one run takes.
#[derive(Debug)]
pub(crate) struct Meter {
    pub(crate) limits: ScriptLimits,
    steps: Cell<u64>,
    /// How often library functions have taken steps, in all runs.
    charges: Cell<u32>,
    stop: Cell<Option<Stop>>,
    /// Length of the longest string that the run has met.
    longest: Cell<usize>,
    /// Length of the longest string that could be a number.
    longest_number: Cell<usize>,
    /// What instructions between two looks at the budget have allocated, at most: so long may a
    /// string be that `..` has made.
    longest_made: Cell<usize>,
    /// Instructions between two looks at the budget. It is the number of the coroutine that runs,
    /// because each one that another continues looks after its first instruction.
    interval: Cell<u64>,
    /// Bytes of the interpreter at the last look.
    bytes_seen: Cell<usize>,
    /// Instructions since the last tick.
    instructions: Cell<u64>,
    /// Bytes that instructions may have read since the clock was read.
    bytes_untimed: Cell<u64>,
    /// Bytes of the interpreter at the last tick.
    bytes: Cell<usize>,
    /// Bytes of the interpreter at which garbage is collected within the run.
    collect_at: Cell<usize>,
    /// When the clock of its patience was first read in this run, in its microseconds.
    began_us: Cell<Option<u64>>,
    /// Microseconds that were taken before it by scripts of the same item.
    before_us: Cell<u64>,
    /// For the function that the interpreter calls to look at the budget.
    this: Weak<Meter>,
    /// Where the error was raised that ended the script.
    pub(crate) blame: RefCell<Option<String>>,
}

impl Meter {
    pub(crate) fn new(limits: ScriptLimits) -> Rc<Self> {
        Rc::new_cyclic(|this| Meter {
            this: Weak::clone(this),
            limits,
            steps: Cell::new(0),
            charges: Cell::new(0),
            stop: Cell::new(None),
            longest: Cell::new(0),
            longest_number: Cell::new(0),
            longest_made: Cell::new(0),
            interval: Cell::new(INSTRUCTIONS_MAX),
            bytes_seen: Cell::new(0),
            instructions: Cell::new(0),
            bytes_untimed: Cell::new(0),
            bytes: Cell::new(0),
            collect_at: Cell::new(0),
            began_us: Cell::new(None),
            before_us: Cell::new(0),
            blame: RefCell::new(None),
        })
    }

    /// Begins a run, behind other scripts of the same item.
    pub(crate) fn begin(&self, lua: &Lua, spent: Spent) -> mlua::Result<()> {
        self.steps.set(spent.steps);
        self.stop.set(None);
        self.began_us.set(None);
        self.before_us.set(spent.us);
        self.longest.set(0);
        self.longest_number.set(0);
        self.longest_made.set(0);
        self.instructions.set(0);
        self.bytes_untimed.set(0);
        let bytes = lua.used_memory();
        self.bytes.set(bytes);
        self.bytes_seen.set(bytes);
        self.collect_at.set(self.limits.memory_bytes_max / 2);
        self.blame.replace(None);
        self.account_every(lua, INSTRUCTIONS_MAX)
    }

    /// What the scripts of the item have taken, with this one.
    pub(crate) fn spent(&self) -> Spent {
        Spent {
            steps: self.steps.get(),
            us: self.before_us.get() + self.taken_us(),
        }
    }

    /// Has the coroutine that runs look at the budget after so many instructions, counted from now.
    fn account_every(&self, lua: &Lua, instructions: u64) -> mlua::Result<()> {
        self.interval.set(instructions);
        let count = u32::try_from(instructions).expect("it is short");
        let this = Weak::clone(&self.this);
        let triggers = HookTriggers::new().every_nth_instruction(count);
        lua.set_global_hook(triggers, move |lua, _| {
            let meter = this.upgrade().ok_or(Failure::Stop)?;
            meter.account(lua).map(|()| VmState::Continue)
        })
    }

    /// Has the coroutine that runs look after its next instruction: another one goes on, or has.
    pub(crate) fn account_next(&self, lua: &Lua) -> mlua::Result<()> {
        self.charge(1)?;
        self.account_every(lua, 1)
    }

    /// Bytes that an instruction may read.
    fn reach(&self) -> usize {
        let longest = self.longest_number.get().max(self.longest_made.get());
        longest.max(self.longest.get() / NUMBER_FACTOR)
    }

    /// Instructions between two looks at the budget, by the longest string.
    fn instructions_max(&self) -> u64 {
        let lengths = self.reach() / SHORT_BYTES;
        let twos = u64::from(usize::BITS - lengths.leading_zeros());
        let fewer = INSTRUCTIONS_OF_FACTOR * twos.div_ceil(2);
        INSTRUCTIONS_MAX.saturating_sub(fewer).max(1)
    }

    /// What ends the run, if something does.
    pub(crate) fn stopped(&self) -> Option<Stop> {
        self.stop.get()
    }

    /// Ends the run. The first reason counts.
    #[must_use]
    pub(crate) fn stop(&self, stop: Stop) -> mlua::Error {
        if self.stop.get().is_none() {
            self.stop.set(Some(stop));
        }
        Failure::Stop.into()
    }

    /// Takes steps.
    pub(crate) fn charge(&self, steps: u64) -> mlua::Result<()> {
        if self.stop.get().is_some() {
            return Err(Failure::Stop.into());
        }
        // The price of a string of the interpreter is none that all strings keep to: strings that
        // differ only where its hash does not read them are compared with each other.
        self.charges.set(self.charges.get().wrapping_add(1));
        if self.charges.get().is_multiple_of(CHARGES_TIMED) {
            self.check_time()?;
        }
        self.steps.set(self.steps.get().saturating_add(steps));
        if self.steps.get() > self.limits.steps_max {
            return Err(self.stop(Stop::Steps));
        }
        Ok(())
    }

    /// Takes the steps of a function that reads or writes so many bytes.
    pub(crate) fn charge_bytes(&self, bytes: usize) -> mlua::Result<()> {
        let near = bytes.min(NEAR_BYTES);
        let steps = near / BYTES_PER_STEP + (bytes - near) / FAR_BYTES_PER_STEP;
        self.charge(1 + steps as u64)
    }

    /// Takes the steps of reading a number from a string, before it is read.
    pub(crate) fn charge_number(&self, bytes: usize) -> mlua::Result<()> {
        self.charge(1 + (bytes / NUMBER_BYTES_PER_STEP) as u64)
    }

    /// Takes note of a string that the script gets: long ones make each instruction dearer, and the
    /// budget is looked at more often.
    pub(crate) fn note(&self, lua: &Lua, bytes: &[u8]) -> mlua::Result<()> {
        if bytes.len() < SHORT_BYTES {
            return Ok(());
        }
        let (of_number, examined) = number_bytes(bytes);
        self.charge_number(examined)?;
        self.longest.set(self.longest.get().max(bytes.len()));
        let longest = self.longest_number.get().max(of_number);
        self.longest_number.set(longest);
        let instructions_max = self.instructions_max();
        if instructions_max < self.interval.get() {
            // Those that have run since the last look are forgotten.
            self.charge(self.interval.get())?;
            self.account_every(lua, instructions_max)?;
        }
        Ok(())
    }

    /// Refuses what would not fit into memory, before it is made.
    pub(crate) fn check_room(&self, lua: &Lua, bytes: usize) -> mlua::Result<()> {
        match lua.used_memory().saturating_add(bytes) > self.limits.memory_bytes_max {
            true => Err(self.stop(Stop::Memory)),
            false => Ok(()),
        }
    }

    /// Leaves out of the next tick what a library function has allocated and charged by itself.
    pub(crate) fn allocated_since(&self, lua: &Lua, bytes_before: usize) {
        let bytes = lua.used_memory().saturating_sub(bytes_before);
        self.bytes.set(self.bytes.get() + bytes);
        self.bytes_seen.set(self.bytes_seen.get() + bytes);
    }

    /// Microseconds of this run since the clock was first read.
    fn taken_us(&self) -> u64 {
        let (Some(patience), Some(began_us)) = (self.limits.patience, self.began_us.get()) else {
            return 0;
        };
        (patience.elapsed_us)().saturating_sub(began_us)
    }

    /// Ends a run that has taken longer than its patience.
    fn check_time(&self) -> mlua::Result<()> {
        let Some(patience) = self.limits.patience else {
            return Ok(());
        };
        if self.began_us.get().is_none() {
            self.began_us.set(Some((patience.elapsed_us)()));
            return Ok(());
        }
        let us = self.before_us.get() + self.taken_us();
        match us > patience.us_max {
            true => Err(self.stop(Stop::Time { us })),
            false => Ok(()),
        }
    }

    /// As many instructions have run as the interval says. The price is that of as many more, which
    /// run before the next call.
    fn account(&self, lua: &Lua) -> mlua::Result<()> {
        let count = self.interval.get();
        let bytes = lua.used_memory();
        let made = bytes.saturating_sub(self.bytes_seen.get());
        self.bytes_seen.set(bytes);
        if made > SHORT_BYTES {
            self.longest_made.set(self.longest_made.get().max(made));
        }
        let growth = bytes.saturating_sub(self.bytes.get());
        if growth > GROWTH_FREE_BYTES {
            // What `..` made, or a table: nobody knows, and a table is the likelier one.
            self.bytes.set(bytes);
            self.longest.set(self.longest.get().max(growth));
            self.charge_bytes(growth)?;
        }
        let instructions = self.instructions.get() + count;
        let untimed = self.bytes_untimed.get() + count * OPERANDS * self.reach() as u64;
        let is_tick = instructions >= TICK_STEPS;
        if is_tick {
            self.bytes.set(bytes);
        }
        self.instructions
            .set(if is_tick { 0 } else { instructions });
        let is_timed = is_tick || untimed >= TIMED_BYTES;
        self.bytes_untimed.set(if is_timed { 0 } else { untimed });
        if is_timed {
            self.check_time()?;
        }
        let price = 1 + self.longest.get() / LONG_BYTES;
        let price = price + self.longest_number.get() / LONG_NUMBER_BYTES;
        self.charge(count * price as u64)?;
        if bytes > self.collect_at.get() {
            self.collect(lua)?;
        }
        match self.instructions_max() {
            instructions if instructions == count => Ok(()),
            instructions => self.account_every(lua, instructions),
        }
    }

    /// Collects garbage within the run. The next time is when half of what is free then is used.
    fn collect(&self, lua: &Lua) -> mlua::Result<()> {
        self.charge_bytes(lua.used_memory())?;
        lua.gc_collect()?;
        lua.gc_stop();
        let bytes = lua.used_memory();
        self.bytes.set(bytes);
        self.bytes_seen.set(bytes);
        let free = self.limits.memory_bytes_max.saturating_sub(bytes);
        self.collect_at.set(bytes + free / 2);
        Ok(())
    }
}
