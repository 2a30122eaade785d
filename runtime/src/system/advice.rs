//! How problems are told: the cause, and the mend with commands that the reader can paste into a
//! shell.

use std::path::Path;

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Why.
    pub cause: String,
    /// The command or the change that mends it.
    pub mend: String,
}

/// A path as one word of a shell.
#[must_use]
pub fn word(path: &Path) -> String {
    let text = path.to_string_lossy();
    let text = match text.starts_with('-') {
        true => format!("./{text}").into(),
        false => text,
    };
    match shlex::try_quote(&text) {
        Ok(word) => word.into_owned(),
        // Only a NUL cannot be quoted, and no path has one.
        Err(_) => text.into_owned(),
    }
}

/// How a process may have so many open files.
#[must_use]
pub fn open_files(wanted: u64) -> String {
    format!("ulimit -n {wanted}, or LimitNOFILE={wanted} in the systemd unit")
}

/// How a process may make files of any length.
#[must_use]
pub fn file_bytes() -> String {
    "ulimit -f unlimited, or LimitFSIZE=infinity in the systemd unit".into()
}

/// What shows all damage of the stopped data directory `data`.
#[must_use]
pub fn inspect(data: &Path) -> String {
    format!("penstock inspect {}", word(data))
}

/// What shows how the stopped data directory `data` can be mended, and at what price.
#[must_use]
pub fn repair(data: &Path) -> String {
    format!("penstock inspect {} --repair", word(data))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_one_word_for_a_shell() {
        for (path, expected) in [
            ("/var/lib/penstock", "/var/lib/penstock"),
            ("./my data", "'./my data'"),
            ("it's", "\"it's\""),
            ("-x", "./-x"),
            ("$HOME", "'$HOME'"),
        ] {
            assert_eq!(word(Path::new(path)), expected);
        }
        let data = Path::new("/srv/a b");
        assert_eq!(repair(data), "penstock inspect '/srv/a b' --repair");
    }
}
