//! `penstock backup`, `restore` and `verify`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use penstock::backup::{self, BackupError, manifest::Manifest};
use penstock::directory::identity::Identity;
use penstock_client::ServerHello;
use penstock_storage::log::DurableEnd;
use penstock_storage::place::Lsn;

use super::inspect::check;
use super::output::{Output, count, hex};
use super::server::ServerAddress;
use super::{EXIT_CODES, Failure};

/// How long the shards are asked until no change over several of them is on its way.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two rounds of questions.
const ROUND_PAUSE: Duration = Duration::from_millis(20);
/// A shard decides nothing for so long behind a question that it holds for, at least.
const HELD: Duration = Duration::from_millis(250);

const BACKUP_EXAMPLES: &str = "\
A server that uses the data directory goes on serving; --addr must reach it, and each shard's own
port. All that was acknowledged as durable before the backup began is in it. Segments that --to
holds already are not copied again. Files that the server removes meanwhile keep their space until
the backup ends.

Examples:
  penstock backup --to /mnt/backup/node1
  penstock backup --to /mnt/backup/node1 --data /var/lib/penstock/penstock-data --keep 7";

const RESTORE_EXAMPLES: &str = "\
The restored node is another node: it keeps the cluster id, gets a node id of its own and skips
terms, so that it can run beside the one that was backed up.

Examples:
  penstock restore --from /mnt/backup/node1 --to ./penstock-data
  penstock restore --from /mnt/backup/node1 --to ./penstock-data \\
    --backup 20261121T101739.123Z.manifest";

const VERIFY_EXAMPLES: &str = "\
Every byte of every backup is compared with its hash, and the newest backup is read as a start would
read it. Of a data directory it says what penstock inspect says. Nothing is changed.

Examples:
  penstock verify /mnt/backup/node1
  penstock verify ./penstock-data";

/// Arguments of `penstock backup`.
#[derive(Args)]
#[command(after_help = format!("{BACKUP_EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct BackupArgs {
    /// Directory of this node's backups; made if it does not exist
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Data directory, of a running or a stopped server
    #[arg(
        long,
        value_name = "DIR",
        env = "PENSTOCK_DATA",
        default_value = "./penstock-data"
    )]
    data: PathBuf,
    /// Keep this many backups, the new one among them, and remove older ones; without it all stay
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    keep: Option<u32>,
    #[command(flatten)]
    server: ServerAddress,
}

/// Arguments of `penstock restore`.
#[derive(Args)]
#[command(after_help = format!("{RESTORE_EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct RestoreArgs {
    /// Directory of backups
    #[arg(long, value_name = "DIR")]
    from: PathBuf,
    /// Data directory to make; must not exist, or be empty
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Name of the backup's manifest; without it the newest backup
    #[arg(long, value_name = "NAME")]
    backup: Option<String>,
}

/// Arguments of `penstock verify`.
#[derive(Args)]
#[command(after_help = format!("{VERIFY_EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct VerifyArgs {
    /// Directory of backups, or data directory of a stopped server
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

impl BackupArgs {
    /// Takes the backup and prints what it holds and how much was copied.
    pub fn run(self) -> Result<(), Failure> {
        // A failure of the server keeps its own exit code. BackupError has none, so the failure is
        // kept here.
        let mut asked = None;
        let taken = backup::take(
            &self.data,
            &self.to,
            self.keep.map(|keep| keep as usize),
            unix_ms(),
            &mut |identity| {
                durable_ends(&self.server, identity).map_err(|failure| {
                    asked = Some(failure);
                    BackupError::Server(String::new())
                })
            },
        );
        let taken = taken.map_err(|error| asked.unwrap_or_else(|| failure(error)))?;
        let mut out = Output::stdout();
        out.done("the backup was taken");
        out.line(format_args!("{}: {}", taken.name, content(&taken.manifest)));
        out.line(format_args!(
            "copied {} of {} bytes; the others were there",
            count(taken.copied, "segment"),
            taken.copied_bytes
        ));
        if taken.pruned > 0 {
            out.line(format_args!(
                "removed {}",
                count(taken.pruned, "older backup")
            ));
        }
        out.finish()
    }
}

impl RestoreArgs {
    /// Makes the data directory and prints what it holds.
    pub fn run(self) -> Result<(), Failure> {
        let name = self.backup.as_deref();
        let restored = backup::restore(&self.from, &self.to, name, unix_ms()).map_err(failure)?;
        let mut out = Output::stdout();
        out.done("the data directory was made");
        out.line(format_args!(
            "{}: {}",
            restored.name,
            content(&restored.manifest)
        ));
        out.line(format_args!(
            "restored to {} as node {} of cluster {}, incarnation {}",
            self.to.display(),
            hex(&restored.identity.node_id),
            hex(&restored.identity.cluster_id),
            restored.identity.incarnation
        ));
        out.finish()
    }
}

impl VerifyArgs {
    /// Prints a verdict for each backup. Fails if a backup is damaged.
    pub fn run(self) -> Result<(), Failure> {
        if !backup::is_vault(&self.directory) {
            let is_left_over = self.directory.join("segments").is_dir()
                && !self.directory.join("IDENTITY").exists();
            return match is_left_over {
                true => Err(Failure::usage(format_args!(
                    "{}: no backup is there, and no data directory: what is there is of one that \
                     was interrupted",
                    self.directory.display()
                ))),
                false => check(&self.directory, false),
            };
        }
        let mut out = Output::stdout();
        let (mut damaged, mut all) = (0, 0);
        let unnamed = backup::verify(&self.directory, &mut |verdict| {
            all += 1;
            damaged += u64::from(!verdict.damage.is_empty());
            let text = verdict.manifest.as_ref().map(content).unwrap_or_default();
            match verdict.damage.is_empty() {
                true => out.line(format_args!("{}: whole: {text}", verdict.name)),
                false => out.line(format_args!("{}: DAMAGED", verdict.name)),
            }
            for line in &verdict.damage {
                out.line(format_args!("  {line}"));
            }
        });
        let (files, bytes) = unnamed.map_err(failure)?;
        if files > 0 {
            out.line(format_args!(
                "{} of {bytes} bytes in no backup: an interrupted one left them; the next with \
                 --keep removes them",
                count(files, "file")
            ));
        }
        out.finish()?;
        match damaged {
            0 => Ok(()),
            _ => Err(Failure::no(format_args!(
                "{damaged} of {} in {} damaged; remove the files that are named and take another",
                count(all, "backup"),
                self.directory.display()
            ))),
        }
    }
}

/// One line about what a backup holds.
fn content(manifest: &Manifest) -> String {
    let segments = manifest.logs.iter().map(|log| log.segments.len() as u64);
    let points: Vec<String> = manifest
        .logs
        .iter()
        .map(|log| format!("log {} to LSN {}", log.log_id, log.lsn))
        .collect();
    format!(
        "{} of {} bytes; {}",
        count(segments.sum(), "segment"),
        manifest.bytes(),
        points.join(", ")
    )
}

fn failure(error: BackupError) -> Failure {
    match error {
        BackupError::Damaged(_) => Failure::no(error),
        BackupError::Server(_) => Failure::server(error),
        BackupError::Directory(_)
        | BackupError::Vault(_)
        | BackupError::NotRewritten(_)
        | BackupError::Io(_) => Failure::usage(error),
    }
}

/// Asks each shard how far its log is durable. Each is asked on its own port, because a shard knows
/// the numbers of other shards only as of some moments ago.
fn durable_ends(server: &ServerAddress, identity: &Identity) -> Result<Vec<DurableEnd>, Failure> {
    let first = server.connect_node()?.hello();
    let is_ours = |hello: &ServerHello| {
        // The node id is random and belongs to this directory alone. The cluster id may come from
        // the cluster's file, so it proves nothing.
        hello.node_id == identity.node_id
    };
    if !is_ours(&first) {
        return Err(Failure::usage(format_args!(
            "the server at {server} is node {}, and the data directory is of node {}: name the \
             one that uses it with --addr",
            hex(&first.node_id),
            hex(&identity.node_id)
        )));
    }
    if first.incarnation != identity.incarnation {
        return Err(Failure::server(
            "the server was started again while its files were linked: try again",
        ));
    }
    let ports: BTreeMap<u16, u16> = first
        .slots
        .iter()
        .map(|range| (range.shard, range.port))
        .collect();
    let mut connections = Vec::new();
    for (shard, port) in ports {
        let own = server.on_port(port);
        let connection = own.connect_node()?;
        let hello = connection.hello();
        let is_same =
            is_ours(&hello) && (hello.shard, hello.incarnation) == (shard, first.incarnation);
        if !is_same {
            return Err(Failure::server(format_args!(
                "{own} is not shard {shard} of {server}, or the server was started again meanwhile"
            )));
        }
        connections.push((own, connection));
    }
    let until = Instant::now() + PATIENCE;
    let mut before = None;
    while Instant::now() < until {
        let began = Instant::now();
        let (mut ends, mut changes) = (Vec::new(), Vec::new());
        for (own, connection) in &connections {
            let text = connection.info_for_backup()?;
            let end = end_of(&text).ok_or_else(|| {
                Failure::server(format_args!(
                    "{own} does not tell how far its log is durable: it is of another version"
                ))
            })?;
            ends.push(end);
            changes.extend(changes_of(&text));
        }
        // All shards kept from deciding from the first question to the last one.
        let is_held = changes.iter().all(|it| it.is_held) && began.elapsed() < HELD;
        let decided: Vec<u64> = changes.iter().map(|it| it.decided).collect();
        if changes.is_empty() || is_held && before == Some(decided.clone()) {
            return Ok(ends);
        }
        let is_calm = changes.iter().all(|it| it.open == 0);
        before = is_calm.then_some(decided);
        std::thread::sleep(ROUND_PAUSE);
    }
    Err(Failure::server(format_args!(
        "changes over several shards were on their way at each question for {} s; nothing was \
         backed up: try again",
        PATIENCE.as_secs()
    )))
}

/// What a shard tells of changes over several shards.
struct Changes {
    open: u64,
    decided: u64,
    is_held: bool,
}

/// The same in the text of INFO. `None`: there are no such changes.
fn changes_of(text: &str) -> Option<Changes> {
    let info: serde_json::Value = serde_json::from_str(text).ok()?;
    let log = info.get("log")?;
    Some(Changes {
        open: log.get("open_changes")?.as_u64()?,
        decided: log.get("decided_changes")?.as_u64()?,
        is_held: log.get("is_held")?.as_bool()?,
    })
}

/// The durable end in the text of INFO.
fn end_of(text: &str) -> Option<DurableEnd> {
    let info: serde_json::Value = serde_json::from_str(text).ok()?;
    let number = |name: &str| info.get("log")?.get(name)?.as_u64();
    Some(DurableEnd {
        log_id: number("id")?,
        lsn: Lsn(number("durable_lsn")?),
        segment_sequence: number("segment")?,
        end_offset: number("end_offset")?,
    })
}

fn unix_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
