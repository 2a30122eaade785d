//! What an instruction of APPLY says, as JSON.

use penstock_net::apply::{
    Action, ApplyInstruction, Arithmetic, BitTest, Comparison, NumberAt, Operand,
};
use serde_json::{Value, json};

pub fn of_apply(instruction: ApplyInstruction) -> Value {
    let (mut at, mut operand, mut version) = (None, None, Value::Null);
    let (mut data, mut rate, mut effects) = (Value::Null, Value::Null, Value::Null);
    let operation = match instruction.action {
        Action::Exists => "EXISTS",
        Action::Absent => "ABSENT",
        Action::Version(is) => {
            version = super::version(is);
            "VERSION"
        }
        Action::AbsentSince(newest) => {
            version = super::version(newest);
            "ABSENT_SINCE"
        }
        Action::Before(time) => {
            operand = Some(time);
            "BEFORE"
        }
        Action::Since(time) => {
            operand = Some(time);
            "SINCE"
        }
        Action::Compare(comparison, number, other) => {
            (at, operand) = (Some(number), Some(other));
            sign(comparison)
        }
        Action::Bits(test, number, bits) => {
            (at, operand) = (Some(number), Some(bits));
            match test {
                BitTest::All => "ALL_BITS",
                BitTest::Any => "ANY_BIT",
                BitTest::None => "NO_BITS",
            }
        }
        Action::Change(change, number, by) => {
            (at, operand) = (Some(number), Some(by));
            effect(change)
        }
        Action::Put { start, len } => {
            data = json!({"start": start, "length": len});
            "PUT"
        }
        Action::Start { start, len } => {
            data = json!({"start": start, "length": len});
            "START"
        }
        Action::Replace { start, len } => {
            data = json!({"start": start, "length": len});
            "REPLACE"
        }
        Action::PutHead { .. } | Action::ReplaceHead { .. } => {
            unreachable!("no vector is of the server itself")
        }
        Action::Delete => "DEL",
        Action::Expire(time) => {
            operand = Some(time);
            "EXPIRE"
        }
        Action::Rate(number, is) => {
            at = Some(number);
            rate = json!({
                "interval_us": is.interval_us.to_string(),
                "burst": is.burst,
                "quantity": is.quantity,
            });
            "RATE"
        }
        Action::Return(number) => {
            at = Some(number);
            "RETURN"
        }
        Action::OnExpire { effects: count } => {
            effects = json!(count);
            "ON_EXPIRE"
        }
    };
    let mut fields = json!({
        "operation": operation,
        "key": instruction.key,
        "reason": instruction.reason,
        "number": at.map(number),
        "operand": operand.map(operand_json),
        "version": version,
        "data": data,
        "rate": rate,
    });
    if !effects.is_null() {
        fields["effects"] = effects;
    }
    fields
}

fn number(at: NumberAt) -> Value {
    json!({"type": at.kind().name(), "offset": at.offset()})
}

fn operand_json(operand: Operand) -> Value {
    match operand {
        Operand::Immediate(bits) => json!({"immediate": bits.to_string()}),
        Operand::Now { plus_ms } => json!({"now_plus_ms": plus_ms.to_string()}),
        Operand::Field { key, at } => json!({"key": key, "number": number(at)}),
    }
}

fn sign(comparison: Comparison) -> &'static str {
    match comparison {
        Comparison::Eq => "=",
        Comparison::Ne => "!=",
        Comparison::Lt => "<",
        Comparison::Le => "<=",
        Comparison::Gt => ">",
        Comparison::Ge => ">=",
    }
}

fn effect(change: Arithmetic) -> &'static str {
    match change {
        Arithmetic::Set => "set",
        Arithmetic::Add => "add",
        Arithmetic::Sub => "subtract",
        Arithmetic::AddSaturating => "add up to the border",
        Arithmetic::SubSaturating => "subtract down to the border",
        Arithmetic::Min => "min",
        Arithmetic::Max => "max",
        Arithmetic::And => "and",
        Arithmetic::Or => "or",
        Arithmetic::Xor => "xor",
    }
}
