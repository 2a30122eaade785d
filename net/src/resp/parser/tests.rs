//! The parser by itself: cuts, hostile lengths, quotes.

use super::*;

fn all(bytes: &[u8]) -> (Vec<Vec<Vec<u8>>>, Option<Broken>) {
    let mut parser = Parser::new(1 << 20, 2 << 20);
    fed(&mut parser, bytes, &[bytes.len()])
}

/// What comes of bytes that arrive up to each of `cuts`.
fn fed(parser: &mut Parser, bytes: &[u8], cuts: &[usize]) -> (Vec<Vec<Vec<u8>>>, Option<Broken>) {
    let (mut commands, mut at) = (Vec::new(), 0);
    for &cut in cuts {
        loop {
            match parser.next(&bytes[at..cut]) {
                Parsed::Incomplete => break,
                Parsed::Nothing(len) => at += len,
                Parsed::Command(len) => {
                    let args = parser.arguments(&bytes[at..cut]);
                    commands.push(args.from(0).map(<[u8]>::to_vec).collect());
                    parser.done();
                    at += len;
                }
                Parsed::Broken(broken) => return (commands, Some(broken)),
            }
        }
    }
    (commands, None)
}

const PIPELINE: &[u8] =
    b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*3\r\n$3\r\nSET\r\n$0\r\n\r\n$5\r\na\r\nb\n\r\n\
    PING\r\n*0\r\n\r\n*-1\r\nSET k \"a\\x41\\n\\\"\" 'it\\'s'\n*1\r\n$4\r\nQUIT\r\n";

#[test]
fn a_pipeline_cut_at_every_byte_is_the_same_pipeline() {
    let (expected, broken) = all(PIPELINE);
    assert_eq!((expected.len(), broken), (5, None));
    assert_eq!(expected[1], [&b"SET"[..], b"", b"a\r\nb\n"]);
    assert_eq!(expected[3], [&b"SET"[..], b"k", b"aA\n\"", b"it's"]);
    let whole = PIPELINE.len();
    for first in 0..=whole {
        for second in first..=whole {
            let mut parser = Parser::new(1 << 20, 2 << 20);
            let found = fed(&mut parser, PIPELINE, &[first, second, whole]);
            assert_eq!(found.0, expected, "cut at {first} and {second}");
        }
    }
    let mut parser = Parser::new(1 << 20, 2 << 20);
    let every: Vec<usize> = (0..=whole).collect();
    assert_eq!(fed(&mut parser, PIPELINE, &every).0, expected);
}

#[test]
fn some_blanks_stand_before_words_of_a_line_and_end_none_as_in_redis() {
    let (commands, broken) = all(b"SET\x0b k\x0cv \x0b\x0cw\tx\r y\n \x0b\n\x0cPING\n");
    assert_eq!(broken, None);
    let expected: [&[&[u8]]; 2] = [&[b"SET\x0b", b"k\x0cv", b"w", b"x", b"y"], &[b"PING"]];
    assert_eq!(commands, expected);
}

#[test]
fn hostile_lengths_are_refused_in_the_words_of_redis_before_anything_is_reserved() {
    let most = format!("*{ARGUMENTS_MAX}\r\n");
    let beyond = format!("*{}\r\n", ARGUMENTS_MAX + 1);
    let cases: [(&[u8], &str); 14] = [
        (beyond.as_bytes(), "invalid multibulk length"),
        (b"*99999999999999999999\r\n", "invalid multibulk length"),
        (b"*a\r\n", "invalid multibulk length"),
        (b"*\r\n", "invalid multibulk length"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (
            b"*1\r\n$1048577\r\n",
            "invalid bulk length: 1048577 bytes, and 1048576 is the limit (option value_bytes_max)",
        ),
        (
            b"*1\r\n$536870912\r\n",
            "invalid bulk length: 536870912 bytes, and 1048576 is the limit \
             (option value_bytes_max)",
        ),
        (
            b"*1\r\n$9223372036854775807\r\n",
            "invalid bulk length: 9223372036854775807 bytes, and 1048576 is the limit \
             (option value_bytes_max)",
        ),
        (b"*1\r\n$\r\n", "invalid bulk length"),
        (b"*1\r\n*1\r\n", "expected '$', got '*'"),
        (b"*1\r\n:1\r\n", "expected '$', got ':'"),
        (b"*1\r\n\r\n", "expected '$', got ' '"),
        (b"SET k \"v\r\n", "unbalanced quotes in request"),
        (b"POST / HTTP/1.1\r\n", "this port speaks RESP, not HTTP"),
    ];
    for (bytes, words) in cases {
        let (commands, broken) = all(bytes);
        assert!(commands.is_empty());
        let mut text = Vec::new();
        broken.expect("it is broken").write(&mut text);
        let text = String::from_utf8(text).expect("text");
        assert_eq!(text, format!("ERR Protocol error: {words}"));
    }
    let mut parser = Parser::new(1 << 20, 2 << 20);
    let taken = allocation_counter::measure(|| {
        assert_eq!(parser.next(most.as_bytes()), Parsed::Incomplete);
    });
    assert_eq!(
        taken.count_total, 0,
        "nothing is kept for arguments to come"
    );
}

#[test]
fn a_line_without_an_end_is_refused_at_its_limit_and_not_before() {
    for (begin, words) in [
        (&b"*"[..], "too big mbulk count string"),
        (b"*1\r\n$", "too big bulk count string"),
        (b"PING ", "too big inline request"),
    ] {
        let mut bytes = begin.to_vec();
        let mut parser = Parser::new(1 << 20, 2 << 20);
        let broken = loop {
            bytes.extend([b'1'; 1000]);
            match parser.next(&bytes) {
                Parsed::Incomplete => assert!(bytes.len() < LINE_BYTES_MAX + 2000),
                Parsed::Broken(broken) => break broken,
                other => panic!("{other:?}"),
            }
        };
        assert!(bytes.len() >= LINE_BYTES_MAX);
        assert_eq!(broken, Broken::Line(words));
    }
}

#[test]
fn a_command_that_is_too_long_in_all_is_refused_before_its_last_argument() {
    let mut bytes = b"*4\r\n$4\r\nMSET\r\n".to_vec();
    let value = vec![b'v'; 1 << 20];
    bytes.extend(format!("$1\r\nk\r\n${}\r\n", value.len()).bytes());
    bytes.extend(&value);
    bytes.extend(b"\r\n$1048576\r\n");
    assert_eq!(all(&bytes).1, Some(Broken::CommandLength));
}

#[test]
fn native_frames_and_tls_are_no_commands() {
    let mut native = 40u32.to_le_bytes().to_vec();
    native.extend([0xE7, 1, 1, 0]);
    native.extend([0; 32]);
    let tls = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xFC, 3, 3];
    for bytes in [&native[..], &tls] {
        // No end of a line: the deadline of a partial command ends the connection.
        assert_eq!(all(bytes), (Vec::new(), None));
    }
    let (commands, _) = all(b"\x16\x03\x01\n");
    assert_eq!(commands.len(), 1, "an unknown command");
}

#[test]
fn one_hundred_thousand_commands_are_found_without_an_allocation_for_each() {
    let bytes = b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n".repeat(100_000);
    let mut parser = Parser::new(1 << 20, 2 << 20);
    let (mut at, mut found) = (0, 0);
    let taken = allocation_counter::measure(|| {
        while let Parsed::Command(len) = parser.next(&bytes[at..]) {
            found += usize::from(parser.arguments(&bytes[at..]).get(1) == b"key");
            parser.done();
            at += len;
        }
    });
    assert_eq!((found, at), (100_000, bytes.len()));
    assert!(taken.count_total <= 2, "{} allocations", taken.count_total);
}
