//! Whether what buyers and readers were answered can have come of one writer at a time.
//!
//! A stock is a register with versions. The versions of its writes rise in real time, and no read
//! shows less than what was answered before it was asked for. What nodes could not keep is left
//! out at level disk: it stands in lostfound, and nothing of level replica may.

use std::collections::BTreeSet;
use std::time::Duration;

use penstock_net::level::AckLevel;
use penstock_net::request::Version;

use super::trade::{Step, level_of, stock};
use crate::ledger::{Lost, Shown};
use crate::sales::STOCK_INITIAL;

/// What was found of one stock.
#[derive(Default)]
pub struct Verdict {
    /// Purchases that were answered.
    pub acked: u64,
    /// Of these, how many are in lostfound.
    pub lost: u64,
}

/// Judges one stock.
///
/// # Errors
/// What cannot be, in words.
pub fn judge(number: usize, steps: &[Step], shown: &Shown, lost: &Lost) -> Result<Verdict, String> {
    let key = stock(number);
    let name = key.escape_ascii().to_string();
    let is_lost = |version: Version| lost.contains_key(&(key.clone(), version));
    let of_stock = || steps.iter().filter(|it| it.stock == number);
    let mut bought = BTreeSet::new();
    for step in of_stock().filter(|it| it.left.is_none()) {
        if !bought.insert(step.version) {
            return Err(format!("{name}: {:?} was bought twice", step.version));
        }
    }
    let acked = bought.len() as u64;
    bought.retain(|version| !is_lost(*version));
    let verdict = Verdict {
        acked,
        lost: acked - bought.len() as u64,
    };
    if verdict.lost > 0 && level_of(number) >= AckLevel::Replica {
        return Err(format!(
            "{name}: {} purchases are in lostfound",
            verdict.lost
        ));
    }
    let there = shown.get(&key).ok_or(format!("{name} is gone"))?;
    let left = there.1[..].try_into().map(u64::from_le_bytes);
    let left = left.map_err(|_| format!("{name} is no number"))?;
    if STOCK_INITIAL - left != bought.len() as u64 {
        return Err(format!(
            "{name}: {} pieces are taken, {} purchases were answered, {} of them are in lostfound",
            STOCK_INITIAL.wrapping_sub(left),
            verdict.acked,
            verdict.lost
        ));
    }
    let mut kept: Vec<Step> = of_stock()
        .filter(|it| !is_lost(it.version))
        .copied()
        .collect();
    in_real_time(&mut kept).map_err(|text| format!("{name}: {text}"))?;
    // Each read shows what was bought up to its version.
    let sold: Vec<Version> = bought.into_iter().collect();
    for step in &kept {
        let Some(left) = step.left else { continue };
        let up_to = sold.partition_point(|version| *version <= step.version) as u64;
        if STOCK_INITIAL - left != up_to {
            return Err(format!(
                "{name}: {step} shows {} taken, {up_to} were",
                STOCK_INITIAL.wrapping_sub(left)
            ));
        }
    }
    Ok(verdict)
}

/// No step shows less than what was answered before it was asked; a write shows more.
fn in_real_time(steps: &mut [Step]) -> Result<(), String> {
    steps.sort_by_key(|it| it.answered);
    let mut newest: Vec<(Duration, Step)> = Vec::with_capacity(steps.len());
    for step in steps.iter() {
        let before = newest.last().map(|(_, it)| *it);
        let now = before
            .filter(|it| it.version >= step.version)
            .unwrap_or(*step);
        newest.push((step.answered, now));
    }
    for step in steps.iter() {
        let count = newest.partition_point(|(answered, _)| *answered < step.asked);
        let Some((_, floor)) = count.checked_sub(1).map(|at| newest[at]) else {
            continue;
        };
        let is_right = match step.left {
            Some(_) => step.version >= floor.version,
            None => step.version > floor.version,
        };
        if !is_right {
            return Err(format!("{step} is older than {floor}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: usize = 0;

    fn step(asked: u64, answered: u64, sequence: u64, left: Option<u64>) -> Step {
        Step {
            stock: AT,
            node: None,
            asked: Duration::from_millis(asked),
            answered: Duration::from_millis(answered),
            version: Version { epoch: 1, sequence },
            left: left.map(|taken| STOCK_INITIAL - taken),
        }
    }

    fn shown(taken: u64) -> Shown {
        let left = (STOCK_INITIAL - taken).to_le_bytes().to_vec();
        Shown::from([(stock(AT), (Version::default(), left))])
    }

    fn judged(steps: &[Step], taken: u64) -> Result<u64, String> {
        judge(AT, steps, &shown(taken), &Lost::new()).map(|it| it.acked)
    }

    #[test]
    fn purchases_and_reads_that_overlap_may_come_in_any_order() {
        let steps = [
            step(0, 9, 3, None),
            step(0, 9, 2, None),
            step(1, 8, 1, Some(0)),
            step(1, 3, 3, Some(2)),
        ];
        assert_eq!(judged(&steps, 2), Ok(2));
    }

    #[test]
    fn a_read_that_shows_less_than_was_answered_before_it_was_asked_is_found() {
        let steps = [step(0, 1, 2, None), step(2, 3, 1, Some(0))];
        assert!(judged(&steps, 1).is_err_and(|text| text.contains("is older than")));
    }

    #[test]
    fn a_purchase_of_a_writer_that_was_replaced_is_found() {
        let mut newer = step(0, 1, 1, None);
        newer.version.epoch = 2;
        let steps = [newer, step(2, 3, 9, None)];
        assert!(judged(&steps, 2).is_err_and(|text| text.contains("is older than")));
    }

    #[test]
    fn one_piece_that_is_taken_for_nobody_is_found() {
        assert!(judged(&[step(0, 1, 2, None)], 2).is_err());
        assert!(judged(&[step(0, 1, 2, None), step(0, 1, 2, None)], 2).is_err());
    }

    #[test]
    fn what_is_in_lostfound_is_lost_at_level_disk_alone() {
        let lost = |number| Lost::from([((stock(number), step(0, 1, 5, None).version), None)]);
        let steps = [step(0, 1, 5, None)];
        assert!(judge(AT, &steps, &shown(0), &lost(AT)).is_err());
        let at = super::super::trade::STOCKS - 1;
        let steps = steps.map(|it| Step { stock: at, ..it });
        let left = STOCK_INITIAL.to_le_bytes().to_vec();
        let shown = Shown::from([(stock(at), (Version::default(), left))]);
        let verdict = judge(at, &steps, &shown, &lost(at)).expect("level disk");
        assert_eq!((verdict.acked, verdict.lost), (1, 1));
    }
}
