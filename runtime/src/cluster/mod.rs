//! What makes this process one node of several: the cluster's plan, its secret, and the threads
//! that make links to the other nodes.
//!
//! Messages of channels have connections of their own (`relay`).
//!
//! One thread takes connections on the node's address for links, one for each other node makes
//! those by which that one is shipped to, one watches the home of the plan and lets those threads
//! follow it. They do the handshake, which may block, and hand the socket of a
//! link that has proven itself to the core of its shard; from there on the core's own loop serves
//! it (`server/link.rs`). When a link that this node made has ended, it is made again.

pub mod certificates;
mod leases;
mod links;
pub mod lostfound;
pub mod plan;
mod relay;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use penstock_net::link::message::LINK_PARTITIONS;
use penstock_net::link::{HEARTBEAT_SHARD, PUBLISH_SHARD};
use penstock_shard::Topology;
use penstock_shard::cluster::Plan;
use penstock_shard::replication::LinkId;
use penstock_shard::replication::handshake::{Introduction, Peer};
use penstock_storage::version::SLOTS;
use tracing::{info, warn};

use crate::stats::{PlainLink, Stats};
use crate::system::lines::Lately;
use crate::tls::TlsConnection;

pub(crate) use crate::cluster::leases::LeaseParts;
use crate::cluster::leases::Leases;
use crate::cluster::leases::failover::{decide, serve_taken, swap};
use crate::cluster::links::greeting::{Greeted, Greeter, RefusedBy, Ungreeted};
use crate::cluster::links::greetings::Greetings;
pub(crate) use crate::cluster::links::link_tls::LinkTls;
pub use crate::cluster::links::link_versions::offer_links_up_to;
pub(crate) use crate::cluster::links::link_versions::offered_features;
use crate::cluster::plan::file::{ClusterFile, Secret};
use crate::cluster::plan::home::PlanPlace;
use crate::cluster::plan::plan_watch::watch;
use crate::cluster::plan::seen::Seen;
use crate::cluster::relay::Relay;
pub(crate) use crate::cluster::relay::{PeerQueues, RelayParts};

/// How long a connection may take to be made, and to prove itself.
const GREETING: Duration = Duration::from_secs(3);
/// How long a connection for messages that are of no shard may take to be made. A lost SYN is sent
/// again after a second, so that a new attempt is sooner.
const CONNECT: Duration = Duration::from_millis(500);
/// Between two attempts to make a link.
const RETRY: Duration = Duration::from_millis(200);

/// A link that has proven itself, for the core of its shard.
pub(crate) struct ProvenLink {
    pub(crate) link: LinkId,
    pub(crate) peer: Peer,
    pub(crate) is_outgoing: bool,
    pub(crate) stream: TcpStream,
    /// What has come behind the handshake.
    pub(crate) received: Vec<u8>,
    /// What encrypts it.
    pub(crate) tls: Option<Box<TlsConnection>>,
    /// Of a link without TLS: that it is there.
    pub(crate) counted: Option<PlainLink>,
    /// Dropped when the link has ended.
    pub(crate) lifeline: Option<flume::Sender<()>>,
}

/// What the cores are told.
pub(crate) enum Delivery {
    /// A link, for this shard.
    Link(u16, Box<ProvenLink>),
    /// Who writes and who holds what has changed, for all shards; and the file that says so.
    Plan(Arc<Plan>, Arc<ClusterFile>),
}

/// Takes what the cores are told, on the thread that has it.
pub(crate) type Deliver = Arc<dyn Fn(Delivery) + Send + Sync>;

/// Asks for the plan to be read anew, whether it has changed or not; clones ask the same.
#[derive(Clone, Default)]
pub(crate) struct Reread(Arc<AtomicBool>);

impl Reread {
    pub(crate) fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

/// Where a node finds its plan, and where it keeps the newest one that it took.
pub(crate) struct NodePlan {
    pub(crate) place: PlanPlace,
    /// The data directory.
    pub(crate) directory: PathBuf,
}

/// What the threads of a cluster's node share.
struct Shared {
    file: RwLock<Arc<ClusterFile>>,
    secret: Secret,
    me: Introduction,
    seen: Seen,
    tls: Option<LinkTls>,
    deliver: Deliver,
    stats: Arc<Stats>,
    next_link: AtomicU64,
    greetings: Greetings,
    leases: Leases,
    relay: Relay,
    /// A plan is taken by one thread at a time.
    taking: Mutex<()>,
    /// What was said of links.
    lately: Mutex<Lately>,
    is_over: AtomicBool,
}

impl Shared {
    /// Tells what is wrong with a link, unless that was told just now.
    fn complain(&self, text: &str) {
        self.complain_of(text, text);
    }

    /// The same, unless something was told of this just now.
    fn complain_of(&self, about: &str, text: &str) {
        let mut lately = self.lately.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = lately.line(about, text, Instant::now()) {
            warn!("{line}");
        }
    }

    fn file(&self) -> Arc<ClusterFile> {
        Arc::clone(&self.file.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// As the handshake tells one of the shards.
    fn introduction(&self, shard: u16) -> Introduction {
        Introduction { shard, ..self.me }
    }

    fn greeter(&self) -> Greeter<'_> {
        Greeter {
            secret: &self.secret,
            seen: &self.seen,
            tls: self.tls.as_ref(),
            patience: GREETING,
        }
    }

    /// Connects to another node for messages that are of no shard; without TLS if it `is_plain`.
    /// `wanted` is the node and the number that stands for these messages.
    fn connect(
        &self,
        wanted: (u8, u16),
        address: SocketAddr,
        is_plain: bool,
    ) -> Result<(TcpStream, Greeted), Ungreeted> {
        let stream = TcpStream::connect_timeout(&address, CONNECT)
            .map_err(|error| Ungreeted::from(error.to_string()))?;
        let me = self.introduction(wanted.1);
        let greeted = self.greeter().greet(&stream, me, wanted, is_plain)?;
        Ok((stream, greeted))
    }

    /// Counts why a link was not made.
    fn count(&self, cause: &Ungreeted) {
        match cause.refused {
            Some((by, code)) => self.stats.handshakes.refuse(by == RefusedBy::There, code),
            None => self.stats.handshakes.fail(),
        }
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
            counted: greeted.tls.is_none().then(|| PlainLink::new(&self.stats)),
            tls: greeted.tls.map(Box::new),
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
    /// Takes links on a bound socket, makes those that the plan asks of this node, and watches the
    /// home of the plan.
    ///
    /// # Errors
    /// What was tried and what the system said.
    pub(crate) fn start(
        (plan, file): (NodePlan, ClusterFile),
        (listener, tls): (TcpListener, Option<LinkTls>),
        data: &Path,
        me: Introduction,
        (deliver, relay): (Deliver, Option<RelayParts>),
        leases: LeaseParts,
        reread: Reread,
    ) -> Result<Dialing, (&'static str, std::io::Error)> {
        let home = plan.place.open();
        let home = home.map_err(|cause| ("open the plan's home", std::io::Error::other(cause)))?;
        let seen = Seen::read(data)
            .map_err(|error| ("read which starts of other nodes were seen", error))?;
        let address = listener
            .local_addr()
            .map_err(|error| ("read the address of links", error))?;
        let is_ordered = plan.place.is_ordered();
        let stats = Arc::clone(&leases.stats);
        let shared = Arc::new(Shared {
            leases: Leases::new(me, leases, file.failover_plan()),
            relay: Relay::new(relay),
            secret: file.node_secret().clone(),
            file: RwLock::new(Arc::new(file)),
            me,
            seen,
            tls,
            deliver,
            stats,
            next_link: AtomicU64::new(1),
            greetings: Greetings::default(),
            taking: Mutex::default(),
            lately: Mutex::default(),
            is_over: AtomicBool::new(false),
        });
        let mut dialing = Dialing {
            shared: Arc::clone(&shared),
            address,
            threads: Vec::new(),
        };
        let accepts = Arc::clone(&shared);
        dialing.thread("penstock-links", move || {
            let failed = |error| accepts.complain(&format!("no link can be taken: {error}"));
            let taken = |stream, from| take(&accepts, stream, from);
            accept(&listener, &accepts.is_over, failed, taken);
        })?;
        let plan = Arc::new(plan);
        // Elsewhere plans have no order, and no plan with failover is taken.
        if is_ordered {
            let (sender, swaps) = flume::bounded(1);
            let decides = Arc::clone(&shared);
            dialing.thread("penstock-failover", move || decide(&decides, &sender))?;
            let (swaps_for, by) = (Arc::clone(&shared), Arc::clone(&plan));
            dialing.thread("penstock-swap", move || swap(&swaps_for, &by, &swaps))?;
        }
        dialing.thread("penstock-plan", move || {
            watch(&shared, &plan, home, &reread)
        })?;
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

/// Takes connections until it is over.
fn accept(
    listener: &TcpListener,
    is_over: &AtomicBool,
    failed: impl Fn(std::io::Error),
    taken: impl Fn(TcpStream, SocketAddr),
) {
    loop {
        let accepted = listener.accept();
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        match accepted {
            Ok((stream, from)) => taken(stream, from),
            Err(error) => {
                // Out of descriptors: those that wait stay in the kernel's queue.
                failed(error);
                std::thread::sleep(RETRY);
            }
        }
    }
}

/// Lets who has connected prove itself, on a thread of its own.
fn take(shared: &Arc<Shared>, stream: TcpStream, from: SocketAddr) {
    let Some((number, stream)) = shared.greetings.begin(stream) else {
        return;
    };
    let greets = Arc::clone(shared);
    let spawned = std::thread::Builder::new()
        .name("penstock-greet".into())
        .spawn(move || {
            let file = greets.file();
            let is_named = |node| file.node(node).is_some();
            let takes = |shard| match shard {
                HEARTBEAT_SHARD => greets.leases.is_on(),
                PUBLISH_SHARD => greets.relay.is_on(),
                _ => false,
            };
            let greeter = greets.greeter();
            let greeted = greeter.welcome(&stream, &greets.me, is_named, takes);
            let is_there = greets.greetings.end(number);
            match greeted {
                Ok((shard, greeted)) => {
                    let stream = Arc::into_inner(stream).filter(|_| is_there);
                    match stream {
                        Some(stream) if shard == HEARTBEAT_SHARD => {
                            serve_taken(&greets, stream, greeted, from);
                        }
                        Some(stream) if shard == PUBLISH_SHARD => {
                            relay::serve_taken(&greets, stream, greeted, from);
                        }
                        Some(stream) => greets.hand_over(shard, stream, greeted, None),
                        None => {}
                    }
                }
                // Its port is another one each time, and what is no link may be wrong in another
                // way each time.
                Err(cause) => {
                    greets.count(&cause);
                    let what = format!("a link from {} is refused", from.ip());
                    let text = format!("{what}: {}", cause.text);
                    let about = cause.refused.map_or(&what, |_| &text);
                    greets.complain_of(about, &text);
                }
            }
        });
    if spawned.is_err() {
        shared.greetings.end(number);
    }
}

/// Keeps the links to one node, as long as the file names it: one from each shard here to each
/// shard there that has some of the same partitions.
fn dial(shared: &Arc<Shared>, node: u8) {
    let mut theirs = None;
    let mut shards_before = None;
    let mut up: BTreeMap<(u16, u16), flume::Receiver<()>> = BTreeMap::new();
    let mut made_before = BTreeSet::new();
    let mut is_reported = false;
    // The other node has shown no TLS, and links may do without.
    let mut is_plain = false;
    while !shared.is_over.load(Ordering::Relaxed) {
        up.retain(|_, ended| !matches!(ended.try_recv(), Err(flume::TryRecvError::Disconnected)));
        let file = shared.file();
        let Some(address) = file.node(node).map(|node| node.links) else {
            return;
        };
        let wanted = pairs(&file, shared.me, node, theirs);
        // As long as it is not known how many shards are there, the first pair asks for it.
        let is_asked_for = |pair: &&(u16, u16)| theirs.is_none() || !up.contains_key(*pair);
        let Some(&(shard, to_shard)) = wanted.iter().find(is_asked_for) else {
            std::thread::sleep(RETRY);
            continue;
        };
        if !made_before.insert((shard, to_shard)) && !is_plain {
            // One that ends as soon as it is made must not keep everybody busy.
            std::thread::sleep(RETRY);
        }
        let made = TcpStream::connect_timeout(&address, GREETING)
            .map_err(|error| Ungreeted::from(error.to_string()))
            .and_then(|stream| {
                let me = shared.introduction(shard);
                let wanted = (node, to_shard);
                let greeted = shared.greeter().greet(&stream, me, wanted, is_plain)?;
                Ok((stream, greeted))
            });
        let is_optional = shared.tls.as_ref().is_some_and(|tls| tls.is_optional);
        is_plain = match &made {
            Err(cause) => cause.is_without_tls && is_optional,
            Ok(_) => false,
        };
        if is_plain {
            continue;
        }
        match made {
            Ok((stream, greeted)) => {
                if std::mem::take(&mut is_reported) {
                    info!(node, %address, "node {node} at {address} is linked");
                }
                theirs = Some(greeted.peer.shards);
                if shards_before.replace(greeted.peer.shards) != theirs {
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
                shared.count(&cause);
                let cause = cause.text;
                shared.complain(&format!("no link to node {node} at {address}: {cause}"));
                is_reported = true;
                // Another number of shards may be there by now.
                theirs = None;
                std::thread::sleep(RETRY);
            }
        }
    }
}

/// Pairs of a shard here and a shard of another node that need a link. `theirs` is the number of
/// shards of that node. If it is not known, one pair with shard 0 of that node is returned: the
/// greeting tells the number.
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use penstock_net::link::NodeStart;

    use super::*;
    use crate::system::boot_clock::BootClock;
    use socket2::{Domain, SockAddr, Socket, Type};

    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn links_are_taken_again_after_any_number_of_failures() {
        // It refuses to accept until it listens.
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("made");
        let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        socket.bind(&SockAddr::from(any)).expect("bound");
        let listener: TcpListener = socket.try_clone().expect("cloned").into();
        let address = listener.local_addr().expect("bound");
        let is_over = AtomicBool::new(false);
        let (failures, failed) = flume::unbounded();
        let (streams, taken) = flume::unbounded();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let failed = |error| drop(failures.send(error));
                accept(&listener, &is_over, failed, |stream, _| {
                    drop(streams.send(stream));
                });
            });
            for _ in 0..3 {
                failed.recv_timeout(PATIENCE).expect("it goes on");
            }
            socket.listen(1).expect("it listens");
            let stream = TcpStream::connect(address).expect("it listens");
            let here = stream.local_addr().expect("bound");
            let taken = taken.recv_timeout(PATIENCE).expect("it goes on");
            assert_eq!(taken.peer_addr().expect("connected"), here);
            is_over.store(true, Ordering::Relaxed);
            TcpStream::connect(address).expect("it listens");
        });
    }

    #[test]
    fn what_the_file_says_new_since_it_was_read_is_noticed() {
        let folder = std::env::temp_dir().join(format!("penstock-watch-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("made");
        let secret = folder.join("secret");
        std::fs::write(&secret, [b'7'; 32]).expect("written");
        std::fs::set_permissions(secret, std::fs::Permissions::from_mode(0o600)).expect("set");
        let path = folder.join("cluster.toml");
        let write = |generation: u32| {
            let text = format!(
                r#"
version = 1
cluster_id = "c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1"
secret_file = "secret"

[[node]]
number = 1
links = "127.0.0.1:7414"
clients = "127.0.0.1:7411"

[[placement]]
partitions = [0, 255]
generation = {generation}
primary = 1
"#
            );
            std::fs::write(&path, text).expect("written");
        };
        write(1);
        let file = ClusterFile::read(&path).expect("good");
        write(2);
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let me = Introduction {
            log_format: 1,
            cluster_id: file.cluster_id,
            node_id: [1; 16],
            start: NodeStart {
                incarnation: 1,
                start_id: 1,
            },
            node: 1,
            shard: 0,
            shards: 1,
            record_bytes_max: 1 << 20,
            frame_bytes_max: 1 << 20,
        };
        let (plans, received) = flume::unbounded();
        let deliver: Deliver = Arc::new(move |delivery| match delivery {
            Delivery::Plan(plan, _) => plans.send(plan).expect("it is waited for"),
            Delivery::Link(..) => panic!("there is no other node"),
        });
        let leases = LeaseParts {
            clock: BootClock::start(),
            table: Arc::default(),
            stats: Arc::new(Stats::new(1)),
        };
        let reread = Reread::default();
        let plan = NodePlan {
            place: PlanPlace::File(path),
            directory: folder.clone(),
        };
        let dialing = Dialing::start(
            (plan, file),
            (listener, None),
            &folder,
            me,
            (deliver, None),
            leases,
            reread.clone(),
        );
        let plan = received.recv_timeout(PATIENCE).expect("it goes on");
        assert_eq!(plan.partitions[0].generation, 2);
        // A reload reads the file anew, even if its text is unchanged.
        assert!(received.try_recv().is_err());
        reread.ask();
        let plan = received.recv_timeout(PATIENCE).expect("it was asked for");
        assert_eq!(plan.partitions[0].generation, 2);
        drop(dialing.map_err(|(action, error)| panic!("{action}: {error}")));
        std::fs::remove_dir_all(&folder).expect("removed");
    }
}
