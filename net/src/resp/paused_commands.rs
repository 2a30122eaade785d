//! What CLIENT PAUSE asks for, and which commands it holds.

use crate::script::ScriptAccess;

use super::number::read_integer;
use super::parser::Arguments;
use super::pause::{Pause, PausedCommands, UNTIL_US_MAX};
use super::scripts::Eval;
use super::table::{self, Command, Name};

/// Whether a pause holds a command back. What ends a pause is never held.
pub(super) fn holds(pause: Pause, command: &Command, args: Arguments<'_>) -> bool {
    match pause.commands {
        PausedCommands::All => !ends_pause(command.id, args),
        PausedCommands::Writes => is_write(command, args),
    }
}

fn ends_pause(id: Name, args: Arguments<'_>) -> bool {
    id == Name::Client && args.len() == 2 && args.get(1).eq_ignore_ascii_case(b"unpause")
}

/// Whether a command may change a key or publish, as Valkey has it.
fn is_write(command: &Command, args: Arguments<'_>) -> bool {
    match command.id {
        Name::Publish | Name::SPublish => true,
        id => match Eval::read(id, args) {
            Some(Ok(eval)) => eval.access == ScriptAccess::Changes,
            Some(Err(_)) => false,
            None => command.flags().any(|flag| flag == "write"),
        },
    }
}

/// Whether a command that is kept for EXEC is one.
pub(super) fn is_queued_write(args: Arguments<'_>) -> bool {
    table::find(args.get(0)).is_some_and(|command| is_write(command, args))
}

/// Reads CLIENT PAUSE, which begins at this time.
///
/// # Errors
/// The words of Valkey for what is wrong.
pub(super) fn read_pause(args: Arguments<'_>, now_us: u64) -> Result<Pause, &'static [u8]> {
    // More arguments than the mode has are passed over, as Valkey does.
    let commands = match args.len() {
        4 if args.get(3).eq_ignore_ascii_case(b"write") => PausedCommands::Writes,
        4 if !args.get(3).eq_ignore_ascii_case(b"all") => {
            return Err(b"ERR CLIENT PAUSE mode must be WRITE or ALL");
        }
        _ => PausedCommands::All,
    };
    let ms = read_integer(args.get(2));
    let ms = ms.ok_or(&b"ERR timeout is not an integer or out of range"[..])?;
    let ms = u64::try_from(ms).map_err(|_| &b"ERR timeout is negative"[..])?;
    let until_us = ms.checked_mul(1000).and_then(|us| us.checked_add(now_us));
    let until_us = until_us.filter(|us| *us <= UNTIL_US_MAX);
    Ok(Pause {
        commands,
        until_us: until_us.ok_or(&b"ERR timeout is out of range"[..])?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::parser::KeptArguments;

    fn kept(line: &str) -> KeptArguments {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let mut kept = KeptArguments::default();
        kept.fill(&words);
        kept
    }

    fn is_held(commands: PausedCommands, line: &str) -> bool {
        let (kept, until_us) = (kept(line), 1);
        let args = kept.view();
        let command = table::find(args.get(0)).expect("a command");
        holds(Pause { commands, until_us }, command, args)
    }

    #[test]
    fn a_pause_of_writes_holds_what_may_change_a_key_or_publish() {
        use PausedCommands::{All, Writes};
        for line in [
            "SET k v",
            "DEL k",
            "PUBLISH c m",
            "SPUBLISH c m",
            "EVAL x 0",
            "EVALSHA x 0",
            "KV.APPLY k k1~exists",
            "FLUSHALL",
        ] {
            assert!(is_held(Writes, line) && is_held(All, line), "{line}");
        }
        for line in ["GET k", "EVAL_RO x 0", "PING", "WATCH k", "SCRIPT FLUSH"] {
            assert!(!is_held(Writes, line) && is_held(All, line), "{line}");
        }
        assert!(!is_held(All, "CLIENT UNPAUSE"));
        assert!(is_held(All, "CLIENT PAUSE 1"));
    }

    #[test]
    fn a_time_beyond_what_a_pause_may_last_is_refused_in_the_words_of_valkey() {
        let read = |line: &str| read_pause(kept(line).view(), 7);
        let until = |line: &str| read(line).map(|pause| pause.until_us);
        assert_eq!(until("CLIENT PAUSE 0"), Ok(7));
        assert_eq!(until("CLIENT PAUSE 2 write"), Ok(2007));
        assert_eq!(
            read("CLIENT PAUSE -1"),
            Err(&b"ERR timeout is negative"[..])
        );
        let most = format!("CLIENT PAUSE {}", i64::MAX);
        assert_eq!(read(&most), Err(&b"ERR timeout is out of range"[..]));
        let mode = &b"ERR CLIENT PAUSE mode must be WRITE or ALL"[..];
        assert_eq!(read("CLIENT PAUSE 1 some"), Err(mode));
    }
}
