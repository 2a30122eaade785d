//! What the compiler of Lua does in quadratic time: it walks all earlier jumps of a list for each
//! further one, so 40,000 `and` in one expression hold a core for two seconds. No limit of steps
//! runs while it compiles, so the words that make jumps are counted before.

/// Words that make jumps in a text, at most. The compiler takes about 20 ms for one list of as many.
pub(crate) const JUMPS_MAX: usize = 4096;

/// Words whose jumps join a list: operands, branches, and exits of a loop.
const WORDS: [&[u8]; 4] = [b"and", b"or", b"elseif", b"break"];

/// Why a text is not compiled, if it has too many of these words. Words of strings and comments
/// count as well.
pub(crate) fn refused(text: &[u8]) -> Option<String> {
    let is_of_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let words = text.split(|byte| !is_of_word(byte));
    let jumps = words.filter(|word| WORDS.contains(word)).count();
    (jumps > JUMPS_MAX).then(|| {
        format!(
            "the script has the words and, or, elseif and break {jumps} times; {JUMPS_MAX} is the \
             limit"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_words_as_the_limit_are_taken_and_one_more_is_refused_by_number() {
        for word in ["and", "or", "elseif", "break"] {
            let text = format!("return a{}", format!(" {word}\na").repeat(JUMPS_MAX));
            assert_eq!(refused(text.as_bytes()), None, "{word}");
            let refusal = refused(format!("{text} {word} a").as_bytes()).expect("one more");
            assert!(refusal.contains("4097 times; 4096 is"), "{refusal}");
        }
    }

    #[test]
    fn parts_of_other_names_are_no_words_that_make_jumps() {
        let text = "local order, band, break_, elseif1 = 1 ".repeat(JUMPS_MAX + 1);
        assert_eq!(refused(text.as_bytes()), None);
    }
}
