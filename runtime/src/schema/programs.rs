//! Declarations become programs.

use penstock_net::instruction::FieldType;
use penstock_net::limits::{
    FEW_KEYS_MAX, PROGRAM_ARGUMENTS_MAX, PROGRAM_NAME_BYTES_MAX, VALUE_BYTES_HARD_MAX,
};
use penstock_net::program::{AnswerNames, Argument, ArgumentKind, Program, ProgramParts};

use super::assembly::Assembly;
use super::declaration::{Declarations, ProgramDeclaration, Written};
use super::defect::Defect;
use penstock_net::expression::{Scope, ScopeKey, is_name, parse_number, parse_step_in};
use penstock_net::program::NamedLayout;

/// A program, and what its file says of it.
#[derive(Clone, Debug)]
pub struct NamedProgram {
    /// Its declaration.
    pub declaration: ProgramDeclaration,
    /// What servers run.
    pub program: Program,
    /// Of each instruction the text that it comes from: those of the declaration, then what it
    /// returns.
    pub texts: Vec<usize>,
}

impl NamedProgram {
    /// The text of an instruction.
    pub fn text(&self, instruction: usize) -> Option<&str> {
        let declared = &self.declaration;
        let mut all = declared.instructions.iter().chain(&declared.returns);
        all.nth(*self.texts.get(instruction)?).map(Written::text)
    }
}

/// The programs that are sound.
pub(super) fn compile(
    declarations: &Declarations,
    layouts: &[NamedLayout],
    defects: &mut Vec<Defect>,
) -> Vec<NamedProgram> {
    let mut programs: Vec<NamedProgram> = Vec::new();
    for declared in &declarations.programs {
        let name = &declared.name;
        if programs.iter().any(|it| it.program.name() == name.text) {
            defects.push(name.defect(format!("another program has the name {}", name.text)));
            continue;
        }
        match program(declared, declarations, layouts) {
            Ok(program) => programs.extend(program),
            Err(found) => defects.extend(found),
        }
    }
    programs
}

/// `None`: a layout that it needs has a defect, which is told there.
fn program(
    declared: &ProgramDeclaration,
    declarations: &Declarations,
    layouts: &[NamedLayout],
) -> Result<Option<NamedProgram>, Vec<Defect>> {
    let one = |defect| vec![defect];
    check_name(&declared.name).map_err(one)?;
    let (keys, needs) = keys(declared, declarations, layouts).map_err(one)?;
    if !needs {
        return Ok(None);
    }
    let arguments = arguments(declared, &keys).map_err(one)?;
    let names = keys.iter().map(|key| key.name.to_string()).collect();
    let scope = Scope::of_program(keys, &arguments);
    let (mut assembly, mut defects) = (Assembly::default(), Vec::new());
    let mut steps = Vec::new();
    for written in &declared.instructions {
        match parse_step_in(&written.text, &scope) {
            Ok(step) => steps.push(step),
            Err(error) => defects.push(written.misread(&error, 0)),
        }
    }
    const RETURN: &str = "return ";
    for written in &declared.returns {
        match parse_step_in(&format!("{RETURN}{}", written.text), &scope) {
            Ok(step) => steps.push(step),
            Err(error) => defects.push(written.misread(&error, RETURN.len())),
        }
    }
    if !defects.is_empty() {
        return Err(defects);
    }
    let texts = || declared.instructions.iter().chain(&declared.returns);
    assembly
        .add(steps, &texts().collect::<Vec<_>>())
        .map_err(one)?;
    assembly.check(declared, &arguments).map_err(one)?;
    let Assembly {
        instructions,
        data,
        blanks,
        texts,
        ..
    } = assembly;
    let program = Program::new(ProgramParts {
        name: declared.name.text.clone(),
        keys: names,
        arguments,
        instructions,
        data,
        blanks,
    });
    match program {
        Ok(program) => {
            let all: Vec<&Written> = declared
                .instructions
                .iter()
                .chain(&declared.returns)
                .collect();
            let text = |number: usize| Some(all.get(*texts.get(number)?)?.text());
            let names = AnswerNames::new(program.instructions(), text);
            Ok(Some(NamedProgram {
                declaration: declared.clone(),
                program: program.with_names(names),
                texts,
            }))
        }
        Err(refusal) => {
            let what = format!("program {}: {refusal}", declared.name.text);
            Err(vec![declared.name.defect(what)])
        }
    }
}

fn check_name(name: &Written) -> Result<(), Defect> {
    let text = &name.text;
    let is_sound = text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text
            .bytes()
            .all(|it| it.is_ascii_alphanumeric() || matches!(it, b'_' | b'-'))
        && text.len() <= PROGRAM_NAME_BYTES_MAX;
    match is_sound {
        true => Ok(()),
        false => Err(name.defect(format!(
            "{text:?}: a program has a name of letters, digits, _ and - that begins with a letter, \
             {PROGRAM_NAME_BYTES_MAX} bytes at most"
        ))),
    }
}

/// The name at the front of a text, up to a colon or to its end.
fn named<'a>(written: &'a Written, of_what: &str) -> Result<(&'a str, Option<&'a str>), Defect> {
    let (name, rest) = match written.text.split_once(':') {
        Some((name, rest)) => (name, Some(rest)),
        None => (written.text.as_str(), None),
    };
    match is_name(name) && name.len() <= PROGRAM_NAME_BYTES_MAX {
        true => Ok((name, rest)),
        false => Err(written.defect(format!(
            "{:?}: {of_what} has a name of letters, digits and _ that begins with a letter, \
             {PROGRAM_NAME_BYTES_MAX} bytes at most; before, since, return, now and when are words \
             of instructions",
            written.text
        ))),
    }
}

/// The keys, and whether all layouts that they name are sound.
fn keys<'a>(
    declared: &'a ProgramDeclaration,
    declarations: &Declarations,
    layouts: &'a [NamedLayout],
) -> Result<(Vec<ScopeKey<'a>>, bool), Defect> {
    let (mut keys, mut are_sound) = (Vec::<ScopeKey<'_>>::new(), true);
    for written in &declared.keys {
        let (name, layout) = named(written, "a key")?;
        if keys.iter().any(|key| key.name == name) {
            return Err(written.defect(format!("another key has the name {name}")));
        }
        let mut found = None;
        if let Some(layout) = layout {
            found = layouts.iter().find(|it| it.name == layout);
            if found.is_none() && declarations.layout(layout).is_some() {
                are_sound = false;
            } else if found.is_none() {
                let names: Vec<&str> = layouts.iter().map(|it| it.name.as_str()).collect();
                let names = names.join(", ");
                let what = format!("{layout:?} is no layout; there are {names}");
                return Err(written.defect_at(name.len() + 2, what));
            }
        }
        keys.push(ScopeKey {
            name,
            layout: found.map(|it| (it.name.as_str(), &it.layout)),
        });
    }
    match keys.len() {
        1..=FEW_KEYS_MAX => Ok((keys, are_sound)),
        count => Err(declared.name.defect(format!(
            "program {}: it has {count} keys; 1 to {FEW_KEYS_MAX} are allowed",
            declared.name.text
        ))),
    }
}

fn arguments(
    declared: &ProgramDeclaration,
    keys: &[ScopeKey<'_>],
) -> Result<Vec<Argument>, Defect> {
    let mut arguments = Vec::<Argument>::new();
    for written in &declared.arguments {
        let (name, kind) = named(written, "an argument")?;
        let is_taken = keys.iter().any(|key| key.name == name)
            || arguments.iter().any(|argument| argument.name == name);
        if is_taken {
            let what = format!("another argument or key has the name {name}");
            return Err(written.defect(what));
        }
        let kind = kind
            .ok_or_else(|| "TYPE is missing".to_string())
            .and_then(argument_kind)
            .map_err(|what| {
                let allowed = "an argument is NAME:TYPE or NAME:TYPE MIN..MAX, with a TYPE of u8 \
                               to u64, i8 to i64, bool, or u8[N]";
                let column = (name.len() + 2).min(written.text.len().max(1));
                written.defect_at(column, format!("{:?}: {what}; {allowed}", written.text))
            })?;
        arguments.push(Argument {
            name: name.into(),
            kind,
        });
    }
    match arguments.len() {
        0..=PROGRAM_ARGUMENTS_MAX => Ok(arguments),
        count => Err(declared.name.defect(format!(
            "program {}: it has {count} arguments; 0 to {PROGRAM_ARGUMENTS_MAX} are allowed",
            declared.name.text
        ))),
    }
}

/// `u32`, `u32 1..10`, `bool` or `u8[16]`
fn argument_kind(text: &str) -> Result<ArgumentKind, String> {
    let (kind, range) = match text.trim().split_once(' ') {
        Some((kind, range)) => (kind, Some(range.trim())),
        None => (text.trim(), None),
    };
    if let Some(count) = kind.strip_prefix("u8[").and_then(|it| it.strip_suffix(']')) {
        let max: u32 = count
            .parse()
            .ok()
            .filter(|count| (1..=VALUE_BYTES_HARD_MAX).contains(&(*count as usize)))
            .ok_or_else(|| format!("{count:?} is no number of bytes, 1..{VALUE_BYTES_HARD_MAX}"))?;
        return match range {
            None => Ok(ArgumentKind::Bytes { max }),
            Some(range) => Err(format!("{range:?}: bytes have no range")),
        };
    }
    let (least, greatest) = match (kind, FieldType::from_name(kind)) {
        ("bool", _) => (0, 1),
        (_, Some(field_type)) if !kind.ends_with("be") => field_type.range(),
        _ => return Err(format!("{kind:?} is no type")),
    };
    let Some(range) = range else {
        let (min, max) = (least, greatest);
        return Ok(ArgumentKind::Number { min, max });
    };
    let (min, max) = range
        .split_once("..")
        .ok_or_else(|| format!("{range:?} is no range MIN..MAX"))?;
    let min = parse_number((least, greatest), min.trim());
    let max = parse_number((least, greatest), max.trim());
    match (min, max) {
        (Ok(min), Ok(max)) if min <= max => Ok(ArgumentKind::Number { min, max }),
        (Ok(min), Ok(max)) => Err(format!("the range {min}..{max} is empty")),
        _ => Err(format!("{range:?} is no range within {least}..{greatest}")),
    }
}
