//! Filters that RedisBloom saved, with its answers.

use super::recorded::{answers_alike, fixture, json, number, numbers};
use crate::support::rdb::{self, Dump, Fields, numbered};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bloomery::Filter;
use bloomery::filter::Origin;
use bloomery::wire::redisbloom::{self, Loader, MAX_PIECE};
use bloomery::wire::{DecodeError, Decoder, Encoder};
use serde_json::Value as Json;
use std::collections::HashMap;

/// All filters in the fixtures, each as in the RDB file, and as in its DUMP payload if there is one.
fn redisblooms() -> Vec<(Json, Vec<Dump>)> {
    let file: HashMap<_, _> = rdb::read_file(&fixture("redisbloom/dump.rdb")).into_iter().collect();
    let Json::Array(manifest) = json("redisbloom/manifest.json") else { panic!() };
    assert_eq!((file.len(), manifest.len()), (8, 8));
    let with_dumps = |entry: Json| {
        let of_file = file[entry["key"].as_str().unwrap()].clone();
        let payload = entry["dump_base64"].as_str().map(|text| Dump::read(&STANDARD.decode(text).unwrap()));
        (entry, [Some(of_file), payload].into_iter().flatten().collect())
    };
    manifest.into_iter().map(with_dumps).collect()
}

fn load(dump: &Dump) -> Filter {
    let mut fields = dump.fields.clone();
    let value = match dump.name.as_str() {
        "MBbloom--" => redisbloom::load_bloom(&mut fields, dump.encoding),
        "MBbloomCF" => redisbloom::load_cuckoo(&mut fields, dump.encoding),
        other => panic!("{other}"),
    };
    assert!(fields.0.is_empty(), "fields are left");
    value.unwrap()
}

fn save(value: &Filter) -> Fields {
    let mut fields = Fields::default();
    match value {
        Filter::Foreign(filter) => redisbloom::save_bloom(&mut fields, filter),
        Filter::Cuckoo(filter) => redisbloom::save_cuckoo(&mut fields, filter),
        Filter::Bloom(_) | Filter::Rebuild(_) => panic!("not from RedisBloom"),
    }
    fields
}

fn contains(value: &Filter, item: &[u8]) -> bool {
    match value {
        Filter::Foreign(filter) => filter.contains(item),
        Filter::Cuckoo(filter) => filter.contains(filter.hash(item)),
        Filter::Bloom(_) | Filter::Rebuild(_) => panic!("not from RedisBloom"),
    }
}

/// A filter is written with the fields that it was read with.
#[test]
fn redisblooms_filters_are_written_as_they_were_read() {
    let mut dumps = 0;
    for (manifest, of_key) in redisblooms() {
        for dump in &of_key {
            let value = load(dump);
            assert_eq!((save(&value), dump.encoding), (dump.fields.clone(), 4), "{}", manifest["key"]);
            // The DUMP payload and the RDB file agree.
            assert_eq!(dump, &of_key[0], "{}", manifest["key"]);
            dumps += 1;
        }
    }
    assert_eq!(dumps, 8 + 6);
}

#[test]
fn redisblooms_filters_answer_as_it_does() {
    for (manifest, of_key) in redisblooms() {
        let value = load(&of_key[0]);
        let prefix = manifest["prefix"].as_str().unwrap();
        let members = 0..(manifest["last"].as_i64().unwrap() + 1) as u64;
        let first = number(&manifest["absent_first"]);
        let absent = first..first + number(&manifest["absent_count"]);
        let found = numbers(&manifest["absent_answered_yes"]);
        answers_alike(|item| contains(&value, item), prefix, members.clone(), absent, &found);
        let inserted = number(&manifest["info"]["Number of items inserted"]);
        let filters = number(&manifest["info"]["Number of filters"]) as usize;
        match &value {
            Filter::Foreign(filter) => {
                assert_eq!((filter.items(), filter.links().len()), (inserted, filters));
                assert_eq!(filter.capacity(), number(&manifest["info"]["Capacity"]));
            }
            Filter::Cuckoo(filter) => {
                assert_eq!((filter.items(), filter.tables().len()), (inserted, filters));
                assert_eq!(filter.spec().origin, Origin::RedisBloom);
            }
            Filter::Bloom(_) | Filter::Rebuild(_) => panic!(),
        }
    }
}

/// Recreates filters that BF.ADD created in RedisBloom: the same adds give the same bytes.
#[test]
fn adds_end_in_redisblooms_bytes() {
    for (manifest, of_key) in redisblooms() {
        let Filter::Foreign(recorded) = load(&of_key[0]) else { continue };
        // The filter's first link, emptied.
        let mut fields = of_key[0].fields.clone();
        fields.0[0] = rdb::Field::Unsigned(0);
        fields.0[1] = rdb::Field::Unsigned(1);
        fields.0.truncate(12);
        fields.0[11] = rdb::Field::Unsigned(0);
        let rdb::Field::String(bits) = &mut fields.0[10] else { panic!() };
        bits.fill(0);
        let mut filter = redisbloom::load_bloom(&mut fields, 4).unwrap().into_foreign().unwrap();
        let prefix = manifest["prefix"].as_str().unwrap();
        for i in 0..(manifest["last"].as_i64().unwrap() + 1) as u64 {
            let item = numbered(prefix, i);
            if filter.try_add(&item).is_err() {
                assert_eq!(filter.grow(), Ok(true));
                assert!(filter.try_add(&item).unwrap().added);
            }
        }
        assert!(Encoder::new(&filter).to_vec() == Encoder::new(&*recorded).to_vec(), "{}", manifest["key"]);
    }
}

/// SCANDUMP's pieces are RedisBloom's. Loading them, in any order or twice, gives the same filter.
#[test]
fn redisblooms_pieces_are_its_own() {
    let mut dumped = 0;
    for (manifest, of_key) in redisblooms() {
        let value = load(&of_key[0]);
        let encoder = Encoder::new(&value);
        let mut pieces: Vec<(u64, Vec<u8>)> = vec![(1, encoder.head().to_vec())];
        encoder.chunks(|end, chunk| pieces.push((end + 1, chunk.to_vec())));
        if let Json::Array(recorded) = &manifest["scandump"] {
            let piece =
                |piece: &Json| (number(&piece[0]), STANDARD.decode(piece[1].as_str().unwrap()).unwrap());
            assert!(pieces == recorded.iter().map(piece).collect::<Vec<_>>(), "{}", manifest["key"]);
            dumped += 1;
        }
        let loader = || match &value {
            Filter::Cuckoo(_) => Loader::cuckoo(encoder.head()),
            _ => Loader::bloom(encoder.head()),
        };
        let chunks = &pieces[1..];
        let again: Vec<_> = chunks.iter().rev().chain(chunks).collect();
        let orders = [chunks.iter().collect(), chunks.iter().rev().collect(), again];
        for order in orders {
            let mut loader = loader().unwrap();
            assert_eq!(loader.body_len(), chunks.last().unwrap().0 - 1);
            for (iterator, chunk) in order {
                loader.push(iterator - 1, chunk).unwrap();
            }
            assert!(loader.is_complete());
            assert!(save(&loader.finish().unwrap()) == of_key[0].fields, "{}", manifest["key"]);
        }
        // Without the first chunk, the filter isn't complete.
        let mut loader = loader().unwrap();
        for (iterator, chunk) in chunks.iter().skip(1) {
            loader.push(iterator - 1, chunk).unwrap();
        }
        assert!(!loader.is_complete());
        assert_eq!(loader.finish().err(), Some(DecodeError::Length("body")));
    }
    assert_eq!(dumped, 6);
}

/// Chunks as a client may cut them: at any byte, and overlapping, but not across the end of a link, nor beyond the last
/// link.
#[test]
fn chunks_may_be_cut_anywhere_within_a_link() {
    let (_, of_key) = redisblooms().remove(0);
    let value = load(&of_key[0]);
    let encoder = Encoder::new(&value);
    let mut body = Vec::new();
    encoder.chunks(|_, chunk| body.extend_from_slice(chunk));
    let head = encoder.head();
    let links: Vec<usize> = head[20..]
        .chunks(53)
        .map(|link| u64::from_le_bytes(link[..8].try_into().unwrap()) as usize)
        .collect();
    assert_eq!(links, [144, 312, 696, 1536]);
    for step in [1, 3, 7, 8, 13, 100] {
        let mut loader = Loader::bloom(head).unwrap();
        let mut start = 0;
        for link in &links {
            for from in (0..*link).step_by(step) {
                assert!(!loader.is_complete());
                // Some bytes come twice.
                let (from, to) = (from.saturating_sub(2), (from + step).min(*link));
                let (from, to) = (start + from, start + to);
                loader.push(to as u64, &body[from..to]).unwrap();
            }
            start += link;
        }
        assert!(save(&loader.finish().unwrap()) == of_key[0].fields, "{step}");
    }
    let mut loader = Loader::bloom(head).unwrap();
    for (end, len) in
        [(145, 2), (2688, 1537), (2689, 1), (3000, 10), (u64::MAX, 1), (5, 6), (0, 1), (0, 0), (144, 0)]
    {
        assert!(loader.push(end, &vec![0xFF; len]).is_err(), "{len} bytes up to {end}");
    }
    assert!(loader.push(MAX_PIECE + 1, &vec![0xFF; MAX_PIECE as usize + 1]).is_err());
    for (end, len) in [(2688, 1536), (1152, 696), (456, 312), (144, 144)] {
        loader.push(end, &body[end as usize - len..end as usize]).unwrap();
    }
    assert!(save(&loader.finish().unwrap()) == of_key[0].fields, "a refused chunk leaves nothing");
}

/// Filters that have been written and read in our own format can be written in RedisBloom's format again.
#[test]
fn redisblooms_filters_pass_through_our_format() {
    for (manifest, of_key) in redisblooms() {
        let value = load(&of_key[0]);
        let read = Decoder::read(&Encoder::native(&value).to_vec()).unwrap();
        assert!(save(&read) == of_key[0].fields, "{}", manifest["key"]);
        let copy = value.snapshot().unwrap();
        assert!(save(&copy) == of_key[0].fields && copy.bytes() == value.bytes());
    }
}
