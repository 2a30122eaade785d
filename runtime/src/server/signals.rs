//! Signals: the clean stop, the reload, and those that do nothing.
//!
//! SIGTERM and SIGINT ask for the clean stop, and a second one does not wait for it. SIGHUP reloads
//! what a running server can take anew. SIGUSR1 and SIGUSR2 do nothing: their default would end the
//! process, and other servers open their log by them. SIGPIPE is ignored by the standard library.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::{Handle, Signals};
use tracing::{error, info, warn};

use crate::cluster::Reread;
use crate::cluster::plan::home::PlanPlace;
use crate::schema::RunningSchema;
use crate::server::logging::Logging;
use crate::system::lines;
use crate::tls::{Change, ServedByPort};

use super::audit::Audit;
use super::cores::DeliverSchema;
use super::supervisor::Supervisor;

/// What SIGHUP reloads.
pub(super) struct Reload {
    pub(super) logging: Logging,
    /// The certificates, if there are ports that speak TLS.
    pub(super) tls: ServedByPort,
    pub(super) audit: Audit,
    /// The home of the plan, if this is a node of a cluster.
    pub(super) plan: Option<(PlanPlace, Reread)>,
    /// The schema, if there is one, and who gets the next one.
    pub(super) schema: Option<(Arc<RunningSchema>, DeliverSchema)>,
    pub(super) supervisor: Arc<Supervisor>,
}

impl Reload {
    fn run(&self) {
        self.supervisor.reloading();
        if let Err(error) = self.audit.reopen() {
            warn!("SIGHUP: {error}; the audit log goes on in the file of before");
        }
        self.audit.report("reload", &[]);
        let log = self.logging.reopen();
        let problem = log.as_ref().err();
        let problem =
            problem.map(|error| format!("SIGHUP: {error}; the log goes on in the file of before"));
        if let Some(problem) = &problem {
            warn!("{problem}");
            // The file of before may be one that nobody reads any more.
            lines::error(format_args!("penstock: {problem}"));
        }
        if let Some((_, reread)) = &self.plan {
            reread.ask();
        }
        let schema = self.read_schema();
        let certificate = self.read_certificates();
        let plan = self.plan.as_ref().map(|(place, _)| describe(place));
        let read = [&schema, &certificate].map(|it| it.as_ref().and_then(|it| it.as_deref().ok()));
        if log.is_ok() || plan.is_some() || read.iter().any(Option::is_some) {
            let has_defect = schema.is_some() || certificate.is_some();
            info!("{}", text(log.unwrap_or(None), plan, read, has_defect));
        }
        let defect = schema.and_then(Result::err);
        let defect = defect.or(certificate.and_then(Result::err));
        self.supervisor.reloaded(problem.or(defect).as_deref());
    }

    /// Reads the files of all certificates anew. An error is that of the first that is refused.
    fn read_certificates(&self) -> Option<Result<String, String>> {
        let mut outcome: Option<Result<String, String>> = None;
        for (_, tls) in self.tls.each() {
            let read = match tls.read_anew() {
                Change::Refused(text) => {
                    error!("SIGHUP: {text}");
                    Err(text)
                }
                Change::Taken(text) => Ok(text),
            };
            outcome = Some(match (outcome, read) {
                (Some(Ok(before)), Ok(text)) => Ok(format!("{before}, {text}")),
                (Some(Err(before)), _) => Err(before),
                (_, read) => read,
            });
        }
        outcome
    }

    /// Reads the files of the schema anew; what is sound is served from now on, and told. What is
    /// not is told with every defect, and what is in force stays.
    fn read_schema(&self) -> Option<Result<String, String>> {
        let (running, deliver) = self.schema.as_ref()?;
        let directory = running.directory().display();
        match running.read_anew() {
            Ok(served) => {
                let programs = served.programs.len();
                deliver(served);
                let text = format!("the schema in {directory} is read anew, {programs} programs");
                Some(Ok(text))
            }
            Err(error) => {
                let text = format!(
                    "SIGHUP: the schema in {directory} is not used, and the one of before stays"
                );
                warn!("{text}");
                for defect in error.to_string().lines() {
                    warn!("{defect}");
                }
                Some(Err(text))
            }
        }
    }
}

/// What comes of the plan, for people.
fn describe(place: &PlanPlace) -> String {
    match place {
        PlanPlace::File(path) => {
            format!("the cluster's file {} will be read anew", path.display())
        }
        PlanPlace::Etcd { .. } => format!("{place} will be read anew"),
    }
}

/// What SIGHUP does, for people: `read` says what is read by now. `is_more`: something else is to
/// be read, and what is wrong with it was told.
fn text(
    log: Option<&Path>,
    plan: Option<String>,
    read: [Option<&str>; 2],
    is_more: bool,
) -> String {
    let log = log.map(|path| format!("the log file {} is opened anew", path.display()));
    let [schema, certificate] = read.map(|it| it.map(str::to_string));
    let done = [log, plan, schema, certificate].into_iter().flatten();
    let done: Vec<String> = done.collect();
    match done.is_empty() {
        true if is_more => "SIGHUP: nothing is reloaded; options count at the next start".into(),
        true => "SIGHUP: nothing to reload: there is no log file and no cluster; options count at \
            the next start"
            .into(),
        false => format!(
            "SIGHUP: {}; options count at the next start",
            done.join(", ")
        ),
    }
}

/// Signals are caught from here on, and wait until somebody watches.
pub(super) struct Caught(Signals);

impl Caught {
    pub(super) fn new() -> io::Result<Caught> {
        Signals::new([SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2]).map(Caught)
    }

    /// Watches on a thread of its own. `stop` asks for the clean stop; it returns whether anybody
    /// heard.
    pub(super) fn watch(
        mut self,
        reload: Reload,
        stop: impl Fn() -> bool + Send + 'static,
    ) -> io::Result<Watcher> {
        let handle = self.0.handle();
        let watch = move || {
            let logging = reload.logging.clone();
            let mut is_stopping = false;
            for signal in self.0.forever() {
                match signal {
                    SIGHUP => reload.run(),
                    SIGUSR1 | SIGUSR2 => info!(signal, "signal {signal} does nothing"),
                    _ if std::mem::replace(&mut is_stopping, true) || !stop() => {
                        warn!(
                            "second signal, leaving without the clean stop; the next start recovers"
                        );
                        logging.flush();
                        std::process::exit(130);
                    }
                    _ => {}
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("penstock-signal".into())
            .spawn(watch)?;
        Ok(Watcher { handle, thread })
    }
}

/// The thread that watches for signals.
pub(super) struct Watcher {
    handle: Handle,
    thread: JoinHandle<()>,
}

impl Watcher {
    /// Signals do nothing from here on.
    pub(super) fn close(self) {
        self.handle.close();
        let _ = self.thread.join();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reload_names_what_is_reloaded_and_what_is_not() {
        let (log, plan) = (Path::new("/l"), describe(&PlanPlace::File("/c".into())));
        assert_eq!(
            text(Some(log), Some(plan.clone()), [None; 2], false),
            "SIGHUP: the log file /l is opened anew, the cluster's file /c will be read anew; \
             options count at the next start"
        );
        let of_cluster = text(None, Some(plan), [None; 2], false);
        assert!(of_cluster.starts_with("SIGHUP: the cluster's file /c will"));
        assert!(text(None, None, [None; 2], false).starts_with("SIGHUP: nothing to reload"));
        let of_schema = text(
            None,
            None,
            [Some("the schema"), Some("the certificate")],
            true,
        );
        assert!(of_schema.starts_with("SIGHUP: the schema, the certificate; options"));
        assert!(text(None, None, [None; 2], true).starts_with("SIGHUP: nothing is reloaded"));
    }
}
