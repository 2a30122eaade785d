//! One connection for heartbeats, from its proof to its end.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use penstock_net::link::{LinkMessage, RefusalCode};
use penstock_shard::replication::link_set::not_named;
use penstock_shard::replication::receiver::LinkRefusal;

use crate::cluster::leases::{Connected, Leases};
use crate::cluster::links::blocking_line::{BlockingLine, LineEnd};

/// What a connection is served by.
pub(crate) struct Serving<'a> {
    pub(crate) leases: &'a Leases,
    pub(crate) is_over: &'a AtomicBool,
    /// Whether the plan in force names the other node.
    pub(crate) is_named: &'a dyn Fn() -> bool,
}

/// Why a connection was served no longer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// A newer one counts, the plan has no failover any more, or the process ends.
    Over,
    /// No frame came for the grace.
    Silent(Duration),
    Line(LineEnd),
}

impl From<LineEnd> for End {
    fn from(end: LineEnd) -> End {
        End::Line(end)
    }
}

/// For people.
impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Over => f.write_str("it is over"),
            End::Silent(grace) => write!(f, "nothing has come for {} ms", grace.as_millis()),
            End::Line(end) => end.fmt(f),
        }
    }
}

impl Serving<'_> {
    /// Sends and answers heartbeats until the connection ends.
    pub(crate) fn serve(&self, connected: Connected, line: &mut BlockingLine) -> End {
        let end = self.run(connected, line);
        self.leases.disconnect(connected);
        end
    }

    fn run(&self, connected: Connected, line: &mut BlockingLine) -> End {
        let mut last_received = Instant::now();
        let mut due = last_received;
        let mut sent_changes = None;
        loop {
            if self.is_over.load(Ordering::Relaxed) {
                return End::Over;
            }
            if !(self.is_named)() {
                return line.refuse(not_named(connected.node)).into();
            }
            let Some(pulse) = self.leases.pulse(connected) else {
                return End::Over;
            };
            let now = Instant::now();
            let grace = Duration::from_micros(pulse.rules.grace_us());
            if now.duration_since(last_received) >= grace {
                return End::Silent(grace);
            }
            if now >= due || sent_changes != Some(pulse.changes) {
                sent_changes = Some(pulse.changes);
                let beat = Duration::from_micros(pulse.rules.beat_us());
                // By the schedule, but for one that it is behind of.
                due = (due + beat).max(now + beat / 2);
                self.leases.beat(connected, line.outgoing());
                if let Err(end) = line.flush() {
                    return end.into();
                }
            }
            match self.take(connected, line) {
                Ok(0) => {}
                Ok(_) => last_received = Instant::now(),
                Err(end) => return end.into(),
            }
        }
    }

    /// Takes what comes for a moment; how many frames that was.
    fn take(&self, connected: Connected, line: &mut BlockingLine) -> Result<u64, LineEnd> {
        line.receive()?;
        let taken = line.frames(|message, out| match message {
            LinkMessage::Heartbeat(heartbeat) => {
                self.leases.answer_heartbeat(connected, heartbeat, out);
                Ok(())
            }
            LinkMessage::Confirm(confirm) => {
                self.leases.confirmed(connected, confirm);
                Ok(())
            }
            other => Err(LinkRefusal {
                code: RefusalCode::Order,
                text: format!("{} has no place among heartbeats", other.name()),
            }),
        })?;
        line.flush()?;
        Ok(taken)
    }
}
