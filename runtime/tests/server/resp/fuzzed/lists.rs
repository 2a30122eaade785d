//! Commands of lists by chance.

use super::chance::Chance;
use super::commands::{Words, key, member, number, place, range_ends};

/// A command of lists.
pub(super) fn of_lists(chance: &mut Chance) -> Words {
    let name = |name: &str| name.as_bytes().to_vec();
    let end = |chance: &mut Chance| -> Vec<u8> {
        match chance.below(20) {
            0 => chance.pick(&["left", "UP"]).into(),
            _ => chance.pick(&["LEFT", "RIGHT"]).into(),
        }
    };
    let count = |chance: &mut Chance| -> Vec<u8> {
        let all = ["0", "1", "2", "-1", "9", "-2", "x"];
        chance.pick(&all).into()
    };
    match chance.below(14) {
        0..=3 => {
            let all = ["RPUSH", "LPUSH", "RPUSH", "LPUSH", "RPUSHX", "LPUSHX"];
            let mut command = vec![name(chance.pick(&all)), key(chance)];
            for _ in 0..1 + chance.below(4) {
                command.push(element(chance));
            }
            command
        }
        4 => {
            let mut command = vec![name(chance.pick(&["LPOP", "RPOP"])), key(chance)];
            if chance.once_in(2) {
                command.push(count(chance));
            }
            command
        }
        5 => {
            let ends = range_ends(chance, "RANK");
            let command = chance.pick(&["LRANGE", "LRANGE", "LTRIM"]);
            [vec![name(command), key(chance)], ends].concat()
        }
        6 => vec![name("LLEN"), key(chance)],
        7 => vec![name("LINDEX"), key(chance), place(chance)],
        8 => vec![name("LSET"), key(chance), count(chance), element(chance)],
        9 => {
            let side = chance.pick(&["BEFORE", "AFTER", "after", "BESIDE"]);
            let pair = [element(chance), element(chance)];
            [
                vec![name("LINSERT"), key(chance), name(side)],
                pair.to_vec(),
            ]
            .concat()
        }
        10 => vec![name("LREM"), key(chance), count(chance), element(chance)],
        11 => {
            let mut command = vec![name("LPOS"), key(chance), element(chance)];
            while chance.once_in(2) {
                command.push(name(chance.pick(&["RANK", "COUNT", "MAXLEN", "rank"])));
                command.push(count(chance));
            }
            command
        }
        12 => match chance.once_in(3) {
            true => vec![name("RPOPLPUSH"), key(chance), key(chance)],
            false => {
                let keys = [name("LMOVE"), key(chance), key(chance)];
                [keys.to_vec(), vec![end(chance), end(chance)]].concat()
            }
        },
        _ => {
            let mut command = vec![name("LMPOP"), name("2"), key(chance), key(chance)];
            command.push(end(chance));
            if chance.once_in(2) {
                command.extend([name("COUNT"), count(chance)]);
            }
            command
        }
    }
}

/// An element of a list: seldom one of more than half a listpack.
fn element(chance: &mut Chance) -> Vec<u8> {
    match chance.below(30) {
        0 => vec![b'e'; [250, 260, 1000, 5000][chance.below(4)]],
        1..=6 => number(chance),
        _ => member(chance),
    }
}
