//! Which replies of a connection leave, as CLIENT REPLY says.

/// Which replies leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ReplyMode {
    #[default]
    All,
    /// None, from this place of the output on.
    None(usize),
    /// All but that of the next command.
    AllButNext,
    /// The command that was taken last has none: what stands behind this place is dropped.
    Skips(usize),
}

impl ReplyMode {
    /// Whether the next command may be taken without the parser.
    pub(super) fn allows_shapes(self) -> bool {
        matches!(self, ReplyMode::All | ReplyMode::None(_))
    }
}
