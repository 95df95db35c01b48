//! A server on a port of the system's choice, asked as a client would.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use retrytoll_lake::Clock;

use super::*;
use crate::config::usable::Limits;
use crate::metrics::Metrics;
use crate::pipeline::Health;

const NOW_MS: i64 = 1_763_596_800_000;

fn site(log: &Path, health: &Arc<Health>, stop: &Arc<AtomicBool>) -> Site {
    Site {
        health: Arc::clone(health),
        metrics: Arc::new(Metrics::default()),
        limits: Limits {
            prefetch_bytes: 1,
            batches_bytes: 2,
            encode_bytes: 3,
            seen_bytes: 4,
            sql_bytes: 5,
            rest_bytes: 6,
            spill_bytes_max: 7,
            sql_time: Duration::ZERO,
        },
        leading: Arc::default(),
        stop: Arc::clone(stop),
        clock: Clock::new(|| NOW_MS),
        log: log.to_owned(),
        workers: Vec::new(),
    }
}

fn listen() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// What comes back, up to the end of the connection.
fn ask(server: &Server, request: &str) -> String {
    let mut connection = TcpStream::connect(server.address).unwrap();
    connection.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    answer
}

fn get(server: &Server, path: &str) -> (String, String) {
    let answer = ask(server, &format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n"));
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.lines().next().unwrap().to_owned();
    (status, body.to_owned())
}

#[test]
fn it_answers_its_three_paths_and_refuses_others() {
    let folder = tempfile::tempdir().unwrap();
    let health = Arc::new(Health::default());
    let stop = Arc::new(AtomicBool::new(false));
    let log = folder.path().join("_delta_log");
    let server = Server::start(listen(), site(&log, &health, &stop)).unwrap();
    let fine = ("HTTP/1.1 200 OK".to_owned(), "ok\n".to_owned());

    // Nothing goes yet: no restart would help, and it is not ready.
    assert_eq!(get(&server, "/healthz"), fine);
    let (status, body) = get(&server, "/readyz");
    assert_eq!(status, "HTTP/1.1 503 Service Unavailable");
    assert!(
        body.starts_with("starting\nthe lake can't be read at "),
        "{body}"
    );

    std::fs::create_dir(&log).unwrap();
    health.polled(NOW_MS);
    health.reads(true);
    assert_eq!(get(&server, "/readyz?verbose"), fine);
    stop.store(true, Ordering::Release);
    assert_eq!(get(&server, "/readyz").1, "stopping\n");
    assert_eq!(get(&server, "/healthz"), fine);

    let (status, body) = get(&server, "/metrics");
    assert_eq!(status, "HTTP/1.1 200 OK");
    assert!(
        body.contains("# TYPE retrytoll_leader gauge\nretrytoll_leader 0"),
        "{body}"
    );
    assert_eq!(get(&server, "/").0, "HTTP/1.1 404 Not Found");
    let posted = ask(&server, "POST /readyz HTTP/1.1\r\n\r\n");
    assert!(posted.starts_with("HTTP/1.1 405 ") && posted.contains("allow: GET, HEAD"));
    let head = ask(&server, "HEAD /healthz HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK") && head.ends_with("\r\n\r\n"));
    assert!(ask(&server, "\u{16}\u{3}\u{1}").starts_with("HTTP/1.1 400 "));
    let long = format!("GET /{} HTTP/1.1\r\n", "a".repeat(HEAD_BYTES_MAX));
    assert!(ask(&server, &long).starts_with("HTTP/1.1 431 "));
}

#[test]
fn a_place_that_is_taken_is_an_error_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let (health, stop) = (Arc::default(), Arc::default());
    let first = Server::start(listen(), site(folder.path(), &health, &stop)).unwrap();
    let again = Server::start(first.address, site(folder.path(), &health, &stop));
    let error = again.err().unwrap();
    let mut told = Vec::new();
    crate::exit::tell(&error, &mut told);
    let told = String::from_utf8(told).unwrap();
    assert!(
        told.contains(&format!("cannot listen on {}", first.address)),
        "{told}"
    );
    assert!(
        told.contains("hint: is another process there? set http.listen"),
        "{told}"
    );
}

#[test]
fn whoever_says_nothing_does_not_keep_others_from_an_answer() {
    let folder = tempfile::tempdir().unwrap();
    let (health, stop) = (Arc::default(), Arc::default());
    let server = Server::start(listen(), site(folder.path(), &health, &stop)).unwrap();
    let idle: Vec<_> = (1..CONNECTIONS_MAX)
        .map(|_| TcpStream::connect(server.address).unwrap())
        .collect();
    assert_eq!(get(&server, "/healthz").1, "ok\n");
    drop(idle);
}
