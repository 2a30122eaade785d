//! One writer and what it knows: the oracle.
//!
//! After a crash each of its keys has the state of the last acknowledged operation or of an
//! unacknowledged one after it, two keys changed by one operation agree, and the shared counter
//! lost no less than was acknowledged and no more than was asked. While the load runs, a read shows
//! the last acknowledged state, and a condition that cannot hold is refused as such.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use penstock_net::apply::Apply;
use penstock_net::instruction::{FieldType, Instruction, Operation};
use penstock_net::level::AckLevel;
use penstock_net::request::{BatchRequest, Condition};
use penstock_net::status::Status;

use crate::load::Load;
use crate::random::Random;
use crate::wire::{Reply, Wire, WireError};

/// The counter that all writers decrement, and what it holds at first.
pub const STOCK: &[u8] = b"stock:shared";
pub const STOCK_INITIAL: u64 = 1 << 60;

const KEYS_PER_WRITER: u64 = 24;
const FRAMES_AHEAD: usize = 4;
const ITEMS_PER_FRAME: usize = 8;

/// A value's bytes, as a key may hold it; none is absent.
type State = Option<Vec<u8>>;

/// How a writer goes about it.
#[derive(Clone, Copy)]
pub struct Style {
    /// How long it waits for an answer.
    pub answer_max: Duration,
    /// Whether it goes away when no answer came in time; otherwise that is the server's fault.
    pub gives_up: bool,
    /// Deadlines of its requests are below this, in milliseconds, and every other has none; 0 is
    /// no deadline ever.
    pub deadline_ms_max: u16,
}

/// What one writer did and knows.
pub struct Account {
    writer: usize,
    next_value: u64,
    keys: HashMap<u64, Known<State>>,
    /// The number that both keys of the pair hold, and the last one given out.
    pair: Known<u64>,
    pair_last: u64,
    pub sold_acked: u64,
    pub sold_unknown: u64,
    /// Operations that were answered and not refused.
    pub acked: u64,
}

/// What is known of something that operations of one connection change one after the other.
#[derive(Default)]
struct Known<S> {
    /// What the last acknowledged operation left.
    certain: S,
    /// What operations after it, answered with an unknown outcome, may have left.
    possible: Vec<S>,
    /// What operations without an answer may leave, in their order.
    unanswered: VecDeque<S>,
}

/// What an answer says of its operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Done,
    NotDone,
    Unknown,
}

impl<S: Clone + PartialEq> Known<S> {
    fn sent(&mut self, state: S) {
        self.unanswered.push_back(state);
    }

    /// The oldest operation without an answer got one.
    fn answered(&mut self, outcome: Outcome) {
        let state = self.unanswered.pop_front();
        let state = state.expect("one answer to each operation");
        match outcome {
            Outcome::Done => {
                self.certain = state;
                self.possible.clear();
            }
            Outcome::NotDone => {}
            Outcome::Unknown => self.possible.push(state),
        }
    }

    /// Whether a read behind everything that was answered may show this.
    fn may_be_read(&self, found: &S) -> bool {
        *found == self.certain || self.possible.contains(found)
    }

    /// Whether a start after everything that was sent may show this.
    fn may_be_found(&self, found: &S) -> bool {
        self.may_be_read(found) || self.unanswered.contains(found)
    }

    fn settle(&mut self, found: S) {
        self.certain = found;
        self.possible.clear();
        self.unanswered.clear();
    }

    fn unknown(&self) -> u64 {
        (self.possible.len() + self.unanswered.len()) as u64
    }
}

/// One operation on its way.
enum Sent {
    /// A change of an own key.
    Own { key: u64, state: State },
    /// A read of an own key.
    Read { key: u64 },
    /// One number into two keys at once.
    Pair { number: u64 },
    /// One piece less of the shared counter.
    Sale,
    /// A change of the shared counter under a guard that cannot hold.
    Guard,
}

impl Account {
    pub fn new(writer: usize) -> Account {
        Account {
            writer,
            next_value: 0,
            keys: HashMap::new(),
            pair: Known::default(),
            pair_last: 0,
            sold_acked: 0,
            sold_unknown: 0,
            acked: 0,
        }
    }

    /// Begins anew on an empty server; only the tally stays.
    pub fn forget(&mut self) {
        *self = Account {
            acked: self.acked,
            ..Account::new(self.writer)
        };
    }

    fn own_key(&self, key: u64) -> Vec<u8> {
        format!("writer:{}:{key}", self.writer).into_bytes()
    }

    /// Two keys of one slot; to be written as 0 before the first load.
    pub fn pair_keys(&self) -> [Vec<u8>; 2] {
        ["a", "b"].map(|end| format!("{{pair:{}}}{end}", self.writer).into_bytes())
    }

    /// An APPLY that gives both keys of the pair a number, in their fields or as new values.
    fn pair_apply(&self, number: u64, is_in_fields: bool) -> Apply {
        let mut apply = Apply::new();
        for key in self.pair_keys() {
            let key = apply.key(&key);
            match is_in_fields {
                true => apply.then(key.u64(0).set(number)),
                false => apply.put(key, &number.to_le_bytes()),
            };
        }
        apply
    }

    /// Operations that may or may not have happened.
    pub fn unknown(&self) -> u64 {
        let of_keys: u64 = self.keys.values().map(Known::unknown).sum();
        self.sold_unknown + of_keys + self.pair.unknown()
    }

    /// Writes until the load is over or the server is gone.
    ///
    /// # Errors
    /// An answer contradicts the account, or the connection ends while nothing was done to the
    /// server.
    pub fn work(
        &mut self,
        address: SocketAddr,
        mut random: Random,
        style: Style,
        load: &Load,
    ) -> Result<(), String> {
        let worked = Wire::connect(address, style.answer_max)
            .inspect(|_| load.connected.add(1))
            .and_then(|wire| self.write(wire, &mut random, style, load));
        match worked {
            Ok(()) => Ok(()),
            Err(WireError::Closed(_)) if load.is_struck() => {
                load.cut_off.add(1);
                Ok(())
            }
            Err(WireError::TimedOut) if style.gives_up => {
                load.gave_up.add(1);
                Ok(())
            }
            Err(error) => Err(format!("writer {}: {error}", self.writer)),
        }
    }

    fn write(
        &mut self,
        mut wire: Wire,
        random: &mut Random,
        style: Style,
        load: &Load,
    ) -> Result<(), WireError> {
        let mut ahead: VecDeque<(u64, Vec<Sent>)> = VecDeque::new();
        let mut request_id = 10;
        loop {
            while ahead.len() < FRAMES_AHEAD && !load.is_over() {
                request_id += 1;
                let mut frame = Vec::new();
                let sent = self.frame(&mut frame, request_id, random, style);
                // Whatever was handed to the socket may be executed.
                for sent in &sent {
                    self.note_sent(sent);
                }
                wire.send(&frame)?;
                ahead.push_back((request_id, sent));
            }
            let Some((id, sent)) = ahead.pop_front() else {
                return Ok(());
            };
            for (sent, reply) in sent.iter().zip(wire.replies(id, sent.len())?) {
                self.note_reply(sent, &reply, load)
                    .map_err(WireError::Wrong)?;
            }
        }
    }

    fn frame(
        &mut self,
        frame: &mut Vec<u8>,
        request_id: u64,
        random: &mut Random,
        style: Style,
    ) -> Vec<Sent> {
        let deadline_ms = match style.deadline_ms_max {
            0 => 0,
            _ if random.once_in(2) => 0,
            max => u16::try_from(1 + random.below(u64::from(max))).expect("at most a u16"),
        };
        let mut batch = BatchRequest::begin(
            frame,
            request_id,
            AckLevel::Disk,
            deadline_ms,
            ITEMS_PER_FRAME,
        );
        let mut sent = Vec::new();
        let instruction = |operation, key, immediate| Instruction {
            operation,
            field_type: FieldType::U64,
            key,
            reason: 0,
            offset: 0,
            immediate,
        };
        for _ in 0..ITEMS_PER_FRAME {
            let key = random.below(KEYS_PER_WRITER);
            sent.push(match random.below(12) {
                0..4 => {
                    let instructions = [
                        instruction(Operation::Ge, 0, 1),
                        instruction(Operation::Sub, 0, 1),
                    ];
                    batch.update_if(frame, STOCK, None, &instructions, None);
                    Sent::Sale
                }
                4 => {
                    let instructions = [
                        instruction(Operation::Ge, 0, STOCK_INITIAL + 1),
                        instruction(Operation::Sub, 0, 1),
                    ];
                    batch.update_if(frame, STOCK, None, &instructions, None);
                    Sent::Guard
                }
                5 => {
                    self.pair_last += 1;
                    let number = self.pair_last;
                    match random.below(3) {
                        0 => {
                            let instructions = [
                                instruction(Operation::Set, 0, number),
                                instruction(Operation::Set, 1, number),
                            ];
                            let [a, b] = self.pair_keys();
                            batch.update_if(frame, &a, Some(&b), &instructions, None);
                        }
                        form => batch.apply(frame, &self.pair_apply(number, form == 1)),
                    }
                    Sent::Pair { number }
                }
                6 => {
                    batch.get(frame, &self.own_key(key));
                    Sent::Read { key }
                }
                7 => {
                    batch.del(frame, &self.own_key(key), Condition::Always);
                    Sent::Own { key, state: None }
                }
                _ => {
                    self.next_value += 1;
                    let mut value = format!("{}-{}-", self.writer, self.next_value).into_bytes();
                    // From inline to several blocks.
                    let bytes =
                        [0, 8, 100, 900, 9_000][usize::try_from(random.below(5)).expect("small")];
                    value.resize(value.len() + bytes, b'x');
                    batch.set(frame, &self.own_key(key), &value, Condition::Always);
                    Sent::Own {
                        key,
                        state: Some(value),
                    }
                }
            });
        }
        batch.finish(frame);
        sent
    }

    fn note_sent(&mut self, sent: &Sent) {
        match sent {
            Sent::Own { key, state } => self.keys.entry(*key).or_default().sent(state.clone()),
            Sent::Pair { number } => self.pair.sent(*number),
            Sent::Sale => self.sold_unknown += 1,
            Sent::Read { .. } | Sent::Guard => {}
        }
    }

    /// Takes an answer into the account, or says how it contradicts it. One connection's operations
    /// on one key run in their order, so all before this one on its key are answered.
    fn note_reply(&mut self, sent: &Sent, reply: &Reply, load: &Load) -> Result<(), String> {
        let outcome = match (sent, reply.status) {
            // A guard that fails and a read need no room.
            (Sent::Guard | Sent::Read { .. }, Status::Full) => None,
            (_, Status::Draining | Status::Busy | Status::Deadline) => Some(Outcome::NotDone),
            (_, Status::Full) => {
                load.full.add(1);
                Some(Outcome::NotDone)
            }
            // Only a server that suffers may not know.
            (_, Status::Io | Status::Indeterminate) if load.is_struck() => Some(Outcome::Unknown),
            (Sent::Guard, status) => (status == Status::GuardFailed).then_some(Outcome::Done),
            (_, Status::Ok)
            | (Sent::Read { .. } | Sent::Own { state: None, .. }, Status::NotFound) => {
                Some(Outcome::Done)
            }
            _ => None,
        };
        let outcome = outcome.ok_or_else(|| {
            let text = String::from_utf8_lossy(&reply.value);
            format!("{:?} ({text})", reply.status)
        })?;
        if outcome == Outcome::Done {
            self.acked += 1;
            let kind = match sent {
                Sent::Read { .. } => &load.reads,
                Sent::Guard => &load.guards,
                Sent::Own { .. } | Sent::Pair { .. } | Sent::Sale => &load.writes,
            };
            kind.add(1);
        }
        match sent {
            Sent::Own { key, .. } => {
                let known = self.keys.get_mut(key).expect("noted when sent");
                known.answered(outcome);
            }
            Sent::Pair { .. } => self.pair.answered(outcome),
            Sent::Sale if outcome != Outcome::Unknown => {
                self.sold_unknown -= 1;
                self.sold_acked += u64::from(outcome == Outcome::Done);
            }
            Sent::Read { key } if outcome == Outcome::Done => {
                let known = self.keys.entry(*key).or_default();
                let found = (reply.status == Status::Ok).then(|| reply.value.clone());
                if !known.may_be_read(&found) {
                    return Err(format!(
                        "{} for key {key} in a read, and {} was acknowledged before",
                        show(&found),
                        show(&known.certain),
                    ));
                }
            }
            Sent::Read { .. } | Sent::Guard | Sent::Sale => {}
        }
        Ok(())
    }

    /// Compares what a server shows with the account.
    ///
    /// # Errors
    /// What is missing or wrong, in words.
    pub fn check(&self, wire: &mut Wire) -> Result<(), String> {
        self.read_all(wire).map(drop)
    }

    /// Compares, and takes over what the server shows of operations whose outcome was unknown. To
    /// be called when nothing that was sent can still arrive.
    ///
    /// # Errors
    /// As for [`Account::check`].
    pub fn settle(&mut self, wire: &mut Wire) -> Result<(), String> {
        let (keys, pair) = self.read_all(wire)?;
        for (key, found) in keys {
            self.keys.get_mut(&key).expect("listed").settle(found);
        }
        self.pair.settle(pair);
        Ok(())
    }

    /// The states of all keys and of the pair, each compared.
    fn read_all(&self, wire: &mut Wire) -> Result<(Vec<(u64, State)>, u64), String> {
        let mut numbers: Vec<u64> = self.keys.keys().copied().collect();
        numbers.sort_unstable();
        let names: Vec<Vec<u8>> = numbers.iter().map(|&key| self.own_key(key)).collect();
        let mut keys = Vec::new();
        for (key, found) in numbers.into_iter().zip(wire.get(&names)?) {
            let known = &self.keys[&key];
            if !known.may_be_found(&found) {
                return Err(format!(
                    "writer {} key {key} is {}, was acknowledged as {}, and {} operations after \
                     that are unknown",
                    self.writer,
                    show(&found),
                    show(&known.certain),
                    known.unknown()
                ));
            }
            keys.push((key, found));
        }
        let pair: Vec<u64> = wire
            .get(&self.pair_keys())?
            .iter()
            .map(|value| value.as_deref().map_or(u64::MAX, number))
            .collect();
        if pair[0] != pair[1] || !self.pair.may_be_found(&pair[0]) {
            return Err(format!(
                "writer {}: the pair is {pair:?}; {} was acknowledged, and {} after it are unknown",
                self.writer,
                self.pair.certain,
                self.pair.unknown()
            ));
        }
        Ok((keys, pair[0]))
    }
}

/// The first field of a value.
pub fn number(value: &[u8]) -> u64 {
    value
        .first_chunk()
        .map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes))
}

fn show(state: &State) -> String {
    state.as_ref().map_or("absent".into(), |value| {
        let begin = String::from_utf8_lossy(&value[..value.len().min(24)]);
        format!("{begin} ({} bytes)", value.len())
    })
}
