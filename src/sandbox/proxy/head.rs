//! Reads the head of a request to a proxy and writes the one that goes on (RFC 9112). Pure; what it reads is foreign.
#![forbid(unsafe_code)]

use crate::model::hosts::Target;
use std::fmt::Write as _;

/// The longest head that is read, in bytes.
pub(super) const HEAD_MAX: usize = 32 * 1024;

/// What is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Request {
    /// Where to.
    pub(super) target: Target,
    /// The request to pass on; `None` for CONNECT, where nothing of the head is passed on.
    pub(super) forward: Option<Forward>,
}

/// A request by plain HTTP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Forward {
    method: String,
    path: String,
    /// Those that are for the server, a line each.
    fields: String,
}

/// An answer of our own instead of the server's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Refusal {
    pub(super) status: u16,
    pub(super) phrase: &'static str,
    pub(super) text: String,
}

impl Refusal {
    pub(super) fn new(status: u16, phrase: &'static str, text: impl Into<String>) -> Self {
        Self { status, phrase, text: text.into() }
    }

    /// The bytes of the answer.
    pub(super) fn answer(&self) -> Vec<u8> {
        let text = format!("checkrun: {}\n", self.text);
        format!(
            "HTTP/1.1 {} {}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}",
            self.status,
            self.phrase,
            text.len()
        )
        .into_bytes()
    }
}

impl Forward {
    /// The head for the server itself, or, with what authorises us there, for another proxy.
    pub(super) fn head(&self, target: &Target, proxy: Option<Option<&str>>) -> Vec<u8> {
        let authority = if target.port == 80 { target.host.to_string() } else { target.to_string() };
        let at = if proxy.is_some() { format!("http://{authority}") } else { String::new() };
        let mut text =
            format!("{} {at}{} HTTP/1.1\r\nHost: {authority}\r\n{}", self.method, self.path, self.fields);
        if let Some(Some(authorization)) = proxy {
            let _ = write!(text, "Proxy-Authorization: {authorization}\r\n");
        }
        text.push_str("Connection: close\r\n\r\n");
        text.into_bytes()
    }
}

/// Where a head ends: behind its empty line.
pub(super) fn end_of_head(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
}

fn bad(text: &str) -> Refusal {
    Refusal::new(400, "Bad Request", text)
}

/// Reads a head, its empty line included.
pub(super) fn read(head: &[u8]) -> Result<Request, Refusal> {
    let text = std::str::from_utf8(head).map_err(|_| bad("the request is not text"))?;
    let mut lines = text.split("\r\n");
    let first = lines.next().unwrap_or_default();
    let words: Vec<&str> = first.split(' ').collect();
    let [method, at, "HTTP/1.1" | "HTTP/1.0"] = words[..] else {
        return Err(bad("this is not a request of HTTP/1.1"));
    };
    if !at.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(bad("the target of the request is not an address of the web"));
    }
    if method == "CONNECT" {
        let target = Target::parse(at, None).map_err(|problem| bad(&format!("the target {problem}")))?;
        return Ok(Request { target, forward: None });
    }
    if !matches!(method, "GET" | "HEAD" | "POST") {
        return Err(Refusal::new(405, "Method Not Allowed", "only CONNECT, GET, HEAD and POST go through"));
    }
    let Some(rest) = strip_scheme(at) else {
        return Err(bad("this is a proxy: it takes http://HOST/PATH, and CONNECT for all else"));
    };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let target = Target::parse(authority, Some(80)).map_err(|problem| bad(&format!("the host {problem}")))?;
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    let fields = fields(lines)?;
    Ok(Request { target, forward: Some(Forward { method: method.to_owned(), path, fields }) })
}

fn strip_scheme(at: &str) -> Option<&str> {
    let (scheme, rest) = at.split_once("://")?;
    scheme.eq_ignore_ascii_case("http").then_some(rest)
}

/// The fields that are for the server: not those between a program and its proxy (RFC 9110, 7.6.1), and not the host,
/// which is the one that was asked for.
fn fields<'l>(lines: impl Iterator<Item = &'l str>) -> Result<String, Refusal> {
    const NOT_PASSED_ON: [&str; 6] =
        ["connection", "proxy-connection", "keep-alive", "upgrade", "host", "proxy-authorization"];
    let mut kept = String::new();
    for line in lines.take_while(|line| !line.is_empty()) {
        let (name, _) = line.split_once(':').ok_or_else(|| bad("a field of the request has no colon"))?;
        let is_plain = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_plain || line.bytes().any(|byte| byte < b' ' && byte != b'\t') {
            return Err(bad("a field of the request has a control character or a folded line"));
        }
        if !NOT_PASSED_ON.contains(&name.to_ascii_lowercase().as_str()) {
            kept.push_str(line);
            kept.push_str("\r\n");
        }
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_and_passed_on_without_what_is_between_program_and_proxy() {
        let asked = read(b"CONNECT example.org:443 HTTP/1.1\r\nHost: example.org\r\n\r\n").unwrap();
        assert_eq!((asked.target.to_string().as_str(), asked.forward), ("example.org:443", None));
        let head = b"GET http://Example.org/a?b HTTP/1.1\r\nHost: other.example\r\nProxy-Authorization: x\r\nAccept: */*\r\nConnection: keep-alive\r\n\r\n";
        let asked = read(head).unwrap();
        let forward = asked.forward.unwrap();
        assert_eq!(
            forward.head(&asked.target, None),
            b"GET /a?b HTTP/1.1\r\nHost: example.org\r\nAccept: */*\r\nConnection: close\r\n\r\n"
        );
        assert!(
            forward
                .head(&asked.target, Some(Some("Basic x")))
                .starts_with(b"GET http://example.org/a?b HTTP/1.1\r\n")
        );
        for (wrong, status) in [
            ("GET /path HTTP/1.1\r\n\r\n", 400),
            ("GET https://example.org/ HTTP/1.1\r\n\r\n", 400),
            ("GET http://user@example.org/ HTTP/1.1\r\n\r\n", 400),
            ("GET http://a.org/ HTTP/1.1\r\nbroken\r\n\r\n", 400),
            ("GET http://a.org/ HTTP/1.1\r\nA: b\r\n folded: x\r\n\r\n", 400),
            ("GET http://a.org/ HTTP/1.1\r\nA: b\nHost: c\r\n\r\n", 400),
            ("DELETE http://a.org/ HTTP/1.1\r\n\r\n", 405),
            ("CONNECT a.org HTTP/1.1\r\n\r\n", 400),
            ("\u{16}\u{3}\u{1}", 400),
        ] {
            assert_eq!(read(wrong.as_bytes()).unwrap_err().status, status, "{wrong}");
        }
    }

    proptest::proptest! {
        /// Whatever the check writes: no panic, and nothing is passed on that it could continue with a request of its own.
        #[test]
        fn any_head_is_read_without_a_panic(text in "(GET|CONNECT) (http://)?[a-z.:/\\[\\]@ ]{0,20} HTTP/1.1\r\n(\\PC{0,20}\r\n){0,3}\r\n") {
            if let Ok(Request { target, forward: Some(forward) }) = read(text.as_bytes()) {
                let head = forward.head(&target, None);
                proptest::prop_assert_eq!(end_of_head(&head), Some(head.len()));
            }
        }
    }
}
