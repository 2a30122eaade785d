//! One server of a client: its queue, its connection, and when it is tried again.

use std::collections::VecDeque;
use std::net::TcpStream;
use std::sync::{Arc, Condvar};
use std::time::{Duration, Instant};

use crate::channel::Channel;
use crate::connection::Connection;
use crate::queued::Queued;

/// The first wait between two tries to connect, or before a node is asked once more which node
/// writes. Each next wait is twice as long.
pub(crate) const BACKOFF_MIN: Duration = Duration::from_millis(10);
/// The longest wait between two tries to connect.
pub(crate) const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// One server.
pub(crate) struct Node {
    pub(crate) address: String,
    pub(crate) queue: VecDeque<Queued>,
    pub(crate) link: Option<Link>,
    /// Number of the connection. A reader of an earlier one sees by it that it is not needed any
    /// more.
    pub(crate) generation: u64,
    /// The node refused a connection or was silent, and has not answered since.
    pub(crate) is_failing: bool,
    pub(crate) try_at: Instant,
    pub(crate) backoff: Duration,
    pub(crate) has_thread: bool,
    /// Signalled when there is something to send, and at the end.
    pub(crate) wake_writer: Arc<Condvar>,
    /// The writer waits for the signal. A signal is a system call, also when nobody waits for it.
    is_asleep: bool,
}

pub(crate) struct Link {
    pub(crate) connection: Connection,
    pub(crate) stream: TcpStream,
    pub(crate) channel: Channel,
    pub(crate) heard: Instant,
}

impl Node {
    pub(crate) fn new(address: String) -> Node {
        Node {
            address,
            queue: VecDeque::new(),
            link: None,
            generation: 0,
            is_failing: false,
            try_at: Instant::now(),
            backoff: BACKOFF_MIN,
            has_thread: false,
            wake_writer: Arc::new(Condvar::new()),
            is_asleep: false,
        }
    }

    /// Has the writer look at the node, if it is not about to.
    pub(crate) fn wake(&mut self) {
        if std::mem::take(&mut self.is_asleep) {
            self.wake_writer.notify_one();
        }
    }

    /// The writer is about to wait for the signal, which must be [`Node::wake_writer`].
    pub(crate) fn sleeps(&mut self) -> Arc<Condvar> {
        self.is_asleep = true;
        Arc::clone(&self.wake_writer)
    }

    /// The writer does not wait any more.
    pub(crate) fn is_up(&mut self) {
        self.is_asleep = false;
    }

    pub(crate) fn failed(&mut self) {
        self.is_failing = true;
        self.try_at = Instant::now() + self.backoff;
        self.backoff = (self.backoff * 2).min(BACKOFF_MAX);
    }
}
