//! A waiting client, and what it waits for.

use super::super::api::{Context, Detached};
use super::super::key::OpenKey;
use super::super::uploads;
use super::client::{Request, Retained};
use super::pieces::InPieces;
use super::reading::Reading;
use super::timer::NextTurn;
use super::work::{Commit, PoolWork};
use bloomery::filter::{Filter, LiveRef};
use bloomery_commands::{Access, CommandError, Entry, Key};
use std::time::Duration;

/// Milliseconds between two turns, if clients wait for something that doesn't announce its end, such as a pause.
const PAUSED_MS: i64 = 10;

/// A waiting client.
pub(super) struct Waiting {
    pub(super) request: Request,
    pub(super) command: &'static Entry,
    pub(super) database: i32,
    /// The indexes of the arguments that name the keys that the client holds.
    pub(super) keys: Vec<usize>,
    pub(super) state: State,
    /// Whether the client has disconnected.
    pub(super) is_gone: bool,
}

/// What a client waits for.
pub(super) enum State {
    /// For the next piece of its command.
    InPieces(InPieces),
    /// For the piece that is running.
    InPiece,
    /// For its keys, which other clients hold.
    Key,
    /// For a string that is being read for its work.
    Reading(Reading),
    /// For the pool, which does its work.
    Working(PoolWork),
    /// For its result, which is being sent to replicas and the AOF.
    Sending {
        /// Whether all pieces but the last have been sent, or sending has been given up.
        is_over: bool,
    },
    /// For its reply, which is on its way.
    Reply,
}

impl State {
    /// Reads the next slice of a string. After the last slice, the work begins.
    pub(super) fn reading(mut reading: Reading, ctx: Context<'_>, request: &Request, database: i32) -> State {
        let is_read = match reading.read(ctx, request, database) {
            Ok(false) => return State::Reading(reading),
            Ok(true) => Ok(()),
            Err(why) => Err(why),
        };
        State::Working(reading.begin(request, is_read))
    }
}

/// What to do with a client.
pub(super) enum Next {
    /// Its keys may be free.
    CheckKeys,
    /// Its command can go on, or has ended because the client has disconnected.
    Run,
    /// Its command, which runs in pieces, has ended because the client has disconnected.
    EndPieces,
}

impl Waiting {
    /// The work whose inputs the client holds.
    pub(super) fn work(&self) -> Option<&PoolWork> {
        match &self.state {
            State::Reading(reading) => Some(reading.work()),
            State::Working(work) => Some(work),
            _ => None,
        }
    }

    pub(super) fn holds_keys(&self) -> bool {
        !self.keys.is_empty()
    }

    /// The names of the keys that the client holds.
    pub(super) fn names(&self) -> impl Iterator<Item = &[u8]> {
        let arguments = self.request.arguments();
        self.keys.iter().filter_map(|index| arguments.get(*index)).map(Retained::bytes)
    }

    /// The addresses of the filters that the client holds.
    pub(super) fn filters(&self) -> impl Iterator<Item = usize> {
        let work = self.work().filter(|_| self.holds_keys());
        work.into_iter().flat_map(|work| work.inputs.iter().map(|input| input.as_ref().address()))
    }

    /// Whether the client's work reads the filter.
    pub(super) fn reads(&self, filter: LiveRef<'_>) -> bool {
        self.work().is_some_and(|work| work.inputs.iter().any(|input| input.as_ref().is_shared_with(filter)))
    }

    /// Whether the client's result is being sent.
    pub(super) fn is_sending(&self) -> bool {
        matches!(self.state, State::Sending { .. })
    }

    /// What to do with the client now, if anything. `may_write` says whether commands are allowed to run.
    pub(super) fn next(&self, may_write: bool, is_freed: bool) -> Option<Next> {
        let is_ready = match &self.state {
            State::InPiece | State::Reply => false,
            State::InPieces(_) => return self.is_gone.then_some(Next::EndPieces),
            State::Reading(_) => self.is_gone,
            State::Key if self.is_gone => true,
            State::Key => return (may_write && is_freed).then_some(Next::CheckKeys),
            State::Working(work) => work.is_prepared() && (may_write || self.is_gone),
            State::Sending { is_over } => (*is_over || self.is_gone) && may_write,
        };
        is_ready.then_some(Next::Run)
    }

    /// When the client must be looked at again. A job announces its end by itself.
    pub(super) fn next_turn(&self) -> NextTurn {
        match &self.state {
            State::InPiece | State::Reply => NextTurn::Never,
            State::Working(work) if !work.is_prepared() => NextTurn::Never,
            State::Reading(_) | State::Sending { is_over: false } => NextTurn::After(1),
            _ => NextTurn::After(PAUSED_MS),
        }
    }

    /// Reads the next slice of the string that the client's work needs.
    pub(super) fn read_slice(&mut self, ctx: Context<'_>) {
        self.state = match std::mem::replace(&mut self.state, State::Key) {
            State::Reading(reading) => State::reading(reading, ctx, &self.request, self.database),
            other => other,
        };
    }

    /// Sends part of the client's result. Sending ends early if something else is in the key by then.
    pub(super) fn send_more(&mut self, ctx: Context<'_>, turn: Duration) {
        let State::Sending { is_over } = &mut self.state else { return };
        let (name, detached) = (self.request.arguments().get(1), Detached::new(ctx, self.database));
        *is_over = match (name, &detached) {
            (Some(name), Some(detached)) => {
                let (ctx, name) = (detached.context(), name.text());
                let is_empty = matches!(OpenKey::<Filter>::open(ctx, name, Access::Read).value(), Ok(None));
                !is_empty || uploads::send_more(ctx, name, turn)
            }
            _ => true,
        };
    }

    /// Does now what the client waits for, except for keys.
    pub(super) fn finish(&mut self, ctx: Context<'_>) {
        while matches!(self.state, State::Reading(_)) {
            self.read_slice(ctx);
        }
        while matches!(self.state, State::Sending { is_over: false }) && !self.is_gone {
            self.send_more(ctx, Duration::MAX);
        }
        if let State::Working(work) = &self.state {
            work.finish();
        }
    }

    /// The client's work, and its second step: `None` if the client has only waited for keys, or its result was sent.
    pub(super) fn take_step(&mut self) -> (Option<PoolWork>, Result<Option<Commit>, CommandError>) {
        match std::mem::replace(&mut self.state, State::Reply) {
            State::Reading(reading) => (Some(reading.into_work()), Err(CommandError::Internal)),
            State::Working(work) => {
                let commit = work.take_commit();
                (Some(work), commit.map(Some))
            }
            _ => (None, Ok(None)),
        }
    }
}
