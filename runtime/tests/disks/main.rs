//! Disks, data directories and spare segments on real files.

mod calibration;
mod directory;
mod disk;
mod disk_room;
mod full_disk;
mod hanging_disk;
mod machine;
mod snapshots;
mod spares;

use std::fs;
use std::path::{Path, PathBuf};

use penstock::directory::{Directory, DirectoryOptions};

/// A folder for one test, empty at its start and gone at its end.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("create the test's folder");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// A data directory inside.
    pub(crate) fn data(&self) -> Directory {
        Directory::open(&self.0.join("data"), options()).expect("open the data directory")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn options() -> DirectoryOptions {
    DirectoryOptions {
        shards_of_new: 2,
        segment_bytes: 1 << 20,
    }
}

/// A sequence that a printed seed repeats (splitmix64).
pub(crate) struct Seeded(u64);

impl Seeded {
    pub(crate) fn new(seed: u64) -> Self {
        println!("seed {seed}");
        Self(seed)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}
