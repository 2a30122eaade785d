//! What a run may take: steps, memory, bytes of its reply. No clock is read.

use std::cell::{Cell, RefCell};

use mlua::Lua;

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
    /// Microseconds of a clock that never steps.
    pub elapsed_us: fn() -> u64,
    /// Microseconds of a run, at most. The clock is read every [`TICK_STEPS`] instructions, and
    /// every [`CHARGES_TIMED`] charges of library functions.
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

/// Instructions between two looks at the budget. A new coroutine costs as many, because its
/// instructions are counted from zero.
pub(crate) const TICK_STEPS: u64 = 250;
/// Bytes that are copied in the time of a step.
const BYTES_PER_STEP: usize = 64;
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
    /// Bytes of the interpreter at the last tick.
    bytes: Cell<usize>,
    /// Bytes of the interpreter at which garbage is collected within the run.
    collect_at: Cell<usize>,
    /// When the run began, in microseconds of the clock of its patience.
    began_us: Cell<u64>,
    /// Where the error was raised that ended the script.
    pub(crate) blame: RefCell<Option<String>>,
}

impl Meter {
    pub(crate) fn new(limits: ScriptLimits) -> Self {
        Meter {
            limits,
            steps: Cell::new(0),
            charges: Cell::new(0),
            stop: Cell::new(None),
            longest: Cell::new(0),
            longest_number: Cell::new(0),
            bytes: Cell::new(0),
            collect_at: Cell::new(0),
            began_us: Cell::new(0),
            blame: RefCell::new(None),
        }
    }

    /// Begins a run.
    pub(crate) fn begin(&self, lua: &Lua) {
        self.steps.set(0);
        self.stop.set(None);
        if let Some(patience) = self.limits.patience {
            self.began_us.set((patience.elapsed_us)());
        }
        self.longest.set(0);
        self.longest_number.set(0);
        let bytes = lua.used_memory();
        self.bytes.set(bytes);
        self.collect_at.set(self.limits.memory_bytes_max / 2);
        self.blame.replace(None);
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
        self.charge(1 + (bytes / BYTES_PER_STEP) as u64)
    }

    /// Takes note of a string that the script gets: long ones make each instruction dearer.
    pub(crate) fn note(&self, bytes: &[u8]) {
        if bytes.len() < SHORT_BYTES {
            return;
        }
        self.longest.set(self.longest.get().max(bytes.len()));
        let is_of_number = |byte: &&u8| byte.is_ascii_hexdigit() || b" \t\n\r.+-xX".contains(byte);
        let number_bytes = bytes.iter().take_while(is_of_number).count();
        let longest = self.longest_number.get().max(number_bytes);
        self.longest_number.set(longest);
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
    }

    /// Ends a run that has taken longer than its patience.
    fn check_time(&self) -> mlua::Result<()> {
        if let Some(patience) = self.limits.patience {
            let us = (patience.elapsed_us)().saturating_sub(self.began_us.get());
            if us > patience.us_max {
                return Err(self.stop(Stop::Time { us }));
            }
        }
        Ok(())
    }

    /// [`TICK_STEPS`] instructions have run.
    pub(crate) fn tick(&self, lua: &Lua) -> mlua::Result<()> {
        self.check_time()?;
        let bytes = lua.used_memory();
        let growth = bytes.saturating_sub(self.bytes.get());
        self.bytes.set(bytes);
        if growth > GROWTH_FREE_BYTES {
            // What `..` made, or a table: nobody knows, and a table is the likelier one.
            self.longest.set(self.longest.get().max(growth));
            self.charge_bytes(growth)?;
        }
        let price = 1 + self.longest.get() / LONG_BYTES;
        let price = price + self.longest_number.get() / LONG_NUMBER_BYTES;
        self.charge(TICK_STEPS * price as u64)?;
        if bytes > self.collect_at.get() {
            self.collect(lua)?;
        }
        Ok(())
    }

    /// Collects garbage within the run. The next time is when half of what is free then is used.
    fn collect(&self, lua: &Lua) -> mlua::Result<()> {
        self.charge_bytes(lua.used_memory())?;
        lua.gc_collect()?;
        lua.gc_stop();
        let bytes = lua.used_memory();
        self.bytes.set(bytes);
        let free = self.limits.memory_bytes_max.saturating_sub(bytes);
        self.collect_at.set(bytes + free / 2);
        Ok(())
    }
}
