//! Who a command logs in as: a name, and a file with the secret. No secret stands on a command
//! line, where every user of the machine reads it.

use std::path::{Path, PathBuf};

use clap::Args;
use penstock::system::private_file::read_private;
use penstock_client::{Identity, Secret};

use super::Failure;

const USER: &str = "PENSTOCK_USER";
const SECRET_FILE: &str = "PENSTOCK_SECRET_FILE";

/// Bytes of a file that are read, at most: no secret is so long.
const FILE_BYTES_MAX: usize = 4 << 10;

/// Who asks.
#[derive(Args, Clone, Default)]
pub struct LoginArgs {
    /// User who asks, or USER/KEY for one of the user's keys; with --secret-file
    #[arg(long, value_name = "NAME", env = USER)]
    user: Option<String>,
    /// File with the password or the key of --user; nobody else may read it
    #[arg(long, value_name = "FILE", env = SECRET_FILE)]
    secret_file: Option<PathBuf>,
}

impl LoginArgs {
    /// As the environment says, for a command without the flags.
    pub fn of_environment() -> LoginArgs {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        LoginArgs {
            user: variable(USER).map(|name| name.to_string_lossy().into_owned()),
            secret_file: variable(SECRET_FILE).map(PathBuf::from),
        }
    }

    /// Reads the secret; `None` if nobody logs in.
    ///
    /// # Errors
    /// One of the two without the other, a name that no user has, a file that cannot be read or
    /// that others may read, or no secret in it.
    pub fn identity(&self) -> Result<Option<Identity>, Failure> {
        match (&self.user, &self.secret_file) {
            (None, None) => Ok(None),
            (Some(user), Some(path)) => {
                let secret = read(path)?;
                Identity::new(user, secret)
                    .map(Some)
                    .map_err(|fault| Failure::usage(format_args!("--user = {user:?}: {fault}")))
            }
            (Some(_), None) => Err(Failure::usage(format_args!(
                "--user needs --secret-file FILE, or {SECRET_FILE}, with the user's secret"
            ))),
            (None, Some(_)) => Err(Failure::usage(format_args!(
                "--secret-file needs --user NAME, or {USER}: whose secret it is"
            ))),
        }
    }
}

fn read(path: &Path) -> Result<Secret, Failure> {
    let shown = path.display();
    let fail = |error: &dyn std::fmt::Display| {
        Failure::usage(format_args!("--secret-file {shown}: {error}"))
    };
    let bytes = read_private(path, FILE_BYTES_MAX).map_err(|error| fail(&error.cause()))?;
    Secret::of_file(bytes).map_err(|fault| fail(&fault))
}
