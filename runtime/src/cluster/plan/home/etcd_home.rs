//! The plan under one key of etcd.

use std::time::{Duration, Instant};

use crate::cluster::plan::home::{HomeError, PlanHome, Revision, StoredPlan, Swapped, Watched};
use crate::etcd::EtcdAccess;
use crate::etcd::answer::KeyValue;
use crate::etcd::gateway::{CallError, Gateway};

/// Between two looks of a watch.
const POLL_EVERY: Duration = Duration::from_millis(100);
/// How long a swap without an answer is asked again.
const SWAP: Duration = Duration::from_secs(2);
/// Between two such tries.
const RETRY: Duration = Duration::from_millis(50);

/// A key of etcd.
pub(crate) struct EtcdHome {
    gateway: Gateway,
    key: String,
}

impl EtcdHome {
    pub(crate) fn open(access: &EtcdAccess) -> Result<EtcdHome, String> {
        Ok(EtcdHome {
            gateway: Gateway::open(access)?,
            key: access.plan_key(),
        })
    }

    /// What the first endpoint that answers has: which etcd, and the key, of which `keys_only`
    /// leaves out the value.
    fn read_plan(&mut self, keys_only: bool) -> Result<(u64, Option<KeyValue>), HomeError> {
        let mut causes = Vec::new();
        // A kept connection may have been closed, so a single endpoint is asked twice.
        for _ in 0..self.gateway.endpoints().max(2) {
            match self.gateway.range(&self.key, keys_only) {
                Ok(range) => return Ok((range.cluster_id, range.found)),
                Err(error) => causes.push(error),
            }
        }
        self.gateway.read_files_anew();
        let text = causes_text(&causes);
        Err(match causes.iter().all(|it| it.is_definite) {
            true => HomeError::Refused(text),
            false => HomeError::Unavailable(text),
        })
    }
}

impl PlanHome for EtcdHome {
    fn load(&mut self) -> Result<Option<StoredPlan>, HomeError> {
        let (etcd, found) = self.read_plan(false)?;
        Ok(found.map(|found| stored(etcd, found)))
    }

    fn compare_and_swap(
        &mut self,
        expected: Option<&Revision>,
        text: &str,
    ) -> Result<Swapped, HomeError> {
        let expected = match expected {
            None => 0,
            Some(Revision::Key { modified, .. }) => *modified,
            Some(Revision::Digest(_)) => panic!("a revision of another home"),
        };
        let until = Instant::now() + SWAP;
        let mut causes = Vec::new();
        loop {
            match self.gateway.swap(&self.key, expected, text) {
                Ok(swap) => {
                    let etcd = swap.cluster_id;
                    let there = match swap.outcome {
                        Ok(modified) => {
                            return Ok(Swapped::Done(Revision::Key { etcd, modified }));
                        }
                        Err(there) => there.map(|found| stored(etcd, found)),
                    };
                    return Ok(match there {
                        // A try before this one was applied, and its answer was lost.
                        Some(plan) if !causes.is_empty() && plan.text == text => {
                            Swapped::Done(plan.revision)
                        }
                        there => Swapped::Conflict(there),
                    });
                }
                Err(error) => causes.push(error),
            }
            let is_refused = causes.iter().all(|it| it.is_definite);
            if is_refused && causes.len() >= self.gateway.endpoints() {
                return Err(HomeError::Refused(causes_text(&causes)));
            }
            if Instant::now() >= until {
                self.gateway.read_files_anew();
                return Err(HomeError::Unknown(causes_text(&causes)));
            }
            std::thread::sleep(RETRY);
        }
    }

    fn watch(&mut self, known: &Revision, longest: Duration) -> Result<Watched, HomeError> {
        let until = Instant::now() + longest;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            std::thread::sleep(left.min(POLL_EVERY));
            let (etcd, found) = self.read_plan(true)?;
            let revision = found.map(|found| found.mod_revision);
            let revision = revision.map(|modified| Revision::Key { etcd, modified });
            if revision.as_ref() != Some(known) {
                // It may be back by now.
                return Ok(match self.load()? {
                    None => Watched::Gone,
                    Some(plan) if plan.revision == *known => Watched::Same,
                    Some(plan) => Watched::Changed(plan),
                });
            }
            if left <= POLL_EVERY {
                return Ok(Watched::Same);
            }
        }
    }
}

fn stored(etcd: u64, found: KeyValue) -> StoredPlan {
    StoredPlan {
        // What is no text is no plan, and is told as such.
        text: String::from_utf8_lossy(&found.value).into_owned(),
        revision: Revision::Key {
            etcd,
            modified: found.mod_revision,
        },
    }
}

/// The last cause of each endpoint.
fn causes_text(causes: &[CallError]) -> String {
    let mut texts: Vec<&str> = Vec::new();
    for cause in causes.iter().rev() {
        if !texts.contains(&cause.text.as_str()) && texts.len() < 5 {
            texts.push(&cause.text);
        }
    }
    texts.reverse();
    texts.join("; ")
}
