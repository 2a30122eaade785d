//! Logins of connections, and what a change of users does to them.

use penstock_net::auth::{AuthFault, AuthReply};
use penstock_net::frame::{Header, Medium};
use penstock_net::refusal::Refusal;
use penstock_storage::io::Blocks;
use penstock_storage::place::Lsn;

use crate::event::Outbox;
use crate::logins::{LoginOutcome, Stage};
use crate::mail::SessionId;
use crate::shard::Shard;
use crate::step::Step;

impl<P: Blocks> Shard<P> {
    /// Takes a message of a login.
    #[cold]
    pub(super) fn log_in(
        &mut self,
        step: &mut Step<'_, P::Block>,
        id: SessionId,
        header: &Header,
        body: &[u8],
    ) {
        let session = self.front.sessions.at_mut(id);
        let asked = session
            .access
            .login
            .as_ref()
            .and_then(|login| login.asked());
        let is_by_wire = session.peer.medium == Medium::Wire;
        let is_repeated = is_by_wire && session.access.stage == Stage::Open;
        let (fault, is_last) = match &mut session.access.login {
            _ if !self.front.logins.are_needed() => (AuthFault::NoUsers, false),
            _ if is_repeated => (AuthFault::Repeated, false),
            // Nobody knows from where it came.
            None => (AuthFault::Required, false),
            Some(login) => {
                match self
                    .front
                    .logins
                    .take_message(step.now.us, login, body, is_by_wire)
                {
                    Ok(outcome) => return self.answer_login(id, header, &outcome, step.outbox),
                    Err(refused) => (refused.fault, refused.is_last),
                }
            }
        };
        self.front.audit_refused(id, asked, fault);
        self.refuse(id, Some(header), Refusal::Auth(fault), is_last, step.outbox);
    }

    fn answer_login(
        &mut self,
        id: SessionId,
        header: &Header,
        outcome: &LoginOutcome,
        outbox: &mut Outbox<P::Block>,
    ) {
        let hello;
        let reply = match outcome {
            LoginOutcome::GoOn(message) => AuthReply::GoOn {
                message: message.as_bytes(),
            },
            LoginOutcome::Left => {
                // Its rights stay: what waits is judged by them, and nothing else is taken.
                self.front.sessions.at_mut(id).access.stage = Stage::Authenticating;
                AuthReply::GoOn { message: b"-" }
            }
            LoginOutcome::Done(message) => {
                self.front.take_rights(id);
                self.open(id);
                self.front.audit_login(id);
                let server_hello = self.execution.setup.config().hello.at(self
                    .execution
                    .store
                    .data()
                    .time_ms());
                hello = server_hello.body();
                AuthReply::Done {
                    message: message.as_bytes(),
                    hello: &hello,
                }
            }
        };
        let shard = self.execution.setup.shard();
        let out = self.front.sessions.at_mut(id).output.pieces.written();
        reply.write(out, header.request_id, shard);
        self.note(id, Lsn(0), 0, outbox);
        self.front.bound_unsent(id, outbox);
    }
}
