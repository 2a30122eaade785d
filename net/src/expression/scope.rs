//! The names that an instruction may use: the keys of a command, or the keys with their layouts and
//! the arguments of a program.

use crate::instruction::FieldType;
use crate::program::{Argument, ArgumentKind};

use super::layout::{LayoutField, ValueLayout};

/// A key of a program.
#[derive(Clone, Debug)]
pub struct ScopeKey<'a> {
    /// As instructions name it.
    pub name: &'a str,
    /// What its values are, if they have a layout: its name, and the layout.
    pub layout: Option<(&'a str, &'a ValueLayout)>,
}

/// The names that an instruction may use.
#[derive(Clone, Debug)]
pub struct Scope<'a> {
    keys: Vec<ScopeKey<'a>>,
    arguments: &'a [Argument],
    is_program: bool,
    /// What names no key is about the first one.
    has_only_key: bool,
}

/// A place of a step that an argument fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filled {
    /// The operand.
    Operand(u8),
    /// The quantity of a rate.
    Quantity(u8),
    /// A number of the value that is put.
    Number {
        /// Where it begins in the value.
        at: u32,
        /// How it is written.
        field_type: FieldType,
        /// The number of the argument.
        argument: u8,
    },
    /// Bytes of the value that is put.
    Bytes {
        /// Where they begin in the value.
        at: u32,
        /// The number of the argument.
        argument: u8,
    },
    /// The whole value that is put.
    Value(u8),
}

impl<'a> Scope<'a> {
    /// The names of the keys of a command.
    pub fn of_command(names: impl Iterator<Item = &'a str>) -> Scope<'a> {
        let keys = names.map(|name| ScopeKey { name, layout: None });
        Scope {
            keys: keys.collect(),
            arguments: &[],
            is_program: false,
            has_only_key: false,
        }
    }

    /// The keys of `penstock update-if`: what names no key is about the only one, and a second key
    /// may be there as `second`.
    pub fn of_only_key() -> Scope<'static> {
        let names = ["", "second"];
        Scope {
            has_only_key: true,
            ..Scope::of_command(names.into_iter())
        }
    }

    /// The keys and arguments of a program.
    pub fn of_program(keys: Vec<ScopeKey<'a>>, arguments: &'a [Argument]) -> Scope<'a> {
        Scope {
            keys,
            arguments,
            is_program: true,
            has_only_key: false,
        }
    }

    /// Whether values may be lists of fields.
    pub(super) fn is_program(&self) -> bool {
        self.is_program
    }

    /// Whether what names no key is about the first one.
    pub(super) fn has_only_key(&self) -> bool {
        self.has_only_key
    }

    /// The number of the key with this name.
    pub(super) fn key(&self, name: &str) -> Option<u8> {
        let is_named = |key: &ScopeKey<'_>| !name.is_empty() && key.name == name;
        let number = self.keys.iter().position(is_named)?;
        u8::try_from(number).ok()
    }

    /// The layout of a key, with its name.
    pub(super) fn layout(&self, key: u8) -> Option<(&'a str, &'a ValueLayout)> {
        self.keys.get(usize::from(key))?.layout
    }

    /// The argument with this name, and its number.
    pub(super) fn argument(&self, name: &str) -> Option<(u8, &'a Argument)> {
        let number = self.arguments.iter().position(|it| it.name == name)?;
        Some((u8::try_from(number).ok()?, &self.arguments[number]))
    }

    /// What may stand where a key is to be named.
    pub(super) fn keys_text(&self) -> String {
        let names: Vec<&str> = self.keys.iter().map(|key| key.name).collect();
        match (names.as_slice(), self.is_program) {
            ([], false) => "a NAME that --key NAME=KEY gives".into(),
            ([], true) => "the name of a key".into(),
            (names, _) => format!("the name of a key: {}", names.join(", ")),
        }
    }

    /// What may stand where a number of a key is to be named.
    pub(super) fn number_text(&self) -> String {
        match self.is_program {
            false if self.has_only_key => "TYPE@OFFSET or decimal".to_string(),
            false => "NAME.TYPE@OFFSET or NAME.decimal, with a NAME that --key gives".to_string(),
            true => {
                let arguments: Vec<&str> =
                    self.arguments.iter().map(|it| it.name.as_str()).collect();
                let arguments = match arguments.as_slice() {
                    [] => String::new(),
                    names => format!("an argument ({}), or ", names.join(", ")),
                };
                let keys: Vec<&str> = self.keys.iter().map(|it| it.name).collect();
                format!("{arguments}KEY.FIELD with KEY one of {}", keys.join(", "))
            }
        }
    }
}

/// The fields of a layout as a message lists them, the first ones of many.
pub(super) fn fields_text(name: &str, layout: &ValueLayout) -> String {
    const SHOWN_MAX: usize = 12;
    let fields = layout.fields();
    let shown = fields.iter().take(SHOWN_MAX);
    let names: Vec<&str> = shown
        .map(|field: &LayoutField| field.name.as_str())
        .collect();
    let more = match fields.len() > SHOWN_MAX {
        true => ", ...",
        false => "",
    };
    format!("a field of {name}: {}{more}", names.join(", "))
}

/// What an argument may be, as a schema writes it.
pub fn kind_text(kind: ArgumentKind) -> String {
    match kind {
        ArgumentKind::Number { min, max } => format!("{min}..{max}"),
        ArgumentKind::Bytes { max } => format!("u8[{max}]"),
    }
}
