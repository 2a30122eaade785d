//! What is refused, in the words of Redis.

use super::parser::Arguments;
use super::reply::Replies;
use super::table::{self, Name};

/// Bytes of each argument of an unknown command that its error shows, and of all together.
pub(super) const SHOWN_BYTES_MAX: usize = 128;

/// The version of Redis whose commands these are.
pub(super) const REDIS_VERSION: &str = "7.4.0";

/// A login is wrong.
pub(super) const WRONG_PASS: &[u8] =
    b"WRONGPASS invalid username-password pair or user is disabled.";
/// A command comes before a login.
pub(super) const NO_AUTH: &[u8] = b"NOAUTH Authentication required.";
/// A HELLO without a login comes before one.
pub(super) const NO_AUTH_HELLO: &[u8] = b"NOAUTH HELLO must be called with the client already \
    authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to \
    authenticate the client and select the RESP protocol version at the same time";

/// A command that no script may run, here and in Valkey.
const NOT_FROM_SCRIPT: &[u8] = b"ERR This Valkey command is not allowed from script";

/// Refuses a command of a script. One that scripts of Valkey may run is named.
pub(super) fn not_from_script(args: Arguments<'_>, replies: &mut Replies<'_>) {
    let command = table::find(args.get(0));
    let is_of_valkey = |it: &&table::Command| it.group != "penstock";
    match command.filter(|it| is_of_valkey(it) && it.flags().all(|flag| flag != "noscript")) {
        None => replies.error(NOT_FROM_SCRIPT),
        Some(command) => {
            let name = command.name.to_ascii_uppercase();
            let why = match command.id {
                Name::Keys | Name::Scan | Name::RandomKey | Name::DbSize => {
                    "a script sees the keys that it names, and no list of all"
                }
                _ => "a script calls commands with keys, PUBLISH, PING, ECHO, SELECT and TIME",
            };
            replies.error(format!("ERR {name} is not supported in scripts here: {why}").as_bytes());
        }
    }
}

/// What an error shows of an argument: so many bytes at most, and none from the first zero on, as
/// Redis has it.
pub(super) fn shown(argument: &[u8], bytes_max: usize) -> &[u8] {
    let bytes = &argument[..argument.len().min(bytes_max)];
    let end = bytes.iter().position(|byte| *byte == 0);
    &bytes[..end.unwrap_or(bytes.len())]
}

pub(super) fn unknown_command(args: Arguments<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"ERR unknown command '");
    out.extend(shown(args.get(0), SHOWN_BYTES_MAX));
    out.extend_from_slice(b"', with args beginning with: ");
    let mut left = SHOWN_BYTES_MAX;
    for argument in args.from(1) {
        if left == 0 {
            break;
        }
        let argument = shown(argument, left);
        left -= (argument.len() + 3).min(left);
        out.push(b'\'');
        out.extend(argument);
        out.extend_from_slice(b"' ");
    }
}

pub(super) fn wrong_arity(name: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b"ERR wrong number of arguments for '");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"' command");
}

pub(super) fn bad_key(out: &mut Vec<u8>) {
    out.extend_from_slice(b"ERR a key has 1 to 1024 bytes");
}

/// Refuses a command of a container that is not there.
pub(super) fn unknown_subcommand(container: &str, args: Arguments<'_>, replies: &mut Replies<'_>) {
    let mut text = b"ERR unknown subcommand '".to_vec();
    text.extend_from_slice(shown(args.get(1), SHOWN_BYTES_MAX));
    text.extend_from_slice(b"'. Try ");
    text.extend_from_slice(container.as_bytes());
    text.extend_from_slice(b" HELP.");
    replies.error(&text);
}

/// Refuses a command of a container with too many or too few arguments.
pub(super) fn wrong_subcommand(name: &str, replies: &mut Replies<'_>) {
    let mut text = Vec::new();
    wrong_arity(name, &mut text);
    replies.error(&text);
}
