//! The threads of all cores, and how they are reached.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::thread::JoinHandle;

use penstock_net::program::ServedSchema;
use penstock_net::users::Users;

use super::audit::{Audit, Field};
use super::channels::NodeChannels;
use super::core_loop;
use super::error::{ServeError, system};
use super::listen::{RespListeners, port_of};
use super::messages::{CoreStart, Letter, Report, RespStart};
use super::resp_host::RespHost;
use super::served_users::DeliverUsers;
use super::stalled_threads::StalledThreads;
use crate::cluster::{Deliver, Delivery, RelayParts};
use crate::startup::node::Node;
use crate::tls::ServedTls;

/// The shortest value that leaves from where it stands instead of being copied: a copy of 8 KiB
/// costs no more than what the kernel does for one more run of bytes.
const SHARED_BYTES_MIN: usize = 16 << 10;

/// Gives every core a schema.
pub(super) type DeliverSchema = Box<dyn Fn(Arc<ServedSchema>) + Send>;

/// The cores of a server. They begin to write when they are told so, and end if this is gone
/// before.
pub(super) struct Cores {
    outboxes: Vec<flume::Sender<Letter>>,
    begin: flume::Sender<()>,
    threads: Vec<JoinHandle<()>>,
    _stalled: StalledThreads,
    /// What connections of RESP are told.
    host: Option<RespHost>,
    audit: Audit,
}

impl Cores {
    /// Starts a thread for each shard of `node`, with its listener on the shared port, the one on
    /// its own port, and those of RESP if there are such ports. Each recovers its log, reports to
    /// `reports` and waits for [`Cores::begin`].
    pub(super) fn start(
        node: &Node,
        shared: Vec<TcpListener>,
        own: Vec<TcpListener>,
        resp: Option<RespListeners>,
        (tls, users): (Option<&Arc<ServedTls>>, Option<&Arc<Users>>),
        audit: &Audit,
        reports: &flume::Sender<Report>,
    ) -> Result<Cores, ServeError> {
        let shards = node.shards();
        let own_ports: Vec<u16> = own.iter().map(port_of).collect();
        let (begin, may_begin) = flume::bounded(usize::from(shards));
        let boxes: Vec<_> = (0..shards).map(|_| flume::unbounded()).collect();
        let outboxes: Vec<_> = boxes.iter().map(|(sender, _)| sender.clone()).collect();
        let connections = Arc::new(AtomicU32::new(0));
        let (channels, mail) =
            NodeChannels::new(shards, node.channel_bytes_max(), &node.stats.channels);
        let host = resp.as_ref();
        let host = host.map(|it| RespHost::new(node, it.address, &connections, channels));
        let mut mail = mail.into_iter();
        let (entry, own_resp) = resp.map_or_else(Default::default, |it| (it.entry, it.own));
        let (mut entry, mut own_resp) = (entry.into_iter(), own_resp.into_iter());
        let stalled = StalledThreads::start();
        let stalled = stalled.map_err(system("start the thread that frees stalled ones"))?;
        let mut threads = Vec::new();
        let per_shard = boxes.into_iter().zip(shared).zip(own);
        for (shard, (((_, inbox), shared), own)) in (0u16..).zip(per_shard) {
            let mut opening = node.shard(shard, |shard| own_ports[usize::from(shard)])?;
            opening.shard_config.shared_bytes_min = SHARED_BYTES_MIN;
            let start = CoreStart {
                shard: opening,
                listeners: vec![shared, own],
                resp: entry.next().zip(host.clone().zip(mail.next())).map(
                    |(entry, (host, messages))| RespStart {
                        entry,
                        own: own_resp.next(),
                        host,
                        messages,
                    },
                ),
                users: users.cloned(),
                audit: audit.clone(),
                tls: tls.cloned(),
                socket_entries: node.rings.setup.map(|it| it.socket_entries),
                connections: Arc::clone(&connections),
                connection_bound: node.connection_bound(),
                handshakes_max: node.handshakes_max(),
                kept_bytes_max: node.kept_bytes_max(),
                may_begin: may_begin.clone(),
                inbox,
                outboxes: outboxes.clone(),
                homes: stalled.homes(),
                reports: reports.clone(),
            };
            let thread = std::thread::Builder::new()
                .name(format!("penstock-{shard}"))
                .spawn(move || core_loop::run(start))
                .map_err(system("start the thread of a shard"))?;
            threads.push(thread);
        }
        Ok(Cores {
            outboxes,
            begin,
            threads,
            _stalled: stalled,
            host,
            audit: audit.clone(),
        })
    }

    /// How many cores there are.
    pub(super) fn count(&self) -> usize {
        self.threads.len()
    }

    /// Lets every core write.
    pub(super) fn begin(&self) {
        let wait = "each shard waits";
        self.threads
            .iter()
            .for_each(|_| self.begin.send(()).expect(wait));
    }

    /// Sends every core a letter.
    pub(super) fn post(&self, letter: impl Fn() -> Letter) {
        for core in &self.outboxes {
            drop(core.send(letter()));
        }
    }

    /// Takes what the threads that make links have for the cores.
    fn deliver(&self) -> Deliver {
        let outboxes = self.outboxes.clone();
        let (host, audit) = (self.host.clone(), self.audit.clone());
        Arc::new(move |delivery| match delivery {
            Delivery::Link(shard, proven) => {
                drop(outboxes[usize::from(shard)].send(Letter::Link(proven)));
            }
            Delivery::Plan(plan, file) => {
                let nodes = Field::Number(file.nodes.len() as u64);
                let (revision, by) = (Field::Number(file.revision), Field::Text(&file.changed.by));
                let fields = [("nodes", nodes), ("revision", revision), ("changed_by", by)];
                let shown = if file.revision > 0 { 3 } else { 1 };
                audit.report("cluster", &fields[..shown]);
                for core in &outboxes {
                    drop(core.send(Letter::Plan(Arc::clone(&plan))));
                }
                if let Some(host) = &host {
                    host.learn(&file);
                }
            }
        })
    }

    /// What the threads that make links need of the cores: the second one for published messages,
    /// `None` if no client of Redis can be here.
    pub(super) fn links(&self) -> (Deliver, Option<RelayParts>) {
        let relay = self.host.as_ref().map(|host| host.channels().relay());
        (self.deliver(), relay)
    }

    /// Takes a schema that was read anew for all cores.
    pub(super) fn deliver_schema(&self) -> DeliverSchema {
        let outboxes = self.outboxes.clone();
        Box::new(move |schema| {
            for core in &outboxes {
                drop(core.send(Letter::Schema(Arc::clone(&schema))));
            }
        })
    }

    /// Takes users that were read anew for all cores.
    pub(super) fn deliver_users(&self) -> DeliverUsers {
        let outboxes = self.outboxes.clone();
        Box::new(move |users| {
            for core in &outboxes {
                drop(core.send(Letter::Users(Arc::clone(&users))));
            }
        })
    }

    /// Waits until every thread has ended. Those that have not begun end now.
    pub(super) fn join(self) {
        drop(self.begin);
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}
