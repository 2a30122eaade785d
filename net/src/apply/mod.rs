//! APPLY: guards and effects on keys of a slot, all of them or none.
//!
//! An item is read as a view ([`ApplyRequest`]). [`run`] decides what it does: the keys as they are
//! and the time come in by arguments, and nothing but the staged values of [`ApplyKeys`] changes.

mod addition;
mod builder;
mod decimal;
mod denied;
mod instruction;
mod number;
mod rate;
mod request;
mod run;

pub use addition::Addition;
pub(crate) use addition::may_repeat_addition;
pub use builder::{Apply, ApplyField, ApplyKey};
pub(crate) use decimal::write_decimal;
pub use decimal::{DECIMAL_BYTES_MAX, Decimal};
pub use denied::{DeniedApply, may_repeat_denied};
pub use instruction::{Action, ApplyInstruction, Arithmetic, BitTest, Comparison, Operand};
pub use number::{NumberAt, NumberKind};
pub use rate::{Rate, TooEarly};
pub use request::{
    APPLY, ApplyRequest, Effects, InstructionsOfFields, Keys, Terms, apply_has_many_keys,
    write_apply,
};
pub use run::{ApplyKeys, Cause, Denial, run};
