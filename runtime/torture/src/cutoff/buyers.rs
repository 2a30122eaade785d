//! The buyers of one sale. They come at a rate, whatever becomes of those before them.
//!
//! Each purchase is one APPLY with a token of the client: one unit less, and an order of its own. A
//! purchase with an unknown outcome is asked again with its token, or given up by its buyer.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use penstock_client::tls::ClientTls;
use penstock_client::{Apply, Changed, Client, ClientError, ClientOptions, Pending, Verbs};
use penstock_net::level::AckLevel;
use penstock_net::request::Version;
use penstock_net::status::Status;

use super::books::{Books, End, Purchase, STOCK, order};
use crate::random::Random;

/// Threads that serve the buyers, each over a client of its own.
pub const CASHIERS: usize = 4;
const BUYERS_BETWEEN: u64 = CASHIERS as u64;
/// How long a purchase may take until its outcome is unknown, also of one that is asked again.
const DEADLINE: Duration = Duration::from_millis(600);
/// How often a purchase is asked.
const TRIES_MAX: u32 = 12;
/// One buyer in so many does not ask again.
const GIVES_UP_ONCE_IN: u64 = 4;
/// Purchases of a cashier that are open. Beyond it buyers turn away and ask nothing.
const OPEN_MAX: usize = 1_024;
/// Between two rounds of a cashier through what is open, and between two reads.
const PAUSE: Duration = Duration::from_millis(1);
const PAUSE_OF_READS: Duration = Duration::from_millis(10);
/// A cashier that was held up by more than this serves those who came meanwhile no more.
const BEHIND_MAX: Duration = Duration::from_millis(100);

/// A purchase that is under way.
struct Open {
    buyer: u64,
    asked: Duration,
    tries: u32,
    pending: Pending<Changed>,
}

/// The sale of one stock.
pub struct Sale {
    began: Instant,
    is_over: AtomicBool,
    level: AckLevel,
    tls: Option<ClientTls>,
    /// The newest time at which a buyer asked who was told that nothing is left, in microseconds.
    sold_out_asked_us: AtomicU64,
}

impl Sale {
    pub fn new(level: AckLevel, tls: Option<ClientTls>) -> Sale {
        Sale {
            began: Instant::now(),
            is_over: AtomicBool::new(false),
            level,
            tls,
            sold_out_asked_us: AtomicU64::new(0),
        }
    }

    /// Now, behind the begin of the sale.
    pub fn now(&self) -> Duration {
        self.began.elapsed()
    }

    pub fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed)
    }

    /// Whether somebody who asked behind this time was told that nothing is left.
    pub fn is_sold_out_behind(&self, time: Duration) -> bool {
        let newest = Duration::from_micros(self.sold_out_asked_us.load(Ordering::Relaxed));
        newest > time
    }

    /// Puts the units on sale: the version of the stock.
    ///
    /// # Errors
    /// The cluster does not take it.
    pub fn open(&self, addresses: &[SocketAddr], units: u64) -> Result<Version, String> {
        let client = self.connect(addresses, Duration::from_secs(5))?;
        let opened = client.set(STOCK, &units.to_le_bytes()).wait();
        let opened = opened.map_err(|error| format!("the stock is not taken: {error}"))?;
        Ok(opened.version)
    }

    fn connect(&self, addresses: &[SocketAddr], deadline: Duration) -> Result<Client, String> {
        let options = ClientOptions {
            names_writes: true,
            ..crate::sales::options(self.level, deadline, self.tls.as_ref())
        };
        let named: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
        Client::connect_any(&named, options).map_err(|error| error.to_string())
    }

    /// Serves the buyers of one cashier until the sale is over and no purchase is under way.
    ///
    /// # Errors
    /// An answer that no node may give.
    pub fn sell(
        &self,
        addresses: &[SocketAddr],
        (cashier, rate): (u64, u64),
        mut random: Random,
    ) -> Result<Books, String> {
        let client = self.connect(addresses, DEADLINE)?;
        let interval = Duration::from_micros(1_000_000 * BUYERS_BETWEEN / rate.max(1));
        let mut next = self.now() + interval.mul_f64(cashier as f64 / CASHIERS as f64);
        let mut buyer = cashier;
        let mut open: Vec<Open> = Vec::new();
        let mut books = Books::default();
        loop {
            let now = self.now();
            let goes_on = self.goes_on();
            if !goes_on && open.is_empty() {
                return Ok(books);
            }
            if now > next + BEHIND_MAX {
                next = now;
            }
            while goes_on && next <= now {
                next += interval;
                buyer += BUYERS_BETWEEN;
                if open.len() < OPEN_MAX {
                    open.push(Open {
                        buyer,
                        asked: self.now(),
                        tries: 1,
                        pending: client.apply(&purchase(buyer)),
                    });
                }
            }
            for one in std::mem::take(&mut open) {
                if let Some(one) = self.serve(&client, one, &mut books, &mut random)? {
                    open.push(one);
                }
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Takes in the answer to a purchase, if it is there. What stays open is returned.
    fn serve(
        &self,
        client: &Client,
        mut one: Open,
        books: &mut Books,
        random: &mut Random,
    ) -> Result<Option<Open>, String> {
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(answer) = Pin::new(&mut one.pending).poll(&mut context) else {
            return Ok(Some(one));
        };
        let is_first = one.tries == 1;
        let end = match answer {
            Ok(changed) => End::Sold {
                version: changed.version,
                left: *changed
                    .fields
                    .first()
                    .ok_or("a purchase that tells no stock")?,
                level: changed.level,
            },
            Err(ClientError::Unknown(unknown)) => {
                let write = unknown.write();
                let write = write.ok_or(format!("a purchase without its token: {unknown}"))?;
                if one.tries < TRIES_MAX && !random.once_in(GIVES_UP_ONCE_IN) {
                    return Ok(Some(Open {
                        tries: one.tries + 1,
                        pending: client.resolve(write),
                        ..one
                    }));
                }
                End::Unknown
            }
            Err(ClientError::No(answer)) if answer.status == Status::GuardFailed => {
                match is_first {
                    true => {
                        let asked_us = u64::try_from(one.asked.as_micros()).unwrap_or(u64::MAX);
                        self.sold_out_asked_us
                            .fetch_max(asked_us, Ordering::Relaxed);
                        End::SoldOut {
                            answered: self.now(),
                        }
                    }
                    // An earlier try may be executed behind this one.
                    false => End::Unknown,
                }
            }
            Err(ClientError::Busy(_) | ClientError::NotSent(_) | ClientError::Deadline) => {
                match is_first {
                    true => End::NotExecuted,
                    false => End::Unknown,
                }
            }
            Err(error) => return Err(format!("buyer {}: {error}", one.buyer)),
        };
        books.purchases.push(Purchase {
            buyer: one.buyer,
            asked: one.asked,
            end,
        });
        Ok(None)
    }

    /// Reads the stock until the sale is over: at one node, or wherever it is written.
    ///
    /// # Errors
    /// An answer that no node may give.
    pub fn watch(
        &self,
        addresses: &[SocketAddr],
        node: Option<usize>,
    ) -> Result<BTreeSet<(u64, Version)>, String> {
        let options = ClientOptions {
            follows: node.is_none(),
            ..crate::sales::options(self.level, DEADLINE, self.tls.as_ref())
        };
        let asked = match node {
            Some(node) => &addresses[node..=node],
            None => addresses,
        };
        let named: Vec<String> = asked.iter().map(SocketAddr::to_string).collect();
        let client = Client::connect_any(&named, options).map_err(|error| error.to_string())?;
        let mut shown = BTreeSet::new();
        while self.goes_on() {
            std::thread::sleep(PAUSE_OF_READS);
            match client.get(STOCK).wait() {
                Ok(Some(value)) => {
                    let left = value.bytes[..].try_into().map(u64::from_le_bytes);
                    let left = left.map_err(|_| "a read of a stock that is no number")?;
                    shown.insert((left, value.version));
                }
                Ok(None) => return Err("a read shows no stock".into()),
                Err(
                    ClientError::Busy(_)
                    | ClientError::NotSent(_)
                    | ClientError::Deadline
                    | ClientError::Unknown(_),
                ) => {}
                Err(error) => return Err(format!("a read: {error}")),
            }
        }
        Ok(shown)
    }
}

/// One unit less, if there is one, and an order.
fn purchase(buyer: u64) -> Apply {
    let mut purchase = Apply::new();
    let stock = purchase.key(STOCK);
    let order = purchase.key(&order(buyer));
    purchase
        .then(stock.u64(0).at_least(1u64))
        .then(stock.u64(0).decrease(1u64))
        .put(order, &buyer.to_le_bytes());
    purchase
}
