//! The words of a line, and how a word is written so that it is read back.

use super::fault::UsersFault;

/// The words of a line, each as its bytes and as it stands.
pub(super) type Words<'a> = Vec<Word<'a>>;

/// A word of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word<'a> {
    /// As it stands in the line.
    pub(super) raw: &'a str,
    /// What it means.
    pub(super) bytes: Vec<u8>,
}

impl Word<'_> {
    pub(super) fn is_quoted(&self) -> bool {
        self.raw.starts_with('"')
    }

    /// Whether it is this word, without quotes.
    pub(super) fn is(&self, word: &str) -> bool {
        self.raw == word
    }
}

/// A line without its end: its words, and the comment behind them.
pub(super) fn split(line: &str) -> Result<(Words<'_>, &str), UsersFault> {
    // Editors of other systems end a line so.
    let line = line.strip_suffix('\r').unwrap_or(line);
    let is_control = |byte: u8| byte.is_ascii_control() && byte != b'\t';
    if let Some(at) = line.bytes().position(is_control) {
        let byte = line.as_bytes()[at];
        return Err(UsersFault::Control { byte, at });
    }
    let mut words = Vec::new();
    let mut rest = line;
    loop {
        rest = rest.trim_start_matches([' ', '\t']);
        if rest.is_empty() || rest.starts_with('#') {
            return Ok((words, rest));
        }
        let begin = line.len() - rest.len();
        let (word, behind) = match rest.strip_prefix('"') {
            Some(_) => quoted(rest, begin)?,
            None => plain(rest)?,
        };
        if !behind.is_empty() && !behind.starts_with([' ', '\t']) {
            let end = behind.find([' ', '\t']).unwrap_or(behind.len());
            let glued = &rest[..rest.len() - behind.len() + end];
            return Err(UsersFault::Glued(glued.to_string()));
        }
        words.push(word);
        rest = behind;
    }
}

fn plain(rest: &str) -> Result<(Word<'_>, &str), UsersFault> {
    let end = rest.find([' ', '\t']).unwrap_or(rest.len());
    let (raw, behind) = rest.split_at(end);
    match raw.bytes().all(is_plain) {
        true => Ok((
            Word {
                raw,
                bytes: raw.as_bytes().to_vec(),
            },
            behind,
        )),
        false => Err(UsersFault::Unquotable(raw.to_string())),
    }
}

/// A word that begins with a quote, which stands at this byte of the line.
fn quoted(rest: &str, begin: usize) -> Result<(Word<'_>, &str), UsersFault> {
    let mut bytes = Vec::new();
    let mut at = 1;
    loop {
        match rest.as_bytes().get(at..) {
            None | Some([]) => return Err(UsersFault::Unquoted(begin + 1)),
            Some([b'"', ..]) => {
                let (raw, behind) = rest.split_at(at + 1);
                return Ok((Word { raw, bytes }, behind));
            }
            Some([b'\\', byte @ (b'"' | b'\\'), ..]) => {
                bytes.push(*byte);
                at += 2;
            }
            Some([b'\\', b'x', high, low, ..])
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                let digit = |byte: u8| (byte as char).to_digit(16).unwrap_or_default();
                bytes.push(u8::try_from(digit(*high) << 4 | digit(*low)).expect("two digits"));
                at += 4;
            }
            Some([b'\\', ..]) => {
                let end = rest[at..]
                    .find([' ', '\t'])
                    .map_or(rest.len(), |len| at + len);
                return Err(UsersFault::Escape(rest[..end].to_string()));
            }
            Some([byte, ..]) => {
                bytes.push(*byte);
                at += 1;
            }
        }
    }
}

/// Whether a byte may stand in a word without quotes.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\' | b'#')
}

/// Appends a prefix or a name as a word that is read back. A star at the end is quoted, as no
/// pattern is meant.
pub(super) fn push_word(out: &mut String, bytes: &[u8]) {
    let is_bare = bytes.last().is_some_and(|last| *last != b'*');
    if is_bare && bytes.iter().copied().all(is_plain) {
        out.extend(bytes.iter().map(|byte| char::from(*byte)));
        return;
    }
    out.push('"');
    for &byte in bytes {
        match byte {
            b'"' | b'\\' => out.extend(['\\', char::from(byte)]),
            b' '..=b'~' => out.push(char::from(byte)),
            _ => {
                let digit = |four: u8| char::from_digit(four.into(), 16).expect("four bits");
                out.extend(['\\', 'x', digit(byte >> 4), digit(byte & 15)]);
            }
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<Vec<u8>> {
        let (words, _) = split(line).expect("words");
        words.into_iter().map(|word| word.bytes).collect()
    }

    #[test]
    fn every_word_is_read_back_as_it_was_written() {
        let all: Vec<u8> = (0..=255).collect();
        let single = (0..=255u8).map(|byte| vec![byte]);
        for bytes in single.chain([all, b"stock:{42}".to_vec(), b"a*".to_vec(), Vec::new()]) {
            let mut line = "read  ".to_string();
            push_word(&mut line, &bytes);
            line.push_str("\t# why");
            let (words, comment) = split(&line).expect("words");
            assert_eq!(words.len(), 2, "{line}");
            assert_eq!(words[1].bytes, bytes, "{line}");
            assert_eq!(comment, "# why");
        }
        assert_eq!(
            words("a \"\u{fc}\" b\r"),
            [&b"a"[..], "\u{fc}".as_bytes(), b"b"]
        );
        assert_eq!(words("  # nothing"), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn what_is_no_word_is_refused_where_it_stands() {
        let fault = |line: &str| split(line).expect_err(line);
        let text = |text: &str| text.to_string();
        assert_eq!(fault("a \"b"), UsersFault::Unquoted(3));
        assert_eq!(fault("a b\"c"), UsersFault::Unquotable(text("b\"c")));
        assert_eq!(fault("a b#c"), UsersFault::Unquotable(text("b#c")));
        assert_eq!(fault("a \"b\"c d"), UsersFault::Glued(text("\"b\"c")));
        assert_eq!(fault("a \"\\n\" d"), UsersFault::Escape(text("\"\\n\"")));
        assert_eq!(fault("a \"\\x4g\""), UsersFault::Escape(text("\"\\x4g\"")));
        assert_eq!(fault("a\0b"), UsersFault::Control { byte: 0, at: 1 });
    }
}
