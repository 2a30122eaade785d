//! Whether a frame of a connection may run, and when it expires.

use penstock_net::auth::AuthFault;
use penstock_net::batch::Batch;
use penstock_net::frame::{Header, Medium, Opcode};
use penstock_net::item;
use penstock_net::level::AckLevel;
use penstock_net::refusal::Refusal;

use crate::admission::{Asked, Short};
use crate::execution::batch_run::deadline_us_of;
use crate::front::Front;
use crate::logins::Stage;
use crate::mail::SessionId;
use crate::now::Now;

impl Front {
    /// What is short, if a batch is to be refused for that before it runs.
    #[inline]
    pub(crate) fn is_short(
        &mut self,
        now: Now,
        id: SessionId,
        header: &Header,
        batch: Batch<'_>,
    ) -> Option<Short> {
        let session = self.sessions.at(id);
        let (under_way, operations) = (session.output.operations(), batch.len() as u64);
        match self
            .admission
            .is_free(&session.claim, under_way, operations)
        {
            true => None,
            false => self.judge_batch(now, id, header, batch),
        }
    }

    /// The same for a connection that has much under way. A batch that has run in part goes on.
    #[cold]
    pub(crate) fn judge_batch(
        &mut self,
        now: Now,
        id: SessionId,
        header: &Header,
        batch: Batch<'_>,
    ) -> Option<Short> {
        let session = self.sessions.at_mut(id);
        if session.interrupted.is_some() || session.peer.medium != Medium::Wire {
            return None;
        }
        let asked = Asked {
            under_way: session.output.operations(),
            operations: batch.len() as u64,
            bytes: u64::from(header.len),
            is_write: may_write(batch),
        };
        self.admission.refuses(now.us, &mut session.claim, asked)
    }

    /// Checks the header's fields, that HELLO is said first and once, and that a login comes before
    /// anything else at a shard with users.
    #[inline]
    pub(crate) fn judge(
        &self,
        id: SessionId,
        header: &Header,
    ) -> Result<(Opcode, AckLevel), Refusal> {
        let is_hello = header.opcode == Opcode::Hello as u8;
        match (self.sessions.at(id).access.stage, is_hello) {
            (Stage::Hello, false) => Err(Refusal::HelloExpected {
                opcode: header.opcode,
            }),
            (Stage::Open, false) | (Stage::Hello, true) => header.read_request(),
            (_, true) => Err(Refusal::HelloRepeated),
            (Stage::Authenticating, false) => {
                const AUTH: u8 = Opcode::Auth as u8;
                const PING: u8 = Opcode::Ping as u8;
                match header.opcode {
                    AUTH | PING => header.read_request(),
                    _ => Err(Refusal::Auth(AuthFault::Required)),
                }
            }
        }
    }

    /// When the batch at the front of the bytes of a connection expires; 0 for never.
    pub(crate) fn front_deadline_us(&self, id: SessionId, bytes: &[u8], came_us: u64) -> u64 {
        let header = self.sessions.at(id).receiver.header(bytes);
        let batch = header.filter(|header| header.opcode == Opcode::Batch as u8);
        batch.map_or(0, |header| deadline_us_of(&header, came_us))
    }
}

/// Whether an item of a batch may write.
fn may_write(batch: Batch<'_>) -> bool {
    (0..batch.len()).any(|number| item::may_write(batch.item(number)))
}
