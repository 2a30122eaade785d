//! Transactions in the traffic of a node.

use penstock_net::level::AckLevel;
use penstock_net::reply::ReplyItem;
use penstock_net::request::BatchRequest;

use super::{Asked, Phase, Step, World};

impl World {
    /// Sends what transactions ask; `false` if they ask nothing.
    pub(super) fn send_transactions(&mut self, link: usize) -> bool {
        let Some(transactions) = &mut self.transactions else {
            return false;
        };
        let questions = transactions.next(self.now_us);
        if questions.is_empty() {
            return false;
        }
        self.send_questions(link, questions);
        true
    }

    fn send_questions(&mut self, link: usize, questions: Vec<usize>) {
        let request = self.next_request(link);
        let deadline_ms = match self.phase {
            Phase::Traffic if self.commits.chance(self.plan.deadlines) => 2,
            _ => 0,
        };
        let transactions = self.transactions.as_ref().expect("they asked");
        let mut out = Vec::new();
        let count = questions.len();
        let mut batch = BatchRequest::begin(&mut out, request, AckLevel::Disk, deadline_ms, count);
        for &number in &questions {
            batch.raw(&mut out, &transactions.item(number));
        }
        batch.finish(&mut out);
        let asked = questions.into_iter().map(|it| Some(Asked::Question(it)));
        let state = &mut self.links[link];
        state.alone = None;
        state.outstanding.insert(request, asked.collect());
        self.send_to_server(link, out);
    }

    pub(super) fn answer_question(&mut self, number: usize, item: &ReplyItem<'_>) -> Step {
        let transactions = self.transactions.as_mut().expect("they asked");
        transactions.answer(number, item, self.now_us)
    }

    pub(super) fn lose_question(&mut self, number: usize) {
        let transactions = self.transactions.as_mut().expect("they asked");
        transactions.lost(number, self.now_us);
    }

    /// Whether the last look has not read all keys of transactions.
    pub(super) fn has_banks_left(&self) -> bool {
        let transactions = self.transactions.as_ref();
        transactions.is_some_and(|it| self.last_reads.banks < it.last_reads())
    }

    /// Reads the next keys of the last look, so few that no queue may be full.
    pub(super) fn read_banks(&mut self) {
        let Some(transactions) = &mut self.transactions else {
            return;
        };
        let mut questions = Vec::new();
        while questions.len() < 4 && self.last_reads.banks < transactions.last_reads() {
            questions.push(transactions.read_last(self.last_reads.banks, self.now_us));
            self.last_reads.banks += 1;
        }
        let link = self.clients[0].link.expect("all are connected");
        self.send_questions(link, questions);
    }
}
