//! Handshakes under way on one core: how many there are, and how much of a turn they take.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use super::signal::Signal;

/// Steps of handshakes in one turn, at most. A step may cost a signature.
const STEPS_PER_TURN: u32 = 1;

/// The handshakes of one core.
pub(super) struct Handshakes {
    places: u32,
    under_way: Cell<u32>,
    /// Steps that this turn has left.
    steps: Cell<u32>,
    /// Those that wait for a step, the first one first.
    waiting: RefCell<VecDeque<Rc<Signal>>>,
}

impl Handshakes {
    /// So many may be under way.
    pub(super) fn new(places: u32) -> Self {
        Handshakes {
            places,
            under_way: Cell::default(),
            steps: Cell::default(),
            waiting: RefCell::default(),
        }
    }

    /// Takes a place. `None` if there are as many as there may be.
    pub(super) fn begin(&self) -> Option<()> {
        let under_way = self.under_way.get();
        (under_way < self.places).then(|| self.under_way.set(under_way + 1))
    }

    /// Gives the place back.
    pub(super) fn end(&self) {
        self.under_way.set(self.under_way.get() - 1);
    }

    /// A turn has ended: the next one may do some steps.
    pub(super) fn turn_ended(&self) {
        self.steps.set(STEPS_PER_TURN);
        let mut waiting = self.waiting.borrow_mut();
        while self.steps.get() > 0
            && let Some(first) = waiting.pop_front()
        {
            self.steps.set(self.steps.get() - 1);
            first.set();
        }
    }

    /// Waits until a step may be done. `turn` makes a turn due.
    pub(super) async fn step(&self, turn: &Signal) {
        // The turn that is due permits the next step.
        turn.set();
        if self.steps.get() > 0 && self.waiting.borrow().is_empty() {
            self.steps.set(self.steps.get() - 1);
            return;
        }
        let place = Place {
            handshakes: self,
            turn,
            signal: Rc::default(),
        };
        self.waiting
            .borrow_mut()
            .push_back(Rc::clone(&place.signal));
        place.signal.wait().await;
    }
}

/// A place in the queue, which is given up when the handshake is.
struct Place<'a> {
    handshakes: &'a Handshakes,
    turn: &'a Signal,
    signal: Rc<Signal>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut waiting = self.handshakes.waiting.borrow_mut();
        waiting.retain(|it| !Rc::ptr_eq(it, &self.signal));
        // The step of this one may have been granted, and the next one waits for its turn.
        self.turn.set();
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::task::{Context, Waker};

    use super::*;

    fn is_done(step: Pin<&mut impl Future<Output = ()>>) -> bool {
        step.poll(&mut Context::from_waker(Waker::noop()))
            .is_ready()
    }

    #[test]
    fn a_core_has_so_many_places_and_no_more() {
        let handshakes = Handshakes::new(256);
        assert_eq!((0..300).filter_map(|_| handshakes.begin()).count(), 256);
        handshakes.end();
        assert!(handshakes.begin().is_some() && handshakes.begin().is_none());
    }

    #[test]
    fn each_turn_permits_one_step_to_the_first_that_waits_and_one_that_gave_up_takes_none() {
        let (handshakes, turn) = (Handshakes::new(256), Signal::default());
        let mut first = pin!(handshakes.step(&turn));
        let mut second = Box::pin(handshakes.step(&turn));
        let mut third = pin!(handshakes.step(&turn));
        assert!(!is_done(first.as_mut()) && !is_done(second.as_mut()) && !is_done(third.as_mut()));
        handshakes.turn_ended();
        assert!(!is_done(third.as_mut()) && !is_done(second.as_mut()) && is_done(first.as_mut()));
        drop(second);
        handshakes.turn_ended();
        assert!(is_done(third.as_mut()));
        // Nobody waits: the next turn has a step for who comes.
        handshakes.turn_ended();
        assert!(is_done(pin!(handshakes.step(&turn))));
        assert!(!is_done(pin!(handshakes.step(&turn))));
        assert!(handshakes.waiting.borrow().is_empty());
    }
}
