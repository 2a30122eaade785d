//! The command of a name.

use super::{COMMANDS, Command};

/// Bytes of a name, at most.
const NAME_BYTES_MAX: usize = 16;

/// The names as numbers, which are in the order of the names.
const NAMES: [u128; COMMANDS.len()] = {
    let mut names = [0; COMMANDS.len()];
    let mut place = 0;
    while place < names.len() {
        let (name, mut bytes) = (COMMANDS[place].name.as_bytes(), [0; NAME_BYTES_MAX]);
        let (into, _) = bytes.split_at_mut(name.len());
        into.copy_from_slice(name);
        names[place] = u128::from_be_bytes(bytes);
        place += 1;
    }
    names
};

/// The command of a name in letters of any size.
#[inline]
#[must_use]
pub fn find(name: &[u8]) -> Option<&'static Command> {
    let mut small = [0; NAME_BYTES_MAX];
    small.get_mut(..name.len())?.copy_from_slice(name);
    small.make_ascii_lowercase();
    let place = NAMES.binary_search(&u128::from_be_bytes(small)).ok()?;
    let command = &COMMANDS[place];
    // A zero at the end of a name is as no byte.
    (command.name.len() == name.len()).then_some(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_in_order_and_each_is_found_by_its_name() {
        assert!(COMMANDS.is_sorted_by(|one, other| one.name < other.name));
        for command in COMMANDS {
            assert!(command.name.len() <= NAME_BYTES_MAX);
            let found = find(command.name.to_ascii_uppercase().as_bytes()).expect("is there");
            assert_eq!(found.name, command.name);
            assert_eq!(found.id, command.id);
        }
        for name in ["", "ge", "gets", "get\0", "\0", "zzz", "a name of 17 bytes"] {
            assert!(find(name.as_bytes()).is_none(), "{name:?}");
        }
        assert!(find(b"monitor").is_none() && find(b"").is_none() && find(&[b'a'; 99]).is_none());
    }
}
