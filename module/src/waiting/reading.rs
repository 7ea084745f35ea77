//! A string that is read in slices for a command's work: once completely, then a second time to check whether it has
//! changed.

use super::super::api::{Context, Detached};
use super::super::key::OpenKey;
use super::client::Request;
use super::work::{PoolWork, Prepare};
use bloomery::filter::Filter;
use bloomery_commands::{Access, CommandError};

/// Number of bytes of a string that are read in one step. A step takes 0.15 ms.
const SLICE: usize = if cfg!(small_steps) { 16 } else { 1 << 20 };

pub(super) struct Reading {
    work: PoolWork,
    prepare: Prepare,
    /// The index of the argument that names its key.
    key: usize,
    /// The string's address in the server, and the number of bytes to read. Bytes that are appended in the meantime
    /// aren't read, as if they had been written after the command.
    place: Option<(usize, usize)>,
    read: Vec<u8>,
    /// Number of bytes that have been read a second time and compared.
    checked: usize,
}

impl Reading {
    pub(super) fn new(work: PoolWork, prepare: Prepare, key: usize) -> Reading {
        Reading { work, prepare, key, place: None, read: Vec::new(), checked: 0 }
    }

    /// Reads the next slice. Returns whether it was the last one.
    ///
    /// # Errors
    /// If the string was replaced or there is no memory for it.
    pub(super) fn read(
        &mut self,
        ctx: Context<'_>,
        request: &Request,
        database: i32,
    ) -> Result<bool, CommandError> {
        let (name, detached) = (request.arguments().get(self.key), Detached::new(ctx, database));
        let (Some(name), Some(detached)) = (name, detached) else { return Err(CommandError::Internal) };
        let key = OpenKey::<Filter>::open(detached.context(), name.text(), Access::Read);
        key.string(|now| self.next(now)).unwrap_or(Err(CommandError::Changed))
    }

    /// The first call records the address of the string. Each later call reads or checks its next slice. Returns
    /// whether this was the last step.
    ///
    /// If the key received another string in the meantime, the result would mix the two. While both strings exist, they
    /// are at different addresses. If the old string was deleted first, the new one can have the same address. In that
    /// case, the new string is recognised by bits that were set and no longer are: adds to a bitmap only set bits.
    fn next(&mut self, now: &[u8]) -> Result<bool, CommandError> {
        let Some((address, len)) = self.place else {
            self.place = Some((now.as_ptr().addr(), now.len()));
            return Ok(now.is_empty());
        };
        let now = now.get(..len).filter(|now| now.as_ptr().addr() == address).ok_or(CommandError::Changed)?;
        let slice = |from| now.iter().skip(from).take(SLICE);
        if self.read.len() < len {
            let refused = |_| CommandError::Memory { bytes: len as u64, bound: None };
            self.read.try_reserve_exact(len.saturating_sub(self.read.len())).map_err(refused)?;
            self.read.extend(slice(self.read.len()));
        } else {
            let pairs = self.read.iter().skip(self.checked).zip(slice(self.checked));
            if pairs.fold(0, |lost, (read, now)| lost | read & !now) != 0 {
                return Err(CommandError::Changed);
            }
            self.checked = self.checked.saturating_add(SLICE);
        }
        Ok(self.checked >= len)
    }

    /// Begins the work on the string that was read, or ends it with an error.
    pub(super) fn begin(self, request: &Request, is_read: Result<(), CommandError>) -> PoolWork {
        let Reading { mut work, prepare, read, .. } = self;
        match is_read {
            Ok(()) => work.prepare(request.client, move |parallel| prepare(&[&read], parallel)),
            Err(why) => work.fail(why),
        }
        work
    }

    /// The work that hasn't begun.
    pub(super) fn into_work(self) -> PoolWork {
        self.work
    }

    pub(super) fn work(&self) -> &PoolWork {
        &self.work
    }
}
