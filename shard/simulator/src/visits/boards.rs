//! Boards: values that clients keep and are told of (CLIENT TRACKING).
//!
//! ```text
//! {a} sequence: counts up    {a} board 0 .. 3: a number of the sequence, often with an expiry
//!   a script counts up and puts the number on a board, or takes a board away
//! ```
//!
//! The judge stands where bytes leave the node. It has for each client that tracks keys what that
//! client would keep, and what the node has told since. What must hold:
//!
//! - When the answer to a change leaves, nobody keeps an older value of that board any more.
//! - Whoever is shown another value than he keeps is told that his own has changed before anything
//!   else that he asks for is answered. So no change and no expiry goes untold.
//! - No board goes back.

use std::collections::{BTreeMap, BTreeSet};

use penstock_net::slot::tag_of;

use super::replies::{Reply, command};
use crate::random::Random;

const BOARDS: usize = 4;

/// KEYS are the sequence and the board, ARGV what becomes of it.
pub(super) const PUT: &str = "\
local n = redis.call('INCR', KEYS[1])
if ARGV[1] == 'del' then redis.call('DEL', KEYS[2])
elseif ARGV[1] == 'set' then redis.call('SET', KEYS[2], n)
else redis.call('SET', KEYS[2], n, 'PX', ARGV[1]) end
return n";
pub(super) const SHOW: &str = "return redis.call('GET', KEYS[1])";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// A script puts the next number.
    Put,
    Get,
    /// GET within EXEC.
    Group,
    /// GET within a script.
    Show,
    /// DEL, which tells no number.
    Del,
    /// PEXPIRE, which tells no number.
    Expire,
}

/// What a client asks of a board.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    pub(super) form: Form,
    board: usize,
}

/// What one client keeps.
#[derive(Debug, Default)]
struct Kept {
    /// The number of each board, or that there is none.
    boards: BTreeMap<usize, Option<i64>>,
    /// Boards of which it must be told before anything else is answered.
    owed: BTreeSet<usize>,
    /// The highest number that it was shown.
    highest: BTreeMap<usize, i64>,
}

#[derive(Debug)]
pub(crate) struct Boards {
    random: Random,
    slot: u16,
    /// Who tracks, by connection.
    kept: BTreeMap<usize, Kept>,
    pub(super) told: u64,
    pub(super) told_all: u64,
}

impl Boards {
    pub(super) fn new(random: Random, slot: u16) -> Self {
        Boards {
            random,
            slot,
            kept: BTreeMap::new(),
            told: 0,
            told_all: 0,
        }
    }

    /// What the keys begin with.
    pub(super) fn prefix(&self) -> Vec<u8> {
        [b"{", &tag_of(self.slot)[..], b"}"].concat()
    }

    fn key(&self, board: usize) -> Vec<u8> {
        let digit = b'0' + u8::try_from(board).expect("few boards");
        [&self.prefix()[..], b"board", &[digit]].concat()
    }

    /// What a client asks next; one that tracks keys reads more.
    pub(super) fn begin(&mut self, tracks: bool) -> Ask {
        let form = match self.random.below(20) {
            0 if !tracks => Form::Del,
            1 if !tracks => Form::Expire,
            2..12 if !tracks => Form::Put,
            2..4 => Form::Put,
            4..8 => Form::Group,
            8..12 => Form::Show,
            _ => Form::Get,
        };
        let board = self.random.index(BOARDS);
        Ask { form, board }
    }

    pub(super) fn script(&self, ask: Ask) -> Option<&'static str> {
        match ask.form {
            Form::Put => Some(PUT),
            Form::Show => Some(SHOW),
            _ => None,
        }
    }

    pub(super) fn asks(&mut self, ask: Ask, (eval, text): (&[u8], &[u8])) -> Vec<Vec<u8>> {
        let key = self.key(ask.board);
        let get = command(&[b"GET", &key]);
        match ask.form {
            Form::Get => vec![get],
            Form::Group => vec![command(&[b"MULTI"]), get, command(&[b"EXEC"])],
            Form::Show => vec![command(&[eval, text, b"1", &key])],
            Form::Del => vec![command(&[b"DEL", &key])],
            Form::Expire => vec![command(&[b"PEXPIRE", &key, b"20"])],
            Form::Put => {
                let sequence = [&self.prefix()[..], b"sequence"].concat();
                let what: &[&[u8]] = &[b"set", b"set", b"del", b"1", b"30", b"2000", b"100000"];
                let what = self.random.pick(what);
                vec![command(&[eval, text, b"2", &sequence, &key, what])]
            }
        }
    }

    /// A connection tracks keys from now on.
    pub(super) fn tracks(&mut self, link: usize) {
        self.kept.insert(link, Kept::default());
    }

    /// A connection is gone.
    pub(super) fn ended(&mut self, link: usize) {
        self.kept.remove(&link);
    }

    /// A reply leaves the node for a connection: the last one of what was asked of a board, if so.
    pub(super) fn leaves(
        &mut self,
        link: usize,
        ask: Option<Ask>,
        reply: &Reply,
    ) -> Result<(), String> {
        if let Reply::Push(words) = reply {
            return self.is_told(link, words);
        }
        if let Some(kept) = self.kept.get(&link)
            && !kept.owed.is_empty()
        {
            return Err(format!(
                "connection {link} keeps old values of boards {:?}, was shown others, and is \
                 answered {reply:?} before it is told",
                kept.owed
            ));
        }
        let Some(Ask { form, board }) = ask else {
            return Ok(());
        };
        match (form, reply) {
            (Form::Put, Reply::Number(number)) => self.changed(board, *number),
            (Form::Group, Reply::Array(values)) if values.len() == 1 => {
                self.shown(link, board, &values[0])
            }
            (Form::Get | Form::Show, value) => self.shown(link, board, value),
            _ => Ok(()),
        }
    }

    /// The answer to a change leaves.
    fn changed(&mut self, board: usize, number: i64) -> Result<(), String> {
        let mut all = self.kept.iter();
        let old = all.find(|(_, kept)| {
            let value = kept.boards.get(&board).copied().flatten();
            value.is_some_and(|value| value < number)
        });
        match old {
            None => Ok(()),
            Some((link, kept)) => Err(format!(
                "connection {link} keeps {:?} of board {board}, and the answer to change {number} \
                 leaves",
                kept.boards[&board]
            )),
        }
    }

    fn shown(&mut self, link: usize, board: usize, value: &Reply) -> Result<(), String> {
        let Some(kept) = self.kept.get_mut(&link) else {
            return Ok(());
        };
        if value.value().is_none() {
            return Ok(());
        }
        let number = value.number();
        let highest = kept.highest.entry(board).or_insert(0);
        if number.is_some_and(|number| number < *highest) {
            return Err(format!(
                "board {board} goes back from {highest} to {number:?}"
            ));
        }
        *highest = number.unwrap_or(*highest);
        let before = kept.boards.insert(board, number);
        if before.is_some_and(|before| before != number) {
            kept.owed.insert(board);
        }
        Ok(())
    }

    /// It is told of a key, or that all have changed.
    fn is_told(&mut self, link: usize, words: &[Reply]) -> Result<(), String> {
        let keys: Vec<Vec<u8>> = (0..BOARDS).map(|board| self.key(board)).collect();
        let kept = self.kept.get_mut(&link);
        let kept = kept.ok_or_else(|| format!("connection {link} tracks nothing: {words:?}"))?;
        match words {
            [Reply::Bulk(name), Reply::Null] if name == b"invalidate" => {
                self.told_all += 1;
                kept.boards.clear();
                kept.owed.clear();
            }
            [Reply::Bulk(name), Reply::Array(told)] if name == b"invalidate" => {
                self.told += 1;
                for (board, key) in keys.iter().enumerate() {
                    if told.contains(&Reply::Bulk(key.clone())) {
                        kept.boards.remove(&board);
                        kept.owed.remove(&board);
                    }
                }
            }
            _ => return Err(format!("connection {link} is told {words:?}")),
        }
        Ok(())
    }
}
