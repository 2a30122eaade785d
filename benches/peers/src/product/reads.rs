//! A product of eleven fields as its bytes and as JSON, got from a store and read whole.

use std::hint::black_box;
use std::time::{Duration, Instant};

use musli_zerocopy::{Buf, OwnedBuf, Ref, ZeroCopy, endian};
use penstock::{Local, Penstock, Verbs};
use penstock_client::{Layout, Text};
use serde::{Deserialize, Serialize};
use zerocopy::little_endian::{F32, U16, U32, U64};
use zerocopy::{Immutable, IntoBytes, KnownLayout, TryFromBytes, Unaligned};

use crate::Outcome;
use crate::scratch::Scratch;

/// Two stores, each with the product as its bytes and as JSON.
pub const READERS: usize = 4;

const BYTES_KEY: &[u8] = b"product:1001";
const JSON_KEY: &[u8] = b"product-as-json:1001";

const CATEGORY: &str = "Shoes";
const MANUFACTURER: &str = "Adidas AG";
const NAME: &str = "Yeezy Boost 350 V2";
const DESCRIPTION: &str = "A low shoe with a knitted upper, a side stripe and a full-length sole";

#[derive(Layout, TryFromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Product {
    product_id: U64,
    stock: U16,
    price: U32,
    weight: F32,
    is_available: bool,
    category: Text,
    manufacturer: Text,
    dimensions: Dimensions,
    rating: F32,
    name: Text,
    description: Text,
}

#[derive(Layout, TryFromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Dimensions {
    length: U32,
    width: U32,
    height: U32,
}

#[derive(Serialize, Deserialize)]
struct JsonProduct<'a> {
    product_id: u64,
    stock: u16,
    price: u32,
    weight: f32,
    is_available: bool,
    category: &'a str,
    manufacturer: &'a str,
    dimensions: JsonDimensions,
    rating: f32,
    name: &'a str,
    description: &'a str,
}

#[derive(Serialize, Deserialize)]
struct JsonDimensions {
    length: u32,
    width: u32,
    height: u32,
}

#[derive(ZeroCopy)]
#[repr(C)]
struct MusliProduct {
    product_id: u64,
    stock: u16,
    price: u32,
    weight: f32,
    is_available: bool,
    category: Ref<str>,
    manufacturer: Ref<str>,
    dimensions: MusliDimensions,
    rating: f32,
    name: Ref<str>,
    description: Ref<str>,
}

#[derive(ZeroCopy)]
#[repr(C)]
struct MusliDimensions {
    length: u32,
    width: u32,
    height: u32,
}

/// One form of the product in one store.
pub enum Reader {
    Layout(Local, usize),
    Json(Local, usize),
    GrausBytes(graus_db::GrausDb, usize),
    GrausJson(graus_db::GrausDb, usize),
}

impl Reader {
    /// Each store with the product as its bytes, and behind it with the product as JSON.
    pub fn all(scratch: &Scratch) -> Outcome<[Reader; READERS]> {
        let local = |name: &str, key: &[u8], value: &[u8]| -> Outcome<Local> {
            let options = penstock::Options::default();
            let mut store = Penstock::open_local(scratch.fresh(name)?, options)?;
            store.set(key, value)?;
            Ok(store)
        };
        let graus = |name: &str, key: &[u8], value: &[u8]| -> Outcome<graus_db::GrausDb> {
            let store = graus_db::GrausDb::open(scratch.fresh(name)?)?;
            store.set(key.to_vec(), value)?;
            Ok(store)
        };
        let (bytes, json, musli) = (layout(), json()?, musli()?);
        Ok([
            Reader::Layout(local("layout", BYTES_KEY, &bytes)?, bytes.len()),
            Reader::Json(local("json", JSON_KEY, &json)?, json.len()),
            Reader::GrausBytes(graus("graus-bytes", BYTES_KEY, &musli)?, musli.len()),
            Reader::GrausJson(graus("graus-json", JSON_KEY, &json)?, json.len()),
        ])
    }

    pub fn store_name(&self) -> &'static str {
        match self {
            Reader::Layout(..) | Reader::Json(..) => "Penstock, caller's thread; Layout",
            Reader::GrausBytes(..) | Reader::GrausJson(..) => "GrausDB 0.2.2; musli-zerocopy",
        }
    }

    pub fn value_bytes(&self) -> usize {
        match self {
            Reader::Layout(_, bytes)
            | Reader::Json(_, bytes)
            | Reader::GrausBytes(_, bytes)
            | Reader::GrausJson(_, bytes) => *bytes,
        }
    }

    /// Gets the product so often and reads all of its fields.
    ///
    /// # Errors
    /// Also if a field was not what was written.
    pub fn read(&mut self, reads: u64) -> Outcome<Duration> {
        let mut total = 0u64;
        let began = Instant::now();
        match self {
            Reader::Layout(store, _) => {
                for _ in 0..reads {
                    let sum = store.get_with(BYTES_KEY, |value, _| sum_of_layout(value))?;
                    total = total.wrapping_add(sum.ok_or("no product")??);
                }
            }
            Reader::Json(store, _) => {
                for _ in 0..reads {
                    let sum = store.get_with(JSON_KEY, |value, _| sum_of_json(value))?;
                    total = total.wrapping_add(sum.ok_or("no product")??);
                }
            }
            Reader::GrausBytes(store, _) => {
                for _ in 0..reads {
                    let value = store.get(BYTES_KEY)?.ok_or("no product")?;
                    total = total.wrapping_add(sum_of_musli(&value)?);
                }
            }
            Reader::GrausJson(store, _) => {
                for _ in 0..reads {
                    let value = store.get(JSON_KEY)?.ok_or("no product")?;
                    total = total.wrapping_add(sum_of_json(&value)?);
                }
            }
        }
        let time = began.elapsed();
        match total == sum(&plain()).wrapping_mul(reads) {
            true => Ok(time),
            false => Err(format!("{}: fields are not what was written", self.store_name()).into()),
        }
    }
}

fn plain() -> JsonProduct<'static> {
    JsonProduct {
        product_id: 1001,
        stock: 20_000,
        price: 23_000,
        weight: 1.25,
        is_available: true,
        category: CATEGORY,
        manufacturer: MANUFACTURER,
        dimensions: JsonDimensions {
            length: 330,
            width: 210,
            height: 120,
        },
        rating: 4.75,
        name: NAME,
        description: DESCRIPTION,
    }
}

fn json() -> Outcome<Vec<u8>> {
    Ok(serde_json::to_vec(&plain())?)
}

fn layout() -> Vec<u8> {
    let it = plain();
    let dimensions = Product::dimensions;
    let built = Product::build()
        .with(Product::product_id(), it.product_id)
        .with(Product::stock(), it.stock)
        .with(Product::price(), it.price)
        .with(Product::weight(), it.weight)
        .with(Product::is_available(), it.is_available)
        .with(Product::category(), it.category)
        .with(Product::manufacturer(), it.manufacturer)
        .with(
            dimensions().then(Dimensions::length()),
            it.dimensions.length,
        )
        .with(dimensions().then(Dimensions::width()), it.dimensions.width)
        .with(
            dimensions().then(Dimensions::height()),
            it.dimensions.height,
        )
        .with(Product::rating(), it.rating)
        .with(Product::name(), it.name)
        .with(Product::description(), it.description)
        .finish();
    built.bytes().to_vec()
}

fn musli() -> Outcome<Vec<u8>> {
    let it = plain();
    let mut bytes = OwnedBuf::new().with_byte_order::<endian::Little>();
    let place = bytes.store_uninit::<MusliProduct>()?;
    let category = bytes.store_unsized(it.category)?;
    let manufacturer = bytes.store_unsized(it.manufacturer)?;
    let name = bytes.store_unsized(it.name)?;
    let description = bytes.store_unsized(it.description)?;
    bytes.load_uninit_mut(place)?.write(&MusliProduct {
        product_id: it.product_id,
        stock: it.stock,
        price: it.price,
        weight: it.weight,
        is_available: it.is_available,
        category,
        manufacturer,
        dimensions: MusliDimensions {
            length: it.dimensions.length,
            width: it.dimensions.width,
            height: it.dimensions.height,
        },
        rating: it.rating,
        name,
        description,
    });
    Ok(bytes[..].to_vec())
}

/// A number that every field has a part in.
#[inline(always)]
fn sum(it: &JsonProduct<'_>) -> u64 {
    let numbers = it.product_id + u64::from(it.stock) + u64::from(it.price);
    let floats = u64::from(it.weight.to_bits()) + u64::from(it.rating.to_bits());
    let sizes = &it.dimensions;
    let dimensions = u64::from(sizes.length) + u64::from(sizes.width) + u64::from(sizes.height);
    let texts = [it.category, it.manufacturer, it.name, it.description];
    let bytes: usize = texts.iter().map(|text| black_box(*text).len()).sum();
    numbers + floats + dimensions + u64::from(it.is_available) + bytes as u64
}

fn sum_of_json(value: &[u8]) -> Outcome<u64> {
    Ok(sum(&serde_json::from_slice(value)?))
}

fn sum_of_layout(value: &[u8]) -> Outcome<u64> {
    let it = Product::view(value)?;
    Ok(sum(&JsonProduct {
        product_id: it.product_id.get(),
        stock: it.stock.get(),
        price: it.price.get(),
        weight: it.weight.get(),
        is_available: it.is_available,
        category: it.text(Product::category())?,
        manufacturer: it.text(Product::manufacturer())?,
        dimensions: JsonDimensions {
            length: it.dimensions.length.get(),
            width: it.dimensions.width.get(),
            height: it.dimensions.height.get(),
        },
        rating: it.rating.get(),
        name: it.text(Product::name())?,
        description: it.text(Product::description())?,
    }))
}

fn sum_of_musli(value: &[u8]) -> Outcome<u64> {
    let buffer = Buf::new(value);
    let it = buffer.load(Ref::<MusliProduct, endian::Little>::new(0usize))?;
    Ok(sum(&JsonProduct {
        product_id: it.product_id,
        stock: it.stock,
        price: it.price,
        weight: it.weight,
        is_available: it.is_available,
        category: buffer.load(it.category)?,
        manufacturer: buffer.load(it.manufacturer)?,
        dimensions: JsonDimensions {
            length: it.dimensions.length,
            width: it.dimensions.width,
            height: it.dimensions.height,
        },
        rating: it.rating,
        name: buffer.load(it.name)?,
        description: buffer.load(it.description)?,
    }))
}
