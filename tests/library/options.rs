//! The table of options.

use bloomery::options::{BLOOM, CUCKOO, OptionRow, Options, Value, find, rows};
use bloomery::{Cell, Spec};
use std::{env, fs};

fn check(value: &Value) -> String {
    let list = |words: &[String]| format!("one_of({})", words.join(", "));
    match value {
        Value::Flag => list(&["True".into()]),
        Value::Integer { bounds: (least, most), .. } => format!("between({least}, {most})"),
        Value::Numbers { numbers, .. } => {
            list(&[&["True"], *numbers].concat().into_iter().map(str::to_owned).collect::<Vec<_>>())
        }
        Value::PowerOfTwo(most) => format!("power_of_two({most})"),
        Value::Duration { .. } => "between(1, 2**63 - 1)".into(),
        Value::UnixTime { .. } => "between(0, 2**63 - 1)".into(),
        Value::Ratio => "ratio()".into(),
        Value::Choice(words) => {
            let words = words.iter().map(|(word, _)| format!("{:?}", word.to_uppercase()));
            list(&words.collect::<Vec<_>>())
        }
        Value::Hex(most) => format!("hexadecimal({most})"),
    }
}

/// The type of a value, and a comment unless the type says everything.
fn annotation(row: &OptionRow) -> String {
    let name = match row.value {
        Value::Flag => "bool".into(),
        Value::Numbers { .. } | Value::Choice(_) => {
            check(&row.value).replace("one_of(", "Literal[").replace(')', "]")
        }
        Value::Integer { .. } | Value::PowerOfTwo(_) => "int".into(),
        Value::UnixTime { .. } => "int | datetime".into(),
        Value::Duration { .. } => return "int | timedelta  # milliseconds".into(),
        Value::Ratio => "float".into(),
        Value::Hex(_) => "str | None".into(),
    };
    let says_everything = row.expected.is_empty() || matches!(row.value, Value::Choice(_));
    if says_everything { name } else { format!("{name}  # {}", row.expected) }
}

/// `BLESS=1 cargo test` writes the file.
#[test]
fn the_python_client_has_the_same_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/clients/python/bloomery_redis/_table.py");
    let head = "\"\"\"The options of filters. tests/library/options.rs writes this file.\"\"\"\n\n\
                from __future__ import annotations\n\n\
                from datetime import datetime, timedelta\nfrom typing import Literal, TypedDict\n\n\
                from ._checks import between, hexadecimal, one_of, power_of_two, ratio\n";
    let word = |row: &OptionRow| row.word.to_lowercase();
    let check = |row| format!("    \"{}\": {},\n", word(row), check(&row.value));
    let checks = |table| rows(table).map(check).collect::<String>();
    let types = |table| {
        rows(table).map(|row| format!("    {}: {}\n", word(row), annotation(row))).collect::<String>()
    };
    let class = |name, table| format!("\n\nclass {name}(TypedDict, total=False):\n{}", types(table));
    let table = [
        format!("{head}\nBLOOM = {{\n{}}}\n\nCUCKOO = {{\n{}}}\n", checks(BLOOM), checks(CUCKOO)),
        class("Bloom", BLOOM) + &class("Cuckoo", CUCKOO),
    ]
    .concat();
    if env::var_os("BLESS").is_some() {
        fs::write(path, &table).unwrap();
    }
    assert_eq!(fs::read_to_string(path).unwrap(), table, "BLESS=1 cargo test writes it");
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
