//! The text of a layout, its hash, its mark, and the check against keyspaces.

use penstock_client::{Keyspace, Layout, LayoutMismatch, Text};
use penstock_net::keyspace::Settings;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{Immutable, IntoBytes, KnownLayout, TryFromBytes, Unaligned};

use crate::{Every, Product};

const TEXT: &str = "stock:u32@0;price_cents:u32@4;is_open:bool@8;name:text@9;=17";

fn fnv(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

/// The same fields under another name of the struct.
#[derive(Layout, TryFromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Ware {
    stock: U32,
    price_cents: U32,
    is_open: bool,
    name: Text,
}

macro_rules! other {
    ($name:ident { $($field:ident: $field_type:ty,)* }) => {
        #[derive(Layout, TryFromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
        #[repr(C)]
        struct $name { $($field: $field_type,)* }
    };
}

other!(Renamed {
    stock: U32,
    price: U32,
    is_open: bool,
    name: Text,
});
other!(Retyped {
    stock: U32,
    price_cents: zerocopy::little_endian::I32,
    is_open: bool,
    name: Text,
});
other!(Reordered {
    price_cents: U32,
    stock: U32,
    is_open: bool,
    name: Text,
});
other!(Wider {
    stock: U32,
    price_cents: U64,
    is_open: bool,
    name: Text,
});
other!(Grown {
    stock: U32,
    price_cents: U32,
    is_open: bool,
    name: Text,
    sold: U64,
});

#[test]
fn the_hash_is_over_the_text_and_the_text_is_that_of_the_document() {
    assert_eq!(Product::LAYOUT.to_string(), TEXT);
    assert!(include_str!("../../LAYOUTS.md").contains(TEXT));
    assert_eq!(Product::LAYOUT.hash(), fnv(TEXT));
    let every = Every::LAYOUT.to_string();
    assert_eq!(Every::LAYOUT.hash(), fnv(&every), "{every}");
    assert!(every.contains("j:u64be@"), "{every}");
    assert!(every.contains("q:f64be@"), "{every}");
    assert!(every.contains(";r:u8[5]@"), "{every}");
    assert!(
        every.contains("t:{bought:u16@0;is_blocked:bool@2;=3}[2]@"),
        "{every}"
    );
    assert!(every.contains(&format!("w:{{{TEXT}}}@")), "{every}");
}

#[test]
fn the_hash_is_the_same_in_every_build() {
    // Keyspaces are marked with it: another number here breaks what is stored.
    assert_eq!(Product::LAYOUT.hash(), 0xfbb9d8042ba31655);
    assert_eq!(Product::LAYOUT.mark(), 7755);
}

#[test]
fn the_hash_is_about_names_types_and_offsets_and_nothing_else() {
    assert_eq!(Product::LAYOUT.hash(), Ware::LAYOUT.hash());
    let others = [
        Product::LAYOUT.hash(),
        Renamed::LAYOUT.hash(),
        Retyped::LAYOUT.hash(),
        Reordered::LAYOUT.hash(),
        Wider::LAYOUT.hash(),
        Grown::LAYOUT.hash(),
    ];
    for (at, hash) in others.iter().enumerate() {
        assert!(!others[..at].contains(hash), "number {at}");
    }
}

#[test]
fn a_prefix_is_checked_against_the_longest_keyspace_around_it() {
    let keyspace = |prefix: &[u8], layout| Keyspace {
        prefix: prefix.to_vec(),
        revision: 1,
        settings: Settings {
            layout,
            ..Settings::default()
        },
    };
    let mark = Product::LAYOUT.mark();
    let check = |keyspaces: &[Keyspace]| Product::LAYOUT.check(b"product:", keyspaces);
    let unmarked = check(&[keyspace(b"", 0), keyspace(b"product:shoes:", mark)]);
    assert!(
        matches!(unmarked, Err(LayoutMismatch::Unmarked { .. })),
        "{unmarked:?}"
    );
    assert_eq!(
        check(&[keyspace(b"product:", mark), keyspace(b"", 9)]),
        Ok(())
    );
    assert_eq!(check(&[keyspace(b"prod", mark)]), Ok(()));
    let other = check(&[
        keyspace(b"", mark),
        keyspace(b"product:", Grown::LAYOUT.mark()),
    ]);
    let text = other.unwrap_err().to_string();
    for part in ["product:", "Product", &mark.to_string()] {
        assert!(text.contains(part), "{text}");
    }
}
