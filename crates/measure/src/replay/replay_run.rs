//! Replay of a thread, call by call, under a contender.

use std::{collections::HashMap, sync::Arc, time::Duration};

use epitome::{
    call_settings::TargetModel,
    core::{
        Digest, Event, Fact, LoggedEvent, Seq, Tokens,
        budget::Budget,
        client_text::{is_user_speaking, user_words_of},
        context::{Context, Fidelity, Segment, SegmentBody, Tier},
        cost::{
            self, CacheAssumption, CacheLayer, Prompt, PromptBlock, SettingDigests, SimulatedCache,
            UnknownRuleError,
        },
        event::{Timestamp, Usage},
        id::{AnswerId, ModelName},
        meter::Meter,
        model_view::SummaryOrigin,
        profile::{Money, Profile, Profiles},
        projection::EventLine,
    },
    simulate::{
        FailedSimulationCall, MeteredThread, ProviderCount, SimulatedSummariser, SimulationCall,
        SimulationSettings,
    },
    wire::{
        Format, PromptMemo,
        legality::check,
        render::{CacheBreakpoints, RenderOptions, RenderedRequest},
    },
};

use super::{
    CandidateLimit, CandidateSummariser, RegionSizes, ReplayCandidate, ReplayFate, ReplayRow,
    ReplayedSummary,
    hidden_overhead::HiddenOverhead,
    retention::{NeededFacts, RetentionScorer},
};

/// Instruction to a model that summarises by continuing its session.
const INSTRUCTION: &str = "Summarise this conversation so that the work can go on without it.";

/// Longest answer that it may give.
const LONGEST_SUMMARY: Tokens = Tokens(4_000);

/// A thread to be replayed.
#[derive(Debug)]
pub struct ReplayInput {
    /// Events of the thread, without the client's compactions.
    pub script: MeteredThread,
    /// Facts that its calls needed.
    pub needs: NeededFacts,
    /// Hidden part of its requests.
    pub unseen: HiddenOverhead,
    /// Usage of each answer.
    pub outputs: AnswerTokens,
    /// First event that belongs to this thread alone, and not to the one it was forked from.
    pub own: Seq,
}

/// Conditions that are the same for all contenders.
#[derive(Clone, Debug)]
pub struct ReplayConditions<'a> {
    /// Profile of the model.
    pub profile: &'a Profile,
    /// Format of the requests.
    pub format: Format,
    /// Limit of the requests.
    pub limit: RequestRoom,
    /// Known models.
    pub profiles: &'a Profiles,
    /// Modes of the simulated cache. The requests are the same in all of them.
    pub modes: &'a [CacheAssumption],
}

/// Limit of a replay's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestRoom {
    /// The most that a request may hold, by the provider's count.
    Request(Tokens),
    /// The window of the model, input and output together, in which a live session leaves room for the answer and for what our
    /// counts may be short of.
    Window(Tokens),
}

impl RequestRoom {
    /// Size of the limit.
    pub fn tokens(self) -> Tokens {
        match self {
            Self::Request(tokens) | Self::Window(tokens) => tokens,
        }
    }
}

/// A request as it would be sent, for callers that record it.
#[derive(Debug)]
pub struct ReplayedRequest<'a> {
    /// Result of the call.
    pub played: &'a ReplayRow,
    /// Answer of the call.
    pub answer: &'a LoggedEvent,
    /// The request.
    pub rendered: &'a RenderedRequest,
    /// The context it was rendered from.
    pub context: &'a Context,
    /// Options that it was rendered with.
    pub options: &'a RenderOptions,
    /// Request for a summary to a model.
    pub summariser: Option<&'a str>,
}

/// Usage of each answer of a thread: as reported, or as counted.
#[derive(Clone, Debug, Default)]
pub struct AnswerTokens {
    reported: HashMap<AnswerId, Tokens>,
    counted: HashMap<Seq, Tokens>,
}

impl AnswerTokens {
    /// Usage of a thread's answers. The last report about an answer counts.
    pub fn of(line: &EventLine) -> Self {
        let mut outputs = Self::default();
        let mut answering: Option<(AnswerId, Seq)> = None;
        for (event, pieces) in line.events_with_counts() {
            match &event.event.fact {
                Fact::UsageReported { answer: Some(answer), usage, .. } if usage.output > Tokens(0) => {
                    outputs.reported.insert(answer.clone(), usage.output);
                }
                Fact::AssistantSaid { answer, .. } => {
                    let goes_on = answering.as_ref().filter(|(of, _)| Some(of) == answer.as_ref());
                    let first = goes_on.map_or(event.id.seq, |(_, first)| *first);
                    let said: Tokens = pieces.unwrap_or_default().iter().copied().sum();
                    *outputs.counted.entry(first).or_default() += said;
                    answering = answer.clone().map(|answer| (answer, first));
                }
                _ => {}
            }
        }
        outputs
    }

    /// Usage of the answer that an event begins, where its fragments are not known.
    pub(crate) fn of_event(&self, answer: &Event, meter: &Meter, unseen: &HiddenOverhead) -> Tokens {
        let Fact::AssistantSaid { answer: id, .. } = &answer.fact else { return Tokens(0) };
        let reported = id.as_ref().and_then(|id| self.reported.get(id)).copied();
        let counted: Tokens = meter.pieces(answer).into_iter().sum();
        reported.unwrap_or_default().max(unseen.scaled(counted))
    }

    /// Usage of the answer that began with an event.
    fn of_answer(&self, answer: &LoggedEvent, unseen: &HiddenOverhead) -> Tokens {
        let reported = answer_id(answer).and_then(|answer| self.reported.get(answer)).copied();
        let counted = unseen.scaled(self.counted.get(&answer.id.seq).copied().unwrap_or_default());
        // Some agents record the usage when the answer has hardly begun.
        reported.unwrap_or_default().max(counted)
    }
}

fn answer_id(answer: &LoggedEvent) -> Option<&AnswerId> {
    match &answer.event.fact {
        Fact::AssistantSaid { answer, .. } => answer.as_ref(),
        _ => None,
    }
}

impl ReplayInput {
    /// Replays the thread under a contender, and calls `see` for every request that could be made, charged in
    /// the first mode. Returns the calls for each mode of the stage.
    pub fn play(
        &self,
        stage: &ReplayConditions<'_>,
        contender: &ReplayCandidate,
        mut see: impl FnMut(ReplayedRequest<'_>),
    ) -> Result<Vec<Vec<ReplayRow>>, UnknownRuleError> {
        let cache =
            |mode: &CacheAssumption| SimulatedCache::new(&stage.profile.cache, &stage.profile.prices, *mode);
        let caches: Vec<SimulatedCache> = stage.modes.iter().map(cache).collect::<Result<_, _>>()?;
        let rehearsal = stage.rehearsal(&self.unseen, contender);
        let mut playing = ThreadReplay {
            part: self,
            stage,
            contender,
            options: rehearsal.options(),
            played: vec![Vec::new(); caches.len()],
            caches,
            memo: PromptMemo::new(Arc::clone(self.script.meter())),
            scorer: self.needs.scorer(),
            last: None,
            sent: None,
            clients: ClientMessages::default(),
        };
        rehearsal.run(&self.script, |call| match call {
            Ok(call) => playing.call(&call, &mut see),
            Err(failed) => playing.refused(&failed),
        });
        Ok(playing.played)
    }
}

impl ReplayConditions<'_> {
    fn rehearsal(&self, unseen: &HiddenOverhead, contender: &ReplayCandidate) -> SimulationSettings {
        let policy = &contender.policy;
        let target = TargetModel::new(self.format, Some(self.profile));
        let within = |budget: Budget| {
            SimulationSettings::for_model(target, policy, target.options(), budget)
                .with_model(ModelName(self.profile.name.clone()))
        };
        let rehearsal = match (contender.reach, self.limit) {
            (CandidateLimit::Everything, _) => within(Budget::new(Tokens::MAX)),
            (CandidateLimit::Window, RequestRoom::Request(most)) => {
                let room = unseen.room(most);
                within(Budget::new(room).with_hidden(most.less(room)))
            }
            (CandidateLimit::Window, RequestRoom::Window(window)) => {
                let (name, unseen) = (&self.profile.name, *unseen);
                let count = ProviderCount(Arc::new(move |ours| unseen.prefix + unseen.scaled(ours)));
                SimulationSettings::for_session(self.format, name, policy, self.profiles, window, count)
            }
        };
        rehearsal.with_summariser(match contender.writer {
            CandidateSummariser::BuiltIn | CandidateSummariser::Session => SimulatedSummariser::BuiltIn,
            CandidateSummariser::Background => SimulatedSummariser::OwnModel,
        })
    }
}

/// A thread during its replay.
struct ThreadReplay<'a> {
    part: &'a ReplayInput,
    stage: &'a ReplayConditions<'a>,
    contender: &'a ReplayCandidate,
    options: &'a RenderOptions,
    /// Contents of the provider's cache, by mode.
    caches: Vec<SimulatedCache>,
    memo: PromptMemo,
    scorer: RetentionScorer<'a>,
    /// Time of the call before.
    last: Option<Timestamp>,
    /// The request before, if a summary may continue it.
    sent: Option<(String, Tokens)>,
    clients: ClientMessages,
    /// Calls made so far, by mode.
    played: Vec<Vec<ReplayRow>>,
}

/// A request for a summary and its results.
struct AskedSummary {
    /// Request, if a model was asked.
    body: Option<String>,
    /// Results, by mode.
    summarised: Vec<ReplayedSummary>,
}

impl ThreadReplay<'_> {
    fn call(&mut self, call: &SimulationCall<'_>, see: &mut impl FnMut(ReplayedRequest<'_>)) {
        let context = call.view.context();
        let at = call.at.or(self.last);
        let mut summary = self.summarised(call, at);
        let prompt = self.whole(call.prompt);
        let tokens: Tokens = prompt.blocks.iter().map(|block| block.tokens).sum();
        let output = self.part.outputs.of_answer(call.answer, &self.part.unseen);
        let charges = self.serve(at, &prompt, output);
        if let Some(ordered) = call.ordered {
            summary = self.asked(&call.rendered.body, ordered.answer, at).or(summary);
        }
        let evicted = self.sent.as_ref().filter(|_| call.prepared.cause.is_some());
        let evicted = evicted.map_or(Tokens(0), |(_, sent)| sent.less(context.tokens()));
        if call.answer.id.seq >= self.part.own {
            let retention = self.scorer.score(call.number, context);
            let regions = self.regions(context);
            let illegal = check(self.stage.format, &call.rendered.body, &self.options.rules).len() as u64;
            let calls = charges.into_iter().enumerate().map(|(mode, charge)| ReplayRow {
                call: self.played[mode].len() as u64,
                at,
                pause: self.pause(at),
                fate: if tokens > self.stage.limit.tokens() {
                    ReplayFate::Overflowed
                } else {
                    ReplayFate::Sent
                },
                tokens,
                regions,
                usage: charge.usage,
                money: charge.money.ok(),
                missed: charge.missed,
                cause: call.prepared.cause.clone(),
                evicted,
                summarised: summary.as_ref().map(|summary| summary.summarised[mode].clone()),
                illegal,
                retention,
                compactions: self.scorer.compactions(),
            });
            let calls: Vec<ReplayRow> = calls.collect();
            if let Some(played) = calls.first() {
                see(ReplayedRequest {
                    played,
                    answer: call.answer,
                    rendered: call.rendered,
                    context,
                    options: self.options,
                    summariser: summary.as_ref().and_then(|summary| summary.body.as_deref()),
                });
            }
            self.played.iter_mut().zip(calls).for_each(|(all, played)| all.push(played));
        }
        self.last = at;
        self.sent = Some((call.rendered.body.clone(), context.tokens()));
    }

    /// Records a call whose essential content does not fit: no request is sent, so the model has none of the
    /// facts it needs.
    fn refused(&mut self, failed: &FailedSimulationCall<'_>) {
        if failed.answer.id.seq < self.part.own {
            return;
        }
        let at = failed.at.or(self.last);
        let pause = self.pause(at);
        for played in &mut self.played {
            played.push(ReplayRow {
                retention: self.scorer.lost(failed.number),
                compactions: self.scorer.compactions(),
                ..ReplayRow::refused(played.len() as u64, at, pause)
            });
        }
    }

    /// Time since the last call that was made.
    fn pause(&self, at: Option<Timestamp>) -> Option<Duration> {
        let (last, at) = self.last.zip(at)?;
        u64::try_from(at.0.saturating_sub(last.0)).ok().map(Duration::from_millis)
    }

    /// Cost of the summary that a call waits for, and the request for it. One that a model made in the background was charged when
    /// it was ordered.
    fn summarised(&mut self, call: &SimulationCall<'_>, at: Option<Timestamp>) -> Option<AskedSummary> {
        let made = call.prepared.compaction.as_ref()?;
        let Fact::Compacted(compaction) = &made.event.fact else { return None };
        if call.prepared.author == SummaryOrigin::Ready {
            return None;
        }
        let asked = match (self.contender.writer, &self.sent) {
            (CandidateSummariser::Session, Some((sent, _))) => {
                let (sent, answer) = (sent.clone(), self.part.script.meter().text(compaction.summary.text()));
                self.asked(&sent, answer, at)
            }
            (
                CandidateSummariser::BuiltIn | CandidateSummariser::Session | CandidateSummariser::Background,
                _,
            ) => None,
        };
        let free = ReplayedSummary { usage: Usage::default(), money: Some(Money(0)) };
        Some(asked.unwrap_or_else(|| AskedSummary { body: None, summarised: vec![free; self.caches.len()] }))
    }

    /// Cost of a summary that the session's own model writes by continuing a request; `None` if that cannot be continued.
    fn asked(&mut self, sent: &str, answer: Tokens, at: Option<Timestamp>) -> Option<AskedSummary> {
        let body = self.stage.format.append_instruction(sent, INSTRUCTION, LONGEST_SUMMARY).ok()?;
        let prompt = self.stage.format.prompt(&body, &mut self.memo).ok()?;
        let prompt = self.whole(&prompt);
        let charges = self.serve(at, &prompt, self.part.unseen.scaled(answer)).into_iter();
        let summarised =
            charges.map(|charge| ReplayedSummary { usage: charge.usage, money: charge.money.ok() });
        Some(AskedSummary { body: Some(body), summarised: summarised.collect() })
    }

    /// Sends a request to each simulated cache.
    fn serve(&mut self, at: Option<Timestamp>, prompt: &Prompt, output: Tokens) -> Vec<cost::CallCharge> {
        let call = cost::SimulatedCall {
            at: at.unwrap_or(Timestamp(0)),
            model: &self.stage.profile.name,
            prompt,
            settings: &SettingDigests::default(),
            output,
        };
        self.caches.iter_mut().map(|cache| cache.serve(&call)).collect()
    }

    /// A request by the provider's count, with its hidden part.
    fn whole(&self, prompt: &Prompt) -> Prompt {
        let unseen = &self.part.unseen;
        let shows_prefix = prompt.blocks.first().is_some_and(|block| block.layer != CacheLayer::Messages);
        let prefix = (unseen.prefix > Tokens(0)).then(|| PromptBlock {
            layer: CacheLayer::Tools,
            digest: Digest::of(b"unseen"),
            tokens: unseen.prefix,
            tool: false,
            breakpoint: self.usual_lifetime().filter(|_| !shows_prefix),
        });
        let seen = prompt
            .blocks
            .iter()
            .map(|block| PromptBlock { tokens: unseen.scaled(block.tokens), ..block.clone() });
        Prompt { blocks: prefix.into_iter().chain(seen).collect() }
    }

    fn regions(&mut self, context: &Context) -> RegionSizes {
        let unseen = &self.part.unseen;
        let mut regions = RegionSizes { unseen: unseen.prefix, ..RegionSizes::default() };
        for segment in context.segments() {
            let tokens = unseen.scaled(segment.tokens());
            *region(&mut regions, segment, &mut self.clients) += tokens;
        }
        regions
    }

    fn usual_lifetime(&self) -> Option<u64> {
        match self.options.breakpoints {
            CacheBreakpoints::AsSent => None,
            CacheBreakpoints::Placed { lifetime, .. } => Some(lifetime),
        }
    }
}

/// Messages of a thread that no user wrote, each read once, because most calls show them again.
#[derive(Debug, Default)]
struct ClientMessages(HashMap<Seq, bool>);

impl ClientMessages {
    fn contains(&mut self, segment: &Segment) -> bool {
        let SegmentBody::User { event, .. } = segment.body() else { return false };
        *self.0.entry(event.id.seq).or_insert_with(|| match &event.event.fact {
            Fact::Injected { .. } => true,
            Fact::ToolReturned { parts, .. } => user_words_of(parts).is_empty(),
            fact => !is_user_speaking(fact),
        })
    }
}

fn region<'r>(
    regions: &'r mut RegionSizes,
    segment: &Segment,
    clients: &mut ClientMessages,
) -> &'r mut Tokens {
    match segment.tier() {
        Tier::Prefix => &mut regions.prefix,
        Tier::Summaries => &mut regions.summary,
        Tier::Reasoning => &mut regions.reasoning,
        Tier::ToolResults if segment.fidelity() == Fidelity::Verbatim => &mut regions.results,
        Tier::ToolResults => &mut regions.shortened,
        Tier::Dialogue if segment.is_answer() => &mut regions.answers,
        Tier::Dialogue if clients.contains(segment) => &mut regions.client,
        Tier::Dialogue | Tier::Media => &mut regions.user,
    }
}
