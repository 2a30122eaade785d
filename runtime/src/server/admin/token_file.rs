//! The tokens that open the admin port, from their file.

use std::fmt;
use std::path::{Path, PathBuf};

use tracing::{error, info};
use zeroize::Zeroizing;

use crate::system::file_stamp::FileStamp;
use crate::system::private_file::read_private;

/// Characters of a token: with 32 of them at random nobody guesses one.
const TOKEN_CHARS_MIN: usize = 32;
const TOKEN_CHARS_MAX: usize = 512;
/// Tokens of a file: a new one beside the old one while those who ask get the new one.
const TOKENS_MAX: usize = 4;
/// With an end of line behind each token.
const FILE_BYTES_MAX: usize = TOKENS_MAX * (TOKEN_CHARS_MAX + 2);

/// Why a file gives no tokens, in one line that names it.
#[derive(Debug)]
pub(crate) struct TokenFileError {
    path: PathBuf,
    cause: String,
}

impl fmt::Display for TokenFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "admin_token_file: {}: {}",
            self.path.display(),
            self.cause
        )
    }
}

/// The file, and hashes of the tokens that it had when it was read last.
pub(super) struct TokenFile {
    path: PathBuf,
    stamp: Option<FileStamp>,
    hashes: Vec<blake3::Hash>,
}

impl TokenFile {
    /// Reads the file for the first time.
    ///
    /// # Errors
    /// [`TokenFileError`].
    pub(super) fn open(path: &Path) -> Result<TokenFile, TokenFileError> {
        let stamp = FileStamp::of(path);
        let hashes = read(path)?;
        Ok(TokenFile {
            path: path.to_path_buf(),
            stamp,
            hashes,
        })
    }

    /// Reads the file if it has changed. One that is gone or wrong has no tokens.
    pub(super) fn reload(&mut self) {
        let stamp = FileStamp::of(&self.path);
        if stamp == self.stamp {
            return;
        }
        self.stamp = stamp;
        match read(&self.path) {
            Ok(hashes) => {
                self.hashes = hashes;
                let (path, tokens) = (self.path.display(), self.hashes.len());
                info!(tokens, "the tokens of the admin port are read anew: {path}");
            }
            Err(error) => {
                self.hashes.clear();
                error!("{error}; no token opens the admin port until that is mended");
            }
        }
    }

    /// Whether no token is in force.
    pub(super) fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Whether this is one of the tokens, in a time that does not tell them.
    pub(super) fn has(&self, token: &[u8]) -> bool {
        if token.len() > TOKEN_CHARS_MAX {
            return false;
        }
        let hash = blake3::hash(token);
        // Two hashes are compared in constant time, and each with all.
        let hashes = self.hashes.iter();
        hashes.fold(false, |has, known| has | (*known == hash))
    }
}

fn read(path: &Path) -> Result<Vec<blake3::Hash>, TokenFileError> {
    let error = |cause: String| TokenFileError {
        path: path.to_path_buf(),
        cause,
    };
    let bytes = read_private(path, FILE_BYTES_MAX).map_err(|it| error(it.cause()))?;
    hashes(&Zeroizing::new(bytes)).map_err(error)
}

/// Of the tokens of a file, in its lines. No text of an error holds a part of one.
fn hashes(text: &[u8]) -> Result<Vec<blake3::Hash>, String> {
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    let mut hashes = Vec::new();
    for (line, token) in text.split(|byte| *byte == b'\n').enumerate() {
        let token = token.strip_suffix(b"\r").unwrap_or(token);
        let line = line + 1;
        if !(TOKEN_CHARS_MIN..=TOKEN_CHARS_MAX).contains(&token.len()) {
            return Err(format!(
                "line {line}: a token has {TOKEN_CHARS_MIN} to {TOKEN_CHARS_MAX} characters, not \
                 {}; openssl rand -hex 32 makes one",
                token.len()
            ));
        }
        let is_of_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(byte);
        if let Some(column) = token.iter().position(|byte| !is_of_token(byte)) {
            let column = column + 1;
            return Err(format!(
                "line {line}, character {column}: a token has letters, digits and -._~+/= alone"
            ));
        }
        hashes.push(blake3::hash(token));
    }
    match hashes.len() {
        0..=TOKENS_MAX => Ok(hashes),
        tokens => Err(format!(
            "it has {tokens} tokens, and at most {TOKENS_MAX} are taken"
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const ONE: &str = "0123456789abcdef0123456789ABCDE=";
    const TWO: &str = "-._~+/=-._~+/=-._~+/=-._~+/=-._~+/=";

    #[test]
    fn a_file_has_one_token_a_line_and_each_defect_is_named_without_the_token() {
        let count = |text: &str| hashes(text.as_bytes()).map(|it| it.len());
        assert_eq!(count(ONE), Ok(1));
        assert_eq!(count(&format!("{ONE}\r\n{TWO}\n")), Ok(2));
        for (text, begin) in [
            (
                String::new(),
                "line 1: a token has 32 to 512 characters, not 0",
            ),
            (
                ONE[1..].to_string(),
                "line 1: a token has 32 to 512 characters, not 31",
            ),
            (
                "a".repeat(513),
                "line 1: a token has 32 to 512 characters, not 513",
            ),
            (format!("{ONE}\n\n"), "line 2: a token has 32"),
            (
                format!("{ONE}\n{ONE} x"),
                "line 2, character 33: a token has letters",
            ),
            ([ONE; 5].join("\n"), "it has 5 tokens, and at most 4"),
        ] {
            let message = count(&text).expect_err("refused");
            assert!(
                message.starts_with(begin) && !message.contains(ONE),
                "{message}"
            );
        }
    }

    #[test]
    fn a_changed_file_counts_at_the_next_check_and_one_that_is_gone_or_open_has_no_token() {
        let folder = std::env::temp_dir().join(format!("penstock-tokens-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("token");
        let put = |text: &str, mode| {
            let new = folder.join("new");
            fs::write(&new, text).expect("written");
            fs::set_permissions(&new, fs::Permissions::from_mode(mode)).expect("set");
            fs::rename(&new, &path).expect("in place");
        };
        put(ONE, 0o644);
        let message = TokenFile::open(&path).err().expect("others may read it");
        assert!(message.to_string().contains("chmod 600"), "{message}");
        put(ONE, 0o600);
        let mut file = TokenFile::open(&path).expect("sound");
        assert!(file.has(ONE.as_bytes()) && !file.has(TWO.as_bytes()) && !file.has(b""));
        assert!(!file.has(&ONE.as_bytes()[..31]) && !file.has(&[b'a'; 9000]));
        put(&format!("{ONE}\n{TWO}\n"), 0o600);
        assert!(!file.has(TWO.as_bytes()), "it was not looked at");
        file.reload();
        assert!(file.has(ONE.as_bytes()) && file.has(TWO.as_bytes()));
        for mode in [0o640, 0o604] {
            // A test of root may give a file to its group.
            let is_of_root = FileStamp::of(&path).is_some() && is_root(&path);
            put(TWO, mode);
            file.reload();
            assert_eq!(file.is_empty(), mode == 0o604 || !is_of_root, "{mode:o}");
        }
        put(TWO, 0o600);
        file.reload();
        assert!(file.has(TWO.as_bytes()) && !file.has(ONE.as_bytes()));
        fs::remove_file(&path).expect("removed");
        file.reload();
        assert!(file.is_empty() && !file.has(TWO.as_bytes()));
        fs::remove_dir_all(&folder).expect("removed");
    }

    fn is_root(path: &Path) -> bool {
        use std::os::unix::fs::MetadataExt;
        fs::metadata(path).expect("there").uid() == 0
    }
}
