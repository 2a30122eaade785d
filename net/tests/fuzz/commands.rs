//! Commands of RESP beside another parser of it, and cut anywhere; and a connection that is given
//! them beside one that is given each by itself, through the parser.

use penstock_net::limits::Limits;
use penstock_net::resp::{Parsed, Parser};
use redis_protocol::resp2::decode::decode;
use redis_protocol::resp2::types::OwnedFrame;

use crate::Random;
use crate::resp_sides::compare;

const BULK_BYTES_MAX: usize = 1024;
const COMMAND_BYTES_MAX: usize = 4096;

/// What a parser makes of the bytes: each command with its end, and whether they are broken.
type Made = (Vec<(usize, Vec<Vec<u8>>)>, bool);

/// The first byte tells where the bytes are cut.
pub fn judge(input: &[u8]) {
    let Some((cut, bytes)) = input.split_first() else {
        return;
    };
    let seed = u64::from(*cut);
    let cut = usize::from(*cut).min(bytes.len());
    compare(&mut Random(seed), seed, bytes, vec![cut], Limits::default());
    let whole = made(bytes, bytes.len());
    assert_eq!(made(bytes, cut), whole, "cut at {cut}");
    let mut at = 0;
    for (end, words) in &whole.0 {
        check_beside(&bytes[at..], end - at, words);
        at = *end;
    }
    if !whole.1 {
        return;
    }
    // What is broken is no command of the other parser either, unless a limit is meant.
    if let Some((words, len)) = theirs(&bytes[at..])
        && words.iter().all(|word| word.len() <= BULK_BYTES_MAX)
        && len <= COMMAND_BYTES_MAX
    {
        assert_ne!(
            encoded(&words),
            bytes[at..at + len],
            "a good command is broken"
        );
    }
}

fn made(bytes: &[u8], cut: usize) -> Made {
    let mut parser = Parser::new(BULK_BYTES_MAX, COMMAND_BYTES_MAX);
    let (mut commands, mut at) = (Vec::new(), 0);
    for end in [cut, bytes.len()] {
        loop {
            let rest = &bytes[at..end];
            match parser.next(rest) {
                Parsed::Incomplete => break,
                Parsed::Nothing(len) => {
                    assert!((1..=rest.len()).contains(&len));
                    at += len;
                }
                Parsed::Command(len) => {
                    assert!((1..=rest.len()).contains(&len));
                    let words = parser.arguments(rest).from(0).map(<[u8]>::to_vec);
                    commands.push((at + len, words.collect()));
                    parser.done();
                    at += len;
                }
                Parsed::Broken(broken) => {
                    let mut text = Vec::new();
                    broken.write(&mut text);
                    assert!(!text.contains(&b'\r') && !text.contains(&b'\n'));
                    return (commands, true);
                }
            }
        }
    }
    (commands, false)
}

/// A command that is encoded as clients do is the same command for both parsers.
fn check_beside(bytes: &[u8], len: usize, words: &[Vec<u8>]) {
    // Empty lines may stand before it.
    for begin in 0..len {
        if encoded(words) == bytes[begin..len] {
            let other = theirs(&bytes[begin..]).expect("the other parser finds it");
            assert_eq!(other, (words.to_vec(), len - begin));
        }
    }
}

/// The array of strings that the other parser finds at the start.
fn theirs(bytes: &[u8]) -> Option<(Vec<Vec<u8>>, usize)> {
    let (frame, len) = decode(bytes).ok().flatten()?;
    let OwnedFrame::Array(elements) = frame else {
        return None;
    };
    let words = elements.into_iter().map(|element| match element {
        OwnedFrame::BulkString(word) => Some(word),
        _ => None,
    });
    let words: Vec<Vec<u8>> = words.collect::<Option<_>>()?;
    (!words.is_empty()).then_some((words, len))
}

fn encoded(words: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).bytes());
        bytes.extend(word);
        bytes.extend(b"\r\n");
    }
    bytes
}
