//! How a running command makes its client wait.

use super::super::api::{Context, Text};
use super::super::workers::{fork, may_wait};
use super::client::{Request, Retained};
use super::reading::Reading;
use super::registry::{self, block};
use super::state::State;
use super::work::{PoolWork, Prepare};
use bloomery::filter::Live;
use bloomery::parallel::{ParallelFor, Stop};
use bloomery_commands::{Background, CommandError, Data, Entry, Reply};
use std::sync::Arc;

/// A command works in the background if its filters have at least this many bytes of cells. With fewer, it would block
/// the server for at most about a millisecond, so it runs at once.
pub(crate) const LONG: u64 = if cfg!(small_steps) { 0 } else { 2 << 20 };

/// Answers a command with the result of `work` on an argument. A worker does the work while the client waits. If the
/// client can't wait, the main thread does the work immediately: in transactions and scripts, for commands from a
/// primary or an AOF, and if there are no workers. `inputs` are the filters that `work` reads.
pub(crate) fn offload<W>(
    ctx: Context<'_>,
    command: &'static Entry,
    text: Text<'_>,
    inputs: Arc<[Live]>,
    work: W,
) -> Result<Reply, CommandError>
where
    W: FnOnce(&[u8], &ParallelFor<'_>, &Stop) -> Option<Result<Reply, CommandError>> + Send + 'static,
{
    let here = |work: W| work(text.bytes(), &fork, &Stop::default()).unwrap_or(Err(CommandError::Internal));
    if !may_wait(ctx) {
        return here(work);
    }
    let Some(request) = block(ctx, &[text])? else { return here(work) };
    let work = PoolWork::reading(&request, inputs, work);
    registry::insert(request, command, ctx.database(), Vec::new(), State::Working(work));
    Ok(Reply::Later)
}

/// Starts the first step of a command.
pub(crate) fn prepare(
    ctx: Context<'_>,
    request: Request,
    command: &'static Entry,
    job: Background,
    prepare: Prepare,
) {
    let (database, keys, data) = (ctx.database(), job.keys.clone(), job.data.clone());
    let mut work = PoolWork::of_two_steps(ctx.now_ms(), job);
    let state = match data {
        Data::Arguments(range) => {
            let arguments = Arc::clone(request.arguments());
            work.prepare(request.client, move |parallel| {
                let read = arguments.get(range).unwrap_or_default();
                prepare(&read.iter().map(Retained::bytes).collect::<Vec<_>>(), parallel)
            });
            State::Working(work)
        }
        // This call only records which string the command has seen. Reading a slice here would take too long if
        // hundreds of commands began at the same time.
        Data::Key(key) => State::reading(Reading::new(work, prepare, key), ctx, &request, database),
    };
    registry::insert(request, command, database, keys, state);
}

/// Makes a command wait for its keys.
pub(crate) fn wait_for_keys(ctx: Context<'_>, request: Request, command: &'static Entry, keys: Vec<usize>) {
    registry::insert(request, command, ctx.database(), keys, State::Key);
}

/// Makes a command wait until its filter has been sent.
pub(crate) fn send(ctx: Context<'_>, request: Request, command: &'static Entry) {
    registry::insert(request, command, ctx.database(), vec![1], State::Sending { is_over: false });
}
