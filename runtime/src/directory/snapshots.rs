//! The files of snapshots: one helper thread writes them for all shards, a start reads them.
//!
//! A snapshot grows under the name `*.tmp`, is synced every few mebibytes, so that its bytes never
//! pile up before the log's, and gets its name only when it is whole and durable. The two newest of
//! a log are kept: should the newest be damaged, the other one serves.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use penstock_shard::{SnapshotWrite, WriteStep};
use penstock_storage::segment::Owner;
use penstock_storage::snapshot::{ProvenEnd, ProvenEnds, SnapshotName, SnapshotReader, stub};

use crate::directory::files::{list_folder, prepare_folder, read_at, sync_directory};

/// Finished snapshots of a log that are kept.
const KEPT: usize = 2;
/// Bytes that may wait in the page cache.
const UNSYNCED_BYTES_MAX: u64 = 4 << 20;
/// Pieces that may wait. A shard has one under way.
const ORDERS_MAX: usize = 1 << 10;

/// The folder of snapshots.
#[derive(Clone, Debug)]
pub struct SnapshotFolder {
    path: PathBuf,
}

impl SnapshotFolder {
    /// The folder at `path`, as it is.
    pub fn at(path: PathBuf) -> Self {
        SnapshotFolder { path }
    }

    /// Makes the folder if it is not there, and removes what an earlier run did not finish.
    ///
    /// # Errors
    /// As the system says.
    pub fn prepare(&self) -> io::Result<()> {
        prepare_folder(&self.path)
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The finished snapshots, in no particular order, with their lengths in bytes; none if there
    /// is no folder.
    ///
    /// # Errors
    /// As the system says.
    pub fn list(&self) -> io::Result<Vec<(SnapshotName, u64)>> {
        list_folder(&self.path, |name| SnapshotName::parse(name.to_str()?))
    }

    /// Opens a finished snapshot to be read.
    ///
    /// # Errors
    /// As the system says.
    pub fn open(&self, name: SnapshotName) -> io::Result<File> {
        File::open(self.path.join(name.to_string()))
    }

    /// What the newest finished snapshot of each log proves, of the node `owner`. One that cannot
    /// be read proves nothing.
    ///
    /// # Errors
    /// The folder cannot be listed.
    pub fn proven_ends(&self, owner: Owner) -> io::Result<ProvenEnds> {
        let mut names = self.list()?;
        names.sort_unstable();
        let mut ends = ProvenEnds::new();
        for (name, bytes) in names {
            let Ok(file) = self.open(name) else {
                continue;
            };
            let read = |offset: u64, into: &mut [u8]| read_at(&file, offset, into);
            let reader = SnapshotReader::open(read, bytes);
            let end = reader
                .ok()
                .and_then(|reader| ProvenEnd::of_snapshot(owner, name, &reader));
            ends.extend(end.map(|end| (name.log_id, end)));
        }
        Ok(ends)
    }

    /// Takes the entries out of all snapshots, durably: no start uses them any more, and they still
    /// prove how far their logs went. Whatever changes segments of a stopped server does this
    /// before, and [`SnapshotFolder::remove_all`] behind.
    ///
    /// # Errors
    /// As the system says.
    pub fn retire_all(&self) -> io::Result<()> {
        for (name, bytes) in self.list()? {
            let path = self.path.join(name.to_string());
            let file = self.open(name)?;
            match stub(|offset, into| read_at(&file, offset, into), bytes) {
                Ok(stub) => {
                    let tmp = self.tmp(name);
                    let mut made = OpenOptions::new()
                        .write(true)
                        .create(true)
                        .truncate(true)
                        .mode(0o600)
                        .open(&tmp)?;
                    made.write_all(&stub)?;
                    made.sync_all()?;
                    fs::rename(tmp, path)?;
                }
                // It proves nothing.
                Err(_) => fs::remove_file(path)?,
            }
        }
        self.sync()
    }

    /// Removes all snapshots, durably: nothing that changes segments of a stopped server may leave
    /// one that tells of them as they were.
    ///
    /// # Errors
    /// As the system says.
    pub fn remove_all(&self) -> io::Result<()> {
        for (name, _) in self.list()? {
            fs::remove_file(self.path.join(name.to_string()))?;
        }
        self.sync()
    }

    /// Makes the names in it durable, if it is there.
    fn sync(&self) -> io::Result<()> {
        match sync_directory(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            synced => synced,
        }
    }

    fn tmp(&self, name: SnapshotName) -> PathBuf {
        self.path.join(format!("{name}.tmp"))
    }

    /// Removes all finished snapshots of a log but the newest.
    fn prune(&self, log_id: u64) -> io::Result<()> {
        let mut names: Vec<SnapshotName> = self.list()?.into_iter().map(|(name, _)| name).collect();
        names.retain(|name| name.log_id == log_id);
        names.sort_unstable();
        for name in names.iter().rev().skip(KEPT) {
            fs::remove_file(self.path.join(name.to_string()))?;
        }
        Ok(())
    }
}

/// Whether one piece of a snapshot was written.
#[derive(Debug)]
pub struct SnapshotOutcome {
    /// The snapshot that the piece belongs to.
    pub name: SnapshotName,
    /// Whether the piece was written. Of the last piece: whether the snapshot is whole and durable.
    pub result: io::Result<()>,
}

struct Order {
    write: SnapshotWrite,
    outcomes: flume::Sender<SnapshotOutcome>,
}

/// The helper thread. Dropping it ends the thread; a snapshot that is not finished is left out.
#[derive(Debug)]
pub struct SnapshotWriters {
    orders: Option<flume::Sender<Order>>,
    helper: Option<JoinHandle<()>>,
}

impl SnapshotWriters {
    /// Starts the helper.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(folder: SnapshotFolder) -> io::Result<Self> {
        let (orders, inbox) = flume::bounded::<Order>(ORDERS_MAX);
        let helper = std::thread::Builder::new()
            .name("penstock-snap".into())
            .spawn(move || {
                let mut growing = HashMap::new();
                for Order { write, outcomes } in inbox {
                    let name = write.name;
                    let result = carry_out(&folder, &mut growing, &write);
                    if result.is_err() {
                        growing.remove(&name.log_id);
                        // The next start removes what this leaves behind.
                        let _ = fs::remove_file(folder.tmp(name));
                    }
                    // A shard that is gone needs no answer.
                    let _ = outcomes.send(SnapshotOutcome { name, result });
                }
            })?;
        Ok(Self {
            orders: Some(orders),
            helper: Some(helper),
        })
    }

    /// A handle for one shard.
    pub fn handle(&self) -> SnapshotHandle {
        let (outcome_sender, outcomes) = flume::unbounded();
        SnapshotHandle {
            orders: self.orders.clone().expect("it runs until it is dropped"),
            outcome_sender,
            outcomes,
        }
    }
}

impl Drop for SnapshotWriters {
    fn drop(&mut self) {
        // The thread ends when the last handle is gone too; what it writes then is of no use.
        drop(self.orders.take());
        drop(self.helper.take());
    }
}

/// Gives one shard's snapshots to the helper; never blocks.
#[derive(Clone, Debug)]
pub struct SnapshotHandle {
    orders: flume::Sender<Order>,
    outcome_sender: flume::Sender<SnapshotOutcome>,
    outcomes: flume::Receiver<SnapshotOutcome>,
}

impl SnapshotHandle {
    /// Gives the next piece.
    pub fn write(&self, write: SnapshotWrite) {
        let name = write.name;
        let outcomes = self.outcome_sender.clone();
        if self.orders.try_send(Order { write, outcomes }).is_err() {
            let result = Err(io::Error::other("the thread that writes snapshots is gone"));
            let _ = self.outcome_sender.send(SnapshotOutcome { name, result });
        }
    }

    /// The next outcome that was not taken yet.
    pub fn outcome(&self) -> Option<SnapshotOutcome> {
        self.outcomes.try_recv().ok()
    }
}

/// A file that grows.
struct Growing {
    name: SnapshotName,
    file: File,
    unsynced_bytes: u64,
}

/// Does one piece; `growing` holds what grows, by log.
fn carry_out(
    folder: &SnapshotFolder,
    growing: &mut HashMap<u64, Growing>,
    write: &SnapshotWrite,
) -> io::Result<()> {
    let SnapshotWrite { name, step, bytes } = write;
    if *step == WriteStep::First {
        if let Some(void) = growing.remove(&name.log_id) {
            fs::remove_file(folder.tmp(void.name))?;
        }
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(folder.tmp(*name))?;
        let grown = Growing {
            name: *name,
            file,
            unsynced_bytes: 0,
        };
        growing.insert(name.log_id, grown);
    }
    let grown = growing
        .get_mut(&name.log_id)
        .filter(|grown| grown.name == *name)
        .ok_or_else(|| io::Error::other("it was given up before"))?;
    grown.file.write_all(bytes)?;
    grown.unsynced_bytes += bytes.len() as u64;
    if *step == WriteStep::Last {
        grown.file.sync_all()?;
        growing.remove(&name.log_id);
        fs::rename(folder.tmp(*name), folder.path.join(name.to_string()))?;
        sync_directory(&folder.path)?;
        // One that cannot be removed now is with the next.
        let _ = folder.prune(name.log_id);
    } else if grown.unsynced_bytes >= UNSYNCED_BYTES_MAX {
        grown.file.sync_data()?;
        grown.unsynced_bytes = 0;
    }
    Ok(())
}
