//! Whether some order of steps agrees with lists that only grow, with what was read of them, and
//! with real time: the steps and what must stand before what make a graph without a circle
//! (Kingsbury, Alvaro, "Elle: inferring isolation anomalies from experimental observations", 2020).

use std::collections::BTreeMap;

#[derive(Debug)]
struct Step {
    begin_us: u64,
    end_us: u64,
    /// What must stand behind it.
    behind: Vec<usize>,
    /// How many must stand before it and do not yet.
    before: usize,
}

/// Steps, by number, and what must stand before what.
#[derive(Debug, Default)]
pub(super) struct Order {
    steps: BTreeMap<usize, Step>,
}

impl Order {
    /// A step that was asked for and answered then.
    pub(super) fn add(&mut self, number: usize, begin_us: u64, end_us: u64) {
        let step = Step {
            begin_us,
            end_us,
            behind: Vec::new(),
            before: 0,
        };
        self.steps.insert(number, step);
    }

    fn before(&mut self, one: usize, other: usize) {
        if one == other {
            return;
        }
        self.steps.get_mut(&one).expect("a step").behind.push(other);
        self.steps.get_mut(&other).expect("a step").before += 1;
    }

    /// These have appended to one list, in this order.
    pub(super) fn follow(&mut self, names: &[usize]) {
        for two in names.windows(2) {
            self.before(two[0], two[1]);
        }
    }

    /// A step has read the first `count` of these.
    pub(super) fn reads(&mut self, number: usize, names: &[usize], count: usize) {
        if let Some(last) = count.checked_sub(1).and_then(|at| names.get(at)) {
            self.before(*last, number);
        }
        if let Some(next) = names.get(count) {
            self.before(number, *next);
        }
    }

    /// Whether there is such an order.
    ///
    /// # Errors
    /// Steps that have none.
    pub(super) fn judge(mut self) -> Result<(), Vec<usize>> {
        let times: Vec<(usize, u64, u64)> = self
            .steps
            .iter()
            .map(|(number, step)| (*number, step.begin_us, step.end_us))
            .collect();
        for &(one, _, end_us) in &times {
            for &(other, begin_us, _) in &times {
                if end_us < begin_us {
                    self.before(one, other);
                }
            }
        }
        let is_free = |(number, step): (&usize, &Step)| (step.before == 0).then_some(*number);
        let mut free: Vec<usize> = self.steps.iter().filter_map(is_free).collect();
        while let Some(number) = free.pop() {
            let step = self.steps.remove(&number).expect("it is free once");
            for behind in step.behind {
                let step = self.steps.get_mut(&behind).expect("it waits for this one");
                step.before -= 1;
                if step.before == 0 {
                    free.push(behind);
                }
            }
        }
        match self.steps.is_empty() {
            true => Ok(()),
            false => Err(self.steps.into_keys().collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(times: &[(u64, u64)]) -> Order {
        let mut order = Order::default();
        for (number, &(begin_us, end_us)) in times.iter().enumerate() {
            order.add(number, begin_us, end_us);
        }
        order
    }

    #[test]
    fn a_read_of_what_was_answered_shows_it() {
        let mut shows = order(&[(0, 10), (20, 30)]);
        shows.follow(&[0]);
        shows.reads(1, &[0], 1);
        assert_eq!(shows.judge(), Ok(()));
        let mut misses = order(&[(0, 10), (20, 30)]);
        misses.follow(&[0]);
        misses.reads(1, &[0], 0);
        assert!(misses.judge().is_err());
        let mut beside = order(&[(0, 20), (20, 30)]);
        beside.reads(1, &[0], 0);
        assert_eq!(beside.judge(), Ok(()));
    }

    #[test]
    fn two_that_each_overlook_the_other_have_no_order() {
        let mut skew = order(&[(0, 10), (0, 10)]);
        skew.reads(0, &[1], 0);
        assert_eq!(order(&[(0, 10), (0, 10)]).judge(), Ok(()));
        skew.reads(1, &[0], 0);
        assert!(skew.judge().is_err());
    }

    #[test]
    fn lists_in_two_orders_have_none() {
        let mut lists = order(&[(0, 10), (0, 10)]);
        lists.follow(&[0, 1]);
        lists.follow(&[1, 0]);
        assert!(lists.judge().is_err());
    }
}
