//! The type of the value that a key has.

use crate::resp::key_state::KeyState;

use super::head::MemberType;

/// Whether a key has a value of another type than this.
pub(in crate::resp) fn has_other(state: &KeyState, of: MemberType) -> bool {
    let of_members = state.members().map(MemberType::of);
    state.plain().is_some() || of_members.is_some_and(|it| it != Some(of))
}
