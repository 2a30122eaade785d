//! The byte of flags in the head of an item.

use crate::batch::read_u64;
use crate::limits::EXPIRY_MS_MAX;
use crate::refusal::Refusal;
use crate::request::terms::{Condition, Expiry, Wanted, When};
use crate::version::Version;

pub(super) const ABSENT: u8 = 0x01;
pub(super) const PRESENT: u8 = 0x02;
pub(super) const VERSION: u8 = 0x04;
/// The bits of a condition. At most one of them is set.
pub(super) const CONDITION_BITS: u8 = ABSENT | PRESENT | VERSION;
/// For SET and DEL with a condition: show the value if the condition fails.
pub(super) const SHOW: u8 = 0x08;
pub(super) const START: u8 = 0x10;
/// For KEYSPACE. Without any of these flags it sets, with [`ABSENT`] it creates.
pub(super) const KEYSPACE_DROP: u8 = 0x02;
pub(super) const KEYSPACE_LIST: u8 = 0x04;
/// The two bits of the expiry.
pub(super) const EXPIRY_BITS: u8 = 0x60;
pub(super) const EXPIRY_AT: u8 = 0x20;
pub(super) const EXPIRY_IN: u8 = 0x40;
/// The opposite of the verb's default: SET keeps the expiry, UPDATE_IF removes it.
pub(super) const EXPIRY_OTHER: u8 = 0x60;
/// For GET: the value and the expiry, or the expiry alone.
const WITH_EXPIRY: u8 = 0x20;
const EXPIRY_ALONE: u8 = 0x40;
/// For GET: beside the expiry, whether effects run then.
pub(super) const EFFECTS: u8 = 0x80;

/// The flags of a condition. KEYSPACE has other meanings for them.
pub(super) fn of_condition(flags: u8) -> u8 {
    flags & CONDITION_BITS
}

/// The expiry that flags and the field of a time say, for a verb with this default.
pub(super) fn read_expiry(
    flags: u8,
    field: Option<&[u8]>,
    default: Expiry,
) -> Result<Expiry, Refusal> {
    let Some(field) = field else {
        // Without flags SET ends an expiry, and UPDATE_IF keeps it.
        let is_default = flags & EXPIRY_BITS == 0;
        return Ok(match (default == Expiry::Keep) == is_default {
            true => Expiry::Keep,
            false => Expiry::Never,
        });
    };
    let ms = read_u64(field, 0);
    if !(1..=EXPIRY_MS_MAX).contains(&ms) {
        return Err(Refusal::Expiry(ms));
    }
    Ok(match flags & EXPIRY_BITS {
        EXPIRY_AT => Expiry::At(ms),
        _ => Expiry::In(ms),
    })
}

/// Whether flags ask for effects without the value and the expiry beside which they are told.
pub(super) fn asks_effects_alone(flags: u8) -> bool {
    flags & EFFECTS != 0 && flags & EXPIRY_BITS != WITH_EXPIRY
}

/// What the flags of a GET want.
pub(super) fn read_wanted(flags: u8) -> Wanted {
    match flags & EXPIRY_BITS {
        WITH_EXPIRY if flags & EFFECTS != 0 => Wanted::ValueExpiryAndEffects,
        WITH_EXPIRY => Wanted::ValueAndExpiry,
        EXPIRY_ALONE => Wanted::Expiry,
        _ => Wanted::Value,
    }
}

/// The flags and the field of a condition. A change without a condition has nothing to show.
pub(super) fn when(when: When) -> (u8, Option<Version>) {
    let (flags, version) = match when.condition {
        Condition::Always => return (0, None),
        Condition::Absent => (ABSENT, None),
        Condition::Present => (PRESENT, None),
        Condition::Version(version) => (VERSION, Some(version)),
    };
    match when.shows {
        true => (flags | SHOW, version),
        false => (flags, version),
    }
}

/// The flags of what a GET wants.
pub(super) fn wanted(wanted: Wanted) -> u8 {
    match wanted {
        Wanted::Value => 0,
        Wanted::ValueAndExpiry => WITH_EXPIRY,
        Wanted::ValueExpiryAndEffects => WITH_EXPIRY | EFFECTS,
        Wanted::Expiry => EXPIRY_ALONE,
    }
}

/// The flags and the field of an expiry, for a verb with this default.
pub(super) fn expiry(expiry: Expiry, default: Expiry) -> (u8, Option<u64>) {
    match expiry {
        Expiry::At(ms) => (EXPIRY_AT, Some(ms)),
        Expiry::In(ms) => (EXPIRY_IN, Some(ms)),
        _ if expiry == default => (0, None),
        Expiry::Never | Expiry::Keep => (EXPIRY_OTHER, None),
    }
}
