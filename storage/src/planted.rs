//! Bugs that are planted on purpose, to test the tests.
//!
//! Each [`Bug`] is one wrong turn in production code. Without the feature `planted` nothing of it
//! is compiled. With it, one thread at a time can switch one bug on, run the simulator and expect
//! it to object. A bug that nothing catches shows what the tests do not see.
//!
//! A hook takes no more than one line, in one of three forms:
//!
//! | the bug gets wrong | hook |
//! |---|---|
//! | a condition | `&& !is_planted(Bug::X)` or `\|\| is_planted(Bug::X)` in that condition |
//! | a value | [`or`]`(Bug::X, wrong, right)` in the place of `right` |
//! | a step | `if_planted!(Bug::X, wrong);` or `if_planted!(Bug::X, when, wrong);` before it |
//!
//! A wrong step is often `return`, `break` or `continue`. `if_planted!` with braces keeps a long
//! hook on one line. The server refuses to be built with the feature.

/// Whether the planted bugs are compiled in.
pub const IS_COMPILED_IN: bool = cfg!(feature = "planted");

/// Declares the bugs of a crate that has the feature `planted`: its `Bug`, `plant`, `is_planted`
/// and `or`.
#[macro_export]
macro_rules! planted_bugs {
    ($($(#[doc = $text:literal])+ $bug:ident = $name:literal,)+) => {
        /// One planted bug.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Bug {
            $($(#[doc = $text])+ $bug,)+
        }

        impl Bug {
            /// All of them.
            pub const ALL: &[Bug] = &[$(Bug::$bug,)+];

            /// Its name on the command line.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Bug::$bug => $name,)+
                }
            }

            /// What it does wrong.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self {
                    $(Bug::$bug => concat!($($text),+),)+
                }
            }
        }

        #[cfg(feature = "planted")]
        ::std::thread_local! {
            static ACTIVE: ::std::cell::Cell<Option<Bug>> = const { ::std::cell::Cell::new(None) };
        }

        /// Switches one bug on for this thread, or all off.
        #[cfg(feature = "planted")]
        pub fn plant(bug: Option<Bug>) {
            ACTIVE.set(bug);
        }

        /// Whether this bug is switched on.
        #[cfg(feature = "planted")]
        #[inline]
        #[must_use]
        pub fn is_planted(bug: Bug) -> bool {
            ACTIVE.get() == Some(bug)
        }

        /// Whether this bug is switched on: never.
        #[cfg(not(feature = "planted"))]
        #[inline(always)]
        #[must_use]
        pub const fn is_planted(_: Bug) -> bool {
            false
        }

        /// What is right, or what is wrong if this bug is switched on. Both are worked out.
        #[inline(always)]
        #[must_use]
        pub fn or<T>(bug: Bug, wrong: T, right: T) -> T {
            match is_planted(bug) {
                true => wrong,
                false => right,
            }
        }
    };
}

/// Takes a wrong step if a bug is switched on; `is_planted` of the bug's crate is in scope.
#[macro_export]
macro_rules! if_planted {
    ($bug:expr, $wrong:expr) => {
        if is_planted($bug) {
            $wrong;
        }
    };
    ($bug:expr, $when:expr, $wrong:expr) => {
        if is_planted($bug) && $when {
            $wrong;
        }
    };
}

planted_bugs! {
    // Planted by the simulator's author.

    /// Frames are written without asking for durability.
    SkipFlush = "skip-flush",
    /// A reply at level disk leaves before its record is durable.
    AckEarly = "ack-early",
    /// Recovery replays a frame whose body does not check.
    ReplayHalfFrame = "replay-half-frame",
    /// A new segment is written before the one before it is durable.
    HeaderTooEarly = "header-too-early",
    /// A read shows a value that a crash can still take back.
    AnswerUnflushed = "answer-unflushed",
    /// A batch for another shard is lost now and then.
    LoseMail = "lose-mail",
    /// A failed write counts as done.
    IgnoreWriteError = "ignore-write-error",
    /// A frame may take the place that a segment keeps for its end.
    SegmentEndOffByOne = "segment-end-off-by-one",
    /// A batch that was interrupted by a full log starts again at its first item.
    RepeatInterruptedBatch = "repeat-interrupted-batch",

    /// A change over several shards is decided before all of them have room for it.
    DecideBeforeReady = "decide-before-ready",
    /// The redo record of a change over several shards goes before all parts are made.
    CloseBeforeApplied = "close-before-applied",
    /// Operations pass the claims of changes over several shards.
    ForgetClaim = "forget-claim",
    /// Changes over several shards are decided between the questions of a backup.
    DecideBesideBackup = "decide-beside-backup",

    // Planted by somebody who had not seen the simulator or any test.

    /// A frame counts as durable although one before it is still being written.
    DurablePastGap = "durable-past-gap",
    /// A sync covers writes that ended after it began.
    SyncCoversLater = "sync-covers-later",
    /// A frame tells that records are durable that are only written.
    AnnounceWritten = "tell-written",
    /// Each record begins the interval of its frame anew, so a steady trickle is never flushed.
    RestartInterval = "restart-interval",
    /// A clean stop forgets the records that are in no frame yet.
    CloseOnOpenFrame = "close-on-open-frame",
    /// The padding of a part is what stood in the block before.
    KeepOldPadding = "keep-old-padding",
    /// Recovery reads no further than the first mark of a segment.
    StopAtMark = "stop-at-mark",
    /// Recovery replays only the first part of a record.
    ReplayFirstPart = "replay-first-part",
    /// Recovery overlooks the deletion of a key that has left the cache.
    KeepColdTombstone = "keep-cold-tombstone",
    /// A start cuts the segment that becomes the last one when it removes an empty one.
    CutBeforeRelease = "cut-before-release",
    /// A start serves what it read without syncing it.
    ServeUnsynced = "serve-unsynced",
    /// A start goes on with the epoch of the run before.
    EpochOfLastRun = "epoch-of-last-run",
    /// A removal from the index leaves a gap before an entry that belongs there.
    LeaveGap = "leave-gap",
    /// The index keeps the old place of the second key of a record.
    PlaceOfFirstKey = "place-of-first-key",
    /// A value leaves the cache before it is durable.
    EvictUnflushed = "evict-unflushed",
    /// A key that comes back from disk gets the epoch of this run.
    AdmitWithOwnEpoch = "admit-with-own-epoch",
    /// Of the edits of a failed program only the last is undone.
    UndoOnlyLast = "undo-only-last",
    /// A record of two parts asks the log for room for one.
    RoomForOnePart = "room-for-one-part",
    /// A change of other keys than the first one tells the version that the first one had.
    VersionOfOtherKey = "version-of-other-key",
    /// A failed guard tells a value that a crash can still take back.
    UngatedFailure = "ungated-failure",
    /// An operation passes an earlier one of its connection and slot that waits for a read.
    PassParked = "pass-parked",
    /// A read that found no free block is never asked for again.
    DropUnissuedRead = "drop-unissued-read",
    /// A connection is taken for the closed one that had its place.
    SameGeneration = "same-generation",
    /// A batch waits for the record of its last item only.
    GateOfLastItem = "gate-of-last-item",
    /// A batch that was interrupted numbers its items from there.
    CountFromInterruption = "count-from-interruption",
    /// An APPLY that is denied logs what its instructions had changed before.
    ApplyHalf = "apply-half",
    /// The record of an APPLY has its first key alone.
    ApplyOnePart = "apply-one-part",
    /// A value that an APPLY puts keeps the expiry that was there.
    ApplyPutKeepsExpiry = "apply-put-keeps-expiry",
    /// An APPLY takes a key that is on disk alone for missing.
    ApplyMissesCold = "apply-misses-cold",
    /// Nothing bounds the record of an APPLY.
    ApplyUnbounded = "apply-unbounded",
    /// An answer to an APPLY waits for what its first key shows, and not for the others.
    ApplyGateOfFirst = "apply-gate-of-first",
    /// The keys that an APPLY has read may leave memory before it runs.
    ApplyUnpinned = "apply-unpinned",
    /// An operation that was taken out of its frame has no deadline any more.
    ForgetParkedDeadline = "forget-parked-deadline",
    /// A new spare segment does not wake those who wait for room.
    SpareWakesNobody = "spare-wakes-nobody",
    /// Mail for a closed connection shifts the answers behind it.
    ShiftAfterClosed = "shift-after-closed",
    /// An answer leaves for another shard before its record is durable.
    MailUndurable = "mail-undurable",
    /// Mail that comes back restores one credit, however many items it answers.
    CreditForMail = "credit-for-mail",

    // Planted by the author of expiry.

    /// A replayed key forgets its expiry.
    ReplayWithoutExpiry = "replay-without-expiry",
    /// An expired key is still in the way of what asks for its absence.
    AbsentIgnoresExpiry = "absent-ignores-expiry",
    /// An operation on fields makes its key live for ever.
    EditForgetsExpiry = "edit-forgets-expiry",
    /// A SET without an expiry keeps the one before it.
    SetKeepsExpiry = "set-keeps-expiry",
    /// A lifetime is taken for a time.
    LifetimeIsTime = "lifetime-is-time",
    /// A SET with an expiry asks the log for room for one without.
    RoomWithoutExpiry = "room-without-expiry",

    // Planted with the snapshots of the index.

    /// A snapshot is finished before what its walk has seen is durable.
    FinishUndurable = "finish-undurable",
    /// Behind a snapshot the log is replayed from its end on, not from its begin.
    ReplayFromTo = "replay-from-to",
    /// Behind a snapshot deletions are not replayed.
    SkipTailTombstones = "skip-tail-tombstones",
    /// Entries of a snapshot that point into released segments are kept.
    KeepReleased = "keep-released",

    // Planted with the snapshots of keyspaces and kept versions.

    /// A snapshot is finished before what its walk over the versions has seen is durable.
    VersionsBehindEnd = "versions-behind-end",
    /// A snapshot leaves out versions whose time has ended, and does not tell the time by then.
    SnapshotUntimed = "snapshot-untimed",
    /// Versions of a snapshot that point into released segments are kept.
    KeepReleasedVersions = "keep-released-versions",
    /// Behind a snapshot a version stays under the keyspace that it was written under.
    KeepOldKeyspace = "keep-old-keyspace",

    // Planted with cleaning.

    /// The frame that tells a release may be durable before what the release relies on.
    ContentsTooEarly = "contents-too-early",
    /// The file of a released segment is removed before the log tells of it.
    RemoveBeforeAnnounced = "remove-before-told",
    /// Nothing is kept back for cleaning when the disk is full.
    NoReserve = "no-reserve",
    /// Cleaning leaves deletions out although older values may be there.
    DropTombstone = "drop-tombstone",
    /// Cleaning releases segments unread although deletions in them may be needed.
    DropUnread = "drop-unread",
    /// Cleaning leaves out what has expired although older values may be there.
    DropExpired = "drop-expired",
    /// Cleaning leaves out what has expired, and a start may be in a time before.
    ExpireWithoutTime = "expire-without-time",
    /// The index points to a copy before it is durable.
    MoveBeforeDurable = "move-before-durable",
    /// Cleaning forgets some of what still counts.
    ForgetOneMove = "forget-one-move",
    /// A last segment that holds no record is removed although it tells of releases.
    ReleaseWithContents = "release-with-contents",
    /// Segments that the log has released are replayed if their files are still there.
    ReplayReleased = "replay-released",
    /// A file that served before serves again under the same salt.
    ReuseSalt = "reuse-salt",
    /// A released file is removed while a read of it is under way.
    RemoveUnderRead = "remove-under-read",

    // Planted with reads that are done again.

    /// A read that failed is told at once.
    ReadOnce = "read-once",
    /// The second attempt at a read takes only its first block.
    ReadOneBlockAgain = "read-one-block-again",
    /// A key that joins a read does not make it longer.
    ForgetWiderRead = "forget-wider-read",

    // Planted with scans.

    /// A scan goes on behind the key that found no room in a page.
    ScanPassesOne = "scan-passes-one",
    /// A scan shows what a crash can still take back.
    ScanUngated = "scan-ungated",
    /// A scan ends with the keys of one shard.
    ScanEndsWithShard = "scan-ends-with-shard",

    // Planted with inherited logs.

    /// Inherited logs vanish when the first shard has taken them over.
    GoneBeforeAll = "gone-before-all",
    /// Cleaning takes its first own segment for the oldest although inherited ones are there.
    OwnTombstoneDropped = "own-tombstone-dropped",
    /// Versions begin anew behind inherited logs.
    SequencesNotTakenOver = "sequences-not-taken-over",
    /// Nobody checks where an inherited log ends.
    InheritedEndUnchecked = "inherited-end-unchecked",
    /// A shard has taken over although what replaces inherited parts is not durable.
    TakenOverUndurable = "taken-over-undurable",
    /// Nothing tells the time by which inherited values had expired.
    InheritedTimeUnannounced = "inherited-time-unannounced",
    /// A shard has taken over although inherited files are still read.
    TakenOverUnderRead = "taken-over-under-read",

    // Planted with kept versions.

    /// A version seems to have followed one that was deleted while no versions were kept.
    BridgeGap = "bridge-gap",
    /// A start forgets the versions that are kept.
    ForgetVersions = "forget-versions",
    /// A start forgets the versions that inherited logs keep.
    ForgetInheritedVersions = "forget-inherited-versions",
    /// Cleaning leaves out what is kept of the past.
    DropKeptVersion = "drop-kept-version",
    /// One version less is kept than the keyspace says.
    KeepOneLess = "keep-one-less",
    /// A copy of a superseded value may come back as the newest.
    RevivePast = "revive-past",

    // Planted with bounds on replies.

    /// A shard never tells that it took answers.
    ForgetTaken = "forget-taken",
    /// What was kept free for an answer that waited for a read stays so.
    KeepReserved = "keep-reserved",
    /// An item goes before those of its connection that wait until answers were taken.
    PassHeld = "pass-held",

    // Planted with runs of changes of one key.

    /// The record of a run has the version of its first change.
    RunOneVersion = "run-one-version",
    /// The record of a run stands for one change.
    RunOneChange = "run-one-change",
    /// A change of a run that logs nothing stays in the value.
    RunKeepsUnlogged = "run-keeps-unlogged",
    /// A "no" of a run is given again although the key has changed since.
    RunStaleNo = "run-stale-no",

    // Planted with plain items beside keyspaces.

    /// A plain GET or SET asks for no keyspace of its key.
    RuledKeyGoesPlain = "ruled-key-goes-plain",

    // Planted with tokens.

    /// Cleaning drops tokens that have expired before the log says that they may be gone.
    TokenForgottenByCleaning = "token-forgotten-by-cleaning",
    /// What a member begins with has no tokens.
    TokenForgottenByScan = "token-forgotten-by-scan",
    /// A snapshot of the index leaves tokens out.
    TokenForgottenBySnapshot = "token-forgotten-by-snapshot",
    /// A longer horizon calls tokens complete that were dropped by a shorter one.
    TokenHorizonFalls = "token-horizon-falls",
    /// A token that is not there is new, whatever its time.
    TokenBorderUnasked = "token-border-unasked",
    /// A token gets the answer of another request.
    TokenOfOtherRequest = "token-of-other-request",
    /// The token of a request that changed nothing is not kept.
    TokenOfNoChange = "token-of-no-change",
    /// The token of a change is not kept.
    TokenUnkept = "token-unkept",
    /// An answer is told again although a crash can still take it back.
    TokenReplayUngated = "token-replay-ungated",

    // Planted with the account of what expires.

    /// Bytes count as expired an hour before their time.
    ExpireBytesEarly = "expire-bytes-early",

    // Planted with effects of an expiry.

    /// An operation takes an expired key for missing although its effects have not run.
    OverwriteUnfired = "overwrite-unfired",
    /// A key whose effects have run stays, and they run again.
    FireTwice = "fire-twice",
    /// A member fires.
    FireAsMember = "fire-as-member",
    /// A start forgets when the armed keys of a snapshot expire.
    SnapshotWithoutTimers = "snapshot-without-timers",
    /// Cleaning takes an armed key that has expired for one whose time is over.
    CleanUnfired = "clean-unfired",

    // Planted with the visits of clients of Redis.

    /// A start replays a group without its last record.
    GroupInPart = "group-in-part",
    /// A copy by cleaning counts as a record of its group.
    CopyOfGroup = "copy-of-group",
    /// What a script has staged is kept although the script failed.
    ScriptKeepsFailed = "script-keeps-failed",
    /// The answer of a script that changes nothing does not wait for what it shows.
    ScriptUngated = "script-ungated",
    /// A watched key that came and went since counts as unchanged.
    WatchForgetsRemoved = "watch-forgets-removed",
    /// A start overlooks the marks of flushes.
    FlushForgottenByStart = "flush-forgotten-by-start",
    /// A snapshot leaves the marks of flushes out.
    FlushForgottenBySnapshot = "flush-forgotten-by-snapshot",
    /// Cleaning moves the mark of a flush although what it hides stands before it.
    FlushMarkMoved = "flush-mark-moved",
    /// Who does not find a key does not wait for the flush that took it away.
    FlushUngated = "flush-ungated",
    /// Nobody who tracks keys is told of a flush.
    FlushUnannounced = "flush-untold",
    /// Changes are told in a later step than the one that made them.
    InvalidatedLate = "invalidated-late",
    /// Nobody who tracks keys is told of expiries.
    ExpiryUnannounced = "expiry-untold",
    /// What a script has read is not tracked.
    ScriptReadUntracked = "script-read-untracked",
    /// The token that is a text is kept for a horizon from its own time, and not from its write.
    TextKeptFromSent = "text-kept-from-sent",

    // Planted with keys that have members.

    /// A record does not say that a value is a head.
    MembersUnlogged = "members-unlogged",
    /// A value that comes back from the disk is plain, whatever its record says.
    MembersColdPlain = "members-cold-plain",
    /// A transaction takes members that it reads for a plain value.
    MembersReadPlain = "members-read-plain",
    /// An edit of members takes the expiry of their key away.
    MembersEditedAnew = "members-edited-anew",
    /// A transaction that takes the last member away leaves the key as it was.
    MembersStay = "members-stay",
}
