//! [`Metrics`] and the clock → the page that Prometheus reads.

mod commits;
mod records;
mod tasks;

use std::collections::BTreeMap;
use std::fmt::Result;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
pub use prometheus_client::encoding::prometheus_text::CONTENT_TYPE;
use prometheus_client::encoding::prometheus_text::encode;
use prometheus_client::registry::Registry;

use super::page::Page;
use super::{Metrics, process, seconds};
use crate::config::usable::Limits;
use crate::kafka::BrokerFacts;
use crate::pipeline::{ReadFacts, WriteFacts};

/// One scrape: what to show, and when.
#[derive(Debug)]
struct Scrape {
    metrics: Arc<Metrics>,
    limits: Limits,
    is_leading: bool,
    now_ms: i64,
}

/// The page, in Prometheus' text format.
///
/// # Errors
/// None that can happen: text is written to memory.
pub fn text(
    metrics: &Arc<Metrics>,
    limits: Limits,
    is_leading: bool,
    now_ms: i64,
) -> std::result::Result<String, std::fmt::Error> {
    let metrics = Arc::clone(metrics);
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Scrape {
        metrics,
        limits,
        is_leading,
        now_ms,
    }));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result {
        let mut page = Page(&mut encoder);
        page.build()?;
        let Metrics {
            reading,
            writing,
            brokers,
            ..
        } = self.metrics.as_ref();
        let (read, written, brokers) = (reading.get(), writing.get(), brokers.get());
        if let Some(read) = &read {
            records::records(&mut page, read)?;
            records::values(&mut page, read)?;
        }
        self.partitions(&mut page, read.as_ref(), written.as_ref(), brokers.as_ref())?;
        let tasks = self.metrics.tasks.counts();
        if let Some(written) = &written {
            commits::commits(&mut page, written, &tasks.conflicts, &self.metrics)?;
        }
        tasks::tasks(&mut page, &tasks, self.is_leading)?;
        self.memory(&mut page, read.as_ref(), brokers.as_ref())
    }
}

fn by_partition(numbers: &BTreeMap<i32, f64>) -> impl Iterator<Item = ([(&str, i32); 1], f64)> {
    let series = numbers.iter();
    series.map(|(number, value)| ([("partition", *number)], *value))
}

/// How many offsets lie between places and the ends of their partitions' logs.
fn behind(
    ends: &BTreeMap<i32, i64>,
    places: impl Iterator<Item = (i32, i64)>,
) -> BTreeMap<i32, f64> {
    let lag = places.filter_map(|(number, next)| {
        // An end that was told before the last records came lies below.
        let records = (ends.get(&number)? - next).max(0);
        Some((number, records as f64))
    });
    lag.collect()
}

impl Scrape {
    fn partitions(
        &self,
        page: &mut Page,
        read: Option<&ReadFacts>,
        written: Option<&WriteFacts>,
        brokers: Option<&BrokerFacts>,
    ) -> Result {
        let owned = written.map(|it| it.next.len() as f64);
        page.gauge(
            (
                "retrytoll_partitions",
                "Partitions that this instance owns.",
            ),
            owned,
        )?;
        if let Some(brokers) = brokers {
            let connected = Some(brokers.connected as f64);
            let what = ("retrytoll_brokers_connected", "Brokers connected to.");
            page.gauge(what, connected)?;
            let committed = written.iter().flat_map(|it| &it.next);
            let lag = behind(
                &brokers.ends,
                committed.map(|(number, next)| (*number, *next)),
            );
            let what = (
                "retrytoll_lag_records",
                "Offsets between the lake and the end of the partition's log.",
            );
            page.gauges(what, by_partition(&lag))?;
            let places = read.iter().flat_map(|it| &it.partitions);
            let unread = behind(&brokers.ends, places.map(|(number, it)| (*number, it.next)));
            let what = (
                "retrytoll_unread_records",
                "Offsets between what was read and the end of the partition's log.",
            );
            page.gauges(what, by_partition(&unread))?;
        }
        let clocks = read.iter().flat_map(|it| &it.partitions);
        let clocks = clocks.filter_map(|(number, it)| Some((*number, it.clock_ms?)));
        let clocks: Vec<(i32, i64)> = clocks.collect();
        let each = |of: &dyn Fn(i64) -> f64| -> BTreeMap<i32, f64> {
            clocks
                .iter()
                .map(|(number, ms)| (*number, of(*ms)))
                .collect()
        };
        page.gauges(
            (
                "retrytoll_clock_timestamp_seconds",
                "The partition's waiting clock, since 1970.",
            ),
            by_partition(&each(&seconds)),
        )?;
        page.gauges(
            (
                "retrytoll_clock_delay_seconds",
                "How far the partition's waiting clock is behind ours.",
            ),
            by_partition(&each(&|ms| seconds(self.now_ms - ms))),
        )
    }

    /// Memory against its limits, by part.
    fn memory(
        &self,
        page: &mut Page,
        read: Option<&ReadFacts>,
        brokers: Option<&BrokerFacts>,
    ) -> Result {
        let (sql, spilled) = self.metrics.sql.now();
        let encode = self.metrics.encode_bytes.load(Ordering::Relaxed);
        let used = [
            ("prefetch", brokers.map(|it| it.prefetch_bytes as f64)),
            ("batches", read.map(|it| it.batches_bytes as f64)),
            ("encode", Some(encode as f64)),
            ("seen", read.map(|it| it.seen_bytes as f64)),
            ("sql", Some(sql as f64)),
        ];
        let used = used.into_iter();
        page.gauges(
            ("retrytoll_memory_bytes", "Bytes held, by part of [limits]."),
            used.filter_map(|(part, bytes)| Some(([("part", part)], bytes?))),
        )?;
        let limits = &self.limits;
        let most = [
            ("prefetch", limits.prefetch_bytes),
            ("batches", limits.batches_bytes),
            ("encode", limits.encode_bytes),
            ("seen", limits.seen_bytes),
            ("sql", limits.sql_bytes),
        ];
        page.gauges(
            (
                "retrytoll_memory_limit_bytes",
                "Bytes that the part of [limits] may hold.",
            ),
            most.map(|(part, bytes)| ([("part", part)], bytes as f64)),
        )?;
        let what = (
            "retrytoll_spilled_bytes",
            "Bytes that SQL has spilled to disk now.",
        );
        page.gauge(what, Some(spilled as f64))?;
        let resident = process::resident_bytes();
        page.gauge(
            (
                "process_resident_memory_bytes",
                "Resident memory size in bytes.",
            ),
            resident.map(|it| it as f64),
        )
    }
}

#[cfg(test)]
mod tests;
