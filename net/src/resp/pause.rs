//! CLIENT PAUSE: commands of the port are held back for a time.
//!
//! A connection asks how it stands before it takes commands. One whose command is held takes
//! nothing more, so what its peer sends stays in the socket.

/// The last moment at which a pause may end: the moment and what is held are one number.
pub const UNTIL_US_MAX: u64 = u64::MAX >> 2;

/// What is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PausedCommands {
    /// What may change a key or publish.
    Writes,
    /// All.
    All,
}

/// A pause as it stands now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// What is held back.
    pub commands: PausedCommands,
    /// When it ends, by the clock of the host.
    pub until_us: u64,
}

impl Pause {
    /// A pause that begins while this one holds: the longer time, and the more commands.
    #[must_use]
    pub fn with(self, other: Pause) -> Pause {
        Pause {
            commands: self.commands.max(other.commands),
            until_us: self.until_us.max(other.until_us),
        }
    }
}

/// Where the connections of a node are paused.
pub trait PauseControl {
    /// The pause that holds now.
    fn pause(&self) -> Option<Pause>;

    /// Holds commands back from now on, beside what is held already.
    fn begin(&self, pause: Pause);

    /// Holds nothing back any more.
    fn end(&self);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_neither_shortened_nor_made_milder_by_another_one() {
        let of = |commands, until_us| Pause { commands, until_us };
        let (writes, all) = (PausedCommands::Writes, PausedCommands::All);
        assert_eq!(of(all, 5).with(of(writes, 9)), of(all, 9));
        assert_eq!(of(writes, 9).with(of(all, 5)), of(all, 9));
    }
}
