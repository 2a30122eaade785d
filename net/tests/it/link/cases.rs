//! The cases of `vectors/link-frame.json`: what the decoder accepts and what it refuses.

use penstock_net::link::frame::LINK_HEADER_BYTES;
use penstock_net::link::{
    Answer, Begin, Claims, Close, Epochs, Handover, Join, LinkMessage, Membership, Mode, Open,
    Position, Publish, Records, RefusalCode, Refused, Rewind, Rewound, State, UnderWay,
};

use super::{EPOCH, at, frame, hello, part, welcome, wrote};

const BODY: usize = LINK_HEADER_BYTES;

/// A frame, and what it is.
pub type Case = (&'static str, Vec<u8>);

/// All cases, in the order of their numbers.
pub fn all() -> Vec<Case> {
    [
        handshakes(),
        partitions(),
        records(),
        rewinds(),
        headers(),
        heartbeats(),
        publishes(),
    ]
    .concat()
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

fn one(message: LinkMessage<'_>) -> Vec<u8> {
    frame(1, (0, 0), 0, &message)
}

/// A frame with another byte at one place.
fn set(frame: &[u8], at: usize, byte: u8) -> Vec<u8> {
    changed(frame, |frame| frame[at] = byte)
}

/// A frame with another byte of its length, under CRCs that are good.
fn with_length(mut frame: Vec<u8>, at: usize, byte: u8) -> Vec<u8> {
    frame[at] = byte;
    sealed(frame)
}

fn beat() -> Vec<u8> {
    frame(1, (u64::MAX, 7), 1_700_000_000_000, &LinkMessage::Beat)
}

fn open() -> Vec<u8> {
    one(LinkMessage::Open(Open {
        partition: 255,
        membership: Membership::Learner,
        epoch: EPOCH,
    }))
}

/// A history of two epochs.
fn epochs(entries: &mut Vec<u8>) -> Epochs<'_> {
    Epochs::write(entries, [wrote(EPOCH, 1), wrote(EPOCH + (1 << 8), 17)])
}

/// HELLO, WELCOME, PROOF, REFUSED.
fn handshakes() -> Vec<Case> {
    let (hello, welcome) = (
        one(LinkMessage::Hello(hello())),
        one(LinkMessage::Welcome(welcome())),
    );
    let refused = one(LinkMessage::Refused(Refused {
        code: RefusalCode::Cluster,
        text: "this node is of another cluster",
    }));
    vec![
        ("HELLO", hello.clone()),
        ("HELLO cut short", changed(&hello, |f| f.truncate(136))),
        ("WELCOME", welcome.clone()),
        ("WELCOME with a wanted node", set(&welcome, BODY + 81, 1)),
        ("WELCOME with a wanted shard", set(&welcome, BODY + 87, 1)),
        (
            "WELCOME with a byte behind the version",
            set(&welcome, BODY + 2, 1),
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
        ("REFUSED with code 0", set(&refused, BODY, 0)),
        ("REFUSED with code 14", set(&refused, BODY, 14)),
        (
            "REFUSED with a text longer than the body",
            set(&refused, BODY + 4, 99),
        ),
        (
            "REFUSED with a text of four gigabytes",
            set(&refused, BODY + 7, 255),
        ),
        (
            "REFUSED with a text that is no UTF-8",
            set(&refused, BODY + 8, 0xFF),
        ),
        ("REFUSED with padding", set(&refused, BODY + 39, b'!')),
    ]
}

/// BEAT, OPEN, STATE.
fn partitions() -> Vec<Case> {
    let (beat, open) = (beat(), open());
    let mut entries = Vec::new();
    let epochs = epochs(&mut entries);
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
    vec![
        ("BEAT", beat.clone()),
        ("BEAT with a body", changed(&beat, |f| f.extend([0; 8]))),
        ("OPEN as a learner", open.clone()),
        ("OPEN partition 256", set(&open, BODY + 1, 1)),
        ("OPEN as nothing", set(&open, BODY + 2, 0)),
        ("OPEN as something else", set(&open, BODY + 2, 3)),
        ("OPEN with a reserved byte", set(&open, BODY + 3, 1)),
        ("OPEN that is longer", changed(&open, |f| f.extend([0; 8]))),
        ("STATE, rejected, with a history", state.clone()),
        ("STATE with another answer", set(&state, BODY + 2, 3)),
        (
            "STATE with something else under way",
            set(&state, BODY + 3, 3),
        ),
        ("STATE with a reserved word", set(&state, BODY + 28, 1)),
        (
            "STATE with three epochs that are two",
            set(&state, BODY + 24, 3),
        ),
        ("STATE with 65 epochs", set(&state, BODY + 24, 65)),
        (
            "STATE whose history falls back",
            set(&state, BODY + 32 + 16 + 2, 0),
        ),
        (
            "STATE whose history stands still",
            set(&state, BODY + 32 + 16 + 8, 1),
        ),
        (
            "STATE whose history begins at 0",
            set(&state, BODY + 32 + 8, 0),
        ),
        (
            "STATE whose history has an epoch of a start that was not noted",
            set(&state, BODY + 36, 0),
        ),
        ("STATE without its end", changed(&state, |f| f.truncate(72))),
    ]
}

/// BEGIN, RECORDS, JOIN.
fn records() -> Vec<Case> {
    let mut entries = Vec::new();
    let epochs = epochs(&mut entries);
    let begin = one(LinkMessage::Begin(Begin {
        partition: 7,
        mode: Mode::Scan,
        epoch: EPOCH,
        from: at(5),
        epochs,
    }));
    let part = part();
    let records = one(LinkMessage::Records(Records {
        count: 1,
        bytes: &part,
    }));
    let join = one(LinkMessage::Join(Join {
        partition: 7,
        at: at(30),
    }));
    vec![
        ("BEGIN, a scan", begin.clone()),
        ("BEGIN in no mode", set(&begin, BODY + 2, 0)),
        ("BEGIN with a reserved byte", set(&begin, BODY + 3, 1)),
        ("BEGIN with a reserved word", set(&begin, BODY + 12, 1)),
        (
            "BEGIN without a position",
            changed(&begin, |f| f.truncate(56)),
        ),
        ("RECORDS", records.clone()),
        ("RECORDS without a record", set(&records, BODY, 0)),
        ("RECORDS with more than fit", set(&records, BODY, 2)),
        ("RECORDS with a reserved word", set(&records, BODY + 4, 1)),
        (
            "RECORDS without a body",
            changed(&records, |f| f.truncate(48)),
        ),
        ("JOIN", join.clone()),
        (
            "JOIN with two bytes behind the partition",
            set(&join, BODY + 2, 1),
        ),
        ("JOIN with a reserved byte", set(&join, BODY + 7, 3)),
        ("BEGIN with an epoch too many", set(&begin, BODY + 24, 3)),
        (
            "BEGIN with a word behind the number of epochs",
            set(&begin, BODY + 28, 3),
        ),
    ]
}

/// REWIND, REWOUND, HANDOVER, CLOSE.
fn rewinds() -> Vec<Case> {
    let mut keys = Vec::new();
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
    vec![
        ("REWIND of two keys", rewind.clone()),
        (
            "REWIND of nothing",
            one(LinkMessage::Rewind(Rewind::write(&mut keys, 7, true, &[]))),
        ),
        (
            "REWIND with three keys that are two",
            set(&rewind, BODY + 2, 3),
        ),
        (
            "REWIND with one key that are two",
            set(&rewind, BODY + 2, 1),
        ),
        (
            "REWIND of 257 keys",
            changed(&rewind, |f| {
                f[BODY + 2..BODY + 4].copy_from_slice(&257u16.to_le_bytes())
            }),
        ),
        ("REWIND that is last twice", set(&rewind, BODY + 4, 2)),
        ("REWIND of an empty key", set(&rewind, BODY + 8, 0)),
        ("REWIND of a key longer than all", set(&rewind, BODY + 9, 4)),
        (
            "REWIND of a key longer than a key",
            set(&rewind, BODY + 9, 5),
        ),
        ("REWIND with bytes around a key", set(&rewind, BODY + 10, 1)),
        ("REWIND with padding", set(&rewind, BODY + 8 + 16 + 9, 1)),
        ("REWOUND", rewound.clone()),
        ("REWOUND with a reserved byte", set(&rewound, BODY + 7, 1)),
        ("HANDOVER", handover.clone()),
        ("HANDOVER with a reserved byte", set(&handover, BODY + 2, 1)),
        ("CLOSE", close.clone()),
        ("CLOSE with a reserved byte", set(&close, BODY + 2, 1)),
        (
            "CLOSE that is longer",
            changed(&close, |f| f.extend([0; 8])),
        ),
    ]
}

/// HEARTBEAT, CONFIRM.
fn heartbeats() -> Vec<Case> {
    let mut claims = Vec::new();
    let claims = Claims::write(&mut claims, super::claims());
    let heartbeat = one(LinkMessage::Heartbeat(super::heartbeat(claims)));
    let confirm = one(LinkMessage::Confirm(super::confirm()));
    vec![
        ("HEARTBEAT", heartbeat.clone()),
        (
            "HEARTBEAT of a node that holds nothing",
            one(LinkMessage::Heartbeat(super::heartbeat(Claims::default()))),
        ),
        ("HEARTBEAT with number 0", set(&heartbeat, BODY, 0)),
        (
            "HEARTBEAT with four claims that are three",
            set(&heartbeat, BODY + 24, 4),
        ),
        (
            "HEARTBEAT with 257 claims",
            changed(&heartbeat, |f| {
                f[BODY + 24..BODY + 26].copy_from_slice(&257u16.to_le_bytes())
            }),
        ),
        (
            "HEARTBEAT with a byte behind the number of claims",
            set(&heartbeat, BODY + 26, 1),
        ),
        (
            "HEARTBEAT with partition 256",
            set(&heartbeat, BODY + 32 + 16 + 1, 1),
        ),
        (
            "HEARTBEAT with generation 16384",
            set(&heartbeat, BODY + 32 + 3, 64),
        ),
        (
            "HEARTBEAT with a partition twice",
            set(&heartbeat, BODY + 32 + 8, 7),
        ),
        (
            "HEARTBEAT without a head",
            changed(&heartbeat, |f| f.truncate(72)),
        ),
        ("CONFIRM", confirm.clone()),
        ("CONFIRM of heartbeat 0", set(&confirm, BODY, 0)),
        (
            "CONFIRM that is longer",
            changed(&confirm, |f| f.extend([0; 8])),
        ),
        (
            "CONFIRM that is cut short",
            changed(&confirm, |f| f.truncate(88)),
        ),
    ]
}

/// PUBLISH.
fn publishes() -> Vec<Case> {
    let publish = one(LinkMessage::Publish(super::publish()));
    let empty = Publish {
        channel: b"",
        payload: b"",
    };
    let longest = Publish {
        channel: &[b'c'; 1024],
        payload: b"",
    };
    let longest = one(LinkMessage::Publish(longest));
    vec![
        ("PUBLISH", publish.clone()),
        (
            "PUBLISH of nothing to a channel without a name",
            one(LinkMessage::Publish(empty)),
        ),
        ("PUBLISH to a channel of 1024 bytes", longest.clone()),
        (
            "PUBLISH to a channel of 1032 bytes",
            changed(&longest, |f| {
                f[BODY + 2..BODY + 4].copy_from_slice(&1032u16.to_le_bytes());
                f.extend([b'c'; 8]);
            }),
        ),
        ("PUBLISH of kind 0", set(&publish, BODY, 0)),
        ("PUBLISH of kind 2", set(&publish, BODY, 2)),
        (
            "PUBLISH with a byte behind its kind",
            set(&publish, BODY + 1, 1),
        ),
        (
            "PUBLISH with a payload longer than the body",
            set(&publish, BODY + 4, 99),
        ),
        (
            "PUBLISH with a payload of four gigabytes",
            changed(&publish, |f| f[BODY + 4..BODY + 8].fill(255)),
        ),
        (
            "PUBLISH that is longer",
            changed(&publish, |f| f.extend([0; 8])),
        ),
        (
            "PUBLISH with padding",
            changed(&publish, |f| *f.last_mut().expect("a body") = 1),
        ),
        (
            "PUBLISH without a head",
            changed(&publish, |f| f.truncate(BODY)),
        ),
    ]
}

/// What a header must not say.
fn headers() -> Vec<Case> {
    let (beat, open) = (beat(), open());
    vec![
        ("a client's magic", set(&beat, 4, 0xE7)),
        ("the version before", set(&beat, 5, 1)),
        ("another version", set(&beat, 5, 3)),
        ("kind 0", set(&beat, 6, 0)),
        ("kind 18", set(&beat, 6, 18)),
        ("a reserved byte of the header", set(&beat, 7, 1)),
        ("a length of 40", with_length(beat.clone(), 0, 40)),
        (
            "a length that is no multiple of 8",
            with_length(beat.clone(), 0, 52),
        ),
        ("a length over the limit", with_length(beat.clone(), 2, 1)),
        ("a header CRC that is wrong", {
            let mut frame = beat.clone();
            frame[44] ^= 1;
            frame
        }),
        ("a body CRC that is wrong", {
            let mut frame = open;
            frame[BODY + 4] ^= 1;
            frame
        }),
    ]
}
