//! A hall: keys of a partition of their own, which is flushed now and then. Items of the process
//! itself ask for that, as the port for clients of Redis does.
//!
//! What must hold: whatever stood before a flush that was answered, or that somebody has seen, is
//! never seen behind it, and whatever was answered behind it is there. Each value names the SET
//! that wrote it, and each answer is held against the times of all of them.

use penstock_net::level::AckLevel;
use penstock_net::reply::ReplyItem;
use penstock_net::request::{BatchRequest, Condition};
use penstock_net::slot::tag_of;
use penstock_net::status::{Executed, Status};

use super::PARTITION_SLOTS;
use crate::random::Random;
use crate::sales::{Excuses, is_excused};

/// Keys of the hall, in two slots.
const KEYS: usize = 6;
/// Bytes that a value has beside the number of its SET.
const FILL_BYTES_MAX: usize = 40;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Set,
    Get,
    Del,
    /// Of the partition: it is about all keys.
    Flush,
}

/// What was asked, and when it may have been so.
#[derive(Debug)]
struct Act {
    form: Form,
    key: usize,
    bytes: usize,
    begin_us: u64,
    /// When it was answered, or seen by somebody else.
    end_us: u64,
    /// It may have happened.
    may_be: bool,
    /// It has.
    is_done: bool,
    /// It has found nothing.
    is_absent: bool,
}

/// The keys of a partition, and all that was asked of them.
#[derive(Debug)]
pub(crate) struct Hall {
    random: Random,
    partition: u16,
    acts: Vec<Act>,
    pub(super) flushes: u64,
}

impl Hall {
    pub(super) fn new(random: Random, partition: u16) -> Self {
        Hall {
            random,
            partition,
            acts: Vec::new(),
            flushes: 0,
        }
    }

    fn key(&self, key: usize) -> Vec<u8> {
        let slot = self.partition * PARTITION_SLOTS + if key.is_multiple_of(2) { 0 } else { 9 };
        [
            b"{",
            &tag_of(slot)[..],
            b"}hall",
            &[b'a' + u8::try_from(key).expect("few")],
        ]
        .concat()
    }

    /// What a client asks for next, by its number.
    pub(crate) fn begin(&mut self, now_us: u64) -> usize {
        let form = match self.random.below(100) {
            0..3 => Form::Flush,
            3..45 => Form::Set,
            45..50 => Form::Del,
            _ => Form::Get,
        };
        let key = self.random.index(KEYS);
        self.ask(form, key, now_us)
    }

    fn ask(&mut self, form: Form, key: usize, now_us: u64) -> usize {
        let bytes = 8 + self.random.index(FILL_BYTES_MAX);
        self.acts.push(Act {
            form,
            key,
            bytes,
            begin_us: now_us,
            end_us: u64::MAX,
            may_be: true,
            is_done: false,
            is_absent: false,
        });
        self.acts.len() - 1
    }

    /// The keys of a last look.
    pub(crate) fn last_reads(&self) -> usize {
        KEYS
    }

    pub(crate) fn read_last(&mut self, key: usize, now_us: u64) -> usize {
        self.ask(Form::Get, key, now_us)
    }

    /// Whether it flushes.
    pub(crate) fn is_flush(&self, number: usize) -> bool {
        self.acts[number].form == Form::Flush
    }

    /// Writes a frame that asks for it.
    pub(crate) fn write(&self, number: usize, request: u64) -> Vec<u8> {
        let act = &self.acts[number];
        let (mut out, key) = (Vec::new(), self.key(act.key));
        let mut batch = BatchRequest::begin(&mut out, request, AckLevel::Disk, 0, 1);
        match act.form {
            Form::Flush => batch.flush(&mut out, &key),
            Form::Get => batch.get(&mut out, &key),
            Form::Del => batch.del(&mut out, &key, Condition::Always),
            Form::Set => {
                let mut value = vec![0x5A; act.bytes];
                value[..8].copy_from_slice(&(number as u64).to_le_bytes());
                batch.set(&mut out, &key, &value, Condition::Always);
            }
        }
        batch.finish(&mut out);
        out
    }

    /// An answer came.
    pub(crate) fn answered(
        &mut self,
        number: usize,
        item: &ReplyItem<'_>,
        now_us: u64,
        excuses: Excuses,
    ) -> Result<(), String> {
        let judged = self.take(number, item, now_us, excuses);
        judged.map_err(|wrong| {
            format!(
                "act {number} {:?} of the hall was answered {:?}: {wrong}",
                self.acts[number], item.head
            )
        })
    }

    fn take(
        &mut self,
        number: usize,
        item: &ReplyItem<'_>,
        now_us: u64,
        excuses: Excuses,
    ) -> Result<(), String> {
        let status = item.head.status;
        let form = self.acts[number].form;
        let is_absent = status == Status::NotFound && matches!(form, Form::Get | Form::Del);
        if status != Status::Ok && !is_absent {
            let act = &mut self.acts[number];
            act.may_be = status.executed() == Executed::Unknown && form != Form::Get;
            // A keyspace that keeps versions has no flush.
            return match status == Status::Unsupported && form == Form::Flush {
                true => Ok(()),
                false => is_excused(status, excuses),
            };
        }
        let act = &mut self.acts[number];
        (act.end_us, act.is_done) = (now_us.min(act.end_us), true);
        match form {
            Form::Flush => self.flushes += 1,
            Form::Get if is_absent => {
                act.is_absent = true;
                return self.judge_absent(number);
            }
            Form::Get => return self.judge_seen(number, item.value),
            Form::Set | Form::Del => {}
        }
        Ok(())
    }

    /// A value is seen: nobody can have ended it before the read was asked for.
    fn judge_seen(&mut self, number: usize, value: &[u8]) -> Result<(), String> {
        let named = value.first_chunk().map(|name| u64::from_le_bytes(*name));
        let named = named.and_then(|it| usize::try_from(it).ok());
        let by = named
            .filter(|it| *it < self.acts.len())
            .ok_or("nobody wrote it")?;
        let read = &self.acts[number];
        let set = &self.acts[by];
        let is_of = set.form == Form::Set && set.key == read.key && set.bytes == value.len();
        if !is_of || !set.may_be || set.begin_us > read.end_us {
            return Err(format!("act {by} {set:?} cannot be seen"));
        }
        let mut acts = self.acts.iter().enumerate();
        let ended = acts.find(|(at, act)| {
            let is_of_key = act.key == read.key && (act.form != Form::Get || act.is_absent);
            let is_end = act.form == Form::Flush || is_of_key;
            let is_between = set.end_us < act.begin_us && act.end_us < read.begin_us;
            *at != by && is_end && act.is_done && is_between
        });
        if let Some((at, act)) = ended {
            return Err(format!("act {by} {set:?} was ended by act {at} {act:?}"));
        }
        let seen_us = read.end_us;
        let set = &mut self.acts[by];
        set.end_us = set.end_us.min(seen_us);
        Ok(())
    }

    /// Nothing is seen: somebody may have ended each value that was there.
    fn judge_absent(&self, number: usize) -> Result<(), String> {
        let read = &self.acts[number];
        let is_before = |act: &&(usize, &Act)| {
            act.1.form == Form::Set && act.1.key == read.key && act.1.end_us < read.begin_us
        };
        let all = self.acts.iter().enumerate();
        // What comes back at last was written last.
        let Some((by, set)) = all
            .filter(|it| is_before(&it))
            .max_by_key(|it| it.1.begin_us)
        else {
            return Ok(());
        };
        let may_end = |act: &Act| {
            let is_end = act.form == Form::Flush || act.form == Form::Del && act.key == read.key;
            is_end && act.may_be && act.end_us > set.begin_us && act.begin_us < read.end_us
        };
        match self.acts.iter().any(may_end) {
            true => Ok(()),
            false => Err(format!("act {by} {set:?} is lost, and nobody has ended it")),
        }
    }
}
