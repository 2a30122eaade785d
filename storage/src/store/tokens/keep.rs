//! A token as one more part of the record of the change that it names.

use crate::format::horizon::{AHEAD_MS_MAX, Horizon};
use crate::format::record::KindedValue;
use crate::format::system_key::is_token;
use crate::format::token::TokenAnswer;
use crate::log::room::{Purpose, Room};
use crate::memory::index::entry::CellId;
use crate::memory::keys::Found;
use crate::store::commit::{ChangeKey, Committed, NoRoom, TokenPart};
use crate::store::data::Data;
use crate::store::store::Store;
use crate::store::tokens::horizons::raised_within_ms;
use crate::types::io::Blocks;
use crate::types::key_home::KeyHome;
use crate::types::version::partition_of;

impl Data {
    /// Tokens are to be kept for so many milliseconds from now on.
    pub fn keep_tokens_for(&mut self, horizon_ms: u64) {
        self.horizons.configure(horizon_ms);
        // What an earlier start kept for longer is met by cleaning for another reason.
        let by_ms = self.time_ms() + AHEAD_MS_MAX + horizon_ms + raised_within_ms(horizon_ms);
        self.live.restored_by(by_ms);
    }

    /// The horizon of a partition was looked up.
    pub fn learn_horizon(&mut self, partition: usize, horizon: Option<Horizon>) {
        let now_ms = self.time_ms();
        self.horizons.learn(partition, horizon, now_ms);
    }

    /// The horizon that is to be logged so that tokens of a partition may be dropped, if it is time
    /// for that.
    #[must_use]
    pub fn raised_horizon(&self, partition: usize) -> Option<Horizon> {
        self.horizons.raised(partition, self.time_ms())
    }

    /// Makes the horizon of new tokens fit the memory that all of them take. Whether it is another
    /// one now.
    pub fn fit_token_horizon(&mut self) -> bool {
        let usage = self.usage();
        self.horizons.fit(usage.token_bytes, usage.token_bytes_max)
    }

    /// Takes note of a token that is in the log. Nearly no token is ever looked at again, so its
    /// cell leaves before others do.
    pub(in crate::store) fn note_token(&mut self, slot: u16, id: CellId, token_ms: u64) {
        self.keys.forget_use_of(id);
        self.horizons.note_token(partition_of(slot), token_ms);
    }
}

impl<P: Blocks> Store<P> {
    /// How often the horizon is halved because memory for tokens runs out.
    #[must_use]
    pub fn token_halvings(&self) -> u32 {
        self.data.horizons.halvings()
    }

    /// How long tokens that are logged now are to be kept, in milliseconds: as long as was said, or
    /// less because their memory runs out.
    #[must_use]
    pub fn token_horizon_ms(&self) -> u64 {
        self.data.horizons.wanted_ms()
    }

    /// The horizon of a partition: `None` if it must be looked up, and of a partition that never
    /// had a token the inner `None`.
    #[must_use]
    pub fn horizon(&self, partition: usize) -> Option<Option<Horizon>> {
        self.data.horizons.of(partition)
    }

    /// Logs a horizon under its key, which was just looked up.
    ///
    /// # Errors
    /// [`NoRoom`].
    pub fn commit_horizon(
        &mut self,
        now_us: u64,
        slot: u16,
        at: ChangeKey<'_>,
        horizon: Horizon,
    ) -> Result<Committed, NoRoom> {
        let value = horizon.encode();
        let mut change = self.change(slot, [at], 1);
        change.put(0, KindedValue::plain(&value), None);
        let committed = change.commit(now_us)?;
        let now_ms = self.data.time_ms();
        self.data
            .horizons
            .logged(partition_of(slot), horizon, now_ms);
        Ok(committed)
    }

    /// Logs a token alone: what it names changed nothing.
    ///
    /// # Errors
    /// [`NoRoom`].
    pub fn commit_token(
        &mut self,
        now_us: u64,
        slot: u16,
        token: &TokenPart<'_>,
    ) -> Result<Committed, NoRoom> {
        let mut value = std::mem::take(&mut self.token_value);
        token.answer.encode(&mut value);
        let mut change = self.change(slot, [token.at], 1);
        change.put(0, KindedValue::plain(&value), Some(token.expiry_ms));
        let committed = change.commit(now_us);
        self.token_value = value;
        let committed = committed?;
        if let Found::Cached(id) = self.data.keys.find(slot, token.at.hash, token.at.key) {
            self.data.note_token(slot, id, token.token_ms);
        }
        Ok(committed)
    }

    /// Finds room for a record with so many bytes of other parts, some of them of new keys, and a
    /// token. `new` are the hashes of all keys that the index is to take, the token's included.
    pub(in crate::store) fn room_with_token(
        &mut self,
        slot: u16,
        bytes: usize,
        new: &[u32],
        token: &TokenPart<'_>,
    ) -> Result<(), NoRoom> {
        let (bytes, max) = (bytes + token.bytes(), self.log.record_bytes_max());
        if bytes > max {
            return Err(NoRoom::Record { bytes, max });
        }
        if !self.data.has_room_for_new(slot, new) {
            return Err(self.waits_or_lacks_memory());
        }
        if self.data.is_memory_short() {
            return Err(NoRoom::Wait);
        }
        match self.room_for(Purpose::Grow, bytes) {
            Room::Yes => Ok(()),
            Room::Wait => Err(NoRoom::Wait),
            Room::Full => Err(NoRoom::Log),
        }
    }

    /// Logs cells as [`Store::commit`] does; the last of them is the token's.
    pub(in crate::store) fn commit_with_token(
        &mut self,
        now_us: u64,
        slot: u16,
        cells: &[(u32, CellId)],
        token: &TokenPart<'_>,
    ) -> Committed {
        let (lsn, version) = self.commit(now_us, slot, cells);
        let &(_, id) = cells.last().expect("the token's cell");
        self.data.note_token(slot, id, token.token_ms);
        Committed { lsn, version }
    }

    /// Gives a token its cell.
    pub(in crate::store) fn put_token(&mut self, slot: u16, token: &TokenPart<'_>) -> CellId {
        let hash = token.at.hash;
        let home = KeyHome { slot, hash };
        let Store {
            data: Data { keys, .. },
            token_value,
            ..
        } = self;
        token.answer.encode(token_value);
        let (value, expiry_ms) = (KindedValue::plain(token_value), Some(token.expiry_ms));
        match token.at.cell {
            Some(id) => keys.set_value(home, id, value, expiry_ms),
            None => keys.insert(home, token.at.key, value, expiry_ms),
        }
    }

    /// A key is to be logged anew as it is. A token tells the version of its own record, unless its
    /// value names another one. So the value of a token names the present version, and each retry
    /// is told what the first try was. Other keys do not change. The cell of the key; its value is
    /// longer by [`TokenAnswer::VERSION_BYTES`] at most.
    pub fn keep_answer_version(&mut self, home: KeyHome, id: CellId) -> CellId {
        let cell = self.data.keys.cell(id);
        let answer = match is_token(cell.key()) {
            true => TokenAnswer::decode(cell.value()).filter(|it| it.version.is_none()),
            false => None,
        };
        let Some(answer) = answer else {
            return id;
        };
        let version = Some(self.data.keys.cells().version(id));
        let mut value = std::mem::take(&mut self.token_value);
        TokenAnswer { version, ..answer }.encode(&mut value);
        let expiry_ms = cell.expiry_ms();
        let id = self
            .data
            .keys
            .set_value(home, id, KindedValue::plain(&value), expiry_ms);
        self.token_value = value;
        id
    }
}
