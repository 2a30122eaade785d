//! A file system of 64 MiB on a loop device; needs root.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use penstock::directory::Directory;
use penstock::directory::spares::SpareOutcome;

use crate::spares::{LONG, ask, start};
use crate::{Folder, options};

pub(crate) struct Mounted(pub(crate) PathBuf);

impl Mounted {
    /// None, said loudly, where this user cannot mount.
    pub(crate) fn new(folder: &Folder) -> Option<Self> {
        let image = folder.path().join("image");
        let place = folder.path().join("mounted");
        fs::create_dir(&place).expect("create");
        File::create(&image)
            .and_then(|file| file.set_len(64 << 20))
            .expect("make the image");
        let made = run("mkfs.ext4", &[Path::new("-q"), Path::new("-F"), &image]).and_then(|()| {
            run(
                "mount",
                &[Path::new("-o"), Path::new("loop"), &image, &place],
            )
        });
        match made {
            Ok(()) => Some(Self(place)),
            Err(error) => {
                eprintln!("SKIPPED: cannot mount a small file system: {error}");
                None
            }
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Unmounts lazily, because a closed ring releases its files a little later.
        let _ = run("umount", &["-l".as_ref(), &self.0]);
    }
}

pub(crate) fn run(program: &str, arguments: &[&Path]) -> io::Result<()> {
    let output = Command::new(program).args(arguments).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(
        String::from_utf8_lossy(&output.stderr).into_owned(),
    ))
}

#[test]
fn a_full_disk_is_answered_to_who_asks_and_the_file_comes_when_there_is_room() {
    let folder = Folder::new("full_disk");
    let Some(mounted) = Mounted::new(&folder) else {
        return;
    };
    let directory = Directory::open(&mounted.0, options()).expect("open on a fresh file system");
    let filler = mounted.0.join("filler");
    fill(&filler);

    let spares = start(&directory);
    let shard = spares.handle();
    let inbox = ask(&shard, 16 << 20);
    // At least one more try is refused as well before there is room.
    for _ in 0..2 {
        match inbox.recv_timeout(LONG).expect("an outcome comes") {
            SpareOutcome::Refused { free_bytes, .. } => assert!(free_bytes < 16 << 20),
            other => panic!("{other:?}"),
        }
        let names = fs::read_dir(directory.segments().folder())
            .expect("list")
            .count();
        assert_eq!(names, 0, "a failed try leaves nothing behind");
    }
    fs::remove_file(&filler).expect("make room");
    loop {
        match inbox.recv_timeout(LONG).expect("an outcome comes") {
            SpareOutcome::Refused { .. } => {}
            SpareOutcome::Ready(spare) => {
                assert_eq!(spare.bytes, 16 << 20);
                break;
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn on_a_disk_that_fills_key_tables_leave_before_a_segment_is_refused() {
    let folder = Folder::new("tables_on_a_full_disk");
    let Some(mounted) = Mounted::new(&folder) else {
        return;
    };
    let directory = Directory::open(&mounted.0, options()).expect("open on a fresh file system");
    let tables = directory.key_tables();
    fs::write(tables.path().join("00000001.keys"), vec![1; 2 << 20]).expect("a table");
    let spares = start(&directory);
    let shard = spares.handle();
    let mut segments = 0;
    loop {
        let inbox = ask(&shard, 1 << 20);
        match inbox.recv_timeout(LONG).expect("an outcome comes") {
            SpareOutcome::Ready(_) => segments += 1,
            SpareOutcome::Refused { .. } => break,
            other => panic!("{other:?}"),
        }
        let is_there = !tables.list().expect("list").is_empty();
        assert!(segments > 4 || is_there, "there is much room");
    }
    assert!(tables.list().expect("list").is_empty());
    assert!(segments > 32, "{segments}");
}

#[test]
fn a_server_starts_on_a_disk_that_has_no_room_to_be_timed() {
    let folder = Folder::new("untimed");
    let Some(mounted) = Mounted::new(&folder) else {
        return;
    };
    let filler = mounted.0.join("filler");
    fill(&filler);
    let filler = File::options().write(true).open(filler).expect("open");
    let bytes = filler.metadata().expect("it is there").len();
    // Enough for the small files of a data directory.
    filler
        .set_len(bytes - (256 << 10))
        .expect("make a little room");
    filler.sync_all().expect("make a little room");

    let mut command = Command::new(env!("CARGO_BIN_EXE_penstock"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PENSTOCK_") {
            command.env_remove(name);
        }
    }
    let mut server = command
        .arg("serve")
        .arg("--data")
        .arg(mounted.0.join("data"))
        .args(["--listen", "127.0.0.1:0", "--shard-ports", "0"])
        // A ring gives files back some time after its process is gone, and they hold the mount.
        .args(["--io", "threads", "--shards", "1"])
        .args(["--value-bytes-max", "64KiB"])
        .args(["--segment-bytes", "4MiB"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the server");
    let banner = BufReader::new(server.stdout.take().expect("piped"));
    let said: Vec<String> = banner
        .lines()
        .map_while(Result::ok)
        .take_while(|line| line != "ready")
        .collect();
    let _ = server.kill();
    let ended = server.wait_with_output().expect("its end");
    let errors = String::from_utf8_lossy(&ended.stderr);
    // One that ended by itself has an exit code; what was killed has none.
    let is_serving = ended.status.code().is_none();
    assert!(is_serving, "{}\n{errors}", said.join("\n"));
    assert!(
        said.iter().any(|line| line.contains("not timed")),
        "{said:?}"
    );
}

/// Writes until nothing fits any more.
fn fill(path: &Path) {
    let mut file = File::create(path).expect("create");
    for bytes in [1 << 20, 1 << 12] {
        let chunk = vec![1; bytes];
        while file
            .write_all(&chunk)
            .and_then(|()| file.sync_data())
            .is_ok()
        {}
    }
}

#[test]
fn a_directory_is_started_on_a_disk_on_which_no_byte_is_left() {
    let folder = Folder::new("start_on_a_full_disk");
    let Some(mounted) = Mounted::new(&folder) else {
        return;
    };
    let path = mounted.0.join("data");
    for incarnation in 1..=2 {
        let directory = Directory::open(&path, options()).expect("there is room");
        assert_eq!(directory.identity().incarnation, incarnation);
    }
    let mut filler = File::create(mounted.0.join("filler")).expect("there is room");
    for block in [1 << 20, 4096, 512, 1] {
        while filler.write_all(&vec![7; block]).is_ok() {}
    }
    drop(filler.sync_all());
    let refused = fs::write(mounted.0.join("one"), [7]);
    assert_eq!(
        refused.map_err(|error| error.kind()),
        Err(io::ErrorKind::StorageFull)
    );
    for incarnation in 3..=5 {
        let directory = Directory::open(&path, options()).expect("it needs none");
        assert_eq!(directory.identity().incarnation, incarnation);
    }
}

#[test]
fn no_segment_is_refused_while_a_shard_closes_a_key_table_that_leaves_for_it() {
    let folder = Folder::new("table_leaves_a_full_disk");
    let Some(mounted) = Mounted::new(&folder) else {
        return;
    };
    let directory = Directory::open(&mounted.0, options()).expect("open on a fresh file system");
    let tables = directory.key_tables();
    let path = tables.path().join("00000001.keys");
    fs::write(&path, vec![1; 30 << 20]).expect("a table");
    let opened = File::open(&path).expect("open");
    let spares = start(&directory);
    let inbox = ask(&spares.handle(), 40 << 20);
    while !tables.list().expect("list").is_empty() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    drop(opened);
    let outcome = inbox.recv_timeout(LONG).expect("an outcome comes");
    assert!(matches!(outcome, SpareOutcome::Ready(_)), "{outcome:?}");
}
