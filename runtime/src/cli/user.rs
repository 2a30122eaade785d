//! `penstock user`: the users' file, edited so that a server that reads it sees the old text or the
//! new one.

use std::fmt;
use std::io::{self, Read};
use std::path::PathBuf;

use clap::{Args, Subcommand};
use penstock::users::{EditFileError, edit, new_key, new_password, new_salt, read_users};
use penstock_net::auth::{SECRET_BYTES_MAX, Secret, SecretKind, Verifier};
use penstock_net::users::{EditError, User, UsersText};

use super::output::Output;
use super::{EXIT_CODES, Failure};

pub const USER_EXAMPLES: &str = "\
A secret is printed once, alone on standard output, and kept nowhere: the file has what checks it.
The login of a key is USER/KEY. A running server takes a change within a second.

Examples:
  export PENSTOCK_USERS=/etc/penstock/users
  penstock user add ann                                 prints a new password
  penstock user add bob --password-stdin < secret.txt
  penstock user add till --key one                      prints a new key; the login is till/one
  penstock user add desk --certificate desk.shop.example
  penstock user key till two                            the next key, before the first goes
  penstock user key till one --remove
  penstock user grant till run buy hold on stock: order:
  penstock user grant ann read ''                       all keys
  penstock user revoke till run hold
  penstock user list
  penstock user remove bob";

const WORDS_HELP: &str = "\
A right and what it is for, as a line of the file has it: read PREFIX..., write PREFIX...,
admin PREFIX..., run PROGRAM... on PREFIX... A prefix is all keys that begin so, '' all keys, and
* every program. A prefix in quotes may have \\x01 for a byte: read '\"a\\x00b\"'.";

/// `penstock user`.
#[derive(Subcommand)]
pub enum UserCommand {
    /// Add a user, who has no right yet, and print a new password, or a new key
    #[command(after_help = format!("{USER_EXAMPLES}\n\n{EXIT_CODES}"))]
    Add(AddArgs),
    /// Give a user another password, and print it
    #[command(after_help = format!("{USER_EXAMPLES}\n\n{EXIT_CODES}"))]
    Password(PasswordArgs),
    /// Give a user one more machine key, and print it; or take one away
    #[command(after_help = format!("{USER_EXAMPLES}\n\n{EXIT_CODES}"))]
    Key(KeyArgs),
    /// Say which client certificate logs a user in
    #[command(after_help = format!("{USER_EXAMPLES}\n\n{EXIT_CODES}"))]
    Certificate(CertificateArgs),
    /// Grant a right
    #[command(after_help = format!("{WORDS_HELP}\n\n{USER_EXAMPLES}\n\n{EXIT_CODES}"))]
    Grant(GrantArgs),
    /// Take a right back; without prefixes, all of it
    #[command(after_help = format!("{WORDS_HELP}\n\n{USER_EXAMPLES}\n\n{EXIT_CODES}"))]
    Revoke(GrantArgs),
    /// Print the users and their rights, without what is kept of secrets
    #[command(after_help = format!("{USER_EXAMPLES}\n\n{EXIT_CODES}"))]
    List(ListArgs),
    /// Remove a user
    #[command(after_help = format!("{USER_EXAMPLES}\n\n{EXIT_CODES}"))]
    Remove(RemoveArgs),
}

/// Where the users are.
#[derive(Args)]
struct FileArgs {
    /// The users' file
    #[arg(long, value_name = "FILE", env = "PENSTOCK_USERS")]
    users: PathBuf,
}

/// Arguments of `penstock user add`.
#[derive(Args)]
pub struct AddArgs {
    /// Letters, digits, _ . and -
    name: String,
    /// Take the password from standard input, one line, in place of a new one
    #[arg(long)]
    password_stdin: bool,
    /// Make a machine key with this name in place of a password
    #[arg(long, value_name = "KEY", conflicts_with = "password_stdin")]
    key: Option<String>,
    /// Let a client certificate with this name log the user in, without a password
    #[arg(long, value_name = "NAME", conflicts_with_all = ["password_stdin", "key"])]
    certificate: Option<String>,
    #[command(flatten)]
    file: FileArgs,
}

/// Arguments of `penstock user password`.
#[derive(Args)]
pub struct PasswordArgs {
    /// The user
    name: String,
    /// Take the password from standard input, one line, in place of a new one
    #[arg(long)]
    password_stdin: bool,
    #[command(flatten)]
    file: FileArgs,
}

/// Arguments of `penstock user key`.
#[derive(Args)]
pub struct KeyArgs {
    /// The user
    name: String,
    /// The name of the key: letters, digits, _ . and -
    key: String,
    /// Take this key from the user
    #[arg(long)]
    remove: bool,
    #[command(flatten)]
    file: FileArgs,
}

/// Arguments of `penstock user certificate`.
#[derive(Args)]
pub struct CertificateArgs {
    /// The user
    name: String,
    /// The name in the certificate
    certificate: String,
    #[command(flatten)]
    file: FileArgs,
}

/// Arguments of `penstock user grant` and `revoke`.
#[derive(Args)]
pub struct GrantArgs {
    /// The user
    name: String,
    /// read, write, run or admin, and what for
    #[arg(required = true, value_name = "RIGHT PREFIX")]
    words: Vec<String>,
    #[command(flatten)]
    file: FileArgs,
}

/// Arguments of `penstock user list`.
#[derive(Args)]
pub struct ListArgs {
    /// This user alone
    name: Option<String>,
    #[command(flatten)]
    file: FileArgs,
}

/// Arguments of `penstock user remove`.
#[derive(Args)]
pub struct RemoveArgs {
    /// The user
    name: String,
    #[command(flatten)]
    file: FileArgs,
}

impl UserCommand {
    /// Runs the command.
    pub fn run(self) -> Result<(), Failure> {
        match self {
            UserCommand::Add(args) => args.run(),
            UserCommand::Password(args) => args.run(),
            UserCommand::Key(args) => args.run(),
            UserCommand::Certificate(args) => args
                .file
                .edit(|text| text.set_certificate(&args.name, &args.certificate)),
            UserCommand::Grant(args) => args.file.edit(|text| text.grant(&args.name, &args.words)),
            UserCommand::Revoke(args) => {
                args.file.edit(|text| text.revoke(&args.name, &args.words))
            }
            UserCommand::List(args) => args.run(),
            UserCommand::Remove(args) => args.file.edit(|text| text.remove(&args.name)),
        }
    }
}

impl FileArgs {
    fn edit(
        &self,
        change: impl FnOnce(&mut UsersText) -> Result<(), EditError>,
    ) -> Result<(), Failure> {
        edit(&self.users, false, change).map_err(failure)
    }
}

impl AddArgs {
    fn run(self) -> Result<(), Failure> {
        let AddArgs { name, key, .. } = &self;
        if let Some(certificate) = &self.certificate {
            let add = |text: &mut UsersText| text.add_with_certificate(name, certificate);
            return edit(&self.file.users, true, add).map_err(failure);
        }
        let (secret, is_new) = match key {
            Some(_) => (new_key().map_err(no_random)?, true),
            None => password(self.password_stdin)?,
        };
        let verifier = verifier_of(&secret)?;
        let add = |text: &mut UsersText| match key {
            Some(key) => text.add_with_key(name, key, &verifier),
            None => text.add_with_password(name, &verifier),
        };
        edit(&self.file.users, true, add).map_err(failure)?;
        match is_new {
            true => print_secret(&secret, &login(name, key.as_deref())),
            false => Ok(()),
        }
    }
}

impl PasswordArgs {
    fn run(self) -> Result<(), Failure> {
        let (secret, is_new) = password(self.password_stdin)?;
        let verifier = verifier_of(&secret)?;
        let name = &self.name;
        self.file.edit(|text| text.set_password(name, &verifier))?;
        match is_new {
            true => print_secret(&secret, name),
            false => Ok(()),
        }
    }
}

impl KeyArgs {
    fn run(self) -> Result<(), Failure> {
        let KeyArgs { name, key, .. } = &self;
        if self.remove {
            return self.file.edit(|text| text.remove_key(name, key));
        }
        let secret = new_key().map_err(no_random)?;
        let verifier = verifier_of(&secret)?;
        self.file.edit(|text| text.add_key(name, key, &verifier))?;
        print_secret(&secret, &login(name, Some(key)))
    }
}

impl ListArgs {
    fn run(self) -> Result<(), Failure> {
        let users = read_users(&self.file.users).map_err(Failure::usage)?;
        let mut out = Output::stdout();
        match &self.name {
            Some(name) => match users.find(name) {
                Some(user) => list(&mut out, user),
                None => return Err(Failure::no(format_args!("there is no user {name}"))),
            },
            None => users.iter().for_each(|user| list(&mut out, user)),
        }
        out.finish()
    }
}

/// A user, without what is kept of secrets.
fn list(out: &mut Output<io::Stdout>, user: &User) {
    let password = user.password().map(|_| "password".to_string());
    let keys = user.keys().map(|(name, _)| format!("key {name}"));
    let certificate = user.certificate().map(|name| format!("certificate {name}"));
    let ways: Vec<String> = password
        .into_iter()
        .chain(keys)
        .chain(certificate)
        .collect();
    let rights = user.rights_text();
    let rights = match rights.as_str() {
        "" => "    no rights\n",
        rights => rights,
    };
    out.line(format_args!("{}: {}", user.name(), ways.join(", ")));
    out.bytes(rights.as_bytes());
}

/// A new password, or the one on standard input; whether it is new.
fn password(is_given: bool) -> Result<(Secret, bool), Failure> {
    if !is_given {
        return Ok((new_password().map_err(no_random)?, true));
    }
    let mut bytes = Vec::with_capacity(SECRET_BYTES_MAX + 3);
    let read = io::stdin()
        .take(SECRET_BYTES_MAX as u64 + 3)
        .read_to_end(&mut bytes);
    read.map_err(|error| Failure::usage(format_args!("standard input: {error}")))?;
    let secret = Secret::of_file(bytes);
    let secret = secret.map_err(|fault| Failure::usage(format_args!("the password: {fault}")))?;
    match secret.kind() {
        SecretKind::Password => Ok((secret, false)),
        SecretKind::Key => Err(Failure::usage(
            "this is a machine key: penstock user key makes and prints one",
        )),
    }
}

fn verifier_of(secret: &Secret) -> Result<Verifier, Failure> {
    Ok(Verifier::new(secret, new_salt().map_err(no_random)?))
}

fn login(name: &str, key: Option<&str>) -> String {
    key.map_or_else(|| name.to_string(), |key| format!("{name}/{key}"))
}

/// Prints a new secret, and beside it, for people, whose it is.
fn print_secret(secret: &Secret, login: &str) -> Result<(), Failure> {
    let mut out = Output::stdout();
    out.done("the secret is in force and nobody knows it: set another one");
    out.bytes(secret.expose());
    out.bytes(b"\n");
    out.finish()?;
    eprintln!("penstock: the line above is the secret of {login}; it is kept nowhere");
    Ok(())
}

fn no_random(error: io::Error) -> Failure {
    Failure::usage(format_args!("the system has no random bytes: {error}"))
}

fn failure(error: EditFileError) -> Failure {
    let is_no = matches!(
        error,
        EditFileError::Edit(
            EditError::NoUser(_) | EditError::NoKey { .. } | EditError::NotGranted(_)
        )
    );
    let line: &dyn fmt::Display = &error;
    match is_no {
        true => Failure::no(line),
        false => Failure::usage(line),
    }
}
