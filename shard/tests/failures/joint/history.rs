//! What clients asked and were answered, and whether an order of it explains all.

use std::collections::HashSet;

use super::world::Found;

/// One command of a client, or a transaction.
#[derive(Clone, Debug)]
pub struct Event {
    client: usize,
    lines: Vec<String>,
    asked: usize,
    answered: Option<(usize, String)>,
}

/// All of it, in the order in which it was asked.
#[derive(Clone, Debug, Default)]
pub struct History {
    events: Vec<Event>,
    time: usize,
}

/// States that the search looks at, at most.
const CHECKS_MAX: usize = 2_000_000;

impl History {
    pub fn asked(&mut self, client: usize, lines: Vec<String>) {
        self.time += 1;
        self.events.push(Event {
            client,
            lines,
            asked: self.time,
            answered: None,
        });
    }

    pub fn answered(&mut self, client: usize, reply: String) {
        self.time += 1;
        let mut events = self.events.iter_mut().rev();
        let event = events.find(|event| event.client == client);
        event.expect("it was asked").answered = Some((self.time, reply));
    }

    pub fn is_complete(&self) -> bool {
        self.events.iter().all(|event| event.answered.is_some())
    }

    pub fn last(&self) -> Option<&Event> {
        self.events.last()
    }

    /// The moment.
    pub fn now(&self) -> usize {
        self.time
    }

    /// What must be there of what was answered by then; all else may be.
    pub fn as_of(&self, time: usize) -> History {
        let mut before = self.clone();
        for event in &mut before.events {
            event.answered.take_if(|(at, _)| *at > time);
        }
        before
    }

    /// Looks for an order of all that was answered, and of some that was not, that explains the
    /// replies and what is there now.
    pub fn check(&self, found: &Found) -> Result<(), String> {
        let is_refused = |event: &&Event| {
            let reply = event.answered.as_ref();
            !reply.is_some_and(|(_, reply)| is_refusal(reply))
        };
        let events: Vec<&Event> = self.events.iter().filter(is_refused).collect();
        assert!(events.len() <= 128, "{} events", events.len());
        let mut met = HashSet::new();
        let mut stack = vec![(0_u128, Found::new())];
        let mut best = 0;
        while let Some((done, state)) = stack.pop() {
            if !met.insert((done, state.clone())) {
                continue;
            }
            if met.len() > CHECKS_MAX {
                return Err("the search takes too long".into());
            }
            let is_left = |at: &usize| done & (1 << at) == 0;
            let left: Vec<usize> = (0..events.len()).filter(is_left).collect();
            let answers = left.iter().filter_map(|at| events[*at].answered.as_ref());
            let first_answer = answers.map(|(time, _)| *time).min();
            if first_answer.is_none() && state == *found {
                return Ok(());
            }
            best = best.max(done.count_ones());
            for at in left {
                let event = events[at];
                if first_answer.is_some_and(|time| event.asked > time) {
                    continue;
                }
                let mut after = state.clone();
                let reply = apply(&event.lines, &mut after);
                let is_it = event.answered.as_ref().is_none_or(|(_, it)| *it == reply);
                if is_it {
                    stack.push((done | (1 << at), after));
                }
            }
        }
        Err(format!(
            "no order explains {found:?}; {best} of {} fit:\n{}",
            events.len(),
            events
                .iter()
                .map(|event| format!("{event:?}\n"))
                .collect::<String>()
        ))
    }
}

/// Whether a reply says that nothing was executed.
fn is_refusal(reply: &str) -> bool {
    [
        "-BUSY",
        "-ERR FULL",
        "-FULL",
        "-OOM",
        "-IO",
        "-TRYAGAIN",
        "-DEADLINE",
        "-ERR",
    ]
    .iter()
    .any(|begin| reply.starts_with(begin))
        && !reply.starts_with("-ERR no such key")
}

/// What a command makes of a state, and what it replies.
fn apply(lines: &[String], state: &mut Found) -> String {
    if lines.len() == 1 {
        return one(&lines[0], state);
    }
    let commands = &lines[1..lines.len() - 1];
    let replies: String = commands.iter().map(|line| one(line, state)).collect();
    format!("*{}\\r\\n{replies}", commands.len())
}

fn one(line: &str, state: &mut Found) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let number = |state: &Found, key: &str| {
        state
            .get(key)
            .map_or(0, |value| value.parse::<i64>().expect("a number"))
    };
    let shown = |value: Option<&String>| match value {
        Some(value) => format!("${}\\r\\n{value}\\r\\n", value.len()),
        None => "$-1\\r\\n".into(),
    };
    match words[..] {
        ["GET", key] => shown(state.get(key)),
        ["SET", key, value] => {
            state.insert(key.into(), value.into());
            "+OK\\r\\n".into()
        }
        ["DEL", ref keys @ ..] => {
            let gone = keys.iter().filter(|key| state.remove(**key).is_some());
            format!(":{}\\r\\n", gone.count())
        }
        ["MSET", a, x, b, y] => {
            state.insert(a.into(), x.into());
            state.insert(b.into(), y.into());
            "+OK\\r\\n".into()
        }
        ["MSETNX", a, x, b, y] => {
            if state.contains_key(a) || state.contains_key(b) {
                return ":0\\r\\n".into();
            }
            state.insert(a.into(), x.into());
            state.insert(b.into(), y.into());
            ":1\\r\\n".into()
        }
        ["RENAME", a, b] => match state.remove(a) {
            Some(value) => {
                state.insert(b.into(), value);
                "+OK\\r\\n".into()
            }
            None => "-ERR no such key\\r\\n".into(),
        },
        ["COPY", a, b, "REPLACE"] => match state.get(a).cloned() {
            Some(value) => {
                state.insert(b.into(), value);
                ":1\\r\\n".into()
            }
            None => ":0\\r\\n".into(),
        },
        ["INCRBY", key, by] => {
            let sum = number(state, key) + by.parse::<i64>().expect("a number");
            state.insert(key.into(), sum.to_string());
            format!(":{sum}\\r\\n")
        }
        ["EVAL", "all", "2", _, _, ref lines @ ..] => {
            let lines: Vec<String> = lines.iter().map(|line| line.replace('~', " ")).collect();
            let replies: String = lines.iter().map(|line| one(line, state)).collect();
            format!("*{}\\r\\n{replies}", lines.len())
        }
        _ => panic!("{line} has no model"),
    }
}
