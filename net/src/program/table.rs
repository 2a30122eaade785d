//! The programs that a server has.

use crate::expression::ValueLayout;
use crate::program::id::ProgramId;
use crate::program::request::RunRequest;
use crate::program::template::Program;
use crate::refusal::Refusal;

/// Programs by their ids.
#[derive(Clone, Debug, Default)]
pub struct Programs {
    /// By ascending ids.
    all: Vec<Program>,
}

impl Programs {
    /// These programs. Of two with one id the later one is dropped: they do the same.
    #[must_use]
    pub fn new(mut all: Vec<Program>) -> Self {
        all.sort_by_key(Program::id);
        all.dedup_by_key(|program| program.id());
        Programs { all }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The program with this id.
    #[must_use]
    pub fn find(&self, id: ProgramId) -> Option<&Program> {
        let at = self.all.binary_search_by_key(&id, Program::id).ok()?;
        self.all.get(at)
    }

    /// The program with this name.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<&Program> {
        self.all.iter().find(|program| program.name() == name)
    }

    /// All of them, by ascending ids.
    pub fn iter(&self) -> impl Iterator<Item = &Program> {
        self.all.iter()
    }

    /// Makes the item of APPLY of a RUN, in the place of what `out` holds. Takes nothing from the
    /// heap if `out` has room.
    ///
    /// # Errors
    /// The first [`Refusal`] of the keys' number and the arguments; [`Refusal::ProgramUnknown`].
    pub fn expand(&self, run: &RunRequest<'_>, out: &mut Vec<u8>) -> Result<(), Refusal> {
        let program = self.find(run.program());
        let program = program.ok_or(Refusal::ProgramUnknown {
            id: run.program().0,
            known: self.len(),
        })?;
        program.expand(run, out)
    }
}

/// The body of an INFO that asks for the schema.
pub const SCHEMA_ASKED: [u8; 8] = 1u64.to_le_bytes();

/// The body of an INFO of a backup: for a moment nothing is decided that concerns several shards.
pub const BACKUP_ASKS: [u8; 8] = 2u64.to_le_bytes();

/// A layout and its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedLayout {
    /// Its name.
    pub name: String,
    /// What the bytes of values mean.
    pub layout: ValueLayout,
}

/// What a shard serves of a schema.
#[derive(Clone, Debug, Default)]
pub struct ServedSchema {
    /// The programs.
    pub programs: Programs,
    /// The layouts.
    pub layouts: Vec<NamedLayout>,
    /// The schema as INFO tells it: JSON, empty if there is none.
    pub text: String,
}
