//! What commands make of the keys of a shelf: a model of Redis for one client.
//!
//! A type of value is a row of [`TYPES`]: its entries, in an order of its own, and what its
//! commands do to them. That a key without entries is none, that a command of another type is
//! refused, and what names, expiries and types are, stands here once for all of them.

use crate::random::Random;
use crate::visits::replies::Reply;

/// Keys of a shelf.
pub(super) const KEYS: usize = 3;
/// Milliseconds of an expiry that no run comes to.
pub(super) const LONG_MS: &str = "100000000000";

/// Members, fields or texts, and what stands beside each.
type Entries = Vec<(String, String)>;
/// The words of a command.
pub(super) type Words = Vec<String>;

/// A type of value.
pub(super) struct Type {
    /// What TYPE says of it.
    name: &'static str,
    /// What a run has met that was shown some.
    pub(super) met: &'static str,
    /// Its commands.
    commands: &'static [&'static str],
    /// A command, with `KEY` in the place of the key.
    draw: fn(&mut Random) -> String,
    /// What a command makes of the entries, and its reply. The key is not among the words.
    run: fn(&mut Entries, &[&str]) -> Reply,
    /// A command that shows all entries.
    look: &'static str,
}

/// All types. Another one is another row.
pub(super) const TYPES: &[Type] = &[
    Type {
        name: "string",
        met: "shelf with texts",
        commands: &["GET", "INCRBY", "APPEND"],
        draw: draw_text,
        run: run_text,
        look: "GET KEY",
    },
    Type {
        name: "hash",
        met: "shelf with hashes",
        commands: &["HSET", "HDEL", "HINCRBY", "HGET", "HLEN", "HGETALL"],
        draw: draw_hash,
        run: run_hash,
        look: "HGETALL KEY",
    },
    Type {
        name: "zset",
        met: "shelf with sorted sets",
        commands: &["ZADD", "ZREM", "ZINCRBY", "ZCARD", "ZPOPMIN", "ZRANGE"],
        draw: draw_zset,
        run: run_zset,
        look: "ZRANGE KEY 0 -1 WITHSCORES",
    },
];

/// When a value ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Life {
    Ever,
    /// Behind the end of the run.
    Long,
    /// At any moment from now on.
    Short,
}

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    /// The place of its type.
    of: usize,
    entries: Entries,
    life: Life,
}

/// The keys of a shelf at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct State([Option<Held>; KEYS]);

/// A command over the keys of a shelf, which are named `0`, `1` ...
pub(super) fn draw(random: &mut Random) -> Words {
    let [key, other] = [0; 2].map(|_| random.index(KEYS));
    let text = match random.below(100) {
        0..4 => "DEL KEY".to_string(),
        4..10 => format!("RENAME KEY {other}"),
        10..14 => "TYPE KEY".to_string(),
        14..22 => "PTTL KEY".to_string(),
        22..30 => format!("PEXPIRE KEY {LONG_MS}"),
        30..32 => format!("PEXPIRE KEY {}", random.pick(&["1", "30"])),
        32..34 => "PERSIST KEY".to_string(),
        34..38 => format!("SET KEY {}", random.below(100)),
        38..40 => format!("SET KEY {} KEEPTTL", random.below(100)),
        40..42 => format!("SET KEY {} PX {LONG_MS}", random.below(100)),
        _ => (TYPES[random.index(TYPES.len())].draw)(random),
    };
    words_at(&text, key)
}

/// The commands that show a shelf.
pub(super) fn look() -> Vec<Words> {
    let of_key = |key| {
        let shows = TYPES.iter().map(|it| it.look);
        let all = ["TYPE KEY", "PTTL KEY"].into_iter().chain(shows);
        all.map(move |text| words_at(text, key))
    };
    (0..KEYS).flat_map(of_key).collect()
}

/// The words of a command on a key.
fn words_at(text: &str, key: usize) -> Words {
    let words = text.split(' ').map(|word| match word {
        "KEY" => key.to_string(),
        _ => word.to_string(),
    });
    words.collect()
}

/// Whether a word of a command names a key, by its place.
pub(super) fn is_key_at(words: &[String], place: usize) -> bool {
    place == 1 || (place == 2 && words[0] == "RENAME")
}

impl State {
    /// The states that this one may be by now.
    pub(super) fn aged(&self) -> Vec<State> {
        let mut all = vec![self.clone()];
        for key in 0..KEYS {
            if self.0[key]
                .as_ref()
                .is_some_and(|it| it.life == Life::Short)
            {
                let mut gone = all.clone();
                gone.iter_mut().for_each(|state| state.0[key] = None);
                all.append(&mut gone);
            }
        }
        all
    }

    /// Whether one of its keys has a value of this type.
    pub(super) fn has(&self, of: usize) -> bool {
        self.0.iter().flatten().any(|it| it.of == of)
    }

    /// Runs a command.
    pub(super) fn run(&mut self, words: &[String]) -> Reply {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let key = key_of(words[1]);
        let held = &mut self.0[key];
        let (is_there, life) = (held.is_some(), held.as_ref().map(|it| it.life));
        let flag = |is| Reply::Number(i64::from(is));
        match words[0] {
            "DEL" => flag(held.take().is_some()),
            "TYPE" => {
                let name = held.as_ref().map_or("none", |it| TYPES[it.of].name);
                Reply::Line(name.into())
            }
            "PTTL" => Reply::Number(match life {
                None => -2,
                Some(Life::Ever) => -1,
                Some(_) => 1,
            }),
            "PEXPIRE" => {
                if let Some(held) = held {
                    held.life = match words[2] {
                        LONG_MS => Life::Long,
                        _ => Life::Short,
                    };
                }
                flag(is_there)
            }
            "PERSIST" => {
                if let Some(held) = held {
                    held.life = Life::Ever;
                }
                flag(life.is_some_and(|life| life != Life::Ever))
            }
            "RENAME" => match held.take() {
                None => Reply::Error("ERR no such key".into()),
                Some(held) => {
                    self.0[key_of(words[2])] = Some(held);
                    Reply::Line(b"OK".to_vec())
                }
            },
            "SET" => {
                let life = match words.get(3) {
                    Some(&"KEEPTTL") => life.unwrap_or(Life::Ever),
                    Some(_) => Life::Long,
                    None => Life::Ever,
                };
                let entries = vec![(String::new(), words[2].to_string())];
                *held = Some(Held {
                    of: 0,
                    entries,
                    life,
                });
                Reply::Line(b"OK".to_vec())
            }
            _ => run_typed(held, &words),
        }
    }
}

/// Runs a command of a type: on entries that are there, or on none.
fn run_typed(held: &mut Option<Held>, words: &[&str]) -> Reply {
    let is_its = |it: &Type| it.commands.contains(&words[0]);
    let of = TYPES.iter().position(is_its).expect("a command of a type");
    let mut now = held.take().unwrap_or(Held {
        of,
        entries: Vec::new(),
        life: Life::Ever,
    });
    if now.of != of {
        *held = Some(now);
        return Reply::Error("WRONGTYPE".into());
    }
    let without_key: Vec<&str> = [&words[..1], &words[2..]].concat();
    let reply = (TYPES[of].run)(&mut now.entries, &without_key);
    *held = Some(now).filter(|it| !it.entries.is_empty());
    reply
}

fn key_of(word: &str) -> usize {
    word.parse().expect("a key of the shelf")
}

// ---- the types ----

fn bulk(text: &str) -> Reply {
    Reply::Bulk(text.into())
}

fn count(number: usize) -> Reply {
    Reply::Number(i64::try_from(number).expect("few"))
}

fn number_in(text: &str) -> i64 {
    text.parse().expect("a number")
}

fn value_of<'a>(entries: &'a Entries, name: &str) -> Option<&'a str> {
    let found = entries.iter().find(|(it, _)| it == name);
    found.map(|(_, value)| value.as_str())
}

/// Whether it is new.
fn put(entries: &mut Entries, name: &str, value: String) -> bool {
    match entries.iter_mut().find(|(it, _)| it == name) {
        Some(entry) => {
            entry.1 = value;
            false
        }
        None => {
            entries.push((name.into(), value));
            true
        }
    }
}

/// Adds to what stands beside a name, or to 0.
fn add(entries: &mut Entries, name: &str, more: &str) -> i64 {
    let sum = value_of(entries, name).map_or(0, number_in) + number_in(more);
    put(entries, name, sum.to_string());
    sum
}

/// Takes entries out; how many were there.
fn remove(entries: &mut Entries, names: &[&str]) -> Reply {
    let before = entries.len();
    entries.retain(|(name, _)| !names.contains(&name.as_str()));
    count(before - entries.len())
}

/// Names and what stands beside them, in one array.
fn flat(entries: &[(String, String)]) -> Reply {
    let words = entries.iter().flat_map(|(name, value)| [name, value]);
    Reply::Array(words.map(|it| bulk(it)).collect())
}

fn draw_text(random: &mut Random) -> String {
    match random.below(3) {
        0 => "GET KEY".into(),
        1 => format!("INCRBY KEY {}", random.below(9)),
        _ => "APPEND KEY x".into(),
    }
}

fn run_text(entries: &mut Entries, words: &[&str]) -> Reply {
    match words {
        ["GET"] => value_of(entries, "").map_or(Reply::Null, bulk),
        ["INCRBY", more] => {
            // Behind an APPEND it is no number.
            let now = value_of(entries, "").unwrap_or("0");
            match now.parse::<i64>() {
                Ok(_) => Reply::Number(add(entries, "", more)),
                Err(_) => Reply::Error("ERR".into()),
            }
        }
        ["APPEND", more] => {
            let whole = [value_of(entries, "").unwrap_or_default(), more].concat();
            let bytes = whole.len();
            put(entries, "", whole);
            count(bytes)
        }
        _ => unreachable!("it is of another type"),
    }
}

fn draw_hash(random: &mut Random) -> String {
    let [one, other] = [0; 2].map(|_| random.below(5));
    let number = random.below(1_000);
    match random.below(12) {
        0..3 => format!("HSET KEY f{one} {number}"),
        3 => format!("HSET KEY f{one} {number} f{other} {}", random.below(9)),
        // A number of Lua still holds it.
        4 => format!("HSET KEY f{one} {}", "9".repeat(15)),
        5 | 6 => format!("HDEL KEY f{one}"),
        7 => format!("HDEL KEY f{one} f{other}"),
        8 => format!("HINCRBY KEY f{one} {number}"),
        9 => format!("HGET KEY f{one}"),
        10 => "HLEN KEY".into(),
        _ => "HGETALL KEY".into(),
    }
}

fn run_hash(entries: &mut Entries, words: &[&str]) -> Reply {
    match words {
        ["HSET", pairs @ ..] => {
            let new = pairs
                .chunks(2)
                .filter(|it| put(entries, it[0], it[1].into()));
            count(new.count())
        }
        ["HDEL", names @ ..] => remove(entries, names),
        ["HINCRBY", name, more] => Reply::Number(add(entries, name, more)),
        ["HGET", name] => value_of(entries, name).map_or(Reply::Null, bulk),
        ["HLEN"] => count(entries.len()),
        ["HGETALL"] => flat(entries),
        _ => unreachable!("it is of another type"),
    }
}

fn draw_zset(random: &mut Random) -> String {
    let [one, other] = [0; 2].map(|_| random.below(5));
    let score = random.below(4);
    match random.below(12) {
        0..3 => format!("ZADD KEY {score} m{one}"),
        3 | 4 => format!("ZADD KEY {score} m{one} {} m{other}", random.below(1_000)),
        5 => format!("ZREM KEY m{one}"),
        6 => format!("ZREM KEY m{one} m{other}"),
        7 => format!("ZINCRBY KEY {score} m{one}"),
        8 => "ZPOPMIN KEY".into(),
        9 => "ZCARD KEY".into(),
        _ => "ZRANGE KEY 0 -1 WITHSCORES".into(),
    }
}

fn run_zset(entries: &mut Entries, words: &[&str]) -> Reply {
    let reply = match words {
        ["ZADD", pairs @ ..] => {
            let new = pairs
                .chunks(2)
                .filter(|it| put(entries, it[1], it[0].into()));
            count(new.count())
        }
        ["ZREM", names @ ..] => remove(entries, names),
        ["ZINCRBY", more, name] => bulk(&add(entries, name, more).to_string()),
        ["ZCARD"] => count(entries.len()),
        ["ZPOPMIN"] => {
            let first: Vec<(String, String)> = entries.drain(..entries.len().min(1)).collect();
            flat(&first)
        }
        ["ZRANGE", ..] => flat(entries),
        _ => unreachable!("it is of another type"),
    };
    entries.sort_by_key(|(name, score)| (number_in(score), name.clone()));
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(state: &mut State, text: &str) -> Reply {
        state.run(&words_at(text, 0))
    }

    #[test]
    fn a_key_without_entries_is_none_and_a_type_refuses_the_commands_of_another_one() {
        let mut state = State::default();
        assert_eq!(run(&mut state, "HSET KEY a 1 b 2"), Reply::Number(2));
        assert_eq!(
            run(&mut state, "ZCARD KEY"),
            Reply::Error("WRONGTYPE".into())
        );
        assert_eq!(run(&mut state, "PEXPIRE KEY 1"), Reply::Number(1));
        assert_eq!(state.aged().len(), 2);
        assert_eq!(run(&mut state, "RENAME KEY 1"), Reply::Line(b"OK".to_vec()));
        assert_eq!(state.run(&words_at("HDEL KEY a b c", 1)), Reply::Number(2));
        assert_eq!(state, State::default());
    }

    #[test]
    fn members_stand_in_the_order_of_their_scores() {
        let mut state = State::default();
        run(&mut state, "ZADD KEY 20 b 3 c 3 a");
        run(&mut state, "ZINCRBY KEY 1 c");
        let words = ["a", "3", "c", "4", "b", "20"].map(bulk);
        let shown = run(&mut state, "ZRANGE KEY 0 -1 WITHSCORES");
        assert_eq!(shown, Reply::Array(words.into()));
        let first = ["a", "3"].map(bulk);
        assert_eq!(run(&mut state, "ZPOPMIN KEY"), Reply::Array(first.into()));
    }
}
