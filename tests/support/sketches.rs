//! Count-min sketches, Top-K sketches and t-digests in tests: RedisBloom's recorded answers, and values as fields.

use super::fake_server::{Content, FakeServer};
use super::rdb::{Dump, Fields};
use bloomery_commands::{CommandError, DataType, ForEach, Reply, Stored, double_text, for_each};
use serde_json::Value as Json;
use std::any::Any;
use std::fs;

/// A file in tests/fixtures/sketches.
pub(crate) fn fixture(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/fixtures/sketches/{name}", env!("CARGO_MANIFEST_DIR"));
    fs::read(path).expect("the fixture is in the repository")
}

/// The entries of a JSON file in tests/fixtures/sketches.
pub(crate) fn entries(name: &str) -> Vec<Json> {
    match serde_json::from_slice(&fixture(name)) {
        Ok(Json::Array(entries)) => entries,
        other => panic!("{other:?}"),
    }
}

/// Recorded bytes, each stored as the character with the same number.
pub(crate) fn bytes(text: &Json) -> Vec<u8> {
    let text = text.as_str().expect("a text");
    text.chars().map(|c| u8::try_from(u32::from(c)).expect("a byte")).collect()
}

/// Recorded words.
pub(crate) fn words(command: &Json) -> Vec<Vec<u8>> {
    command.as_array().expect("words").iter().map(bytes).collect()
}

/// Loads a value into a key.
pub(crate) fn load(server: &FakeServer, key: &str, dump: &Dump) -> Result<(), String> {
    struct Load<'d>(&'d Dump, Option<Result<Content, String>>);
    impl ForEach for Load<'_> {
        fn data_type<D: DataType>(&mut self) {
            if D::NAME.to_str() == Ok(&self.0.name) {
                let mut fields = self.0.fields.clone();
                let value = D::load(&mut fields, self.0.encoding);
                assert!(value.is_err() || fields.0.is_empty(), "fields are left");
                self.1 = Some(value.map(|value| Content::Sketch(Box::new(value))));
            }
        }
    }
    let mut load = Load(dump, None);
    for_each(&mut load);
    server.put(key, load.1.expect("a type of ours")?);
    Ok(())
}

/// The value in a key, as it is saved.
pub(crate) fn save(server: &FakeServer, key: &str) -> Dump {
    struct Save<'c>(&'c Content, Option<Dump>);
    impl ForEach for Save<'_> {
        fn data_type<D: DataType>(&mut self) {
            let Content::Sketch(value) = self.0 else { return };
            if let Some(value) = value.downcast_ref::<D::Value>() {
                let mut fields = Fields::default();
                D::save(value, &mut fields);
                let name = D::NAME.to_str().expect("a name").to_owned();
                self.1 = Some(Dump { name, encoding: D::ENCODING.unsigned_abs(), fields });
            }
        }
    }
    let keys = server.keys.borrow();
    let content = keys[key.as_bytes()].borrow();
    let mut save = Save(&content, None);
    for_each(&mut save);
    save.1.expect("a sketch")
}

/// Bytes of a value.
pub(crate) fn bytes_of(sketch: &dyn Any) -> u64 {
    struct Bytes<'s>(&'s dyn Any, u64);
    impl ForEach for Bytes<'_> {
        fn data_type<D: DataType>(&mut self) {
            self.1 += self.0.downcast_ref::<D::Value>().map_or(0, Stored::bytes);
        }
    }
    let mut bytes = Bytes(sketch, 0);
    for_each(&mut bytes);
    bytes.1
}

/// An outcome as bytes of the protocol, for these commands' replies. `command` is the first word.
pub(crate) fn resp(outcome: &Result<Reply, CommandError>, resp3: bool, command: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    match outcome {
        Ok(reply) => put(reply, resp3, &mut text),
        Err(CommandError::Arity) => {
            let command = String::from_utf8_lossy(command).to_ascii_lowercase();
            text.extend(format!("-ERR wrong number of arguments for '{command}' command\r\n").bytes());
        }
        Err(error) => text.extend(format!("-{error}\r\n").bytes()),
    }
    text
}

fn put(reply: &Reply, resp3: bool, text: &mut Vec<u8>) {
    let line = |line: String, text: &mut Vec<u8>| text.extend(format!("{line}\r\n").bytes());
    let bulk = |bytes: &[u8], text: &mut Vec<u8>| {
        line(format!("${}", bytes.len()), text);
        text.extend_from_slice(bytes);
        text.extend_from_slice(b"\r\n");
    };
    let null = if resp3 { "_" } else { "$-1" };
    match reply {
        Reply::Ok => line("+OK".to_owned(), text),
        Reply::Integer(value) => line(format!(":{value}"), text),
        Reply::Bool(value) if resp3 => line(format!("#{}", if *value { 't' } else { 'f' }), text),
        Reply::Bool(value) => line(format!(":{}", u8::from(*value)), text),
        Reply::Double(value) if resp3 => line(format!(",{}", double_text(*value)), text),
        Reply::Double(value) => bulk(double_text(*value).as_bytes(), text),
        Reply::ServersDouble(value) if resp3 => line(format!(",{}", servers_text(*value)), text),
        Reply::ServersDouble(value) => bulk(servers_text(*value).as_bytes(), text),
        Reply::Bulk(bytes) => bulk(bytes, text),
        Reply::Null => line(null.to_owned(), text),
        Reply::Array(replies) => {
            line(format!("*{}", replies.len()), text);
            replies.iter().for_each(|reply| put(reply, resp3, text));
        }
        Reply::Map(fields) => {
            line(if resp3 { format!("%{}", fields.len()) } else { format!("*{}", 2 * fields.len()) }, text);
            for (name, value) in fields {
                line(format!("+{name}"), text);
                put(value, resp3, text);
            }
        }
        Reply::Counts(counts, error) => {
            line(format!("*{}", counts.len()), text);
            for count in counts {
                match error {
                    Some(error) if *count == u32::MAX => line(format!("-{error}"), text),
                    _ => line(format!(":{count}"), text),
                }
            }
        }
        Reply::Items(items) => {
            line(format!("*{}", items.len()), text);
            items.iter().for_each(|item| match item {
                Some(item) => bulk(item, text),
                None => line(null.to_owned(), text),
            });
        }
        Reply::Answers(answers) => {
            line(format!("*{}", answers.answers.len()), text);
            for answer in &answers.answers {
                match (&answers.error, *answer) {
                    (Some(error), bloomery_commands::Answer::Refused) => line(format!("-{error}"), text),
                    (_, answer) => put(&Reply::Bool(answer == bloomery_commands::Answer::Yes), resp3, text),
                }
            }
        }
        other => panic!("{other:?} is no reply of a sketch"),
    }
}

/// A number as Redis 8 writes it: with an exponent, if that is shorter.
fn servers_text(number: f64) -> String {
    let scientific = format!("{number:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific.to_lowercase() };
    let exponent: i32 = exponent.parse().expect("a number");
    let last = exponent - digits.bytes().filter(u8::is_ascii_digit).count() as i32 + 1;
    let is_short = last > -7 || exponent.abs() < 4;
    let is_whole = number == number.trunc() && number.abs() < 2f64.powi(62);
    if is_whole || last < 0 && is_short { number.to_string() } else { format!("{digits}e{exponent:+}") }
}

/// Runs the recorded commands of a family, and compares the replies that don't depend on chance, and payloads. Returns
/// the number of comparisons.
pub(crate) fn replay(family: &str) -> usize {
    let (server, mut compared) = (FakeServer::default(), 0);
    for entry in entries("transcript.json").iter().filter(|entry| entry["family"] == family) {
        let words = words(&entry["cmd"]);
        let key = std::str::from_utf8(&words[1]).unwrap_or_default();
        match words[0].as_slice() {
            b"SET" => server.put(key, Content::String(words[2].clone())),
            b"DUMP" => {
                let recorded = bytes(&entry["resp2"]);
                let start = recorded.windows(2).position(|pair| pair == b"\r\n").expect("a bulk string") + 2;
                let recorded = Dump::read(&recorded[start..recorded.len() - 2]);
                assert_eq!(save(&server, key), recorded, "{key}");
                compared += 1;
            }
            command if command.contains(&b'.') => {
                let outcome = server.run_words(&words);
                for protocol in ["resp2", "resp3"].into_iter().filter(|_| entry["rand"] == false) {
                    let reply = resp(&outcome, protocol == "resp3", command);
                    let [reply, recorded] =
                        [reply, bytes(&entry[protocol])].map(|text| text.escape_ascii().to_string());
                    assert_eq!(reply, recorded, "{}", entry["cmd"]);
                    compared += 1;
                }
            }
            // The server answers these.
            _ => {}
        }
    }
    compared
}

/// Loads the values of a type from a recorded RDB file, asks what was asked when it was recorded, and compares the
/// answers. Also saves each value again. Returns the number of keys.
pub(crate) fn answers_after_loading(file: &str, manifest: &str, type_name: &str) -> usize {
    let values = super::rdb::read_file(&fixture(file));
    let manifest: Json = serde_json::from_slice(&fixture(manifest)).expect("JSON");
    let mut keys = 0;
    // RedisBloom 2.8 doesn't know the value of a single observation.
    let is_lost = |key: &str| key == "td:one" && file.contains("11");
    for (key, dump) in values.iter().filter(|(key, dump)| dump.name == type_name && !is_lost(key)) {
        let server = FakeServer::default();
        load(&server, key, dump).unwrap_or_else(|why| panic!("{key}: {why}"));
        for query in manifest["keys"][key]["queries"].as_array().expect("the key is recorded") {
            let words = words(&query["cmd"]);
            if !words[0].contains(&b'.') {
                continue;
            }
            let outcome = server.run_words(&words);
            for protocol in ["resp2", "resp3"] {
                let reply = resp(&outcome, protocol == "resp3", &words[0]).escape_ascii().to_string();
                let recorded = bytes(&query[protocol]).escape_ascii().to_string();
                // RedisBloom 2.8 has another formula for the memory, which is the last field of TDIGEST.INFO.
                let comparable = |text: String| text.split("Memory usage").next().map(str::to_owned);
                let expected = comparable(expected(key, &words[0], recorded));
                assert_eq!(comparable(reply), expected, "{}", query["cmd"]);
            }
        }
        keys += 1;
    }
    keys
}

/// The recorded reply, unless ours is better: RedisBloom lists a loaded empty item as null.
fn expected(key: &str, command: &[u8], recorded: String) -> String {
    match (key, command) {
        ("topk:odd", b"TOPK.LIST") => {
            ["$-1\\r\\n", "_\\r\\n"].iter().fold(recorded, |text, null| text.replace(null, "$0\\r\\n\\r\\n"))
        }
        _ => recorded,
    }
}
