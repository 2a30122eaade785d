//! Finds the line of a TOML file that an error is about. Pure.

/// The line, from 1, of what the parser could not read in `text`.
///
/// The parser tells where it stopped. Of a string without its end that is behind the newline, or
/// behind the whole file, and a person looks for the quote that opens it.
pub(crate) fn line_of_error(text: &str, error: &toml::de::Error) -> usize {
    let stopped = error.span().map_or(0, |span| span.start);
    let message = error.message();
    let read = &text[..stopped];
    let about = if message.starts_with("invalid multi-line basic string") {
        read.rfind("\"\"\"").unwrap_or(stopped)
    } else if message.starts_with("invalid multi-line literal string") {
        read.rfind("'''").unwrap_or(stopped)
    } else if message.starts_with("invalid basic string")
        || message.starts_with("invalid literal string")
    {
        read.strip_suffix('\n').unwrap_or(read).len()
    } else {
        stopped
    };
    1 + text[..about].matches('\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> usize {
        let error = toml::de::DeTable::parse(text).expect_err(text);
        line_of_error(text, &error)
    }

    #[test]
    fn an_unclosed_string_is_reported_on_the_line_of_its_quote() {
        for text in [
            "a = 1\nb = \"x\nc = 3\n",
            "a = 1\nb = 'x\nc = 3\n",
            "a = 1\nb = 'x\r\nc = 3\n",
            "a = 1\nb = \"x\n\n\nc = 3\n",
            "a = 1\nb = \"x",
            "a = 1\nb = \"\"\"x\nc = 3\n",
            "a = 1\nb = '''x\nc = 3\n",
        ] {
            assert_eq!(line(text), 2, "{text:?}");
        }
    }

    #[test]
    fn another_error_is_reported_where_it_stands() {
        for (text, at) in [
            ("a = 1\n= 3", 2),
            ("a =\nb = 1", 1),
            ("[x\ny = 1", 1),
            ("a = 1\nb = \"x\\q\"\n", 2),
            ("a = [1,\nc = 3\n", 2),
        ] {
            assert_eq!(line(text), at, "{text:?}");
        }
    }
}
