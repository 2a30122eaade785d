//! The commit of a source tree, read by git.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Names the commit where the tree is a copy without its history, such as one in a container.
pub const GIVEN: &str = "SOURCE_COMMIT";

/// What the version tells of the tree in `folder`; `given` is the value of [`GIVEN`].
pub fn describe(given: Option<&str>, folder: &Path) -> String {
    let is_id = |text: &&str| (7..=40).contains(&text.len()) && text.bytes().all(is_hex);
    if let Some(id) = given.map(str::trim).filter(is_id) {
        return format!("commit {}", &id[..id.len().min(12)]);
    }
    match git(folder, &["rev-parse", "HEAD"]).filter(|id| is_id(&id.as_str())) {
        Some(id) => format!("commit {}", &id[..12.min(id.len())]),
        None => "commit unknown: built from files without a git history".into(),
    }
}

/// The files that change when another commit is checked out.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let mut named = vec!["HEAD".to_string(), "packed-refs".to_string()];
    named.extend(git(folder, &["symbolic-ref", "--quiet", "HEAD"]));
    let paths = named
        .iter()
        .filter_map(|name| git(folder, &["rev-parse", "--git-path", name]));
    let paths = paths.map(|path| folder.join(path));
    // A file that is missing would run the script each time.
    paths.filter(|path| path.exists()).collect()
}

fn is_hex(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

/// What git prints in the tree, if `folder` is part of one and not only lies in another.
fn git(folder: &Path, words: &[&str]) -> Option<String> {
    let tracked = ["ls-files", "--error-unmatch", "Cargo.toml"];
    let run = |words: &[&str]| {
        let output = Command::new("git")
            .current_dir(folder)
            .args(words)
            .output()
            .ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_string())
    };
    run(&tracked)?;
    run(words).filter(|text| !text.is_empty())
}
