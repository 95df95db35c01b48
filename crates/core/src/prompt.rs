//! JSON request body → canonical form → hash: the `prompt_hash` that callers put on their events.
//!
//! Two requests that ask the same have the same hash, however their JSON was written, and two
//! that differ have different ones. This page is the whole definition.
//!
//! # Canonical form
//!
//! A form is a sequence of *parts*. A part is one tag byte, the number of content bytes as an
//! unsigned 64-bit big-endian integer, and the content. So nothing can move from one part into
//! its neighbour: system `abc` with message `x` differs from system `ab` with message `cx`.
//!
//! | tag | how many | content |
//! |---|---|---|
//! | `V` | 1 | the bytes `retrytoll.prompt.v1` |
//! | `s` | one per system text | *canonical content* |
//! | `m` | one per message, in order | canonical JSON of the message |
//! | `t` | one per tool, in order | canonical JSON of the tool |
//! | `f` | one per response format | canonical JSON of the format |
//! | `o` `e` `x` | at most one each, only [`Params::Included`] | canonical JSON of model, temperature, largest number of output tokens |
//!
//! The parts stand in the order of this table. Where they come from, in the request body:
//!
//! - A member that is `null` is absent, in the body and in a message.
//! - `s`: the member `system`, or else `instructions`; then the content of each of the leading
//!   messages that have exactly the members `role` and `content`, with the role `system` or
//!   `developer`. So it does not matter where a client library puts the system prompt. The first
//!   message of another kind ends this; a later system message is a message.
//! - `m`: what is left of the member `messages`, or else of `input`, which may be a string: then
//!   it is one message with the role `user`. A body without either, or with an empty list, is
//!   refused. In a message, `content` is written as canonical content.
//! - `t`: the items of `tools`, then of `functions`.
//! - `f`: `response_format`, `output_format`, `text.format` and `output_config.format`, in this
//!   order, those that are there.
//! - `o`: `model`; `e`: `temperature`; `x`: `max_tokens`, else `max_completion_tokens`, else
//!   `max_output_tokens`.
//! - All else (sampling, `tool_choice`, `stream`, `user`, metadata) is not part of the form.
//!
//! *Canonical content* is canonical JSON, except that a list of exactly one block with exactly
//! the members `type` (`text` or `input_text`) and `text` is written as that text, a JSON string.
//!
//! *Canonical JSON* is RFC 8785 (JCS): no white space, members sorted by their names' UTF-16 code
//! units, strings with the shortest escapes, else raw UTF-8. Numbers are laid out as there, but
//! from their decimal digits as typed, never by way of a float: `1.0`, `1` and `10e-1` are `1`,
//! `-0` is `0`, `1e21` is `1e+21`, `0.0000001` is `1e-7`. For every number that a double holds
//! exactly to its last typed digit this is RFC 8785 to the byte, so that any JCS library will do;
//! one with more digits keeps them. A member that stands twice is refused, and so are lone
//! surrogates, more than [`DEPTH_MAX`] levels, and exponents beyond ±[`EXPONENT_MAX`].
//!
//! # Hash
//!
//! `sha256:` and 64 lower-case hex digits of the SHA-256 of the form, or `hmac-sha256:` and those
//! of its HMAC-SHA-256 under a secret key (a bare hash of a short prompt can be guessed).
//! Test vectors: `schemas/prompt-hash.vectors.json`.

mod json;

use std::fmt;

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use json::Members;

pub use json::{DEPTH_MAX, EXPONENT_MAX};

/// The content of the first part; it changes with the definition above.
const VERSION: &[u8] = b"retrytoll.prompt.v1";

/// Whether model, temperature and the limit of output tokens are part of the form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Params {
    /// They are not: a fallback or a resend with a larger limit has the same hash.
    Excluded,
    /// They are, as many callers do.
    Included,
}

/// Why a request body has no hash.
#[derive(Debug, thiserror::Error)]
pub enum PromptError {
    #[error("the request body is not valid JSON: {0}; pass the body as it is sent to the provider")]
    Json(#[from] serde_json::Error),
    #[error("the request body is not a JSON object; pass one whole body")]
    NotAnObject,
    #[error(
        "the request body has no messages; it needs `messages` (OpenAI chat, Anthropic) or `input` \
         (OpenAI responses) with at least one"
    )]
    NoMessages,
    #[error("`{member}` has the wrong form: expected {expected}; correct the request body")]
    Shape {
        member: &'static str,
        expected: &'static str,
    },
    #[error("the member {name:?} stands twice in one object; remove one of them")]
    Duplicate { name: String },
    #[error("the request body has more than {DEPTH_MAX} levels; flatten it")]
    TooDeep,
    #[error(
        "the number {text} has an exponent beyond ±{EXPONENT_MAX}; no request needs one, correct it"
    )]
    Exponent { text: String },
}

/// A hash of a request's canonical form; `Display` gives the text for `prompt_hash`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptHash {
    Sha256([u8; 32]),
    HmacSha256([u8; 32]),
}

impl PromptHash {
    /// The hash of `form`, keyed where there is a key.
    #[must_use]
    pub fn of(form: &[u8], key: Option<&[u8]>) -> Self {
        let Some(key) = key else {
            return Self::Sha256(Sha256::digest(form).into());
        };
        #[expect(
            clippy::expect_used,
            reason = "HMAC takes a key of any length (RFC 2104)"
        )]
        let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
        mac.update(form);
        Self::HmacSha256(mac.finalize().into_bytes().into())
    }
}

impl fmt::Display for PromptHash {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, digest) = match self {
            Self::Sha256(digest) => ("sha256", digest),
            Self::HmacSha256(digest) => ("hmac-sha256", digest),
        };
        write!(out, "{kind}:")?;
        digest.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

/// The canonical form of a request body, as defined at the top of this page.
///
/// ```
/// use retrytoll_core::prompt::{Params, PromptHash, canonical_form};
///
/// let chat = r#"{"messages": [{"role": "system", "content": "be brief"},
///                             {"role": "user", "content": "hello"}]}"#;
/// let anthropic = r#"{"system": "be brief", "max_tokens": 100, "messages": [
///                     {"role": "user", "content": [{"type": "text", "text": "hello"}]}]}"#;
/// let hash = |body| canonical_form(body, Params::Excluded).map(|f| PromptHash::of(&f, None));
/// assert_eq!(hash(chat).unwrap(), hash(anthropic).unwrap());
/// ```
///
/// # Errors
/// The body is not JSON, not an object, has no messages, or a member has an impossible form.
pub fn canonical_form(body: &str, params: Params) -> Result<Vec<u8>, PromptError> {
    let body: &RawValue = serde_json::from_str(body)?;
    let body = Members::read(body)?
        .ok_or(PromptError::NotAnObject)?
        .without_nulls();
    let mut form = Form::default();
    form.part(b'V', |out| {
        out.extend_from_slice(VERSION);
        Ok(())
    })?;
    if let Some(system) = body.first_of(&["system", "instructions"]) {
        form.content(b's', system)?;
    }
    messages(&body, &mut form)?;
    for list in ["tools", "functions"] {
        for tool in items(&body, list)? {
            form.json(b't', tool)?;
        }
    }
    response_formats(&body, &mut form)?;
    if params == Params::Included {
        let limits = ["max_tokens", "max_completion_tokens", "max_output_tokens"];
        for (tag, names) in [
            (b'o', &["model"][..]),
            (b'e', &["temperature"]),
            (b'x', &limits),
        ] {
            if let Some(value) = body.first_of(names) {
                form.json(tag, value)?;
            }
        }
    }
    Ok(form.0)
}

fn messages(body: &Members<'_>, form: &mut Form) -> Result<(), PromptError> {
    if let Some(input) = body
        .get("input")
        .filter(|input| input.get().starts_with('"'))
        && body.get("messages").is_none()
    {
        let message = Members::of(vec![("content", input), ("role", json::raw(r#""user""#))]);
        return form.message(&message);
    }
    let name = if body.get("messages").is_some() {
        "messages"
    } else {
        "input"
    };
    let messages = items(body, name)?;
    if messages.is_empty() {
        return Err(PromptError::NoMessages);
    }
    let mut leading = true;
    for message in messages {
        let wrong = PromptError::Shape {
            member: name,
            expected: "a list of objects",
        };
        let message = Members::read(message)?.ok_or(wrong)?.without_nulls();
        match system_content(&message).filter(|_| leading) {
            Some(content) => form.content(b's', content)?,
            None => {
                leading = false;
                form.message(&message)?;
            }
        }
    }
    Ok(())
}

/// The content of a message that is nothing but a system text.
fn system_content<'a>(message: &Members<'a>) -> Option<&'a RawValue> {
    let role = message.get("role")?.get();
    let system = role == r#""system""# || role == r#""developer""#;
    message
        .get("content")
        .filter(|_| system && message.len() == 2)
}

fn response_formats(body: &Members<'_>, form: &mut Form) -> Result<(), PromptError> {
    for name in ["response_format", "output_format"] {
        if let Some(format) = body.get(name) {
            form.json(b'f', format)?;
        }
    }
    for name in ["text", "output_config"] {
        let Some(outer) = body.get(name) else {
            continue;
        };
        let wrong = PromptError::Shape {
            member: name,
            expected: "an object",
        };
        let outer = Members::read(outer)?.ok_or(wrong)?.without_nulls();
        if let Some(format) = outer.get("format") {
            form.json(b'f', format)?;
        }
    }
    Ok(())
}

/// The items of a list of the body; none where it is absent.
fn items<'a>(body: &Members<'a>, name: &'static str) -> Result<Vec<&'a RawValue>, PromptError> {
    match body.get(name) {
        None => Ok(Vec::new()),
        Some(list) => json::items(list)?.ok_or(PromptError::Shape {
            member: name,
            expected: "a list",
        }),
    }
}

/// The text of a content that is one plain text block.
fn only_text(content: &RawValue) -> Result<Option<&RawValue>, PromptError> {
    let Some(blocks) = json::items(content)? else {
        return Ok(None);
    };
    let [block] = blocks[..] else { return Ok(None) };
    let Some(block) = Members::read(block)? else {
        return Ok(None);
    };
    let kind = block.get("type").map(RawValue::get);
    let plain = matches!(kind, Some(r#""text""# | r#""input_text""#)) && block.len() == 2;
    Ok(block
        .get("text")
        .filter(|text| plain && text.get().starts_with('"')))
}

/// The form under construction.
#[derive(Default)]
struct Form(Vec<u8>);

impl Form {
    fn part(
        &mut self,
        tag: u8,
        content: impl FnOnce(&mut Vec<u8>) -> Result<(), PromptError>,
    ) -> Result<(), PromptError> {
        self.0.push(tag);
        let at = self.0.len();
        self.0.extend_from_slice(&[0; 8]);
        content(&mut self.0)?;
        let bytes = (self.0.len() - at - 8) as u64;
        self.0[at..at + 8].copy_from_slice(&bytes.to_be_bytes());
        Ok(())
    }

    fn json(&mut self, tag: u8, value: &RawValue) -> Result<(), PromptError> {
        self.part(tag, |out| json::write(value, out))
    }

    fn content(&mut self, tag: u8, value: &RawValue) -> Result<(), PromptError> {
        self.json(tag, only_text(value)?.unwrap_or(value))
    }

    fn message(&mut self, message: &Members<'_>) -> Result<(), PromptError> {
        let message = match message.get("content") {
            None => message.clone(),
            Some(content) => message.with("content", only_text(content)?.unwrap_or(content)),
        };
        self.part(b'm', |out| message.write(out))
    }
}

#[cfg(test)]
mod tests;
