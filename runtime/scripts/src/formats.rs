//! `string.format`.

use mlua::{Result, Value};

use crate::arguments::Arguments;
use crate::budget::Meter;
use crate::library::text;
use crate::numbers::{self, Zeros};

/// Digits of a width or a precision, at most.
const SIZE_DIGITS_MAX: usize = 2;

/// One `%...` of a format.
#[derive(Debug, Default)]
struct Directive {
    is_left: bool,
    has_plus: bool,
    has_blank: bool,
    is_alternate: bool,
    is_zero_padded: bool,
    width: usize,
    precision: Option<usize>,
}

/// `string.format(format, ...)`.
pub(crate) fn format(args: &Arguments<'_>, meter: &Meter) -> Result<Value> {
    let format = args.string(0)?;
    let format = format.as_bytes();
    let mut out = Vec::with_capacity(format.len());
    let mut at = 0;
    let mut index = 0;
    while at < format.len() {
        let byte = format[at];
        at += 1;
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        if format.get(at) == Some(&b'%') {
            out.push(b'%');
            at += 1;
            continue;
        }
        index += 1;
        if index >= args.len() {
            return Err(args.refuse(index, "no value"));
        }
        let (directive, next) = read(args, &format, at)?;
        let option = format.get(next).copied().unwrap_or(0);
        at = next + 1;
        meter.charge(8)?;
        write(args, index, option, &directive, &mut out)?;
        meter.check_room(args.lua, 2 * out.len())?;
    }
    text(args.lua, meter, &out)
}

/// Flags, width and precision, and where the option stands.
fn read(args: &Arguments<'_>, format: &[u8], mut at: usize) -> Result<(Directive, usize)> {
    let mut directive = Directive::default();
    let flags = at;
    while let Some(byte) = format.get(at) {
        match byte {
            b'-' => directive.is_left = true,
            b'+' => directive.has_plus = true,
            b' ' => directive.has_blank = true,
            b'#' => directive.is_alternate = true,
            b'0' => directive.is_zero_padded = true,
            _ => break,
        }
        at += 1;
    }
    if at - flags > 5 {
        return Err(args.error("invalid format (repeated flags)"));
    }
    let number = |at: &mut usize| -> Result<usize> {
        let digits = format[*at..]
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        if digits > SIZE_DIGITS_MAX {
            return Err(args.error("invalid format (width or precision too long)"));
        }
        let start = *at;
        *at += digits;
        let value = |size, digit: &u8| size * 10 + usize::from(digit - b'0');
        Ok(format[start..*at].iter().fold(0, value))
    };
    directive.width = number(&mut at)?;
    if format.get(at) == Some(&b'.') {
        at += 1;
        directive.precision = Some(number(&mut at)?);
    }
    Ok((directive, at))
}

fn write(
    args: &Arguments<'_>,
    index: usize,
    option: u8,
    directive: &Directive,
    out: &mut Vec<u8>,
) -> Result<()> {
    match option {
        b'c' => {
            let number = args.number(index)?;
            // C makes an int of it, and of what is none the least one.
            let is_int = number.abs() < 2_147_483_648.0;
            let byte = numbers::integer_of(if is_int { number } else { 0.0 }).to_le_bytes()[0];
            match byte {
                // The text of C ends at a zero.
                0 if directive.is_left => {}
                0 => out.extend(std::iter::repeat_n(b' ', directive.width.saturating_sub(1))),
                _ => directive.pad(&[], &[byte], out),
            }
        }
        b'd' | b'i' => directive.integer(args.integer(index)?, out),
        b'o' | b'u' | b'x' | b'X' => {
            directive.unsigned(option, unsigned_of(args.number(index)?), out);
        }
        b'e' | b'E' | b'f' | b'g' | b'G' => directive.float(option, args.number(index)?, out),
        b'q' => quote(&args.string(index)?.as_bytes(), out),
        b's' => {
            let value = args.string(index)?;
            let bytes = value.as_bytes();
            // A long string without a precision is taken whole; else it ends at a zero.
            if directive.precision.is_none() && bytes.len() >= 100 {
                out.extend_from_slice(&bytes);
                return Ok(());
            }
            let end = bytes
                .iter()
                .position(|byte| *byte == 0)
                .unwrap_or(bytes.len());
            let end = end.min(directive.precision.unwrap_or(usize::MAX));
            directive.pad(&[], &bytes[..end], out);
        }
        option => {
            let option = char::from(option);
            return Err(args.error(&format!("invalid option '%{option}' to 'format'")));
        }
    }
    Ok(())
}

/// The unsigned number that a cast of C makes of a number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the range is checked"
)]
fn unsigned_of(number: f64) -> u64 {
    match number {
        0.0..18_446_744_073_709_551_616.0 => number as u64,
        // What the processors of most servers make of it.
        18_446_744_073_709_551_616.0.. => 0,
        _ => numbers::integer_of(number).cast_unsigned(),
    }
}

/// A string that a program could have: between quotes.
fn quote(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in bytes {
        match byte {
            b'"' | b'\\' | b'\n' => out.extend_from_slice(&[b'\\', *byte]),
            b'\r' => out.extend_from_slice(b"\\r"),
            0 => out.extend_from_slice(b"\\000"),
            byte => out.push(*byte),
        }
    }
    out.push(b'"');
}

impl Directive {
    /// Sign or prefix, then zeros or blanks, then digits.
    fn pad(&self, sign: &[u8], body: &[u8], out: &mut Vec<u8>) {
        let fill = self.width.saturating_sub(sign.len() + body.len());
        if self.is_left {
            out.extend_from_slice(sign);
            out.extend_from_slice(body);
            out.extend(std::iter::repeat_n(b' ', fill));
            return;
        }
        out.extend(std::iter::repeat_n(b' ', fill));
        out.extend_from_slice(sign);
        out.extend_from_slice(body);
    }

    fn pad_number(&self, sign: &[u8], digits: &[u8], out: &mut Vec<u8>) {
        if !self.is_zero_padded || self.is_left {
            return self.pad(sign, digits, out);
        }
        let fill = self.width.saturating_sub(sign.len() + digits.len());
        out.extend_from_slice(sign);
        out.extend(std::iter::repeat_n(b'0', fill));
        out.extend_from_slice(digits);
    }

    fn sign(&self, is_negative: bool) -> &'static [u8] {
        match (is_negative, self.has_plus, self.has_blank) {
            (true, _, _) => b"-",
            (false, true, _) => b"+",
            (false, false, true) => b" ",
            _ => b"",
        }
    }

    /// With a precision, zeros of the width are blanks.
    fn digits(&self, sign: &[u8], digits: &str, out: &mut Vec<u8>) {
        match self.precision {
            Some(0) if digits == "0" => self.pad(sign, b"", out),
            Some(precision) => {
                let digits = format!("{digits:0>precision$}");
                self.pad(sign, digits.as_bytes(), out);
            }
            None => self.pad_number(sign, digits.as_bytes(), out),
        }
    }

    fn integer(&self, number: i64, out: &mut Vec<u8>) {
        let sign = self.sign(number < 0);
        self.digits(sign, &number.unsigned_abs().to_string(), out);
    }

    fn unsigned(&self, option: u8, number: u64, out: &mut Vec<u8>) {
        let (prefix, digits): (&[u8], _) = match option {
            b'o' if self.is_alternate && number != 0 => (b"", format!("0{number:o}")),
            b'o' => (b"", format!("{number:o}")),
            b'x' => (b"0x", format!("{number:x}")),
            b'X' => (b"0X", format!("{number:X}")),
            _ => (b"", number.to_string()),
        };
        let has_prefix = self.is_alternate && number != 0;
        self.digits(if has_prefix { prefix } else { b"" }, &digits, out);
    }

    fn float(&self, option: u8, number: f64, out: &mut Vec<u8>) {
        let precision = self.precision.unwrap_or(6);
        let magnitude = number.abs();
        let zeros = if self.is_alternate {
            Zeros::Kept
        } else {
            Zeros::Dropped
        };
        let mut digits = match option {
            b'f' => numbers::fixed(magnitude, precision),
            b'e' | b'E' => numbers::scientific(magnitude, precision),
            _ => numbers::general(magnitude, precision, zeros),
        };
        if self.is_alternate && magnitude.is_finite() && !digits.contains('.') {
            let end = digits.find('e').unwrap_or(digits.len());
            digits.insert(end, '.');
        }
        if option.is_ascii_uppercase() {
            digits.make_ascii_uppercase();
        }
        let sign = self.sign(number.is_sign_negative());
        match number.is_finite() {
            true => self.pad_number(sign, digits.as_bytes(), out),
            false => self.pad(sign, digits.as_bytes(), out),
        }
    }
}
