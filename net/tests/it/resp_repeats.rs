//! Commands that repeat the one before them, beside the same commands one at a time.

use penstock_net::limits::Limits;

use crate::Random;
use crate::resp_sides::compare;

/// Some commands, most of them several times.
fn commands(random: &mut Random) -> Vec<Vec<u8>> {
    let token = "token=0190b8a0-7c00-7000-8000-000000000001";
    let all: [&[&str]; 26] = [
        &["DECR", "k"],
        &["DECR", "k"],
        &["INCR", "another key that is long"],
        &["INCRBY", "k", "5"],
        &["INCRBY", "k", "6"],
        &["INCRBY", "k", "no number"],
        &["GET", "k"],
        &["GET", "l"],
        &["SET", "k", "v"],
        &["SET", "k", "v", "NX"],
        &["SETNX", "k", "v"],
        &["INCREX", "k", "UBOUND", "9"],
        &["TTL", "k"],
        &["EXPIRE", "k", "10"],
        &["DEL", "{k}1", "{k}2"],
        &["MGET", "{k}1", "{k}2"],
        &["APPEND", "k", "more"],
        &["PING"],
        &["MULTI"],
        &["EXEC"],
        &["NOPE"],
        &["HELLO", "3"],
        &["READONLY"],
        &["KV.OPTS", token],
        &["KV.OPTS", "level=none"],
        &["WAIT", "1", "0"],
    ];
    let mut commands = Vec::new();
    for _ in 0..12 {
        let words = all[random.below(all.len()).min(random.below(all.len()))];
        let bytes = match words {
            // An inline command.
            ["DECR", key] if random.below(4) == 0 => format!("decr {key}\r\n").into_bytes(),
            words => {
                let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
                for word in words {
                    bytes.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
                }
                bytes
            }
        };
        let times = [1, 2, 9, 40, 1500][random.below(5).min(random.below(5))];
        commands.extend(std::iter::repeat_n(bytes, times));
    }
    commands
}

#[test]
fn commands_that_repeat_the_one_before_are_taken_and_answered_as_each_by_itself() {
    let mut fewer_frames = 0;
    for seed in 0..50 {
        let mut random = Random(seed);
        let input = commands(&mut random).concat();
        let limits = Limits {
            frame_bytes_max: [24 << 10, 1 << 20][random.below(2)],
            ..Limits::default()
        };
        let [together, alone] = compare(&mut random, seed, &input, Vec::new(), limits);
        fewer_frames += usize::from(together < alone);
    }
    assert!(fewer_frames > 35, "{fewer_frames}");
}
