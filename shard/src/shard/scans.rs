//! Pages of SCAN, step by step.

use penstock_net::level::AckLevel;
use penstock_net::reply::{REPLY_ITEM_BYTES, ReplyHead};
use penstock_net::request::Version;
use penstock_net::scan::{ScanEntry, ScanPageWriter, ScanRequest, ScanValue};
use penstock_net::status::Status;
use penstock_storage::index::Home;
use penstock_storage::io::{Blocks, Completion};
use penstock_storage::key_table::TableEntry;
use penstock_storage::packed_place::{Cursor, PackedPlace};
use penstock_storage::place::FileId;
use penstock_storage::place::Lsn;
use penstock_storage::planted::{Bug, is_planted};
use penstock_storage::store::{AdmitError, part_read};
use penstock_storage::system_key::is_system;
use penstock_storage::version::SLOTS;

use crate::answers::Asked;
use crate::requests::parking::{Origin, Parked};
use crate::scanning::{
    BLOCKS_A_STEP_MAX, ColdKey, ENTRIES_A_STEP_MAX, READ_BYTES_A_STEP_MAX, READS_A_STEP_MAX,
    ROUNDS_MAX, Reading, STEPS_A_TURN_MAX, Scan, ScanRead, Unread, Wanted, slot_of_cursor,
};

use super::reads::{bytes_read, not_read, not_written};
use super::{Halt, Now, Operation, Outbox, Shard, Step};

impl<P: Blocks> Shard<P> {
    /// Takes a step of a scan in, or sends it to the shard whose slots it has come to.
    #[cold]
    pub(super) fn begin_scan(
        &mut self,
        now: Now,
        origin: Origin,
        operation: Operation<'_>,
        item: &[u8],
        out: &mut Vec<u8>,
    ) -> Step {
        let Operation {
            address,
            level,
            deadline_us,
            ..
        } = operation;
        let request = match ScanRequest::read(item) {
            Ok(request) => request,
            Err(refusal) => {
                let status = refusal.status();
                return self.refuse_item(Asked::Scan, &operation, status, &refusal, out);
            }
        };
        if let Some((status, message)) = self.comes_too_late(now, deadline_us) {
            return self.refuse_item(Asked::Scan, &operation, status, &message, out);
        }
        let slot = slot_of_cursor(request.cursor);
        let owner = self.setup.owner(slot);
        if owner != self.setup.shard() {
            return self.mail_request(origin, owner, operation, slot, true, item, out);
        }
        if let Some(elsewhere) = self.linked.as_ref().and_then(|it| it.elsewhere_of_any()) {
            return self.refuse_elsewhere(Asked::Scan, &operation, &elsewhere, out);
        }
        if level == AckLevel::Replica {
            let message = "a SCAN has no ack level replica: read the keys by GET at that level";
            let status = Status::Unsupported;
            return self.refuse_item(Asked::Scan, &operation, status, &message, out);
        }
        if self.scans.steps.is_full() {
            let message = format!(
                "{} scans are under way, which is the limit",
                self.scans.steps.len()
            );
            return self.refuse_item(Asked::Scan, &operation, Status::Busy, &message, out);
        }
        self.scans.steps.begin(Parked {
            origin,
            address,
            level,
            deadline_us,
            came_us: operation.came_us,
            slot,
            // The number of scans bounds what they hold.
            reserved: 0,
            item: item.into(),
        });
        Step::Later
    }

    /// Runs the steps whose turn it is.
    pub(super) fn scan(&mut self, now: Now, outbox: &mut Outbox<P::Block>) {
        for _ in 0..STEPS_A_TURN_MAX {
            let Some(scan) = self.scans.steps.next_ready() else {
                break;
            };
            let Parked {
                origin,
                address,
                level,
                deadline_us,
                came_us,
                ..
            } = scan.parked;
            if origin == Origin::Here && self.sessions.get_open(address.session).is_none() {
                continue;
            }
            let mut pieces = self.requests.take_scratch();
            let out = pieces.written();
            let head = |status| ReplyHead::new(status, address.item, level, Version::default());
            let gate = if let Some((status, message)) = self.comes_too_late(now, deadline_us) {
                self.stats.refuse(Asked::Scan, status);
                head(status).write_message(out, &message);
                Some(Lsn(0))
            } else {
                match self.scan_step(&scan, out) {
                    Ok(gate) => {
                        self.stats.answer(Asked::Scan, Status::Ok);
                        head(Status::Ok).patch(out, 0);
                        Some(self.gate(level, gate))
                    }
                    Err(Halt::Unread(Unread { status, message })) => {
                        self.stats.answer(Asked::Scan, status);
                        out.clear();
                        head(status).write_message(out, &message);
                        Some(Lsn(0))
                    }
                    Err(Halt::Reads(wanted)) => {
                        self.scans.steps.wait(scan, &wanted);
                        None
                    }
                }
            };
            if let Some(gate) = gate {
                self.stats.answer_later(now.us, came_us);
                self.answer_detached(origin, address, gate, &pieces, outbox);
            }
            self.requests.give_scratch(pieces);
        }
    }

    /// Writes a page behind the place of its head; what it shows depends on the record that is
    /// returned.
    fn scan_step(&self, scan: &Scan, out: &mut Vec<u8>) -> Result<Lsn, Halt> {
        let request = ScanRequest::read(&scan.parked.item).expect("checked when it came");
        // A page is a part of a frame.
        let bytes_max = request
            .bytes_max
            .min(self.setup.limits().frame_bytes_max / 2) as usize;
        let last_slot = self.setup.config().topology.last_slot(scan.parked.slot);
        out.resize(REPLY_ITEM_BYTES, 0);
        let mut page = ScanPageWriter::begin(out);
        let mut gate = Lsn(0);
        let mut seen = 0;
        let mut wanted: Vec<Wanted> = Vec::new();
        let (mut parts, mut parts_bytes) = (0, 0);
        // Where the first key stands that a read is needed for.
        let mut stands: Option<Cursor> = None;
        let mut group: Vec<(Cursor, Home)> = Vec::new();
        let mut from = Some(self.scans.order.decode(request.cursor));
        let next = loop {
            group.clear();
            let behind = from.and_then(|from| {
                self.store
                    .keys_from(from, &mut |at, home| group.push((at, home)))
            });
            let Some(&(at, _)) = group.first().filter(|(at, _)| at.slot <= last_slot) else {
                break None;
            };
            let is_enough = page.entries() >= request.entries_max || seen >= ENTRIES_A_STEP_MAX;
            if is_enough {
                break Some(at);
            }
            seen += group.len();
            let unread = |&(at, home): &(Cursor, Home)| match home {
                Home::Disk(packed) if scan.known(at, packed).is_none() => {
                    self.asked_of_table(scan, &request, at, packed).err()
                }
                _ => None,
            };
            for want in group.iter().filter_map(unread) {
                if is_planted(Bug::ScanForgetsCold) {
                    break;
                }
                stands.get_or_insert(at);
                match want {
                    Wanted::Part(_, packed) => {
                        parts += 1;
                        parts_bytes += packed.place().unwrap_or_default().bytes as usize;
                    }
                    Wanted::Block(..) if wanted.contains(&want) => continue,
                    Wanted::Block(..) => {}
                }
                wanted.push(want);
            }
            if stands.is_some() {
                let room = match request.wants_values {
                    true => bytes_max.saturating_sub(page.bytes(out)),
                    false => READ_BYTES_A_STEP_MAX,
                };
                let is_more = parts < READS_A_STEP_MAX
                    && parts_bytes < room
                    && wanted.len() - parts < BLOCKS_A_STEP_MAX;
                if scan.rounds >= ROUNDS_MAX || !is_more {
                    break stands;
                }
            } else {
                let mut entries = Vec::with_capacity(group.len());
                for &(at, home) in &group {
                    match self.scan_entry(scan, &request, at, home, &mut gate) {
                        Ok(entry) => entries.extend(entry),
                        // What stands before it is told first.
                        Err(_) if page.entries() > 0 => {
                            page.finish(out, self.scans.order.encode(at));
                            return Ok(gate);
                        }
                        Err(unread) => return Err(Halt::Unread(unread)),
                    }
                }
                let bytes: usize = entries.iter().map(ScanEntry::encoded_bytes).sum();
                if page.bytes(out) + bytes > bytes_max {
                    if page.entries() > 0 {
                        break match is_planted(Bug::ScanPassesOne) {
                            true => behind,
                            false => Some(at),
                        };
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
            }
            from = behind;
            if from.is_none() {
                break None;
            }
        };
        if !wanted.is_empty() && scan.rounds < ROUNDS_MAX {
            return Err(Halt::Reads(wanted));
        }
        let next = stands.or(next).or_else(|| {
            let slot = last_slot + 1;
            let is_end = slot == SLOTS || is_planted(Bug::ScanEndsWithShard);
            (!is_end).then_some(Cursor { slot, hash: 0 })
        });
        page.finish(out, next.map_or(0, |next| self.scans.order.encode(next)));
        Ok(match is_planted(Bug::ScanUngated) {
            true => Lsn(0),
            false => gate,
        })
    }

    /// What the key table of its segment tells of a cold key that was not read, or what is to be
    /// read before that is known: a block of the table, or the part.
    fn asked_of_table<'a>(
        &'a self,
        scan: &'a Scan,
        request: &ScanRequest<'_>,
        at: Cursor,
        packed: PackedPlace,
    ) -> Result<TableEntry<'a>, Wanted> {
        let part = Wanted::Part(at, packed);
        if request.wants_values && request.prefix.is_empty() {
            return Err(part);
        }
        let file = packed.place().map_or(FileId(0), |place| place.file);
        let block = self.scans.tables.block_of(file, at).ok_or(part)?;
        let kept = self.scans.tables.block(file, block);
        let found = kept.or_else(|| scan.block(file, block));
        let found = found.ok_or(Wanted::Block(file, block))?;
        let entry = found.find(at, packed).ok_or(part)?;
        let is_told = entry.key.starts_with(request.prefix)
            && !is_system(entry.key)
            && !self.store.is_expired(entry.expiry_ms);
        match is_told && request.wants_values {
            true => Err(part),
            false => Ok(entry),
        }
    }

    /// What a page tells of one key, if anything.
    fn scan_entry<'a>(
        &'a self,
        scan: &'a Scan,
        request: &ScanRequest<'_>,
        at: Cursor,
        home: Home,
        gate: &mut Lsn,
    ) -> Result<Option<ScanEntry<'a>>, Unread> {
        let of_cold = |cold: &'a ColdKey| {
            let value = match &cold.value {
                Some(value) => ScanValue::Bytes(value),
                None if request.wants_values => ScanValue::LeftOut,
                None => ScanValue::NotAsked,
            };
            ScanEntry {
                key: &cold.key,
                version: cold.version,
                value,
            }
        };
        let entry = match home {
            _ if is_planted(Bug::ScanTellsOldRead) && scan.once_known(at).is_some() => {
                scan.once_known(at).map(of_cold)
            }
            Home::Memory(id) => {
                let cell = self.store.cell(id);
                // That a key is not told is shown as well.
                *gate = self.store.lsn(id).max(*gate);
                let version = self.store.version(id);
                self.store.exists(id).then(|| ScanEntry {
                    key: cell.key(),
                    version: Version {
                        epoch: version.epoch,
                        sequence: version.sequence,
                    },
                    value: match request.wants_values {
                        true => ScanValue::Bytes(cell.value()),
                        false => ScanValue::NotAsked,
                    },
                })
            }
            Home::Disk(packed) => match scan.known(at, packed) {
                Some(Ok(cold)) => (!self.store.is_expired(cold.expiry_ms)).then(|| of_cold(cold)),
                Some(Err(unread)) => return Err(unread.clone()),
                None => self
                    .asked_of_table(scan, request, at, packed)
                    .ok()
                    .filter(|entry| !self.store.is_expired(entry.expiry_ms))
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
        // The server's own keys, of which a node of a cluster has some, are none that a client may
        // name.
        let is_told =
            |entry: &ScanEntry| entry.key.starts_with(request.prefix) && !is_system(entry.key);
        Ok(entry.filter(is_told))
    }

    /// A read for a scan ended.
    pub(super) fn scan_read(
        &mut self,
        completion: &Completion<P::Block>,
        outbox: &mut Outbox<P::Block>,
    ) {
        let (read, scan) = self.scans.steps.finished(completion.token);
        let mut read = match read {
            Reading::Part(read) => read,
            Reading::Block(read) => {
                let bytes = bytes_read(completion, None).unwrap_or_default();
                let block = self.scans.tables.take_in(read.file, read.block, bytes);
                if block.is_none() {
                    self.scans.give_up_table(read.file, &mut outbox.key_tables);
                }
                self.scans.steps.learn_block(&read, block);
                return;
            }
        };
        let request = ScanRequest::read(&scan.parked.item).expect("checked when it came");
        let place = read.place();
        let judge = |read: &ScanRead, bytes: &[u8]| {
            let of = (read.at.slot, read.at.hash);
            part_read(of, read.packed, bytes, |key| self.setup.hash().home_of(key))
                .map(|part| ColdKey::of(&part, &request))
                .map_err(|AdmitError::Corrupt| Unread {
                    status: Status::Corrupt,
                    message: not_written(place),
                })
        };
        let brought = read.brought();
        let key = match bytes_read(completion, brought) {
            Ok(bytes) => match read.take_in(bytes) {
                Some(all) => judge(&read, &all),
                None => {
                    self.scans.steps.read_on(completion.token, read);
                    return;
                }
            },
            Err(failure) => Err(Unread {
                status: Status::Io,
                message: not_read(place, failure),
            }),
        };
        if key.is_err() && brought.is_none() && !is_planted(Bug::ReadOnce) {
            self.stats.read_again();
            self.scans.steps.read_again(completion.token, read);
            return;
        }
        if let Err(unread) = &key {
            let home = (read.at.slot, read.at.hash);
            self.chores.note_bad_place(home, place, unread.status);
        }
        self.scans.steps.learn(&read, key);
    }
}
