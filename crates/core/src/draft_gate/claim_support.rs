//! Support: what the agent stated, and whether that still holds.
//!
//! Only the agent's own words bear an item. What users said is told word for word by code, and what tools returned may have
//! been written by anybody. A statement is refuted if the session says otherwise later on, or shows it.

use std::{
    ops::{Range, RangeInclusive},
    sync::Arc,
};

use super::{
    numbered_sentences::{SentenceNumber, own_sentences},
    text_words::{TextWords, TokenKind, WordToken, telling},
};
use crate::{
    client_text::{is_user_speaking, user_words_of},
    event::{Fact, LoggedEvent},
    id::Seq,
    pairing::{CallOutcome, pair},
    seq_set::SeqSet,
    summary::{
        StructuredSummary, SummaryItem, SummarySection, TAKEN_BACK_NOTE, text as text_of, tools::failure,
    },
};

/// How few words a sentence may have to say anything.
const SHORTEST: usize = 3;

/// What was said in a span, and what its calls came to.
pub(super) struct SpanSpeech<'s> {
    messages: Vec<SpokenMessage>,
    /// What the agent stated, in order.
    pub(super) statements: Vec<AgentStatement>,
    calls: Vec<CallRun<'s>>,
    /// Changes that were taken back, and when that was.
    taken_back: Vec<(Seq, TextWords)>,
}

/// A message of the user or the agent.
struct SpokenMessage {
    at: Seq,
    by_agent: bool,
    words: TextWords,
}

/// A sentence of the agent that says something by itself.
pub(super) struct AgentStatement {
    pub(super) number: SentenceNumber,
    pub(super) text: String,
    /// Whether it announces a call: then it has no number.
    pub(super) announces: bool,
    /// Where it stands: the message, and its tokens there.
    message: usize,
    tokens: Range<usize>,
    /// Whether a call had failed before it, since the user last spoke.
    after_failure: bool,
}

/// A call, by what it was.
struct CallRun<'s> {
    at: Seq,
    call: (&'s str, &'s str),
    failed: bool,
}

impl<'s> SpanSpeech<'s> {
    /// Reads a span.
    pub(super) fn of(span: &'s [Arc<LoggedEvent>], ground: &StructuredSummary) -> Self {
        let paired = pair(span.iter().map(|event| (event.id.seq, &event.event.fact)));
        let calls = paired.exchanges.iter().map(|exchange| CallRun {
            at: exchange.at,
            call: (&exchange.call.name.0, &exchange.call.arguments),
            failed: match &exchange.outcome {
                CallOutcome::Returned { result, .. } => failure(exchange.call, result).is_some(),
                CallOutcome::Unanswered => true,
            },
        });
        let is_back = |item: &&SummaryItem| item.detail.is_some() && item.text.contains(TAKEN_BACK_NOTE);
        let taken_back = ground.section(SummarySection::FailedApproaches).filter(is_back);
        let taken_back =
            taken_back.filter_map(|item| Some((item.sources.last()?, TextWords::of(&item.text))));
        let (calls, taken_back) = (calls.collect(), taken_back.collect());
        let mut speech = Self { messages: Vec::new(), statements: Vec::new(), calls, taken_back };
        let mut asked = Seq::START;
        for (index, event) in span.iter().enumerate() {
            let (at, fact) = (event.id.seq, &event.event.fact);
            if is_user_speaking(fact) {
                asked = at;
            }
            let by_agent = matches!(fact, Fact::AssistantSaid { .. });
            let (text, (own, announced)) = match fact {
                Fact::AssistantSaid { parts, .. } => {
                    (text_of(parts), own_sentences(parts, &span[index + 1..]))
                }
                Fact::UserSaid { parts } | Fact::ToolReturned { parts, .. } => {
                    (user_words_of(parts), Default::default())
                }
                _ => continue,
            };
            let words = TextWords::of(&text);
            if words.tokens.is_empty() {
                continue;
            }
            let failed = |seqs: RangeInclusive<Seq>| {
                speech.calls.iter().any(|call| call.failed && seqs.contains(&call.at))
            };
            // An answer may be logged in pieces: what it calls stands before the next results, or before the user speaks.
            let ends = |next: &&Arc<LoggedEvent>| {
                !next.event.fact.results().is_empty() || is_user_speaking(&next.event.fact)
            };
            let until = span[index + 1..].iter().find(ends).map_or(at, |next| next.id.seq);
            // What announces calls that failed bears nothing.
            let announced = announced.filter(|_| !failed(at..=until));
            let after_failure = failed(asked.next()..=at.previous());
            let (message, mut from, last) = (speech.messages.len(), 0, own.len());
            for (place, text) in own.into_iter().chain(announced).enumerate() {
                let Some(tokens) = words.place_of(&TextWords::of(&text), from) else { continue };
                from = tokens.end;
                let own = &words.tokens[tokens.clone()];
                let is_mute = own.iter().any(|token| words.mute.contains(&token.sentence));
                if !is_mute && telling(own).count() >= SHORTEST {
                    let number = SentenceNumber { at, place: place as u64 + 1 };
                    let statement = AgentStatement {
                        number,
                        text,
                        announces: place == last,
                        message,
                        tokens,
                        after_failure,
                    };
                    speech.statements.push(statement);
                }
            }
            speech.messages.push(SpokenMessage { at, by_agent, words });
        }
        speech
    }

    /// The statement with a number.
    pub(super) fn numbered(&self, number: SentenceNumber) -> Option<&AgentStatement> {
        self.statements.iter().find(|statement| statement.number == number && !statement.announces)
    }

    /// The newest statement that has every word of a text.
    pub(super) fn worded(&self, text: &str) -> Option<&AgentStatement> {
        let claim = TextWords::of(text);
        let claim: Vec<&WordToken> = telling(&claim.tokens).collect();
        if claim.len() < SHORTEST {
            return None;
        }
        let says = |statement: &&AgentStatement| {
            let own = self.tokens(statement);
            claim.iter().all(|token| own.iter().any(|other| token.is_supported_by(other)))
        };
        self.statements.iter().rev().find(says)
    }

    /// The events in which a statement was made in the same words, or the one that speaks against it. Nothing, if it has no
    /// place in a section: an attempt is a failed one only if something had failed by then.
    pub(super) fn judge(
        &self,
        statement: &AgentStatement,
        section: SummarySection,
    ) -> Option<Result<SeqSet, Seq>> {
        let same = |other: &&AgentStatement| {
            let words = |statement| telling(self.tokens(statement)).map(|token| &token.text);
            words(other).eq(words(statement))
                && (section != SummarySection::FailedApproaches || other.after_failure)
        };
        let places: Vec<&AgentStatement> = self.statements.iter().filter(same).collect();
        let newest = places.last()?;
        Some(match self.refuted(newest, section) {
            Some(by) => Err(by),
            None => Ok(SeqSet::union(
                &places.iter().map(|place| SeqSet::one(place.number.at)).collect::<Vec<_>>(),
            )),
        })
    }

    fn tokens(&self, statement: &AgentStatement) -> &[WordToken] {
        &self.messages[statement.message].words.tokens[statement.tokens.clone()]
    }

    /// The event of this span that speaks against what was told before it.
    pub(super) fn speaks_against(&self, text: &str) -> Option<Seq> {
        let claim = TextWords::of(text).tokens;
        let against =
            |message: &&SpokenMessage| contradicts(&message.words, 0, &claim, LaterSpeech::UserSpoke);
        self.messages.iter().find(against).map(|message| message.at)
    }

    /// The event that speaks against a statement after it was made.
    fn refuted(&self, statement: &AgentStatement, section: SummarySection) -> Option<Seq> {
        let claim = self.tokens(statement);
        let own = &self.messages[statement.message];
        let next = &self.messages[statement.message + 1..];
        let asked = next.iter().position(|message| !message.by_agent).unwrap_or(next.len());
        let since = |at: usize| if at < asked { LaterSpeech::Nothing } else { LaterSpeech::UserSpoke };
        let mut later = next.iter().enumerate();
        let by_words = later.find(|(at, message)| contradicts(&message.words, 0, claim, since(*at)));
        let by_itself =
            || contradicts(&own.words, statement.tokens.end, claim, LaterSpeech::Nothing).then_some(own.at);
        let sentence = claim.last().map_or(0, |token| token.sentence);
        let is_denial =
            |answer: &&SpokenMessage| !answer.by_agent && denies(&answer.words, &own.words, sentence);
        let by_answer = || next.first().filter(is_denial).map(|answer| answer.at);
        let is_named = |change: &TextWords| {
            let names = claim.iter().filter(|token| token.kind == TokenKind::Name);
            names.into_iter().any(|name| change.tokens.iter().any(|other| name.is_supported_by(other)))
        };
        let by_change = || self.taken_back.iter().find(|(at, change)| *at > own.at && is_named(change));
        by_words
            .map(|(_, message)| message.at)
            .or_else(by_itself)
            .or_else(by_answer)
            .or_else(|| self.shown_otherwise(claim, section, own.at))
            .or_else(|| by_change().map(|(at, _)| *at))
    }

    /// The call after a report on the same call that ended otherwise, if the claim speaks of what it calls. What did not
    /// work is told also if it works by now.
    fn shown_otherwise(&self, claim: &[WordToken], section: SummarySection, at: Seq) -> Option<Seq> {
        let reported = self.calls.iter().rev().find(|call| call.at < at)?;
        let called = TextWords::of(reported.call.1);
        let is_of_call = |token: &&WordToken| called.tokens.iter().any(|other| token.is_supported_by(other));
        claim.iter().filter(|token| token.is_significant()).find(is_of_call)?;
        let counts = |call: &&CallRun<'_>| call.failed || section != SummarySection::FailedApproaches;
        let differs = |call: &&CallRun<'_>| call.call == reported.call && call.failed != reported.failed;
        let later = self.calls.iter().filter(|call| call.at >= at);
        later.filter(counts).find(differs).map(|call| call.at)
    }
}

/// What happened between a sentence and a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LaterSpeech {
    Nothing,
    /// The user spoke, and may have wanted it otherwise.
    UserSpoke,
}

/// Whether a message, from a token on, says something else of what a claim speaks of.
fn contradicts(message: &TextWords, from: usize, claim: &[WordToken], since: LaterSpeech) -> bool {
    let claimed: Vec<&WordToken> = telling(claim).collect();
    let tokens = &message.tokens[from.min(message.tokens.len())..];
    let speaks = |sentence: &&[WordToken]| !message.mute.contains(&sentence[0].sentence);
    let mut sentences = tokens.chunk_by(|one, next| one.sentence == next.sentence).filter(speaks);
    sentences.any(|sentence| turns(sentence, &claimed) || is_said_otherwise(sentence, &claimed, since))
}

/// Whether a clause of a sentence speaks of most of what a claim speaks of, with a word that turns it.
fn turns(sentence: &[WordToken], claimed: &[&WordToken]) -> bool {
    let telling: Vec<&&WordToken> = claimed.iter().filter(|token| token.is_significant()).collect();
    let mut clauses = sentence.chunk_by(|one, next| one.clause == next.clause);
    clauses.any(|clause| {
        let new = |token: &WordToken| {
            token.kind == TokenKind::Turning && !claimed.iter().any(|own| own.text == token.text)
        };
        let shared =
            telling.iter().filter(|token| clause.iter().any(|other| token.is_supported_by(other))).count();
        shared > 1 && shared * 2 >= telling.len() && clause.iter().any(new)
    })
}

/// Whether a sentence has the form of a claim with something else in one place: another figure or, after the user spoke,
/// another thing in its middle or another end. Without the user it is told of another thing in the same words.
fn is_said_otherwise(sentence: &[WordToken], claimed: &[&WordToken], since: LaterSpeech) -> bool {
    const END: usize = 2;
    let said: Vec<&WordToken> = telling(sentence).collect();
    let same = |(one, other): &(&&WordToken, &&WordToken)| one.is_supported_by(other);
    let begins = claimed.iter().zip(&said).take_while(same).count();
    let ends = claimed.iter().rev().zip(said.iter().rev()).take_while(same).count();
    let (Some(one), Some(other)) = (claimed.get(begins), said.get(begins)) else { return false };
    let most = begins >= SHORTEST.max(claimed.len().div_ceil(2));
    if one.is_figure() && other.is_figure() {
        return most || begins > 0 && begins + ends + 1 >= claimed.len();
    }
    // `use X for the queue`, `use Y for the queue`
    let middle = begins > 0 && ends > 0 && begins + ends + 1 >= claimed.len();
    let is_new = one.is_significant()
        && other.is_significant()
        && !said.iter().any(|token| one.is_supported_by(token));
    let end = most && said.len() - begins <= END && claimed.len() - begins <= END;
    since == LaterSpeech::UserSpoke && (middle && is_new || end)
}

/// Whether an answer of the user begins by turning what a sentence before it said: that which it speaks of, or all if it
/// speaks of nothing in particular.
fn denies(answer: &TextWords, message: &TextWords, sentence: usize) -> bool {
    const BEGINNING: usize = 2;
    let Some(first) = answer.sentences().next() else { return false };
    let mut beginning = telling(first).take(BEGINNING);
    if !beginning.any(|token| token.kind == TokenKind::Turning) {
        return false;
    }
    let shares = |tokens: &[WordToken]| {
        let telling = |token: &&WordToken| token.is_significant();
        tokens.iter().filter(telling).any(|token| first.iter().any(|other| token.is_supported_by(other)))
    };
    let mut spoken_of = message.sentences().filter(|tokens| shares(tokens)).peekable();
    spoken_of.peek().is_none() || spoken_of.any(|tokens| tokens[0].sentence == sentence)
}
