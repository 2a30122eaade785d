//! `#[derive(Layout)]` as a program meets it: bytes, views, instructions, hashes, and what does not
//! compile.

#![cfg(feature = "derive")]

mod bytes;
mod compile_fail;
mod hashes;
mod instructions;

use penstock_client::{Layout, OwnedView, Text};
use zerocopy::little_endian::{F32, F64, I16, I32, I64, U16, U32, U64};
use zerocopy::{Immutable, IntoBytes, KnownLayout, TryFromBytes, Unaligned, big_endian as be};

#[derive(Layout, TryFromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct Product {
    stock: U32,
    price_cents: U32,
    is_open: bool,
    name: Text,
}

#[derive(
    Layout,
    TryFromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
    Clone,
    Copy,
    Debug,
    PartialEq,
)]
#[repr(C)]
struct Buyer {
    bought: U16,
    is_blocked: bool,
}

/// One field of each kind.
#[derive(Layout, TryFromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Every {
    a: u8,
    b: i8,
    c: U16,
    d: U64,
    e: I16,
    f: I32,
    g: I64,
    h: be::U16,
    i: be::U32,
    j: be::U64,
    k: be::I16,
    l: be::I32,
    m: be::I64,
    n: bool,
    o: F32,
    p: F64,
    q: be::F64,
    r: [u8; 5],
    s: [U32; 3],
    t: [Buyer; 2],
    u: Text,
    v: Buyer,
    w: Product,
}

fn shoe() -> OwnedView<Product> {
    Product::build()
        .with(Product::stock(), 100)
        .with(Product::price_cents(), 23_000)
        .with(Product::is_open(), true)
        .with(Product::name(), "Yeezy")
        .finish()
}
