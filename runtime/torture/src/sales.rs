//! The writers of a cluster, at one of two levels, and their account of its state.
//!
//! Each sells from the one counter of its level and writes keys of its own, each once. Whatever
//! node it asked first: it goes where it is sent, and when a node is gone to another one.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use penstock_client::tls::ClientTls;
use penstock_client::{Client, ClientError, ClientOptions, Field, Verbs};
use penstock_net::level::AckLevel;
use penstock_net::request::Version;

use crate::random::Random;

pub const STOCK_INITIAL: u64 = 1 << 40;
/// Operations before a writer connects anew, to another node first.
const OPERATIONS_OF_A_CLIENT: usize = 200;
/// How long an operation may take, with all that is tried for it.
const DEADLINE: Duration = Duration::from_secs(2);
/// Between two operations: there are few cores.
const PAUSE: Duration = Duration::from_micros(500);

/// The counter of a level.
pub fn stock(level: AckLevel) -> Vec<u8> {
    format!("stock:{}", level.name()).into_bytes()
}

/// What one writer knows; those of a level add up.
#[derive(Default)]
pub struct Account {
    /// Keys that were acknowledged, with version and value.
    pub set: BTreeMap<Vec<u8>, (Version, Vec<u8>)>,
    /// Keys whose write has an unknown outcome.
    pub unknown: BTreeSet<Vec<u8>>,
    /// Keys that were not written, by what was answered.
    pub not_set: BTreeSet<Vec<u8>>,
    /// Sales that were acknowledged.
    pub sold: BTreeSet<Version>,
    /// Sales with an unknown outcome.
    pub sold_unknown: u64,
}

impl Account {
    pub fn add(&mut self, other: Account) {
        self.set.extend(other.set);
        self.unknown.extend(other.unknown);
        self.not_set.extend(other.not_set);
        self.sold.extend(other.sold);
        self.sold_unknown += other.sold_unknown;
    }

    pub fn acked(&self) -> u64 {
        (self.set.len() + self.sold.len()) as u64
    }
}

/// The writers at work.
#[derive(Default)]
pub struct Sale {
    is_over: AtomicBool,
    /// Whom the writers trust, where nodes speak TLS.
    tls: Option<ClientTls>,
    /// Operations that were acknowledged, at either level.
    pub acked: AtomicU64,
}

impl Sale {
    pub fn new(tls: Option<ClientTls>) -> Sale {
        Sale {
            tls,
            ..Sale::default()
        }
    }

    pub fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Writes until the end of the sale.
    ///
    /// # Errors
    /// An answer that no node may give.
    pub fn write(
        &self,
        addresses: &[SocketAddr],
        level: AckLevel,
        writer: usize,
        random: &mut Random,
    ) -> Result<Account, String> {
        let mut account = Account::default();
        let mut client = None;
        let mut number = 0_usize;
        while !self.is_over.load(Ordering::Relaxed) {
            std::thread::sleep(PAUSE);
            number += 1;
            if number.is_multiple_of(OPERATIONS_OF_A_CLIENT) {
                client = None;
            }
            let now = match &client {
                Some(client) => client,
                None => match connect(addresses, level, self.tls.as_ref(), random) {
                    Ok(made) => client.insert(made),
                    Err(_) => continue,
                },
            };
            let key = format!("{}:{writer}:{number}", level.name()).into_bytes();
            let value = format!("{writer}/{number}").repeat(1 + number % 5);
            let value = value.into_bytes();
            match outcome(now.set(&key, &value).wait(), level)? {
                Outcome::Acked(version) => {
                    self.acked.fetch_add(1, Ordering::Relaxed);
                    account.set.insert(key, (version, value));
                }
                Outcome::Unknown => drop(account.unknown.insert(key)),
                Outcome::NotExecuted => drop(account.not_set.insert(key)),
            }
            let one = [Field::u64(0).at_least(1), Field::u64(0).decrease(1)];
            match outcome(now.update_if(&stock(level), &one).wait(), level)? {
                Outcome::Acked(version) => {
                    self.acked.fetch_add(1, Ordering::Relaxed);
                    if !account.sold.insert(version) {
                        return Err(format!("version {version:?} of the stock was given twice"));
                    }
                }
                Outcome::Unknown => account.sold_unknown += 1,
                Outcome::NotExecuted => {}
            }
        }
        Ok(account)
    }
}

enum Outcome {
    Acked(Version),
    Unknown,
    NotExecuted,
}

fn outcome(
    answer: Result<penstock_client::Changed, ClientError>,
    level: AckLevel,
) -> Result<Outcome, String> {
    match answer {
        Ok(changed) if changed.level < level => Err(format!(
            "level {} was asked and {} is told",
            level.name(),
            changed.level.name()
        )),
        Ok(changed) => Ok(Outcome::Acked(changed.version)),
        Err(ClientError::Unknown(_)) => Ok(Outcome::Unknown),
        Err(ClientError::Busy(_) | ClientError::NotSent(_) | ClientError::Deadline) => {
            Ok(Outcome::NotExecuted)
        }
        Err(error) => Err(error.to_string()),
    }
}

/// A client that asks one node first, and knows the others or has to learn of them.
fn connect(
    addresses: &[SocketAddr],
    level: AckLevel,
    tls: Option<&ClientTls>,
    random: &mut Random,
) -> Result<Client, ClientError> {
    let mut named: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
    let count = named.len() as u64;
    named.rotate_left(usize::try_from(random.below(count)).expect("three"));
    if random.once_in(2) {
        named.truncate(1);
    }
    Client::connect_any(&named, options(level, DEADLINE, tls))
}

/// How nodes are asked here.
pub fn options(level: AckLevel, deadline: Duration, tls: Option<&ClientTls>) -> ClientOptions {
    ClientOptions {
        name: "torture".into(),
        level,
        deadline,
        tls: tls.cloned(),
        ..ClientOptions::default()
    }
}
