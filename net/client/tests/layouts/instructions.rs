//! Guards and effects by the names of fields.

use penstock_client::layout::{Comparable, Countable, NamedField};
use penstock_client::{
    Apply, Arithmetic, BitTest, Comparison, Field, FieldType, Instruction, Layout, Operation, Rate,
};
use penstock_net::instruction::Outcome;

use crate::{Buyer, Every, Product};

#[test]
fn a_named_field_gives_the_instruction_of_its_type_and_offset() {
    let stock = Field::u32(0);
    assert_eq!(Product::stock().at_least(1), stock.at_least(1));
    assert_eq!(Product::stock().at_most(9), stock.at_most(9));
    assert_eq!(Product::stock().decrease(1), stock.decrease(1));
    assert_eq!(Product::stock().increase(2), stock.increase(2));
    assert_eq!(Product::price_cents().set(5), Field::u32(4).set(5));
    let is_open = Field::new(FieldType::U8, 8);
    assert_eq!(Product::is_open().equals(true), is_open.equals(1));
    assert_eq!(Product::is_open().set(false), is_open.set(0));
    let ne = is_open.instruction(Operation::Ne, 1);
    assert_eq!(Product::is_open().differs_from(true), ne);
    let second = Product::stock().of_second_key().or_else(3).at_least(1);
    assert_eq!((second.key, second.reason), (1, 3));
    let big = Every::i().at_least(1);
    assert_eq!(big.field_type, FieldType::U32.big_endian());
}

#[test]
fn a_path_leads_through_nested_layouts_and_arrays() {
    let path = Every::t().at(1).then(Buyer::bought());
    let expected = Every::t().offset() + 3;
    assert_eq!(
        (path.offset(), path.at_least(1).offset),
        (expected, expected)
    );
    assert_eq!(Every::s().at(2).offset(), Every::s().offset() + 8);
    let stock = Every::w().then(Product::stock()).or_else(2).at_least(1);
    assert_eq!((stock.offset, stock.reason), (Every::w().offset(), 2));
}

#[test]
#[should_panic(expected = "element 3 of 3")]
fn an_element_that_is_not_there_is_a_mistake_of_the_program() {
    let _ = Every::s().at(3);
}

#[test]
fn apply_takes_the_same_fields() {
    let mut order = Apply::new();
    let shoe = order.key(b"product:{shoe}");
    let field = Product::price_cents().of(shoe);
    assert_eq!(field, shoe.field(FieldType::U32, 4));
    assert_eq!(field.at_least(7u64), shoe.u32(4).at_least(7u64));
}

/// Whatever is made of a named field, on whichever way, has the code that the field was given.
#[test]
fn the_code_of_a_named_field_is_in_every_instruction_that_is_made_of_it() {
    let named = Product::stock().or_else(7);
    let of_update = [
        named.equals(1),
        named.differs_from(1),
        named.at_least(1),
        named.at_most(1),
        named.set(1),
        named.increase(1),
        named.decrease(1),
        named.field().at_least(1),
    ];
    assert_eq!(of_update.map(|it| it.reason), [7; 8]);
    let mut order = Apply::new();
    let field = named.of(order.key(b"product:{shoe}"));
    let rate = Rate {
        interval_us: 1,
        burst: 1,
        quantity: 1,
    };
    let of_apply = [
        field.compares(Comparison::Ne, 1u64),
        field.at_least(1u64),
        field.at_most(1u64),
        field.equals(1u64),
        field.has_bits(BitTest::All, 1u64),
        field.changes(Arithmetic::Max, 1u64),
        field.set(1u64),
        field.increase(1u64),
        field.decrease(1u64),
        field.take(rate),
        field.returned(),
    ];
    assert_eq!(of_apply.map(|it| it.reason), [7; 11]);
    assert_eq!(field.at_least(1u64).or_else(8).reason, 8, "the last counts");
    // On a path the inner field speaks for itself, and what it does not say the outer one does.
    let path = |outer: u8, inner: u8| {
        let product = Every::w().or_else(outer);
        product.then(Product::stock().or_else(inner)).at_least(1)
    };
    let reasons = [path(0, 7), path(7, 0), path(6, 7)].map(|it| it.reason);
    assert_eq!(reasons, [7; 3]);
    let second = Every::w().then(Product::stock().of_second_key());
    assert_eq!(second.at_least(1).key, 1);
    assert_eq!(Every::s().or_else(7).at(2).at_least(1).reason, 7);
}

/// Sets the field to each number, reads it by the view, and counts beyond it.
fn borders<T: Countable>(
    field: NamedField<Every, T>,
    low: T::Number,
    high: T::Number,
    one: T::Number,
) where
    T::Number: Copy,
{
    let mut value = Every::build().finish().bytes().to_vec();
    let run = |instruction: Instruction, value: &mut [u8]| {
        let read = Instruction::read(&instruction.encode(), 0, 1).expect("the wire takes it");
        read.run(value)
    };
    for (number, beyond) in [(low, field.decrease(one)), (high, field.increase(one))] {
        run(field.set(number), &mut value);
        assert_eq!(run(field.equals(number), &mut value), Outcome::Holds);
        assert_eq!(run(field.at_least(low), &mut value), Outcome::Holds);
        assert_eq!(run(field.at_most(high), &mut value), Outcome::Holds);
        let outcome = run(beyond, &mut value);
        assert!(
            matches!(outcome, Outcome::Failed { overflow: true, .. }),
            "{outcome:?}"
        );
        Every::view(&value).expect("it is still one");
    }
    assert_eq!(
        T::FIELD_TYPE.load(&value[field.offset() as usize..]),
        T::FIELD_TYPE.range().1
    );
}

#[test]
fn every_type_of_number_reaches_its_borders_and_not_beyond() {
    borders(Every::a(), u8::MIN, u8::MAX, 1);
    borders(Every::b(), i8::MIN, i8::MAX, 1);
    borders(Every::c(), u16::MIN, u16::MAX, 1);
    borders(Every::d(), u64::MIN, u64::MAX, 1);
    borders(Every::e(), i16::MIN, i16::MAX, 1);
    borders(Every::f(), i32::MIN, i32::MAX, 1);
    borders(Every::g(), i64::MIN, i64::MAX, 1);
    borders(Every::h(), u16::MIN, u16::MAX, 1);
    borders(Every::i(), u32::MIN, u32::MAX, 1);
    borders(Every::j(), u64::MIN, u64::MAX, 1);
    borders(Every::k(), i16::MIN, i16::MAX, 1);
    borders(Every::l(), i32::MIN, i32::MAX, 1);
    borders(Every::m(), i64::MIN, i64::MAX, 1);
    borders(Every::s().at(0), u32::MIN, u32::MAX, 1);
}

#[test]
fn what_an_effect_wrote_is_what_the_view_reads() {
    let mut value = Every::build().finish().bytes().to_vec();
    for instruction in [
        Every::l().set(-2),
        Every::g().decrease(3),
        Every::n().set(true),
        Every::t().at(0).then(Buyer::bought()).increase(4),
    ] {
        assert!(matches!(
            instruction.run(&mut value),
            Outcome::Changed { .. }
        ));
    }
    let read = Every::view(&value).unwrap();
    assert_eq!((read.l.get(), read.g.get(), read.n), (-2, -3, true));
    assert_eq!(read.t[0].bought.get(), 4);
    assert_eq!(<bool as Comparable>::bits(true), 1);
}
