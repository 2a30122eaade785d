//! Bugs of replication that are planted on purpose, as [`penstock_storage::planted`] tells.
//!
//! They stand apart because a simulator of one node cannot catch them.

penstock_storage::planted_bugs! {
    /// A member that has not joined counts for new records.
    AckUnjoined = "ack-unjoined",
    /// A lower epoch than the promised one is taken.
    LowerEpochAccepted = "lower-epoch-accepted",
    /// A promise is told before it is durable.
    PromiseNotDurable = "promise-not-durable",
    /// A primary that starts again goes on with its epoch.
    EpochResumed = "epoch-resumed",
    /// A frame whose records were dropped counts before all of its partitions are rejected.
    MarksBetweenRejections = "marks-between-rejections",
    /// A member applies what its primary may lose.
    ApplyUnannounced = "apply-untold",
    /// What was received is dropped when its link ends.
    PendingForgotten = "pending-forgotten",
    /// A destination takes any later sequence, and a source leaves some out now and then.
    GapAccepted = "gap-accepted",
    /// What was received and has diverged is dropped.
    TailNotSaved = "tail-not-saved",
    /// The keys of a diverged tail are not asked for again.
    RewindForgets = "rewind-forgets",
    /// A member is promoted although its scan or rewind is not finished.
    ScanReadable = "scan-readable",
    /// A member that started again is promoted although what it had only received is gone.
    ReceivedIsDurable = "received-is-durable",
    /// A scan that was interrupted is believed up to its highest version.
    ScanPosition = "scan-position",
    /// The record of a scan tells complete what is only in memory.
    ScanCountsMemory = "scan-counts-memory",
    /// A scan joins before what superseded the parts that it left out is durable.
    ScanJoinsEarly = "scan-joins-early",
    /// ... or before what cleaning has moved meanwhile was shipped.
    ScanMissesMoves = "scan-misses-moves",
    /// Delta ships what a former primary wrote behind its fork.
    OwnTailShipped = "own-tail-shipped",
    /// The fork is looked for by sequence alone.
    ForkBySequence = "fork-by-sequence",
    /// A cursor that the ring has overtaken goes on where the ring begins.
    OverrunSkips = "overrun-skips",

    /// A scan and a rewind leave the floor of the past where it was.
    FloorForgotten = "floor-forgotten",

    // Of the links over a store; the others are of the machine.

    /// What a member has received counts for how new it is as if it were applied.
    EchoBeforeApplied = "echo-before-applied",
    /// A source does not tell that it writes a partition no more.
    CloseUnannounced = "close-untold",
    /// An epoch does not tell which start of its node wrote it.
    StartsAlike = "starts-alike",
    /// A member follows a source that has lost what it had told durable.
    GoneBackFollowed = "gone-back-followed",
    /// A node that has lost its disk gets what it had written in the order of the log.
    LostByDelta = "lost-by-delta",
    /// What a scan did not bring stays.
    SweepForgotten = "sweep-forgotten",
    /// What comes of a partition by a link that has lost it counts as brought by the scan of
    /// another.
    SweepOfOthers = "sweep-of-others",
    /// Cleaning leaves nothing to members, and no tail that may have diverged.
    BacklogForgotten = "backlog-forgotten",
    /// Delta is promised although records behind the position were released.
    ForgottenIgnored = "forgotten-ignored",
    /// Delta begins behind records that the member has not got.
    ReachTooFar = "reach-too-far",
    /// A scan does not ship what cleaning has moved.
    ScanSkipsCopies = "scan-skips-copies",
    /// A diverged tail is looked for only as far as the log was durable.
    TailReadEarly = "tail-read-early",
    /// A diverged tail is believed although cleaning has released records of it.
    TailHalfReleased = "tail-half-released",
    /// ... or although it came by a scan, which leaves out what was deleted.
    TailOfScan = "tail-of-scan",
    /// What supersedes a diverged tail in an inherited log is applied before the tail is kept.
    TailSuperseded = "tail-superseded",
    /// Of each frame only the first record of a diverged tail is kept.
    TailReadHalf = "tail-read-half",
    /// A handover is told once, by the link that is there.
    HandoverForgotten = "handover-forgotten",
    /// Replies that wait for the sync set of one generation are answered by that of the next.
    WaitsOutliveGeneration = "waits-outlive-generation",
    /// Who begins by force in the middle of a rewind does not write the keys of its own tail anew.
    OwnTailStays = "own-tail-stays",
    /// Plain items are answered also where another node writes their partition.
    PlainOfOthers = "plain-of-others",

    // Of nodes that decide by themselves: FAILOVER.md.

    /// A lease counts from when its confirmation is read, not from when its heartbeat was sent.
    LeaseFromReceiving = "lease-from-receiving",
    /// Leases go by a clock that steps.
    LeaseOnWallClock = "lease-on-wall-clock",
    /// Leases go by a clock that stands still while the machine is suspended.
    LeaseOutlivesSuspension = "lease-outlives-suspension",
    /// An entry whose swap had an unknown outcome is given up, and its member not waited for.
    SwapAssumedFailed = "swap-assumed-failed",
    /// A member is not waited for any more, and then removed.
    RemovedLate = "removed-late",

    // Of level `all`: REPLICATION.md.

    /// Level `all` waits for the disk alone.
    AllIsDisk = "all-is-disk",
    /// A sync set that a plan has emptied counts as empty when a later plan fills it.
    EmptySetOfOldPlan = "empty-set-of-old-plan",
    /// A member that joins is waited for only when it may be promoted.
    JoiningNotWaited = "joining-not-waited",
    /// What waits for members where a lease was lost, or another node writes, is answered OK.
    LeaseLostSaidOk = "lease-lost-said-ok",
}
