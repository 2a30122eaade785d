//! One server of a client: its queue, its connection, and when it is tried again.

use std::collections::VecDeque;
use std::net::TcpStream;
use std::sync::{Arc, Condvar};
use std::time::{Duration, Instant};

use crate::channel::Channel;
use crate::connection::Connection;
use crate::login::Unwelcome;
use crate::operation::ClientError;
use crate::queued::{Queued, What};
use crate::silence::Silence;

/// The first wait between two tries to connect. Each next wait is twice as long.
const BACKOFF_MIN: Duration = Duration::from_millis(10);
/// The longest wait between two tries to connect.
pub(crate) const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// The wait before a login that was refused is tried again.
const UNWELCOME_PAUSE: Duration = Duration::from_secs(15);

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
    /// Why the node and this client are not made for each other, until it is tried again.
    pub(crate) unwelcome: Option<Unwelcome>,
    /// Why the last connection ended before its HELLO was answered.
    pub(crate) turned_back: Option<ClientError>,
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
    pub(crate) silence: Silence,
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
            unwelcome: None,
            turned_back: None,
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

    /// HELLO and the login of the connection may have come further. `is_opened`: operations may be
    /// sent from now on.
    pub(crate) fn greeted(&mut self, is_opened: bool) {
        let Some(Link { connection, .. }) = &mut self.link else {
            return;
        };
        let (has_output, unwelcome) = (connection.has_output(), connection.take_unwelcome());
        if has_output || is_opened {
            self.wake();
        }
        if let Some(unwelcome) = unwelcome {
            self.turned_away(unwelcome);
        } else if is_opened {
            self.is_failing = false;
            self.unwelcome = None;
            self.backoff = BACKOFF_MIN;
        }
    }

    /// The node does not let the client in, or is not trusted: what waits for it is told so, and it
    /// is left alone for a while. Each try counts against the address of this machine.
    pub(crate) fn turned_away(&mut self, unwelcome: Unwelcome) {
        let delay = Duration::from_millis(unwelcome.delay_ms.into());
        self.try_at = Instant::now() + delay.max(UNWELCOME_PAUSE);
        self.unwelcome = Some(unwelcome);
        self.answer_unwelcome();
    }

    /// Whether it is tried again though nothing waits for it. One that does not let the client in
    /// is not: each try counts.
    pub(crate) fn is_to_be_tried(&self) -> bool {
        self.is_failing && self.unwelcome.is_none()
    }

    /// Bytes have come. A node that the client had turned away from is asked again.
    pub(crate) fn received(&mut self, now: Instant) {
        if let Some(link) = &mut self.link
            && link.silence.received(now, link.connection.is_owed())
        {
            self.is_failing = false;
            self.backoff = BACKOFF_MIN;
        }
    }

    /// Tells what waits for the node that it will not be sent.
    pub(crate) fn answer_unwelcome(&mut self) {
        if let Some(unwelcome) = &self.unwelcome {
            let error = || unwelcome.error();
            self.queue.drain(..).for_each(|queued| queued.fail(error()));
        }
    }

    /// The node is no Penstock server, or it and this client do not speak the same TLS or do not
    /// trust each other. Asking again at once would not change that: what waits for the node ends,
    /// and the next try is a second away. A question about the node itself ends with the cause.
    pub(crate) fn refused(&mut self, error: &ClientError) {
        self.backoff = BACKOFF_MAX;
        for queued in self.queue.drain(..) {
            let error = match queued.what {
                What::Frame { .. } => error.clone(),
                What::Item { .. } => ClientError::NotSent(error.to_string()),
            };
            queued.fail(error);
        }
    }

    pub(crate) fn failed(&mut self) {
        self.is_failing = true;
        self.try_at = self.try_at.max(Instant::now() + self.backoff);
        self.backoff = (self.backoff * 2).min(BACKOFF_MAX);
    }
}
