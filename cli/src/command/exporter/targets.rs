//! The file of `--targets`: the servers that /probe may ask, with their credentials.

use crate::error::Failure;
use crate::server::connection::Server;
use anyhow::Context;
use clap::builder::Resettable;
use clap::{CommandFactory, FromArgMatches};
use redis::IntoConnectionInfo;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Maximum number of targets. Each has a thread, up to two connections, and places for requests: together about 700
/// file descriptors, and the usual limit is 1024.
const MOST_TARGETS: usize = 100;

/// The options after the URL in a line.
#[derive(clap::Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
#[command(mut_arg("timeout", |timeout| timeout.default_value("3")))]
struct Line {
    #[arg(long, conflicts_with = "password")]
    password_file: Option<PathBuf>,

    #[command(flatten)]
    server: Server,
}

/// Reads the file. The key of each target is its URL, as the file spells it.
pub(super) fn read(path: &Path) -> anyhow::Result<BTreeMap<String, Server>> {
    let name = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
    let targets = parse(&text).map_err(|why| Failure::Usage(format!("{why} ({name})")))?;
    Ok(targets)
}

fn parse(text: &str) -> Result<BTreeMap<String, Server>, String> {
    let mut targets = BTreeMap::new();
    for (number, line) in (1..).zip(text.lines()) {
        let mut words = line.split_whitespace();
        let Some(url) = words.next().filter(|word| !word.starts_with('#')) else { continue };
        let server = target(url, words).map_err(|why| format!("{why}, in line {number}"))?;
        if targets.insert(url.to_owned(), server).is_some() {
            return Err(format!("a target is named twice, in line {number}"));
        }
    }
    match targets.len() {
        0 => Err("no target; write one on each line, such as redis://cache.example:6379".into()),
        1..=MOST_TARGETS => Ok(targets),
        many => Err(format!("{many} targets; start several exporters, each with at most {MOST_TARGETS}")),
    }
}

/// The server with this URL and these options. The environment has no influence: its password would be sent to every
/// target.
fn target<'a>(url: &'a str, options: impl Iterator<Item = &'a str>) -> Result<Server, String> {
    let address = url.into_connection_info().map_err(|error| format!("not the URL of a server: {error}"))?;
    let settings = address.redis_settings();
    if settings.username().or(settings.password()).is_some() {
        return Err("a URL with a user or password, which Prometheus would show; write --user and \
                    --password-file after the URL"
            .into());
    }
    let command = Line::command().mut_args(|argument| argument.env(Resettable::Reset));
    let matches = command.try_get_matches_from(["--url", url].into_iter().chain(options));
    let line = matches.and_then(|matches| Line::from_arg_matches(&matches)).map_err(|error| {
        let text = error.to_string();
        text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
    })?;
    let password = line.password_file.map(|path| match std::fs::read_to_string(&path) {
        Ok(text) => Ok(text.trim_end_matches(['\r', '\n']).to_owned()),
        Err(error) => Err(format!("cannot read {}: {error}", path.display())),
    });
    let server = line.server.without_environment(password.transpose()?);
    server.address().map_err(|error| crate::error::text(&error))?; // mistakes show before anything starts
    Ok(server)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_url_and_options() {
        let secret = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(secret.path(), "pass word\n").unwrap();
        let file = secret.path().display();
        let text = format!(
            "# servers\n\n  redis://a:1 --user ada --password-file {file} --db 3\nrediss://b:2 --timeout 1\n"
        );
        let targets = parse(&text).unwrap();
        assert_eq!(targets.keys().collect::<Vec<_>>(), ["redis://a:1", "rediss://b:2"]);
        let first = targets["redis://a:1"].address().unwrap();
        let settings = first.redis_settings();
        assert_eq!((settings.username(), settings.password()), (Some("ada"), Some("pass word")));
        assert_eq!((first.addr().to_string().as_str(), settings.db()), ("a:1", 3));
        assert_eq!(targets["rediss://b:2"].reply_timeout().as_secs(), 1);
        assert_eq!(targets["redis://a:1"].reply_timeout().as_secs(), 3);
    }

    #[test]
    fn mistakes_name_their_line() {
        let many: String = (0..=MOST_TARGETS).map(|port| format!("redis://a:{port}\n")).collect();
        for (text, why) in [
            ("# none\n", "no target; write one on each line"),
            ("redis://a:1\nredis://a:1\n", "a target is named twice, in line 2"),
            ("redis://ada:secret@a:1\n", "a URL with a user or password"),
            ("unix:///a?pass=secret\n", "a URL with a user or password"),
            ("\nhttp://a\n", "not the URL of a server"),
            ("redis://a:1 --nothing\n", "unexpected argument '--nothing' found, in line 1"),
            ("redis://a:1 --password-file /nonexistent\n", "cannot read /nonexistent"),
            ("redis://a:1 --cacert /nonexistent\n", "cannot read /nonexistent"),
            ("redis://a:1 --password x --password-file y\n", "cannot be used with"),
            (many.as_str(), "101 targets; start several exporters"),
        ] {
            let error = parse(text).err().unwrap_or_else(|| panic!("{text}"));
            assert!(error.contains(why) && !error.contains("secret"), "{text}: {error}");
        }
    }
}
