//! Items about no key: SCAN, its pages, and PING.

use penstock_net::request::Version;
use penstock_net::scan::{ScanEntry, ScanPageWriter, ScanRequest, ScanValue};

use super::{Cases, changed, item};

pub(super) fn pings(cases: &mut Cases) {
    let ping = |value: &[u8]| item(|batch, out| batch.ping(out, value));
    cases.add("ping-item", "PING of no value", ping(b""));
    let good = ping(b"there, back");
    cases.add("ping-item", "PING of eleven bytes", good.clone());
    cases.add("ping-item", "PING of the longest value", ping(&[7; 1024]));
    let long = ping(&[7; 1025]);
    cases.add("ping-item", "a value of 1025 bytes", long);
    for (what, at, bytes) in [
        ("another operation", 2, &[10][..]),
        ("a flag", 3, &[1]),
        ("a key", 4, &[1]),
        ("an instruction", 5, &[1]),
        ("a block length of 24 instead of 16", 0, &[24, 0]),
        ("a length of an extension", 6, &[8]),
        ("a length of a key", 8, &[1]),
        ("a length of a second key", 10, &[1]),
        ("a value length of 17 instead of 11", 12, &[17, 0, 0, 0]),
        ("a value length of 2^32 - 1", 12, &[255; 4]),
        ("padding that is not zero", 31, &[1]),
    ] {
        cases.add("ping-item", what, changed(good.clone(), at, bytes));
    }
    for cut in [0, 8, 15, 16, 24] {
        let what = format!("only {cut} bytes of 32");
        cases.add("ping-item", what, good[..cut].to_vec());
    }
}

pub(super) fn scans(cases: &mut Cases) {
    let scan = |request: ScanRequest<'_>| {
        let mut bytes = Vec::new();
        request.write(&mut bytes);
        bytes
    };
    let first = ScanRequest {
        cursor: 0,
        prefix: b"",
        entries_max: 100,
        bytes_max: 65_536,
        wants_values: false,
        wants_types: false,
    };
    cases.add("scan-item", "the first step over all keys", scan(first));
    let good = scan(ScanRequest {
        cursor: 0x0123_4567_89ab_cdef,
        prefix: b"stock:",
        wants_values: true,
        ..first
    });
    cases.add(
        "scan-item",
        "a later step, with a prefix and values",
        good.clone(),
    );
    cases.add(
        "scan-item",
        "the longest prefix and the largest limits",
        scan(ScanRequest {
            cursor: u64::MAX,
            prefix: &[b'k'; 1024],
            entries_max: 1024,
            bytes_max: 262_144,
            wants_values: true,
            wants_types: false,
        }),
    );
    for (what, at, bytes) in [
        ("another operation", 2, &[6][..]),
        ("an unknown flag", 3, &[4]),
        ("values and their types", 3, &[3]),
        ("no key", 4, &[0]),
        ("two keys", 4, &[2]),
        ("an instruction", 5, &[1]),
        ("a block length of 40 instead of 32", 0, &[40, 0]),
        ("a length of an extension", 6, &[8]),
        ("a length of a second key", 10, &[1]),
        ("a length of a value", 12, &[1]),
        ("a prefix length of 9 instead of 6", 8, &[9, 0]),
        ("a prefix of 1025 bytes", 8, &[1, 4]),
        ("0 entries", 24, &[0, 0, 0, 0]),
        ("1025 entries", 24, &[1, 4, 0, 0]),
        ("4095 bytes", 28, &[255, 15, 0, 0]),
        ("262145 bytes", 28, &[1, 0, 4, 0]),
        ("padding that is not zero", 39, &[1]),
    ] {
        cases.add("scan-item", what, changed(good.clone(), at, bytes));
    }
    for cut in [0, 8, 31, 32] {
        let what = format!("only {cut} bytes of 40");
        cases.add("scan-item", what, good[..cut].to_vec());
    }
    scan_pages(cases);
}

fn scan_pages(cases: &mut Cases) {
    let mut page = Vec::new();
    let writer = ScanPageWriter::begin(&mut page);
    writer.finish(&mut page, 0);
    cases.add("scan-page", "no key, and the end", page);
    let mut good = Vec::new();
    let mut writer = ScanPageWriter::begin(&mut good);
    for (key, value) in [
        (&b"stock:42"[..], ScanValue::Bytes(b"12345678")),
        (b"k", ScanValue::NotAsked),
        (b"film", ScanValue::LeftOut),
    ] {
        let version = Version {
            epoch: 256,
            sequence: 7,
        };
        writer.push(
            &mut good,
            &ScanEntry {
                key,
                version,
                value,
            },
        );
    }
    writer.finish(&mut good, 0x77);
    cases.add(
        "scan-page",
        "a value, none, and one that is left out",
        good.clone(),
    );
    for (what, at, bytes) in [
        ("fewer entries than there are", 8, &[2][..]),
        ("more entries than there are", 8, &[4]),
        ("a reserved word of the page", 12, &[1]),
        ("an empty key", 16, &[0, 0]),
        ("a key of 1025 bytes", 16, &[1, 4]),
        ("an unknown flag of an entry", 18, &[4]),
        ("a reserved byte of an entry", 19, &[1]),
        ("a value over the page", 20, &[255, 255, 255, 255]),
        ("a reserved word of an entry", 28, &[1]),
        ("a value that no flag tells", 18, &[0]),
    ] {
        cases.add("scan-page", what, changed(good.clone(), at, bytes));
    }
    cases.add("scan-page", "half a head", good[..8].to_vec());
}
