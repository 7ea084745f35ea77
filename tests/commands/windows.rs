//! Windows and their clock: merges of windows in every state relative to each other, and clocks that jump.
//!
//! The model has neither generation numbers nor schedules: a window consists of sets of items by age, and the time of
//! its next rotation by the clock. At an error rate of 1e-9 there are no false positives, so ages are compared exactly.

use super::pair::Pair;
use crate::support::env;
use crate::support::fake_server::FakeServer;
use bloomery::wire::Decoder;
use bloomery_commands::Reply;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};

const OK: &str = "Ok";

/// Milliseconds between rotations.
const EVERY: u64 = 1000;

/// Unix time at which the tests begin: in 2026, in the middle of a period.
const START: u64 = 1_790_000_000_123;

const DAY: u64 = 86_400_000;
const YEAR: u64 = 365 * DAY;

const CLOCK_BEHIND: &str =
    "ERR the clock was set back, and another window of this merge has already dropped what";

/// A window: its items by age, newest first, the time of the next rotation by the clock, and the shadow of a rebuild.
#[derive(Clone, Debug)]
struct Model {
    sets: Vec<BTreeSet<u32>>,
    next: Option<u64>,
    shadow: Option<Vec<BTreeSet<u32>>>,
}

impl Model {
    fn new(span: usize, next: Option<u64>) -> Model {
        Model { sets: vec![BTreeSet::new(); span], next, shadow: None }
    }

    fn span(&self) -> usize {
        self.sets.len()
    }

    /// Number of rotations that are due by the clock, but that no write has performed yet.
    fn overdue(&self, now: u64) -> u64 {
        self.next.and_then(|next| now.checked_sub(next)).map_or(0, |late| 1 + late / EVERY)
    }

    fn rotate(&mut self, times: u64) {
        for sets in std::iter::once(&mut self.sets).chain(&mut self.shadow) {
            for _ in 0..times.min(sets.len() as u64) {
                sets.rotate_right(1);
                sets[0].clear();
            }
        }
    }

    /// Performs the overdue rotations and corrects the schedule, as every write does first.
    fn catch_up(&mut self, now: u64) {
        let times = self.overdue(now);
        self.rotate(times);
        let Some(next) = &mut self.next else { return };
        *next += times * EVERY;
        if *next > now + 2 * EVERY {
            // The newest generation ends one period after the next boundary.
            let phase = *next % EVERY;
            *next = (now..).find(|time| time % EVERY == phase).unwrap() + EVERY;
        }
    }

    fn age(&self, item: u32, now: u64) -> Option<u64> {
        let ages = (0..self.span()).filter(|age| self.sets[*age].contains(&item));
        ages.map(|age| age as u64 + self.overdue(now)).find(|age| *age < self.span() as u64)
    }

    /// The generations that a reader sees, newest first.
    fn alive(&self, now: u64) -> Vec<BTreeSet<u32>> {
        let behind = (self.overdue(now) as usize).min(self.span());
        self.sets[..self.span() - behind].to_vec()
    }

    /// The age that the other window's items of age `age` get in this window, so that they stay at least as long as in
    /// the other window. The age may exceed this window's span.
    fn age_here(&self, age: usize, other: &Model) -> u64 {
        let Some((mine, theirs)) = self.next.zip(other.next) else { return age as u64 };
        // A source that is ahead by more than a period counts as if a write had corrected its schedule.
        let theirs = theirs.min(mine + EVERY);
        assert_eq!(mine % EVERY, theirs % EVERY);
        if mine >= theirs {
            age as u64 + (mine - theirs) / EVERY
        } else {
            (age as u64).saturating_sub((theirs - mine) / EVERY)
        }
    }

    /// Whether a merge would lose items of the other window.
    fn loses(&self, other: &Model, now: u64) -> bool {
        let seen = other.alive(now);
        (0..seen.len()).any(|age| !seen[age].is_empty() && self.age_here(age, other) >= self.span() as u64)
    }

    /// Merges. A `table` has each item once, at its lowest age.
    fn merge(&mut self, other: &Model, table: bool) {
        for (age, items) in other.sets.iter().enumerate() {
            let here = self.age_here(age, other);
            if here < self.span() as u64 {
                self.sets[here as usize].extend(items);
            }
        }
        let mut younger = BTreeSet::new();
        for items in self.sets.iter_mut().filter(|_| table) {
            items.retain(|item| younger.insert(*item));
        }
    }
}

/// A server, its replica, and the models of its keys.
struct World {
    pair: Pair,
    models: BTreeMap<String, Model>,
    now: u64,
    /// Whether a window may be ahead of the clock.
    has_jumped: bool,
    items: u32,
    /// Options of all windows.
    options: &'static str,
    /// Numbers of merges that succeeded, and of those that were refused because of the clock.
    merges: [u32; 2],
}

impl World {
    fn new() -> World {
        let world = World {
            pair: Pair::new(),
            models: BTreeMap::new(),
            now: START,
            has_jumped: false,
            items: 0,
            options: "",
            merges: [0; 2],
        };
        world.pair.primary.now_ms.set(START);
        world
    }

    fn server(&self) -> &FakeServer {
        &self.pair.primary
    }

    fn set_clock(&mut self, now: u64) {
        self.now = now;
        self.server().now_ms.set(now);
    }

    fn ok(&self, line: &str) {
        assert_eq!(self.server().text(line), OK, "{line}");
    }

    fn reserve(&mut self, key: &str, span: usize, since: Option<u64>) {
        let schedule = since.map_or(String::new(), |since| format!(" EVERY {EVERY} SINCE {since}"));
        self.ok(&format!("BF.RESERVE {key} 1e-9 200 SEED 7 WINDOW {span}{schedule}{}", self.options));
        self.models.insert(key.to_owned(), Model::new(span, since.map(|since| since + EVERY)));
    }

    fn model(&mut self, key: &str) -> &mut Model {
        self.models.get_mut(key).unwrap()
    }

    fn add(&mut self, key: &str) -> u32 {
        self.items += 1;
        let (item, now) = (self.items, self.now);
        self.server().line(&format!("BF.ADD {key} {item}")).unwrap();
        let model = self.model(key);
        model.catch_up(now);
        for sets in std::iter::once(&mut model.sets).chain(&mut model.shadow) {
            sets[0].insert(item);
        }
        item
    }

    fn rotate(&mut self, key: &str) {
        let now = self.now;
        self.ok(&format!("BF.ROTATE {key}"));
        self.model(key).catch_up(now);
        self.model(key).rotate(1);
    }

    /// Merges, and checks that the result is what the model says.
    fn merge(&mut self, to: &str, sources: &[&str]) {
        let now = self.now;
        let made = self.models.get(to).cloned();
        let exists = made.is_some();
        let mut merged = made.unwrap_or_else(|| {
            // The copy is at the generation of the newest source.
            let mut copy = Model { shadow: None, ..self.models[sources[0]].clone() };
            let newest = sources.iter().filter_map(|source| self.models[*source].next).max();
            copy.rotate(newest.zip(copy.next).map_or(0, |(newest, own)| (newest - own) / EVERY));
            copy.next = newest;
            copy
        });
        if exists {
            merged.catch_up(now);
        }
        let found = self.server().text(&format!("BF.MERGE {to} {}", sources.join(" ")));
        // The destination already has its own items.
        let sources: Vec<_> = sources.iter().copied().filter(|source| *source != to).collect();
        let loses = sources.iter().find(|source| merged.loses(&self.models[**source], now)).copied();
        if exists && merged.shadow.is_some() {
            assert!(found.starts_with("ERR the filter is being rebuilt"), "{found}");
        } else if let Some(source) = loses {
            assert!(found.starts_with(&format!("{CLOCK_BEHIND} '{source}' still holds.")), "{found}");
            self.merges[1] += 1;
        } else {
            assert_eq!(found, OK);
            self.merges[0] += 1;
            // The model of a missing destination began as a copy of the first source.
            let table = !self.options.is_empty();
            let others = sources.iter().skip(usize::from(!exists));
            others.for_each(|source| merged.merge(&self.models[*source], table));
            // The law in plain words: an item that tests positive in a source also tests positive in the destination,
            // and isn't older there.
            for source in &sources {
                for item in self.models[*source].sets.iter().flatten() {
                    let age = |key: &str| self.server().line(&format!("BF.AGE {key} {item}"));
                    let (Ok(Reply::Integer(there)), Ok(Reply::Integer(here))) = (age(source), age(to)) else {
                        panic!()
                    };
                    // A window that a fast clock has rotated is a generation ahead, and waits for the others.
                    let oldest = if self.has_jumped { i64::MAX } else { there };
                    assert!(
                        there < 0 || (0..=oldest).contains(&here),
                        "{item}: {there} in {source}, {here} in {to}"
                    );
                }
            }
            self.models.insert(to.to_owned(), merged);
        }
    }

    /// Compares every age with the models, and the replica with the primary.
    fn check(&self) {
        for (key, model) in &self.models {
            for item in 1..=self.items {
                let age = model.age(item, self.now).map_or(-1, |age| age as i64);
                assert_eq!(
                    self.server().line(&format!("BF.AGE {key} {item}")),
                    Ok(Reply::Integer(age)),
                    "{key} {item}"
                );
                let found = self.server().line(&format!("BF.EXISTS {key} {item}"));
                assert_eq!(found, Ok(Reply::Bool(age >= 0)));
            }
        }
        self.pair.follow();
    }

    /// One random step.
    fn step(&mut self, random: &mut SmallRng, may_jump: bool) {
        let keys: Vec<String> = self.models.keys().cloned().collect();
        let mut any = || keys[random.random_range(0..keys.len())].clone();
        let (key, other, third) = (any(), any(), any());
        match random.random_range(0..100) {
            0..30 => _ = self.add(&key),
            30..38 => self.rotate(&key),
            38..58 if key != other => {
                let others =
                    if third == key || third == other { vec![&other[..]] } else { vec![&other[..], &third] };
                self.merge(&key, &others);
            }
            58..60 => self.merge(&key, &[&key]),
            60..66 => {
                self.server().keys.borrow_mut().remove(&b"new"[..]);
                self.pair.replica.keys.borrow_mut().remove(&b"new"[..]);
                self.models.remove("new");
                if key != "new" {
                    let others =
                        if other == key || other == "new" { vec![&key[..]] } else { vec![&key[..], &other] };
                    self.merge("new", &others);
                }
            }
            66..69 => {
                self.ok(&format!("BF.CLEAR {key}"));
                let model = self.model(&key);
                let sets = std::iter::once(&mut model.sets).chain(&mut model.shadow);
                sets.flatten().for_each(BTreeSet::clear);
            }
            69..72 => self.rebuild(&key, "BEGIN"),
            72..75 => self.rebuild(&key, if self.items.is_multiple_of(2) { "COMMIT" } else { "ABORT" }),
            75..80 if may_jump => {
                let by = [1, EVERY / 2, EVERY - 1, EVERY, EVERY + 1, 3 * EVERY, DAY, 3 * YEAR];
                let by = by[random.random_range(0..by.len())];
                let now = if random.random_bool(0.5) { self.now + by } else { self.now - by };
                self.set_clock(now);
            }
            80..83 => self.set_clock(self.now + random.random_range(0..4 * EVERY)),
            _ => self.set_clock(self.now + random.random_range(0..EVERY / 2)),
        }
    }

    fn rebuild(&mut self, key: &str, word: &str) {
        let now = self.now;
        let is_running = self.models[key].shadow.is_some();
        let found = self
            .server()
            .text(&format!("BF.REBUILD {key} {word}{}", if word == "BEGIN" { " SEED 7" } else { "" }));
        assert_eq!(found == OK, is_running == (word != "BEGIN"), "{found}");
        let model = self.model(key);
        match (word, is_running) {
            ("BEGIN", false) => {
                model.catch_up(now);
                model.shadow = Some(vec![BTreeSet::new(); model.span()]);
            }
            ("COMMIT", true) => model.sets = model.shadow.take().unwrap(),
            ("ABORT", true) => model.shadow = None,
            _ => {}
        }
    }
}

fn walk(seed: u64, options: &'static str, timed: bool, may_jump: bool, steps: usize) -> [u32; 2] {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut world = World { has_jumped: may_jump, options, ..World::new() };
    let span = random.random_range(2..6);
    // All windows rotate at the same times. A window that begins in the future behaves as if the clock had been set
    // back.
    let since = |periods: i64| timed.then_some(START.strict_add_signed(periods * EVERY as i64 - 323));
    for (key, periods) in [("a", 0), ("b", 0), ("c", -3), ("d", if may_jump { 40 } else { -40 })] {
        world.reserve(key, span, since(periods));
    }
    for _ in 0..steps {
        world.step(&mut random, may_jump);
        world.check();
    }
    world.merges
}

/// Random adds, rotations, merges, rebuilds and clock changes. BLOOMERY_SEQUENCES and BLOOMERY_SEED choose other
/// sequences.
#[test]
fn windows_equal_a_model_of_sets() {
    let (first, count) = (env("BLOOMERY_SEED", 1), env("BLOOMERY_SEQUENCES", 80));
    let mut merges = [0, 0];
    for seed in first..first + count {
        let options = if seed.is_multiple_of(2) { "" } else { " LAYOUT QUOTIENT" };
        for (timed, may_jump) in [(false, false), (true, false), (true, true)] {
            let run = std::panic::catch_unwind(|| walk(seed, options, timed, may_jump, 60));
            let Ok(done) = run else { panic!("seed {seed}, timed {timed}, may_jump {may_jump}") };
            (0..2).for_each(|which| merges[which] += done[which]);
        }
    }
    let [done, refused] = merges;
    println!("{done} merges, and {refused} refused because the clock was behind");
    assert!(done as u64 > 20 * count && refused as u64 > count / 8, "{merges:?}");
}

/// Time passes, and now and then the clock is set back. In a window of G generations, an added item stays for at least
/// G−1 periods of real time, and the window continues to forget.
#[test]
fn a_clock_that_is_set_back_takes_nothing_away_early() {
    for seed in 0..200 {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut world = World::new();
        let span = random.random_range(2..5);
        world.reserve("a", span, Some(START - START % EVERY));
        world.reserve("b", span, Some(START - START % EVERY - 7 * EVERY));
        let mut really = 0;
        let mut added = Vec::new();
        let promise = (span as u64 - 1) * EVERY;
        for _ in 0..120 {
            let passed = random.random_range(0..EVERY / 2);
            really += passed;
            world.set_clock(world.now + passed);
            if random.random_range(0..8) == 0 {
                // The clock is often set back by only a little, so that it wavers around the time of a rotation.
                let back = [1, 5, 40, EVERY / 2, EVERY, 5 * EVERY, DAY, 2 * YEAR][random.random_range(0..8)];
                world.set_clock(world.now - back);
            }
            let key = if random.random_bool(0.5) { "a" } else { "b" };
            added.push((key, world.add(key), really));
            if random.random_range(0..10) == 0 && world.server().text("BF.MERGE a b") == OK {
                let now = world.now;
                let b = world.models["b"].clone();
                world.model("a").catch_up(now);
                world.model("a").merge(&b, false);
                let of_b: Vec<_> = added.iter().filter(|(key, ..)| *key == "b").copied().collect();
                added.extend(of_b.into_iter().map(|(_, item, at)| ("a", item, at)));
            }
            for (key, item, at) in &added {
                let found = world.server().line(&format!("BF.EXISTS {key} {item}"));
                assert!(
                    found == Ok(Reply::Bool(true)) || really - at > promise,
                    "{seed}: {item} of {key}, {} ms",
                    really - at
                );
            }
        }
        world.check();
        // If the clock isn't set back again, all of these items are gone after G+1 periods in which something is added.
        for _ in 0..=(span as u64 + 1) * 2 {
            world.set_clock(world.now + EVERY / 2);
            _ = ["a", "b"].map(|key| world.add(key));
        }
        for (key, item, _) in &added {
            assert_eq!(
                world.server().line(&format!("BF.EXISTS {key} {item}")),
                Ok(Reply::Bool(false)),
                "{seed}"
            );
        }
        world.check();
    }
}

fn next_rotation(server: &FakeServer, key: &str) -> i64 {
    let Ok(Reply::Map(fields)) = server.line(&format!("BF.STATS {key}")) else { panic!() };
    let Some((_, Reply::Integer(next))) = fields.into_iter().find(|(name, _)| *name == "Next rotation in ms")
    else {
        panic!()
    };
    next
}

fn advice(server: &FakeServer, key: &str) -> String {
    let Ok(Reply::Map(fields)) = server.line(&format!("BF.STATS {key}")) else { panic!() };
    let Some((_, Reply::Array(lines))) = fields.into_iter().find(|(name, _)| *name == "Advice") else {
        panic!()
    };
    let text = |line: &Reply| match line {
        Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        line => panic!("{line:?}"),
    };
    lines.iter().map(text).collect()
}

/// However far the clock was ahead, and whatever happened to the filter in the meantime, the first write corrects the
/// filter's schedule, and replicas follow.
#[test]
fn a_clock_that_was_ahead_is_corrected_by_the_next_write() {
    for ahead in [1, EVERY - 1, EVERY, EVERY + 1, 2 * EVERY, 2 * EVERY + 1, DAY, YEAR, 30 * YEAR] {
        for way in ["", "CLEAR", "REBUILD", "COPY", "RESTORE", "ROTATE", "RESERVE", "PROMOTE"] {
            let mut world = World::new();
            world.set_clock(START + ahead);
            let since = START - START % EVERY;
            let since = if way == "RESERVE" { since + ahead / EVERY * EVERY } else { since };
            world.ok(&format!("BF.RESERVE a 1e-9 100 SEED 7 WINDOW 3 EVERY {EVERY} SINCE {since}"));
            world.ok("BF.RESERVE b 1e-9 100 LIKE a");
            world.server().line("BF.ADD a early").unwrap();
            world.pair.follow();
            world.set_clock(START);
            let was_behind = next_rotation(world.server(), "a") > 2 * EVERY as i64;
            assert!(
                was_behind == (ahead > 2 * EVERY) || (EVERY..3 * EVERY).contains(&ahead),
                "{ahead} {way}"
            );
            match way {
                "CLEAR" => world.ok("BF.CLEAR a"),
                "REBUILD" => world.ok("BF.REBUILD a BEGIN SEED 7 CAPACITY 100"),
                "COPY" => {
                    let copy = world.server().copy("a");
                    world.server().put("a", copy);
                }
                "RESTORE" => {
                    let copy = Decoder::read(&world.server().dump("a")).unwrap();
                    world.server().put("a", copy);
                }
                "ROTATE" => world.ok("BF.ROTATE a"),
                "PROMOTE" => {
                    // The replica, whose clock is right, becomes the primary.
                    std::mem::swap(&mut world.pair.primary, &mut world.pair.replica);
                    world.pair.primary.take_replicated();
                    world.pair.primary.obeys.set(false);
                    world.pair.replica.obeys.set(true);
                    world.pair.primary.memory.set(None);
                    world.pair.primary.now_ms.set(START);
                }
                _ => {}
            }
            // A rotation and a rebuild are writes themselves.
            let is_behind = was_behind && !matches!(way, "ROTATE" | "REBUILD");
            assert_eq!(next_rotation(world.server(), "a") > 2 * EVERY as i64, is_behind, "{ahead} {way}");
            assert_eq!(advice(world.server(), "a").contains("clock behind"), is_behind, "{ahead} {way}");
            world.server().line("BF.ADD a now").unwrap();
            let sent = world.pair.follow();
            let corrected = sent.iter().filter(|line| line.starts_with("BF.ROTATE a SCHEDULE")).count();
            assert_eq!(corrected, usize::from(was_behind), "{ahead} {way} {sent:?}");
            assert!((1..=2 * EVERY as i64).contains(&next_rotation(world.server(), "a")));
            assert!(!advice(world.server(), "a").contains("clock behind"));
            // The window still rotates at the same time as the other windows, so that they can be merged.
            world.server().line("BF.ADD b now").unwrap();
            if way == "REBUILD" {
                world.ok("BF.REBUILD a COMMIT");
            }
            world.ok("BF.MERGE a b");
            // Items expire again, and no sooner than promised.
            world.set_clock(START + 2 * EVERY);
            world.server().line("BF.ADD a later").unwrap();
            assert_eq!(world.server().line("BF.EXISTS a now"), Ok(Reply::Bool(true)));
            world.set_clock(START + 5 * EVERY);
            world.server().line("BF.ADD a last").unwrap();
            for item in ["early", "now"] {
                assert_eq!(
                    world.server().line(&format!("BF.EXISTS a {item}")),
                    Ok(Reply::Bool(false)),
                    "{way} {item}"
                );
            }
            world.pair.follow();
        }
    }
}

/// Merged items keep their age even if one window was rotated manually more often than the other. Windows with
/// different schedules can't be merged.
#[test]
fn merged_items_keep_their_age() {
    ["", " LAYOUT QUOTIENT"].into_iter().for_each(merge_and_compare_ages);
}

fn merge_and_compare_ages(layout: &str) {
    let pair = Pair::new();
    let server = &pair.primary;
    let ok = |line: &str| assert_eq!(server.text(line), OK, "{line}");
    ok(&format!("BF.RESERVE c 1e-6 100 WINDOW 3 SEED 1{layout}"));
    ok("BF.RESERVE d 1e-6 100 LIKE c");
    (0..3).for_each(|_| ok("BF.ROTATE c"));
    server.line("BF.MADD d x y z").unwrap();
    ok("BF.MERGE c d");
    let ages = |key: &str| ["x", "y", "z"].map(|item| server.text(&format!("BF.AGE {key} {item}")));
    assert_eq!(ages("c"), ["Integer(0)"; 3]);
    // The destination was just created, so it doesn't have a generation as old as these items yet.
    ok("BF.ROTATE d");
    ok("BF.RESERVE young 1e-6 100 LIKE c");
    ok("BF.MERGE young d");
    assert_eq!(ages("young"), ["Integer(1)"; 3]);
    ok("BF.MERGE new d c");
    assert_eq!(ages("new"), ["Integer(0)"; 3]);
    // Generation numbers don't affect answers.
    ok("BF.RESERVE twin 1e-6 100 LIKE c");
    ok("BF.MERGE twin c");
    assert_eq!(server.text("BF.EQUAL twin c"), "Bool(true)");
    ok("BF.ROTATE twin");
    assert_eq!(server.text("BF.EQUAL twin c"), "Bool(false)");
    // Windows that don't rotate at the same times differ.
    ok("BF.RESERVE e 1e-6 100 SEED 1 WINDOW 3 EVERY 1000 SINCE 500");
    for (key, options) in [("f", "EVERY 1000 SINCE 501"), ("g", "EVERY 2000 SINCE 500"), ("h", "")] {
        ok(format!("BF.RESERVE {key} 1e-6 100 SEED 1 WINDOW 3 {options}").trim());
        let refused = server.text(&format!("BF.MERGE {key} e"));
        assert!(refused.starts_with("ERR the filter in 'e' has a different schedule;"), "{refused}");
        assert_eq!(server.text(&format!("BF.EQUAL {key} e")), "Bool(false)");
    }
    pair.follow();
}

#[test]
fn a_schedule_comes_from_a_primary_alone() {
    let server = FakeServer::default();
    server.line("BF.RESERVE w 0.01 100 WINDOW 3 EVERY 1000 SINCE 500").unwrap();
    let refusal = "ERR SCHEDULE is for replication only; to rotate, use BF.ROTATE key";
    assert_eq!(server.text("BF.ROTATE w SCHEDULE 1500 0"), refusal);
    server.obeys.set(true);
    let takes = "ERR SCHEDULE expects a Unix time in milliseconds, and the number of a generation";
    for line in
        ["SCHEDULE", "SCHEDULE 1500", "SCHEDULE x 0", "SCHEDULE 1500 -1", "SCHEDULE 4611686018427387905 0"]
    {
        assert_eq!(server.text(&format!("BF.ROTATE w {line}")), takes, "{line}");
    }
    assert_eq!(server.text("BF.ROTATE w SCHEDULE 1500 0"), OK);
    assert_eq!(server.take_replicated().last().unwrap(), "BF.ROTATE w SCHEDULE 1500 0");
}
