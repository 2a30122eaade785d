//! Options about the server that stand before the command, as `penstock --addr HOST:PORT get KEY`:
//! they are moved behind its name, where the command reads them.

use std::ffi::OsString;

use clap::{Args, Command};

use super::server::ServerAddress;

/// The words of the command line, with leading options of a server behind the name of the command.
pub fn moved_behind(tree: &Command, words: Vec<OsString>) -> Vec<OsString> {
    let server = ServerAddress::augment_args(Command::new("server"));
    let is_known = |name: &str| server.get_arguments().any(|it| it.get_long() == Some(name));
    let mut words = words.into_iter();
    let mut out = Vec::from_iter(words.next());
    let (mut leading, mut rest) = (Vec::new(), Vec::new());
    while let Some(word) = words.next() {
        let text = word.to_string_lossy().into_owned();
        let named = text.strip_prefix("--").map(|it| it.split_once('='));
        match (text.strip_prefix("--"), named) {
            (_, Some(Some((name, _)))) if is_known(name) => leading.push(word),
            (Some(name), _) if is_known(name) => {
                leading.push(word);
                leading.extend(words.next());
            }
            _ => {
                rest.push(word);
                rest.extend(words.by_ref());
            }
        }
    }
    // Behind the last word that names a command, because a value may begin with a dash.
    let (mut at, mut command) = (0, tree);
    while let Some(below) = rest.get(at).and_then(|word| command.find_subcommand(word)) {
        (at, command) = (at + 1, below);
    }
    rest.splice(at..at, leading);
    out.extend(rest);
    out
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::super::Cli;
    use super::*;

    fn moved(line: &str) -> String {
        let words = line.split(' ').map(OsString::from).collect();
        let moved = moved_behind(&Cli::command(), words);
        let words: Vec<String> = moved.iter().map(|it| it.to_string_lossy().into()).collect();
        words.join(" ")
    }

    #[test]
    fn options_of_a_server_may_stand_before_the_command_and_no_others() {
        for (line, expected) in [
            ("p --addr h:1 get k", "p get --addr h:1 k"),
            (
                "p --addr=h:1 --user ann set k --v",
                "p set --addr=h:1 --user ann k --v",
            ),
            ("p --addr h:1 keyspace list", "p keyspace list --addr h:1"),
            ("p --addr h:1 bench sale", "p bench sale --addr h:1"),
            ("p --addr h:1 set k", "p set --addr h:1 k"),
            ("p get k --addr h:1", "p get k --addr h:1"),
            ("p --version", "p --version"),
            ("p --nonsense get k", "p --nonsense get k"),
            ("p --addr", "p --addr"),
            ("p", "p"),
        ] {
            assert_eq!(moved(line), expected);
        }
        let parses = |line: &str| Cli::try_parse_from(moved(line).split(' ')).is_ok();
        assert!(parses("p --addr h:1 --timeout-ms 9 update-if k u8@0==1"));
        assert!(
            !parses("p --addr h:1 completions bash"),
            "it asks no server"
        );
    }
}
