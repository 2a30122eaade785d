//! Transactions: the client's own code on simulated nodes, and its judge.
//!
//! ```text
//!                    questions            items of batches
//!  penstock_client  ----------> Letters  ------------------> nodes, crashes, lost answers
//!   ::Transaction   <----------          <------------------
//!        | what it has seen and done, and when
//!        v
//!      Bank: four keys, which a checker that is not ours takes for one object
//! ```
//!
//! Each transaction is a future that is polled when an answer has come. What must hold of the keys
//! of a bank: some order of single steps agrees with real time and with all that was told.
//!
//! | told | the step |
//! |---|---|
//! | values of one read | all of them are there |
//! | reads of a snapshot | all that were read until now are there |
//! | a commit | what it guards is there, and all that it writes is |
//! | a conflict | the key is not as it was read |
//! | nothing, at a commit | as a commit, or nothing, at any time from then on |

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use penstock_client::{
    Answer, Answered, Ask, ClientError, Isolation, Token, Transacted, Transaction, TransactionError,
};
use penstock_net::reply::ReplyItem;
use penstock_net::status::Status;

use crate::random::Random;

mod judge;

use judge::{Account, Keys, Statement};

/// Keys of a bank.
const KEYS: usize = 4;
/// Transactions that run at one bank at a time.
const RUNNING_MAX: usize = 3;
/// What is told of a bank, at most, until there is a new one.
const STATEMENTS_MAX: usize = 120;
/// Accounts that a failure shows, at most.
const STATEMENTS_SHOWN: usize = 20;
/// Commits of unknown outcome at a bank, at most: each doubles the search.
const UNKNOWN_MAX: usize = 3;

/// What every long run with transactions meets.
pub const MUST_MEET: &[&str] = &[
    "bank judged",
    "transaction committed",
    "transaction in conflict",
    "transaction of reads alone",
    "transaction of unknown outcome",
    "transaction rolled back to a savepoint",
];

/// A question of a transaction.
#[derive(Debug)]
struct Letter {
    item: Vec<u8>,
    answer: Option<Result<Answer, ClientError>>,
}

/// Where a transaction puts its questions: the store that it asks.
#[derive(Clone, Debug, Default)]
struct Letters(Rc<RefCell<VecDeque<Rc<RefCell<Letter>>>>>);

/// A question whose answer may not have come.
struct Reply(Rc<RefCell<Letter>>);

impl Transacted for Letters {
    type Asked = Reply;

    fn ask(&mut self, ask: Ask<'_>, _token: Option<Token>) -> Reply {
        let letter = Rc::new(RefCell::new(Letter {
            item: ask.encode(),
            answer: None,
        }));
        self.0.borrow_mut().push_back(Rc::clone(&letter));
        Reply(letter)
    }

    fn value_bytes_max(&self) -> Option<u32> {
        None
    }

    fn deadline(&self) -> Duration {
        Duration::MAX
    }
}

impl Future for Reply {
    type Output = Result<Answer, ClientError>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        match self.0.borrow_mut().answer.take() {
            Some(answer) => Poll::Ready(answer),
            None => Poll::Pending,
        }
    }
}

impl Answered for Reply {
    fn wait(self) -> Result<Answer, ClientError> {
        let answer = self.0.borrow_mut().answer.take();
        answer.expect("in virtual time nobody waits for an answer that has not come")
    }
}

/// Four keys of one slot, and all that was told of them.
#[derive(Debug)]
struct Bank {
    keys: Vec<Vec<u8>>,
    statements: Rc<RefCell<Vec<Statement>>>,
    running: usize,
}

/// What one transaction is to do.
#[derive(Clone, Copy, Debug)]
enum Act {
    Read(usize),
    /// All keys at once.
    ReadAll,
    Write(usize),
    Delete(usize),
    Mark,
    GoBack,
}

/// A transaction under way.
struct Running {
    bank: usize,
    letters: Letters,
    future: Pin<Box<dyn Future<Output = &'static str>>>,
}

/// Who has asked a question.
enum Asker {
    Transaction(usize),
    /// The last look at a key.
    LastRead {
        bank: usize,
        key: usize,
        since_us: u64,
    },
}

struct Question {
    letter: Rc<RefCell<Letter>>,
    asker: Asker,
}

/// All transactions of a run.
pub struct Transactions {
    random: Random,
    now_us: Rc<Cell<u64>>,
    banks: Vec<Bank>,
    running: BTreeMap<usize, Running>,
    begun: usize,
    questions: Vec<Question>,
    /// Questions that were not sent.
    unsent: VecDeque<usize>,
    /// What was met.
    pub met: BTreeMap<&'static str, u64>,
}

impl Transactions {
    /// No transactions yet.
    #[must_use]
    pub fn new(random: Random) -> Self {
        Transactions {
            random,
            now_us: Rc::default(),
            banks: Vec::new(),
            running: BTreeMap::new(),
            begun: 0,
            questions: Vec::new(),
            unsent: VecDeque::new(),
            met: MUST_MEET.iter().map(|&what| (what, 0)).collect(),
        }
    }

    /// The next questions to be sent, four at most. None of them need an answer before the others.
    pub fn next(&mut self, now_us: u64) -> Vec<usize> {
        self.now_us.set(now_us);
        if self.unsent.is_empty() {
            self.begin();
        }
        let count = self.unsent.len().min(4);
        self.unsent.drain(..count).collect()
    }

    /// The item of a question.
    #[must_use]
    pub fn item(&self, number: usize) -> Vec<u8> {
        self.questions[number].letter.borrow().item.clone()
    }

    /// An answer came.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn answer(
        &mut self,
        number: usize,
        item: &ReplyItem<'_>,
        now_us: u64,
    ) -> Result<(), String> {
        self.now_us.set(now_us);
        let status = item.head.status;
        let is_wrong = matches!(
            status,
            Status::Malformed | Status::BadKey | Status::CrossSlot | Status::BadField
        );
        if is_wrong {
            return Err(format!(
                "question {number} of a transaction: {:?}",
                item.head
            ));
        }
        let answer = Answer::of_item(item);
        match self.questions[number].asker {
            Asker::Transaction(running) => {
                self.questions[number].letter.borrow_mut().answer = Some(answer.ok());
                self.go_on(running);
            }
            Asker::LastRead {
                bank,
                key,
                since_us,
            } => {
                if let Ok(found) = answer.found() {
                    let mut seen = Keys::default();
                    seen[key] = Some(writer(found.as_ref().map(|it| &it.bytes[..]))?);
                    self.banks[bank].note(Account::There(seen), since_us, now_us);
                }
            }
        }
        Ok(())
    }

    /// No answer will come.
    pub fn lost(&mut self, number: usize, now_us: u64) {
        self.now_us.set(now_us);
        if let Asker::Transaction(running) = self.questions[number].asker {
            let unknown = ClientError::Unknown("the connection is gone".into());
            self.questions[number].letter.borrow_mut().answer = Some(Err(unknown));
            self.go_on(running);
        }
    }

    /// How many keys the last look reads.
    #[must_use]
    pub fn last_reads(&self) -> usize {
        self.banks.len() * KEYS
    }

    /// The question of the last look with this number.
    pub fn read_last(&mut self, number: usize, now_us: u64) -> usize {
        let (bank, key) = (number / KEYS, number % KEYS);
        let letter = Letter {
            item: Ask::get(&self.banks[bank].keys[key]).encode(),
            answer: None,
        };
        self.questions.push(Question {
            letter: Rc::new(RefCell::new(letter)),
            asker: Asker::LastRead {
                bank,
                key,
                since_us: now_us,
            },
        });
        self.questions.len() - 1
    }

    /// Judges all that was told.
    ///
    /// # Errors
    /// The bank whose answers no order explains.
    pub fn finish(&mut self) -> Result<(), String> {
        for (number, bank) in self.banks.iter().enumerate() {
            let statements = bank.statements.borrow();
            if !judge::is_explained(&statements) {
                let last = &statements[statements.len().saturating_sub(STATEMENTS_SHOWN)..];
                return Err(format!(
                    "no order of steps explains what transactions at bank {number} were told; the \
                     last of {} accounts: {last:?}",
                    statements.len()
                ));
            }
        }
        let judged = self.banks.len() as u64;
        *self.met.entry("bank judged").or_default() += judged;
        Ok(())
    }

    /// Begins a transaction at the newest bank.
    fn begin(&mut self) {
        if self.banks.last().is_none_or(Bank::is_full) {
            let tag = self.random.below(1_000_000);
            let keys = (0..KEYS).map(|key| format!("{{till-bank{tag}}}{key}").into_bytes());
            self.banks.push(Bank {
                keys: keys.collect(),
                statements: Rc::default(),
                running: 0,
            });
        }
        let bank = self.banks.len() - 1;
        if self.banks[bank].running >= RUNNING_MAX {
            return;
        }
        self.banks[bank].running += 1;
        self.begun += 1;
        let name = self.begun as u64;
        let letters = Letters::default();
        let isolation = self.random.pick(&[
            Isolation::Serializable,
            Isolation::Serializable,
            Isolation::Snapshot,
        ]);
        let errand = Errand {
            name,
            isolation,
            acts: self.acts(),
            padding: self.random.index(200),
            keys: self.banks[bank].keys.clone(),
            statements: Rc::clone(&self.banks[bank].statements),
            now_us: Rc::clone(&self.now_us),
        };
        let running = Running {
            bank,
            letters: letters.clone(),
            future: Box::pin(errand.run(letters)),
        };
        self.running.insert(self.begun, running);
        self.go_on(self.begun);
    }

    fn acts(&mut self) -> Vec<Act> {
        let random = &mut self.random;
        let count = random.within(1, 6);
        let acts = (0..count).map(|_| match random.below(12) {
            0..=3 => Act::Read(random.index(KEYS)),
            4 => Act::ReadAll,
            5..=8 => Act::Write(random.index(KEYS)),
            9 => Act::Delete(random.index(KEYS)),
            10 => Act::Mark,
            _ => Act::GoBack,
        });
        acts.collect()
    }

    /// Polls a transaction, and takes its new questions.
    fn go_on(&mut self, number: usize) {
        let Some(running) = self.running.get_mut(&number) else {
            return;
        };
        let polled = running
            .future
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        for letter in running.letters.0.borrow_mut().drain(..) {
            self.unsent.push_back(self.questions.len());
            self.questions.push(Question {
                letter,
                asker: Asker::Transaction(number),
            });
        }
        if let Poll::Ready(met) = polled {
            self.banks[running.bank].running -= 1;
            self.running.remove(&number);
            *self.met.entry(met).or_default() += 1;
        }
    }
}

impl Bank {
    fn is_full(&self) -> bool {
        let statements = self.statements.borrow();
        statements.len() >= STATEMENTS_MAX
            || statements.iter().filter(|it| it.is_open()).count() >= UNKNOWN_MAX
    }

    fn note(&self, account: Account, since_us: u64, until_us: u64) {
        self.statements.borrow_mut().push(Statement {
            account,
            since_us,
            until_us,
        });
    }
}

/// One transaction, as a program would write it.
struct Errand {
    name: u64,
    isolation: Isolation,
    acts: Vec<Act>,
    /// Bytes behind the name in its values.
    padding: usize,
    keys: Vec<Vec<u8>>,
    statements: Rc<RefCell<Vec<Statement>>>,
    now_us: Rc<Cell<u64>>,
}

impl Errand {
    /// Runs it; what was met.
    async fn run(self, letters: Letters) -> &'static str {
        let mut own = Transaction::begin(letters, self.isolation);
        let (mut seen, mut written) = (Keys::default(), Keys::default());
        let mut mark = None;
        let mut met = "transaction committed";
        for act in &self.acts {
            match *act {
                Act::Read(key) => {
                    let read = self.read(&mut own, &[key], &mut seen, &written).await;
                    if let Err(met) = read {
                        return met;
                    }
                }
                Act::ReadAll => {
                    let all: Vec<usize> = (0..KEYS).collect();
                    if let Err(met) = self.read(&mut own, &all, &mut seen, &written).await {
                        return met;
                    }
                }
                Act::Write(key) => {
                    let mut value = self.name.to_le_bytes().to_vec();
                    value.resize(8 + self.padding, 7);
                    own.set(&self.keys[key], &value).expect("within the limits");
                    written[key] = Some(Some(self.name));
                }
                Act::Delete(key) => {
                    own.del(&self.keys[key]).expect("within the limits");
                    written[key] = Some(None);
                }
                Act::Mark => {
                    own.savepoint("mark").expect("within the limits");
                    mark = Some(written);
                }
                Act::GoBack => match mark {
                    Some(marked) => {
                        own.rollback_to("mark").expect("it is marked");
                        written = marked;
                        met = "transaction rolled back to a savepoint";
                    }
                    None => assert!(own.rollback_to("mark").is_err()),
                },
            }
        }
        let since_us = self.now_us.get();
        let guarded = match self.isolation {
            Isolation::Serializable => seen,
            Isolation::Snapshot => {
                std::array::from_fn(|key| seen[key].filter(|_| written[key].is_some()))
            }
        };
        match own.commit().await {
            Ok(Some(_)) => self.note(Account::Step(guarded, written), since_us),
            Ok(None) => {
                // One key that was read was there then, which its read has told.
                let is_asked = written != Keys::default() || seen.iter().flatten().count() > 1;
                if is_asked {
                    self.note(Account::There(guarded), since_us);
                }
                met = "transaction of reads alone";
            }
            Err(TransactionError::Conflict(conflict)) => {
                self.conflict(&conflict.key, &seen, since_us);
                met = "transaction in conflict";
            }
            Err(TransactionError::Store(ClientError::Unknown(_))) => {
                let statement = Statement {
                    account: Account::Perhaps(guarded, written),
                    since_us,
                    until_us: u64::MAX,
                };
                self.statements.borrow_mut().push(statement);
                met = "transaction of unknown outcome";
            }
            Err(TransactionError::Store(_)) => met = "transaction refused",
            Err(refused) => panic!("{refused}"),
        }
        met
    }

    /// Reads keys; what was met if the transaction is over.
    async fn read(
        &self,
        own: &mut Transaction<Letters>,
        which: &[usize],
        seen: &mut Keys,
        written: &Keys,
    ) -> Result<(), &'static str> {
        let since_us = self.now_us.get();
        let names: Vec<&[u8]> = which.iter().map(|key| &self.keys[*key][..]).collect();
        let before = *seen;
        let values = match own.get_all(&names).await {
            Ok(values) => values,
            Err(TransactionError::Conflict(conflict)) => {
                self.conflict(&conflict.key, seen, since_us);
                return Err("transaction in conflict");
            }
            Err(TransactionError::Store(_)) => return Err("transaction refused"),
            Err(refused) => panic!("{refused}"),
        };
        for (&key, value) in which.iter().zip(&values) {
            let found = writer(value.as_ref().map(|it| &it.bytes[..]));
            let found = found.expect("a value that a transaction has written");
            match written[key] {
                Some(own) => assert_eq!(found, own, "it sees what it has written"),
                None => match seen[key] {
                    Some(known) => assert_eq!(found, known, "it is read once"),
                    None => seen[key] = Some(found),
                },
            }
        }
        let new = |key: &usize| before[*key].is_none() && seen[*key].is_some();
        match self.isolation {
            // Where nothing was asked, nothing was proved.
            Isolation::Snapshot if (0..KEYS).any(|key| new(&key)) => {
                self.note(Account::There(*seen), since_us);
            }
            Isolation::Snapshot => {}
            // Each key by itself.
            Isolation::Serializable => {
                for key in (0..KEYS).filter(new) {
                    let mut one = Keys::default();
                    one[key] = seen[key];
                    self.note(Account::There(one), since_us);
                }
            }
        }
        Ok(())
    }

    fn note(&self, account: Account, since_us: u64) {
        self.statements.borrow_mut().push(Statement {
            account,
            since_us,
            until_us: self.now_us.get(),
        });
    }

    /// A key is not as it was read. What a read that failed had found was not told.
    fn conflict(&self, name: &[u8], seen: &Keys, since_us: u64) {
        let key = self.keys.iter().position(|key| key == name);
        let key = key.expect("a key of the bank");
        if let Some(expected) = seen[key] {
            self.note(Account::Differs(key, expected), since_us);
        }
    }
}

/// Who has written a value; `None` if there is none.
fn writer(value: Option<&[u8]>) -> Result<Option<u64>, String> {
    let Some(value) = value else {
        return Ok(None);
    };
    let name = value.first_chunk::<8>();
    let name = name.ok_or_else(|| format!("a value that nobody wrote: {value:?}"))?;
    Ok(Some(u64::from_le_bytes(*name)))
}
