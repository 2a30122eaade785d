//! The second judge: per key, is there any order of the operations that agrees with real time and
//! with every answer? Asked of a checker that is not ours (`todc-utils`: Wing and Gong 1993 as
//! improved by Lowe 2017) with a specification of one key in a dozen lines.

use penstock_net::level::AckLevel;
use penstock_net::request::Expiry;
use penstock_net::status::Status;
use todc_utils::linearizability::WGLChecker;
use todc_utils::linearizability::history::{Action, History};
use todc_utils::specifications::Specification;

use crate::operation::Operation;
use crate::oracle::{Key, Oracle, Record, State};

/// Operations on a key at the same time, those of unknown outcome included: each may double the
/// search.
const OVERLAP_MAX: usize = 9;
/// Operations on a key that is still checked.
const OPERATIONS_MAX: usize = 400;

#[derive(Clone, Debug)]
struct Call {
    record: Record,
}

/// One key: who wrote its value, and the units in it if it is a counter.
struct OneKey;

impl Specification for OneKey {
    type State = Option<(usize, u64)>;
    type Operation = Call;

    fn init() -> Self::State {
        None
    }

    fn apply(call: &Call, state: &Self::State) -> (bool, Self::State) {
        let plan = &call.record.plan;
        let name = call.record.name;
        let put = Some((name, plan.stock));
        let State::Answered(status) = call.record.state else {
            // Whatever it would have done, if it was done at all.
            return match plan.operation {
                Operation::Set => (true, put),
                Operation::SetAbsent if state.is_none() => (true, put),
                Operation::SetPresent | Operation::SetVersion if state.is_some() => (true, put),
                Operation::Del | Operation::DelVersion => (true, None),
                Operation::Take | Operation::TakeOrMake => match *state {
                    Some((_, units)) if units >= plan.units => {
                        (true, Some((name, units - plan.units)))
                    }
                    None if plan.operation == Operation::TakeOrMake => {
                        (true, Some((name, plan.stock - plan.units)))
                    }
                    _ => (true, *state),
                },
                Operation::CheckOrMake if state.is_none() => (true, put),
                _ => (true, *state),
            };
        };
        let after = Some((name, call.record.after[0]));
        match (plan.operation, status) {
            (_, Status::NotFound) => (state.is_none(), None),
            (Operation::Get | Operation::GetExpiry, _) => (*state == call.record.seen, *state),
            (_, Status::Exists) => (state.is_some(), *state),
            (_, Status::VersionMismatch) => (state.is_some(), *state),
            (_, Status::GuardFailed) => {
                (state.is_some_and(|(_, units)| units < plan.units), *state)
            }
            (Operation::CheckOrMake, _) => (true, state.or(put)),
            (Operation::Set, _) => (true, put),
            (Operation::SetAbsent, _) => (state.is_none(), put),
            (Operation::SetPresent | Operation::SetVersion, _) => (state.is_some(), put),
            (Operation::Del | Operation::DelVersion, _) => (state.is_some(), None),
            (Operation::Take, _) => (
                state.is_some_and(|(_, units)| {
                    units.checked_sub(plan.units) == Some(call.record.after[0])
                }),
                after,
            ),
            (Operation::TakeOrMake, _) => (
                state.map_or(Some(plan.stock - plan.units), |(_, units)| {
                    units.checked_sub(plan.units)
                }) == Some(call.record.after[0]),
                after,
            ),
            _ => (true, *state),
        }
    }
}

/// Checks the keys that are strict and small enough; how many were.
///
/// # Errors
/// The key whose answers no order explains.
pub fn check(oracle: &Oracle) -> Result<u64, String> {
    let mut checked = 0;
    for (number, key) in oracle
        .keys
        .iter()
        .enumerate()
        .filter(|(_, key)| key.is_strict)
    {
        let Some(history) = history_of(oracle, key) else {
            continue;
        };
        checked += 1;
        if !WGLChecker::<OneKey>::is_linearizable(history) {
            return Err(format!(
                "no order of the operations on key {number} explains their answers"
            ));
        }
    }
    Ok(checked)
}

fn history_of(oracle: &Oracle, key: &Key) -> Option<History<Call>> {
    let mut events = Vec::new();
    for &number in &key.history {
        let record = &oracle.records[number];
        if record.plan.operation.is_past() {
            continue;
        }
        // Time alone changes a key that can expire; the first judge sees to those.
        let can_expire = matches!(record.plan.expiry, Expiry::At(_) | Expiry::In(_))
            || record.plan.operation == Operation::Persist;
        if record.plan.level < AckLevel::Disk || can_expire {
            return None;
        }
        let is_read = matches!(
            record.plan.operation,
            Operation::Get | Operation::GetExpiry | Operation::Check
        );
        match record.state {
            State::Answered(_) if record.plan.operation == Operation::TakeAndFail => continue,
            State::Answered(_) => {}
            // What was refused or only read changes nothing, seen or not.
            State::Refused(_) => continue,
            State::Pending | State::Unknown if is_read => continue,
            State::Pending | State::Unknown if record.plan.operation == Operation::TakeAndFail => {
                continue;
            }
            State::Pending | State::Unknown => {}
        }
        let call = Call {
            record: record.clone(),
        };
        events.push((record.issued, number, true, call.clone()));
        events.push((record.answered, number, false, call));
    }
    if events.is_empty() || events.len() > 2 * OPERATIONS_MAX {
        return None;
    }
    events.sort_by_key(|&(at, number, is_call, _)| (at, !is_call, number));
    let mut overlap = 0_usize;
    for &(_, _, is_call, _) in &events {
        overlap = if is_call { overlap + 1 } else { overlap - 1 };
        if overlap > OVERLAP_MAX {
            return None;
        }
    }
    let mut processes: Vec<usize> = events.iter().map(|&(_, number, ..)| number).collect();
    processes.sort_unstable();
    processes.dedup();
    let actions = events
        .into_iter()
        .map(|(_, number, is_call, call)| {
            let process = processes.binary_search(&number).expect("it is in the list");
            let action = if is_call {
                Action::Call(call)
            } else {
                Action::Response(call)
            };
            (process, action)
        })
        .collect();
    Some(History::from_actions(actions))
}
