//! The wire between nodes against LINK.md: the worked link at its end, the vectors, cuts and flips.

use std::path::PathBuf;

use penstock_net::link::frame::{LINK_HEADER_BYTES, read_link_frame, write_link_frame};
use penstock_net::link::handshake::proof_input;
use penstock_net::link::message::{REFUSED_TEXT_BYTES_MAX, REWIND_KEYS_MAX};
use penstock_net::link::{
    Answer, Begin, Close, EpochEntry, Epochs, Handover, Hello, Join, LinkFault, LinkHeader,
    LinkMessage, LinkReceived, Marks, Membership, Mode, NodeStart, Open, Position, Proof,
    ProofRole, Records, RefusalCode, Refused, Rewind, Rewound, State, UnderWay, Welcome,
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
    let key = blake3::derive_key("penstock cluster secret, links", SECRET);
    *blake3::keyed_hash(&key, &proof_input(role, hello, welcome)).as_bytes()
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
        "38000000 00000000 01 00 10 00 bc0a 0800 08000000 00000000 0100000000000000 0068e5cf8b01 0000
         73746f636b3a3432 0700000000000000",
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

#[test]
fn the_link_in_the_document_is_what_the_codec_writes() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/LINK.md");
    let document = std::fs::read_to_string(path).expect("the document");
    let heading = "durable here and there:\n";
    let (before, stored) = document.split_once(heading).expect("the link's heading");
    let mut built = String::from("\n```\n");
    for (title, frame) in example() {
        built += &format!("{title}\n");
        for line in frame.chunks(16) {
            let words: Vec<String> = line.chunks(8).map(hex).collect();
            built += &format!("  {}\n", words.join(" "));
        }
    }
    built += "```\n";
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

/// A frame with a change, whose CRCs are good again.
fn changed(frame: &[u8], change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut frame = frame.to_vec();
    change(&mut frame);
    let len = u32::try_from(frame.len()).expect("short");
    frame[0..4].copy_from_slice(&len.to_le_bytes());
    sealed(frame)
}

fn sealed(mut frame: Vec<u8>) -> Vec<u8> {
    let crc = crc32fast::hash(&frame[LINK_HEADER_BYTES..]);
    frame[40..44].copy_from_slice(&crc.to_le_bytes());
    let crc = crc32fast::hash(&frame[..44]);
    frame[44..48].copy_from_slice(&crc.to_le_bytes());
    frame
}

fn cases() -> Vec<(&'static str, Vec<u8>)> {
    let one = |message: LinkMessage<'_>| frame(1, (0, 0), 0, &message);
    let (hello, welcome, part) = (
        one(LinkMessage::Hello(hello())),
        one(LinkMessage::Welcome(welcome())),
        part(),
    );
    let (mut entries, mut keys) = (Vec::new(), Vec::new());
    let epochs = Epochs::write(&mut entries, [wrote(EPOCH, 1), wrote(EPOCH + (1 << 8), 17)]);
    let open = one(LinkMessage::Open(Open {
        partition: 255,
        membership: Membership::Learner,
        epoch: EPOCH,
    }));
    let state = one(LinkMessage::State(State {
        partition: 7,
        answer: Answer::Rejected,
        under_way: UnderWay::Scan,
        promised: EPOCH + (1 << 18),
        complete: Position {
            epoch: EPOCH + (1 << 8),
            sequence: 20,
        },
        epochs,
    }));
    let begin = one(LinkMessage::Begin(Begin {
        partition: 7,
        mode: Mode::Scan,
        epoch: EPOCH,
        from: at(5),
        epochs,
    }));
    let records = one(LinkMessage::Records(Records {
        count: 1,
        bytes: &part,
    }));
    let join = one(LinkMessage::Join(Join {
        partition: 7,
        at: at(30),
    }));
    let rewind = one(LinkMessage::Rewind(Rewind::write(
        &mut keys,
        7,
        true,
        &[b"stock:42", b"k"],
    )));
    let rewound = one(LinkMessage::Rewound(Rewound {
        partition: 7,
        at: at(31),
    }));
    let handover = one(LinkMessage::Handover(Handover {
        partition: 7,
        epoch: EPOCH + (1 << 18) + 1,
        at: at(31),
    }));
    let close = one(LinkMessage::Close(Close { partition: 7 }));
    let refused = one(LinkMessage::Refused(Refused {
        code: RefusalCode::Cluster,
        text: "this node is of another cluster",
    }));
    let beat = frame(1, (u64::MAX, 7), 1_700_000_000_000, &LinkMessage::Beat);
    let body = LINK_HEADER_BYTES;
    let set = |frame: &[u8], at: usize, byte: u8| changed(frame, |frame| frame[at] = byte);
    vec![
        ("HELLO", hello.clone()),
        ("HELLO cut short", changed(&hello, |f| f.truncate(136))),
        ("WELCOME", welcome.clone()),
        ("WELCOME with a wanted node", set(&welcome, body + 81, 1)),
        ("WELCOME with a wanted shard", set(&welcome, body + 87, 1)),
        (
            "WELCOME with a byte behind the version",
            set(&welcome, body + 2, 1),
        ),
        (
            "WELCOME without a proof",
            changed(&welcome, |f| f.truncate(144)),
        ),
        ("PROOF", one(LinkMessage::Proof([7; 32]))),
        (
            "PROOF of 24 bytes",
            changed(&one(LinkMessage::Proof([7; 32])), |f| f.truncate(72)),
        ),
        ("REFUSED", refused.clone()),
        (
            "REFUSED without a text",
            one(LinkMessage::Refused(Refused {
                code: RefusalCode::Unrelated,
                text: "",
            })),
        ),
        ("REFUSED with code 0", set(&refused, body, 0)),
        ("REFUSED with code 14", set(&refused, body, 14)),
        (
            "REFUSED with a text longer than the body",
            set(&refused, body + 4, 99),
        ),
        (
            "REFUSED with a text of four gigabytes",
            set(&refused, body + 7, 255),
        ),
        (
            "REFUSED with a text that is no UTF-8",
            set(&refused, body + 8, 0xFF),
        ),
        ("REFUSED with padding", set(&refused, body + 39, b'!')),
        ("BEAT", beat.clone()),
        ("BEAT with a body", changed(&beat, |f| f.extend([0; 8]))),
        ("OPEN as a learner", open.clone()),
        ("OPEN partition 256", set(&open, body + 1, 1)),
        ("OPEN as nothing", set(&open, body + 2, 0)),
        ("OPEN as something else", set(&open, body + 2, 3)),
        ("OPEN with a reserved byte", set(&open, body + 3, 1)),
        ("OPEN that is longer", changed(&open, |f| f.extend([0; 8]))),
        ("STATE, rejected, with a history", state.clone()),
        ("STATE with another answer", set(&state, body + 2, 3)),
        (
            "STATE with something else under way",
            set(&state, body + 3, 3),
        ),
        ("STATE with a reserved word", set(&state, body + 28, 1)),
        (
            "STATE with three epochs that are two",
            set(&state, body + 24, 3),
        ),
        ("STATE with 65 epochs", set(&state, body + 24, 65)),
        (
            "STATE whose history falls back",
            set(&state, body + 32 + 16 + 2, 0),
        ),
        (
            "STATE whose history stands still",
            set(&state, body + 32 + 16 + 8, 1),
        ),
        (
            "STATE whose history begins at 0",
            set(&state, body + 32 + 8, 0),
        ),
        (
            "STATE whose history has an epoch of a start that was not noted",
            set(&state, body + 36, 0),
        ),
        ("STATE without its end", changed(&state, |f| f.truncate(72))),
        ("BEGIN, a scan", begin.clone()),
        ("BEGIN in no mode", set(&begin, body + 2, 0)),
        ("BEGIN with a reserved byte", set(&begin, body + 3, 1)),
        ("BEGIN with a reserved word", set(&begin, body + 12, 1)),
        (
            "BEGIN without a position",
            changed(&begin, |f| f.truncate(56)),
        ),
        ("RECORDS", records.clone()),
        ("RECORDS without a record", set(&records, body, 0)),
        ("RECORDS with more than fit", set(&records, body, 2)),
        ("RECORDS with a reserved word", set(&records, body + 4, 1)),
        (
            "RECORDS without a body",
            changed(&records, |f| f.truncate(48)),
        ),
        ("JOIN", join.clone()),
        (
            "JOIN with two bytes behind the partition",
            set(&join, body + 2, 1),
        ),
        ("JOIN with a reserved byte", set(&join, body + 7, 3)),
        ("BEGIN with an epoch too many", set(&begin, body + 24, 3)),
        (
            "BEGIN with a word behind the number of epochs",
            set(&begin, body + 28, 3),
        ),
        ("REWIND of two keys", rewind.clone()),
        (
            "REWIND of nothing",
            one(LinkMessage::Rewind(Rewind::write(&mut keys, 7, true, &[]))),
        ),
        (
            "REWIND with three keys that are two",
            set(&rewind, body + 2, 3),
        ),
        (
            "REWIND with one key that are two",
            set(&rewind, body + 2, 1),
        ),
        (
            "REWIND of 257 keys",
            changed(&rewind, |f| {
                f[body + 2..body + 4].copy_from_slice(&257u16.to_le_bytes())
            }),
        ),
        ("REWIND that is last twice", set(&rewind, body + 4, 2)),
        ("REWIND of an empty key", set(&rewind, body + 8, 0)),
        ("REWIND of a key longer than all", set(&rewind, body + 9, 4)),
        (
            "REWIND of a key longer than a key",
            set(&rewind, body + 9, 5),
        ),
        ("REWIND with bytes around a key", set(&rewind, body + 10, 1)),
        ("REWIND with padding", set(&rewind, body + 8 + 16 + 9, 1)),
        ("REWOUND", rewound.clone()),
        ("REWOUND with a reserved byte", set(&rewound, body + 7, 1)),
        ("HANDOVER", handover.clone()),
        ("HANDOVER with a reserved byte", set(&handover, body + 2, 1)),
        ("CLOSE", close.clone()),
        ("CLOSE with a reserved byte", set(&close, body + 2, 1)),
        (
            "CLOSE that is longer",
            changed(&close, |f| f.extend([0; 8])),
        ),
        ("a client's magic", set(&beat, 4, 0xE7)),
        ("the version before", set(&beat, 5, 1)),
        ("another version", set(&beat, 5, 3)),
        ("kind 0", set(&beat, 6, 0)),
        ("kind 15", set(&beat, 6, 15)),
        ("a reserved byte of the header", set(&beat, 7, 1)),
        (
            "a length of 40",
            sealed({
                let mut frame = beat.clone();
                frame[0] = 40;
                frame
            }),
        ),
        (
            "a length that is no multiple of 8",
            sealed({
                let mut frame = beat.clone();
                frame[0] = 52;
                frame
            }),
        ),
        (
            "a length over the limit",
            sealed({
                let mut frame = beat.clone();
                frame[2] = 1;
                frame
            }),
        ),
        ("a header CRC that is wrong", {
            let mut frame = beat.clone();
            frame[44] ^= 1;
            frame
        }),
        ("a body CRC that is wrong", {
            let mut frame = open;
            frame[body + 4] ^= 1;
            frame
        }),
    ]
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
    let built: Vec<Value> = cases()
        .iter()
        .zip(1..)
        .map(|((description, bytes), number)| {
            let (must, key, what) = match judged(bytes) {
                Ok(decoded) => ("accept", "decoded", decoded),
                Err(fault) => ("reject", "error", fault),
            };
            json!({"id": format!("link-frame-{number:03}"), "kind": "link-frame", "description": description, "hex": hex(bytes), "must": must, key: what})
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
    assert_eq!(accepted, 18, "those whose description names no fault");
    assert_eq!(stored, built, "the file and the cases have drifted");
}

#[test]
fn each_accepted_frame_is_written_again_as_it_was() {
    for (description, bytes) in cases() {
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
    for (description, bytes) in example() {
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
fn a_client_on_the_port_of_links_is_told_by_its_first_five_bytes() {
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
