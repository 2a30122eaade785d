//! Every command of deploy/TUTORIAL.md, in its order, in one shell. What it prints must be what the
//! page shows. The commands of the first page, README.md, must succeed in their order.

use std::path::Path;

use crate::cluster::nodes::free_address;
use crate::command::{command, program};
use crate::process::Server;
use crate::scratch;

/// One command, and what the page shows below it.
struct Step<'a> {
    line: usize,
    command: String,
    shown: Vec<&'a str>,
}

/// The commands of all blocks of `console`.
fn steps(page: &str) -> Vec<Step<'_>> {
    let mut steps: Vec<Step<'_>> = Vec::new();
    let mut is_console = false;
    for (number, line) in page.lines().enumerate() {
        if let Some(kind) = line.strip_prefix("```") {
            is_console = kind == "console";
        } else if !is_console {
        } else if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step {
                line: number + 1,
                command: command.to_string(),
                shown: Vec::new(),
            });
        } else {
            let step = steps.last_mut().expect("a block begins with a command");
            match step.command.strip_suffix('\\') {
                Some(begin) => step.command = format!("{begin}{}", line.trim_start()),
                None => step.shown.push(line),
            }
        }
    }
    steps
}

/// Whether a line is as it is shown, where `...` is anything.
fn is_alike(shown: &str, line: &str) -> bool {
    let mut pieces = shown.split("...");
    let first = pieces.next().expect("one piece");
    let Some(mut rest) = line.strip_prefix(first) else {
        return false;
    };
    let mut last = None;
    for piece in pieces {
        let Some(at) = rest.rfind(piece) else {
            return false;
        };
        rest = &rest[at + piece.len()..];
        last = Some(piece);
    }
    rest.is_empty() || last == Some("")
}

/// Whether lines are as they are shown, where a line `...` is any number of lines.
pub fn are_alike(shown: &[&str], lines: &[&str]) -> bool {
    match shown.split_first() {
        None => lines.is_empty(),
        Some((&"...", rest)) => (0..=lines.len()).any(|skip| are_alike(rest, &lines[skip..])),
        Some((first, rest)) => lines
            .split_first()
            .is_some_and(|(line, behind)| is_alike(first, line) && are_alike(rest, behind)),
    }
}

#[test]
fn lines_are_compared_with_what_is_shown() {
    assert!(is_alike(
        "ok, version ..., level disk",
        "ok, version 256:7, level disk"
    ));
    assert!(!is_alike(
        "ok, version ..., level disk",
        "ok, version 256:7, level none"
    ));
    assert!(is_alike(
        "penstock: no server at ...",
        "penstock: no server at 1:2: refused"
    ));
    assert!(are_alike(&["...", "b", "..."], &["a", "b", "c", "d"]));
    assert!(!are_alike(&["...", "b"], &["a", "b", "c"]));
    assert!(!are_alike(&[], &["a"]));
}

/// The commands of the block below a heading, without their comments; a `\` at the end of a line
/// goes on.
fn block_below(page: &str, heading: &str) -> Vec<String> {
    let below = page.split_once(heading).expect("the heading").1;
    let block = below.split_once("```sh\n").expect("a block").1;
    let block = block
        .split_once("```")
        .expect("its end")
        .0
        .replace("\\\n", " ");
    let line = |line: &str| {
        line.split("  #")
            .next()
            .unwrap_or_default()
            .trim()
            .to_string()
    };
    block
        .lines()
        .map(line)
        .filter(|line| !line.is_empty())
        .collect()
}

fn has_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

#[test]
fn every_command_of_the_first_page_succeeds_in_an_empty_folder() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = std::fs::read_to_string(root.join("README.md")).unwrap();
    let folder = scratch::folder("first-page");
    std::fs::create_dir_all(&folder).unwrap();
    let [address, admin, resp] = [(); 3].map(|()| free_address().to_string());
    let mut serve = command(&["serve", "--shard-ports", "0", "--listen", &address]);
    serve.args(["--admin-listen", &admin, "--resp-listen", &resp, "--data"]);
    let server = Server::start(serve.arg(folder.join("data")));
    let bin = Path::new(env!("CARGO_BIN_EXE_penstock")).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    let mut ran = 0;
    for line in block_below(&page, "## Sixty seconds") {
        let word = line.split(' ').next().unwrap_or_default();
        // They build, or take their time; other tests run them.
        let is_elsewhere = word == "cargo" || line.starts_with("penstock bench sale");
        if is_elsewhere || !(word == "penstock" || has_program(word)) {
            println!("skipped: {line}");
            continue;
        }
        let line = line.replace("bench decr", "bench decr --duration 0.2 --warmup 0.1");
        let line = line.replace("127.0.0.1:7412", &admin);
        let line = line.replace("7413", resp.rsplit(':').next().unwrap());
        let output = program("timeout")
            .args(["120", "bash", "-ec", &line])
            .current_dir(&folder)
            .env("PATH", format!("{}:{path}", bin.display()))
            .env("PENSTOCK_ADDR", &address)
            .output()
            .unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
        ran += 1;
    }
    assert!(ran > 9, "{ran} commands");
    server.stop();
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn every_command_of_the_tutorial_prints_what_the_page_shows() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = std::fs::read_to_string(root.join("deploy/TUTORIAL.md")).unwrap();
    let steps = steps(&page);
    assert!(steps.len() > 20, "the page has commands");

    let folder = scratch::folder("tutorial");
    let bin = folder.join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_penstock"), bin.join("penstock")).unwrap();
    std::os::unix::fs::symlink(root.join("deploy"), folder.join("deploy")).unwrap();
    let address = free_address().to_string();

    // The server ends with the shell, whatever a failing step leaves.
    let mut script = String::from("trap 'kill -9 $server 2>/dev/null' EXIT\n");
    for (number, step) in steps.iter().enumerate() {
        script += &format!("echo @@{number}\n{}\n", step.command);
    }
    let path = std::env::var("PATH").unwrap();
    let output = program("timeout")
        .args(["120", "bash", "-c", &format!("exec 2>&1\n{script}")])
        .current_dir(&folder)
        .env("PATH", format!("{}:{path}", bin.display()))
        .env("PENSTOCK_ADDR", &address)
        .env("PENSTOCK_LISTEN", &address)
        .env("PENSTOCK_ADMIN_LISTEN", "off")
        .env("PENSTOCK_RESP_LISTEN", "off")
        .env("PENSTOCK_SHARD_PORTS", "0")
        .output()
        .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let mut parts = printed.split("@@").skip(1);
    for (number, step) in steps.iter().enumerate() {
        let part = parts
            .next()
            .unwrap_or_else(|| panic!("it ended early:\n{printed}"));
        let mut lines = part.lines();
        assert_eq!(lines.next(), Some(number.to_string().as_str()), "{printed}");
        let lines: Vec<&str> = lines.collect();
        assert!(
            are_alike(&step.shown, &lines),
            "TUTORIAL.md, line {}: {}\nshown: {:#?}\nprinted: {lines:#?}",
            step.line,
            step.command,
            step.shown,
        );
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
