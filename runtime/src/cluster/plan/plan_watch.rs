//! The thread that watches the home of the plan: it takes what is new and sound, refuses the rest
//! by name, and keeps a thread for the links to each other node of the plan. What a node has made
//! of the plan by a swap is taken here, too, on the thread of the swap.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use tracing::{error, info, warn};

use crate::cluster::plan::file::ClusterFile;
use crate::cluster::plan::home::{HomeError, PlanHome, Revision, StoredPlan, Swapped, Watched};
use crate::cluster::plan::judge::{Refusal, judge};
use crate::cluster::plan::kept_plan::keep;
use crate::cluster::plan::renewing::renewals;
use crate::cluster::plan::wished::renewed;
use crate::cluster::{Delivery, NodePlan, RETRY, Reread, Shared, dial, relay};
use crate::stats::{FailoverInForce, PlanInForce, RefusalReason};

/// A home that has not answered for so long is told of.
const SILENCE: Duration = Duration::from_secs(1);
/// Between two tries while the home does not answer, at most.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Between two looks at how often this node has started in the generations of what it writes.
const RENEWAL: Duration = Duration::from_secs(1);

/// The thread that connects to each node.
type Dialed = BTreeMap<u8, JoinHandle<()>>;

/// What the thread knows of the home.
struct Seen {
    /// What the home had when it was looked at last; `None` before that.
    revision: Option<Revision>,
    /// Since when it does not answer.
    silent_since: Option<Instant>,
    is_silence_reported: bool,
    /// What is told of a home without a plan is told once.
    is_gone: bool,
}

/// Watches until it is over.
pub(in crate::cluster) fn watch(
    shared: &Arc<Shared>,
    plan: &NodePlan,
    mut home: Box<dyn PlanHome>,
    reread: &Reread,
) {
    let file = shared.file();
    shared.stats.plan.take(in_force(&file));
    if plan.place.is_ordered() {
        keep_plan(plan, &file.text);
    }
    let mut seen = Seen {
        revision: None,
        silent_since: None,
        is_silence_reported: false,
        is_gone: false,
    };
    let mut dialing: Dialed = BTreeMap::new();
    let mut relaying: Dialed = BTreeMap::new();
    let mut renewed_at = Instant::now();
    while !shared.is_over.load(Ordering::Relaxed) {
        keep_dialing(shared, &mut dialing, ("penstock-dial", dial));
        if shared.relay.is_on() {
            keep_dialing(shared, &mut relaying, ("penstock-relay", relay::dial));
        }
        let is_asked = reread.take();
        let before = shared.file();
        let watched = poll(home.as_mut(), &seen, is_asked);
        seen.note_answer(shared, plan, &watched, is_asked);
        match watched {
            Ok(Watched::Changed(stored)) => {
                seen.is_gone = false;
                seen.revision = take(shared, plan, &before, stored, is_asked);
                if seen.revision.is_none() && is_asked {
                    reread.ask();
                }
            }
            Ok(Watched::Gone) => {
                shared.leases.forget_home();
                if !std::mem::replace(&mut seen.is_gone, true) || is_asked {
                    shared.stats.plan.refuse(RefusalReason::Gone);
                    warn!(
                        "{}: there is none any more; what it said before holds",
                        plan.place
                    );
                }
                std::thread::sleep(RETRY);
            }
            Ok(Watched::Same) if seen.is_gone => {
                seen.is_gone = false;
                shared.stats.plan.refuse_no_more();
            }
            Ok(Watched::Same) => {
                if plan.place.is_ordered() && renewed_at.elapsed() >= RENEWAL {
                    renewed_at = Instant::now();
                    renew(shared, plan, home.as_mut(), &seen);
                }
            }
            Err(_) => std::thread::sleep(seen.pause()),
        }
    }
    for thread in dialing.into_values().chain(relaying.into_values()) {
        let _ = thread.join();
    }
}

/// Looks at the home: for a while, or at once if somebody asks, or if nothing was seen there yet.
fn poll(home: &mut dyn PlanHome, seen: &Seen, is_asked: bool) -> Result<Watched, HomeError> {
    match &seen.revision {
        Some(known) if !is_asked => home.watch(known, RETRY),
        _ => Ok(home.load()?.map_or(Watched::Gone, Watched::Changed)),
    }
}

impl Seen {
    /// Notes whether the home answers, and tells of a silence and its end.
    fn note_answer(
        &mut self,
        shared: &Shared,
        plan: &NodePlan,
        watched: &Result<Watched, HomeError>,
        is_asked: bool,
    ) {
        let Err(error) = watched else {
            self.silent_since = None;
            shared.stats.plan.note_home(true);
            if std::mem::take(&mut self.is_silence_reported) {
                info!("{} answers again", plan.place);
            }
            return;
        };
        shared.stats.plan.fail();
        let since = *self.silent_since.get_or_insert_with(Instant::now);
        let is_long = since.elapsed() >= SILENCE;
        if is_long {
            shared.stats.plan.note_home(false);
        }
        if is_asked || (is_long && !std::mem::replace(&mut self.is_silence_reported, true)) {
            warn!("{}: {error}; what it said before holds", plan.place);
        }
    }

    /// Longer after longer silences.
    fn pause(&self) -> Duration {
        let silent = self.silent_since.map_or(Duration::ZERO, |it| it.elapsed());
        (silent / 4).clamp(RETRY / 2, PAUSE_MAX)
    }
}

/// Takes what the home has, unless it is refused. What is not new is taken if somebody asks.
/// `seen_by` was in force when the home was looked at: if another plan is by now, what was seen
/// may be older than that, and `None` says that the home is to be looked at again.
pub(in crate::cluster) fn take(
    shared: &Shared,
    plan: &NodePlan,
    seen_by: &Arc<ClusterFile>,
    stored: StoredPlan,
    is_asked: bool,
) -> Option<Revision> {
    let one_at_a_time = shared.taking.lock();
    let _one_at_a_time = one_at_a_time.unwrap_or_else(PoisonError::into_inner);
    let before = shared.file();
    if !Arc::ptr_eq(&before, seen_by) {
        return None;
    }
    let revision = stored.revision;
    if stored.text == before.text && !is_asked {
        shared.leases.note_home(before, revision.clone());
        shared.stats.plan.refuse_no_more();
        return Some(revision);
    }
    match judge(&plan.place, &stored.text, &before) {
        Ok(file) => {
            // Before anybody acts by it: a start is not to go back behind it.
            if plan.place.is_ordered() {
                keep_plan(plan, &file.text);
            }
            put_in_force(shared, plan, &before, file, &revision);
        }
        Err(Refusal { reason, text }) => {
            shared.leases.forget_home();
            shared.stats.plan.refuse(reason);
            match reason {
                RefusalReason::WentBack => error!("{text}; the last plan holds"),
                _ => warn!("{text}; what it said before holds"),
            }
        }
    }
    Some(revision)
}

/// Asks the home for the next generation of what this node writes, if its starts in the present one
/// come to an end. The plan that the home shows tells what became of it.
fn renew(shared: &Shared, plan: &NodePlan, home: &mut dyn PlanHome, seen: &Seen) {
    let (file, me) = (shared.file(), shared.me.node);
    let cores = shared.stats.replication();
    let statuses = cores.iter().flat_map(|core| &core.partitions);
    let (Some(partitions), Some(revision)) = (renewals(&file, me, statuses), &seen.revision) else {
        return;
    };
    let now = SystemTime::now();
    let place = &plan.place;
    // A plan that was refused is not the one in force: this text would take its place unseen.
    let is_in_force = shared.stats.plan.read().refused.is_none();
    let text = match renewed(&file.text, file.revision, &partitions, me, now) {
        Ok(text) if is_in_force => text,
        Ok(_) => return,
        Err(error) => return warn!("{place}: no next generation for this node: {error}"),
    };
    match home.compare_and_swap(Some(revision), &text) {
        Ok(Swapped::Done(_)) => info!(
            "{place}: this node has started often in one generation, and goes on in the next one"
        ),
        // The other change is read first.
        Ok(Swapped::Conflict(_)) => {}
        Err(error) => warn!("{place}: no next generation for this node yet: {error}"),
    }
}

fn put_in_force(
    shared: &Shared,
    plan: &NodePlan,
    before: &ClusterFile,
    file: ClusterFile,
    revision: &Revision,
) {
    let place = &plan.place;
    if !file.node_secret().is_same(&shared.secret) {
        warn!("{place}: another secret counts at the next start of this node");
    }
    let me = shared.me.node;
    match (file.node(me), before.node(me)) {
        (None, _) => warn!(
            "{place}: node {me}, which is this one, is not in it any more: it answers nobody and \
             may be stopped"
        ),
        (Some(now), Some(then)) if now.links != then.links => warn!(
            links = %now.links,
            "{place}: links = {} of this node counts at its next start",
            now.links
        ),
        _ => {}
    }
    match file.changed.by.is_empty() {
        true => info!("{place} is read anew"),
        false => info!(
            revision = file.revision,
            "{place} is read anew: revision {}, changed at {} by {}",
            file.revision,
            file.changed.at,
            file.changed.by
        ),
    }
    shared.stats.plan.take(in_force(&file));
    let plan = Arc::new(file.plan());
    let file = Arc::new(file);
    // Before the shards hear of it: with this plan they never see what an older one was judged by.
    let home = (Arc::clone(&file), revision.clone());
    shared.leases.take_plan(file.failover_plan(), Some(home));
    *shared.file.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&file);
    (shared.deliver)(Delivery::Plan(plan, file));
}

fn in_force(file: &ClusterFile) -> PlanInForce {
    PlanInForce {
        revision: file.revision,
        changed_at: file.changed.at.clone(),
        changed_by: file.changed.by.clone(),
        generation_max: file
            .assignments
            .iter()
            .map(|it| it.generation)
            .max()
            .unwrap_or(0),
        failover: file.failover.is_on().then(|| FailoverInForce {
            is_paused: file.failover.is_paused,
            lease_ms: file.failover.rules.lease_us() / 1000,
            grace_ms: file.failover.rules.grace_us() / 1000,
            min_sync: file.failover.min_sync,
        }),
    }
}

fn keep_plan(plan: &NodePlan, text: &str) {
    if let Err(error) = keep(&plan.directory, text) {
        warn!(
            "{}: PLAN cannot be written: {error}; a start may take an older plan for the newest",
            plan.directory.display()
        );
    }
}

/// Keeps a thread of this name for each other node of the plan. That of a node that left has ended.
fn keep_dialing(
    shared: &Arc<Shared>,
    dialing: &mut Dialed,
    (name, dial): (&str, fn(&Arc<Shared>, u8)),
) {
    dialing.retain(|_, thread| !thread.is_finished());
    for node in &shared.file().nodes {
        let number = node.number;
        if number == shared.me.node || dialing.contains_key(&number) {
            continue;
        }
        let dials = Arc::clone(shared);
        let spawned = std::thread::Builder::new()
            .name(name.into())
            .spawn(move || dial(&dials, number));
        match spawned {
            Ok(thread) => drop(dialing.insert(number, thread)),
            Err(error) => shared.complain(&format!(
                "no links to node {number}: a thread for it cannot be started: {error}"
            )),
        }
    }
}
