//! Metrics as Prometheus reads them: the text format, and the delimited protobuf format with native histograms.

use std::collections::BTreeMap;
use std::fmt::Write;

use http::{HeaderValue, Response, StatusCode};

use crate::body::{self, Body};

/// What a family counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// Metrics of one name.
#[derive(Debug)]
pub(crate) struct Family {
    name: &'static str,
    help: &'static str,
    kind: Kind,
    pub(crate) samples: Vec<Sample>,
}

/// One series of a family.
#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) labels: Vec<(&'static str, String)>,
    pub(crate) value: Value,
}

/// What a series says.
#[derive(Debug)]
pub(crate) enum Value {
    Number(u64),
    Histogram(Histogram),
}

/// Observations by size.
#[derive(Debug, Clone)]
pub(crate) struct Histogram {
    /// Upper bound and number of observations up to it.
    pub(crate) buckets: Vec<(f64, u64)>,
    pub(crate) count: u64,
    pub(crate) sum: f64,
    /// The native form, where it is kept.
    pub(crate) sparse: Option<Sparse>,
}

/// The buckets of a native histogram that hold something. Schema 3: eight buckets to each doubling.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sparse {
    buckets: BTreeMap<i32, u64>,
    zero: u64,
}

const SCHEMA: i32 = 3;
/// Observations up to this count as zero.
const ZERO: f64 = 2.938_735_877_055_719e-39;

impl Sparse {
    /// Counts an observation.
    pub(crate) fn observe(&mut self, value: f64) {
        if value <= ZERO {
            self.zero += 1;
            return;
        }
        #[expect(clippy::cast_possible_truncation, reason = "logarithms of finite numbers are small")]
        let at = (value.log2() * f64::from(1 << SCHEMA)).ceil() as i32;
        *self.buckets.entry(at).or_default() += 1;
    }
}

impl Family {
    /// A family without series.
    pub(crate) fn new(name: &'static str, help: &'static str, kind: Kind) -> Self {
        Self { name, help, kind, samples: Vec::new() }
    }

    /// Adds a series of one number.
    pub(crate) fn add(&mut self, labels: Vec<(&'static str, String)>, value: u64) {
        self.samples.push(Sample { labels, value: Value::Number(value) });
    }
}

/// All families in the form that the client accepts.
pub(crate) fn answer(families: &[Family], accept: Option<&str>) -> Response<Body> {
    let wants_protobuf = accept.is_some_and(|accept| {
        let first = accept.split(',').next().unwrap_or("");
        first.contains("application/vnd.google.protobuf") && first.contains("io.prometheus.client.MetricFamily") && first.contains("delimited")
    });
    let (kind, body) = if wants_protobuf {
        ("application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited", body::full(delimited(families)))
    } else {
        ("text/plain; version=0.0.4; charset=utf-8", body::full(text(families)))
    };
    let mut response = body::response(StatusCode::OK, "text/plain", body);
    response.headers_mut().insert("content-type", HeaderValue::from_static(kind));
    response
}

fn text(families: &[Family]) -> String {
    let mut out = String::new();
    for family in families {
        // Writing into a string cannot fail.
        let _ = write_family(&mut out, family);
    }
    out
}

/// Labels of a series in braces; nothing when there are none.
fn braces(labels: &[(&str, String)], more: Option<f64>) -> String {
    let mut all: Vec<String> = labels
        .iter()
        .map(|(name, value)| format!("{name}=\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")))
        .collect();
    all.extend(more.map(|bound| if bound.is_infinite() { "le=\"+Inf\"".to_owned() } else { format!("le=\"{bound}\"") }));
    if all.is_empty() { String::new() } else { format!("{{{}}}", all.join(",")) }
}

fn write_family(out: &mut String, family: &Family) -> std::fmt::Result {
    let name = family.name;
    let kind = match family.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
    };
    writeln!(out, "# HELP {name} {}\n# TYPE {name} {kind}", family.help)?;
    for sample in &family.samples {
        let labels = braces(&sample.labels, None);
        match &sample.value {
            Value::Number(number) => writeln!(out, "{name}{labels} {number}")?,
            Value::Histogram(histogram) => {
                for (bound, count) in &histogram.buckets {
                    writeln!(out, "{name}_bucket{} {count}", braces(&sample.labels, Some(*bound)))?;
                }
                writeln!(out, "{name}_bucket{} {}", braces(&sample.labels, Some(f64::INFINITY)), histogram.count)?;
                writeln!(out, "{name}_sum{labels} {}\n{name}_count{labels} {}", histogram.sum, histogram.count)?;
            }
        }
    }
    Ok(())
}

/// Writes protobuf messages of `io.prometheus.client`.
#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push((number & 0x7f) as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn number(&mut self, field: u64, number: u64) {
        self.varint(field << 3);
        self.varint(number);
    }

    /// A signed number in zigzag form.
    fn signed(&mut self, field: u64, number: i64) {
        self.number(field, ((number << 1) ^ (number >> 63)).cast_unsigned());
    }

    fn double(&mut self, field: u64, number: f64) {
        self.varint(field << 3 | 1);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn message(&mut self, field: u64, write: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        write(&mut inner);
        self.bytes(field, &inner.0);
    }
}

fn delimited(families: &[Family]) -> Vec<u8> {
    let mut out = Writer::default();
    for family in families.iter().filter(|family| !family.samples.is_empty()) {
        let mut one = Writer::default();
        one.bytes(1, family.name.as_bytes());
        one.bytes(2, family.help.as_bytes());
        one.number(3, match family.kind {
            Kind::Counter => 0,
            Kind::Gauge => 1,
            Kind::Histogram => 4,
        });
        for sample in &family.samples {
            one.message(4, |metric| {
                for (name, value) in &sample.labels {
                    metric.message(1, |pair| {
                        pair.bytes(1, name.as_bytes());
                        pair.bytes(2, value.as_bytes());
                    });
                }
                match &sample.value {
                    #[expect(clippy::cast_precision_loss, reason = "the format has only floating numbers")]
                    Value::Number(number) => metric.message(if family.kind == Kind::Gauge { 2 } else { 3 }, |m| m.double(1, *number as f64)),
                    Value::Histogram(histogram) => metric.message(7, |m| write_histogram(m, histogram)),
                }
            });
        }
        out.varint(one.0.len() as u64);
        out.0.extend_from_slice(&one.0);
    }
    out.0
}

fn write_histogram(out: &mut Writer, histogram: &Histogram) {
    out.number(1, histogram.count);
    out.double(2, histogram.sum);
    for (bound, count) in &histogram.buckets {
        out.message(3, |bucket| {
            bucket.number(1, *count);
            bucket.double(2, *bound);
        });
    }
    let Some(sparse) = &histogram.sparse else { return };
    out.signed(5, i64::from(SCHEMA));
    out.double(6, ZERO);
    out.number(7, sparse.zero);
    // Spans of neighbouring buckets: the first offset is the index, the others are gaps.
    let mut spans: Vec<(i32, u64)> = Vec::new();
    let mut end = 0;
    for at in sparse.buckets.keys() {
        match spans.last_mut() {
            Some((_, length)) if *at == end => *length += 1,
            _ => spans.push((at - end, 1)),
        }
        end = at + 1;
    }
    for (offset, length) in spans {
        out.message(12, |span| {
            span.signed(1, i64::from(offset));
            span.number(2, length);
        });
    }
    // Counts as differences from the bucket before.
    let mut before = 0;
    for count in sparse.buckets.values().map(|count| i64::try_from(*count).unwrap_or(i64::MAX)) {
        out.signed(13, count - before);
        before = count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn family() -> Family {
        let mut sparse = Sparse::default();
        for value in [0.001, 0.001, 0.0011, 4.0, 0.0] {
            sparse.observe(value);
        }
        let histogram = Histogram { buckets: vec![(0.01, 4), (1.0, 4)], count: 5, sum: 4.0031, sparse: Some(sparse) };
        let mut family = Family::new("seconds", "How long.", Kind::Histogram);
        family.samples.push(Sample { labels: vec![("verb", "a\"b".to_owned())], value: Value::Histogram(histogram) });
        family
    }

    #[test]
    fn text_is_escaped_and_cumulative() {
        assert_eq!(
            text(&[family()]),
            "# HELP seconds How long.\n# TYPE seconds histogram\nseconds_bucket{verb=\"a\\\"b\",le=\"0.01\"} 4\nseconds_bucket{verb=\"a\\\"b\",le=\"1\"} 4\n\
             seconds_bucket{verb=\"a\\\"b\",le=\"+Inf\"} 5\nseconds_sum{verb=\"a\\\"b\"} 4.0031\nseconds_count{verb=\"a\\\"b\"} 5\n"
        );
    }

    #[test]
    fn native_buckets_hold_their_observations() {
        let family = family();
        let Value::Histogram(Histogram { sparse: Some(sparse), .. }) = &family.samples[0].value else { unreachable!("a histogram") };
        assert_eq!(sparse.zero, 1);
        for at in sparse.buckets.keys() {
            let upper = 2f64.powf(f64::from(*at) / 8.0);
            let lower = 2f64.powf(f64::from(at - 1) / 8.0);
            let held = [0.001, 0.001, 0.0011, 4.0].iter().filter(|v| **v > lower && **v <= upper).count();
            assert_eq!(sparse.buckets[at], held as u64, "bucket {at}");
        }
        // One message with its length before it.
        let bytes = delimited(&[family]);
        assert_eq!(usize::from(bytes[0]), bytes.len() - 1);
    }
}
