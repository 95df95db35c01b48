//! Names, meanings and values → families of Prometheus' text.
//!
//! A *family* is a name with its series. One without a series is left out: what is not known is
//! absent.

use std::fmt::Result;

use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;

/// No labels.
const NONE: [(&str, &str); 0] = [];

/// A page that is being written.
pub struct Page<'a, 'b>(pub &'a mut DescriptorEncoder<'b>);

impl Page<'_, '_> {
    fn family<L: EncodeLabelSet>(
        &mut self,
        (name, help): (&str, &str),
        series: Vec<(L, impl EncodeMetric)>,
    ) -> Result {
        let Some((_, first)) = series.first() else {
            return Ok(());
        };
        let kind = first.metric_type();
        let mut family = self.0.encode_descriptor(name, help, None, kind)?;
        for (labels, value) in &series {
            value.encode(family.encode_family(labels)?)?;
        }
        Ok(())
    }

    /// A number that only grows; `_total` is added to its name.
    pub fn counter(&mut self, what: (&str, &str), value: u64) -> Result {
        self.counters(what, [(NONE, value)])
    }

    pub fn counters<L: EncodeLabelSet>(
        &mut self,
        what: (&str, &str),
        series: impl IntoIterator<Item = (L, u64)>,
    ) -> Result {
        let series = series.into_iter();
        let series = series.map(|(labels, value)| (labels, ConstCounter::new(value)));
        self.family(what, series.collect())
    }

    /// A number that goes up and down, where it is known.
    pub fn gauge(&mut self, what: (&str, &str), value: Option<f64>) -> Result {
        self.gauges(what, value.map(|value| (NONE, value)))
    }

    pub fn gauges<L: EncodeLabelSet>(
        &mut self,
        what: (&str, &str),
        series: impl IntoIterator<Item = (L, f64)>,
    ) -> Result {
        let series = series.into_iter();
        let series = series.map(|(labels, value)| (labels, ConstGauge::new(value)));
        self.family(what, series.collect())
    }

    pub fn histogram(&mut self, what: (&str, &str), value: &Histogram) -> Result {
        self.histograms(what, [(NONE, value.clone())])
    }

    pub fn histograms<L: EncodeLabelSet>(
        &mut self,
        what: (&str, &str),
        series: impl IntoIterator<Item = (L, Histogram)>,
    ) -> Result {
        self.family(what, series.into_iter().collect())
    }

    /// The version of the program.
    pub fn build(&mut self) -> Result {
        let labels = [("version", env!("CARGO_PKG_VERSION"))];
        self.gauges(
            ("retrytoll_build_info", "Always 1; the version is a label."),
            [(labels, 1.0)],
        )
    }
}
