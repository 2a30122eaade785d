//! What a layout costs beside JSON, and a sale of one product over the network.
//!
//! ```text
//! cargo run --release -p penstock-client --example layouts
//! PENSTOCK_ADDR=127.0.0.1:7411 cargo run --release -p penstock-client --example layouts
//! ```
//!
//! First a million reads of one product whose bytes are in memory: as a layout, as JSON into a
//! struct, as JSON into a tree. Each read checks the bytes and takes all fields. With an address
//! also the program that stores are often shown with: read the product, sell one, twenty thousand
//! times, each sale durable before the next.

use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

use penstock_client::{Client, ClientOptions, Instruction, Layout, OwnedView, Text, Verbs};
use zerocopy::little_endian::U32;
use zerocopy::{Immutable, IntoBytes, KnownLayout, TryFromBytes, Unaligned};

const READS: u32 = 1_000_000;
const SALES: u32 = 20_000;
const KEY: &[u8] = b"product:yeezy-350";
const NAME: &str = "Yeezy Boost 350 V2";
const PRICE_CENTS: u32 = 23_000;

#[derive(Layout, TryFromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Product {
    stock: U32,
    price_cents: U32,
    name: Text,
}

/// The same as JSON: the name is not copied either.
#[derive(serde::Serialize, serde::Deserialize)]
struct JsonProduct<'a> {
    stock: u32,
    price_cents: u32,
    name: &'a str,
}

fn product(stock: u32) -> OwnedView<Product> {
    Product::build()
        .with(Product::stock(), stock)
        .with(Product::price_cents(), PRICE_CENTS)
        .with(Product::name(), NAME)
        .finish()
}

fn main() -> Result<(), Box<dyn Error>> {
    reads()?;
    match std::env::var("PENSTOCK_ADDR") {
        Ok(address) => sales(&address),
        Err(_) => Ok(()),
    }
}

/// A million reads in each form, three times in turn: the best of each counts.
fn reads() -> Result<(), Box<dyn Error>> {
    let layout = product(100);
    let json = serde_json::to_vec(&JsonProduct {
        stock: 100,
        price_cents: PRICE_CENTS,
        name: NAME,
    })?;
    let mut best = [Duration::MAX; 3];
    for _ in 0..3 {
        let times = [
            timed(|| {
                let read = Product::view(black_box(layout.bytes()))?;
                let name = read.text(Product::name())?;
                Ok(sum(read.stock.get(), read.price_cents.get(), name))
            })?,
            timed(|| {
                let read: JsonProduct<'_> = serde_json::from_slice(black_box(&json))?;
                Ok(sum(read.stock, read.price_cents, read.name))
            })?,
            timed(|| {
                let read: serde_json::Value = serde_json::from_slice(black_box(&json))?;
                let number = |name: &str| {
                    let number = read[name].as_u64().and_then(|it| u32::try_from(it).ok());
                    number.ok_or("no number")
                };
                let name = read["name"].as_str().ok_or("no text")?;
                Ok(sum(number("stock")?, number("price_cents")?, name))
            })?,
        ];
        for (best, time) in best.iter_mut().zip(times) {
            *best = time.min(*best);
        }
    }
    for (form, bytes, time) in [
        ("layout", layout.bytes().len(), best[0]),
        ("serde_json, struct", json.len(), best[1]),
        ("serde_json, Value", json.len(), best[2]),
    ] {
        let ns = time.as_secs_f64() * 1e9 / f64::from(READS);
        let ratio = time.as_secs_f64() / best[0].as_secs_f64();
        println!("{form:<20} {bytes:>3} bytes  {ns:>7.1} ns a read  {ratio:>6.1} x layout");
    }
    Ok(())
}

fn sum(stock: u32, price_cents: u32, name: &str) -> u64 {
    u64::from(stock) + u64::from(price_cents) + name.len() as u64
}

fn timed(
    mut read: impl FnMut() -> Result<u64, Box<dyn Error>>,
) -> Result<Duration, Box<dyn Error>> {
    let mut total = 0;
    let began = Instant::now();
    for _ in 0..READS {
        total += black_box(read()?);
    }
    let time = began.elapsed();
    let one = sum(100, PRICE_CENTS, NAME);
    assert_eq!(total, one * u64::from(READS), "each read found all fields");
    Ok(time)
}

/// Sells all but one, one at a time, each sale on the server's disk before the next read.
fn sales(address: &str) -> Result<(), Box<dyn Error>> {
    let client = Client::connect(address.parse()?, ClientOptions::default())?;
    client.set(KEY, product(SALES + 1).bytes()).wait()?;
    let sell_one: [Instruction; 2] = [Product::stock().at_least(1), Product::stock().decrease(1)];
    let began = Instant::now();
    let mut turnover_cents = 0;
    for _ in 0..SALES {
        let value = client.get(KEY).wait()?.ok_or("no product")?;
        turnover_cents += u64::from(Product::view(&value.bytes)?.price_cents.get());
        client.update_if(KEY, &sell_one).wait()?;
    }
    let time = began.elapsed();
    let value = client.get(KEY).wait()?.ok_or("no product")?;
    let left = Product::owned(value.bytes)?;
    assert_eq!((left.stock.get(), left.text(Product::name())?), (1, NAME));
    assert_eq!(turnover_cents, u64::from(SALES) * u64::from(PRICE_CENTS));
    let us = time.as_secs_f64() * 1e6 / f64::from(SALES);
    println!("{SALES} x read and sell one over TCP, durable: {time:.2?}, {us:.1} us each");
    Ok(())
}
