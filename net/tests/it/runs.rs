//! The example in RUN.md, byte by byte.

use penstock_net::apply::Apply;
use penstock_net::program::{
    Argument, ArgumentKind, Blank, Program, ProgramParts, Programs, Run, RunRequest,
};
use penstock_net::request::Ask;

use crate::hex;

/// The program of the example.
fn hold() -> Program {
    let mut apply = Apply::new();
    let (stock, hold) = (apply.key(b"{a}0"), apply.key(b"{a}1"));
    apply
        .then(stock.u32(0).decrease(0u64))
        .then(hold.u32(4).set(0u64));
    let operand = |instruction| Blank::Operand {
        instruction,
        argument: 0,
    };
    Program::new(ProgramParts {
        name: "hold".into(),
        keys: vec!["stock".into(), "hold".into()],
        arguments: vec![Argument {
            name: "quantity".into(),
            kind: ArgumentKind::Number { min: 1, max: 10 },
        }],
        instructions: apply.instructions().to_vec(),
        data: Vec::new(),
        blanks: vec![operand(0), operand(1)],
    })
    .expect("sound")
}

/// Bytes as the document writes them: sixteen in a line.
fn lines(bytes: &[u8]) -> String {
    let line = |bytes: &[u8]| {
        let words: Vec<String> = bytes.chunks(8).map(hex).collect();
        format!("  {}\n", words.join(" "))
    };
    bytes.chunks(16).map(line).collect()
}

#[test]
fn the_run_in_the_document_is_what_the_codec_writes() {
    let program = hold();
    let run = Run::new(program.id())
        .key(b"stock:{7}")
        .key(b"hold:{7}:1")
        .argument(3u8);
    let item = Ask::Run(&run).encode();
    let request = RunRequest::read(&item).expect("well formed");
    let mut apply = Vec::new();
    let programs = Programs::new(vec![program]);
    programs.expand(&request, &mut apply).expect("well formed");
    let example = format!(
        "id\n  {}\nRUN, of 3\n{}APPLY that it becomes\n{}",
        request.program(),
        lines(&item),
        lines(&apply)
    );
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/RUN.md");
    let document = std::fs::read_to_string(path).expect("the document");
    assert!(document.contains(&example), "RUN.md lacks:\n{example}");
}
