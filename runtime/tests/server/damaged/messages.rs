//! Messages for whoever is called at three in the morning: the file with its directory, what is
//! wrong with it, and the command to paste.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use penstock_client::{ClientError, Verbs};
use penstock_net::status::Status;

use super::{
    connect, copy, folder, key, output_of, refused, segments, serve, stop, stopped_cleanly,
};
use crate::process::Server;

#[test]
fn a_missing_segment_is_called_missing_and_its_neighbour_is_not_called_damaged() {
    let sound = stopped_cleanly("message-sound");
    let directory = folder("message missing");
    copy(&sound, &directory);
    let files = segments(&directory);
    fs::remove_file(&files[&1]).unwrap();
    let second = fs::read(&files[&2]).unwrap();
    let last_lsn = u64::from_le_bytes(second[112..120].try_into().unwrap());
    let (code, text) = refused(&directory, &[]);
    assert_eq!(code, Some(1), "{text}");
    let path = directory.display();
    let missing_shown = format!(
        "segment 1 of log 1 is missing: no file holds it, and records between LSN 1 and \
         {last_lsn} were durable there (if cleaning has released it, the list that tells so is \
         lost); the segment behind it, {}, is in place",
        files[&2].display()
    );
    let expected = format!(
        "{missing_shown}; no record was touched; to see all: penstock inspect '{path}'; to see \
         what a mend would give up: penstock inspect '{path}' --repair"
    );
    assert!(text.contains(&expected), "{text}\n{expected}");
    let text = output_of(1, &["inspect", directory.to_str().unwrap()]);
    assert!(
        text.contains(&format!("DAMAGED: {missing_shown}\n")),
        "{text}"
    );
    assert!(!text.contains("damaged at offset 0"), "{text}");
}

#[test]
fn snapshots_beside_a_damaged_header_are_not_called_unusable() {
    let directory = stopped_cleanly("message-header");
    let files = segments(&directory);
    let mut bytes = fs::read(&files[&1]).unwrap();
    bytes[100] ^= 1;
    fs::write(&files[&1], bytes).unwrap();
    let path = directory.to_str().unwrap();
    let text = output_of(1, &["inspect", path]);
    assert!(
        text.contains(&format!(
            "DAMAGED: {} is damaged at offset 0: its header does not check and frames stand \
             behind it\n",
            files[&1].display()
        )),
        "{text}"
    );
    assert!(
        text.contains(
            "1 snapshot and 0 key tables were not looked at: they are judged by the segments, \
             which are damaged\n"
        ),
        "{text}"
    );
    assert!(!text.contains("not usable"), "{text}");
    assert!(
        text.contains(&format!(
            "to see what a mend would give up: penstock inspect {path} --repair"
        )),
        "{text}"
    );
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|it| it.uid() == 0)
}

#[test]
fn a_directory_of_another_user_is_refused_by_path_and_with_the_chown_that_mends_it() {
    const NOBODY: u32 = 65_534;
    if !is_root() {
        eprintln!("SKIPPED: only root can give a directory away");
        return;
    }
    let directory = folder("message-owner");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("PEERS"), "").unwrap();
    if chown(&directory, Some(NOBODY), None).is_err() {
        eprintln!("SKIPPED: this root may give nothing away");
        return;
    }
    fs::set_permissions(directory.join("PEERS"), fs::Permissions::from_mode(0o600)).unwrap();
    let output = serve(&directory).uid(NOBODY).output();
    let Ok(output) = output else {
        eprintln!("SKIPPED: another user cannot run the binary of this build");
        return;
    };
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    let path = directory.display();
    let expected = format!(
        "{path}/PEERS: user {NOBODY} has no permission to read it, which belongs to user 0; run: \
         chown -R {NOBODY} {path} (as root), or name another directory with --data"
    );
    assert!(text.contains(&expected), "{text}\n{expected}");
}

#[test]
fn the_command_that_mends_a_directory_which_a_user_may_not_make_does_mend_it() {
    const NOBODY: u32 = 65_534;
    if !is_root() {
        eprintln!("SKIPPED: only root can make a directory for another user");
        return;
    }
    let above = folder("message-missing");
    fs::create_dir(&above).unwrap();
    fs::set_permissions(&above, fs::Permissions::from_mode(0o755)).unwrap();
    let directory = above.join("my data");
    let Ok(output) = serve(&directory).uid(NOBODY).output() else {
        eprintln!("SKIPPED: another user cannot run the binary of this build");
        return;
    };
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    let command_line = text.split_once("; run: ").expect("a command").1;
    let command_line = command_line
        .split_once(" (as root)")
        .expect("who runs it")
        .0;
    let ran = Command::new("sh")
        .args(["-c", command_line])
        .status()
        .unwrap();
    assert!(ran.success(), "{command_line}");
    let mut server = serve(&directory);
    Server::start(server.uid(NOBODY)).stop();
}

#[test]
fn a_rotten_bit_in_an_unused_spare_is_reported_and_the_server_serves() {
    let directory = stopped_cleanly("message-spare");
    let entries = fs::read_dir(directory.join("segments")).unwrap();
    let mut spares: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| fs::read(path).unwrap().iter().all(|&byte| byte == 0))
        .collect();
    spares.sort_unstable();
    // One in the first block, where a header would stand, one behind what a start reads before it
    // serves.
    let rots = [(0, 300), (1, 3_000_000)];
    for (spare, at) in rots {
        let mut bytes = fs::read(&spares[spare]).unwrap();
        bytes[at] = 4;
        fs::write(&spares[spare], bytes).unwrap();
    }
    let text = |spare: usize, at: usize| {
        format!(
            "{} is an unused spare in which one byte should be zero, the first at offset {at} \
             (0x04), and nothing shows that it was ever a segment",
            spares[spare].display()
        )
    };
    let path = directory.to_str().unwrap();
    let shown = output_of(0, &["inspect", path]);
    for (spare, at) in rots {
        let expected = format!(
            "ROTTEN: {}; no record is lost, and the next start sets it aside\n",
            text(spare, at)
        );
        assert!(shown.contains(&expected), "{shown}\n{expected}");
    }
    let server = Server::start(serve(&directory).stderr(Stdio::piped()));
    let client = connect(&server);
    // Enough for more segments than were ready.
    for number in 0..1_200 {
        client.set(&key(number), &[8; 10_000]).wait().unwrap();
    }
    drop(client);
    let said = stop(server);
    for (spare, at) in rots {
        let name = spares[spare].file_name().unwrap().to_str().unwrap();
        let expected = format!(
            "{}; it lies in {path}/lostfound/spares/{name} now, and another one is made: no \
             record is lost, but the device changes bytes that nobody writes",
            text(spare, at)
        );
        assert_eq!(said.matches(&expected).count(), 1, "{said}\n{expected}");
        assert_eq!(
            fs::read(directory.join("lostfound/spares").join(name)).unwrap()[at],
            4
        );
    }
    assert!(output_of(0, &["inspect", path]).contains("no damage"));
}

#[test]
fn a_place_that_is_answered_corrupt_is_reported_once_with_file_offset_and_key_hash() {
    let directory = stopped_cleanly("message-corrupt");
    let files = segments(&directory);
    let mut bytes = fs::read(&files[&1]).unwrap();
    // The part begins 40 bytes before its key.
    let name = key(123);
    let at = bytes
        .windows(name.len())
        .position(|window| window == name)
        .unwrap();
    bytes[at + 100] ^= 1;
    fs::write(&files[&1], bytes).unwrap();

    let mut server = Server::start(serve(&directory).stderr(Stdio::piped()));
    let errors = BufReader::new(server.process.stderr.take().unwrap()).lines();
    let reader = std::thread::spawn(move || errors.map_while(Result::ok).collect::<Vec<_>>());
    let client = connect(&server);
    for _ in 0..3 {
        let refused = client.get(&name).wait().unwrap_err();
        let is_corrupt =
            matches!(&refused, ClientError::Refused(it) if it.status == Status::Corrupt);
        assert!(is_corrupt, "{refused:?}");
    }
    let info: serde_json::Value = serde_json::from_str(&client.info().wait().unwrap()).unwrap();
    assert_eq!(info["counters"]["bad_places"], 1);
    drop(client);
    stop(server);
    let lines: Vec<String> = reader.join().unwrap();
    let reported: Vec<&String> = lines
        .iter()
        .filter(|line| line.contains("CORRUPT"))
        .collect();
    let [line] = reported[..] else {
        panic!("{lines:?}")
    };
    let path = directory.display();
    let expected = format!(
        "shard 0: {} does not hold what was written at offset {} (slot ",
        files[&1].display(),
        at - 40
    );
    assert!(
        line.contains(&expected) && line.contains("ERROR"),
        "{line}\n{expected}"
    );
    let advice = format!(
        "the request was answered CORRUPT, and so is every one that needs this place; restore a \
         backup elsewhere, or see what a mend would give up, once the server is stopped: penstock \
         inspect {path} --repair"
    );
    assert!(line.contains(&advice), "{line}\n{advice}");
    assert!(
        line.contains("key_hash=") && !line.contains("key:123"),
        "{line}"
    );
}
