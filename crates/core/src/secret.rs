//! text → text without a secret in it.
//!
//! Callers log an API key where its id was meant, or an error's text that quotes one. Such a value
//! is replaced by its hash, so that it still groups and joins but opens nothing.

use sha2::{Digest as _, Sha256};

/// The beginnings of well-known credentials, and how long such a value is at least.
const MARKS: &[(&str, usize)] = &[
    ("sk-", 20),
    ("sk_", 20),
    ("rk_", 20),
    ("pk-", 20),
    ("gsk_", 20),
    ("csk-", 20),
    ("fw_", 20),
    ("lsv2_", 20),
    ("nvapi-", 20),
    ("tvly-", 20),
    ("xai-", 20),
    ("hf_", 20),
    ("r8_", 20),
    ("pplx-", 20),
    ("AIza", 30),
    ("AKIA", 16),
    ("ASIA", 16),
    ("ghp_", 20),
    ("gho_", 20),
    ("ghs_", 20),
    ("ghu_", 20),
    ("github_pat_", 20),
    ("glpat-", 20),
    ("xoxb-", 16),
    ("xoxp-", 16),
    ("xapp-", 16),
    ("eyJ", 40),
    ("ya29.", 20),
    ("-----BEGIN", 20),
];

/// The replacement for a value that looks like a credential: `secret:sha256:` and the first
/// 16 hex digits of its hash; `None` for anything else.
#[must_use]
pub fn replaced(value: &str) -> Option<String> {
    looks_secret(value).then(|| {
        let digest = Sha256::digest(value.as_bytes());
        let hex: String = digest[..8]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        format!("secret:sha256:{hex}")
    })
}

fn looks_secret(value: &str) -> bool {
    if value.len() < 16 {
        return false;
    }
    let is_one = value.starts_with("-----") || !value.contains(' ');
    is_one && is_marked(value)
        || has_separator(value) && (holds_credential(value) || has_login(value))
}

/// A word that begins as a credential does, and is as long: "sk-learn" is not.
fn is_marked(word: &str) -> bool {
    let known = |(mark, least): &(&str, usize)| word.len() >= *least && word.starts_with(mark);
    MARKS.iter().any(known)
}

/// Whether the value may be of several words. Every id of every event is asked, so there is no early
/// end: the loop is made of a few wide instructions.
fn has_separator(value: &str) -> bool {
    let is_one = |byte| matches!(byte, b' ' | b'/' | b'=' | b':' | b',' | b'"');
    value
        .bytes()
        .fold(false, |found, byte| found | is_one(byte))
}

/// Whether one of the words is a credential: marked, or behind the name of an `Authorization` scheme.
fn holds_credential(value: &str) -> bool {
    let is_end = |it: char| it.is_whitespace() || "\"'`,:;=/@?&()[]{}<>|\\".contains(it);
    let mut is_scheme = false;
    value.split(is_end).any(|word| {
        let found = is_marked(word) || is_scheme && word.len() >= 16;
        if !word.is_empty() {
            let schemes = ["bearer", "basic"];
            is_scheme = schemes.iter().any(|it| word.eq_ignore_ascii_case(it));
        }
        found
    })
}

/// Whether it is, or quotes, a URL with a password before its host.
#[must_use]
pub fn has_login(value: &str) -> bool {
    value.split("://").skip(1).any(|rest| {
        let is_end = |it: char| it.is_whitespace() || "/?#\"'".contains(it);
        let host = rest.split(is_end).next().unwrap_or_default();
        let login = host.rsplit_once('@').map(|(login, _)| login);
        login.is_some_and(|login| login.contains(':'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_replaced() {
        for value in [
            "sk-proj-abcdefghijklmnopqrstuvwx",
            "sk-ant-api03-abcdefghijklmnop",
            "AKIAIOSFODNN7EXAMPLE",
            "Bearer abcdefghijklmnop",
            "bearer sk-abcdefghijklmnopqrstuv",
            "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.e30.abc",
            "AIzaSyA-1234567890abcdefghijklmnopqrstu",
            "-----BEGIN RSA PRIVATE KEY-----",
            "Incorrect API key provided: sk-proj-abcdefghijklmnopqrstuvwx.",
            "GET /v1?key=AIzaSyA-1234567890abcdefghijklmnopqrstu failed",
            "{\"authorization\":\"Bearer abcdefghijklmnop\"}",
            "Authorization: Basic dXNlcjpodW50ZXIyaHVudGVyMg==",
            "https://user:hunter2@proxy.example.com/v1",
            "connect to http://user:pass@word@proxy:3128 failed",
        ] {
            let text = replaced(value).unwrap_or_else(|| panic!("{value} was kept"));
            assert_eq!(text.len(), "secret:sha256:".len() + 16);
            assert!(!text.contains(&value[..8]));
        }
    }

    #[test]
    fn names_and_ids_are_kept() {
        for value in [
            "gpt-4o-mini",
            "sk-learn",
            "sk-learn is a nice library to use",
            "req_0123456789abcdefghijkl",
            "ft:gpt-4o-mini-2024-07-18:acme::abcdefgh",
            "bedrock/anthropic.claude-sonnet-4-5-20250929-v1:0",
            "https://api.example.com:8443/v1/chat?model=gpt-4o",
            "mail to ops@example.com: basic needs, bearer bonds",
            "time/2026-11-30T10:00:00Z,host=a@b",
            "chatcmpl-9abcdefghijklmnopqrst",
            "Bearer",
            "key_7f3a",
            "",
            "\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}",
        ] {
            assert_eq!(replaced(value), None, "{value}");
        }
    }
}
