//! The parser: commands as views over the bytes of a connection, in both forms of RESP requests.

use super::number::read_integer;

/// Arguments of a command, at most.
pub const ARGUMENTS_MAX: usize = 1 << 20;
/// Bytes of an inline command, and of a line that tells a length, at most.
pub const LINE_BYTES_MAX: usize = 64 << 10;
/// Arguments of a command before a login, at most; what Redis takes.
const ARGUMENTS_BEFORE_LOGIN_MAX: usize = 10;
/// Bytes of an argument before a login, at most.
const BULK_BYTES_BEFORE_LOGIN_MAX: usize = 1 << 10;
/// Bytes of a command before a login, at most.
const COMMAND_BYTES_BEFORE_LOGIN_MAX: usize = 3 << 10;
/// What an allocator adds to a block, on average.
const BLOCK_HEAD_BYTES: usize = 16;
/// Places that are kept for arguments between two commands.
const PLACES_KEPT: usize = 1 << 10;

/// The arguments of a command; the first one is its name.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<'a> {
    bytes: &'a [u8],
    places: &'a [Place],
}

/// Where an argument stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    start: u32,
    len: u32,
}

impl<'a> Arguments<'a> {
    /// How many there are, the name included; never 0.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// A command has a name.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Argument `number`, which is below [`Arguments::len`].
    #[inline]
    #[must_use]
    pub fn get(&self, number: usize) -> &'a [u8] {
        let Place { start, len } = self.places[number];
        &self.bytes[start as usize..][..len as usize]
    }

    /// Where argument `number` ends in the bytes of its command, the end of the line included. The
    /// command is an array.
    pub(super) fn end(&self, number: usize) -> usize {
        let Place { start, len } = self.places[number];
        start as usize + len as usize + 2
    }

    /// The command whose name is argument `number`, which there is.
    pub(super) fn behind(self, number: usize) -> Arguments<'a> {
        Arguments {
            bytes: self.bytes,
            places: &self.places[number..],
        }
    }

    /// The arguments from `number` on.
    pub fn from(self, number: usize) -> impl Iterator<Item = &'a [u8]> + Clone {
        let Arguments { bytes, places } = self;
        let rest = &places[number.min(places.len())..];
        rest.iter()
            .map(move |place| &bytes[place.start as usize..][..place.len as usize])
    }
}

/// Arguments that are kept, such as those of a command between MULTI and EXEC.
#[derive(Clone, Debug, Default)]
pub struct KeptArguments {
    bytes: Vec<u8>,
    places: Vec<Place>,
}

impl KeptArguments {
    /// A copy of arguments.
    #[must_use]
    pub fn of(args: Arguments<'_>) -> Self {
        let mut kept = KeptArguments {
            bytes: Vec::with_capacity(args.from(0).map(<[u8]>::len).sum()),
            places: Vec::with_capacity(args.len()),
        };
        for argument in args.from(0) {
            kept.places.push(place(kept.bytes.len(), argument.len()));
            kept.bytes.extend_from_slice(argument);
        }
        kept
    }

    /// Keeps these arguments in the place of those before.
    pub(super) fn fill(&mut self, arguments: &[&[u8]]) {
        self.bytes.clear();
        self.places.clear();
        let bytes = arguments.iter().map(|argument| argument.len()).sum();
        self.bytes.reserve(bytes);
        self.places.reserve(arguments.len());
        for argument in arguments {
            self.places.push(place(self.bytes.len(), argument.len()));
            self.bytes.extend_from_slice(argument);
        }
    }

    /// The arguments.
    #[must_use]
    pub fn view(&self) -> Arguments<'_> {
        Arguments {
            bytes: &self.bytes,
            places: &self.places,
        }
    }

    /// Bytes that they take, with what the allocator adds to two blocks.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let heap_bytes = self.bytes.capacity() + self.places.capacity() * size_of::<Place>();
        size_of::<KeptArguments>() + heap_bytes + 2 * BLOCK_HEAD_BYTES
    }
}

#[inline]
fn place(start: usize, len: usize) -> Place {
    let short = |number| u32::try_from(number).expect("a command is bounded");
    Place {
        start: short(start),
        len: short(len),
    }
}

/// What stands at the start of the received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// No whole command yet.
    Incomplete,
    /// So many bytes are no command and no mistake: an empty line, an empty array.
    Nothing(usize),
    /// A command, which takes so many bytes.
    Command(usize),
    /// No command can be found any more. The text is what Redis says; the connection ends.
    Broken(Broken),
}

/// Why the bytes are no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The number of arguments is no number, negative, or too large.
    MultibulkLength,
    /// The length of an argument is.
    BulkLength,
    /// An argument is longer than one may be.
    BulkTooLong {
        /// Its length.
        bytes: usize,
        /// What is allowed.
        bytes_max: usize,
    },
    /// Before a login there are more arguments than one takes.
    UnknownMultibulkLength,
    /// Before a login an argument is longer than one takes.
    UnknownBulkLength,
    /// An argument does not begin with `$`, but with this byte.
    ExpectedDollar(u8),
    /// A line has no end within its limit.
    Line(&'static str),
    /// A quote of an inline command has no end.
    Quotes,
    /// All arguments together are too long.
    CommandLength,
    /// The first line is one of HTTP.
    Http,
}

impl Broken {
    /// Appends the text behind `-`, without the end of the line.
    pub fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"ERR Protocol error: ");
        match self {
            Broken::MultibulkLength => out.extend_from_slice(b"invalid multibulk length"),
            Broken::BulkLength => out.extend_from_slice(b"invalid bulk length"),
            Broken::BulkTooLong { bytes, bytes_max } => {
                let text = format!(
                    "invalid bulk length: {bytes} bytes, and {bytes_max} is the limit (option \
                     value_bytes_max)"
                );
                out.extend_from_slice(text.as_bytes());
            }
            Broken::UnknownMultibulkLength => {
                out.extend_from_slice(b"unauthenticated multibulk length");
            }
            Broken::UnknownBulkLength => out.extend_from_slice(b"unauthenticated bulk length"),
            Broken::ExpectedDollar(byte) => {
                out.extend_from_slice(b"expected '$', got '");
                // An end of the line would end the error.
                out.push(if byte.is_ascii_control() { b' ' } else { byte });
                out.push(b'\'');
            }
            Broken::Line(text) => out.extend_from_slice(text.as_bytes()),
            Broken::Quotes => out.extend_from_slice(b"unbalanced quotes in request"),
            Broken::CommandLength => out.extend_from_slice(b"too big command"),
            Broken::Http => out.extend_from_slice(b"this port speaks RESP, not HTTP"),
        }
    }
}

/// The parser of one connection. It goes on where it was when a command was not whole, so each byte
/// is looked at once.
#[derive(Debug)]
pub struct Parser {
    bulk_bytes_max: usize,
    command_bytes_max: usize,
    /// Nobody has logged in: commands are short.
    is_unknown: bool,
    places: Vec<Place>,
    /// Of the command that is not whole: arguments that are missing, and where the next begins. 0
    /// before the line that tells how many there are.
    missing: usize,
    at: usize,
    /// Bytes of an inline command that were searched for its end.
    searched: usize,
    /// The arguments of an inline command.
    inline: Vec<u8>,
    is_inline: bool,
}

impl Parser {
    /// A parser of arguments and commands of so many bytes at most.
    #[must_use]
    pub fn new(bulk_bytes_max: usize, command_bytes_max: usize) -> Self {
        Parser {
            bulk_bytes_max,
            command_bytes_max,
            is_unknown: false,
            places: Vec::new(),
            missing: 0,
            at: 0,
            searched: 0,
            inline: Vec::new(),
            is_inline: false,
        }
    }

    /// Whether somebody has logged in, of whom longer commands are taken.
    pub fn knows(&mut self, is_known: bool) {
        self.is_unknown = !is_known;
    }

    /// Looks for the command at the start of `bytes`, which begin where they began before until a
    /// command was found.
    #[inline]
    pub fn next(&mut self, bytes: &[u8]) -> Parsed {
        if self.at == 0 {
            match bytes.first() {
                None => return Parsed::Incomplete,
                Some(b'*') => {}
                Some(_) => return self.next_inline(bytes),
            }
            self.is_inline = false;
            self.places.clear();
            let (text, end) = match line(bytes, 1, "too big mbulk count string") {
                Ok(Some(found)) => found,
                Ok(None) => return Parsed::Incomplete,
                Err(broken) => return Parsed::Broken(broken),
            };
            let most = i64::try_from(ARGUMENTS_MAX).expect("a small constant");
            let known_max = i64::try_from(ARGUMENTS_BEFORE_LOGIN_MAX).expect("a small constant");
            match read_integer(text) {
                Some(count) if self.is_unknown && count > known_max => {
                    return Parsed::Broken(Broken::UnknownMultibulkLength);
                }
                Some(count @ 1..) if count <= most => {
                    self.missing = usize::try_from(count).expect("positive");
                    self.at = end;
                }
                Some(..=0) => return Parsed::Nothing(end),
                _ => return Parsed::Broken(Broken::MultibulkLength),
            }
        }
        while self.missing > 0 {
            match self.next_argument(bytes) {
                Ok(true) => {}
                Ok(false) => return Parsed::Incomplete,
                Err(broken) => return Parsed::Broken(broken),
            }
        }
        Parsed::Command(std::mem::take(&mut self.at))
    }

    /// Takes one argument more; `false` if it is not whole.
    #[inline]
    fn next_argument(&mut self, bytes: &[u8]) -> Result<bool, Broken> {
        match bytes.get(self.at) {
            None => return Ok(false),
            Some(b'$') => {}
            Some(&byte) => return Err(Broken::ExpectedDollar(byte)),
        }
        let Some((text, start)) = line(bytes, self.at + 1, "too big bulk count string")? else {
            return Ok(false);
        };
        let len = read_integer(text).and_then(|len| usize::try_from(len).ok());
        let len = len.ok_or(Broken::BulkLength)?;
        if len > self.bulk_bytes_max {
            return Err(Broken::BulkTooLong {
                bytes: len,
                bytes_max: self.bulk_bytes_max,
            });
        }
        let end = start + len + 2;
        if self.is_unknown && len > BULK_BYTES_BEFORE_LOGIN_MAX {
            return Err(Broken::UnknownBulkLength);
        }
        let command_bytes_max = match self.is_unknown {
            true => COMMAND_BYTES_BEFORE_LOGIN_MAX,
            false => self.command_bytes_max,
        };
        if end > command_bytes_max {
            return Err(Broken::CommandLength);
        }
        if bytes.len() < end {
            return Ok(false);
        }
        self.places.push(place(start, len));
        self.at = end;
        self.missing -= 1;
        Ok(true)
    }

    /// The arguments of the command that was found, in the same bytes.
    #[inline]
    #[must_use]
    pub fn arguments<'a>(&'a self, bytes: &'a [u8]) -> Arguments<'a> {
        Arguments {
            bytes: if self.is_inline { &self.inline } else { bytes },
            places: &self.places,
        }
    }

    /// Wipes what was copied of the command that was found: a secret stood in it.
    pub fn wipe(&mut self) {
        self.inline.fill(0);
    }

    /// Bytes of memory that it has.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.places.capacity() * size_of::<Place>() + self.inline.capacity()
    }

    /// Gives all memory back, unless a command has begun.
    pub fn give_back(&mut self) {
        if !self.is_inside() {
            (self.places, self.inline) = (Vec::new(), Vec::new());
        }
    }

    /// The command that was found is done: gives back what a large one took.
    #[inline]
    pub fn done(&mut self) {
        if self.places.capacity() > PLACES_KEPT {
            self.places = Vec::new();
        }
        if self.inline.capacity() > LINE_BYTES_MAX {
            self.inline = Vec::new();
        }
    }

    /// Whether a command has begun that is not whole.
    #[must_use]
    pub fn is_inside(&self) -> bool {
        self.at > 0 || self.searched > 0
    }

    /// A line of words. Quotes and escapes are those of Redis.
    #[cold]
    fn next_inline(&mut self, bytes: &[u8]) -> Parsed {
        let rest = &bytes[self.searched..];
        let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
            self.searched = bytes.len();
            let bytes_max = match self.is_unknown {
                true => COMMAND_BYTES_BEFORE_LOGIN_MAX,
                false => LINE_BYTES_MAX,
            };
            return match bytes.len() > bytes_max {
                true => Parsed::Broken(Broken::Line("too big inline request")),
                false => Parsed::Incomplete,
            };
        };
        let end = self.searched + end;
        self.searched = 0;
        let text = bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]);
        self.is_inline = true;
        self.places.clear();
        self.inline.clear();
        if text.len() > LINE_BYTES_MAX {
            return Parsed::Broken(Broken::Line("too big inline request"));
        }
        if self.split_words(text).is_none() {
            return Parsed::Broken(Broken::Quotes);
        }
        if self.places.is_empty() {
            return Parsed::Nothing(end + 1);
        }
        let name = self.arguments(bytes).get(0);
        if name.eq_ignore_ascii_case(b"POST") || name.eq_ignore_ascii_case(b"Host:") {
            return Parsed::Broken(Broken::Http);
        }
        Parsed::Command(end + 1)
    }

    /// `None` if a quote has no end, or something stands right behind one.
    fn split_words(&mut self, text: &[u8]) -> Option<()> {
        // As in Redis: two of those that may stand before a word do not end one.
        let is_space = |byte: u8| byte.is_ascii_whitespace() || byte == 0x0B;
        let ends_word = |byte: u8| byte.is_ascii_whitespace() && byte != 0x0C;
        let mut at = 0;
        loop {
            while text.get(at).is_some_and(|byte| is_space(*byte)) {
                at += 1;
            }
            if at == text.len() {
                return Some(());
            }
            let start = self.inline.len();
            while let Some(&byte) = text.get(at).filter(|byte| !ends_word(**byte)) {
                at += 1;
                if byte != b'"' && byte != b'\'' {
                    self.inline.push(byte);
                    continue;
                }
                at = self.quoted(text, at, byte)?;
                if text.get(at).is_some_and(|byte| !is_space(*byte)) {
                    return None;
                }
            }
            let len = self.inline.len() - start;
            self.places.push(place(start, len));
        }
    }

    /// Takes what stands in quotes; where it goes on behind them.
    fn quoted(&mut self, text: &[u8], mut at: usize, quote: u8) -> Option<usize> {
        loop {
            let byte = *text.get(at)?;
            at += 1;
            if byte == quote {
                return Some(at);
            }
            if byte != b'\\' {
                self.inline.push(byte);
                continue;
            }
            let next = *text.get(at)?;
            if quote == b'\'' {
                if next == b'\'' {
                    at += 1;
                    self.inline.push(next);
                } else {
                    self.inline.push(byte);
                }
                continue;
            }
            at += 1;
            let hex = |at: usize| (*text.get(at)? as char).to_digit(16);
            match (next, hex(at), hex(at + 1)) {
                (b'x', Some(high), Some(low)) => {
                    let byte = u8::try_from(high * 16 + low).expect("two digits");
                    self.inline.push(byte);
                    at += 2;
                }
                (b'n', ..) => self.inline.push(b'\n'),
                (b'r', ..) => self.inline.push(b'\r'),
                (b't', ..) => self.inline.push(b'\t'),
                (b'b', ..) => self.inline.push(8),
                (b'a', ..) => self.inline.push(7),
                _ => self.inline.push(next),
            }
        }
    }
}

/// The text of the line from `from` on, and where the next line begins. `None` if it has no end.
#[inline]
fn line<'a>(
    bytes: &'a [u8],
    from: usize,
    too_big: &'static str,
) -> Result<Option<(&'a [u8], usize)>, Broken> {
    let rest = &bytes[from..];
    let searched = &rest[..rest.len().min(LINE_BYTES_MAX)];
    match searched.iter().position(|byte| *byte == b'\r') {
        // The byte behind it is the other half of the end of the line, whatever it is.
        Some(end) if rest.len() > end + 1 => Ok(Some((&rest[..end], from + end + 2))),
        Some(_) => Ok(None),
        None if rest.len() >= LINE_BYTES_MAX => Err(Broken::Line(too_big)),
        None => Ok(None),
    }
}

#[cfg(test)]
#[path = "parser/tests.rs"]
mod tests;
