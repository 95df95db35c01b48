//! An answer → stdout, or a file that is there whole or not at all.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use retrytoll_jobs::Style;

use crate::cli::World;

/// How a table is drawn where the answer goes.
pub fn style(file: Option<&Path>, world: &World) -> Style {
    if file.is_some() || !world.out_is_terminal {
        return Style::default();
    }
    Style {
        width: Some(terminal_width(world)),
        color: world.colour(true),
    }
}

/// Columns of the terminal; 80 where it does not say.
fn terminal_width(world: &World) -> usize {
    let given = world.var("COLUMNS").and_then(|text| text.parse().ok());
    let own = || terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    given.or_else(own).filter(|width| *width > 0).unwrap_or(80)
}

/// Calls `write` with where the answer goes. A file is written beside its place and put there
/// when all of it is written.
///
/// # Errors
/// Those of `write`, and of the file.
pub fn deliver<T>(
    file: Option<&Path>,
    out: &mut dyn Write,
    write: impl FnOnce(&mut dyn Write) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let Some(path) = file else {
        let mut out = BufWriter::new(out);
        let done = write(&mut out)?;
        out.flush()?;
        return Ok(done);
    };
    let partial = beside(path);
    let written = write_file(&partial, write).and_then(|done| {
        std::fs::rename(&partial, path)
            .with_context(|| format!("cannot put the answer to {}", path.display()))?;
        Ok(done)
    });
    if written.is_err() {
        // Nothing may be there to remove.
        let _ = std::fs::remove_file(&partial);
    }
    written
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    path.with_file_name(name)
}

fn write_file<T>(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let failed = || {
        format!(
            "cannot write {}: name another file with --output",
            path.display()
        )
    };
    let mut out = BufWriter::new(File::create(path).with_context(failed)?);
    let done = write(&mut out)?;
    out.into_inner()
        .map_err(std::io::IntoInnerError::into_error)
        .with_context(failed)?;
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_there_whole_or_not_at_all() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("answer.csv");
        let mut stdout = Vec::new();
        let failed = deliver(Some(&path), &mut stdout, |out| {
            out.write_all(b"half")?;
            anyhow::bail!("the query failed");
            #[expect(unreachable_code, reason = "it names the type")]
            Ok(())
        });
        assert!(failed.is_err());
        assert_eq!(std::fs::read_dir(folder.path()).expect("list").count(), 0);

        std::fs::write(&path, "old").expect("write");
        let done = deliver(Some(&path), &mut stdout, |out| Ok(out.write_all(b"new\n")?));
        assert!(done.is_ok() && stdout.is_empty());
        assert_eq!(std::fs::read_to_string(&path).expect("read"), "new\n");
        assert_eq!(std::fs::read_dir(folder.path()).expect("list").count(), 1);
    }
}
