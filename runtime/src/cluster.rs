//! What makes this process one node of several: the cluster's file, its secret, and the threads that make
//! links to the other nodes.
//!
//! One thread takes connections on the node's address for links, one for each other node makes those by which
//! that one is shipped to, one reads the cluster's file anew when it changes. They do the handshake, which may block, and hand the socket of a link that has proven
//! itself to the core of its shard; from there on the core's own loop serves it (`server/link.rs`). When a
//! link that this node made has ended, it is made again.

pub(crate) mod file;
mod greeting;
pub mod lostfound;
pub mod placement;
mod seen;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use penstock_net::link::message::LINK_PARTITIONS;
use penstock_shard::Topology;
use penstock_shard::linked::Plan;
use penstock_shard::replication::LinkId;
use penstock_shard::replication::handshake::{Introduction, Peer};
use penstock_storage::store::SLOTS;

use crate::lines::{caution, tell};

use self::file::{ClusterFile, Secret};
use self::greeting::{Greeted, greet, welcome};
use self::seen::Seen;

/// Handshakes of incoming links at a time; a connection beyond is closed.
const GREETINGS_MAX: u32 = 64;
/// How long a connection may take to be made, and to prove itself.
const GREETING: Duration = Duration::from_secs(3);
/// Between two attempts to make a link.
const RETRY: Duration = Duration::from_millis(200);
/// Between two lines about the same node that cannot be reached or refuses.
const TOLD_EVERY: Duration = Duration::from_secs(30);

/// A link that has proven itself, for the core of its shard.
#[derive(Debug)]
pub(crate) struct ProvenLink {
    pub(crate) link: LinkId,
    pub(crate) peer: Peer,
    pub(crate) is_outgoing: bool,
    pub(crate) stream: TcpStream,
    /// What has come behind the handshake.
    pub(crate) received: Vec<u8>,
    /// Dropped when the link has ended.
    pub(crate) lifeline: Option<flume::Sender<()>>,
}

/// What the cores are told.
pub(crate) enum Delivery {
    /// A link, for this shard.
    Link(u16, Box<ProvenLink>),
    /// Who writes and who holds what has changed, for all shards.
    Plan(Arc<Plan>),
}

/// Takes what the cores are told, on the thread that has it.
pub(crate) type Deliver = Arc<dyn Fn(Delivery) + Send + Sync>;

/// What the threads of a cluster's node share.
struct Shared {
    file: RwLock<Arc<ClusterFile>>,
    secret: Secret,
    me: Introduction,
    seen: Seen,
    deliver: Deliver,
    next_link: AtomicU64,
    greetings: AtomicU32,
    is_over: AtomicBool,
}

impl Shared {
    fn file(&self) -> Arc<ClusterFile> {
        Arc::clone(&self.file.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// As the handshake tells one of the shards.
    fn introduction(&self, shard: u16) -> Introduction {
        Introduction { shard, ..self.me }
    }

    fn hand_over(
        &self,
        shard: u16,
        stream: TcpStream,
        greeted: Greeted,
        lifeline: Option<flume::Sender<()>>,
    ) {
        let proven = ProvenLink {
            link: LinkId(self.next_link.fetch_add(1, Ordering::Relaxed)),
            peer: greeted.peer,
            is_outgoing: lifeline.is_some(),
            stream,
            received: greeted.received,
            lifeline,
        };
        (self.deliver)(Delivery::Link(shard, Box::new(proven)));
    }
}

/// The threads that make links; they end when this is dropped.
pub(crate) struct Dialing {
    shared: Arc<Shared>,
    address: SocketAddr,
    threads: Vec<JoinHandle<()>>,
}

impl Dialing {
    /// Takes links on a bound socket, makes those that the cluster's file asks of this node, and watches that
    /// file.
    ///
    /// # Errors
    /// What was tried and what the system said.
    pub(crate) fn start(
        (path, file): (PathBuf, ClusterFile),
        listener: TcpListener,
        data: &Path,
        me: Introduction,
        deliver: Deliver,
    ) -> Result<Dialing, (&'static str, std::io::Error)> {
        let seen = Seen::read(data)
            .map_err(|error| ("read which starts of other nodes were seen", error))?;
        let address = listener
            .local_addr()
            .map_err(|error| ("read the address of links", error))?;
        let numbers = file.nodes.iter().map(|node| node.number);
        let others: Vec<u8> = numbers.filter(|&number| number != me.node).collect();
        let shared = Arc::new(Shared {
            secret: file.secret.clone(),
            file: RwLock::new(Arc::new(file)),
            me,
            seen,
            deliver,
            next_link: AtomicU64::new(1),
            greetings: AtomicU32::new(0),
            is_over: AtomicBool::new(false),
        });
        let mut dialing = Dialing {
            shared: Arc::clone(&shared),
            address,
            threads: Vec::new(),
        };
        let accepts = Arc::clone(&shared);
        dialing.thread("penstock-links", move || accept(&accepts, &listener))?;
        for node in others {
            let dials = Arc::clone(&shared);
            dialing.thread("penstock-dial", move || dial(&dials, node))?;
        }
        dialing.thread("penstock-plan", move || watch(&shared, &path))?;
        Ok(dialing)
    }

    fn thread(
        &mut self,
        name: &str,
        run: impl FnOnce() + Send + 'static,
    ) -> Result<(), (&'static str, std::io::Error)> {
        let spawned = std::thread::Builder::new().name(name.into()).spawn(run);
        self.threads
            .push(spawned.map_err(|error| ("start a thread that makes links", error))?);
        Ok(())
    }
}

impl Drop for Dialing {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        // An accept ends only by a connection.
        drop(TcpStream::connect_timeout(&self.address, GREETING));
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn accept(shared: &Arc<Shared>, listener: &TcpListener) {
    while let Ok((stream, from)) = listener.accept().or_else(|error| {
        // Out of descriptors: those that wait stay in the kernel's queue.
        std::thread::sleep(RETRY);
        match shared.is_over.load(Ordering::Relaxed) {
            true => Err(error),
            false => listener.accept(),
        }
    }) {
        if shared.is_over.load(Ordering::Relaxed) {
            return;
        }
        if shared.greetings.fetch_add(1, Ordering::Relaxed) >= GREETINGS_MAX {
            shared.greetings.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let greets = Arc::clone(shared);
        let spawned = std::thread::Builder::new()
            .name("penstock-greet".into())
            .spawn(move || {
                match welcome(&stream, GREETING, &greets.me, &greets.secret, &greets.seen) {
                    Ok((shard, greeted)) => greets.hand_over(shard, stream, greeted, None),
                    Err(cause) => caution!("a link from {from} is refused: {cause}"),
                }
                greets.greetings.fetch_sub(1, Ordering::Relaxed);
            });
        if spawned.is_err() {
            shared.greetings.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Keeps the links to one node: one from each shard here to each shard there that has some of the same
/// partitions.
fn dial(shared: &Arc<Shared>, node: u8) {
    let mut theirs = None;
    let mut told_before = None;
    let mut up: BTreeMap<(u16, u16), flume::Receiver<()>> = BTreeMap::new();
    let mut made_before = BTreeSet::new();
    let mut told: Option<(String, Instant)> = None;
    while !shared.is_over.load(Ordering::Relaxed) {
        up.retain(|_, ended| !matches!(ended.try_recv(), Err(flume::TryRecvError::Disconnected)));
        let file = shared.file();
        let wanted = pairs(&file, shared.me, node, theirs);
        // As long as it is not known how many shards are there, the first pair asks for it.
        let is_asked_for = |pair: &&(u16, u16)| theirs.is_none() || !up.contains_key(*pair);
        let Some(&(shard, to_shard)) = wanted.iter().find(is_asked_for) else {
            std::thread::sleep(RETRY);
            continue;
        };
        let Some(address) = file.node(node).map(|node| node.links) else {
            std::thread::sleep(RETRY);
            continue;
        };
        if !made_before.insert((shard, to_shard)) {
            // One that ends as soon as it is made must not keep everybody busy.
            std::thread::sleep(RETRY);
        }
        let made = TcpStream::connect_timeout(&address, GREETING)
            .map_err(|error| error.to_string())
            .and_then(|stream| {
                let me = shared.introduction(shard);
                let wanted = (node, to_shard);
                let greeted = greet(&stream, GREETING, me, wanted, &shared.secret, &shared.seen)?;
                Ok((stream, greeted))
            });
        match made {
            Ok((stream, greeted)) => {
                if told.take().is_some() {
                    tell!("node {node} at {address} is linked");
                }
                theirs = Some(greeted.peer.shards);
                if told_before.replace(greeted.peer.shards) != theirs {
                    // Links of before have ended with that start, or are about to.
                    up.clear();
                }
                let wanted = pairs(&file, shared.me, node, theirs);
                let pair = (shard, to_shard);
                if wanted.contains(&pair) && !up.contains_key(&pair) {
                    let (lifeline, ended) = flume::bounded(0);
                    up.insert((shard, to_shard), ended);
                    shared.hand_over(shard, stream, greeted, Some(lifeline));
                }
            }
            Err(cause) => {
                let is_news = told
                    .as_ref()
                    .is_none_or(|(text, at)| *text != cause || at.elapsed() > TOLD_EVERY);
                if is_news {
                    caution!("no link to node {node} at {address}: {cause}");
                    told = Some((cause, Instant::now()));
                }
                // Another number of shards may be there by now.
                theirs = None;
                std::thread::sleep(RETRY);
            }
        }
    }
}

/// Reads the cluster's file anew whenever it says something else. What it says wrong, or of who the nodes
/// are, changes nothing.
fn watch(shared: &Shared, path: &Path) {
    let mut last = std::fs::read_to_string(path).unwrap_or_default();
    while !shared.is_over.load(Ordering::Relaxed) {
        std::thread::sleep(RETRY);
        let text = match std::fs::read_to_string(path) {
            Ok(text) if text != last => text,
            _ => continue,
        };
        last = text;
        let before = shared.file();
        match ClusterFile::read(path) {
            Ok(file) if file.cluster_id != before.cluster_id || file.nodes != before.nodes => {
                caution!(
                    "{} names other nodes than at the start: they count at the next start, and nothing of it until then",
                    path.display()
                );
            }
            Ok(file) => {
                tell!("cluster      {} is read anew", path.display());
                let plan = Arc::new(file.plan());
                *shared.file.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(file);
                (shared.deliver)(Delivery::Plan(plan));
            }
            Err(error) => caution!("{error}; what it said before holds"),
        }
    }
}

/// Which shards here need a link to which shards of a node that has so many; if that is not known, the first
/// one alone, which tells.
fn pairs(file: &ClusterFile, me: Introduction, node: u8, theirs: Option<u16>) -> Vec<(u16, u16)> {
    let ours = Topology::new(me.shards);
    let mut pairs: Vec<(u16, u16)> = (0..LINK_PARTITIONS)
        .filter(|&partition| file.ships(me.node, node, partition))
        .map(|partition| {
            let slot = partition * (SLOTS / LINK_PARTITIONS);
            let there = theirs.map_or(0, |shards| Topology::new(shards).owner(slot));
            (ours.owner(slot), there)
        })
        .collect();
    pairs.sort_unstable();
    pairs.dedup();
    if theirs.is_none() {
        pairs.truncate(1);
    }
    pairs
}
