//! The users' file of a server: read at the start, and again whenever it changes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use penstock_net::users::Users;
use tracing::{info, warn};

use super::audit::{Audit, Field};
use super::error::{ServeError, system};
use crate::config::Config;
use crate::startup::node::OpenError;
use crate::system::file_stamp::FileStamp;
use crate::users::read_users;

/// How often the file is looked at: every core has a change within a second.
const CHECK_EVERY: Duration = Duration::from_millis(300);

/// Gives every core other users.
pub(super) type DeliverUsers = Box<dyn Fn(Arc<Users>) + Send>;

/// The users' file, as it was read last.
#[derive(Debug)]
pub(super) struct ServedUsers {
    path: PathBuf,
    stamp: Option<FileStamp>,
    users: Arc<Users>,
}

impl ServedUsers {
    /// The users of the file that the configuration names, if it names one.
    ///
    /// # Errors
    /// As [`ServedUsers::open`].
    pub(super) fn of(config: &Config) -> Result<Option<Self>, OpenError> {
        let path = config.users.as_deref();
        path.map(ServedUsers::open).transpose()
    }

    /// Reads the file for the first time.
    ///
    /// # Errors
    /// [`OpenError::Option`] that names the file, and the line of what is wrong.
    fn open(path: &Path) -> Result<Self, OpenError> {
        let stamp = FileStamp::of(path);
        let users = read(path).map_err(|text| OpenError::Option(format!("--users {text}")))?;
        Ok(ServedUsers {
            path: path.to_path_buf(),
            stamp,
            users: Arc::new(users),
        })
    }

    /// Those who are let in.
    pub(super) fn users(&self) -> Arc<Users> {
        Arc::clone(&self.users)
    }

    /// Reads the file if it has changed. Returns its users if they are others.
    ///
    /// # Errors
    /// What is wrong with it, once for each change; the users of before stay.
    fn reload(&mut self) -> Result<Option<Arc<Users>>, String> {
        let stamp = FileStamp::of(&self.path);
        if stamp == self.stamp {
            return Ok(None);
        }
        self.stamp = stamp;
        let users = read(&self.path)?;
        if users == *self.users {
            return Ok(None);
        }
        self.users = Arc::new(users);
        Ok(Some(self.users()))
    }

    /// Watches the file on a thread of its own.
    ///
    /// # Errors
    /// [`ServeError`] if there is no thread.
    pub(super) fn watch(
        mut self,
        deliver: DeliverUsers,
        audit: Audit,
    ) -> Result<UsersWatch, ServeError> {
        let (stop, stopped) = flume::bounded::<()>(0);
        let reloads = move || {
            while let Err(flume::RecvTimeoutError::Timeout) = stopped.recv_timeout(CHECK_EVERY) {
                match self.reload() {
                    Ok(None) => {}
                    Ok(Some(users)) => {
                        let (count, path) = (users.len(), self.path.display());
                        info!(
                            users = count,
                            "the users' file {path} is read anew: {count} users"
                        );
                        audit.report("users", &[("users", Field::Number(count as u64))]);
                        deliver(users);
                    }
                    Err(problem) => {
                        audit.report("users_refused", &[("cause", Field::Text(&problem))]);
                        warn!("{problem}; the users of before stay");
                    }
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("penstock-users".into())
            .spawn(reloads)
            .map_err(system("start the thread that watches the users' file"))?;
        Ok(UsersWatch {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

/// The thread that watches the file; ends when this is dropped.
pub(super) struct UsersWatch {
    stop: Option<flume::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for UsersWatch {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn read(path: &Path) -> Result<Users, String> {
    read_users(path).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const DECOY: &str = "decoy 3q2+7wAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n";

    fn write(path: &Path, text: &str, mode: u32) {
        fs::write(path, text).expect("written");
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("set");
    }

    #[test]
    fn a_change_is_seen_once_a_defect_is_reported_once_and_the_users_of_before_stay() {
        let name = format!("penstock-users-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        write(&path, DECOY, 0o644);
        let message = ServedUsers::open(&path).expect_err("others may read it");
        assert!(message.to_string().contains("chmod 600"), "{message}");
        write(&path, DECOY, 0o600);
        let mut served = ServedUsers::open(&path).expect("sound");
        assert!(served.reload().expect("as it was").is_none());
        let bob = format!("{DECOY}user bob\ncertificate bob.shop\nread \"\"\n");
        write(&path, &bob, 0o600);
        let users = served.reload().expect("sound").expect("another one");
        assert!(users.find("bob").is_some());
        assert!(served.reload().expect("as it was").is_none());
        write(&path, &format!("{bob}user\n"), 0o600);
        let message = served.reload().expect_err("a line without a name");
        assert!(message.contains(":5: "), "{message}");
        assert!(served.reload().expect("told already").is_none());
        assert_eq!(served.users().len(), 1);
        fs::remove_file(&path).expect("removed");
        served.reload().expect_err("it is gone");
        assert_eq!(served.users().len(), 1);
    }
}
