//! A provider's prompt cache, simulated over the calls of a session.
//!
//! An entry is a prefix, known by its hash, and lives for a time that counts from the start of the call that
//! wrote it and begins anew with every call that reads it. The cost of simulating a call follows its blocks,
//! not the calls before it: entries are looked up, and dead ones are swept out when they have become as many
//! as the rest.

use std::collections::{BTreeMap, HashMap};

use super::{
    CacheLayer, Prompt,
    cache_terms::{CacheTerms, InputSplit, UnknownRuleError, WriteLifetime},
    prompt_prefix::{PromptPrefixes, SettingDigests, first_layer},
};
use crate::{
    event::{self, Usage},
    hash_chain::Digest,
    profile::{
        CacheRules, CacheWriteMode, InvalidationScope, Money, RequestAspect, TokenPrices, UnknownPriceError,
    },
    tokens::Tokens,
};

/// Assumed behaviour of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheAssumption {
    /// Every prefix that was sent and is still alive is read, up to the first block that differs, and
    /// everything new is written: the best any provider could do. An unknown limit does not limit; without
    /// known lifetimes entries never die.
    Ideal,
    /// Entries are where the provider has them: at breakpoints, within reach, in whole units.
    Breakpoints,
}

/// A call to be served.
#[derive(Clone, Copy, Debug)]
pub struct SimulatedCall<'a> {
    /// Time at which it began.
    pub at: event::Timestamp,
    /// Model that answers.
    pub model: &'a str,
    /// Prompt that is sent.
    pub prompt: &'a Prompt,
    /// Other settings that may invalidate the cache.
    pub settings: &'a SettingDigests,
    /// Tokens of the answer.
    pub output: Tokens,
}

/// Usage and cost of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallCharge {
    /// Tokens that were read, written and neither.
    pub usage: Usage,
    /// Cost of this usage.
    pub money: Result<Money, UnknownPriceError>,
    /// Reason why it read less than it could have of the previous call's prompt; `None` if the request only
    /// grew at its end or extended an older one that is still alive.
    pub missed: Option<CacheMiss>,
    /// Number of breakpoints beyond the provider's limit. The last ones count; Anthropic refuses such a
    /// request.
    pub ignored_breakpoints: usize,
}

/// Reason why a call did not read the prompt of the call before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheMiss {
    /// There was no call before.
    Cold,
    /// The call before was to another model.
    Model,
    /// A setting changed that invalidates the cache.
    Setting(RequestAspect),
    /// The request differs from the one before.
    Changed {
        /// From this block on.
        block: usize,
        /// Layer of the change.
        layer: CacheLayer,
    },
    /// It came too late.
    Expired,
    /// The prefix is too short to be kept.
    BelowMinimum,
    /// The prompt was not written, or no breakpoint is near enough to the part that was.
    NoEntry,
}

impl CacheMiss {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Model => "model",
            Self::Setting(_) => "setting",
            Self::Changed { .. } => "changed",
            Self::Expired => "expired",
            Self::BelowMinimum => "below minimum",
            Self::NoEntry => "no entry",
        }
    }
}

/// A prompt cache, as one session sees it.
#[derive(Debug)]
pub struct SimulatedCache {
    terms: CacheTerms,
    kept: EntryPlacement,
    invalidated_by: BTreeMap<RequestAspect, InvalidationScope>,
    entries: HashMap<Digest, CacheEntry>,
    /// Sweep when there are so many.
    sweep_at: usize,
    /// The latest start of a call, in milliseconds.
    now: i64,
    last: Option<PreviousCall>,
}

/// Places of the entries.
#[derive(Clone, Copy, Debug)]
enum EntryPlacement {
    /// Behind every block, and read to the token.
    Ideally,
    /// Behind every block, and read in multiples of this.
    Everywhere { granularity: u64 },
    /// Behind the last so many breakpoints; read if one is at most so many positions before a breakpoint, itself counted.
    Marked { breakpoints: usize, look_back: usize },
    /// Behind the last so many breakpoints, or one fewer and the end; read wherever they are.
    MarkedAndLast { breakpoints: usize },
}

#[derive(Clone, Copy, Debug)]
struct CacheEntry {
    /// In milliseconds.
    lifetime: i64,
    /// Alive until then, and then still.
    expires: i64,
}

/// A block behind which an entry is to be written.
#[derive(Clone, Copy, Debug)]
struct CacheWritePoint {
    block: usize,
    /// In seconds; unknown is for ever.
    lifetime: Option<u64>,
}

/// State of the call before, to explain why the next one misses.
#[derive(Debug)]
struct PreviousCall {
    model: String,
    settings: SettingDigests,
    links: Vec<Digest>,
    /// The blocks behind which it left an entry, and when that dies.
    left: Vec<(usize, i64)>,
}

/// Number of entries below which sweeping is not worth it.
const FEW: usize = 1_024;

impl SimulatedCache {
    /// An empty cache. Fails if the provider's behaviour is asked for and the profile does not know it.
    pub fn new(
        rules: &CacheRules,
        prices: &TokenPrices,
        mode: CacheAssumption,
    ) -> Result<Self, UnknownRuleError> {
        let kept = match mode {
            CacheAssumption::Ideal => EntryPlacement::Ideally,
            CacheAssumption::Breakpoints => really_kept(rules)?,
        };
        Ok(Self {
            terms: CacheTerms::new(rules, prices),
            kept,
            invalidated_by: rules.invalidated_by.clone(),
            entries: HashMap::new(),
            sweep_at: FEW,
            now: i64::MIN,
            last: None,
        })
    }

    /// Serves a call. Calls come in the order they began; one that claims to be earlier is taken to be as late as the
    /// latest.
    pub fn serve(&mut self, call: &SimulatedCall<'_>) -> CallCharge {
        self.now = self.now.max(call.at.0);
        let prefixes = PromptPrefixes::of(call, &self.invalidated_by);
        let (marks, ignored_breakpoints) = self.marks(call.prompt, &prefixes);
        let hit = self.find(call.prompt, &prefixes, &marks);
        let missed = self.why(call, &prefixes, hit);
        let usage = self.terms.usage(self.input(&prefixes, &marks, hit), call.output);
        let left = self.keep(&prefixes, &marks, hit);
        let (model, settings) = (call.model.to_owned(), call.settings.clone());
        self.last = Some(PreviousCall { model, settings, links: prefixes.links, left });
        CallCharge { usage, money: self.terms.prices().cost(&usage), missed, ignored_breakpoints }
    }

    /// Serves a call of another session: the entries it writes exist for this session too, and those it reads
    /// live as long again. It is no call of this session, so it is never the reason for a miss.
    pub fn serve_other_session(&mut self, call: &SimulatedCall<'_>) {
        self.now = self.now.max(call.at.0);
        let prefixes = PromptPrefixes::of(call, &self.invalidated_by);
        let (marks, _) = self.marks(call.prompt, &prefixes);
        let hit = self.find(call.prompt, &prefixes, &marks);
        self.keep(&prefixes, &marks, hit);
    }

    /// Number of entries, dead ones that were not yet swept out included.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Places where this request asks for entries, in order, and the number of breakpoints beyond the limit.
    fn marks(&self, prompt: &Prompt, prefixes: &PromptPrefixes) -> (Vec<CacheWritePoint>, usize) {
        let asked =
            prompt.blocks.iter().enumerate().filter_map(|(block, said)| Some((block, said.breakpoint?)));
        let asked =
            asked.map(|(block, asked)| CacheWritePoint { block, lifetime: self.terms.lifetime(Some(asked)) });
        let (mut marks, ignored) = match self.kept {
            EntryPlacement::Ideally | EntryPlacement::Everywhere { .. } => (self.everywhere(prompt), 0),
            EntryPlacement::Marked { breakpoints, .. } => last_of(asked.collect(), breakpoints),
            EntryPlacement::MarkedAndLast { breakpoints } => {
                let (mut marks, ignored) = last_of(asked.collect(), breakpoints);
                if marks.len() < breakpoints
                    && let Some(block) = prompt.blocks.len().checked_sub(1)
                    && marks.last().is_none_or(|mark| mark.block != block)
                {
                    marks.push(CacheWritePoint { block, lifetime: self.terms.lifetime(None) });
                }
                (marks, ignored)
            }
        };
        marks.retain(|mark| prefixes.ends.get(mark.block).is_some_and(|end| *end >= self.terms.minimum()));
        (marks, ignored)
    }

    /// A mark behind every block, with the lifetime of the breakpoint that covers it.
    fn everywhere(&self, prompt: &Prompt) -> Vec<CacheWritePoint> {
        let usual = self.terms.lifetime(None);
        let longest =
            prompt.blocks.iter().filter_map(|block| self.terms.lifetime(Some(block.breakpoint?))).max();
        let mut lifetime = usual;
        let mut marks: Vec<CacheWritePoint> = Vec::with_capacity(prompt.blocks.len());
        for (block, said) in prompt.blocks.iter().enumerate().rev() {
            if let Some(asked) = said.breakpoint {
                lifetime = self.terms.lifetime(Some(asked));
            }
            let lifetime = if self.terms.keeps_requests_whole() { longest.or(usual) } else { lifetime };
            marks.push(CacheWritePoint { block, lifetime });
        }
        marks.reverse();
        marks
    }

    /// Number of blocks that are read: up to the last entry within reach.
    fn find(&self, prompt: &Prompt, prefixes: &PromptPrefixes, marks: &[CacheWritePoint]) -> usize {
        let is_alive = |block: usize| {
            let entry = prefixes.links.get(block).and_then(|link| self.entries.get(link));
            entry.is_some_and(|entry| entry.expires >= self.now)
        };
        let found = match self.kept {
            EntryPlacement::Ideally
            | EntryPlacement::Everywhere { .. }
            | EntryPlacement::MarkedAndLast { .. } => {
                (0..prefixes.links.len()).rev().find(|block| is_alive(*block))
            }
            EntryPlacement::Marked { look_back, .. } => {
                within_reach(prompt, marks, look_back).into_iter().find(|block| is_alive(*block))
            }
        };
        found.map_or(0, |block| block + 1)
    }

    /// Division of the input when the first `hit` blocks were found.
    fn input(&self, prefixes: &PromptPrefixes, marks: &[CacheWritePoint], hit: usize) -> InputSplit {
        let found = prefixes.tokens(hit);
        let read = match self.kept {
            EntryPlacement::Everywhere { granularity } => Tokens(found.0 - found.0 % granularity.max(1)),
            EntryPlacement::Ideally
            | EntryPlacement::Marked { .. }
            | EntryPlacement::MarkedAndLast { .. } => found,
        };
        let read = if read < self.terms.minimum() { Tokens(0) } else { read };
        let mut input = InputSplit { read, ..InputSplit::default() };
        let mut edge = read;
        for mark in marks {
            let end = prefixes.tokens(mark.block + 1);
            match self.terms.time(mark.lifetime) {
                WriteLifetime::Usual => input.written += end.less(edge),
                WriteLifetime::Longer => input.written_long += end.less(edge),
            }
            edge = edge.max(end);
        }
        input.uncached = prefixes.total().less(edge);
        input
    }

    /// Writes the entries that the marks ask for and renews the lifetime of those that were read. Returns the
    /// entries that this left.
    fn keep(
        &mut self,
        prefixes: &PromptPrefixes,
        marks: &[CacheWritePoint],
        hit: usize,
    ) -> Vec<(usize, i64)> {
        if self.entries.len() >= self.sweep_at {
            let now = self.now;
            self.entries.retain(|_, entry| entry.expires >= now);
            self.sweep_at = FEW.max(self.entries.len().saturating_mul(2));
        }
        let mut left = Vec::with_capacity(marks.len() + 1);
        let read = hit.checked_sub(1).filter(|read| marks.iter().all(|mark| mark.block != *read));
        for (block, asked) in
            marks.iter().map(|mark| (mark.block, Some(mark.lifetime))).chain(read.map(|block| (block, None)))
        {
            let Some(link) = prefixes.links.get(block) else { continue };
            let alive = self.entries.get(link).filter(|entry| entry.expires >= self.now).copied();
            let lifetime = match (alive.map(|entry| entry.lifetime), asked.map(milliseconds)) {
                // Only the ideal cache lets an entry live longer than it was first paid for.
                (Some(alive), Some(asked)) if matches!(self.kept, EntryPlacement::Ideally) => {
                    alive.max(asked)
                }
                (Some(alive), _) => alive,
                (None, Some(asked)) => asked,
                (None, None) => continue,
            };
            let expires = self.now.saturating_add(lifetime);
            self.entries.insert(*link, CacheEntry { lifetime, expires });
            left.push((block, expires));
        }
        left
    }

    fn why(&self, call: &SimulatedCall<'_>, prefixes: &PromptPrefixes, hit: usize) -> Option<CacheMiss> {
        let blocks = &call.prompt.blocks;
        if hit == blocks.len() {
            return None;
        }
        if prefixes.total() < self.terms.minimum() {
            return Some(CacheMiss::BelowMinimum);
        }
        let Some(last) = self.last.as_ref().filter(|last| !last.links.is_empty()) else {
            return Some(CacheMiss::Cold);
        };
        let common = prefixes.links.iter().zip(&last.links).take_while(|(now, before)| now == before).count();
        if hit < common {
            let died = |(block, expires): &(usize, i64)| (hit..common).contains(block) && *expires < self.now;
            return Some(match prefixes.tokens(common) {
                short if short < self.terms.minimum() => CacheMiss::BelowMinimum,
                _ if last.left.iter().any(died) => CacheMiss::Expired,
                _ => CacheMiss::NoEntry,
            });
        }
        if hit > common || common == last.links.len() || common == blocks.len() {
            return None;
        }
        let layer = blocks.get(common)?.layer;
        let differs = |change: &RequestAspect| last.settings.0.get(change) != call.settings.0.get(change);
        let mut rules = self.invalidated_by.iter();
        let setting = rules.find(|(change, scope)| differs(change) && first_layer(**scope) <= layer);
        Some(match setting {
            _ if last.model != call.model => CacheMiss::Model,
            Some((change, _)) => CacheMiss::Setting(*change),
            None => CacheMiss::Changed { block: common, layer },
        })
    }
}

/// Places where the provider has its entries.
fn really_kept(rules: &CacheRules) -> Result<EntryPlacement, UnknownRuleError> {
    let unknown = |field| UnknownRuleError { field };
    let written = rules.written.ok_or(unknown("written"))?;
    rules.minimum_prefix.ok_or(unknown("minimum_prefix"))?;
    if rules.lifetimes.as_ref().is_none_or(Vec::is_empty) {
        return Err(unknown("lifetimes"));
    }
    let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    let breakpoints = || rules.breakpoints.map(count).ok_or(unknown("breakpoints"));
    Ok(match written {
        CacheWriteMode::Automatic => {
            EntryPlacement::Everywhere { granularity: rules.granularity.map_or(1, |unit| unit.0) }
        }
        CacheWriteMode::Breakpoints => EntryPlacement::Marked {
            breakpoints: breakpoints()?,
            look_back: rules.look_back.map(count).ok_or(unknown("look_back"))?,
        },
        // Its look-back counts breakpoints, of which the nearest that matches is also the longest: no limit is reached.
        CacheWriteMode::ImplicitAndExplicit => EntryPlacement::MarkedAndLast { breakpoints: breakpoints()? },
    })
}

/// The last `most`, and how many there were more.
fn last_of(mut marks: Vec<CacheWritePoint>, most: usize) -> (Vec<CacheWritePoint>, usize) {
    let more = marks.len().saturating_sub(most);
    (marks.split_off(more), more)
}

/// The blocks at most `look_back` positions before a mark, the mark's own counted, the last first. A run of tool blocks
/// is one position.
fn within_reach(prompt: &Prompt, marks: &[CacheWritePoint], look_back: usize) -> Vec<usize> {
    let mut marks = marks.iter().rev().map(|mark| mark.block).peekable();
    let mut reach = Vec::new();
    let mut left = 0;
    for (block, said) in prompt.blocks.iter().enumerate().rev() {
        let is_mark = marks.next_if_eq(&block).is_some();
        let behind = prompt.blocks.get(block + 1);
        if is_mark {
            left = look_back;
        } else if !(said.tool && behind.is_some_and(|behind| behind.tool)) {
            left = left.saturating_sub(1);
        }
        if left > 0 {
            reach.push(block);
        }
    }
    reach
}

fn milliseconds(lifetime: Option<u64>) -> i64 {
    lifetime.map_or(i64::MAX, |seconds| i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1_000))
}
