//! Replies of RESP, as a client reads them.

/// Levels of arrays in arrays, at most: no command of the simulator has more.
const DEPTH_MAX: usize = 4;

/// One reply, or a push of RESP3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// `+OK` and its like, and errors without their first byte.
    Line(Vec<u8>),
    Error(String),
    Number(i64),
    Bulk(Vec<u8>),
    Null,
    Array(Vec<Reply>),
    Push(Vec<Reply>),
}

impl Reply {
    /// The number that it is, also as text.
    pub(crate) fn number(&self) -> Option<i64> {
        match self {
            Reply::Number(number) => Some(*number),
            Reply::Bulk(text) => str::from_utf8(text).ok()?.parse().ok(),
            _ => None,
        }
    }

    /// The value of a key; `None` if this is no value.
    pub(crate) fn value(&self) -> Option<Option<&[u8]>> {
        match self {
            Reply::Bulk(value) => Some(Some(value)),
            Reply::Null => Some(None),
            _ => None,
        }
    }
}

/// Takes the first reply out of `bytes`, if it is whole.
///
/// # Errors
/// What is no reply.
pub(crate) fn take_reply(bytes: &mut Vec<u8>) -> Result<Option<Reply>, String> {
    let mut at = 0;
    let reply = read(bytes, &mut at, 0)?;
    if reply.is_some() {
        bytes.drain(..at);
    }
    Ok(reply)
}

fn read(bytes: &[u8], at: &mut usize, depth: usize) -> Result<Option<Reply>, String> {
    let rest = &bytes[*at..];
    let Some(end) = rest.windows(2).position(|two| two == b"\r\n") else {
        return Ok(None);
    };
    let (kind, line) = (rest[0], &rest[1..end]);
    let broken = || format!("this is no reply: {}", rest.escape_ascii());
    let number = || -> Result<i64, String> {
        let text = str::from_utf8(line).map_err(|_| broken())?;
        text.parse().map_err(|_| broken())
    };
    *at += end + 2;
    let whole = match kind {
        b'+' => Reply::Line(line.to_vec()),
        b'-' => Reply::Error(String::from_utf8_lossy(line).into_owned()),
        b':' => Reply::Number(number()?),
        b'_' => Reply::Null,
        b'$' | b'*' if number()? == -1 => Reply::Null,
        b'$' => {
            let len = usize::try_from(number()?).map_err(|_| broken())?;
            let Some(value) = bytes.get(*at..*at + len + 2) else {
                return Ok(None);
            };
            *at += len + 2;
            Reply::Bulk(value[..len].to_vec())
        }
        b'*' | b'>' | b'%' | b'~' if depth < DEPTH_MAX => {
            let pairs = if kind == b'%' { 2 } else { 1 };
            let mut members = Vec::new();
            for _ in 0..number()? * pairs {
                let Some(member) = read(bytes, at, depth + 1)? else {
                    return Ok(None);
                };
                members.push(member);
            }
            match kind {
                b'>' => Reply::Push(members),
                _ => Reply::Array(members),
            }
        }
        _ => return Err(broken()),
    };
    Ok(Some(whole))
}

/// The bytes of a command.
pub(crate) fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_taken_one_by_one_and_only_when_they_are_whole() {
        let bytes = b"+OK\r\n*2\r\n$1\r\n7\r\n_\r\n>2\r\n$1\r\na\r\n*-1\r\n-ERR no\r\n";
        let bulk = |text: &[u8]| Reply::Bulk(text.to_vec());
        let expected = [
            Reply::Line(b"OK".to_vec()),
            Reply::Array(vec![bulk(b"7"), Reply::Null]),
            Reply::Push(vec![bulk(b"a"), Reply::Null]),
            Reply::Error("ERR no".to_string()),
        ];
        for cut in 0..=bytes.len() {
            let (mut buffer, mut replies) = (bytes[..cut].to_vec(), Vec::new());
            for rest in [&bytes[cut..], &[]] {
                while let Some(reply) = take_reply(&mut buffer).expect("good") {
                    replies.push(reply);
                }
                buffer.extend_from_slice(rest);
            }
            assert_eq!(replies, expected);
        }
        assert!(take_reply(&mut b"?\r\n".to_vec()).is_err());
    }
}
