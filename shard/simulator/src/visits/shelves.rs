//! Shelves: keys with members and texts, each shelf of one visitor, in EXEC, in scripts and alone.
//!
//! A shelf has three keys of one shard. Each command is held against a model of Redis
//! ([`model`]). What was never answered may have happened or not, and what expires soon may be gone
//! or not, so a shelf may be in one of several states: an answer leaves those that explain it, and
//! none is an error. What must hold, whatever goes wrong:
//!
//! - What was answered is there, of its type and with its expiry; what was refused never is.
//! - A group or a script is there as a whole or not at all.
//!
//! A command whose connection went away under a node that went on may run at any time. Its shelf is
//! left alone until all is over, and the visitor takes another one.

use std::collections::BTreeSet;

use penstock_net::slot::tag_of;

use super::replies::{Reply, command};
use super::shop::is_not_done;
use crate::random::Random;

mod model;

use model::{KEYS, State, TYPES, Words};

/// Shelves of a run, at most.
const SHELVES_MAX: usize = 60;
/// States of a shelf, at most: with more of them it is left alone.
const STATES_MAX: usize = 200;

/// Runs the commands that its arguments have, each behind the number of its words, on the KEYS that
/// they name by number; the last argument says how it ends.
pub(super) const RUN: &str = "\
local told, at = {}, 1
while at < #ARGV do
  local words = {}
  for place = 1, tonumber(ARGV[at]) do
    local word = ARGV[at + place]
    words[place] = string.sub(word, 1, 1) == '@' and KEYS[tonumber(string.sub(word, 2))] or word
  end
  told[#told + 1] = redis.pcall(unpack(words))
  at = at + #words + 1
end
if ARGV[#ARGV] == 'error' then error('on purpose') end
return told";

/// How commands are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Alone,
    Group,
    /// A group with a command that is none.
    Void,
    Script,
    /// A script that fails when it has run all.
    Failing,
}

/// Commands under way, and when they were sent.
#[derive(Clone, Debug)]
struct Step {
    shelf: usize,
    way: Way,
    commands: Vec<Words>,
    /// The run of the node.
    run: usize,
}

#[derive(Debug)]
struct Shelf {
    /// The states that it may be in.
    states: BTreeSet<State>,
    /// It is left alone.
    is_left: bool,
}

/// All shelves of a run.
#[derive(Debug)]
pub(super) struct Shelves {
    random: Random,
    slots: [u16; KEYS],
    shelves: Vec<Shelf>,
    /// The step of each visitor, and the shelf that he has.
    steps: Vec<Option<Step>>,
    taken: Vec<Option<usize>>,
    /// What went unanswered last.
    unknown: Vec<Option<Step>>,
    run: usize,
    /// Answers behind which a shelf has surely had a value of each type.
    shown: [u64; TYPES.len()],
    /// Groups and scripts of several commands.
    wholes: u64,
    /// Scripts that failed when they had changed all.
    undone: u64,
    /// Steps that went unanswered, and a start behind them.
    broken: u64,
}

/// What every long run with shelves meets.
pub(super) const MUST_MEET: [&str; 3] = [
    "group on a shelf",
    "script undone on a shelf",
    "start behind a step on a shelf",
];

impl Shelves {
    /// For so many visitors, on slots of one shard.
    pub(super) fn new(random: Random, slots: [u16; KEYS], visitors: usize) -> Self {
        Shelves {
            random,
            slots,
            shelves: Vec::new(),
            steps: vec![None; visitors],
            taken: vec![None; visitors],
            unknown: vec![None; visitors],
            run: 0,
            shown: [0; TYPES.len()],
            wholes: 0,
            undone: 0,
            broken: 0,
        }
    }

    /// The node starts: what was sent before never comes.
    pub(super) fn started(&mut self) {
        self.run += 1;
    }

    fn key(&self, shelf: usize, key: usize) -> Vec<u8> {
        let tag = tag_of(self.slots[key]);
        [
            b"{",
            &tag[..],
            b"}shelf",
            format!("{shelf}.{key}").as_bytes(),
        ]
        .concat()
    }

    /// What a visitor asks for next; nothing if there are shelves enough.
    pub(super) fn begin(&mut self, visitor: usize) -> bool {
        if let Some(unknown) = self.unknown[visitor].take() {
            self.settle(visitor, &unknown);
        }
        let is_free = |shelf: &usize| !self.shelves[*shelf].is_left;
        let shelf = match self.taken[visitor].filter(is_free) {
            Some(shelf) => shelf,
            None if self.shelves.len() == SHELVES_MAX => return false,
            None => {
                self.shelves.push(Shelf {
                    states: [State::default()].into(),
                    is_left: false,
                });
                self.shelves.len() - 1
            }
        };
        self.taken[visitor] = Some(shelf);
        let way = self.random.pick(&[
            Way::Alone,
            Way::Alone,
            Way::Alone,
            Way::Group,
            Way::Group,
            Way::Void,
            Way::Script,
            Way::Script,
            Way::Failing,
        ]);
        let commands = match self.random.chance(80_000) {
            true => model::look(),
            false => {
                let count = match way {
                    Way::Alone => 1,
                    _ => 1 + self.random.index(5),
                };
                (0..count).map(|_| model::draw(&mut self.random)).collect()
            }
        };
        let way = match commands.len() {
            1 => way,
            _ if way == Way::Alone => Way::Group,
            _ => way,
        };
        self.ask(visitor, shelf, way, commands);
        true
    }

    fn ask(&mut self, visitor: usize, shelf: usize, way: Way, commands: Vec<Words>) {
        self.steps[visitor] = Some(Step {
            shelf,
            way,
            commands,
            run: self.run,
        });
    }

    /// Whether what a visitor asks for is a script.
    pub(super) fn script(&self, visitor: usize) -> Option<&'static str> {
        let step = self.steps[visitor].as_ref()?;
        matches!(step.way, Way::Script | Way::Failing).then_some(RUN)
    }

    /// The commands of a visitor. A script is named so.
    pub(super) fn asks(&self, visitor: usize, (eval, text): (&[u8], &[u8])) -> Vec<Vec<u8>> {
        let step = self.steps[visitor].as_ref().expect("it asks");
        let with_keys = |words: &Words| {
            let words = words.iter().enumerate().map(|(place, word)| {
                match model::is_key_at(words, place) {
                    true => self.key(step.shelf, word.parse().expect("a key")),
                    false => word.clone().into_bytes(),
                }
            });
            let words: Vec<Vec<u8>> = words.collect();
            command(&words.iter().map(Vec::as_slice).collect::<Vec<_>>())
        };
        let plain = step.commands.iter().map(with_keys);
        let [multi, exec] = [b"MULTI".as_slice(), b"EXEC"].map(|word| command(&[word]));
        match step.way {
            Way::Alone => plain.collect(),
            Way::Group => [multi].into_iter().chain(plain).chain([exec]).collect(),
            Way::Void => {
                let end = [command(&[b"NONE"]), exec];
                [multi].into_iter().chain(plain).chain(end).collect()
            }
            Way::Script | Way::Failing => {
                let keys: Vec<Vec<u8>> = (0..KEYS).map(|key| self.key(step.shelf, key)).collect();
                let mut words: Vec<Vec<u8>> = vec![eval.to_vec(), text.to_vec()];
                words.push(KEYS.to_string().into_bytes());
                words.extend(keys);
                for command in &step.commands {
                    words.push(command.len().to_string().into_bytes());
                    words.extend(command.iter().enumerate().map(|(place, word)| {
                        match model::is_key_at(command, place) {
                            true => {
                                let key: usize = word.parse().expect("a key");
                                format!("@{}", key + 1).into_bytes()
                            }
                            false => word.clone().into_bytes(),
                        }
                    }));
                }
                let end: &[u8] = match step.way {
                    Way::Failing => b"error",
                    _ => b"done",
                };
                words.push(end.to_vec());
                vec![command(
                    &words.iter().map(Vec::as_slice).collect::<Vec<_>>(),
                )]
            }
        }
    }

    /// All commands of a visitor are answered.
    pub(super) fn answered(&mut self, visitor: usize, replies: &[Reply]) -> Result<(), String> {
        let step = self.steps[visitor].take().expect("it asked");
        let judged = self.judge(&step, replies);
        judged.map_err(|wrong| {
            let states = &self.shelves[step.shelf].states;
            format!("{step:?} on a shelf of {states:?} was answered {replies:?}: {wrong}")
        })
    }

    fn judge(&mut self, step: &Step, replies: &[Reply]) -> Result<(), String> {
        let last = replies.last().expect("it has commands");
        let before = self.aged(step.shelf);
        let results = match (step.way, last) {
            (Way::Alone, last) => std::slice::from_ref(last),
            (Way::Group | Way::Script, Reply::Array(results)) => results,
            (_, Reply::Error(_)) => &[],
            _ => return Err("that is no answer to it".into()),
        };
        if results.len() == step.commands.len() {
            let after: BTreeSet<State> = before
                .iter()
                .filter_map(|state| explained(state, step, results))
                .collect();
            if !after.is_empty() {
                self.note(step, &after);
                self.keep(step.shelf, after);
                return Ok(());
            }
        }
        let Reply::Error(text) = last else {
            return Err("no state explains it".into());
        };
        let is_void = step.way == Way::Void && text.starts_with("EXECABORT");
        let is_failed = step.way == Way::Failing && text.contains("on purpose");
        if text.starts_with("WRONGTYPE") || text.contains("not what was written") {
            return Err("no state explains it".into());
        }
        let may_be = match is_void || is_failed || is_not_done(text) {
            true => before,
            false => with_done(before, &step.commands),
        };
        self.undone += u64::from(is_failed);
        self.keep(step.shelf, may_be);
        Ok(())
    }

    /// The states that a shelf may be in by now.
    fn aged(&self, shelf: usize) -> BTreeSet<State> {
        let states = self.shelves[shelf].states.iter();
        states.flat_map(State::aged).collect()
    }

    fn keep(&mut self, shelf: usize, states: BTreeSet<State>) {
        let shelf = &mut self.shelves[shelf];
        shelf.is_left |= states.len() > STATES_MAX;
        shelf.states = states;
    }

    fn note(&mut self, step: &Step, after: &BTreeSet<State>) {
        self.wholes += u64::from(step.way != Way::Alone && step.commands.len() > 1);
        for (of, shown) in self.shown.iter_mut().enumerate() {
            *shown += u64::from(after.iter().all(|state| state.has(of)));
        }
    }

    /// What was met, and how often.
    pub(super) fn met(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let of_types = TYPES.iter().map(|it| it.met).zip(self.shown);
        of_types.chain(
            MUST_MEET
                .into_iter()
                .zip([self.wholes, self.undone, self.broken]),
        )
    }

    /// No answer will come.
    pub(super) fn lost(&mut self, visitor: usize) {
        if let Some(step) = self.steps[visitor].take() {
            self.unknown[visitor] = Some(step);
        }
    }

    /// Something went unanswered: it has happened, or not, or may still do so if the node went on.
    fn settle(&mut self, visitor: usize, step: &Step) {
        let before = self.aged(step.shelf);
        let may_be = match step.way {
            Way::Void | Way::Failing => before,
            _ => with_done(before, &step.commands),
        };
        self.broken += u64::from(step.run < self.run);
        let shelf = &mut self.shelves[step.shelf];
        shelf.is_left |= step.run == self.run || may_be.len() > STATES_MAX;
        shelf.states = may_be;
        if shelf.is_left {
            self.taken[visitor] = None;
        }
    }

    /// The shelves of the last look.
    pub(super) fn last_reads(&self) -> usize {
        self.shelves.len()
    }

    /// A visitor looks at a shelf, all being over.
    pub(super) fn read_last(&mut self, visitor: usize, shelf: usize) {
        for visitor in 0..self.unknown.len() {
            if let Some(unknown) = self.unknown[visitor].take() {
                self.settle(visitor, &unknown);
            }
        }
        self.ask(visitor, shelf, Way::Group, model::look());
    }
}

/// What a state is behind commands that were answered so; `None` if it cannot be.
fn explained(state: &State, step: &Step, results: &[Reply]) -> Option<State> {
    let mut state = state.clone();
    for (words, result) in step.commands.iter().zip(results) {
        let before = state.clone();
        let wanted = state.run(words);
        if normal(words, &wanted) == normal(words, result) {
            continue;
        }
        match result {
            // It was refused, and has changed nothing: within a group that is known.
            Reply::Error(text) if step.way != Way::Alone && is_refusal(text) => state = before,
            _ => return None,
        }
    }
    Some(state)
}

/// States, and what they are behind commands that may have run.
fn with_done(before: BTreeSet<State>, commands: &[Words]) -> BTreeSet<State> {
    let done = before.iter().map(|state| {
        let mut state = state.clone();
        for words in commands {
            state.run(words);
        }
        state
    });
    let done: Vec<State> = done.collect();
    before.into_iter().chain(done).collect()
}

/// Whether an error is no word of Redis on the values that are there.
fn is_refusal(text: &str) -> bool {
    let of_values = ["WRONGTYPE", "ERR no such key", "ERR value is not"];
    let is_of_values = of_values.iter().any(|head| text.starts_with(head));
    !is_of_values && !text.contains("not what was written")
}

/// A reply without what the model does not know: how long a key lives on, and the words of errors.
fn normal(words: &[String], reply: &Reply) -> Reply {
    match reply {
        Reply::Number(0..) if words[0] == "PTTL" => Reply::Number(1),
        Reply::Error(text) => Reply::Error(text.split(' ').next().unwrap_or_default().to_string()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Words {
        text.split(' ').map(str::to_string).collect()
    }

    /// A visitor with a shelf, and nothing on it.
    fn shelves() -> Shelves {
        let mut shelves = Shelves::new(Random::new(1, 1), [7; KEYS], 1);
        assert!(shelves.begin(0));
        shelves
    }

    fn ask(shelves: &mut Shelves, way: Way, commands: &[&str]) {
        let commands = commands.iter().map(|it| words(it)).collect();
        shelves.ask(0, 0, way, commands);
    }

    fn judge(shelves: &mut Shelves, command: &str, reply: Reply) -> Result<(), String> {
        ask(shelves, Way::Alone, &[command]);
        shelves.answered(0, &[reply])
    }

    #[test]
    fn what_went_unanswered_may_have_happened_or_not_and_an_answer_says_which() {
        for (fields, is_possible) in [(0, true), (1, false), (2, true)] {
            let mut shelves = shelves();
            ask(&mut shelves, Way::Group, &["HSET 0 a 1", "HSET 0 b 1"]);
            shelves.lost(0);
            shelves.started();
            assert!(shelves.begin(0), "the shelf goes on behind a start");
            let judged = judge(&mut shelves, "HLEN 0", Reply::Number(fields));
            assert_eq!(judged.is_ok(), is_possible, "{judged:?}");
            if is_possible {
                judge(&mut shelves, "HLEN 0", Reply::Number(2 - fields))
                    .expect_err("it is known now");
            }
        }
    }

    #[test]
    fn a_shelf_is_left_alone_if_the_node_went_on_behind_what_was_lost() {
        let mut shelves = shelves();
        ask(&mut shelves, Way::Alone, &["HSET 0 a 1"]);
        shelves.lost(0);
        assert!(shelves.begin(0));
        assert_eq!(shelves.last_reads(), 2, "it takes another one");
    }

    #[test]
    fn what_was_answered_is_there_and_what_failed_is_not() {
        let mut shelves = shelves();
        judge(&mut shelves, "ZADD 0 1 m", Reply::Number(1)).expect("it is new");
        judge(&mut shelves, "PEXPIRE 0 100000000000", Reply::Number(1)).expect("it is there");
        ask(&mut shelves, Way::Failing, &["DEL 0"]);
        let failed = Reply::Error("ERR on purpose".into());
        shelves.answered(0, &[failed]).expect("it is to fail");
        judge(&mut shelves, "PTTL 0", Reply::Number(-1)).expect_err("it has an expiry");
        judge(&mut shelves, "TYPE 0", Reply::Line(b"string".to_vec())).expect_err("it is none");
        let wrong = Reply::Error("WRONGTYPE of another kind".into());
        judge(&mut shelves, "ZCARD 0", wrong.clone()).expect_err("it is of its type");
        judge(&mut shelves, "GET 0", wrong).expect("it is of another type");
        judge(&mut shelves, "ZREM 0 m", Reply::Number(1)).expect("it was there");
        judge(&mut shelves, "TYPE 0", Reply::Line(b"zset".to_vec())).expect_err("none is left");
    }
}
