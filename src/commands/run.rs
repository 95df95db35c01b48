//! `retrytoll run`: a topic → the lake, until it is told to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use anyhow::Context as _;
use retrytoll_core::batch::SourceId;
use retrytoll_lake::Clock;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use crate::alerts::{AlertOutlet, Alerting, AlertingSettings, Pulse};
use crate::cli::{Settings, TopicFlags, World};
use crate::clock::now_ms;
use crate::config::kafka::Kafka;
use crate::config::{Config, Need};
use crate::exit::{Exit, Stop};
use crate::http::{Server, Site, Worker};
use crate::kafka::{DeadLetterTopic, SourceSettings, connect, consumer_config, read_topic};
use crate::lake;
use crate::lint::FirstLook;
use crate::maintenance::Maintenance;
use crate::metrics::Metrics;
use crate::outlet::DeadLetterOutlet;
use crate::pipeline::{Health, ReadCounts, Reader, Stage, WriteSummary, bounded};

/// How long a query or a send may go on after all else has ended.
const SHUTDOWN: Duration = Duration::from_secs(1);
/// How often to look whether it is time to stop.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Read a topic of retry-decision events into the lake, continuously
///
/// Each event is there once, whatever happens to this process. Instances of one group share the
/// topic's partitions. One of them, which owns the first partition, also looks at the alert rules
/// each jobs.tick and sends alerts to kafka.alert_topic, and makes each day's profile and each hour's
/// rollup. What is wrong with the first events is logged once, as `retrytoll lint` tells it. SIGTERM
/// and SIGINT commit what was read and end it within seconds.
#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// End when the whole topic has been read and the alert rules were looked at, in place of
    /// waiting for more
    #[arg(long)]
    until_end: bool,
    /// Answer /metrics (for Prometheus), /healthz and /readyz here, as 127.0.0.1:9464 (http.listen)
    #[arg(long, value_name = "ADDRESS", help_heading = "Configuration")]
    http: Option<String>,
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    topic: TopicFlags,
}

/// Runs the command.
pub fn run(args: &RunArgs, world: &mut World) -> anyhow::Result<Exit> {
    let mut settings = args.settings.clone();
    settings.keys.http = args.http.clone();
    let config = settings.load(Some(&args.topic), Need::Kafka, world)?;
    let Some(kafka) = config.kafka.clone() else {
        return Err(Stop::usage(
            "no topic is configured",
            "set kafka.bootstrap and kafka.topic",
        )
        .into());
    };
    let runtime = Runtime::new().context("cannot start the runtime")?;
    let stop = Arc::new(AtomicBool::new(false));
    stop_on_signals(&runtime, &stop)?;
    let mut state = Instance {
        tells: true,
        ..Instance::default()
    };
    let mut alerting = alerting(&config, &kafka, &state)?;
    let (read, written) = if args.until_end {
        runtime.block_on(alerting.begin())?;
        state.until_end = true;
        let _server = serve(&config, &state, &stop, Vec::new())?;
        let done = pipeline(&config, &kafka, &runtime, &stop, &state)?;
        if state.leading.load(Ordering::Acquire) {
            let to_end = async {
                alerting.profiles.make_to_end().await;
                alerting.run_to_end().await
            };
            runtime.block_on(until(&stop, to_end))?;
        }
        done
    } else {
        // Queries keep their threads busy; commits must not wait for one.
        let jobs = Runtime::new().context("cannot start the runtime of jobs")?;
        let mut workers = vec![Worker {
            name: "alerts",
            handle: jobs
                .spawn(alerting.run(Arc::clone(&state.leading)))
                .abort_handle(),
        }];
        if config.alerts.heartbeat {
            let pulse = pulse(&config, &kafka, &state)?;
            workers.push(Worker {
                name: "heartbeat",
                handle: jobs.spawn(pulse.run()).abort_handle(),
            });
        }
        let _server = serve(&config, &state, &stop, workers)?;
        let done = pipeline(&config, &kafka, &runtime, &stop, &state);
        jobs.shutdown_timeout(SHUTDOWN);
        done?
    };
    // An alert on its way is sent again after the next start.
    runtime.shutdown_timeout(SHUTDOWN);
    tracing::info!(
        records = read.records,
        rows = written.rows,
        forgotten = written.forgotten,
        duplicates = read.duplicates,
        dead_letters = read.dead_letters,
        commits = written.commits,
        "stopped"
    );
    Ok(Exit::Fine)
}

/// The alerts of a topic's lake, to the alert topic.
pub fn alerting(config: &Config, kafka: &Kafka, state: &Instance) -> anyhow::Result<Alerting> {
    let mut settings = AlertingSettings::of(config, &kafka.group, lake::local_root(config)?)?;
    settings.limits.usage = state.metrics.sql.clone();
    let mut alerting = Alerting::new(settings, outlet(kafka)?, Clock::new(now_ms))?;
    alerting.health = Arc::clone(&state.health);
    alerting.metrics = Arc::clone(&state.metrics);
    Ok(alerting)
}

/// Answers over HTTP, where that is configured, until the server is dropped.
fn serve(
    config: &Config,
    state: &Instance,
    stop: &Arc<AtomicBool>,
    workers: Vec<Worker>,
) -> anyhow::Result<Option<Server>> {
    let Some(listen) = config.http_listen else {
        return Ok(None);
    };
    let site = Site {
        health: Arc::clone(&state.health),
        metrics: Arc::clone(&state.metrics),
        limits: config.limits,
        leading: Arc::clone(&state.leading),
        stop: Arc::clone(stop),
        clock: Clock::new(now_ms),
        log: lake::local_root(config)?
            .join(lake::ATTEMPTS)
            .join("_delta_log"),
        workers,
    };
    Server::start(listen, site).map(Some)
}

fn outlet(kafka: &Kafka) -> anyhow::Result<AlertOutlet> {
    AlertOutlet::topic(kafka.client(), &kafka.alert_topic, &kafka.breaker_topic)
}

/// What this instance tells of itself.
fn pulse(config: &Config, kafka: &Kafka, state: &Instance) -> anyhow::Result<Pulse> {
    let own = || lake::member_name();
    Ok(Pulse {
        instance: kafka.instance_id.clone().unwrap_or_else(own),
        group: kafka.group.clone(),
        alerts: config.alerts.clone(),
        health: Arc::clone(&state.health),
        metrics: Arc::clone(&state.metrics),
        clock: Clock::new(now_ms),
        outlet: Arc::new(outlet(kafka)?),
    })
}

/// Waits for `work`, unless `stop` is set meanwhile.
async fn until<T>(
    stop: &AtomicBool,
    work: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<()> {
    let stopped = async {
        while !stop.load(Ordering::Acquire) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    tokio::select! {
        done = work => done.map(drop),
        () = stopped => Ok(()),
    }
}

/// The first signal ends the run in order; the process's default does the rest on a second one.
pub fn stop_on_signals(runtime: &Runtime, stop: &Arc<AtomicBool>) -> anyhow::Result<()> {
    let _guard = runtime.enter();
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for signals")?;
    let stop = Arc::clone(stop);
    runtime.spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping: what was read is committed");
        stop.store(true, Ordering::Release);
    });
    Ok(())
}

/// What is known of an instance while it runs, and afterwards.
#[derive(Debug, Default)]
pub struct Instance {
    /// Whether it leads.
    pub leading: Arc<AtomicBool>,
    pub health: Arc<Health>,
    /// What it has counted.
    pub metrics: Arc<Metrics>,
    /// It ends with the topic.
    pub until_end: bool,
    /// It tells what is wrong with the first events.
    pub tells: bool,
}

/// Both stages of one instance, until `stop`, the end of the topic where asked, or an error.
pub fn pipeline(
    config: &Config,
    kafka: &Kafka,
    runtime: &Runtime,
    stop: &Arc<AtomicBool>,
    state: &Instance,
) -> anyhow::Result<(ReadCounts, WriteSummary)> {
    let root = lake::local_root(config)?;
    let tables = lake::tables(config)?;
    let clock = Clock::new(now_ms);
    let (starts, source, partitions) = connect(kafka)?;
    tracing::info!(source, partitions, lake = %root.display(), "reading");
    let source = SourceId(source.into());
    let table = runtime.block_on(lake::open_attempts(&root, &clock))?;
    let mut writer = runtime.block_on(lake::open_writer(table, &kafka.group, &clock))?;
    writer.give_up_when(Arc::clone(stop));
    let mut letters = DeadLetterTopic::new(kafka.client(), kafka.dead_letter_topic.clone())?;
    letters.give_up_when(Arc::clone(stop));
    let (outlet, inlet) = bounded(config.limits.batches_bytes);
    let (orders, ordered) = sync_channel(64);
    let mut stage = Stage::new(
        lake::write_settings(config, source.clone(), &tables),
        writer,
        root.join(lake::ATTEMPTS),
        starts,
        DeadLetterOutlet::Topic(letters),
        clock.clone(),
        runtime.handle().clone(),
        orders,
    );
    stage.leading = Arc::clone(&state.leading);
    stage.health = Arc::clone(&state.health);
    stage.metrics = Arc::clone(&state.metrics);
    let mut maintenance = Maintenance::new(root, &kafka.group, clock.clone(), config);
    maintenance.metrics = config.http_listen.map(|_| Arc::clone(&state.metrics));
    runtime.spawn(maintenance.run(Arc::clone(&state.leading)));
    let first_look = FirstLook::new(&tables, clock.now_ms());
    let mut reader = Reader::new(source, tables, lake::read_limits(config), outlet);
    reader.first_look = state.tells.then_some(first_look);
    let settings = SourceSettings {
        client: consumer_config(kafka, config),
        topic: kafka.topic.clone(),
        until_end: state.until_end,
        health: Arc::clone(&state.health),
        metrics: Arc::clone(&state.metrics),
    };
    let (read, written) = std::thread::scope(|scope| {
        let writing = scope.spawn(move || stage.run(&inlet));
        // The reader ends here: its end of the channel goes with it, and the writer follows.
        let read =
            read_topic(&settings, reader, &ordered, &clock, stop).map(|reader| reader.counts);
        (
            read,
            writing
                .join()
                .map_err(|_| anyhow::anyhow!("the writing stage broke")),
        )
    });
    let written = written??;
    Ok((read?, written))
}
