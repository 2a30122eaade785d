//! The texts of the scripts of a node, by their digests.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mlua::{LuaOptions, StdLib};
use sha1::{Digest, Sha1};

use crate::{sandbox, shebang};

/// Bytes of one script, at most.
pub const SCRIPT_BYTES_MAX: usize = 1 << 20;
/// Scripts of a node that came by EVAL alone, at most, as Valkey has it.
pub const EVALUATED_MAX: usize = 500;
/// Bytes of the scripts of a node, each with [`ENTRY_BYTES`], at most.
pub const SCRIPTS_BYTES_MAX: usize = 32 << 20;
/// What the node keeps of a script beside its text, in bytes.
pub const ENTRY_BYTES: usize = 256;

/// Bytes of the interpreter that checks a script, at most.
const CHECK_BYTES_MAX: usize = 16 << 20;
/// The name of a script in errors.
pub(crate) const SCRIPT_NAME: &str = "@user_script";

/// Why a script is not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadError {
    /// The text is no script; the reason names the line.
    Syntax(String),
    /// The first line of the text asks for what is not there.
    FirstLine(String),
    /// The text is longer than [`SCRIPT_BYTES_MAX`].
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// [`SCRIPTS_BYTES_MAX`] is met by scripts that clients have loaded.
    Full {
        /// How many there are.
        scripts: usize,
        /// What all would take.
        bytes: usize,
    },
}

impl fmt::Display for LoadError {
    /// The error reply, its code included.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Syntax(reason) => {
                write!(out, "ERR Error compiling script (new function): {reason}")
            }
            LoadError::FirstLine(reason) => write!(out, "ERR {reason}"),
            LoadError::TooLong { bytes } => write!(
                out,
                "ERR script too long: it has {bytes} bytes, the limit is {SCRIPT_BYTES_MAX}"
            ),
            LoadError::Full { scripts, bytes } => write!(
                out,
                "ERR no room for another script: with the {scripts} that are loaded it would take \
                 {bytes} bytes, {ENTRY_BYTES} for each beside its text, and {SCRIPTS_BYTES_MAX} \
                 is the limit; SCRIPT FLUSH makes room"
            ),
        }
    }
}

impl std::error::Error for LoadError {}

/// The SHA-1 of a script, which is its name.
#[must_use]
pub fn digest(text: &[u8]) -> [u8; 20] {
    Sha1::digest(text).into()
}

/// The scripts that clients of a node have sent. The cores share it and ask for a script that they
/// have not compiled.
///
/// A loaded script stays until [`ScriptTexts::flush`]. A script that came with an EVAL goes when
/// room is needed or [`EVALUATED_MAX`] others came later; the one that was not used for the longest
/// time goes first.
#[derive(Debug, Default)]
pub struct ScriptTexts {
    texts: Mutex<Texts>,
    generation: AtomicU64,
}

#[derive(Debug, Default)]
struct Texts {
    by_digest: HashMap<[u8; 20], Entry>,
    /// Scripts that may go, by the time of their last use.
    evaluated: BTreeMap<u64, [u8; 20]>,
    bytes: usize,
    clock: u64,
}

#[derive(Debug)]
struct Entry {
    text: Arc<[u8]>,
    /// When the script was used last; none if it stays.
    used: Option<u64>,
}

impl ScriptTexts {
    /// No scripts.
    #[must_use]
    pub fn new() -> Self {
        ScriptTexts::default()
    }

    /// Keeps a script until [`ScriptTexts::flush`], if it compiles.
    ///
    /// # Errors
    ///
    /// [`LoadError`] says why the script is not kept.
    pub fn load(&self, text: &[u8]) -> Result<[u8; 20], LoadError> {
        check(text)?;
        let digest = digest(text);
        let mut texts = self.lock();
        match texts.keep(digest, text, Keeping::Loaded) {
            true => Ok(digest),
            false => Err(LoadError::Full {
                scripts: texts.by_digest.len(),
                bytes: texts.bytes + taken_by(text),
            }),
        }
    }

    /// Whether a script is there.
    #[must_use]
    pub fn exists(&self, digest: &[u8; 20]) -> bool {
        self.lock().by_digest.contains_key(digest)
    }

    /// Forgets all scripts. No run that begins later, on any core, finds one of them.
    pub fn flush(&self) {
        let mut texts = self.lock();
        *texts = Texts::default();
        // While the lock is held: a core that sees the new number finds no old text.
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// How many scripts there are, and what they take, in bytes.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        let texts = self.lock();
        (texts.by_digest.len(), texts.bytes)
    }

    /// How often all scripts were forgotten.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The text of a script.
    pub(crate) fn get(&self, digest: &[u8; 20]) -> Option<Arc<[u8]>> {
        let mut texts = self.lock();
        texts.touch(digest);
        texts
            .by_digest
            .get(digest)
            .map(|entry| Arc::clone(&entry.text))
    }

    /// Keeps a script that came with an EVAL and that compiles, while there is room.
    pub(crate) fn publish(&self, digest: [u8; 20], text: &[u8]) {
        self.lock().keep(digest, text, Keeping::Evaluated);
    }

    fn lock(&self) -> MutexGuard<'_, Texts> {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keeping {
    Loaded,
    Evaluated,
}

impl Texts {
    fn touch(&mut self, digest: &[u8; 20]) {
        self.clock += 1;
        let entry = self.by_digest.get_mut(digest);
        if let Some(used) = entry.and_then(|entry| entry.used.as_mut()) {
            self.evaluated.remove(used);
            *used = self.clock;
            self.evaluated.insert(self.clock, *digest);
        }
    }

    /// Whether the script is kept.
    fn keep(&mut self, digest: [u8; 20], text: &[u8], keeping: Keeping) -> bool {
        if let Some(entry) = self.by_digest.get_mut(&digest) {
            if keeping == Keeping::Loaded
                && let Some(used) = entry.used.take()
            {
                self.evaluated.remove(&used);
            }
            self.touch(&digest);
            return true;
        }
        let evaluated_max = match keeping {
            Keeping::Loaded => usize::MAX,
            Keeping::Evaluated => EVALUATED_MAX - 1,
        };
        while self.evaluated.len() > evaluated_max
            || self.bytes + taken_by(text) > SCRIPTS_BYTES_MAX
        {
            let Some((_, oldest)) = self.evaluated.pop_first() else {
                return false;
            };
            let entry = self
                .by_digest
                .remove(&oldest)
                .expect("both know the script");
            self.bytes -= taken_by(&entry.text);
        }
        self.clock += 1;
        let used = (keeping == Keeping::Evaluated).then_some(self.clock);
        if let Some(used) = used {
            self.evaluated.insert(used, digest);
        }
        self.bytes += taken_by(text);
        let text = Arc::from(text);
        self.by_digest.insert(digest, Entry { text, used });
        true
    }
}

/// Bytes that a script counts.
fn taken_by(text: &[u8]) -> usize {
    text.len() + ENTRY_BYTES
}

/// Whether a text is short enough and has a first line of ours.
pub(crate) fn check_form(text: &[u8]) -> Result<shebang::Body<'_>, LoadError> {
    if text.len() > SCRIPT_BYTES_MAX {
        return Err(LoadError::TooLong { bytes: text.len() });
    }
    shebang::read(text).map_err(LoadError::FirstLine)
}

/// Compiles a text in an interpreter of its own.
fn check(text: &[u8]) -> Result<(), LoadError> {
    let body = check_form(text)?;
    let syntax = |error: mlua::Error| LoadError::Syntax(reason(error));
    let lua = mlua::Lua::new_with(StdLib::NONE, LuaOptions::new()).map_err(syntax)?;
    lua.set_memory_limit(CHECK_BYTES_MAX).map_err(syntax)?;
    let no_globals = lua.create_table().map_err(syntax)?;
    let compiled = sandbox::compile(&lua, body.text, SCRIPT_NAME, &no_globals);
    compiled.map(drop).map_err(syntax)
}

/// What the compiler said.
pub(crate) fn reason(error: mlua::Error) -> String {
    match error {
        mlua::Error::SyntaxError { message, .. } => message,
        error => error.to_string(),
    }
}
