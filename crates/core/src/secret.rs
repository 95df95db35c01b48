//! text → text without a secret in it.
//!
//! Callers log an API key where its id was meant. Such a value is replaced by its hash, so that
//! it still groups and joins but opens nothing.

use sha2::{Digest as _, Sha256};

/// The beginnings of well-known credentials, and how long such a value is at least.
const MARKS: &[(&str, usize)] = &[
    ("sk-", 20),
    ("sk_", 20),
    ("rk_", 20),
    ("pk-", 20),
    ("gsk_", 20),
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
    ("github_pat_", 20),
    ("glpat-", 20),
    ("xoxb-", 16),
    ("xoxp-", 16),
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
    let bare = strip_scheme(value);
    let known = |(mark, least): &(&str, usize)| bare.len() >= *least && bare.starts_with(mark);
    // A credential is one word; "sk-learn is a nice library" is not.
    value.len() >= 16
        && MARKS.iter().any(known)
        && (bare.starts_with("-----") || !bare.contains(' '))
        || bare.len() != value.len() && bare.len() >= 16 && !bare.contains(' ')
}

/// What follows an `Authorization` scheme, in any case.
fn strip_scheme(value: &str) -> &str {
    for scheme in ["bearer ", "basic "] {
        let head = value.get(..scheme.len());
        if head.is_some_and(|head| head.eq_ignore_ascii_case(scheme)) {
            return value[scheme.len()..].trim_start();
        }
    }
    value
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
