//! Flags of a command line → keys of the configuration.

use std::path::PathBuf;

use clap::Args;

use super::raw::{Flag, Sources};
use super::{Config, Mistake, Mistakes, Need, RawConfig};
use crate::cli::World;

/// The flags of every command that reads the configuration.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Configuration")]
pub struct Settings {
    /// The configuration file; without it retrytoll.toml of this folder, if there is one
    /// [env: RETRYTOLL_CONFIG]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub keys: KeyFlags,
}

/// The flags that set keys.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Configuration")]
pub struct KeyFlags {
    /// Set a key of the configuration, as kafka.topic=llm-retries; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    pub set: Vec<(String, String)>,
    /// The tables' root: a folder or the URL of an object store (lake.path)
    #[arg(long, value_name = "PATH")]
    pub lake: Option<String>,
    /// What `run --http` was given (http.listen).
    #[arg(skip)]
    pub http: Option<String>,
}

/// The flags that set keys of the topic, in commands that know one.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Configuration")]
pub struct TopicFlags {
    /// Brokers to ask first: host:port, several with commas (kafka.bootstrap)
    #[arg(long, value_name = "BROKERS")]
    pub bootstrap: Option<String>,
    /// The topic with the retry-decision events (kafka.topic)
    #[arg(long, value_name = "TOPIC")]
    pub topic: Option<String>,
}

fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) => Ok((key.trim().to_owned(), value.trim().to_owned())),
        None => Err("there is no '='; write KEY=VALUE, as flush.interval=10s".to_owned()),
    }
}

fn flag(typed: &str, key: &str, value: Option<&str>) -> Option<Flag> {
    let value = value?.to_owned();
    Some(Flag {
        typed: typed.to_owned(),
        key: key.to_owned(),
        value,
    })
}

impl KeyFlags {
    /// The keys that are set; a flag of its own goes before `--set`.
    #[must_use]
    pub fn flags(&self, topic: Option<&TopicFlags>) -> Vec<Flag> {
        let set = self
            .set
            .iter()
            .filter_map(|(key, value)| flag("--set", key, Some(value)));
        let mut flags: Vec<Flag> = set.collect();
        flags.extend(flag("--lake", "lake.path", self.lake.as_deref()));
        flags.extend(flag("--http", "http.listen", self.http.as_deref()));
        if let Some(topic) = topic {
            flags.extend(flag(
                "--bootstrap",
                "kafka.bootstrap",
                topic.bootstrap.as_deref(),
            ));
            flags.extend(flag("--topic", "kafka.topic", topic.topic.as_deref()));
        }
        flags
    }
}

impl Settings {
    /// What was typed, in the file, the environment and the flags, with the mistakes of reading.
    #[must_use]
    pub fn read(&self, topic: Option<&TopicFlags>, world: &World) -> (RawConfig, Vec<Mistake>) {
        let file = self
            .config
            .clone()
            .or_else(|| world.var("RETRYTOLL_CONFIG").map(Into::into));
        RawConfig::read(&Sources {
            file: file.as_deref(),
            folder: &world.folder,
            env: &world.env,
            flags: &self.keys.flags(topic),
        })
    }

    /// The configuration.
    ///
    /// # Errors
    /// Every mistake in it.
    pub fn load(
        &self,
        topic: Option<&TopicFlags>,
        need: Need,
        world: &World,
    ) -> Result<Config, Mistakes> {
        let (raw, mut mistakes) = self.read(topic, world);
        let (config, more) = Config::of(&raw, need);
        mistakes.extend(more);
        Mistakes(mistakes).none_or(config)
    }
}
