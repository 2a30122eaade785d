//! RUN: an APPLY whose instructions the server has, under the id of a program.
//!
//! ```text
//! item of RUN: id, keys, arguments --> Programs --> Program: instructions with blanks
//!                                         |                     | arguments fill the blanks
//!                                         v                     v
//!                                  UNKNOWN_PROGRAM        item of APPLY, with the same token
//! ```
//!
//! What must hold: the same RUN becomes the same APPLY wherever its program is known, because the
//! id is a hash of everything that the item of APPLY is made of. So the request that a token keeps
//! is that of the APPLY, and a retry by another node or behind a change of other programs is the
//! same request.

mod id;
mod instance;
mod names;
mod request;
mod table;
mod template;

pub use id::{ProgramId, ProgramIdTextError};
pub(crate) use instance::write_run;
pub use instance::{Run, RunArgument};
pub use names::AnswerNames;
pub(crate) use request::HEAD_BYTES as RUN_HEAD_BYTES;
pub use request::{RUN, RunRequest};
pub use table::{BACKUP_ASKS, NamedLayout, Programs, SCHEMA_ASKED, ServedSchema};
pub use template::{Argument, ArgumentKind, Blank, Program, ProgramParts};
