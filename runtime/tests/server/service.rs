//! The server under a service manager: signals, notifications, the watchdog.
#![expect(unsafe_code, reason = "one thread of the server is stopped by ptrace")]

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use penstock_client::{Client, ClientOptions, Verbs};

use crate::command::command;
use crate::process::Server;
use crate::scratch;

/// No wait of these tests is as long, whatever else the machine does.
const PATIENCE: Duration = Duration::from_secs(60);

/// A new directory of a test.
fn folder(name: &str) -> PathBuf {
    let path = scratch::folder(name);
    fs::create_dir_all(&path).unwrap();
    path
}

fn serve(folder: &Path, flags: &[&str]) -> Command {
    let mut command = command(&["serve", "--listen", "127.0.0.1:0", "--shard-ports", "0"]);
    command
        .args(["--admin-listen", "off", "--shards", "1"])
        .args(["--cache-bytes", "16MiB", "--segment-bytes", "4MiB"])
        .args(["--value-bytes-max", "64KiB"])
        .args(flags)
        .arg("--data")
        .arg(folder.join("data"));
    command
}

/// The exit code of a server that is to end by itself.
fn end_of(server: &mut Server) -> Option<i32> {
    let mut code = None;
    wait_for("the end of the server", || {
        code = server.process.try_wait().unwrap();
        code.is_some()
    });
    code.and_then(|status| status.code())
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "{what} does not come");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn text_of(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn ping(server: &Server) {
    let client = Client::connect(server.address, ClientOptions::default()).unwrap();
    client.set(b"key", b"value").wait().unwrap();
}

#[test]
fn sighup_opens_the_log_file_anew_and_the_server_goes_on() {
    let folder = folder("service-rotated");
    let (log, old) = (folder.join("log"), folder.join("log.1"));
    let flags = ["--log-file", log.to_str().unwrap()];
    let mut server = Server::start(&mut serve(&folder, &flags));
    // The banner says so before the log does.
    wait_for("the event in the log", || {
        text_of(&log).contains(" INFO ready ")
    });
    fs::rename(&log, &old).unwrap();
    server.signal("-HUP");
    wait_for("the new file of the log", || {
        text_of(&log).contains("SIGHUP: the log file")
    });
    let before = text_of(&old);
    assert!(before.contains(" INFO ready "), "{before}");
    assert!(!before.contains("SIGHUP"), "{before}");
    ping(&server);

    // A directory that is gone: the log goes on in the file that is open.
    fs::rename(&log, folder.join("log.2")).unwrap();
    fs::create_dir(&log).unwrap();
    server.signal("-HUP");
    wait_for("a word about the file", || {
        text_of(&folder.join("log.2")).contains("cannot append to the log file")
    });
    ping(&server);
    server.signal("-TERM");
    assert_eq!(end_of(&mut server), Some(0));
    assert!(text_of(&folder.join("log.2")).contains(" INFO stopped"));
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn the_audit_log_has_start_reload_and_stop_and_goes_on_in_a_file_that_is_opened_anew() {
    let folder = folder("service-audit");
    let (audit, old) = (folder.join("audit"), folder.join("audit.1"));
    let flags = ["--audit-file", audit.to_str().unwrap()];
    let mut server = Server::start(&mut serve(&folder, &flags));
    fs::rename(&audit, &old).unwrap();
    server.signal("-HUP");
    wait_for("the reload in the new file", || {
        text_of(&audit).contains("\"event\":\"reload\"")
    });
    ping(&server);
    server.signal("-TERM");
    assert_eq!(end_of(&mut server), Some(0));
    let events = |path| -> Vec<String> {
        let text = text_of(path);
        let lines = text.lines().map(|line| {
            let value: serde_json::Value = serde_json::from_str(line).expect("one object a line");
            value["event"].as_str().expect("an event").to_string()
        });
        lines.collect()
    };
    assert_eq!(events(&old), ["start"]);
    assert_eq!(events(&audit), ["reload", "stop"]);

    let nowhere = folder.join("none/audit");
    let mut refused = serve(&folder, &["--audit-file", nowhere.to_str().unwrap()]);
    let output = refused.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && printed.contains("none/audit"),
        "{printed}"
    );
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn sighup_and_other_stray_signals_end_no_server_and_are_reported() {
    let folder = folder("service-signals");
    let errors = folder.join("errors");
    let mut command = serve(&folder, &[]);
    command.stderr(fs::File::create(&errors).unwrap());
    let mut server = Server::start(&mut command);
    for (name, part) in [
        ("-HUP", "SIGHUP: nothing to reload"),
        ("-USR1", "signal 10 does nothing"),
        ("-USR2", "signal 12 does nothing"),
    ] {
        server.signal(name);
        wait_for(part, || text_of(&errors).contains(part));
    }
    server.signal("-PIPE");
    ping(&server);
    server.signal("-INT");
    assert_eq!(end_of(&mut server), Some(0));
    fs::remove_dir_all(&folder).unwrap();
}

/// What a service manager would hear, word for word, as it comes: a full socket would stop who
/// speaks.
struct Manager(mpsc::Receiver<String>);

impl Manager {
    fn new(path: &Path) -> Manager {
        let socket = UnixDatagram::bind(path).unwrap();
        let (words, notices) = mpsc::channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(len) = socket.recv(&mut bytes) {
                let text = String::from_utf8(bytes[..len].to_vec()).unwrap();
                if words.send(text).is_err() {
                    return;
                }
            }
        });
        Manager(notices)
    }

    /// The next words that are none of the watchdog's.
    fn next_notice(&self) -> String {
        loop {
            let words = self.0.recv_timeout(PATIENCE).expect("the server speaks");
            if words != "WATCHDOG=1\n" {
                return words;
            }
        }
    }

    fn gets_watchdog(&self) {
        while self.0.recv_timeout(PATIENCE).expect("it is fed") != "WATCHDOG=1\n" {}
    }
}

#[test]
fn a_service_manager_is_notified_of_ready_reload_and_stop() {
    let folder = folder("service-notify");
    let manager = Manager::new(&folder.join("notify"));
    let mut command = serve(&folder, &[]);
    let mut server = Server::start(command.env("NOTIFY_SOCKET", folder.join("notify")));
    assert_eq!(manager.next_notice(), "READY=1\nSTATUS=serving\n");
    ping(&server);
    server.signal("-HUP");
    let reloading = manager.next_notice();
    assert!(
        reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="),
        "{reloading}"
    );
    assert_eq!(manager.next_notice(), "READY=1\nSTATUS=serving\n");
    server.signal("-TERM");
    assert!(manager.next_notice().starts_with("STOPPING=1\n"));
    assert_eq!(end_of(&mut server), Some(0));
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_log_file_that_cannot_be_opened_anew_is_reported_to_the_service_manager_and_on_standard_error()
{
    let folder = folder("service-log-refused");
    let manager = Manager::new(&folder.join("notify"));
    let (log, errors) = (folder.join("log"), folder.join("errors"));
    let flags = ["--log-file", log.to_str().unwrap()];
    let mut command = serve(&folder, &flags);
    command
        .env("NOTIFY_SOCKET", folder.join("notify"))
        .stderr(fs::File::create(&errors).unwrap());
    let mut server = Server::start(&mut command);
    assert_eq!(manager.next_notice(), "READY=1\nSTATUS=serving\n");
    fs::rename(&log, folder.join("log.1")).unwrap();
    fs::create_dir(&log).unwrap();
    server.signal("-HUP");
    assert!(manager.next_notice().starts_with("RELOADING=1\n"));
    let refused = "SIGHUP: cannot append to the log file";
    let words = manager.next_notice();
    assert!(
        words.starts_with(&format!("READY=1\nSTATUS=serving; {refused}")),
        "{words}"
    );
    // A thread of its own writes the lines, after the manager was informed.
    let has_line = |path: &Path| {
        (0..1_000).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            text_of(path).contains(refused)
        })
    };
    assert!(has_line(&errors) && has_line(&folder.join("log.1")));
    let printed = text_of(&errors);
    assert!(
        printed.starts_with(&format!("penstock: {refused}")),
        "{printed}"
    );
    ping(&server);

    // The next reload that succeeds takes the notice back.
    fs::remove_dir(&log).unwrap();
    server.signal("-HUP");
    assert!(manager.next_notice().starts_with("RELOADING=1\n"));
    assert_eq!(manager.next_notice(), "READY=1\nSTATUS=serving\n");
    server.signal("-TERM");
    assert!(manager.next_notice().starts_with("STOPPING=1\n"));
    assert_eq!(end_of(&mut server), Some(0));
    fs::remove_dir_all(&folder).unwrap();
}

/// The thread of the first shard.
fn shard_thread(pid: u32) -> i32 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let mut threads = tasks.map(|task| task.unwrap().path());
    let is_shard = |path: &PathBuf| text_of(&path.join("comm")).trim() == "penstock-0";
    let shard = threads.find(is_shard).expect("a shard has a thread");
    let name = shard.file_name().unwrap().to_str().unwrap();
    name.parse().unwrap()
}

fn ptrace(request: libc::c_uint, thread: i32) {
    let nothing = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: none of these requests reads or writes memory of this process.
    let done = unsafe { libc::ptrace(request, thread, nothing, nothing) };
    assert_eq!(done, 0, "ptrace: {}", std::io::Error::last_os_error());
}

#[test]
fn the_watchdog_is_fed_only_while_the_loop_of_every_shard_turns() {
    let folder = folder("service-watchdog");
    let manager = Manager::new(&folder.join("notify"));
    let errors = folder.join("errors");
    let mut command = serve(&folder, &[]);
    command
        .env("NOTIFY_SOCKET", folder.join("notify"))
        .env("WATCHDOG_USEC", "400000")
        .stderr(fs::File::create(&errors).unwrap());
    let mut server = Server::start(&mut command);
    manager.gets_watchdog();
    manager.gets_watchdog();
    let thread = shard_thread(server.process.id());
    ptrace(libc::PTRACE_SEIZE, thread);
    ptrace(libc::PTRACE_INTERRUPT, thread);
    let part = "the loop of shard 0 has not turned";
    wait_for(part, || text_of(&errors).contains(part));
    // What was said before it was noticed is behind; then there is silence.
    let silence = Duration::from_millis(1500);
    while manager.0.recv_timeout(silence).is_ok() {}
    // SAFETY: the status is not asked for.
    unsafe { libc::waitpid(thread, std::ptr::null_mut(), libc::__WALL) };
    ptrace(libc::PTRACE_DETACH, thread);
    manager.gets_watchdog();
    ping(&server);
    server.signal("-TERM");
    assert_eq!(end_of(&mut server), Some(0));
    fs::remove_dir_all(&folder).unwrap();
}
