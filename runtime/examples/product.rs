//! A shop's product as a struct of fixed layout: read where it stands, changed by field, never
//! oversold.
//!
//! ```text
//! cargo run --release -p penstock --example product
//! ```
//!
//! First one thread, as the shortest way: read the product, sell one, twenty thousand times, then a
//! million reads. Then several buyers at once, who all get an exact answer, durable before they get
//! it.

use std::error::Error;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use penstock::embedded::{Changed, ClientError, Instruction, Layout, OwnedView, Text};
use penstock::{Options, Penstock, Verbs};
use penstock_net::level::AckLevel;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{Immutable, IntoBytes, KnownLayout, TryFromBytes, Unaligned};

/// What the store holds, byte by byte: there is no other encoding.
#[derive(Layout, TryFromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[layout(crate = penstock::embedded)]
#[repr(C)]
struct Product {
    stock: U32,
    price_cents: U32,
    sold: U64,
    name: Text,
}

impl Product {
    fn new(name: &str, stock: u32, price_cents: u32) -> OwnedView<Product> {
        Product::build()
            .with(Product::stock(), stock)
            .with(Product::price_cents(), price_cents)
            .with(Product::name(), name)
            .finish()
    }

    /// Sells one if there is one: guards and effects, all or nothing.
    fn sell_one() -> [Instruction; 3] {
        [
            Product::stock().at_least(1),
            Product::stock().decrease(1),
            Product::sold().increase(1),
        ]
    }
}

const KEY: &[u8] = b"product:yeezy-350";
const SOLD_BY_ONE: u32 = 20_000;
const READS: u32 = 1_000_000;
const STOCK: u32 = 5_000;
const BUYERS: usize = 8;

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::temp_dir().join(format!("penstock-product-{}", std::process::id()));
    let outcome = one_thread(&directory).and_then(|()| many_buyers(&directory));
    let _ = std::fs::remove_dir_all(&directory);
    outcome
}

/// The store on this thread. `none` promises nothing about a crash, as stores do that never sync.
fn one_thread(directory: &Path) -> Result<(), Box<dyn Error>> {
    let mut store = Penstock::open_local(directory, Options::default().level(AckLevel::None))?;
    let product = Product::new("Yeezy Boost 350 V2", SOLD_BY_ONE + 1, 23_000);
    store.set(KEY, product.bytes())?;
    let sell_one = Product::sell_one();

    let began = Instant::now();
    let mut turnover_cents = 0;
    for _ in 0..SOLD_BY_ONE {
        // A view of the bytes that the store answered with.
        let price = store.get_with(KEY, |bytes, _version| {
            Product::view(bytes)
                .map(|product| product.price_cents.get())
                .ok()
        })?;
        turnover_cents += u64::from(price.flatten().ok_or("not a product")?);
        store.update_if(KEY, &sell_one)?;
    }
    println!(
        "one thread    {SOLD_BY_ONE} x read and sell in {:?}",
        began.elapsed()
    );

    let began = Instant::now();
    let mut stock = 0;
    for _ in 0..READS {
        let read = store.get_with(KEY, |bytes, _version| {
            Product::view(bytes).map(|product| product.stock.get()).ok()
        })?;
        stock = read.flatten().ok_or("not a product")?;
    }
    println!("one thread    {READS} reads in {:?}", began.elapsed());
    assert_eq!(stock, 1, "each sale took one");
    assert_eq!(turnover_cents, 23_000 * u64::from(SOLD_BY_ONE));

    store.sync()?;
    store.close()?;
    Ok(())
}

/// The same directory, served to many threads; every sale is on the disk before its buyer hears of
/// it.
fn many_buyers(directory: &Path) -> Result<(), Box<dyn Error>> {
    let store = Penstock::open(directory, Options::default())?;
    let product = Product::new("Yeezy Boost 350 V2", STOCK, 23_000);
    store.set(KEY, product.bytes()).wait()?;
    let (sold, refused) = (AtomicU64::new(0), AtomicU64::new(0));

    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..BUYERS {
            let (store, sold, refused) = (&store, &sold, &refused);
            scope.spawn(move || {
                let sell_one = Product::sell_one();
                loop {
                    match store.update_if(KEY, &sell_one).wait() {
                        Ok(Changed { .. }) => sold.fetch_add(1, Ordering::Relaxed),
                        // Sold out: the answer tells the stock as it is.
                        Err(ClientError::No(answer)) => {
                            assert_eq!(answer.actual(), Some(0));
                            refused.fetch_add(1, Ordering::Relaxed);
                            return;
                        }
                        Err(error) => panic!("{error}"),
                    };
                }
            });
        }
    });
    println!(
        "{BUYERS} buyers      {} sold, {} told that it is sold out, in {:?}",
        sold.load(Ordering::Relaxed),
        refused.load(Ordering::Relaxed),
        began.elapsed()
    );
    store.close()?;

    // What a new start finds is what the buyers were told.
    let mut store = Penstock::open_local(directory, Options::default())?;
    store.get_with(KEY, |bytes, _version| {
        let product = Product::view(bytes).expect("a product");
        println!(
            "in the end    {}: stock {}, sold {}",
            product.text(Product::name()).expect("as it was written"),
            product.stock,
            product.sold
        );
        assert_eq!(
            (product.stock.get(), product.sold.get()),
            (0, u64::from(STOCK))
        );
    })?;
    assert_eq!(
        sold.load(Ordering::Relaxed),
        u64::from(STOCK),
        "never oversold"
    );
    store.close()?;
    Ok(())
}
