//! Formats the servers' replies as metrics, in Prometheus's text format (version 0.0.4): every program that collects
//! metrics can read it.
//!
//! The rows of [`Summary`] define the metrics of a filter, and the fields of INFO those of a server. The documents list
//! the same names; a test compares them.

use super::process;
use super::snapshot::{NodeReading, Snapshot};
use crate::output;
use crate::server::key::FilterKey;
use bloomery::Summary;
use bloomery::filter::record::Record;
use bloomery_commands::info::SECTIONS;
use bloomery_commands::tenants::FIGURES;
use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::time::UNIX_EPOCH;

/// A label in addition to those of the filter or server.
type Extra = Option<(&'static str, &'static str)>;

/// The page of a server or cluster.
pub(super) fn text(snapshot: &Snapshot) -> String {
    let mut page = Page::default();
    snapshot.write_servers(&mut page);
    snapshot.write_tenants(&mut page);
    snapshot.write_filters(&mut page);
    snapshot.write_survey(&mut page);
    snapshot.write_scrape(&mut page);
    page.0
}

/// The metrics of the exporter itself.
pub(super) fn exporter() -> String {
    let mut page = Page::default();
    let version = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
    page.family("bloomery_exporter_build_info", "Version of this exporter: always 1.", [(version, 1.0)]);
    for (name, help, value) in process::figures() {
        page.single(name, help, value);
    }
    page.0
}

impl Snapshot {
    fn write_servers(&self, page: &mut Page) {
        let label = |node: &NodeReading| vec![("node", node.address.clone())];
        let up = |node: &NodeReading| (label(node), f64::from(u8::from(node.totals.is_some())));
        let help = "1 if the server replies and has the module, else 0.";
        page.family("bloomery_up", help, self.nodes.iter().map(up));
        let value = |node: &NodeReading, name: &str| Some(*node.totals.as_ref()?.get(name)? as f64);
        let help = "Filters on the server, by kind; foreign are those created by other systems.";
        // A field that is exported by itself, such as evicted_filters, isn't a kind.
        let fields = || {
            let fields = SECTIONS.iter().flat_map(|(_, fields)| *fields);
            fields.filter(|field| field.metric().is_none()).filter_map(|field| field.name().to_str().ok())
        };
        let by_kind = self.nodes.iter().flat_map(|node| {
            fields().filter_map(move |name| {
                Some((with(label(node), Some(("kind", name.strip_suffix("_filters")?))), value(node, name)?))
            })
        });
        page.family("bloomery_server_filters", help, by_kind);
        for field in SECTIONS.iter().flat_map(|(_, fields)| *fields) {
            let (Some((is_counter, help)), Ok(name)) = (field.metric(), field.name().to_str()) else {
                continue;
            };
            let samples = self.nodes.iter().filter_map(|node| Some((label(node), value(node, name)?)));
            page.family(&full(&format!("bloomery_server_{name}"), is_counter), help, samples);
        }
    }

    fn write_tenants(&self, page: &mut Page) {
        for figure in &FIGURES {
            let Ok(name) = figure.name.to_str() else { continue };
            let samples = self.nodes.iter().flat_map(|node| {
                node.tenants.iter().filter_map(move |tenant| {
                    let labels = vec![("node", node.address.clone()), ("prefix", tenant.prefix.clone())];
                    Some((labels, *tenant.figures.get(name)? as f64))
                })
            });
            page.family(&full(&format!("bloomery_tenant_{name}"), figure.is_counter), figure.help, samples);
        }
    }

    fn write_filters(&self, page: &mut Page) {
        let filters: BTreeMap<&[u8], (&NodeReading, &FilterKey, &Summary)> = self
            .nodes
            .iter()
            .flat_map(|node| node.filters.iter().map(move |(key, info)| (&*key.name, (node, key, info))))
            .collect();
        let labels: Vec<Labels> = filters.values().map(|(_, key, info)| self.labels(key, info)).collect();
        for (row, metric) in
            Summary::ROWS.iter().flat_map(|row| row.metrics.iter().map(move |metric| (row, metric)))
        {
            let samples = filters.values().zip(&labels).flat_map(|((_, _, info), labels)| {
                let samples = row.samples(metric, info).into_iter();
                samples.filter_map(move |(extra, value)| Some((with(labels.clone(), extra), value?)))
            });
            page.family(&full(metric.name, metric.is_counter), metric.help, samples);
        }
        let about = filters.values().zip(&labels).map(|((node, _, info), labels)| {
            let about = [
                ("node", Some(node.address.as_str())),
                ("origin", Some(&*info.origin).filter(|origin| !origin.is_empty())),
                ("layout", info.layout.as_deref()),
                ("hash", info.hash.as_deref()),
                ("on_full", info.on_full.as_deref()),
            ];
            let known = about.into_iter().filter_map(|(name, value)| Some((name, value?.to_owned())));
            (labels.iter().cloned().chain(known).collect(), 1.0)
        });
        page.family("bloomery_filter_info", "Properties of a filter, as labels: always 1.", about);
    }

    /// The labels that all metrics of a filter have. The node isn't among them, so they stay the same when a filter
    /// moves within a cluster. `db` is left out if it is 0; in a query, `db=""` matches such filters.
    fn labels(&self, key: &FilterKey, info: &Summary) -> Labels {
        let mut labels = vec![("key", output::key(&key.name)), ("kind", info.kind.to_string())];
        if self.db != 0 {
            labels.push(("db", self.db.to_string()));
        }
        labels
    }

    fn write_survey(&self, page: &mut Page) {
        let help = "1 if the last search of the keyspace was complete, 0 if it failed.";
        let success = self.survey.success.map(|success| (vec![], f64::from(u8::from(success))));
        page.family("bloomery_exporter_survey_success", help, success);
        let Some((finished, took)) = self.survey.finished else { return };
        let by_kind = |value: fn(&(u64, u64)) -> u64| {
            let totals = &self.survey.totals;
            totals.iter().map(move |(kind, total)| (vec![("kind", kind.clone())], value(total) as f64))
        };
        let help = "Filters that match --keys, including those beyond --max-filters.";
        page.family("bloomery_filters", help, by_kind(|total| total.0));
        let help = "Memory of all filters that match --keys.";
        page.family("bloomery_filters_memory_bytes", help, by_kind(|total| total.1));
        let help = "Filters without metrics of their own: beyond --max-filters, or with too long a name.";
        page.single("bloomery_filters_without_label", help, self.survey.without_label as f64);
        let help = "Filters that the user of the exporter has no permission to read.";
        page.single("bloomery_filters_without_permission", help, self.survey.without_permission as f64);
        let help = "When the last complete search of the keyspace ended, in Unix time.";
        let when = finished.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        page.single("bloomery_exporter_survey_timestamp_seconds", help, when);
        let help = "How long the last complete search took.";
        page.single("bloomery_exporter_survey_seconds", help, took.as_secs_f64());
    }

    fn write_scrape(&self, page: &mut Page) {
        let help = "How long the servers took to reply for this page.";
        page.single("bloomery_exporter_scrape_seconds", help, self.seconds);
        let help = "Number of scrapes.";
        page.single("bloomery_exporter_scrapes_total", help, self.scrapes as f64);
    }
}

type Labels = Vec<(&'static str, String)>;

fn with(mut labels: Labels, extra: Extra) -> Labels {
    labels.extend(extra.map(|(name, value)| (name, value.to_owned())));
    labels
}

/// The name of a metric in the format: a counter's ends in `_total`.
fn full(name: &str, is_counter: bool) -> String {
    format!("{name}{}", if is_counter { "_total" } else { "" })
}

/// Writes metric families.
#[derive(Default)]
struct Page(String);

impl Page {
    /// Writes a metric family, unless it has no samples. It is a counter if its name ends in `_total`, else a gauge.
    fn family(&mut self, name: &str, help: &str, samples: impl IntoIterator<Item = (Labels, f64)>) {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return;
        }
        let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
        self.line(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}"));
        for (labels, value) in samples {
            let escaped = |text: &str| text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
            let labels: Vec<_> =
                labels.iter().map(|(name, text)| format!("{name}=\"{}\"", escaped(text))).collect();
            match labels.as_slice() {
                [] => self.line(format_args!("{name} {value}")),
                labels => self.line(format_args!("{name}{{{}}} {value}", labels.join(","))),
            }
        }
    }

    /// Writes a metric with one sample, without labels.
    fn single(&mut self, name: &str, help: &str, value: f64) {
        self.family(name, help, [(vec![], value)]);
    }

    fn line(&mut self, line: impl Display) {
        // Writing to a String does not fail.
        let _ = writeln!(self.0, "{line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_between_two_nodes_is_there_once() {
        let node = |address: &str| NodeReading {
            address: address.into(),
            totals: None,
            tenants: Vec::new(),
            filters: vec![(
                FilterKey { name: b"k".as_slice().into(), key_type: "bloomery1" },
                Summary::default(),
            )],
        };
        let nodes = vec![node("a:1"), node("b:2")];
        let page = text(&Snapshot { nodes, survey: Default::default(), db: 0, scrapes: 1, seconds: 0.5 });
        assert_eq!(page.matches("\nbloomery_items{").count(), 1, "{page}");
    }
}
