//! The kept inputs that have names: the vectors of the protocol, in the form that each target
//! reads.

use std::path::Path;

use serde_json::Value;

use crate::target::keep;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fuzz");

/// The vectors of a file with these bytes before each.
fn vectors(kind: &str, before: &[u8]) -> Vec<(String, Vec<u8>)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("vectors")
        .join(kind)
        .with_extension("json");
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let vectors: Vec<Value> = serde_json::from_str(&text).expect("a list of vectors");
    let vectors = vectors.iter().map(|vector| {
        let id = vector["id"].as_str().expect("an id").to_string();
        let mut input = before.to_vec();
        input.extend(unhex(vector["hex"].as_str().expect("hex")));
        (id, input)
    });
    vectors.collect()
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex digits"))
        .collect()
}

#[test]
fn every_vector_is_a_kept_input_of_its_target() {
    // The limit of the vectors, and no cuts.
    let frames = vectors("frame", &[3, 0]);
    let stream: Vec<u8> = frames
        .iter()
        .take(8)
        .flat_map(|(_, input)| input[2..].to_vec())
        .collect();
    let mut sealed = vec![0x83, 5, 1, 31, 40, 7, 90];
    sealed.extend(stream);
    let stream = [("frames-in-a-row".to_string(), sealed)];
    keep(FOLDER, "frames", &[frames, stream.to_vec()].concat());

    let items = [
        vectors("batch", &[2]),
        vectors("request-item", &[0x82]),
        vectors("apply-item", &[0x82]),
        vectors("run-item", &[0x82]),
    ];
    keep(FOLDER, "requests", &items.concat());

    let commands: [(&str, &[u8]); 8] = [
        (
            "commands",
            b"\x05*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*1\r\n$4\r\nPING\r\n",
        ),
        (
            "empty-value",
            b"\x14*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\n",
        ),
        (
            "alike",
            b"\x20*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*2\r\n$3\r\nGET\r\n$2\r\n\r\n\r\n\
              *2\r\n$3\r\nGET\r\n$12\r\na longer key\r\n*2\r\n$4\r\nDECR\r\n$1\r\nn\r\n\
              *2\r\n$3\r\nGET\r\n$1\r\nl\r\n*2\r\n$4\r\nDECR\r\n$1\r\nm\r\n",
        ),
        (
            "alike-with-values",
            b"\x50*5\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n$2\r\nEX\r\n$1\r\n9\r\n\
              *5\r\n$3\r\nSET\r\n$1\r\nl\r\n$5\r\nv\r\n$1\r\n$2\r\nEX\r\n$1\r\n9\r\n\
              *4\r\n$5\r\nSETEX\r\n$1\r\nk\r\n$1\r\n9\r\n$1\r\nv\r\n\
              *4\r\n$5\r\nSETEX\r\n$1\r\nl\r\n$1\r\n9\r\n$2\r\nvv\r\n\
              *5\r\n$3\r\nSET\r\n$1\r\nl\r\n$1\r\nv\r\n$2\r\nEX\r\n$1\r\n8\r\n",
        ),
        ("nothing", b"\x01*0\r\n*-1\r\n\r\n*1\r\n$4\r\nQUIT\r\n"),
        ("inline", b"\x03SET k \"a\\x41\" 'b'\r\nPING\n"),
        ("nested", b"\x02*1\r\n*1\r\n$1\r\na\r\n"),
        ("long", b"\x09*1\r\n$1025\r\n"),
    ];
    let commands = commands.map(|(name, input)| (name.to_string(), input.to_vec()));
    keep(FOLDER, "commands", &commands);

    let value = [8, 250, 0, 0, 0, 255, 255, 255, 127];
    keep(FOLDER, "instructions", &vectors("instruction", &value));

    let items = vectors("reply-item", &[1]);
    let text = [2, 5, 0, 0, 0, 0, 0, 0, 0, b'n', b'o', b' ', b'c', b'a'];
    let text = [("text-cut".to_string(), text.to_vec())];
    let batches = vectors("batch", &[0]);
    keep(FOLDER, "replies", &[batches, items, text.to_vec()].concat());

    let servers = vectors("server-hello", &[1]);
    let clients = vectors("client-hello", &[0]);
    keep(FOLDER, "hellos", &[clients, servers].concat());

    let first = b"n,,n=ann/till,r=BAQEBAQEBAQEBAQEBAQEBA";
    let logins = [
        (
            "body",
            [&[0, 1, 0, 0, 0, 34, 0, 0, 0], &first[..], &[0; 6]].concat(),
        ),
        ("client", [&[1, 38], &first[..], b"c=biws,r=x,p="].concat()),
        (
            "client-bound",
            [&[5, 54], &b"p=tls-exporter"[..], &first[1..]].concat(),
        ),
        (
            "server",
            b"\x02\x24x,s=cGVuc3RvY2sgbWFjaGluZQ==,i=1v=".to_vec(),
        ),
        ("flipped", vec![3, 2, 60, 5]),
    ];
    let logins = logins.map(|(name, input)| (name.to_string(), input));
    keep(FOLDER, "logins", &logins);

    // As they are, and in a row.
    let frames = vectors("link-frame", &[1]);
    let mut row = vec![0];
    for (_, input) in &frames {
        row.extend(&input[1..]);
    }
    let row = [("link-frames-in-a-row".to_string(), row)];
    keep(FOLDER, "links", &[frames, row.to_vec()].concat());
}

#[test]
fn the_users_of_the_document_and_their_rights_are_kept() {
    let document = include_str!("../../RIGHTS.md");
    let begin = document.find("# The box office.").expect("it is shown");
    let end = document[begin..].find("```").expect("it ends") + begin;
    let shown = document.as_bytes()[begin..end].to_vec();
    let kept = [
        ("box-office", shown),
        (
            "nobody",
            b"decoy 9mjDlFXskR2Tq2stPkiTDr9x5X1fIgKQ7egKodSlZ54=\n".to_vec(),
        ),
        ("nothing", Vec::new()),
    ];
    keep(
        FOLDER,
        "users",
        &kept.map(|(name, input)| (name.to_string(), input)),
    );
    let kept = [
        ("everything", &b"\0\0\xFF\0stock"[..]),
        (
            "one-in-another",
            b"\0\x02st\x01\x05stock\x02\0\xFF\0stock:7",
        ),
        ("none", b"\xFF\0stock"),
        ("last-bytes", b"\0\x02\xFF\xFF\x01\x02a\xFF\xFF\0a\xFF\xFF"),
    ];
    keep(
        FOLDER,
        "rights",
        &kept.map(|(name, input)| (name.to_string(), input.to_vec())),
    );
}
