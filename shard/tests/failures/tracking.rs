//! Who keeps values is told of every change of a key that a reader could see, before any answer of
//! the step leaves that made it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use penstock_net::apply::Apply;
use penstock_net::level::AckLevel;
use penstock_net::request::{BatchRequest, Condition, Expiry};
use penstock_net::status::Status;
use penstock_shard::tracking::{Tracker, writer_of};
use penstock_storage::log::SyncMethod;
use penstock_storage::store::{KeyChange, Writer};

use crate::image::Image;
use crate::key;
use crate::leases::plan;
use crate::level_all::linked;
use crate::server::{Reply, Server};

/// What was told.
#[derive(Debug, Default)]
struct Noticed {
    is_wanted: Cell<bool>,
    lines: RefCell<Vec<String>>,
    writers: RefCell<Vec<Option<Writer>>>,
    expiry_ms: Cell<Option<u64>>,
}

struct Spy(Rc<Noticed>);

impl Spy {
    fn note(&self, what: &str, key: &[u8]) {
        let line = format!("{what} {}", key.escape_ascii());
        self.0.lines.borrow_mut().push(line);
    }
}

impl Tracker for Spy {
    fn is_wanted(&self) -> bool {
        self.0.is_wanted.get()
    }

    fn changed(&self, key: &[u8], change: KeyChange, _: u64) {
        self.note("changed", key);
        self.0.writers.borrow_mut().push(change.writer);
    }

    fn comes(&self, key: &[u8], _: Option<Writer>) {
        self.note("comes", key);
    }

    fn made(&self, key: &[u8], _: KeyChange, _: u64) {
        self.note("made", key);
    }

    fn shown(&self, key: &[u8], expiry_ms: u64) {
        self.note("shown", key);
        self.0.expiry_ms.set(Some(expiry_ms));
    }

    fn read_by_script(&self, key: &[u8], _: Writer) {
        self.note("read", key);
    }

    fn all_changed(&self) {
        self.note("all", b"");
    }

    fn expire(&self, time_ms: u64) -> Option<u64> {
        let expiry_ms = self.0.expiry_ms.get()?;
        if expiry_ms > time_ms {
            return Some(expiry_ms);
        }
        self.note("expired", b"");
        self.0.expiry_ms.set(None);
        None
    }
}

impl Noticed {
    fn at(server: &mut Server) -> Rc<Noticed> {
        let noticed = Rc::new(Noticed::default());
        server
            .shard
            .serve_tracker(Box::new(Spy(Rc::clone(&noticed))));
        noticed
    }

    fn take(&self) -> Vec<String> {
        self.writers.take();
        self.lines.take()
    }
}

fn ask(server: &mut Server, item: impl FnOnce(&mut BatchRequest, &mut Vec<u8>)) -> Reply {
    server.answer(7, item)
}

#[test]
fn each_change_is_reported_in_its_own_step_and_none_while_nobody_wants_to_know() {
    let sync = SyncMethod::DurableWrite;
    let server = Server::open_at(1_800_000_000_000, sync, Image::default(), 1, None);
    let mut server = server.expect("it opens");
    let noticed = Noticed::at(&mut server);
    let set = |value: &'static [u8]| {
        move |batch: &mut BatchRequest, out: &mut Vec<u8>| {
            batch.set(out, b"k", value, Condition::Always);
        }
    };
    ask(&mut server, set(b"0"));
    assert!(noticed.take().is_empty());
    noticed.is_wanted.set(true);
    // The second one of these needs its cell and the open frame alone.
    for (id, value) in [(1, &b"1"[..]), (2, b"2")] {
        server.send(id, |batch, out| {
            batch.set(out, b"k", value, Condition::Always);
        });
        let writer = Some(writer_of(0, server.session));
        assert_eq!(*noticed.writers.borrow(), [writer]);
        assert_eq!(noticed.take(), ["changed k"], "before the turn ends");
        server.settle();
    }
    // A failed condition, and a read, change nothing.
    ask(&mut server, |batch, out| {
        batch.set(out, b"k", b"3", Condition::Absent);
    });
    ask(&mut server, |batch, out| batch.get(out, b"k"));
    assert!(noticed.take().is_empty());
    let expires = Expiry::In(5_000);
    ask(&mut server, |batch, out| {
        batch.set_with(out, b"k", b"4", Condition::Always, expires);
    });
    assert_eq!(noticed.take(), ["changed k"]);
    ask(&mut server, |batch, out| batch.get(out, b"k"));
    assert_eq!(noticed.take(), ["shown k"]);
    let due_us = server.shard.deadline_us(server.now);
    assert!(due_us.is_some_and(|due_us| due_us <= server.now.us + 5_001_000));
    server.sleep(5_100);
    server.settle();
    assert_eq!(noticed.take(), ["expired "], "nobody asked for it");
    // Effects of an expiry are of nobody who meets the key.
    let mut apply = Apply::new();
    let (hold, stock) = (apply.key(b"{s}hold"), apply.key(b"{s}stock"));
    apply
        .put(hold, b"1")
        .then(hold.expire_in(1_000))
        .on_expire(hold, |effects| {
            effects.put(stock, b"back");
        });
    assert_eq!(
        ask(&mut server, |b, o| b.apply(o, &apply)).status,
        Status::Ok
    );
    noticed.take();
    server.sleep(1_100);
    server.send(3, |batch, out| batch.get(out, b"{s}hold"));
    assert_eq!(*noticed.writers.borrow(), [None, None]);
    let mut lines = noticed.take();
    lines.sort();
    assert_eq!(lines, ["changed {s}hold", "changed {s}stock"]);
    server.settle();
    ask(&mut server, |batch, out| {
        batch.del(out, b"{s}stock", Condition::Always);
    });
    assert_eq!(noticed.take(), ["changed {s}stock"]);
    server.be_of_process();
    ask(&mut server, |batch, out| {
        batch.set(out, b"k", b"5", Condition::Always);
    });
    noticed.take();
    ask(&mut server, |batch, out| batch.flush(out, b"k"));
    assert_eq!(noticed.take(), ["all "]);
    noticed.is_wanted.set(false);
    ask(&mut server, set(b"9"));
    assert!(noticed.take().is_empty());
}

#[test]
fn a_member_reports_what_it_applies_and_who_loses_a_partition_of_all() {
    let mut pair = linked();
    let noticed = [0, 1].map(|node: usize| Noticed::at(&mut pair.nodes[node].server));
    noticed
        .iter()
        .for_each(|noticed| noticed.is_wanted.set(true));
    pair.settle();
    noticed.iter().for_each(|noticed| drop(noticed.take()));
    pair.nodes[0].set_and_leave(AckLevel::Disk);
    pair.settle();
    let changed = format!("changed {}", key(0).escape_ascii());
    for noticed in &noticed {
        assert!(noticed.take().contains(&changed));
    }
    let sync = penstock_net::link::Membership::Sync;
    pair.nodes[0].replan(plan(2, 5, 2, &[(1, sync)]));
    assert_eq!(
        noticed[0].take(),
        ["all "],
        "another node writes from now on"
    );
}
