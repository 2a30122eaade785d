//! The sale as a web page: served on loopback while it runs, or as one file with the sale in it.
//! The page asks nothing of anybody else.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::sale::live::Live;

const HTML: &str = include_str!("page.html");
/// What stands in the page where a stored sale goes.
const PLACE: &str = "/*SALE*/null/*END*/";
/// How long a browser may take with one request.
const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of a request's head that are read, at most.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// How long the page waits to be asked for the end of the sale.
const LAST_PAGE_WAIT: Duration = Duration::from_secs(3);
/// Between two looks for a request.
const NAP: Duration = Duration::from_millis(10);

/// The page with a sale in it, as one file.
pub(crate) fn stored(sale: &Value) -> String {
    // In a script `</` could end it.
    let sale = sale.to_string().replace("</", "<\\/");
    HTML.replace(PLACE, &sale)
}

/// A listening page.
pub(crate) struct Page {
    listener: TcpListener,
}

impl Page {
    /// Takes a free port of loopback.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn listen() -> std::io::Result<Page> {
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        listener.set_nonblocking(true)?;
        Ok(Page { listener })
    }

    pub(crate) fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers browsers until `is_over`, and then until one that looked before has seen the end.
    pub(crate) fn serve(&self, live: &Live, is_over: &AtomicBool) {
        let mut was_asked = false;
        let mut over_since = None;
        loop {
            if is_over.load(Ordering::Acquire) {
                let since = *over_since.get_or_insert_with(Instant::now);
                if !was_asked || since.elapsed() > LAST_PAGE_WAIT {
                    return;
                }
            }
            let Ok((stream, _)) = self.listener.accept() else {
                std::thread::sleep(NAP);
                continue;
            };
            // A browser that goes away has seen enough.
            if let Ok(Answered::Sale { is_end }) = answer(stream, live) {
                was_asked = true;
                if is_end {
                    return;
                }
            }
        }
    }
}

enum Answered {
    Sale { is_end: bool },
    Other,
}

fn answer(mut stream: TcpStream, live: &Live) -> std::io::Result<Answered> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut head = Vec::new();
    let mut chunk = [0; 1024];
    while !head.windows(4).any(|it| it == b"\r\n\r\n") && head.len() < HEAD_BYTES_MAX {
        match stream.read(&mut chunk)? {
            0 => break,
            read => head.extend_from_slice(&chunk[..read]),
        }
    }
    let head = String::from_utf8_lossy(&head);
    let mut words = head.split_ascii_whitespace();
    let (mut is_end, mut answered) = (false, false);
    let (code, kind, body) = match (words.next(), words.next()) {
        (Some("GET"), Some("/")) => ("200 OK", "text/html; charset=utf-8", HTML.to_string()),
        (Some("GET"), Some("/sale.json")) => {
            let sale = live.now().json(true);
            answered = true;
            is_end = sale["is_over"] == true;
            ("200 OK", "application/json", sale.to_string())
        }
        (Some("GET"), _) => ("404 Not Found", "text/plain", "not found\n".into()),
        _ => ("405 Method Not Allowed", "text/plain", "GET only\n".into()),
    };
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {code}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
         Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n\
         {body}"
    )?;
    Ok(match answered {
        true => Answered::Sale { is_end },
        false => Answered::Other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sale::live::Stage;

    fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.write_all(request.as_bytes()).expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("answered");
        text
    }

    #[test]
    fn a_page_is_whole_and_asks_nobody_else() {
        assert!(HTML.contains(PLACE));
        for elsewhere in ["http:", "https:", "src=", "@import", "url("] {
            assert!(!HTML.contains(elsewhere), "{elsewhere}");
        }
        // The icon is none, so that a browser does not ask for one.
        assert_eq!(
            HTML.matches("href=").count(),
            HTML.matches("href=\"data:,\"").count()
        );
        let page = stored(&serde_json::json!({"stage": "</script>"}));
        assert!(!page.contains(PLACE) && page.matches("</script>").count() == 1);
    }

    #[test]
    fn a_page_is_served_until_its_reader_has_seen_the_end() {
        let page = Page::listen().expect("a port");
        let address = page.address().expect("bound");
        let (live, is_over) = (Live::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| page.serve(&live, &is_over));
            assert!(ask(address, "GET / HTTP/1.1\r\n\r\n").contains("<!doctype html>"));
            assert!(ask(address, "GET /x HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
            assert!(ask(address, "POST / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
            let sale = ask(address, "GET /sale.json HTTP/1.1\r\n\r\n");
            assert!(sale.contains("\"is_over\":false"), "{sale}");
            live.set_stage(Stage::Passed);
            is_over.store(true, Ordering::Release);
            let sale = ask(address, "GET /sale.json HTTP/1.1\r\n\r\n");
            assert!(sale.contains("\"is_over\":true"), "{sale}");
        });
    }
}
