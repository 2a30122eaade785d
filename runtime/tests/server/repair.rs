//! A data directory that is damaged: the server refuses it, `inspect` says why, and a repair that
//! is agreed to makes it serve again and gives up what it said, nothing else.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use penstock::directory::Directory;
use penstock::directory::repair::carry_out;
use penstock_storage::repair::plan;
use penstock_storage::segment::Owner;

use crate::command::command;
use crate::process::Server;
use crate::scratch;

const KEYS: [&str; 8] = [
    "key-one",
    "key-two",
    "key-three",
    "key-four",
    "key-five",
    "key-six",
    "key-seven",
    "key-eight",
];

fn text_of(output: &Output) -> String {
    [&output.stdout, &output.stderr]
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        .concat()
}

/// Runs a command that must end with this code; what it printed.
fn output_of(code: i32, words: &[&str]) -> String {
    let output = command(words).output().unwrap();
    let text = text_of(&output);
    assert_eq!(output.status.code(), Some(code), "{words:?}: {text}");
    text
}

fn serve(directory: &Path) -> Command {
    let mut command = command(&["serve", "--listen", "127.0.0.1:0", "--shard-ports", "0"]);
    command
        .args([
            "--shards",
            "1",
            "--cache-bytes",
            "16MiB",
            "--value-bytes-max",
            "64KiB",
        ])
        .args(["--segment-bytes", "4MiB", "--data"])
        .arg(directory);
    command
}

impl Server {
    fn set(&self, key: &str, value: &str) {
        output_of(0, &["set", key, value, "--addr", &self.address.to_string()]);
    }

    /// The values of all keys.
    fn values(&self) -> BTreeMap<&'static str, String> {
        let get = |key| {
            let output = command(&["get", key, "--addr", &self.address.to_string()])
                .output()
                .unwrap();
            let value = String::from_utf8(output.stdout).unwrap().trim().to_string();
            (output.status.code() == Some(0)).then_some((key, value))
        };
        KEYS.iter().filter_map(|key| get(key)).collect()
    }
}

/// Every file of a directory and of those in it, by its path.
fn contents(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(contents(&path));
        } else {
            files.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
    files
}

fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    for (path, bytes) in contents(from) {
        let path = to.join(path.strip_prefix(from).unwrap());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

fn segment(directory: &Path, number: u32) -> PathBuf {
    directory.join(format!("segments/{number:08}.seg"))
}

/// The segment files that are in use, by sequence.
fn segments(directory: &Path) -> Vec<PathBuf> {
    let files = contents(&directory.join("segments"));
    let mut used: Vec<(Vec<u8>, PathBuf)> = files
        .into_iter()
        .filter(|(_, bytes)| bytes.starts_with(b"PSTKSEG1"))
        .map(|(path, bytes)| (bytes[72..80].to_vec(), path))
        .collect();
    used.sort();
    used.into_iter().map(|(_, path)| path).collect()
}

/// Where a key stands for the first time. Marks may stand between the frames, as time went by.
fn place_of(bytes: &[u8], key: &str) -> usize {
    let mut windows = bytes.windows(key.len());
    windows.position(|window| window == key.as_bytes()).unwrap()
}

/// Flips a bit of the value that stands behind a key for the first time.
fn flip_value_of(path: &Path, key: &str) {
    let mut bytes = fs::read(path).unwrap();
    let at = place_of(&bytes, key);
    bytes[at + key.len().next_multiple_of(8)] ^= 1;
    fs::write(path, bytes).unwrap();
}

/// One run writes five records, the next four, one of them anew under the first key. Each is a
/// frame.
fn two_runs(name: &str) -> (PathBuf, BTreeMap<&'static str, String>) {
    let directory = scratch::folder(name);
    for keys in [&KEYS[..5], &KEYS[5..]] {
        let server = Server::start(&mut serve(&directory));
        for key in keys {
            server.set(key, &format!("of {key}"));
        }
        if keys[0] != KEYS[0] {
            server.set(KEYS[0], "newer");
        }
        server.stop();
    }
    let server = Server::start(&mut serve(&directory));
    let values = server.values();
    assert_eq!(values.len(), KEYS.len());
    server.stop();
    (directory, values)
}

/// The directory is refused, and served again after the repair has given up `losses`; then these
/// keys are gone.
fn repairs(directory: &Path, losses: &[&str], all: &BTreeMap<&str, String>, gone: &[&str]) {
    let path = directory.to_str().unwrap();
    let damaged = contents(&directory.join("segments"));
    let refused = serve(directory).output().unwrap();
    assert_eq!(refused.status.code(), Some(1), "{}", text_of(&refused));
    assert!(output_of(1, &["inspect", path]).contains("DAMAGED"));
    let planned = output_of(1, &["inspect", path, "--repair"]);
    assert!(
        planned.contains(&format!(
            "--repair --accept-loss {}\n",
            losses.join(" --accept-loss ")
        )),
        "{planned}"
    );
    for wrong in ["1:1-9", "file:77"] {
        let answer = output_of(2, &["inspect", path, "--repair", "--accept-loss", wrong]);
        assert!(answer.contains("nothing was changed"), "{answer}");
    }
    assert!(
        contents(&directory.join("segments")) == damaged,
        "changed without consent"
    );
    assert!(!directory.join("lostfound").exists());

    let mut accepted = vec!["inspect", path, "--repair"];
    losses
        .iter()
        .for_each(|loss| accepted.extend(["--accept-loss", loss]));
    let done = output_of(0, &accepted);
    assert!(done.contains("lostfound/0001"), "{done}");
    let kept = contents(&directory.join("lostfound/0001"));
    let manifest =
        String::from_utf8(kept[&directory.join("lostfound/0001/MANIFEST")].clone()).unwrap();
    for loss in losses.iter().filter(|loss| **loss != "none") {
        assert!(
            manifest.contains(&format!("given up: {loss}\n")),
            "{manifest}"
        );
    }
    for (path, bytes) in &damaged {
        let copy = directory
            .join("lostfound/0001")
            .join(path.file_name().unwrap());
        let is_as_it_was = fs::read(path).is_ok_and(|now| now == *bytes);
        assert!(
            is_as_it_was || kept.get(&copy) == Some(bytes),
            "bytes of {path:?} are gone"
        );
    }
    assert!(output_of(0, &["inspect", path, "--repair"]).contains("nothing to repair"));
    assert!(output_of(0, &["inspect", path]).contains("no damage"));

    let server = Server::start(&mut serve(directory));
    let mut left = all.clone();
    gone.iter().for_each(|key| drop(left.remove(key)));
    assert_eq!(server.values(), left);
    server.set("key-new", "written after");
    server.stop();
    let server = Server::start(&mut serve(directory));
    assert_eq!(server.values(), left);
    server.stop();
}

#[test]
fn what_was_damaged_is_served_again_without_what_was_given_up() {
    let (sound, all) = two_runs("repair-sound");
    let directory = scratch::folder("repair-case");
    let damaged = |damage: &dyn Fn(&[PathBuf])| {
        copy(&sound, &directory);
        // With one a start reads only what stands behind it.
        let _ = fs::remove_dir_all(directory.join("snapshots"));
        damage(&segments(&directory));
    };

    // In the last segment, behind it the summary that tells it durable.
    damaged(&|files| flip_value_of(&files[1], "key-seven"));
    let path = directory.to_str().unwrap();
    let planned = output_of(1, &["inspect", path, "--repair"]);
    assert!(planned.contains("lost: key-seven, slot "), "{planned}");
    assert!(
        text_of(&serve(&directory).output().unwrap())
            .contains("records from LSN 7 to 9 were durable")
    );
    repairs(&directory, &["1:7-7"], &all, &["key-seven"]);

    // In an earlier segment; the newer value of the first key stays.
    damaged(&|files| {
        flip_value_of(&files[0], "key-one");
        flip_value_of(&files[0], "key-three");
    });
    repairs(&directory, &["1:1-1", "1:3-3"], &all, &["key-three"]);

    // A header alone, and a segment as a whole.
    damaged(&|files| {
        let mut bytes = fs::read(&files[1]).unwrap();
        bytes[..4096].fill(0);
        fs::write(&files[1], bytes).unwrap();
    });
    repairs(&directory, &["none"], &all, &[]);
    damaged(&|files| fs::remove_file(&files[0]).unwrap());
    repairs(&directory, &["1:1-5"], &all, &KEYS[1..5]);

    // The end of the last segment: nobody can say what stood there.
    damaged(&|files| {
        let bytes = fs::read(&files[1]).unwrap();
        fs::write(&files[1], &bytes[..place_of(&bytes, "key-eight")]).unwrap();
    });
    let mut older = all.clone();
    older.insert("key-one", "of key-one".into());
    repairs(&directory, &["1:8-"], &older, &["key-eight"]);
}

#[test]
fn all_damage_of_a_log_is_shown_and_not_only_the_first() {
    let (directory, _) = two_runs("repair-all");
    let files = segments(&directory);
    flip_value_of(&files[0], "key-two");
    flip_value_of(&files[0], "key-four");
    flip_value_of(&files[1], "key-six");
    let shown = output_of(1, &["inspect", directory.to_str().unwrap()]);
    for lost in ["LSN 2 to 2", "LSN 4 to 4", "LSN 6 to 6"] {
        assert!(
            shown.contains(&format!("1 record is lost, log 1, {lost}")),
            "{shown}"
        );
    }
}

#[test]
fn a_repair_that_was_interrupted_is_finished_by_the_same_command() {
    let (directory, all) = two_runs("repair-interrupted");
    let files = segments(&directory);
    flip_value_of(&files[0], "key-two");
    flip_value_of(&files[1], "key-six");
    let opened = Directory::repair(&directory).unwrap();
    let owner = Owner {
        cluster_id: opened.identity().cluster_id,
        node_id: opened.identity().node_id,
    };
    let mut half = plan(&mut opened.segments().reader(), owner).unwrap();
    assert_eq!(half.rebuilds.len(), 2);
    half.rebuilds.truncate(1);
    carry_out(&opened, &half).unwrap();
    drop(opened);
    // As a crash leaves the file that it was making.
    fs::write(files[1].with_extension("tmp"), b"half").unwrap();

    let path = directory.to_str().unwrap();
    let planned = output_of(1, &["inspect", path, "--repair"]);
    assert!(planned.contains("--accept-loss 1:6-6\n"), "{planned}");
    for wrong in ["1:6-6,", "1:6", "file:", "all", ""] {
        let refused = output_of(2, &["inspect", path, "--repair", "--accept-loss", wrong]);
        assert!(refused.contains("allowed is LOG:FROM-TO"), "{refused}");
    }
    let same = [
        "inspect",
        path,
        "--repair",
        "--accept-loss",
        "1:2-2",
        "--accept-loss",
        "1:6-6",
    ];
    let done = output_of(0, &same);
    assert!(
        done.contains("not given up here: 1:2-2\n") && done.contains("lostfound/0002"),
        "{done}"
    );
    let server = Server::start(&mut serve(&directory));
    let mut left = all.clone();
    left.remove("key-two");
    left.remove("key-six");
    assert_eq!(server.values(), left);
    server.stop();
}

#[test]
fn a_damaged_identity_is_made_anew_as_the_segments_prove_it() {
    let (directory, all) = two_runs("identity");
    let path = directory.to_str().unwrap();
    let identity = directory.join("IDENTITY");
    let good = fs::read(&identity).unwrap();
    let mut bad = good.clone();
    bad[40] ^= 1;
    fs::write(&identity, &bad).unwrap();
    let segments_before = contents(&directory.join("segments"));
    let refused = serve(&directory).output().unwrap();
    assert_eq!(refused.status.code(), Some(1), "{}", text_of(&refused));
    assert!(text_of(&refused).contains("--repair"));
    let planned = output_of(1, &["inspect", path, "--repair"]);
    assert!(planned.contains("1 shard from log 1 on"), "{planned}");
    let wrong = output_of(2, &["inspect", path, "--repair", "--accept-loss", "none"]);
    assert!(wrong.contains("nothing was changed"), "{wrong}");
    assert_eq!(fs::read(&identity).unwrap(), bad);
    let accepted = ["inspect", path, "--repair", "--accept-loss", "identity"];
    let done = output_of(0, &accepted);
    assert!(done.contains("lostfound/0001"), "{done}");
    assert_eq!(
        fs::read(directory.join("lostfound/0001/IDENTITY")).unwrap(),
        bad
    );
    assert!(contents(&directory.join("segments")) == segments_before);
    let made = fs::read(&identity).unwrap();
    // Cluster and node, and an incarnation that was never there.
    assert_eq!(made[16..48], good[16..48]);
    let incarnation = |file: &[u8]| u64::from_le_bytes(file[48..56].try_into().unwrap());
    assert!(incarnation(&made) > incarnation(&good) + 1_000);

    let server = Server::start(&mut serve(&directory));
    assert_eq!(server.values(), all);
    server.set(KEYS[1], "newest");
    assert_eq!(server.values()[KEYS[1]], "newest");
    server.stop();
    let server = Server::start(&mut serve(&directory));
    assert_eq!(server.values()[KEYS[1]], "newest");
    // Each start writes the identity anew, and none of them touches the file that was kept.
    let kept = fs::read(directory.join("lostfound/0001/IDENTITY")).unwrap();
    assert!(kept == bad, "a start has overwritten what was kept");
}

#[test]
fn an_identity_that_nothing_proves_is_not_made_up() {
    let (directory, _) = two_runs("identity-unproven");
    let path = directory.to_str().unwrap();
    let identity = directory.join("IDENTITY");
    let mut bad = fs::read(&identity).unwrap();
    bad.truncate(100);
    fs::write(&identity, &bad).unwrap();
    flip_value_of(&segments(&directory)[0], KEYS[0]);
    let accepted = ["inspect", path, "--repair", "--accept-loss", "identity"];
    let refused = output_of(1, &accepted);
    assert!(
        refused.contains("its segments are damaged too"),
        "{refused}"
    );
    for file in segments(&directory) {
        fs::remove_file(file).unwrap();
    }
    let refused = output_of(1, &accepted);
    assert!(refused.contains("there is no segment"), "{refused}");
    assert_eq!(fs::read(&identity).unwrap(), bad);
}

#[test]
fn a_directory_that_is_served_is_not_repaired() {
    let directory = scratch::folder("repair-served");
    let server = Server::start(&mut serve(&directory));
    let path = directory.to_str().unwrap();
    for words in [
        &["inspect", path, "--repair"][..],
        &["inspect", path, "--repair", "--accept-loss", "none"],
    ] {
        assert!(output_of(2, words).contains("in use by process"));
    }
    server.stop();
    assert!(output_of(0, &["inspect", path, "--repair"]).contains("nothing to repair"));
    // To agree to something means nothing without a plan.
    output_of(2, &["inspect", path, "--accept-loss", "none"]);
}

#[test]
fn what_is_beyond_repair_is_said_and_left_alone() {
    let directory = scratch::folder("repair-beyond");
    let other = scratch::folder("repair-other");
    for directory in [&directory, &other] {
        let server = Server::start(&mut serve(directory));
        server.set("key-one", "1");
        server.stop();
    }
    fs::copy(&segments(&other)[0], segment(&directory, 99)).unwrap();
    let before = contents(&directory.join("segments"));
    let path = directory.to_str().unwrap();
    let answer = output_of(1, &["inspect", path, "--repair", "--accept-loss", "none"]);
    assert!(
        answer.contains(&format!(
            "BEYOND REPAIR: {path}/segments/00000099.seg belongs to node"
        )),
        "{answer}"
    );
    assert!(contents(&directory.join("segments")) == before);
}
