//! What clients asked and were answered, and whether an order of it explains all.

use std::collections::HashSet;

use super::commands;
use super::model::{APPLIED, Found, NULL, State};
use super::world::time_ms;

/// One command of a client, or a transaction, or what it does at one of several moments.
#[derive(Clone, Debug)]
pub struct Event {
    client: usize,
    lines: Vec<String>,
    asked: usize,
    answered: Option<(usize, String)>,
    /// The WATCH that it is, or that an EXEC is behind: when it was asked.
    watch: Option<usize>,
}

/// All of it, in the order in which it was asked.
#[derive(Clone, Debug, Default)]
pub struct History {
    events: Vec<Event>,
    time: usize,
}

/// States that the search looks at, at most.
const CHECKS_MAX: usize = 2_000_000;
/// Events that a history has room for.
const EVENTS_MAX: usize = 128;
/// The time passes for all.
const NOBODY: usize = usize::MAX;

impl History {
    pub fn asked(&mut self, client: usize, lines: Vec<String>) {
        self.time += 1;
        let asked = self.time;
        let watch = match (&lines[0][..], self.watched_by(client)) {
            ("MULTI", Some((watch, _))) => Some(watch),
            _ => lines[0].starts_with("WATCH").then_some(asked),
        };
        let moments = match &lines[0].split(' ').collect::<Vec<_>>()[..] {
            ["FLUSHALL"] => commands::flushes(),
            ["WATCH", keys @ ..] => keys.iter().map(|it| vec![format!("WATCH {it}")]).collect(),
            _ => vec![lines],
        };
        self.events.extend(moments.into_iter().map(|lines| Event {
            client,
            lines,
            asked,
            answered: None,
            watch,
        }));
    }

    pub fn answered(&mut self, client: usize, mut reply: String) {
        self.time += 1;
        let mut events = self.events.iter().rev();
        let event = events.find(|event| event.client == client);
        let asked = event.expect("it was asked").asked;
        if reply.starts_with('*') && reply.contains("$2\\r\\nOK\\r\\n") {
            reply = APPLIED.into();
        }
        let moments = self.events.iter_mut().filter(|event| event.asked == asked);
        for event in moments {
            event.answered = Some((self.time, reply.clone()));
        }
    }

    /// The time has come to so many milliseconds at all shards.
    pub fn passed(&mut self, unix_ms: u64) {
        self.asked(NOBODY, vec![format!("TIME {unix_ms}")]);
        self.answered(NOBODY, "+OK\\r\\n".into());
    }

    /// Whether there is room for what is asked next, however much that is.
    pub fn has_room(&self) -> bool {
        self.events.len() + commands::flushes().len() <= EVENTS_MAX
    }

    /// The last thing of a client, if it is a WATCH that was answered: when it was asked, and keys.
    pub fn watched_by(&self, client: usize) -> Option<(usize, Vec<String>)> {
        let mut of_client = self.events.iter().rev().filter(|it| it.client == client);
        let watch = of_client.next()?.watch?;
        let all = self.events.iter().filter(|event| event.asked == watch);
        let is_done = |event: &Event| {
            let reply = event.answered.as_ref();
            reply.is_some_and(|(_, reply)| reply.starts_with("+OK"))
        };
        let last = self.events.iter().rev().find(|it| it.client == client)?;
        (last.asked == watch && is_done(last)).then(|| {
            let keys = all.map(|event| event.lines[0]["WATCH ".len()..].to_string());
            (watch, keys.collect())
        })
    }

    /// Replies of transactions behind WATCH: those that were null, and the others.
    pub fn watched(&self) -> (usize, usize) {
        let behind = self.events.iter().filter(|event| event.lines.len() > 1);
        let behind = behind.filter(|event| event.watch.is_some());
        let replies = behind.filter_map(|event| event.answered.as_ref());
        let (null, others): (Vec<_>, Vec<_>) = replies.partition(|(_, reply)| reply == NULL);
        (null.len(), others.len())
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
        assert!(events.len() <= EVENTS_MAX, "{} events", events.len());
        let mut met = HashSet::new();
        let mut stack = vec![(0_u128, State::at(time_ms(0)))];
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
            if first_answer.is_none() && state.found == *found {
                return Ok(());
            }
            stack.extend(state.fired().into_iter().map(|after| (done, after)));
            best = best.max(done.count_ones());
            for at in left {
                let event = events[at];
                if first_answer.is_some_and(|time| event.asked > time) {
                    continue;
                }
                let mut after = state.clone();
                let Some(reply) = after.apply(&event.lines, event.watch) else {
                    continue;
                };
                let is_it = match &event.answered {
                    Some((_, it)) => *it == reply,
                    // Who was not answered need not have done what changes nothing.
                    None => after != state,
                };
                if is_it {
                    stack.push((done | (1 << at), after));
                }
                if event.is_null() && event.watch.is_some_and(|it| state.may_have_changed(it)) {
                    stack.push((done | (1 << at), state.clone()));
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

impl Event {
    fn is_null(&self) -> bool {
        let reply = self.answered.as_ref();
        reply.is_some_and(|(_, reply)| reply == NULL)
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
        "-EXECABORT",
    ]
    .iter()
    .any(|begin| reply.starts_with(begin))
        && !reply.starts_with("-ERR no such key")
}
