//! The buyers at work and the account that they keep: what is asked next, what an answer means, and
//! what each cart has come to. Pure: time is an argument.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use penstock_net::apply::Apply;
use penstock_net::request::{Token, Version};

use crate::sale::plan::{CARTS_MAX, CartPlan, End, OPEN_HOLD_MS, Plan};
use crate::sale::shop::{HOLD_GONE, OVER_LIMIT, Purchase, SOLD_OUT, Shop};
use crate::workload::{Tokens, Zipf};

/// The first pause before a request is asked again that the server had no room for.
const PAUSE_MIN: Duration = Duration::from_millis(5);
/// The longest.
const PAUSE_MAX: Duration = Duration::from_millis(200);
/// Contradictions that are kept in words.
const FAULTS_MAX: usize = 20;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Buy,
    Pay,
    Cancel,
}

/// A request of one cart, until it has its answer. However often it is sent, its token is one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) cart: u64,
    pub(crate) step: Step,
    pub(crate) token: Token,
    /// When it was due; of a closed loop when it was first sent.
    pub(crate) since: Duration,
    /// How often it was sent before.
    tries: u32,
    /// Its connection was cut by the buyer: an earlier try may still be on its way.
    is_doubtful: bool,
    /// The version of an answer that a try of it has got.
    first_version: Option<Version>,
}

/// What one answer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It took effect, now or at an earlier try.
    Done { version: Version, is_replayed: bool },
    /// A guard with this reason does not hold; nothing has changed.
    No { reason: u8 },
    /// Nobody knows, or there was no room: ask again.
    Later,
}

/// What a cart has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum CartState {
    #[default]
    NotAsked = 0,
    Asking = 1,
    SoldOut = 2,
    OverLimit = 3,
    Held = 4,
    Paid = 5,
    Cancelled = 6,
    /// Its hold was gone when the buyer paid or gave it back.
    TooLate = 7,
    Abandoned = 8,
    Open = 9,
    /// As `SoldOut` and `OverLimit`, but a try of it may have arrived behind the last one.
    Doubtful = 10,
}

/// What the buyers count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Buyers that have come.
    pub(crate) buyers: u64,
    /// Requests with an answer.
    pub(crate) answered: u64,
    /// Carts that were held, ever, and their units.
    pub(crate) bought: u64,
    pub(crate) units_bought: u64,
    pub(crate) paid: u64,
    pub(crate) units_paid: u64,
    pub(crate) cancelled: u64,
    pub(crate) abandoned: u64,
    pub(crate) open: u64,
    pub(crate) units_open: u64,
    pub(crate) too_late: u64,
    pub(crate) sold_out: u64,
    pub(crate) over_limit: u64,
    pub(crate) doubtful: u64,
    /// Requests that were sent twice at once; whose connection was cut; that were asked again.
    pub(crate) doubled: u64,
    pub(crate) cut: u64,
    pub(crate) again: u64,
    /// Answers that repeat an earlier one.
    pub(crate) replayed: u64,
}

impl Counts {
    pub(crate) fn refused(&self) -> u64 {
        self.sold_out + self.over_limit + self.doubtful
    }
}

/// The buyers and their account.
pub(crate) struct Book {
    pub(crate) plan: Plan,
    pub(crate) shop: Shop,
    law: Zipf,
    tokens: Tokens,
    carts: Vec<CartState>,
    counts: Counts,
    next_buyer: u32,
    waiting: BinaryHeap<Reverse<Waiting>>,
    /// First tries of a closed loop that are due at once, in their order.
    at_once: VecDeque<Ask>,
    under_way: u64,
    /// When the last hold was answered that is left alone.
    last_abandoned: Duration,
    sold_out_at: Option<Duration>,
    faults: Vec<String>,
}

struct Waiting {
    at: Duration,
    ask: Ask,
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl Waiting {
    fn key(&self) -> (Duration, u64) {
        (self.at, self.ask.cart)
    }
}

impl Book {
    pub(crate) fn new(plan: Plan, shop: Shop) -> Book {
        let carts = u64::from(plan.buyers) * CARTS_MAX;
        Book {
            law: plan.law(),
            plan,
            shop,
            tokens: Tokens::new(),
            carts: vec![CartState::NotAsked; usize::try_from(carts).expect("64 bits")],
            counts: Counts::default(),
            next_buyer: 0,
            waiting: BinaryHeap::new(),
            at_once: VecDeque::new(),
            under_way: 0,
            last_abandoned: Duration::ZERO,
            sold_out_at: None,
            faults: Vec::new(),
        }
    }

    /// The next request that is due, at `time_ms` by the clock of the world. It is under way until
    /// [`Book::answered`] or [`Book::again`].
    pub(crate) fn due(&mut self, now: Duration, time_ms: u64) -> Option<Ask> {
        let ask = if self.waiting.peek().is_some_and(|it| it.0.at <= now) {
            self.waiting.pop()?.0.ask
        } else if self.plan.pays_last {
            let comes = self.comes(now, time_ms);
            comes.or_else(|| self.at_once.pop_front())?
        } else {
            let next = self.at_once.pop_front();
            next.or_else(|| self.comes(now, time_ms))?
        };
        self.under_way += 1;
        // A closed loop waits for a connection on its own account.
        let since = match self.is_closed() && ask.tries == 0 {
            true => now,
            false => ask.since,
        };
        Some(Ask { since, ..ask })
    }

    /// The first request of the next buyer, if it is time.
    fn comes(&mut self, now: Duration, time_ms: u64) -> Option<Ask> {
        let buyer = self.next_buyer;
        if buyer >= self.plan.buyers || self.plan.arrival(buyer) > now {
            return None;
        }
        self.next_buyer += 1;
        self.counts.buyers += 1;
        let since = self.plan.arrival(buyer);
        Some(self.ask(u64::from(buyer) * CARTS_MAX, Step::Buy, since, time_ms))
    }

    /// When something is due next that is not due yet.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        let waiting = self.waiting.peek().map(|it| it.0.at);
        let comes = self.next_buyer < self.plan.buyers;
        let buyer = comes.then(|| self.plan.arrival(self.next_buyer));
        waiting.into_iter().chain(buyer).min()
    }

    /// Whether every cart has come to its end.
    pub(crate) fn is_over(&self) -> bool {
        self.next_buyer == self.plan.buyers
            && self.waiting.is_empty()
            && self.at_once.is_empty()
            && self.under_way == 0
    }

    /// The request of an ask.
    pub(crate) fn apply(&self, ask: &Ask) -> Apply {
        let plan = self.cart_plan(ask.cart);
        let it = purchase(ask.cart, &plan);
        match ask.step {
            Step::Buy => {
                let hold_ms = match plan.end {
                    End::KeepOpen => OPEN_HOLD_MS,
                    _ => u64::try_from(self.plan.hold.as_millis()).unwrap_or(u64::MAX),
                };
                self.shop.buy(&it, self.plan.limit, hold_ms)
            }
            Step::Pay => self.shop.pay(&it),
            Step::Cancel => self.shop.cancel(&it),
        }
    }

    /// Whether the buyer sends this request twice now.
    pub(crate) fn is_doubled(&mut self, ask: &Ask) -> bool {
        let plan = self.cart_plan(ask.cart);
        let is_doubled = ask.tries == 0
            && match ask.step {
                Step::Buy => plan.is_doubled,
                Step::Pay | Step::Cancel => plan.is_end_doubled,
            };
        self.counts.doubled += u64::from(is_doubled);
        is_doubled
    }

    /// Whether the buyer leaves the connection of this request now, without its answer.
    pub(crate) fn is_cut(&mut self, ask: &Ask) -> bool {
        let plan = self.cart_plan(ask.cart);
        let is_cut = ask.tries == 0
            && match ask.step {
                Step::Buy => plan.is_cut,
                Step::Pay | Step::Cancel => plan.is_end_cut,
            };
        self.counts.cut += u64::from(is_cut);
        is_cut
    }

    /// Takes in one answer to a request that has several, or the only one. Of the answers over one
    /// connection all but the first repeat it.
    pub(crate) fn take_answer(&mut self, ask: &mut Ask, verdict: Verdict) {
        let Verdict::Done {
            version,
            is_replayed,
        } = verdict
        else {
            return;
        };
        self.counts.replayed += u64::from(is_replayed);
        match ask.first_version {
            Some(first_version) if first_version != version || !is_replayed => self.fault(format!(
                "token {} of cart {} was executed at {first_version:?} and at {version:?}",
                ask.token, ask.cart
            )),
            _ => ask.first_version = Some(version),
        }
    }

    /// The request went with its connection: it is asked again.
    pub(crate) fn again(&mut self, ask: Ask, now: Duration, is_cut: bool) {
        self.under_way -= 1;
        self.counts.again += 1;
        let ask = Ask {
            tries: ask.tries + 1,
            is_doubtful: ask.is_doubtful || is_cut,
            ..ask
        };
        self.waiting.push(Reverse(Waiting { at: now, ask }));
    }

    /// All answers to a request are there, the last one or the one that did it being `verdict`.
    pub(crate) fn answered(&mut self, ask: Ask, verdict: Verdict, now: Duration, time_ms: u64) {
        if verdict == Verdict::Later {
            let pause = PAUSE_MIN * 2u32.saturating_pow(ask.tries.min(8));
            return self.again(ask, now + pause.min(PAUSE_MAX), false);
        }
        self.under_way -= 1;
        self.counts.answered += 1;
        let plan = self.cart_plan(ask.cart);
        let units = u64::from(plan.units);
        let state = match (ask.step, verdict) {
            (_, Verdict::Later) => unreachable!("asked again above"),
            (Step::Buy, Verdict::Done { .. }) => {
                self.counts.bought += 1;
                self.counts.units_bought += units;
                if self.counts.units_bought >= self.plan.units {
                    self.sold_out_at.get_or_insert(now);
                }
                self.hold(&ask, &plan, now, time_ms)
            }
            (Step::Buy, Verdict::No { reason }) => self.refused(&ask, reason),
            (Step::Pay, Verdict::Done { .. }) => {
                self.counts.paid += 1;
                self.counts.units_paid += units;
                CartState::Paid
            }
            (Step::Cancel, Verdict::Done { .. }) => {
                self.counts.cancelled += 1;
                CartState::Cancelled
            }
            (Step::Pay | Step::Cancel, Verdict::No { reason }) => {
                if reason != HOLD_GONE {
                    self.fault(format!("cart {}: refused for reason {reason}", ask.cart));
                }
                self.counts.too_late += 1;
                CartState::TooLate
            }
        };
        self.set(ask.cart, state);
        if ask.step == Step::Buy && plan.has_next {
            let next = self.ask(ask.cart + 1, Step::Buy, now, time_ms);
            self.at_once.push_back(next);
        }
    }

    /// What was counted.
    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// What each cart has come to, by its number.
    pub(crate) fn carts(&self) -> impl Iterator<Item = (Purchase, CartState)> + '_ {
        let asked = (0u64..).zip(&self.carts);
        asked
            .filter(|(_, state)| **state != CartState::NotAsked)
            .map(|(cart, state)| (purchase(cart, &self.cart_plan(cart)), *state))
    }

    /// The state of each buyer's furthest cart, as a digit from 0 (has not come) to 5.
    pub(crate) fn buyers(&self) -> String {
        let of_buyer = |carts: &[CartState]| {
            let digit = |state: &CartState| match state {
                CartState::NotAsked => '0',
                CartState::SoldOut | CartState::OverLimit | CartState::Doubtful => '1',
                CartState::Asking => '2',
                CartState::Cancelled | CartState::TooLate | CartState::Abandoned => '3',
                CartState::Held | CartState::Open => '4',
                CartState::Paid => '5',
            };
            carts.iter().map(digit).max().unwrap_or('0')
        };
        let per_buyer = usize::try_from(CARTS_MAX).expect("a few");
        self.carts.chunks(per_buyer).map(of_buyer).collect()
    }

    /// When the last hold was taken that was left alone.
    pub(crate) fn last_abandoned(&self) -> Duration {
        self.last_abandoned
    }

    /// When the last unit was taken, if none came back before.
    pub(crate) fn sold_out_at(&self) -> Option<Duration> {
        self.sold_out_at
    }

    /// Answers that contradict each other.
    pub(crate) fn faults(&self) -> &[String] {
        &self.faults
    }

    /// A hold was taken: its cart's state, and the next request of it if there is one.
    fn hold(&mut self, ask: &Ask, plan: &CartPlan, now: Duration, time_ms: u64) -> CartState {
        let step = match plan.end {
            End::Pay => Step::Pay,
            End::Cancel => Step::Cancel,
            End::Abandon => {
                self.counts.abandoned += 1;
                self.last_abandoned = now;
                return CartState::Abandoned;
            }
            End::KeepOpen => {
                self.counts.open += 1;
                self.counts.units_open += u64::from(plan.units);
                return CartState::Open;
            }
        };
        let at = now + plan.think;
        let next = self.ask(ask.cart, step, at, time_ms);
        match plan.think.is_zero() {
            true => self.at_once.push_back(next),
            false => self.waiting.push(Reverse(Waiting { at, ask: next })),
        }
        CartState::Held
    }

    fn refused(&mut self, ask: &Ask, reason: u8) -> CartState {
        if ask.is_doubtful {
            self.counts.doubtful += 1;
            return CartState::Doubtful;
        }
        match reason {
            SOLD_OUT => {
                self.counts.sold_out += 1;
                CartState::SoldOut
            }
            OVER_LIMIT => {
                self.counts.over_limit += 1;
                CartState::OverLimit
            }
            _ => {
                self.fault(format!("cart {}: refused for reason {reason}", ask.cart));
                CartState::SoldOut
            }
        }
    }

    fn ask(&mut self, cart: u64, step: Step, since: Duration, time_ms: u64) -> Ask {
        if step == Step::Buy {
            self.set(cart, CartState::Asking);
        }
        Ask {
            cart,
            step,
            token: self.tokens.draw(time_ms),
            since,
            tries: 0,
            is_doubtful: false,
            first_version: None,
        }
    }

    fn set(&mut self, cart: u64, state: CartState) {
        self.carts[usize::try_from(cart).expect("64 bits")] = state;
    }

    fn is_closed(&self) -> bool {
        self.plan.arrivals == crate::sale::plan::Arrivals::Closed
    }

    fn cart_plan(&self, cart: u64) -> CartPlan {
        self.plan.cart(cart, &self.law)
    }

    fn fault(&mut self, text: String) {
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(text);
        }
    }
}

fn purchase(cart: u64, plan: &CartPlan) -> Purchase {
    Purchase {
        sku: plan.sku,
        buyer: u32::try_from(cart / CARTS_MAX).expect("buyers have 32 bits"),
        cart,
        units: plan.units,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::sale::plan::{Arrivals, tests::plan};

    fn done(sequence: u64, is_replayed: bool) -> Verdict {
        let version = Version {
            sequence,
            ..Version::default()
        };
        Verdict::Done {
            version,
            is_replayed,
        }
    }

    fn book(change: impl FnOnce(&mut Plan)) -> Book {
        let mut plan = Plan {
            arrivals: Arrivals::Closed,
            ..plan()
        };
        change(&mut plan);
        Book::new(plan, Shop::new("drop:".into()))
    }

    #[test]
    fn every_cart_comes_to_its_end_and_the_counts_add_up() {
        let mut book = book(|plan| plan.buyers = 2_000);
        let (mut now, mut sequence) = (Duration::ZERO, 0);
        while !book.is_over() {
            now += Duration::from_millis(1);
            while let Some(mut ask) = book.due(now, 1) {
                if book.is_cut(&ask) {
                    book.again(ask, now, true);
                    continue;
                }
                sequence += 1;
                let is_left = book.counts().bought < 900 || ask.step != Step::Buy;
                let verdict = match is_left {
                    true => done(sequence, false),
                    false => Verdict::No { reason: SOLD_OUT },
                };
                book.take_answer(&mut ask, verdict);
                book.answered(ask, verdict, now, 1);
            }
        }
        let counts = book.counts();
        assert_eq!((counts.buyers, counts.bought), (2_000, 900));
        let ends = [counts.paid, counts.cancelled, counts.abandoned, counts.open];
        assert_eq!(ends.iter().sum::<u64>(), 900, "{counts:?}");
        assert!(
            ends.iter().all(|it| *it > 0) && counts.refused() > 1_000,
            "{counts:?}"
        );
        assert!(
            counts.doubtful > 0 && book.faults().is_empty(),
            "{:?}",
            book.faults()
        );
        let states = book.carts().filter(|(_, it)| *it == CartState::Paid);
        assert_eq!(states.count() as u64, counts.paid);
        assert_eq!(book.buyers().len(), 2_000);
    }

    #[test]
    fn a_token_that_is_executed_twice_is_a_fault_and_a_repeated_answer_is_none() {
        let mut book = book(|_| ());
        let mut ask = book.due(Duration::ZERO, 1).expect("a buyer comes");
        book.take_answer(&mut ask, done(5, false));
        book.take_answer(&mut ask, done(5, true));
        assert!(book.faults().is_empty());
        book.take_answer(&mut ask, done(6, false));
        assert_eq!(book.faults().len(), 1, "{:?}", book.faults());
    }

    #[test]
    fn what_there_was_no_room_for_is_asked_again_later_with_its_token() {
        let mut book = book(|plan| plan.buyers = 1);
        let ask = book.due(Duration::ZERO, 1).expect("a buyer comes");
        book.answered(ask, Verdict::Later, Duration::ZERO, 1);
        assert!(book.due(Duration::ZERO, 1).is_none() && !book.is_over());
        let again = book.due(PAUSE_MIN, 1).expect("after the pause");
        assert_eq!((again.token, again.cart), (ask.token, ask.cart));
    }

    #[test]
    fn carts_are_paid_last_if_the_plan_says_so() {
        let mut book = book(|plan| {
            plan.buyers = 50;
            plan.pays_last = true;
            plan.think_max = Duration::ZERO;
        });
        let (mut steps, mut sequence) = (Vec::new(), 0);
        while let Some(ask) = book.due(Duration::ZERO, 1) {
            sequence += 1;
            steps.push((ask.step == Step::Buy && ask.cart % CARTS_MAX == 0, ask.step));
            book.answered(ask, done(sequence, false), Duration::ZERO, 1);
        }
        assert!(
            steps[..50].iter().all(|(is_first, _)| *is_first),
            "{steps:?}"
        );
        let pays = steps.iter().filter(|(_, step)| *step == Step::Pay).count();
        assert_eq!(
            (book.counts().buyers, book.counts().paid),
            (50, pays as u64)
        );
        assert!(book.is_over() && pays > 20);
    }

    #[test]
    fn buyers_of_an_open_loop_are_due_at_their_time_whether_or_not_they_can_be_asked() {
        let mut book = book(|plan| plan.arrivals = Arrivals::Rate(10.0));
        assert!(book.due(Duration::ZERO, 1).is_some());
        assert_eq!(book.next_due(), Some(Duration::from_millis(100)));
        let late = book.due(Duration::from_secs(9), 1).expect("due");
        assert_eq!(late.since, Duration::from_millis(100));
    }
}
