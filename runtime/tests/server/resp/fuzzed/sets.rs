//! Commands of sets by chance.

use super::chance::Chance;
use super::commands::{PATTERNS, Words, key, keys_of, member, number};

/// A member of a set: of most an integer, so that many sets are of integers alone.
fn set_member(chance: &mut Chance) -> Vec<u8> {
    match chance.below(24) {
        0 => vec![b'm'; [63, 64, 65][chance.below(3)]],
        1 => number(chance),
        2..=6 => member(chance),
        7..=9 => chance.pick(&["-1", "-2", "-30"]).into(),
        _ => chance.below(9).to_string().into_bytes(),
    }
}

fn set_members(chance: &mut Chance) -> Words {
    let count = match chance.below(24) {
        // More than Redis keeps in a list, or as integers.
        0 => [127, 128, 129, 510, 513][chance.below(5)],
        _ => {
            return (0..1 + chance.below(4))
                .map(|_| set_member(chance))
                .collect();
        }
    };
    let is_of_integers = chance.once_in(2);
    let name = |number: usize| match is_of_integers {
        true => number.to_string().into_bytes(),
        false => format!("m{number}").into_bytes(),
    };
    (0..count).map(name).collect()
}

/// A command of sets. What is picked by chance is all or nothing.
pub(super) fn of_sets(chance: &mut Chance) -> Words {
    let name = |name: &str| name.as_bytes().to_vec();
    match chance.below(16) {
        0..=4 => [vec![name("SADD"), key(chance)], set_members(chance)].concat(),
        5 => [vec![name("SREM"), key(chance)], set_members(chance)].concat(),
        6 => {
            let command = chance.pick(&["SMEMBERS", "SCARD", "SMEMBERS"]);
            vec![name(command), key(chance)]
        }
        7 => match chance.below(2) {
            0 => vec![name("SISMEMBER"), key(chance), set_member(chance)],
            _ => [vec![name("SMISMEMBER"), key(chance)], set_members(chance)].concat(),
        },
        8 => vec![name("SMOVE"), key(chance), key(chance), set_member(chance)],
        9 => {
            let command = chance.pick(&["SPOP", "SRANDMEMBER", "SRANDMEMBER"]);
            let count = chance.pick(&["999", "0", "x", "999"]);
            vec![name(command), key(chance), name(count)]
        }
        10 | 11 => {
            let command = chance.pick(&["SUNION", "SINTER", "SDIFF"]);
            keys_of(chance, command.as_bytes())
        }
        12 | 13 => {
            let command = chance.pick(&["SUNIONSTORE", "SINTERSTORE", "SDIFFSTORE"]);
            let mut command = keys_of(chance, command.as_bytes());
            command.push(key(chance));
            command
        }
        14 => {
            let mut command = vec![name("SINTERCARD"), name("2"), key(chance), key(chance)];
            if chance.once_in(2) {
                command.extend([name("LIMIT"), chance.pick(&["0", "1", "-1"]).into()]);
            }
            command
        }
        _ => {
            // One page of Redis, too.
            let mut command: Words = vec![name("SSCAN"), key(chance), name("0")];
            command.extend([name("COUNT"), name("1000")]);
            if chance.once_in(2) {
                command.extend([name("MATCH"), chance.pick(&PATTERNS).to_vec()]);
            }
            command
        }
    }
}
