//! What a transaction asks, and of whom.

use std::future::{Future, Ready};
use std::time::Duration;

use penstock_net::request::{Ask, Token};

use crate::operation::{Answer, ClientError, Pending};
#[cfg(doc)]
use crate::verbs::Verbs;

/// A store that a [`Transaction`](crate::Transaction) asks.
pub trait Transacted {
    /// A question that is on its way.
    type Asked: Answered;

    /// Asks, by the way of [`Verbs::ask_for`], or of [`Verbs::ask_named`] with a token.
    fn ask(&mut self, ask: Ask<'_>, token: Option<Token>) -> Self::Asked;

    /// Bytes of a value that the store takes, at most; `None` if that is not known.
    fn value_bytes_max(&self) -> Option<u32>;

    /// For how long [`transact`](crate::transact) tries.
    fn deadline(&self) -> Duration;
}

/// A question on its way: the answer comes by `wait()` or by `.await`.
pub trait Answered: Future<Output = Result<Answer, ClientError>> + Unpin {
    /// Blocks until the answer or the deadline.
    ///
    /// # Errors
    /// [`ClientError`].
    fn wait(self) -> Result<Answer, ClientError>;
}

impl Answered for Pending<Answer> {
    fn wait(self) -> Result<Answer, ClientError> {
        Pending::wait(self)
    }
}

/// The answer of a store that has answered when the call returns.
impl Answered for Ready<Result<Answer, ClientError>> {
    fn wait(self) -> Result<Answer, ClientError> {
        self.into_inner()
    }
}

impl<S: Transacted> Transacted for &mut S {
    type Asked = S::Asked;

    fn ask(&mut self, ask: Ask<'_>, token: Option<Token>) -> S::Asked {
        S::ask(self, ask, token)
    }

    fn value_bytes_max(&self) -> Option<u32> {
        S::value_bytes_max(self)
    }

    fn deadline(&self) -> Duration {
        S::deadline(self)
    }
}
