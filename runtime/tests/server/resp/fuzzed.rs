//! Commands and programs by chance, sent to the port and to a Valkey, and their replies compared.
//!
//! One seed is one run: which commands are sent does not depend on what is answered. Each run reads
//! back all keys at its end, with their values and expiries.

mod chance;
mod commands;
mod differences;
mod lists;
mod programs;
mod sets;

use chance::Chance;
use commands::Words;
use differences::{Difference, Replies, explained};

use super::oracle::valkey;
use super::{Resp, Talk, encode, start};

/// Commands that are sent at once.
const PIPELINED_MAX: usize = 24;
/// What one run tells of what differs.
const SHOWN_MAX: usize = 40;
/// Keys of a program, and what stands in them before it runs.
const PROGRAM_KEYS: [&[u8]; 4] = [b"{s}a", b"{s}b", b"{s}c", b"{s}n"];

/// How much a run sends.
struct Budget {
    seed: u64,
    commands: usize,
    programs: usize,
}

/// Both servers, by two connections each.
struct Pair {
    ours: [Talk; 2],
    theirs: [Talk; 2],
    /// Commands that were answered.
    answered: usize,
    /// How often each difference that RESP.md names was met.
    met: Vec<(&'static Difference, usize)>,
    /// The program that was sent last: an EVALSHA does not show it.
    program: String,
    /// What differs otherwise.
    differences: Vec<String>,
}

impl Pair {
    fn new(ours: std::net::SocketAddr, theirs: std::net::SocketAddr, protocol: &str) -> Pair {
        let both = |address| [Talk::with(address), Talk::with(address)];
        let (mut ours, mut theirs) = (both(ours), both(theirs));
        for talk in ours.iter_mut().chain(&mut theirs) {
            talk.ask(&["HELLO", protocol]);
        }
        let mut pair = Pair {
            ours,
            theirs,
            answered: 0,
            met: Vec::new(),
            program: String::new(),
            differences: Vec::new(),
        };
        pair.empty();
        pair
    }

    /// Ends what the connections have begun, and all keys.
    fn empty(&mut self) {
        let talks = self.ours.iter_mut().chain(&mut self.theirs);
        for talk in talks {
            talk.ask(&["DISCARD"]);
            talk.ask(&["UNWATCH"]);
        }
        for talk in [&mut self.ours[0], &mut self.theirs[0]] {
            assert_eq!(talk.ask(&["FLUSHALL"]), "+OK\r\n");
        }
    }

    /// Sends all to both servers and compares the replies; our last one.
    fn compare(&mut self, who: usize, all: &[Words]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for command in all {
            let words: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
            bytes.extend(encode(&words));
        }
        self.ours[who].send(&bytes);
        self.theirs[who].send(&bytes);
        let (mut is_other_state, mut last) = (false, Vec::new());
        for (at, command) in all.iter().enumerate() {
            last = self.ours[who].reply();
            let theirs = self.theirs[who].reply();
            self.answered += 1;
            let (before, ours, theirs) = (&all[..at], &last[..], &theirs[..]);
            let replies = Replies {
                before,
                command,
                ours,
                theirs,
            };
            let difference = explained(&replies);
            if let Some(difference) = difference {
                is_other_state |= difference.leaves_another_state;
                match self
                    .met
                    .iter_mut()
                    .find(|(met, _)| met.what == difference.what)
                {
                    Some((_, times)) => *times += 1,
                    None => self.met.push((difference, 1)),
                }
            } else if ours != theirs && !is_other_state {
                is_other_state = true;
                let before = &all[at.saturating_sub(6)..at];
                let before: String = before
                    .iter()
                    .map(|it| format!("  before {}\n", shown(it)))
                    .collect();
                self.differences.push(format!(
                    "{}\n{before}{}\n  ours   {}\n  theirs {}",
                    self.program,
                    shown(command),
                    ours.escape_ascii(),
                    theirs.escape_ascii()
                ));
            }
        }
        if is_other_state {
            self.empty();
        }
        last
    }

    /// Compares all keys, with values and expiries.
    fn compare_state(&mut self) {
        let mut keys = commands::all_keys();
        keys.extend(PROGRAM_KEYS.iter().map(|key| key.to_vec()));
        let of_one_type = [programs::LIST_KEY, programs::SET_KEY, programs::ZSET_KEY];
        keys.extend(of_one_type.map(|key| key.as_bytes().to_vec()));
        for key in keys {
            let about = [&b"GET"[..], b"PEXPIRETIME", b"STRLEN", b"TYPE", b"HGETALL"];
            let about: Vec<Words> = about
                .iter()
                .chain(&[&b"SMEMBERS"[..]])
                .map(|name| vec![name.to_vec(), key.clone()])
                .chain([zset_of(&key), list_of(&key)])
                .collect();
            self.compare(0, &about);
        }
        self.compare(0, &[vec![b"KEYS".to_vec(), b"*".to_vec()]]);
    }

    fn is_over(&self) -> bool {
        self.differences.len() >= SHOWN_MAX
    }
}

/// Reads a sorted set whole.
fn zset_of(key: &[u8]) -> Words {
    let words: [&[u8]; 5] = [b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"];
    words.map(<[u8]>::to_vec).to_vec()
}

/// Reads a list whole.
fn list_of(key: &[u8]) -> Words {
    let words: [&[u8]; 4] = [b"LRANGE", key, b"0", b"-1"];
    words.map(<[u8]>::to_vec).to_vec()
}

fn shown(command: &Words) -> String {
    let words: Vec<String> = command
        .iter()
        .map(|word| match word.len() {
            // A program, which is told by itself.
            _ if word.contains(&b'\n') && word.is_ascii() => "PROGRAM".into(),
            0..=2000 => format!("\"{}\"", word.escape_ascii()),
            len => format!("({len} bytes of {})", word[..1].escape_ascii()),
        })
        .collect();
    words.join(" ")
}

fn eval(chance: &mut Chance, text: &str) -> Words {
    let name: &[u8] = if chance.once_in(30) {
        b"EVAL_RO"
    } else {
        b"EVAL"
    };
    let mut words = vec![name.to_vec(), text.into(), b"4".to_vec()];
    words.extend(PROGRAM_KEYS.iter().map(|key| key.to_vec()));
    let arguments: [&[u8]; 9] = [
        b"1",
        b"10",
        b"abc",
        b"",
        b"2.5",
        b"-7",
        b"{\"a\":1}",
        b"x,y",
        b"\xff\x00",
    ];
    words.extend((0..3).map(|_| chance.pick(&arguments).to_vec()));
    words
}

fn run(pair: &mut Pair, budget: &Budget) {
    let mut chance = Chance(budget.seed);
    while pair.answered < budget.commands && !pair.is_over() {
        let mut all = Vec::new();
        while all.len() < PIPELINED_MAX {
            match chance.below(12) {
                0 => all.extend(commands::transaction(&mut chance)),
                _ => all.push(commands::any(&mut chance)),
            }
            // SCAN may tell what a command behind it has put.
            let is_scan = all.last().is_some_and(|last| last[0] == b"SCAN");
            if is_scan || chance.once_in(12) {
                break;
            }
        }
        let who = usize::from(chance.once_in(4));
        pair.compare(who, &all);
        if chance.once_in(200) {
            pair.compare_state();
        }
    }
    pair.compare_state();
    for number in 0..budget.programs {
        if pair.is_over() {
            break;
        }
        pair.program = programs::program(&mut chance);
        let mut script = eval(&mut chance, &pair.program);
        if chance.once_in(10) {
            let load = vec![b"SCRIPT".to_vec(), b"LOAD".to_vec(), script[1].clone()];
            let digest = pair.compare(0, &[load]);
            // A program that does not compile has no digest.
            if let Some(digest) = digest.strip_prefix(b"$40\r\n") {
                script[0] = b"EVALSHA".to_vec();
                script[1] = digest[..40].to_vec();
            }
        }
        let is_behind_multi = chance.once_in(15);
        let all = match is_behind_multi {
            true => vec![
                vec![b"MULTI".to_vec()],
                vec![b"INCR".to_vec(), b"{s}n".to_vec()],
                script,
                vec![b"EXEC".to_vec()],
            ],
            false => vec![script],
        };
        pair.compare(0, &all);
        if number % 50 == 49 {
            pair.compare_state();
        }
    }
    pair.compare_state();
}

fn compared(name: &str, shards: &str, budgets: [Budget; 2]) {
    let peer = match valkey() {
        Ok(peer) => peer,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let Resp { server, address } = start(name, &["--shards", shards]);
    for (protocol, budget) in ["2", "3"].iter().zip(budgets) {
        let mut pair = Pair::new(address, peer.address, protocol);
        run(&mut pair, &budget);
        let seed = budget.seed;
        println!("RESP{protocol}, seed {seed}: {} commands", pair.answered);
        for (difference, times) in &pair.met {
            println!("{times:8} {}", difference.what);
        }
        let differences = pair.differences.join("\n");
        assert!(
            differences.is_empty(),
            "RESP{protocol}, seed {seed}:\n{differences}"
        );
    }
    server.stop();
}

#[test]
fn replies_to_what_comes_by_chance_are_those_of_valkey() {
    let budget = |seed| Budget {
        seed,
        commands: 12_000,
        programs: 1_000,
    };
    compared("resp-fuzzed", "1", [budget(1), budget(2)]);
}

/// A million commands and 100,000 programs.
#[test]
#[ignore = "takes five minutes"]
fn a_million_replies_to_what_comes_by_chance_are_those_of_valkey() {
    let budget = |seed| Budget {
        seed,
        commands: 500_000,
        programs: 50_000,
    };
    compared("resp-fuzzed-long", "1", [budget(1001), budget(1002)]);
}
