//! How far each partition had come along its log: who lacks only the newest records of some need
//! not read all of it.
//!
//! The highest sequence of each partition is remembered at ends of segments: of the newest ones at
//! most of them, of old ones at few. What this tells of where to begin is a matter of speed alone:
//! what is read too early is skipped. What it tells of one segment is not: a release forgets up to
//! there.

use crate::types::place::Lsn;
use crate::types::version::{PARTITIONS, Sequences};

/// Ends of segments that are remembered, at most; 2 KiB each.
const MARKS_MAX: usize = 64;

/// The highest sequences of a log, now and at some ends of its segments.
#[derive(Clone, Debug)]
pub struct Reached {
    /// The highest sequences up to the last end of a segment.
    highest: Box<Sequences>,
    /// The highest sequences of the records behind that end alone.
    of_open: Box<Sequences>,
    /// Ascending, by the last record before them.
    marks: Vec<Mark>,
}

/// An end of a segment.
#[derive(Clone, Debug)]
struct Mark {
    end: Lsn,
    highest: Box<Sequences>,
    /// The highest sequences of the segment that ends there, if this run wrote it.
    of_segment: Option<Box<Sequences>>,
}

impl Default for Reached {
    fn default() -> Self {
        Reached {
            highest: Box::new([0; PARTITIONS]),
            of_open: Box::new([0; PARTITIONS]),
            marks: Vec::new(),
        }
    }
}

impl Reached {
    /// A record of a partition, no copy, has this sequence, whatever its epoch: a tail that has
    /// diverged may be followed by lower epochs with higher sequences.
    #[inline]
    pub(crate) fn note(&mut self, partition: usize, sequence: u64) {
        self.of_open[partition] = self.of_open[partition].max(sequence);
    }

    /// From here on a run writes: what was noted before came from a log that it found, perhaps not
    /// from the begin of its segments.
    pub(crate) fn run_begins(&mut self) {
        self.close();
        for mark in &mut self.marks {
            mark.of_segment = None;
        }
    }

    /// A segment ends behind this record.
    pub(crate) fn segment_ends(&mut self, last: Lsn) {
        if self.marks.len() >= MARKS_MAX {
            // Who comes back lacks something new, mostly.
            let mut index = 0;
            self.marks.retain(|_| {
                index += 1;
                index > MARKS_MAX / 2 || index % 2 == 0
            });
        }
        let of_segment = self.close();
        self.marks.push(Mark {
            end: last,
            highest: self.highest.clone(),
            of_segment: Some(of_segment),
        });
    }

    /// Adds the sequences behind the last end of a segment to the highest ones, and returns them.
    fn close(&mut self) -> Box<Sequences> {
        let of_open = std::mem::replace(&mut self.of_open, Box::new([0; PARTITIONS]));
        raise(&mut self.highest, &of_open);
        of_open
    }

    /// The highest sequence of a partition.
    pub(crate) fn highest(&self, partition: usize) -> u64 {
        self.highest[partition].max(self.of_open[partition])
    }

    /// Before all that was noted there were records up to `from`, as told.
    pub(crate) fn came_after(&mut self, from: Lsn, known: &Reached) {
        let mut highest = known.highest.clone();
        raise(&mut highest, &known.of_open);
        for mark in &mut self.marks {
            raise(&mut mark.highest, &highest);
        }
        raise(&mut self.highest, &highest);
        let mark = Mark {
            end: from,
            highest,
            of_segment: None,
        };
        self.marks.insert(0, mark);
    }

    /// The highest sequence of a partition up to this end of a segment, if it is remembered.
    #[must_use]
    pub fn highest_at(&self, partition: usize, end: Lsn) -> Option<u64> {
        let mark = self.marks.iter().find(|mark| mark.end == end)?;
        Some(mark.highest[partition])
    }

    /// The highest sequence of each partition in the segment with this end, 0 if it has no record
    /// of one; known of segments that this run wrote and that are remembered.
    pub(crate) fn of_segment(&self, end: Lsn) -> Option<&Sequences> {
        let mark = self.marks.iter().find(|mark| mark.end == end)?;
        mark.of_segment.as_deref()
    }

    /// A record up to which none of the partition has a sequence above this one.
    #[must_use]
    pub fn none_above(&self, partition: usize, sequence: u64) -> Lsn {
        let is_below = |mark: &Mark| mark.highest[partition] <= sequence;
        let below = self.marks.partition_point(is_below);
        self.marks[..below].last().map_or(Lsn(0), |mark| mark.end)
    }
}

fn raise(sequences: &mut Sequences, to: &Sequences) {
    for (sequence, &to) in sequences.iter_mut().zip(to) {
        *sequence = to.max(*sequence);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_above_a_sequence_stands_before_the_answer_and_the_newest_are_known_best() {
        let mut reached = Reached::default();
        // Two partitions in turn, and one that came first and never again.
        reached.note(7, 3);
        for record in 1..=10_000_u64 {
            let partition = usize::from(record % 2 == 0);
            reached.note(partition, record.div_ceil(2));
            if record % 10 == 0 {
                reached.segment_ends(Lsn(record));
            }
        }
        assert!(reached.marks.len() <= MARKS_MAX);
        for sequence in 0..=5_000_u64 {
            for partition in [0, 1] {
                let answer = reached.none_above(partition, sequence);
                // The first record above it.
                let first = 2 * sequence + 1 + partition as u64;
                assert!(answer.0 < first, "{answer:?} for {sequence} of {partition}");
                if sequence > 4_950 {
                    assert!(first - answer.0 <= 12, "{answer:?} for {sequence} is early");
                }
            }
        }
        assert_eq!(reached.none_above(7, 2), Lsn(0));
        assert_eq!(reached.none_above(7, 3), Lsn(10_000));
    }

    #[test]
    fn what_came_before_counts_for_all_that_is_remembered() {
        let mut reached = Reached::default();
        reached.note(0, 7);
        reached.segment_ends(Lsn(20));
        let mut before = Reached::default();
        before.note(0, 5);
        before.note(1, 9);
        reached.came_after(Lsn(10), &before);
        assert_eq!(reached.none_above(0, 4), Lsn(0));
        assert_eq!(reached.none_above(0, 5), Lsn(10));
        assert_eq!(reached.none_above(0, 7), Lsn(20));
        assert_eq!(reached.none_above(1, 8), Lsn(0));
        assert_eq!(reached.none_above(1, 9), Lsn(20));
        assert_eq!((reached.highest(0), reached.highest(1)), (7, 9));
    }

    #[test]
    fn a_higher_sequence_of_a_tail_that_has_diverged_counts_as_well() {
        let mut reached = Reached::default();
        reached.note(0, 900);
        reached.segment_ends(Lsn(1));
        reached.note(0, 501);
        reached.segment_ends(Lsn(2));
        assert_eq!(reached.none_above(0, 501), Lsn(0));
        assert_eq!(reached.none_above(0, 900), Lsn(2));
    }

    #[test]
    fn a_segment_is_reported_alone_and_only_by_the_run_that_wrote_it() {
        let mut reached = Reached::default();
        reached.note(7, 3);
        reached.segment_ends(Lsn(1));
        reached.run_begins();
        reached.note(0, 9);
        reached.note(0, 8);
        reached.segment_ends(Lsn(3));
        reached.note(7, 4);
        reached.segment_ends(Lsn(4));
        assert!(reached.of_segment(Lsn(1)).is_none() && reached.of_segment(Lsn(2)).is_none());
        let of_second = reached.of_segment(Lsn(3)).expect("this run wrote it");
        assert_eq!((of_second[0], of_second[7]), (9, 0));
        let of_third = reached.of_segment(Lsn(4)).expect("this run wrote it");
        assert_eq!((of_third[0], of_third[7]), (0, 4));
        assert_eq!(reached.highest_at(7, Lsn(3)), Some(3));
    }
}
