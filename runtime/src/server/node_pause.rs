//! What CLIENT PAUSE holds back at a node: one number that all cores read.

use std::sync::atomic::{AtomicU64, Ordering};

use penstock_net::resp::{Pause, PausedCommands};

/// The pause of all cores: twice the moment of its end, and one more if all commands are held. 0 of
/// none.
#[derive(Debug, Default)]
pub(super) struct NodePause(AtomicU64);

fn number_of(pause: Pause) -> u64 {
    pause.until_us << 1 | u64::from(pause.commands == PausedCommands::All)
}

fn pause_of(number: u64) -> Pause {
    Pause {
        commands: match number & 1 {
            0 => PausedCommands::Writes,
            _ => PausedCommands::All,
        },
        until_us: number >> 1,
    }
}

impl NodePause {
    /// The pause that holds now.
    #[inline]
    pub(super) fn at(&self, now_us: impl FnOnce() -> u64) -> Option<Pause> {
        match self.0.load(Ordering::SeqCst) {
            0 => None,
            number => Some(pause_of(number)).filter(|pause| pause.until_us > now_us()),
        }
    }

    /// Another pause begins beside the one that holds now, if one does.
    pub(super) fn begin(&self, pause: Pause, now_us: u64) {
        let more = |number| {
            let before = pause_of(number);
            let all = match before.until_us > now_us {
                true => before.with(pause),
                false => pause,
            };
            Some(number_of(all))
        };
        let _ = self
            .0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, more);
    }

    pub(super) fn end(&self) {
        self.0.store(0, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_net::resp::UNTIL_US_MAX;

    #[test]
    fn a_pause_that_is_over_says_nothing_of_the_next_one() {
        let pause = NodePause::default();
        let of = |commands, until_us| Pause { commands, until_us };
        let (writes, all) = (PausedCommands::Writes, PausedCommands::All);
        assert_eq!(pause.at(|| 0), None);
        pause.begin(of(all, 50), 10);
        pause.begin(of(writes, 40), 20);
        assert_eq!(pause.at(|| 49), Some(of(all, 50)));
        assert_eq!(pause.at(|| 50), None);
        pause.begin(of(writes, UNTIL_US_MAX), 50);
        assert_eq!(pause.at(|| 51), Some(of(writes, UNTIL_US_MAX)));
        pause.end();
        assert_eq!(pause.at(|| 51), None);
    }
}
