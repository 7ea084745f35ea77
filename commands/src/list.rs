//! The families, and what is done for each of their parts.

use super::call::Call;
use super::chunked::Chunked;
use super::error::CommandError;
use super::reply::Reply;
use super::table::{Command, Entry, Family, ForEach};
use super::{bloom, cms, cuckoo, tdigest, topk, transfer};
use std::marker::PhantomData;

/// Does something for each family and its parts.
pub fn for_each(work: &mut impl ForEach) {
    bloom::each(work);
    cuckoo::each(work);
    cms::each(work);
    topk::each(work);
    tdigest::each(work);
}

/// All families.
pub fn families() -> Vec<&'static Family> {
    struct Families(Vec<&'static Family>);
    impl ForEach for Families {
        fn family(&mut self, family: &'static Family) {
            self.0.push(family);
        }
    }
    let mut families = Families(Vec::new());
    for_each(&mut families);
    families.0
}

/// The entries of all commands.
pub fn table() -> Vec<Entry> {
    struct Table(Vec<Entry>);
    impl ForEach for Table {
        fn command<T: Command>(&mut self) {
            self.0.push(T::ENTRY);
        }
    }
    let mut table = Table(Vec::new());
    for_each(&mut table);
    table.0
}

/// Ends the [sending](Call::send) of a filter of any family, as [`crate::transfer`] does for one of them.
pub fn put_sent<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let name = call.arg(1).to_vec();
    let load = call.with_uploads(|uploads, database| uploads.command_of_sent(&(database, name)));
    let mut put = Put { load, call, outcome: Err(CommandError::Internal), _arguments: PhantomData };
    for_each(&mut put);
    put.outcome
}

/// Runs the command that has this name under the prefix `bf`.
///
/// # Errors
/// As for [`Command::run`].
pub fn run<'a, C: Call<'a>>(name: &str, call: &C) -> Result<Reply, CommandError> {
    let mut run = Run { name, call, outcome: Err(CommandError::Internal), _arguments: PhantomData };
    for_each(&mut run);
    run.outcome
}

struct Run<'c, 'a, C> {
    name: &'c str,
    call: &'c C,
    outcome: Result<Reply, CommandError>,
    _arguments: PhantomData<&'a [u8]>,
}

impl<'a, C: Call<'a>> ForEach for Run<'_, 'a, C> {
    fn command<T: Command>(&mut self) {
        if T::ENTRY.name == self.name {
            self.outcome = T::run(self.call);
        }
    }
}

struct Put<'c, 'a, C> {
    load: Option<&'static str>,
    call: &'c C,
    outcome: Result<Reply, CommandError>,
    _arguments: PhantomData<&'a [u8]>,
}

impl<'a, C: Call<'a>> ForEach for Put<'_, 'a, C> {
    fn chunked<T: Chunked>(&mut self) {
        if self.load == Some(T::LOAD) {
            self.outcome = transfer::put_sent::<T, C>(self.call);
        }
    }
}
