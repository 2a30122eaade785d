//! The output of a command, whose reader may go away before the end.

use std::fmt;
use std::io::{self, BufWriter, ErrorKind, Stdout, Write};

use super::Failure;

/// Lines and bytes for standard output. The first error ends the printing and is told at the end.
pub struct Output<W: Write> {
    out: BufWriter<W>,
    error: Option<io::Error>,
    /// What was changed before the end of the printing, as a failure of the printing tells it.
    done: Option<&'static str>,
}

/// The plan of a cluster was changed.
pub const PLAN_CHANGED: &str = "the plan was changed";

/// A write was executed.
const WRITE: &str = "the write was executed";

impl Output<Stdout> {
    /// This process's standard output.
    pub fn stdout() -> Self {
        Self::to(io::stdout())
    }

    /// The same for the answer to a write that a server has executed.
    pub fn of_write() -> Self {
        let mut out = Self::stdout();
        out.done(WRITE);
        out
    }
}

impl<W: Write> Output<W> {
    fn to(out: W) -> Self {
        Output {
            out: BufWriter::new(out),
            error: None,
            done: None,
        }
    }

    /// From now on a failure of the printing tells first what was done: who takes it for a failure
    /// of the command would do it again.
    pub fn done(&mut self, what: &'static str) {
        self.done = Some(what);
    }

    /// Prints the text and a line break.
    pub fn line(&mut self, text: fmt::Arguments<'_>) {
        self.attempt(|out| writeln!(out, "{text}"));
    }

    /// Prints these bytes and nothing else.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.attempt(|out| out.write_all(bytes));
    }

    /// Whether nothing more can be printed.
    pub fn is_broken(&self) -> bool {
        self.error.is_some()
    }

    /// Prints what is still held back.
    ///
    /// # Errors
    /// The first error, but for a reader that went away (`| head`): it wanted no more. Its exit
    /// code tells whether something was done.
    pub fn finish(mut self) -> Result<(), Failure> {
        self.attempt(|out| out.flush());
        let Some(error) = self.error.filter(|it| it.kind() != ErrorKind::BrokenPipe) else {
            return Ok(());
        };
        Err(match self.done {
            None => Failure::usage(format_args!("cannot write the answer: {error}")),
            Some(what) => Failure::unanswered(format_args!(
                "{what}, but the answer cannot be written: {error}"
            )),
        })
    }

    fn attempt(&mut self, act: impl FnOnce(&mut BufWriter<W>) -> io::Result<()>) {
        if self.error.is_none() {
            self.error = act(&mut self.out).err();
        }
    }
}

/// A number with a noun, which is in the plural unless the number is one.
pub fn count(number: u64, what: &str) -> String {
    let end = if number == 1 { "" } else { "s" };
    format!("{number} {what}{end}")
}

/// Two digits a byte.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Failing(ErrorKind);

    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(self.0.into())
        }
    }

    #[test]
    fn a_reader_that_went_away_is_no_failure_and_a_full_disk_is() {
        for (kind, is_failure) in [
            (ErrorKind::BrokenPipe, false),
            (ErrorKind::StorageFull, true),
        ] {
            let mut out = Output::to(Failing(kind));
            out.line(format_args!("text"));
            out.bytes(&[0; 1 << 16]);
            assert_eq!(out.finish().is_err(), is_failure, "{kind}");
        }
    }

    #[test]
    fn an_answer_that_cannot_be_written_behind_a_write_has_a_code_of_its_own_and_says_so() {
        let failure = |what: Option<&'static str>| {
            let mut out = Output::to(Failing(ErrorKind::StorageFull));
            what.into_iter().for_each(|what| out.done(what));
            out.line(format_args!("text"));
            out.finish().expect_err("a full disk")
        };
        let (read, written) = (failure(None), failure(Some(WRITE)));
        assert_eq!((read.code, written.code), (2, 4));
        assert!(written.line.starts_with("the write was executed, but "));
        assert!(!read.line.contains("executed"));
    }
}
