//! Values of a plan by their names, and what is wrong with one that is not as it must be.

use toml::de::{DeTable, DeValue};

pub(crate) type Table<'a> = DeTable<'a>;

pub(crate) fn only(table: &Table<'_>, whose: &str, known: &[&str]) -> Result<(), String> {
    let mut names = table.keys().map(|key| key.get_ref().as_ref());
    match names.find(|name| !known.contains(name)) {
        Some(name) => Err(format!(
            "{whose} has no {name:?}: it may have {}",
            known.join(", ")
        )),
        None => Ok(()),
    }
}

fn value<'t, 'a>(table: &'t Table<'a>, whose: &str, name: &str) -> Result<&'t DeValue<'a>, String> {
    table
        .get(name)
        .map(|value| value.get_ref())
        .ok_or_else(|| format!("{whose} lacks {name}"))
}

pub(crate) fn string<'t>(table: &'t Table<'_>, whose: &str, name: &str) -> Result<&'t str, String> {
    match value(table, whose, name)? {
        DeValue::String(text) => Ok(text),
        _ => Err(format!("{whose}: {name} is to be a string")),
    }
}

fn integer(value: &DeValue<'_>) -> Option<u64> {
    match value {
        DeValue::Integer(digits) => {
            u64::from_str_radix(&digits.as_str().replace('_', ""), digits.radix()).ok()
        }
        _ => None,
    }
}

pub(crate) fn number(
    table: &Table<'_>,
    whose: &str,
    name: &str,
    min: u64,
    max: u64,
) -> Result<u64, String> {
    let value = value(table, whose, name)?;
    integer(value)
        .filter(|number| (min..=max).contains(number))
        .ok_or_else(|| {
            let is = match value {
                DeValue::Integer(digits) => format!(" = {}", digits.as_str()),
                _ => String::new(),
            };
            format!("{whose}: {name}{is} is to be a whole number, {min} to {max}")
        })
}

/// `false` if it is not there.
pub(crate) fn switch(table: &Table<'_>, whose: &str, name: &str) -> Result<bool, String> {
    match table.get(name).map(|value| value.get_ref()) {
        None => Ok(false),
        Some(DeValue::Boolean(is_on)) => Ok(*is_on),
        Some(_) => Err(format!("{whose}: {name} is to be true or false")),
    }
}

pub(crate) fn numbers(table: &Table<'_>, whose: &str, name: &str) -> Result<Vec<u64>, String> {
    let DeValue::Array(values) = value(table, whose, name)? else {
        return Err(format!("{whose}: {name} is to be a list of numbers"));
    };
    let numbers = values.iter().map(|value| integer(value.get_ref()));
    numbers
        .collect::<Option<Vec<u64>>>()
        .ok_or_else(|| format!("{whose}: {name} is to be a list of numbers"))
}

pub(crate) fn tables<'t, 'a>(
    table: &'t Table<'a>,
    name: &str,
) -> Result<impl Iterator<Item = Result<&'t Table<'a>, String>>, String> {
    let Some(value) = table.get(name) else {
        return Err(format!("there is no [[{name}]]"));
    };
    let DeValue::Array(values) = value.get_ref() else {
        return Err(format!("{name} is to be written as [[{name}]]"));
    };
    let wrong = format!("{name} is to be written as [[{name}]]");
    Ok(values.iter().map(move |value| match value.get_ref() {
        DeValue::Table(table) => Ok(table),
        _ => Err(wrong.clone()),
    }))
}

pub(crate) fn hex16(text: &str) -> Option<[u8; 16]> {
    let mut bytes = [0; 16];
    if text.len() != 32 || !text.is_ascii() {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}
