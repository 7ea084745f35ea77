//! Prometheus's text format from before OpenMetrics (version 0.0.4). It has the same samples, but different metadata
//! lines.

use std::fmt::Write;

/// Converts a page from the OpenMetrics format to the older one.
///
/// In the older format, a family has the same name as its samples, so the name of a counter's family ends in `_total`,
/// and that of an info's family in `_info`. The format has no type for infos, which become gauges, and no end marker.
pub(super) fn page(openmetrics: &str) -> String {
    let mut page = String::with_capacity(openmetrics.len());
    let mut help = "";
    for line in openmetrics.lines() {
        if let Some(text) = line.strip_prefix("# HELP ") {
            help = text; // the family's name depends on the type, which follows
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => ("_total", kind),
                "info" => ("_info", "gauge"),
                _ => ("", kind),
            };
            let help = help.strip_prefix(name).unwrap_or_default();
            // Writing to a String does not fail.
            let _ = write!(page, "# HELP {name}{suffix}{help}\n# TYPE {name}{suffix} {kind}\n");
        } else if !line.starts_with('#') {
            page.push_str(line);
            page.push('\n');
        }
    }
    page
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_of_families_are_those_of_their_samples() {
        let openmetrics = "# HELP up Is it up.\n# TYPE up gauge\nup 1.0\n# HELP adds Items.\n# TYPE adds counter\n\
                           adds_total{key=\"# HELP x\"} 2.0\n# HELP build Version.\n# TYPE build info\n\
                           build_info{version=\"1\"} 1\n# EOF\n";
        let classic = "# HELP up Is it up.\n# TYPE up gauge\nup 1.0\n# HELP adds_total Items.\n# TYPE adds_total counter\n\
                       adds_total{key=\"# HELP x\"} 2.0\n# HELP build_info Version.\n# TYPE build_info gauge\n\
                       build_info{version=\"1\"} 1\n";
        assert_eq!(super::page(openmetrics), classic);
    }
}
