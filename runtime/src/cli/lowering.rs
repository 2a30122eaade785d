//! `penstock inspect --lower-time`: the way back for a directory that was served while the clock of
//! its machine was ahead.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use penstock::directory::Directory;
use penstock::directory::lowering::{FramePlaces, lower_time};
use penstock::system::advice;
use penstock_storage::inspect::inspect_laid_out;
use penstock_storage::recovery::Event;

use super::Failure;
use super::output::{Output, count};
use super::stopped::{cannot_open, layout_of};

/// What is given up when the time is lowered.
pub(super) const LOSS_OF_TIMES: &str = "times";

/// What the tool costs, line by line.
const COSTS: [&str; 6] = [
    "records of later times become records of that time; their order and versions stay",
    "tokens of before that time count as too old, unless they are found: a retry from before it \
     is TOKEN_TOO_OLD and is not executed",
    "a write that was named under the later clock, and whose token that clock let drop, is \
     executed again if it is sent once more when its time has come",
    "a lifetime that was given under the later clock ends as late as that clock said",
    "what had expired by the later clock and is still in the log shows again until its time comes",
    "snapshots of the index and key tables are made anew, so the next start reads the whole log",
];

/// The time to which a directory is lowered, in unix milliseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct LowerTo(u64);

/// `now`, a time such as 2026-11-29T03:00:00Z, or unix milliseconds.
pub(super) fn parse_time(text: &str) -> Result<LowerTo, String> {
    let now = unix_ms(SystemTime::now());
    let asked = match text {
        "now" => Some(now),
        text => text.parse().ok().or_else(|| {
            let time = humantime::parse_rfc3339_weak(text).ok()?;
            Some(unix_ms(time))
        }),
    };
    match asked {
        Some(ms) if (1..=now).contains(&ms) => Ok(LowerTo(ms)),
        Some(_) => Err("a time to lower to is not after the clock of this machine".into()),
        None => {
            Err("allowed is now, a time such as 2026-11-29T03:00:00Z, or unix milliseconds".into())
        }
    }
}

fn unix_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Prints what lowering the time would change and cost; carries it out if that was accepted.
pub(super) fn lower(path: &Path, to: LowerTo, accepted: &[String]) -> Result<(), Failure> {
    let directory = match accepted.is_empty() {
        true => Directory::inspect(path),
        false => Directory::repair(path),
    };
    let directory = directory.map_err(cannot_open)?;
    let found = Found::of(&directory, to)?;
    let mut out = Output::stdout();
    if found.newest_ms <= to.0 {
        out.line(format_args!(
            "nothing to lower: the newest time in the log is {}",
            shown(found.newest_ms)
        ));
        return out.finish();
    }
    out.line(format_args!(
        "the newest time in the log is {}; {} of {} are later than {}",
        shown(found.newest_ms),
        found.later,
        count(found.parts, "part"),
        shown(to.0)
    ));
    if !accepted.iter().any(|loss| loss == LOSS_OF_TIMES) {
        out.line(format_args!("gives up: {LOSS_OF_TIMES}"));
        for cost in COSTS {
            out.line(format_args!("  - {cost}"));
        }
        out.line(format_args!(
            "of a cluster all nodes are stopped and lowered to the same time; a backup first is \
             the only way back from this"
        ));
        out.line(format_args!("nothing was changed; to carry it out:"));
        out.line(format_args!(
            "  penstock inspect {} --lower-time {} --accept-loss {LOSS_OF_TIMES}",
            advice::word(path),
            to.0
        ));
        out.finish()?;
        return Err(match accepted.is_empty() {
            true => Failure::no("it was planned and not carried out"),
            false => Failure::usage(format_args!(
                "--accept-loss {LOSS_OF_TIMES} is not given; nothing was changed"
            )),
        });
    }
    let lowered = lower_time(&directory, &found.frames, to.0).map_err(|error| {
        Failure::usage(format_args!(
            "cannot lower the time: {error}; the same command again ends the work"
        ))
    })?;
    out.line(format_args!(
        "lowered: {} of {} have a new time",
        count(lowered.parts, "part"),
        count(lowered.segments, "segment")
    ));
    out.finish()
}

/// What stands in a directory.
#[derive(Default)]
struct Found {
    frames: FramePlaces,
    newest_ms: u64,
    parts: u64,
    /// Parts of a later time.
    later: u64,
}

impl Found {
    fn of(directory: &Directory, to: LowerTo) -> Result<Found, Failure> {
        let mut found = Found::default();
        let layout = layout_of(directory)?;
        let proven = directory.proven_ends().map_err(cannot_open)?;
        let mut source = directory.segments().reader();
        let owner = Some(directory.owner());
        let report = inspect_laid_out(&mut source, owner, &layout, &proven, &mut |event| {
            found.take(event, to);
        });
        let named = directory.path().display();
        if !report.damage.is_empty() || report.strange_key.is_some() {
            return Err(Failure::no(format_args!(
                "{named}: a start would be refused; mend that first: {}",
                advice::inspect(directory.path())
            )));
        }
        let keeping = report.keyspaces.iter().find(|(_, it)| it.keeps_versions());
        if let Some((prefix, _)) = keeping {
            return Err(Failure::no(format_args!(
                "{named}: keyspace {} keeps versions, and under the later clock some of them were \
                 dropped: their past would have gaps. Restore a backup of before, or drop the \
                 keyspace at a server that runs, and ask again",
                prefix.escape_ascii()
            )));
        }
        Ok(found)
    }

    fn take(&mut self, event: &Event<'_>, to: LowerTo) {
        match event {
            Event::Segment(segment) => {
                self.newest_ms = self.newest_ms.max(segment.header.created_ms);
            }
            Event::Frame(file, frame) => {
                self.newest_ms = self.newest_ms.max(frame.time_ms);
                let place = (frame.offset, frame.padded_bytes());
                self.frames.entry(*file).or_default().push(place);
            }
            Event::Part(part, _) => {
                self.parts += 1;
                self.later += u64::from(part.time_ms() > to.0);
            }
            Event::Contents(_) | Event::Prefetch(_) => {}
        }
    }
}

/// A time for people.
fn shown(unix_ms: u64) -> String {
    // Years are written with four digits.
    let seconds = (unix_ms / 1_000).min(253_402_300_799);
    let time = UNIX_EPOCH + std::time::Duration::from_secs(seconds);
    humantime::format_rfc3339_seconds(time).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_now_a_date_or_a_number_and_not_after_the_clock() {
        let ms = |text: &str| parse_time(text).map(|it| it.0);
        assert_eq!(ms("2026-09-21T14:13:20Z").unwrap(), 1_790_000_000_000);
        assert_eq!(ms("1790000000000").unwrap(), 1_790_000_000_000);
        assert!(ms("now").unwrap() > 1_790_000_000_000);
        for wrong in ["0", "yesterday", "", "9999-01-01T00:00:00Z", "-1"] {
            assert!(ms(wrong).is_err(), "{wrong}");
        }
    }
}
