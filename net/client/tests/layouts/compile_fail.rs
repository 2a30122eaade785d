//! What does not compile, and the sentence that says what to write instead: the files in `refused`,
//! each with what the compiler prints.

#[test]
fn what_cannot_be_a_layout_does_not_compile_and_the_message_says_what_to_write() {
    trybuild::TestCases::new().compile_fail("tests/layouts/refused/*.rs");
}
