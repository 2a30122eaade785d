//! Transactions: reads, then writes that take effect together if what was read is still true.
//!
//! What a [`Transaction`] has read and is to write stands in a [`Draft`], which is pure. The store
//! is asked for values and, at the end, for one APPLY: guards on versions first, then the effects.
//! TRANSACTIONS.md beside this crate describes the levels.

mod asked;
mod draft;
mod error;
mod level;
mod of_client;
mod plan;
mod step;
mod store;
mod transact;
mod view;

use penstock_net::apply::{ApplyInstruction, ApplyKey};
use penstock_net::request::{Expiry, Token};

#[cfg(doc)]
use crate::client::Client;
#[cfg(doc)]
use crate::operation::{Answer, ClientError};
#[cfg(doc)]
use crate::verbs::Verbs;

pub use asked::{Committing, Reading};
pub use error::{Conflict, KeyState, TransactionError, TransactionRefusal};
pub use level::{Isolation, TransactionValue};
pub use store::{Answered, Transacted};
pub use transact::transact;

use draft::Draft;

/// Reads and writes on up to 255 keys of one slot, which take effect together or not at all.
///
/// A store begins one: [`Client::begin`], and `begin` of the embedded stores. Reads ask the store
/// and see what the transaction has written. Writes are kept here until [`Transaction::commit`]
/// sends them as one APPLY. Dropping a transaction gives it up, and nothing was written.
///
/// ```no_run
/// # use penstock_client::{Client, ClientOptions, Isolation, TransactionError};
/// # let client = Client::connect("127.0.0.1:7411".parse()?, ClientOptions::default())?;
/// let mut transfer = client.begin(Isolation::Serializable);
/// let from = transfer.get(b"{bank}ann").wait()?.expect("an account");
/// let to = transfer.get(b"{bank}bob").wait()?.expect("an account");
/// let cents = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
/// let (from, to) = (cents(&from.bytes), cents(&to.bytes));
/// transfer.set(b"{bank}ann", &(from - 100).to_le_bytes())?;
/// transfer.set(b"{bank}bob", &(to + 100).to_le_bytes())?;
/// match transfer.commit().wait() {
///     Ok(_) => println!("done"),
///     Err(TransactionError::Conflict(conflict)) => println!("again, because {conflict}"),
///     Err(other) => return Err(other.into()),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A commit takes the transaction with it, so nothing can be done with it afterwards:
///
/// ```compile_fail,E0382
/// # use penstock_client::{Client, ClientOptions, Isolation};
/// # let client = Client::connect("127.0.0.1:7411".parse()?, ClientOptions::default())?;
/// let mut order = client.begin(Isolation::Snapshot);
/// order.set(b"order:7", b"open")?;
/// order.commit().wait()?;
/// order.set(b"order:7", b"paid")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "a transaction that is not committed writes nothing"]
pub struct Transaction<S> {
    store: S,
    draft: Draft,
    token: Option<Token>,
}

impl<S: Transacted> Transaction<S> {
    /// Begins. Nothing is asked before the first read.
    pub fn begin(store: S, isolation: Isolation) -> Self {
        let draft = Draft::new(isolation, store.value_bytes_max());
        Transaction {
            store,
            draft,
            token: None,
        }
    }

    /// Gives the commit a token, as [`Verbs::named`] does. A commit that writes nothing needs none
    /// and has none.
    pub fn named(self, token: Token) -> Self {
        let token = Some(token);
        Transaction { token, ..self }
    }

    /// Reads a value; `None` if the key is missing. A key is asked for once. What the transaction
    /// has written is seen.
    ///
    /// A read of [`Isolation::Snapshot`] that is not the first one also asks whether the values
    /// that were read before are still there. If they are not, the outcome is
    /// [`TransactionError::Conflict`].
    pub fn get(&mut self, key: &[u8]) -> Reading<'_, S, Option<TransactionValue>> {
        Reading::new(&mut self.store, &mut self.draft, &[key], |mut values| {
            values.pop().flatten()
        })
    }

    /// Reads several values, which are asked for side by side.
    pub fn get_all(&mut self, keys: &[&[u8]]) -> Reading<'_, S, Vec<Option<TransactionValue>>> {
        Reading::new(&mut self.store, &mut self.draft, keys, |values| values)
    }

    /// Writes a value that never expires. A key that was not read is written whatever it has.
    ///
    /// # Errors
    /// [`TransactionError::Refused`], as of all writes below: a limit of transactions, by its name.
    /// The transaction is as it was before the call.
    pub fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), TransactionError> {
        self.set_with(key, value, Expiry::Never)
    }

    /// Writes a value and says when it expires. [`Expiry::Keep`] keeps the expiry and what runs
    /// with it (ON_EXPIRE). The key must have been read then; and if it has an expiry, the new
    /// value must be as long as the old one.
    ///
    /// # Errors
    /// [`TransactionError::Refused`].
    pub fn set_with(
        &mut self,
        key: &[u8],
        value: &[u8],
        expiry: Expiry,
    ) -> Result<(), TransactionError> {
        Ok(self.draft.set(key, value, expiry)?)
    }

    /// Deletes a key. A key that is missing stays missing.
    ///
    /// # Errors
    /// [`TransactionError::Refused`].
    pub fn del(&mut self, key: &[u8]) -> Result<(), TransactionError> {
        Ok(self.draft.del(key)?)
    }

    /// Names a key for instructions of [`Transaction::then`].
    ///
    /// # Errors
    /// [`TransactionError::Refused`].
    pub fn key(&mut self, key: &[u8]) -> Result<ApplyKey, TransactionError> {
        Ok(self.draft.key(key)?)
    }

    /// Adds a guard or an effect of APPLY, which the commit runs on what is there then. A key that
    /// was not read conflicts with nobody: many transactions may change one counter so. A guard
    /// that does not hold is [`ClientError::No`], and [`Answer::failed`] counts the instructions of
    /// this method alone.
    ///
    /// ```no_run
    /// # use penstock_client::{Client, ClientOptions, Isolation};
    /// # let client = Client::connect("127.0.0.1:7411".parse()?, ClientOptions::default())?;
    /// let mut order = client.begin(Isolation::Serializable);
    /// let stock = order.key(b"stock:{tee}")?;
    /// order.then(stock.u32(0).at_least(2u64).or_else(1))?;
    /// order.then(stock.u32(0).decrease(2u64))?;
    /// order.set(b"order:{tee}:7", b"ann")?;
    /// order.commit().wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`TransactionError::Refused`].
    pub fn then(&mut self, instruction: ApplyInstruction) -> Result<(), TransactionError> {
        Ok(self.draft.then(instruction)?)
    }

    /// Marks what was written until now. The same name again hides the older mark.
    ///
    /// # Errors
    /// [`TransactionError::Refused`]: there are too many.
    pub fn savepoint(&mut self, name: &str) -> Result<(), TransactionError> {
        Ok(self.draft.savepoint(name)?)
    }

    /// Takes back what was written since a savepoint. That savepoint stays, and later ones are
    /// gone. What was read since then stays read, because the caller has seen it.
    ///
    /// # Errors
    /// [`TransactionError::Refused`]: there is no such savepoint.
    pub fn rollback_to(&mut self, name: &str) -> Result<(), TransactionError> {
        Ok(self.draft.rollback_to(name)?)
    }

    /// Writes everything as one APPLY: all of it takes effect, or nothing. `None` says that the
    /// transaction wrote nothing; then what it read is proved by guards alone, which the log does
    /// not see.
    ///
    /// If the outcome is [`ClientError::Unknown`] and the commit had a token, the error has the
    /// write, and [`Client::resolve`] asks it again.
    pub fn commit(self) -> Committing<S> {
        Committing::new(self.store, self.draft, self.token)
    }
}

#[cfg(test)]
mod tests;
