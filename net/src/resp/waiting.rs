//! Where connections wait until a key has an element.

use super::waited_keys::{KeyHas, MayTry};

/// Keys that one command waits for, at most.
pub const WAITED_KEYS_MAX: usize = 255;

/// What is waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitingFigures {
    /// Keys.
    pub keys: u64,
    /// How often a connection was notified since the start that it may try one.
    pub notified: u64,
}

/// Keys that connections would wait for take more bytes than they may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitersFull {
    /// The limit.
    pub bytes_max: usize,
}

impl WaitersFull {
    /// The error of RESP.
    #[must_use]
    pub fn text(self) -> String {
        format!(
            "BUSY nothing was executed: the keys that connections of this node wait for, and the \
             names that they subscribe to, would take more than {} bytes",
            self.bytes_max
        )
    }
}

/// Where the connections of a node wait for keys.
pub trait KeyWaiters {
    /// The shard of a key.
    fn shard_of(&self, key: &[u8]) -> u16;

    /// A connection waits for these keys from now on, to pop from values of this type. Its ticket,
    /// which is higher than all that were given before.
    ///
    /// # Errors
    /// There is no room.
    fn begin(&self, client: u64, of_type: u8, keys: &[&[u8]]) -> Result<u64, WaitersFull>;

    /// Whether it may try a key. When that changes the connection is notified.
    fn may_try(&self, key: &[u8], ticket: u64) -> MayTry;

    /// It has found this in a key, which it cannot pop.
    fn found(&self, key: &[u8], ticket: u64, has: KeyHas);

    /// It waits for these keys no more.
    fn end(&self, ticket: u64, keys: &[&[u8]]);

    /// Ends the wait of a connection, as if its time were over or with an error. `false` if it does
    /// not wait.
    fn unblock(&self, client: u64, is_error: bool) -> bool;

    /// How many connections wait: for keys, or because CLIENT PAUSE holds their command.
    fn blocked_clients(&self) -> usize;

    /// What is waited for.
    fn figures(&self) -> WaitingFigures;
}
