//! The first frames of a connection.

use penstock_net::hello::{AUTH_NONE, ClientHello, ServerHello, SlotRange};
use penstock_net::placement::{NodeAddress, Placement, WriterRange};

use super::{Cases, changed};
use crate::decoded::LIMITS;

pub fn of_clients(cases: &mut Cases) {
    let mut bytes = Vec::new();
    ClientHello {
        protocol_min: 1,
        protocol_max: 3,
        features: 0,
        name: "shop-7",
    }
    .write(&mut bytes, 1);
    let good = bytes.split_off(32);
    cases.add("client-hello", "versions 1 to 3, a name", good.clone());
    cases.add(
        "client-hello",
        "no name",
        good[..24]
            .iter()
            .copied()
            .enumerate()
            .map(|(at, byte)| if at == 16 { 0 } else { byte })
            .collect(),
    );
    for (min, max) in [(0u16, 0u16), (2, 3), (3, 1)] {
        let range = [min.to_le_bytes(), max.to_le_bytes()].concat();
        cases.add(
            "client-hello",
            format!("versions {min} to {max}"),
            changed(good.clone(), 0, &range),
        );
    }
    for at in [4, 18, 20, 31] {
        cases.add(
            "client-hello",
            format!("reserved byte {at}"),
            changed(good.clone(), at, &[1]),
        );
    }
    for len in [5u16, 9, 65, u16::MAX] {
        cases.add(
            "client-hello",
            format!("a name length of {len} instead of 6"),
            changed(good.clone(), 16, &len.to_le_bytes()),
        );
    }
    cases.add(
        "client-hello",
        "a name that is not UTF-8",
        changed(good.clone(), 24, &[0xFF]),
    );
    cases.add("client-hello", "nothing", Vec::new());
    cases.add("client-hello", "half", good[..16].to_vec());
}

pub fn of_servers(cases: &mut Cases) {
    let hello = ServerHello {
        protocol: 1,
        shard: 1,
        shard_count: 2,
        auth_methods: AUTH_NONE,
        cluster_id: [1; 16],
        node_id: [2; 16],
        incarnation: 3,
        features: 0,
        nonce: [0; 32],
        limits: LIMITS,
        time_ms: 0,
        interval_ms: 100,
        slots: vec![
            SlotRange {
                first: 0,
                last: 8191,
                shard: 0,
                port: 7420,
            },
            SlotRange {
                first: 8192,
                last: 16_383,
                shard: 1,
                port: 7421,
            },
        ],
        placement: None,
    };
    let mut bytes = Vec::new();
    hello.write(&mut bytes, 1);
    let good = bytes.split_off(32);
    cases.add("server-hello", "two shards", good.clone());
    cases.add(
        "server-hello",
        "fields that a later version appended",
        [good.clone(), vec![9; 16]].concat(),
    );
    cases.add(
        "server-hello",
        "shorter than its fields",
        good[..119].to_vec(),
    );
    cases.add(
        "server-hello",
        "fewer ranges than it says",
        good[..128].to_vec(),
    );
    cases.add(
        "server-hello",
        "more ranges than there can be",
        changed(good, 112, &[255, 255]),
    );
    placements(cases, hello);
}

fn placements(cases: &mut Cases, hello: ServerHello) {
    let range = |first, last, node, generation| WriterRange {
        first,
        last,
        node,
        generation,
    };
    let address = |node, clients: &str| NodeAddress {
        node,
        clients: clients.into(),
    };
    let placed = ServerHello {
        placement: Some(Placement {
            version: 640,
            nodes: vec![address(1, "10.0.0.1:7411"), address(2, "two.example:7411")],
            writers: vec![range(0, 127, 1, 2), range(128, 255, 2, 3)],
        }),
        ..hello
    };
    let mut bytes = Vec::new();
    placed.write(&mut bytes, 1);
    let good = bytes.split_off(32);
    // Behind 120 bytes and two ranges of slots.
    let at = 136;
    cases.add("server-hello", "one of two nodes", good.clone());
    let changes: [(&str, usize, &[u8]); 7] = [
        ("an address that is empty", at + 9, &[0]),
        ("more nodes than there can be", at + 4, &[255, 255]),
        (
            "more ranges of partitions than there are",
            at + 6,
            &[255, 255],
        ),
        ("an address that goes on behind the end", at + 9, &[255]),
        ("an address that is not UTF-8", at + 16, &[0xFF]),
        ("a range that ends before it begins", at + 56, &[128]),
        ("a partition that is none", at + 59, &[1]),
    ];
    for (description, at, with) in changes {
        cases.add("server-hello", description, changed(good.clone(), at, with));
    }
    cases.add(
        "server-hello",
        "no placement, which its features tell",
        good[..at].to_vec(),
    );
    cases.add(
        "server-hello",
        "fields that a later version appended behind the placement",
        [good, vec![9; 16]].concat(),
    );
}
