//! Splits commands into pieces. A command with many items has the same effect as several commands that each have some
//! of the items.
//!
//! A command that has blocked the server for long enough [goes on later](super::Call::go_on_later). This file decides
//! which items the next piece has, and combines the replies of the pieces into the command's reply.

use super::blob::cut;
use super::call::Continuation;
use super::error::CommandError;
use super::reply::Reply;
use std::num::NonZeroUsize;
use std::ops::Range;

/// What a piece adds to the reply of its command.
#[derive(Debug, PartialEq)]
pub struct Progress {
    /// The answers for the piece's items, if the command replies with a list.
    pub answers: Option<Reply>,
    /// The reply, if this was the last piece. For a list, this is the error that ends the list early, or
    /// [`Reply::Later`].
    pub end: Option<Result<Reply, CommandError>>,
}

/// A command that has run in part. Positions count arguments, or bytes if all items are in one argument.
#[derive(Debug)]
pub struct Pieces {
    first: usize,
    of: Option<usize>,
    width: Option<NonZeroUsize>,
    is_blob: bool,
    is_list: bool,
    /// Number of items that are done.
    done: usize,
    /// Number of items that were absent before, as BF.BULKADD counts them.
    sum: i64,
    /// Where the next piece begins.
    at: usize,
    /// Where the items end.
    end: usize,
    /// Maximum length of the next piece, in arguments or bytes.
    most: usize,
}

impl Pieces {
    /// Maximum number of arguments, and of bytes, in a piece. Copying this number of bytes takes 50 µs, and reading the
    /// lengths of the items in them takes 500 µs. Every piece repeats the arguments before the items. If there are more
    /// of these than the maximum number of arguments, their number is the maximum instead.
    const MOST: [usize; 2] = [1 << 16, 1 << 20];

    /// A command whose first piece is done. `end` is the command's number of arguments or, if all items are in one
    /// argument, that argument's length in bytes.
    pub fn new(rest: Continuation, end: usize) -> Pieces {
        let Continuation { first, done, of, within } = rest;
        let at = within.map_or(first.saturating_add(done), |within| within.at);
        let mut pieces = Pieces {
            first,
            of,
            width: within.and_then(|within| within.width),
            is_blob: within.is_some(),
            is_list: false,
            done,
            sum: 0,
            at,
            end,
            most: 0,
        };
        pieces.learn(if within.is_some() { at } else { done });
        pieces
    }

    /// Index of the argument with the first item, or with all items. The arguments before it are the same in every
    /// piece.
    pub fn first(&self) -> usize {
        self.first
    }

    /// Whether all items are in one argument.
    pub fn is_blob(&self) -> bool {
        self.is_blob
    }

    /// The next piece, as a range of arguments or bytes, and the number of its items. `blob` is the argument that
    /// contains all items, if there is one.
    pub fn next(&self, blob: &[u8]) -> (Range<usize>, usize) {
        let (len, items) = if self.is_blob {
            cut(blob.get(self.at..).unwrap_or_default(), self.width, self.most)
        } else {
            let len = self.most.min(self.end.saturating_sub(self.at));
            (len, len)
        };
        (self.at..self.at.saturating_add(len), items)
    }

    /// Limits the next piece to about twice the length of the previous one, which may have used up its time.
    fn learn(&mut self, len: usize) {
        let [arguments, bytes] = Pieces::MOST;
        let most = if self.is_blob { bytes } else { arguments.max(self.first) };
        self.most = len.saturating_mul(2).clamp(64, most);
    }

    /// Adds the reply of the first piece.
    pub fn begin(&mut self, reply: Reply) -> Progress {
        self.add(Ok(reply))
    }

    /// Adds the outcome of a piece, and records which items it left for the next piece.
    pub fn absorb(
        &mut self,
        (piece, items): (Range<usize>, usize),
        outcome: Result<Reply, CommandError>,
        rest: Option<Continuation>,
    ) -> Progress {
        let before = self.done;
        let (len, done) = match rest {
            None => (piece.len(), items),
            Some(rest) => (rest.within.map_or(rest.done, |within| within.at), rest.done),
        };
        self.learn(len);
        match outcome {
            Ok(reply) => {
                self.at = piece.start.saturating_add(len);
                self.done = before.saturating_add(done);
                self.add(Ok(reply))
            }
            Err(why) => self.add(Err(why)),
        }
    }

    fn add(&mut self, outcome: Result<Reply, CommandError>) -> Progress {
        let is_last = self.at >= self.end;
        let end = |reply| is_last.then_some(Ok(reply));
        match outcome {
            Ok(Reply::Integer(added)) => {
                self.sum = self.sum.saturating_add(added);
                Progress { answers: None, end: end(Reply::Integer(self.sum)) }
            }
            Ok(Reply::Ok) => Progress { answers: None, end: end(Reply::Ok) },
            Ok(list) => {
                self.is_list = true;
                let is_last = is_last || list.ends_early();
                Progress { answers: Some(list), end: is_last.then_some(Ok(Reply::Later)) }
            }
            Err(why) if self.is_list => Progress { answers: None, end: Some(Err(why)) },
            Err(why) => Progress { answers: None, end: Some(Err(self.stopped(why))) },
        }
    }

    /// Converts a piece's error into the whole command's error, which also counts the items of the earlier pieces.
    fn stopped(&self, why: CommandError) -> CommandError {
        let (done, why) = match why {
            CommandError::Stopped { done, why, .. } => (done, why),
            why => (0, Box::new(why)),
        };
        let done = self.done.saturating_add(done);
        CommandError::Stopped { done, of: self.of, why: Box::new(why.after(self.done)) }
    }
}
