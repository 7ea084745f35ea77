//! A running command's view of the server: [`Call`], implemented with the server's API.

use super::api::{Context, Detached, OwnText, Text, add_latency};
use super::key::OpenKey;
use super::names::{name_of, rename};
use super::settings::{settings, tenants};
use super::waiting::{self, Commit, Request, Resumed};
use super::{guard, log, memory, reclaim, replication_sinks, uploads, workers};
use bloomery::filter::{Filter, Garbage, Live};
use bloomery::parallel::{ParallelFor, Stop};
use bloomery_commands::config::Settings;
use bloomery_commands::{
    Access, Background, Call, Chunked, CommandError, Continuation, Effect, Entry, Reply, Stored, TwoStep,
    Uploads,
};
use redis_module::raw::{
    REDISMODULE_CTX_FLAGS_LOADING, REDISMODULE_CTX_FLAGS_OOM, REDISMODULE_CTX_FLAGS_REPLICATED,
};
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a command blocks the server before it continues later.
const SLICE: Duration = Duration::from_millis(if cfg!(small_steps) { 0 } else { 1 });

/// A piece runs for at least this many times as long as its head (the part before its first item), even if this is
/// longer than a slice.
const SLICE_PER_HEAD: u32 = if cfg!(small_steps) { 0 } else { 2 };

/// Number of items after which a command continues later even if its slice isn't over, because sending their answers
/// takes another 20 ns each.
const MOST_ITEMS: usize = 1 << 16;

/// A command from a client, a primary or an AOF.
pub(super) struct ServerCall<'a> {
    pub(super) ctx: Context<'a>,
    pub(super) arguments: &'a [Text<'a>],
    /// The time when it began, if it is timed.
    started: Cell<Option<Instant>>,
    /// `REDISMODULE_CTX_FLAGS_*` of the context, once they have been read.
    flags: Cell<Option<u32>>,
    /// `None` for a command that can't be carried out in pieces.
    divided: Option<Divided>,
    pub(super) command: &'static Entry,
    /// The result of its work, if it runs again.
    resumed: Option<&'a Resumed>,
    /// What has happened to the key, for [`announce`](ServerCall::announce).
    events: RefCell<SmallVec<[&'static CStr; 4]>>,
    /// Why this server now differs from its primary, if it does.
    diverged: Cell<Option<CommandError>>,
}

/// A command that may be carried out in pieces.
struct Divided {
    /// Whether this call is a piece of a longer command.
    is_piece: bool,
    /// Whether its client may wait; `None` until that has been determined.
    may_wait: Cell<Option<bool>>,
    /// The time that the command needed before its first item.
    head: Cell<Duration>,
    rest: Cell<Option<Continuation>>,
}

impl<'a> ServerCall<'a> {
    #[inline(always)]
    pub(super) fn new(
        ctx: Context<'a>,
        command: &'static Entry,
        arguments: &'a [Text<'a>],
    ) -> ServerCall<'a> {
        let (started, flags, events, diverged) = Default::default();
        ServerCall { ctx, arguments, started, flags, divided: None, command, resumed: None, events, diverged }
    }

    /// A command that is run again.
    pub(super) fn resumed(
        ctx: Context<'a>,
        command: &'static Entry,
        arguments: &'a [Text<'a>],
        resumed: &'a Resumed,
    ) -> ServerCall<'a> {
        ServerCall { resumed: Some(resumed), ..ServerCall::new(ctx, command, arguments) }
    }

    /// Runs a step of a command that has waited.
    pub(super) fn run(
        &self,
        step: impl FnOnce(&ServerCall<'a>) -> Result<Reply, CommandError>,
    ) -> Result<Reply, CommandError> {
        self.start();
        let run = || self.outcome(self.reported(|| step(self)));
        let outcome = guard::call("again", run, || Err(CommandError::Internal));
        self.announce();
        outcome
    }

    /// Runs a step. If the command is timed and has blocked the server for a millisecond or more, reports it to LATENCY
    /// by name: the server's own event `command` doesn't say which command it was.
    #[inline(always)]
    pub(super) fn reported<R>(&self, step: impl FnOnce() -> R) -> R {
        let result = step();
        if let Some(took) = self.started.get().map(|started| started.elapsed())
            && took >= Duration::from_millis(1)
        {
            add_latency(name_of(self.command.name), took);
        }
        result
    }

    /// Lets the command be carried out in pieces.
    #[inline(always)]
    pub(super) fn divide(&mut self, is_piece: bool) {
        let (may_wait, head, rest) = Default::default();
        self.divided = Some(Divided { is_piece, may_wait, head, rest });
    }

    /// Times the command from now on, unless it is timed already. Returns the time at which the timing began.
    #[inline(always)]
    pub(super) fn start(&self) -> Instant {
        let started = self.started.get().unwrap_or_else(Instant::now);
        self.started.set(Some(started));
        started
    }

    /// Whether this call is a piece of a longer command.
    pub(super) fn is_piece(&self) -> bool {
        self.divided.as_ref().is_some_and(|divided| divided.is_piece)
    }

    /// The rest of the command, if the command [goes on later](Call::go_on_later).
    pub(super) fn rest(&self) -> Option<Continuation> {
        self.divided.as_ref().and_then(|divided| divided.rest.get())
    }

    /// Makes the client wait, unless it is waiting already. `None` if the client can't wait.
    fn wait(&self) -> Result<Option<Request>, CommandError> {
        match self.resumed.and_then(|resumed| resumed.request.take()) {
            Some(request) => Ok(Some(request)),
            None => waiting::block(self.ctx, self.arguments),
        }
    }

    /// The command's reply: `outcome`, or the reason why this server now differs from its primary.
    #[inline(always)]
    pub(super) fn outcome(&self, outcome: Result<Reply, CommandError>) -> Result<Reply, CommandError> {
        self.diverged.take().map_or(outcome, Err)
    }

    /// Announces what the command has done. No key may be open: other modules are called, and may delete the very
    /// filter that a reference still points to.
    #[inline(always)]
    pub(super) fn announce(&self) {
        let events = self.events.take();
        if !events.is_empty() {
            self.ctx.changed(self.text(1));
        }
        for event in events {
            self.ctx.notify(self.text(1), event);
        }
    }

    /// The context's flags, read once per command because reading them takes 150 instructions. Only for flags that
    /// don't change while the command runs.
    fn flags(&self) -> u32 {
        let flags = self.flags.get().unwrap_or_else(|| self.ctx.flags());
        self.flags.set(Some(flags));
        flags
    }

    /// Replicates a command with the key at argument 1, these words, and the items in these arguments.
    fn send<'t>(&'t self, command: &str, words: impl IntoIterator<Item = Text<'t>>, items: &[usize]) {
        let items = items.iter().map(|index| self.text(*index));
        let arguments: SmallVec<[Text<'_>; 16]> =
            std::iter::once(self.text(1)).chain(words).chain(items).collect();
        self.ctx.replicate(name_of(command), &arguments);
    }

    /// Replicates a command with the key at argument 1 and these words.
    fn send_words(&self, command: &str, words: &[Vec<u8>]) {
        let own: Vec<OwnText> = words.iter().map(|word| OwnText::new(word)).collect();
        self.send(command, own.iter().map(OwnText::as_text), &[]);
    }

    /// Argument `index`. Commands use only arguments that their arity guarantees or that they have counted.
    #[inline(always)]
    #[allow(
        clippy::indexing_slicing,
        reason = "a wrong index is a bug, which the guard turns into an error reply"
    )]
    fn text(&self, index: usize) -> Text<'a> {
        self.arguments[index]
    }
}

impl<'a> Call<'a> for ServerCall<'a> {
    type Key<T: Stored> = OpenKey<'a, T>;

    #[inline(always)]
    fn argc(&self) -> usize {
        self.arguments.len()
    }

    #[inline(always)]
    fn arg(&self, index: usize) -> &'a [u8] {
        self.text(index).bytes()
    }

    #[inline(always)]
    fn open<T: Stored>(&self, index: usize, access: Access) -> OpenKey<'a, T> {
        let key = OpenKey::open(self.ctx, self.text(index), access);
        #[cfg(failpoints)]
        bloomery_commands::failpoint::hit("open");
        key
    }

    fn settings(&self) -> Settings {
        settings()
    }

    fn string<R>(&self, index: usize, read: impl FnOnce(&[u8]) -> R) -> Result<R, CommandError> {
        Ok(self.open::<Filter>(index, Access::Read).string(read)?)
    }

    fn hash_field(&self, index: usize, field: &'static str) -> Result<Option<Vec<u8>>, CommandError> {
        let field = CString::new(field).unwrap_or_default();
        Ok(self.open::<Filter>(index, Access::Read).hash_field(&field)?)
    }

    fn now_ms(&self) -> u64 {
        self.resumed.and_then(|resumed| resumed.now_ms).unwrap_or_else(|| self.ctx.now_ms())
    }

    fn renamed(&self, text: String) -> String {
        rename(text)
    }

    fn is_from_primary(&self) -> bool {
        self.flags() & (REDISMODULE_CTX_FLAGS_REPLICATED | REDISMODULE_CTX_FLAGS_LOADING) != 0
    }

    fn admit(&self, total: u64, more: u64) -> Result<(), CommandError> {
        self.admit_tenant(|| total)?;
        memory::admit(self.ctx, settings().max_filter_bytes, total, more, true)
    }

    fn admit_outside_keys(&self, total: u64, more: u64) -> Result<(), CommandError> {
        memory::admit(self.ctx, settings().max_filter_bytes, total, more, false)
    }

    fn admit_tenant(&self, total: impl FnOnce() -> u64) -> Result<(), CommandError> {
        let Some(quota) = tenants().of(self.arg(1)) else { return Ok(()) };
        quota.admit(self.open::<Filter>(1, Access::Read).tenant_bytes(), total())
    }

    fn saves(&self) -> u64 {
        replication_sinks::saves()
    }

    #[inline]
    fn replicate(&self, effect: Effect<'_>) {
        let is_clients = self.resumed.is_none();
        match effect {
            Effect::Verbatim if is_clients => self.ctx.replicate_verbatim(),
            // Nobody receives this, but it makes the server count a change, for the option `save`.
            _ if is_clients && !self.has_replication_sinks() => self.ctx.replicate_verbatim(),
            // This context isn't the client's, and doesn't know the client's command.
            Effect::Verbatim => {
                self.ctx.replicate(name_of(self.command.name), self.arguments.get(1..).unwrap_or_default());
            }
            Effect::Items(command, indices) => self.send(command, [], indices),
            Effect::Arguments(command, words) => self.send_words(command, &words),
            Effect::Creation(command, words) => self.send_words(command, &words()),
        }
    }

    fn has_replication_sinks(&self) -> bool {
        replication_sinks::exist(self.ctx, self.flags())
    }

    #[inline]
    fn changed(&self, event: &'static CStr) {
        self.events.borrow_mut().push(event);
    }

    fn discard(&self, dropped: Garbage) {
        let bytes = dropped.bytes();
        reclaim::free(dropped, bytes);
    }

    fn threads(&self) -> usize {
        workers::threads()
    }

    fn parallel(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        workers::fork(tasks, task);
    }

    fn offload(
        &self,
        argument: usize,
        inputs: Arc<[Live]>,
        work: impl FnOnce(&[u8], &ParallelFor<'_>, &Stop) -> Option<Result<Reply, CommandError>> + Send + 'static,
    ) -> Result<Reply, CommandError> {
        waiting::offload(self.ctx, self.command, self.text(argument), inputs, work)
    }

    fn may_be_long(&self) {
        self.start();
    }

    fn should_pause(&self, done: usize) -> bool {
        let Some(Divided { is_piece, may_wait, head, .. }) = &self.divided else { return false };
        let elapsed = self.start().elapsed();
        if done == 0 {
            head.set(elapsed);
            return false;
        }
        // Each piece has the same head. A BF.INSERT with 100,000 words of options and 100,000 items took 6 s in pieces
        // of 32 items, and 43 ms in one piece.
        let is_long =
            (done >= MOST_ITEMS || elapsed >= SLICE) && elapsed >= head.get().saturating_mul(SLICE_PER_HEAD);
        let client_may_wait = || {
            let may = may_wait.get().unwrap_or_else(|| waiting::may_block(self.ctx));
            may_wait.set(Some(may));
            may
        };
        is_long && (*is_piece || client_may_wait())
    }

    fn go_on_later(&self, rest: Continuation) {
        if let Some(divided) = &self.divided {
            divided.rest.set(Some(rest));
        }
    }

    fn goes_to_background(&self, bytes: u64) -> bool {
        let may_wait = || match self.resumed {
            Some(_) => workers::has_workers(),
            None => workers::may_wait(self.ctx),
        };
        bytes >= waiting::LONG && may_wait()
    }

    fn in_background(&self, job: Background, mut step: impl TwoStep) -> Result<Reply, CommandError> {
        // A command whose client can't wait doesn't get here: see `goes_to_background`.
        let request = self.wait()?.ok_or(CommandError::Internal)?;
        let command = self.command;
        if job.keys.iter().any(|index| waiting::is_held(self.ctx, self.text(*index), request.number())) {
            waiting::wait_for_keys(self.ctx, request, command, job.keys);
            return Ok(Reply::Later);
        }
        let bytes = job.memory.bytes();
        let prepare = Box::new(move |data: &[&[u8]], parallel: &ParallelFor<'_>| -> Commit {
            let mut prepared = Some(step.prepare(data, parallel));
            Box::new(move |ctx, arguments, resumed| {
                let call = ServerCall::resumed(ctx, command, arguments, resumed);
                let take = || match prepared.take() {
                    Some(prepared) => prepared,
                    None => unreachable!("it is taken once"),
                };
                let outcome = call.run(|call| step.commit(call, take));
                reclaim::free(prepared, bytes);
                outcome
            })
        });
        waiting::prepare(self.ctx, request, command, job, prepare);
        Ok(Reply::Later)
    }

    fn send<T: Chunked>(&self, filter: T, event: &'static CStr) -> Result<Reply, T> {
        // While the key's slot is moving to this node, a client may use the key only in the one command that follows
        // ASKING.
        let stays = || {
            let detached = Detached::new(self.ctx, self.ctx.database());
            detached.is_some_and(|anyone| anyone.context().serves(&[self.text(1)]))
        };
        if !(self.goes_to_background(filter.bytes())
            && uploads::can_be_sent()
            && self.has_replication_sinks()
            && stays())
        {
            return Err(filter);
        }
        let Ok(Some(request)) = self.wait() else { return Err(filter) };
        uploads::send(self.ctx, self.text(1), filter, event);
        waiting::send(self.ctx, request, self.command);
        Ok(Reply::Later)
    }

    fn is_out_of_memory(&self) -> bool {
        self.ctx.flags() & REDISMODULE_CTX_FLAGS_OOM != 0
    }

    fn evicts(&self) -> bool {
        memory::evicts(self.ctx)
    }

    fn log(&self, line: &str) {
        log::warning(line);
    }

    fn diverged(&self, why: CommandError) {
        self.diverged.set(Some(why));
    }

    fn with_uploads<R>(&self, work: impl FnOnce(&mut Uploads, i32) -> R) -> R {
        let database = self.ctx.database();
        uploads::with_uploads(self.ctx, |uploads| work(uploads, database))
    }
}
