//! Messages of channels from node to node: `net/LINK.md`, *Messages of channels*.
//!
//! ```text
//!  PUBLISH at a core --> queue for each node --> penstock-relay, for each other node --> socket
//!  socket --> penstock-relay, for each node that has connected --> mail of cores with receivers
//! ```
//!
//! What must hold: nobody waits for another node but these threads. Of a connection that another
//! one of the same node has replaced nothing is taken any more.

mod peer_queues;

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use penstock_net::link::frame::{LINK_HEADER_BYTES, LINK_VERSION_PUBLISH};
use penstock_net::link::{LinkMessage, PUBLISH_SHARD, Publish, RefusalCode};
use penstock_net::resp::Message;
use penstock_shard::replication::link_set::not_named;
use penstock_shard::replication::receiver::LinkRefusal;

use crate::cluster::links::blocking_line::{BlockingLine, LineEnd, LineRules};
use crate::cluster::links::greeting::{Greeted, RefusedBy};
use crate::cluster::links::link_versions::highest_offered;
use crate::cluster::{RETRY, Shared};

pub(crate) use self::peer_queues::PeerQueues;

use self::peer_queues::PeerMail;

/// The longest wait of a thread: how soon it sees that a connection has ended.
const READ_WAIT: Duration = Duration::from_millis(100);
/// Between two attempts to connect to a node that takes no messages.
const REFUSED: Duration = Duration::from_secs(30);
/// Bytes of frames that leave together, but for the last one of them.
const BATCH_BYTES: usize = 64 << 10;

/// Takes a message that a client of another node has published, by channel and payload.
pub(crate) type TakePublished = Arc<dyn Fn(&[u8], &[u8]) + Send + Sync>;

/// What the channels of a node have for the messages of a cluster.
pub(crate) struct RelayParts {
    /// Messages that leave.
    pub(crate) queues: Arc<PeerQueues>,
    /// Where messages go that come.
    pub(crate) take: TakePublished,
}

/// A connection of another node that messages come by.
struct Taken {
    number: u64,
    stream: Arc<TcpStream>,
}

/// The connections for messages of channels.
pub(crate) struct Relay {
    /// `None`: no client of Redis can be here.
    parts: Option<RelayParts>,
    /// The newest connection of each node. Its lock is held while a message is taken.
    taken: Mutex<BTreeMap<u8, Arc<Mutex<Option<Taken>>>>>,
}

impl Relay {
    pub(crate) fn new(parts: Option<RelayParts>) -> Relay {
        Relay {
            parts,
            taken: Mutex::default(),
        }
    }

    /// Whether messages leave and come here.
    pub(crate) fn is_on(&self) -> bool {
        self.parts.is_some() && highest_offered() >= u16::from(LINK_VERSION_PUBLISH)
    }

    fn of(&self, node: u8) -> Arc<Mutex<Option<Taken>>> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(taken.entry(node).or_default())
    }

    /// Whether this node has a connection here.
    fn has_taken(&self, node: u8) -> bool {
        locked(&self.of(node)).is_some()
    }
}

fn locked(taken: &Mutex<Option<Taken>>) -> MutexGuard<'_, Option<Taken>> {
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

fn rules(frame_bytes_max: u32) -> LineRules {
    LineRules {
        of: "messages of channels",
        read_wait: READ_WAIT,
        piece_bytes: BATCH_BYTES,
        frame_bytes_max,
    }
}

/// Keeps the connection by which messages leave for one node, as long as the plan names it.
pub(crate) fn dial(shared: &Arc<Shared>, node: u8) {
    // The other node has shown no TLS, and links may do without.
    let mut is_plain = false;
    while !shared.is_over.load(Ordering::Relaxed) {
        let Some(address) = address_of(shared, node) else {
            return;
        };
        let began = Instant::now();
        let cause = match shared.connect((node, PUBLISH_SHARD), address, is_plain) {
            Ok((stream, greeted)) => {
                is_plain = false;
                send(shared, Arc::new(stream), greeted)
            }
            Err(cause) => {
                let is_optional = shared.tls.as_ref().is_some_and(|tls| tls.is_optional);
                is_plain = !is_plain && cause.is_without_tls && is_optional;
                if is_plain {
                    continue;
                }
                shared.count(&cause);
                if cause.refused == Some((RefusedBy::There, RefusalCode::Destination)) {
                    wait_until_it_may_take(shared, node, address);
                    continue;
                }
                Some(cause.text)
            }
        };
        if let Some(cause) = cause {
            shared.complain(&format!(
                "no messages of channels to node {node} at {address}: {cause}"
            ));
        }
        // One that ends as soon as it is made must not keep everybody busy.
        std::thread::sleep(RETRY.saturating_sub(began.elapsed()));
    }
}

fn address_of(shared: &Shared, node: u8) -> Option<SocketAddr> {
    shared.file().node(node).map(|node| node.links)
}

/// Waits for a while, or until the node has a connection here: then it is another build by now.
fn wait_until_it_may_take(shared: &Shared, node: u8, address: SocketAddr) {
    let text = format!(
        "no messages of channels to node {node} at {address}: it takes none, as an earlier build \
         or without a port for clients of Redis"
    );
    shared.complain(&text);
    let had_taken = shared.relay.has_taken(node);
    let until = Instant::now() + REFUSED;
    while Instant::now() < until && !shared.is_over.load(Ordering::Relaxed) {
        let is_named = address_of(shared, node).is_some();
        if !is_named || (!had_taken && shared.relay.has_taken(node)) {
            break;
        }
        std::thread::sleep(RETRY);
    }
}

/// Sends messages until the connection ends; why, unless it is over.
fn send(shared: &Shared, stream: Arc<TcpStream>, greeted: Greeted) -> Option<String> {
    let peer = greeted.peer;
    let queues = &shared.relay.parts.as_ref()?.queues;
    let line = BlockingLine::new(
        Arc::clone(&stream),
        greeted,
        true,
        rules(peer.frame_bytes_max),
    );
    let mut line = match line {
        Ok(line) => line,
        Err(error) => return Some(error.to_string()),
    };
    let mail = queues.connect();
    let end = loop {
        if shared.is_over.load(Ordering::Relaxed) || address_of(shared, peer.node).is_none() {
            break None;
        }
        let received = receive(&stream, &mut line);
        let sent =
            received.and_then(|()| send_some(&mail, &mut line, peer.frame_bytes_max, queues));
        if let Err(end) = sent {
            break Some(end.to_string());
        }
    };
    let _ = stream.shutdown(Shutdown::Both);
    end
}

/// Takes what the other end says, if it has said something: a refusal, or its end.
fn receive(stream: &TcpStream, line: &mut BlockingLine) -> Result<(), LineEnd> {
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    let mut first = [MaybeUninit::uninit()];
    let peeked = socket2::SockRef::from(stream).recv_with_flags(&mut first, flags);
    if peeked.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock) {
        return Ok(());
    }
    line.receive()?;
    let taken = line.frames(|message, _| {
        Err(LinkRefusal {
            code: RefusalCode::Order,
            text: format!("{} has no place in an answer to messages", message.name()),
        })
    });
    taken.map(drop)
}

/// Sends messages that wait, or waits for one for a while.
fn send_some(
    mail: &PeerMail,
    line: &mut BlockingLine,
    frame_bytes_max: u32,
    queues: &PeerQueues,
) -> Result<(), LineEnd> {
    let (mut messages, mut bytes) = (Vec::new(), 0);
    let mut next = mail.wait(READ_WAIT);
    while let Some(message) = next {
        let publish = publish_of(&message);
        let frame_bytes = LINK_HEADER_BYTES + publish.body_bytes();
        if frame_bytes <= frame_bytes_max as usize {
            line.outgoing().put(&LinkMessage::Publish(publish));
            bytes += frame_bytes;
        } else {
            queues.lose_one();
        }
        messages.push(message);
        next = if bytes < BATCH_BYTES {
            mail.next()
        } else {
            None
        };
    }
    let flushed = line.flush();
    if flushed.is_err() {
        messages.iter().for_each(|_| queues.lose_one());
    }
    mail.sent(&mut messages);
    flushed
}

fn publish_of(message: &Message) -> Publish<'_> {
    Publish {
        channel: message.channel(),
        payload: message.payload(),
    }
}

/// Takes messages by a connection that another node has made, on a thread of its own.
pub(crate) fn serve_taken(
    shared: &Arc<Shared>,
    stream: TcpStream,
    greeted: Greeted,
    from: SocketAddr,
) {
    let serves = Arc::clone(shared);
    let spawned = std::thread::Builder::new()
        .name("penstock-relay".into())
        .spawn(move || {
            let node = greeted.peer.node;
            if let Err(end) = take(&serves, Arc::new(stream), greeted) {
                serves.complain(&format!(
                    "messages of channels from node {node} at {} have ended: {end}",
                    from.ip()
                ));
            }
        });
    if let Err(error) = spawned {
        shared.complain(&format!(
            "no messages of channels from {}: a thread for them cannot be started: {error}",
            from.ip()
        ));
    }
}

/// Takes messages until the connection ends. That it is replaced, or over, is no failure.
fn take(shared: &Shared, stream: Arc<TcpStream>, greeted: Greeted) -> Result<(), LineEnd> {
    let node = greeted.peer.node;
    let Some(parts) = &shared.relay.parts else {
        return Ok(());
    };
    let rules = rules(shared.me.frame_bytes_max);
    let mut line = BlockingLine::new(Arc::clone(&stream), greeted, false, rules)
        .map_err(|error| LineEnd::Failed(error.to_string()))?;
    let place = shared.relay.of(node);
    let number = shared.next_link.fetch_add(1, Ordering::Relaxed);
    let taken = Taken {
        number,
        stream: Arc::clone(&stream),
    };
    if let Some(older) = locked(&place).replace(taken) {
        let _ = older.stream.shutdown(Shutdown::Both);
    }
    let is_newest = |taken: &Option<Taken>| taken.as_ref().is_some_and(|it| it.number == number);
    let end = loop {
        if shared.is_over.load(Ordering::Relaxed) || !is_newest(&locked(&place)) {
            break Ok(());
        }
        if address_of(shared, node).is_none() {
            break Err(line.refuse(not_named(node)));
        }
        let came = line.receive().and_then(|()| {
            line.frames(|message, _| match message {
                LinkMessage::Publish(publish) => {
                    let newest = locked(&place);
                    if is_newest(&newest) {
                        (parts.take)(publish.channel, publish.payload);
                    }
                    Ok(())
                }
                other => Err(LinkRefusal {
                    code: RefusalCode::Order,
                    text: format!("{} has no place among messages of channels", other.name()),
                }),
            })
        });
        if let Err(end) = came {
            // A connection that was replaced was shut from here.
            break is_newest(&locked(&place))
                .then_some(end)
                .map_or(Ok(()), Err);
        }
    };
    let mut newest = locked(&place);
    if is_newest(&newest) {
        *newest = None;
    }
    drop(newest);
    let _ = stream.shutdown(Shutdown::Both);
    end
}
