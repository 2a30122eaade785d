//! A clean stop whose tail is lost: a snapshot tells how far the log went, and every command holds
//! it against the end that it finds.

use std::fs;
use std::path::Path;

use penstock::directory::Directory;
use penstock_client::Verbs;

use super::stopped_cleanly;
use super::{KEYS, connect, copy, folder, key, output_of, refused, segments, serve, stop};
use crate::process::Server;

/// What the tests take away from the end of the log.
const LOST_BYTES: usize = 1_500_000;

/// Zeros where the last [`LOST_BYTES`] of the log stood.
fn lose_tail(directory: &Path) {
    let (_, path) = segments(directory).pop_last().unwrap();
    let mut bytes = fs::read(&path).unwrap();
    let end = bytes.iter().rposition(|&byte| byte != 0).unwrap() + 1;
    assert!(end > LOST_BYTES + 100_000, "{end} bytes are used");
    bytes[end - LOST_BYTES..].fill(0);
    fs::write(path, bytes).unwrap();
}

/// The first record that is lost, as a refusal tells it.
fn lost_from(refusal: &str) -> usize {
    let (_, lost) = refusal
        .split_once("durable: LSN ")
        .unwrap_or_else(|| panic!("{refusal}"));
    let (from, rest) = lost.split_once(" to ").unwrap();
    assert!(rest.starts_with(&format!("{KEYS} are lost")), "{refusal}");
    from.parse().unwrap()
}

#[test]
fn a_clean_stop_whose_tail_is_zeroed_is_refused_by_start_inspect_verify_and_backup() {
    let directory = stopped_cleanly("lost-tail-refused");
    lose_tail(&directory);
    let path = directory.to_str().unwrap();
    for words in [&["inspect", path][..], &["verify", path]] {
        let text = output_of(1, words);
        assert!(!text.contains("no damage"), "{words:?}: {text}");
        assert!(!text.contains("never acknowledged"), "{words:?}: {text}");
        assert!(
            text.contains("DAMAGED: log 1 ends at LSN "),
            "{words:?}: {text}"
        );
    }
    // Also a start that would end the log for good, for another number of shards.
    for more in [&[][..], &["--shards", "2"]] {
        let (code, text) = refused(&directory, more);
        assert_eq!(code, Some(1), "{text}");
        let from = lost_from(&text);
        let (_, last) = segments(&directory).pop_last().unwrap();
        let expected = format!(
            "log 1 ends at LSN {}, in {} at offset {}, but the snapshot \
             {path}/snapshots/1-00000001.idx proves that all records up to LSN {KEYS} were \
             durable: LSN {from} to {KEYS} are lost; no record was touched; to see all: penstock \
             inspect {path}; to see what a mend would give up: penstock inspect {path} --repair",
            from - 1,
            last.display(),
            end_of_frames(&last),
        );
        assert!(text.contains(&expected), "{text}\n{expected}");
    }
    let vault = folder("lost-tail-vault");
    let backup = ["backup", "--data", path, "--to", vault.to_str().unwrap()];
    assert!(output_of(1, &backup).contains("nothing was backed up"));
}

/// Where the frames of a segment end that only zeros follow: each begins a block with its magic,
/// and bytes 44 to 47 of its header are the length of its body.
fn end_of_frames(path: &Path) -> usize {
    let bytes = fs::read(path).unwrap();
    let mut at = 4096;
    while bytes[at..].starts_with(b"PKFR") {
        let body = u32::from_le_bytes(bytes[at + 44..at + 48].try_into().unwrap());
        let next = (at + 64 + body as usize).next_multiple_of(4096);
        // The zeros may begin within a frame.
        if bytes[next - 4096..next].iter().all(|&byte| byte == 0) {
            break;
        }
        at = next;
    }
    at
}

#[test]
fn a_lost_tail_is_mended_at_a_named_price_and_its_numbers_are_not_given_out_again() {
    let sound = stopped_cleanly("lost-tail-sound");
    let directory = folder("lost-tail-mended");
    copy(&sound, &directory);
    lose_tail(&directory);
    let path = directory.to_str().unwrap();
    let from = lost_from(&refused(&directory, &[]).1);
    let planned = output_of(1, &["inspect", path, "--repair"]);
    let (lost, loss) = (KEYS + 1 - from, format!("1:{from}-{KEYS}"));
    let expected = format!(
        "bytes 4096 to 8192 (tail-lost): {lost} records are lost, log 1, LSN {from} to {KEYS}; an \
         empty segment behind the end of the log counts them\ngives up: {loss}\n\
         nothing was changed; to carry it out:\n  penstock inspect {path} --repair --accept-loss \
         {loss}\n"
    );
    assert!(planned.contains(&expected), "{planned}");

    // A repair that was interrupted when it had only begun: the snapshot proves as much as before.
    let opened = Directory::repair(&directory).unwrap();
    opened.snapshots().retire_all().unwrap();
    drop(opened);
    assert_eq!(lost_from(&refused(&directory, &[]).1), from);

    let accepted = ["inspect", path, "--repair", "--accept-loss", &loss];
    assert!(output_of(0, &accepted).contains("repaired"));
    assert!(output_of(0, &["inspect", path, "--repair"]).contains("nothing to repair"));
    let shown = output_of(0, &["inspect", path]);
    assert!(shown.contains("no damage"), "{shown}");
    assert!(shown.contains(&format!("last LSN {KEYS}")), "{shown}");
    for run in 0..2 {
        let server = Server::start(&mut serve(&directory));
        let client = connect(&server);
        for number in 0..KEYS {
            let found = client.get(&key(number)).wait().unwrap().is_some();
            // Records and keys have the same order: key 0 is LSN 1.
            assert_eq!(found, number + 1 < from, "key {number} in run {run}");
        }
        client.set(b"new", b"1").wait().unwrap();
        drop(client);
        stop(server);
    }
}

#[test]
fn neither_a_new_identity_nor_a_last_segment_that_is_gone_hides_a_lost_tail() {
    let sound = stopped_cleanly("lost-tail-identity-sound");
    let directory = folder("lost-tail-identity");
    copy(&sound, &directory);
    lose_tail(&directory);
    let path = directory.to_str().unwrap();
    let from = lost_from(&refused(&directory, &[]).1);
    let identity = directory.join("IDENTITY");
    let mut bytes = fs::read(&identity).unwrap();
    bytes[50] ^= 1;
    fs::write(&identity, bytes).unwrap();
    let accepted = ["inspect", path, "--repair", "--accept-loss", "identity"];
    output_of(0, &accepted);
    assert_eq!(lost_from(&refused(&directory, &[]).1), from);

    copy(&sound, &directory);
    let (_, last) = segments(&directory).pop_last().unwrap();
    fs::remove_file(last).unwrap();
    let (code, text) = refused(&directory, &[]);
    assert_eq!(code, Some(1), "{text}");
    assert!(lost_from(&text) > 1, "{text}");
    // The loss of all segments of a log is found, too.
    for (_, path) in segments(&directory) {
        fs::remove_file(path).unwrap();
    }
    let (code, text) = refused(&directory, &[]);
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains("log 1 has no segment, but the snapshot"),
        "{text}"
    );
    let loss = format!("1:1-{KEYS}");
    output_of(0, &["inspect", path, "--repair", "--accept-loss", &loss]);
    let server = Server::start(&mut serve(&directory));
    assert_eq!(connect(&server).get(&key(0)).wait().unwrap(), None);
    stop(server);
}
