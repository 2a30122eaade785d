//! The threads that decide: one looks each 20 ms, wishes for changes of the plan and keeps a thread
//! for the heartbeats with each other node; one makes the swaps, which may block.

use std::collections::BTreeMap;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use penstock_net::link::{HEARTBEAT_SHARD, RefusalCode};
use penstock_shard::lease::Wish;
use penstock_shard::replication::receiver::LinkRefusal;
use tracing::info;

use crate::cluster::leases::{End, Serving, Swap, line_of_heartbeats};
use crate::cluster::links::greeting::Greeted;
use crate::cluster::plan::home::{HomeError, PlanHome, StoredPlan, Swapped};
use crate::cluster::plan::plan_watch::take;
use crate::cluster::plan::wished::wished;
use crate::cluster::{NodePlan, RETRY, Shared};
use crate::stats::{Decided, DecidedLast, FailedSwap};

/// Between two looks.
const CHECK_EVERY: Duration = Duration::from_millis(20);
/// Behind a swap that failed. In that time a node that is back is granted its partitions again.
const PAUSE: Duration = Duration::from_millis(250);
/// Threads and the plan are looked at each so many looks.
const KEEP_EACH: u32 = 10;

/// Looks until it is over.
pub(crate) fn decide(shared: &Arc<Shared>, swaps: &flume::Sender<Swap>) {
    let mut dialing: BTreeMap<u8, JoinHandle<()>> = BTreeMap::new();
    let mut rounds = 0;
    while !shared.is_over.load(Ordering::Relaxed) {
        if rounds % KEEP_EACH == 0 {
            keep_leases(shared, &mut dialing);
        }
        rounds = rounds.wrapping_add(1);
        if let Some(swap) = shared.leases.next_swap()
            && swaps.try_send(swap).is_err()
        {
            // The thread of swaps has ended.
            shared.leases.swapped(PAUSE);
        }
        std::thread::sleep(CHECK_EVERY);
    }
    for thread in dialing.into_values() {
        let _ = thread.join();
    }
}

/// Makes the swaps that are wished for, until it is over.
pub(crate) fn swap(shared: &Shared, plan: &NodePlan, swaps: &flume::Receiver<Swap>) {
    let mut home = None;
    while !shared.is_over.load(Ordering::Relaxed) {
        let swap = match swaps.recv_timeout(RETRY) {
            Ok(swap) => swap,
            Err(flume::RecvTimeoutError::Timeout) => continue,
            Err(flume::RecvTimeoutError::Disconnected) => return,
        };
        let outcome = match open(&mut home, plan) {
            Ok(home) => make(shared, plan, home, &swap),
            Err(cause) => Err((FailedSwap::Unavailable, cause)),
        };
        let Err((outcome, cause)) = outcome else {
            shared.leases.swapped(Duration::ZERO);
            continue;
        };
        shared.stats.failover.fail(outcome);
        let what = format!("{}: {} is not made", plan.place, swap.wish);
        shared.complain_of(&what, &format!("{what}: {cause}"));
        if outcome != FailedSwap::Conflict
            && let Some(home) = &mut home
        {
            // While the home is asked for its plan, this node grants again what it wished to take
            // over, and wishes for nothing. That plan decides. The watch shows what comes later.
            shared.leases.swapped(Duration::MAX);
            if let Ok(Some(there)) = home.load() {
                take(shared, plan, &swap.file, there, false);
            }
        }
        shared.leases.swapped(PAUSE);
    }
}

fn open<'a>(
    home: &'a mut Option<Box<dyn PlanHome>>,
    plan: &NodePlan,
) -> Result<&'a mut dyn PlanHome, String> {
    if home.is_none() {
        *home = Some(plan.place.open()?);
    }
    Ok(home.as_mut().expect("it was opened").as_mut())
}

/// Makes one swap, and takes the plan that is known to be there behind it.
fn make(
    shared: &Shared,
    plan: &NodePlan,
    home: &mut dyn PlanHome,
    swap: &Swap,
) -> Result<(), (FailedSwap, String)> {
    let (before, me) = (&swap.file, shared.me.node);
    let text = wished(
        &before.text,
        before.revision,
        &swap.wish,
        me,
        SystemTime::now(),
    );
    // Nothing was asked for.
    let text = text.map_err(|error| (FailedSwap::Unavailable, error.to_string()))?;
    match home.compare_and_swap(Some(&swap.revision), &text) {
        Ok(Swapped::Done(revision)) => {
            info!(
                "{}: {} is made, revision {}",
                plan.place,
                swap.wish,
                before.revision + 1
            );
            take(shared, plan, before, StoredPlan { text, revision }, false);
            note(shared, swap);
            Ok(())
        }
        Ok(Swapped::Conflict(there)) => {
            if let Some(there) = there {
                take(shared, plan, before, there, false);
            }
            let cause = "the plan was changed meanwhile".into();
            Err((FailedSwap::Conflict, cause))
        }
        Err(error) => {
            let outcome = match error {
                HomeError::Unknown(_) => FailedSwap::Unknown,
                HomeError::Unavailable(_) | HomeError::Refused(_) => FailedSwap::Unavailable,
            };
            Err((outcome, error.to_string()))
        }
    }
}

/// Counts a change that this node has made.
fn note(shared: &Shared, swap: &Swap) {
    let decided = match swap.wish {
        Wish::TakeOver { .. } => Decided::Takeover,
        Wish::Remove { .. } => Decided::Removal,
        Wish::Join { .. } | Wish::Admit { .. } => Decided::Entry,
    };
    let now = humantime::format_rfc3339_seconds(SystemTime::now());
    let last = DecidedLast {
        revision: swap.file.revision + 1,
        at: now.to_string(),
        what: swap.wish.to_string(),
    };
    shared.stats.failover.decided(decided, last);
}

/// Keeps a thread for the heartbeats with each node that this one dials. That of a node which holds
/// nothing of what this one holds has ended.
fn keep_leases(shared: &Arc<Shared>, dialing: &mut BTreeMap<u8, JoinHandle<()>>) {
    dialing.retain(|_, thread| !thread.is_finished());
    let me = shared.me.node;
    for node in shared.leases.neighbours() {
        if node < me || dialing.contains_key(&node) {
            continue;
        }
        let dials = Arc::clone(shared);
        let spawned = std::thread::Builder::new()
            .name("penstock-lease".into())
            .spawn(move || dial(&dials, node));
        match spawned {
            Ok(thread) => drop(dialing.insert(node, thread)),
            Err(error) => shared.complain(&format!(
                "no heartbeats with node {node}: a thread for them cannot be started: {error}"
            )),
        }
    }
}

/// Keeps the connection for heartbeats to one node, as long as both hold a partition.
fn dial(shared: &Shared, node: u8) {
    crate::system::raise_priority();
    // The other node has shown no TLS, and links may do without.
    let mut is_plain = false;
    while !shared.is_over.load(Ordering::Relaxed) {
        let address = shared.file().node(node).map(|node| node.links);
        let Some(address) = address.filter(|_| shared.leases.neighbours().contains(&node)) else {
            return;
        };
        let began = Instant::now();
        match shared.connect((node, HEARTBEAT_SHARD), address, is_plain) {
            Ok((stream, greeted)) => {
                is_plain = false;
                serve(shared, Arc::new(stream), greeted, address, true);
            }
            Err(cause) => {
                let is_optional = shared.tls.as_ref().is_some_and(|tls| tls.is_optional);
                is_plain = !is_plain && cause.is_without_tls && is_optional;
                if is_plain {
                    continue;
                }
                shared.count(&cause);
                let cause = cause.text;
                shared.complain(&format!(
                    "no heartbeats with node {node} at {address}: {cause}"
                ));
            }
        }
        // One that ends as soon as it is made must not keep everybody busy.
        std::thread::sleep(RETRY.saturating_sub(began.elapsed()));
    }
}

/// Serves a connection for heartbeats that was taken, on a thread of its own.
pub(crate) fn serve_taken(
    shared: &Arc<Shared>,
    stream: TcpStream,
    greeted: Greeted,
    from: SocketAddr,
) {
    let serves = Arc::clone(shared);
    let spawned = std::thread::Builder::new()
        .name("penstock-lease".into())
        .spawn(move || {
            crate::system::raise_priority();
            serve(&serves, Arc::new(stream), greeted, from, false);
        });
    if let Err(error) = spawned {
        shared.complain(&format!(
            "no heartbeats with {}: a thread for them cannot be started: {error}",
            from.ip()
        ));
    }
}

/// Serves a connection for heartbeats to its end.
fn serve(
    shared: &Shared,
    stream: Arc<TcpStream>,
    greeted: Greeted,
    address: SocketAddr,
    is_source: bool,
) {
    let peer = greeted.peer;
    let node = peer.node;
    let complain = |cause: &str| {
        let what = format!("heartbeats with node {node} at {}", address.ip());
        shared.complain(&format!("{what} have ended: {cause}"));
    };
    let mut line = match line_of_heartbeats(Arc::clone(&stream), greeted, is_source) {
        Ok(line) => line,
        Err(error) => return complain(&error.to_string()),
    };
    let me = shared.me.node;
    if is_source != (me < node) {
        let text = format!("node {node} dials node {me} for heartbeats: the lower number dials");
        let refusal = LinkRefusal {
            code: RefusalCode::Order,
            text,
        };
        complain(&End::from(line.refuse(refusal)).to_string());
        return;
    }
    let Some(connected) = shared.leases.connect(&peer, &stream) else {
        return;
    };
    let is_named = || shared.file().node(node).is_some();
    let serving = Serving {
        leases: &shared.leases,
        is_over: &shared.is_over,
        is_named: &is_named,
    };
    let end = serving.serve(connected, &mut line);
    let _ = stream.shutdown(Shutdown::Both);
    if end != End::Over {
        complain(&end.to_string());
    }
}
