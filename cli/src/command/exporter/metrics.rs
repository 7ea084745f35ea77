//! Formats the servers' replies as metrics, in the text format of OpenMetrics.
//!
//! The tables here define every metric: name, type, help, and source. docs/MONITORING.md lists the same names; a test
//! compares them. A value that a filter doesn't have yields no sample, because 0 would be wrong.

use super::process;
use super::snapshot::{NodeReading, Snapshot};
use crate::filter::info::{Feedback, FilterInfo, Observed};
use crate::output;
use crate::server::key::FilterKey;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::fmt;
use std::time::UNIX_EPOCH;

use MetricType::{Counter, Gauge, Info};

/// A label in addition to those of the filter or server.
type Extra = Option<(&'static str, &'static str)>;

/// A metric of each filter. The encoder appends `_total` to the names of counters and `_info` to those of infos.
struct OfFilter {
    name: &'static str,
    metric_type: MetricType,
    help: &'static str,
    samples: fn(&FilterInfo) -> Vec<(Extra, f64)>,
}

/// One sample, if the value is known.
fn one(value: Option<f64>) -> Vec<(Extra, f64)> {
    value.map(|value| (None, value)).into_iter().collect()
}

fn number(value: Option<u64>) -> Vec<(Extra, f64)> {
    one(value.map(|value| value as f64))
}

/// A sample for each known value; the value's name becomes the value of `label`.
fn by<const N: usize>(label: &'static str, values: [(&'static str, Option<f64>); N]) -> Vec<(Extra, f64)> {
    values.into_iter().filter_map(|(name, value)| Some((Some((label, name)), value?))).collect()
}

fn life(info: &FilterInfo, count: fn(&Observed) -> u64) -> Vec<(Extra, f64)> {
    number(info.feedback.as_ref().map(|feedback| count(&feedback.life)))
}

/// Bytes of all cells. A cuckoo filter's cell is a slot of one byte. Bloom filters of other systems don't report the
/// width of a cell, which is one bit.
fn cell_bytes(info: &FilterInfo) -> Option<f64> {
    let default = if info.kind == "cuckoo" { 8 } else { 1 };
    Some(info.cells?.saturating_mul(info.bits_per_cell.unwrap_or(default)) as f64 / 8.0)
}

const OF_FILTERS: [OfFilter; 25] = [
    OfFilter {
        name: "bloomery_cell_bytes",
        metric_type: Gauge,
        help: "Bytes of all cells of the filter.",
        samples: |info| one(cell_bytes(info)),
    },
    OfFilter {
        name: "bloomery_capacity_items",
        metric_type: Gauge,
        help: "Items that all layers of the filter are sized for. For cuckoo filters: number of slots.",
        samples: |info| number(info.capacity),
    },
    OfFilter {
        name: "bloomery_items",
        metric_type: Gauge,
        help: "Items added that were absent before, minus items deleted.",
        samples: |info| number(Some(info.items)),
    },
    OfFilter {
        name: "bloomery_estimated_items",
        metric_type: Gauge,
        help: "Distinct items in the filter, estimated from its fill.",
        samples: |info| number(info.approximate_items),
    },
    OfFilter {
        name: "bloomery_fill_ratio",
        metric_type: Gauge,
        help: "Fraction of cells that are set, about 0.5 at capacity. For cuckoo filters: of slots in use.",
        samples: |info| one(info.fill),
    },
    OfFilter {
        name: "bloomery_full_fill_ratio",
        metric_type: Gauge,
        help: "Fill at which a cuckoo filter grows or refuses adds.",
        samples: |info| one(info.fill_when_full),
    },
    OfFilter {
        name: "bloomery_promised_error_ratio",
        metric_type: Gauge,
        help: "False-positive rate at capacity, as requested. For cuckoo filters: when full.",
        samples: |info| one(info.error_rate),
    },
    OfFilter {
        name: "bloomery_error_ratio",
        metric_type: Gauge,
        help: "False-positive rate at the present fill, computed.",
        samples: |info| one(info.error_rate_now),
    },
    OfFilter {
        name: "bloomery_observed_error_ratio",
        metric_type: Gauge,
        help: "False-positive rate according to what the application reported (BF.FEEDBACK).",
        samples: |info| {
            let rate = |span: fn(&Feedback) -> &Observed| span(info.feedback.as_ref()?).observed_error_rate;
            by(
                "window",
                [
                    ("minute", rate(|feedback| &feedback.minute)),
                    ("hour", rate(|feedback| &feedback.hour)),
                    ("life", rate(|feedback| &feedback.life)),
                ],
            )
        },
    },
    OfFilter {
        name: "bloomery_feedback_checked",
        metric_type: Counter,
        help: "Positive answers that the application has checked (BF.FEEDBACK).",
        samples: |info| life(info, |life| life.checked),
    },
    OfFilter {
        name: "bloomery_feedback_false",
        metric_type: Counter,
        help: "Positive answers that the application found to be false (BF.FEEDBACK).",
        samples: |info| life(info, |life| life.r#false),
    },
    OfFilter {
        name: "bloomery_tests",
        metric_type: Counter,
        help: "Items tested, by answer.",
        samples: |info| {
            let count = |tests: Option<u64>| tests.map(|tests| tests as f64);
            by("result", [("yes", count(info.tests_yes)), ("no", count(info.tests_no))])
        },
    },
    OfFilter {
        name: "bloomery_adds",
        metric_type: Counter,
        help: "Items added, including those already present.",
        samples: |info| number(info.adds),
    },
    OfFilter {
        name: "bloomery_deletes",
        metric_type: Counter,
        help: "Items deleted.",
        samples: |info| number(info.deletes),
    },
    OfFilter {
        name: "bloomery_memory_bytes",
        metric_type: Gauge,
        help: "Memory of the filter, without its key.",
        samples: |info| number(Some(info.bytes())),
    },
    OfFilter {
        name: "bloomery_layers",
        metric_type: Gauge,
        help: "Layers, generations or sub-filters: the number of parts that one test queries.",
        samples: |info| number(Some(info.filters)),
    },
    OfFilter {
        name: "bloomery_generations",
        metric_type: Gauge,
        help: "Generations that a window keeps.",
        samples: |info| number(info.generations),
    },
    OfFilter {
        name: "bloomery_rotations",
        metric_type: Counter,
        help: "Number of the current generation of a window: rotations since its creation.",
        samples: |info| number(info.generation),
    },
    OfFilter {
        name: "bloomery_early_rotations",
        metric_type: Counter,
        help: "Number of times that a full window dropped its oldest items early, to make room.",
        samples: |info| number(info.early_rotations),
    },
    OfFilter {
        name: "bloomery_next_rotation_seconds",
        metric_type: Gauge,
        help: "Time until a window with a schedule rotates.",
        samples: |info| one(info.next_rotation_ms.map(|ms| ms as f64 / 1000.0)),
    },
    OfFilter {
        name: "bloomery_saturated_counters",
        metric_type: Gauge,
        help: "Counters stuck at their maximum: items that use them can no longer be deleted.",
        samples: |info| number(info.saturated_counters),
    },
    OfFilter {
        name: "bloomery_rebuild_running",
        metric_type: Gauge,
        help: "1 while a BF.REBUILD of the filter is in progress.",
        samples: |info| number((info.kind != "cuckoo").then_some(info.rebuild.is_some().into())),
    },
    OfFilter {
        name: "bloomery_rebuild_items",
        metric_type: Gauge,
        help: "Items in the new filter of a rebuild in progress.",
        samples: |info| number(info.rebuild.as_ref().and_then(|rebuild| rebuild.items)),
    },
    OfFilter {
        name: "bloomery_advice_lines",
        metric_type: Gauge,
        help: "Number of entries under Advice in BF.STATS key: 0 if all is well.",
        samples: |info| number(Some(info.advice.len() as u64)),
    },
    OfFilter {
        name: "bloomery_expansion_ratio",
        metric_type: Gauge,
        help: "Size of each layer relative to the previous one. Absent if the filter does not grow.",
        samples: |info| number(info.expansion_rate.filter(|rate| *rate > 0)),
    },
];

/// A metric of each server. Its samples come from `fields` of `INFO bf`, each with a label if there are several.
struct OfServer {
    name: &'static str,
    metric_type: MetricType,
    help: &'static str,
    fields: &'static [(&'static str, Extra)],
}

const OF_SERVERS: [OfServer; 26] = [
    OfServer {
        name: "bloomery_server_filters",
        metric_type: Gauge,
        help: "Filters on the server, by kind; foreign are those created by other systems.",
        fields: &[
            ("fixed_filters", Some(("kind", "fixed"))),
            ("scaling_filters", Some(("kind", "scaling"))),
            ("counting_filters", Some(("kind", "counting"))),
            ("window_filters", Some(("kind", "window"))),
            ("cuckoo_filters", Some(("kind", "cuckoo"))),
            ("foreign_filters", Some(("kind", "foreign"))),
        ],
    },
    OfServer {
        name: "bloomery_server_cell_bytes",
        metric_type: Gauge,
        help: "Bytes of the cells of all filters, including those being loaded or freed.",
        fields: &[("cell_bytes", None)],
    },
    OfServer {
        name: "bloomery_server_freeing_bytes",
        metric_type: Gauge,
        help: "Part of the cell bytes that another thread is freeing.",
        fields: &[("freeing_bytes", None)],
    },
    OfServer {
        name: "bloomery_server_loads",
        metric_type: Gauge,
        help: "LOADCHUNK loads that are waiting for their next piece.",
        fields: &[("loads", None)],
    },
    OfServer {
        name: "bloomery_server_load_bytes",
        metric_type: Gauge,
        help: "Bytes of cells that these loads will have when complete.",
        fields: &[("load_bytes", None)],
    },
    OfServer {
        name: "bloomery_server_load_held_bytes",
        metric_type: Gauge,
        help: "Bytes of memory that these loads hold now.",
        fields: &[("load_held_bytes", None)],
    },
    OfServer {
        name: "bloomery_server_loads_max",
        metric_type: Gauge,
        help: "Maximum number of loads that can wait.",
        fields: &[("loads_max", None)],
    },
    OfServer {
        name: "bloomery_server_load_idle_seconds_max",
        metric_type: Gauge,
        help: "Maximum time that a load can wait for its next piece, in seconds.",
        fields: &[("load_idle_seconds_max", None)],
    },
    OfServer {
        name: "bloomery_server_loads_dropped",
        metric_type: Counter,
        help: "Loads dropped because they made no progress, or because memory was short.",
        fields: &[("loads_dropped", None)],
    },
    OfServer {
        name: "bloomery_server_pool_threads",
        metric_type: Gauge,
        help: "Worker threads, including those of paused jobs.",
        fields: &[("pool_threads", None)],
    },
    OfServer {
        name: "bloomery_server_pool_forks",
        metric_type: Counter,
        help: "Commands that ran in parallel on workers and the main thread.",
        fields: &[("pool_forks", None)],
    },
    OfServer {
        name: "bloomery_server_pool_jobs",
        metric_type: Counter,
        help: "Commands that ran on workers while the server served others.",
        fields: &[("pool_jobs", None)],
    },
    OfServer {
        name: "bloomery_server_pool_jobs_running",
        metric_type: Gauge,
        help: "Jobs in progress on workers.",
        fields: &[("pool_jobs_running", None)],
    },
    OfServer {
        name: "bloomery_server_pool_jobs_queued",
        metric_type: Gauge,
        help: "Jobs that are waiting for a worker.",
        fields: &[("pool_jobs_queued", None)],
    },
    OfServer {
        name: "bloomery_server_pool_jobs_paused",
        metric_type: Gauge,
        help: "Jobs that have begun and are waiting for their next turn, each with a thread.",
        fields: &[("pool_jobs_paused", None)],
    },
    OfServer {
        name: "bloomery_server_offloaded_items",
        metric_type: Counter,
        help: "Items of BF.BULKTEST that workers tested while the server served others.",
        fields: &[("offloaded_items", None)],
    },
    OfServer {
        name: "bloomery_server_clients_waiting",
        metric_type: Gauge,
        help: "Clients that are waiting for workers: for a BF.BULKTEST, or for a command that works in the background.",
        fields: &[("clients_waiting", None)],
    },
    OfServer {
        name: "bloomery_server_clients_waiting_max",
        metric_type: Gauge,
        help: "Maximum number of clients that can wait for workers.",
        fields: &[("clients_waiting_max", None)],
    },
    OfServer {
        name: "bloomery_server_waiting_bytes",
        metric_type: Gauge,
        help: "Bytes of the arguments of clients that are waiting for workers.",
        fields: &[("waiting_bytes", None)],
    },
    OfServer {
        name: "bloomery_server_waiting_bytes_max",
        metric_type: Gauge,
        help: "Maximum number of bytes of these arguments.",
        fields: &[("waiting_bytes_max", None)],
    },
    OfServer {
        name: "bloomery_server_clients_in_pieces",
        metric_type: Gauge,
        help: "Clients whose command continues in pieces.",
        fields: &[("clients_in_pieces", None)],
    },
    OfServer {
        name: "bloomery_server_promised_bytes",
        metric_type: Gauge,
        help: "Bytes of memory that are reserved for commands that work in the background.",
        fields: &[("promised_bytes", None)],
    },
    OfServer {
        name: "bloomery_server_waiting_refused",
        metric_type: Counter,
        help: "Commands refused because too many were waiting for workers.",
        fields: &[("waiting_refused", None)],
    },
    OfServer {
        name: "bloomery_server_waiting_dropped",
        metric_type: Counter,
        help: "Commands abandoned because their client had disconnected or their filter had left its key.",
        fields: &[("waiting_dropped", None)],
    },
    OfServer {
        name: "bloomery_server_payloads_refused",
        metric_type: Counter,
        help: "Payloads refused by RESTORE, RDB loading, LOADCHUNK, BF.IMPORT, BF.LOAD and BF.MERGE.",
        fields: &[("payloads_refused", None)],
    },
    OfServer {
        name: "bloomery_server_panics",
        metric_type: Counter,
        help: "Panics of the module that were caught. Each is in the server's log.",
        fields: &[("panics", None)],
    },
];

/// The page at /metrics.
pub(super) fn text(snapshot: Snapshot) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(snapshot));
    let mut page = String::new();
    // Writing to a String does not fail, and neither does the collector.
    let _ = text::encode(&mut page, &registry);
    page
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut page = Page(&mut encoder);
        self.encode_servers(&mut page)?;
        self.encode_filters(&mut page)?;
        self.encode_survey(&mut page)?;
        self.encode_exporter(&mut page)
    }
}

impl Snapshot {
    fn encode_servers(&self, page: &mut Page<'_, '_>) -> fmt::Result {
        let label = |node: &NodeReading| vec![("node", node.address.clone())];
        let up = |node: &NodeReading| (label(node), f64::from(u8::from(node.totals.is_some())));
        let help = "1 if the server replies and has the module, else 0.";
        page.family("bloomery_up", Gauge, help, self.nodes.iter().map(up))?;
        for OfServer { name, metric_type, help, fields } in &OF_SERVERS {
            let samples = self.nodes.iter().flat_map(|node| {
                fields.iter().filter_map(move |(field, extra)| {
                    let value = *node.totals.as_ref()?.get(*field)?;
                    Some((with(label(node), *extra), value as f64))
                })
            });
            page.family(name, *metric_type, help, samples)?;
        }
        Ok(())
    }

    fn encode_filters(&self, page: &mut Page<'_, '_>) -> fmt::Result {
        let filters: BTreeMap<&[u8], (&NodeReading, &FilterKey, &FilterInfo)> = self
            .nodes
            .iter()
            .flat_map(|node| {
                node.filters.iter().map(move |(key, info)| (key.name.as_slice(), (node, key, info)))
            })
            .collect();
        let labels: Vec<Labels> = filters.values().map(|(_, key, info)| self.labels(key, info)).collect();
        for OfFilter { name, metric_type, help, samples } in &OF_FILTERS {
            let samples = filters.values().zip(&labels).flat_map(|((_, _, info), labels)| {
                samples(info).into_iter().map(move |(extra, value)| (with(labels.clone(), extra), value))
            });
            page.family(name, *metric_type, help, samples)?;
        }
        let about = filters.values().zip(&labels).map(|((node, _, info), labels)| {
            let about = [
                ("node", Some(&node.address)),
                ("origin", Some(&info.origin).filter(|origin| !origin.is_empty())),
                ("layout", info.layout.as_ref()),
                ("hash", info.hash.as_ref()),
                ("on_full", info.on_full.as_ref()),
            ];
            let known = about.into_iter().filter_map(|(name, value)| Some((name, value?.clone())));
            (labels.iter().cloned().chain(known).collect(), 1.0)
        });
        page.family("bloomery_filter", Info, "Properties of a filter, as labels: always 1.", about)
    }

    /// The labels that all metrics of a filter have. The node isn't among them, so they stay the same when a filter
    /// moves within a cluster. `db` is left out if it is 0; in a query, `db=""` matches such filters.
    fn labels(&self, key: &FilterKey, info: &FilterInfo) -> Labels {
        let mut labels = vec![("key", output::key(&key.name)), ("kind", info.kind.clone())];
        if self.db != 0 {
            labels.push(("db", self.db.to_string()));
        }
        labels
    }

    fn encode_survey(&self, page: &mut Page<'_, '_>) -> fmt::Result {
        let Some((finished, took)) = self.survey.finished else { return Ok(()) };
        let by_kind = |value: fn(&(u64, u64)) -> u64| {
            let totals = &self.survey.totals;
            totals.iter().map(move |(kind, total)| (vec![("kind", kind.clone())], value(total) as f64))
        };
        let help = "Filters that match --keys, including those beyond --max-filters.";
        page.family("bloomery_filters", Gauge, help, by_kind(|total| total.0))?;
        let help = "Memory of all filters that match --keys.";
        page.family("bloomery_filters_memory_bytes", Gauge, help, by_kind(|total| total.1))?;
        let help = "Filters beyond --max-filters: only the totals include them.";
        page.single("bloomery_filters_without_label", help, self.survey.without_label as f64)?;
        let help = "Filters that the user of the exporter has no permission to read.";
        page.single("bloomery_filters_without_permission", help, self.survey.without_permission as f64)?;
        let help = "When the last complete search of the keyspace ended, in Unix time.";
        let when = finished.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        page.single("bloomery_exporter_survey_timestamp_seconds", help, when)?;
        let help = "How long the last complete search took.";
        page.single("bloomery_exporter_survey_seconds", help, took.as_secs_f64())
    }

    fn encode_exporter(&self, page: &mut Page<'_, '_>) -> fmt::Result {
        let help = "How long the servers took to reply for this page.";
        page.single("bloomery_exporter_scrape_seconds", help, self.seconds)?;
        let help = "Number of scrapes.";
        page.family("bloomery_exporter_scrapes", Counter, help, [(vec![], self.scrapes as f64)])?;
        let version = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
        page.family(
            "bloomery_exporter_build",
            Info,
            "Version of this exporter: always 1.",
            [(version, 1.0)],
        )?;
        for (name, metric_type, help, value) in process::figures() {
            page.family(name, metric_type, help, [(vec![], value)])?;
        }
        Ok(())
    }
}

type Labels = Vec<(&'static str, String)>;

fn with(mut labels: Labels, extra: Extra) -> Labels {
    labels.extend(extra.map(|(name, value)| (name, value.to_owned())));
    labels
}

fn sample(metric: &mut MetricEncoder<'_>, metric_type: MetricType, value: f64) -> fmt::Result {
    match metric_type {
        Counter => metric.encode_counter::<Labels, f64, f64>(&value, None),
        _ => metric.encode_gauge(&value),
    }
}

/// Writes metric families.
struct Page<'p, 'e>(&'p mut DescriptorEncoder<'e>);

impl Page<'_, '_> {
    /// Writes a metric family, unless it has no samples.
    fn family(
        &mut self,
        name: &str,
        metric_type: MetricType,
        help: &str,
        samples: impl IntoIterator<Item = (Labels, f64)>,
    ) -> fmt::Result {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return Ok(());
        }
        let mut family = self.0.encode_descriptor(name, help, None, metric_type)?;
        for (labels, value) in samples {
            match metric_type {
                Info => family.encode_info(&labels)?,
                _ if labels.is_empty() => sample(&mut family, metric_type, value)?,
                _ => sample(&mut family.encode_family(&labels)?, metric_type, value)?,
            }
        }
        Ok(())
    }

    /// Writes a gauge with one sample, without labels.
    fn single(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        self.family(name, Gauge, help, [(vec![], value)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::exporter::survey::Survey;
    use crate::filter::info::Rebuild;
    use crate::server::key::KeyType;
    use std::sync::Arc;
    use std::time::{Duration, SystemTime};

    fn reading(address: &str, filters: Vec<(&[u8], FilterInfo)>) -> NodeReading {
        let key = |name: &[u8]| FilterKey { name: name.into(), key_type: KeyType::Bloomery };
        NodeReading {
            address: address.into(),
            totals: Some(
                [("panics", 2), ("window_filters", 1), ("unheard_of", 9)].map(|(n, v)| (n.into(), v)).into(),
            ),
            filters: filters.into_iter().map(|(name, info)| (key(name), info)).collect(),
        }
    }

    fn page(db: i64, nodes: Vec<NodeReading>) -> Vec<String> {
        let survey = Arc::new(Survey {
            totals: [("fixed".to_owned(), (3, 600))].into(),
            without_label: 2,
            finished: Some((SystemTime::UNIX_EPOCH, Duration::from_millis(1500))),
            ..Survey::default()
        });
        let snapshot = Snapshot { nodes, survey, db, scrapes: 5, seconds: 0.25 };
        text(snapshot).lines().map(str::to_owned).collect()
    }

    #[track_caller]
    fn has(page: &[String], line: &str) {
        assert!(page.iter().any(|found| found == line), "no {line} in:\n{}", page.join("\n"));
    }

    #[test]
    fn every_value_is_on_the_page() {
        let life =
            Observed { checked: 40, r#false: 4, observed_error_rate: Some(0.02), ..Observed::default() };
        let info = FilterInfo {
            kind: "window".into(),
            cells: Some(1000),
            bits_per_cell: Some(4),
            generation: Some(7),
            next_rotation_ms: Some(1500),
            tests_yes: Some(3),
            tests_no: Some(u64::MAX),
            memory: Some(900),
            size: 800,
            feedback: Some(Feedback { life, ..Feedback::default() }),
            rebuild: Some(Rebuild { items: Some(11), ..Rebuild::default() }),
            advice: vec!["over capacity".into()],
            ..FilterInfo::default()
        };
        let page = page(0, vec![reading("a:1", vec![(b"w", info)])]);
        for (name, value) in [
            ("cell_bytes", "500.0"),
            ("rotations_total", "7.0"),
            ("next_rotation_seconds", "1.5"),
            ("memory_bytes", "900.0"),
            ("feedback_checked_total", "40.0"),
            ("feedback_false_total", "4.0"),
            ("rebuild_running", "1.0"),
            ("rebuild_items", "11.0"),
            ("advice_lines", "1.0"),
        ] {
            has(&page, &format!("bloomery_{name}{{key=\"w\",kind=\"window\"}} {value}"));
        }
        for line in [
            "bloomery_observed_error_ratio{key=\"w\",kind=\"window\",window=\"life\"} 0.02",
            "bloomery_tests_total{key=\"w\",kind=\"window\",result=\"yes\"} 3.0",
            "bloomery_filter_info{key=\"w\",kind=\"window\",node=\"a:1\"} 1",
            "bloomery_up{node=\"a:1\"} 1.0",
            "bloomery_server_panics_total{node=\"a:1\"} 2.0",
            "bloomery_server_filters{node=\"a:1\",kind=\"window\"} 1.0",
            "bloomery_filters{kind=\"fixed\"} 3.0",
            "bloomery_filters_memory_bytes{kind=\"fixed\"} 600.0",
            "bloomery_filters_without_label 2.0",
            "bloomery_filters_without_permission 0.0",
            "bloomery_exporter_survey_timestamp_seconds 0.0",
            "bloomery_exporter_survey_seconds 1.5",
            "bloomery_exporter_scrape_seconds 0.25",
            "bloomery_exporter_scrapes_total 5.0",
            "# TYPE bloomery_tests counter",
            "# EOF",
        ] {
            has(&page, line);
        }
    }

    #[test]
    fn what_is_not_known_is_not_on_the_page() {
        let down = NodeReading { address: "b:2".into(), totals: None, filters: vec![] };
        let cuckoo = FilterInfo { kind: "cuckoo".into(), cells: Some(8), ..FilterInfo::default() };
        let page = page(3, vec![reading("a:1", vec![(b"c", cuckoo)]), down]);
        has(&page, "bloomery_up{node=\"b:2\"} 0.0");
        has(&page, "bloomery_cell_bytes{key=\"c\",kind=\"cuckoo\",db=\"3\"} 8.0");
        for name in [
            "observed_error",
            "tests",
            "fill",
            "full_fill",
            "rotations",
            "rebuild",
            "error",
            "saturated",
            "server_loads",
        ] {
            assert!(!page.iter().any(|line| line.contains(&format!("bloomery_{name}"))), "{name}");
        }
        assert!(!page.iter().any(|line| line.contains("panics") && line.contains("b:2")));
    }

    #[test]
    fn a_filter_between_two_nodes_is_there_once_and_any_key_can_be_told_from_any_other() {
        let info = |kind: &str| FilterInfo { kind: kind.into(), ..FilterInfo::default() };
        let names: [&[u8]; 4] = [b"\xff", b"\\xff", b"\"\n", b"both"];
        let here = names.iter().map(|name| (*name, info("fixed"))).collect();
        let page = page(0, vec![reading("a:1", here), reading("b:2", vec![(b"both", info("fixed"))])]);
        let keys: Vec<&str> = page
            .iter()
            .filter_map(|line| line.strip_prefix("bloomery_items{key=")?.strip_suffix(",kind=\"fixed\"} 0.0"))
            .collect();
        assert_eq!(keys, [r#""\"\\x0a""#, r#""\\\\xff""#, r#""both""#, r#""\\xff""#]);
    }

    #[test]
    fn names_and_helps_are_as_prometheus_wants_them() {
        let all = OF_FILTERS.iter().map(|metric| (metric.name, metric.help));
        for (name, help) in all.chain(OF_SERVERS.iter().map(|metric| (metric.name, metric.help))) {
            assert!(
                name.starts_with("bloomery_")
                    && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
            );
            assert!(!name.ends_with("_total"), "{name}: the encoder adds it");
            assert!(help.ends_with('.') && help.len() <= 110 && !help.contains(['\n', '\\']), "{help}");
        }
    }
}
