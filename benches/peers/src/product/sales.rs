//! The program: read the product, sell one. In GrausDB, over TCP, and in this process.

use std::collections::VecDeque;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::Instant;

use musli_zerocopy::{Buf, OwnedBuf, Ref, ZeroCopy, endian};
use penstock::{Penstock, Verbs};
use penstock_client::{Changed, Client, Instruction, Layout, OwnedView, Pending, Text, Value};
use penstock_net::level::AckLevel;
use zerocopy::little_endian::U32;
use zerocopy::{Immutable, IntoBytes, KnownLayout, TryFromBytes, Unaligned};

use crate::Outcome;
use crate::machine::Usage;
use crate::scratch::{self, Scratch};
use crate::server::Server;

pub const SALES: u32 = 20_000;
const KEY: &[u8] = b"yeezy";
const NAME: &str = "Yeezy Boost 350 V2";
const PRICE_CENTS: u32 = 23_000;

/// The product of GrausDB's program, with a price.
#[derive(ZeroCopy)]
#[repr(C)]
struct MusliProduct {
    stock: u32,
    price_cents: u32,
    name: Ref<str>,
}

#[derive(Layout, TryFromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Product {
    stock: U32,
    price_cents: U32,
    name: Text,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seller {
    GrausDb,
    Pipelined,
    OneByOne,
    LocalNone,
}

/// One run of the program.
pub struct Sale {
    pub seconds: f64,
    pub flushes: f64,
    /// Of this process.
    pub cpu_seconds: f64,
    pub server_cpu_seconds: f64,
}

/// What the programs run on: a server, and a folder for the stores in this process.
pub struct Machine {
    server: Server,
    folder: PathBuf,
    window: usize,
}

/// What the reads of a program have found.
#[derive(Default)]
struct Seen {
    reads: u32,
    turnover_cents: u64,
    name_bytes: u64,
}

impl Seller {
    /// GrausDB first: the others are compared with it.
    pub const ALL: [Seller; 4] = [
        Seller::GrausDb,
        Seller::Pipelined,
        Seller::OneByOne,
        Seller::LocalNone,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Seller::GrausDb => "GrausDB 0.2.2, in process, never synced",
            Seller::Pipelined => "Penstock over TCP, durable, pipelined",
            Seller::OneByOne => "Penstock over TCP, durable, one by one",
            Seller::LocalNone => "Penstock in process, level none",
        }
    }

    pub fn is_over_tcp(self) -> bool {
        matches!(self, Seller::Pipelined | Seller::OneByOne)
    }
}

impl Machine {
    pub fn start(scratch: &Scratch, window: usize) -> Outcome<Machine> {
        Ok(Machine {
            server: Server::start(&scratch.fresh("server")?, &[])?,
            folder: scratch.fresh("sales")?,
            window,
        })
    }

    /// Runs the program once, from a fresh product to the last answer.
    pub fn sell(&self, seller: Seller) -> Outcome<Sale> {
        scratch::remove(&self.folder)?;
        let path = &self.folder;
        match seller {
            Seller::GrausDb => in_graus_db(path),
            Seller::Pipelined => self.over_tcp(|client| pipelined(client, self.window)),
            Seller::OneByOne => self.over_tcp(one_by_one),
            Seller::LocalNone => in_process(path),
        }
    }

    fn over_tcp(&self, program: impl Fn(&Client) -> Outcome<Seen>) -> Outcome<Sale> {
        let client = self.server.client(AckLevel::Disk)?;
        client.set(KEY, product().bytes()).wait()?;
        let flushes = self.server.counter(&client, "flushes")?;
        let server = self.server.usage()?;
        let mut sale = timed(|| program(&client))?;
        sale.server_cpu_seconds = self.server.usage()?.since(&server).cpu_seconds;
        sale.flushes = (self.server.counter(&client, "flushes")? - flushes) as f64;
        let value = client.get(KEY).wait()?.ok_or("no product")?;
        check_end(Product::view(&value.bytes)?.stock.get())?;
        Ok(sale)
    }
}

impl Seen {
    /// Notes a product that was read.
    ///
    /// # Errors
    /// If its stock is not what the sales before it left.
    fn note(&mut self, stock: u32, price_cents: u32, name: &str) -> Outcome<()> {
        let wanted = SALES + 1 - self.reads;
        if stock != wanted {
            return Err(
                format!("read {} shows a stock of {stock}, not {wanted}", self.reads).into(),
            );
        }
        self.reads += 1;
        self.turnover_cents += u64::from(price_cents);
        self.name_bytes += black_box(name).len() as u64;
        Ok(())
    }
}

/// Runs the program and checks that it has read all of each product.
fn timed(program: impl FnOnce() -> Outcome<Seen>) -> Outcome<Sale> {
    let before = Usage::of(None)?;
    let began = Instant::now();
    let seen = program()?;
    let seconds = began.elapsed().as_secs_f64();
    let sales = u64::from(SALES);
    let (turnover, names) = (sales * u64::from(PRICE_CENTS), sales * NAME.len() as u64);
    if (seen.turnover_cents, seen.name_bytes) != (turnover, names) {
        return Err("not all products were read".into());
    }
    Ok(Sale {
        seconds,
        flushes: 0.0,
        cpu_seconds: Usage::of(None)?.since(&before).cpu_seconds,
        server_cpu_seconds: 0.0,
    })
}

fn check_end(stock: u32) -> Outcome<()> {
    match stock {
        1 => Ok(()),
        _ => Err(format!("{SALES} sales left a stock of {stock}, not 1").into()),
    }
}

fn product() -> OwnedView<Product> {
    Product::build()
        .with(Product::stock(), SALES + 1)
        .with(Product::price_cents(), PRICE_CENTS)
        .with(Product::name(), NAME)
        .finish()
}

fn sell_one() -> [Instruction; 2] {
    [Product::stock().at_least(1), Product::stock().decrease(1)]
}

// ---- GrausDB, as its author has it

fn in_graus_db(path: &Path) -> Outcome<Sale> {
    let mut bytes = OwnedBuf::new().with_byte_order::<endian::Little>();
    let place = bytes.store_uninit::<MusliProduct>()?;
    let name = bytes.store_unsized(NAME)?;
    bytes.load_uninit_mut(place)?.write(&MusliProduct {
        stock: SALES + 1,
        price_cents: PRICE_CENTS,
        name,
    });
    let store = graus_db::GrausDb::open(path)?;
    let key = KEY.to_vec();
    store.set(key.clone(), &bytes[..])?;
    let place = || Ref::<MusliProduct, endian::Little>::new(0usize);
    let sale = timed(|| {
        let mut seen = Seen::default();
        for _ in 0..SALES {
            let bytes = store.get(&key)?.ok_or("no product")?;
            let buffer = Buf::new(&bytes);
            let product = buffer.load(place())?;
            seen.note(
                product.stock,
                product.price_cents,
                buffer.load(product.name)?,
            )?;
            let take = |value: &mut Vec<u8>| {
                if let Some(stock) = value.first_chunk_mut::<4>() {
                    *stock = u32::from_le_bytes(*stock).saturating_sub(1).to_le_bytes();
                }
            };
            store.update_if(key.clone(), take, None, None::<fn(&[u8]) -> bool>)?;
        }
        Ok(seen)
    })?;
    let bytes = store.get(&key)?.ok_or("no product")?;
    check_end(Buf::new(&bytes).load(place())?.stock)?;
    Ok(sale)
}

// ---- Penstock

fn note(seen: &mut Seen, value: &[u8]) -> Outcome<()> {
    let product = Product::view(value)?;
    let name = product.text(Product::name())?;
    seen.note(product.stock.get(), product.price_cents.get(), name)
}

/// Each call waits for the answer of the one before.
fn one_by_one(client: &Client) -> Outcome<Seen> {
    let (mut seen, sell_one) = (Seen::default(), sell_one());
    for _ in 0..SALES {
        let value = client.get(KEY).wait()?.ok_or("no product")?;
        note(&mut seen, &value.bytes)?;
        client.update_if(KEY, &sell_one).wait()?;
    }
    Ok(seen)
}

type UnderWay = (Pending<Option<Value>>, Pending<Changed>);

/// Calls are made ahead of the answers. What is asked over one connection runs in its order.
fn pipelined(client: &Client, window: usize) -> Outcome<Seen> {
    let (mut seen, sell_one) = (Seen::default(), sell_one());
    let mut finish = |(read, sold): UnderWay| -> Outcome<()> {
        note(&mut seen, &read.wait()?.ok_or("no product")?.bytes)?;
        sold.wait()?;
        Ok(())
    };
    let mut under_way: VecDeque<UnderWay> = VecDeque::with_capacity(window);
    for _ in 0..SALES {
        if under_way.len() == window {
            under_way.pop_front().map_or(Ok(()), &mut finish)?;
        }
        under_way.push_back((client.get(KEY), client.update_if(KEY, &sell_one)));
    }
    under_way.into_iter().try_for_each(finish)?;
    Ok(seen)
}

fn in_process(path: &Path) -> Outcome<Sale> {
    let mut store = Penstock::open_local(path, penstock::Options::default().level(AckLevel::None))?;
    store.set(KEY, product().bytes())?;
    let before = flushes(&store.info()?)?;
    let sell_one = sell_one();
    let mut sale = timed(|| {
        let mut seen = Seen::default();
        for _ in 0..SALES {
            let noted = store.get_with(KEY, |value, _| note(&mut seen, value))?;
            noted.ok_or("no product")??;
            store.update_if(KEY, &sell_one)?;
        }
        Ok(seen)
    })?;
    sale.flushes = flushes(&store.info()?)? - before;
    let left = store.get_with(KEY, |value, _| {
        Product::view(value).map(|it| it.stock.get())
    })?;
    check_end(left.ok_or("no product")??)?;
    store.close()?;
    Ok(sale)
}

fn flushes(info: &str) -> Outcome<f64> {
    let info: serde_json::Value = serde_json::from_str(info)?;
    Ok(info["counters"]["flushes"]
        .as_f64()
        .ok_or("INFO tells no flushes")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_in_this_process_reads_and_sells_all_but_one() {
        let scratch = Scratch::new(None).unwrap();
        // Each checks its reads and what is left.
        assert!(
            in_graus_db(&scratch.fresh("graus").unwrap())
                .unwrap()
                .seconds
                > 0.0
        );
        let none = in_process(&scratch.fresh("none").unwrap()).unwrap();
        assert!(
            none.flushes < f64::from(SALES),
            "no sale waited for the device"
        );
    }

    #[test]
    fn a_read_that_misses_a_sale_is_an_error() {
        let mut seen = Seen::default();
        seen.note(SALES + 1, PRICE_CENTS, NAME).unwrap();
        assert!(seen.note(SALES + 1, PRICE_CENTS, NAME).is_err());
        assert!(seen.note(SALES, PRICE_CENTS, NAME).is_ok());
        assert!(check_end(0).is_err());
    }
}
