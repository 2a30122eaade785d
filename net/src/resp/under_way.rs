//! What a connection waits for before it takes the next command: the reads of WATCH, the pages of
//! KEYS and RANDOMKEY, or an element to pop.

use crate::request::BatchRequest;

use super::answer::ItemAnswer;
use super::blocked_pop::BlockedPop;
use super::bound::ReplyBound;
use super::reply::{Protocol, Replies};
use super::walk::{Step, Walk};
use super::watch::{Watched, Watching};

/// A command under way whose answers decide how it goes on.
#[derive(Debug)]
pub(super) struct UnderWay {
    /// Its entry of the ring.
    pub(super) entry: u64,
    protocol: Protocol,
    work: Work,
}

#[derive(Debug)]
enum Work {
    Watch(Watching),
    Walk(Walking),
    Pop(BlockedPop),
}

/// The reply of a command under way, and what follows from it.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) reply: Vec<u8>,
    /// Of WATCH: what is watched from now on.
    pub(super) watched: Vec<Watched>,
    /// The slot that was popped from.
    pub(super) popped_slot: Option<u16>,
    /// It took as long as it did because it waited for others.
    pub(super) has_waited: bool,
}

/// A walk, and how far it has come.
#[derive(Debug)]
struct Walking {
    walk: Walk,
    /// What its reply may take.
    bound: ReplyBound,
    phase: Phase,
    reply: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The next page is to be asked for.
    MayAsk,
    /// It was asked for.
    Asked,
    Done,
}

impl UnderWay {
    /// A WATCH.
    pub(super) fn of_watch(watching: Watching, protocol: Protocol) -> Self {
        UnderWay {
            entry: 0,
            protocol,
            work: Work::Watch(watching),
        }
    }

    /// A walk whose reply may take so much.
    pub(super) fn of_walk(walk: Walk, bound: ReplyBound, protocol: Protocol) -> Self {
        let is_vain = walk.is_vain();
        let mut reply = Vec::new();
        if is_vain {
            Replies::new(&mut reply, protocol).array(0);
        }
        let phase = if is_vain { Phase::Done } else { Phase::MayAsk };
        UnderWay {
            entry: 0,
            protocol,
            work: Work::Walk(Walking {
                walk,
                bound,
                phase,
                reply,
            }),
        }
    }

    /// A command that pops, or waits until it can.
    pub(super) fn of_pop(pop: BlockedPop, protocol: Protocol) -> Self {
        UnderWay {
            entry: 0,
            protocol,
            work: Work::Pop(pop),
        }
    }

    /// The command that pops.
    pub(super) fn pop(&self) -> Option<&BlockedPop> {
        match &self.work {
            Work::Pop(pop) => Some(pop),
            Work::Watch(_) | Work::Walk(_) => None,
        }
    }

    /// The same.
    pub(super) fn pop_mut(&mut self) -> Option<&mut BlockedPop> {
        match &mut self.work {
            Work::Pop(pop) => Some(pop),
            Work::Watch(_) | Work::Walk(_) => None,
        }
    }

    /// How many items are to be sent now.
    pub(super) fn items_to_send(&self) -> usize {
        match &self.work {
            Work::Watch(watching) => watching.items_to_send(),
            Work::Walk(walking) => usize::from(walking.phase == Phase::MayAsk),
            Work::Pop(pop) => usize::from(pop.may_ask()),
        }
    }

    /// Adds them. The first one gets the number `first_item`.
    pub(super) fn send(&mut self, first_item: u64, batch: &mut BatchRequest, out: &mut Vec<u8>) {
        match &mut self.work {
            Work::Watch(watching) => watching.send(first_item, batch, out),
            Work::Walk(walking) => {
                walking.walk.send(batch, out);
                walking.phase = Phase::Asked;
            }
            Work::Pop(pop) => pop.send(self.protocol, batch, out),
        }
    }

    /// Takes the answer to one of its items. Its reply may take `bound` by now.
    pub(super) fn answered(&mut self, item: u64, answer: ItemAnswer<'_>, bound: ReplyBound) {
        let walking = match &mut self.work {
            Work::Watch(watching) => return watching.answered(item, answer, self.protocol),
            Work::Walk(walking) => walking,
            Work::Pop(pop) => {
                if let Some(waiters) = answer.host.waiters() {
                    pop.answered(answer, self.protocol, waiters);
                }
                return;
            }
        };
        walking.bound = bound;
        // A walk that was refused for want of room has its reply.
        let step = match walking.reply.is_empty() {
            true => {
                let replies = &mut Replies::new(&mut walking.reply, self.protocol);
                walking.walk.answered(answer, Some(bound), replies)
            }
            false => Step::Done,
        };
        walking.phase = match step {
            Step::Next => Phase::MayAsk,
            Step::Done => Phase::Done,
        };
    }

    /// Its reply and what follows from it, when all is done.
    pub(super) fn outcome(&mut self) -> Option<Outcome> {
        match &mut self.work {
            Work::Watch(watching) => {
                let (reply, watched) = watching.outcome(self.protocol)?;
                Some(Outcome {
                    reply,
                    watched,
                    ..Outcome::default()
                })
            }
            Work::Walk(walking) if walking.phase == Phase::Done => Some(Outcome {
                reply: std::mem::take(&mut walking.reply),
                ..Outcome::default()
            }),
            Work::Walk(_) => None,
            Work::Pop(pop) => {
                let (reply, popped_slot) = pop.outcome(self.protocol)?;
                Some(Outcome {
                    reply,
                    popped_slot,
                    has_waited: true,
                    ..Outcome::default()
                })
            }
        }
    }

    /// Bytes of what the client has sent for it.
    pub(super) fn work_bytes(&self) -> usize {
        match &self.work {
            Work::Watch(_) => 0,
            Work::Walk(walking) => walking.walk.pattern_bytes(),
            Work::Pop(pop) => pop.bytes(),
        }
    }

    /// Bytes of what it has collected.
    pub(super) fn found_bytes(&self) -> usize {
        match &self.work {
            Work::Watch(_) | Work::Pop(_) => 0,
            Work::Walk(walking) => walking.walk.found_bytes() + walking.reply.capacity(),
        }
    }

    /// Refuses it with BUSY if it has collected keys and waits for more, and gives those back.
    /// `false` if there are none.
    pub(super) fn refuse_more_values(&mut self) -> bool {
        let Work::Walk(walking) = &mut self.work else {
            return false;
        };
        if walking.phase != Phase::Asked || walking.walk.found_bytes() == 0 {
            return false;
        }
        walking.walk.forget();
        Replies::new(&mut walking.reply, self.protocol).error(
            b"BUSY nothing was executed: the keys have no room beside the replies of the shard",
        );
        true
    }
}
