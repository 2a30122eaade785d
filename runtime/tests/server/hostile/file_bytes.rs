//! A server whose files may not be as long as its segments, as its operator meets it.

use super::*;

/// The output of a server whose files may have `blocks` of 512 or 1,024 bytes, as the shell counts.
fn output_within(data: &Path, blocks: u32, flags: &[&str]) -> std::process::Output {
    let direct = Server::command(data, flags);
    let mut command = crate::command::program("sh");
    command
        .args(["-c", &format!("ulimit -f {blocks} && exec \"$0\" \"$@\"")])
        .arg(direct.get_program())
        .args(direct.get_args());
    let set = direct
        .get_envs()
        .filter_map(|(name, value)| Some((name, value?)));
    command.envs(set);
    command.output().expect("the server")
}

#[test]
fn a_limit_of_the_length_of_files_below_a_segment_is_reported_with_the_need_and_how_to_raise_it() {
    let folder = Folder::new("fsize-low");
    let output = output_within(&folder.0, 2_000, &["--shards", "1"]);
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{printed}");
    for part in [
        "a file of this process may have ",
        "and a segment has 4194304: ",
        "ulimit -f ",
        "LimitFSIZE=",
    ] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    assert_eq!(printed.lines().count(), 1, "{printed}");
    assert!(!folder.0.exists(), "nothing is made before");
}

#[test]
fn a_write_beyond_the_limit_of_the_length_of_files_is_an_error_and_does_not_kill() {
    let folder = Folder::new("fsize-signal");
    let server = Server::start(&folder.0, &["--shards", "1"]);
    let status = fs::read_to_string(format!("/proc/{}/status", server.process.id()));
    let status = status.expect("proc");
    let ignored = status.lines().find_map(|it| it.strip_prefix("SigIgn:"));
    let ignored = u64::from_str_radix(ignored.expect("a mask").trim(), 16).expect("hexadecimal");
    // SIGXFSZ is 25.
    assert_ne!(ignored & (1 << 24), 0, "{ignored:x}");
}
