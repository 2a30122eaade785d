//! A pattern that is compared with many texts: its elements as bits, all of them advanced by a few
//! machine instructions for each byte of a text (the Shift-And algorithm of Baeza-Yates and Gonnet,
//! 1992, where a star keeps its bit).
//!
//! [`glob::matches`](super::glob::matches) answers the same in the time of the product of both
//! lengths, and without a table. One page of SCAN with it took a core 8 s for a hostile pattern.

use super::glob::{self, Bytes};
use crate::limits::KEY_BYTES_MAX;

/// Bits of a word of the table.
const WORD_BITS: usize = 64;
/// Words of the longest pattern that a text can match, and of the bit of its begin.
const WORDS_MAX: usize = (KEY_BYTES_MAX + 1).div_ceil(WORD_BITS);

/// A pattern of texts of at most [`KEY_BYTES_MAX`] bytes.
#[derive(Debug)]
pub(super) struct Pattern {
    /// Words for each byte value and for the state.
    words: usize,
    /// For each byte value, the elements that take it: 256 groups of words.
    takers: Vec<u64>,
    /// The elements behind which a star stands; the first bit is the begin of the pattern.
    stars: Vec<u64>,
    /// The bit of the last element.
    end: usize,
    /// Whether the pattern asks for more bytes than a text has.
    is_of_none: bool,
}

impl Pattern {
    /// Takes time by the length of the pattern. The table has at most 34 KiB.
    pub(super) fn new(pattern: &[u8]) -> Self {
        let mut elements = 0;
        let mut at = 0;
        while at < pattern.len() && elements <= KEY_BYTES_MAX {
            if pattern[at] == b'*' {
                at += 1;
            } else {
                at = glob::bytes(pattern, at).1;
                elements += 1;
            }
        }
        let is_of_none = elements > KEY_BYTES_MAX;
        let elements = if is_of_none { 0 } else { elements };
        let words = (elements + 1).div_ceil(WORD_BITS);
        let mut compiled = Pattern {
            words,
            takers: vec![0; 256 * words],
            stars: vec![0; words],
            end: elements,
            is_of_none,
        };
        if !is_of_none {
            compiled.fill(pattern);
        }
        compiled
    }

    fn fill(&mut self, pattern: &[u8]) {
        let (mut at, mut element) = (0, 0);
        while at < pattern.len() {
            if pattern[at] == b'*' {
                self.stars[element / WORD_BITS] |= 1 << (element % WORD_BITS);
                at += 1;
                continue;
            }
            let (bytes, next) = glob::bytes(pattern, at);
            element += 1;
            let (word, bit) = (element / WORD_BITS, 1 << (element % WORD_BITS));
            let mut add = |byte: u8| self.takers[usize::from(byte) * self.words + word] |= bit;
            match bytes {
                Bytes::One(byte) => add(byte),
                Bytes::Set(set) => {
                    let taken = (0..=255).filter(|&byte| set[usize::from(byte)]);
                    taken.for_each(&mut add);
                }
            }
            at = next;
        }
    }

    /// What [`glob::matches`] answers, in as many steps as the text has bytes, times the words of
    /// the pattern. A pattern of more elements than [`KEY_BYTES_MAX`] matches nothing.
    pub(super) fn matches(&self, text: &[u8]) -> bool {
        if self.is_of_none {
            return false;
        }
        let mut state = [0u64; WORDS_MAX];
        let state = &mut state[..self.words];
        state[0] = 1;
        for byte in text {
            let takers = &self.takers[usize::from(*byte) * self.words..][..self.words];
            let mut carry = 0;
            let mut any = 0;
            for ((state, takers), stars) in state.iter_mut().zip(takers).zip(&self.stars) {
                let before = *state;
                *state = ((before << 1 | carry) & takers) | (before & stars);
                carry = before >> (WORD_BITS - 1);
                any |= *state;
            }
            if any == 0 {
                return false;
            }
        }
        state[self.end / WORD_BITS] >> (self.end % WORD_BITS) & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small generator of numbers, the same in each run.
    fn numbers(mut seed: u64) -> impl FnMut(u64) -> u64 {
        move |below| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        }
    }

    #[test]
    fn any_pattern_and_text_match_as_one_compares_them_element_by_element() {
        let mut number = numbers(1);
        let mut matched = 0;
        for round in 0..200_000 {
            let signs: &[u8] = b"ab*?[]^-\\c";
            let mut text = |signs: &[u8], most: u64| -> Vec<u8> {
                let len = number(most + 1);
                let mut sign = || signs[usize::try_from(number(signs.len() as u64)).unwrap()];
                (0..len).map(|_| sign()).collect()
            };
            // Some are longer than a word.
            let most = if round % 10 == 0 { 150 } else { 9 };
            let pattern = match round % 3 {
                0 => text(signs, most),
                1 => text(b"ab?*", most),
                _ => text(b"a*", most),
            };
            let text = text(b"ab-c", most);
            let expected = glob::matches(&pattern, &text);
            let is_match = Pattern::new(&pattern).matches(&text);
            let show = |bytes: &[u8]| bytes.escape_ascii().to_string();
            assert_eq!(is_match, expected, "{} of {}", show(&text), show(&pattern));
            matched += u32::from(is_match);
        }
        assert!((20_000..180_000).contains(&matched), "{matched} matched");
    }

    #[test]
    fn a_text_that_is_longer_than_any_key_is_compared_whole() {
        for len in [KEY_BYTES_MAX, KEY_BYTES_MAX + 1, 64 << 10] {
            let mut text = vec![b'a'; len];
            assert!(Pattern::new(b"a*").matches(&text));
            assert!(Pattern::new(b"*a").matches(&text));
            text[len - 1] = b'b';
            assert!(!Pattern::new(b"*a").matches(&text));
        }
    }

    #[test]
    fn a_pattern_of_more_elements_than_a_text_has_bytes_is_of_none_and_takes_no_room() {
        let pattern = Pattern::new(&b"?*".repeat(1_000_000));
        assert!(!pattern.matches(&[b'a'; 1_024]));
        assert_eq!(pattern.takers.len(), 256);
        let pattern = Pattern::new(&b"?*".repeat(1_024));
        assert!(pattern.matches(&[b'a'; 1_024]) && !pattern.matches(&[b'a'; 1_023]));
        let class = [&b"["[..], &b"a-z".repeat(300_000), b"]*"].concat();
        assert!(Pattern::new(&class).matches(b"kz"));
    }
}
