//! The rules for growing Bloom filters.

use crate::config::Settings;
use crate::error::CommandError;
use crate::grow::GrowInServer;
use bloomery::Error;
use bloomery::filter::{Added, Bloom, Foreign, Refusal};
use bloomery::hash::ItemHash;

impl GrowInServer for Bloom {
    fn may_grow(&self, _: &Settings) -> Result<(), CommandError> {
        Ok(())
    }

    fn refuse(&mut self, why: Refusal) {
        self.usage().refuse(why);
    }

    fn add_where_room_is(&mut self, item: ItemHash) -> Result<Added, Error> {
        self.add_to_newest_generation(item)
    }

    fn refusal(why: CommandError) -> CommandError {
        match why {
            CommandError::Full | CommandError::Saturated => why,
            why => CommandError::CannotGrow(Box::new(why)),
        }
    }
}

impl GrowInServer for Foreign {
    fn may_grow(&self, _: &Settings) -> Result<(), CommandError> {
        Ok(())
    }

    fn refuse(&mut self, why: Refusal) {
        self.usage().refuse(why);
    }

    fn refusal(why: CommandError) -> CommandError {
        Bloom::refusal(why)
    }
}
