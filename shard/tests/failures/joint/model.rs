//! What is there as one store without shards has it: what a command makes of it, and replies.

use std::collections::BTreeMap;

/// What is there, by key.
pub type Found = BTreeMap<String, Held>;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Content {
    Text(String),
    Fields(BTreeMap<String, String>),
}

/// A key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Held {
    pub content: Content,
    /// When a plain expiry ends it, in unix milliseconds.
    pub until_ms: Option<u64>,
}

impl Held {
    pub fn text(text: &str) -> Held {
        Held {
            content: Content::Text(text.into()),
            until_ms: None,
        }
    }
}

/// Whether a watched key has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Changed {
    No,
    /// A flush came while it was not there.
    May,
    Has,
}

/// What a key puts to another one when it expires.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Effect {
    due_ms: u64,
    key: String,
    value: String,
}

/// What is there, and what is to come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    pub found: Found,
    armed: BTreeMap<String, Effect>,
    /// By the time at which WATCH was asked.
    watches: BTreeMap<usize, BTreeMap<String, Changed>>,
    now_ms: u64,
}

/// A reply that has a version, which the model does not know.
pub const APPLIED: &str = "applied";
pub const NULL: &str = "*-1\\r\\n";

impl State {
    /// Nothing, at this time.
    pub fn at(now_ms: u64) -> State {
        State {
            now_ms,
            ..State::default()
        }
    }

    /// The keys whose effects are due.
    fn due(&self) -> impl Iterator<Item = &String> {
        let armed = self.armed.iter();
        armed.filter_map(|(key, effect)| (effect.due_ms <= self.now_ms).then_some(key))
    }

    /// What may become of it by itself: effects run at any time from their expiry on.
    pub fn fired(&self) -> Vec<State> {
        let fire = |key: &String| {
            let mut after = self.clone();
            let effect = after.armed[key].clone();
            after.remove(key);
            after.insert(&effect.key, Held::text(&effect.value));
            after
        };
        self.due().map(fire).collect()
    }

    /// Runs a command, or a transaction. `watch` names what WATCH has named. `None`: effects run
    /// before it, or that WATCH does.
    pub fn apply(&mut self, lines: &[String], watch: Option<usize>) -> Option<String> {
        let words = lines.iter().flat_map(|line| line.split([' ', '~']));
        let is_flush = lines[0].starts_with("FLUSH");
        let mut meets = words.filter(|word| self.due().any(|due| due == word));
        if !is_flush && meets.next().is_some() {
            return None;
        }
        if lines[0] != "MULTI" {
            return Some(self.one(&lines[0], watch));
        }
        if let Some(watch) = watch {
            let watched = self.watches.remove(&watch)?;
            if watched.values().any(|changed| *changed == Changed::Has) {
                return Some(NULL.into());
            }
        }
        let commands = &lines[1..lines.len() - 1];
        let replies: String = commands.iter().map(|line| self.one(line, None)).collect();
        Some(format!("*{}\\r\\n{replies}", commands.len()))
    }

    /// Whether a flush may be why a transaction was null.
    pub fn may_have_changed(&self, watch: usize) -> bool {
        let mut watched = self.watches[&watch].values();
        watched.any(|changed| *changed == Changed::May)
    }

    fn touch(&mut self, key: &str) {
        for watch in self.watches.values_mut() {
            if let Some(changed) = watch.get_mut(key) {
                *changed = Changed::Has;
            }
        }
    }

    fn insert(&mut self, key: &str, held: Held) {
        if held.until_ms.is_some_and(|ms| ms <= self.now_ms) {
            self.remove(key);
            return;
        }
        self.touch(key);
        self.armed.remove(key);
        self.found.insert(key.into(), held);
    }

    fn remove(&mut self, key: &str) -> Option<Held> {
        self.armed.remove(key);
        let removed = self.found.remove(key);
        if removed.is_some() {
            self.touch(key);
        }
        removed
    }

    fn shown(&self, key: &str) -> String {
        match self.found.get(key).map(|held| &held.content) {
            Some(Content::Text(value)) => bulk(Some(value)),
            Some(Content::Fields(_)) => panic!("{key} has fields"),
            None => bulk(None),
        }
    }

    fn fields(&self, key: &str) -> BTreeMap<String, String> {
        match self.found.get(key).map(|held| &held.content) {
            Some(Content::Fields(fields)) => fields.clone(),
            Some(Content::Text(_)) => panic!("{key} has no fields"),
            None => BTreeMap::new(),
        }
    }

    fn set_all(&mut self, pairs: [(&str, &str); 2]) {
        for (key, value) in pairs {
            self.insert(key, Held::text(value));
        }
    }

    fn one(&mut self, line: &str, watch: Option<usize>) -> String {
        let words: Vec<&str> = line.split(' ').collect();
        let ok = || "+OK\\r\\n".to_string();
        let number = |number: usize| format!(":{number}\\r\\n");
        match words[..] {
            ["GET", key] => self.shown(key),
            ["SET", key, value] => {
                self.insert(key, Held::text(value));
                ok()
            }
            ["SET", key, value, "PXAT", ms] => {
                let until_ms = Some(ms.parse().expect("a time"));
                let held = Held::text(value);
                self.insert(key, Held { until_ms, ..held });
                ok()
            }
            ["PEXPIREAT", key, ms] => {
                let Some(held) = self.found.get(key).cloned() else {
                    return number(0);
                };
                let until_ms = Some(ms.parse().expect("a time"));
                self.insert(key, Held { until_ms, ..held });
                number(1)
            }
            ["DEL", ref keys @ ..] => {
                number(keys.iter().filter(|key| self.remove(key).is_some()).count())
            }
            ["MSET", a, x, b, y] => {
                self.set_all([(a, x), (b, y)]);
                ok()
            }
            ["MSETNX", a, x, b, y] => {
                let is_free = !self.found.contains_key(a) && !self.found.contains_key(b);
                if is_free {
                    self.set_all([(a, x), (b, y)]);
                }
                number(usize::from(is_free))
            }
            ["RENAME", a, b] => match self.remove(a) {
                Some(held) => {
                    self.insert(b, held);
                    ok()
                }
                None => "-ERR no such key\\r\\n".into(),
            },
            ["COPY", a, b, "REPLACE"] => {
                let held = self.found.get(a).cloned();
                let is_there = held.is_some();
                if let Some(held) = held {
                    self.insert(b, held);
                }
                number(usize::from(is_there))
            }
            ["INCRBY", key, by] => self.add(key, by.parse().expect("a number")),
            ["HGET", key, field] => bulk(self.fields(key).get(field)),
            ["HSET", key, field, value] => {
                let mut fields = self.fields(key);
                let is_new = fields.insert(field.into(), value.into()).is_none();
                let until_ms = self.found.get(key).and_then(|held| held.until_ms);
                let content = Content::Fields(fields);
                self.insert(key, Held { content, until_ms });
                number(usize::from(is_new))
            }
            ["EVAL", "all", "2", _, _, ref lines @ ..] => {
                let lines: Vec<String> = lines.iter().map(|line| line.replace('~', " ")).collect();
                let replies: String = lines.iter().map(|line| self.one(line, None)).collect();
                format!("*{}\\r\\n{replies}", lines.len())
            }
            ["KV.APPLY", hold, "KEY", key, "k1~put", "1", in_ms, _, value] => {
                let in_ms = in_ms
                    .trim_start_matches("k1~expires~in~")
                    .trim_end_matches("ms");
                let due_ms = self.now_ms + in_ms.parse::<u64>().expect("milliseconds");
                let (key, value) = (key.to_string(), value.to_string());
                self.insert(hold, Held::text("1"));
                let effect = Effect { due_ms, key, value };
                self.armed.insert(hold.into(), effect);
                APPLIED.into()
            }
            _ => self.of_node(&words, watch),
        }
    }

    fn add(&mut self, key: &str, by: i64) -> String {
        let held = self.found.get(key).cloned().unwrap_or(Held::text("0"));
        let Content::Text(value) = &held.content else {
            panic!("{key} is no number");
        };
        let sum = value.parse::<i64>().expect("a number") + by;
        let content = Content::Text(sum.to_string());
        self.insert(key, Held { content, ..held });
        format!(":{sum}\\r\\n")
    }

    /// What is no command of one key: a key of WATCH, a partition of FLUSHALL, time that passes.
    fn of_node(&mut self, words: &[&str], watch: Option<usize>) -> String {
        match *words {
            ["WATCH", key] => {
                let watched = self.watches.entry(watch.expect("a name")).or_default();
                watched.insert(key.into(), Changed::No);
            }
            ["FLUSH", ref keys @ ..] => {
                for key in keys {
                    if self.remove(key).is_none() {
                        let watches = self.watches.values_mut();
                        let unchanged = watches.filter_map(|watch| watch.get_mut(*key));
                        for changed in unchanged.filter(|it| **it == Changed::No) {
                            *changed = Changed::May;
                        }
                    }
                }
            }
            ["TIME", ms] => {
                self.now_ms = ms.parse().expect("a time");
                let is_past = |held: &Held| held.until_ms.is_some_and(|ms| ms <= self.now_ms);
                let past = self.found.iter().filter(|(_, held)| is_past(held));
                let past: Vec<String> = past.map(|(key, _)| key.clone()).collect();
                for key in past {
                    self.remove(&key);
                }
            }
            _ => panic!("{words:?} has no model"),
        }
        "+OK\\r\\n".into()
    }
}

fn bulk(value: Option<&String>) -> String {
    match value {
        Some(value) => format!("${}\\r\\n{value}\\r\\n", value.len()),
        None => "$-1\\r\\n".into(),
    }
}
