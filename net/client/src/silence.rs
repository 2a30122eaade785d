//! When a node that owes an answer and says nothing is probed, and when the client turns to the
//! other nodes.
//!
//! ```text
//! sent or heard ---- half of the bound ----> probe ---- the other half ----> turned away
//!       ^                                                                        |
//!       +------------------------------ heard -----------------------------------+
//! ```
//!
//! The second half counts from the probe. So a client that was itself suspended, and finds all
//! nodes silent when it goes on, asks first.

use std::time::{Duration, Instant};

/// The silence of one connection.
#[derive(Debug)]
pub(crate) struct Silence {
    /// When bytes came last, or the connection was made.
    last_received: Instant,
    /// Since when an answer is owed and nothing has come. `None`: no answer is owed.
    owed_since: Option<Instant>,
    probed: Option<Instant>,
    is_turned_away: bool,
}

/// What the silence asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Wait,
    /// A PING is to be sent.
    Probe,
    /// What can be asked twice is to be asked elsewhere.
    TurnAway,
}

impl Silence {
    /// The silence of a connection that was made at `now`.
    pub(crate) fn new(now: Instant) -> Silence {
        Silence {
            last_received: now,
            owed_since: None,
            probed: None,
            is_turned_away: false,
        }
    }

    /// How long nothing has come.
    pub(crate) fn lasts(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.last_received)
    }

    /// Whether the client has turned to other nodes, and nothing has come since.
    pub(crate) fn is_turned_away(&self) -> bool {
        self.is_turned_away
    }

    /// An operation was sent, which the node is to answer.
    pub(crate) fn sent(&mut self, now: Instant) {
        self.owed_since.get_or_insert(now);
    }

    /// Bytes have come. `owes`: the node has not answered all operations. Returns whether the
    /// client had turned away from the node.
    pub(crate) fn received(&mut self, now: Instant, owes: bool) -> bool {
        self.last_received = now;
        self.owed_since = owes.then_some(now);
        self.probed = None;
        std::mem::take(&mut self.is_turned_away)
    }

    /// The step that is due now, if a node may be silent for `bound` at most. A silence has each
    /// step once.
    pub(crate) fn step(&mut self, now: Instant, bound: Duration) -> Step {
        let half = bound / 2;
        let Some(owed_since) = self.owed_since.filter(|_| !self.is_turned_away) else {
            return Step::Wait;
        };
        match self.probed {
            None if now.saturating_duration_since(owed_since) >= half => {
                self.probed = Some(now);
                Step::Probe
            }
            Some(probed) if now.saturating_duration_since(probed) >= half => {
                self.is_turned_away = true;
                Step::TurnAway
            }
            _ => Step::Wait,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Duration = Duration::from_millis(400);

    /// A silence, and the instant so many milliseconds behind its begin.
    fn silence() -> (Silence, impl Fn(u64) -> Instant) {
        let began = Instant::now();
        let at = move |ms| began + Duration::from_millis(ms);
        (Silence::new(began), at)
    }

    #[test]
    fn a_node_that_owes_nothing_is_left_in_peace() {
        let (mut silence, at) = silence();
        assert_eq!(silence.step(at(60_000), BOUND), Step::Wait);
        silence.sent(at(60_000));
        silence.received(at(60_001), false);
        assert_eq!(silence.step(at(120_000), BOUND), Step::Wait);
    }

    #[test]
    fn a_silent_node_is_probed_once_at_half_of_the_bound_and_left_once_at_its_end() {
        let (mut silence, at) = silence();
        silence.sent(at(1_000));
        silence.sent(at(1_150));
        assert_eq!(silence.step(at(1_199), BOUND), Step::Wait);
        assert_eq!(silence.step(at(1_200), BOUND), Step::Probe);
        assert_eq!(silence.step(at(1_399), BOUND), Step::Wait);
        assert!(!silence.is_turned_away());
        assert_eq!(silence.step(at(1_400), BOUND), Step::TurnAway);
        assert!(silence.is_turned_away());
        assert_eq!(silence.step(at(9_000), BOUND), Step::Wait);
    }

    #[test]
    fn a_node_that_answers_the_probe_and_nothing_else_is_probed_again_and_not_left() {
        let (mut silence, at) = silence();
        silence.sent(at(0));
        for round in 0..10 {
            let began = round * 250;
            assert_eq!(silence.step(at(began + 200), BOUND), Step::Probe, "{round}");
            assert!(!silence.received(at(began + 250), true));
        }
    }

    #[test]
    fn a_client_that_was_suspended_itself_probes_before_it_turns_away() {
        let (mut silence, at) = silence();
        silence.sent(at(0));
        assert_eq!(silence.step(at(600_000), BOUND), Step::Probe);
        assert_eq!(silence.step(at(600_199), BOUND), Step::Wait);
        assert_eq!(silence.step(at(600_200), BOUND), Step::TurnAway);
    }

    #[test]
    fn a_node_that_speaks_again_is_turned_to_again() {
        let (mut silence, at) = silence();
        silence.sent(at(0));
        silence.step(at(200), BOUND);
        silence.step(at(400), BOUND);
        assert!(silence.received(at(2_000), true));
        assert_eq!(silence.lasts(at(2_100)), Duration::from_millis(100));
        assert_eq!(silence.step(at(2_199), BOUND), Step::Wait);
        assert_eq!(silence.step(at(2_200), BOUND), Step::Probe);
    }
}
