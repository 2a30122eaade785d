//! How long the answer to an item may be, and who waits for memory of the store.

use penstock_net::item::ItemForm;
use penstock_net::reply::REPLY_HEAD_BYTES_MAX;
use penstock_net::request::{AnswerContent, Request};
use penstock_storage::io::Blocks;
use penstock_storage::store::Found;

use crate::execution::Execution;
use crate::execution::answer_bytes::may_show_value;

impl<P: Blocks> Execution<P> {
    /// Whether the answer to an item may be longer than `bytes_max`, as far as this shard can tell.
    #[cold]
    pub(crate) fn asks_for_much(&self, item: &[u8], bytes_max: usize) -> bool {
        match ItemForm::of(item) {
            ItemForm::Common => {}
            // A program tells a few numbers.
            ItemForm::Apply | ItemForm::Run => return false,
            ItemForm::Scan | ItemForm::Script => return true,
            ItemForm::Ping => return item.len() + REPLY_HEAD_BYTES_MAX > bytes_max,
        }
        let Ok(request) = Request::read(item, self.setup.limits().value_bytes_max) else {
            return false;
        };
        let slot = request.slot();
        if !self.setup.owns(slot) {
            return false;
        }
        match request.verb.answer_content() {
            // The index says nothing of their length.
            AnswerContent::PastValue | AnswerContent::Versions | AnswerContent::Keyspaces => {
                return true;
            }
            AnswerContent::Page | AnswerContent::Echo => return true,
            AnswerContent::Value | AnswerContent::Fields if !may_show_value(&request) => {
                return false;
            }
            AnswerContent::Value | AnswerContent::Fields => {}
        }
        let hash = self.setup.hash().of(request.key);
        let bytes = self.value_bytes(self.store.keys().find(slot, hash, request.key));
        bytes + REPLY_HEAD_BYTES_MAX > bytes_max
    }

    /// How long a value is; of a cold one what its part takes.
    pub(crate) fn value_bytes(&self, found: Found) -> usize {
        match found {
            Found::Cold(place) => place.bytes as usize,
            Found::Cached(id) => self.store.keys().cell(id).value().len(),
            Found::Absent => 0,
        }
    }

    /// Who waits for memory goes on when cells have left. Nothing else can be done for it than to
    /// let the hand go on and, when it finds nothing more that may leave, to have the log make that
    /// durable: then the loop rests until the disk has done it.
    pub(crate) fn check_memory(&mut self, waits: bool) {
        let is_short = self.store.data().is_memory_short();
        if (waits || is_short) && self.store.data().is_over_budget() {
            if self.store.data().may_shrink() {
                self.phase.note_progress(true);
            } else {
                let log = self.store.log_mut();
                log.want_durable(log.appended());
            }
        }
        // A key that found no room in the index waits while cleaning takes out what has expired.
        let is_short = is_short || self.store.waits_for_keys();
        self.phase.note_memory(is_short);
    }
}
