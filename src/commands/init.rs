//! `retrytoll init`: the table of keys → a commented `retrytoll.toml`.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use crate::cli::World;
use crate::config::{Config, FILE, KeyFlags, Mistakes, Need, RawConfig, TopicFlags, template};
use crate::exit::{Exit, Stop};

/// Write a commented retrytoll.toml with every key
///
/// Each key stands in it with its meaning, bounds and default. What flags give is set; all else
/// is a comment.
#[derive(Debug, clap::Args)]
pub struct InitArgs {
    /// Where to write it; "-" prints it
    #[arg(short, long, value_name = "FILE", default_value = FILE)]
    output: PathBuf,
    /// Overwrite a file that is there
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    keys: KeyFlags,
    #[command(flatten)]
    topic: TopicFlags,
}

/// Writes or prints the file.
///
/// # Errors
/// A flag is a mistake, the file is there already, or it can't be written.
pub fn run(args: &InitArgs, world: &mut World) -> anyhow::Result<Exit> {
    let mut raw = RawConfig::default();
    let mut mistakes = raw.set_flags(&args.keys.flags(Some(&args.topic)));
    // What is missing is left to be filled in; only what was typed can be wrong here.
    let (_, more) = Config::of(&raw, Need::Lake);
    mistakes.extend(more.into_iter().filter(|mistake| mistake.origin.is_some()));
    Mistakes(mistakes).none_or(())?;
    let text = template::text(&raw);
    if args.output == Path::new("-") {
        world.out.write_all(text.as_bytes())?;
        return Ok(Exit::Fine);
    }
    let path = world.folder.join(&args.output);
    write(&path, &text, args.force)?;
    let shown = path.display();
    writeln!(
        world.err,
        "wrote {shown}; set kafka.bootstrap and kafka.topic in it, then `retrytoll check`"
    )?;
    Ok(Exit::Fine)
}

fn write(path: &Path, text: &str, force: bool) -> Result<(), Stop> {
    let shown = path.display();
    let mut options = OpenOptions::new();
    options
        .write(true)
        .create(true)
        .truncate(true)
        .create_new(!force);
    let mut file = options.open(path).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => {
            let hint = "overwrite it with --force, or name another with --output";
            Stop::failed(format!("{shown} is there already"), hint)
        }
        _ => Stop::failed(
            format!("can't make {shown}"),
            "name another file with --output",
        )
        .because(error),
    })?;
    file.write_all(text.as_bytes()).map_err(|error| {
        Stop::failed(
            format!("can't write {shown}"),
            "name another file with --output",
        )
        .because(error)
    })
}
