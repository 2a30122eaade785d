//! Transactions of a [`Client`].

use std::time::Duration;

use penstock_net::request::{Ask, Token};

use super::error::TransactionError;
use super::level::Isolation;
use super::store::Transacted;
use super::{Transaction, transact};
use crate::answers::Changed;
use crate::client::Client;
use crate::operation::{Answer, Pending};
#[cfg(doc)]
use crate::options::ClientOptions;
use crate::verbs::Verbs;

impl Client {
    /// Begins a transaction.
    pub fn begin(&self, isolation: Isolation) -> Transaction<&Client> {
        Transaction::begin(self, isolation)
    }

    /// Runs a transaction and commits it, again and again while other writers are faster; blocks.
    /// See [`transact`].
    ///
    /// ```no_run
    /// # use penstock_client::{Client, ClientOptions, Isolation};
    /// # let client = Client::connect("127.0.0.1:7411".parse()?, ClientOptions::default())?;
    /// // At least one of two stays on call.
    /// let (is_free, _) = client.transact(Isolation::Serializable, |shift| {
    ///     let both = shift.get_all(&[b"{call}ann", b"{call}bob"]).wait()?;
    ///     let is_free = both.iter().all(Option::is_some);
    ///     if is_free {
    ///         shift.del(b"{call}ann")?;
    ///     }
    ///     Ok(is_free)
    /// })?;
    /// println!("ann {}", if is_free { "goes home" } else { "stays" });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As for [`transact`]; the tries end when [`ClientOptions::deadline`] has passed.
    pub fn transact<T>(
        &self,
        isolation: Isolation,
        run: impl FnMut(&mut Transaction<&mut &Client>) -> Result<T, TransactionError>,
    ) -> Result<(T, Option<Changed>), TransactionError> {
        transact(self, isolation, run)
    }
}

impl Transacted for &Client {
    type Asked = Pending<Answer>;

    fn ask(&mut self, ask: Ask<'_>, token: Option<Token>) -> Pending<Answer> {
        match token {
            Some(token) => self.ask_named(ask, token),
            None => self.ask_for(ask),
        }
    }

    fn value_bytes_max(&self) -> Option<u32> {
        Client::value_bytes_max(self)
    }

    fn deadline(&self) -> Duration {
        Client::deadline(self)
    }
}
