//! The first bytes of clients that speak another protocol: such a client gets an answer in its own
//! protocol.

use crate::frame::{HEADER_BYTES, MAGIC};
use crate::receive::{Receiver, is_tls};
use crate::reply::write_error;
use crate::status::Status;

/// The longest first line that is read, in bytes.
const LINE_BYTES_MAX: usize = 256;

/// What the first bytes of a connection are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// A frame, or bytes that are refused as one.
    Frame,
    /// Too few bytes to tell.
    Undecided,
    /// Another protocol.
    Stranger(Stranger),
}

/// A protocol that is not spoken here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stranger {
    /// Redis: an array of bulk strings, or an inline command.
    Redis,
    /// HTTP/1.
    Http,
}

impl Stranger {
    /// The answer, after which the connection ends.
    #[must_use]
    pub fn answer(self) -> &'static str {
        match self {
            Stranger::Redis => {
                "-ERR this is the native protocol port of a Penstock server, which does not speak \
                 RESP: use a Penstock client\r\n"
            }
            Stranger::Http => {
                "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 99\r\n\
                 Connection: close\r\n\r\n\
                 this is the native protocol port of a Penstock server; probes and metrics are on \
                 its admin address\n"
            }
        }
    }
}

/// Tells what the first bytes of a connection are, before HELLO. Text is another protocol: bytes 2
/// and 3 of a frame are zero, because no frame before HELLO is longer than 1024 bytes, and byte 4
/// is [`MAGIC`].
#[must_use]
pub fn opening(bytes: &[u8]) -> Opening {
    let is_text = |byte: &u8| matches!(byte, b' '..=b'~' | b'\t' | b'\r');
    let searched = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
    let end = searched.iter().position(|&byte| byte == b'\n');
    let line = &searched[..end.unwrap_or(searched.len())];
    if !line.iter().all(is_text) || bytes.get(4) == Some(&MAGIC) {
        return Opening::Frame;
    }
    let is_line = end.is_some() || bytes.len() >= LINE_BYTES_MAX;
    match line {
        // A client that greets with an empty line sends the same again.
        [b'*' | b'\r' | b'$', ..] if is_line => Opening::Stranger(Stranger::Redis),
        _ if !is_line => Opening::Undecided,
        [] => Opening::Stranger(Stranger::Redis),
        _ if line.windows(8).any(|word| word == b" HTTP/1.") => Opening::Stranger(Stranger::Http),
        _ => Opening::Stranger(Stranger::Redis),
    }
}

/// The answer of a port that speaks RESP without TLS to a native client or one of TLS, by the first
/// bytes of its connection; `None` if they are not known to be of one. The connection ends behind
/// the answer: otherwise the client would wait for a reply until its deadline.
#[must_use]
pub fn answer_of_resp(bytes: &[u8]) -> Option<Vec<u8>> {
    if is_tls(bytes) {
        // Libraries of TLS take text for what it is: the other side speaks none.
        return Some(b"-ERR this port speaks RESP without TLS\r\n".into());
    }
    let receiver = Receiver::new(u32::MAX);
    let header = bytes
        .get(..HEADER_BYTES)
        .and_then(|head| receiver.header(head))?;
    let mut answer = Vec::new();
    let text = "this is the port for clients of Redis of a Penstock server, which speaks RESP: \
        native clients use the port of --listen";
    write_error(&mut answer, Some(&header), Status::Malformed, 0, 0, &text);
    Some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hello::ClientHello;
    use crate::receive::Received;
    use crate::reply::text_of;

    #[test]
    fn the_first_line_of_another_protocol_is_known_wherever_it_is_cut() {
        let cases: [(&[u8], usize, Stranger); 6] = [
            (b"*1\r\n$4\r\nPING\r\n", 4, Stranger::Redis),
            (b"*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n", 4, Stranger::Redis),
            (b"PING\r\n", 6, Stranger::Redis),
            (b"HELLO 3\r\n", 9, Stranger::Redis),
            (b"\r\nPING\r\n", 2, Stranger::Redis),
            (b"GET / HTTP/1.1\r\nHost: shop\r\n\r\n", 16, Stranger::Http),
        ];
        for (bytes, known_from, stranger) in cases {
            for cut in 0..=bytes.len() {
                let expected = match cut >= known_from {
                    true => Opening::Stranger(stranger),
                    false => Opening::Undecided,
                };
                let found = opening(&bytes[..cut]);
                assert_eq!(found, expected, "{:?}", bytes[..cut].escape_ascii());
            }
        }
        assert!(matches!(
            opening(&[b'a'; LINE_BYTES_MAX]),
            Opening::Stranger(_)
        ));
    }

    #[test]
    fn no_client_hello_is_taken_for_a_stranger_wherever_it_is_cut() {
        // Names of such lengths make the length of the frame a printable character.
        for len in 0..=64 {
            let mut bytes = Vec::new();
            ClientHello {
                protocol_min: 1,
                protocol_max: 1,
                features: 0,
                name: &"n".repeat(len),
            }
            .write(&mut bytes, 1);
            for cut in 0..=bytes.len() {
                let found = opening(&bytes[..cut]);
                assert!(
                    !matches!(found, Opening::Stranger(_)),
                    "a name of {len} cut at {cut}"
                );
                assert!(cut < 2 || found == Opening::Frame, "decided at {cut}");
            }
        }
    }

    #[test]
    fn a_native_client_at_the_port_of_resp_reads_in_a_frame_of_its_own_where_it_is() {
        let mut hello = Vec::new();
        ClientHello {
            protocol_min: 1,
            protocol_max: 1,
            features: 0,
            name: "n",
        }
        .write(&mut hello, 7);
        for cut in 0..HEADER_BYTES {
            assert_eq!(answer_of_resp(&hello[..cut]), None, "cut at {cut}");
        }
        let answer = answer_of_resp(&hello).expect("a frame");
        let Received::Frame { header, body, .. } = Receiver::new(1 << 16).next(&answer) else {
            panic!("it is whole");
        };
        assert_eq!(
            (header.request_id, header.level_or_status),
            (7, Status::Malformed.code())
        );
        assert!(text_of(body).is_some_and(|text| text.contains("clients of Redis")));
        for other in [
            &b"*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nPING\r\n"[..],
            b"PING\r\nPING\r\nPING\r\nPING\r\nPING\r\nPING\r\n",
            &[0x28; 64],
        ] {
            assert_eq!(answer_of_resp(other), None);
        }
        let tls = answer_of_resp(&[0x16, 3, 1, 2, 0]).expect("words");
        assert!(tls.starts_with(b"-ERR ") && tls.ends_with(b"\r\n"));
    }

    #[test]
    fn an_answer_is_what_the_stranger_reads() {
        let answer = Stranger::Redis.answer();
        assert!(answer.starts_with("-ERR ") && answer.ends_with("\r\n"));
        assert_eq!(answer.matches('\n').count(), 1, "one line");
        let (head, body) = Stranger::Http
            .answer()
            .split_once("\r\n\r\n")
            .expect("a body");
        let length = format!("Content-Length: {}", body.len());
        assert!(
            head.lines().any(|line| line == length),
            "{head} for {length}"
        );
    }
}
