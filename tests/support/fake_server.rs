//! A fake server, which runs commands without a real one. It keeps keys in a map, and effects and events in lists. Its
//! clock stands still until a test sets it.

use bloomery::filter::{Bloom, Cuckoo, Filter, Foreign, Garbage, Live};
use bloomery::parallel::{ParallelFor, Stop};
use bloomery::{Error, HashKind, Seed};
use bloomery_commands::config::Settings;
use bloomery_commands::{
    Access, Background, Call, Chunked, CommandError, Continuation, Data, END, Effect, Key, Reply, Stored,
    TwoStep, Unusable, Uploads, put_sent, run, table,
};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A key's value.
pub(crate) enum Content {
    Filter(Filter),
    String(Vec<u8>),
    Hash(BTreeMap<&'static str, &'static str>),
    /// A value that isn't a filter.
    Sketch(Box<dyn Any>),
    Other,
}

impl From<Filter> for Content {
    fn from(filter: Filter) -> Content {
        Content::Filter(filter)
    }
}

impl From<Bloom> for Content {
    fn from(filter: Bloom) -> Content {
        Content::Filter(Filter::Bloom(filter))
    }
}

impl From<Cuckoo> for Content {
    fn from(filter: Cuckoo) -> Content {
        Content::Filter(Filter::Cuckoo(filter))
    }
}

impl From<Foreign> for Content {
    fn from(filter: Foreign) -> Content {
        Content::Filter(Filter::Foreign(Box::new(filter)))
    }
}

/// The server. Contents are in `Rc`s, so that an opened key doesn't keep the map borrowed.
#[derive(Default)]
pub(crate) struct FakeServer {
    pub(crate) keys: RefCell<BTreeMap<Vec<u8>, Rc<RefCell<Content>>>>,
    pub(crate) settings: Cell<Settings>,
    pub(crate) now_ms: Cell<u64>,
    pub(crate) obeys: Cell<bool>,
    /// The largest size in bytes that a filter may have, or `None` for any size.
    pub(crate) memory: Cell<Option<u64>>,
    /// The number of bytes that a command may ask for, or `None` for any number.
    pub(crate) left: Cell<Option<u64>>,
    /// The number of times that a command asked for memory.
    pub(crate) asked: Cell<usize>,
    /// Number of bytes that were granted to commands, and for which the server may evict keys.
    pub(crate) may_evict: Cell<u64>,
    /// Whether a command has worked in the background.
    pub(crate) worked_in_background: Cell<bool>,
    /// Number of times that the keys were saved.
    pub(crate) saves: Cell<u64>,
    /// Commands for the replicas, as words.
    pub(crate) replicated: RefCell<Vec<Vec<Vec<u8>>>>,
    pub(crate) events: RefCell<Vec<&'static CStr>>,
    pub(crate) retired: Cell<usize>,
    /// Number of threads in addition to this one.
    pub(crate) workers: Cell<usize>,
    /// Number of commands whose work was handed to the pool.
    pub(crate) offloaded: Cell<usize>,
    /// The number of tasks after which the client of a command in the pool disconnects.
    pub(crate) leaves_after: Cell<Option<usize>>,
    /// Whether commands that can work in the background do so.
    pub(crate) goes_to_background: Cell<bool>,
    /// Called between the two steps of a command that works in the background.
    pub(crate) meanwhile: RefCell<Option<Meanwhile>>,
    /// The second step of the running command, and the command's time.
    commit: RefCell<Option<(Commit, u64)>>,
    /// Whether there is neither a replica nor an append-only file.
    pub(crate) has_no_sinks: Cell<bool>,
    /// Whether the running command has begun to send a filter.
    is_sending: Cell<bool>,
    /// Called after each piece of a filter that is being sent.
    pub(crate) between_pieces: RefCell<Option<Between>>,
    pub(crate) uploads: RefCell<Uploads>,
    diverged: Cell<Option<CommandError>>,
    /// Lines of the log.
    pub(crate) log: RefCell<Vec<String>>,
    pub(crate) is_out_of_memory: Cell<bool>,
    /// Whether no key may be opened for writing.
    pub(crate) keys_are_locked: Cell<bool>,
    pub(crate) evicts: Cell<bool>,
    /// Whether a command has announced that it might take a long time.
    pub(crate) is_timed: Cell<bool>,
    /// The number of items after which a command pauses and continues later, if it is allowed to.
    pub(crate) pauses_after: Cell<Option<usize>>,
    /// The part of a paused command that is still to be done.
    pub(crate) rest: Cell<Option<Continuation>>,
}

thread_local! {
    /// The number of the next seed that a server of this thread draws. Each test has a thread, so it gets the same
    /// seeds in each run, and a replica that drew a seed of its own would get another one than its primary.
    static SEEDS: Cell<u64> = const { Cell::new(1) };
}

type Meanwhile = Box<dyn FnOnce(&FakeServer)>;
type Between = Box<dyn FnMut(&FakeServer)>;

/// The second step of a command that works in the background.
type Commit = Box<dyn FnOnce(&FakeCall<'_>) -> Result<Reply, CommandError>>;

/// One command.
pub(crate) struct FakeCall<'a> {
    server: &'a FakeServer,
    arguments: &'a [&'a [u8]],
    /// In the command's second step, the time of its first step.
    first_ms: Option<u64>,
}

/// An opened key.
pub(crate) struct FakeKey<'a, T> {
    server: &'a FakeServer,
    name: &'a [u8],
    value: Option<Rc<RefCell<Content>>>,
    is_locked: bool,
    _value: PhantomData<T>,
}

/// The value of a key, if it is of the type `T`.
fn value_of<T: 'static>(content: &mut Content) -> Option<&mut T> {
    match content {
        Content::Filter(Filter::Cuckoo(filter)) => (filter as &mut dyn Any).downcast_mut(),
        Content::Filter(filter) => (filter as &mut dyn Any).downcast_mut(),
        Content::Sketch(sketch) => sketch.downcast_mut(),
        _ => None,
    }
}

impl<T> FakeKey<'_, T> {
    fn check(&self) -> Result<(), Unusable> {
        if self.is_locked { Err(Unusable::Locked) } else { Ok(()) }
    }
}

impl<T: Stored> Key<T> for FakeKey<'_, T> {
    fn value(&self) -> Result<Option<&T>, Unusable> {
        self.check()?;
        let Some(content) = &self.value else { return Ok(None) };
        // SAFETY: commands run one at a time and open each key once for writing, as on the server.
        value_of(unsafe { &mut *content.as_ptr() }).map(|value| Some(&*value)).ok_or(Unusable::WrongType)
    }

    fn value_mut(&mut self) -> Result<Option<&mut T>, Unusable> {
        self.check()?;
        let Some(content) = &self.value else { return Ok(None) };
        // SAFETY: as above.
        value_of(unsafe { &mut *content.as_ptr() }).map(Some).ok_or(Unusable::WrongType)
    }

    fn create(&mut self, value: T) {
        assert!(!self.is_locked);
        let mut value = Some(value);
        let any = &mut value as &mut dyn Any;
        let bloom = any.downcast_mut::<Option<Filter>>().and_then(Option::take);
        let cuckoo = any.downcast_mut::<Option<Cuckoo>>().and_then(Option::take);
        let content = match bloom.or(cuckoo.map(Filter::Cuckoo)) {
            Some(filter) => filter.into(),
            None => Content::Sketch(Box::new(value.expect("a value"))),
        };
        let content = Rc::new(RefCell::new(content));
        self.server.keys.borrow_mut().insert(self.name.to_vec(), content.clone());
        self.value = Some(content);
    }

    fn convert<R>(&mut self, change: impl FnOnce(&mut T) -> R, _: impl FnOnce(&mut T) -> T) -> Option<R> {
        self.value_mut().unwrap().map(change)
    }
}

impl<'a> Call<'a> for FakeCall<'a> {
    type Key<T: Stored> = FakeKey<'a, T>;

    fn argc(&self) -> usize {
        self.arguments.len()
    }

    fn arg(&self, index: usize) -> &'a [u8] {
        self.arguments[index]
    }

    fn open<T: Stored>(&self, index: usize, access: Access) -> FakeKey<'a, T> {
        let (name, keys) = (self.arguments[index], self.server.keys.borrow());
        let is_locked = access != Access::Read && self.server.keys_are_locked.get();
        FakeKey { server: self.server, name, value: keys.get(name).cloned(), is_locked, _value: PhantomData }
    }

    fn settings(&self) -> Settings {
        self.server.settings.get()
    }

    fn string<R>(&self, index: usize, read: impl FnOnce(&[u8]) -> R) -> Result<R, CommandError> {
        match self.server.keys.borrow().get(self.arguments[index]).map(|content| content.borrow()) {
            None => Ok(read(&[])),
            Some(content) => match &*content {
                Content::String(bytes) => Ok(read(bytes)),
                _ => Err(CommandError::WrongType),
            },
        }
    }

    fn hash_field(&self, index: usize, field: &'static str) -> Result<Option<Vec<u8>>, CommandError> {
        match self.server.keys.borrow().get(self.arguments[index]).map(|content| content.borrow()) {
            None => Ok(None),
            Some(content) => match &*content {
                Content::Hash(fields) => Ok(fields.get(field).map(|text| text.as_bytes().to_vec())),
                _ => Err(CommandError::WrongType),
            },
        }
    }

    fn new_seed(&self, hash: HashKind) -> Result<Seed, Error> {
        // 2^64 / golden ratio.
        let low = SEEDS.replace(SEEDS.get() + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Ok(Seed { low, high: if hash.seed_bits() > 64 { !low } else { 0 } })
    }

    fn now_ms(&self) -> u64 {
        assert!(!self.server.obeys.get(), "a command that obeys has no business with the clock");
        self.first_ms.unwrap_or(self.server.now_ms.get())
    }

    fn is_from_primary(&self) -> bool {
        self.server.obeys.get()
    }

    fn admit(&self, total: u64, more: u64) -> Result<(), CommandError> {
        self.admit_outside_keys(total, more)?;
        self.server.may_evict.set(self.server.may_evict.get() + more);
        Ok(())
    }

    fn admit_outside_keys(&self, total: u64, more: u64) -> Result<(), CommandError> {
        self.server.asked.set(self.server.asked.get() + 1);
        if let Some(left) = self.server.left.get().filter(|left| more > *left) {
            return Err(CommandError::Memory { bytes: more, bound: Some((left, "what is left")) });
        }
        match self.server.memory.get() {
            Some(limit) if total > limit => {
                Err(CommandError::Memory { bytes: total, bound: Some((limit, "the test")) })
            }
            _ => Ok(()),
        }
    }

    fn saves(&self) -> u64 {
        self.server.saves.get() + 1
    }

    fn replicate(&self, effect: Effect<'_>) {
        if self.server.has_no_sinks.get() {
            return;
        }
        let name = |command: &str| {
            assert!(table().iter().any(|entry| entry.name == command), "{command} is in the table");
            command.to_ascii_uppercase().into_bytes()
        };
        let words = match effect {
            Effect::Verbatim => self.arguments.iter().map(|word| word.to_vec()).collect(),
            Effect::Items(command, indices) => {
                let items = indices.iter().map(|index| self.arguments[*index].to_vec());
                [name(command), self.arguments[1].to_vec()].into_iter().chain(items).collect()
            }
            Effect::Arguments(command, words) => {
                [name(command), self.arguments[1].to_vec()].into_iter().chain(words).collect()
            }
            Effect::Creation(command, words) => {
                [name(command), self.arguments[1].to_vec()].into_iter().chain(words()).collect()
            }
        };
        self.server.replicated.borrow_mut().push(words);
    }

    fn has_replication_sinks(&self) -> bool {
        !self.server.has_no_sinks.get()
    }

    fn changed(&self, event: &'static CStr) {
        self.server.events.borrow_mut().push(event);
    }

    fn discard(&self, dropped: Garbage) {
        let parts = match dropped {
            Garbage::Layers(layers) => layers.len(),
            Garbage::Tables(tables) => tables.len(),
            Garbage::Other(..) => 1,
        };
        self.server.retired.set(self.server.retired.get() + parts);
    }

    fn threads(&self) -> usize {
        self.server.workers.get() + 1
    }

    fn parallel(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        if self.server.workers.get() == 0 {
            return (0..tasks).for_each(task);
        }
        std::thread::scope(|scope| (0..tasks).for_each(|index| drop(scope.spawn(move || task(index)))));
    }

    fn offload(
        &self,
        argument: usize,
        _inputs: Arc<[Live]>,
        work: impl FnOnce(&[u8], &ParallelFor<'_>, &Stop) -> Option<Result<Reply, CommandError>> + Send + 'static,
    ) -> Result<Reply, CommandError> {
        self.server.offloaded.set(self.server.offloaded.get() + 1);
        let bytes = self.arguments[argument].to_vec();
        let (stop, after) = (Stop::default(), self.server.leaves_after.get());
        if after == Some(0) {
            stop.set();
        }
        let begun = AtomicUsize::new(0);
        let in_order = |tasks, task: &(dyn Fn(usize) + Sync)| {
            for index in 0..tasks {
                task(index);
                if Some(begun.fetch_add(1, Relaxed) + 1) == after {
                    stop.set();
                }
            }
        };
        // The work runs in another thread, so that it can't use anything that belongs to this thread.
        let reply =
            std::thread::scope(|scope| scope.spawn(|| work(&bytes, &in_order, &stop)).join().unwrap());
        assert_eq!(reply.is_none(), stop.is_set(), "only work that nobody waits for has no reply");
        reply.unwrap_or(Ok(Reply::Later))
    }

    fn may_be_long(&self) {
        self.server.is_timed.set(true);
    }

    fn should_pause(&self, done: usize) -> bool {
        self.server.pauses_after.get().is_some_and(|items| done >= items)
    }

    fn go_on_later(&self, rest: Continuation) {
        assert!(self.server.pauses_after.get().is_some(), "a command that may not pause goes on");
        self.server.rest.set(Some(rest));
    }

    fn goes_to_background(&self, _: u64) -> bool {
        self.server.goes_to_background.get()
    }

    fn in_background(&self, job: Background, mut command: impl TwoStep) -> Result<Reply, CommandError> {
        self.server.worked_in_background.set(true);
        let read: Vec<Vec<u8>> = match job.data {
            Data::Arguments(range) => self.arguments[range].iter().map(|data| data.to_vec()).collect(),
            Data::Key(index) => vec![self.string(index, <[u8]>::to_vec)?],
        };
        let in_order = |tasks, task: &(dyn Fn(usize) + Sync)| (0..tasks).for_each(task);
        let read: Vec<&[u8]> = read.iter().map(Vec::as_slice).collect();
        let prepare = || {
            let prepared = command.prepare(&read, &in_order);
            (command, prepared)
        };
        let (command, prepared) = std::thread::scope(|scope| scope.spawn(prepare).join().unwrap());
        let commit: Commit = Box::new(move |call| command.commit(call, || prepared));
        self.server.commit.replace(Some((commit, self.server.now_ms.get())));
        Ok(Reply::Later)
    }

    fn send<T: Chunked>(&self, filter: T, event: &'static CStr) -> Result<Reply, T> {
        if !self.server.goes_to_background.get() || !self.has_replication_sinks() {
            return Err(filter);
        }
        self.server.uploads.borrow_mut().send((0, self.arguments[1].to_vec()), filter, event);
        self.server.is_sending.set(true);
        Ok(Reply::Later)
    }

    fn is_out_of_memory(&self) -> bool {
        self.server.is_out_of_memory.get()
    }

    fn evicts(&self) -> bool {
        self.server.evicts.get()
    }

    fn log(&self, line: &str) {
        self.server.log.borrow_mut().push(line.to_owned());
    }

    fn diverged(&self, why: CommandError) {
        self.server.diverged.set(Some(why));
    }

    fn with_uploads<R>(&self, work: impl FnOnce(&mut Uploads, i32) -> R) -> R {
        work(&mut self.server.uploads.borrow_mut(), 0)
    }
}

impl FakeServer {
    /// Sets a key, and replaces any previous content.
    pub(crate) fn put(&self, key: &str, content: impl Into<Content>) {
        self.keys.borrow_mut().insert(key.into(), Rc::new(RefCell::new(content.into())));
    }

    /// A copy of the filter in a key.
    pub(crate) fn copy(&self, key: &str) -> Filter {
        match &*self.keys.borrow()[key.as_bytes()].borrow() {
            Content::Filter(filter) => filter.snapshot().unwrap(),
            _ => panic!("{key} holds another type"),
        }
    }

    /// Runs a command given as words, after the arity check that a real server does.
    pub(crate) fn run(&self, words: &[&[u8]]) -> Result<Reply, CommandError> {
        let name = std::str::from_utf8(words[0]).unwrap().to_ascii_lowercase();
        let entry = table().into_iter().find(|entry| entry.name == name).expect("a command of the table");
        let count = i32::try_from(words.len()).unwrap();
        if if entry.arity > 0 { count != entry.arity } else { count < -entry.arity } {
            return Err(CommandError::Arity);
        }
        let call = FakeCall { server: self, arguments: words, first_ms: None };
        let mut outcome = run(entry.name, &call);
        while let Some((commit, now_ms)) = self.commit.take() {
            assert_eq!(outcome, Ok(Reply::Later));
            if let Some(meanwhile) = self.meanwhile.take() {
                meanwhile(self);
            }
            outcome = commit(&FakeCall { first_ms: Some(now_ms), ..call });
            let goes_on = self.is_sending.get() || self.commit.borrow().is_some();
            assert_eq!(outcome == Ok(Reply::Later), goes_on);
        }
        if self.is_sending.take() {
            assert_eq!(outcome, Ok(Reply::Later));
            outcome = self.send(&FakeCall { server: self, arguments: words, first_ms: None });
        }
        self.diverged.take().map_or(outcome, Err)
    }

    /// Runs a command given as words that are owned.
    pub(crate) fn run_words(&self, words: &[Vec<u8>]) -> Result<Reply, CommandError> {
        self.run(&words.iter().map(Vec::as_slice).collect::<Vec<_>>())
    }

    /// Runs what another server has replicated.
    pub(crate) fn obey(&self, effects: &[Vec<Vec<u8>>]) {
        effects.iter().for_each(|words| drop(self.run_words(words).unwrap()));
    }

    /// A server that must obey, without memory.
    pub(crate) fn replica() -> FakeServer {
        let server = FakeServer::default();
        server.obeys.set(true);
        server.memory.set(Some(1));
        server.is_out_of_memory.set(true);
        server
    }

    /// Sends a filter, one piece at a time, and puts it into its key.
    fn send(&self, call: &FakeCall<'_>) -> Result<Reply, CommandError> {
        let key = (0, call.arguments[1].to_vec());
        loop {
            let is_last = self.uploads.borrow_mut().send_more(&key, |command, iterator, piece| {
                let words = vec![iterator.to_string().into_bytes(), piece.to_vec()];
                call.replicate(Effect::Arguments(command, words));
                false
            });
            if let Some(between) = self.between_pieces.borrow_mut().as_mut() {
                between(self);
            }
            if is_last {
                break;
            }
        }
        let outcome = put_sent(call);
        let stopped = self.uploads.borrow_mut().stop_sending(&key);
        assert_eq!(stopped.is_none(), outcome.is_ok());
        if let Some((_, command)) = stopped {
            let end = END.map(<[u8]>::to_vec).to_vec();
            call.replicate(Effect::Arguments(command, end));
        }
        outcome
    }

    /// Runs a line whose words are separated by blanks.
    pub(crate) fn line(&self, line: &str) -> Result<Reply, CommandError> {
        self.run(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>())
    }

    /// The reply to a line as one line of text: an error's text, or the reply's debug form.
    pub(crate) fn text(&self, line: &str) -> String {
        match self.line(line) {
            Ok(reply) => format!("{reply:?}"),
            Err(error) => error.to_string(),
        }
    }

    /// The commands that have been replicated since the last call, as lines.
    pub(crate) fn take_replicated(&self) -> Vec<String> {
        let lines = self.replicated.take();
        lines
            .iter()
            .map(|words| words.iter().map(|word| String::from_utf8_lossy(word)).collect::<Vec<_>>().join(" "))
            .collect()
    }

    /// The filter in a key, in wire form. The dumps of two servers are equal if the filters are equal bit for bit.
    pub(crate) fn dump(&self, key: &str) -> Vec<u8> {
        let keys = self.keys.borrow();
        let value = keys.get(key.as_bytes()).expect("the key exists").borrow();
        match &*value {
            Content::Filter(value) => bloomery::wire::Encoder::new(value).to_vec(),
            _ => panic!("{key} holds another type"),
        }
    }
}
