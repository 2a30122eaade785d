//! Transactions of embedded stores.

use std::future::{Ready, ready};
use std::time::Duration;

use penstock_client::{Answered, Transacted};

use super::{
    Answer, Ask, Changed, ClientError, Isolation, Local, Pending, Penstock, Token, Transaction,
    TransactionError, Verbs, transact,
};

impl Answered for Pending<Answer> {
    fn wait(self) -> Result<Answer, ClientError> {
        Pending::wait(self)
    }
}

impl Transacted for &Penstock {
    type Asked = Pending<Answer>;

    fn ask(&mut self, ask: Ask<'_>, token: Option<Token>) -> Pending<Answer> {
        match token {
            Some(token) => self.ask_named(ask, token),
            None => self.ask_for(ask),
        }
    }

    fn value_bytes_max(&self) -> Option<u32> {
        Some(self.store.value_bytes_max)
    }

    fn deadline(&self) -> Duration {
        self.store.deadline
    }
}

impl Transacted for Local {
    type Asked = Ready<Result<Answer, ClientError>>;

    fn ask(&mut self, ask: Ask<'_>, token: Option<Token>) -> Self::Asked {
        ready(match token {
            Some(token) => self.ask_named(ask, token),
            None => self.ask_for(ask),
        })
    }

    fn value_bytes_max(&self) -> Option<u32> {
        Some(Local::value_bytes_max(self))
    }

    fn deadline(&self) -> Duration {
        Local::deadline(self)
    }
}

impl Penstock {
    /// Begins a transaction, as with the network's client.
    ///
    /// ```
    /// use penstock::embedded::{Isolation, TransactionError};
    /// use penstock::{Options, Penstock, Verbs};
    ///
    /// # let name = format!("penstock-doc-transaction-{}", std::process::id());
    /// # let directory = std::env::temp_dir().join(name);
    /// let store = Penstock::open(&directory, Options::default())?;
    /// store.set(b"{call}ann", b"on call").wait()?;
    /// store.set(b"{call}bob", b"on call").wait()?;
    ///
    /// // Both look whether the other one stays, and go.
    /// let (mut ann, mut bob) = (
    ///     store.begin(Isolation::Serializable),
    ///     store.begin(Isolation::Serializable),
    /// );
    /// assert!(ann.get(b"{call}bob").wait()?.is_some());
    /// assert!(bob.get(b"{call}ann").wait()?.is_some());
    /// ann.del(b"{call}ann")?;
    /// bob.del(b"{call}bob")?;
    /// ann.commit().wait()?;
    /// match bob.commit().wait() {
    ///     Err(TransactionError::Conflict(conflict)) => assert_eq!(conflict.key, b"{call}ann"),
    ///     other => panic!("nobody is on call: {other:?}"),
    /// }
    /// store.close()?;
    /// # std::fs::remove_dir_all(&directory)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn begin(&self, isolation: Isolation) -> Transaction<&Penstock> {
        Transaction::begin(self, isolation)
    }

    /// Runs a transaction and commits it, again and again while other writers are faster; blocks.
    /// See [`transact`].
    ///
    /// # Errors
    /// As for [`transact`]; the tries end when [`Options::deadline`](super::Options::deadline) has
    /// passed.
    pub fn transact<T>(
        &self,
        isolation: Isolation,
        run: impl FnMut(&mut Transaction<&mut &Penstock>) -> Result<T, TransactionError>,
    ) -> Result<(T, Option<Changed>), TransactionError> {
        transact(self, isolation, run)
    }
}

impl Local {
    /// Begins a transaction, which borrows the store: nobody else writes meanwhile, and only an
    /// expiry can make it conflict. Its `wait()` never waits for another thread.
    pub fn begin(&mut self, isolation: Isolation) -> Transaction<&mut Local> {
        Transaction::begin(self, isolation)
    }
}
