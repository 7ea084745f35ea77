//! Replies in RESP2 and RESP3.

use super::api::Context;
use super::names;
use bloomery_commands::{Answer, Answers, CommandError, Reply, double_text};
use redis_module::raw::REDISMODULE_CTX_FLAGS_RESP3;

/// Sends the outcome of a command.
#[inline(always)]
pub(super) fn send(ctx: Context<'_>, outcome: Result<Reply, CommandError>) {
    match outcome {
        Ok(Reply::Bool(value)) => ctx.reply_bool(value),
        Ok(Reply::Answers(answers)) => send_answers(ctx, &answers),
        Ok(reply) => send_reply(ctx, &reply),
        Err(CommandError::Arity) => ctx.reply_wrong_arity(),
        Err(error) => ctx.reply_error(&names::rename(error.to_string())),
    }
}

/// Sends the elements of a list without announcing their number. Returns that number.
pub(super) fn send_elements(ctx: Context<'_>, list: &Reply) -> usize {
    match list {
        Reply::Answers(answers) => {
            send_each_answer(ctx, answers);
            answers.answers.len()
        }
        Reply::Inserted(answers) | Reply::InsertedIfAbsent(answers) => {
            send_each_inserted(ctx, list, answers);
            answers.len()
        }
        Reply::Counts(counts, error) => {
            send_each_count(ctx, counts, *error);
            counts.len()
        }
        Reply::Items(items) => {
            send_each_item(ctx, items);
            items.len()
        }
        Reply::Array(replies) => {
            replies.iter().for_each(|reply| send_reply(ctx, reply));
            replies.len()
        }
        reply => {
            send_reply(ctx, reply);
            1
        }
    }
}

#[inline]
fn send_answers(ctx: Context<'_>, answers: &Answers) {
    ctx.reply_array(answers.answers.len());
    send_each_answer(ctx, answers);
}

#[inline]
fn send_each_answer(ctx: Context<'_>, Answers { answers, error }: &Answers) {
    let text = error.as_ref().map(|error| names::rename(error.to_string()));
    for answer in answers {
        match answer {
            Answer::No => ctx.reply_bool(false),
            Answer::Yes => ctx.reply_bool(true),
            Answer::Refused => ctx.reply_error(text.as_deref().unwrap_or_default()),
        }
    }
}

fn send_each_inserted(ctx: Context<'_>, list: &Reply, answers: &[Answer]) {
    let is_bool = matches!(list, Reply::Inserted(_));
    for answer in answers {
        match answer {
            Answer::Yes if is_bool => ctx.reply_bool(true),
            // Asking for the protocol takes as long as adding two items, so it is done only for these answers.
            Answer::No | Answer::Refused if is_bool && resp3(ctx) => ctx.reply_bool(false),
            Answer::Yes => ctx.reply_integer(1),
            Answer::No => ctx.reply_integer(0),
            Answer::Refused => ctx.reply_integer(-1),
        }
    }
}

fn send_each_count(ctx: Context<'_>, counts: &[u32], error: Option<&'static str>) {
    for count in counts {
        match error {
            Some(error) if *count == u32::MAX => ctx.reply_error(error),
            _ => ctx.reply_integer((*count).into()),
        }
    }
}

fn send_each_item(ctx: Context<'_>, items: &[Option<Box<[u8]>>]) {
    for item in items {
        match item {
            Some(item) => ctx.reply_bulk(item),
            None => ctx.reply_null(),
        }
    }
}

fn send_reply(ctx: Context<'_>, reply: &Reply) {
    match reply {
        Reply::Ok => ctx.reply_simple(c"OK"),
        Reply::Integer(value) => ctx.reply_integer(*value),
        Reply::Bool(value) => ctx.reply_bool(*value),
        Reply::Double(value) if resp3(ctx) => ctx.reply_double(*value),
        Reply::ServersDouble(value) => ctx.reply_double(*value),
        Reply::Double(value) => ctx.reply_bulk(double_text(*value).as_bytes()),
        Reply::Bulk(bytes) => ctx.reply_bulk(bytes),
        Reply::Null => ctx.reply_null(),
        Reply::Array(replies) => {
            ctx.reply_array(replies.len());
            replies.iter().for_each(|reply| send_reply(ctx, reply));
        }
        Reply::Map(fields) => {
            ctx.reply_map(fields.len());
            for (name, value) in fields {
                ctx.reply_text(name);
                send_reply(ctx, value);
            }
        }
        Reply::Numbers(numbers) => {
            ctx.reply_map(numbers.len());
            for (name, value) in numbers.iter() {
                ctx.reply_simple(name);
                send_number(ctx, value);
            }
        }
        Reply::Entry(name, value) => {
            if resp3(ctx) {
                ctx.reply_map(1);
                ctx.reply_simple(name);
            } else {
                ctx.reply_array(1);
            }
            send_number(ctx, *value);
        }
        Reply::Piece(iterator, bytes) => {
            ctx.reply_array(2);
            send_number(ctx, Some(*iterator));
            match bytes {
                Some(bytes) => ctx.reply_bulk(bytes),
                None => ctx.reply_null(),
            }
        }
        Reply::Answers(answers) => send_answers(ctx, answers),
        Reply::Inserted(answers) | Reply::InsertedIfAbsent(answers) => {
            ctx.reply_array(answers.len());
            send_each_inserted(ctx, reply, answers);
        }
        Reply::Counts(counts, error) => {
            ctx.reply_array(counts.len());
            send_each_count(ctx, counts, *error);
        }
        Reply::Items(items) => {
            ctx.reply_array(items.len());
            send_each_item(ctx, items);
        }
        Reply::Later => {}
    }
}

fn send_number(ctx: Context<'_>, number: Option<u64>) {
    match number {
        Some(number) => ctx.reply_integer(i64::try_from(number).unwrap_or(i64::MAX)),
        None => ctx.reply_null(),
    }
}

fn resp3(ctx: Context<'_>) -> bool {
    ctx.flags() & REDISMODULE_CTX_FLAGS_RESP3 != 0
}
