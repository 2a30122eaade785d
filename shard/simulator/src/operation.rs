//! What clients do, a row for each form of it: its verb, how often traffic picks it, for which keys
//! it is, and how it may end.

use penstock_net::request::Verb;
use penstock_net::status::Status;

/// The keys that a form is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keys {
    Any,
    /// Those whose value is a number of units.
    Counts,
}

/// What an OK means for the first key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Changes,
    Reads,
}

macro_rules! verb_of {
    (none) => {
        None
    };
    ($verb:ident) => {
        Some(Verb::$verb)
    };
}

macro_rules! operations {
    ($($(#[doc = $doc:literal])+
        $kind:ident: $verb:ident, $weight:literal, $keys:ident, $outcome:ident, [$($end:ident),*];
    )+) => {
        /// What clients do. Traffic picks by chance in the order of the rows.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Operation {
            $($(#[doc = $doc])+ $kind,)+
        }

        impl Operation {
            /// All of them.
            pub const ALL: &[Operation] = &[$(Operation::$kind,)+];

            /// The verb that it asks for, if it is one request.
            #[must_use]
            pub fn verb(self) -> Option<Verb> {
                match self {
                    $(Operation::$kind => verb_of!($verb),)+
                }
            }

            /// How often traffic picks it, among the weights of all.
            #[must_use]
            pub fn weight(self) -> u64 {
                match self {
                    $(Operation::$kind => $weight,)+
                }
            }

            /// Whether it may end so, apart from what any operation may be refused with. What is
            /// about keyspaces and pages is judged apart.
            #[must_use]
            pub fn may_end(self, status: Status) -> bool {
                let ends: &[Status] = match self {
                    $(Operation::$kind => &[$(Status::$end),*],)+
                };
                ends.contains(&status)
            }

            fn keys(self) -> Keys {
                match self {
                    $(Operation::$kind => Keys::$keys,)+
                }
            }

            fn outcome(self) -> Outcome {
                match self {
                    $(Operation::$kind => Outcome::$outcome,)+
                }
            }
        }
    };
}

operations! {
    /// UPDATE_IF that takes units while there are enough.
    Take: UpdateIf, 30, Counts, Changes, [Ok, NotFound, GuardFailed];
    /// GET.
    Get: Get, 25, Any, Reads, [Ok, NotFound];
    /// SET.
    Set: Set, 14, Any, Changes, [Ok];
    /// SET only if absent.
    SetAbsent: Set, 4, Any, Changes, [Ok, Exists];
    /// SET only if present.
    SetPresent: Set, 3, Any, Changes, [Ok, NotFound];
    /// SET only on a version.
    SetVersion: Set, 4, Any, Changes, [Ok, NotFound, VersionMismatch];
    /// DEL.
    Del: Del, 2, Any, Changes, [Ok, NotFound];
    /// DEL only on a version.
    DelVersion: Del, 2, Any, Changes, [Ok, NotFound, VersionMismatch];
    /// UPDATE_IF that makes its key if it is missing.
    TakeOrMake: UpdateIf, 4, Counts, Changes, [Ok, GuardFailed];
    /// UPDATE_IF that moves units between two keys.
    Move: UpdateIf, 5, Counts, Changes, [Ok, NotFound, GuardFailed];
    /// UPDATE_IF whose last instruction always fails.
    TakeAndFail: UpdateIf, 3, Counts, Changes, [NotFound, GuardFailed];
    /// UPDATE_IF that only looks.
    Check: UpdateIf, 3, Counts, Reads, [Ok, NotFound, GuardFailed];
    /// UPDATE_IF that only looks, and makes its key if it is missing.
    CheckOrMake: UpdateIf, 2, Counts, Reads, [Ok];
    /// UPDATE_IF that looks at one key and changes another.
    GiveOther: UpdateIf, 2, Counts, Reads, [Ok, NotFound];
    /// SET of a value over the limit.
    SetTooLarge: Set, 1, Any, Changes, [];
    /// GET of a value and its expiry.
    GetExpiry: Get, 4, Any, Reads, [Ok, NotFound];
    /// UPDATE_IF that says when its key is gone.
    Expire: UpdateIf, 3, Counts, Changes, [Ok, NotFound];
    /// UPDATE_IF that removes an expiry.
    Persist: UpdateIf, 2, Counts, Changes, [Ok, NotFound];
    /// SET that keeps an expiry.
    KeepExpiry: Set, 0, Any, Changes, [];
    /// Something is found gone that was there.
    Expired: none, 0, Any, Reads, [];
    /// KEYSPACE that sets how many versions are kept.
    SetKeyspace: Keyspace, 0, Any, Reads, [];
    /// The keyspace of a longer prefix is set.
    SetLonger: Keyspace, 0, Any, Reads, [];
    /// The keyspace of the longer prefix is dropped.
    DropLonger: Keyspace, 0, Any, Reads, [];
    /// GET_AT a version.
    GetAtVersion: GetAt, 0, Any, Reads, [];
    /// GET_AT a time.
    GetAtTime: GetAt, 0, Any, Reads, [];
    /// HISTORY.
    History: History, 0, Any, Reads, [];
    /// An item with the bytes of one before it in its batch, on the same key.
    Repeat: none, 0, Any, Reads, [];
    /// An item that differs from the one before it in what it takes.
    OtherOperands: none, 0, Any, Reads, [];
    /// Items that a shard has answered together with the one before them.
    AnsweredInRun: none, 0, Any, Reads, [];
    /// PING.
    Ping: none, 0, Any, Changes, [Ok];
    /// An operation whose answer never came, sent again.
    Retry: none, 0, Any, Changes, [Ok];
    /// A page of a scan.
    Scan: Scan, 0, Any, Reads, [];
    /// A scan that came to its end over a start of the server.
    ScanOverStart: Scan, 0, Any, Reads, [];
    /// APPLY that takes units while there are enough, and notes who has them on other keys.
    Buy: Apply, 0, Counts, Changes, [Ok, NotFound, GuardFailed];
    /// The same with a last guard that always fails.
    BuyAndFail: Apply, 0, Counts, Changes, [NotFound, GuardFailed];
    /// APPLY that moves units from one key to several.
    Pour: Apply, 0, Counts, Changes, [Ok, NotFound, GuardFailed];
    /// APPLY that moves as many units as there are, up to a number.
    Drain: Apply, 0, Counts, Changes, [Ok, NotFound];
    /// APPLY that puts, starts, deletes and lets expire.
    Renew: Apply, 0, Counts, Changes, [Ok, NotFound, GuardFailed];
    /// APPLY that runs before or since a time only.
    InTime: Apply, 0, Counts, Changes, [Ok, NotFound, GuardFailed];
    /// APPLY that runs on a version only.
    OnVersion: Apply, 0, Counts, Changes, [Ok, NotFound, GuardFailed, VersionMismatch];
    /// APPLY that takes from a rate.
    Rated: Apply, 0, Counts, Changes, [Ok, NotFound, GuardFailed];
    /// APPLY that reads several keys at once.
    Sum: Apply, 0, Counts, Reads, [Ok, NotFound];
    /// APPLY that writes more than one record holds.
    ApplyTooMuch: Apply, 0, Counts, Changes, [];
    /// An APPLY was answered OK.
    ApplyDone: none, 0, Any, Reads, [];
    /// A guard of an APPLY did not hold.
    ApplyDenied: none, 0, Any, Reads, [];
    /// An APPLY missed a key.
    ApplyMissed: none, 0, Any, Reads, [];
    /// An APPLY met another version.
    ApplyOutrun: none, 0, Any, Reads, [];
    /// An APPLY was refused because it writes too much.
    ApplyRefused: none, 0, Any, Reads, [];
    /// An APPLY was sent while several of its keys were on disk alone.
    ApplyCold: none, 0, Any, Reads, [];
    /// An APPLY of eight keys was answered OK.
    ApplyWide: none, 0, Any, Reads, [];
}

impl Operation {
    /// Whether it is for keys alone whose value is a number of units.
    #[must_use]
    pub fn needs_counter(self) -> bool {
        self.keys() == Keys::Counts
    }

    /// Whether OK means that its first key was changed.
    #[must_use]
    pub fn changes(self) -> bool {
        self.outcome() == Outcome::Changes
    }

    /// Whether it is about keyspaces or what they keep.
    #[must_use]
    pub fn is_past(self) -> bool {
        matches!(
            self,
            Operation::SetKeyspace
                | Operation::SetLonger
                | Operation::DropLonger
                | Operation::GetAtVersion
                | Operation::GetAtTime
                | Operation::History
        )
    }

    /// Whether it is an APPLY.
    #[must_use]
    pub fn is_apply(self) -> bool {
        self.verb() == Some(Verb::Apply)
    }

    /// Whether it changes a keyspace.
    #[must_use]
    pub fn is_setting(self) -> bool {
        matches!(
            self,
            Operation::SetKeyspace | Operation::SetLonger | Operation::DropLonger
        )
    }

    /// Whether it is a SET that can be accepted.
    #[must_use]
    pub fn is_set(self) -> bool {
        matches!(
            self,
            Operation::Set | Operation::SetAbsent | Operation::SetPresent | Operation::SetVersion
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_is_asked_for() {
        for verb in Verb::ALL {
            let mut all = Operation::ALL.iter();
            // PING asks no store, and FLUSH comes from the RESP port alone.
            let is_other = matches!(verb, Verb::Ping | Verb::Flush);
            let is_asked = is_other || all.any(|it| it.verb() == Some(verb));
            assert!(is_asked, "{verb:?}");
        }
    }
}
