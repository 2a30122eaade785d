//! The programs that a shard runs: RUN becomes APPLY where its connection is.

use std::sync::Arc;

use penstock_net::program::{RunRequest, ServedSchema};
use penstock_net::refusal::{Refusal, ShownName};

/// What INFO tells of a node without a schema.
const NO_SCHEMA: &str = r#"{"layouts":{},"programs":{}}"#;
/// A longer buffer is given back behind its item.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// The schema of a shard, and the buffer in which items are made.
#[derive(Debug, Default)]
pub(crate) struct ProgramRunner {
    schema: Arc<ServedSchema>,
    buffer: Vec<u8>,
    /// Room for the item behind the one in `buffer`.
    second: Vec<u8>,
}

impl ProgramRunner {
    /// Runs these programs from now on. An item that waits has become an APPLY before.
    pub(crate) fn replace(&mut self, schema: Arc<ServedSchema>) {
        self.schema = schema;
    }

    /// The schema as INFO tells it.
    pub(crate) fn text(&self) -> &str {
        match self.schema.text.as_str() {
            "" => NO_SCHEMA,
            text => text,
        }
    }

    /// The name of the program that an item of RUN asks for, if the shard runs it.
    pub(crate) fn name_of(&self, run: &RunRequest<'_>) -> Option<ShownName> {
        let program = self.schema.programs.find(run.program())?;
        Some(ShownName::new(program.name()))
    }

    /// The item of APPLY that an item of RUN is, to be given back by [`ProgramRunner::give`].
    ///
    /// # Errors
    /// The first [`Refusal`].
    pub(crate) fn take(&mut self, item: &[u8]) -> Result<Vec<u8>, Refusal> {
        let mut buffer = std::mem::take(&mut self.buffer);
        match self.expand(item, &mut buffer) {
            Ok(()) => Ok(buffer),
            Err(refusal) => {
                self.buffer = buffer;
                Err(refusal)
            }
        }
    }

    /// Keeps a buffer for the next item.
    pub(crate) fn give(&mut self, buffer: Vec<u8>) {
        if buffer.capacity() <= KEPT_BYTES_MAX {
            self.buffer = buffer;
        }
    }

    /// Makes the item of APPLY that an item of RUN is, in the place of what `out` holds.
    ///
    /// # Errors
    /// The first [`Refusal`].
    pub(crate) fn expand(&self, item: &[u8], out: &mut Vec<u8>) -> Result<(), Refusal> {
        let run = RunRequest::read(item)?;
        self.schema.programs.expand(&run, out)
    }

    /// Room for the items behind one that was taken, to be given back by
    /// [`ProgramRunner::give_second`].
    pub(crate) fn take_second(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.second)
    }

    /// Keeps that room for the next run.
    pub(crate) fn give_second(&mut self, buffer: Vec<u8>) {
        if buffer.capacity() <= KEPT_BYTES_MAX {
            self.second = buffer;
        }
    }
}
