//! Several operations in one go.

use std::sync::Arc;

use penstock_client::{Ask, ClientError, FromAnswer, Token, Verbs};
use penstock_net::limits::BATCH_ITEMS_MAX;
use penstock_net::request::BatchRequest;

use super::Penstock;
use super::call::Call;
use super::pending::{PendingBatch, Ticket};

/// Operations that leave together, in one frame for each shard that owns some of the keys. So each
/// operation costs a fraction of a call of its own. A batch is no transaction: each operation takes
/// effect or not by itself. Operations on keys of one slot run in their order. What can be asked
/// stands in [`Verbs`].
#[must_use = "nothing runs until it is submitted"]
pub struct Batch<'a> {
    store: &'a Penstock,
    /// The frame of each shard that is being filled.
    open: Vec<Option<Frame>>,
    sent: Vec<(Result<Ticket, ClientError>, Vec<usize>)>,
    operations: usize,
}

struct Frame {
    call: Arc<Call>,
    bytes: Vec<u8>,
    batch: BatchRequest,
    numbers: Vec<usize>,
}

impl<'a> Batch<'a> {
    pub(super) fn new(store: &'a Penstock) -> Batch<'a> {
        Batch {
            store,
            open: store.mailboxes().iter().map(|_| None).collect(),
            sent: Vec::new(),
            operations: 0,
        }
    }

    /// How many operations there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.operations
    }

    /// Whether there is none yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.operations == 0
    }

    /// Adds any operation. A full frame is sent at once.
    pub fn ask(&mut self, ask: Ask<'_>) {
        self.add(ask, None);
    }

    fn add(&mut self, ask: Ask<'_>, token: Option<Token>) {
        let number = self.operations;
        self.operations += 1;
        let shard = self.store.owner(&ask);
        let mut frame = match self.open[shard].take() {
            Some(frame) => frame,
            None => match self.begin(shard) {
                Ok(frame) => frame,
                Err(error) => {
                    self.sent.push((Err(error), vec![number]));
                    return;
                }
            },
        };
        let bytes = ask.bytes_max();
        if !frame.numbers.is_empty()
            && (frame.numbers.len() == BATCH_ITEMS_MAX
                || frame.bytes.len() + bytes > self.store.frame_bytes_max())
        {
            self.send(shard, frame);
            frame = match self.begin(shard) {
                Ok(frame) => frame,
                Err(error) => {
                    self.sent.push((Err(error), vec![number]));
                    return;
                }
            };
        }
        if let Some(token) = token {
            frame.batch.token(token);
        }
        ask.write(&mut frame.batch, &mut frame.bytes);
        frame.numbers.push(number);
        self.open[shard] = Some(frame);
    }

    /// Sends what was not sent yet.
    pub fn submit(mut self) -> PendingBatch {
        for shard in 0..self.open.len() {
            if let Some(frame) = self.open[shard].take() {
                self.send(shard, frame);
            }
        }
        PendingBatch::new(std::mem::take(&mut self.sent), self.operations)
    }

    fn begin(&self, shard: usize) -> Result<Frame, ClientError> {
        let call = self.store.mailboxes()[shard].take_call()?;
        let mut bytes = std::mem::take(&mut call.lock().request);
        let batch = self.store.begin_frame(&call, &mut bytes, BATCH_ITEMS_MAX);
        Ok(Frame {
            call,
            bytes,
            batch,
            numbers: Vec::new(),
        })
    }

    fn send(&mut self, shard: usize, frame: Frame) {
        let Frame {
            call,
            mut bytes,
            batch,
            numbers,
        } = frame;
        batch.finish(&mut bytes);
        call.lock().request = bytes;
        let ticket = self.store.send(shard, call);
        self.sent.push((Ok(ticket), numbers));
    }
}

impl Verbs for &mut Batch<'_> {
    /// Nothing: the answers come with those of the batch, in the order of its operations.
    type Answer<T> = ();

    fn ask_for<T: FromAnswer>(self, ask: Ask<'_>) {
        self.ask(ask);
    }

    fn ask_named<T: FromAnswer>(self, ask: Ask<'_>, token: Token) {
        self.add(ask, Some(token));
    }
}

impl Drop for Batch<'_> {
    /// Gives back the calls that were not sent.
    fn drop(&mut self) {
        for (shard, frame) in self.open.iter_mut().enumerate() {
            if let Some(Frame { call, .. }) = frame.take() {
                self.store.mailboxes()[shard].let_go_unsent(call);
            }
        }
    }
}
