//! Scans from the caller's side: a page at a time, or all keys one after the other.

use bytes::Bytes;

use crate::answers::Value;
use crate::operation::{Answer, ClientError, FromAnswer};
use penstock_net::request::Version;
use penstock_net::scan::{ScanPage, ScanRequest, ScanValue};
use penstock_net::status::Status;

/// Some keys, in the order of their slots and hashes: to a caller they are in no order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The cursor of the next page, if there may be more keys.
    pub next: Option<u64>,
    /// The keys; there may be none although there is a next page.
    pub entries: Vec<Entry>,
}

/// One key of a [`Page`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its bytes.
    pub key: Bytes,
    /// Its version.
    pub version: Version,
    /// Its value, if it was asked for and the key has no members.
    pub value: Option<Bytes>,
}

impl Answer {
    /// The answer to a step of a scan.
    ///
    /// # Errors
    /// The [`ClientError`] of its status if it is not OK.
    pub fn page(self) -> Result<Page, ClientError> {
        let answer = self.ok()?;
        let page = ScanPage::read(&answer.value)
            .map_err(|refusal| ClientError::Protocol(refusal.to_string()))?;
        let entries = page.entries().map(|entry| Entry {
            key: answer.value.slice_ref(entry.key),
            version: entry.version,
            value: match entry.value {
                ScanValue::Bytes(value) => Some(answer.value.slice_ref(value)),
                ScanValue::NotAsked | ScanValue::LeftOut | ScanValue::Type(_) => None,
            },
        });
        Ok(Page {
            next: (page.cursor != 0).then_some(page.cursor),
            entries: entries.collect(),
        })
    }
}

impl FromAnswer for Page {
    fn from_answer(answer: Answer) -> Result<Page, ClientError> {
        answer.page()
    }
}

/// A store that a [`Scan`] goes through.
pub trait Scanned {
    /// The page that is asked for.
    ///
    /// # Errors
    /// [`ClientError`].
    fn page(&mut self, request: &ScanRequest<'_>) -> Result<Page, ClientError>;

    /// A value; `None` if the key is missing.
    ///
    /// # Errors
    /// [`ClientError`].
    fn value(&mut self, key: &[u8]) -> Result<Option<Value>, ClientError>;
}

/// All keys with a prefix, one after the other, with one page of them in memory. It blocks for each
/// page, and ends behind the first error.
#[derive(Debug)]
pub struct Scan<S> {
    store: S,
    prefix: Vec<u8>,
    wants_values: bool,
    next: Option<u64>,
    page: std::vec::IntoIter<Entry>,
}

impl<S: Scanned> Scan<S> {
    /// Begins with the first key.
    #[must_use]
    pub fn new(store: S, prefix: &[u8], wants_values: bool) -> Self {
        Scan {
            store,
            prefix: prefix.to_vec(),
            wants_values,
            next: Some(0),
            page: Vec::new().into_iter(),
        }
    }

    /// Reads a value by itself that had no room in the page; `None` if the key is gone meanwhile.
    fn complete(&mut self, entry: Entry) -> Result<Option<Entry>, ClientError> {
        if !self.wants_values || entry.value.is_some() {
            return Ok(Some(entry));
        }
        let value = match self.store.value(&entry.key) {
            // It has members, which no verb of this protocol reads.
            Err(ClientError::Refused(answer)) if answer.status == Status::WrongType => {
                return Ok(Some(entry));
            }
            value => value?,
        };
        Ok(value.map(|Value { bytes, version }| Entry {
            key: entry.key,
            version,
            value: Some(bytes),
        }))
    }
}

impl<S: Scanned> Iterator for Scan<S> {
    type Item = Result<Entry, ClientError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let outcome = match self.page.next() {
                Some(entry) => self.complete(entry),
                None => {
                    let request = ScanRequest {
                        cursor: self.next.take()?,
                        wants_values: self.wants_values,
                        ..ScanRequest::begin(&self.prefix)
                    };
                    self.store.page(&request).map(|page| {
                        self.next = page.next;
                        self.page = page.entries.into_iter();
                        None
                    })
                }
            };
            match outcome {
                Ok(Some(entry)) => return Some(Ok(entry)),
                Ok(None) => {}
                Err(error) => {
                    self.next = None;
                    self.page = Vec::new().into_iter();
                    return Some(Err(error));
                }
            }
        }
    }
}
