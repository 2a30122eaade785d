//! The simulator itself: that a seed is one run, and that its judges object to what is wrong.

use std::cell::RefCell;
use std::rc::Rc;

use penstock_net::level::AckLevel;
use penstock_net::reply::{KeyExpiry, ReplyHead, ReplyItem};
use penstock_net::request::{Expiry, Version};
use penstock_net::slot::slot_of;
use penstock_net::status::Status;
use penstock_simulator::coverage::Coverage;
use penstock_simulator::disk::{Disk, STALL_US_MAX};
use penstock_simulator::linear;
use penstock_simulator::operation::Operation;
use penstock_simulator::oracle::{Oracle, Plan};
use penstock_simulator::plan::VISITED_SEEDS;
use penstock_simulator::random::Random;
use penstock_simulator::world;
use penstock_storage::io::{Asker, Io, IoToken};
use penstock_storage::place::FileId;

#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_another() {
    let (first, again, other) = (world::run(7), world::run(7), world::run(8));
    assert_eq!(first.failure, None);
    assert_eq!(first.hash, again.hash);
    assert_eq!(first.simulated_us, again.simulated_us);
    assert_ne!(first.hash, other.hash);
}

#[test]
fn a_seed_with_scripts_is_the_same_run_in_two_processes() {
    let trace = || {
        let mut sim = std::process::Command::new(env!("CARGO_BIN_EXE_sim"));
        let ran = sim.args(["--seed", "1310000001"]).output();
        let ran = ran.expect("the simulator runs");
        assert!(ran.status.success(), "{ran:?}");
        let text = String::from_utf8(ran.stdout).expect("text");
        text.lines().last().expect("a trace").to_string()
    };
    let (one, other) = (trace(), trace());
    assert!(one.starts_with("trace ") && one == other, "{one}, {other}");
}

#[test]
fn clients_of_redis_find_what_they_were_answered() {
    let mut coverage = Coverage::default();
    for seed in VISITED_SEEDS.start..VISITED_SEEDS.start + 6 {
        let report = world::run(seed);
        assert_eq!(report.failure, None, "repeat it: cargo sim --seed {seed}");
        coverage.add(&report.coverage);
    }
    let met: Vec<(String, u64)> = coverage.table().collect();
    for what in [
        "group of several slots",
        "script over several slots",
        "boards told",
    ] {
        let count = met.iter().find(|(name, _)| name == what);
        assert!(
            count.is_some_and(|(_, count)| *count > 10),
            "{what}: {count:?}"
        );
    }
}

#[test]
fn every_seed_counts_and_holds() {
    for seed in 100..106 {
        let report = world::run(seed);
        assert_eq!(report.failure, None, "repeat it: cargo sim --seed {seed}");
        assert!(report.operations >= 5_000 && report.recoveries >= 1);
    }
}

#[test]
fn no_stall_outlasts_what_is_waited_for_the_disk() {
    let coverage = Rc::new(RefCell::new(Coverage::default()));
    let mut disk = Disk::new(Random::new(1, 2), coverage);
    disk.faults.stall = 1_000_000;
    disk.write_us = 1_500;
    let mut longest_us = 0;
    for number in 0..20_000 {
        let (token, file) = (IoToken::new(Asker::Operation, number), FileId(1));
        let (_, ends_us) = disk.submit(0, Io::Sync { token, file });
        longest_us = longest_us.max(ends_us);
    }
    assert_eq!(longest_us, STALL_US_MAX);
}

/// One strict counter under the judges.
struct Bench {
    oracle: Oracle,
    /// What the next operations are to do with the expiry.
    expiry: Expiry,
    /// What the next answers tell of it.
    answered_expiry: Option<KeyExpiry>,
}

impl Bench {
    fn new() -> Self {
        let name = b"stock".to_vec();
        let slot = slot_of(&name);
        let mut oracle = Oracle::new(vec![(name, slot, true, true)]);
        oracle.started(256);
        let expiry = Expiry::Keep;
        Bench {
            oracle,
            expiry,
            answered_expiry: None,
        }
    }

    fn issue(&mut self, operation: Operation, connection: u64) -> usize {
        let plan = Plan {
            units: 1,
            stock: 10,
            expiry: self.expiry,
            ..Plan::new(operation, 0, AckLevel::Disk)
        };
        self.oracle.issue(plan, connection)
    }

    fn answer(
        &mut self,
        number: usize,
        status: Status,
        sequence: u64,
        value: &[u8],
    ) -> Result<(), String> {
        let version = Version {
            epoch: if sequence == 0 { 0 } else { 256 },
            sequence,
        };
        let head = ReplyHead::new(status, 0, AckLevel::Disk, version);
        self.oracle.answer(
            0,
            number,
            &ReplyItem {
                head,
                expiry: self.answered_expiry,
                standing: None,
                value,
            },
        )
    }

    fn set(&mut self, sequence: u64) -> usize {
        let number = self.issue(Operation::Set, 1);
        self.answer(number, Status::Ok, sequence, &[])
            .expect("a good answer");
        number
    }

    /// Takes one unit and is told that `left` are left.
    fn take(&mut self, sequence: u64, left: u64) -> Result<usize, String> {
        let number = self.issue(Operation::Take, 1);
        let fields = [left.to_le_bytes(), (number as u64).to_le_bytes()].concat();
        self.answer(number, Status::Ok, sequence, &fields)?;
        Ok(number)
    }

    fn finish(&self) -> Result<u64, String> {
        self.oracle.finish()?;
        linear::check(&self.oracle)
    }
}

/// A counter that is gone between 110 and 121 ms: a lifetime counts from a time that is rounded up.
fn mortal(bench: &mut Bench) -> usize {
    bench.expiry = Expiry::In(100);
    bench.oracle.time_ms = 10;
    let number = bench.issue(Operation::Set, 1);
    bench.oracle.time_ms = 20;
    bench
        .answer(number, Status::Ok, 1, &[])
        .expect("a good answer");
    bench.expiry = Expiry::Keep;
    number
}

#[test]
fn a_key_is_gone_within_its_border_and_neither_before_nor_after() {
    for (time_ms, may_be_there, may_be_gone) in [
        (109, true, false),
        (110, true, true),
        (120, true, true),
        (121, false, true),
    ] {
        let mut bench = Bench::new();
        let maker = mortal(&mut bench);
        bench.oracle.time_ms = time_ms;
        let read = bench.issue(Operation::Get, 2);
        let there = bench.answer(read, Status::Ok, 1, &counter(10, maker, maker));
        assert_eq!(there.is_ok(), may_be_there, "at {time_ms}: {there:?}");

        let mut bench = Bench::new();
        mortal(&mut bench);
        bench.oracle.time_ms = time_ms;
        let read = bench.issue(Operation::Get, 2);
        let gone = bench.answer(read, Status::NotFound, 0, &[]);
        assert_eq!(gone.is_ok(), may_be_gone, "at {time_ms}: {gone:?}");
    }
}

#[test]
fn an_edit_that_loses_the_expiry_is_found() {
    for (expiry_ms, is_right) in [(115, true), (0, false), (122, false)] {
        let mut bench = Bench::new();
        let maker = mortal(&mut bench);
        bench.oracle.time_ms = 50;
        let taker = bench.take(2, 9).expect("a good answer");
        let get = bench.issue(Operation::GetExpiry, 2);
        bench.answered_expiry = Some(KeyExpiry {
            expiry_ms,
            time_ms: 50,
        });
        bench
            .answer(get, Status::Ok, 2, &counter(9, taker, maker))
            .expect("nothing to see yet");
        assert_eq!(bench.finish().is_ok(), is_right, "gone at {expiry_ms}");
    }
}

#[test]
fn a_value_that_is_written_on_a_key_that_is_gone_is_found() {
    let mut bench = Bench::new();
    mortal(&mut bench);
    bench.oracle.time_ms = 121;
    bench.take(2, 9).expect("nothing to see yet");
    let wrong = bench.finish().expect_err("there was nothing to take from");
    assert!(wrong.contains("which lived"), "{wrong}");
}

fn counter(stock: u64, writer: usize, maker: usize) -> Vec<u8> {
    [stock, writer as u64, maker as u64]
        .map(u64::to_le_bytes)
        .concat()
}

#[test]
fn a_good_history_is_accepted_by_both_judges() {
    let mut bench = Bench::new();
    let maker = bench.set(1);
    let taker = bench.take(2, 9).expect("a good answer");
    let read = bench.issue(Operation::Get, 2);
    bench
        .answer(read, Status::Ok, 2, &counter(9, taker, maker))
        .expect("a good answer");
    assert_eq!(bench.finish(), Ok(1));
}

#[test]
fn a_unit_that_is_sold_twice_is_found() {
    let mut bench = Bench::new();
    bench.set(1);
    bench.take(2, 9).expect("a good answer");
    bench.take(3, 9).expect("nothing to see yet");
    let wrong = bench.finish().expect_err("two buyers have the tenth unit");
    assert!(wrong.contains("9 units"), "{wrong}");
}

#[test]
fn an_answer_older_than_what_was_shown_is_found() {
    let mut bench = Bench::new();
    let maker = bench.set(1);
    bench.take(2, 9).expect("a good answer");
    let read = bench.issue(Operation::Get, 2);
    let wrong = bench.answer(read, Status::Ok, 1, &counter(10, maker, maker));
    assert!(wrong.is_err(), "the unit was taken before the read");
}

#[test]
fn an_acknowledged_write_that_a_crash_took_is_found() {
    let mut bench = Bench::new();
    bench.set(1);
    bench.oracle.crashed(0);
    bench.oracle.started(512);
    let read = bench.issue(Operation::Get, 2);
    let wrong = bench.answer(read, Status::NotFound, 0, &[]);
    assert!(wrong.is_err(), "level disk was answered");
}

#[test]
fn the_effect_of_what_was_refused_is_found() {
    let mut bench = Bench::new();
    let maker = bench.set(1);
    let refused = bench.issue(Operation::Take, 1);
    bench
        .answer(refused, Status::Deadline, 0, &[])
        .expect("an honest answer");
    let read = bench.issue(Operation::Get, 2);
    let wrong = bench.answer(read, Status::Ok, 2, &counter(9, refused, maker));
    assert!(wrong.is_err(), "DEADLINE says that it was not executed");
}

#[test]
fn a_lost_update_is_found_by_the_second_judge_alone() {
    let mut bench = Bench::new();
    let first = bench.issue(Operation::Set, 1);
    let second = bench.issue(Operation::Set, 2);
    bench
        .answer(first, Status::Ok, 1, &[])
        .expect("a good answer");
    bench
        .answer(second, Status::Ok, 2, &[])
        .expect("a good answer");
    // A read that began later sees the first, under a version that looks new.
    let read = bench.issue(Operation::Get, 3);
    let number = bench.oracle.records.len() - 1;
    bench
        .answer(read, Status::Ok, 2, &counter(10, second, second))
        .expect("a good answer");
    bench.oracle.records[number].seen = Some((first, 10));
    let again = bench.issue(Operation::Get, 3);
    bench
        .answer(again, Status::Ok, 2, &counter(10, second, second))
        .expect("a good answer");
    let last = bench.issue(Operation::Get, 3);
    bench
        .answer(last, Status::Ok, 2, &counter(10, second, second))
        .expect("a good answer");
    bench.oracle.records[last].seen = Some((first, 10));
    assert!(
        linear::check(&bench.oracle).is_err(),
        "first, second, first: no order of two writes explains it"
    );
}
