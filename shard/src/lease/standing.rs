//! What the shard of a partition says of it, and of the members of what is written here.

/// What the shard of a partition says of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// The shard has turned a moment ago.
    pub is_turning: bool,
    /// All of it is here, and it has been followed since the start.
    pub is_candidate: bool,
    /// This node writes it, or is able to begin.
    pub is_able: bool,
    /// The plan has it handed over to this node, which is able to take it and has not got it yet.
    pub is_awaiting: bool,
    /// The sequence of its last record that was received here.
    pub sequence: u64,
}

/// What the shard of a partition that is written here says of another node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberStanding {
    /// The number of the plan that the shard judges by.
    pub plan: u64,
    /// It follows, and has all but what is on its way.
    pub has_joined: bool,
    /// It counts for level `replica`, and has all that was written before it came to count.
    pub is_proven: bool,
}
