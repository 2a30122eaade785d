//! A disk that begins to fail under the server.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::kill::PATIENT;
use crate::options::Setting;
use crate::process::{self, run, text};
use crate::random::Random;
use crate::server::Server;
use crate::volume::{Cut, FileSystem, ForgetfulDisk, Mount, Volume};
use crate::world::World;
use crate::{Done, Kind, Turn};

/// How long a server whose disk fails may take to end, and a thin disk to run out.
const END_MAX: Duration = Duration::from_secs(60);
const RUN_OUT_MAX: Duration = Duration::from_secs(300);

/// The exit code of a server that ran and failed.
const FAILED_CODE: i32 = 3;

/// A way to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Everything fails at once and for good.
    Gone,
    /// This share of the writes to the device is refused until the fault is healed.
    Refusing { percent: u64 },
    /// The device has less room than it tells: writes to new places fail.
    Thin,
}

impl Fault {
    fn name(self) -> String {
        match self {
            Fault::Gone => "gone".into(),
            Fault::Refusing { percent } => format!("refuses {percent} % of writes"),
            Fault::Thin => "runs out".into(),
        }
    }
}

pub struct Eio {
    folder: PathBuf,
    settings: Vec<Setting>,
    faults: Vec<Fault>,
    ended: u64,
    full: u64,
    torn: u64,
}

impl Eio {
    /// `can_refuse` is whether the programs for a refusing disk are there.
    pub fn new(folder: PathBuf, can_refuse: bool, settings: &[Setting]) -> Eio {
        // Three or five: without a common divisor with the number of the settings, so that all
        // pairs come.
        let mut faults = vec![Fault::Gone, Fault::Thin, Fault::Gone];
        if can_refuse {
            faults.extend([100, 20].map(|percent| Fault::Refusing { percent }));
        }
        Eio {
            folder,
            settings: settings.to_vec(),
            faults,
            ended: 0,
            full: 0,
            torn: 0,
        }
    }
}

impl Kind for Eio {
    fn round(&mut self, turn: Turn<'_>) -> Result<Done, String> {
        let Turn { binary, random, .. } = turn;
        let setting = self.settings[turn.which];
        let at = usize::try_from(turn.round % self.faults.len() as u64).expect("a few faults");
        let fault = self.faults[at];
        let folder = self.folder.join(format!("round-{}", turn.round));
        fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        let mut disk = FailingDisk::make(fault, &folder, random)?;
        let data = disk.place().join("data");
        let mut world = World::new(setting);
        let mut kills = 0;

        let mut server = Server::start(binary, &data, setting)?;
        let work = Duration::from_millis(100 + random.below(900));
        let full = world.load(
            &mut server,
            random,
            |_| PATIENT,
            |server, load| {
                if fault == Fault::Thin {
                    // Its room ends while segments are prepared, which no write waits for: the
                    // server may go on and answer FULL.
                    load.strike();
                    let is_over = process::wait(RUN_OUT_MAX, || {
                        load.full.get() > 1000 || server.has_ended()
                    })?;
                    return is_over
                        .then_some(load.full.get())
                        .ok_or("the disk did not run out".into());
                }
                load.work(work, 500)?;
                load.strike();
                disk.fail()?;
                server.wait_for_end(END_MAX)?.ok_or(format!(
                    "the server still ran {END_MAX:?} after its disk failed"
                ))?;
                Ok(0)
            },
        )?;
        if server.has_ended() {
            expect_loud_end(&mut server)?;
            self.ended += 1;
        } else {
            server.kill()?;
            self.full += full;
            kills += 1;
        }
        let unknown = world.unknown();
        disk.heal()?;
        world.inspect(binary, &data)?;
        let mut server = Server::start(binary, &data, setting)?;
        self.torn += u64::from(server.found_torn());
        world.settle(server.address)?;
        // Healed, it takes writes again.
        world.load(
            &mut server,
            random,
            |_| PATIENT,
            |server, load| {
                let writes = || load.writes.get() > 500;
                let is_served = process::wait(END_MAX, writes)?;
                load.strike();
                server.kill()?;
                is_served
                    .then_some(())
                    .ok_or("nothing was written after the disk was healed".into())
            },
        )?;
        kills += 1;
        let mut server = Server::start(binary, &data, setting)?;
        world.settle(server.address)?;
        server.stop()?;
        drop(disk);
        fs::remove_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Done {
            text: format!("disk {:23}", fault.name()),
            kills,
            acked: world.acked(),
            unknown,
        })
    }

    fn totals(&self) -> String {
        format!(
            "{} loud ends, {} answers of FULL by those that went on, {} torn tails met",
            self.ended, self.full, self.torn
        )
    }
}

/// Whoever watches the process must learn that it failed, and why.
fn expect_loud_end(server: &mut Server) -> Result<(), String> {
    let code = server
        .wait_for_end(Duration::ZERO)?
        .and_then(|status| status.code());
    let said = server.said();
    let is_reported = said
        .iter()
        .any(|line| line.contains(" ERROR ") && line.contains("failed"));
    if code == Some(FAILED_CODE) && is_reported {
        return Ok(());
    }
    Err(format!(
        "a server whose disk failed ended with code {code:?} and said:\n{}",
        said.join("\n")
    ))
}

/// A disk with a switch.
enum FailingDisk {
    Gone(ForgetfulDisk),
    Refusing(RefusingDisk),
    Thin(ThinDisk),
}

impl FailingDisk {
    fn make(fault: Fault, folder: &Path, random: &mut Random) -> Result<FailingDisk, String> {
        Ok(match fault {
            Fault::Gone => FailingDisk::Gone(ForgetfulDisk::make(FileSystem::Ext4, folder)?),
            Fault::Refusing { percent } => {
                FailingDisk::Refusing(RefusingDisk::make(folder, percent)?)
            }
            Fault::Thin => FailingDisk::Thin(ThinDisk::make(folder, random)?),
        })
    }

    fn place(&self) -> &Path {
        match self {
            FailingDisk::Gone(disk) => disk.place(),
            FailingDisk::Refusing(disk) => disk.volume.place(),
            FailingDisk::Thin(disk) => disk.volume.place(),
        }
    }

    /// From now on it fails. A thin one does so by itself.
    fn fail(&self) -> Result<(), String> {
        match self {
            FailingDisk::Gone(disk) => disk.cut(Cut::Device),
            FailingDisk::Refusing(disk) => disk.refuse(),
            FailingDisk::Thin(_) => Ok(()),
        }
    }

    /// As after a repair and a restart of the machine: sound, and nothing is remembered but what
    /// reached the device.
    fn heal(&mut self) -> Result<(), String> {
        match self {
            FailingDisk::Gone(disk) => disk.restore(),
            FailingDisk::Refusing(disk) => disk.heal(),
            FailingDisk::Thin(disk) => disk.heal(),
        }
    }
}

/// Whether the programs are there that a refusing disk is made of.
pub fn can_refuse() -> Result<(), String> {
    let programs = ["nbdkit", "nbdfuse"];
    match programs.iter().find(|name| !process::has_program(name)) {
        Some(name) => Err(format!(
            "{name} is missing (apt-get install nbdkit libnbd-bin fuse3)"
        )),
        None if !Path::new("/dev/fuse").exists() => Err("there is no /dev/fuse".into()),
        None => Ok(()),
    }
}

/// An image behind nbdkit's error filter, shown as a file by nbdfuse, with ext4 on a loop device
/// over that file. While a certain file exists, writes are refused.
struct RefusingDisk {
    // Dropped in this order: what stands above goes first.
    volume: Volume,
    fuse: Option<Mount>,
    helper: Option<Helper>,
    folder: PathBuf,
    percent: u64,
}

impl RefusingDisk {
    fn make(folder: &Path, percent: u64) -> Result<RefusingDisk, String> {
        let shown = folder.join("nbd").join("disk");
        let mut disk = RefusingDisk {
            volume: Volume::new(FileSystem::Ext4, shown.clone(), folder.join("served")),
            fuse: None,
            helper: None,
            folder: folder.to_path_buf(),
            percent,
        };
        File::create(folder.join("image"))
            .and_then(|file| file.set_len(256 << 20))
            .map_err(|error| error.to_string())?;
        disk.show()?;
        FileSystem::Ext4.make(&shown)?;
        disk.volume.mount()?;
        Ok(disk)
    }

    fn switch(&self) -> PathBuf {
        self.folder.join("refuse")
    }

    /// Starts the programs and waits until the file is there.
    fn show(&mut self) -> Result<(), String> {
        let place = self.folder.join("nbd");
        fs::create_dir_all(&place).map_err(|error| error.to_string())?;
        let mut command = process::bound_to_us("nbdfuse");
        command.arg(&self.volume.image);
        command.args(["--command", "nbdkit", "-s", "--filter=error", "file"]);
        command.arg(self.folder.join("image"));
        command.args(["error-pwrite=EIO", "error-pread-rate=0%"]);
        command.arg(format!("error-pwrite-rate={}%", self.percent));
        command.arg(format!("error-file={}", text(&self.switch())));
        // nbdkit tells each refusal.
        command.stderr(Stdio::null());
        let child = command
            .spawn()
            .map_err(|error| format!("nbdfuse: {error}"))?;
        self.helper = Some(Helper(child));
        let shown = self.volume.image.clone();
        if !process::wait(Duration::from_secs(20), || shown.exists())? {
            return Err("nbdfuse shows no disk".into());
        }
        self.fuse = Some(Mount::adopt(place));
        Ok(())
    }

    fn refuse(&self) -> Result<(), String> {
        File::create(self.switch())
            .map(drop)
            .map_err(|error| error.to_string())
    }

    fn heal(&mut self) -> Result<(), String> {
        fs::remove_file(self.switch()).map_err(|error| error.to_string())?;
        self.volume.unmount()?;
        self.fuse.take().map_or(Ok(()), Mount::unmount)?;
        self.helper = None;
        self.show()?;
        check_file_system(&self.volume.image)?;
        self.volume.mount()
    }
}

/// A program that ends when its mount does.
struct Helper(Child);

impl Drop for Helper {
    fn drop(&mut self) {
        if !matches!(
            process::wait_for_end(&mut self.0, Duration::from_secs(10)),
            Ok(Some(_))
        ) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

/// A sparse image in a small file system in memory, with ext4 on a loop device over it: writes to
/// places that were never written fail once the memory is used up.
struct ThinDisk {
    volume: Volume,
    memory: Mount,
}

impl ThinDisk {
    fn make(folder: &Path, random: &mut Random) -> Result<ThinDisk, String> {
        let memory = Mount::new(
            &["-t", "tmpfs", "-o", "size=1g", "tmpfs"],
            folder.join("memory"),
        )?;
        let image = memory.place().join("image");
        let mut volume = Volume::new(FileSystem::Ext4, image.clone(), folder.join("served"));
        volume.make(512 << 20)?;
        volume.mount()?;
        let used = fs::metadata(&image)
            .map_err(|error| error.to_string())?
            .blocks()
            * 512;
        let disk = ThinDisk { volume, memory };
        disk.resize(used + (24 << 20) + random.below(40 << 20))?;
        Ok(disk)
    }

    fn resize(&self, bytes: u64) -> Result<(), String> {
        let size = format!("remount,size={bytes}");
        run("mount", &["-o", &size, text(self.memory.place())])
    }

    fn heal(&mut self) -> Result<(), String> {
        self.resize(1 << 30)?;
        self.volume.unmount()?;
        check_file_system(&self.volume.image)?;
        self.volume.mount()
    }
}

/// What a start of the machine does before it mounts.
fn check_file_system(image: &Path) -> Result<(), String> {
    let checked = std::process::Command::new("e2fsck")
        .args(["-p", text(image)])
        .output()
        .map_err(|error| format!("e2fsck: {error}"))?;
    match checked.status.code() {
        // Sound, or made so.
        Some(0 | 1) => Ok(()),
        _ => Err(format!(
            "e2fsck ended with {}: {}",
            checked.status,
            String::from_utf8_lossy(&checked.stdout)
        )),
    }
}
