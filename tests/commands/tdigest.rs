//! t-digests: RedisBloom's recorded replies and values, refused payloads, and what replicas get.

use crate::support::fake_server::FakeServer;
use crate::support::rdb::{Dump, Field, Fields};
use crate::support::sketches::{answers_after_loading, load, replay, save};
use bloomery_commands::Reply;

#[test]
fn replies_are_redisblooms() {
    assert_eq!(replay("tdigest"), 143);
}

#[test]
fn loaded_values_answer_as_in_redisbloom() {
    assert_eq!(answers_after_loading("dump.rdb", "manifest.json", "TDIS-TYPE"), 7);
    assert_eq!(answers_after_loading("dump-rdb11.rdb", "manifest-rdb11.json", "TDIS-TYPE"), 6);
}

fn with_digest(lines: &[&str]) -> FakeServer {
    let server = FakeServer::default();
    lines.iter().for_each(|line| drop(server.line(line).unwrap()));
    server.replicated.take();
    server
}

const CREATED: &[&str] = &["TDIGEST.CREATE t COMPRESSION 10", "TDIGEST.ADD t 1 2 2 3"];

/// The number of unmerged nodes, which shows whether the digest was compressed.
fn unmerged(server: &FakeServer) -> Reply {
    let Ok(Reply::Map(fields)) = server.line("TDIGEST.INFO t") else { panic!() };
    fields.into_iter().find(|(name, _)| *name == "Unmerged nodes").unwrap().1
}

/// The first read after adds takes as long as there are nodes.
#[test]
fn clients_choose_compressions_that_are_fast() {
    let server = with_digest(CREATED);
    let refusal = "ERR T-Digest: compression parameter must be at most 500000";
    for line in ["TDIGEST.CREATE k COMPRESSION", "TDIGEST.MERGE k 1 t COMPRESSION"] {
        assert_eq!(server.text(&format!("{line} 500001")), refusal);
        server.line(&format!("{line} 500000")).unwrap();
        server.obeys.set(true);
        server.keys.borrow_mut().remove(&b"k"[..]);
        server.line(&format!("{line} 500001")).unwrap();
        server.keys.borrow_mut().remove(&b"k"[..]);
        server.obeys.set(false);
    }
}

/// In RedisBloom, these compress the key, or don't.
#[test]
fn reads_compress_as_in_redisbloom() {
    for (line, compresses) in [
        ("TDIGEST.QUANTILE t 0.5", true),
        ("TDIGEST.CDF t 9", true),
        ("TDIGEST.TRIMMED_MEAN t 0 1", true),
        ("TDIGEST.RANK t 0 2", true),
        ("TDIGEST.RANK t 0 4 inf", false),
        ("TDIGEST.REVRANK t 3", true),
        ("TDIGEST.REVRANK t -inf", false),
        ("TDIGEST.BYRANK t 0 3", true),
        ("TDIGEST.BYRANK t 0 4", false),
        ("TDIGEST.BYREVRANK t 1", true),
        ("TDIGEST.BYREVRANK t 0 5", false),
        ("TDIGEST.MIN t", false),
        ("TDIGEST.MAX t", false),
        ("TDIGEST.MERGE other 1 t", true),
        ("TDIGEST.QUANTILE t 2", false),
    ] {
        let server = with_digest(CREATED);
        server.text(line);
        assert_eq!(unmerged(&server), Reply::Integer(if compresses { 0 } else { 4 }), "{line}");
    }
}

#[test]
fn a_write_after_a_read_tells_replicas_to_compress() {
    let server = with_digest(CREATED);
    server.line("TDIGEST.ADD t 4").unwrap();
    assert_eq!(server.take_replicated(), ["TDIGEST.ADD t 4"]);
    server.line("TDIGEST.BYRANK t 1").unwrap();
    assert_eq!(server.take_replicated(), [""; 0]);
    server.line("TDIGEST.ADD t 5").unwrap();
    assert_eq!(server.take_replicated(), ["TDIGEST.QUANTILE t 0.5", "TDIGEST.ADD t 5"]);
    save(&server, "t");
    server.line("TDIGEST.ADD t 6").unwrap();
    assert_eq!(server.take_replicated(), ["TDIGEST.QUANTILE t 0.5", "TDIGEST.ADD t 6"]);
    server.line("TDIGEST.QUANTILE t 0.5").unwrap();
    server.line("TDIGEST.RESET t").unwrap();
    assert_eq!(server.take_replicated(), ["TDIGEST.RESET t"]);
}

/// In the background, a merge gives the same digest, and has read its sources as well.
#[test]
fn merges_in_the_background_are_the_same() {
    let run = |background: bool| {
        let (server, replica) = (FakeServer::default(), FakeServer::replica());
        server.goes_to_background.set(background);
        for (key, compression) in [("a", 5), ("b", 9), ("t", 20)] {
            server.line(&format!("TDIGEST.CREATE {key} COMPRESSION {compression}")).unwrap();
            let values: Vec<String> = (0..200).map(|n| (n * 37 % 101 * compression).to_string()).collect();
            server.line(&format!("TDIGEST.ADD {key} {}", values.join(" "))).unwrap();
        }
        server.line("TDIGEST.CDF b 1").unwrap();
        for line in
            ["MERGE t 2 a b", "ADD a 7", "MERGE new 3 a a t", "MERGE t 1 t COMPRESSION 3 OVERRIDE", "ADD t 1"]
        {
            server.line(&format!("TDIGEST.{line}")).unwrap();
        }
        assert_eq!(server.worked_in_background.get(), background);
        let effects = server.replicated.take();
        // A merge compresses its sources on replicas as well, so the next writes needn't say so.
        assert!(!effects.iter().any(|words| words[0] == b"TDIGEST.QUANTILE"));
        replica.obey(&effects);
        let saved = ["a", "b", "t", "new"].map(|key| save(&server, key));
        assert_eq!(["a", "b", "t", "new"].map(|key| save(&replica, key)), saved);
        (effects, saved)
    };
    assert_eq!(run(true), run(false));
}

/// A child of a fork saves compressed digests, and a server that loads one goes on from there.
#[test]
fn a_write_after_a_fork_tells_replicas_to_compress() {
    let server = with_digest(CREATED);
    server.saves.set(1);
    server.line("TDIGEST.ADD t 4").unwrap();
    assert_eq!(server.take_replicated(), ["TDIGEST.QUANTILE t 0.5", "TDIGEST.ADD t 4"]);
    server.line("TDIGEST.ADD t 5").unwrap();
    assert_eq!(server.take_replicated(), ["TDIGEST.ADD t 5"]);
    server.line("TDIGEST.QUANTILE t 0.5").unwrap();
    server.saves.set(2);
    server.line("TDIGEST.ADD t 6").unwrap();
    assert_eq!(server.take_replicated(), ["TDIGEST.QUANTILE t 0.5", "TDIGEST.ADD t 6"]);
    // A loaded digest may be compressed only here.
    load(&server, "t", &save(&server, "t")).unwrap();
    server.line("TDIGEST.ADD t 7").unwrap();
    assert_eq!(server.take_replicated(), ["TDIGEST.QUANTILE t 0.5", "TDIGEST.ADD t 7"]);
}

/// Reads of a replica, and its forks, change nothing that it does later.
#[test]
fn replicas_compress_when_they_are_told_to() {
    let primary = FakeServer::default();
    let (replica, file) = (FakeServer::replica(), FakeServer::replica());
    primary.line("TDIGEST.CREATE t COMPRESSION 5").unwrap();
    for round in 0..500 {
        let values: Vec<String> =
            (0..round % 7 + 1).map(|n| ((round * 31 + n * 17) % 101).to_string()).collect();
        primary.line(&format!("TDIGEST.ADD t {}", values.join(" "))).unwrap();
        if round % 11 == 0 {
            primary.line("TDIGEST.CDF t 0.5").unwrap();
        }
        primary.saves.set(round / 23);
        replica.obey(&primary.replicated.take());
        if round % 5 == 0 {
            replica.line("TDIGEST.TRIMMED_MEAN t 0 1").unwrap();
        }
        replica.saves.set(round / 13);
        file.obey(&replica.replicated.take());
    }
    let expected = save(&primary, "t");
    assert_eq!(save(&replica, "t"), expected);
    assert_eq!(save(&file, "t"), expected);
}

#[test]
fn what_failed_is_not_replicated() {
    let server = with_digest(CREATED);
    for line in [
        "TDIGEST.CREATE t",
        "TDIGEST.ADD t 1 x",
        "TDIGEST.ADD t 1 inf",
        "TDIGEST.ADD none 1",
        "TDIGEST.MERGE t 1 none",
        "TDIGEST.MERGE t 1 t COMPRESSION 0",
        "TDIGEST.RESET none",
    ] {
        server.text(line);
        assert!(server.replicated.borrow().is_empty(), "{line}");
    }
    assert_eq!(unmerged(&server), Reply::Integer(4), "nothing was added");
}

/// Every field with another type or value, and every payload that ends early, is refused.
#[test]
fn bad_payloads_are_refused() {
    let server = with_digest(&["TDIGEST.CREATE t COMPRESSION 10", "TDIGEST.ADD t 1 2 3"]);
    let good = save(&server, "t");
    load(&server, "copy", &good).unwrap();
    assert_eq!(save(&server, "copy"), good);
    let refused = |index: usize, field: Option<Field>| {
        let mut bad = good.clone();
        match field {
            Some(field) => bad.fields.0[index] = field,
            None => bad.fields.0.truncate(index),
        }
        assert!(load(&server, "copy", &bad).is_err(), "{bad:?}");
    };
    for index in 0..good.fields.0.len() {
        refused(index, None);
        let is_double = matches!(good.fields.0[index], Field::Double(_));
        refused(index, Some(if is_double { Field::Unsigned(1) } else { Field::Double(1.0) }));
        if is_double {
            for value in [-1.0, 0.5, 1e300, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                // The smallest and the largest observation may lie beyond the means. 0.5 says "not compressed".
                let may_be = matches!((index, value), (1, -1.0 | 0.5) | (2, 1e300) | (8, 0.5));
                let is_lost_mean = (9..12).contains(&index) && !value.is_finite();
                if !may_be && !is_lost_mean {
                    refused(index, Some(Field::Double(value)));
                }
            }
        }
    }
    for (index, values) in
        [(3, &[0, 69, 71, u64::MAX][..]), (4, &[0, 2, 4, 71, u64::MAX]), (5, &[1, u64::MAX])]
    {
        values.iter().for_each(|value| refused(index, Some(Field::Unsigned(*value))));
    }
    refused(6, Some(Field::Unsigned(u64::MAX)));
    // Three nodes whose means aren't in order, and weights whose sum isn't an i64.
    refused(9, Some(Field::Double(2.5)));
    refused(12, Some(Field::Double(2f64.powi(63))));
    let newer = Dump { encoding: 1, ..good.clone() };
    assert!(load(&server, "copy", &newer).is_err());
}

/// RedisBloom computes infinities and NaN if it merges values near the largest double.
#[test]
fn a_mean_that_is_not_finite_becomes_the_one_before() {
    let server = FakeServer::default();
    server.line("TDIGEST.CREATE t COMPRESSION 10").unwrap();
    server.line("TDIGEST.ADD t 1 2 3").unwrap();
    let good = save(&server, "t");
    for (lost, repaired) in [(9, 1.0), (10, 1.0), (11, 2.0)] {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let mut bad = good.clone();
            bad.fields.0[lost] = Field::Double(value);
            load(&server, "copy", &bad).unwrap();
            bad.fields.0[lost] = Field::Double(repaired);
            assert_eq!(save(&server, "copy"), bad);
        }
    }
}

/// RedisBloom 2 saves a single observation without its node, and loses it.
#[test]
fn a_single_observation_of_redisbloom_2_is_kept() {
    let fields = |compression| {
        Fields::from([
            Field::Double(compression),
            Field::Double(5.0),
            Field::Double(5.0),
            Field::Unsigned(70),
            Field::Unsigned(0),
            Field::Unsigned(1),
            Field::Unsigned(0),
            Field::Double(0.0),
            Field::Double(1.0),
        ])
    };
    let dump = |compression| Dump { name: "TDIS-TYPE".to_owned(), encoding: 0, fields: fields(compression) };
    let server = FakeServer::default();
    load(&server, "t", &dump(10.0)).unwrap();
    server.line("TDIGEST.ADD t 7").unwrap();
    assert_eq!(server.text("TDIGEST.QUANTILE t 0 1"), "Array([ServersDouble(5.0), ServersDouble(7.0)])");
    // Fractions are legal in files.
    load(&server, "t", &dump(10.5)).unwrap();
    for compression in [0.0, 0.5, -1.0, 357_913_940.0, f64::NAN, f64::INFINITY] {
        assert!(load(&server, "t", &dump(compression)).is_err(), "{compression}");
    }
}

/// Such nodes come only from crafted files: they can't be merged, so there is no room for more.
#[test]
fn a_digest_without_room_refuses_adds() {
    let node = |_| Field::Double(1e17);
    let fields = [1.0, 0.0, 15.0].map(Field::Double).into_iter();
    let fields = fields.chain([16, 15, 0, 0].map(Field::Unsigned));
    let fields = fields.chain([Field::Double(15e17), Field::Double(0.0)]);
    let fields: Vec<Field> =
        fields.chain((0..15).map(|mean| Field::Double(f64::from(mean)))).chain((0..15).map(node)).collect();
    let dump = Dump { name: "TDIS-TYPE".to_owned(), encoding: 0, fields: Fields(fields.into()) };
    let server = FakeServer::default();
    load(&server, "t", &dump).unwrap();
    let outcome = server.text("TDIGEST.ADD t 1 2 3");
    assert!(outcome == "Ok" || outcome == "ERR T-Digest: overflow detected", "{outcome}");
    let merged = server.text("TDIGEST.MERGE m 8 t t t t t t t t");
    assert_eq!(merged, "ERR T-Digest: overflow detected");
}

#[test]
fn sizes_are_limited() {
    let server = FakeServer::default();
    server.memory.set(Some(16 * 610));
    assert_eq!(server.text("TDIGEST.CREATE a COMPRESSION 101"), "ERR T-Digest: allocation failed");
    assert_eq!(server.text("TDIGEST.CREATE a"), "Ok");
    let refused = "ERR T-Digest: allocation of destination digest failed";
    assert_eq!(server.text("TDIGEST.MERGE b 1 a COMPRESSION 101"), refused);
    assert_eq!(server.text("TDIGEST.MERGE b 1 a"), "Ok");
}
