//! `cargo tidy`: holds the repository to its limits. `--write` keeps the list of exceptions.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use penstock_tidy::{Allowed, Rule, Tree, findings, verdict};

const HELP: &str = "\
cargo tidy [--write [--raise]]: limits on files, functions, types, lines, paths in documents, and
cycles of imports.

Without an option: prints what is above a limit and not in `.ci/tidy.allow`, and entries of that
list that nothing needs.
  --write          lowers the figures of the list to today's, and removes entries that nothing needs
  --write --raise  writes the list anew, with figures that grew and subjects that are new";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        [] => run(None),
        ["--write"] => run(Some(false)),
        ["--write", "--raise"] => run(Some(true)),
        _ => {
            eprintln!("{HELP}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(text) => {
            eprintln!("tidy: {text}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all is well. The list is written if `raises` is given.
fn run(raises: Option<bool>) -> Result<bool, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let list = root.join(".ci/tidy.allow");
    let found = findings(&Tree::read(&root)?)?;
    // No list is an empty one.
    let text = fs::read_to_string(&list).unwrap_or_default();
    let mut allowed = match raises {
        Some(true) => Allowed::default(),
        _ => Allowed::read(&text)?,
    };
    if let Some(raises) = raises {
        allowed = match raises {
            true => Allowed::of(&found),
            false => allowed.lowered(&found),
        };
        fs::write(&list, allowed.text()).map_err(|error| format!("{}: {error}", list.display()))?;
    }
    let wrong = verdict(&found, &allowed);
    for text in &wrong {
        println!("{text}");
    }
    for rule in Rule::ALL {
        let (entries, sum) = allowed.sum(rule);
        println!(
            "{:<8} {entries:4} entries, {sum:6} {}",
            rule.name(),
            rule.unit()
        );
    }
    println!("{} complaints", wrong.len());
    Ok(wrong.is_empty())
}
