//! retrytoll, with `FAULTS` of its environment → the same program, which dies or sleeps at named points.
//!
//! `FAULTS="committed:3=kill, files=sleep 2s, checkpoint-begun=kill 5ms"`: at the third passing of
//! `committed` the process is gone as if killed, at every passing of `files` it sleeps, and 5 ms after
//! the first `checkpoint-begun` it is gone, wherever it is then. `FAULTS=list` lists the points.
//! The points are trace events of the program itself ([`retrytoll_lake::point`]).

use std::fmt::Debug;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use retrytoll::cli::{World, run};
use retrytoll_lake::point::{Point, TARGET};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer};

#[expect(
    clippy::disallowed_methods,
    reason = "faults are no setting of the program"
)]
fn main() -> ExitCode {
    let given = std::env::var("FAULTS").unwrap_or_default();
    if given == "list" {
        for point in Point::ALL {
            println!("{}", point.name());
        }
        return ExitCode::SUCCESS;
    }
    let faults = match given
        .split(',')
        .map(str::trim)
        .filter(|it| !it.is_empty())
        .map(Fault::parse)
        .collect()
    {
        Ok(faults) => Faults(faults),
        Err(wrong) => {
            eprintln!("FAULTS: {wrong}");
            return ExitCode::from(2);
        }
    };
    // As `run` logs by itself; a second subscriber is not taken.
    let log = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .json()
        .flatten_event(true)
        .with_filter(EnvFilter::new("info,buoyant_kernel=warn"));
    let points = Targets::new().with_target(TARGET, LevelFilter::TRACE);
    tracing_subscriber::registry()
        .with(log)
        .with(faults.with_filter(points))
        .init();
    run(std::env::args_os(), World::real()).end()
}

enum Action {
    /// The process is gone this long after the point, without another word.
    Kill(Duration),
    Sleep(Duration),
}

struct Fault {
    point: String,
    /// From which passing on, 1 for the first.
    from: u64,
    action: Action,
    passed: AtomicU64,
}

impl Fault {
    fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is none: write POINT[:N]=kill, kill 5ms or sleep 2s");
        let (place, action) = text.split_once('=').ok_or_else(wrong)?;
        let (point, from) = match place.split_once(':') {
            Some((point, number)) => (point, number.parse().map_err(|_| wrong())?),
            None => (place, 1),
        };
        if !Point::ALL.iter().any(|it| it.name() == point) {
            return Err(format!("{point:?} is no point: see FAULTS=list"));
        }
        let span = |text: &str| match text.strip_suffix("ms") {
            Some(number) => number.parse().ok().map(Duration::from_millis),
            None => text
                .strip_suffix('s')?
                .parse()
                .ok()
                .map(Duration::from_secs),
        };
        let action = match action.split_once(' ') {
            None if action == "kill" => Some(Action::Kill(Duration::ZERO)),
            Some(("kill", after)) => span(after).map(Action::Kill),
            Some(("sleep", long)) => span(long).map(Action::Sleep),
            _ => None,
        };
        Ok(Self {
            point: point.to_owned(),
            from,
            action: action.ok_or_else(wrong)?,
            passed: AtomicU64::new(0),
        })
    }

    fn pass(&self) {
        let number = self.passed.fetch_add(1, Ordering::Relaxed) + 1;
        match self.action {
            Action::Sleep(long) if number >= self.from => park(long),
            Action::Kill(after) if number == self.from => {
                eprintln!("{{\"message\":\"fault\",\"point\":\"{}\"}}", self.point);
                if after.is_zero() {
                    std::process::abort();
                }
                std::thread::spawn(move || {
                    park(after);
                    std::process::abort();
                });
            }
            _ => {}
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a fault is a wait that nothing ends"
)]
fn park(long: Duration) {
    std::thread::sleep(long);
}

struct Faults(Vec<Fault>);

impl<S: Subscriber> Layer<S> for Faults {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut point = Name(String::new());
        event.record(&mut point);
        for fault in self.0.iter().filter(|fault| fault.point == point.0) {
            fault.pass();
        }
    }
}

/// The point that an event names.
struct Name(String);

impl Visit for Name {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "point" {
            value.clone_into(&mut self.0);
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn Debug) {}
}
