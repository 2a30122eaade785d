//! The bytes of values: what a builder writes, what a view reads and refuses.

use bytes::Bytes;
use penstock_client::{Layout, LayoutError};

use crate::{Buyer, Every, Product, shoe};

fn error_of(value: &[u8]) -> Option<LayoutError> {
    Product::view(value).err()
}

#[test]
fn a_built_value_has_the_bytes_of_the_document() {
    let mut expected = Vec::new();
    expected.extend_from_slice(&100u32.to_le_bytes());
    expected.extend_from_slice(&23_000u32.to_le_bytes());
    expected.push(1);
    // Where the text begins, and how many bytes it has.
    expected.extend_from_slice(&17u32.to_le_bytes());
    expected.extend_from_slice(&5u32.to_le_bytes());
    expected.extend_from_slice(b"Yeezy");
    assert_eq!(shoe().bytes(), &expected);
}

#[test]
fn a_view_reads_what_the_builder_wrote_without_a_copy() {
    let product = shoe();
    let value: &[u8] = product.bytes();
    let read = Product::view(value).unwrap();
    assert!(std::ptr::eq(
        std::ptr::from_ref(read.fixed()).cast(),
        value.as_ptr()
    ));
    assert_eq!(read.stock.get(), 100);
    assert_eq!(read.price_cents.get(), 23_000);
    assert!(read.is_open);
    assert_eq!(read.text(Product::name()).unwrap(), "Yeezy");
    let owned = Product::owned(product.bytes().clone()).unwrap();
    assert_eq!(owned.stock.get(), 100);
    assert_eq!(owned.text(Product::name()).unwrap(), "Yeezy");
}

#[test]
fn every_kind_of_field_comes_back() {
    let buyer = Buyer {
        bought: 7.into(),
        is_blocked: true,
    };
    let value = Every::build()
        .with(Every::a(), 255)
        .with(Every::b(), -128)
        .with(Every::f(), -5)
        .with(Every::j(), u64::MAX - 1)
        .with(Every::m(), i64::MIN)
        .with(Every::o(), 1.5)
        .with(Every::p(), -0.25)
        .with(Every::q(), f64::MAX)
        .with(Every::r(), *b"bytes")
        .with(Every::s().at(2), 9)
        .with(Every::t(), [buyer, buyer])
        .with(Every::t().at(1).then(Buyer::is_blocked()), false)
        .with(Every::w().then(Product::name()), "inner")
        .with(Every::u(), "outer")
        .with(Every::v(), buyer)
        .finish();
    assert_eq!((value.a, value.b, value.f.get()), (255, -128, -5));
    assert_eq!((value.j.get(), value.m.get()), (u64::MAX - 1, i64::MIN));
    assert_eq!(
        (value.o.get(), value.p.get(), value.q.get()),
        (1.5, -0.25, f64::MAX)
    );
    assert_eq!(&value.r, b"bytes");
    assert_eq!(value.s.map(|it| it.get()), [0, 0, 9]);
    assert_eq!(value.t[0], buyer);
    assert!(!value.t[1].is_blocked);
    assert_eq!(value.text(Every::u()).unwrap(), "outer");
    let inner = Every::w().then(Product::name());
    assert_eq!(value.text(inner).unwrap(), "inner");
    assert_eq!(value.view().get(Every::v()).unwrap(), &buyer);
}

#[test]
fn what_is_written_last_counts_and_leaves_nothing_of_what_was_before() {
    let once = shoe();
    let twice = Product::build()
        .with(Product::name(), "another name that is longer")
        .with(Product::stock(), 1)
        .with(Product::stock(), 100)
        .with(Product::price_cents(), 23_000)
        .with(Product::is_open(), true)
        .with(Product::name(), "Yeezy")
        .finish();
    assert_eq!(once.bytes(), twice.bytes());
    // A nested layout that is written whole takes its texts away.
    let gone = Every::build()
        .with(Every::w().then(Product::name()), "gone")
        .with(Every::w(), *Product::build().finish())
        .finish();
    assert_eq!(gone.bytes().len(), size_of::<Every>());
}

#[test]
fn a_value_that_is_cut_is_refused_with_both_lengths_and_a_longer_one_is_read() {
    let mut value = shoe().bytes().to_vec();
    for cut in 0..17 {
        let expected = LayoutError::TooShort {
            layout: "Product",
            needed: 17,
            found: cut,
        };
        assert_eq!(error_of(&value[..cut]), Some(expected));
    }
    // The fixed fields are there, the text is not.
    for cut in 17..value.len() {
        let read = Product::view(&value[..cut]).unwrap();
        let found = read.text(Product::name());
        assert!(
            matches!(found, Err(LayoutError::TextOutside { .. })),
            "{found:?}"
        );
    }
    // A newer program has more fields.
    value.extend_from_slice(b"more");
    let read = Product::view(&value).unwrap();
    assert_eq!(read.text(Product::name()).unwrap(), "Yeezy");
}

#[test]
fn a_bool_of_another_byte_is_refused_by_its_path() {
    let value = Every::build().finish();
    let bools = [
        ("n", Every::n().offset()),
        (
            "t[1].is_blocked",
            Every::t().at(1).then(Buyer::is_blocked()).offset(),
        ),
        (
            "v.is_blocked",
            Every::v().then(Buyer::is_blocked()).offset(),
        ),
        ("w.is_open", Every::w().then(Product::is_open()).offset()),
    ];
    for (path, offset) in bools {
        let mut wrong = value.bytes().to_vec();
        let offset = usize::try_from(offset).unwrap();
        wrong[offset] = 2;
        let expected = LayoutError::NotBool {
            layout: "Every",
            field: path.into(),
            offset,
            found: 2,
        };
        assert_eq!(Every::view(&wrong).err(), Some(expected));
    }
}

#[test]
fn a_text_is_never_read_outside_its_value_whatever_stands_in_its_place() {
    let value = shoe().bytes().to_vec();
    let place = usize::try_from(Product::name().offset()).unwrap();
    let numbers = [
        0,
        1,
        16,
        17,
        18,
        21,
        22,
        23,
        255,
        256,
        u32::MAX - 1,
        u32::MAX,
    ];
    for offset in numbers {
        for len in numbers {
            let mut changed = value.clone();
            changed[place..place + 4].copy_from_slice(&offset.to_le_bytes());
            changed[place + 4..place + 8].copy_from_slice(&len.to_le_bytes());
            let found = Product::view(&changed).unwrap().text(Product::name());
            let end = u64::from(offset) + u64::from(len);
            match found {
                _ if len == 0 => assert_eq!(found, Ok("")),
                Ok(text) => {
                    assert!(offset >= 17 && end <= 22, "{offset} {len}");
                    assert_eq!(text.as_bytes(), &changed[offset as usize..][..len as usize]);
                }
                Err(error) => {
                    assert!(offset < 17 || end > 22, "{offset} {len}: {error}");
                    assert!(
                        error.to_string().contains("does not lie between"),
                        "{error}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_text_of_other_bytes_is_refused_and_every_flipped_bit_is_read_or_refused() {
    let value = shoe().bytes().to_vec();
    let mut wrong = value.clone();
    wrong[19] = 0xFF;
    let error = Product::view(&wrong)
        .unwrap()
        .text(Product::name())
        .unwrap_err();
    let expected = LayoutError::TextNotUtf8 {
        offset: 17,
        valid: 2,
    };
    assert_eq!(error, expected);
    for bit in 0..value.len() * 8 {
        let mut flipped = value.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        match Product::view(&flipped) {
            Ok(read) => drop(read.text(Product::name())),
            Err(error) => assert!(matches!(error, LayoutError::NotBool { .. }), "bit {bit}"),
        }
    }
}

#[test]
fn a_value_at_any_address_is_read() {
    let value = shoe();
    for shift in 0..16 {
        let mut moved = vec![0; shift];
        moved.extend_from_slice(value.bytes());
        assert_eq!(Product::view(&moved[shift..]).unwrap().stock.get(), 100);
        let owned = Product::owned(Bytes::from(moved).slice(shift..)).unwrap();
        assert_eq!(owned.text(Product::name()).unwrap(), "Yeezy");
    }
}

#[test]
fn reading_takes_nothing_from_the_heap() {
    let value = shoe();
    let mut total = 0;
    let counted = allocation_counter::measure(|| {
        for _ in 0..100 {
            let read = Product::view(value.bytes()).unwrap();
            total += u64::from(read.stock.get());
            total += read.text(Product::name()).unwrap().len() as u64;
        }
    });
    assert_eq!((total, counted.count_total), (10_500, 0));
}
