//! The audit log: who logged in, who was refused, and who changed what, one JSON object a line.
//!
//! ```text
//! event --> line --> queue (line_queue.rs) --> thread penstock-audit --> file or standard error
//! ```
//!
//! No core waits for the audit log: a line that finds no room is dropped and counted, and the next
//! one tells how many. A clean stop writes all lines that are queued. A crash loses at most those.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use penstock_shard::audit::{Audited, AuditedWhat};

use super::destination::{Destination, LogFileError};
use crate::system::line_queue::{LineCounts, LineQueue, LineWriter};

/// The longest text of a field, in bytes. What is beyond is cut.
const TEXT_BYTES_MAX: usize = 256;
/// The path that means standard error.
const STANDARD_ERROR: &str = "stderr";

/// Where events go that matter to an auditor; clones are the same. [`Audit::default`] drops them,
/// and counts nothing.
#[derive(Clone, Default)]
pub(crate) struct Audit(Option<Open>);

#[derive(Clone)]
struct Open {
    lines: LineQueue,
    destination: Arc<Destination>,
}

/// The value of a field.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Field<'a> {
    Text(&'a str),
    Number(u64),
}

impl Audit {
    /// Begins to write to a file, which is appended to, or to standard error if it is named
    /// `stderr`.
    ///
    /// # Errors
    /// The file cannot be opened, or there is no thread.
    pub(crate) fn open(path: &Path) -> Result<(Audit, LineWriter), LogFileError> {
        let is_standard_error = path.as_os_str() == STANDARD_ERROR;
        let destination = Destination::open((!is_standard_error).then_some(path))?;
        let destination = Arc::new(destination);
        let (lines, writer) = LineQueue::start("penstock-audit", Arc::clone(&destination))
            .map_err(LogFileError::no_thread)?;
        Ok((Audit(Some(Open { lines, destination })), writer))
    }

    /// Whether anybody reads what is told.
    pub(crate) fn is_open(&self) -> bool {
        self.0.is_some()
    }

    /// Tells that something happened now. Never waits.
    pub(crate) fn report(&self, event: &str, fields: &[(&str, Field<'_>)]) {
        if let Some(Open { lines, .. }) = &self.0 {
            lines.push(|dropped| line(SystemTime::now(), event, fields, dropped).into_bytes());
        }
    }

    /// Tells what happened at a shard.
    pub(crate) fn report_shard(&self, shard: u16, audited: &Audited) {
        let Audited { actor, what } = audited;
        let peer = actor.peer.map(|peer| peer.to_string());
        let mut fields = vec![("shard", Field::Number(shard.into()))];
        fields.extend(actor.login.as_deref().map(|it| ("user", Field::Text(it))));
        fields.extend(peer.as_deref().map(|it| ("peer", Field::Text(it))));
        let (cause, prefix);
        let event = match what {
            AuditedWhat::LoggedIn => "login",
            AuditedWhat::LoginRefused(fault) => {
                cause = fault.to_string();
                fields.push(("cause", Field::Text(&cause)));
                "login_refused"
            }
            AuditedWhat::UserGone => "user_gone",
            AuditedWhat::Denied { text, times } => {
                fields.extend([
                    ("cause", Field::Text(text)),
                    ("times", Field::Number(*times)),
                ]);
                "denied"
            }
            AuditedWhat::KeyspaceAsked { action, prefix: of } => {
                prefix = of.escape_ascii().to_string();
                fields.extend([
                    ("asked", Field::Text(action)),
                    ("prefix", Field::Text(&prefix)),
                ]);
                "keyspace"
            }
        };
        self.report(event, &fields);
    }

    /// So many lines are dropped before they were made.
    pub(crate) fn drop_lines(&self, lines: u64) {
        if let Some(open) = &self.0 {
            open.lines.drop_lines(lines);
        }
    }

    /// Opens the file anew, if there is one, and returns its path: what was moved away gets no more
    /// lines.
    ///
    /// # Errors
    /// The file cannot be opened; the one of before stays.
    pub(crate) fn reopen(&self) -> Result<Option<&Path>, LogFileError> {
        self.0.as_ref().map_or(Ok(None), |open| {
            open.destination.reopen(|_| open.lines.flush())
        })
    }

    /// What became of the lines.
    pub(crate) fn counts(&self) -> LineCounts {
        let open = self.0.as_ref();
        open.map_or_else(LineCounts::default, |open| open.lines.counts())
    }
}

/// One event as JSON, with a line break behind it.
fn line(time: SystemTime, event: &str, fields: &[(&str, Field<'_>)], dropped: u64) -> String {
    let mut line = String::with_capacity(256);
    let time = humantime::format_rfc3339_millis(time);
    let _ = write!(line, "{{\"time\":\"{time}\",\"event\":{}", quoted(event));
    for (name, value) in fields {
        let _ = match value {
            Field::Text(text) => write!(line, ",{}:{}", quoted(name), quoted(text)),
            Field::Number(number) => write!(line, ",{}:{number}", quoted(name)),
        };
    }
    if dropped > 0 {
        let _ = write!(line, ",\"dropped_before\":{dropped}");
    }
    line.push_str("}\n");
    line
}

/// A text as JSON, cut to [`TEXT_BYTES_MAX`].
fn quoted(text: &str) -> String {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    serde_json::Value::from(&text[..end]).to_string()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn parsed(line: &str) -> serde_json::Value {
        assert_eq!(line.matches('\n').count(), 1, "one line: {line}");
        serde_json::from_str(line).expect("JSON")
    }

    #[test]
    fn a_line_is_one_json_object_whatever_its_texts_hold() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123);
        let long = "ä".repeat(TEXT_BYTES_MAX);
        let fields = [
            ("user", Field::Text("a\"b\\\n\u{0}")),
            ("long", Field::Text(&long)),
            ("shard", Field::Number(7)),
        ];
        let text = line(time, "login", &fields, 3);
        let value = parsed(&text);
        assert!(text.starts_with("{\"time\":\"2023-11-14T22:13:20.123Z\",\"event\":\"login\","));
        assert_eq!(value["user"], "a\"b\\\n\u{0}");
        assert_eq!(value["long"].as_str().map(str::len), Some(TEXT_BYTES_MAX));
        assert_eq!(
            (&value["shard"], &value["dropped_before"]),
            (&7.into(), &3.into())
        );
    }

    #[test]
    fn what_is_queued_is_in_the_file_when_the_writer_is_gone_and_a_moved_file_gets_no_more() {
        let directory = std::env::temp_dir().join(format!("penstock-audit-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (path, moved) = (directory.join("audit"), directory.join("audit.1"));
        let (audit, writer) = Audit::open(&path).expect("opened");
        for _ in 0..100 {
            audit.report("login", &[("user", Field::Text("ann"))]);
        }
        while audit.counts().written < 100 {
            std::thread::yield_now();
        }
        std::fs::rename(&path, &moved).unwrap();
        assert_eq!(audit.reopen().expect("opened anew"), Some(path.as_path()));
        audit.report("stop", &[]);
        drop(writer);
        let count = |path| std::fs::read_to_string(path).unwrap().lines().count();
        assert_eq!((count(&moved), count(&path)), (100, 1));
        let refused = Audit::open(&directory.join("none/audit"))
            .err()
            .expect("refused");
        assert!(refused.to_string().contains("none/audit"), "{refused}");
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn without_a_destination_nothing_is_reported_or_counted() {
        let audit = Audit::default();
        audit.report("login", &[]);
        assert!(!audit.is_open());
        assert_eq!(audit.counts(), LineCounts::default());
        assert_eq!(audit.reopen().expect("nothing to open"), None);
    }
}
