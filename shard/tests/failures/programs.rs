//! RUN on one shard: what waits is the APPLY that it became, whatever programs come meanwhile.

use penstock_net::apply::Apply;
use penstock_net::program::{
    Argument, ArgumentKind, Blank, Program, ProgramId, ProgramParts, Programs, Run, ServedSchema,
};
use penstock_net::request::Ask;
use penstock_net::status::Status;
use penstock_storage::budget::Budget;
use penstock_storage::log::SyncMethod;

use crate::image::Image;
use crate::server::Server;

/// Adds to two counters.
fn both() -> Program {
    let mut apply = Apply::new();
    let (a, b) = (apply.key(b"{a}0"), apply.key(b"{a}1"));
    apply
        .then(a.u64(0).increase(0u64))
        .then(b.u64(0).increase(0u64));
    let operand = |instruction| Blank::Operand {
        instruction,
        argument: 0,
    };
    Program::new(ProgramParts {
        name: "both".into(),
        keys: vec!["a".into(), "b".into()],
        arguments: vec![Argument {
            name: "by".into(),
            kind: ArgumentKind::Number { min: 1, max: 100 },
        }],
        instructions: apply.instructions().to_vec(),
        data: Vec::new(),
        blanks: vec![operand(0), operand(1)],
    })
    .expect("sound")
}

fn serve(server: &mut Server, programs: Vec<Program>) {
    server.serve(ServedSchema {
        programs: Programs::new(programs),
        layouts: Vec::new(),
        text: String::new(),
    });
}

fn run(id: ProgramId) -> Run {
    let run = Run::new(id).key(b"{1}a").key(b"{1}b");
    run.argument(7u8)
}

#[test]
fn a_run_on_cold_keys_goes_on_as_it_was_asked_though_its_program_is_gone_by_then() {
    let (budget, image) = (Budget::of_cache(0), Image::default());
    let sync = SyncMethod::DurableWrite;
    let mut server = Server::open_within(budget, 1, sync, image, 1, None).expect("it opens");
    serve(&mut server, vec![both()]);
    for (id, key) in [(0, b"{1}a"), (10, b"{1}b")] {
        server.set(id, key, &[0; 8]);
        server.set(id + 1, b"between", &[0; 2_000]);
        server.set(id + 2, b"between", &[1; 2_000]);
        server.settle();
    }
    assert_eq!(server.usage().cells, 0, "all are cold");
    let parked = server.counters().parked;
    let ask = run(both().id());
    server.send(20, |batch, out| Ask::Run(&ask).write(batch, out));
    server.turn();
    assert_eq!(server.counters().parked, parked + 1);
    serve(&mut server, Vec::new());
    server.settle();
    let reply = server.replies.remove(&20).expect("a reply");
    assert_eq!(reply.status, Status::Ok);
    assert_eq!(reply.value, [7u64, 7].map(u64::to_le_bytes).concat());

    server.send(21, |batch, out| Ask::Run(&ask).write(batch, out));
    server.settle();
    let reply = server.replies.remove(&21).expect("a reply");
    assert_eq!(reply.status, Status::UnknownProgram);
}
