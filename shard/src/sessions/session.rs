//! One connection as its shard sees it: its limits, the answers that are still owed, and the
//! replies that wait for the disk.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use penstock_net::frame::Medium;
use penstock_net::pieces::Pieces;
use penstock_net::receive::Receiver;
use penstock_net::rights::Rights;
use penstock_storage::place::Lsn;

use crate::admission::Claim;
use crate::audit::Denials;
use crate::logins::{SessionLogin, Stage};

use super::memory::AWAITED_BYTES;
use super::taking::Taking;
use super::{Arriving, Patience};

/// The replies of a connection in the order of execution. A reply that depends on a record that is
/// not durable yet holds back itself and what stands behind it.
///
/// What must hold: `sendable <= pieces.len()`; the marks ascend in both fields. All counts and
/// offsets are of bytes wherever they stand, so a value that a cell still has counts like a copy of
/// it.
#[derive(Debug, Default)]
pub(crate) struct Output {
    pub(crate) pieces: Pieces,
    /// Bytes at the front that may leave, and how many operations they answer.
    sendable: usize,
    sendable_operations: u64,
    marks: VecDeque<Mark>,
    /// What was taken so far: turns offsets that never change into offsets in `pieces`.
    taken: u64,
    /// How many bytes of `pieces` were noted.
    noted: usize,
    /// Operations that `pieces` answers.
    operations: u64,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    /// Everything before this offset, counted from the connection's first byte ...
    end: u64,
    /// ... may leave when this is durable.
    gate: Lsn,
    /// Operations that are answered between the mark before and this one.
    operations: u64,
}

impl Output {
    /// Notes that the bytes appended since the last note answer so many operations and depend on
    /// `gate` (0: on nothing), and returns how many they are.
    #[inline]
    pub(crate) fn note(&mut self, gate: Lsn, durable: Lsn, operations: u64) -> usize {
        let len = self.pieces.len();
        let appended = len - self.noted;
        self.noted = len;
        self.operations += operations;
        let end = self.taken + len as u64;
        match self.marks.back_mut() {
            // Order within the connection: what is behind a gated reply waits for it too.
            Some(last) if last.gate >= gate => {
                last.end = end;
                last.operations += operations;
            }
            None if gate <= durable => {
                self.sendable = len;
                self.sendable_operations += operations;
            }
            _ => self.marks.push_back(Mark {
                end,
                gate,
                operations,
            }),
        }
        appended
    }

    /// Lets everything leave that depends on nothing behind `durable`.
    #[inline]
    pub(crate) fn release(&mut self, durable: Lsn) {
        while let Some(mark) = self.marks.front() {
            if mark.gate > durable {
                break;
            }
            self.sendable =
                usize::try_from(mark.end - self.taken).expect("offsets of bytes in memory");
            self.sendable_operations += mark.operations;
            self.marks.pop_front();
        }
        assert!(self.sendable <= self.pieces.len());
    }

    #[inline]
    pub(crate) fn is_gated(&self) -> bool {
        !self.marks.is_empty()
    }

    #[inline]
    pub(crate) fn has_sendable(&self) -> bool {
        self.sendable > 0
    }

    /// Whether nothing is here that was not taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Moves the sendable bytes to the empty `into`; returns how many operations they answer.
    #[inline]
    pub(crate) fn take(&mut self, into: &mut Pieces) -> u64 {
        assert!(into.is_empty());
        self.taken += self.sendable as u64;
        self.noted -= self.sendable;
        self.pieces.move_to(self.sendable, into);
        self.sendable = 0;
        self.operations -= self.sendable_operations;
        std::mem::take(&mut self.sendable_operations)
    }

    /// Operations whose answers are here: nobody has taken them yet.
    #[inline]
    pub(crate) fn operations(&self) -> u64 {
        self.operations
    }
}

/// What is kept beyond the answers of before, for keys and headers of other lengths.
const AWAITED_SPARE_BYTES: usize = 256;

/// One connection.
#[derive(Debug)]
pub(crate) struct Session {
    pub(super) generation: u32,
    pub(super) is_open: bool,
    pub(crate) receiver: Receiver,
    /// What its frames pass through.
    pub(crate) medium: Medium,
    /// A peer at the other end of a network takes its replies.
    pub(crate) has_peer: bool,
    pub(crate) stage: Stage,
    /// Its client wants `FEATURE_BEGAN`.
    pub(crate) tells_began: bool,
    /// ... and `FEATURE_ALL`.
    pub(crate) tells_all: bool,
    /// Its login, if it came with one to a shard with users.
    pub(crate) login: Option<Box<SessionLogin>>,
    /// What its user may do. `None`: everything, because the server has no users.
    pub(crate) rights: Option<Arc<Rights>>,
    /// How often it was denied, for the audit log.
    pub(crate) denials: Denials,
    /// No frame is read any more; the connection ends when its replies have left.
    pub(crate) is_ending: bool,
    /// Nothing of its output leaves any more.
    pub(super) is_void: bool,
    pub(crate) output: Output,
    /// The request of the frame at the front of the receive buffer and how many of its items ran
    /// already, when the log had no room for the next.
    pub(crate) interrupted: Option<(u64, usize)>,
    /// Since when its bytes wait to be read; the deadlines of their requests count from there.
    pub(crate) waits_since_us: Option<u64>,
    /// It waits for room: in `Sessions::paused`.
    pub(super) is_paused: bool,
    /// Its replies wait for the disk: in `Sessions::gated`.
    pub(super) is_in_gated: bool,
    /// In `Outbox::sendable` and not taken yet.
    pub(super) is_announced: bool,
    /// The frame that is not whole yet.
    pub(crate) arriving: Option<Arriving>,
    /// It may say nothing for so long, in microseconds; 0 is for ever.
    pub(super) idle_us_max: u64,
    /// When the network last took some of its replies.
    pub(super) took_us: u64,
    /// Bytes that the network took of what is being sent.
    pub(super) took_bytes: usize,
    /// How fast its peer acknowledges them.
    pub(super) taking: Taking,
    /// When the turn ended in which replies came to be sendable that were not taken yet.
    pub(super) ready_us: Option<u64>,
    /// The same of what was taken and is being sent, and how many operations it answers.
    pub(super) leaving: Option<(u64, u64)>,
    /// Bytes that were taken and are being sent.
    pub(super) leaving_bytes: usize,
    /// Bytes for its peer that its driver made and holds.
    pub(super) outside_bytes: usize,
    /// Bytes that requests keep in its driver until they are answered.
    pub(super) kept_bytes: usize,
    /// Bytes that are kept free for answers which wait for reads.
    pub(super) reserved_bytes: usize,
    /// Bytes that are kept free for answers of other shards.
    pub(super) awaited_bytes: usize,
    /// How long answers of other shards to its reads are taken to be; unknown before the first.
    pub(super) read_answer_bytes: Option<usize>,
    /// While it is paused, the time from which on the frame at the front of its bytes is answered
    /// DEADLINE; 0 for none.
    pub(super) expires_us: u64,
    /// It is paused because the answer to its next item is long.
    pub(crate) asks_for_much: bool,
    /// Bytes that the connection has sent and that have not run. 0 unless there are many.
    pub(super) input_bytes: usize,
    pub(crate) last_heard_us: u64,
    /// What admission knows of it.
    pub(crate) claim: Claim,
    /// By request, how many of its items were parked or sent to another shard and are not answered.
    owed: HashMap<u64, usize>,
}

impl Session {
    pub(crate) fn new(frame_bytes_max: u32) -> Self {
        Session {
            generation: 0,
            is_open: false,
            receiver: Receiver::new(frame_bytes_max),
            medium: Medium::Wire,
            has_peer: true,
            stage: Stage::Hello,
            tells_began: false,
            tells_all: false,
            login: None,
            rights: None,
            denials: Denials::default(),
            is_ending: false,
            is_void: false,
            output: Output::default(),
            interrupted: None,
            waits_since_us: None,
            is_paused: false,
            is_in_gated: false,
            is_announced: false,
            arriving: None,
            idle_us_max: 0,
            took_us: 0,
            took_bytes: 0,
            taking: Taking::default(),
            ready_us: None,
            leaving: None,
            leaving_bytes: 0,
            outside_bytes: 0,
            kept_bytes: 0,
            reserved_bytes: 0,
            awaited_bytes: 0,
            read_answer_bytes: None,
            expires_us: 0,
            asks_for_much: false,
            input_bytes: 0,
            last_heard_us: 0,
            claim: Claim::default(),
            owed: HashMap::new(),
        }
    }

    /// A connection comes to this place.
    pub(super) fn begin(&mut self, now_us: u64, medium: Medium, has_peer: bool) {
        self.is_open = true;
        self.has_peer = has_peer;
        self.last_heard_us = now_us;
        self.medium = medium;
        self.receiver.set_medium(medium);
    }

    /// Moves what may be sent to `into`, which is empty.
    pub(super) fn take_pieces(&mut self, now_us: u64, into: &mut Pieces) {
        self.is_announced = false;
        if self.is_void {
            return;
        }
        let operations = self.output.take(into);
        self.leaving_bytes += into.len();
        let ready_us = self.ready_us.take();
        if !into.is_empty() {
            self.took_us = now_us;
            self.took_bytes = 0;
            self.leaving = ready_us.map(|ready_us| (ready_us, operations));
        }
    }

    /// A frame is not whole, of which `held_bytes` are there.
    pub(crate) fn partial_frame(&mut self, now_us: u64, held_bytes: usize) {
        match &mut self.arriving {
            Some(arriving) => arriving.holds(now_us, held_bytes),
            None => self.arriving = Some(Arriving::begin(now_us, held_bytes)),
        }
    }

    /// So many bytes of a frame that is not whole were passed over.
    pub(crate) fn passes_over(&mut self, now_us: u64, bytes: usize) {
        let arriving = self.arriving.get_or_insert(Arriving::begin(now_us, 0));
        arriving.passes(now_us, bytes);
    }

    /// Whether it has said HELLO.
    #[inline]
    pub(crate) fn has_said_hello(&self) -> bool {
        self.stage != Stage::Hello
    }

    /// Whether nothing is read of it until there is room.
    pub(crate) fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// The deadline that the session has broken, if any.
    pub(super) fn overdue(&self, now_us: u64, patience: &Patience) -> Option<&'static str> {
        let arriving = self.arriving.filter(|_| !self.is_paused);
        let is_partial =
            arriving.is_some_and(|it| it.slow_us(now_us) > patience.partial_frame_us_max);
        let waits_for_us = self.is_paused || self.output.is_gated();
        let idle_us_max = self.idle_us_max;
        let login = self.login.as_ref().filter(|_| self.stage != Stage::Open);
        if is_partial {
            Some("too little of a frame came within partial_frame_timeout_ms")
        } else if login.is_some_and(|login| now_us > login.opens_by_us) {
            Some("it was not logged in in time")
        } else if idle_us_max > 0 && !waits_for_us && now_us > self.last_heard_us + idle_us_max {
            Some("nothing was heard within idle_timeout_s")
        } else {
            None
        }
    }

    /// Gives back what it keeps empty.
    pub(super) fn give_back(&mut self) {
        let Output { pieces, marks, .. } = &mut self.output;
        if pieces.is_empty() {
            pieces.give_back();
        }
        marks.shrink_to_fit();
        self.owed.shrink_to_fit();
    }

    /// Notes that `items` more of a request are answered later.
    pub(crate) fn owe(&mut self, request_id: u64, items: usize) {
        if items > 0 {
            *self.owed.entry(request_id).or_default() += items;
        }
    }

    /// Notes that `items` of a request were answered now; returns whether more are to be.
    pub(crate) fn settle(&mut self, request_id: u64, items: usize) -> bool {
        if let Some(owed) = self.owed.get_mut(&request_id) {
            *owed -= items;
            if *owed > 0 {
                return true;
            }
            self.owed.remove(&request_id);
        }
        self.is_interrupted(request_id)
    }

    fn is_interrupted(&self, request_id: u64) -> bool {
        self.interrupted.is_some_and(|(id, _)| id == request_id)
    }

    /// Whether items of a request are still to be answered, or have not run yet.
    pub(crate) fn owes(&self, request_id: u64) -> bool {
        self.is_interrupted(request_id) || self.owed.contains_key(&request_id)
    }

    /// Whether a request that is not the one to be gone on with has this id and is not answered
    /// whole.
    pub(crate) fn is_under_way(&self, request_id: u64) -> bool {
        self.interrupted.is_none() && self.owes(request_id)
    }

    /// Bytes of answers that it makes the shard hold or keep free.
    pub(crate) fn held_bytes(&self) -> usize {
        self.unsent_bytes() + self.outside_bytes + self.reserved_bytes + self.awaited_bytes
    }

    /// Another shard answered with so many bytes, for which `kept` were kept.
    pub(crate) fn answered(&mut self, bytes: usize, kept: usize) {
        self.awaited_bytes -= kept;
        let bytes = bytes + AWAITED_SPARE_BYTES;
        self.read_answer_bytes = match self.read_answer_bytes {
            // Longer ones are expected again for a while.
            Some(before) => Some(bytes.max(before - before / 8)),
            None if kept > AWAITED_BYTES || bytes > AWAITED_BYTES => Some(bytes),
            None => None,
        };
    }

    /// Bytes of replies that are here.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.output.pieces.len() + self.leaving_bytes
    }

    /// Whether replies wait until the network takes them.
    pub(crate) fn waits_for_peer(&self) -> bool {
        self.leaving_bytes > 0 || self.outside_bytes > 0 || self.output.has_sendable()
    }

    /// Whether nothing waits to leave: what it holds is kept for answers that have not come.
    pub(crate) fn has_taken_all(&self) -> bool {
        self.unsent_bytes() == 0
    }

    /// Whether nothing is owed and nothing is left to send.
    pub(crate) fn is_settled(&self) -> bool {
        self.owed.is_empty() && self.output.pieces.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_waits_for_its_gate_and_for_those_before_it() {
        let mut output = Output::default();
        let mut sent = Vec::new();
        let put = |output: &mut Output, byte: u8, gate| {
            output.pieces.written().push(byte);
            output.note(Lsn(gate), Lsn(10), u64::from(byte));
        };
        put(&mut output, 1, 0);
        put(&mut output, 2, 12);
        put(&mut output, 3, 0);
        put(&mut output, 4, 11);
        put(&mut output, 5, 15);
        let mut take = |output: &mut Output, durable| {
            output.release(Lsn(durable));
            let mut into = Pieces::default();
            let operations = output.take(&mut into);
            let into = into.into_bytes();
            assert_eq!(operations, into.iter().copied().map(u64::from).sum::<u64>());
            sent.extend(into);
            sent.clone()
        };
        assert_eq!(take(&mut output, 10), [1]);
        assert_eq!(take(&mut output, 11), [1]);
        assert_eq!(take(&mut output, 12), [1, 2, 3, 4]);
        assert!(output.is_gated());
        assert_eq!(take(&mut output, 99), [1, 2, 3, 4, 5]);
        assert!(!output.is_gated());
    }

    /// Replies of one byte and of values that stand elsewhere, each behind a gate of its own.
    #[test]
    fn values_that_stand_elsewhere_leave_with_the_gate_of_their_reply_and_not_before() {
        let block: Arc<[u8]> = (0..200).collect();
        let replies = 12;
        for released in 0..=replies {
            let (mut output, mut ends) = (Output::default(), vec![0]);
            for gate in 1..=replies {
                output.pieces.written().push(0xEE);
                if gate % 3 > 0 {
                    let len = 16 * usize::try_from(gate).expect("few");
                    output.pieces.share(Arc::clone(&block), 3..3 + len);
                    output.pieces.written().push(0xDD);
                }
                let appended = output.note(Lsn(gate), Lsn(0), 1);
                ends.push(output.pieces.len());
                assert_eq!(appended, ends[ends.len() - 1] - ends[ends.len() - 2]);
            }
            let flat = output.pieces.clone().into_bytes();
            assert_eq!(flat.len(), output.pieces.len());
            let mut sent = Vec::new();
            for durable in [released, replies] {
                output.release(Lsn(durable));
                let mut into = Pieces::default();
                output.take(&mut into);
                sent.extend(into.into_bytes());
                let end = ends[usize::try_from(durable).expect("few")];
                assert_eq!(sent, flat[..end], "{durable} are durable");
                assert_eq!(output.pieces.len(), flat.len() - end);
            }
            assert_eq!(Arc::strong_count(&block), 1, "what was sent holds nothing");
        }
    }

    #[test]
    fn a_request_is_settled_when_each_item_was_answered() {
        let mut session = Session::new(1024);
        session.owe(7, 2);
        session.owe(7, 1);
        session.owe(8, 1);
        assert!(session.settle(7, 2));
        assert!(!session.settle(8, 1));
        assert!(!session.settle(7, 1));
        assert!(session.is_settled());
    }
}
