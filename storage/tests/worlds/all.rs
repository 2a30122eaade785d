//! Walks all small worlds and prints what was met: `cargo worlds [--share] [WALK]...`; with
//! `--share` no more of them than the tests do.
//!
//! Ends with 1 if a promise was broken in any of them, and says how in the first.
#![forbid(unsafe_code)]

mod crashes;
mod cuts;
mod device;
mod failures;
mod flips;
#[path = "../it/heap.rs"]
mod heap;
mod image;
mod life;
mod map;
mod named;
#[path = "../it/random.rs"]
mod random;
mod start;
mod tally;

use std::process::ExitCode;
use std::time::Instant;

use tally::{Effort, Tally};

/// Name, walk, what its worlds are.
type Walk = (&'static str, fn(Effort) -> Tally, &'static str);

const WALKS: [Walk; 5] = [
    (
        "cuts",
        cuts::walk,
        "three segments cut at every byte of every file, in five ways",
    ),
    (
        "flips",
        flips::walk,
        "each bit of a log of 1 MiB flipped, and the whole recovery run over it",
    ),
    (
        "failures",
        failures::walk,
        "each request to the disk fails, in every way",
    ),
    (
        "crashes",
        crashes::walk,
        "power cuts of short runs: every subset of the unflushed sectors",
    ),
    (
        "named",
        all_named,
        "stale, misplaced, lost and torn frames, built on purpose",
    ),
];

/// All cases, however much effort is asked for.
fn all_named(_: Effort) -> Tally {
    let began = Instant::now();
    let mut tally = Tally::default();
    for (name, case) in named::CASES {
        let mut one = Tally::default();
        case(&mut one);
        one.first_wrong = one.first_wrong.map(|wrong| format!("{name}: {wrong}"));
        tally.merge(one);
    }
    tally.elapsed = began.elapsed();
    tally
}

fn main() -> ExitCode {
    let (options, wanted): (Vec<String>, Vec<String>) = std::env::args()
        .skip(1)
        .partition(|argument| argument == "--share");
    let effort = match options.is_empty() {
        true => Effort::All,
        false => Effort::Share,
    };
    let names = WALKS.map(|(name, ..)| name);
    if let Some(unknown) = wanted.iter().find(|name| !names.contains(&name.as_str())) {
        eprintln!(
            "no walk is called {unknown}; there are: {}",
            names.join(", ")
        );
        return ExitCode::from(2);
    }
    let mut wrong = 0;
    println!(
        "{:<10} {:>10} {:>10} {:>10} {:>10} {:>6} {:>8}  what",
        "walk", "worlds", "refused", "told", "unharmed", "wrong", "seconds"
    );
    for (name, walk, what) in WALKS {
        if !wanted.is_empty() && !wanted.iter().any(|one| one == name) {
            continue;
        }
        let tally = walk(effort);
        println!(
            "{name:<10} {:>10} {:>10} {:>10} {:>10} {:>6} {:>8.1}  {what}",
            tally.worlds(),
            tally.refused,
            tally.reported,
            tally.unharmed,
            tally.wrong,
            tally.elapsed.as_secs_f64()
        );
        if let Some(distinct) = tally.distinct {
            println!("           {distinct} distinct states of the disk");
        }
        if let Some(how) = &tally.first_wrong {
            println!("           first wrong: {how}");
        }
        wrong += tally.wrong;
    }
    ExitCode::from(u8::from(wrong > 0))
}
