//! As much of HTTP/1.1 as probes and scrapes need: the head of a GET is read, one reply is written,
//! the connection ends. Pure.

use std::fmt::Write;

use crate::server::exposition::Exposition;
use crate::server::health::Wanted;

/// Bytes of a request's first line and headers, at most.
pub(super) const HEAD_BYTES_MAX: usize = 8 << 10;
/// Headers of a request, at most.
const HEADERS_MAX: usize = 64;
/// A refusal repeats at most so many characters of the request.
const ECHO_CHARS_MAX: usize = 80;

/// What can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Page {
    /// In the format that the request accepts.
    Metrics(Exposition),
    Livez,
    /// With what is wanted besides, if anything is.
    Readyz(Option<Wanted>),
}

/// A request that is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) page: Page,
    /// HEAD: the same reply without its body.
    pub(super) wants_body: bool,
}

/// The status line of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    Ok,
    BadRequest,
    Unauthorized,
    NotFound,
    MethodNotAllowed,
    Timeout,
    HeadTooLarge,
    Unavailable,
}

impl Code {
    fn line(self) -> &'static str {
        match self {
            Code::Ok => "200 OK",
            Code::BadRequest => "400 Bad Request",
            Code::Unauthorized => "401 Unauthorized",
            Code::NotFound => "404 Not Found",
            Code::MethodNotAllowed => "405 Method Not Allowed",
            Code::Timeout => "408 Request Timeout",
            Code::HeadTooLarge => "431 Request Header Fields Too Large",
            Code::Unavailable => "503 Service Unavailable",
        }
    }
}

/// Why a request is not answered with a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) code: Code,
    /// One line for people.
    pub(super) text: String,
}

/// Reads what has come so far; `None` if the head is not whole yet.
pub(super) fn read(bytes: &[u8]) -> Result<Option<Request>, Refusal> {
    let refuse = |code, text| Err(Refusal { code, text });
    let head = &bytes[..bytes.len().min(HEAD_BYTES_MAX)];
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES_MAX => return Ok(None),
        Ok(httparse::Status::Partial) => {
            let text = format!(
                "the first line and the headers of a request take at most {HEAD_BYTES_MAX} bytes"
            );
            return refuse(Code::HeadTooLarge, text);
        }
        Err(httparse::Error::TooManyHeaders) => {
            let text = format!("a request has at most {HEADERS_MAX} headers");
            return refuse(Code::HeadTooLarge, text);
        }
        Err(error) => return refuse(Code::BadRequest, format!("not an HTTP/1 request: {error}")),
    }
    let method = request.method.unwrap_or_default();
    if method != "GET" && method != "HEAD" {
        let text = format!("{} is not taken here: use GET or HEAD", echo(method));
        return refuse(Code::MethodNotAllowed, text);
    }
    let target = request.path.unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let page = match path {
        "/metrics" => {
            let accept = request.headers.iter();
            let accept = accept.filter(|header| header.name.eq_ignore_ascii_case("accept"));
            let accept: Vec<_> = accept
                .map(|header| String::from_utf8_lossy(header.value))
                .collect();
            Page::Metrics(Exposition::accepted(&accept.join(",")))
        }
        "/livez" => Page::Livez,
        "/readyz" => match query {
            "" => Page::Readyz(None),
            "role=primary" => Page::Readyz(Some(Wanted::Primary)),
            // A probe with an unknown question must not get "ready" as an answer.
            other => {
                let text = format!(
                    "/readyz?{} is not known; there are /readyz and /readyz?role=primary",
                    echo(other)
                );
                return refuse(Code::BadRequest, text);
            }
        },
        other => {
            let text = format!(
                "there is nothing at {}; there are /metrics, /livez and /readyz",
                echo(other)
            );
            return refuse(Code::NotFound, text);
        }
    };
    Ok(Some(Request {
        page,
        wants_body: method == "GET",
    }))
}

/// The token of a request whose head is whole: what stands behind `Bearer` in its one header
/// `Authorization`.
pub(super) fn bearer(bytes: &[u8]) -> Option<&[u8]> {
    let head = &bytes[..bytes.len().min(HEAD_BYTES_MAX)];
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    if !matches!(request.parse(head), Ok(httparse::Status::Complete(_))) {
        return None;
    }
    let named = |header: &&httparse::Header<'_>| header.name.eq_ignore_ascii_case("authorization");
    let mut found = request.headers.iter().filter(named);
    let value = found.next().filter(|_| found.next().is_none())?.value;
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme
        .eq_ignore_ascii_case(b"Bearer ")
        .then(|| token.trim_ascii())
}

fn echo(text: &str) -> String {
    let mut short: String = text.chars().take(ECHO_CHARS_MAX).collect();
    if short.len() < text.len() {
        short.push_str("...");
    }
    short.escape_debug().to_string()
}

/// A whole reply.
pub(super) fn reply(code: Code, content_type: &str, body: &str, wants_body: bool) -> Vec<u8> {
    let mut text = format!(
        "HTTP/1.1 {}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\
         Cache-Control: no-store\r\nConnection: close\r\n",
        code.line(),
        body.len()
    );
    if code == Code::MethodNotAllowed {
        text.push_str("Allow: GET, HEAD\r\n");
    }
    if code == Code::Unauthorized {
        text.push_str("WWW-Authenticate: Bearer realm=\"penstock\"\r\n");
    }
    let body = if wants_body { body } else { "" };
    write!(text, "\r\n{body}").expect("writing to memory does not fail");
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: &[u8] = b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n";

    fn code_of(bytes: &[u8]) -> Option<Code> {
        read(bytes).err().map(|refusal| refusal.code)
    }

    #[test]
    fn a_request_is_taken_when_its_head_is_whole_and_not_before() {
        for len in 0..GET.len() {
            assert_eq!(read(&GET[..len]), Ok(None), "{len}");
        }
        let whole = Request {
            page: Page::Metrics(Exposition::Text),
            wants_body: true,
        };
        assert_eq!(read(GET), Ok(Some(whole)));
        let accepting = b"GET /metrics HTTP/1.1\r\naccept: text/plain;q=0.5\r\n\
            ACCEPT: application/openmetrics-text\r\n\r\n";
        let page = read(accepting).unwrap().unwrap().page;
        assert_eq!(page, Page::Metrics(Exposition::OpenMetrics), "two headers");
        let head = Request {
            page: Page::Readyz(None),
            wants_body: false,
        };
        assert_eq!(read(b"HEAD /readyz HTTP/1.0\r\n\r\n"), Ok(Some(head)));
        let primary = read(b"GET /readyz?role=primary HTTP/1.1\r\n\r\n");
        let primary = primary.unwrap().unwrap().page;
        assert_eq!(primary, Page::Readyz(Some(Wanted::Primary)));
        let unknown = read(b"GET /readyz?role=primry HTTP/1.1\r\n\r\n").unwrap_err();
        assert_eq!(unknown.code, Code::BadRequest);
        assert!(unknown.text.contains("role=primry"), "{}", unknown.text);
        let livez = read(b"GET /livez HTTP/1.1\r\n\r\nrest").unwrap().unwrap();
        assert_eq!(livez.page, Page::Livez);
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert_eq!(
            code_of(b"POST /metrics HTTP/1.1\r\n\r\n"),
            Some(Code::MethodNotAllowed)
        );
        let nothing = read(b"GET /metric HTTP/1.1\r\n\r\n").unwrap_err();
        assert_eq!(nothing.code, Code::NotFound);
        assert!(nothing.text.contains("/metric;"), "{}", nothing.text);
        assert_eq!(code_of(b"\x16\x03\x01\x02\x00"), Some(Code::BadRequest));
        let http2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        assert_eq!(code_of(http2), Some(Code::BadRequest));
    }

    #[test]
    fn a_token_stands_behind_bearer_in_the_one_header_authorization() {
        let of = |headers: &str| {
            let text = format!("GET /metrics HTTP/1.1\r\n{headers}\r\n");
            bearer(text.as_bytes()).map(|it| String::from_utf8_lossy(it).into_owned())
        };
        assert_eq!(of("Authorization: Bearer abc\r\n").as_deref(), Some("abc"));
        assert_eq!(
            of("AUTHORIZATION:bearer   a=b  \r\n").as_deref(),
            Some("a=b")
        );
        for none in [
            "",
            "Authorization: Basic abc\r\n",
            "Authorization: Bearer\r\n",
            "Authorization: Bearerabc\r\n",
            "Authorization: Bearer a\r\nAuthorization: Bearer a\r\n",
        ] {
            assert_eq!(of(none), None, "{none:?}");
        }
        assert_eq!(
            bearer(b"GET / HTTP/1.1\r\nAuthorization: Bearer a\r\n"),
            None
        );
        assert_eq!(bearer(b"\x16\x03\x01\x02\x00"), None);
    }

    #[test]
    fn a_head_beyond_its_bounds_is_refused_whatever_it_holds() {
        let mut line = b"GET /".to_vec();
        line.resize(HEAD_BYTES_MAX - 1, b'a');
        assert_eq!(read(&line), Ok(None));
        line.push(b'a');
        assert_eq!(code_of(&line), Some(Code::HeadTooLarge));
        line.resize(1 << 20, b'a');
        assert_eq!(code_of(&line), Some(Code::HeadTooLarge));
        let mut many = b"GET /livez HTTP/1.1\r\n".to_vec();
        (0..=HEADERS_MAX).for_each(|_| many.extend_from_slice(b"a: b\r\n"));
        assert_eq!(code_of(&many), Some(Code::HeadTooLarge));
        let long = format!("GET /{} HTTP/1.1\r\n\r\n", "\u{e9}".repeat(2_000));
        let refusal = read(long.as_bytes()).unwrap_err();
        assert!(refusal.text.len() < 400, "{}", refusal.text);
    }

    #[test]
    fn replies_name_their_length_and_head_leaves_the_body_out() {
        let text = |wants_body| {
            String::from_utf8(reply(Code::Ok, "text/plain", "ready\n", wants_body)).unwrap()
        };
        assert!(text(true).ends_with("Connection: close\r\n\r\nready\n"));
        assert!(text(false).ends_with("Connection: close\r\n\r\n"));
        assert!(text(false).contains("Content-Length: 6\r\n"));
        let refused = reply(Code::MethodNotAllowed, "text/plain", "", true);
        assert!(
            String::from_utf8(refused)
                .unwrap()
                .contains("\r\nAllow: GET, HEAD\r\n")
        );
    }
}
