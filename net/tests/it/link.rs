//! The wire between nodes against LINK.md: the worked link at its end, the vectors, cuts and flips.

mod cases;

use std::path::PathBuf;

use penstock_net::link::frame::{LINK_HEADER_BYTES, read_link_frame, write_link_frame};
use penstock_net::link::handshake::proof_input;
use penstock_net::link::message::{REFUSED_TEXT_BYTES_MAX, REWIND_KEYS_MAX};
use penstock_net::link::{
    Answer, Begin, Channel, Claim, Claims, Confirm, EpochEntry, Epochs, Heartbeat, Hello, Join,
    LinkFault, LinkHeader, LinkMessage, LinkReceived, Marks, Membership, Mode, NodeStart, Open,
    PartitionSet, Position, Proof, ProofRole, Publish, Records, RefusalCode, Refused, Rewind,
    State, UnderWay, Welcome,
};
use serde_json::{Value, json};

use crate::{Random, hex, unhex};

/// Under which the vectors are judged.
const FRAME_BYTES_MAX: u32 = 4096;
const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";
/// Generation 1, start 0, node 1.
const EPOCH: u32 = 1 << 18 | 1;

fn wrote(epoch: u32, first: u64) -> EpochEntry {
    EpochEntry {
        epoch,
        start_id: 0x5A5A_0001,
        first,
    }
}

fn hello() -> Hello {
    Hello {
        versions: (2, 2),
        log_format: 1,
        cluster_id: [0xC1; 16],
        node_id: [0xD1; 16],
        start: NodeStart {
            incarnation: 5,
            start_id: 0x0505_0505,
        },
        nonce: [0xA1; 32],
        node: 1,
        to_node: 2,
        shard: 0,
        shards: 2,
        to_shard: 0,
        record_bytes_max: 1_050_000,
        frame_bytes_max: 2_097_152,
    }
}

fn proof(role: ProofRole, hello: &Hello, welcome: &Welcome) -> Proof {
    proof_over(role, hello, welcome, &Channel::Plain)
}

fn proof_over(role: ProofRole, hello: &Hello, welcome: &Welcome, channel: &Channel) -> Proof {
    let key = blake3::derive_key("penstock cluster secret, links", SECRET);
    let input = proof_input(role, hello, welcome, channel);
    *blake3::keyed_hash(&key, input.as_ref()).as_bytes()
}

fn welcome() -> Welcome {
    let mut welcome = Welcome {
        version: 2,
        log_format: 1,
        cluster_id: [0xC1; 16],
        node_id: [0xD2; 16],
        start: NodeStart {
            incarnation: 9,
            start_id: 0x0909_0909,
        },
        nonce: [0xA2; 32],
        node: 2,
        shard: 0,
        shards: 1,
        record_bytes_max: 1_050_000,
        frame_bytes_max: 2_097_152,
        proof: [0; 32],
    };
    welcome.proof = proof(ProofRole::Destination, &hello(), &welcome);
    welcome
}

/// The part of the example in FORMAT.md, under another epoch.
fn part() -> Vec<u8> {
    let mut part = unhex(
        "38000000 00000000 01 00 10 00 bc0a 0800 08000000 00000000 0100000000000000
         0068e5cf8b01 0000 73746f636b3a3432 0700000000000000",
    );
    part[20..24].copy_from_slice(&EPOCH.to_le_bytes());
    let crc = crc32fast::hash(&part[8..]);
    part[4..8].copy_from_slice(&crc.to_le_bytes());
    part
}

fn at(sequence: u64) -> Position {
    Position {
        epoch: EPOCH,
        sequence,
    }
}

fn frame(number: u64, marks: (u64, u64), time: u64, message: &LinkMessage<'_>) -> Vec<u8> {
    let header = LinkHeader {
        number,
        marks: Marks {
            durable: marks.0,
            received: marks.1,
        },
        time,
    };
    let mut out = Vec::new();
    write_link_frame(&mut out, header, message);
    out
}

/// Of three partitions: one that the sender writes, two that it follows.
fn claims() -> [Claim; 3] {
    [(7, 1, 41), (8, 0, 1_000_000), (255, 0, u32::MAX)].map(|(partition, generation, sequence)| {
        Claim {
            partition,
            generation,
            sequence,
        }
    })
}

fn heartbeat(claims: Claims<'_>) -> Heartbeat<'_> {
    Heartbeat {
        number: 3,
        last_read: 2,
        plan: 17,
        claims,
    }
}

fn confirm() -> Confirm {
    Confirm {
        number: 3,
        plan: 17,
        granted: PartitionSet::from_iter([7]),
    }
}

/// The frames of the example of heartbeats, as [`example`].
fn heartbeats() -> Vec<(&'static str, Vec<u8>)> {
    let mut bytes = Vec::new();
    let beat = LinkMessage::Heartbeat(heartbeat(Claims::write(&mut bytes, claims())));
    vec![
        (
            "node 1, HEARTBEAT: it writes partition 7 and follows 8 and 255",
            frame(5, (0, 0), 0, &beat),
        ),
        (
            "node 2, CONFIRM: partition 7 is granted",
            frame(4, (0, 0), 0, &LinkMessage::Confirm(confirm())),
        ),
    ]
}

fn publish() -> Publish<'static> {
    Publish {
        channel: b"news",
        payload: b"sold out",
    }
}

/// The frame of the example of messages, as [`example`].
fn messages() -> Vec<(&'static str, Vec<u8>)> {
    let publish = LinkMessage::Publish(publish());
    let described = "node 1, PUBLISH: `sold out` to `news`";
    vec![(described, frame(3, (0, 0), 0, &publish))]
}

/// The frames of the example, with the words that stand before each in the document.
fn example() -> Vec<(&'static str, Vec<u8>)> {
    let (hello, welcome, part) = (hello(), welcome(), part());
    let source_proof = proof(ProofRole::Source, &hello, &welcome);
    let open = Open {
        partition: 42,
        membership: Membership::Sync,
        epoch: EPOCH,
    };
    let state = State {
        partition: 42,
        answer: Answer::Accepted,
        under_way: UnderWay::Nothing,
        promised: EPOCH,
        complete: Position::default(),
        epochs: Epochs::default(),
    };
    let mut entries = Vec::new();
    let begin = Begin {
        partition: 42,
        mode: Mode::Dense,
        epoch: EPOCH,
        from: Position::default(),
        epochs: Epochs::write(&mut entries, [wrote(EPOCH, 1)]),
    };
    let join = Join {
        partition: 42,
        at: Position::default(),
    };
    let records = Records {
        count: 1,
        bytes: &part,
    };
    // By the clock of the destination, which is nobody else's.
    let (source_ms, asked_us) = (1_700_000_000_000, 86_400_000_000);
    vec![
        (
            "source, HELLO",
            frame(1, (0, 0), 0, &LinkMessage::Hello(hello)),
        ),
        (
            "destination, WELCOME",
            frame(1, (0, 1), 0, &LinkMessage::Welcome(welcome)),
        ),
        (
            "source, PROOF",
            frame(2, (2, 0), 0, &LinkMessage::Proof(source_proof)),
        ),
        (
            "source, OPEN partition 42",
            frame(3, (3, 0), source_ms, &LinkMessage::Open(open)),
        ),
        (
            "destination, STATE: accepted, nothing is there",
            frame(2, (3, 3), 0, &LinkMessage::State(state)),
        ),
        (
            "source, BEGIN: dense, from the beginning",
            frame(4, (4, 0), source_ms, &LinkMessage::Begin(begin)),
        ),
        (
            "source, JOIN: nothing was to be caught up",
            frame(5, (5, 0), source_ms, &LinkMessage::Join(join)),
        ),
        (
            "source, RECORDS: one, not durable yet",
            frame(6, (5, 0), source_ms, &LinkMessage::Records(records)),
        ),
        (
            "destination, BEAT: received, and what was there by now?",
            frame(3, (5, 6), asked_us, &LinkMessage::Beat),
        ),
        (
            "source, BEAT: durable here, and by then there was nothing else",
            frame(7, (7, asked_us), source_ms, &LinkMessage::Beat),
        ),
        (
            "destination, BEAT: durable here too",
            frame(4, (7, 7), 0, &LinkMessage::Beat),
        ),
    ]
}

/// Frames as the document has them.
fn listing(frames: &[(&str, Vec<u8>)]) -> String {
    let mut listed = String::from("\n```\n");
    for (title, frame) in frames {
        listed += &format!("{title}\n");
        for line in frame.chunks(16) {
            let words: Vec<String> = line.chunks(8).map(hex).collect();
            listed += &format!("  {}\n", words.join(" "));
        }
    }
    listed + "```\n"
}

#[test]
fn the_link_in_the_document_is_what_the_codec_writes() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/LINK.md");
    let document = std::fs::read_to_string(path).expect("the document");
    let heading = "durable at each node:\n";
    let (before, stored) = document.split_once(heading).expect("the link's heading");
    let between = "\nTwo frames of a connection for heartbeats:\n";
    let of_messages = "\nThe first frame of a connection for messages of channels behind PROOF:\n";
    let built = listing(&example())
        + between
        + &listing(&heartbeats())
        + of_messages
        + &listing(&messages());
    if std::env::var_os("PENSTOCK_WRITE_VECTORS").is_some() {
        std::fs::write(path, format!("{before}{heading}{built}"))
            .expect("the document can be written");
        return;
    }
    assert_eq!(stored, built);
}

fn read(bytes: &[u8]) -> Result<LinkReceived<'_>, LinkFault> {
    let number = bytes.get(8..16).map_or(1, |number| {
        u64::from_le_bytes(number.try_into().expect("eight bytes"))
    });
    read_link_frame(bytes, number, FRAME_BYTES_MAX)
}

#[test]
fn both_proofs_in_the_document_are_made_of_both_nonces() {
    let (hello, welcome) = (hello(), welcome());
    let ours = proof(ProofRole::Destination, &hello, &welcome);
    assert_ne!(ours, proof(ProofRole::Source, &hello, &welcome));
    let mut other = hello;
    other.nonce[31] ^= 1;
    assert_ne!(ours, proof(ProofRole::Destination, &other, &welcome));
    let mut other = welcome;
    other.nonce[0] ^= 1;
    assert_ne!(ours, proof(ProofRole::Destination, &hello, &other));
    // What is proven does not depend on the proof.
    other = welcome;
    other.proof = [9; 32];
    assert_eq!(ours, proof(ProofRole::Destination, &hello, &other));
}

#[test]
fn a_proof_over_tls_is_of_its_connection_and_of_no_plain_one() {
    let (hello, welcome) = (hello(), welcome());
    let over = |binding| Channel::Tls {
        binding,
        certified: None,
    };
    let roles = [ProofRole::Destination, ProofRole::Source];
    let mut proofs = Vec::new();
    for channel in [Channel::Plain, over([0; 32]), over([0xB1; 32])] {
        proofs.extend(roles.map(|role| proof_over(role, &hello, &welcome, &channel)));
    }
    for at in 0..256 {
        let mut binding = [0xB1; 32];
        binding[at / 8] ^= 1 << (at % 8);
        proofs.push(proof_over(roles[0], &hello, &welcome, &over(binding)));
    }
    let count = proofs.len();
    proofs.sort_unstable();
    proofs.dedup();
    assert_eq!(proofs.len(), count);

    // As the document has it.
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/LINK.md");
    let document = std::fs::read_to_string(path).expect("the document");
    let stored = |role, channel: &Channel| {
        let proof = proof_over(role, &hello, &welcome, channel);
        document.contains(&hex(&proof))
    };
    let channel = over([0xB1; 32]);
    for role in roles {
        let shown_proof = hex(&proof_over(role, &hello, &welcome, &channel));
        assert!(stored(role, &channel), "LINK.md lacks {shown_proof}");
        let input = proof_input(role, &hello, &welcome, &channel);
        assert_eq!(input.as_ref().len(), 256);
        assert_eq!(input.as_ref()[224..], [0xB1; 32]);
    }
}

fn judged(bytes: &[u8]) -> Result<String, String> {
    match read(bytes) {
        Ok(LinkReceived::Frame(frame)) => Ok(format!("{:?} {:?}", frame.header, frame.message)),
        Ok(LinkReceived::Incomplete { frame_bytes }) => {
            Err(format!("{frame_bytes} bytes are needed"))
        }
        Err(fault) => Err(fault.to_string()),
    }
}

#[test]
fn every_link_vector_is_judged_as_its_file_says() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("vectors/link-frame.json");
    let built: Vec<Value> = cases::all()
        .iter()
        .zip(1..)
        .map(|((description, bytes), number)| {
            let (must, key, what) = match judged(bytes) {
                Ok(decoded) => ("accept", "decoded", decoded),
                Err(fault) => ("reject", "error", fault),
            };
            json!({
                "id": format!("link-frame-{number:03}"),
                "kind": "link-frame",
                "description": description,
                "hex": hex(bytes),
                "must": must,
                key: what,
            })
        })
        .collect();
    if std::env::var_os("PENSTOCK_WRITE_VECTORS").is_some() {
        let text = serde_json::to_string_pretty(&built).expect("values") + "\n";
        std::fs::write(&path, text).expect("the folder can be written");
    }
    let text = std::fs::read_to_string(&path).expect("the vectors");
    let stored: Vec<Value> = serde_json::from_str(&text).expect("a list of vectors");
    let accepted = stored
        .iter()
        .filter(|vector| vector["must"] == "accept")
        .count();
    assert_eq!(accepted, 24, "those whose description names no fault");
    assert_eq!(stored, built, "the file and the cases have drifted");
}

#[test]
fn each_accepted_frame_is_written_again_as_it_was() {
    for (description, bytes) in cases::all() {
        let Ok(LinkReceived::Frame(frame)) = read(&bytes) else {
            continue;
        };
        let mut again = Vec::new();
        write_link_frame(&mut again, frame.header, &frame.message);
        assert_eq!(hex(&again), hex(&bytes), "{description}");
        assert_eq!(frame.bytes, bytes.len());
    }
}

#[test]
fn a_frame_that_is_cut_is_incomplete_and_one_with_a_flipped_bit_is_refused() {
    for (description, bytes) in [example(), heartbeats(), messages()].concat() {
        for cut in 0..bytes.len() {
            let needed = if cut < LINK_HEADER_BYTES {
                LINK_HEADER_BYTES
            } else {
                bytes.len()
            };
            assert_eq!(
                read_link_frame(&bytes[..cut], 1, FRAME_BYTES_MAX).map_err(|_| ()),
                match (cut < LINK_HEADER_BYTES, bytes[8]) {
                    // The number is looked at as soon as there is a header.
                    (false, number) if number != 1 => Err(()),
                    _ => Ok(LinkReceived::Incomplete {
                        frame_bytes: needed
                    }),
                },
                "{description} cut at {cut}"
            );
        }
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(
                !matches!(read(&bytes), Ok(LinkReceived::Frame(_))),
                "{description} with bit {bit} flipped"
            );
        }
    }
}

#[test]
fn a_frame_out_of_its_place_is_refused() {
    let beat = frame(7, (0, 0), 0, &LinkMessage::Beat);
    assert!(matches!(
        read_link_frame(&beat, 7, 48),
        Ok(LinkReceived::Frame(_))
    ));
    for expected in [6, 8] {
        assert_eq!(
            read_link_frame(&beat, expected, 48),
            Err(LinkFault::Number { found: 7, expected })
        );
    }
}

#[test]
fn a_client_on_the_port_of_links_is_known_by_its_first_five_bytes() {
    assert_eq!(
        read_link_frame(&[0x28, 0, 0, 0, 0xE7], 1, 1024),
        Err(LinkFault::Magic(0xE7))
    );
    assert!(matches!(
        read_link_frame(&[0x28, 0, 0, 0], 1, 1024),
        Ok(LinkReceived::Incomplete { .. })
    ));
}

#[test]
fn long_texts_are_cut_and_the_largest_rewind_is_read_again() {
    let text = "ä".repeat(REFUSED_TEXT_BYTES_MAX);
    let long = frame(
        1,
        (0, 0),
        0,
        &LinkMessage::Refused(Refused {
            code: RefusalCode::Fault,
            text: &text,
        }),
    );
    let Ok(LinkReceived::Frame(read)) = read_link_frame(&long, 1, 1024) else {
        panic!("a refusal fits into the frames of a handshake");
    };
    let LinkMessage::Refused(refused) = read.message else {
        panic!("{:?}", read.message);
    };
    assert_eq!(refused.text, "ä".repeat(REFUSED_TEXT_BYTES_MAX / 2));

    let mut random = Random(7);
    let keys: Vec<Vec<u8>> = (0..REWIND_KEYS_MAX)
        .map(|_| {
            let len = 1 + random.below(1024);
            (0..len).map(|_| random.next().to_le_bytes()[0]).collect()
        })
        .collect();
    let views: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let mut encoded = Vec::new();
    let rewind = Rewind::write(&mut encoded, 9, false, &views);
    let bytes = frame(1, (0, 0), 0, &LinkMessage::Rewind(rewind));
    let Ok(LinkReceived::Frame(read)) = read_link_frame(&bytes, 1, 1 << 20) else {
        panic!("it is whole");
    };
    let LinkMessage::Rewind(rewind) = read.message else {
        panic!("{:?}", read.message);
    };
    assert_eq!(rewind.keys().collect::<Vec<_>>(), views);
    assert!(!rewind.is_last);
}
