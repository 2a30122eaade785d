//! The `penstock` command as a shell meets it: standard output, standard error and exit codes.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Output;

use penstock::config::{OPTIONS, REMOVED};
use penstock::directory::{Directory, DirectoryOptions};

use crate::command::command;
use crate::scratch;

/// Runs the binary with no `PENSTOCK_...` variable but these.
fn penstock(words: &[&str], variables: &[(&str, &str)]) -> Output {
    command(words)
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// The command fails with that code and says why in one line that holds `part`.
fn assert_refused(output: &Output, code: i32, part: &str) {
    let line = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{line}");
    assert!(
        line.starts_with("penstock: ") && line.contains(part),
        "{line}"
    );
    assert_eq!(line.trim_end().lines().count(), 1, "{line}");
    assert_eq!(stdout(output), "");
}

/// A data directory as the first start of a server makes it.
fn new_directory(name: &str) -> PathBuf {
    let path = scratch::folder(name);
    let options = DirectoryOptions {
        shards_of_new: 2,
        segment_bytes: 1 << 20,
    };
    Directory::open(&path, options).unwrap();
    path
}

#[test]
fn man_pages_are_written_for_every_command_and_name_its_options() {
    let folder = scratch::folder("man-pages");
    let output = penstock(&["man", "--to", folder.to_str().unwrap()], &[]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let page = |name: &str| {
        let path = folder.join(format!("{name}.1"));
        let text = std::fs::read_to_string(&path);
        text.unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    // The names of commands stand first in the lines of the help, between its two headings.
    let help = stdout(&penstock(&["--help"], &[]));
    let (_, commands) = help.split_once("Commands:\n").unwrap();
    let (commands, _) = commands.split_once("\n\n").unwrap();
    let names: Vec<&str> = commands
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    assert!(names.len() > 20, "{names:?}");
    for name in names {
        let text = page(&format!("penstock-{name}"));
        assert!(text.contains(".SH NAME"), "{name}");
    }
    let serve = page("penstock-serve");
    for option in OPTIONS {
        let flag = option.flag().replace('-', "\\-");
        assert!(serve.contains(&flag), "{flag} is not in penstock-serve.1");
    }
    assert!(page("penstock-cluster-promote").contains("accept\\-loss"));
    let file = folder.join("penstock.1");
    assert_refused(
        &penstock(&["man", "--to", file.to_str().unwrap()], &[]),
        2,
        "penstock.1",
    );
}

#[test]
fn config_explain_shows_every_option_with_its_origin() {
    let output = penstock(
        &["config", "explain", "--spin-us", "0"],
        &[("PENSTOCK_SHARDS", "2")],
    );
    assert_eq!(output.status.code(), Some(0));
    let table = stdout(&output);
    assert_eq!(table.lines().count(), OPTIONS.len() + 1);
    let row = |name: &str| -> Vec<&str> {
        table
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
            .find(|words| words.first() == Some(&name))
            .unwrap()
    };
    assert_eq!(row("spin_us")[1..3], ["0us", "--spin-us"]);
    assert_eq!(row("shards")[1..3], ["2", "PENSTOCK_SHARDS"]);
    assert_eq!(row("listen")[1..3], ["127.0.0.1:7411", "default"]);
}

#[test]
fn the_file_is_named_by_flag_or_variable() {
    let folder = scratch::folder("named");
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("named.toml");
    std::fs::write(&path, "shards = 7\n").unwrap();
    let file = path.to_str().unwrap();
    let shown = |output: &Output| stdout(output).contains(&format!("{file}:1: shards"));
    let by_flag = penstock(&["config", "explain", "--config", file], &[]);
    assert!(shown(&by_flag));
    let by_variable = penstock(&["config", "explain"], &[("PENSTOCK_CONFIG", file)]);
    assert!(shown(&by_variable));
}

#[test]
fn wrong_configuration_is_one_line_and_exit_code_2() {
    assert_refused(
        &penstock(&["serve", "--io", "epoll"], &[]),
        2,
        "--io = \"epoll\": allowed is auto, uring or threads",
    );
    for removed in REMOVED {
        let flag = format!("--{}", removed.name.replace('_', "-"));
        assert_refused(&penstock(&["serve", &flag, "2"], &[]), 2, removed.instead);
    }
    assert_refused(
        &penstock(&["serve", "--listen", "0.0.0.0:7411"], &[]),
        2,
        "--insecure",
    );
    assert_refused(
        &penstock(&["serve"], &[("PENSTOCK_SHARD", "1")]),
        2,
        "the nearest is PENSTOCK_SHARDS",
    );
    assert_refused(
        &penstock(&["serve", "--config", "/nowhere.toml"], &[]),
        2,
        "cannot read the configuration /nowhere.toml",
    );
}

#[test]
fn unknown_flag_is_exit_code_2() {
    let output = penstock(&["serve", "--spinn-us", "0"], &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--spin-us"));
}

#[test]
fn help_of_every_command_shows_its_exit_codes() {
    let output = penstock(&["--help"], &[]);
    let help = stdout(&output);
    let commands: Vec<&str> = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(commands.contains(&"serve"));
    for command in commands {
        if matches!(command, "help" | "config" | "completions") {
            continue;
        }
        let output = penstock(&[command, "--help"], &[]);
        assert_eq!(output.status.code(), Some(0));
        assert!(stdout(&output).contains("Exit codes:"), "{command}");
        assert!(stdout(&output).contains("Example"), "{command}");
    }
}

#[test]
fn completions_know_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let output = penstock(&["completions", shell], &[]);
        assert_eq!(output.status.code(), Some(0));
        assert!(stdout(&output).contains("serve"), "{shell}");
    }
}

#[test]
fn inspect_of_a_sound_directory_is_exit_code_0() {
    let directory = new_directory("sound");
    let output = penstock(&["inspect", directory.to_str().unwrap()], &[]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("2 logs"));
    assert!(stdout(&output).ends_with("no damage: every checksum agrees\n"));
}

#[test]
fn inspect_of_damage_is_exit_code_1_and_of_nothing_exit_code_2() {
    let directory = new_directory("damaged");
    let identity = directory.join("IDENTITY");
    let mut bytes = std::fs::read(&identity).unwrap();
    bytes[40] ^= 1;
    std::fs::write(&identity, bytes).unwrap();
    let output = penstock(&["inspect", directory.to_str().unwrap()], &[]);
    assert_refused(&output, 1, "IDENTITY");
    assert_refused(&penstock(&["inspect", "/nowhere"], &[]), 2, "/nowhere");
}

#[test]
fn no_server_is_exit_code_3_and_names_the_address() {
    // Bound and never accepting, then given up: nobody else has the port in between.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    for words in [
        &["get", "key"][..],
        &["set", "key", "value"],
        &["del", "key"],
        &["update-if", "key", "u32@0 >= 1"],
        &["apply", "--key", "k=key", "k exists"],
        &["load", "/dev/null", "--format", "jsonl"],
        &["export"],
        &["report"],
        &["ping"],
        &["info"],
    ] {
        let output = penstock(words, &[("PENSTOCK_ADDR", &address)]);
        assert_refused(&output, 3, &format!("no server at {address}"));
    }
    let output = penstock(&["bench", "get"], &[("PENSTOCK_ADDR", &address)]);
    assert_refused(&output, 3, &address);
}

#[test]
fn a_server_that_never_answers_is_exit_code_3() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let output = penstock(&["ping", "--addr", &address, "--timeout-ms", "50"], &[]);
    assert_refused(&output, 3, "no answer within 50 ms");
}

#[test]
fn a_server_of_another_kind_is_exit_code_3() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let other = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        std::io::Write::write_all(
            &mut stream,
            b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
        )
        .unwrap();
        // Held open until the command has gone away.
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let output = penstock(&["get", "key", "--addr", &address], &[]);
    assert_refused(&output, 3, "does not answer as a Penstock server does");
    other.join().unwrap();
}

#[test]
fn what_no_server_could_take_is_refused_before_one_is_asked() {
    let names: Vec<String> = (0..256)
        .map(|number| format!("k{number}={number}"))
        .collect();
    let mut many_keys = vec!["apply"];
    for name in &names {
        many_keys.extend(["--key", name]);
    }
    many_keys.push("k0 exists");
    for (words, part) in [
        (&["update-if", "k", "u32@0 => 1"][..], "column 8"),
        (&["update-if", "k", "second.exists"], "--second KEY"),
        (
            &["apply", "--key", "k=1", "--key", "k=2", "k exists"],
            "two keys have this name",
        ),
        (
            &["apply", "--key", "k=1", "--key", "l=1", "k exists"],
            "has another name already",
        ),
        (
            &["apply", "--key", "k=key", "l exists"],
            "the name of a key: k",
        ),
        (&["apply", "--key", "k=key", "k.u32@0 => 1"], "column 10"),
        (
            &["apply", "--key", "k=key", "k.u64@0 rate 10 burst 2"],
            "/ and a time",
        ),
        (
            &["apply", "--key", "k=key", "k put @/nowhere/file"],
            "cannot read /nowhere/file",
        ),
        (
            &many_keys,
            "--key is given 256 times; at most 255 are allowed",
        ),
        (&["set", "k", "u8:256"], "a number, 0..255"),
        (&["set", "k", "@/nowhere/file"], "cannot read /nowhere/file"),
        (&["set", "k", "@/dev/zero"], "more than 16777216 bytes"),
        (
            &["load", "/nowhere/rows.csv"],
            "cannot read /nowhere/rows.csv",
        ),
        (&["load", "rows.txt"], "--format csv or --format jsonl"),
        (
            &["export", "--layout", "key:u32@0;=4"],
            "the column \"key\" would stand twice",
        ),
    ] {
        assert_refused(&penstock(words, &[]), 2, part);
    }
}

#[test]
fn apply_says_how_its_keys_are_named() {
    for (words, part) in [
        (&["apply", "k exists"][..], "--key <NAME=KEY>"),
        (&["apply", "--key", "k=key"], "<INSTRUCTION>..."),
        (
            &["apply", "--key", "key", "k exists"],
            "invalid value 'key' for '--key <NAME=KEY>': allowed is NAME=KEY",
        ),
        (
            &["apply", "--key", "now=key", "now exists"],
            "now is a word of the instructions",
        ),
    ] {
        let output = penstock(words, &[]);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(part), "{text}");
    }
}
