//! bytes of a connection → what is asked; an answer → bytes.

/// The most bytes of a request's head.
pub const HEAD_BYTES_MAX: usize = 8 << 10;
/// The most header lines of a request.
const HEADERS_MAX: usize = 64;

/// The head of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Head {
    /// Its end has not come.
    Partial,
    /// It is no HTTP.
    Bad,
    Asks {
        method: String,
        /// Without the query.
        path: String,
    },
}

/// What `bytes` begin with.
pub fn read_head(bytes: &[u8]) -> Head {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) => Head::Partial,
        Ok(httparse::Status::Complete(_)) => {
            let path = request.path.unwrap_or_default();
            Head::Asks {
                method: request.method.unwrap_or_default().to_owned(),
                path: path.split('?').next().unwrap_or_default().to_owned(),
            }
        }
        Err(_) => Head::Bad,
    }
}

/// An answer, which ends its connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: &'static str,
    pub content_type: &'static str,
    pub body: String,
}

/// Lines for people.
pub const PLAIN: &str = "text/plain; charset=utf-8";

impl Answer {
    /// A line for each of `lines`.
    pub fn lines(status: &'static str, lines: &[String]) -> Self {
        let body = lines.iter().map(|line| format!("{line}\n")).collect();
        Self {
            status,
            content_type: PLAIN,
            body,
        }
    }

    /// The bytes to send; to HEAD, without the body.
    pub fn text(&self, with_body: bool) -> String {
        let Self {
            status,
            content_type,
            body,
        } = self;
        let allow = match *status {
            NOT_ALLOWED => "allow: GET, HEAD\r\n",
            _ => "",
        };
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n\
             cache-control: no-store\r\n{allow}connection: close\r\n\r\n",
            body.len()
        );
        match with_body {
            true => head + body,
            false => head,
        }
    }
}

pub const OK: &str = "200 OK";
pub const BAD: &str = "400 Bad Request";
pub const NOT_FOUND: &str = "404 Not Found";
pub const NOT_ALLOWED: &str = "405 Method Not Allowed";
pub const TOO_LARGE: &str = "431 Request Header Fields Too Large";
pub const BROKEN: &str = "500 Internal Server Error";
pub const UNAVAILABLE: &str = "503 Service Unavailable";

#[cfg(test)]
mod tests {
    use super::*;

    fn asks(method: &str, path: &str) -> Head {
        Head::Asks {
            method: method.into(),
            path: path.into(),
        }
    }

    #[test]
    fn a_head_is_read_once_its_end_came() {
        for (bytes, head) in [
            (&b"GET /metrics HTTP/1.1\r\nhost: x\r\n"[..], Head::Partial),
            (b"", Head::Partial),
            (
                b"GET /metrics?a=b HTTP/1.1\r\nhost: x\r\n\r\n",
                asks("GET", "/metrics"),
            ),
            (b"HEAD / HTTP/1.0\r\n\r\n", asks("HEAD", "/")),
            (
                b"POST /readyz HTTP/1.1\r\n\r\nbody",
                asks("POST", "/readyz"),
            ),
            (b"\x16\x03\x01\x02\x00\x01", Head::Bad),
            (b"GET /\r\n\r\n", Head::Bad),
        ] {
            assert_eq!(
                read_head(bytes),
                head,
                "{:?}",
                String::from_utf8_lossy(bytes)
            );
        }
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(65));
        assert_eq!(read_head(many.as_bytes()), Head::Bad);
    }

    #[test]
    fn an_answer_says_its_length_and_ends_the_connection() {
        let answer = Answer::lines(UNAVAILABLE, &["ä".to_owned(), "b".to_owned()]);
        let head = "HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain; charset=utf-8\r\n\
                    content-length: 5\r\ncache-control: no-store\r\nconnection: close\r\n\r\n";
        assert_eq!(answer.text(true), format!("{head}ä\nb\n"));
        assert_eq!(answer.text(false), head);
        assert!(
            Answer::lines(NOT_ALLOWED, &[])
                .text(true)
                .contains("allow: GET, HEAD\r\n")
        );
    }
}
