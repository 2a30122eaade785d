//! What the threads of a client share under one lock: the nodes, which of them writes which
//! partition, and the operations that wait to be sent again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use crate::node::Node;
use crate::operation::{Answer, ClientError};
use crate::options::ReadFrom;
use crate::queued::{MemberTry, Queued, Refused};
use crate::retry::{RetryBudget, free_pause};
use penstock_net::hello::ServerHello;
use penstock_net::placement::{Placement, Writer};
use penstock_net::status::Status;

/// The first wait before a node is asked once more. A switch takes some tens of milliseconds, so a
/// client notices its end early, and a promotion of seconds costs few more requests.
const ASK_AGAIN_MIN: Duration = Duration::from_millis(2);
/// The longest such wait. A promotion is noticed so much later.
const ASK_AGAIN_MAX: Duration = Duration::from_millis(160);
/// Node numbers of a cluster fit a byte. The addresses that the caller gives count apart.
const NODES_MAX: usize = 512;

/// The state of a client.
pub(crate) struct State {
    pub(crate) nodes: Vec<Node>,
    /// The node that writes each partition, and the generation in which a server said so.
    pub(crate) writers: BTreeMap<u16, (u32, usize)>,
    /// The node that is asked about no partition, or about a partition whose writer is not known.
    pub(crate) home: usize,
    /// Operations that wait to be asked once more, by the time at which they are. The number keeps
    /// their order.
    pub(crate) held: BTreeMap<(Instant, u64), Queued>,
    pub(crate) held_count: u64,
    /// How many operations that were refused may be sent again.
    pub(crate) budget: RetryBudget,
    /// How many operations wait or are under way. It falls only while the lock is held.
    pub(crate) pending: Arc<AtomicUsize>,
    /// Number of the member that is asked next.
    pub(crate) member_turn: usize,
    /// The HELLO that came last.
    pub(crate) hello: Option<ServerHello>,
    /// Bytes of a value, at most: the greatest of what nodes have told.
    pub(crate) value_bytes_max: Option<u32>,
    pub(crate) is_over: bool,
}

impl State {
    pub(crate) fn new(nodes: Vec<Node>) -> State {
        State {
            nodes,
            writers: BTreeMap::new(),
            home: 0,
            held: BTreeMap::new(),
            held_count: 0,
            budget: RetryBudget::default(),
            pending: Arc::default(),
            member_turn: 0,
            hello: None,
            value_bytes_max: None,
            is_over: false,
        }
    }

    /// The node to ask about a partition.
    pub(crate) fn node_of(&self, partition: Option<u16>) -> usize {
        let writer = partition.and_then(|partition| self.writers.get(&partition));
        let first = writer.map_or(self.home, |&(_, node)| node);
        let count = self.nodes.len();
        let mut in_turn = (first..first + count).map(|node| node % count);
        in_turn
            .find(|&node| !self.nodes[node].is_failing)
            .unwrap_or(first)
    }

    /// The node to ask for a read that a member may answer.
    pub(crate) fn member_of(&mut self, partition: Option<u16>, member: &MemberTry) -> usize {
        let writer = self.node_of(partition);
        let count = self.nodes.len();
        let chosen = match &member.from {
            ReadFrom::Node(address) => self.number_of(address),
            ReadFrom::AnyMember => {
                self.member_turn = self.member_turn.wrapping_add(1);
                let mut in_turn = (0..count).map(|at| (self.member_turn + at) % count);
                in_turn.find(|&node| node != writer && !self.nodes[node].is_failing)
            }
        };
        let is_well = |&node: &usize| !self.nodes[node].is_failing || !member.or_writer;
        chosen.filter(is_well).unwrap_or(writer)
    }

    /// The number of the node at an address, which may be new; `None` if there are too many nodes.
    pub(crate) fn number_of(&mut self, address: &str) -> Option<usize> {
        if let Some(known) = self.nodes.iter().position(|it| it.address == address) {
            return Some(known);
        }
        if self.nodes.len() == NODES_MAX {
            return None;
        }
        self.nodes.push(Node::new(address.to_string()));
        Some(self.nodes.len() - 1)
    }

    /// Operations may be sent to a node that tells this of itself.
    pub(crate) fn greeted(&mut self, hello: ServerHello, follows: bool) {
        if follows && let Some(placement) = &hello.placement {
            self.learn(placement);
        }
        // The greatest of all: a node refuses by itself what is too long for it.
        self.value_bytes_max = self.value_bytes_max.max(Some(hello.limits.value_bytes_max));
        self.hello = Some(hello);
    }

    fn learn(&mut self, placement: &Placement) {
        for range in &placement.writers {
            let mut nodes = placement.nodes.iter();
            let Some(named) = nodes.find(|it| it.node == range.node) else {
                continue;
            };
            let Some(node) = self.number_of(&named.clients) else {
                continue;
            };
            for partition in range.first..=range.last {
                self.writes(partition, node, range.generation);
            }
        }
        for named in &placement.nodes {
            self.number_of(&named.clients);
        }
    }

    /// Notes which node writes a partition; returns whether that was not known.
    pub(crate) fn writes(&mut self, partition: u16, node: usize, generation: u32) -> bool {
        let known = self.writers.get(&partition);
        let is_news = known.is_none_or(|&(before, _)| before < generation);
        if is_news {
            self.writers.insert(partition, (generation, node));
        }
        is_news
    }

    /// Has an operation asked once more that a node did not execute because another node must.
    pub(crate) fn put_back(&mut self, mut queued: Queued, answer: Answer, now: Instant) {
        let was_stale = queued.member.take().is_some() && answer.status == Status::Stale;
        if was_stale && now < queued.until && !self.is_over {
            return self.hold(now, queued);
        }
        let writer = Writer::read(answer.version, &answer.value);
        let is_named = answer.status == Status::NotPrimary || writer.is_some();
        let mut at = now + ask_again_after(queued.tries);
        if let Some(Writer {
            generation,
            clients,
            ..
        }) = writer
            && let Some(node) = self.number_of(&clients)
        {
            let is_news = match queued.partition {
                Some(partition) => self.writes(partition, node, generation),
                // A scan: it goes on at the node that writes the slot of its cursor.
                None => std::mem::replace(&mut self.home, node) != node && queued.tries == 0,
            };
            if is_news {
                at = now;
            }
        }
        if !is_named || at >= queued.until || self.is_over {
            return queued.settle(Ok(answer));
        }
        queued.tries += 1;
        self.hold(at, queued);
    }

    /// Has an operation sent again, after a pause, that a node refused with BUSY. If the budget or
    /// the time is used up, its caller is told instead.
    pub(crate) fn retry(&mut self, refused: Refused, now: Instant, random: u64) {
        let Refused {
            mut queued,
            outcome,
            retry_after_ms,
        } = refused;
        let left = queued.until.saturating_duration_since(now);
        let pause = match self.is_over {
            true => None,
            false => {
                let budget = &mut self.budget;
                budget.pause(queued.retries, retry_after_ms, left, random)
            }
        };
        if let Some(pause) = pause {
            queued.retries += 1;
            self.hold(now + pause, queued);
        } else {
            queued.settle(outcome);
        }
    }

    /// Has an operation sent again, after a pause, whose connection has ended or is silent. If the
    /// budget or the time is used up, its caller is told that the outcome is unknown.
    ///
    /// The first time costs nothing of the budget if there are several nodes: a node that is gone
    /// takes all of its operations with it, and they are no load for another node twice.
    pub(crate) fn send_again(
        &mut self,
        mut queued: Queued,
        cause: &str,
        now: Instant,
        random: u64,
    ) {
        let left = queued.until.saturating_duration_since(now);
        let pause = match self.is_over {
            true => None,
            false if self.nodes.len() > 1 && queued.retries == 0 => free_pause(left, random),
            false => self.budget.pause(queued.retries, 0, left, random),
        };
        match pause {
            Some(pause) => {
                queued.retries += 1;
                self.hold(now + pause, queued);
            }
            None => queued.fail(ClientError::Unknown(cause.into())),
        }
    }

    /// Keeps an operation until it is to be sent again.
    pub(crate) fn hold(&mut self, at: Instant, queued: Queued) {
        queued.put_back();
        self.held.insert((at, self.held_count), queued);
        self.held_count += 1;
    }
}

/// The wait before a node is asked once more: each is half as long again as the one before.
fn ask_again_after(tries: u32) -> Duration {
    let tries = tries.min(12);
    (ASK_AGAIN_MIN * 3u32.pow(tries) / 2u32.pow(tries)).min(ASK_AGAIN_MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::operation::{Pending, Promise};
    use crate::queued::{AnswerWaiter, Item, What};
    use penstock_net::request::Ask;

    /// More than a busy machine takes for any of it.
    const LONG: Duration = Duration::from_secs(60);

    /// A GET that a node has answered BUSY, and the promise of its outcome.
    fn refused(
        state: &State,
        until: Instant,
        retry_after_ms: u16,
    ) -> (Refused, Arc<Promise<Answer>>) {
        let promise = Promise::new();
        let done = Box::new(AnswerWaiter {
            promise: Arc::clone(&promise),
            read: Answer::ok,
        });
        let item = Item::of(&Ask::get(b"key"));
        let queued = Queued::new(What::Item { item, done }, until, &state.pending);
        let refused = Refused {
            queued,
            outcome: Err(ClientError::Busy("a queue is full".into())),
            retry_after_ms,
        };
        (refused, promise)
    }

    /// Half of the bound of a pause.
    const HALF: u64 = 1 << 63;

    #[test]
    fn the_end_of_a_switch_is_noticed_within_half_of_its_time_by_few_requests() {
        let us = |tries| ask_again_after(tries).as_micros();
        assert_eq!([0, 1, 2, 3].map(us), [2_000, 3_000, 4_500, 6_750]);
        let mut waited_us = 0;
        for tries in 0..12 {
            assert!(us(tries) <= 2_010 + waited_us / 2, "{tries}");
            waited_us += us(tries);
        }
        assert!(waited_us > 500_000);
        assert_eq!([11, 12, 40].map(us), [160_000; 3]);
    }

    #[test]
    fn an_operation_that_was_refused_is_held_for_a_part_of_what_the_server_answered() {
        let mut state = State::new(vec![Node::new("node".into())]);
        (0..20).for_each(|_| state.budget.earn());
        let now = Instant::now();
        let (refused, _promise) = refused(&state, now + LONG, 40);
        state.retry(refused, now, HALF);
        let ((at, _), mut queued) = state.held.pop_first().expect("held");
        assert_eq!(at, now + Duration::from_millis(20));
        assert_eq!(queued.retries, 1);

        queued.until = at + LONG;
        let again = Refused {
            queued,
            outcome: Err(ClientError::Busy("a queue is full".into())),
            retry_after_ms: 40,
        };
        state.retry(again, at, HALF);
        let (&(later, _), queued) = state.held.first_key_value().expect("held");
        assert_eq!(later, at + Duration::from_millis(40), "the bound doubles");
        assert_eq!(queued.retries, 2);
    }

    #[test]
    fn without_budget_or_time_or_a_client_the_caller_is_answered_busy_at_once() {
        let now = Instant::now();
        for (requests, left, is_over) in [
            (9, LONG, false),
            (10, Duration::from_millis(20), false),
            (10, LONG, true),
        ] {
            let mut state = State::new(vec![Node::new("node".into())]);
            state.is_over = is_over;
            (0..requests).for_each(|_| state.budget.earn());
            let (refused, promise) = refused(&state, now + left, 40);
            state.retry(refused, now, HALF);
            assert!(state.held.is_empty());
            assert_eq!(state.pending.load(Ordering::Relaxed), 0);
            let until = now + LONG;
            let write = None;
            let pending = Pending {
                promise,
                until,
                write,
            };
            let outcome = pending.wait();
            assert!(matches!(outcome, Err(ClientError::Busy(_))), "{outcome:?}");
        }
    }
}
