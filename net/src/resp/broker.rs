//! Where the connections of a node subscribe and publish.

use super::message::Kind;

/// Why a SUBSCRIBE or a PUBLISH is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokerFull {
    /// Names and patterns that connections subscribe to would take more bytes than they may.
    Names {
        /// The limit.
        bytes_max: usize,
    },
    /// All patterns would take more steps for the longest name of a channel than they may.
    Patterns {
        /// Those that they would take.
        steps: usize,
        /// The limit.
        steps_max: usize,
    },
    /// Messages that have not left would take more bytes than they may.
    Messages {
        /// The limit.
        bytes_max: usize,
    },
    /// A core has taken too few messages of those that wait for it.
    Mail {
        /// How many may wait.
        messages_max: usize,
    },
}

impl BrokerFull {
    /// The error of RESP.
    #[must_use]
    pub fn text(self) -> String {
        match self {
            BrokerFull::Names { bytes_max } => format!(
                "ERR the names that connections of this node subscribe to would take more than \
                 {bytes_max} bytes"
            ),
            BrokerFull::Patterns { steps, steps_max } => format!(
                "ERR the patterns that connections of this node subscribe to would take {steps} \
                 steps for the longest name of a channel, and {steps_max} is the limit"
            ),
            BrokerFull::Messages { bytes_max } => format!(
                "BUSY nothing was published: messages that subscribers have not taken would take \
                 more than {bytes_max} bytes"
            ),
            BrokerFull::Mail { messages_max } => format!(
                "BUSY nothing was published: {messages_max} messages wait for a core of this node"
            ),
        }
    }
}

/// Where the connections of a node subscribe and publish.
pub trait Broker {
    /// A connection subscribes to what it does not subscribe to yet: messages that are published
    /// from now on are for it, too.
    ///
    /// # Errors
    /// There is no room.
    fn subscribe(&self, kind: Kind, name: &[u8], client: u64) -> Result<(), BrokerFull>;

    /// It does not any more.
    fn unsubscribe(&self, kind: Kind, name: &[u8], client: u64);

    /// Publishes a message to a channel of this kind; how many times it is received.
    ///
    /// # Errors
    /// Nobody gets it.
    fn publish(&self, kind: Kind, channel: &[u8], payload: &[u8]) -> Result<usize, BrokerFull>;

    /// How many messages were mailed to the core of the connection, and how many of them its
    /// connections have got.
    fn mail(&self) -> (u64, u64);

    /// Steps that patterns take at most for a message to this channel.
    fn steps(&self, kind: Kind, channel: &[u8]) -> usize;

    /// How many subscribe to this name, of all cores or of the one whose own port it is.
    fn subscribers(&self, kind: Kind, name: &[u8]) -> usize;

    /// Shows each name that somebody subscribes to once, until `visit` answers `false`.
    fn visit_names(&self, kind: Kind, visit: &mut dyn FnMut(&[u8]) -> bool);

    /// How many different names of a kind somebody subscribes to.
    fn names(&self, kind: Kind) -> usize {
        let mut names = 0;
        self.visit_names(kind, &mut |_| {
            names += 1;
            true
        });
        names
    }

    /// How many connections subscribe to something.
    fn clients(&self) -> usize;
}
