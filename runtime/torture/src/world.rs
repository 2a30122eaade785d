//! The state of a data directory as its writers know it, and the load that they make.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use penstock_net::level::AckLevel;
use penstock_net::request::{BatchRequest, Condition};
use penstock_net::status::Status;

use crate::account::{Account, STOCK, STOCK_INITIAL, Style, number};
use crate::load::Load;
use crate::options::Setting;
use crate::process;
use crate::random::Random;
use crate::server::Server;
use crate::wire::{ANSWER_MAX, Wire};

pub const WRITERS: usize = 50;

/// One data directory and what its writers know of it.
pub struct World {
    pub setting: Setting,
    accounts: Vec<Account>,
    is_prepared: bool,
}

impl World {
    pub fn new(setting: Setting) -> World {
        World {
            setting,
            accounts: (0..WRITERS).map(Account::new).collect(),
            is_prepared: false,
        }
    }

    /// Its directory is gone; the writers begin anew.
    pub fn forget(&mut self) {
        self.is_prepared = false;
        self.accounts.iter_mut().for_each(Account::forget);
    }

    /// Whether a server has served it.
    pub fn is_prepared(&self) -> bool {
        self.is_prepared
    }

    /// Operations that were answered and not refused, since it was made.
    pub fn acked(&self) -> u64 {
        self.accounts.iter().map(|account| account.acked).sum()
    }

    /// Operations that may or may not have happened.
    pub fn unknown(&self) -> u64 {
        self.accounts.iter().map(Account::unknown).sum()
    }

    /// Lets the writers work while `blow` does something to the server, and ends the load after it.
    ///
    /// # Errors
    /// A writer was answered wrongly, or else what `blow` says.
    pub fn load<T>(
        &mut self,
        server: &mut Server,
        random: &mut Random,
        style: impl Fn(usize) -> Style,
        blow: impl FnOnce(&mut Server, &Load) -> Result<T, String>,
    ) -> Result<T, String> {
        if !self.is_prepared {
            self.prepare(server.address)?;
            self.is_prepared = true;
        }
        let load = &Load::default();
        let address = server.address;
        std::thread::scope(|scope| {
            let writers: Vec<_> = self
                .accounts
                .iter_mut()
                .enumerate()
                .map(|(writer, account)| {
                    let (random, style) = (random.fork(), style(writer));
                    scope.spawn(move || account.work(address, random, style, load))
                })
                .collect();
            let all_connected = || load.connected.get() + load.gave_up.get() >= WRITERS as u64;
            let blown = process::wait(ANSWER_MAX, all_connected).and_then(|_| blow(server, load));
            if blown.is_err() {
                // Writers must not wait for a server that hangs.
                load.strike();
                let _ = server.kill();
            }
            load.end();
            let mut outcome = blown;
            for writer in writers {
                // What a writer saw is the cause of what came of it.
                if let Err(text) = writer.join().map_err(|_| "a writer panicked")? {
                    outcome = Err(text);
                }
            }
            outcome.map_err(|text| {
                let _ = server.kill();
                format!("{text}\nthe server said:\n{}", server.said().join("\n"))
            })
        })
    }

    fn prepare(&self, address: SocketAddr) -> Result<(), String> {
        let mut wire = Wire::connect(address, ANSWER_MAX)?;
        let mut frame = Vec::new();
        let items = 2 * WRITERS + 1;
        let mut batch = BatchRequest::begin(&mut frame, 1, AckLevel::Disk, 0, items);
        let stock = STOCK_INITIAL.to_le_bytes();
        batch.set(&mut frame, STOCK, &stock, Condition::Always);
        for account in &self.accounts {
            for key in account.pair_keys() {
                batch.set(&mut frame, &key, &0u64.to_le_bytes(), Condition::Always);
            }
        }
        batch.finish(&mut frame);
        let replies = wire.ask(&frame, items)?;
        replies
            .iter()
            .all(|reply| reply.status == Status::Ok)
            .then_some(())
            .ok_or("the first writes were refused".into())
    }

    /// Has the stopped directory inspected byte by byte.
    ///
    /// # Errors
    /// Damage was found: the report.
    pub fn inspect(&self, binary: &Path, data: &Path) -> Result<(), String> {
        if !self.is_prepared {
            return Ok(());
        }
        let inspected = Command::new(binary)
            .arg("inspect")
            .arg(data)
            .output()
            .map_err(|error| error.to_string())?;
        if inspected.status.success() {
            return Ok(());
        }
        Err(format!(
            "inspect ended with {}: {}{}",
            inspected.status,
            String::from_utf8_lossy(&inspected.stdout),
            String::from_utf8_lossy(&inspected.stderr)
        ))
    }

    /// Compares what a server shows with every account.
    ///
    /// # Errors
    /// What is missing or wrong, in words.
    pub fn check(&self, address: SocketAddr) -> Result<(), String> {
        let mut wire = Wire::connect(address, ANSWER_MAX)?;
        self.sold(&mut wire)?;
        self.accounts
            .iter()
            .try_for_each(|account| account.check(&mut wire))
    }

    /// Compares, and takes over what the server shows of operations whose outcome was unknown: a
    /// server that was started after all of them.
    ///
    /// # Errors
    /// As for [`World::check`].
    pub fn settle(&mut self, address: SocketAddr) -> Result<(), String> {
        if !self.is_prepared {
            return Ok(());
        }
        let mut wire = Wire::connect(address, ANSWER_MAX)?;
        let unseen = self.sold(&mut wire)?;
        for account in &mut self.accounts {
            account.sold_unknown = 0;
        }
        self.accounts[0].sold_acked += unseen;
        self.accounts
            .iter_mut()
            .try_for_each(|account| account.settle(&mut wire))
    }

    /// Compares the shared counter; how many sales of unknown outcome it shows.
    fn sold(&self, wire: &mut Wire) -> Result<u64, String> {
        let stock = wire
            .get(&[STOCK.to_vec()])?
            .remove(0)
            .ok_or("the shared counter is gone")?;
        let sold = STOCK_INITIAL.wrapping_sub(number(&stock));
        let acked: u64 = self.accounts.iter().map(|account| account.sold_acked).sum();
        let unknown: u64 = self
            .accounts
            .iter()
            .map(|account| account.sold_unknown)
            .sum();
        if sold < acked || sold > acked + unknown {
            return Err(format!(
                "the shared counter fell by {sold}; {acked} decrements were acknowledged and \
                 {unknown} are unknown"
            ));
        }
        Ok(sold - acked)
    }
}
