//! Folders of tests. A server leaves hundreds of megabytes in its data directory, so a folder goes
//! when the test that made it ends. That of a failed test stays, for a person to read.

use std::cell::{Cell, RefCell};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Once;

/// The folders that the tests of one thread have made.
struct Folders(Vec<PathBuf>);

impl Drop for Folders {
    fn drop(&mut self) {
        if HAS_FAILED.get() {
            return;
        }
        for path in &self.0 {
            let _ = fs::remove_dir_all(path);
        }
    }
}

thread_local! {
    static HAS_FAILED: Cell<bool> = const { Cell::new(false) };
    static FOLDERS: RefCell<Folders> = const { RefCell::new(Folders(Vec::new())) };
}

static NOTES_FAILURES: Once = Once::new();

/// The path of a folder that does not exist. `name` is of this test alone. What the test makes
/// there is removed when its thread ends.
pub fn folder(name: impl AsRef<Path>) -> PathBuf {
    // The harness catches the panic of a test before its thread ends.
    NOTES_FAILURES.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            HAS_FAILED.set(true);
            before(info);
        }));
    });
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&path);
    FOLDERS.with_borrow_mut(|folders| folders.0.push(path.clone()));
    path
}
