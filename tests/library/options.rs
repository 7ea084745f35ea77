//! The table of options.

use bloomery::options::{BLOOM, CUCKOO, OptionRow, Options, Value, find, rows};
use bloomery::{Cell, Spec};
use std::{env, fs};

/// How a language spells a table.
struct Language {
    yes: &'static str,
    one_of: &'static str,
    power_of_two: &'static str,
    /// The largest integer that the client can send.
    most: &'static str,
}

const PYTHON: Language =
    Language { yes: "True", one_of: "one_of", power_of_two: "power_of_two", most: "2**63 - 1" };
const JAVASCRIPT: Language =
    Language { yes: "true", one_of: "oneOf", power_of_two: "powerOfTwo", most: "2 ** 53 - 1" };

/// The possible values, if there are only a few.
fn choices(value: &Value, language: &Language) -> Vec<String> {
    match value {
        Value::Flag => vec![language.yes.into()],
        Value::Numbers { numbers, .. } => {
            [&[language.yes], *numbers].concat().into_iter().map(str::to_owned).collect()
        }
        Value::Choice(words) => words.iter().map(|(word, _)| format!("{:?}", word.to_uppercase())).collect(),
        _ => vec![],
    }
}

fn check(value: &Value, language: &Language) -> String {
    let Language { one_of, power_of_two, most: longest, .. } = language;
    match value {
        Value::Flag | Value::Numbers { .. } | Value::Choice(_) => {
            format!("{one_of}({})", choices(value, language).join(", "))
        }
        Value::Integer { bounds: (least, most), .. } => format!("between({least}, {most})"),
        Value::PowerOfTwo(most) => format!("{power_of_two}({most})"),
        Value::Duration { .. } => format!("between(1, {longest})"),
        Value::UnixTime { .. } => format!("between(0, {longest})"),
        Value::Ratio => "ratio()".into(),
        Value::Hex(most) => format!("hexadecimal({most})"),
    }
}

/// What the type of a value doesn't say.
fn comment(row: &OptionRow) -> Option<&'static str> {
    match row.value {
        Value::Choice(_) => None,
        Value::Duration { .. } => Some("milliseconds"),
        _ => Some(row.expected).filter(|text| !text.is_empty()),
    }
}

fn python_type(row: &OptionRow) -> String {
    let name = match &row.value {
        Value::Flag => "bool".into(),
        Value::Numbers { .. } | Value::Choice(_) => {
            format!("Literal[{}]", choices(&row.value, &PYTHON).join(", "))
        }
        Value::Integer { .. } | Value::PowerOfTwo(_) => "int".into(),
        Value::UnixTime { .. } => "int | datetime".into(),
        Value::Duration { .. } => "int | timedelta".into(),
        Value::Ratio => "float".into(),
        Value::Hex(_) => "str | None".into(),
    };
    name + &comment(row).map(|text| format!("  # {text}")).unwrap_or_default()
}

fn typescript_type(value: &Value) -> String {
    match value {
        Value::Flag => "boolean".into(),
        Value::Numbers { .. } | Value::Choice(_) => choices(value, &JAVASCRIPT).join(" | "),
        Value::UnixTime { .. } => "number | Date".into(),
        Value::Hex(_) => "string".into(),
        _ => "number".into(),
    }
}

fn word(row: &OptionRow) -> String {
    row.word.to_lowercase()
}

/// One line for each option of a table.
fn lines(table: &'static [OptionRow], line: impl Fn(&OptionRow) -> String) -> String {
    rows(table).map(line).collect()
}

/// `BLESS=1 cargo test` writes the file.
#[track_caller]
fn is_written(file: &str, text: &str) {
    let path = format!("{}/clients/{file}", env!("CARGO_MANIFEST_DIR"));
    if env::var_os("BLESS").is_some() {
        fs::write(&path, text).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), text, "BLESS=1 cargo test writes {file}");
}

#[test]
fn the_python_client_has_the_same_table() {
    let head = "\"\"\"The options of filters. tests/library/options.rs writes this file.\"\"\"\n\n\
                from __future__ import annotations\n\n\
                from datetime import datetime, timedelta\nfrom typing import Literal, TypedDict\n\n\
                from ._checks import between, hexadecimal, one_of, power_of_two, ratio\n";
    let checks =
        |table| lines(table, |row| format!("    \"{}\": {},\n", word(row), check(&row.value, &PYTHON)));
    let class = |name, table| {
        let types = lines(table, |row| format!("    {}: {}\n", word(row), python_type(row)));
        format!("\n\nclass {name}(TypedDict, total=False):\n{types}")
    };
    let table = [
        format!("{head}\nBLOOM = {{\n{}}}\n\nCUCKOO = {{\n{}}}\n", checks(BLOOM), checks(CUCKOO)),
        class("Bloom", BLOOM) + &class("Cuckoo", CUCKOO),
    ];
    is_written("python/bloomery_redis/_table.py", &table.concat());
}

#[test]
fn the_javascript_client_has_the_same_table() {
    let head = "// The options of filters. tests/library/options.rs writes this file.\n";
    let import = "\nimport { between, hexadecimal, oneOf, powerOfTwo, ratio } from \"./checks.js\";\n";
    let checks = |name, table| {
        let lines = lines(table, |row| format!("    {}: {},\n", word(row), check(&row.value, &JAVASCRIPT)));
        format!("\nexport const {name} = {{\n{lines}}};\n")
    };
    let interface = |name, table| {
        let fields = lines(table, |row| {
            let comment = comment(row).map(|text| format!("    /** {text} */\n")).unwrap_or_default();
            format!("{comment}    {}?: {};\n", word(row), typescript_type(&row.value))
        });
        format!("\nexport interface {name} {{\n{fields}}}\n")
    };
    let table = [head, import, &checks("BLOOM", BLOOM), &checks("CUCKOO", CUCKOO)];
    is_written("javascript/table.js", &table.concat());
    let types = [head, &interface("BloomTable", BLOOM), &interface("CuckooTable", CUCKOO)];
    is_written("javascript/table.d.ts", &types.concat());
}

#[test]
fn what_is_written_is_read_back() {
    let spec = Spec { cell: Cell::Counter8, shards: 4, ..Spec::fixed(100, 0.01) };
    for spec in [spec, Spec::scaling(100, 0.01), Spec::window(100, 0.01, 7)] {
        let options = Options::of(&spec, 0);
        let (words, mut read) = (options.words(BLOOM), Options::default());
        for pair in words.chunks(2) {
            (find(BLOOM, pair[0].as_bytes()).unwrap().parse)(&mut read, pair[1].as_bytes()).unwrap();
        }
        assert_eq!(read.words(BLOOM), words);
        let kind = read.kind(None, 0).unwrap();
        assert_eq!((kind.family, kind.layout), (spec.family, spec.layout));
    }
}
