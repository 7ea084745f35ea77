//! Computes plans for the documentation's calculator, `docs/site/calculator.js`, which passes options and gets JSON.
//!
//! In WebAssembly, the script calls `room`, writes the options at the address returned, calls `answer`, and reads the
//! answer at the address that `text` returns.

use crate::chart::{Chart, growth_chart, rival_chart};
use crate::plan::{Plan, PlanOptions};
use crate::refused::Refused;
use crate::words::Words;
use clap::Parser;
use clap::error::{ContextKind, ContextValue};
use serde::Serialize;
use std::error::Error;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    options: PlanOptions,
}

#[derive(Serialize)]
struct Answer {
    plan: Plan,
    words: Words,
    chart: Chart,
}

/// Why there is no plan, and the name of the option that is to blame.
#[derive(Serialize)]
struct Complaint {
    option: String,
    text: String,
}

/// Computes the plan for these options of `bloomery plan`, one per line. Returns an `Answer` or a `Complaint` as JSON.
pub fn answer(options: &str) -> String {
    let answer = plan(options).map(|answer| serde_json::to_string(&answer));
    answer
        .unwrap_or_else(|complaint| serde_json::to_string(&complaint))
        .unwrap_or_else(|error| error.to_string())
}

fn plan(options: &str) -> Result<Answer, Complaint> {
    let options = Line::try_parse_from(std::iter::once("plan").chain(options.lines()))?.options;
    let (wanted, plan) = (options.wanted()?, options.plan()?);
    let chart = growth_chart(&wanted, &plan.growth).unwrap_or_else(|| rival_chart(&wanted, &plan.filter));
    Ok(Answer { words: plan.words(), plan, chart })
}

impl From<Refused> for Complaint {
    fn from(refused: Refused) -> Complaint {
        Complaint { option: refused.option.into(), text: refused.text }
    }
}

impl From<clap::Error> for Complaint {
    fn from(error: clap::Error) -> Complaint {
        let option = match error.get(ContextKind::InvalidArg) {
            // As in `--error-rate <RATE>` and `--counting[=<BITS>]`.
            Some(ContextValue::String(usage)) => usage.trim_start_matches('-').split([' ', '[']).next(),
            _ => None,
        };
        let text = error.source().map_or_else(|| error.to_string(), |cause| cause.to_string());
        Complaint { option: option.unwrap_or_default().into(), text }
    }
}

#[cfg(target_family = "wasm")]
mod exports {
    use std::cell::RefCell;

    thread_local! {
        /// The options of a plan; after `answer`, the answer.
        static TEXT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }

    /// Makes room in `TEXT` for this many bytes of options, and returns the address to write them to.
    // SAFETY: nothing else has this name.
    #[unsafe(no_mangle)]
    extern "C" fn room(bytes: usize) -> *const u8 {
        TEXT.with_borrow_mut(|text| {
            *text = vec![0; bytes];
            text.as_ptr()
        })
    }

    /// Computes the answer for the options in `TEXT`, and returns its length in bytes.
    // SAFETY: nothing else has this name.
    #[unsafe(no_mangle)]
    extern "C" fn answer() -> usize {
        TEXT.with_borrow_mut(|text| {
            *text = super::answer(&String::from_utf8_lossy(text)).into_bytes();
            text.len()
        })
    }

    /// Returns the address of the answer.
    // SAFETY: nothing else has this name.
    #[unsafe(no_mangle)]
    extern "C" fn text() -> *const u8 {
        TEXT.with_borrow(|text| text.as_ptr())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_name_their_option() {
        for (options, option) in [
            ("--capacity=10", "error-rate"),
            ("--error-rate=1%", "capacity"),
            ("--error-rate=1%\n--static", "capacity"),
            ("--capacity=0\n--error-rate=1%", "capacity"),
            ("--capacity=x\n--error-rate=1%", "capacity"),
            ("--capacity=10\n--error-rate=200%", "error-rate"),
            ("--capacity=10\n--error-rate=1%\n--expansion=40000", "expansion"),
            ("--capacity=10\n--error-rate=1%\n--counting=5", "counting"),
            ("--capacity=10\n--error-rate=1%\n--counting=4\n--expansion=2\n--layout=classic", "expansion"),
            ("--capacity=10\n--error-rate=1%\n--window=65\n--layout=blocked", "window"),
            ("--capacity=10\n--error-rate=1%\n--window=1", "window"),
            ("--capacity=10\n--error-rate=1%\n--ttl=0", "ttl"),
            ("--capacity=10\n--error-rate=1%\n--ttl=day", "ttl"),
            ("--capacity=10\n--error-rate=1%\n--ttl=1h\n--steps=0", "steps"),
            ("--capacity=1\n--cuckoo", "capacity"),
            ("--capacity=100\n--cuckoo\n--bucket-size=0", "bucket-size"),
        ] {
            let complaint: serde_json::Value = serde_json::from_str(&answer(options)).unwrap();
            assert_eq!(complaint["option"], option, "{options}: {complaint}");
            assert!(!complaint["text"].as_str().unwrap().is_empty());
        }
    }
}
