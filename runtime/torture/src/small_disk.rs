//! Whole file systems that are small, with the options of a new user: whatever fills them, edits
//! and deletions of what is there go on, and FULL ends when all is deleted.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use penstock_net::instruction::{FieldType, Instruction, Operation};
use penstock_net::level::AckLevel;
use penstock_net::request::{BatchRequest, Condition};
use penstock_net::status::Status;

use crate::process;
use crate::server::Server;
use crate::volume::{FileSystem, Volume};
use crate::wire::{ANSWER_MAX, Wire};

/// One file system, and how the server is asked to use it.
struct Case {
    /// MiB of the file system, and those that are taken from its root reserve and its own tables.
    mib: u64,
    words: &'static [&'static str],
}

const CASES: [Case; 3] = [
    Case {
        mib: 150,
        words: &[],
    },
    Case {
        mib: 36,
        words: &["--segment-bytes", "9MiB"],
    },
    Case {
        mib: 215,
        words: &[],
    },
];

const VALUE_BYTES: usize = 64 << 10;
const FULL_MAX: Duration = Duration::from_secs(120);
/// How long until a store without a key takes writes again.
const AGAIN_MAX: Duration = Duration::from_secs(10);
/// Answers of FULL in a row that are the end.
const REFUSALS: usize = 20;
const EDITS: usize = 200;
const STOCK: &[u8] = b"small:stock";

/// Runs all cases, one after the other; a text for people.
pub fn try_all(binary: &Path, folder: &Path) -> Result<String, String> {
    let mut texts = Vec::new();
    for case in &CASES {
        let text = case.run(binary, &folder.join("small"));
        let text = text.map_err(|why| format!("{} MiB {:?}: {why}", case.mib, case.words))?;
        texts.push(text);
    }
    Ok(texts.join("; "))
}

impl Case {
    fn run(&self, binary: &Path, folder: &Path) -> Result<String, String> {
        fs::create_dir_all(folder).map_err(|error| error.to_string())?;
        let (image, place) = (folder.join("image"), folder.join("mounted"));
        let mut volume = Volume::new(FileSystem::Ext4, image, place);
        volume.make(self.mib << 20)?;
        volume.mount()?;
        let mut command = process::bound_to_us(binary);
        command
            .arg("serve")
            .arg("--data")
            .arg(volume.place().join("data"));
        command.args(["--listen", "127.0.0.1:0", "--shard-ports", "0"]);
        command.args(["--shards", "1"]).args(self.words);
        let mut server = Server::start_by(command)?;
        let mut wire = Wire::connect(server.address, ANSWER_MAX)?;
        must(&mut wire, 1, "stock", |_| Change::Stock)?;
        let first = fill(&mut wire, 0)?;
        must(&mut wire, EDITS, "edit", |_| Change::Set(0, 4))?;
        must(&mut wire, EDITS, "decrement", |_| Change::Decrement)?;
        must(&mut wire, first, "deletion", Change::Delete)?;
        must(&mut wire, EDITS, "later decrement", |_| Change::Decrement)?;
        let began = Instant::now();
        while ask(&mut wire, &Change::Set(0, 4))? != Status::Ok {
            if began.elapsed() > AGAIN_MAX {
                return Err(format!("FULL {AGAIN_MAX:?} after all {first} keys went"));
            }
            process::wait(Duration::from_millis(20), || false)?;
        }
        let ended = began.elapsed();
        // What is taken again may be FULL for moments, until cleaning has given more back.
        let (half, mut second) = (first / 2, 0);
        while second < half {
            if began.elapsed() > AGAIN_MAX {
                return Err(format!("{second} keys in place of {first} at first"));
            }
            match ask(&mut wire, &Change::Set(first + second, VALUE_BYTES))? {
                Status::Ok => second += 1,
                Status::Full => {
                    process::wait(Duration::from_millis(5), || false)?;
                }
                other => return Err(format!("a new key was answered {}", other.name())),
            }
        }
        let again = began.elapsed();
        server.stop()?;
        volume.unmount()?;
        Ok(format!(
            "{} MiB {:?}: {first} keys, FULL ended in {} ms, {second} were back in {} ms",
            self.mib,
            self.words,
            ended.as_millis(),
            again.as_millis()
        ))
    }
}

enum Change {
    /// The key that is decremented gets its first value.
    Stock,
    Decrement,
    /// A key gets a value of so many bytes.
    Set(usize, usize),
    Delete(usize),
}

/// Adds keys from `number` on until no more are taken; the first that was not.
fn fill(wire: &mut Wire, mut number: usize) -> Result<usize, String> {
    let (began, mut refused) = (Instant::now(), 0);
    while refused < REFUSALS {
        match ask(wire, &Change::Set(number, VALUE_BYTES))? {
            Status::Ok => (number, refused) = (number + 1, 0),
            Status::Full => refused += 1,
            other => return Err(format!("a new key was answered {}", other.name())),
        }
        if began.elapsed() > FULL_MAX {
            return Err(format!("the disk did not get full within {FULL_MAX:?}"));
        }
    }
    Ok(number)
}

/// Does it so often, each time with success.
fn must(
    wire: &mut Wire,
    times: usize,
    what: &str,
    change: impl Fn(usize) -> Change,
) -> Result<(), String> {
    for number in 0..times {
        let status = ask(wire, &change(number))?;
        if status != Status::Ok {
            let status = status.name();
            return Err(format!("{what} {number} of {times} was answered {status}"));
        }
    }
    Ok(())
}

fn ask(wire: &mut Wire, change: &Change) -> Result<Status, String> {
    let mut frame = Vec::new();
    let mut batch = BatchRequest::begin(&mut frame, 1, AckLevel::Disk, 0, 1);
    let key = |number: usize| format!("small:{number}").into_bytes();
    match *change {
        Change::Stock => {
            let stock = u64::MAX.to_le_bytes();
            batch.set(&mut frame, STOCK, &stock, Condition::Always);
        }
        Change::Decrement => {
            let one = Instruction {
                operation: Operation::Sub,
                field_type: FieldType::U64,
                key: 0,
                reason: 0,
                offset: 0,
                immediate: 1,
            };
            batch.update_if(&mut frame, STOCK, None, &[one], None);
        }
        Change::Set(number, bytes) => {
            let value = vec![b'v'; bytes];
            batch.set(&mut frame, &key(number), &value, Condition::Always);
        }
        Change::Delete(number) => batch.del(&mut frame, &key(number), Condition::Always),
    }
    batch.finish(&mut frame);
    Ok(wire.ask(&frame, 1)?[0].status)
}
