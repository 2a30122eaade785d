//! How a store takes the keys of inherited logs over into its own.

use crate::if_planted;
use crate::planted::{Bug, is_planted};
use crate::store::cleaning::cleaning::{Cleaned, Cleaning};
use crate::store::data::Data;
use crate::store::inheritance::Inheritance;
use crate::types::io::Blocks;
use crate::types::place::FileId;

impl<P: Blocks> Cleaning<P> {
    /// As [`Store::has_taken_over`](crate::store::Store::has_taken_over).
    pub(in crate::store) fn has_taken_over(&mut self, store: &mut Cleaned<'_, P>) -> bool {
        if !self.inheritance.is_there() || !self.inheritance.is_judged() {
            return false;
        }
        let appended = store.log.appended();
        let judged_at = *self.inheritance.judged_at.get_or_insert(appended);
        if_planted!(Bug::TakenOverUndurable, return true);
        store.log.want_durable(judged_at);
        if store.log.durable() < judged_at || store.log.owes_contents() {
            return false;
        }
        self.apply_moves(store.data, store.log.durable());
        for inherited in &self.inheritance.segments {
            let file = inherited.segment.file;
            let parts_bytes = store.data.live.parts(file);
            assert!(
                parts_bytes == 0 || is_planted(Bug::ForgetOneMove),
                "the index points to {parts_bytes} bytes of {:08}.seg, all of which was judged",
                file.0
            );
        }
        true
    }

    /// As [`Store::forget_inherited`](crate::store::Store::forget_inherited).
    pub(in crate::store) fn forget_inherited(&mut self, data: &mut Data) -> Vec<FileId> {
        let files: Vec<FileId> = self.inheritance.files().collect();
        for &file in &files {
            data.live.forget(file);
        }
        self.inheritance = Inheritance::default();
        self.note_record();
        files
    }
}
