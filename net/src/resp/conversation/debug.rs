//! DEBUG SLEEP: the server stands still for a time, so that its clients can be tested.

use super::super::host::Host;
use super::super::parser::Arguments;
use super::super::rights;
use super::super::sink::Sink;
use super::super::table::Name;
use super::{Passed, Talk};

/// The longest sleep, in seconds.
const SLEEP_S_MAX: f64 = 60.0;
const TURNED_OFF: &[u8] =
    b"ERR DEBUG command not allowed: DEBUG SLEEP needs the option resp_debug \
    of this server";
const HELP: [&str; 2] = [
    "SLEEP <seconds>",
    "    Stop all cores of the server for <seconds>, at most 60. Decimals allowed.",
];

impl Talk {
    /// DEBUG. It begins when all commands before it are answered.
    #[cold]
    pub(super) fn debug(
        &mut self,
        args: Arguments<'_>,
        sink: &Sink<'_>,
        host: &dyn Host,
    ) -> Passed {
        if let Some(rights) = &self.rights
            && let Some(text) = rights::refusal(Name::Debug, args, rights)
        {
            return self.refuse_only(&text);
        }
        if !host.facts().switches.takes_debug {
            return self.refuse_only(TURNED_OFF);
        }
        let is = |name: &[u8]| args.get(1).eq_ignore_ascii_case(name);
        match args.len() {
            2 if is(b"help") => {
                let protocol = self.protocol;
                self.ring.reply(protocol, &mut self.out, |replies| {
                    replies.help("DEBUG", &HELP);
                });
                return Passed::Whole;
            }
            3 if is(b"sleep") => {}
            _ => {
                let name = args.get(1);
                let name = &name[..name.len().min(NAME_BYTES_SHOWN)];
                return self.refuse_only(
                    &[
                        b"ERR unknown subcommand or wrong number of arguments for '",
                        name,
                        b"'. Try DEBUG HELP.",
                    ]
                    .concat(),
                );
            }
        }
        let Some(sleep_us) = read_sleep_us(args.get(2)) else {
            return self.refuse_only(b"ERR DEBUG SLEEP takes 0 to 60 seconds");
        };
        if !self.ring.is_empty() || !sink.is_empty() {
            return Passed::Waits;
        }
        host.stand_still(sleep_us);
        self.ok();
        Passed::Whole
    }
}

/// Bytes of an unknown subcommand that its error shows.
const NAME_BYTES_SHOWN: usize = 128;

/// Microseconds of a number of seconds.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the number is between 0 and 60,000,000"
)]
fn read_sleep_us(text: &[u8]) -> Option<u64> {
    let seconds: f64 = str::from_utf8(text).ok()?.parse().ok()?;
    let is_allowed = (0.0..=SLEEP_S_MAX).contains(&seconds);
    is_allowed.then_some((seconds * 1e6) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_is_a_number_of_seconds_up_to_a_minute() {
        assert_eq!(read_sleep_us(b"0.25"), Some(250_000));
        assert_eq!(read_sleep_us(b"60"), Some(60_000_000));
        for text in [&b"60.1"[..], b"-1", b"nan", b"inf", b"x", b"", b"\xff"] {
            assert_eq!(read_sleep_us(text), None, "{}", text.escape_ascii());
        }
    }
}
