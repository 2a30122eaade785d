//! The replies of a connection, and what those that wait for the disk wait for.

use std::collections::VecDeque;

use penstock_net::pieces::Pieces;
use penstock_storage::place::Lsn;

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

    /// Gives back what is kept empty.
    pub(super) fn give_back(&mut self) {
        if self.pieces.is_empty() {
            self.pieces.give_back();
        }
        self.marks.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

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
}
