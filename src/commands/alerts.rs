//! `retrytoll alerts`: the alerts of the lake as a list; the alert topic as lines, or to a pager.

mod list;
mod to;

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;
use chrono::DateTime;
use retrytoll_core::alert::State;
use retrytoll_core::notify::{Notice, Queue, QueueLimits};
use retrytoll_core::timestamp;
use retrytoll_jobs::{Format, Window, Zone, lake_url};
use retrytoll_lake::Clock;
use tokio::runtime::Runtime;
use url::Url;

use self::to::To;
use super::ingest;
use super::run::stop_on_signals;
use crate::alerts::{Row, Stored, letter, source};
use crate::cli::{Settings, TopicFlags, World};
use crate::clock::now_ms;
use crate::config::units::duration_ms;
use crate::config::{Config, Need};
use crate::exit::{Exit, Stop};
use crate::kafka::{AlertTopic, Reading, consumer_config};
use crate::lake::ATTEMPTS;
use crate::notify::{Desk, Feed, Form, TableFeed, Target, follow, notices, send_all, standing};
use crate::report::open::stop as job_stop;

/// A group that is new begins so long ago, ms: what fires was told since, each minute.
const NEW_GROUP_MS: i64 = 120_000;
/// When a notice is given up: with --follow, and without it, ms.
const GIVE_UP_MS: i64 = 3_600_000;
const GIVE_UP_ONCE_MS: i64 = 120_000;

/// List alerts, follow them, or send them to a pager
///
/// Without flags: what fires, then what was resolved since, as the lake's table alerts has it. With
/// --follow: a line for each alert that fires or is resolved, from the alert topic, or from the
/// lake where no topic is configured. With --to they are sent, too: each transition once, also
/// over restarts, since the offset is committed in the group <kafka.group>.alerts.<SERVICE> when it
/// was accepted (following the lake, what fires is sent again after a restart, under its id). What
/// is answered by 429 or 5xx is tried again for up to an hour; what is refused is told on stderr.
#[derive(Debug, clap::Args)]
pub struct AlertsArgs {
    /// Go on until SIGTERM or SIGINT, and tell each alert when it fires and when it is resolved
    #[arg(long)]
    follow: bool,
    /// Send to pagerduty, alertmanager or webhook: with --follow what is told, without it what
    /// stands now, once
    #[arg(long, value_name = "SERVICE", value_enum)]
    to: Option<To>,
    /// Where to send: Alertmanager's address, the webhook's, or that of PagerDuty's events in
    /// another region
    #[arg(long, value_name = "URL", requires = "to", value_parser = to::url)]
    url: Option<Url>,
    /// A file that holds the routing key of PagerDuty's integration and nothing else
    /// (pagerduty.routing_key_file) [env: RETRYTOLL_PAGERDUTY_ROUTING_KEY, the key itself]
    #[arg(long, value_name = "FILE", requires = "to")]
    routing_key_file: Option<PathBuf>,
    /// How often Alertmanager is sent what fires: what it is not told four times, ends there
    #[arg(long, value_name = "DURATION", default_value = "1m", requires = "to", value_parser = every)]
    every: i64,
    /// Since when: 7d, 24h, 90m (before now), a date such as 2026-11-01, or RFC 3339
    /// [default: 24h; 2m for a service that was never sent to]
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// table, json or csv; table or json, of which each line is a CloudEvent, with --follow or --to
    #[arg(long, value_name = "FORMAT", default_value = "table", value_parser = format)]
    format: Format,
    /// Write the list to this file, in place of stdout
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["follow", "to"])]
    output: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    topic: TopicFlags,
}

fn format(text: &str) -> Result<Format, String> {
    let all = [Format::Table, Format::Json, Format::Csv];
    let found = all.into_iter().find(|format| format.name() == text);
    found.ok_or_else(|| "give table, json or csv".to_owned())
}

/// A duration in ms, from one second to one hour.
fn every(text: &str) -> Result<i64, String> {
    let ms = duration_ms(text).ok().and_then(|ms| i64::try_from(ms).ok());
    ms.filter(|ms| (1_000..=3_600_000).contains(ms))
        .ok_or_else(|| "give a duration from 1s to 1h, as 1m".to_owned())
}

/// Runs the command.
///
/// # Errors
/// A wrong flag or configuration, no lake or topic, an alert that was not taken.
pub fn run(args: &AlertsArgs, world: &mut World) -> anyhow::Result<Exit> {
    let config = args.settings.load(Some(&args.topic), Need::Lake, world)?;
    let runtime = Runtime::new().context("cannot start the runtime")?;
    let asked = Asked {
        args,
        config,
        runtime,
    };
    if !args.follow && args.to.is_none() {
        return asked.list(world);
    }
    let form = match args.format {
        Format::Table => Form::Text,
        Format::Json => Form::Json,
        Format::Csv | Format::Parquet => {
            let message = format!("--format {} is for the list", args.format.name());
            let hint = "with --follow or --to use table or json";
            return Err(Stop::usage(message, hint).into());
        }
    };
    let target = asked.target(world)?;
    let stop = Arc::new(AtomicBool::new(false));
    stop_on_signals(&asked.runtime, &stop)?;
    let desk = Desk {
        target,
        form,
        out: world.out.as_mut(),
        runtime: asked.runtime.handle().clone(),
    };
    if args.follow {
        asked.follow(desk, &stop)
    } else {
        asked.send(desk, &stop)
    }
}

struct Asked<'a> {
    args: &'a AlertsArgs,
    config: Config,
    runtime: Runtime,
}

impl Asked<'_> {
    fn list(&self, world: &mut World) -> anyhow::Result<Exit> {
        let since_ms = self.since_ms()?;
        let rows = list::ordered(self.rows()?, since_ms);
        let file = self.args.output.as_deref();
        list::write(&rows, self.args.format, file, world)?;
        let fires = |row: &&Row| row.transition.state == State::Firing;
        let firing = rows.iter().filter(fires).count();
        let resolved = rows.len() - firing;
        let since = timestamp::text(since_ms.saturating_mul(1_000));
        writeln!(
            world.err,
            "{firing} firing, {resolved} resolved since {since}"
        )?;
        Ok(Exit::Fine)
    }

    /// What stands now, to the service, once.
    fn send(&self, mut desk: Desk<'_>, stop: &AtomicBool) -> anyhow::Result<Exit> {
        let mut rows = standing(self.rows()?, self.since_ms()?);
        rows.retain(|row| row.inhibited_by().is_none());
        let source = self.source();
        let notice = |row: &Row| anyhow::Ok(Notice::read(&letter(row, &source, 0)?.body)?);
        let notices = rows
            .iter()
            .map(notice)
            .collect::<anyhow::Result<Vec<_>>>()?;
        let all = notices.len();
        let queue = Queue::new(QueueLimits {
            every_ms: None,
            give_up_ms: GIVE_UP_ONCE_MS,
        });
        let accepted = send_all(notices, queue, &mut desk, stop)?;
        if accepted < all {
            let message = format!("{} of {all} alerts were not taken", all - accepted);
            let hint = "see above what was answered; send again, what was taken does no harm";
            return Err(Stop::failed(message, hint).into());
        }
        Ok(Exit::Fine)
    }

    fn follow(&self, mut desk: Desk<'_>, stop: &AtomicBool) -> anyhow::Result<Exit> {
        let mut feed = match &self.config.kafka {
            Some(kafka) => {
                let reading = match self.args.to {
                    None => Reading::Alone {
                        since_ms: self.since_ms()?,
                    },
                    Some(to) => Reading::Group {
                        name: format!("{}.alerts.{}", kafka.group, to.word()),
                        since_ms: match self.args.since {
                            Some(_) => self.since_ms()?,
                            None => now_ms() - NEW_GROUP_MS,
                        },
                    },
                };
                let client = consumer_config(kafka, &self.config);
                Feed::Topic(AlertTopic::open(client, &kafka.alert_topic, reading)?)
            }
            None => {
                let first = match self.args.to {
                    Some(_) => standing,
                    None => notices,
                };
                let (stored, since_ms) = (self.stored()?, self.since_ms()?);
                Feed::Table(TableFeed::new(stored, self.source(), first, since_ms))
            }
        };
        let every = matches!(self.args.to, Some(To::Alertmanager));
        let mut queue = Queue::new(QueueLimits {
            every_ms: every.then_some(self.args.every),
            give_up_ms: GIVE_UP_MS,
        });
        follow(&mut feed, &mut queue, &mut desk, stop)?;
        Ok(Exit::Fine)
    }

    fn target(&self, world: &World) -> anyhow::Result<Option<Target>> {
        let Some(to) = self.args.to else {
            return Ok(None);
        };
        let url = to.address(self.args.url.as_ref())?;
        let file = self.args.routing_key_file.as_deref();
        let service = to.service(&self.config, file, self.args.every, world)?;
        Target::new(service, url).map(Some)
    }

    /// Every transition, in order.
    fn rows(&self) -> anyhow::Result<Vec<Row>> {
        self.runtime.block_on(self.stored()?.more())
    }

    fn stored(&self) -> anyhow::Result<Stored> {
        let place = &self.config.lake;
        let url = lake_url(place).map_err(job_stop)?;
        let Ok(root) = url.to_file_path() else {
            let message = format!("{place} is an object store: alerts are not read there yet");
            return Err(Stop::usage(message, "name a local folder with --lake").into());
        };
        if !root.join(ATTEMPTS).join("_delta_log").is_dir() {
            let message = format!("there is no lake in {}", root.display());
            let hint = "name another with --lake; `retrytoll run` or `ingest` makes one";
            return Err(Stop::failed(message, hint).into());
        }
        Ok(Stored::new(&root, Clock::new(now_ms)))
    }

    /// As the events on the topic name it.
    fn source(&self) -> String {
        let kafka = self.config.kafka.as_ref();
        let group = kafka.map_or(ingest::GROUP, |kafka| kafka.group.as_str());
        source(group)
    }

    fn since_ms(&self) -> anyhow::Result<i64> {
        let now = DateTime::from_timestamp_millis(now_ms()).context("the clock is out of range")?;
        let since = self.args.since.as_deref();
        let window = Window::parse(since, None, Zone::utc(), now).map_err(job_stop)?;
        Ok(window.since.timestamp_millis())
    }
}
