//! The buyers of a cluster that heals itself, and who asks one node alone.
//!
//! Each write has a token. A write with an unknown outcome is asked again until it is known. So in
//! the end each stock has exactly what was bought of it, and not one piece more or less.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use penstock_client::tls::ClientTls;
use penstock_client::{
    Changed, Client, ClientError, ClientOptions, Field, NamedWrite, Verbs, new_token,
};
use penstock_net::level::AckLevel;
use penstock_net::request::Version;

use crate::random::Random;
use crate::sales::{Account, STOCK_INITIAL};

/// Of each level half as many.
pub const BUYERS: usize = 6;
/// Stocks of each level. The first one is hot: each second purchase takes from it.
const STOCKS_OF_A_LEVEL: usize = 4;
pub const STOCKS: usize = 2 * STOCKS_OF_A_LEVEL;
const LEVELS: [AckLevel; 2] = [AckLevel::Replica, AckLevel::Disk];
/// Operations before a buyer connects anew, to another node first.
const OPERATIONS_OF_A_CLIENT: u64 = 500;
/// How long an operation of a buyer may take, with all that is tried for it.
const DEADLINE: Duration = Duration::from_secs(5);
/// The same of who asks one node alone.
const DEADLINE_OF_ONE: Duration = Duration::from_millis(700);
/// Between two operations: there are few cores.
const PAUSE: Duration = Duration::from_millis(2);
const PAUSE_OF_ONE: Duration = Duration::from_millis(10);
/// How long unknown outcomes may stay unknown behind the last fault.
const RESOLVE_MAX: Duration = Duration::from_secs(90);

/// The name of a stock: first those of level replica, then those of level disk.
pub fn stock(number: usize) -> Vec<u8> {
    format!("{}:stock:{number}", level_of(number).name()).into_bytes()
}

/// The level at which it is bought and read.
pub fn level_of(number: usize) -> AckLevel {
    LEVELS[number / STOCKS_OF_A_LEVEL]
}

/// One answer about a stock.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub stock: usize,
    /// The node that was asked alone, if only one was.
    pub node: Option<usize>,
    /// When it was asked first, and when it was answered, behind the begin of the trade.
    pub asked: Duration,
    pub answered: Duration,
    pub version: Version,
    /// What a read has shown; `None` of a purchase.
    pub left: Option<u64>,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.left {
            Some(left) => write!(f, "a read of {left}")?,
            None => f.write_str("a purchase")?,
        }
        if let Some(node) = self.node {
            write!(f, " by node {} alone", node + 1)?;
        }
        write!(
            f,
            ", version {}:{}, asked at {:.4} s, answered at {:.4} s",
            self.version.epoch,
            self.version.sequence,
            self.asked.as_secs_f64(),
            self.answered.as_secs_f64()
        )
    }
}

/// An operation of a buyer that had no good answer.
#[derive(Clone, Copy, Debug)]
pub struct Failed {
    pub at: Duration,
    pub is_unknown: bool,
}

/// What all of them have seen.
#[derive(Default)]
pub struct Seen {
    pub steps: Vec<Step>,
    pub failed: Vec<Failed>,
}

/// A write whose outcome is not known yet.
struct Open {
    write: NamedWrite,
    asked: Duration,
    what: What,
}

enum What {
    Purchase(usize),
    Set { key: Vec<u8>, value: Vec<u8> },
}

/// The buyers at work.
pub struct Trade {
    began: Instant,
    is_over: AtomicBool,
    tls: Option<ClientTls>,
    seen: Mutex<Seen>,
}

/// How a write ended, as far as is known.
enum Outcome {
    Done(Changed),
    Unknown(NamedWrite),
    NotExecuted,
}

impl Trade {
    pub fn new(tls: Option<ClientTls>) -> Trade {
        Trade {
            began: Instant::now(),
            is_over: AtomicBool::new(false),
            tls,
            seen: Mutex::default(),
        }
    }

    /// Now, behind the begin of the trade.
    pub fn now(&self) -> Duration {
        self.began.elapsed()
    }

    pub fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    pub fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed)
    }

    /// Puts the stocks on sale.
    ///
    /// # Errors
    /// The cluster does not take them.
    pub fn open(&self, addresses: &[SocketAddr]) -> Result<(), String> {
        let client = self.any_of(addresses, AckLevel::Replica, DEADLINE);
        let client = client.map_err(|error| error.to_string())?;
        for number in 0..STOCKS {
            let initial = STOCK_INITIAL.to_le_bytes();
            client
                .set(&stock(number), &initial)
                .wait()
                .map_err(|error| format!("stock {number}: {error}"))?;
        }
        Ok(())
    }

    /// Buys and sets keys until the end of the trade, and then until no outcome is unknown.
    ///
    /// # Errors
    /// An answer that no node may give, or an outcome that stays unknown.
    pub fn buy(
        &self,
        addresses: &[SocketAddr],
        buyer: usize,
        mut random: Random,
    ) -> Result<(AckLevel, Account), String> {
        let level = LEVELS[buyer % LEVELS.len()];
        let mut account = Account::default();
        let mut open: Vec<Open> = Vec::new();
        let mut client = None;
        let mut number = 0_u64;
        while self.goes_on() {
            std::thread::sleep(PAUSE);
            number += 1;
            if number.is_multiple_of(OPERATIONS_OF_A_CLIENT) {
                client = None;
            }
            let now = match &client {
                Some(client) => client,
                None => match self.connect(addresses, level, &mut random) {
                    Ok(made) => client.insert(made),
                    Err(_) => continue,
                },
            };
            if !open.is_empty() {
                self.resolve(now, &mut open, &mut account)?;
            }
            let what = match random.once_in(4) {
                true => What::Set {
                    key: format!("{}:{buyer}:{number}", level.name()).into_bytes(),
                    value: format!("{buyer}/{number}").into_bytes(),
                },
                false => What::Purchase(some_stock(level, &mut random)),
            };
            let asked = self.now();
            let outcome = outcome(ask(now, &what), level)?;
            self.take(outcome, what, asked, &mut open, &mut account);
            if random.once_in(4) {
                self.read(now, some_stock(level, &mut random), None)?;
            }
        }
        let until = Instant::now() + RESOLVE_MAX;
        while !open.is_empty() {
            if Instant::now() > until {
                let text = format!("{} outcomes stay unknown for {RESOLVE_MAX:?}", open.len());
                return Err(text);
            }
            if let Ok(client) = self.connect(addresses, level, &mut random) {
                self.resolve(&client, &mut open, &mut account)?;
            }
        }
        Ok((level, account))
    }

    /// Reads and buys at one node, whether or not it writes, until the end of the trade. A node
    /// that was replaced must not answer.
    ///
    /// # Errors
    /// As for [`Trade::buy`].
    pub fn probe(
        &self,
        addresses: &[SocketAddr],
        node: usize,
        mut random: Random,
    ) -> Result<(), String> {
        let mut open: Vec<Open> = Vec::new();
        let mut none = Account::default();
        let mut clients = [None, None];
        while self.goes_on() {
            std::thread::sleep(PAUSE_OF_ONE);
            let which = usize::from(random.once_in(2));
            let level = LEVELS[which];
            let options = ClientOptions {
                follows: false,
                ..self.options(level, DEADLINE_OF_ONE)
            };
            let client = match &clients[which] {
                Some(client) => client,
                None => match Client::connect(addresses[node], options) {
                    Ok(made) => clients[which].insert(made),
                    Err(_) => continue,
                },
            };
            let number = some_stock(level, &mut random);
            if random.once_in(3) {
                let what = What::Purchase(number);
                let asked = self.now();
                let outcome = outcome(ask(client, &what), level)?;
                match outcome {
                    Outcome::Done(changed) => {
                        self.note(number, Some(node), asked, changed.version, None);
                    }
                    Outcome::Unknown(write) => open.push(Open { write, asked, what }),
                    Outcome::NotExecuted => {}
                }
            } else {
                self.read(client, number, Some(node))?;
            }
        }
        let until = Instant::now() + RESOLVE_MAX;
        for which in [0, 1] {
            let level = LEVELS[which];
            let is_of = |it: &Open| matches!(it.what, What::Purchase(of) if level_of(of) == level);
            let (mut of_level, others) = open.into_iter().partition(is_of);
            open = others;
            while !of_level.is_empty() {
                if Instant::now() > until {
                    return Err(format!("{} outcomes stay unknown", of_level.len()));
                }
                if let Ok(client) = self.connect(addresses, level, &mut random) {
                    self.resolve(&client, &mut of_level, &mut none)?;
                }
            }
        }
        Ok(())
    }

    /// Asks again what has no outcome.
    fn resolve(
        &self,
        client: &Client,
        open: &mut Vec<Open>,
        account: &mut Account,
    ) -> Result<(), String> {
        for it in std::mem::take(open) {
            let level = match &it.what {
                What::Purchase(number) => level_of(*number),
                What::Set { .. } => AckLevel::Disk,
            };
            match outcome(client.resolve(&it.write).wait(), level)? {
                Outcome::Done(changed) => match it.what {
                    What::Purchase(number) => {
                        self.note(number, None, it.asked, changed.version, None);
                    }
                    What::Set { key, value } => {
                        account.set.insert(key, (changed.version, value));
                    }
                },
                // What is not executed now may have been executed before.
                Outcome::Unknown(_) | Outcome::NotExecuted => open.push(it),
            }
        }
        Ok(())
    }

    fn take(
        &self,
        outcome: Outcome,
        what: What,
        asked: Duration,
        open: &mut Vec<Open>,
        account: &mut Account,
    ) {
        match (outcome, what) {
            (Outcome::Done(changed), What::Purchase(number)) => {
                self.note(number, None, asked, changed.version, None);
            }
            (Outcome::Done(changed), What::Set { key, value }) => {
                account.set.insert(key, (changed.version, value));
            }
            (Outcome::NotExecuted, what) => {
                self.failed(false);
                if let What::Set { key, .. } = what {
                    account.not_set.insert(key);
                }
            }
            (Outcome::Unknown(write), what) => {
                self.failed(true);
                open.push(Open { write, asked, what });
            }
        }
    }

    /// Reads a stock.
    fn read(&self, client: &Client, number: usize, node: Option<usize>) -> Result<(), String> {
        let asked = self.now();
        match client.get(&stock(number)).wait() {
            Ok(Some(value)) => {
                let left = value.bytes[..].try_into().map(u64::from_le_bytes);
                let left = left.map_err(|_| "a stock that is no number")?;
                self.note(number, node, asked, value.version, Some(left));
                Ok(())
            }
            Ok(None) => Err(format!("stock {number} is not there")),
            Err(
                ClientError::Busy(_)
                | ClientError::NotSent(_)
                | ClientError::Deadline
                | ClientError::Unknown(_),
            ) => {
                if node.is_none() {
                    self.failed(false);
                }
                Ok(())
            }
            Err(error) => Err(format!("a read: {error}")),
        }
    }

    fn note(
        &self,
        stock: usize,
        node: Option<usize>,
        asked: Duration,
        version: Version,
        left: Option<u64>,
    ) {
        let answered = self.now();
        self.seen().steps.push(Step {
            stock,
            node,
            asked,
            answered,
            version,
            left,
        });
    }

    fn failed(&self, is_unknown: bool) {
        let at = self.now();
        self.seen().failed.push(Failed { at, is_unknown });
    }

    fn options(&self, level: AckLevel, deadline: Duration) -> ClientOptions {
        ClientOptions {
            names_writes: true,
            ..crate::sales::options(level, deadline, self.tls.as_ref())
        }
    }

    fn any_of(
        &self,
        addresses: &[SocketAddr],
        level: AckLevel,
        deadline: Duration,
    ) -> Result<Client, ClientError> {
        let named: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
        Client::connect_any(&named, self.options(level, deadline))
    }

    /// A client that asks one of them first.
    fn connect(
        &self,
        addresses: &[SocketAddr],
        level: AckLevel,
        random: &mut Random,
    ) -> Result<Client, ClientError> {
        let mut addresses = addresses.to_vec();
        let count = addresses.len() as u64;
        addresses.rotate_left(usize::try_from(random.below(count)).expect("three"));
        self.any_of(&addresses, level, DEADLINE)
    }
}

fn some_stock(level: AckLevel, random: &mut Random) -> usize {
    let first = match level == LEVELS[0] {
        true => 0,
        false => STOCKS_OF_A_LEVEL,
    };
    match random.once_in(2) {
        true => first,
        false => {
            let others = STOCKS_OF_A_LEVEL as u64 - 1;
            first + 1 + usize::try_from(random.below(others)).expect("few")
        }
    }
}

fn ask(client: &Client, what: &What) -> Result<Changed, ClientError> {
    match what {
        // By itself a client gives no token to a write that is the same twice as once.
        What::Set { key, value } => {
            let token = new_token().map_err(|error| ClientError::NotSent(error.to_string()))?;
            client.named(token).set(key, value).wait()
        }
        What::Purchase(number) => {
            let one = [Field::u64(0).at_least(1), Field::u64(0).decrease(1)];
            client.update_if(&stock(*number), &one).wait()
        }
    }
}

fn outcome(answer: Result<Changed, ClientError>, level: AckLevel) -> Result<Outcome, String> {
    match answer {
        Ok(changed) if changed.level < level => Err(format!(
            "level {} was asked and {} is told",
            level.name(),
            changed.level.name()
        )),
        Ok(changed) => Ok(Outcome::Done(changed)),
        Err(ClientError::Unknown(unknown)) => {
            let write = unknown.write().cloned();
            write
                .map(Outcome::Unknown)
                .ok_or(format!("a write without its token: {unknown}"))
        }
        Err(ClientError::Busy(_) | ClientError::NotSent(_) | ClientError::Deadline) => {
            Ok(Outcome::NotExecuted)
        }
        Err(error) => Err(error.to_string()),
    }
}
