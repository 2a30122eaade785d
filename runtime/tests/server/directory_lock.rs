//! The lock of a data directory in the real server: no second one beside it, whatever becomes of
//! the file LOCK, and an end by name when the directory may be another's.

use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use penstock_client::Verbs;

use crate::command::command;
use crate::process::Server;
use crate::scratch::folder;

fn serve(data: &Path) -> Command {
    let mut command = command(&["serve", "--listen", "127.0.0.1:0", "--shard-ports", "0"]);
    command
        .args([
            "--admin-listen",
            "off",
            "--resp-listen",
            "off",
            "--shards",
            "1",
        ])
        .args(["--cache-bytes", "16MiB", "--segment-bytes", "4MiB"])
        .args(["--value-bytes-max", "64KiB"])
        .arg("--data")
        .arg(data)
        .stderr(Stdio::piped());
    command
}

/// The exit code of a process that is to end by itself, and what it has said on standard error.
fn end_of(process: &mut Child) -> (Option<i32>, String) {
    let deadline = Instant::now() + Duration::from_secs(60);
    let status = loop {
        if let Some(status) = process.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < deadline, "it does not end");
        std::thread::sleep(Duration::from_millis(20));
    };
    let mut said = String::new();
    let errors = process.stderr.as_mut().expect("piped");
    errors.read_to_string(&mut said).unwrap();
    (status.code(), said)
}

/// The exit code of a start that is refused, and what it says.
fn refused(command: &mut Command) -> (Option<i32>, String) {
    end_of(&mut command.stdout(Stdio::null()).spawn().unwrap())
}

/// Waits until LOCK names the process again.
fn restored(data: &Path, server: &Server) {
    let deadline = Instant::now() + Duration::from_secs(60);
    let number = format!("{}\n", server.process.id());
    while fs::read_to_string(data.join("LOCK")).ok().as_ref() != Some(&number) {
        assert!(Instant::now() < deadline, "LOCK does not come back");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Puts a LOCK in place that this test has locked, as an older build would: one step, so that no
/// check comes in between.
fn take_as_before(data: &Path) -> File {
    let (name, lock) = (data.join("LOCK.test"), data.join("LOCK"));
    fs::write(&name, "4711\n").unwrap();
    let file = File::open(&name).unwrap();
    file.try_lock().unwrap();
    fs::rename(&name, &lock).unwrap();
    file
}

#[test]
fn a_second_server_is_refused_after_lock_was_removed_and_the_first_restores_the_file() {
    let data = folder("lock-removed");
    let mut server = Server::start(&mut serve(&data));
    let client = server.client();
    const REMOVALS: usize = 4;
    for _ in 0..REMOVALS {
        fs::remove_file(data.join("LOCK")).unwrap();
        let (code, said) = refused(&mut serve(&data));
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("in use by "), "{said}");
        restored(&data, &server);
    }
    client.set(b"key", b"kept").wait().unwrap();
    server.signal("-TERM");
    let (code, said) = end_of(&mut server.process);
    assert_eq!(code, Some(0), "{said}");
    let warned = said.matches("is there and locked again").count();
    // What a program removes each second does not fill the log.
    assert!((1..REMOVALS).contains(&warned), "{said}");
    let server = Server::start(&mut serve(&data));
    let found = server.client().get(b"key").wait().unwrap();
    assert_eq!(&found.expect("it is there").bytes[..], b"kept");
    drop(server);
    fs::remove_dir_all(&data).unwrap();
}

#[test]
fn a_server_ends_by_name_when_another_process_has_locked_its_directory() {
    let data = folder("lock-taken");
    let mut server = Server::start(&mut serve(&data));
    server.client().set(b"key", b"before").wait().unwrap();
    let _held = take_as_before(&data);
    let (code, said) = end_of(&mut server.process);
    assert_eq!(code, Some(3), "{said}");
    assert!(
        said.contains("process 4711 has locked the directory since"),
        "{said}"
    );
    fs::remove_dir_all(&data).unwrap();
}

#[test]
fn a_server_ends_by_name_when_its_directory_is_moved_away() {
    let data = folder("lock-moved");
    let elsewhere = folder("lock-moved-elsewhere");
    let mut server = Server::start(&mut serve(&data));
    server.client().set(b"key", b"value").wait().unwrap();
    fs::rename(&data, &elsewhere).unwrap();
    let (code, said) = end_of(&mut server.process);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("moved away, removed or replaced"), "{said}");
    let server = Server::start(&mut serve(&elsewhere));
    assert!(server.client().get(b"key").wait().unwrap().is_some());
    drop(server);
    fs::remove_dir_all(&elsewhere).unwrap();
}

#[test]
fn a_directory_in_which_every_user_may_write_is_warned_of_with_its_mode() {
    let data = folder("lock-open");
    for (mode, is_warned) in [
        (0o777, true),
        (0o1777, true),
        (0o775, false),
        (0o700, false),
    ] {
        fs::create_dir_all(&data).unwrap();
        fs::set_permissions(&data, Permissions::from_mode(mode)).unwrap();
        let mut server = Server::start(&mut serve(&data));
        server.signal("-TERM");
        let (code, said) = end_of(&mut server.process);
        assert_eq!(code, Some(0), "{said}");
        let text = format!("mode {mode:04o}: every user of this machine may");
        let warned = said.lines().filter(|line| line.contains(&text)).count();
        assert_eq!(warned, usize::from(is_warned), "{said}");
        fs::remove_dir_all(&data).unwrap();
    }
}
