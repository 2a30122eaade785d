//! What users may do: each item by the table of RIGHTS.md, items that waited, runs of items.

mod items;
pub mod resp;
mod secrecy;

use std::sync::Arc;

use penstock_net::apply::Apply;
use penstock_net::frame::{Header, Opcode, write_frame};
use penstock_net::level::AckLevel;
use penstock_net::program::{Programs, Run, SCHEMA_ASKED, ServedSchema};
use penstock_net::receive::{Received, Receiver};
use penstock_net::reply::text_of;
use penstock_net::request::{Ask, BatchRequest, Condition, Expiry, Token, Verb};
use penstock_net::rights::{Grants, Right, Rights};
use penstock_net::scan::ScanRequest;
use penstock_net::status::Status;
use penstock_storage::budget::Budget;
use penstock_storage::log::SyncMethod;

use crate::image::Image;
use crate::server::{Reply, Server};

use items::{Item, KEY, OTHER, items, take};

fn open(budget: Budget) -> Server {
    let sync = SyncMethod::DurableWrite;
    let server = Server::open_within(budget, 1, sync, Image::default(), 1, None);
    let mut server = server.expect("it opens");
    server.serve(ServedSchema {
        programs: Programs::new(vec![take()]),
        layouts: Vec::new(),
        text: r#"{"layouts":{},"programs":{"take":{}}}"#.into(),
    });
    server
}

/// Rights, each on all keys that begin so; *run* is for the program of the tests.
fn rights_of(all: &[(Right, &[u8])]) -> Arc<Rights> {
    let mut grants = Grants::new();
    for (right, prefix) in all {
        match right {
            Right::Run => grants.grant_run("take", prefix),
            right => grants.grant(*right, prefix),
        }
        .expect("within the limits");
    }
    Arc::new(Rights::new("till", &grants))
}

fn obey(server: &mut Server, all: &[(Right, &[u8])]) {
    let session = server.session;
    server
        .shard
        .front_mut()
        .set_rights(session, Some(rights_of(all)));
}

/// The answer to a frame that is no batch.
fn ask_info(server: &mut Server, body: &[u8]) -> (Status, String) {
    let header = Header::request(Opcode::Info, 1 << 40, AckLevel::None, 0);
    write_frame(&mut server.inbox, header, body);
    server.raw = Some(Vec::new());
    server.hand_over();
    server.turn();
    let bytes = server.raw.take().expect("kept");
    let mut receiver = Receiver::new(u32::MAX);
    match receiver.next(&bytes) {
        Received::Frame { header, body, .. } => {
            let status = Status::from_code(header.level_or_status).expect("known");
            (status, text_of(body).unwrap_or_default().to_string())
        }
        // The driver is asked for the text.
        _ => (Status::Ok, String::new()),
    }
}

/// The rows of the table: item, keys, rights.
fn table() -> Vec<[String; 3]> {
    let document = include_str!("../../../net/RIGHTS.md");
    let begin = document
        .find("| item | its keys | rights |")
        .expect("the table");
    let rows = document[begin..].lines().skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let mut cells = row
            .trim_matches('|')
            .split('|')
            .map(|cell| cell.trim().to_string());
        std::array::from_fn(|_| cells.next().expect("three cells"))
    })
    .collect()
}

/// Whether the rights of a row are there.
fn is_enough(needed: &str, has: &[Right]) -> bool {
    match needed {
        "none" => true,
        "any" => !has.is_empty(),
        all => all.split(", ").all(|name| {
            has.contains(&Right::named(name).unwrap_or_else(|| panic!("{name} is no right")))
        }),
    }
}

#[test]
fn every_item_needs_the_rights_that_the_table_names_and_no_others() {
    let rows = table();
    let mut server = open(Budget::of_cache(1 << 20));
    // From others some items are unknown ones.
    server.be_of_process();
    server.settle();
    let (mut id, mut met) = (0, Vec::new());
    let (mut denied, mut allowed) = (0, 0);
    for [item, keys, needed] in &rows {
        let row = format!("{item}, {keys}");
        // What the other keys of an item need is there.
        let prefix: &[u8] = match keys.as_str() {
            "all keys" => b"",
            _ => b"k:",
        };
        for set in 0..16u8 {
            let has = Right::ALL.into_iter().enumerate();
            let has: Vec<Right> = has
                .filter(|(bit, _)| set >> bit & 1 != 0)
                .map(|it| it.1)
                .collect();
            let mut all: Vec<(Right, &[u8])> = has.iter().map(|right| (*right, prefix)).collect();
            if needed != "any" {
                all.extend([Right::Read, Right::Write, Right::Run].map(|it| (it, &b"o:"[..])));
            }
            obey(&mut server, &all);
            let expected = !is_enough(needed, &has);
            let about = format!("{row} with {has:?}");
            if let Some(frame) = item.strip_prefix("frame") {
                let body = match frame {
                    " INFO" => &[][..],
                    " INFO of the schema" => &SCHEMA_ASKED,
                    // HELLO and PING ask nobody.
                    _ => continue,
                };
                let (status, text) = ask_info(&mut server, body);
                assert_eq!(status == Status::Denied, expected, "{about}: {text}");
                continue;
            }
            let all: Vec<Item> = items().into_iter().filter(|it| it.row == row).collect();
            assert!(!all.is_empty(), "no item is {row}");
            for item in all {
                id += 1;
                let reply = server.answer(id, |batch, out| item.put(batch, out));
                assert_eq!(
                    reply.status == Status::Denied,
                    expected,
                    "{about}: {reply:?}"
                );
                if expected {
                    check_denied(&reply, &has, needed);
                    denied += 1;
                } else {
                    allowed += 1;
                }
                met.push(item.verb);
            }
        }
    }
    assert!(denied > 150 && allowed > 150, "{denied} {allowed}");
    for verb in Verb::ALL {
        assert!(met.contains(&verb), "{verb:?} stands in no row");
    }
    let rows: Vec<String> = rows
        .iter()
        .map(|[item, keys, _]| format!("{item}, {keys}"))
        .collect();
    for item in items() {
        assert!(
            rows.contains(&item.row.to_string()),
            "no row is {}",
            item.row
        );
    }
}

/// What is told: who, the first right that is missing, and the key as it was sent.
fn check_denied(reply: &Reply, has: &[Right], needed: &str) {
    let text = String::from_utf8(reply.value.clone()).expect("text");
    let missing = needed
        .split(", ")
        .find(|name| !has.contains(&Right::named(name).unwrap()));
    let right = missing.expect("it is denied");
    assert!(
        text.starts_with(&format!("user till has no right to {right} ")),
        "{text}"
    );
    assert!(
        text.contains("k:") || text.contains("that begin with \"\""),
        "{text}"
    );
    assert_eq!(reply.version, Default::default());
}

#[test]
fn without_rights_everything_is_allowed() {
    let mut server = open(Budget::of_cache(1 << 20));
    for (id, item) in items().into_iter().enumerate() {
        let reply = server.answer(id, |batch, out| item.put(batch, out));
        assert_ne!(reply.status, Status::Denied, "{}", item.row);
    }
    assert_eq!(ask_info(&mut server, &SCHEMA_ASKED).0, Status::Ok);
}

#[test]
fn a_program_that_the_user_may_not_run_is_denied_whether_the_node_knows_it_or_not() {
    let mut server = open(Budget::of_cache(1 << 20));
    let mut other = Grants::new();
    other.grant_run("give", b"k:").expect("granted");
    let session = server.session;
    let rights = Arc::new(Rights::new("till", &other));
    server.shard.front_mut().set_rights(session, Some(rights));
    let run = items()
        .into_iter()
        .find(|item| item.row.starts_with("RUN"))
        .expect("a run");
    let reply = server.answer(1, |batch, out| run.put(batch, out));
    let text = String::from_utf8(reply.value).expect("text");
    assert_eq!(text, "user till has no right to run take at \"k:{1}a\"");
    // The node forgets its programs: with a right to run any it is unknown, without it is denied.
    server.serve(ServedSchema::default());
    let reply = server.answer(2, |batch, out| run.put(batch, out));
    assert_eq!(reply.status, Status::UnknownProgram);
    obey(
        &mut server,
        &[(Right::Read, b""), (Right::Write, b""), (Right::Admin, b"")],
    );
    let reply = server.answer(3, |batch, out| run.put(batch, out));
    assert_eq!(reply.status, Status::Denied);
}

#[test]
fn a_key_of_many_without_the_right_denies_the_whole_item_and_names_that_key() {
    let mut server = open(Budget::of_cache(1 << 20));
    server.set(1, KEY, b"00000000");
    server.set(2, OTHER, b"00000000");
    server.settle();
    obey(&mut server, &[(Right::Read, b""), (Right::Write, b"k:")]);
    for (id, item) in items()
        .into_iter()
        .enumerate()
        .filter(|(_, it)| it.row.contains("effect"))
    {
        // The other key is the one that is changed.
        let item = item.with_keys_exchanged();
        let reply = server.answer(10 + id, |batch, out| item.put(batch, out));
        let text = String::from_utf8(reply.value).expect("text");
        assert_eq!(
            text, "user till has no right to write at \"o:{1}b\"",
            "{}",
            item.row
        );
    }
}

#[test]
fn items_behind_one_that_only_read_are_not_taken_into_its_run() {
    let mut server = open(Budget::of_cache(1 << 20));
    server.set(1, KEY, &5u64.to_le_bytes());
    server.settle();
    obey(&mut server, &[(Right::Read, b"")]);
    let mut batch = BatchRequest::begin(&mut server.inbox, 2, AckLevel::Disk, 0, 4);
    for item in [
        items::only_reads(),
        items::takes(),
        items::only_reads(),
        items::takes(),
    ] {
        batch.update_if(&mut server.inbox, KEY, None, &[item], None);
    }
    batch.finish(&mut server.inbox);
    server.raw = Some(Vec::new());
    server.hand_over();
    server.settle();
    let bytes = server.raw.take().expect("kept");
    let mut statuses = Vec::new();
    crate::server::for_each_reply(&bytes, |_, item| statuses.push(item.head.status));
    let expected = [Status::Ok, Status::Denied, Status::Ok, Status::Denied];
    assert_eq!(statuses, expected);
    let session = server.session;
    server.shard.front_mut().set_rights(session, None);
    let reply = server.answer(3, |batch, out| batch.get(out, KEY));
    assert_eq!(reply.value, 5u64.to_le_bytes(), "nothing was changed");
}

/// Of two counters of `{1}` the first one is full, so the program is denied at its first
/// instruction, before the second key is used.
#[test]
fn items_behind_a_denied_one_are_judged_by_their_own_keys() {
    let mut server = open(Budget::of_cache(1 << 20));
    server.set(1, b"{1}full", &u64::MAX.to_le_bytes());
    server.settle();
    obey(
        &mut server,
        &[
            (Right::Read, b"{1}"),
            (Right::Write, b"{1}full"),
            (Right::Write, b"{1}mine"),
            (Right::Run, b"{1}full"),
            (Right::Run, b"{1}mine"),
        ],
    );
    let names = ["{1}mine0", "{1}mine1", "{1}your1", "{1}mine2", "{1}mine3"];
    let expected = names.map(|name| match name.contains("mine") {
        true => Status::GuardFailed,
        false => Status::Denied,
    });
    for is_run in [false, true] {
        let in_runs = server.counters().in_runs;
        let statuses = ask_denied(&mut server, names.map(|name| (name, is_run)));
        assert_eq!(statuses, expected, "RUN: {is_run}");
        assert_eq!(server.counters().in_runs, in_runs + 2);
    }
}

/// The statuses of items that would add to the counter `{1}full` and to a key each. An item is an
/// APPLY, or the RUN that becomes the same APPLY (`true`).
fn ask_denied<const ITEMS: usize>(
    server: &mut Server,
    items: [(&str, bool); ITEMS],
) -> Vec<Status> {
    let mut batch = BatchRequest::begin(&mut server.inbox, 2, AckLevel::Disk, 0, ITEMS);
    for (name, is_run) in items {
        let run = Run::new(take().id()).key(b"{1}full").key(name.as_bytes());
        let mut apply = Apply::new();
        let (full, other) = (apply.key(b"{1}full"), apply.key(name.as_bytes()));
        apply
            .then(full.u64(0).increase(1u64))
            .then(other.u64(0).increase(1u64));
        match is_run {
            true => Ask::Run(&run.argument(1u8)).write(&mut batch, &mut server.inbox),
            false => batch.apply(&mut server.inbox, &apply),
        }
    }
    batch.finish(&mut server.inbox);
    server.raw = Some(Vec::new());
    server.hand_over();
    server.settle();
    let bytes = server.raw.take().expect("kept");
    let mut statuses = Vec::new();
    crate::server::for_each_reply(&bytes, |_, item| statuses.push(item.head.status));
    statuses
}

/// An APPLY and the APPLY that a RUN becomes may have the same bytes. The rights for them differ.
#[test]
fn a_run_behind_denied_applies_is_judged_as_a_run_and_an_apply_behind_runs_as_an_apply() {
    let mut server = open(Budget::of_cache(1 << 20));
    server.set(1, b"{1}full", &u64::MAX.to_le_bytes());
    server.settle();
    let mut ask = |rights: &[(Right, &[u8])], runs: [bool; 4]| {
        obey(&mut server, rights);
        let mut names = ["{1}mine0", "{1}mine1", "{1}mine2", "{1}mine3"].into_iter();
        let items = runs.map(|is_run| (names.next().expect("four"), is_run));
        ask_denied(&mut server, items)
    };
    let (no, denied) = (Status::GuardFailed, Status::Denied);
    let writer: &[(Right, &[u8])] = &[(Right::Read, b"{1}"), (Right::Write, b"{1}")];
    assert_eq!(
        ask(writer, [false, false, true, false]),
        [no, no, denied, no]
    );
    let runner: &[(Right, &[u8])] = &[(Right::Run, b"{1}")];
    assert_eq!(ask(runner, [true, true, false, true]), [no, no, denied, no]);
}

/// A server whose keys are on the disk alone.
fn cold() -> Server {
    let mut server = open(Budget::of_cache(0));
    for (id, key) in [(0, KEY), (10, OTHER)] {
        server.set(id, key, &[0; 8]);
        server.set(id + 1, b"between", &[0; 2_000]);
        server.set(id + 2, b"between", &[1; 2_000]);
        server.settle();
    }
    assert_eq!(server.usage().cells, 0, "all are cold");
    server
}

#[test]
fn an_item_that_waited_runs_by_the_rights_of_then() {
    let all: &[(Right, &[u8])] = &[(Right::Read, b""), (Right::Write, b""), (Right::Run, b"")];
    for item in items() {
        if !matches!(
            item.verb,
            Verb::Get | Verb::Del | Verb::UpdateIf | Verb::Apply | Verb::Scan
        ) {
            continue;
        }
        for is_revoked in [false, true] {
            let mut server = cold();
            obey(&mut server, all);
            let parked = server.counters().parked;
            server.send(20, |batch, out| item.put(batch, out));
            if item.verb != Verb::Scan {
                server.turn();
                assert_eq!(server.counters().parked, parked + 1, "{}", item.row);
            }
            if is_revoked {
                obey(&mut server, &[(Right::Admin, b"")]);
            }
            server.settle();
            let status = server.replies[&20].status;
            assert_eq!(
                status == Status::Denied,
                is_revoked,
                "{}: {status:?}",
                item.row
            );
        }
    }
}

#[test]
fn a_run_that_waited_is_judged_by_its_program_and_not_by_what_it_became() {
    let run = items()
        .into_iter()
        .find(|item| item.row.starts_with("RUN"))
        .expect("a run");
    for (rights, expected) in [
        // Its second key is missing.
        (&[(Right::Run, &b""[..])][..], Status::NotFound),
        (
            &[(Right::Read, &b""[..]), (Right::Write, b"")],
            Status::Denied,
        ),
    ] {
        let mut server = cold();
        obey(&mut server, &[(Right::Run, b"")]);
        let parked = server.counters().parked;
        server.send(20, |batch, out| run.put(batch, out));
        server.turn();
        assert_eq!(server.counters().parked, parked + 1);
        obey(&mut server, rights);
        server.settle();
        assert_eq!(server.replies[&20].status, expected);
    }
}

#[test]
fn a_retry_of_a_user_who_lost_the_right_is_denied_and_not_replayed() {
    let mut server = open(Budget::of_cache(1 << 20));
    let token = Token::new(1, [7; 10]);
    let set = |batch: &mut BatchRequest, out: &mut Vec<u8>| {
        batch.token(token);
        batch.set(out, KEY, b"once", Condition::Always);
    };
    obey(&mut server, &[(Right::Write, b"k:")]);
    assert_eq!(server.answer(1, set).status, Status::Ok);
    let replayed = server.answer(2, set);
    assert!(replayed.is_replayed && replayed.status == Status::Ok);
    obey(&mut server, &[(Right::Read, b"k:"), (Right::Write, b"o:")]);
    let denied = server.answer(3, set);
    assert_eq!((denied.status, denied.is_replayed), (Status::Denied, false));
}

#[test]
fn a_write_that_is_denied_waits_for_no_room() {
    let mut server = open(Budget::of_cache(1 << 20));
    obey(
        &mut server,
        &[(Right::Read, b"k:"), (Right::Write, b"full:")],
    );
    // No segment comes any more: what may write waits or is refused, and what may not is answered.
    server.is_full = true;
    for id in 0..60 {
        server.set(id, b"full:{1}", &[7; 2_000]);
    }
    server.set(100, KEY, b"denied");
    server.settle();
    assert_eq!(server.replies[&100].status, Status::Denied);
    let refused = (0..60).filter(|id| server.replies[id].status == Status::Full);
    assert!(refused.count() > 0);
}

#[test]
fn what_may_not_be_read_is_answered_beside_a_reader_that_takes_nothing() {
    let mut server = open(Budget::of_cache(1 << 20));
    server.set(0, KEY, &[7; 2_500]);
    server.set(1, b"o:long", &[7; 2_500]);
    server.settle();
    obey(&mut server, &[(Right::Read, b"o:")]);
    server.withheld = Some(Vec::new());
    for id in 2..20 {
        server.get(id, b"o:long");
    }
    for _ in 0..50 {
        server.turn();
    }
    server.get(20, KEY);
    server.take_withheld();
    server.withheld = None;
    server.settle();
    assert_eq!(server.replies[&20].status, Status::Denied);
}

#[test]
fn an_expiry_is_an_effect_and_a_scan_needs_all_keys_of_its_prefix() {
    let mut server = open(Budget::of_cache(1 << 20));
    server.set(1, KEY, b"there");
    server.settle();
    obey(&mut server, &[(Right::Read, b"k:")]);
    let reply = server.answer(2, |batch, out| {
        batch.update_if_with(out, KEY, None, &[], None, Expiry::In(1));
    });
    assert_eq!(reply.status, Status::Denied);
    for (id, (prefix, status)) in [
        (&b"k:"[..], Status::Ok),
        (b"k:{1}", Status::Ok),
        (b"k", Status::Denied),
        (b"", Status::Denied),
        (b"l:", Status::Denied),
    ]
    .into_iter()
    .enumerate()
    {
        let scan = ScanRequest::begin(prefix);
        let reply = server.answer(10 + id, |batch, out| batch.scan(out, &scan));
        assert_eq!(reply.status, status, "{prefix:?}");
    }
}
