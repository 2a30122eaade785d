//! The codec under bytes that nobody chose. How a target runs and what it keeps: `target.rs`.

mod commands;
mod corpus;
mod frames;
mod hellos;
mod instructions;
mod links;
mod logins;
#[path = "../it/random.rs"]
mod random;
mod replies;
mod requests;
#[path = "../it/resp_sides.rs"]
mod resp_sides;
mod rights;
mod target;
mod users;

use penstock_net::refusal::Refusal;
use penstock_net::status::Status;
use random::Random;

target!(commands, "tests/fuzz", commands::judge);
target!(frames, "tests/fuzz", frames::judge);
target!(requests, "tests/fuzz", requests::judge);
target!(instructions, "tests/fuzz", instructions::judge);
target!(replies, "tests/fuzz", replies::judge);
target!(hellos, "tests/fuzz", hellos::judge);
target!(links, "tests/fuzz", links::judge);
target!(logins, "tests/fuzz", logins::judge);
target!(rights, "tests/fuzz", rights::judge);
target!(users, "tests/fuzz", users::judge);

/// Runs what must not touch the heap.
fn without_memory<T>(run: impl FnOnce() -> T) -> T {
    let mut result = None;
    let used = allocation_counter::measure(|| result = Some(run()));
    assert_eq!(used.count_total, 0, "the heap was touched");
    result.expect("it ran")
}

/// A refusal tells the client what was wrong, in one line and under a status that is no success.
fn check_refusal(refusal: Refusal) {
    let text = refusal.to_string();
    assert!(
        !text.is_empty() && text.len() < 300 && !text.contains('\n'),
        "{text:?}"
    );
    assert_ne!(refusal.status(), Status::Ok, "{text}");
}
