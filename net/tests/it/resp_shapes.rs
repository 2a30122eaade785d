//! Commands that differ from an earlier one in key and value alone, beside the same commands
//! through the parser.

use penstock_net::limits::Limits;

use crate::Random;
use crate::resp_sides::compare;

/// Some bytes of a key or value: of any length, and what looks like the end of an argument or like
/// a command is among them.
fn payload(random: &mut Random) -> Vec<u8> {
    let few: [&[u8]; 8] = [
        b"k",
        b"l",
        b"a key of 16 byte",
        b"a key of 16 bytf",
        b"\r\n",
        b"k\r\n$1\r\n",
        b"\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n",
        b"",
    ];
    let len = [8, 40, 70, 1030, 11_000][random.below(5).min(random.below(5))];
    match random.below(3) {
        0 => few[random.below(few.len())].to_vec(),
        1 => format!("key:{:012}", random.below(50)).into_bytes(),
        _ => {
            let byte = random.next().to_le_bytes()[0];
            vec![byte; random.below(len)]
        }
    }
}

/// Commands: `K` is a key, `V` a value. Those in front are drawn more often.
const COMMANDS: [&[&str]; 40] = [
    &["GET", "K"],
    &["GET", "K"],
    &["GET", "K"],
    &["SET", "K", "V"],
    &["SET", "K", "V"],
    &["DECR", "K"],
    &["INCR", "K"],
    &["get", "K"],
    &["DEL", "K"],
    &["EXISTS", "K"],
    &["SET", "K", "V", "EX", "10"],
    &["SET", "K", "V", "EX", "11"],
    &["SET", "K", "V", "NX"],
    &["SETNX", "K", "V"],
    &["SETEX", "K", "10", "V"],
    &["PSETEX", "K", "10", "V"],
    &["SETEX", "K", "0", "V"],
    &["INCRBY", "K", "5"],
    &["INCRBY", "K", "V"],
    &["INCREX", "K", "UBOUND", "9", "EX", "5"],
    &["STRLEN", "K"],
    &["GETRANGE", "K", "0", "3"],
    &["TTL", "K"],
    &["EXPIRE", "K", "10"],
    &["GETEX", "K"],
    &["GETEX", "K", "EX", "10"],
    &["DEL", "{k}1", "{k}2"],
    &["MGET", "{k}1", "{k}2"],
    &["APPEND", "K", "V"],
    &["GET", "K", "V"],
    &["PING"],
    &["MULTI"],
    &["EXEC"],
    &["NOPE", "K"],
    &["HELLO", "3"],
    &["READONLY"],
    &["RESET"],
    &["KV.OPTS", "token=0190b8a0-7c00-7000-8000-000000000001"],
    &["KV.OPTS", "level=none", "stale=5"],
    &["WAIT", "1", "0"],
];

/// A command. `odd` ones have wrong lengths now and then, and other bytes behind their arguments.
fn command(words: &[&str], odd: bool, random: &mut Random) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        let word = match *word {
            "K" | "V" => payload(random),
            word => word.as_bytes().to_vec(),
        };
        let (zero, more) = match random.below(80) {
            0 if odd => ("0", 0),
            1 if odd => ("", 1),
            _ => ("", 0),
        };
        bytes.extend(format!("${zero}{}\r\n", word.len() + more).bytes());
        bytes.extend(word);
        let end = if odd && random.below(50) == 0 {
            b"xy"
        } else {
            b"\r\n"
        };
        bytes.extend(end);
    }
    bytes
}

#[test]
fn commands_of_a_known_shape_are_taken_and_answered_as_by_the_parser() {
    let mut fewer_frames = 0;
    for seed in 0..300 {
        let mut random = Random(seed);
        let odd = random.below(3) == 0;
        // Few commands are long, so some of these are more than a connection may have unanswered.
        let (bytes, most) = match random.below(20) {
            0 => (400_000, 4),
            _ => (20_000, COMMANDS.len()),
        };
        let mut input = Vec::new();
        while input.len() < bytes {
            let words = COMMANDS[random.below(most).min(random.below(most))];
            for _ in 0..random.below(9) {
                let command = command(words, odd, &mut random);
                let times = [1, 1, 1, 2, 20][random.below(5)];
                input.extend(command.repeat(times));
            }
        }
        let cuts = (0..random.below(12)).map(|_| random.below(input.len()));
        let cuts = cuts.collect();
        let limits = Limits {
            frame_bytes_max: [24 << 10, 1 << 20][random.below(2)],
            ..Limits::default()
        };
        let [together, alone] = compare(&mut random, seed, &input, cuts, limits);
        fewer_frames += usize::from(together < alone);
    }
    assert!(fewer_frames > 200, "{fewer_frames}");
}
