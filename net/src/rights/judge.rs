//! What each request needs of its keys: the table of `RIGHTS.md` as code.

use crate::apply::ApplyRequest;
use crate::keyspace::Action;
use crate::request::{Condition, Extra, Request, Verb};
use crate::scan::ScanRequest;
use crate::script::{ScriptAccess, ScriptRequest};

use super::{Denied, Need, Rights};

/// The program that stands for all scripts of clients of Redis.
const SCRIPTS: &str = "eval";

impl Rights {
    /// Whether a user may have an item executed.
    ///
    /// # Errors
    /// The first right that is missing.
    #[inline]
    pub fn judge<'a>(&'a self, request: &Request<'a>) -> Result<(), Denied<'a>> {
        // Most items are of users who may do both with their only key: then what is done with the
        // key need not be known.
        let is_of_one_key =
            request.second_key.is_none() && !matches!(request.verb, Verb::Keyspace | Verb::Flush);
        match is_of_one_key && self.allows(Need::READ_WRITE, request.key) {
            true => Ok(()),
            false => self.judge_needs(request),
        }
    }

    fn judge_needs<'a>(&'a self, request: &Request<'a>) -> Result<(), Denied<'a>> {
        let need = match request.verb {
            Verb::Get | Verb::GetAt | Verb::History => Need::READ,
            Verb::Set if request.condition == Condition::Always => Need::WRITE,
            Verb::Set | Verb::Del => Need::READ_WRITE,
            Verb::Keyspace => return self.judge_keyspace(request),
            Verb::Flush => return self.demand_prefix(Need::ADMIN, &[]),
            Verb::UpdateIf => return self.judge_apply(&ApplyRequest::of_update_if(request)),
            Verb::Scan | Verb::Apply | Verb::Ping => {
                unreachable!("their items have forms of their own")
            }
        };
        self.demand(need, request.key)
    }

    /// The same of the program of an APPLY or UPDATE_IF.
    ///
    /// # Errors
    /// The first right that is missing.
    pub fn judge_apply<'a>(&'a self, request: &ApplyRequest<'a>) -> Result<(), Denied<'a>> {
        let mut keys = request.keys();
        if keys.all(|key| self.allows(Need::READ_WRITE, key)) {
            return Ok(());
        }
        let changed = request.changed_keys();
        for (key, changed) in request.keys().zip(changed) {
            self.demand(Need::of_change(changed), key)?;
        }
        Ok(())
    }

    /// The same of a script: the user may read the keys that it names, change them unless it only
    /// reads, and run [`SCRIPTS`] on them. It uses no other key.
    ///
    /// # Errors
    /// The first key where the right is missing.
    pub fn judge_script<'a>(&'a self, script: &ScriptRequest<'a>) -> Result<(), Denied<'a>> {
        if script.keys().next().is_none() {
            self.demand_run(Some(SCRIPTS), &[])?;
        }
        let need = Need::of_change(script.access() == ScriptAccess::Changes);
        script.keys().try_for_each(|key| {
            self.demand(need, key)?;
            self.demand_run(Some(SCRIPTS), key)
        })
    }

    /// The same of a RUN on these keys, of the program that has the name; `None` if the node does
    /// not know the program.
    ///
    /// # Errors
    /// The first key where the right is missing.
    pub fn judge_run<'a>(
        &'a self,
        program: Option<&'a str>,
        mut keys: impl Iterator<Item = &'a [u8]>,
    ) -> Result<(), Denied<'a>> {
        keys.try_for_each(|key| self.demand_run(program, key))
    }

    /// The same of a step of a scan.
    ///
    /// # Errors
    /// The right is missing for some keys that begin so, at least.
    pub fn judge_scan<'a>(&'a self, request: &ScanRequest<'a>) -> Result<(), Denied<'a>> {
        self.demand_prefix(Need::READ, request.prefix)
    }

    /// The same of an INFO, and of all else that tells what the server does.
    ///
    /// # Errors
    /// The right is missing.
    pub fn judge_info(&self) -> Result<(), Denied<'_>> {
        self.demand_prefix(Need::ADMIN, &[])
    }

    /// The same of an INFO that asks for the schema: any right will do.
    ///
    /// # Errors
    /// The user has no right.
    pub fn judge_schema(&self) -> Result<(), Denied<'_>> {
        match self.is_any() {
            true => Ok(()),
            false => self.judge_info(),
        }
    }

    /// Whether the user has a right for all keys that begin so.
    ///
    /// # Errors
    /// It is missing for some of them, at least.
    pub fn demand_prefix<'a>(&'a self, need: Need, prefix: &'a [u8]) -> Result<(), Denied<'a>> {
        self.demand(need, prefix).map_err(|denied| Denied {
            is_prefix: true,
            ..denied
        })
    }

    #[cold]
    fn judge_keyspace<'a>(&'a self, request: &Request<'a>) -> Result<(), Denied<'a>> {
        match request.extra {
            Extra::Keyspace(Action::List) => self.judge_info(),
            _ => self.demand_prefix(Need::ADMIN, request.key),
        }
    }
}
