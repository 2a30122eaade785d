//! One page of a scan: the keys of a shard from a cursor on, as far as memory, key tables and the
//! reads of the scan tell them. Nothing is changed here.

use penstock_net::reply::REPLY_ITEM_BYTES;
use penstock_net::request::Version;
use penstock_net::scan::{ScanEntry, ScanPageWriter, ScanRequest, ScanValue};
use penstock_storage::index::{Home, is_token_hash};
use penstock_storage::io::Blocks;
use penstock_storage::key_home::KeyHome;
use penstock_storage::key_table::TableEntry;
use penstock_storage::packed_place::PackedPlace;
use penstock_storage::place::{FileId, Lsn};
use penstock_storage::planted::{self, Bug, is_planted};
use penstock_storage::record::ValueKind;
use penstock_storage::store::Store;
use penstock_storage::system_key::is_system;
use penstock_storage::version::SLOTS;

use crate::key_tables::KeyTables;
use crate::scanning::{
    BLOCKS_A_STEP_MAX, ColdKey, ENTRIES_A_STEP_MAX, Order, READ_BYTES_A_STEP_MAX, READS_A_STEP_MAX,
    ROUNDS_MAX, Scan, TOKENS_A_STEP_MAX, Unread, Wanted,
};

/// Why a step of a scan is not answered now, or not with a page.
pub(crate) enum Halt {
    /// Parts that must be read first.
    Reads(Vec<Wanted>),
    /// The first key cannot be read.
    Unread(Unread),
}

/// The reads that a page lacks.
#[derive(Default)]
struct Lacking {
    wanted: Vec<Wanted>,
    /// How many of them are of parts, and the bytes of these.
    parts: usize,
    parts_bytes: usize,
    /// Where the first key stands that a read is needed for.
    stands: Option<KeyHome>,
}

impl Lacking {
    fn add(&mut self, at: KeyHome, want: Wanted) {
        self.stands.get_or_insert(at);
        match want {
            Wanted::Part(_, packed) => {
                self.parts += 1;
                self.parts_bytes += packed.place().unwrap_or_default().bytes as usize;
            }
            Wanted::Block(..) if self.wanted.contains(&want) => return,
            Wanted::Block(..) => {}
        }
        self.wanted.push(want);
    }
}

/// A page that is being made.
pub(crate) struct PageMaker<'a, P: Blocks> {
    pub(super) store: &'a Store<P>,
    pub(super) tables: &'a KeyTables,
    pub(super) order: Order,
    pub(super) scan: &'a Scan,
    pub(super) request: ScanRequest<'a>,
    /// Bytes of the page.
    pub(super) bytes_max: usize,
    /// The last slot, from the one of the cursor on: behind it another shard or node goes on.
    pub(super) last_slot: u16,
}

impl<'a, P: Blocks> PageMaker<'a, P> {
    /// Writes the page behind a placeholder for its reply head. Returns the last record that the
    /// page shows, which gates the reply.
    pub(crate) fn write(&self, out: &mut Vec<u8>) -> Result<Lsn, Halt> {
        out.resize(REPLY_ITEM_BYTES, 0);
        let mut page = ScanPageWriter::begin(out);
        let mut gate = Lsn(0);
        let mut lacking = Lacking::default();
        let (mut seen, mut tokens) = (0, 0);
        // The keys of one point of the order: they stand in one page.
        let mut group: Vec<(KeyHome, Home)> = Vec::new();
        let mut from = Some(self.order.decode(self.request.cursor));
        let next = loop {
            group.clear();
            let visit = &mut |at, home| group.push((at, home));
            let behind = from.and_then(|from| self.store.keys().keys_from(from, visit));
            let Some(&(at, _)) = group.first().filter(|(at, _)| at.slot <= self.last_slot) else {
                break None;
            };
            if page.entries() >= self.request.entries_max || seen >= ENTRIES_A_STEP_MAX {
                break Some(at);
            }
            if is_token_hash(at.hash) {
                // Clients see no tokens, so no read is needed to leave them out.
                tokens += group.len();
                from = behind;
                if tokens >= TOKENS_A_STEP_MAX || from.is_none() {
                    break from;
                }
                continue;
            }
            seen += group.len();
            self.note_unread(&group, &mut lacking);
            if lacking.stands.is_some() {
                if !self.may_read_more(&lacking, page.bytes(out)) {
                    break lacking.stands;
                }
            } else {
                match self.push(&group, &mut page, &mut gate, out) {
                    Ok(true) => {}
                    Ok(false) if is_planted(Bug::ScanPassesOne) => break behind,
                    Ok(false) => break Some(at),
                    // What stands before it is told first.
                    Err(_) if page.entries() > 0 => {
                        page.finish(out, self.order.encode(at));
                        return Ok(gate);
                    }
                    Err(unread) => return Err(Halt::Unread(unread)),
                }
            }
            from = behind;
            if from.is_none() {
                break None;
            }
        };
        if !lacking.wanted.is_empty() && self.scan.rounds < ROUNDS_MAX {
            return Err(Halt::Reads(lacking.wanted));
        }
        page.finish(out, self.cursor_of(lacking.stands.or(next)));
        Ok(planted::or(Bug::ScanUngated, Lsn(0), gate))
    }

    /// The cursor of the next page, which begins at `next`, or behind the last slot; 0 at the end.
    fn cursor_of(&self, next: Option<KeyHome>) -> u64 {
        let next = next.or_else(|| {
            let slot = self.last_slot + 1;
            let is_end = slot == SLOTS || is_planted(Bug::ScanEndsWithShard);
            (!is_end).then_some(KeyHome::new(slot, 0))
        });
        next.map_or(0, |next| self.order.encode(next))
    }

    /// Notes the reads that are needed before these keys can be told.
    fn note_unread(&self, group: &[(KeyHome, Home)], lacking: &mut Lacking) {
        for &(at, home) in group {
            if let Home::Disk(packed) = home
                && self.scan.known(at, packed).is_none()
                && let Err(want) = self.asked_of_table(at, packed)
            {
                lacking.add(at, want);
            }
        }
    }

    /// Whether keys further on may be read in the same round, while the page has so many bytes.
    fn may_read_more(&self, lacking: &Lacking, page_bytes: usize) -> bool {
        let room = match self.request.wants_values {
            true => self.bytes_max.saturating_sub(page_bytes),
            false => READ_BYTES_A_STEP_MAX,
        };
        self.scan.rounds < ROUNDS_MAX
            && lacking.parts < READS_A_STEP_MAX
            && lacking.parts_bytes < room
            && lacking.wanted.len() - lacking.parts < BLOCKS_A_STEP_MAX
    }

    /// Tells the keys of one point in the page, if they have room. An empty page takes them all,
    /// without the values if these are too long.
    fn push(
        &self,
        group: &[(KeyHome, Home)],
        page: &mut ScanPageWriter,
        gate: &mut Lsn,
        out: &mut Vec<u8>,
    ) -> Result<bool, Unread> {
        let mut entries = Vec::with_capacity(group.len());
        for &(at, home) in group {
            entries.extend(self.entry(at, home, gate)?);
        }
        let bytes: usize = entries.iter().map(ScanEntry::encoded_bytes).sum();
        if page.bytes(out) + bytes > self.bytes_max {
            if page.entries() > 0 {
                return Ok(false);
            }
            for entry in &mut entries {
                entry.value = match entry.value {
                    ScanValue::Bytes(_) => ScanValue::LeftOut,
                    other => other,
                };
            }
        }
        for entry in &entries {
            page.push(out, entry);
        }
        Ok(true)
    }

    /// What the key table of its segment tells of a cold key that was not read, or what is to be
    /// read before that is known: a block of the table, or the part.
    fn asked_of_table(&self, at: KeyHome, packed: PackedPlace) -> Result<TableEntry<'_>, Wanted> {
        let part = Wanted::Part(at, packed);
        let needs_part = self.request.wants_values || self.request.wants_types;
        if needs_part && self.request.prefix.is_empty() {
            return Err(part);
        }
        let file = packed.place().map_or(FileId(0), |place| place.file);
        let block = self.tables.block_of(file, at).ok_or(part)?;
        let kept = self.tables.block(file, block);
        let found = kept.or_else(|| self.scan.block(file, block));
        let found = found.ok_or(Wanted::Block(file, block))?;
        let entry = found.find(at, packed).ok_or(part)?;
        let is_shown = entry.key.starts_with(self.request.prefix)
            && !is_system(entry.key)
            && !self.store.data().is_expired(entry.expiry_ms);
        match is_shown && needs_part {
            true => Err(part),
            false => Ok(entry),
        }
    }

    /// What a page tells of one key, if anything.
    fn entry(
        &self,
        at: KeyHome,
        home: Home,
        gate: &mut Lsn,
    ) -> Result<Option<ScanEntry<'_>>, Unread> {
        let of_cold = |cold: &'a ColdKey| {
            let value = match &cold.value {
                _ if self.request.wants_types => ScanValue::Type(cold.type_number),
                Some(value) => ScanValue::Bytes(value),
                None if self.request.wants_values => ScanValue::LeftOut,
                None => ScanValue::NotAsked,
            };
            ScanEntry {
                key: &cold.key,
                version: cold.version,
                value,
            }
        };
        let entry = match home {
            Home::Memory(id) => {
                let cell = self.store.keys().cell(id);
                // Leaving a key out also shows its last change, so the gate counts for it, too.
                *gate = self.store.keys().lsn(id).max(*gate);
                let version = self.store.keys().version(id);
                self.store.data().exists(id).then(|| ScanEntry {
                    key: cell.key(),
                    version: Version {
                        epoch: version.epoch,
                        sequence: version.sequence,
                    },
                    value: match self.request.wants_values {
                        _ if self.request.wants_types => {
                            ScanValue::Type(cell.kinded_value().type_number())
                        }
                        true if cell.value_kind() != ValueKind::Plain => ScanValue::LeftOut,
                        true => ScanValue::Bytes(cell.value()),
                        false => ScanValue::NotAsked,
                    },
                })
            }
            Home::Disk(packed) => match self.scan.known(at, packed) {
                Some(Ok(cold)) => {
                    (!self.store.data().is_expired(cold.expiry_ms)).then(|| of_cold(cold))
                }
                Some(Err(unread)) => return Err(unread.clone()),
                None => self
                    .asked_of_table(at, packed)
                    .ok()
                    .filter(|entry| !self.store.data().is_expired(entry.expiry_ms))
                    .map(|entry| ScanEntry {
                        key: entry.key,
                        version: Version {
                            epoch: entry.version.epoch,
                            sequence: entry.version.sequence,
                        },
                        value: ScanValue::NotAsked,
                    }),
            },
        };
        // A client may not name the server's own keys. A node of a cluster has some.
        let is_shown =
            |entry: &ScanEntry| entry.key.starts_with(self.request.prefix) && !is_system(entry.key);
        Ok(entry.filter(is_shown))
    }
}
