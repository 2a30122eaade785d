//! Patterns of Lua 5.1, matched step by step of the budget.
//!
//! The results are those of the matcher in C; a test compares both. Two things differ: each
//! comparison is charged, and the depth of recursion has a bound.

use crate::budget::Meter;

/// Captures of a pattern, at most.
const CAPTURES_MAX: usize = 32;
/// Open choices of a match, at most. One choice takes some 200 bytes of the stack.
const DEPTH_MAX: usize = 500;
/// Comparisons that are counted before the meter is asked.
const WORK_PER_CHARGE: u64 = 512;

/// Characters that mean something in a pattern.
pub(crate) const SPECIALS: &[u8] = b"^$*+?.([%-";

/// Why a match has no result.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The pattern has no meaning.
    Malformed(&'static str),
    /// The run ends.
    Stopped(mlua::Error),
}

type Step = Result<Option<usize>, Fault>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// Bytes of the subject.
    Bytes(usize),
    /// Its end has not come yet.
    Open,
    /// It captures a position.
    Position,
}

#[derive(Clone, Copy, Debug)]
struct Capture {
    start: usize,
    extent: Extent,
}

/// What a capture holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Captured<'a> {
    Text(&'a [u8]),
    /// A position in the subject; the first byte is 1.
    Position(usize),
}

/// Matches one pattern in one subject.
pub(crate) struct Matcher<'a> {
    subject: &'a [u8],
    pattern: &'a [u8],
    meter: &'a Meter,
    captures: [Capture; CAPTURES_MAX],
    captures_len: usize,
    depth: usize,
    work: u64,
}

impl<'a> Matcher<'a> {
    /// A pattern ends at its first zero byte.
    pub(crate) fn new(
        subject: &'a [u8],
        pattern: &'a [u8],
        meter: &'a Meter,
    ) -> mlua::Result<Self> {
        meter.charge_bytes(pattern.len())?;
        let end = pattern.iter().position(|byte| *byte == 0);
        Ok(Matcher {
            subject,
            pattern: &pattern[..end.unwrap_or(pattern.len())],
            meter,
            captures: [Capture {
                start: 0,
                extent: Extent::Open,
            }; CAPTURES_MAX],
            captures_len: 0,
            depth: 0,
            work: 0,
        })
    }

    /// The end of a match that begins at `start`, by the pattern from `pattern_start` on.
    pub(crate) fn match_at(&mut self, start: usize, pattern_start: usize) -> Step {
        (self.captures_len, self.depth) = (0, 0);
        self.advance(start, pattern_start)
    }

    /// The first match at or after `start`: where it begins and ends. A `^` in front binds the
    /// match to `start`.
    pub(crate) fn search(&mut self, start: usize) -> Result<Option<(usize, usize)>, Fault> {
        let is_bound = self.pattern.first() == Some(&b'^');
        for at in start..=self.subject.len() {
            if let Some(end) = self.match_at(at, usize::from(is_bound))? {
                return Ok(Some((at, end)));
            }
            if is_bound {
                break;
            }
        }
        Ok(None)
    }

    /// Charges what was not charged yet.
    pub(crate) fn settle(&mut self) -> Result<(), Fault> {
        let steps = self.work / 2;
        self.work = 0;
        self.meter.charge(steps).map_err(Fault::Stopped)
    }

    /// Captures of the last match.
    pub(crate) fn captures_len(&self) -> usize {
        self.captures_len
    }

    /// A capture of the last match, which reached from `start` to `end`. A pattern without captures
    /// captures the match.
    pub(crate) fn captured(
        &self,
        index: usize,
        (start, end): (usize, usize),
    ) -> Result<Captured<'a>, Fault> {
        if index >= self.captures_len {
            return match index {
                0 => Ok(Captured::Text(&self.subject[start..end])),
                _ => Err(Fault::Malformed("invalid capture index")),
            };
        }
        let Capture { start, extent } = self.captures[index];
        match extent {
            Extent::Bytes(len) => Ok(Captured::Text(&self.subject[start..start + len])),
            Extent::Position => Ok(Captured::Position(start + 1)),
            Extent::Open => Err(Fault::Malformed("unfinished capture")),
        }
    }

    /// The match itself.
    pub(crate) fn whole(&self, (start, end): (usize, usize)) -> Captured<'a> {
        Captured::Text(&self.subject[start..end])
    }

    fn work(&mut self, comparisons: usize) -> Result<(), Fault> {
        self.work += comparisons as u64;
        match self.work >= WORK_PER_CHARGE {
            true => self.settle(),
            false => Ok(()),
        }
    }

    fn pattern_byte(&self, at: usize) -> Option<u8> {
        self.pattern.get(at).copied()
    }

    fn advance(&mut self, at: usize, item: usize) -> Step {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(Fault::Malformed(
                "pattern too complex: more than 500 open choices",
            ));
        }
        let end = self.advance_items(at, item);
        self.depth -= 1;
        end
    }

    /// Takes item by item while there is no choice.
    fn advance_items(&mut self, mut at: usize, mut item: usize) -> Step {
        loop {
            self.work(1)?;
            let Some(byte) = self.pattern_byte(item) else {
                return Ok(Some(at));
            };
            match (byte, self.pattern_byte(item + 1)) {
                (b'(', Some(b')')) => return self.open(at, item + 2, Extent::Position),
                (b'(', _) => return self.open(at, item + 1, Extent::Open),
                (b')', _) => return self.close(at, item + 1),
                (b'$', None) => return Ok((at == self.subject.len()).then_some(at)),
                (b'%', Some(b'b')) => match self.balanced(at, item + 2)? {
                    Some(end) => (at, item) = (end, item + 4),
                    None => return Ok(None),
                },
                (b'%', Some(b'f')) => match self.frontier(at, item + 2)? {
                    Some(next) => item = next,
                    None => return Ok(None),
                },
                (b'%', Some(digit)) if digit.is_ascii_digit() => match self.repeated(at, digit)? {
                    Some(end) => (at, item) = (end, item + 2),
                    None => return Ok(None),
                },
                _ => {
                    let next = self.class_end(item)?;
                    match self.pattern_byte(next) {
                        Some(b'?') => {
                            if self.fits(at, item, next)?
                                && let Some(end) = self.advance(at + 1, next + 1)?
                            {
                                return Ok(Some(end));
                            }
                            item = next + 1;
                        }
                        Some(b'*') => return self.longest(at, item, next),
                        Some(b'+') if self.fits(at, item, next)? => {
                            return self.longest(at + 1, item, next);
                        }
                        Some(b'+') => return Ok(None),
                        Some(b'-') => return self.shortest(at, item, next),
                        _ if self.fits(at, item, next)? => (at, item) = (at + 1, next),
                        _ => return Ok(None),
                    }
                }
            }
        }
    }

    /// As many bytes as fit, then fewer until the rest of the pattern matches.
    fn longest(&mut self, at: usize, item: usize, next: usize) -> Step {
        let mut count = 0;
        while self.fits(at + count, item, next)? {
            count += 1;
        }
        for count in (0..=count).rev() {
            if let Some(end) = self.advance(at + count, next + 1)? {
                return Ok(Some(end));
            }
        }
        Ok(None)
    }

    /// As few bytes as make the rest of the pattern match.
    fn shortest(&mut self, mut at: usize, item: usize, next: usize) -> Step {
        loop {
            if let Some(end) = self.advance(at, next + 1)? {
                return Ok(Some(end));
            }
            if !self.fits(at, item, next)? {
                return Ok(None);
            }
            at += 1;
        }
    }

    fn open(&mut self, at: usize, item: usize, extent: Extent) -> Step {
        let level = self.captures_len;
        if level == CAPTURES_MAX {
            return Err(Fault::Malformed("too many captures"));
        }
        self.captures[level] = Capture { start: at, extent };
        self.captures_len = level + 1;
        let end = self.advance(at, item)?;
        if end.is_none() {
            self.captures_len -= 1;
        }
        Ok(end)
    }

    fn close(&mut self, at: usize, item: usize) -> Step {
        let open = self.captures[..self.captures_len]
            .iter()
            .rposition(|capture| capture.extent == Extent::Open)
            .ok_or(Fault::Malformed("invalid pattern capture"))?;
        self.captures[open].extent = Extent::Bytes(at - self.captures[open].start);
        let end = self.advance(at, item)?;
        if end.is_none() {
            self.captures[open].extent = Extent::Open;
        }
        Ok(end)
    }

    /// `%bxy`: the end of the balanced part.
    fn balanced(&mut self, at: usize, item: usize) -> Step {
        let pair = self.pattern_byte(item).zip(self.pattern_byte(item + 1));
        let (first, last) = pair.ok_or(Fault::Malformed("unbalanced pattern"))?;
        if self.subject.get(at) != Some(&first) {
            return Ok(None);
        }
        let mut open = 1;
        for end in at + 1..self.subject.len() {
            self.work(1)?;
            let byte = self.subject[end];
            if byte == last {
                open -= 1;
                if open == 0 {
                    return Ok(Some(end + 1));
                }
            } else if byte == first {
                open += 1;
            }
        }
        Ok(None)
    }

    /// `%f[set]`: the next item if a byte outside of the set is followed by one of the set.
    fn frontier(&mut self, at: usize, item: usize) -> Step {
        if self.pattern_byte(item) != Some(b'[') {
            return Err(Fault::Malformed("missing '[' after '%f' in pattern"));
        }
        let next = self.class_end(item)?;
        self.work(2 * (next - item))?;
        let before = at.checked_sub(1).map_or(0, |before| self.subject[before]);
        let after = self.subject.get(at).copied().unwrap_or(0);
        let set = &self.pattern[item..next];
        Ok((!set_has(set, before) && set_has(set, after)).then_some(next))
    }

    /// `%1`: what a capture holds, again.
    fn repeated(&mut self, at: usize, digit: u8) -> Step {
        let index = usize::from(digit).checked_sub(usize::from(b'1'));
        let capture = index
            .filter(|index| *index < self.captures_len)
            .map(|index| self.captures[index])
            .filter(|capture| capture.extent != Extent::Open)
            .ok_or(Fault::Malformed("invalid capture index"))?;
        let Extent::Bytes(len) = capture.extent else {
            return Ok(None);
        };
        self.work(len / 8)?;
        let text = &self.subject[capture.start..capture.start + len];
        Ok(self.subject[at..].starts_with(text).then_some(at + len))
    }

    /// Where the item ends that stands for one byte.
    fn class_end(&mut self, item: usize) -> Result<usize, Fault> {
        match self.pattern[item] {
            b'%' if item + 1 == self.pattern.len() => {
                Err(Fault::Malformed("malformed pattern (ends with '%')"))
            }
            b'%' => Ok(item + 2),
            b'[' => {
                let mut end = item + 1;
                if self.pattern_byte(end) == Some(b'^') {
                    end += 1;
                }
                // The first byte belongs to the set, even if it is the bracket.
                loop {
                    let byte = self.pattern_byte(end);
                    let byte = byte.ok_or(Fault::Malformed("malformed pattern (missing ']')"))?;
                    end += 1;
                    if byte == b'%' && end < self.pattern.len() {
                        end += 1;
                    }
                    if self.pattern_byte(end) == Some(b']') {
                        self.work((end - item) / 8)?;
                        return Ok(end + 1);
                    }
                }
            }
            _ => Ok(item + 1),
        }
    }

    /// Whether the byte at `at` is one that the item stands for.
    fn fits(&mut self, at: usize, item: usize, next: usize) -> Result<bool, Fault> {
        let Some(byte) = self.subject.get(at).copied() else {
            return Ok(false);
        };
        self.work(next - item)?;
        Ok(match self.pattern[item] {
            b'.' => true,
            b'%' => class_has(self.pattern[item + 1], byte),
            b'[' => set_has(&self.pattern[item..next], byte),
            own => own == byte,
        })
    }
}

/// Whether a set, its brackets included, has a byte.
fn set_has(set: &[u8], byte: u8) -> bool {
    let is_negated = set.get(1) == Some(&b'^');
    let members = &set[1 + usize::from(is_negated)..set.len() - 1];
    let mut at = 0;
    while at < members.len() {
        let has = match members[at..] {
            [b'%', class, ..] => {
                at += 2;
                class_has(class, byte)
            }
            [first, b'-', last, ..] => {
                at += 3;
                (first..=last).contains(&byte)
            }
            [member, ..] => {
                at += 1;
                member == byte
            }
            [] => false,
        };
        if has {
            return !is_negated;
        }
    }
    is_negated
}

/// Whether a class, such as `%a`, has a byte. An upper-case letter is the opposite.
fn class_has(class: u8, byte: u8) -> bool {
    let has = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => matches!(byte, b' ' | b'\t'..=b'\r'),
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return class == byte,
    };
    has != class.is_ascii_uppercase()
}
