//! The manifest of one backup: text, a line for each thing, its own hash last.
//!
//! ```text
//! penstock backup 1                                   the format
//! time_ms 1763720259123                               unix milliseconds
//! cluster c1c1...                                     16 bytes, in hexadecimal
//! node d2d2...
//! incarnation 7                                       starts of the node so far
//! logs 2                                              as the directory was laid out
//! segment_bytes 67108864                              of new segments
//! value_bytes_max 1048576                             largest of any start; absent if not known
//! log 1 lsn 1234                                      a log and its last record
//! segment 17 1122334455667788 8192 <BLAKE3>           its segments: sequence, salt, bytes, hash
//! log 2 lsn 77
//! end <BLAKE3>                                        of every byte above
//! ```
//!
//! A manifest that would be written differently from what it reads as is refused.

use std::fmt::Write;

use blake3::Hash;
use penstock_storage::place::FileId;
use penstock_storage::record::VALUE_BYTES_MAX;
use penstock_storage::segment::SEGMENT_BYTES_MAX;

const FIRST_LINE: &str = "penstock backup 1";

/// What the name of a manifest ends with.
pub(crate) const EXTENSION: &str = "manifest";

/// One backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// When it was taken, unix milliseconds.
    pub time_ms: u64,
    /// Cluster id of the node that the backup is of.
    pub cluster_id: [u8; 16],
    /// Id of that node.
    pub node_id: [u8; 16],
    /// Starts of the node so far.
    pub incarnation: u64,
    /// Logs that its directory was laid out for.
    pub log_count: u32,
    /// The size of new segments in bytes.
    pub segment_bytes: u64,
    /// The largest value that any start has accepted, in bytes; zero if that is not known.
    pub value_bytes_max: u32,
    /// The logs, ascending.
    pub logs: Vec<LogCopy>,
}

/// One log of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogCopy {
    /// Its number.
    pub log_id: u64,
    /// Its last record; 0 if it has none.
    pub lsn: u64,
    /// Its segments, ascending.
    pub segments: Vec<SegmentCopy>,
}

/// One segment of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentCopy {
    /// Its sequence in the log.
    pub sequence: u64,
    /// Its salt.
    pub salt: u64,
    /// From the start of the file to the end of its last frame.
    pub bytes: u64,
    /// BLAKE3 of those bytes.
    pub hash: Hash,
}

/// What is wrong with a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManifestError {
    /// It does not end with a hash, or not with that of what stands above.
    Hash,
    /// It is of another format.
    Format,
    /// It checks, and this line is none of this format. From 1.
    Line(usize),
}

impl std::fmt::Display for ManifestError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ManifestError::Hash => f.write_str("damaged: its hash disagrees"),
            ManifestError::Format => {
                write!(
                    f,
                    "of another format: it does not begin with {FIRST_LINE:?}"
                )
            }
            ManifestError::Line(line) => write!(f, "line {line} is none of this format"),
        }
    }
}

impl LogCopy {
    /// Whether a segment of this log is its last one.
    pub(crate) fn is_last(&self, segment: &SegmentCopy) -> bool {
        self.segments.last() == Some(segment)
    }
}

impl Manifest {
    /// The bytes of the segments that it names.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.numbered().map(|(_, _, segment)| segment.bytes).sum()
    }

    /// Every segment with the number that its file gets in a restored directory.
    pub(crate) fn numbered(&self) -> impl Iterator<Item = (FileId, &LogCopy, &SegmentCopy)> {
        let all = self
            .logs
            .iter()
            .flat_map(|log| log.segments.iter().map(move |segment| (log, segment)));
        (1..)
            .zip(all)
            .map(|(file, (log, segment))| (FileId(file), log, segment))
    }

    /// The name of its file: the time, to the millisecond, in UTC.
    #[must_use]
    pub fn name(&self) -> String {
        let (days, ms) = (self.time_ms / 86_400_000, self.time_ms % 86_400_000);
        let (year, month, day) = civil(days);
        let (seconds, ms) = (ms / 1000, ms % 1000);
        let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}.{ms:03}Z.{EXTENSION}")
    }

    /// The text of its file.
    #[must_use]
    pub fn encode(&self) -> String {
        let hex = |id: &[u8]| -> String { id.iter().map(|byte| format!("{byte:02x}")).collect() };
        let mut text = format!(
            "{FIRST_LINE}\ntime_ms {}\ncluster {}\nnode {}\nincarnation {}\nlogs {}\n\
             segment_bytes {}\n",
            self.time_ms,
            hex(&self.cluster_id),
            hex(&self.node_id),
            self.incarnation,
            self.log_count,
            self.segment_bytes
        );
        if self.value_bytes_max > 0 {
            let _ = writeln!(text, "value_bytes_max {}", self.value_bytes_max);
        }
        for log in &self.logs {
            let _ = writeln!(text, "log {} lsn {}", log.log_id, log.lsn);
            for segment in &log.segments {
                let _ = writeln!(
                    text,
                    "segment {} {:016x} {} {}",
                    segment.sequence, segment.salt, segment.bytes, segment.hash
                );
            }
        }
        let hash = blake3::hash(text.as_bytes());
        let _ = writeln!(text, "end {hash}");
        text
    }

    /// Reads the text of a file, and believes nothing that its hash does not vouch for.
    ///
    /// # Errors
    /// [`ManifestError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, ManifestError> {
        let text = std::str::from_utf8(bytes).map_err(|_| ManifestError::Hash)?;
        let end = text.rfind("end ").ok_or(ManifestError::Hash)?;
        let hash = blake3::hash(&bytes[..end]);
        if text[end..] != format!("end {hash}\n") {
            return Err(ManifestError::Hash);
        }
        let mut lines = (1..).zip(text[..end].lines());
        if lines.next().map(|(_, line)| line) != Some(FIRST_LINE) {
            return Err(ManifestError::Format);
        }
        let mut field = |name: &str| {
            let (number, line) = lines.next().ok_or(ManifestError::Line(1))?;
            let value = line
                .strip_prefix(name)
                .and_then(|rest| rest.strip_prefix(' '));
            value
                .map(|value| (number, value))
                .ok_or(ManifestError::Line(number))
        };
        let number =
            |(line, value): (usize, &str)| value.parse().map_err(|_| ManifestError::Line(line));
        let id = |(line, value): (usize, &str)| {
            let bad = ManifestError::Line(line);
            let value = u128::from_str_radix(value, 16).map_err(|_| bad)?;
            Ok(value.to_be_bytes())
        };
        let mut manifest = Manifest {
            time_ms: number(field("time_ms")?)?,
            cluster_id: id(field("cluster")?)?,
            node_id: id(field("node")?)?,
            incarnation: number(field("incarnation")?)?,
            log_count: u32::try_from(number(field("logs")?)?)
                .map_err(|_| ManifestError::Line(6))?,
            segment_bytes: number(field("segment_bytes")?)?,
            value_bytes_max: 0,
            logs: Vec::new(),
        };
        for (line, text) in lines {
            manifest.take(text).ok_or(ManifestError::Line(line))?;
        }
        // Another spelling of the same numbers has not been written here.
        match manifest.encode().as_bytes() == bytes {
            true => Ok(manifest),
            false => Err(ManifestError::Format),
        }
    }

    /// One line about values, a log or a segment.
    fn take(&mut self, line: &str) -> Option<()> {
        let mut words = line.split(' ');
        match words.next()? {
            "value_bytes_max" => {
                self.value_bytes_max = words.next()?.parse().ok()?;
                (1..=VALUE_BYTES_MAX)
                    .contains(&(self.value_bytes_max as usize))
                    .then_some(())
            }
            "log" => {
                let log_id = words.next()?.parse().ok()?;
                let is_ascending = self.logs.last().is_none_or(|last| last.log_id < log_id);
                let lsn = words.nth(1)?.parse().ok()?;
                self.logs.push(LogCopy {
                    log_id,
                    lsn,
                    segments: Vec::new(),
                });
                is_ascending.then_some(())
            }
            "segment" => {
                let segment = SegmentCopy {
                    sequence: words.next()?.parse().ok()?,
                    salt: u64::from_str_radix(words.next()?, 16).ok()?,
                    bytes: words.next()?.parse().ok()?,
                    hash: Hash::from_hex(words.next()?).ok()?,
                };
                let segments = &mut self.logs.last_mut()?.segments;
                let is_ascending = segments
                    .last()
                    .is_none_or(|last| last.sequence < segment.sequence);
                segments.push(segment);
                (is_ascending && segment.bytes <= SEGMENT_BYTES_MAX).then_some(())
            }
            _ => None,
        }
    }
}

/// Year, month and day of a number of days since 1970-01-01.
fn civil(days: u64) -> (u64, u64, u64) {
    // Counted from the first of March of year 0, so that a leap day ends a year.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let segment = |sequence| SegmentCopy {
            sequence,
            salt: 0x1122,
            bytes: 8192,
            hash: blake3::hash(b"frames"),
        };
        Manifest {
            time_ms: 1_763_720_259_123,
            cluster_id: [0x01; 16],
            node_id: [0xd2; 16],
            incarnation: 7,
            log_count: 2,
            segment_bytes: 1 << 20,
            value_bytes_max: 1 << 18,
            logs: vec![
                LogCopy {
                    log_id: 1,
                    lsn: 12,
                    segments: vec![segment(3), segment(5)],
                },
                LogCopy {
                    log_id: 2,
                    lsn: 0,
                    segments: vec![],
                },
            ],
        }
    }

    #[test]
    fn what_was_encoded_is_read_back() {
        let not_known = Manifest {
            value_bytes_max: 0,
            ..manifest()
        };
        assert!(!not_known.encode().contains("value_bytes_max"));
        for manifest in [manifest(), not_known] {
            let read = Manifest::decode(manifest.encode().as_bytes());
            assert_eq!(read, Ok(manifest));
        }
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_refused() {
        let text = manifest().encode();
        for bit in 0..text.len() * 8 {
            let mut damaged = text.clone().into_bytes();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Manifest::decode(&damaged).is_err(), "bit {bit} went unseen");
        }
        for len in 0..text.len() {
            assert!(
                Manifest::decode(&text.as_bytes()[..len]).is_err(),
                "{len} bytes"
            );
        }
    }

    #[test]
    fn what_checks_and_is_no_manifest_is_refused_by_its_line() {
        let with_end = |text: &str| format!("{text}end {}\n", blake3::hash(text.as_bytes()));
        let text = manifest().encode();
        let body = &text[..text.rfind("end ").unwrap()];
        for (from, to, error) in [
            ("backup 1", "backup 2", ManifestError::Format),
            ("logs 2", "logs x", ManifestError::Line(6)),
            ("max 262144", "max 16777217", ManifestError::Line(8)),
            ("max 262144", "max 0", ManifestError::Line(8)),
            ("log 2 lsn 0", "log 1 lsn 0", ManifestError::Line(12)),
            ("segment 5", "segment 3", ManifestError::Line(11)),
            ("lsn 12", "lsn 012", ManifestError::Format),
        ] {
            let text = with_end(&body.replace(from, to));
            assert_eq!(Manifest::decode(text.as_bytes()), Err(error), "{to}");
        }
    }

    #[test]
    fn names_are_times() {
        for (time_ms, name) in [
            (0, "19700101T000000.000Z.manifest"),
            (951_782_400_000, "20000229T000000.000Z.manifest"),
            (1_763_720_259_123, "20251121T101739.123Z.manifest"),
            (4_107_542_399_999, "21000228T235959.999Z.manifest"),
            (4_107_542_400_000, "21000301T000000.000Z.manifest"),
        ] {
            let manifest = Manifest {
                time_ms,
                ..manifest()
            };
            assert_eq!(manifest.name(), name);
        }
    }
}
