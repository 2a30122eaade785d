//! File systems in files, and the ways to take a disk from under a server.
#![expect(unsafe_code, reason = "the shutdown ioctl of file systems")]

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::process::{self, run, text};

/// How long a mount may stay busy after its last user was killed: the kernel gives back what a
/// ring held some time after the process is gone.
const BUSY_MAX: Duration = Duration::from_secs(60);

const BLOCK_BYTES: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystem {
    Ext4,
    Xfs,
}

impl FileSystem {
    pub fn name(self) -> &'static str {
        match self {
            FileSystem::Ext4 => "ext4",
            FileSystem::Xfs => "xfs",
        }
    }

    /// Makes one in the file.
    pub fn make(self, image: &Path) -> Result<(), String> {
        let (program, force) = match self {
            FileSystem::Ext4 => ("mkfs.ext4", "-F"),
            FileSystem::Xfs => ("mkfs.xfs", "-f"),
        };
        run(program, &["-q", force, text(image)])
    }
}

/// Something mounted; unmounted when dropped.
pub struct Mount {
    place: PathBuf,
    is_mounted: bool,
}

impl Mount {
    /// Mounts with the words of mount(8) at a folder, which is made.
    pub fn new(words: &[&str], place: PathBuf) -> Result<Mount, String> {
        fs::create_dir_all(&place).map_err(|error| format!("{}: {error}", place.display()))?;
        run("mount", &[words, &[text(&place)]].concat())?;
        Ok(Mount {
            place,
            is_mounted: true,
        })
    }

    /// Something that another program has mounted there.
    pub fn adopt(place: PathBuf) -> Mount {
        Mount {
            place,
            is_mounted: true,
        }
    }

    pub fn place(&self) -> &Path {
        &self.place
    }

    /// Unmounts it as soon as nobody uses it.
    pub fn unmount(mut self) -> Result<(), String> {
        self.end()
    }

    fn end(&mut self) -> Result<(), String> {
        if !self.is_mounted {
            return Ok(());
        }
        // Once at any rate: the wait ends early when somebody wants this process to end.
        let mut said = run("umount", &[text(&self.place)]);
        if said.is_err() {
            let _ = process::wait(BUSY_MAX, || {
                said = run("umount", &[text(&self.place)]);
                said.is_ok()
            });
        }
        self.is_mounted = said.is_err();
        said
    }

    /// The file system takes no byte any more and forgets what it has not made durable. It stays
    /// mounted and answers everything with an error.
    pub fn shut_down(&self) -> Result<(), String> {
        /// `_IOR('X', 125, __u32)`, known to ext4 and xfs.
        const SHUTDOWN: libc::Ioctl = 0x8004_587D;
        // The journal is not flushed either.
        let no_log_flush: u32 = 2;
        let shut = File::open(&self.place).and_then(|folder| {
            // SAFETY: the folder is open, and the argument is a live u32, which the kernel reads.
            match unsafe { libc::ioctl(folder.as_raw_fd(), SHUTDOWN, &raw const no_log_flush) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        });
        shut.map_err(|error| format!("shut {} down: {error}", self.place.display()))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.end().is_err() && self.is_mounted {
            // Detached: nobody finds it any more, and the kernel unmounts it with its last user.
            let _ = run("umount", &["-l", text(&self.place)]);
        }
    }
}

/// A file system on a loop device over a file.
pub struct Volume {
    pub file_system: FileSystem,
    pub image: PathBuf,
    place: PathBuf,
    mount: Option<Mount>,
}

impl Volume {
    /// A volume over an image that is or will be there, not mounted.
    pub fn new(file_system: FileSystem, image: PathBuf, place: PathBuf) -> Volume {
        Volume {
            file_system,
            image,
            place,
            mount: None,
        }
    }

    /// Makes the image anew: a sparse file of so many bytes, with a file system.
    pub fn make(&mut self, bytes: u64) -> Result<(), String> {
        self.unmount()?;
        let made = match fs::remove_file(&self.image) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => File::create(&self.image).and_then(|file| file.set_len(bytes)),
        };
        made.map_err(|error| format!("{}: {error}", self.image.display()))?;
        self.file_system.make(&self.image)
    }

    pub fn mount(&mut self) -> Result<(), String> {
        assert!(self.mount.is_none(), "mounted once");
        let words = [
            "-t",
            self.file_system.name(),
            "-o",
            "loop",
            text(&self.image),
        ];
        self.mount = Some(Mount::new(&words, self.place.clone())?);
        Ok(())
    }

    /// Unmounts it if it is mounted.
    pub fn unmount(&mut self) -> Result<(), String> {
        self.mount.take().map_or(Ok(()), Mount::unmount)
    }

    /// Where it is mounted.
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// As [`Mount::shut_down`].
    pub fn shut_down(&self) -> Result<(), String> {
        self.mount.as_ref().expect("mounted").shut_down()
    }
}

/// What a power cut takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// What the server's file system had not flushed.
    FileSystem,
    /// What the device below it had not flushed, which is more: also what went past the page cache.
    Device,
}

impl Cut {
    pub fn name(self) -> &'static str {
        match self {
            Cut::FileSystem => "file system",
            Cut::Device => "device",
        }
    }
}

/// A disk that forgets what was not flushed: the image of the server's file system is a file in a
/// file system below. What the server's one writes goes to the page cache of the one below, a flush
/// becomes a sync of the image, and a shutdown of the one below loses what was not synced.
pub struct ForgetfulDisk {
    // Dropped in this order: what stands above goes first.
    served: Volume,
    below: Volume,
}

impl ForgetfulDisk {
    /// Makes both file systems in the folder, and proves that cuts cut.
    pub fn make(file_system: FileSystem, folder: &Path) -> Result<ForgetfulDisk, String> {
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let below_place = folder.join("below");
        let image = below_place.join("image");
        let mut disk = ForgetfulDisk {
            below: Volume::new(file_system, folder.join("image"), below_place),
            served: Volume::new(file_system, image, folder.join("served")),
        };
        disk.below.make(1 << 30)?;
        disk.below.mount()?;
        disk.served.make(512 << 20)?;
        disk.served.mount()?;
        disk.prove(Cut::FileSystem)?;
        disk.prove(Cut::Device)?;
        Ok(disk)
    }

    /// Where the server's file system is mounted.
    pub fn place(&self) -> &Path {
        self.served.place()
    }

    pub fn mount(&mut self) -> Result<(), String> {
        self.below.mount()?;
        self.served.mount()
    }

    pub fn unmount(&mut self) -> Result<(), String> {
        self.served.unmount()?;
        self.below.unmount()
    }

    /// The power goes. Until [`ForgetfulDisk::unmount`] everything on it fails.
    pub fn cut(&self, cut: Cut) -> Result<(), String> {
        match cut {
            Cut::FileSystem => self.served.shut_down(),
            Cut::Device => self.below.shut_down(),
        }
    }

    /// The power comes back.
    pub fn restore(&mut self) -> Result<(), String> {
        self.unmount()?;
        self.mount()
    }

    /// A cut must leave what was synced and take what was not; a test on one that takes nothing
    /// would prove nothing.
    fn prove(&mut self, cut: Cut) -> Result<(), String> {
        let path = self.place().join("proof");
        // The kernel may write back of its own accord in between, so a cut may take nothing once.
        for _ in 0..5 {
            write_proof(&path, cut).map_err(|error| format!("write a proof: {error}"))?;
            self.cut(cut)?;
            self.restore()?;
            let mut found = Vec::new();
            File::open(&path)
                .and_then(|mut file| file.read_to_end(&mut found))
                .map_err(|error| format!("a cut took a synced file: {error}"))?;
            if found.get(..BLOCK_BYTES) != Some(&[1; BLOCK_BYTES][..]) {
                return Err("a cut took what was synced".into());
            }
            if found.get(BLOCK_BYTES..2 * BLOCK_BYTES) != Some(&[1; BLOCK_BYTES][..]) {
                fs::remove_file(&path).map_err(|error| format!("{}: {error}", path.display()))?;
                return Ok(());
            }
        }
        Err(format!(
            "a cut of the {} takes nothing that was not synced",
            cut.name()
        ))
    }
}

/// Two blocks: one of 1 that is synced; one of 1 that is not, over synced zeros.
fn write_proof(path: &Path, cut: Cut) -> io::Result<()> {
    // O_DIRECT wants memory at the block's alignment.
    let mut memory = [0; 2 * BLOCK_BYTES];
    let begin = memory.as_ptr().align_offset(BLOCK_BYTES);
    let block = &mut memory[begin..begin + BLOCK_BYTES];
    // Past the page cache where that is what the cut must reach, as the server writes.
    let flags = match cut {
        Cut::FileSystem => 0,
        Cut::Device => libc::O_DIRECT,
    };
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(flags)
        .open(path)?;
    file.write_all(block)?;
    file.write_all(block)?;
    file.sync_all()?;
    File::open(path.parent().expect("in a folder"))?.sync_all()?;
    block.fill(1);
    file.seek(SeekFrom::Start(0))?;
    file.write_all(block)?;
    file.sync_data()?;
    file.write_all(block)
}
