//! Files that are right, and every way in which they are wrong.

use penstock_net::apply::ApplyRequest;
use penstock_net::program::{Run, RunRequest};
use penstock_net::request::Ask;

use super::*;

const SALE: &str = include_str!("../../../deploy/programs/sale.toml");
const RATE_LIMIT: &str = include_str!("../../../deploy/programs/rate-limit.toml");

fn files(texts: &[&str]) -> Vec<(String, String)> {
    let names = (b'a'..).map(|letter| format!("{}.toml", char::from(letter)));
    names.zip(texts.iter().map(|it| (*it).into())).collect()
}

fn schema(text: &str) -> Result<Schema, String> {
    Schema::of_files(&files(&[text])).map_err(|error| error.to_string())
}

fn shipped() -> Schema {
    Schema::of_files(&files(&[SALE, RATE_LIMIT])).expect("sound")
}

#[test]
fn what_is_shipped_is_sound_and_its_ids_stay() {
    let schema = shipped();
    let ids: Vec<(&str, String)> = schema
        .programs()
        .iter()
        .map(|it| (it.program.name(), it.program.id().to_string()))
        .collect();
    // Clients have them built in.
    let expected = [
        ("restock", "0x156c74f0cade90b5"),
        ("buy", "0xd6f994adcc52b7a7"),
        ("confirm", "0xb5dd4ad11b2a55f8"),
        ("cancel", "0xfc97379a6be7fa37"),
        ("rate-limit", "0xe1e45f19ff132044"),
    ];
    assert_eq!(ids, expected.map(|(name, id)| (name, id.to_string())));
    let names: Vec<&str> = schema.layouts().iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["Stock", "Hold", "Buyer", "Calls"]);
    assert_eq!(schema.layout("Hold").map(ValueLayout::bytes), Some(8));
}

#[test]
fn a_run_of_buy_is_the_apply_that_its_text_says() {
    let schema = shipped();
    let buy = schema.program("buy").expect("shipped");
    let run = Run::new(buy.program.id())
        .key(b"stock:{42}")
        .key(b"order:{42}:7")
        .key(b"buyer:{42}:ann")
        .argument(2u32)
        .argument(600_000u64);
    let (run, mut item) = (Ask::Run(&run).encode(), Vec::new());
    let request = RunRequest::read(&run).expect("well formed");
    schema
        .served()
        .programs
        .expand(&request, &mut item)
        .expect("fits");
    let request = ApplyRequest::read(&item, 1 << 20).expect("well formed");
    let keys = ["s=stock:{42}", "h=order:{42}:7", "b=buyer:{42}:ann"];
    let keys = keys.map(|key| penstock_net::expression::NamedKey::parse(key).expect("a key"));
    let by_hand = [
        "h absent else 3",
        "s.u32@0 >= 2 else 1",
        "b.u32@0 += 2",
        "b.u32@0 <= s.u32@12 else 2",
        "s.u32@0 -= 2",
        "s.u32@4 += 2",
        "h expires in 600000ms",
    ];
    let instructions: Vec<_> = request.instructions().collect();
    for text in by_hand {
        let step = penstock_net::expression::parse_step(text, &keys).expect(text);
        let penstock_net::expression::Step::Instruction(instruction) = step else {
            panic!("{text}")
        };
        assert!(instructions.contains(&instruction), "{text}");
    }
    let values: Vec<_> = request.values().collect();
    assert_eq!(values, [(2, &[0; 8][..]), (1, &[2, 0, 0, 0, 0, 0, 0, 0])]);
    let effects: Vec<_> = request.effects().collect();
    assert_eq!(effects.len(), 1);
    let stored = effects[0].item();
    let stored = ApplyRequest::read(&stored, 1 << 20).expect("stored");
    assert_eq!(stored.instructions().count(), 3);
    assert_eq!(buy.text(1), Some("stock.available >= quantity else 1"));
}

#[test]
fn what_a_server_sends_is_the_same_schema() {
    let schema = shipped();
    let again = Schema::of_json(&schema.json()).expect("as it was written");
    assert_eq!(again.json(), schema.json());
    for named in schema.programs() {
        let same = again.program(named.program.name()).expect("told");
        assert_eq!(same.program.id(), named.program.id());
    }
    for text in [
        "",
        "{}",
        "{\"layouts\":{}}",
        "{\"layouts\":{\"A\":{}},\"programs\":{}}",
    ] {
        assert!(Schema::of_json(text).is_err(), "{text}");
    }
}

/// A program with these instructions on `s` of layout S and `o` without one.
fn with(instruction: &str) -> String {
    format!(
        "[layout.S]\nfields = [\"n:u16@0\", \"f:f32@2\", \"b:bool@6\", \"t:text@7\", \
         \"x:u8[4]@15\", \"u:u64@19\"]\n[program.p]\nkeys = [\"s:S\", \"o\"]\n\
         arguments = [\"q:u32\", \"d:u16 1..9\", \"w:u8[4]\", \"z:u8[9]\"]\n\
         instructions = [\n  \"s.n += d\",\n  \"s.u += q\",\n  \"s put {{ x = w }}\",\n  \
         \"o put {{ z }}\",\n  \"{instruction}\",\n]\n"
    )
}

#[test]
fn instructions_take_fields_arguments_and_values() {
    for instruction in [
        "s.n >= d else 7",
        "s.b == true",
        "s.b = false",
        "s.u rate 10/s burst 20 take d",
        "s expires in d",
        "s expires at now+d",
        "before q",
        "s.u max= s.n",
        "o.u32@4 -= q",
        "o.decimal += 1",
        "s put { n = 7, b = true, u = q, x = w, }",
        "s start {}",
        "o put text:plain",
        "when s expires: s.n += d",
        "when s expires",
        "return s.n",
    ] {
        if let Err(refusal) = schema(&with(instruction)) {
            // 0 is no time, so q may be none.
            assert!(instruction == "before q", "{instruction}: {refusal}");
        }
    }
}

#[test]
fn each_wrong_instruction_is_refused_with_its_place_and_value() {
    for (instruction, part) in [
        (
            "s.nn += 1",
            "a.toml:11:6: \"s.nn += 1\": found \"nn += 1\", allowed is a field of S: n, f",
        ),
        (
            "q.n += 1",
            "a.toml:11:4: \"q.n += 1\": found \"q.n += 1\", allowed is before, since",
        ),
        (
            "s.f >= 1",
            "f32 and f64 are stored, not compared or changed",
        ),
        ("s.t == 1", "texts and bytes are put whole"),
        (
            "s.n >= 70000",
            "allowed is a number, 0..65535, now, an argument (q, d, w, z)",
        ),
        (
            "s.n >= q",
            "11:11: \"s.n >= q\": found \"q\", allowed is an argument within 0..65535; q",
        ),
        ("s.n == w", "an argument within 0..65535; w is u8[4]"),
        ("s.b == 2", "0..1"),
        ("s.b += 1", "==, != or =: the field is true or false"),
        (
            "s.u rate 10/s burst 5 take d",
            "an argument within 1..5; d is 1..9",
        ),
        (
            "s expires in q",
            "an argument within 1..281474976710655; q is 0..4294967295",
        ),
        ("s expires at now-d", "a whole number and ms, s, m, h or d"),
        ("s put { n = 70000 }", "0..65535"),
        ("s put { n = 1, n = 2 }", "a field that is not given yet"),
        (
            "s put { x = z }",
            "an argument of at most u8[4]; z is u8[9]",
        ),
        ("s put { f = 1 }", "a program puts numbers, bools and u8[N]"),
        ("s put { m = 1 }", "allowed is a field of S"),
        (
            "s put { n = 1 } else 3",
            "put, start and replace take no reason",
        ),
        ("s put { n = 1", ", and a field, or }"),
        ("o put { n = 1 }", "the key has no layout"),
        ("o put @file", "a program puts no file"),
        ("s.u32@0 += 1", "allowed is a field of S"),
        (
            "when s expires: s.n >= 1",
            "nothing else runs when a key expires",
        ),
        (
            "s absent\", \"s exists",
            "\"s absent\" contradicts another guard",
        ),
        ("s.n >= 1 else 0", "a reason, 1..255"),
        ("", "it ends where"),
    ] {
        let found = schema(&with(instruction)).expect_err(instruction);
        assert!(found.contains(part), "{instruction}:\n{found}");
        assert!(found.starts_with("a.toml:"), "{found}");
    }
}

/// A program of one key.
const SOUND: &str = "keys = [\"k\"]\ninstructions = [\"k exists\"]";

fn program(body: &str) -> String {
    format!("[program.p]\n{body}\n")
}

/// Each text is told so.
fn check_defects(cases: &[(String, &str)]) {
    for (text, part) in cases {
        let found = schema(text).expect_err(text);
        assert!(found.contains(part), "{text}\n{found}\nand not {part}");
    }
}

#[test]
fn each_wrong_layout_is_refused_with_its_place_and_value() {
    let layout = |fields: &str| format!("[layout.S]\nfields = [{fields}]\n");
    check_defects(&[
        (
            "x = 1".to_string(),
            "a.toml:1:1: \"x\": a file has tables [layout.NAME]",
        ),
        ("[layout".into(), ": it is not TOML: "),
        ("layout = 3".into(), "a.toml:1:10: layout is a table, not 3"),
        (
            "layout.S = 3".into(),
            "a.toml:1:12: layout.S is a table, not 3",
        ),
        (
            layout("\"n:u32@0\", \"m:u32@2\""),
            "a.toml:2:28: \"m:u32@2\": found \"@2\", allowed is @4",
        ),
        (
            layout("\"n:u33@0\""),
            "a.toml:2:14: \"n:u33@0\": found \"u33@0\", allowed is a type",
        ),
        (layout("\"n:u32\""), "\"n:u32\": it ends where @OFFSET"),
        (
            layout("\"n:u32@0;m:u8@4\""),
            "a.toml:2:19: \"n:u32@0;m:u8@4\": a field is NAME:TYPE",
        ),
        (
            layout("\"n:u32@0\", \"n:u32@4\""),
            "a name that no other field has",
        ),
        (layout(""), "layout S has no fields"),
        (layout("7"), "a.toml:2:11: fields has texts, not 7"),
        (
            "[layout.S]\nfields = 7".into(),
            "fields is a list of texts, not 7",
        ),
        (
            "[layout.S]\nbytes = 4".into(),
            "a.toml:1:9: layout S has no fields",
        ),
        (
            "[layout.S]\nfields = [\"n:u32@0\"]\nbytes = 3".into(),
            "4 to 16777216 bytes",
        ),
        (
            "[layout.S]\nfields = [\"n:u32@0\"]\nbytes = \"4\"".into(),
            "a whole number, not \"4\"",
        ),
        (
            "[layout.S]\nsize = 4".into(),
            "a.toml:2:1: \"size\": a layout has fields and bytes",
        ),
        (
            "[layout.now]\nfields = [\"n:u32@0\"]".into(),
            "a layout has a name of letters",
        ),
        (
            "[layout.S]\n[layout.S]".into(),
            "it is not TOML: duplicate key",
        ),
    ]);
}

#[test]
fn each_wrong_program_is_refused_with_its_place_and_value() {
    let sound = SOUND;
    check_defects(&[
        (program("keys = [\"k\"]"), "program p has no instructions"),
        (
            program("instructions = [\"k exists\"]"),
            "program p has no keys",
        ),
        (
            program(&sound.replace("\"k\"", "")),
            "it has 0 keys; 1 to 8 are allowed",
        ),
        (
            program(&sound.replace("\"k\"", "\"k:T\"")),
            "a.toml:2:12: \"T\" is no layout",
        ),
        (
            program(&sound.replace("\"k\"", "\"k\", \"k\"")),
            "another key has the name k",
        ),
        (
            program(&sound.replace("\"k\"", "\"when\"")),
            "\"when\": a key has a name of letters",
        ),
        (
            program(&format!("{sound}\narguments = [\"k:u8\"]")),
            "another argument or key has",
        ),
        (
            program(&format!("{sound}\narguments = [\"a\"]")),
            "\"a\": TYPE is missing; an argument",
        ),
        (
            program(&format!("{sound}\narguments = [\"a:u33\"]")),
            "a.toml:4:17: \"a:u33\": \"u33\" is",
        ),
        (
            program(&format!("{sound}\narguments = [\"a:u8 1..300\"]")),
            "no range within 0..255",
        ),
        (
            program(&format!("{sound}\narguments = [\"a:u8 9..1\"]")),
            "the range 9..1 is empty",
        ),
        (
            program(&format!("{sound}\narguments = [\"a:u8 9\"]")),
            "is no range MIN..MAX",
        ),
        (
            program(&format!("{sound}\narguments = [\"a:u8[0]\"]")),
            "\"0\" is no number of bytes",
        ),
        (
            program(&format!("{sound}\narguments = [\"a:u8[4] 1..2\"]")),
            "bytes have no range",
        ),
        (
            program(&format!("{sound}\narguments = [\"a:u8\"]")),
            "4:15: argument a fills nothing",
        ),
        (
            program(&format!("{sound}\nreturns = [\"k.u9@0\"]")),
            "a.toml:4:15: \"k.u9@0\": found",
        ),
        (
            program(&format!("{sound}\nguards = []")),
            "a program has keys, arguments, instructions",
        ),
        (
            format!("[program.\"p p\"]\n{sound}"),
            "a program has a name of letters, digits, _ and -",
        ),
    ]);
    let many: Vec<String> = (0..65).map(|_| "\"k exists\"".to_string()).collect();
    let many = program(&format!(
        "keys = [\"k\"]\ninstructions = [{}]",
        many.join(", ")
    ));
    assert!(
        schema(&many)
            .expect_err("65")
            .contains("more than 64 instructions")
    );
}

#[test]
fn names_are_of_all_files_together_and_all_defects_are_reported() {
    let one = "[layout.S]\nfields = [\"n:u32@0\"]\n[program.p]\nkeys = [\"s:S\"]\n\
               instructions = [\"s.n += 1\"]\n";
    let two = "[program.q]\nkeys = [\"s:S\"]\ninstructions = [\"s.n -= 1\", \"s.m = 1\"]\n\
               [program.p]\nkeys = [\"k\"]\ninstructions = [\"k del\"]\n[layout.S]\n\
               fields = [\"n:u32@0\"]";
    let refusal = Schema::of_files(&files(&[one, two]))
        .expect_err("twice")
        .to_string();
    assert!(
        refusal.contains("b.toml:4:10: another program has the name p"),
        "{refusal}"
    );
    assert!(
        refusal.contains("b.toml:7:9: another layout has the name S"),
        "{refusal}"
    );
    assert!(
        refusal.contains("b.toml:3:32: \"s.m = 1\": found \"m = 1\""),
        "{refusal}"
    );
    assert_eq!(refusal.lines().count(), 3);
    // The defect of a layout is told once.
    let broken = one.replace("u32@0", "u33@0");
    let refusal = Schema::of_files(&files(&[&broken]))
        .expect_err("a type")
        .to_string();
    assert_eq!(refusal.lines().count(), 1, "{refusal}");
}

#[test]
fn a_layout_grows_at_its_end_and_shrinks_or_moves_never() {
    let of = |fields: &str| schema(&format!("[layout.S]\nfields = [{fields}]\n")).expect("sound");
    let before = of("\"n:u32@0\", \"m:u32@4\"");
    let grown = of("\"n:u32@0\", \"m:u32@4\", \"o:u8@8\"");
    assert_eq!(grown.check_growth(&before), Ok(()));
    assert_eq!(before.check_growth(&before), Ok(()));
    assert_eq!(Schema::default().check_growth(&before), Ok(()));
    for (now, part) in [
        (
            of("\"n:u32@0\""),
            "a.toml:1:9: layout S shrinks: field m is gone",
        ),
        (
            of("\"n:u32@0\", \"m:u32@5\""),
            "layout S moves: field m stands at 5 and stood at 4",
        ),
        (
            of("\"n:u32@0\", \"m:i32@4\""),
            "field m at 4 has another type than before",
        ),
    ] {
        assert_eq!(
            now.check_growth(&before).expect_err(part).to_string(),
            part.replace("layout S moves", "a.toml:1:9: layout S moves")
                .replace(
                    "field m at 4 has",
                    "a.toml:1:9: layout S changes: field m at 4 has"
                )
        );
    }
    let gap = of("\"n:u32@0\", \"m:u32@8\"");
    let filled = of("\"n:u32@0\", \"x:u32@4\", \"m:u32@8\"");
    let message = filled.check_growth(&gap).expect_err("a gap").to_string();
    assert!(
        message.contains("new field x at 4 stands within the 12 bytes"),
        "{message}"
    );
    let text = of("\"n:u32@0\", \"t:text@4\"");
    let longer = of("\"n:u32@0\", \"t:text@4\", \"o:u8@12\"");
    let message = longer.check_growth(&text).expect_err("texts").to_string();
    assert!(
        message.contains("texts stand behind its 12 bytes"),
        "{message}"
    );
}

#[test]
fn no_text_makes_the_reader_fail_worse_than_by_a_defect() {
    let pieces = [
        "[layout.S]\n",
        "[program.p]\n",
        "fields = [",
        "\"n:u32@0\"",
        "]\n",
        "keys = [",
        "\"s:S\"",
        "arguments = [",
        "\"q:u8\"",
        "\"q:u8[4]\"",
        "instructions = [",
        "\"s.n += q\"",
        "\"s put { n = q }\"",
        "\"s put { q }\"",
        ", ",
        "{",
        "}",
        "=",
        "\"",
        "é",
        "returns = [",
        "bytes = 9\n",
        "\"when s expires: s.n += q\"",
        "'s.n >= 1'",
    ];
    let mut seed = 5_u64;
    for _ in 0..20_000 {
        let mut text = String::new();
        for _ in 0..14 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let index = usize::try_from(seed >> 33).unwrap() % pieces.len();
            text.push_str(pieces[index]);
        }
        if let Err(refusal) = schema(&text) {
            assert!(refusal.starts_with("a.toml:"), "{text}\n{refusal}");
        }
    }
}
