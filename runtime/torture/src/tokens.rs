//! Purchases with tokens: sent twice, left alone with their connection, killed under way, and asked
//! again behind the start.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::buyer::{Buyer, compare, prepare};
use crate::load::Load;
use crate::options::Setting;
use crate::random::Random;
use crate::server::Server;
use crate::wire::{ANSWER_MAX, Wire};
use crate::world::WRITERS;
use crate::{Done, Kind, Turn, process};

/// The buyers of one directory.
struct Market {
    setting: Setting,
    buyers: Vec<Buyer>,
    is_prepared: bool,
}

pub struct Tokens {
    folder: PathBuf,
    markets: Vec<Market>,
    requests_per_round: u64,
}

impl Tokens {
    pub fn new(folder: PathBuf, requests_per_round: u64, settings: &[Setting]) -> Tokens {
        let market = |&setting: &Setting| Market {
            setting,
            buyers: (0..WRITERS).map(Buyer::new).collect(),
            is_prepared: false,
        };
        Tokens {
            folder,
            markets: settings.iter().map(market).collect(),
            requests_per_round,
        }
    }

    fn sum(&self, of: impl Fn(&Buyer) -> u64) -> u64 {
        let markets = self.markets.iter();
        markets.map(|market| market.sum(&of)).sum()
    }
}

impl Market {
    fn sum(&self, of: impl Fn(&Buyer) -> u64) -> u64 {
        self.buyers.iter().map(of).sum()
    }

    /// Lets the buyers buy, and kills or stops the server under them.
    fn trade(
        &mut self,
        server: &mut Server,
        random: &mut Random,
        requests: u64,
        is_clean: bool,
    ) -> Result<(), String> {
        if !self.is_prepared {
            prepare(
                &mut Wire::connect(server.address, ANSWER_MAX)?,
                &self.buyers,
            )?;
            self.is_prepared = true;
        }
        let load = &Load::default();
        let address = server.address;
        std::thread::scope(|scope| {
            let buyers: Vec<_> = self
                .buyers
                .iter_mut()
                .map(|buyer| {
                    let random = random.fork();
                    scope.spawn(move || buyer.work(address, random, load))
                })
                .collect();
            let blown = load
                .work(Duration::from_millis(50), requests)
                .and_then(|()| {
                    load.strike();
                    if is_clean {
                        server.stop()
                    } else {
                        server.kill()
                    }
                });
            if blown.is_err() {
                load.strike();
                let _ = server.kill();
            }
            load.end();
            let mut outcome = blown;
            for buyer in buyers {
                // What a buyer saw is the cause of what came of it.
                if let Err(text) = buyer.join().map_err(|_| "a buyer panicked")? {
                    outcome = Err(text);
                }
            }
            outcome.map_err(|text| {
                let _ = server.kill();
                format!("{text}\nthe server said:\n{}", server.said().join("\n"))
            })
        })
    }

    fn settle(&mut self, address: SocketAddr) -> Result<(), String> {
        let mut wire = Wire::connect(address, ANSWER_MAX)?;
        for buyer in &mut self.buyers {
            buyer.settle(&mut wire)?;
        }
        compare(&mut wire, &self.buyers)
    }
}

impl Kind for Tokens {
    fn round(&mut self, turn: Turn<'_>) -> Result<Done, String> {
        let Turn { binary, random, .. } = turn;
        let requests = self.requests_per_round;
        let market = &mut self.markets[turn.which];
        let setting = market.setting;
        let name = format!("{}-{}", setting.shards, setting.io);
        let data = self.folder.join(name);
        if random.once_in(12) && data.exists() {
            fs::remove_dir_all(&data).map_err(|error| error.to_string())?;
            market.is_prepared = false;
            market.buyers.iter_mut().for_each(Buyer::forget);
        }
        let mut kills = 0;
        if market.is_prepared && random.once_in(4) {
            let mut server = Server::spawn(binary, &data, setting)?;
            process::pass(Duration::from_millis(random.below(400)))?;
            server.kill()?;
            kills += 1;
        }
        let mut server = Server::start(binary, &data, setting)?;
        let is_clean = random.once_in(6);
        let before = market.sum(|buyer| buyer.requests);
        market.trade(&mut server, random, requests, is_clean)?;
        kills += u64::from(!is_clean);
        let unknown = market.sum(Buyer::open);
        let mut server = Server::start(binary, &data, setting)?;
        market.settle(server.address)?;
        server.stop()?;
        Ok(Done {
            text: if is_clean { "SIGTERM" } else { "kill -9" }.into(),
            kills,
            acked: market.sum(|buyer| buyer.requests) - before,
            unknown,
        })
    }

    fn totals(&self) -> String {
        format!(
            "{} requests, {} of them asked before, {} connections left without their answers, \
             executed twice 0",
            self.sum(|buyer| buyer.requests),
            self.sum(|buyer| buyer.again),
            self.sum(|buyer| buyer.left)
        )
    }
}
