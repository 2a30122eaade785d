//! The six shapes of documents. Each has a tree, and five have a struct as well.

use std::hint::black_box;

use penstock_client::{Layout, OwnedView, Text};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use zerocopy::little_endian::{F64, U32, U64};
use zerocopy::{Immutable, IntoBytes, KnownLayout, TryFromBytes, Unaligned};

use crate::Outcome;
use crate::documents::probe::{Figures, Probe, Step, pick_json};

const NAME: &str = "Yeezy Boost 350 V2";
const OBJECTS: u64 = 50;
const READINGS: usize = 64;
const TEXT_BYTES: usize = 8 << 10;

/// One shape, with the document that has it.
pub struct Shape {
    pub name: &'static str,
    pub document: Value,
    /// The number that is read alone: it stands in the middle of the document.
    pub path: &'static [Step],
    /// None where the number of elements is free.
    pub fixed: Option<Fixed>,
}

/// What a shape has whose fields are known when the program is built.
#[derive(Clone, Copy)]
pub struct Fixed {
    pub json: Measure,
    pub layout: Measure,
}

type Measure = fn(&Shape, &Probe) -> Outcome<Figures>;

pub fn all() -> [Shape; 6] {
    [
        flat_small(),
        flat_wide(),
        nested(),
        objects(),
        long_text(),
        numbers(),
    ]
}

impl Shape {
    /// The number at the path, as the tree has it.
    pub fn wanted(&self) -> Option<f64> {
        self.path
            .iter()
            .try_fold(&self.document, |at, step| match step {
                Step::Name(name) => at.get(name),
                Step::At(index) => at.get(index),
            })?
            .as_f64()
    }

    /// The struct `S` as JSON text. `decode` reads it, which only the caller can write: what is
    /// read may borrow from the text.
    fn as_json<'a, S: Serialize + Deserialize<'a>>(
        &self,
        text: &'a str,
        probe: &Probe,
        decode: impl Fn(&[u8]) -> Outcome<()>,
    ) -> Outcome<Figures> {
        let it: S = serde_json::from_str(text)?;
        if serde_json::to_value(&it)? != self.document {
            return Err(format!("{}: the struct is another document", self.name).into());
        }
        probe.figures(
            self.wanted(),
            &|take| {
                take(&serde_json::to_vec(&it)?);
                Ok(())
            },
            &decode,
            &|bytes| pick_json(bytes, self.path),
        )
    }
}

/// A function that measures a struct as JSON text, for `Fixed::json`.
macro_rules! json_of {
    ($document:ident) => {
        |shape, probe| {
            let text = shape.document.to_string();
            shape.as_json::<$document<'_>>(&text, probe, |bytes| {
                black_box(serde_json::from_slice::<$document<'_>>(bytes)?);
                Ok(())
            })
        }
    };
}

// ---- flat, small

#[derive(Serialize, Deserialize)]
struct Small<'a> {
    id: u64,
    is_open: bool,
    name: &'a str,
    price_cents: u32,
    stock: u32,
}

#[derive(Layout, TryFromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct SmallLayout {
    id: U64,
    is_open: bool,
    name: Text,
    price_cents: U32,
    stock: U32,
}

fn flat_small() -> Shape {
    Shape {
        name: "flat, small",
        document: json!({
            "id": 4_200_017, "is_open": true, "name": NAME, "price_cents": 23_000, "stock": 100,
        }),
        path: &[Step::Name("price_cents")],
        fixed: Some(Fixed {
            json: json_of!(Small),
            layout: |shape, probe| {
                probe.figures(
                    shape.wanted(),
                    &|take| {
                        let built = SmallLayout::build()
                            .with(SmallLayout::id(), 4_200_017)
                            .with(SmallLayout::is_open(), true)
                            .with(SmallLayout::name(), black_box(NAME))
                            .with(SmallLayout::price_cents(), 23_000)
                            .with(SmallLayout::stock(), 100)
                            .finish();
                        take(built.bytes());
                        Ok(())
                    },
                    &|bytes| {
                        let view = SmallLayout::view(bytes)?;
                        black_box((view.fixed(), view.text(SmallLayout::name())?));
                        Ok(())
                    },
                    &|bytes| Ok(SmallLayout::view(bytes)?.price_cents.get().into()),
                )
            },
        }),
    }
}

// ---- flat, wide

/// The struct, its layout, its tree and its builder from one list of fields.
macro_rules! wide {
    (
        texts { $($text:ident = $text_is:literal,)* }
        counts { $($count:ident = $count_is:literal,)* }
        floats { $($float:ident = $float_is:literal,)* }
        flags { $($flag:ident = $flag_is:literal,)* }
    ) => {
        #[derive(Serialize, Deserialize)]
        struct Wide<'a> {
            $($text: &'a str,)* $($count: u32,)* $($float: f64,)* $($flag: bool,)*
        }

        #[derive(Layout, TryFromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
        #[repr(C)]
        struct WideLayout {
            $($text: Text,)* $($count: U32,)* $($float: F64,)* $($flag: bool,)*
        }

        impl WideLayout {
            fn tree() -> Value {
                let fields = [
                    $((stringify!($text), json!($text_is)),)*
                    $((stringify!($count), json!($count_is)),)*
                    $((stringify!($float), json!($float_is)),)*
                    $((stringify!($flag), json!($flag_is)),)*
                ];
                fields.into_iter().map(|(name, it)| (name.to_string(), it)).collect()
            }

            fn encoded() -> OwnedView<WideLayout> {
                WideLayout::build()
                    $(.with(WideLayout::$text(), black_box($text_is)))*
                    $(.with(WideLayout::$count(), $count_is))*
                    $(.with(WideLayout::$float(), $float_is))*
                    $(.with(WideLayout::$flag(), $flag_is))*
                    .finish()
            }

            fn decoded(bytes: &[u8]) -> Outcome<()> {
                let view = WideLayout::view(bytes)?;
                $(black_box(view.text(WideLayout::$text())?);)*
                black_box(view.fixed());
                Ok(())
            }
        }
    };
}

wide! {
    texts {
        brand = "Adidas", category = "Shoes", colour = "Zebra", country = "DE", currency = "EUR",
        manufacturer = "Adidas AG", season = "2026-winter", status = "on sale",
    }
    counts {
        buyer_limit = 2, depth_mm = 330, height_mm = 120, held = 17, ordinal = 42,
        price_cents = 23_000, sold = 917, stock = 100, warehouse = 7, width_mm = 210,
    }
    floats { discount = 0.15, rating = 4.7, tax_rate = 0.19, weight_kg = 1.25, }
    flags { is_gift = false, is_new = true, is_open = true, is_returnable = true, }
}

fn flat_wide() -> Shape {
    Shape {
        name: "flat, 26 fields",
        document: WideLayout::tree(),
        path: &[Step::Name("price_cents")],
        fixed: Some(Fixed {
            json: json_of!(Wide),
            layout: |shape, probe| {
                probe.figures(
                    shape.wanted(),
                    &|take| {
                        take(WideLayout::encoded().bytes());
                        Ok(())
                    },
                    &WideLayout::decoded,
                    &|bytes| Ok(WideLayout::view(bytes)?.price_cents.get().into()),
                )
            },
        }),
    }
}

// ---- nested

#[derive(Serialize, Deserialize)]
struct Order<'a> {
    #[serde(borrow)]
    buyer: Buyer<'a>,
    id: u64,
    #[serde(borrow)]
    payment: Payment<'a>,
    state: &'a str,
}

#[derive(Serialize, Deserialize)]
struct Buyer<'a> {
    #[serde(borrow)]
    address: Address<'a>,
    id: u64,
    name: &'a str,
}

#[derive(Serialize, Deserialize)]
struct Address<'a> {
    city: &'a str,
    street: &'a str,
    zip: u32,
}

#[derive(Serialize, Deserialize)]
struct Payment<'a> {
    amount_cents: u32,
    is_captured: bool,
    method: &'a str,
}

#[derive(Layout, TryFromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct OrderLayout {
    buyer: BuyerLayout,
    id: U64,
    payment: PaymentLayout,
    state: Text,
}

#[derive(Layout, TryFromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct BuyerLayout {
    address: AddressLayout,
    id: U64,
    name: Text,
}

#[derive(Layout, TryFromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct AddressLayout {
    city: Text,
    street: Text,
    zip: U32,
}

#[derive(Layout, TryFromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct PaymentLayout {
    amount_cents: U32,
    is_captured: bool,
    method: Text,
}

fn nested() -> Shape {
    Shape {
        name: "nested, 3 levels",
        document: json!({
            "buyer": {
                "address": { "city": "Berlin", "street": "Torstrasse 1", "zip": 10_119 },
                "id": 77_001, "name": "Ann Example",
            },
            "id": 4_200_017,
            "payment": { "amount_cents": 46_000, "is_captured": true, "method": "card" },
            "state": "paid",
        }),
        path: &[
            Step::Name("buyer"),
            Step::Name("address"),
            Step::Name("zip"),
        ],
        fixed: Some(Fixed {
            json: json_of!(Order),
            layout: nested_layout,
        }),
    }
}

fn nested_layout(shape: &Shape, probe: &Probe) -> Outcome<Figures> {
    let (buyer, payment) = (OrderLayout::buyer, OrderLayout::payment);
    let address = || buyer().then(BuyerLayout::address());
    probe.figures(
        shape.wanted(),
        &|take| {
            let built = OrderLayout::build()
                .with(address().then(AddressLayout::city()), black_box("Berlin"))
                .with(address().then(AddressLayout::street()), "Torstrasse 1")
                .with(address().then(AddressLayout::zip()), 10_119)
                .with(buyer().then(BuyerLayout::id()), 77_001)
                .with(buyer().then(BuyerLayout::name()), "Ann Example")
                .with(OrderLayout::id(), 4_200_017)
                .with(payment().then(PaymentLayout::amount_cents()), 46_000)
                .with(payment().then(PaymentLayout::is_captured()), true)
                .with(payment().then(PaymentLayout::method()), "card")
                .with(OrderLayout::state(), "paid")
                .finish();
            take(built.bytes());
            Ok(())
        },
        &|bytes| {
            let view = OrderLayout::view(bytes)?;
            black_box((
                view.fixed(),
                view.text(address().then(AddressLayout::city()))?,
                view.text(address().then(AddressLayout::street()))?,
                view.text(buyer().then(BuyerLayout::name()))?,
                view.text(payment().then(PaymentLayout::method()))?,
                view.text(OrderLayout::state())?,
            ));
            Ok(())
        },
        &|bytes| Ok(OrderLayout::view(bytes)?.buyer.address.zip.get().into()),
    )
}

// ---- an array of objects

fn objects() -> Shape {
    let object = |number: u64| {
        json!({
            "amount_cents": 1_999 + number, "at_ms": 1_790_000_000_000 + 37 * number,
            "is_ok": !number.is_multiple_of(7), "kind": "purchase",
            "order": format!("o-{number:06}"),
        })
    };
    Shape {
        name: "array of 50 objects",
        document: json!({ "events": (0..OBJECTS).map(object).collect::<Vec<_>>() }),
        path: &[
            Step::Name("events"),
            Step::At(25),
            Step::Name("amount_cents"),
        ],
        fixed: None,
    }
}

// ---- a long text

#[derive(Serialize, Deserialize)]
struct Article {
    body: String,
    id: u64,
    language: String,
    title: String,
    words: u32,
}

#[derive(Layout, TryFromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ArticleLayout {
    body: Text,
    id: U64,
    language: Text,
    title: Text,
    words: U32,
}

/// Sentences with quotes and ends of lines, which JSON text escapes.
fn body() -> String {
    let sentence = "The drop opens at noon; \"first come, first served\" holds for all of it.\n";
    sentence.repeat(TEXT_BYTES / sentence.len())
}

fn long_text() -> Shape {
    Shape {
        name: "long text, 8 KiB",
        document: json!({
            "body": body(), "id": 4_200_017, "language": "en", "title": NAME, "words": 1_469,
        }),
        path: &[Step::Name("id")],
        fixed: Some(Fixed {
            json: |shape, probe| {
                let text = shape.document.to_string();
                // Texts with escapes cannot be borrowed.
                shape.as_json::<Article>(&text, probe, |bytes| {
                    black_box(serde_json::from_slice::<Article>(bytes)?);
                    Ok(())
                })
            },
            layout: |shape, probe| {
                let body = body();
                probe.figures(
                    shape.wanted(),
                    &|take| {
                        let built = ArticleLayout::build()
                            .with(ArticleLayout::body(), black_box(&body))
                            .with(ArticleLayout::id(), 4_200_017)
                            .with(ArticleLayout::language(), "en")
                            .with(ArticleLayout::title(), NAME)
                            .with(ArticleLayout::words(), 1_469)
                            .finish();
                        take(built.bytes());
                        Ok(())
                    },
                    &|bytes| {
                        let view = ArticleLayout::view(bytes)?;
                        black_box((
                            view.fixed(),
                            view.text(ArticleLayout::body())?,
                            view.text(ArticleLayout::language())?,
                            view.text(ArticleLayout::title())?,
                        ));
                        Ok(())
                    },
                    &|bytes| Ok(ArticleLayout::view(bytes)?.id.get() as f64),
                )
            },
        }),
    }
}

// ---- numbers mostly

#[derive(Serialize, Deserialize)]
struct Series<'a> {
    counts: Vec<u32>,
    readings: Vec<f64>,
    sensor: u64,
    unit: &'a str,
}

#[derive(Layout, TryFromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct SeriesLayout {
    counts: [U32; READINGS],
    readings: [F64; READINGS],
    sensor: U64,
    unit: Text,
}

/// Counts of one to five digits.
fn count(number: usize) -> u32 {
    (number as u32).pow(2) * 23 % 65_536
}

/// Readings of two decimals.
fn reading(number: usize) -> f64 {
    (number * 7919 % 10_007) as f64 / 100.0
}

fn numbers() -> Shape {
    Shape {
        name: "numbers, 2 x 64",
        document: json!({
            "counts": (0..READINGS).map(count).collect::<Vec<_>>(),
            "readings": (0..READINGS).map(reading).collect::<Vec<_>>(),
            "sensor": 880_017, "unit": "kPa",
        }),
        path: &[Step::Name("readings"), Step::At(32)],
        fixed: Some(Fixed {
            json: json_of!(Series),
            layout: |shape, probe| {
                let counts: [u32; READINGS] = std::array::from_fn(count);
                let readings: [f64; READINGS] = std::array::from_fn(reading);
                probe.figures(
                    shape.wanted(),
                    &|take| {
                        let built = SeriesLayout::build()
                            .with(SeriesLayout::counts(), counts.map(U32::new))
                            .with(SeriesLayout::readings(), readings.map(F64::new))
                            .with(SeriesLayout::sensor(), 880_017)
                            .with(SeriesLayout::unit(), black_box("kPa"))
                            .finish();
                        take(built.bytes());
                        Ok(())
                    },
                    &|bytes| {
                        let view = SeriesLayout::view(bytes)?;
                        black_box((view.fixed(), view.text(SeriesLayout::unit())?));
                        Ok(())
                    },
                    &|bytes| Ok(SeriesLayout::view(bytes)?.readings[32].get()),
                )
            },
        }),
    }
}
