//! The two things that a transaction asks of its store: reads, and the commit.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use penstock_net::request::{Ask, Token, Wanted};
use penstock_net::status::Status;

use super::draft::Draft;
use super::error::{TransactionError, TransactionRefusal};
use super::level::{Isolation, TransactionValue};
use super::plan::Plan;
use super::step::Base;
use super::store::{Answered, Transacted};
use crate::answers::Changed;
use crate::operation::{Answer, ClientError};

/// What keys hold, as `wait()` or `.await` tells it. Nothing is asked before.
#[must_use = "nothing is asked yet"]
pub struct Reading<'t, S: Transacted, T> {
    store: &'t mut S,
    draft: &'t mut Draft,
    keys: Vec<u8>,
    /// Keys that must be asked for, or were.
    needed: Vec<u8>,
    refused: Option<TransactionRefusal>,
    phase: Phase,
    under_way: VecDeque<S::Asked>,
    bases: Vec<Base>,
    finish: fn(Vec<Option<TransactionValue>>) -> T,
}

#[derive(Debug)]
enum Phase {
    Begins,
    /// The values are asked for.
    Reads,
    /// They were told, and it is asked whether all of them are still there.
    Proves(Plan),
    Ends,
}

impl<'t, S: Transacted, T> Reading<'t, S, T> {
    pub(super) fn new(
        store: &'t mut S,
        draft: &'t mut Draft,
        keys: &[&[u8]],
        finish: fn(Vec<Option<TransactionValue>>) -> T,
    ) -> Self {
        let mut reading = Reading {
            store,
            draft,
            keys: Vec::with_capacity(keys.len()),
            needed: Vec::new(),
            refused: None,
            phase: Phase::Begins,
            under_way: VecDeque::new(),
            bases: Vec::new(),
            finish,
        };
        reading.refused = reading.name(keys).err();
        reading
    }

    /// Blocks until the values are there.
    ///
    /// # Errors
    /// [`TransactionError`]. The transaction is as it was before the read.
    pub fn wait(mut self) -> Result<T, TransactionError> {
        loop {
            match self.under_way.pop_front() {
                Some(asked) => self.take(asked.wait())?,
                None => {
                    if let Some(value) = self.go_on()? {
                        return Ok(value);
                    }
                }
            }
        }
    }

    fn name(&mut self, keys: &[&[u8]]) -> Result<(), TransactionRefusal> {
        for key in keys {
            self.keys
                .push(self.draft.begin_read(key, &mut self.needed)?);
        }
        Ok(())
    }

    /// Goes on when nothing is under way.
    fn go_on(&mut self) -> Result<Option<T>, TransactionError> {
        if let Some(refusal) = self.refused.take() {
            return Err(refusal.into());
        }
        match self.phase {
            Phase::Begins if !self.needed.is_empty() => {
                for &key in &self.needed {
                    let (key, wanted) = (self.draft.name(key), Wanted::ValueAndExpiry);
                    let ask = Ask::Get { key, wanted };
                    self.under_way.push_back(self.store.ask(ask, None));
                }
                self.phase = Phase::Reads;
                Ok(None)
            }
            Phase::Reads if self.draft.isolation() == Isolation::Snapshot => {
                self.learn();
                self.phase = match self.draft.proof() {
                    None => Phase::Ends,
                    Some(plan) => {
                        let ask = Ask::Apply(plan.apply());
                        let asked = self.store.ask(ask, None);
                        self.under_way.push_back(asked);
                        Phase::Proves(plan)
                    }
                };
                Ok(None)
            }
            Phase::Reads => {
                self.learn();
                self.phase = Phase::Ends;
                Ok(None)
            }
            Phase::Begins | Phase::Proves(_) | Phase::Ends => {
                let seen = self.keys.iter().map(|key| self.draft.see(*key));
                let values = seen.collect::<Result<_, _>>()?;
                Ok(Some((self.finish)(values)))
            }
        }
    }

    /// Takes in an answer.
    fn take(&mut self, answer: Result<Answer, ClientError>) -> Result<(), TransactionError> {
        let outcome = match (&self.phase, answer) {
            (Phase::Proves(plan), answer) => match of_guards(plan, answer) {
                Ok(_) => {
                    self.phase = Phase::Ends;
                    Ok(())
                }
                Err(error) => {
                    // They were not there at one instant with what was read before.
                    for &key in &self.needed {
                        self.draft.forget(key);
                    }
                    Err(error)
                }
            },
            (_, Ok(answer)) => of_value(answer).map(|base| self.bases.push(base)),
            (_, Err(ClientError::No(answer))) if answer.status == Status::NotFound => {
                self.bases.push(Base::Missing);
                Ok(())
            }
            (_, Err(error)) => Err(of_read(error)),
        };
        if outcome.is_err() {
            self.under_way.clear();
            self.phase = Phase::Ends;
        }
        outcome
    }

    fn learn(&mut self) {
        let bases = self.needed.iter().zip(self.bases.drain(..));
        for (key, base) in bases {
            self.draft.learn(*key, base);
        }
    }
}

impl<S: Transacted, T> Future for Reading<'_, S, T> {
    type Output = Result<T, TransactionError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            match self.under_way.front_mut() {
                Some(asked) => {
                    let answer = ready!(Pin::new(asked).poll(context));
                    self.under_way.pop_front();
                    self.take(answer)?;
                }
                None => {
                    if let Some(value) = self.go_on()? {
                        return Poll::Ready(Ok(value));
                    }
                }
            }
        }
    }
}

impl<S: Transacted, T> fmt::Debug for Reading<'_, S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reading")
            .field("phase", &self.phase)
            .finish_non_exhaustive()
    }
}

/// A commit, as `wait()` or `.await` tells it. Nothing is asked before.
#[must_use = "nothing is written yet"]
pub struct Committing<S: Transacted> {
    store: S,
    draft: Draft,
    token: Option<Token>,
    under_way: Option<(Plan, S::Asked)>,
}

impl<S: Transacted> Committing<S> {
    pub(super) fn new(store: S, draft: Draft, token: Option<Token>) -> Self {
        Committing {
            store,
            draft,
            token,
            under_way: None,
        }
    }

    /// Blocks until the answer or the deadline.
    ///
    /// # Errors
    /// [`TransactionError`]. Nothing was written, but for [`ClientError::Unknown`].
    pub fn wait(mut self) -> Result<Option<Changed>, TransactionError> {
        self.ask()?;
        match self.under_way.take() {
            None => Ok(None),
            Some((plan, asked)) => of_commit(&plan, asked.wait()),
        }
    }

    fn ask(&mut self) -> Result<(), TransactionError> {
        if let Some(plan) = self.draft.commit()? {
            let token = self.token.filter(|_| plan.apply().has_effect());
            let asked = self.store.ask(Ask::Apply(plan.apply()), token);
            self.under_way = Some((plan, asked));
        }
        Ok(())
    }
}

impl<S: Transacted + Unpin> Future for Committing<S> {
    type Output = Result<Option<Changed>, TransactionError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.under_way.is_none() {
            self.ask()?;
        }
        match &mut self.under_way {
            None => Poll::Ready(Ok(None)),
            Some((plan, asked)) => {
                let answer = ready!(Pin::new(asked).poll(context));
                Poll::Ready(of_commit(plan, answer))
            }
        }
    }
}

impl<S: Transacted> fmt::Debug for Committing<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Committing").finish_non_exhaustive()
    }
}

fn of_value(answer: Answer) -> Result<Base, TransactionError> {
    let expiry = answer
        .expiry
        .ok_or_else(|| ClientError::Protocol("the answer does not tell the expiry".into()))?;
    Ok(Base::Present {
        bytes: answer.value,
        version: answer.version,
        expiry_ms: expiry.expiry_ms,
    })
}

/// The error of a question that writes nothing.
fn of_read(error: ClientError) -> TransactionError {
    let error = match error {
        ClientError::Unknown(text) => {
            ClientError::Busy(format!("nothing was written: a read had {text}"))
        }
        other => other,
    };
    TransactionError::Store(error)
}

/// The answer to guards without effects, or the conflict in it.
fn of_guards(plan: &Plan, answer: Result<Answer, ClientError>) -> Result<Answer, TransactionError> {
    match answer {
        Err(ClientError::No(answer)) => Err(match plan.conflict(&answer) {
            Some(conflict) => TransactionError::Conflict(conflict),
            None => ClientError::No(plan.as_asked(answer)).into(),
        }),
        Err(ClientError::Refused(answer)) => {
            Err(ClientError::Refused(plan.as_asked(answer)).into())
        }
        Err(error) if !plan.apply().has_effect() => Err(of_read(error)),
        answer => Ok(answer?),
    }
}

fn of_commit(
    plan: &Plan,
    answer: Result<Answer, ClientError>,
) -> Result<Option<Changed>, TransactionError> {
    let answer = of_guards(plan, answer)?;
    Ok(plan.changed(&answer))
}
