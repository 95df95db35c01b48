//! What a command did to rows that were there → a file in the lake that says so.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use chrono::DateTime;
use serde_json::Value;

/// The folder below the lake's root.
const RECEIPTS: &str = "receipts";

/// Writes a receipt as JSON, whole or not at all; returns where.
///
/// # Errors
/// The file system's.
pub fn write(root: &Path, what: &str, at_ms: i64, receipt: &Value) -> anyhow::Result<PathBuf> {
    let folder = root.join(RECEIPTS);
    let at = DateTime::from_timestamp_millis(at_ms).unwrap_or_default();
    let name = format!(
        "{}-{what}-{:08x}.json",
        at.format("%Y%m%dT%H%M%SZ"),
        fastrand::u32(..)
    );
    let path = folder.join(&name);
    let put = || {
        fs::create_dir_all(&folder)?;
        let begun = folder.join(format!(".{name}.tmp"));
        let mut file = File::create_new(&begun)?;
        file.write_all(format!("{receipt:#}\n").as_bytes())?;
        file.sync_all()?;
        fs::rename(&begun, &path)?;
        File::open(&folder)?.sync_all()
    };
    put().with_context(|| format!("cannot write the receipt {}", path.display()))?;
    Ok(path)
}
