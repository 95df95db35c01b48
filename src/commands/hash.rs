//! `retrytoll hash`: a request body → its `prompt_hash`.

use std::io::{Read, Write as _};
use std::path::{Path, PathBuf};

use retrytoll_core::prompt::{Params, PromptHash, canonical_form};

use crate::cli::World;
use crate::exit::{Exit, Stop};

/// Print the prompt_hash of a request body
///
/// Reads one JSON request body (OpenAI chat or responses, Anthropic messages) and prints
/// "sha256:" and 64 hex digits, the hash of its system, messages, tools and response format in a
/// canonical form: white space, the order of members, and where the system prompt stands do not
/// matter. Callers put it on every attempt of an operation, so that a resend is recognised
/// without its prompt. The form is defined in crates/core/src/prompt.rs, with test vectors in
/// schemas/prompt-hash.vectors.json.
#[derive(Debug, clap::Args)]
pub struct HashArgs {
    /// The request body; "-" reads stdin
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,
    /// Hash model, temperature and the largest number of output tokens too, as some callers do:
    /// then a fallback to another model has another hash
    #[arg(long)]
    with_params: bool,
    /// Print an HMAC under the secret in this file: a bare hash of a short prompt can be guessed
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
}

/// Prints the hash.
///
/// # Errors
/// A file can't be read or is empty, or the body has no canonical form.
pub fn run(args: &HashArgs, world: &mut World) -> anyhow::Result<Exit> {
    let key = args
        .key_file
        .as_deref()
        .map(|path| key(&world.folder.join(path)))
        .transpose()?;
    let body = if args.file == Path::new("-") {
        let mut body = String::new();
        world.input.read_to_string(&mut body).map_err(|error| {
            Stop::failed("can't read stdin", "pass one JSON body in UTF-8").because(error)
        })?;
        body
    } else {
        let path = world.folder.join(&args.file);
        std::fs::read_to_string(&path).map_err(|error| {
            let hint = "name a file with one JSON body in UTF-8, or \"-\" for stdin";
            Stop::failed(format!("can't read {}", path.display()), hint).because(error)
        })?
    };
    let params = if args.with_params {
        Params::Included
    } else {
        Params::Excluded
    };
    let form = canonical_form(&body, params)?;
    writeln!(world.out, "{}", PromptHash::of(&form, key.as_deref()))?;
    Ok(Exit::Fine)
}

/// The file's bytes without the line's end that editors add.
fn key(path: &Path) -> Result<Vec<u8>, Stop> {
    let shown = path.display();
    let mut key = std::fs::read(path).map_err(|error| {
        let hint = "name a file that holds the key and nothing else";
        Stop::usage(format!("can't read the key from {shown}"), hint).because(error)
    })?;
    while key.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
        key.pop();
    }
    match key.is_empty() {
        false => Ok(key),
        true => {
            let hint = "put a random key into it, as from `openssl rand -hex 32`";
            Err(Stop::usage(format!("the key in {shown} is empty"), hint))
        }
    }
}
