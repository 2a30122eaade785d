//! A folder of this run on the disk, gone at its end, and sizes in words.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Outcome;

pub struct Scratch(tempfile::TempDir);

impl Scratch {
    /// A new folder under `parent`, or under the system's folder for temporary files.
    pub fn new(parent: Option<&Path>) -> Outcome<Scratch> {
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_path_buf);
        Ok(Scratch(
            tempfile::Builder::new()
                .prefix("penstock-peers-")
                .tempdir_in(parent)?,
        ))
    }

    /// What its file system has free, by `df`, in bytes.
    pub fn free_bytes(&self) -> Outcome<u64> {
        let df = Command::new("df")
            .args(["--block-size=1", "--output=avail"])
            .arg(self.0.path())
            .output()?;
        let text = String::from_utf8(df.stdout)?;
        let number = text
            .lines()
            .nth(1)
            .and_then(|line| line.trim().parse().ok());
        number.ok_or_else(|| format!("df {}: {}", self.0.path().display(), df.status).into())
    }

    /// A path in it that does not exist yet, or was emptied.
    pub fn fresh(&self, name: &str) -> Outcome<PathBuf> {
        let path = self.0.path().join(name);
        remove(&path)?;
        Ok(path)
    }
}

/// Removes a folder with all that is in it; none is fine.
pub fn remove(path: &Path) -> Outcome<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// What the files under a path take on the disk, in bytes. A file that vanishes meanwhile takes
/// none.
pub fn disk_bytes(path: &Path) -> u64 {
    let Ok(metadata) = std::fs::symlink_metadata(path) else {
        return 0;
    };
    if !metadata.is_dir() {
        return metadata.blocks() * 512;
    }
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| disk_bytes(&entry.path())).sum()
}

/// Drops the page cache of the files under a path, by `dd`: the next reader gets their bytes from
/// the device. The files are made durable first.
#[cfg_attr(not(feature = "engines"), allow(dead_code))]
pub fn forget(path: &Path) -> Outcome<()> {
    if path.is_dir() {
        for entry in std::fs::read_dir(path)? {
            forget(&entry?.path())?;
        }
        return Ok(());
    }
    std::fs::File::open(path)?.sync_all()?;
    let mut file = std::ffi::OsString::from("if=");
    file.push(path);
    let dd = Command::new("dd")
        .arg(file)
        .args(["iflag=nocache", "count=0", "status=none"])
        .status()?;
    match dd.success() {
        true => Ok(()),
        false => Err(format!("dd {}: {dd}", path.display()).into()),
    }
}

/// `10m`, `1g`, `64k`, `500`: powers of ten for numbers of things.
pub fn quantity(text: &str) -> Result<u64, String> {
    scaled(text, 1000)
}

/// The same in powers of two, for bytes; a trailing `ib` or `b` is fine.
pub fn bytes(text: &str) -> Result<u64, String> {
    let lower = text.to_ascii_lowercase();
    scaled(lower.trim_end_matches('b').trim_end_matches('i'), 1024)
}

fn scaled(text: &str, base: u64) -> Result<u64, String> {
    let lower = text.to_ascii_lowercase();
    let (digits, power) = match lower.chars().last() {
        Some('k') => (&lower[..lower.len() - 1], 1),
        Some('m') => (&lower[..lower.len() - 1], 2),
        Some('g') => (&lower[..lower.len() - 1], 3),
        _ => (lower.as_str(), 0),
    };
    digits
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(base.pow(power)))
        .filter(|&number| number > 0)
        .ok_or_else(|| format!("{text:?}: a whole number from 1 on, with k, m or g if you like"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_scale_by_ten_and_bytes_by_two() {
        assert_eq!(quantity("10m"), Ok(10_000_000));
        assert_eq!(bytes("1g"), Ok(1 << 30));
        assert_eq!(bytes("64KiB"), Ok(65_536));
        assert!(quantity("0").is_err() && bytes("x").is_err() && bytes("99999999999g").is_err());
    }

    #[test]
    fn a_scratch_folder_is_gone_with_what_was_in_it() {
        let scratch = Scratch::new(None).unwrap();
        let path = scratch.fresh("data").unwrap();
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("file"), vec![1; 8192]).unwrap();
        forget(&path).unwrap();
        assert!(disk_bytes(&path) >= 8192);
        drop(scratch);
        assert!(!path.exists());
    }
}
