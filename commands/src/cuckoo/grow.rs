//! The rules for growing cuckoo filters.

use crate::config::Settings;
use crate::error::CommandError;
use crate::grow::GrowInServer;
use bloomery::Error;
use bloomery::filter::{Cuckoo, Refusal};

impl GrowInServer for Cuckoo {
    fn may_grow(&self, settings: &Settings) -> Result<(), CommandError> {
        if self.tables().len() < settings.max_tables() { Ok(()) } else { Err(Error::TooManyLayers.into()) }
    }

    fn refuse(&mut self, why: Refusal) {
        Cuckoo::refuse(self, why);
    }

    fn refusal(why: CommandError) -> CommandError {
        match why {
            CommandError::Full => CommandError::RedisBloom("Filter is full"),
            CommandError::Core(Error::TooManyLayers) => {
                CommandError::RedisBloom("Maximum expansions reached")
            }
            why => why,
        }
    }
}
