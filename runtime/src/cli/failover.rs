//! `penstock cluster failover`, `pause` and `resume`: whether nodes decide by themselves.

use std::io::Write;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use penstock::cluster::plan::placement::{Draft, FailoverSettings, FailoverStep};
use penstock_net::link::message::LINK_PARTITIONS;

use super::Failure;
use super::membership::check_written;
use super::output::{Output, PLAN_CHANGED};
use super::partitions::ANSWER;
use super::plan_home::HomeArgs;
use super::server::ServerAddress;
use super::status::info_of;

/// Examples of `penstock cluster failover`.
pub const FAILOVER_EXAMPLES: &str = "\
With failover on, a node of the sync set takes the place of a primary that is silent for --grace-ms,
a member that is silent for half of --lease-ms leaves the sync set, and a node that is back enters
it again. The plan must be in etcd. What is not named stays as it is; the first values are 1600,
2000 and 0. The grace is at least 5/4 of the lease and at most 60000; a lease that is named alone
gets the shortest grace. Where both change, the command takes two steps
and waits in between until each node has read the first one; all nodes must answer.

Examples:
  penstock cluster failover on --etcd-endpoints http://10.0.0.1:2379
  penstock cluster failover on --lease-ms 400 --grace-ms 500
  penstock cluster failover off";

/// Examples of `penstock cluster pause` and `resume`.
pub const PAUSE_EXAMPLES: &str = "\
While it is paused no node takes over and none enters a sync set. Leases go on, and a primary still
removes members that are silent. `penstock cluster switch` and `promote` work.

Examples:
  penstock cluster pause --etcd-endpoints http://10.0.0.1:2379
  penstock cluster resume --etcd-endpoints http://10.0.0.1:2379";

/// On or off.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

/// Arguments of `penstock cluster failover`.
#[derive(Args)]
pub struct FailoverArgs {
    /// Whether nodes replace a lost one by themselves
    #[arg(value_name = "on|off")]
    switch: Switch,
    #[command(flatten)]
    home: HomeArgs,
    /// How long a primary may serve by one heartbeat, in milliseconds: 200 to 10000
    #[arg(long, value_name = "N")]
    lease_ms: Option<u64>,
    /// How long members wait behind a heartbeat before one takes over, in milliseconds
    #[arg(long, value_name = "N")]
    grace_ms: Option<u64>,
    /// A primary removes silent members only down to so many
    #[arg(long, value_name = "N")]
    min_sync: Option<usize>,
    /// Take one step in the plan, and ask no node
    #[arg(long)]
    no_wait: bool,
    /// Longest wait until each node acts by the plan, in milliseconds
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    wait_ms: u32,
}

impl FailoverArgs {
    /// Changes the plan.
    pub fn run(self) -> Result<(), Failure> {
        let mut out = Output::stdout();
        let until = Instant::now() + Duration::from_millis(self.wait_ms.into());
        let mut made = "nothing was changed";
        // The whole way takes two steps at most, and a look that there is none left.
        for _ in 0..3 {
            let mut draft = self.home.draft()?;
            let before = draft.failover();
            let step = draft
                .set_failover(self.wanted(before))
                .map_err(Failure::usage)?;
            let is_read_first = match step {
                FailoverStep::Nothing => break,
                FailoverStep::Whole { is_read_first } => is_read_first,
                FailoverStep::Half => true,
            };
            if is_read_first && !self.no_wait {
                until_read(&draft, until, made)?;
            }
            // A node that waits for the end of the lease of another one would begin at once.
            if before.is_on && self.switch == Switch::Off && !self.no_wait {
                check_written(&draft, (0, LINK_PARTITIONS - 1), ANSWER)?;
            }
            let settings = draft.failover();
            draft.write().map_err(Failure::usage)?;
            out.done(PLAN_CHANGED);
            if step != FailoverStep::Half {
                if !self.no_wait {
                    until_acted_by(&self.home, until, &mut out)?;
                }
                out.line(format_args!("{}", describe(&settings)));
                return out.finish();
            }
            let FailoverSettings {
                lease_ms, grace_ms, ..
            } = settings;
            out.line(format_args!(
                "first step: lease_ms = {lease_ms}, grace_ms = {grace_ms}"
            ));
            if self.no_wait {
                out.line(format_args!(
                    "give the command again when each node has read the plan"
                ));
                return out.finish();
            }
            made = "the first step is made; give the command again";
        }
        let settings = self.home.draft()?.failover();
        out.line(format_args!("{}, as before", describe(&settings)));
        out.finish()
    }

    fn wanted(&self, before: FailoverSettings) -> FailoverSettings {
        let lease_ms = self.lease_ms.unwrap_or(before.lease_ms);
        // A lease that is named alone has the shortest grace that it may have.
        let least_ms = self.lease_ms.map(|it| it.saturating_mul(5).div_ceil(4));
        FailoverSettings {
            is_on: self.switch == Switch::On,
            lease_ms,
            grace_ms: self.grace_ms.or(least_ms).unwrap_or(before.grace_ms),
            min_sync: self.min_sync.unwrap_or(before.min_sync),
            ..before
        }
    }
}

/// Sets whether failover is paused.
pub fn pause(home: &HomeArgs, is_paused: bool) -> Result<(), Failure> {
    let mut draft = home.draft()?;
    let before = draft.failover();
    if !before.is_on {
        return Err(Failure::usage(
            "failover is off, so there is nothing to pause: `penstock cluster failover on`",
        ));
    }
    let wanted = FailoverSettings {
        is_paused,
        ..before
    };
    let step = draft.set_failover(wanted).map_err(Failure::usage)?;
    let as_before = match step {
        FailoverStep::Nothing => ", as before",
        _ => "",
    };
    let mut out = Output::stdout();
    if step != FailoverStep::Nothing {
        draft.write().map_err(Failure::usage)?;
        out.done(PLAN_CHANGED);
        until_acted_by(home, Instant::now() + ACTED_BY, &mut out)?;
    }
    out.line(format_args!("{}{as_before}", describe(&wanted)));
    out.finish()
}

fn describe(settings: &FailoverSettings) -> String {
    let FailoverSettings {
        is_on,
        is_paused,
        lease_ms,
        grace_ms,
        min_sync,
    } = settings;
    let is = match (is_on, is_paused) {
        (false, _) => "off: a person decides who takes the place of a lost node",
        (true, true) => "paused: no node takes over, and none enters a sync set",
        (true, false) => "on",
    };
    match is_on {
        false => format!("failover is {is}"),
        true => format!(
            "failover is {is} (lease_ms = {lease_ms}, grace_ms = {grace_ms}, min_sync = \
             {min_sync})"
        ),
    }
}

/// Longest wait of `pause` and `resume` until nodes act by the plan.
const ACTED_BY: Duration = Duration::from_secs(10);

/// Waits until each node that answers acts by the plan that was just written. A node that does not
/// answer is told: it reads the plan when it is back.
fn until_acted_by(
    home: &HomeArgs,
    until: Instant,
    out: &mut Output<impl Write>,
) -> Result<(), Failure> {
    let draft = home.draft()?;
    let is_on = draft.failover().is_on;
    for node in draft.nodes() {
        let clients = draft.clients_of(node).map_err(Failure::usage)?;
        let server = ServerAddress::at(&clients).within(ANSWER);
        let cause = loop {
            let replication = match info_of(&server) {
                Ok(mut info) => info["replication"].take(),
                Err(failure) => break Some(format!("does not answer ({})", failure.line)),
            };
            let revision = replication["plan"]["revision"].as_u64().unwrap_or(0);
            if revision >= draft.revision() && replication["failover"].is_object() == is_on {
                break None;
            }
            if Instant::now() > until {
                break Some(format!("acts by revision {revision} still"));
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        if let Some(cause) = cause {
            out.line(format_args!(
                "node {node} {cause}: the plan has revision {}",
                draft.revision()
            ));
        }
    }
    Ok(())
}

/// Waits until each node acts by the plan that was read.
fn until_read(draft: &Draft, until: Instant, made: &str) -> Result<(), Failure> {
    for node in draft.nodes() {
        let clients = draft.clients_of(node).map_err(Failure::usage)?;
        let server = ServerAddress::at(&clients).within(ANSWER);
        loop {
            let acts_by = info_of(&server)
                .map(|info| info["replication"]["plan"]["revision"].as_u64())
                .map_err(|failure| failure.line);
            let cause = match acts_by {
                Ok(Some(revision)) if revision >= draft.revision() => break,
                Ok(revision) => format!("acts by revision {}", revision.unwrap_or(0)),
                Err(cause) => format!("does not answer ({cause})"),
            };
            if Instant::now() > until {
                return Err(Failure::no(format!(
                    "node {node} {cause}, and each node must have read revision {} before lease \
                     or grace change: {made}. A node that is gone for good is taken out by \
                     `penstock cluster drop`",
                    draft.revision()
                )));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    Ok(())
}
