//! The items of a batch: a closed set of forms, and what each of them asks.
//!
//! The form follows from one byte of an item. Code that depends on the form matches on [`ItemForm`]
//! before the item is read, and on [`Item`] after. A new form is a compile error in each such
//! match.

use crate::apply::{APPLY, ApplyRequest};
use crate::ping::{PING, PingItem};
use crate::program::{RUN, RunRequest};
use crate::refusal::Refusal;
use crate::request::{Effect, Request, Verb};
use crate::scan::{SCAN, ScanRequest};
use crate::script::{SCRIPT, ScriptAccess, ScriptRequest};
use crate::slot::slot_of;

/// The form of an item, by the number of its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemForm {
    /// The common form: one verb on one key or two. Also of an item with an unknown operation,
    /// which [`Item::read`] refuses.
    Common,
    /// APPLY.
    Apply,
    /// RUN.
    Run,
    /// SCAN.
    Scan,
    /// PING.
    Ping,
    /// SCRIPT.
    Script,
}

impl ItemForm {
    /// The form of an unchecked item.
    #[inline(always)]
    #[must_use]
    pub fn of(item: &[u8]) -> Self {
        match item.get(2) {
            Some(&APPLY) => ItemForm::Apply,
            Some(&RUN) => ItemForm::Run,
            Some(&SCAN) => ItemForm::Scan,
            Some(&PING) => ItemForm::Ping,
            Some(&SCRIPT) => ItemForm::Script,
            _ => ItemForm::Common,
        }
    }

    /// The verb that all items of this form have. A RUN and a SCRIPT are counted as the
    /// APPLY that they become.
    #[inline]
    #[must_use]
    pub fn verb(self) -> Option<Verb> {
        match self {
            ItemForm::Common => None,
            ItemForm::Apply | ItemForm::Run | ItemForm::Script => Some(Verb::Apply),
            ItemForm::Scan => Some(Verb::Scan),
            ItemForm::Ping => Some(Verb::Ping),
        }
    }
}

/// One item, checked as far as that needs no store, as a view of its bytes.
#[derive(Clone, Copy, Debug)]
pub enum Item<'a> {
    /// GET, SET, DEL, GET_AT, HISTORY or KEYSPACE.
    Verb(Request<'a>),
    /// The program of an UPDATE_IF or APPLY.
    Program(ApplyRequest<'a>),
    /// A RUN, which becomes a program at a node that knows it.
    Run(RunRequest<'a>),
    /// A step of a scan.
    Scan(ScanRequest<'a>),
    /// A PING.
    Ping(PingItem<'a>),
    /// A SCRIPT.
    Script(ScriptRequest<'a>),
}

impl<'a> Item<'a> {
    /// Reads one item. A value has at most `value_bytes_max` bytes.
    ///
    /// # Errors
    /// The first [`Refusal`] found.
    pub fn read(item: &'a [u8], value_bytes_max: u32) -> Result<Self, Refusal> {
        Ok(match ItemForm::of(item) {
            ItemForm::Common => match Request::read(item, value_bytes_max)? {
                request if request.verb == Verb::UpdateIf => {
                    Item::Program(ApplyRequest::of_update_if(&request))
                }
                request => Item::Verb(request),
            },
            ItemForm::Apply => Item::Program(ApplyRequest::read(item, value_bytes_max)?),
            ItemForm::Run => Item::Run(RunRequest::read(item)?),
            ItemForm::Scan => Item::Scan(ScanRequest::read(item)?),
            ItemForm::Ping => Item::Ping(PingItem::read(item, value_bytes_max)?),
            ItemForm::Script => Item::Script(ScriptRequest::read(item)?),
        })
    }

    /// What the item does to a store.
    #[must_use]
    pub fn effect(&self) -> Effect {
        match self {
            Item::Verb(request) => request.verb.effect(),
            Item::Program(_) | Item::Run(_) => Effect::Writes,
            Item::Script(script) => match script.access() {
                ScriptAccess::Changes => Effect::Writes,
                ScriptAccess::Reads => Effect::Reads,
            },
            Item::Scan(_) | Item::Ping(_) => Effect::Reads,
        }
    }

    /// The slot whose shard answers. `None`: the item names no key.
    #[must_use]
    pub fn slot(&self) -> Option<u16> {
        match self {
            Item::Verb(request) => Some(request.slot()),
            Item::Program(request) => Some(slot_of(request.key())),
            Item::Run(run) => Some(slot_of(run.key())),
            Item::Script(script) => script.slot(),
            Item::Scan(_) | Item::Ping(_) => None,
        }
    }
}

/// Whether an unchecked item may write. What is no item writes nothing.
#[inline]
#[must_use]
pub fn may_write(item: &[u8]) -> bool {
    let verb = match ItemForm::of(item).verb() {
        Some(verb) => Some(verb),
        None => item.get(2).copied().and_then(Verb::of),
    };
    verb.is_some_and(|verb| verb.effect() != Effect::Reads)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::Refusal;

    const VALUE_BYTES_MAX: u32 = 1 << 10;

    /// An item of 64 zeros with this operation.
    fn bare(operation: u8) -> [u8; 64] {
        let mut item = [0; 64];
        item[2] = operation;
        item
    }

    #[test]
    fn each_verb_has_the_form_that_reads_it_and_an_unknown_operation_is_refused_by_its_number() {
        for operation in 0..=u8::MAX {
            let item = bare(operation);
            let form = ItemForm::of(&item);
            match Verb::of(operation) {
                Some(Verb::Apply) => assert_eq!(form, ItemForm::Apply),
                Some(Verb::Scan) => assert_eq!(form, ItemForm::Scan),
                Some(Verb::Ping) => assert_eq!(form, ItemForm::Ping),
                Some(_) => assert_eq!(form, ItemForm::Common),
                None if operation == RUN => assert_eq!(form, ItemForm::Run),
                None if operation == SCRIPT => assert_eq!(form, ItemForm::Script),
                None => {
                    assert_eq!(form, ItemForm::Common);
                    assert!(!may_write(&item), "operation {operation}");
                    let refusal = Item::read(&item, VALUE_BYTES_MAX).expect_err("unknown");
                    assert_eq!(refusal, Refusal::Operation(operation));
                }
            }
        }
    }

    #[test]
    fn an_item_may_write_if_its_verb_does() {
        for verb in Verb::ALL {
            let writes = verb.effect() != Effect::Reads;
            assert_eq!(may_write(&bare(verb as u8)), writes, "{verb:?}");
        }
        assert!(may_write(&bare(RUN)));
        assert!(!may_write(&[]) && !may_write(&[0, 0]));
    }
}
