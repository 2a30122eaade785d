//! The files of a repository.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders whose files nobody writes by hand: build products, data, corpora of the fuzzers.
const PASSED_OVER: [&str; 4] = ["target", "penstock-data", "__fuzz__", ".git"];
/// Kinds of files whose text is held to the limits.
const KINDS: [&str; 4] = ["rs", "md", "sh", "toml"];

/// The code and the documents of a repository, and the names of all of its files.
pub struct Tree {
    root: PathBuf,
    texts: BTreeMap<String, String>,
    names: Vec<String>,
}

impl Tree {
    /// Reads every file below `root`.
    ///
    /// # Errors
    /// A folder or a file that cannot be read: its path and the reason.
    pub fn read(root: &Path) -> Result<Tree, String> {
        let mut tree = Tree {
            root: root.to_path_buf(),
            texts: BTreeMap::new(),
            names: Vec::new(),
        };
        tree.walk("")?;
        Ok(tree)
    }

    fn walk(&mut self, folder: &str) -> Result<(), String> {
        let path = self.root.join(folder);
        let with_path = |error: std::io::Error| format!("{}: {error}", path.display());
        for entry in fs::read_dir(&path).map_err(with_path)? {
            let entry = entry.map_err(with_path)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if PASSED_OVER.contains(&name.as_str()) {
                continue;
            }
            let path = match folder {
                "" => name.clone(),
                folder => format!("{folder}/{name}"),
            };
            if entry.file_type().map_err(with_path)?.is_dir() {
                self.walk(&path)?;
                continue;
            }
            let kind = name.rsplit_once('.').map_or("", |(_, kind)| kind);
            if KINDS.contains(&kind) || path == ".ci/run" {
                let text = fs::read_to_string(entry.path()).map_err(with_path)?;
                self.texts.insert(path.clone(), text);
            }
            self.names.push(path);
        }
        Ok(())
    }

    /// The files whose path ends like this, with their text, by path.
    pub fn texts<'a>(&'a self, end: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.texts
            .iter()
            .filter(move |(path, _)| path.ends_with(end))
            .map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// The text of one file.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.texts.get(path).map(String::as_str)
    }

    /// Whether a file or a folder of that path exists.
    pub fn exists(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }

    /// Whether a file anywhere has that name.
    pub fn has_name(&self, name: &str) -> bool {
        self.names
            .iter()
            .any(|path| path.rsplit('/').next() == Some(name))
    }
}
