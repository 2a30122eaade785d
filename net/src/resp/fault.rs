//! Why a command is refused before it runs.

use super::parser::Arguments;
use super::words::shown;

/// Why a command is refused. The text is that of Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Text(&'static str),
    /// The name of the command.
    Arity(&'static str),
    /// The name of the command.
    ExpireTime(&'static str),
    /// The number of the argument that is no option.
    Option(usize),
    /// The name of the command.
    NoInputKey(&'static str),
}

pub(super) const SYNTAX: Fault = Fault::Text("ERR syntax error");
pub(super) const NOT_AN_INTEGER: Fault = Fault::Text(NOT_AN_INTEGER_TEXT);
pub(super) const NOT_AN_INTEGER_TEXT: &str = "ERR value is not an integer or out of range";
/// Of a number whose sign may be turned.
pub(super) const OUT_OF_SYMMETRIC_RANGE: Fault = Fault::Text(
    "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
);

impl Fault {
    pub(super) fn write(self, args: Arguments<'_>, out: &mut Vec<u8>) {
        match self {
            Fault::Option(number) => {
                out.extend_from_slice(b"ERR Unsupported option ");
                out.extend_from_slice(shown(args.get(number), usize::MAX));
            }
            Fault::Text(text) => out.extend_from_slice(text.as_bytes()),
            Fault::Arity(name) => {
                out.extend_from_slice(b"ERR wrong number of arguments for '");
                out.extend_from_slice(name.as_bytes());
                out.extend_from_slice(b"' command");
            }
            Fault::NoInputKey(name) => {
                out.extend_from_slice(b"ERR at least 1 input key is needed for '");
                out.extend_from_slice(name.as_bytes());
                out.extend_from_slice(b"' command");
            }
            Fault::ExpireTime(name) => {
                out.extend_from_slice(b"ERR invalid expire time in '");
                out.extend_from_slice(name.as_bytes());
                out.extend_from_slice(b"' command");
            }
        }
    }
}
