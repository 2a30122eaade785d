//! The writer of BATCH frames.

use crate::apply::{Apply, ApplyInstruction, write_apply};
use crate::batch::{BatchWriter, push_padded};
use crate::frame::{HEADER_BYTES, Header, Medium, Opcode, finish_frame};
use crate::instruction::{INSTRUCTION_BYTES, Instruction};
use crate::keyspace::{Action, At};
use crate::level::AckLevel;
use crate::ping::PingItem;
use crate::program::{ProgramId, Run, RunArgument, write_run};
use crate::request::extension;
use crate::request::flags;
use crate::request::head::ITEM_HEADER_BYTES;
use crate::request::template::ItemTemplate;
use crate::request::terms::{Expiry, MemberRead, Wanted, When};
use crate::request::token::Token;
use crate::request::verb::Verb;
use crate::scan::ScanRequest;
use crate::script::ScriptItem;
use crate::version::Version;

/// Writes one BATCH frame of requests at the end of a buffer.
#[derive(Debug)]
pub struct BatchRequest {
    start: usize,
    header: Header,
    medium: Medium,
    batch: BatchWriter,
    /// That of the next item.
    token: Option<Token>,
}

impl BatchRequest {
    /// Starts a frame of at most `items_max` items.
    #[must_use]
    pub fn begin(
        out: &mut Vec<u8>,
        request_id: u64,
        level: AckLevel,
        deadline_ms: u16,
        items_max: usize,
    ) -> Self {
        let start = out.len();
        out.resize(start + HEADER_BYTES, 0);
        let header = Header::request(Opcode::Batch, request_id, level, deadline_ms);
        BatchRequest {
            start,
            header,
            medium: Medium::Wire,
            batch: BatchWriter::begin(out, items_max),
            token: None,
        }
    }

    /// The same for another medium than the wire.
    #[must_use]
    pub fn over(self, medium: Medium) -> Self {
        BatchRequest { medium, ..self }
    }

    /// Items so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.batch.len()
    }

    /// Whether there is no item yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Gives the next item this token: a SET, DEL, UPDATE_IF or APPLY.
    pub fn token(&mut self, token: Token) {
        self.token = Some(token);
    }

    /// Adds a GET.
    pub fn get(&mut self, out: &mut Vec<u8>, key: &[u8]) {
        self.get_with(out, key, Wanted::Value);
    }

    /// Adds a GET that asks for more or less than the value.
    pub fn get_with(&mut self, out: &mut Vec<u8>, key: &[u8], wanted: Wanted) {
        let flags = flags::wanted(wanted);
        self.item(out, Verb::Get, flags, None, None, &[], &[key], &[]);
    }

    /// Adds a GET that members may answer.
    pub fn get_of_member(
        &mut self,
        out: &mut Vec<u8>,
        key: &[u8],
        wanted: Wanted,
        member: MemberRead,
    ) {
        let from = out.len();
        let mut head = [0; ITEM_HEADER_BYTES];
        let area = u16::try_from(extension::MEMBER_AREA_BYTES).expect("a small constant");
        let block = u16::try_from(ITEM_HEADER_BYTES).expect("a small constant") + area;
        head[0..2].copy_from_slice(&block.to_le_bytes());
        head[2..5].copy_from_slice(&[Verb::Get as u8, flags::wanted(wanted), 1]);
        head[6..8].copy_from_slice(&area.to_le_bytes());
        let key_len = u16::try_from(key.len()).unwrap_or(u16::MAX);
        head[8..10].copy_from_slice(&key_len.to_le_bytes());
        out.extend_from_slice(&head);
        extension::put_member(out, member);
        push_padded(out, key);
        self.end_item(out, from);
    }

    /// Adds a PING.
    pub fn ping(&mut self, out: &mut Vec<u8>, value: &[u8]) {
        let from = out.len();
        PingItem { value }.write(out);
        self.end_item(out, from);
    }

    /// Adds an APPLY.
    pub fn apply(&mut self, out: &mut Vec<u8>, apply: &Apply) {
        let from = out.len();
        apply.write(out);
        self.end_item(out, from);
    }

    /// Adds a RUN.
    pub fn run(&mut self, out: &mut Vec<u8>, run: &Run) {
        let from = out.len();
        run.write(out);
        self.end_item(out, from);
    }

    /// Adds a RUN of these parts.
    pub(crate) fn run_of(
        &mut self,
        out: &mut Vec<u8>,
        program: ProgramId,
        keys: &[&[u8]],
        arguments: &[RunArgument<'_>],
    ) {
        let from = out.len();
        write_run(out, program, keys.iter().copied(), arguments.len(), |out| {
            arguments.iter().for_each(|argument| argument.put(out));
        });
        self.end_item(out, from);
    }

    /// Adds a SCRIPT whose words are so many keys and arguments.
    pub(crate) fn script<'w>(
        &mut self,
        out: &mut Vec<u8>,
        script: &ScriptItem<'_>,
        keys: usize,
        words: impl Iterator<Item = &'w [u8]> + Clone,
    ) {
        let from = out.len();
        script.write(keys, words, out);
        self.end_item(out, from);
    }

    /// Adds an APPLY of these parts.
    pub(crate) fn apply_of(
        &mut self,
        out: &mut Vec<u8>,
        keys: &[&[u8]],
        instructions: &[ApplyInstruction],
        data: &[u8],
    ) {
        let from = out.len();
        write_apply(out, keys, instructions, data);
        self.end_item(out, from);
    }

    /// Adds a GET_AT.
    pub fn get_at(&mut self, out: &mut Vec<u8>, key: &[u8], at: At) {
        let (flags, version, ms) = match at {
            At::Version(version) => (flags::VERSION, Some(version), None),
            At::TimeMs(ms) => (flags::EXPIRY_AT, None, Some(ms)),
        };
        self.item(out, Verb::GetAt, flags, version, ms, &[], &[key], &[]);
    }

    /// Adds a HISTORY of the versions whose sequence is below `before`, 0 for all.
    pub fn history(&mut self, out: &mut Vec<u8>, key: &[u8], before: u64, limit: u32) {
        // Limit and sequence have the form of a version.
        let block = Version {
            epoch: limit,
            sequence: before,
        };
        self.item(out, Verb::History, 0, Some(block), None, &[], &[key], &[]);
    }

    /// Adds a KEYSPACE.
    pub fn keyspace(&mut self, out: &mut Vec<u8>, prefix: &[u8], action: Action) {
        let (flags, settings) = match action {
            Action::Set(settings) => (0, Some(settings.encode())),
            Action::Create(settings) => (flags::ABSENT, Some(settings.encode())),
            Action::Drop => (flags::KEYSPACE_DROP, None),
            Action::List => (flags::KEYSPACE_LIST, None),
        };
        let value = settings.as_ref().map_or(&[][..], |bytes| bytes);
        self.item(
            out,
            Verb::Keyspace,
            flags,
            None,
            None,
            &[],
            &[prefix],
            value,
        );
    }

    /// Adds a FLUSH of the partition that a key belongs to. Only sessions of this process send it.
    pub fn flush(&mut self, out: &mut Vec<u8>, key: &[u8]) {
        self.item(out, Verb::Flush, 0, None, None, &[], &[key], &[]);
    }

    /// Adds a SCAN.
    pub fn scan(&mut self, out: &mut Vec<u8>, request: &ScanRequest<'_>) {
        let from = out.len();
        request.write(out);
        self.end_item(out, from);
    }

    /// Adds a SET of a key that never expires.
    pub fn set(&mut self, out: &mut Vec<u8>, key: &[u8], value: &[u8], when: impl Into<When>) {
        self.set_with(out, key, value, when, Expiry::Never);
    }

    /// Adds a SET.
    pub fn set_with(
        &mut self,
        out: &mut Vec<u8>,
        key: &[u8],
        value: &[u8],
        when: impl Into<When>,
        expiry: Expiry,
    ) {
        let (flags, version) = flags::when(when.into());
        let (expiry_flags, ms) = flags::expiry(expiry, Expiry::Never);
        let flags = flags | expiry_flags;
        self.item(out, Verb::Set, flags, version, ms, &[], &[key], value);
    }

    /// Adds a DEL.
    pub fn del(&mut self, out: &mut Vec<u8>, key: &[u8], when: impl Into<When>) {
        let (flags, version) = flags::when(when.into());
        self.item(out, Verb::Del, flags, version, None, &[], &[key], &[]);
    }

    /// Adds an UPDATE_IF that leaves the expiry; `start` is what a missing first key begins with.
    pub fn update_if(
        &mut self,
        out: &mut Vec<u8>,
        key: &[u8],
        second_key: Option<&[u8]>,
        instructions: &[Instruction],
        start: Option<&[u8]>,
    ) {
        self.update_if_with(out, key, second_key, instructions, start, Expiry::Keep);
    }

    /// Adds an UPDATE_IF.
    pub fn update_if_with(
        &mut self,
        out: &mut Vec<u8>,
        key: &[u8],
        second_key: Option<&[u8]>,
        instructions: &[Instruction],
        start: Option<&[u8]>,
        expiry: Expiry,
    ) {
        let (expiry_flags, ms) = flags::expiry(expiry, Expiry::Keep);
        let flags = expiry_flags | if start.is_some() { flags::START } else { 0 };
        let keys = [key, second_key.unwrap_or_default()];
        let keys = if second_key.is_some() {
            &keys[..]
        } else {
            &keys[..1]
        };
        self.item(
            out,
            Verb::UpdateIf,
            flags,
            None,
            ms,
            instructions,
            keys,
            start.unwrap_or_default(),
        );
    }

    /// Adds an item that is encoded already, such as one that is sent again.
    pub fn raw(&mut self, out: &mut Vec<u8>, item: &[u8]) {
        let from = out.len();
        out.extend_from_slice(item);
        self.end_item(out, from);
    }

    /// Adds an item of a template, which has no token.
    #[inline]
    pub(crate) fn like(
        &mut self,
        out: &mut Vec<u8>,
        template: &ItemTemplate,
        key: &[u8],
        value: Option<&[u8]>,
    ) {
        let from = out.len();
        template.write(out, key, value);
        self.batch.end_item(out, from);
    }

    /// Adds copies of the last item, which has no token.
    pub(crate) fn repeat(&mut self, out: &mut Vec<u8>, times: usize) {
        self.batch.repeat(out, times);
    }

    /// Ends the frame; there must be an item.
    pub fn finish(self, out: &mut Vec<u8>) {
        assert!(self.batch.finish(out) > 0, "a batch has at least one item");
        finish_frame(out, self.start, self.header, self.medium);
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the fields of an item, in their order"
    )]
    pub(super) fn item(
        &mut self,
        out: &mut Vec<u8>,
        verb: Verb,
        flags: u8,
        version: Option<Version>,
        expiry_ms: Option<u64>,
        instructions: &[Instruction],
        keys: &[&[u8]],
        value: &[u8],
    ) {
        let from = out.len();
        let block_len = ITEM_HEADER_BYTES
            + version.map_or(0, |_| Version::BYTES)
            + expiry_ms.map_or(0, |_| size_of::<u64>())
            + instructions.len() * INSTRUCTION_BYTES;
        let mut head = [0; ITEM_HEADER_BYTES];
        head[0..2].copy_from_slice(&u16::try_from(block_len).unwrap_or(u16::MAX).to_le_bytes());
        head[2] = verb as u8;
        head[3] = flags;
        head[4] = u8::try_from(keys.len()).expect("one or two keys");
        head[5] = u8::try_from(instructions.len()).unwrap_or(u8::MAX);
        for (at, key) in [8, 10].into_iter().zip(keys) {
            // The server refuses a key over the limit and names the limit.
            head[at..at + 2]
                .copy_from_slice(&u16::try_from(key.len()).unwrap_or(u16::MAX).to_le_bytes());
        }
        head[12..16].copy_from_slice(&u32::try_from(value.len()).unwrap_or(u32::MAX).to_le_bytes());
        out.extend_from_slice(&head);
        if let Some(version) = version {
            version.put(out);
        }
        if let Some(ms) = expiry_ms {
            out.extend_from_slice(&ms.to_le_bytes());
        }
        for instruction in instructions {
            out.extend_from_slice(&instruction.encode());
        }
        for key in keys {
            push_padded(out, key);
        }
        push_padded(out, value);
        self.end_item(out, from);
    }

    /// Ends the item that begins at `from`.
    fn end_item(&mut self, out: &mut Vec<u8>, from: usize) {
        if let Some(token) = self.token.take() {
            extension::insert_token(out, from, token);
        }
        self.batch.end_item(out, from);
    }
}

/// Removes the flag SHOW from an encoded item, for a server that refuses the flag.
///
/// # Panics
/// If the item is shorter than 4 bytes.
pub fn ask_without_show(item: &mut [u8]) {
    if item[2] == Verb::Set as u8 || item[2] == Verb::Del as u8 {
        item[3] &= !flags::SHOW;
    }
}
