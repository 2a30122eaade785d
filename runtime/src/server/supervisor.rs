//! The service manager that started this process, if one did and wants to hear (`NOTIFY_SOCKET`, as
//! systemd has it).

use std::sync::Mutex;
use std::time::{Duration, Instant};

use sd_notify::NotifyState;
use tracing::{error, warn};

use super::debug_sleep;
use super::health::Health;

/// The status of a server that serves.
const SERVING: &str = "serving";

/// Tells the service manager how the server is; does nothing without one.
pub(super) struct Supervisor {
    /// The service manager ends and restarts the server if it hears nothing for this long.
    watchdog: Option<Duration>,
    watch: Mutex<Watch>,
}

#[derive(Default)]
struct Watch {
    is_serving: bool,
    is_hanging: bool,
    fed: Option<Instant>,
}

impl Supervisor {
    /// The one that the environment of this process names.
    pub(super) fn of_process() -> Supervisor {
        Supervisor {
            watchdog: sd_notify::watchdog_enabled(),
            watch: Mutex::default(),
        }
    }

    /// How often [`Supervisor::feed`] is wanted at least, if at all.
    pub(super) fn feeds_every(&self) -> Option<Duration> {
        self.watchdog.map(|watchdog| watchdog / 4)
    }

    /// How far the start is.
    pub(super) fn starting(&self, percent: u64) {
        let status = format!("starting, {percent} %");
        notify(&[NotifyState::Status(&status)]);
    }

    /// The server serves.
    pub(super) fn ready(&self) {
        self.watch().is_serving = true;
        notify(&[NotifyState::Ready, NotifyState::Status(SERVING)]);
    }

    /// A reload begins.
    pub(super) fn reloading(&self) {
        // A start that is not ready must not be taken for ready at the end of a reload.
        if self.watch().is_serving
            && let Ok(now) = NotifyState::monotonic_usec_now()
        {
            notify(&[NotifyState::Reloading, now]);
        }
    }

    /// The reload is done, but for what `problem` tells. That stays in the status until the next
    /// reload.
    pub(super) fn reloaded(&self, problem: Option<&str>) {
        if self.watch().is_serving {
            let status = match problem {
                None => SERVING.into(),
                Some(problem) => format!("{SERVING}; {problem}"),
            };
            notify(&[NotifyState::Ready, NotifyState::Status(&status)]);
        }
    }

    /// The clean stop begins.
    pub(super) fn stopping(&self) {
        self.watch().is_serving = false;
        notify(&[
            NotifyState::Stopping,
            NotifyState::Status("making everything durable"),
        ]);
    }

    /// Feeds the watchdog if it is due and the loop of every shard turns. One that hangs is logged
    /// once.
    pub(super) fn feed(&self, health: &Health) {
        let Some(every) = self.feeds_every() else {
            return;
        };
        let mut watch = self.watch();
        let now = Instant::now();
        if watch.fed.is_some_and(|fed| now < fed + every) {
            return;
        }
        match health.live() {
            Err(_) if debug_sleep::is_under_way() => {
                watch.fed = Some(now);
                notify(&[NotifyState::Watchdog]);
            }
            Ok(()) => {
                watch.fed = Some(now);
                watch.is_hanging = false;
                notify(&[NotifyState::Watchdog]);
            }
            Err(standstill) => {
                if !std::mem::replace(&mut watch.is_hanging, true) {
                    error!("{standstill}: the watchdog of the service manager is not fed");
                }
            }
        }
    }

    fn watch(&self) -> std::sync::MutexGuard<'_, Watch> {
        self.watch
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        warn!(%error, "the service manager cannot be told of the server's state: {error}");
    }
}
