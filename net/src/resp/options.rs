//! KV.OPTS: what a connection asks beyond the commands of Redis.

use crate::level::AckLevel;
use crate::request::{MemberRead, Token};
use crate::version::Version;

use super::number::read_unsigned;
use super::parser::Arguments;
use super::reply::Replies;
use super::reply_mode::ReplyMode;
use super::token_text::{TokenFault, read_token};

/// How old an answer of a member may be behind READONLY, unless KV.OPTS says another time.
const STALE_MS_USUAL: u64 = 1_000;
/// The greatest age that may be asked for: a day.
const STALE_MS_MAX: u64 = 86_400_000;

/// What a connection asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Options {
    /// What its commands ask for.
    pub(super) level: AckLevel,
    /// Of the next write.
    pub(super) token: Option<Token>,
    /// Which of its replies leave.
    pub(super) replies: ReplyMode,
    /// Members may answer reads.
    pub(super) is_readonly: bool,
    /// Answers of KV.APPLY and KV.RUN have names.
    pub(super) has_names: bool,
    stale_ms: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            level: AckLevel::None,
            token: None,
            replies: ReplyMode::default(),
            is_readonly: false,
            has_names: false,
            stale_ms: STALE_MS_USUAL,
        }
    }
}

impl Options {
    /// These options, changed by the arguments of KV.OPTS.
    pub(super) fn changed(mut self, args: Arguments<'_>) -> Result<Self, Vec<u8>> {
        let (mut token, mut sent) = (None, None);
        for argument in args.from(1) {
            let end = argument.iter().position(|byte| *byte == b'=');
            let (name, value) = argument.split_at(end.unwrap_or(argument.len()));
            let value = value.get(1..).unwrap_or_default();
            match name.to_ascii_lowercase().as_slice() {
                b"level" => {
                    let level = level_named(value);
                    let allowed = "none, interval, disk, all, replica or default";
                    self.level = level.ok_or_else(|| refused("level", value, allowed))?;
                }
                b"stale" => {
                    let ms = read_unsigned(value).filter(|ms| *ms <= STALE_MS_MAX);
                    let allowed = "0 to 86400000 milliseconds";
                    self.stale_ms = ms.ok_or_else(|| refused("stale", value, allowed))?;
                }
                b"names" => {
                    let is = |word: &[u8]| value.eq_ignore_ascii_case(word);
                    if !is(b"on") && !is(b"off") {
                        return Err(refused("names", value, "on or off"));
                    }
                    self.has_names = is(b"on");
                }
                b"token" => token = Some(value),
                b"sent" => sent = Some(value),
                _ => {
                    let allowed = "level=, stale=, names=, token= or sent=";
                    return Err(refused("option", argument, allowed));
                }
            }
        }
        match (token, sent) {
            (None, None) => {}
            (None, Some(ms)) => return Err(refused("sent", ms, "a time beside token=")),
            (Some([]), None) => self.token = None,
            (Some(text), sent) => {
                let allowed = "a UUID of version 7, or any text with sent=";
                let token = read_token(text, sent).map_err(|fault| match fault {
                    TokenFault::Uuid(..) => refused("token", text, allowed),
                    fault => fault.text("KV.OPTS: token =", "KV.OPTS: sent ="),
                });
                self.token = Some(token?);
            }
        }
        Ok(self)
    }

    /// Tells them, and of the last write that had a token whether it was replayed.
    pub(super) fn write(&self, was_replayed: Option<bool>, replies: &mut Replies<'_>) {
        // A client that does not know the option gets the map of earlier builds.
        replies.map(4 + usize::from(self.has_names));
        replies.bulk(b"level");
        let level = match self.level {
            AckLevel::None => "default",
            level => level.name(),
        };
        replies.bulk(level.as_bytes());
        replies.bulk(b"stale");
        replies.integer(i64::try_from(self.stale_ms).expect("a day at most"));
        replies.bulk(b"token");
        match self.token {
            Some(token) => replies.bulk(token.to_string().as_bytes()),
            None => replies.null(),
        }
        replies.bulk(b"replayed");
        match was_replayed {
            Some(was_replayed) => replies.integer(was_replayed.into()),
            None => replies.null(),
        }
        if self.has_names {
            replies.bulk(b"names");
            replies.bulk(b"on");
        }
    }

    /// What a read lets members do.
    pub(super) fn member_read(&self) -> Option<MemberRead> {
        self.is_readonly.then(|| MemberRead {
            staleness_us_max: self.stale_ms * 1000,
            version_min: Version::default(),
        })
    }
}

/// The least level that the server has is asked for by the lowest one.
fn level_named(name: &[u8]) -> Option<AckLevel> {
    let levels = [
        ("default", AckLevel::None),
        ("none", AckLevel::None),
        ("interval", AckLevel::Interval),
        ("disk", AckLevel::Disk),
        ("all", AckLevel::All),
        ("replica", AckLevel::Replica),
    ];
    let found = levels
        .iter()
        .find(|(known, _)| name.eq_ignore_ascii_case(known.as_bytes()));
    found.map(|(_, level)| *level)
}

#[cold]
fn refused(name: &str, value: &[u8], allowed: &str) -> Vec<u8> {
    let shown = &value[..value.len().min(64)];
    let head = format!("ERR KV.OPTS: {name} = '");
    [
        head.as_bytes(),
        shown,
        b"': allowed is ",
        allowed.as_bytes(),
    ]
    .concat()
}
