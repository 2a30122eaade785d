//! A small file system until nothing fits.

use std::fs::{self, File};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use penstock_net::level::AckLevel;
use penstock_net::request::{BatchRequest, Condition};
use penstock_net::status::Status;

use crate::kill::PATIENT;
use crate::load::Load;
use crate::options::Setting;
use crate::random::Random;
use crate::server::{Refusal, Server};
use crate::volume::{FileSystem, Volume};
use crate::wire::{ANSWER_MAX, Wire};
use crate::world::World;
use crate::{Done, Kind, Turn, process, small_disk};

/// How long until the disk is full, and until an answer of a kind must have come.
const FULL_MAX: Duration = Duration::from_secs(300);
const PROGRESS_MAX: Duration = Duration::from_secs(60);
/// Keys that must be refused before the disk counts as full, and the bytes of their values.
const REFUSALS: u64 = 200;
const BALLAST_BYTES: usize = 16 << 10;

pub struct Full {
    folder: PathBuf,
    settings: Vec<Setting>,
    refused: u64,
    /// Restarts while the disk was full: how many served, and how many refused with a reason.
    served: u64,
    declined: u64,
    went_on: u64,
    /// What came of small file systems as a whole, once they were tried.
    small: Option<String>,
}

impl Full {
    pub fn new(folder: PathBuf, settings: &[Setting]) -> Full {
        Full {
            folder,
            settings: settings.to_vec(),
            refused: 0,
            served: 0,
            declined: 0,
            went_on: 0,
            small: None,
        }
    }
}

impl Kind for Full {
    fn round(&mut self, turn: Turn<'_>) -> Result<Done, String> {
        let Turn { binary, random, .. } = turn;
        if self.small.is_none() {
            self.small = Some(small_disk::try_all(binary, &self.folder)?);
        }
        let setting = self.settings[turn.which];
        let mut disk = SmallDisk::make(&self.folder.join("small"), random)?;
        let data = disk.volume.place().join("data");
        let mut world = World::new(setting);
        let mut server = Server::start(binary, &data, setting)?;
        // What only grows: cleaning makes room for everything else for ever.
        let mut ballast = Vec::new();
        let refused = world.load(
            &mut server,
            random,
            |_| PATIENT,
            |server, load| disk.fill(server, load, &mut ballast),
        )?;
        self.refused += refused;
        self.went_on += u64::from(disk.gives_room);
        let unknown = world.unknown();
        world.inspect(binary, &data)?;
        // At most this is free: nothing, or enough for one step of a start or the other.
        let spared =
            [0, 8 << 10, 300 << 10, 3 << 20][usize::try_from(random.below(4)).expect("small")];
        if !disk.gives_room {
            write_filler(&disk.rest, u64::MAX)?;
            shorten(&disk.rest, spared)?;
        }
        let (mut server, said) = self.restart(&disk, || Server::start(binary, &data, setting))?;
        world.settle(server.address)?;
        is_there(server.address, &ballast)?;
        // With room again it takes writes, and they last.
        disk.give_room();
        world.load(&mut server, random, |_| PATIENT, goes_on)?;
        world.inspect(binary, &data)?;
        let mut server = Server::start(binary, &data, setting)?;
        world.settle(server.address)?;
        is_there(server.address, &ballast)?;
        server.stop()?;
        let came_back = if disk.gives_room {
            ", room came back"
        } else {
            ""
        };
        disk.volume.unmount()?;
        Ok(Done {
            text: format!("{refused:7} FULL{came_back}{said}"),
            kills: 2,
            acked: world.acked(),
            unknown,
        })
    }

    fn totals(&self) -> String {
        format!(
            "{} answers of FULL, {} rounds went on when room came back, restarts on a full disk: \
             {} served, {} said that they lack room; {}",
            self.refused,
            self.went_on,
            self.served,
            self.declined,
            self.small.as_deref().unwrap_or_default()
        )
    }
}

impl Full {
    /// A start on the disk that may still be full: it serves, or it says what it lacks and serves
    /// once it has room. With a text for the round's line.
    fn restart(
        &mut self,
        disk: &SmallDisk,
        start: impl Fn() -> Result<Server, Refusal>,
    ) -> Result<(Server, String), String> {
        match start() {
            Ok(server) => {
                self.served += u64::from(!disk.gives_room);
                Ok((server, String::new()))
            }
            Err(refusal) if refusal.code == Some(2) && is_about_room(&refusal.text) => {
                self.declined += 1;
                let mut lines = refusal.text.lines().rev();
                let line = lines.find(|line| is_about_room(line));
                let said = line.map(|line| format!(", restart on the full disk: {line}"));
                disk.give_room();
                let _ = fs::remove_file(&disk.reserve);
                Ok((start()?, said.unwrap_or_default()))
            }
            Err(refusal) => Err(refusal.into()),
        }
    }
}

/// A small file system, and files that take its room.
struct SmallDisk {
    volume: Volume,
    filler: PathBuf,
    rest: PathBuf,
    /// What an operator can still remove when the data has taken everything else.
    reserve: PathBuf,
    takes_the_rest: bool,
    gives_room: bool,
}

impl SmallDisk {
    fn make(folder: &Path, random: &mut Random) -> Result<SmallDisk, String> {
        fs::create_dir_all(folder).map_err(|error| error.to_string())?;
        let (image, place) = (folder.join("image"), folder.join("mounted"));
        let mut volume = Volume::new(FileSystem::Ext4, image, place);
        // Beside filler and reserve each of two shards finds room for its spares, at least.
        volume.make((64 << 20) + (random.below(48) << 20))?;
        volume.mount()?;
        let file = |name| volume.place().join(name);
        let (filler, rest, reserve) = (file("filler"), file("rest"), file("reserve"));
        // What the server may take ends in the middle of a segment, of a block, or at once.
        write_filler(&filler, random.below(16 << 20))?;
        let takes_the_rest = random.once_in(2);
        let gives_room = random.once_in(2);
        write_filler(&reserve, 8 << 20)?;
        Ok(SmallDisk {
            volume,
            filler,
            rest,
            reserve,
            takes_the_rest,
            gives_room,
        })
    }

    /// Adds keys under load until the disk is full, then kills the server. Reads and guards must go
    /// on, and writes must if room comes back. Returns how many answers were FULL.
    fn fill(
        &self,
        server: &mut Server,
        load: &Load,
        ballast: &mut Vec<u64>,
    ) -> Result<u64, String> {
        let until = |what: &str, holds: &dyn Fn() -> bool| {
            process::wait(PROGRESS_MAX, holds)?
                .then_some(())
                .ok_or(format!("{what} within {PROGRESS_MAX:?}"))
        };
        grow(server.address, ballast)?;
        if self.takes_the_rest {
            write_filler(&self.rest, u64::MAX)?;
        }
        let (reads, guards) = (load.reads.get(), load.guards.get());
        until("reads and guards ended with the room", &|| {
            load.reads.get() > reads + 300 && load.guards.get() > guards + 300
        })?;
        if self.gives_room {
            self.give_room();
            let writes = load.writes.get();
            until("nothing was written after room came back", &|| {
                load.writes.get() > writes + 1000
            })?;
        }
        load.strike();
        server.kill()?;
        Ok(REFUSALS + load.full.get())
    }

    fn give_room(&self) {
        let _ = fs::remove_file(&self.rest);
        let _ = fs::remove_file(&self.filler);
    }
}

/// Waits until writes are taken again, then kills the server.
fn goes_on(server: &mut Server, load: &Load) -> Result<(), String> {
    let goes_on = process::wait(PROGRESS_MAX, || {
        load.writes.get() > 100 || load.full.get() > 100_000
    })?;
    load.strike();
    server.kill()?;
    goes_on
        .then_some(())
        .ok_or("nothing was answered after the restart".into())
}

/// Adds keys until so many were refused; `ballast` are those that were acknowledged.
fn grow(address: SocketAddr, ballast: &mut Vec<u64>) -> Result<(), String> {
    let mut wire = Wire::connect(address, ANSWER_MAX)?;
    let began = Instant::now();
    let mut refused = 0;
    for number in 0.. {
        if began.elapsed() > FULL_MAX {
            return Err(format!("the disk did not get full within {FULL_MAX:?}"));
        }
        let mut frame = Vec::new();
        let mut batch = BatchRequest::begin(&mut frame, 1, AckLevel::Disk, 0, 1);
        let (key, value) = (ballast_key(number), ballast_value(number));
        batch.set(&mut frame, &key, &value, Condition::Always);
        batch.finish(&mut frame);
        match wire.ask(&frame, 1)?[0].status {
            Status::Ok => ballast.push(number),
            Status::Full => refused += 1,
            other => return Err(format!("a new key was answered {}", other.name())),
        }
        if refused == REFUSALS {
            break;
        }
    }
    Ok(())
}

fn is_there(address: SocketAddr, ballast: &[u64]) -> Result<(), String> {
    let mut wire = Wire::connect(address, ANSWER_MAX)?;
    for &number in ballast {
        let shown = wire.get(&[ballast_key(number)])?.remove(0);
        if shown.as_deref() != Some(&ballast_value(number)[..]) {
            return Err(format!(
                "key {number} of those that filled the disk is gone"
            ));
        }
    }
    Ok(())
}

fn ballast_key(number: u64) -> Vec<u8> {
    format!("ballast:{number}").into_bytes()
}

fn ballast_value(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(BALLAST_BYTES / 8)
}

fn is_about_room(text: &str) -> bool {
    text.contains("No space left") || text.contains("full")
}

/// Gives so many bytes of a filler back, if it has them.
fn shorten(path: &Path, bytes: u64) -> Result<(), String> {
    let cut = || {
        let file = File::options().write(true).open(path)?;
        file.set_len(file.metadata()?.len().saturating_sub(bytes))?;
        file.sync_all()
    };
    cut().map_err(|error| format!("{}: {error}", path.display()))
}

/// Writes a file of so many bytes, or until nothing fits any more, and flushes it.
fn write_filler(path: &Path, bytes: u64) -> Result<(), String> {
    let write = || {
        let mut file = File::create(path)?;
        let mut left = bytes;
        for step in [1 << 20, 4096] {
            let chunk = vec![b'f'; step];
            while left >= step as u64 {
                match file.write_all(&chunk).and_then(|()| file.sync_data()) {
                    Ok(()) => left -= step as u64,
                    Err(error) if error.kind() == io::ErrorKind::StorageFull => break,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    };
    write().map_err(|error| format!("{}: {error}", path.display()))
}
