//! The command line of the runner, before anything is made to suffer.

use std::process::{Command, Output};

fn torture(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_torture"))
        .args(words)
        .output()
        .unwrap()
}

#[test]
fn the_help_names_every_kind() {
    let output = torture(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    let help = String::from_utf8(output.stdout).unwrap();
    for kind in [
        "kill", "shutdown", "full", "eio", "tokens", "stop", "cluster", "failover", "cutoff",
    ] {
        let line = format!("\n  {kind} ");
        assert!(help.contains(&line), "no {kind} in {help}");
    }
}

#[test]
fn a_word_that_is_no_kind_and_a_value_that_is_no_number_are_refused_by_name() {
    for (words, what) in [
        (&["drown"][..], "torture: drown is not a kind"),
        (
            &["kill", "--rounds", "many"],
            "torture: --rounds takes a number, not many",
        ),
        (&["kill", "--seed"], "torture: --seed needs a value"),
    ] {
        let output = torture(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.starts_with(what), "{words:?}: {said}");
    }
}
