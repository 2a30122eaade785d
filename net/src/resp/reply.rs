//! Replies in RESP2 and RESP3.

use crate::apply::{DECIMAL_BYTES_MAX, Decimal, write_decimal};

/// The version of the protocol that a connection speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// The first one; null is a string without a length.
    #[default]
    Resp2,
    /// With maps, sets and a null of its own.
    Resp3,
}

/// Bytes of a line with a number, at most.
const NUMBER_BYTES_MAX: usize = 1 + DECIMAL_BYTES_MAX + 2;

/// Writes replies at the end of a buffer.
#[derive(Debug)]
pub struct Replies<'a> {
    out: &'a mut Vec<u8>,
    protocol: Protocol,
    /// Bytes of `out`, at most, beyond which values are counted and not written.
    bytes_max: usize,
    /// Bytes of values that were not written.
    beyond_bytes: usize,
}

impl<'a> Replies<'a> {
    /// Replies of this protocol, at the end of `out`.
    #[inline]
    #[must_use]
    pub fn new(out: &'a mut Vec<u8>, protocol: Protocol) -> Self {
        Replies::bounded(out, protocol, usize::MAX)
    }

    /// The same. Values that would make `out` longer than `bytes_max` are counted and not written.
    #[inline]
    pub(super) fn bounded(out: &'a mut Vec<u8>, protocol: Protocol, bytes_max: usize) -> Self {
        Replies {
            out,
            protocol,
            bytes_max,
            beyond_bytes: 0,
        }
    }

    /// Bytes of `out` if all values had been written.
    pub(super) fn bytes(&self) -> usize {
        self.out.len() + self.beyond_bytes
    }

    /// Whether values were left out, so that the reply is none.
    pub(super) fn is_beyond(&self) -> bool {
        self.beyond_bytes > 0
    }

    /// The protocol.
    #[must_use]
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// A simple string, such as `OK`.
    #[inline]
    pub fn simple(&mut self, text: &str) {
        self.out.push(b'+');
        self.out.extend_from_slice(text.as_bytes());
        self.end_line();
    }

    /// An error: its code, a blank and its text. Ends of lines in it become blanks.
    pub fn error(&mut self, text: &[u8]) {
        self.out.push(b'-');
        let clean = text.iter().map(|byte| match byte {
            b'\r' | b'\n' => b' ',
            byte => *byte,
        });
        self.out.extend(clean);
        self.end_line();
    }

    /// An integer.
    #[inline]
    pub fn integer(&mut self, number: i64) {
        self.number(b':', number);
    }

    /// A string of bytes.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.number(b'$', i64::try_from(bytes.len()).expect("memory is bounded"));
        self.out.extend_from_slice(bytes);
        self.end_line();
    }

    /// The value of a key, or a part of one: what a short command can ask for many times.
    pub(super) fn value(&mut self, bytes: &[u8]) {
        let line_bytes = bytes.len() + NUMBER_BYTES_MAX + 2;
        match self.out.len().saturating_add(line_bytes) <= self.bytes_max {
            true => self.bulk(bytes),
            false => self.beyond_bytes = self.beyond_bytes.saturating_add(line_bytes),
        }
    }

    /// A number with a point, written so: a string in RESP2. A part of a value as those of
    /// [`Replies::value`].
    pub(super) fn double(&mut self, text: &str) {
        if self.protocol == Protocol::Resp2 {
            return self.value(text.as_bytes());
        }
        let line_bytes = text.len() + 3;
        if self.out.len().saturating_add(line_bytes) > self.bytes_max {
            self.beyond_bytes = self.beyond_bytes.saturating_add(line_bytes);
            return;
        }
        self.out.push(b',');
        self.out.extend_from_slice(text.as_bytes());
        self.end_line();
    }

    /// A text, which RESP3 marks as one.
    pub fn text(&mut self, text: &str) {
        if self.protocol == Protocol::Resp2 {
            return self.bulk(text.as_bytes());
        }
        let len = i64::try_from(text.len() + 4).expect("memory is bounded");
        self.number(b'=', len);
        self.out.extend_from_slice(b"txt:");
        self.out.extend_from_slice(text.as_bytes());
        self.end_line();
    }

    /// No value.
    #[inline]
    pub fn null(&mut self) {
        self.out.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"$-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// No value in the place of an array.
    pub fn null_array(&mut self) {
        self.out.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"*-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// An array, whose elements follow.
    #[inline]
    pub fn array(&mut self, len: usize) {
        self.number(b'*', i64::try_from(len).expect("memory is bounded"));
    }

    /// A map, whose keys and values follow in turn.
    pub fn map(&mut self, len: usize) {
        match self.protocol {
            Protocol::Resp2 => self.array(2 * len),
            Protocol::Resp3 => self.number(b'%', i64::try_from(len).expect("memory is bounded")),
        }
    }

    /// A set, whose elements follow.
    pub fn set(&mut self, len: usize) {
        match self.protocol {
            Protocol::Resp2 => self.array(len),
            Protocol::Resp3 => self.number(b'~', i64::try_from(len).expect("memory is bounded")),
        }
    }

    /// What nobody has asked for, whose elements follow; in RESP2 an array as any other.
    pub fn push(&mut self, len: usize) {
        match self.protocol {
            Protocol::Resp2 => self.array(len),
            Protocol::Resp3 => self.number(b'>', i64::try_from(len).expect("memory is bounded")),
        }
    }

    /// The line in front of a string of `len` bytes, which follow with the end of their line.
    pub(super) fn bulk_begins(&mut self, len: usize) {
        self.number(b'$', i64::try_from(len).expect("memory is bounded"));
    }

    /// The answer to HELP of a container: its subcommands as lines, HELP not among them.
    pub(super) fn help(&mut self, container: &str, lines: &[&str]) {
        self.array(lines.len() + 3);
        let head = format!("{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:");
        self.simple(&head);
        lines.iter().for_each(|line| self.simple(line));
        self.simple("HELP");
        self.simple("    Print this help.");
    }

    /// Replies that were written before.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// The first `len` bytes of a line.
    #[inline]
    fn line<const MAX: usize>(&mut self, line: &[u8; MAX], len: usize) {
        let end = self.out.len() + len;
        self.out.extend_from_slice(line);
        self.out.truncate(end);
    }

    #[inline]
    fn number(&mut self, kind: u8, number: i64) {
        // Kind, number and end of the line go to the buffer at once, and some bytes behind them.
        let mut text = [b'\r'; 2 * NUMBER_BYTES_MAX];
        text[NUMBER_BYTES_MAX - 1] = b'\n';
        let digits = text[1..].first_chunk_mut::<DECIMAL_BYTES_MAX>();
        let start = write_decimal(digits.expect("it has room"), number);
        text[start] = kind;
        let line = text[start..].first_chunk::<NUMBER_BYTES_MAX>();
        self.line(line.expect("it has room"), NUMBER_BYTES_MAX - start);
    }

    #[inline]
    fn end_line(&mut self) {
        self.out.extend_from_slice(b"\r\n");
    }
}

/// Bytes of a line that tells the length of a value below 10^12.
const LINE_BYTES: usize = 16;

/// Writes values one behind another, which mostly are as long as the one before.
#[derive(Debug, Default)]
pub(super) struct ValueLines {
    /// The line that stood before the last value.
    line: [u8; LINE_BYTES],
    line_len: usize,
    /// The length of that value.
    value_len: usize,
}

impl ValueLines {
    /// A string of bytes.
    #[inline]
    pub(super) fn bulk(&mut self, bytes: &[u8], replies: &mut Replies<'_>) {
        if bytes.len() != self.value_len || self.line_len == 0 {
            self.note(bytes.len());
        }
        replies.line(&self.line, self.line_len);
        replies.out.extend_from_slice(bytes);
        replies.end_line();
    }

    fn note(&mut self, value_len: usize) {
        let number = Decimal::new(i64::try_from(value_len).expect("memory is bounded"));
        let digits = number.bytes();
        self.line[0] = b'$';
        self.line[1..=digits.len()].copy_from_slice(digits);
        self.line[1 + digits.len()..][..2].copy_from_slice(b"\r\n");
        (self.line_len, self.value_len) = (digits.len() + 3, value_len);
    }
}
