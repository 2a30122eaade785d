//! Boards: values that clients keep and are told of (CLIENT TRACKING).
//!
//! ```text
//! {a} sequence: counts up    {b} board 0 .. 3: a number of the sequence, often with an expiry
//!   a script counts up and puts the number on a board, or takes a board away
//!   {b} is of the partition that is flushed now and then, {a} is of the same shard
//! ```
//!
//! The judge stands where bytes leave the node. It has for each client that tracks keys what that
//! client would keep, and what the node has told since. What must hold:
//!
//! - When the answer to a change leaves, all who keep an older value of that board have been told,
//!   as far as the shard goes: the word may wait in their connections behind replies.
//! - Whoever is shown another value than he keeps is told that his own has changed before anything
//!   else that he asks for is answered. So no change and no expiry goes untold.
//! - No board goes back.
//! - EXEC is null if a watched board was put meanwhile, though it was not there before and is not
//!   there now.

use std::collections::{BTreeMap, BTreeSet};

use penstock_net::slot::tag_of;

use super::replies::{Reply, command};
use crate::random::Random;

const BOARDS: usize = 4;

/// Takes a board away.
const DEL: &str = "del";
/// What becomes of a board: it stays, it goes, or it expires within so many milliseconds.
const WHATS: &[&str] = &["set", DEL, "1", "1", "30", "2000", "100000"];

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
    /// WATCH and GET, some rounds, and EXEC of a GET.
    Watch,
}

/// What a client asks of a board.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    pub(super) form: Form,
    board: usize,
    begin_us: u64,
    /// What becomes of the board, as the script is told.
    what: &'static str,
    /// Of a WATCH: when it was answered, and the rounds that are left.
    watched_us: u64,
    rounds: usize,
}

/// What one client keeps.
#[derive(Debug, Default)]
struct Kept {
    /// The number of each board, or that there is none.
    boards: BTreeMap<usize, Option<i64>>,
    /// Those of which its connection was told.
    noticed: BTreeSet<usize>,
    /// Boards of which it must be told before anything else is answered.
    owed: BTreeSet<usize>,
    /// The highest number that it was shown.
    highest: BTreeMap<usize, i64>,
}

#[derive(Debug)]
pub(crate) struct Boards {
    random: Random,
    /// Those of the boards and of the sequence.
    slots: [u16; 2],
    /// Changes that were answered: board, and when they may have been.
    changes: Vec<(usize, u64, u64)>,
    /// Who tracks, by connection.
    kept: BTreeMap<usize, Kept>,
    pub(super) nulls: u64,
    pub(super) notified: u64,
    pub(super) notified_all: u64,
}

impl Boards {
    pub(super) fn new(random: Random, slots: [u16; 2]) -> Self {
        Boards {
            random,
            slots,
            changes: Vec::new(),
            kept: BTreeMap::new(),
            nulls: 0,
            notified: 0,
            notified_all: 0,
        }
    }

    /// What the keys begin with.
    pub(super) fn prefix(&self) -> Vec<u8> {
        [b"{", &tag_of(self.slots[0])[..], b"}"].concat()
    }

    fn key(&self, board: usize) -> Vec<u8> {
        let digit = b'0' + u8::try_from(board).expect("few boards");
        [&self.prefix()[..], b"board", &[digit]].concat()
    }

    /// What a client asks next; one that tracks keys reads more.
    pub(super) fn begin(&mut self, tracks: bool, now_us: u64) -> Ask {
        let form = match self.random.below(20) {
            0 if !tracks => Form::Del,
            1 if !tracks => Form::Expire,
            2..10 if !tracks => Form::Put,
            10..14 if !tracks => Form::Watch,
            2..4 => Form::Put,
            4..8 => Form::Group,
            8..12 => Form::Show,
            _ => Form::Get,
        };
        let board = self.random.index(BOARDS);
        Ask {
            form,
            board,
            begin_us: now_us,
            what: self.random.pick(WHATS),
            watched_us: 0,
            rounds: self.random.index(6),
        }
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
            Form::Watch => vec![command(&[b"WATCH", &key]), get],
            Form::Del => vec![command(&[b"DEL", &key])],
            Form::Expire => vec![command(&[b"PEXPIRE", &key, b"20"])],
            Form::Put => {
                let sequence = [b"{", &tag_of(self.slots[1])[..], b"}sequence"].concat();
                vec![command(&[
                    eval,
                    text,
                    b"2",
                    &sequence,
                    &key,
                    ask.what.as_bytes(),
                ])]
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
            return self.take_notice(link, words);
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
        let Some(Ask { form, board, .. }) = ask else {
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
            let is_old = value.is_some_and(|value| value < number);
            is_old && !kept.noticed.contains(&board)
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
        kept.noticed.remove(&board);
        let before = kept.boards.insert(board, number);
        if before.is_some_and(|before| before != number) {
            kept.owed.insert(board);
        }
        Ok(())
    }

    /// A connection is to be told of a key, or that all have changed.
    pub(super) fn noticed(&mut self, link: usize, key: Option<&[u8]>) {
        let boards = (0..BOARDS).filter(|&board| key.is_none_or(|key| key == self.key(board)));
        let boards: Vec<usize> = boards.collect();
        if let Some(kept) = self.kept.get_mut(&link) {
            kept.noticed.extend(boards);
        }
    }

    /// A client has all replies to what it asked: what it asks then, if there is more.
    ///
    /// # Errors
    /// What is wrong.
    pub(super) fn answered(
        &mut self,
        ask: &mut Ask,
        replies: &[Reply],
        now_us: u64,
    ) -> Result<Vec<Vec<u8>>, String> {
        let last = replies.last().expect("it asked for something");
        // Taking away what is not there changes nothing.
        let puts = ask.form == Form::Put && ask.what != DEL;
        if puts && matches!(last, Reply::Number(_)) {
            self.changes.push((ask.board, ask.begin_us, now_us));
        }
        if ask.form != Form::Watch {
            return Ok(Vec::new());
        }
        let key = self.key(ask.board);
        if ask.watched_us == 0 {
            if replies.iter().any(|it| matches!(it, Reply::Error(_))) {
                ask.form = Form::Del;
                return Ok(vec![command(&[b"UNWATCH"])]);
            }
            ask.watched_us = now_us;
        }
        let get = command(&[b"GET", &key]);
        if ask.rounds > 0 {
            ask.rounds -= 1;
            return Ok(vec![get]);
        }
        if ask.begin_us < ask.watched_us {
            // EXEC is sent now.
            ask.begin_us = now_us;
            return Ok(vec![command(&[b"MULTI"]), get, command(&[b"EXEC"])]);
        }
        let is_between = |&&(board, begin_us, end_us): &&(usize, u64, u64)| {
            board == ask.board && begin_us > ask.watched_us && end_us < ask.begin_us
        };
        match (last, self.changes.iter().rev().find(is_between)) {
            (Reply::Array(_), Some(change)) => Err(format!(
                "EXEC was {last:?}, board {} was watched at {} us, and it was changed: {change:?}",
                ask.board, ask.watched_us
            )),
            (Reply::Null, _) => {
                self.nulls += 1;
                Ok(Vec::new())
            }
            _ => Ok(Vec::new()),
        }
    }

    /// It is told of a key, or that all have changed.
    fn take_notice(&mut self, link: usize, words: &[Reply]) -> Result<(), String> {
        let keys: Vec<Vec<u8>> = (0..BOARDS).map(|board| self.key(board)).collect();
        let kept = self.kept.get_mut(&link);
        let kept = kept.ok_or_else(|| format!("connection {link} tracks nothing: {words:?}"))?;
        match words {
            [Reply::Bulk(name), Reply::Null] if name == b"invalidate" => {
                self.notified_all += 1;
                kept.boards.clear();
                kept.owed.clear();
                kept.noticed.clear();
            }
            [Reply::Bulk(name), Reply::Array(notified)] if name == b"invalidate" => {
                self.notified += 1;
                for (board, key) in keys.iter().enumerate() {
                    if notified.contains(&Reply::Bulk(key.clone())) {
                        kept.boards.remove(&board);
                        kept.owed.remove(&board);
                        kept.noticed.remove(&board);
                    }
                }
            }
            _ => return Err(format!("connection {link} is told {words:?}")),
        }
        Ok(())
    }
}
