//! Lines for people, on standard output and standard error.
//!
//! That nobody reads them any more is no reason to stop: a server whose log reader is gone goes on, where
//! the standard library's own macros would end the thread.

use std::fmt::Arguments;
use std::io::{self, Write};

/// A line of what a server has to tell.
macro_rules! tell {
    ($($line:tt)*) => { $crate::lines::out(format_args!($($line)*)) };
}

/// A line for who looks after the server.
macro_rules! caution {
    ($($line:tt)*) => { $crate::lines::err(format_args!($($line)*)) };
}

pub(crate) use {caution, tell};

pub(crate) fn out(line: Arguments<'_>) {
    let _ = writeln!(io::stdout(), "{line}");
}

pub(crate) fn err(line: Arguments<'_>) {
    let _ = writeln!(io::stderr(), "penstock: {line}");
}
