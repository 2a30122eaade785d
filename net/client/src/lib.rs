#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod answers;
mod channel;
mod client;
mod connection;
mod driver;
mod fields;
mod jitter;
pub mod layout;
pub mod login;
mod named;
mod node;
mod operation;
mod options;
mod programs;
mod queued;
mod retry;
mod scan;
mod seen;
mod server_time;
mod silence;
mod state;
#[cfg(feature = "tls")]
pub mod tls;
mod transaction;
mod update;
mod verbs;

pub use answers::{Changed, MemberValue, Past, Value};
pub use client::Client;
pub use fields::Fields;
pub use layout::{Layout, LayoutError, LayoutMismatch, NamedField, OwnedView, Text, View};
pub use named::{NamedWrite, new_token, new_token_at};
pub use operation::{Answer, ClientError, Execution, FromAnswer, Pending, Unfit, Unknown};
pub use options::{ClientOptions, MemberGet, ReadFrom};
pub use programs::{ServedProgram, ServedPrograms};
pub use scan::{Entry, Page, Scan, Scanned};
pub use seen::Seen;
pub use transaction::{
    Answered, Committing, Conflict, Isolation, KeyState, Reading, Transacted, Transaction,
    TransactionError, TransactionRefusal, TransactionValue, transact,
};
pub use update::{Patience, Updated, update};
pub use verbs::{Named, Verbs};

/// Implements the trait [`Layout`](trait@Layout) for a struct; see there.
#[cfg(feature = "derive")]
pub use penstock_derive::Layout;

pub use penstock_net::apply::{
    Apply, ApplyField, ApplyInstruction, ApplyKey, Arithmetic, BitTest, Comparison, NumberAt,
    NumberKind, Operand, Rate,
};
pub use penstock_net::auth::{Identity, LoginFault, Secret, SecretFault};
pub use penstock_net::field::Field;
pub use penstock_net::hello::ServerHello;
pub use penstock_net::instruction::{FieldType, Instruction, Operation};
pub use penstock_net::keyspace::{Action, At, History, Keyspace};
pub use penstock_net::level::AckLevel;
pub use penstock_net::program::{ProgramId, Run, RunArgument};
pub use penstock_net::reply::KeyExpiry;
pub use penstock_net::request::{Ask, Condition, Expiry, Token, TokenTextError, Version, When};
pub use penstock_net::scan::ScanRequest;
pub use penstock_net::status::Status;

#[cfg(test)]
#[path = "../../tests/fuzz/target.rs"]
mod target;
