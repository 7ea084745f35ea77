//! Which options exclude each other, and the kind of filter that options describe.

use super::{OnFull, Options};
use crate::error::Error;
use crate::params::{Family, Layout, Overflow, Steps, TABLE_SATURATES, Tightening, limits};

/// Growth of a scaling filter: the default of RedisBloom.
pub const DEFAULT_EXPANSION: u32 = 2;
/// The refusal of RedisBloom for options that ask for a fixed capacity and for growth.
pub const NONSCALING_EXPANDS: &str = "Nonscaling filters cannot expand";

/// Options that can't be given together.
#[derive(Debug)]
pub struct Rule {
    /// The word of the option to blame.
    pub option: &'static str,
    /// Both are true for these options.
    both: [fn(&Given<'_>) -> bool; 2],
    /// What is wrong, and what to do.
    pub why: &'static str,
}

/// The options, and the layout that follows from them.
struct Given<'o> {
    options: &'o Options,
    layout: Option<Layout>,
}

impl Given<'_> {
    /// Whether any option asks for a filter that scales. EXPANSION 0 doesn't: it is RedisBloom's other spelling of
    /// NONSCALING.
    fn scales(&self) -> bool {
        self.options.scales()
    }

    fn is_window(&self) -> bool {
        self.options.window.is_some() || self.options.ttl_ms.is_some()
    }

    fn counts(&self) -> bool {
        self.options.counting.is_some()
    }

    fn has_every(&self) -> bool {
        self.options.every_ms.is_some()
    }

    fn has_other_cells(&self) -> bool {
        self.layout != Some(Layout::Quotient)
    }

    /// Whether any option asks for a fixed capacity.
    fn is_fixed(&self) -> bool {
        self.options.nonscaling
            || self.options.expansion == Some(0)
            || self.options.on_full.is_some_and(|on_full| on_full != OnFull::Scale)
    }

    /// Whether any option contradicts the window that a TTL creates.
    fn has_a_window_of_its_own(&self) -> bool {
        let Options { window, every_ms, since_ms, layout, .. } = self.options;
        window.is_some()
            || every_ms.is_some()
            || since_ms.is_some()
            || layout.is_some_and(|layout| layout != Some(Layout::Quotient))
    }
}

/// The options that exclude each other. The first rule that is broken is the one that users see.
/// [`Spec::validate`](crate::Spec::validate) checks what layouts exclude.
pub const RULES: &[Rule] = &[
    Rule {
        option: "STEPS",
        both: [|given| given.options.steps.is_some(), |given| given.options.ttl_ms.is_none()],
        why: "STEPS belongs to TTL time",
    },
    Rule {
        option: "TTL",
        both: [|given| given.options.ttl_ms.is_some(), |given| given.has_a_window_of_its_own()],
        why: "TTL creates a window of LAYOUT QUOTIENT with its own generations, so WINDOW, EVERY, SINCE and other \
              layouts cannot be given",
    },
    Rule {
        option: "EXPANSION",
        both: [
            |given| given.options.nonscaling,
            |given| given.options.expansion.is_some_and(|more| more != 0),
        ],
        why: NONSCALING_EXPANDS,
    },
    Rule {
        option: "EVERY",
        both: [|given| given.has_every(), |given| !given.is_window()],
        why: "EVERY belongs to WINDOW generations",
    },
    Rule {
        option: "SINCE",
        both: [|given| given.options.since_ms.is_some(), |given| !given.has_every()],
        why: "SINCE belongs to WINDOW generations EVERY period",
    },
    Rule {
        option: "WINDOW",
        both: [|given| given.counts(), |given| given.is_window()],
        why: "COUNTING and WINDOW exclude each other: a window's items leave with their generation, not one by one",
    },
    Rule {
        option: "EXPANSION",
        both: [|given| given.scales() && given.counts(), |given| given.has_other_cells()],
        why: "a filter of counters has a fixed capacity: a delete could not tell which layer holds the item, so COUNTING \
              with EXPANSION, TIGHTENING or ONFULL SCALE needs LAYOUT QUOTIENT",
    },
    Rule {
        option: "WINDOW",
        both: [
            |given| {
                let Options { expansion, tightening, .. } = given.options;
                expansion.is_some_and(|more| more > 0)
                    || tightening.is_some()
                    || given.scales() && given.has_other_cells()
            },
            |given| given.is_window(),
        ],
        why: "a window has no layers that grow, so EXPANSION and TIGHTENING cannot be combined with WINDOW, and ONFULL \
              SCALE needs LAYOUT QUOTIENT",
    },
    Rule {
        option: "ONFULL",
        both: [|given| given.options.on_full == Some(OnFull::Saturate), |given| !given.has_other_cells()],
        why: TABLE_SATURATES,
    },
    Rule {
        option: "EXPANSION",
        both: [|given| given.scales(), |given| given.is_fixed() && !given.is_window()],
        why: NONSCALING_EXPANDS,
    },
];

/// The kind of filter that options describe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kind {
    /// Fixed, scaling or window.
    pub family: Family,
    /// The layout; `None` for AUTO, unless only one layout supports the options.
    pub layout: Option<Layout>,
    /// Among how many steps the items of a TTL are divided; 1 without a TTL.
    pub steps: Steps,
}
impl Options {
    /// The kind of filter that the options describe. `otherwise` is the layout if none is given, and `expansion` the
    /// configured growth, 0 for filters that don't scale.
    ///
    /// # Errors
    /// [`Error::Exclusive`] with the text of a [rule](RULES), [`Error::Expansion`], [`Error::Generations`].
    pub fn kind(&self, otherwise: Option<Layout>, expansion: u32) -> Result<Kind, Error> {
        let layout = self.layout_or(otherwise);
        let given = Given { options: self, layout };
        if let Some(expansion) = self.expansion.filter(|_| !self.nonscaling)
            && !(0..=i64::from(limits::MAX_EXPANSION)).contains(&expansion)
        {
            return Err(Error::Expansion(expansion.unsigned_abs()));
        }
        if let Some(rule) = RULES.iter().find(|rule| rule.both.iter().all(|holds| holds(&given))) {
            return Err(Error::Exclusive(rule.why));
        }
        let is_table = layout == Some(Layout::Quotient);
        let (steps, window, every_ms) = match self.ttl_ms {
            None => (Steps::ONE, self.window, self.every_ms.unwrap_or(0)),
            Some(ttl_ms) => {
                let steps = self.steps.unwrap_or_default().within(ttl_ms);
                (steps, Some(steps.generations()), steps.every_ms(ttl_ms))
            }
        };
        let overflow = match self.on_full {
            Some(OnFull::Error) => Some(Overflow::Error),
            Some(OnFull::Saturate) => Some(Overflow::Saturate),
            Some(OnFull::Forget) => Some(Overflow::Forget),
            Some(OnFull::Scale) | None => None,
        };
        let family = if let Some(generations) = window {
            if !is_table && !limits::GENERATIONS.contains(&generations.into()) {
                return Err(Error::Generations(generations.into()));
            }
            // By default, no items are refused: a stream should not stop because one hour was busier than planned.
            let overflow = overflow.unwrap_or(Overflow::Saturate);
            Family::Window { generations, overflow, every_ms }
        } else {
            let own = self.expansion.and_then(|expansion| u32::try_from(expansion).ok());
            let expansion = match own.unwrap_or(expansion) {
                // The options ask for a filter that scales, but the configured expansion is 0.
                0 if self.scales() => DEFAULT_EXPANSION,
                expansion => expansion,
            };
            if given.is_fixed() || given.counts() && !is_table || expansion == 0 {
                Family::Fixed(overflow.unwrap_or_default())
            } else {
                Family::Scaling {
                    expansion,
                    tightening: self.tightening.unwrap_or(Tightening::INVERSE_SQUARE),
                }
            }
        };
        Ok(Kind { family, layout, steps })
    }

    /// The requested layout, or `otherwise` if none is requested. AUTO chooses QUOTIENT for counting, and for options
    /// that no other layout supports.
    fn layout_or(&self, otherwise: Option<Layout>) -> Option<Layout> {
        let shares = self.shards.is_some_and(|shards| shards > 1);
        let needs_table = self.counting.is_some() && !shares && self.on_full != Some(OnFull::Saturate)
            || self.window.is_some_and(|generations| !limits::GENERATIONS.contains(&generations.into()))
            || self.on_full == Some(OnFull::Forget);
        match self.layout.unwrap_or(otherwise) {
            _ if self.ttl_ms.is_some() => Some(Layout::Quotient),
            None if needs_table => Some(Layout::Quotient),
            layout => layout,
        }
    }
}
