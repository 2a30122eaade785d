//! EVAL and its like as clients write them, and SCRIPT: the scripts that a node knows by digests.

use crate::script::{DIGEST_BYTES, ScriptAccess, ScriptName};

use super::host::{Host, ScriptLibrary};
use super::number::read_integer;
use super::parser::Arguments;
use super::reply::Replies;
use super::table::Name;
use super::words::unknown_subcommand;

/// The error of a digest of no script that the node knows.
pub const NO_SCRIPT: &[u8] = b"NOSCRIPT No matching script.";
/// What a node answers that runs no scripts.
const NONE_HERE: &[u8] = b"ERR this node runs no scripts";
const HELP: [&str; 10] = [
    "EXISTS <sha1> [<sha1> ...]",
    "    Return information about the existence of the scripts in the script cache.",
    "FLUSH [ASYNC|SYNC]",
    "    Flush the Lua scripts cache. Both ways end before the answer.",
    "KILL",
    "    Answered as if no script ran: a script ends by its own limits.",
    "LOAD <script>",
    "    Load a script into the scripts cache without executing it.",
    "SHOW <sha1>",
    "    Show a script in the scripts cache.",
];

/// An EVAL or one of its like, read from its arguments.
#[derive(Clone, Copy, Debug)]
pub struct Eval<'a> {
    /// The script.
    pub script: ScriptName<'a>,
    /// What it may do with keys.
    pub access: ScriptAccess,
    words: Arguments<'a>,
    keys: usize,
}

impl<'a> Eval<'a> {
    /// Reads a command whose number of arguments was checked. `None` if it is another one.
    ///
    /// # Errors
    /// The error of RESP.
    pub(super) fn read(id: Name, args: Arguments<'a>) -> Option<Result<Self, &'static [u8]>> {
        let access = match id {
            Name::Eval | Name::EvalSha => ScriptAccess::Changes,
            Name::EvalRo | Name::EvalShaRo => ScriptAccess::Reads,
            _ => return None,
        };
        let script = match id {
            Name::Eval | Name::EvalRo => Some(ScriptName::Text(args.get(1))),
            _ => read_digest(args.get(1)).map(ScriptName::Digest),
        };
        let read = key_count(args).and_then(|keys| {
            Ok(Eval {
                script: script.ok_or(NO_SCRIPT)?,
                access,
                words: args,
                keys,
            })
        });
        Some(read)
    }

    /// Its keys, declared by the client.
    pub fn keys(&self) -> impl Iterator<Item = &'a [u8]> + Clone + use<'a> {
        self.words.from(3).take(self.keys)
    }

    /// Its arguments.
    pub fn arguments(&self) -> impl Iterator<Item = &'a [u8]> + Clone + use<'a> {
        self.words.from(3 + self.keys)
    }
}

/// How many of the arguments behind their number are keys.
fn key_count(args: Arguments<'_>) -> Result<usize, &'static [u8]> {
    let number = read_integer(args.get(2));
    let number = number.ok_or(&b"ERR value is not an integer or out of range"[..])?;
    match usize::try_from(number) {
        Err(_) => Err(b"ERR Number of keys can't be negative"),
        Ok(keys) if keys > args.len() - 3 => {
            Err(b"ERR Number of keys can't be greater than number of args")
        }
        Ok(keys) => Ok(keys),
    }
}

/// Answers SCRIPT, which has a subcommand.
pub(super) fn answer(args: Arguments<'_>, host: &dyn Host, replies: &mut Replies<'_>) {
    let Some(library) = host.scripts() else {
        return replies.error(NONE_HERE);
    };
    let word = args.get(1).to_ascii_lowercase();
    match (&word[..], args.len()) {
        (b"load", 3) => match library.load(args.get(2)) {
            Ok(digest) => replies.bulk(&hex(&digest)),
            Err(text) => replies.error(text.as_bytes()),
        },
        (b"exists", 3..) => {
            replies.array(args.len() - 2);
            for name in args.from(2) {
                let is_known = read_digest(name).is_some_and(|digest| library.knows(&digest));
                replies.integer(is_known.into());
            }
        }
        (b"flush", 2) => flush(library, replies),
        (b"flush", 3) if is_way_of_flush(args.get(2)) => flush(library, replies),
        (b"flush", 3) => replies.error(b"ERR SCRIPT FLUSH only support SYNC|ASYNC option"),
        (b"kill", 2) => replies.error(b"NOTBUSY No scripts in execution right now."),
        (b"show", 3) => match read_digest(args.get(2)).and_then(|digest| library.text(&digest)) {
            Some(text) => replies.bulk(&text),
            None => replies.error(b"NOSCRIPT No matching script."),
        },
        (b"help", 2) => replies.help("SCRIPT", &HELP),
        (b"load" | b"exists" | b"flush" | b"kill" | b"show" | b"help", _) => {
            let name = format!("script|{}", word.escape_ascii());
            super::words::wrong_subcommand(&name, replies);
        }
        _ => unknown_subcommand("SCRIPT", args, replies),
    }
}

fn is_way_of_flush(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"sync") || word.eq_ignore_ascii_case(b"async")
}

fn flush(library: &dyn ScriptLibrary, replies: &mut Replies<'_>) {
    library.flush();
    replies.simple("OK");
}

/// A digest from its 40 digits, in small or capital letters.
pub(super) fn read_digest(text: &[u8]) -> Option<[u8; DIGEST_BYTES]> {
    let digits: &[u8; 2 * DIGEST_BYTES] = text.try_into().ok()?;
    let mut digest = [0; DIGEST_BYTES];
    for (byte, pair) in digest.iter_mut().zip(digits.as_chunks::<2>().0) {
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let number = digit(pair[0])? << 4 | digit(pair[1])?;
        *byte = u8::try_from(number).expect("two digits of four bits");
    }
    Some(digest)
}

/// The 40 digits of a digest, in small letters.
fn hex(digest: &[u8; DIGEST_BYTES]) -> Vec<u8> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = digest.iter().flat_map(|byte| {
        let digit = |bits: u8| DIGITS[usize::from(bits)];
        [digit(byte >> 4), digit(byte & 15)]
    });
    digits.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_read_from_its_forty_digits_and_written_by_them() {
        let text = b"0123456789abcdef0123456789abcdef01234567";
        let digest = read_digest(text).expect("forty digits");
        assert_eq!(hex(&digest), text);
        assert_eq!(read_digest(&text.to_ascii_uppercase()), Some(digest));
        assert_eq!(read_digest(&text[1..]), None);
        assert_eq!(
            read_digest(b"0123456789abcdef0123456789abcdef0123456z"),
            None
        );
    }
}
