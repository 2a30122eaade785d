//! Patterns of keys, as SCAN and CONFIG GET take them.

/// Whether `text` is of `pattern`: `*`, `?`, `[a-z]`, `[^a]` and `\` as in Redis. The time is
/// bounded by the product of both lengths: a star that fails goes back to the last star only.
#[must_use]
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    // Behind the last star, and where its text began to go on.
    let mut star: Option<(usize, usize)> = None;
    loop {
        if at < pattern.len() && pattern[at] == b'*' {
            at += 1;
            star = Some((at, from));
            continue;
        }
        if from == text.len() && at == pattern.len() {
            return true;
        }
        if from < text.len()
            && at < pattern.len()
            && let Some(next) = one(pattern, at, text[from])
        {
            (at, from) = (next, from + 1);
            continue;
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

/// Bytes of the longest piece of a pattern behind its first star, up to the next one. A byte of a
/// text is compared with no more elements than these, once the text has come to that star.
#[must_use]
pub fn longest_piece_behind_a_star(pattern: &[u8]) -> usize {
    let pieces = pattern.split(|byte| *byte == b'*').skip(1);
    pieces.map(<[u8]>::len).max().unwrap_or(0)
}

/// Whether a byte is of the element at `at`; where the next element begins then.
fn one(pattern: &[u8], at: usize, byte: u8) -> Option<usize> {
    match pattern[at] {
        b'?' => Some(at + 1),
        b'[' => class(pattern, at + 1, byte),
        b'\\' if at + 1 < pattern.len() => (pattern[at + 1] == byte).then_some(at + 2),
        literal => (literal == byte).then_some(at + 1),
    }
}

fn class(pattern: &[u8], mut at: usize, byte: u8) -> Option<usize> {
    let is_negated = pattern.get(at) == Some(&b'^');
    at += usize::from(is_negated);
    let mut is_in = false;
    loop {
        match *pattern.get(at..)? {
            // A class without an end goes to the end of the pattern.
            [] => break,
            [b'\\', next, ..] => {
                is_in |= next == byte;
                at += 2;
            }
            [b']', ..] => {
                at += 1;
                break;
            }
            [low, b'-', high, ..] => {
                is_in |= (low.min(high)..=low.max(high)).contains(&byte);
                at += 3;
            }
            [literal, ..] => {
                is_in |= literal == byte;
                at += 1;
            }
        }
    }
    (is_in != is_negated).then_some(at)
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
    fn the_longest_piece_is_between_two_stars_or_behind_the_last() {
        for (pattern, expected) in [
            ("", 0),
            ("abc", 0),
            ("abc*", 0),
            ("*", 0),
            ("a*bc*d", 2),
            ("a*b*cde", 3),
            ("**ab", 2),
        ] {
            let longest = longest_piece_behind_a_star(pattern.as_bytes());
            assert_eq!(longest, expected, "{pattern}");
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
