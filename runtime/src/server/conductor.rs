//! The life of all cores together: opened, ready, stopped, gone.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tracing::{info, warn};

use super::cores::Cores;
use super::error::ServeError;
use super::health::{Health, Phase, clock_behind_text};
use super::messages::{Letter, Report};
use super::supervisor::Supervisor;
use crate::config::Config;
use crate::config::exposure::Exposed;
use crate::directory::Progress;
use crate::startup::clock_check::Time;
use crate::system::lines::print_line;
use crate::tls::ServedByPort;

/// How often a start tells how far it has come.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// How often the files of the certificate are looked at.
const CERTIFICATE_EVERY: Duration = Duration::from_secs(1);

/// How often a clock that is behind the time of the store is warned of.
const CLOCK_EVERY: Duration = Duration::from_secs(600);

/// What a start tells when it is done.
pub(super) struct Start<'a> {
    pub(super) began: Instant,
    pub(super) progress: &'a Progress,
    pub(super) config: &'a Config,
    pub(super) shared: SocketAddr,
    pub(super) own_ports: &'a [u16],
    /// The address for clients of Redis, and the ports of the cores, if they have any.
    pub(super) resp: Option<(SocketAddr, Vec<u16>)>,
    pub(super) tls: &'a ServedByPort,
    pub(super) open_to_anyone: &'a [Exposed],
    pub(super) io: &'a str,
}

/// Follows the cores through their life.
pub(super) struct Conductor<'a> {
    cores: &'a Cores,
    start: Start<'a>,
    health: &'a Health,
    supervisor: &'a Supervisor,
    /// How many cores have come so far.
    opened: usize,
    /// The newest time in their logs, in unix milliseconds.
    log_ms: u64,
    ready: usize,
    stopped: usize,
    gone: usize,
    is_stopping: bool,
    /// When the progress was told last.
    reported_at: Instant,
    /// When the files of the certificate were looked at last.
    checked_at: Instant,
    /// When the clock was warned of last.
    warned: Option<Instant>,
}

impl<'a> Conductor<'a> {
    pub(super) fn new(
        cores: &'a Cores,
        start: Start<'a>,
        health: &'a Health,
        supervisor: &'a Supervisor,
    ) -> Self {
        Conductor {
            cores,
            start,
            health,
            supervisor,
            opened: 0,
            log_ms: 0,
            ready: 0,
            stopped: 0,
            gone: 0,
            is_stopping: false,
            reported_at: Instant::now(),
            checked_at: Instant::now(),
            warned: None,
        }
    }

    /// Follows the reports of the cores to the end. When every core is open, calls `take_time` with
    /// the newest time of all logs until the time of the machine is taken, then `all_open` once.
    pub(super) fn conduct(
        mut self,
        reports: &flume::Receiver<Report>,
        mut take_time: impl FnMut(u64) -> Result<Time, ServeError>,
        all_open: impl FnOnce() -> Result<(), ServeError>,
    ) -> Result<(), ServeError> {
        let mut all_open = Some(all_open);
        let pause = self.supervisor.feeds_every().unwrap_or(PROGRESS_EVERY);
        let pause = pause.min(PROGRESS_EVERY);
        loop {
            self.supervisor.feed(self.health);
            self.check_certificates();
            self.check_clock();
            if self.opened == self.cores.count()
                && let Some(open) = all_open.take()
            {
                match take_time(self.log_ms)? {
                    Time::Taken => open()?,
                    Time::Awaited if self.is_stopping => {
                        info!("stopped: nothing was served");
                        return Ok(());
                    }
                    Time::Awaited => all_open = Some(open),
                }
            }
            match reports.recv_timeout(pause) {
                Err(flume::RecvTimeoutError::Disconnected) => return Ok(()),
                Err(flume::RecvTimeoutError::Timeout) => self.report_progress(),
                Ok(Report::Opened {
                    shard,
                    text,
                    log_ms,
                }) => {
                    print_line!("{:<12} {text}", format!("shard {shard}"));
                    self.opened += 1;
                    self.log_ms = self.log_ms.max(log_ms);
                }
                Ok(Report::Ready) => {
                    self.ready += 1;
                    if self.ready == self.cores.count() {
                        self.serve();
                    }
                }
                Ok(Report::Refused(error)) => return Err(error),
                Ok(Report::Fatal(text)) => return Err(ServeError::Failed(text)),
                Ok(Report::Damaged(text)) => return Err(ServeError::Damaged(text)),
                // From the signal watcher before the stop, from the cores during it.
                Ok(Report::Stopped) if !self.is_stopping => self.stop(),
                Ok(Report::Stopped) => {
                    self.stopped += 1;
                    if self.stopped == self.cores.count() {
                        self.cores.post(|| Letter::Leave);
                    }
                }
                Ok(Report::Gone) => {
                    self.gone += 1;
                    if self.gone == self.cores.count() {
                        print_line!("stopped      everything acknowledged is durable");
                        info!("stopped: everything acknowledged is durable");
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Tells how far a start has come, once in a while.
    fn report_progress(&mut self) {
        if self.opened < self.cores.count() && self.reported_at.elapsed() >= PROGRESS_EVERY {
            self.reported_at = Instant::now();
            let percent = self.start.progress.percent();
            info!(percent, "startup {percent} %");
            self.supervisor.starting(percent);
        }
    }

    /// Has certificates that were changed take effect.
    fn check_certificates(&mut self) {
        if self.checked_at.elapsed() < CERTIFICATE_EVERY {
            return;
        }
        self.checked_at = Instant::now();
        for (_, tls) in self.start.tls.each() {
            if let Some(change) = tls.read_changed() {
                change.log();
            }
        }
    }

    /// Warns of a clock that is behind the time of the store, once in a while as long as it is.
    fn check_clock(&mut self) {
        if self.warned.is_some_and(|at| at.elapsed() < CLOCK_EVERY) {
            return;
        }
        if let Some(ms) = self.health.clock_behind_ms() {
            self.warned = Some(Instant::now());
            warn!(ahead_ms = ms, "{}", clock_behind_text(ms));
        }
    }

    /// Every core answers.
    fn serve(&self) {
        let Start {
            began,
            progress,
            config,
            shared,
            own_ports,
            resp,
            tls,
            open_to_anyone,
            io,
        } = &self.start;
        print_line!(
            "start        {} ms, {} bytes of segments and snapshots read",
            began.elapsed().as_millis(),
            progress.bytes()
        );
        let ports: Vec<String> = own_ports.iter().map(u16::to_string).collect();
        print_line!(
            "listening    {shared} (every shard), ports {} (one each)",
            ports.join(" ")
        );
        if let Some((resp, ports)) = resp {
            let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
            match ports.is_empty() {
                true => print_line!("resp         {resp} (clients of Redis)"),
                false => print_line!(
                    "resp         {resp} (clients of Redis), ports {} (one core each)",
                    ports.join(" ")
                ),
            }
        }
        if tls.clients.is_some() {
            print_line!("tls          1.3 alone, on the ports of clients");
        }
        if !open_to_anyone.is_empty() {
            let named: Vec<String> = open_to_anyone.iter().map(Exposed::to_string).collect();
            let named = named.join(", ");
            print_line!("insecure     whoever reaches these may use them: {named}");
            warn!("insecure: whoever reaches these may use them: {named}");
        }
        print_line!(
            "acks         {} by default; interval loses at most {} ms",
            config.durability.name(),
            config.interval_ms
        );
        self.health.enter(Phase::Serving);
        self.supervisor.ready();
        print_line!("ready");
        info!(
            version = env!("CARGO_PKG_VERSION"),
            shards = self.cores.count(),
            listen = %shared,
            io,
            data = %config.data.display(),
            start_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
            read_bytes = progress.bytes(),
            "ready"
        );
    }

    /// Begins the clean stop.
    fn stop(&mut self) {
        self.is_stopping = true;
        self.health.enter(Phase::Stopping);
        self.supervisor.stopping();
        print_line!("stopping     no more requests; making everything durable");
        info!("stopping: no more requests; making everything durable");
        self.cores.post(|| Letter::Stop);
    }
}
