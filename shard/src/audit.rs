//! What an audit log is told of: who logged in, who was refused, and who asked for a change that
//! operators care about.
//!
//! Nobody waits for the log, and nothing is kept for it unless somebody reads it. What one turn
//! tells is bounded; what is beyond is counted.

use std::net::IpAddr;

use penstock_net::auth::AuthFault;
use penstock_net::keyspace::Action;

/// Events of one turn, at most.
const EVENTS_A_TURN_MAX: usize = 64;
/// A connection that is denied is told once in so long, with how often it was meanwhile.
const DENIED_EVERY_US: u64 = 1_000_000;

/// Who did something: what is known of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Actor {
    /// The name of the login, or of the certificate. `None` where nobody has logged in.
    pub login: Option<Box<str>>,
    /// The address of its peer, if the connection has one that is known.
    pub peer: Option<IpAddr>,
}

/// Something that happened, and by whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audited {
    /// Who did it.
    pub actor: Actor,
    /// What happened.
    pub what: AuditedWhat,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditedWhat {
    /// A connection has logged in.
    LoggedIn,
    /// A message of a login was refused. The login of the actor is the one that was asked for, if
    /// that had been told.
    LoginRefused(AuthFault),
    /// A connection is ended: its user is gone or has another secret.
    UserGone,
    /// An item or a frame was denied.
    Denied {
        /// What the client was told.
        text: String,
        /// How often the connection was denied since that was last told, this time included.
        times: u64,
    },
    /// A change of a keyspace was asked for by one who may.
    KeyspaceAsked {
        /// What was asked.
        action: &'static str,
        /// Its prefix.
        prefix: Box<[u8]>,
    },
}

/// How a change of a keyspace is called; `None` for what changes nothing.
pub(crate) fn name_of(action: &Action) -> Option<&'static str> {
    match action {
        Action::Create(_) => Some("create"),
        Action::Set(_) => Some("set"),
        Action::Drop => Some("drop"),
        Action::List => None,
    }
}

/// When a connection was last told to be denied, and how often it was since.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Denials {
    reported_us: Option<u64>,
    unreported: u64,
}

impl Denials {
    /// It is denied now. How often it was, if that is to be told.
    pub(crate) fn count(&mut self, now_us: u64) -> Option<u64> {
        self.unreported += 1;
        if self
            .reported_us
            .is_some_and(|us| now_us < us + DENIED_EVERY_US)
        {
            return None;
        }
        self.reported_us = Some(now_us);
        Some(std::mem::take(&mut self.unreported))
    }
}

/// What a shard has to tell in this turn.
#[derive(Debug, Default)]
pub(crate) struct AuditTrail {
    is_read: bool,
    events: Vec<Audited>,
    dropped: u64,
}

impl AuditTrail {
    /// Somebody reads it from now on.
    pub(crate) fn begin(&mut self) {
        self.is_read = true;
    }

    /// Whether somebody reads it.
    #[inline]
    pub(crate) fn is_read(&self) -> bool {
        self.is_read
    }

    /// Tells of something, if somebody reads it.
    pub(crate) fn report(&mut self, actor: Actor, what: AuditedWhat) {
        match self.events.len() < EVENTS_A_TURN_MAX {
            _ if !self.is_read => {}
            true => self.events.push(Audited { actor, what }),
            false => self.dropped += 1,
        }
    }

    /// The turn ends: moves what it told to `into`, and adds how many more there were.
    #[inline]
    pub(crate) fn end_turn(&mut self, into: &mut Vec<Audited>, dropped: &mut u64) {
        if !self.events.is_empty() {
            into.append(&mut self.events);
            *dropped += std::mem::take(&mut self.dropped);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trail_that_nobody_reads_keeps_nothing() {
        let mut trail = AuditTrail::default();
        trail.report(Actor::default(), AuditedWhat::LoggedIn);
        let (mut events, mut dropped) = (Vec::new(), 0);
        trail.end_turn(&mut events, &mut dropped);
        assert!(events.is_empty() && !trail.is_read());
    }

    #[test]
    fn a_turn_reports_so_many_events_and_counts_the_others() {
        let mut trail = AuditTrail::default();
        trail.begin();
        for _ in 0..EVENTS_A_TURN_MAX + 7 {
            trail.report(Actor::default(), AuditedWhat::UserGone);
        }
        let (mut events, mut dropped) = (Vec::new(), 0);
        trail.end_turn(&mut events, &mut dropped);
        assert_eq!((events.len(), dropped), (EVENTS_A_TURN_MAX, 7));
        trail.report(Actor::default(), AuditedWhat::LoggedIn);
        trail.end_turn(&mut events, &mut dropped);
        assert_eq!((events.len(), dropped), (EVENTS_A_TURN_MAX + 1, 7));
    }

    #[test]
    fn a_connection_that_is_denied_is_reported_once_a_second_with_how_often() {
        let mut denials = Denials::default();
        assert_eq!(denials.count(5), Some(1));
        for us in 6..1005 {
            assert_eq!(denials.count(us), None);
        }
        assert_eq!(denials.count(5 + DENIED_EVERY_US), Some(1000));
    }
}
