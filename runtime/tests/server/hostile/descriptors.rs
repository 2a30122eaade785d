//! A server with too few file descriptors, as its clients and its operator meet it.

use super::*;

/// Whether a connection is greeted; otherwise it was told why not, or closed. Nothing hangs.
fn is_greeted(address: SocketAddr) -> Option<Raw> {
    let mut raw = Raw::new(address);
    raw.say(&hello());
    let (header, body) = raw.receive()?;
    if header.opcode == Opcode::Hello as u8 {
        return Some(raw);
    }
    let status = Status::from_code(header.level_or_status);
    let text = text_of(&body).expect("a text");
    assert_eq!(status, Some(Status::Busy), "{text}");
    assert!(text.contains("nofile"), "{text}");
    assert_eq!(header.deadline_or_retry_ms, 1000);
    None
}

#[test]
fn connections_without_a_descriptor_are_refused_and_segments_still_find_some() {
    crate::process::raise_open_files();
    let folder = Folder::new("nofile");
    let server = Server::start_with_files(&folder.0, &["--shards", "1"], 128);
    let mut open: Vec<Raw> = (0..200)
        .filter_map(|_| is_greeted(server.address))
        .collect();
    assert!((10..=96).contains(&open.len()), "{} are open", open.len());
    open.truncate(5);
    open.iter_mut().for_each(Raw::still_works);
    // The places of those that left are free again, if not at once.
    let until = Instant::now() + Duration::from_secs(20);
    while is_greeted(server.address).is_none() {
        assert!(Instant::now() < until, "nobody is let in any more");
    }
    let client = server.client();
    for number in 0..400u32 {
        let set = client.set(&number.to_le_bytes(), &[7; 60_000]).wait();
        set.expect("segments are opened");
    }
    let info: serde_json::Value =
        serde_json::from_str(&client.info().wait().expect("info")).expect("JSON");
    let refused = info["counters"]["connections_refused"].as_u64();
    assert!(refused.is_some_and(|it| it >= 100), "{refused:?}");
}

#[test]
fn a_limit_of_open_files_that_is_too_low_is_reported_with_the_need_and_how_to_raise_it() {
    let folder = Folder::new("nofile-low");
    for limit in [10, 16] {
        let direct = Server::command(&folder.0, &["--shards", "1"]);
        let mut command = crate::command::program("sh");
        command
            .args(["-c", &format!("ulimit -n {limit} && exec \"$0\" \"$@\"")])
            .arg(direct.get_program())
            .args(direct.get_args());
        let output = command.output().expect("the server");
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{printed}");
        for part in [
            &format!("may have {limit} open files")[..],
            "needs at least 48",
            "ulimit -n ",
            "LimitNOFILE=",
        ] {
            assert!(printed.contains(part), "{part}: {printed}");
        }
        assert_eq!(printed.lines().count(), 1, "{printed}");
        assert!(!folder.0.exists(), "nothing is made before");
    }
}

/// The highest descriptor of a process, once it has opened none for half a second. A file that a
/// server makes behind its start would take the one that is left for refusals.
fn highest_descriptor_at_rest(pid: u32) -> u32 {
    let highest = || {
        let numbers = fs::read_dir(format!("/proc/{pid}/fd")).expect("proc");
        let numbers = numbers.filter_map(|it| it.ok()?.file_name().to_str()?.parse::<u32>().ok());
        numbers.fold((0, 0), |(count, most), it| (count + 1, most.max(it)))
    };
    let mut last = highest();
    let until = Instant::now() + Duration::from_secs(20);
    while Instant::now() < until {
        std::thread::sleep(Duration::from_millis(500));
        if std::mem::replace(&mut last, highest()) == last {
            break;
        }
    }
    last.1
}

#[test]
fn a_connection_for_which_the_system_has_no_descriptor_is_closed() {
    let folder = Folder::new("emfile");
    let server = Server::start(&folder.0, &["--shards", "1"]);
    let mut open = Raw::greeted(server.address);
    let pid = server.process.id();
    let limit = highest_descriptor_at_rest(pid) + 1;
    let lowered = Command::new("prlimit")
        .args([
            "--pid",
            &pid.to_string(),
            &format!("--nofile={limit}:{limit}"),
        ])
        .status();
    if !lowered.is_ok_and(|it| it.success()) {
        println!("skipped: prlimit cannot lower the limit of a process here");
        return;
    }
    // Numbers below the highest one are free, for a few. Files that the server opens and closes
    // behind its start free others, so one refusal is not the last word.
    let (mut kept, mut refused) = (Vec::new(), 0);
    while refused < 20 {
        match is_greeted(server.address) {
            Some(greeted) => {
                kept.push(greeted);
                refused = 0;
            }
            None => refused += 1,
        }
        assert!(kept.len() < 1_000, "all found a descriptor");
    }
    open.still_works();
}
