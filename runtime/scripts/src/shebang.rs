//! The first line of a script, `#!lua flags=...`.

/// Flags that a script may have.
const FLAGS: [&str; 5] = [
    "no-writes",
    "allow-oom",
    "allow-stale",
    "no-cluster",
    "allow-cross-slot-keys",
];

/// A script without its first line, if that line says how the script is to be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Body<'a> {
    /// The rest, its first end of line included, so that lines keep their numbers.
    pub(crate) text: &'a [u8],
    /// The script has the flag `no-writes`.
    pub(crate) is_read_only: bool,
}

/// Reads the first line. The error is what a client gets, without its code.
pub(crate) fn read(text: &[u8]) -> Result<Body<'_>, String> {
    let Some(line) = text.strip_prefix(b"#!") else {
        return Ok(Body {
            text,
            is_read_only: false,
        });
    };
    let len = line
        .iter()
        .position(|byte| *byte == b'\n')
        .unwrap_or(line.len());
    let (line, text) = line.split_at(len);
    let line = String::from_utf8_lossy(line);
    let mut words = line
        .split([' ', '\t', '\r'])
        .filter(|word| !word.is_empty());
    let engine = words.next().unwrap_or_default();
    if engine != "lua" {
        return Err(format!("Could not find scripting engine '{engine}'"));
    }
    let mut is_read_only = false;
    for word in words {
        let Some(flags) = word.strip_prefix("flags=") else {
            return Err(format!("Unknown lua shebang option: {word}"));
        };
        for flag in flags.split(',').filter(|flag| !flag.is_empty()) {
            if !FLAGS.contains(&flag) {
                return Err(format!("Unexpected flag in script shebang: {flag}"));
            }
            is_read_only |= flag == FLAGS[0];
        }
    }
    Ok(Body { text, is_read_only })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_names_flags_and_keeps_the_numbers_of_lines() {
        let body = read(b"#!lua flags=no-writes,allow-oom\nreturn 1").expect("it is right");
        assert_eq!(body.text, b"\nreturn 1");
        assert!(body.is_read_only);
        assert_eq!(
            read(b"return 1").map(|body| body.text),
            Ok(&b"return 1"[..])
        );
        let error = |text: &[u8]| read(text).expect_err("it is wrong");
        assert_eq!(error(b"#!js\n"), "Could not find scripting engine 'js'");
        assert_eq!(error(b"#!lua x=1"), "Unknown lua shebang option: x=1");
        assert_eq!(
            error(b"#!lua flags=x\n"),
            "Unexpected flag in script shebang: x"
        );
    }
}
