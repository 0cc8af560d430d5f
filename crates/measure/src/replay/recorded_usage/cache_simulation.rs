//! A thread sent again to a simulated cache, as it was sent originally.
//!
//! Nothing is edited here, so requests need no bytes: a piece is identified by its event and its size. The
//! hidden part comes before everything, in two blocks, because a client marks its instructions in more than
//! one place. The first block is the same in all of its sessions, so other sessions keep it warm. The second
//! is this session's own, and a restarted client writes it anew.

use epitome::{
    core::{
        Digest, Tokens,
        cost::{
            CacheAssumption, CacheLayer, CacheMiss, CallCharge, Prompt, PromptBlock, SettingDigests,
            SimulatedCache, SimulatedCall, UnknownRuleError,
        },
        event::{Timestamp, Usage},
        profile::{CacheRules, CacheWriteMode, TokenPrices},
    },
    recorded_calls::{RecordedCall, RecordedPiece, RecordedPieceKind, RecordedPieceSize, UncountedAdditions},
};

use super::{
    super::hidden_overhead::{HiddenOverhead, TokenScale},
    overhead_fit::FittedOverhead,
};

/// Source of the assumed hidden part of a thread's calls.
#[derive(Clone, Debug)]
pub(super) enum OverheadSource {
    /// Estimate from all calls.
    Fitted(FittedOverhead),
    /// Estimate from the first call.
    First(HiddenOverhead),
}

/// A call with its result in the simulation.
#[derive(Clone, Debug)]
pub(super) struct ComparedCall {
    pub(super) call: usize,
    pub(super) recorded: Usage,
    pub(super) simulated: Usage,
    pub(super) missed: Option<CacheMiss>,
    /// Time since the call before, in milliseconds.
    pub(super) pause: Option<i64>,
    /// Requested lifetime of what it wrote, in seconds.
    pub(super) lifetime: Option<u64>,
    pub(super) change: CallChange,
    pub(super) since: UncountedAdditions,
    /// Size of its reasoning that is known.
    pub(super) known: Tokens,
}

/// Change since the call before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallChange {
    /// The first call.
    First,
    /// The request grew.
    Grew,
    /// The client compacted, as the transcript shows.
    Compacted,
    /// Recorded input fell for no reason in the transcript.
    Fell,
    /// The client was restarted.
    Resumed,
    /// Another model was called.
    Model,
}

/// A thread that is being sent to a cache.
pub(super) struct CacheSimulation {
    guess: OverheadSource,
    cache: SimulatedCache,
    minds_marks: bool,
    shared: Tokens,
    /// True if the first call found something cached that it had not sent.
    warm: bool,
    lifetime: Option<u64>,
    /// Overhead of a request besides its pieces.
    frame: Tokens,
    last: Option<(Option<Timestamp>, RecordedCall)>,
    stretch: usize,
    /// Number of restarts of the client.
    resumed: usize,
    /// Number of blocks in the request before.
    blocks: usize,
    pub(super) seen: Vec<ComparedCall>,
}

impl CacheSimulation {
    pub(super) fn new(
        guess: OverheadSource,
        calls: &[RecordedCall],
        (rules, prices): (&CacheRules, &TokenPrices),
        mode: CacheAssumption,
        frame: Tokens,
    ) -> Result<Self, UnknownRuleError> {
        let reads = || calls.iter().filter_map(|call| Some(call.usage?.cache_read));
        let first = reads().next().unwrap_or_default();
        let least = reads().filter(|read| *read > Tokens(0)).min().unwrap_or_default();
        let shared = match &guess {
            // The part that is read after a compaction, or when the rest has expired, is the part that the
            // client marks first.
            OverheadSource::Fitted(fitted) if first == Tokens(0) && least < fitted.prefix => least,
            OverheadSource::Fitted(_) | OverheadSource::First(_) => first,
        };
        Ok(Self {
            cache: SimulatedCache::new(rules, prices, mode)?,
            minds_marks: rules.written == Some(CacheWriteMode::Breakpoints),
            shared: shared.min(guess.prefix()),
            warm: first > Tokens(0),
            lifetime: calls.iter().find_map(|call| asked(call.usage.as_ref()?)),
            guess,
            frame,
            last: None,
            stretch: 0,
            resumed: 0,
            blocks: 0,
            seen: Vec::new(),
        })
    }

    /// Sends the next call.
    pub(super) fn send(&mut self, number: usize, call: &RecordedCall, pieces: &[RecordedPiece], model: &str) {
        self.lifetime = call.usage.as_ref().and_then(asked).or(self.lifetime);
        let last = self.last.take();
        let at = call.at.or(last.as_ref().and_then(|(at, _)| *at));
        let (stretch, change) = self.change(number, call, last.as_ref().map(|(_, last)| last));
        self.resumed += usize::from(call.since.resumed);
        let prompt = self.prompt(number, stretch, pieces);
        let time = at.unwrap_or(Timestamp(0));
        if self.is_kept_by_others(change) {
            self.warm_up(time, model, &prompt);
        }
        let served = self.serve(time, model, &prompt);
        self.blocks = prompt.blocks.len();
        self.stretch = stretch;
        let pause = last.as_ref().and_then(|(before, _)| Some(at?.0.saturating_sub(before.as_ref()?.0)));
        if let Some(recorded) = call.usage {
            self.seen.push(ComparedCall {
                call: number,
                recorded,
                simulated: served.usage,
                missed: served.missed,
                pause,
                lifetime: self.lifetime,
                change,
                since: call.since,
                known: call.known,
            });
        }
        self.last = Some((at, call.clone()));
    }

    fn change(&self, number: usize, call: &RecordedCall, last: Option<&RecordedCall>) -> (usize, CallChange) {
        let stretch = match &self.guess {
            OverheadSource::Fitted(fitted) => fitted.stretch(number).0,
            OverheadSource::First(_) => 0,
        };
        let change = match last {
            None => CallChange::First,
            Some(last) if last.model != call.model && call.model.is_some() => CallChange::Model,
            Some(last) if last.standing != call.standing => CallChange::Compacted,
            Some(_) if call.since.resumed => CallChange::Resumed,
            Some(_) if stretch != self.stretch => CallChange::Fell,
            Some(_) => CallChange::Grew,
        };
        (stretch, change)
    }

    /// Returns true if other sessions keep the shared instructions warm, as the first call shows. Entries
    /// that live for five minutes only need another session within five minutes, which the first call had;
    /// about other entries nothing is known.
    fn is_kept_by_others(&self, change: CallChange) -> bool {
        let is_short = self.minds_marks && self.lifetime.is_none_or(|lifetime| lifetime <= 300);
        self.warm && self.shared > Tokens(0) && (change == CallChange::First || !is_short)
    }

    fn warm_up(&mut self, at: Timestamp, model: &str, prompt: &Prompt) {
        let shared = Prompt { blocks: prompt.blocks.iter().take(1).cloned().collect() };
        let settings = SettingDigests::default();
        self.cache.serve_other_session(&SimulatedCall {
            at,
            model,
            prompt: &shared,
            settings: &settings,
            output: Tokens(0),
        });
    }

    fn serve(&mut self, at: Timestamp, model: &str, prompt: &Prompt) -> CallCharge {
        let settings = SettingDigests::default();
        self.cache.serve(&SimulatedCall { at, model, prompt, settings: &settings, output: Tokens(0) })
    }

    /// The request as the cache sees it, with its hidden part.
    fn prompt(&self, number: usize, stretch: usize, pieces: &[RecordedPiece]) -> Prompt {
        let (beyond, prefix) = (self.guess.beyond(number), self.guess.prefix());
        let difference = beyond.saturating_sub(i64::try_from(prefix.0).unwrap_or(i64::MAX));
        let (added, mut removed) = match u64::try_from(difference) {
            Ok(added) => (Tokens(added), Tokens(0)),
            Err(_) => (Tokens(0), Tokens(difference.unsigned_abs())),
        };
        let mark = self.lifetime.filter(|_| self.minds_marks);
        let mut blocks: Vec<PromptBlock> = Vec::with_capacity(pieces.len() + 3);
        let mut unseen = |layer, name: String, tokens: Tokens, breakpoint| {
            if tokens > Tokens(0) {
                let digest = Digest::of(name.as_bytes());
                blocks.push(PromptBlock { layer, digest, tokens, tool: false, breakpoint });
            }
        };
        unseen(CacheLayer::Tools, "shared".to_owned(), self.shared, mark);
        unseen(CacheLayer::System, format!("unseen since {}", self.resumed), prefix.less(self.shared), mark);
        let mut sum =
            RunningTokenSum { scale: self.guess.scale(), counted: self.frame, ..RunningTokenSum::default() };
        for piece in pieces.iter().filter(|piece| piece.kind == RecordedPieceKind::Prefix) {
            blocks.push(block(*piece, 0, sum.add(self.guess.size(piece))));
        }
        if let Some(last) = blocks.last_mut() {
            last.breakpoint = mark;
        }
        if added > Tokens(0) {
            blocks.push(PromptBlock {
                layer: CacheLayer::Messages,
                digest: Digest::of(format!("unseen {stretch}").as_bytes()),
                tokens: added,
                tool: false,
                breakpoint: None,
            });
        }
        for piece in pieces.iter().filter(|piece| piece.kind != RecordedPieceKind::Prefix) {
            let tokens = sum.add(self.guess.size(piece));
            let left = tokens.less(removed);
            removed = removed.less(tokens);
            blocks.push(block(*piece, stretch, left));
        }
        // A client sets marks at the ends of its last request and of this one.
        for end in [self.blocks, blocks.len()] {
            if let Some(block) = end.checked_sub(1).and_then(|last| blocks.get_mut(last)) {
                block.breakpoint = mark;
            }
        }
        Prompt { blocks }
    }
}

impl OverheadSource {
    pub(super) fn prefix(&self) -> Tokens {
        match self {
            Self::Fitted(fitted) => fitted.prefix,
            Self::First(unseen) => unseen.prefix,
        }
    }

    fn scale(&self) -> TokenScale {
        match self {
            Self::Fitted(fitted) => fitted.scale,
            Self::First(unseen) => unseen.scale,
        }
    }

    /// Size of a call's hidden part.
    fn beyond(&self, call: usize) -> i64 {
        match self {
            Self::Fitted(fitted) => fitted.stretch(call).1,
            Self::First(unseen) => i64::try_from(unseen.prefix.0).unwrap_or(i64::MAX),
        }
    }

    /// Size of a piece. The estimate from the first call knows nothing about the usage of later answers.
    fn size(&self, piece: &RecordedPiece) -> RecordedPieceSize {
        match (self, piece.size) {
            (Self::First(_), RecordedPieceSize::Known { counted, .. }) => RecordedPieceSize::Counted(counted),
            (_, size) => size,
        }
    }
}

/// Requested lifetime of what a call wrote to the cache, in seconds, if it wrote anything.
fn asked(usage: &Usage) -> Option<u64> {
    match (usage.cache_write, usage.cache_write_hour) {
        (Tokens(0), _) => None,
        (_, Tokens(0)) => Some(300),
        _ => Some(3_600),
    }
}

fn block(piece: RecordedPiece, stretch: usize, tokens: Tokens) -> PromptBlock {
    let RecordedPiece { seq, part, size, kind } = piece;
    let digest = Digest::of(format!("{stretch} {seq} {part} {size:?}").as_bytes());
    let layer = if kind == RecordedPieceKind::Prefix { CacheLayer::System } else { CacheLayer::Messages };
    PromptBlock { layer, digest, tokens, tool: kind == RecordedPieceKind::Tool, breakpoint: None }
}

/// Running sum of pieces, so that rounding errors do not add up.
#[derive(Debug)]
struct RunningTokenSum {
    scale: TokenScale,
    counted: Tokens,
    known: Tokens,
    told: Tokens,
}

impl Default for RunningTokenSum {
    fn default() -> Self {
        Self { scale: TokenScale::ONE, counted: Tokens(0), known: Tokens(0), told: Tokens(0) }
    }
}

impl RunningTokenSum {
    /// Adds a piece; returns its size by the provider's count.
    fn add(&mut self, size: RecordedPieceSize) -> Tokens {
        match size {
            RecordedPieceSize::Counted(tokens) => self.counted += tokens,
            RecordedPieceSize::Known { told, .. } => self.known += told,
        }
        let end = self.scale.of(self.counted) + self.known;
        let added = end.less(self.told);
        self.told = end;
        added
    }
}
