//! The rows of the recovery table: every state in which a start can find a file or a log, and what
//! it does then. `FORMAT.md` prints the same table; a test compares the two.

use std::fmt;

macro_rules! rows {
    ($($row:ident = $name:literal, $verdict:ident, $found:literal, $act:literal;)+) => {
        /// One row of the recovery table.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Row {
            $(#[doc = concat!($found, ": ", $act, ".")] $row,)+
        }

        impl Row {
            /// Every row, in the order of the table.
            pub const ALL: &[Row] = &[$(Row::$row,)+];

            /// Its name: lower case, words joined by hyphens.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Row::$row => $name,)+
                }
            }

            /// What was found, in words.
            #[must_use]
            pub const fn found(self) -> &'static str {
                match self {
                    $(Row::$row => $found,)+
                }
            }

            /// What that means and what is done, in words.
            #[must_use]
            pub const fn act(self) -> &'static str {
                match self {
                    $(Row::$row => $act,)+
                }
            }

            /// What that means for the start.
            #[must_use]
            pub const fn verdict(self) -> Verdict {
                match self {
                    $(Row::$row => Verdict::$verdict,)+
                }
            }
        }
    };
}

/// What a row means for a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All is as a crash or a stop leaves it: what is there is served.
    Serve,
    /// Something durable is not what was written, or not ours: nothing is served or changed.
    Refuse,
}

rows! {
    Spare = "spare", Serve,
        "block 0 and what was read behind it are zero",
        "a spare; the rest of it is read before a log gets it";
    ReusedSpare = "reused-spare", Serve,
        "block 0 is a spare header, and no frame in what was read behind it checks under its salt",
        "a spare that served before; when the rest of it was read, it serves again under another \
         salt or is deleted";
    RottenSpare = "rotten-spare", Serve,
        "block 0 is no header and shows none, the last block is no spare header, no block shows a \
         frame, and a few blocks are not zero",
        "a spare in which bytes have changed; it proves nothing, is set aside and told";
    TornActivation = "torn-activation", Serve,
        "block 0 is a part of a header, or neither zero nor valid before a spare header in the \
         last block; all behind it is zero or, under the salt of that spare header, no frame",
        "a header torn by the crash; the file holds nothing and is deleted";
    HeaderCutShort = "header-cut-short", Refuse,
        "a file shorter than one block",
        "damage: files get their name in full length";
    HeaderGone = "header-gone", Refuse,
        "block 0 is zero, and a block behind it shows a frame or more than a few are not zero; or \
         block 0, or the last block behind a block 0 of zeros, is a spare header, and a frame \
         checks under its salt",
        "damage: the header was durable";
    HeaderDamaged = "header-damaged", Refuse,
        "block 0 is neither zero nor valid, behind it is more than that, and block 0 shows a \
         header, a block shows a frame, or more than a few are not zero",
        "damage: the header was durable";
    Foreign = "foreign", Refuse,
        "another cluster's or node's id in a header that checks",
        "refused, by name";
    OtherFormat = "other-format", Refuse,
        "a segment, frame, part or item of an unknown version, chain, kind, flag or \
         must-understand tag that checks",
        "refused as another format";
    Released = "released", Serve,
        "a segment before the newest contents frame of its log that does not list it",
        "released by cleaning; nothing in it counts and it is deleted";
    SegmentMissing = "segment-missing", Refuse,
        "a sequence that the newest contents frame lists, or one behind it, is not there; without \
         such a frame, one from 1 on",
        "damage: segments are never deleted before their successors";
    SegmentTwice = "segment-twice", Refuse,
        "a sequence is there twice",
        "damage: two files claim one place";
    HeaderContradicts = "header-contradicts", Refuse,
        "a header that checks and does not repeat where the segment before it ended",
        "damage: no crash explains it";
    EarlierIntact = "earlier-intact", Serve,
        "a segment with a successor replays to exactly the offset and LSN that the successor tells",
        "replayed; what stands behind is no part of the log";
    EarlierCovered = "earlier-covered", Serve,
        "a segment before the position of the snapshot that is used, as long as its successor \
         tells",
        "not read";
    EarlierCutShort = "earlier-cut-short", Refuse,
        "a segment with a successor is shorter than the successor tells",
        "damage: all of it was durable";
    EarlierDamaged = "earlier-damaged", Refuse,
        "a segment with a successor has no good frame at some offset before the end that the \
         successor tells",
        "damage: all of it was durable";
    FrameContradicts = "frame-contradicts", Refuse,
        "a frame header that checks and contradicts its place: LSN, durable LSN or length",
        "damage: no crash explains it";
    FrameBodyContradicts = "frame-body-contradicts", Refuse,
        "a frame that checks whole, with a part that does not, or with other records than it \
         counts",
        "damage: no crash explains it";
    LastMarked = "last-marked", Serve,
        "the last segment ends with a frame that tells all its records durable, and only zeros \
         follow",
        "the end of the log";
    LastUnmarked = "last-unmarked", Serve,
        "the last segment ends with records that no later frame tells durable, and only zeros \
         follow",
        "the end of the log; the records count, and the next segment's header is written at once \
         to prove them";
    LastTorn = "last-torn", Serve,
        "the last segment: no good frame at some offset, something behind, and no frame header \
         there tells the first missing record durable",
        "a torn tail: left out, and told with its LSN and bytes; the next segment's header is \
         written at once to seal it";
    LastDamaged = "last-damaged", Refuse,
        "the last segment: no good frame at some offset, and a later block holds a frame header, \
         valid under this segment's salt, whose durable LSN reaches the first missing record, or \
         which begins with that record",
        "damage: that record was durable, or the mark in front of it";
    LastCutShort = "last-cut-short", Refuse,
        "the last segment is shorter than its header says",
        "damage: no crash shortens a file";
    LastEmpty = "last-empty", Serve,
        "the last segment holds no record, and the one before it has its full length and ends \
         with a frame that tells all its records durable",
        "deleted; the log goes on from the segment before, and its sequence and LSN are used \
         again under another salt";
    LastKept = "last-kept", Serve,
        "the last segment holds no record, and nothing else proves the end of the one before it, \
         or that one was cut there",
        "kept as that proof; the log goes on behind it";
    TailLost = "tail-lost", Refuse,
        "the log ends before the last record that the newest finished snapshot of it tells durable",
        "damage: a snapshot is finished only when all up to that record is durable";
}

impl Row {
    const fn bit(self) -> u32 {
        1 << self as u32
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of rows.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Rows(u32);

const _: () = assert!(Row::ALL.len() <= u32::BITS as usize);

impl Rows {
    /// Takes a row in.
    pub fn insert(&mut self, row: Row) {
        self.0 |= row.bit();
    }

    /// Takes all rows of another set in.
    pub fn extend(&mut self, other: Rows) {
        self.0 |= other.0;
    }

    /// Whether a row is in it.
    #[must_use]
    pub fn contains(self, row: Row) -> bool {
        self.0 & row.bit() != 0
    }

    /// Its rows, in the order of the table.
    pub fn iter(self) -> impl Iterator<Item = Row> {
        Row::ALL
            .iter()
            .copied()
            .filter(move |&row| self.contains(row))
    }
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
