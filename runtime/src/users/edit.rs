//! Edits the users' file on the disk: the file has the old text or the new one, whole.
//!
//! ```text
//! open, lock --> read --> edit in memory --> FILE.new, synced --> renamed --> folder synced
//!     ^                                                              |
//!     +-- again, if the name stands for another file by then         +-- unlocked by the end
//! ```

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use penstock_net::limits::USERS_FILE_BYTES_MAX;
use penstock_net::users::{EditError, UsersText};

use crate::system::private_file::{PrivateFileError, open_private, read_opened};
use crate::system::random_u64;

use super::{UsersFileError, new_decoy};

/// How often the file may be replaced while it is waited for.
const LOCKS_TRIED_MAX: usize = 100;
const MODE: u32 = 0o600;

/// Why an edit of the file was not made. The file is as it was.
#[derive(Debug)]
pub enum EditFileError {
    /// The file is not used as it is.
    File(UsersFileError),
    /// The edit cannot be made.
    Edit(EditError),
    /// The new text cannot be written.
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

impl fmt::Display for EditFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EditFileError::File(error) => error.fmt(f),
            EditFileError::Edit(error) => error.fmt(f),
            EditFileError::Write { path, error } => {
                write!(f, "{}: cannot be written: {error}", path.display())
            }
        }
    }
}

impl std::error::Error for EditFileError {}

/// Edits the file at `path`. Two edits at the same time are made one after the other. A file that
/// is missing is made if `may_begin`.
///
/// # Errors
/// [`EditFileError`].
pub fn edit(
    path: &Path,
    may_begin: bool,
    edit: impl FnOnce(&mut UsersText) -> Result<(), EditError>,
) -> Result<(), EditFileError> {
    // What a link leads to is replaced, not the link.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let failed = |error| EditFileError::Write {
        path: path.to_path_buf(),
        error,
    };
    let file = match locked(path) {
        Err(EditFileError::File(UsersFileError::File(error)))
            if error.is_missing() && may_begin =>
        {
            begin(path).map_err(failed)?;
            locked(path)?
        }
        locked => locked?,
    };
    let metadata = file.metadata().map_err(failed)?;
    let kept = file.try_clone().map_err(failed)?;
    let unsound = |error| EditFileError::File(UsersFileError::File(error));
    let bytes = read_opened(path, file, &metadata, USERS_FILE_BYTES_MAX).map_err(unsound)?;
    let text = String::from_utf8(bytes).unwrap_or_else(|error| {
        // The line that is no UTF-8 is told by the reader.
        String::from_utf8_lossy(error.as_bytes()).into_owned()
    });
    let mut text = UsersText::of(text).map_err(|error| {
        EditFileError::File(UsersFileError::Text {
            path: path.to_path_buf(),
            error,
        })
    })?;
    let before = text.text().to_string();
    edit(&mut text).map_err(EditFileError::Edit)?;
    if text.text() != before {
        let owner = (metadata.uid(), metadata.gid());
        replace(path, text.text(), Some(owner)).map_err(failed)?;
    }
    // The lock ends here.
    drop(kept);
    Ok(())
}

/// Makes an empty file, unless another process is faster.
fn begin(path: &Path) -> io::Result<()> {
    let decoy = new_decoy()?;
    let text = UsersText::begin(&decoy);
    let tmp = beside(path, &format!("begin.{:016x}", random_u64()?));
    write_new(&tmp, text.text(), None)?;
    // A link is not made over a file that is there, and the file is whole when it has its name.
    let linked = fs::hard_link(&tmp, path);
    fs::remove_file(&tmp)?;
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => sync_folder(path),
    }
}

/// The file that the name stands for, locked against other edits.
fn locked(path: &Path) -> Result<File, EditFileError> {
    let failed = |error| EditFileError::Write {
        path: path.to_path_buf(),
        error,
    };
    for _ in 0..LOCKS_TRIED_MAX {
        let opened = open_private(path, true);
        let opened = opened.map_err(|error| EditFileError::File(UsersFileError::File(error)));
        let (file, metadata) = opened?;
        file.lock().map_err(failed)?;
        // Whoever had the lock may have put another file in its place.
        match fs::metadata(path) {
            Ok(now) if (now.dev(), now.ino()) == (metadata.dev(), metadata.ino()) => {
                return Ok(file);
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let path = path.to_path_buf();
                let error = PrivateFileError::Unreadable { path, error };
                return Err(EditFileError::File(UsersFileError::File(error)));
            }
            Err(error) => return Err(failed(error)),
        }
    }
    Err(failed(io::Error::other(
        "others replace it again and again",
    )))
}

/// Puts another text in the place of the file, which is locked.
fn replace(path: &Path, text: &str, owner: Option<(u32, u32)>) -> io::Result<()> {
    let tmp = beside(path, "new");
    // Of an edit that was killed: who has the lock may remove it.
    match fs::remove_file(&tmp) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let written = write_new(&tmp, text, owner).and_then(|()| fs::rename(&tmp, path));
    if written.is_err() {
        let _ = fs::remove_file(&tmp);
    }
    written?;
    sync_folder(path)
}

/// Writes a new file durably. It has this owner: a server that runs as another user than who edits
/// must be able to read it.
fn write_new(path: &Path, text: &str, owner: Option<(u32, u32)>) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(MODE).open(path)?;
    if let Some((uid, gid)) = owner {
        let made = file.metadata()?;
        if (made.uid(), made.gid()) != (uid, gid) {
            fchown(&file, Some(uid), Some(gid))?;
        }
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// A name beside the file.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(".");
    name.push(ending);
    name.into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::thread;

    use super::*;
    use crate::users::read_users;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let name = format!("penstock-users-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir_all(&path).expect("a folder");
            Folder(path)
        }

        fn names(&self) -> Vec<String> {
            let all = fs::read_dir(&self.0).expect("a folder");
            let all = all.map(|it| it.expect("a name").file_name().into_string().expect("text"));
            all.collect()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn certificate(name: &str) -> impl FnOnce(&mut UsersText) -> Result<(), EditError> {
        move |text| text.add_with_certificate(name, name)
    }

    #[test]
    fn edits_at_the_same_time_are_all_made_and_leave_one_private_file() {
        let folder = Folder::new("edits");
        let path = folder.0.join("users");
        thread::scope(|scope| {
            for number in 0..8 {
                let path = &path;
                scope.spawn(move || {
                    for round in 0..4 {
                        let name = format!("u{number}-{round}");
                        edit(path, true, certificate(&name)).expect("edited");
                    }
                });
            }
        });
        let users = read_users(&path).expect("sound");
        assert_eq!(users.len(), 32);
        let mode = fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(folder.names(), ["users"]);
    }

    #[test]
    fn an_edit_that_is_not_made_leaves_the_file_as_it_was() {
        let folder = Folder::new("refused");
        let path = folder.0.join("users");
        let message = edit(&path, false, certificate("ann"))
            .expect_err("missing")
            .to_string();
        assert!(
            message.contains("No such file") && message.contains("users"),
            "{message}"
        );
        edit(&path, true, certificate("ann")).expect("edited");
        let before = fs::read(&path).expect("read");
        let inode = fs::metadata(&path).expect("there").ino();
        let message = edit(&path, true, certificate("ann"))
            .expect_err("twice")
            .to_string();
        assert!(message.contains("user ann stands in line"), "{message}");
        edit(&path, true, |_| Ok(())).expect("nothing to change");
        assert_eq!(
            fs::metadata(&path).expect("there").ino(),
            inode,
            "it was not replaced"
        );
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("set");
        let message = edit(&path, true, certificate("bob"))
            .expect_err("open")
            .to_string();
        assert!(
            message.contains("others may read it (mode 0644)"),
            "{message}"
        );
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("set");
        fs::write(&path, [&before[..], b"raed x\n"].concat()).expect("written");
        let message = edit(&path, true, certificate("bob"))
            .expect_err("unsound")
            .to_string();
        assert!(
            message.contains("users:") && message.contains("\"raed\""),
            "{message}"
        );
        assert_eq!(folder.names(), ["users"]);
    }
}
