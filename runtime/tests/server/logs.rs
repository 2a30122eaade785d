//! The log of the real server: one event a line, whole, and written before the end.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, PipeReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use penstock::config::{Config, LogFormat};
use penstock::server::logging::Logging;
use penstock_client::tls::ClientTls;
use penstock_client::{Client, ClientOptions, Verbs};
use serde_json::Value;

use crate::command::command;
use crate::process::Server;
use crate::scratch::folder;
use crate::tls::Authority;

fn serve(data: &Path, flags: &[&str]) -> Command {
    let mut command = command(&["serve", "--listen", "127.0.0.1:0", "--shard-ports", "0"]);
    command
        .args(["--admin-listen", "off", "--io", "threads", "--shards", "1"])
        .args(["--cache-bytes", "16MiB", "--segment-bytes", "4MiB"])
        .args(["--value-bytes-max", "64KiB"])
        .args(flags)
        .arg("--data")
        .arg(data);
    command
}

/// SIGTERM; the exit code.
fn stop(server: &mut Server) -> Option<i32> {
    server.signal("-TERM");
    let until = Instant::now() + Duration::from_secs(60);
    while Instant::now() < until {
        if let Some(status) = server.process.try_wait().unwrap() {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("SIGTERM did not end the server");
}

/// What the server has said on standard error by its end.
fn said(server: &mut Server) -> String {
    let mut said = String::new();
    let errors = server.process.stderr.as_mut().expect("piped");
    errors.read_to_string(&mut said).unwrap();
    said
}

/// The log as it is in a file of JSON lines.
fn events(text: &str) -> Vec<Value> {
    let lines = text.lines().map(|line| {
        let event: Value = serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {line}"));
        assert!(event["message"].is_string(), "{line}");
        assert_time(event["timestamp"].as_str().expect("a time"));
        let level = event["level"].as_str().expect("a level");
        assert!(["INFO", "WARN", "ERROR"].contains(&level), "{line}");
        event
    });
    lines.collect()
}

/// As in `2026-11-23T20:03:40.123456Z`.
fn assert_time(text: &str) {
    let form: String = text
        .chars()
        .map(|it| if it.is_ascii_digit() { '0' } else { it })
        .collect();
    assert_eq!(form, "0000-00-00T00:00:00.000000Z", "{text}");
}

fn with_message<'a>(events: &'a [Value], start: &str) -> Option<&'a Value> {
    let is_it = |event: &&Value| event["message"].as_str().unwrap().starts_with(start);
    events.iter().find(is_it)
}

#[test]
fn a_life_is_logged_as_json_lines_with_named_fields() {
    let data = folder("logs-json");
    let mut command = serve(&data, &["--log-format", "json"]);
    let mut server = Server::start(command.stderr(Stdio::piped()));
    let address = server.address.to_string();
    assert_eq!(stop(&mut server), Some(0));
    let events = events(&said(&mut server));
    let ready = with_message(&events, "ready").expect("it was ready");
    assert_eq!(ready["level"], "INFO");
    assert_eq!(ready["shards"], 1);
    assert_eq!(ready["listen"], address.as_str());
    assert_eq!(ready["version"], env!("CARGO_PKG_VERSION"));
    assert!(ready["start_ms"].is_u64(), "{ready}");
    assert!(with_message(&events, "stopping").is_some());
    assert!(with_message(&events, "stopped").is_some());
    fs::remove_dir_all(&data).unwrap();
}

#[test]
fn text_lines_begin_with_time_and_level_and_end_with_fields() {
    let data = folder("logs-text");
    let mut server = Server::start(serve(&data, &[]).stderr(Stdio::piped()));
    assert_eq!(stop(&mut server), Some(0));
    let said = said(&mut server);
    let ready = said.lines().next().expect("a line");
    let (time, rest) = ready.split_once(' ').expect("words");
    assert_time(time);
    assert!(rest.trim_start().starts_with("INFO ready "), "{ready}");
    assert!(ready.contains(" shards=1 "), "{ready}");
    fs::remove_dir_all(&data).unwrap();
}

#[test]
fn a_refused_start_is_one_error_with_its_exit_code_and_a_level_leaves_out_the_rest() {
    let data = folder("logs-refused");
    let quiet = ["--log-format", "json", "--log-level", "error"];
    let mut server = Server::start(serve(&data, &quiet).stderr(Stdio::piped()));
    let refused = serve(&data, &quiet).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let lines = events(std::str::from_utf8(&refused.stderr).unwrap());
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(lines[0]["level"], "ERROR");
    assert_eq!(lines[0]["exit_code"], 2);
    let text = lines[0]["message"].as_str().unwrap();
    assert!(text.contains("in use by process"), "{text}");
    assert_eq!(stop(&mut server), Some(0));
    assert_eq!(said(&mut server), "", "nothing was an error");
    fs::remove_dir_all(&data).unwrap();
}

#[test]
fn with_a_log_file_a_refused_start_is_reported_there_and_on_standard_error() {
    let data = folder("logs-file-refused");
    fs::create_dir_all(&data).unwrap();
    fs::write(data.join("diary"), "somebody's").unwrap();
    let log = folder("logs-file-refused.log");
    let _ = fs::remove_file(&log);
    let path = log.to_str().unwrap();
    let flags = ["--log-format", "json", "--log-file", path];
    let refused = serve(&data, &flags).output().unwrap();
    let line = String::from_utf8(refused.stderr).unwrap();
    assert!(line.starts_with("penstock: ") && line.contains("diary"));
    assert_eq!(line.lines().count(), 1, "{line}");
    let lines = events(&fs::read_to_string(&log).unwrap());
    assert_eq!(lines[0]["exit_code"], 2);

    let nowhere = data.join("nowhere").join("log");
    let flags = ["--log-file", nowhere.to_str().unwrap()];
    let refused = serve(&data, &flags).output().unwrap();
    let line = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2), "{line}");
    assert!(line.starts_with("penstock: cannot append to the log file "));
    assert!(line.contains(nowhere.to_str().unwrap()), "{line}");
    fs::remove_dir_all(&data).unwrap();
    fs::remove_file(&log).unwrap();
}

/// Runs a test of this file that is ignored otherwise, in a process of its own which logs to `log`.
fn child(test: &str, log: &Path) -> Option<i32> {
    use std::os::unix::process::ExitStatusExt;
    let _ = fs::remove_file(log);
    let ended = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("logs::{test}"), "--ignored"])
        .arg("--nocapture")
        .env("LOG_OF_CHILD", log)
        .env_remove("RUST_BACKTRACE")
        .output()
        .unwrap();
    ended.status.signal()
}

fn log_of_child() -> Logging {
    let config = Config {
        log_format: LogFormat::Json,
        log_file: std::env::var_os("LOG_OF_CHILD").map(PathBuf::from),
        ..Config::default()
    };
    Logging::install(&config).expect("the file of the log")
}

/// Ends the process as a panic of the shipped binary does, right behind what is told of it.
struct AbortsOnUnwind;

impl Drop for AbortsOnUnwind {
    fn drop(&mut self) {
        std::process::abort();
    }
}

#[test]
#[ignore = "run by a_panic_is_logged_before_the_end_and_no_line_of_before_is_lost"]
fn panic_on_a_thread_of_its_own() {
    let _logging = log_of_child();
    for number in 0..1000 {
        tracing::info!(number, "line\nbreak");
    }
    let thread = std::thread::Builder::new().name("penstock-7".into());
    let panics = thread.spawn(|| {
        let _aborts = AbortsOnUnwind;
        panic!("the durable end {} is behind", 42);
    });
    let _ = panics.expect("a thread").join();
}

#[test]
fn a_panic_is_logged_before_the_end_and_no_line_of_before_is_lost() {
    let log = folder("logs-panic.log");
    assert_eq!(child("panic_on_a_thread_of_its_own", &log), Some(6));
    let events = events(&fs::read_to_string(&log).unwrap());
    assert_eq!(events.len(), 1001, "{events:?}");
    assert_eq!(events[999]["number"], 999);
    let panic = &events[1000];
    assert_eq!(panic["level"], "ERROR");
    assert_eq!(panic["thread"], "penstock-7");
    let text = panic["message"].as_str().unwrap();
    assert!(
        text.contains("panicked at runtime/tests/server/logs.rs"),
        "{text}"
    );
    assert!(text.ends_with("the durable end 42 is behind"), "{text}");
    fs::remove_file(&log).unwrap();
}

/// Starts a server whose both streams are one pipe, as by `2>&1 | less`. The pipe is read until the
/// server is ready, and is full from then on. Returns its reader, too, which keeps it.
fn unread(command: &mut Command) -> (Server, BufReader<PipeReader>) {
    let (reader, writer) = std::io::pipe().unwrap();
    let both = writer.try_clone().unwrap();
    let filling = writer.try_clone().unwrap();
    let process = command.stdout(both).stderr(writer).spawn().unwrap();
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let (mut reader, mut address) = (BufReader::new(reader), None);
    loop {
        let mut line = String::new();
        assert!(reader.read_line(&mut line).unwrap() > 0, "it has ended");
        if let Some(rest) = line.strip_prefix("listening") {
            address = rest.split_whitespace().next().map(|it| it.parse().unwrap());
        }
        if line == "ready\n" {
            break;
        }
    }
    std::thread::spawn(move || {
        let mut filling = filling;
        while std::io::Write::write_all(&mut filling, b"x").is_ok() {}
    });
    let address = address.expect("it listens");
    (Server { process, address }, reader)
}

#[test]
fn a_log_that_nobody_reads_stops_no_shard_and_no_stop() {
    let data = folder("logs-unread");
    let certificates = folder("logs-unread-tls");
    fs::create_dir_all(&certificates).unwrap();
    let authority = Authority::new("log");
    let pair = authority.signs_with("server", |_| ());
    let [certificate, key] =
        [("cert", &pair.certificate), ("key", &pair.key)].map(|(name, pem)| {
            let path = certificates.join(name);
            fs::write(&path, pem).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
            path.display().to_string()
        });
    let flags = ["--tls-cert", &certificate, "--tls-key", &key];
    let (mut server, reader) = unread(&mut serve(&data, &flags));
    let options = ClientOptions {
        deadline: Duration::from_secs(60),
        tls: Some(ClientTls::trusting(authority.pem.as_bytes()).unwrap()),
        ..ClientOptions::default()
    };
    let client = Client::connect(server.address, options).unwrap();
    for number in 0..20u8 {
        // The shard says so in the log: this is no TLS.
        let mut plain = TcpStream::connect(server.address).unwrap();
        plain.write_all(&[b'a' + number; 64]).unwrap();
        let _ = plain.read_to_end(&mut Vec::new());
        client.set(b"key", &[number]).wait().unwrap();
        server.signal("-HUP");
    }
    assert_eq!(stop(&mut server), Some(0));
    drop(reader);
    for path in [&data, &certificates] {
        fs::remove_dir_all(path).unwrap();
    }
}
