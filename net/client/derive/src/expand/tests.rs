use super::*;

/// The sentences that refuse a struct.
fn sentences(text: &str) -> Vec<String> {
    let input = syn::parse_str(text).expect("it is Rust");
    match expand(&input) {
        Ok(_) => Vec::new(),
        Err(error) => error.into_iter().map(|it| it.to_string()).collect(),
    }
}

#[test]
fn numbers_of_one_machine_are_refused_and_the_sentence_names_the_type_to_write() {
    for (field, part) in [
        ("u16", "use zerocopy::little_endian::U16"),
        ("u32", "use zerocopy::little_endian::U32"),
        ("u64", "use zerocopy::little_endian::U64"),
        ("i16", "use zerocopy::little_endian::I16"),
        ("i32", "use zerocopy::little_endian::I32"),
        ("i64", "use zerocopy::little_endian::I64"),
        ("f32", "use zerocopy::little_endian::F32"),
        ("core::primitive::f64", "use zerocopy::little_endian::F64"),
        ("[[u32; 2]; 3]", "use zerocopy::little_endian::U32"),
        ("u128", "use two zerocopy::little_endian::U64"),
        ("usize", "use zerocopy::little_endian::U64"),
        ("isize", "use zerocopy::little_endian::I64"),
        ("char", "use zerocopy::little_endian::U32"),
        ("String", "use Text"),
        ("&'static str", "use Text"),
        ("Vec<u8>", "use an array"),
        ("Option<U32>", "use a bool beside the field"),
        ("(u8, u8)", "use a struct with #[derive(Layout)]"),
    ] {
        let found = sentences(&format!("#[repr(C)] struct P {{ a: u8, b: {field} }}"));
        assert_eq!(found.len(), 1, "{field}: {found:?}");
        assert!(found[0].contains(part), "{field}: {}", found[0]);
    }
}

#[test]
fn alignment_and_padding_are_refused_with_what_to_write() {
    for align in ["16", "8", "2"] {
        let found = sentences(&format!("#[repr(C, align({align}))] struct P {{ a: U32 }}"));
        assert_eq!(found.len(), 1, "{found:?}");
        let part = format!("alignment of {align} would put padding into it: write #[repr(C)]");
        assert!(found[0].contains(&part), "{}", found[0]);
    }
    assert!(sentences("#[repr(C, packed)] struct P { a: U32 }")[0].contains("write #[repr(C)]"));
    assert!(sentences("struct P { a: U32 }")[0].contains("write #[repr(C)] above"));
    assert!(sentences("#[repr(transparent)] struct P { a: U32 }")[0].contains("#[repr(C)]"));
}

#[test]
fn what_is_no_struct_with_named_fields_is_refused() {
    for (text, part) in [
        ("#[repr(C)] enum P { A }", "in a u8"),
        ("#[repr(C)] union P { a: u8 }", "a layout is a struct"),
        ("#[repr(C)] struct P(U32);", "have names"),
        ("#[repr(C)] struct P {}", "at least one field"),
        ("#[repr(C)] struct P;", "at least one field"),
        ("#[repr(C)] struct P<T> { a: T }", "no parameters"),
        (
            "#[repr(C)] #[layout(hash = 1)] struct P { a: U32 }",
            "crate = path",
        ),
    ] {
        let found = sentences(text);
        assert!(
            found.iter().any(|it| it.contains(part)),
            "{text}: {found:?}"
        );
    }
}

#[test]
fn all_that_is_wrong_is_reported_at_once() {
    let found = sentences("#[repr(align(4))] struct P<T> { a: u32, b: String, c: T }");
    assert_eq!(found.len(), 4, "{found:?}");
}

#[test]
fn allowed_fields_are_not_refused() {
    let text = "#[repr(C)] struct P { a: u8, b: i8, c: bool, d: U32, e: be::I64, f: F32, \
                g: [u8; 16], h: [U32; 4], i: Text, j: Buyer }";
    assert_eq!(sentences(text), Vec::<String>::new());
}
