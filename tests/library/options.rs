//! The table of options.

use bloomery::options::{BLOOM, OptionRow, Options, Value, find, rows};
use bloomery::{Cell, Spec};
use std::{env, fs};

/// The name of the type of an option's words.
fn title(row: &OptionRow) -> String {
    let (first, rest) = row.word.split_at(1);
    first.to_owned() + &rest.to_lowercase()
}

/// The type of an option's words.
fn choice(row: &OptionRow) -> Option<String> {
    let Value::Choice(words) = &row.value else { return None };
    let words: Vec<_> = words.iter().map(|(word, _)| format!("{:?}", word.to_uppercase())).collect();
    Some(format!("{} = Literal[{}]\n", title(row), words.join(", ")))
}

fn check(row: &OptionRow) -> String {
    let list = |words: &[String]| format!("one_of({})", words.join(", "));
    match &row.value {
        Value::Flag => list(&["True".into()]),
        Value::Integer { bounds: (least, most), .. } => format!("between({least}, {most})"),
        Value::Numbers { numbers, .. } => {
            list(&[&["True"], *numbers].concat().into_iter().map(str::to_owned).collect::<Vec<_>>())
        }
        Value::PowerOfTwo(most) => format!("power_of_two({most})"),
        Value::Milliseconds { least, .. } => format!("between({least}, 2**63 - 1)"),
        Value::Ratio => "ratio()".into(),
        Value::Choice(_) => format!("one_of(*get_args({}))", title(row)),
        Value::Hex(most) => format!("hexadecimal({most})"),
    }
}

/// `BLESS=1 cargo test` writes the file.
#[test]
fn the_python_client_has_the_same_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/clients/python/bloomery_redis/_table.py");
    let head = "\"\"\"The values of the options of BF.RESERVE. tests/library/options.rs writes this file.\"\"\"\n\n\
                from typing import Literal, get_args\n\n\
                from ._checks import between, hexadecimal, one_of, power_of_two, ratio\n\n";
    let line = |row: &OptionRow| format!("    \"{}\": {},\n", row.word.to_lowercase(), check(row));
    let types = rows(BLOOM).filter_map(choice).collect::<String>();
    let table = format!("{head}{types}\nBLOOM = {{\n{}}}\n", rows(BLOOM).map(line).collect::<String>());
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
