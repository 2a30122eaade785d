//! The shapes of commands: what a command of one item has in common with those that differ from it
//! in key and value alone.

use crate::limits::KEY_BYTES_MAX;
use crate::request::ItemTemplate;

use super::answer::Fold;
use super::parser::Arguments;
use super::slow::Subject;

/// Shapes that a connection remembers, at most.
const SHAPES_MAX: usize = 4;
/// Bytes of a command before its key, and of its arguments that are neither key nor value, at most.
const HEAD_BYTES_MAX: usize = 32;
const HEAD_WORD_BYTES: usize = size_of::<u128>();
const FIXED_BYTES_MAX: usize = 64;

/// Where a command has its key and its value. The key is the first argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// There is no value, or it is one of the arguments that do not differ.
    Key,
    /// The value is the second argument.
    KeyValue,
    /// The value is the last argument, the third one.
    KeyFixedValue,
}

/// What the commands of a shape share.
#[derive(Debug)]
pub(super) struct Shape {
    /// Everything before the length of the key.
    head: Head,
    form: Form,
    /// The arguments that are neither key nor value, which stand together.
    fixed: Kept<FIXED_BYTES_MAX>,
    pub(super) item: ItemTemplate,
    pub(super) fold: Fold,
    /// With the key of one of them.
    pub(super) subject: Subject,
}

/// A command of a shape, as views over the bytes of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shaped<'a> {
    pub(super) key: &'a [u8],
    pub(super) value: Option<&'a [u8]>,
    /// The bytes from the key on.
    pub(super) from_key: &'a [u8],
    /// Bytes of the command, and those before the end of its key.
    pub(super) len: usize,
    pub(super) key_end: usize,
}

/// A few bytes.
#[derive(Debug)]
struct Kept<const MAX: usize> {
    bytes: [u8; MAX],
    len: usize,
}

impl<const MAX: usize> Kept<MAX> {
    /// `None` if they are too many.
    fn of(given: &[u8]) -> Option<Self> {
        let mut bytes = [0; MAX];
        bytes.get_mut(..given.len())?.copy_from_slice(given);
        Some(Kept {
            bytes,
            len: given.len(),
        })
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The begin of commands. Most are short, and compared as one number.
#[derive(Debug)]
struct Head {
    kept: Kept<HEAD_BYTES_MAX>,
    word: u128,
    /// The bits of a word that are compared; all of a head are, if these are.
    mask: u128,
    is_word: bool,
}

impl Head {
    /// `None` if it is too long.
    fn of(given: &[u8]) -> Option<Self> {
        let kept = Kept::<HEAD_BYTES_MAX>::of(given)?;
        let mut bits = [0; HEAD_WORD_BYTES];
        let shown = given.len().min(HEAD_WORD_BYTES);
        bits[..shown].fill(0xFF);
        let mask = u128::from_le_bytes(bits);
        let word = kept.bytes.first_chunk().expect("a head has more bytes");
        Some(Head {
            word: u128::from_le_bytes(*word) & mask,
            mask,
            is_word: given.len() <= HEAD_WORD_BYTES,
            kept,
        })
    }

    /// What stands behind the head, if `bytes` begin with it.
    #[inline(always)]
    fn strip<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        if self.is_word
            && let Some(word) = bytes.first_chunk::<HEAD_WORD_BYTES>()
        {
            let is_same = u128::from_le_bytes(*word) & self.mask == self.word;
            return is_same.then(|| &bytes[self.kept.len..]);
        }
        bytes.strip_prefix(self.kept.bytes())
    }
}

impl Shape {
    /// The shape of a whole command, which became this item, without a token. `None` if it has none
    /// that is remembered.
    pub(super) fn of(
        command: &[u8],
        args: Arguments<'_>,
        form: Form,
        item: &[u8],
        fold: Fold,
        subject: Subject,
    ) -> Option<Self> {
        // The arguments of an inline command stand elsewhere.
        command.first().filter(|byte| **byte == b'*')?;
        let fixed = match form {
            Form::Key => args.end(1)..command.len(),
            Form::KeyValue => args.end(2)..command.len(),
            Form::KeyFixedValue => args.end(1)..args.end(2),
        };
        Some(Shape {
            head: Head::of(command.get(..args.end(0))?)?,
            form,
            fixed: Kept::of(command.get(fixed)?)?,
            item: ItemTemplate::of(item, form != Form::Key)?,
            fold,
            subject,
        })
    }

    /// The command of this shape at the front of `bytes`, if there is one that is whole. Values of
    /// 10,000 bytes and more are left to the parser.
    #[inline(always)]
    fn read<'a>(&self, bytes: &'a [u8]) -> Option<Shaped<'a>> {
        let behind = self.head.strip(bytes)?;
        let (key, from_key, behind) = argument(behind)?;
        if !(1..=KEY_BYTES_MAX).contains(&key.len()) {
            return None;
        }
        let key_end = bytes.len() - from_key.len() + key.len();
        let (value, behind) = match self.form {
            Form::Key => (None, self.fixed(behind)?),
            Form::KeyValue => {
                let (value, _, behind) = argument(behind)?;
                (Some(value), self.fixed(behind)?)
            }
            Form::KeyFixedValue => {
                let (value, _, behind) = argument(self.fixed(behind)?)?;
                (Some(value), behind)
            }
        };
        Some(Shaped {
            key,
            value,
            from_key,
            len: bytes.len() - behind.len(),
            key_end,
        })
    }

    /// What stands behind the arguments that do not differ.
    #[inline]
    fn fixed<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        match self.fixed.len {
            0 => Some(bytes),
            _ => bytes.strip_prefix(self.fixed.bytes()),
        }
    }
}

/// The argument at the front of `bytes`, its bytes and all behind them, and what stands behind it.
/// The bytes behind an argument may be any, as for the parser.
#[inline(always)]
fn argument(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let digit = |byte: u8| usize::from(byte - b'0');
    let (len, from) = match bytes {
        [b'$', ones @ b'0'..=b'9', b'\r', b'\n', from @ ..] => (digit(*ones), from),
        [
            b'$',
            tens @ b'1'..=b'9',
            ones @ b'0'..=b'9',
            b'\r',
            b'\n',
            from @ ..,
        ] => (10 * digit(*tens) + digit(*ones), from),
        [
            b'$',
            hundreds @ b'1'..=b'9',
            tens @ b'0'..=b'9',
            ones @ b'0'..=b'9',
            b'\r',
            b'\n',
            from @ ..,
        ] => (
            100 * digit(*hundreds) + 10 * digit(*tens) + digit(*ones),
            from,
        ),
        [
            b'$',
            thousands @ b'1'..=b'9',
            hundreds @ b'0'..=b'9',
            tens @ b'0'..=b'9',
            ones @ b'0'..=b'9',
            b'\r',
            b'\n',
            from @ ..,
        ] => (
            1000 * digit(*thousands) + 100 * digit(*hundreds) + 10 * digit(*tens) + digit(*ones),
            from,
        ),
        _ => return None,
    };
    let behind = from.get(len + 2..)?;
    Some((&from[..len], from, behind))
}

/// The shapes of the last commands of a connection.
///
/// What must hold: nothing has happened since a shape was remembered that makes another item of its
/// commands, or another reply.
#[derive(Debug, Default)]
pub(super) struct Shapes {
    all: Vec<Shape>,
    /// The place of the one that was seen last, and of the one that the next new one replaces.
    last: usize,
    next: usize,
}

impl Shapes {
    /// Remembers a shape in place of another one with its name and number of arguments.
    pub(super) fn remember(&mut self, shape: Shape) {
        let same = |other: &Shape| other.head.kept.bytes() == shape.head.kept.bytes();
        let place = match self.all.iter().position(same) {
            Some(place) => place,
            None if self.all.len() < SHAPES_MAX => self.all.len(),
            None => {
                self.next = (self.next + 1) % SHAPES_MAX;
                self.next
            }
        };
        self.last = place;
        match self.all.get_mut(place) {
            Some(old) => *old = shape,
            None => self.all.push(shape),
        }
    }

    /// A command may have changed what its connection asks for.
    #[inline]
    pub(super) fn forget(&mut self) {
        self.all.clear();
    }

    /// The command at the front of `bytes` and its shape, if it has one of these and is whole.
    #[inline]
    pub(super) fn read<'a>(&mut self, bytes: &'a [u8]) -> Option<(&Shape, Shaped<'a>)> {
        let last = self.all.get(self.last)?;
        if let Some(shaped) = last.read(bytes) {
            return Some((&self.all[self.last], shaped));
        }
        self.read_others(bytes)
    }

    #[inline(never)]
    fn read_others<'a>(&mut self, bytes: &'a [u8]) -> Option<(&Shape, Shaped<'a>)> {
        for place in (0..self.all.len()).filter(|place| *place != self.last) {
            if let Some(shaped) = self.all[place].read(bytes) {
                self.last = place;
                return Some((&self.all[place], shaped));
            }
        }
        None
    }
}
