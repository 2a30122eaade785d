//! Patterns of keys, as SCAN and CONFIG GET take them.

/// Whether `text` is of `pattern`: `*`, `?`, `[a-z]`, `[^a]` and `\` as in Redis. The time is
/// bounded by the product of both lengths: a star that fails goes back to the last star only.
#[must_use]
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    compare(pattern, text, |_| ())
}

/// What [`matches`] answers. `note` gets the bytes of each element that is compared.
fn compare(pattern: &[u8], text: &[u8], mut note: impl FnMut(usize)) -> bool {
    let (mut at, mut from) = (0, 0);
    // Behind the last star, and where its text began to go on.
    let mut star: Option<(usize, usize)> = None;
    loop {
        if at < pattern.len() && pattern[at] == b'*' {
            note(1);
            at += 1;
            if at == pattern.len() {
                return true;
            }
            star = Some((at, from));
            continue;
        }
        if from == text.len() && at == pattern.len() {
            return true;
        }
        if from < text.len() && at < pattern.len() {
            let (is_of_it, next) = element(pattern, at, text[from]);
            note(next - at);
            if is_of_it {
                (at, from) = (next, from + 1);
                continue;
            }
        }
        let Some((behind, began)) = star.filter(|(_, began)| *began < text.len()) else {
            return false;
        };
        star = Some((behind, began + 1));
        (at, from) = (behind, began + 1);
    }
}

/// The bytes that all texts of a pattern begin with.
#[must_use]
pub fn literal_prefix(pattern: &[u8]) -> &[u8] {
    let special = |byte: &u8| matches!(byte, b'*' | b'?' | b'[' | b'\\');
    let end = pattern.iter().position(special);
    &pattern[..end.unwrap_or(pattern.len())]
}

/// Steps that every pattern takes, however short it is.
const PATTERN_STEPS: usize = 16;

/// Steps that a pattern, or several, may take to be compared with a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// For the text.
    pub once: usize,
    /// For each byte of the text.
    pub each_byte: usize,
}

impl Steps {
    /// Those of one pattern: its bytes, and for each byte of a text the bytes of its longest piece
    /// behind a star, up to the next one. A star that is escaped or within a class is none.
    #[must_use]
    pub fn of_pattern(pattern: &[u8]) -> Steps {
        let (mut at, mut longest) = (0, 0);
        // Where the piece begins, behind the first star.
        let mut piece: Option<usize> = None;
        while at < pattern.len() {
            at = match pattern[at] {
                b'*' => {
                    piece = Some(at + 1);
                    at + 1
                }
                _ => element(pattern, at, 0).1,
            };
            longest = longest.max(piece.map_or(0, |begin| at - begin));
        }
        Steps {
            once: PATTERN_STEPS + pattern.len(),
            each_byte: longest,
        }
    }

    /// Those for a text of so many bytes.
    #[must_use]
    pub fn over(self, text_bytes: usize) -> usize {
        self.once + self.each_byte * text_bytes
    }
}

/// The bytes that an element takes.
pub(super) enum Bytes {
    One(u8),
    /// Those whose place is true.
    Set(Box<[bool; 256]>),
}

/// The bytes of the element at `at`, which is no star, and where the next element begins.
pub(super) fn bytes(pattern: &[u8], at: usize) -> (Bytes, usize) {
    match pattern[at] {
        b'?' => (Bytes::Set(Box::new([true; 256])), at + 1),
        b'[' => {
            let (mut set, is_negated) = (Box::new([false; 256]), is_negated(pattern, at + 1));
            // Where ranges begin, and behind where they end. So a range costs as much as a byte.
            let mut edges = [0i64; 257];
            let next = class(pattern, at + 1, |low, high| {
                edges[usize::from(low)] += 1;
                edges[usize::from(high) + 1] -= 1;
            });
            let mut ranges = 0;
            for (is_in, edge) in set.iter_mut().zip(edges) {
                ranges += edge;
                *is_in = (ranges > 0) != is_negated;
            }
            (Bytes::Set(set), next)
        }
        b'\\' if at + 1 < pattern.len() => (Bytes::One(pattern[at + 1]), at + 2),
        literal => (Bytes::One(literal), at + 1),
    }
}

/// Whether a byte is of the element at `at`, and where the next element begins.
fn element(pattern: &[u8], at: usize, byte: u8) -> (bool, usize) {
    match pattern[at] {
        b'?' => (true, at + 1),
        b'[' => {
            let mut is_in = false;
            let next = class(pattern, at + 1, |low, high| {
                is_in |= (low..=high).contains(&byte)
            });
            (is_in != is_negated(pattern, at + 1), next)
        }
        b'\\' if at + 1 < pattern.len() => (pattern[at + 1] == byte, at + 2),
        literal => (literal == byte, at + 1),
    }
}

/// Whether the class whose text begins at `at` takes what its ranges do not.
fn is_negated(pattern: &[u8], at: usize) -> bool {
    pattern.get(at) == Some(&b'^')
}

/// Gives the ranges of the class whose text begins at `at`, and returns where the next element
/// begins.
fn class(pattern: &[u8], mut at: usize, mut range: impl FnMut(u8, u8)) -> usize {
    at += usize::from(is_negated(pattern, at));
    loop {
        match pattern[at..] {
            // A class without an end goes to the end of the pattern.
            [] => return at,
            [b'\\', next, ..] => {
                range(next, next);
                at += 2;
            }
            [b']', ..] => return at + 1,
            [low, b'-', high, ..] => {
                range(low.min(high), low.max(high));
                at += 3;
            }
            [literal, ..] => {
                range(literal, literal);
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_those_of_redis() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("a*", "a", true),
            ("*a", "bba", true),
            ("a*b*c", "a1b2c", true),
            ("a*b*c", "a1b2", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[^e]llo", "hbllo", true),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hallo", true),
            ("h\\*llo", "h*llo", true),
            ("h\\*llo", "hxllo", false),
            ("[", "[", false),
            ("[a", "a", true),
            ("[\\]]", "]", true),
            ("**", "abc", true),
            ("*abc*", "xxabxabcx", true),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), text.as_bytes()),
                expected,
                "{pattern} {text}"
            );
        }
        assert_eq!(literal_prefix(b"user:*"), b"user:");
        assert_eq!(literal_prefix(b"user"), b"user");
    }

    #[test]
    fn a_piece_is_between_two_stars_and_an_escaped_star_or_one_of_a_class_is_none() {
        for (pattern, expected) in [
            ("", 0),
            ("abc", 0),
            ("abc*", 0),
            ("*", 0),
            ("a*bc*d", 2),
            ("a*b*cde", 3),
            ("**ab", 2),
            ("*[a*b]c*", 6),
            ("*\\*\\*x", 5),
            ("*[a*b", 4),
            ("*\\", 1),
        ] {
            let steps = Steps::of_pattern(pattern.as_bytes());
            assert_eq!(steps.each_byte, expected, "{pattern}");
            assert_eq!(steps.once, PATTERN_STEPS + pattern.len());
        }
    }

    #[test]
    fn no_comparison_takes_more_steps_than_were_counted() {
        let is_within = |pattern: &[u8], text: &[u8]| {
            let mut taken = 0;
            compare(pattern, text, |bytes| taken += bytes);
            let most = Steps::of_pattern(pattern).over(text.len());
            assert!(taken <= most, "{}: {taken}", pattern.escape_ascii());
            taken
        };
        let stars = b"\\*".repeat(500);
        let text = [b'*'; 1024];
        assert!(is_within(&[b"*", &stars[..], b"x"].concat(), &text) > 500_000);
        let class = [b"*[", &b"a*b*".repeat(250)[..], b"]"].concat();
        assert!(is_within(&class, &text[..1000]) > 1000);
        // Patterns and texts of a few bytes.
        let alphabet = b"*?[]^\\-ab";
        let mut number = 1_u32;
        for _ in 0..200_000 {
            number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let mut left = number >> 2;
            let mut word = |bytes: u32, symbols: &[u8]| -> Vec<u8> {
                let byte = |_| {
                    let at = left as usize % symbols.len();
                    left = left.rotate_right(5).wrapping_mul(2_654_435_769);
                    symbols[at]
                };
                (0..bytes).map(byte).collect()
            };
            let pattern = word(number >> 28, alphabet);
            let text = word((number >> 24) & 15, b"ab*");
            is_within(&pattern, &text);
        }
    }

    #[test]
    fn a_pattern_of_many_stars_ends_in_time() {
        let text = vec![b'a'; 1024];
        let pattern = b"*a".repeat(400);
        assert!(!matches(&[&pattern[..], b"b"].concat(), &text));
        assert!(matches(&pattern, &text));
    }
}
