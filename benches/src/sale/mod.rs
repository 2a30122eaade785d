//! A sale over real connections, which proves its own ledger: `penstock demo` and `penstock bench
//! sale`.
//!
//! ```text
//! seed --> Plan --> Book --> Driver --> connections --> server
//!          who       asks,    kills                        |
//!          wants     answers    |                          | scan
//!          what        |        v                          v
//!                      |      Live --> screen, page     records
//!                      +------------------> Ledger <-------+
//!                                             |
//!                                        PASS or FAIL
//! ```
//!
//! A buyer takes units into a hold, and pays it, gives it back, or leaves it to expire. Every
//! request has a token. A double click sends a request twice. A cut connection ends before the
//! answer, and the request is asked again. After a kill everything without an answer is asked
//! again. In the end the server's records must be what the answers told, neither less nor more.
//!
//! One doubt is left: a purchase whose connection was cut, and whose second try was refused. Its
//! first try may have come later, and found units. The ledger allows for that.

mod args;
mod book;
mod channel;
mod driver;
mod ledger;
mod live;
mod page;
mod plan;
mod result;
mod screen;
mod shop;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use penstock_client::{Client, ClientError, Verbs};
use penstock_net::request::Condition;

use crate::BenchError;
use crate::entry::Access;
pub use args::{DemoArgs, SaleArgs};
use book::Book;
use driver::{Driven, Driver, KillAt};
use ledger::Ledger;
use live::{Live, Stage};
use page::Page;
use plan::Plan;
use result::SaleResult;
use screen::{Screen, say};
use shop::{Shop, Stock};

/// How long the ledger waits for abandoned holds, behind the time at which the last one expires.
const EXPIRY_PATIENCE: Duration = Duration::from_secs(15);
/// Between two looks at the stock.
const POLL_EVERY: Duration = Duration::from_millis(100);
/// The most articles whose stock is shown while the sale runs.
const SHOWN_SKUS_MAX: u32 = 64;

/// A server or a cluster that a sale may kill.
pub trait Venue {
    /// Kills the server, or the node that writes, with SIGKILL, and waits until it is gone.
    ///
    /// # Errors
    /// In words.
    fn kill(&mut self) -> Result<(), String>;

    /// Starts the server over the same data, or waits until another node writes; where it serves.
    ///
    /// # Errors
    /// In words.
    fn start(&mut self) -> Result<SocketAddr, String>;
}

/// Runs `penstock demo` in a server of its own.
///
/// # Errors
/// [`BenchError`]; of a ledger that does not hold [`BenchError::NotBalanced`].
pub fn demo(
    args: &DemoArgs,
    venue: &mut dyn Venue,
    is_interrupted: &AtomicBool,
) -> Result<(), BenchError> {
    args.check()?;
    let address = venue.start().map_err(BenchError::Connection)?;
    let page = match args.page {
        true => Some(Page::listen().map_err(|error| BenchError::Connection(error.to_string()))?),
        false => None,
    };
    let plan = args.plan();
    if !args.json {
        args.introduce(&plan, address);
        if let Some(address) = page.as_ref().and_then(|it| it.address().ok()) {
            say(format_args!("page    http://{address}/"));
        }
    }
    let sale = Sale {
        shop: Shop::new("drop:".into()),
        access: Access::default(),
        connections: args.connections as usize,
        kills: vec![KillAt {
            units: plan.units / 2,
            buyers: u64::from(plan.buyers) / 2,
        }],
        plan,
    };
    let screen = match args.json {
        true => Screen::silent(),
        false => Screen::panel(),
    };
    let result = sale.run(address, Some(venue), screen, page, is_interrupted)?;
    result.print_demo(args.json);
    result.outcome()
}

/// Runs `penstock bench sale`. `venue` makes the server if the arguments name none.
///
/// # Errors
/// [`BenchError`]; of a ledger that does not hold [`BenchError::NotBalanced`].
pub fn bench_sale(
    args: &SaleArgs,
    venue: impl FnOnce() -> Result<Box<dyn Venue>, String>,
    is_interrupted: &AtomicBool,
) -> Result<(), BenchError> {
    args.check()?;
    let mut own = match args.addr {
        None => Some(venue().map_err(BenchError::Connection)?),
        Some(_) => None,
    };
    let address = match (&mut own, args.addr) {
        (Some(venue), _) => venue.start().map_err(BenchError::Connection)?,
        (None, Some(address)) => address,
        (None, None) => unreachable!("made above"),
    };
    let plan = args.plan();
    let kills = u64::from(args.kill) + u64::from(args.kill_primary);
    let kill = |number: u64| KillAt {
        units: match args.kill_primary {
            true => plan.units / 2,
            false => u64::MAX,
        },
        buyers: u64::from(plan.buyers) * number / (kills + 1),
    };
    let sale = Sale {
        // Another run at the same server has other keys.
        shop: Shop::new(format!("bench:sale:{:x}:", crate::workload::unix_ms())),
        access: args.access()?,
        connections: args.connections() as usize,
        kills: (1..=kills).map(kill).collect(),
        plan,
    };
    let result = match own {
        Some(mut venue) => {
            let venue: &mut dyn Venue = &mut *venue;
            sale.run(address, Some(venue), Screen::line(), None, is_interrupted)?
        }
        None => sale.run(address, None, Screen::line(), None, is_interrupted)?,
    };
    if let Some(path) = &args.html {
        std::fs::write(path, page::stored(&result.page())).map_err(|error| {
            BenchError::Arguments(format!("--html {}: {error}", path.display()))
        })?;
    }
    result.print_bench(args.json, args.drop);
    result.outcome()
}

/// One sale, before it is opened.
struct Sale {
    plan: Plan,
    shop: Shop,
    access: Access,
    connections: usize,
    /// In their order.
    kills: Vec<KillAt>,
}

impl Sale {
    /// Opens the sale, lets the buyers buy, and compares the records with what they know.
    fn run(
        self,
        address: SocketAddr,
        venue: Option<&mut dyn Venue>,
        mut screen: Screen,
        page: Option<Page>,
        is_interrupted: &AtomicBool,
    ) -> Result<SaleResult, BenchError> {
        let live = &Live::default();
        let shop = self.shop.clone();
        let skus = self.plan.skus;
        let access = self.access.clone();
        self.open(address)?;
        {
            let mut now = live.now();
            now.address = Some(address);
            now.stock = Stock::of(self.plan.units);
            now.buyers_all = self.plan.buyers;
        }
        let (is_sold, is_over) = (&AtomicBool::new(false), &AtomicBool::new(false));
        std::thread::scope(|scope| {
            let screen = &mut screen;
            let watch = scope.spawn(move || watch(live, (&shop, skus), &access, screen, is_sold));
            let served = page.map(|page| scope.spawn(move || page.serve(live, is_over)));
            let result = self.sell(address, venue, live, is_interrupted);
            is_sold.store(true, Ordering::Release);
            let is_watched = watch.join().is_ok();
            is_over.store(true, Ordering::Release);
            let is_served = served.is_none_or(|it| it.join().is_ok());
            assert!(is_watched && is_served, "neither panics");
            result
        })
    }

    /// Writes the stock of each article.
    fn open(&self, address: SocketAddr) -> Result<(), BenchError> {
        let client = ledger::writing(address, &self.access).map_err(connection)?;
        let plan = &self.plan;
        let set = |sku| {
            let stock = Stock::of(plan.units_of(sku)).bytes();
            client.set_if(&self.shop.stock_key(sku), &stock, Condition::Absent)
        };
        let asked: Vec<_> = (0..plan.skus).map(set).collect();
        for set in asked {
            set.wait().map_err(connection)?;
        }
        Ok(())
    }

    fn sell(
        self,
        address: SocketAddr,
        venue: Option<&mut dyn Venue>,
        live: &Live,
        is_interrupted: &AtomicBool,
    ) -> Result<SaleResult, BenchError> {
        let book = Book::new(self.plan, self.shop);
        let access = self.access;
        let reached = (address, access.clone());
        let mut driver = Driver::new(book, live, reached, self.connections, is_interrupted)?;
        if let Some(venue) = venue {
            driver = driver.killing(venue, self.kills);
        }
        let driven = driver.run()?;
        live.set_stage(Stage::Closing);
        let client = ledger::client(driven.address, &access).map_err(connection)?;
        come_back(&client, &driven, is_interrupted)?;
        live.set_stage(Stage::Ledger);
        let ledger = Ledger::read(&client, &driven.book).map_err(connection)?;
        let mut now = live.now();
        now.stock = ledger.stock;
        now.ledger = Some(ledger.json());
        now.buyers = driven.book.buyers();
        now.stage = match ledger.holds() {
            true => Stage::Passed,
            false => Stage::Failed,
        };
        let snapshot = now.clone();
        drop(now);
        Ok(SaleResult {
            driven,
            ledger,
            snapshot,
            connections: self.connections,
        })
    }
}

/// Waits until no hold is left but those of carts that stay open.
fn come_back(
    client: &Client,
    driven: &Driven,
    is_interrupted: &AtomicBool,
) -> Result<(), BenchError> {
    let book = &driven.book;
    let counts = book.counts();
    if counts.abandoned + counts.too_late + counts.doubtful == 0 {
        return Ok(());
    }
    let age = driven.elapsed.saturating_sub(book.last_abandoned());
    let until = Instant::now() + book.plan.hold.saturating_sub(age) + EXPIRY_PATIENCE;
    while Instant::now() < until {
        if is_interrupted.load(Ordering::Relaxed) {
            return Err(BenchError::Interrupted);
        }
        let stock = ledger::stock_now(client, &book.shop, book.plan.skus).map_err(connection)?;
        if stock.held <= counts.units_open {
            break;
        }
        std::thread::sleep(POLL_EVERY);
    }
    Ok(())
}

/// Looks at the stock and shows the sale, until it is sold.
fn watch(
    live: &Live,
    (shop, skus): (&Shop, u32),
    access: &Access,
    screen: &mut Screen,
    is_sold: &AtomicBool,
) {
    let mut client: Option<(SocketAddr, Client)> = None;
    while !is_sold.load(Ordering::Acquire) {
        std::thread::sleep(POLL_EVERY);
        let address = live.now().address;
        client = client.filter(|(of, _)| Some(*of) == address);
        if let (None, Some(address)) = (&client, address) {
            client = ledger::watching(address, access)
                .ok()
                .map(|it| (address, it));
        }
        if skus <= SHOWN_SKUS_MAX
            && let Some((_, it)) = &client
        {
            // A server that is killed does not answer. What was seen last stays.
            match ledger::stock_now(it, shop, skus) {
                Ok(stock) => live.see(stock),
                Err(_) => client = None,
            }
        }
        let now = live.now().clone();
        screen.draw(&now);
    }
    screen.draw(&live.now().clone());
    screen.end();
}

fn connection(error: ClientError) -> BenchError {
    BenchError::Connection(error.to_string())
}
