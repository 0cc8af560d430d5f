//! Support: where the agent itself said what a sentence of a draft says, and whether that still holds.
//!
//! Only the agent's own words bear a sentence. What users said is told word for word by code, and what tools returned may
//! have been written by anybody. A sentence is borne if all its words stand in one message in the same order, with nothing
//! left out between them that could turn them; it is refuted if the session says otherwise later on, or shows it.

use std::sync::Arc;

use super::text_words::{TextWords, TokenKind, WordToken};
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

/// How many words may be left out at the end of a clause.
const TAIL: usize = 6;

/// What was said in a span, and what its calls came to.
pub(super) struct SpanSpeech<'s> {
    messages: Vec<SpokenMessage>,
    calls: Vec<CallRun<'s>>,
    /// Changes that were taken back, and when that was.
    taken_back: Vec<(Seq, TextWords)>,
}

/// A message of the user or the agent.
struct SpokenMessage {
    at: Seq,
    by_agent: bool,
    words: TextWords,
    /// The first sentence that bears nothing: it announces calls that failed.
    announces: usize,
    /// Whether a call had failed before it, since the user last spoke.
    after_failure: bool,
}

/// A call, by what it was.
struct CallRun<'s> {
    at: Seq,
    call: (&'s str, &'s str),
    failed: bool,
}

/// A place where a sentence was said: the message, and its last token there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SpokenPlace {
    message: usize,
    token: usize,
}

/// What the session makes of a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SupportVerdict {
    /// The agent said it in these events, and nothing speaks against it.
    Borne(SeqSet),
    /// The agent said it, and this event says or shows otherwise.
    Refuted(Seq),
    /// Nobody said it.
    Unsaid,
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
        let calls: Vec<CallRun<'_>> = calls.collect();
        let is_back = |item: &&SummaryItem| item.detail.is_some() && item.text.contains(TAKEN_BACK_NOTE);
        let taken_back = ground.section(SummarySection::FailedApproaches).filter(is_back);
        let taken_back =
            taken_back.filter_map(|item| Some((item.sources.last()?, TextWords::of(&item.text))));
        let mut speech = Self { messages: Vec::new(), calls: Vec::new(), taken_back: taken_back.collect() };
        let mut asked = Seq::START;
        for event in span {
            let (at, fact) = (event.id.seq, &event.event.fact);
            let by_agent = matches!(fact, Fact::AssistantSaid { .. });
            if is_user_speaking(fact) {
                asked = at;
            }
            let text = match fact {
                Fact::AssistantSaid { parts, .. } => text_of(parts),
                Fact::UserSaid { parts } | Fact::ToolReturned { parts, .. } => user_words_of(parts),
                _ => String::new(),
            };
            let words = TextWords::of(&text);
            if words.tokens.is_empty() {
                continue;
            }
            // An answer may be logged in pieces: what it calls stands before the next results, or before the user speaks.
            let mut next = span[span.partition_point(|next| next.id.seq <= at)..].iter();
            let ends = |next: &&Arc<LoggedEvent>| {
                !next.event.fact.results().is_empty() || is_user_speaking(&next.event.fact)
            };
            let returned = next.find(ends);
            let until = returned.map_or(at, |next| next.id.seq);
            let fails = by_agent && calls.iter().any(|call| (at..=until).contains(&call.at) && call.failed);
            let last = words.tokens.last().map_or(0, |token| token.sentence);
            speech.messages.push(SpokenMessage {
                at,
                by_agent,
                announces: if fails { last } else { usize::MAX },
                after_failure: calls.iter().any(|call| call.failed && asked < call.at && call.at < at),
                words,
            });
        }
        speech.calls = calls;
        speech
    }

    /// Judges a sentence that a draft has under a section. Of the events that bear it those are named that it cites, if
    /// it cites any of them.
    pub(super) fn judge(&self, text: &str, section: SummarySection, cited: &SeqSet) -> SupportVerdict {
        let claim = TextWords::of(text);
        let places = self.places(&claim, section);
        let Some(newest) = places.last() else { return SupportVerdict::Unsaid };
        if let Some(by) = self.refuted(&claim, section, *newest) {
            return SupportVerdict::Refuted(by);
        }
        let mut sources = SeqSet::default();
        for place in &places {
            sources.insert(self.messages[place.message].at);
        }
        let named = sources.without(&sources.without(cited));
        SupportVerdict::Borne(if named.is_empty() { sources } else { named })
    }

    /// Whether the agent says a sentence in an event, as something that holds by itself.
    pub(super) fn is_said_at(&self, at: Seq, sentence: &str) -> bool {
        let claim = TextWords::of(sentence);
        let telling: Vec<&WordToken> = claim.significant_tokens().collect();
        let place = self.messages.binary_search_by_key(&at, |message| message.at);
        let Some(message) = place.ok().map(|place| &self.messages[place]) else { return false };
        telling.len() >= SHORTEST && ClaimAlignment { claim: &telling, message }.find().is_some()
    }

    /// The event of this span that speaks against what was told before it.
    pub(super) fn speaks_against(&self, text: &str) -> Option<Seq> {
        let claim = TextWords::of(text);
        let against =
            |message: &&SpokenMessage| contradicts(&message.words, 0, &claim, LaterSpeech::UserSpoke);
        self.messages.iter().find(against).map(|message| message.at)
    }

    fn places(&self, claim: &TextWords, section: SummarySection) -> Vec<SpokenPlace> {
        let telling: Vec<&WordToken> = claim.significant_tokens().collect();
        if telling.len() < SHORTEST {
            return Vec::new();
        }
        let bears = |message: &&SpokenMessage| {
            // An attempt is a failed one if something had failed by then.
            message.by_agent && (section != SummarySection::FailedApproaches || message.after_failure)
        };
        let found = self.messages.iter().enumerate().filter(|(_, message)| bears(message));
        found
            .filter_map(|(at, message)| {
                ClaimAlignment { claim: &telling, message }
                    .find()
                    .map(|token| SpokenPlace { message: at, token })
            })
            .collect()
    }

    /// The event after a place that speaks against a claim.
    fn refuted(&self, claim: &TextWords, section: SummarySection, place: SpokenPlace) -> Option<Seq> {
        let own = &self.messages[place.message];
        let next = &self.messages[place.message + 1..];
        let asked = next.iter().position(|message| !message.by_agent).unwrap_or(next.len());
        let since = |at: usize| if at < asked { LaterSpeech::Nothing } else { LaterSpeech::UserSpoke };
        let mut later = next.iter().enumerate();
        let by_words = later.find(|(at, message)| contradicts(&message.words, 0, claim, since(*at)));
        let by_words = by_words.map(|(_, message)| message.at);
        let answer = next.first().filter(|message| !message.by_agent);
        let denied = || {
            answer.filter(|answer| denies(&answer.words, &own.words, own.words.tokens[place.token].sentence))
        };
        by_words
            .or_else(|| {
                contradicts(&own.words, place.token + 1, claim, LaterSpeech::Nothing).then_some(own.at)
            })
            .or_else(|| denied().map(|answer| answer.at))
            .or_else(|| self.shown_otherwise(claim, section, own.at))
            .or_else(|| {
                let is_named = |name: &WordToken, change: &TextWords| {
                    name.kind == TokenKind::Name
                        && change.tokens.iter().any(|other| name.is_supported_by(other))
                };
                let speaks_of = |change: &TextWords| claim.tokens.iter().any(|name| is_named(name, change));
                let mut later = self.taken_back.iter().filter(|(at, _)| *at > own.at);
                later.find(|(_, change)| speaks_of(change)).map(|(at, _)| *at)
            })
    }

    /// The call after a report on the same call that ended otherwise, if the claim speaks of what it calls. What did not
    /// work is told also if it works by now.
    fn shown_otherwise(&self, claim: &TextWords, section: SummarySection, at: Seq) -> Option<Seq> {
        let reported = self.calls.iter().rev().find(|call| call.at < at)?;
        let called = TextWords::of(reported.call.1);
        let is_of_call = |token: &&WordToken| called.tokens.iter().any(|other| token.is_supported_by(other));
        claim.tokens.iter().filter(|token| token.is_significant()).find(is_of_call)?;
        let counts = |call: &&CallRun<'_>| call.failed || section != SummarySection::FailedApproaches;
        let differs = |call: &&CallRun<'_>| call.call == reported.call && call.failed != reported.failed;
        let later = self.calls.iter().filter(|call| call.at >= at);
        later.filter(counts).find(differs).map(|call| call.at)
    }
}

/// A claim on the way to be found in a message.
struct ClaimAlignment<'a> {
    claim: &'a [&'a WordToken],
    message: &'a SpokenMessage,
}

impl ClaimAlignment<'_> {
    /// The last token of the last place where the message says the claim.
    fn find(&self) -> Option<usize> {
        let tokens = &self.message.words.tokens;
        (0..tokens.len()).rev().filter(|at| self.begins(*at)).find_map(|at| self.follow(0, at))
    }

    /// Whether the claim may begin at a token: with the clause, and with nothing before it that could turn it.
    fn begins(&self, at: usize) -> bool {
        let tokens = &self.message.words.tokens;
        let token = &tokens[at];
        if !self.claim[0].is_supported_by(token) || !self.speaks(token.sentence) {
            return false;
        }
        let sentence =
            tokens[..at].iter().rposition(|other| other.sentence != token.sentence).map_or(0, |at| at + 1);
        let before = &tokens[sentence..at];
        if !is_known_language(tokens, token.sentence) {
            return before.iter().all(|other| other.kind == TokenKind::Free);
        }
        let (head, own): (Vec<&WordToken>, Vec<&WordToken>) =
            before.iter().partition(|other| other.clause != token.clause);
        // A single word before a comma answers somebody else: "No, it still does."
        let alone = |other: &WordToken| head.iter().filter(|third| third.clause == other.clause).count() == 1;
        own.iter().all(|other| matches!(other.kind, TokenKind::Free | TokenKind::Joining))
            && head.iter().all(|other| !other.changes_meaning() || alone(other))
    }

    /// Whether a sentence of the message says something that holds by itself.
    fn speaks(&self, sentence: usize) -> bool {
        !self.message.words.mute.contains(&sentence) && sentence < self.message.announces
    }

    /// Follows the claim from its word `index`, which was found at `at`, to its end, and says where that is.
    fn follow(&self, index: usize, at: usize) -> Option<usize> {
        let Some(next) = self.claim.get(index + 1) else { return self.ends(at).then_some(at) };
        let tokens = &self.message.words.tokens;
        let reach = tokens.len().min(at + 2 + 3 * TAIL);
        (at + 1..reach)
            .filter(|there| next.is_supported_by(&tokens[*there]) && self.speaks(tokens[*there].sentence))
            .filter(|there| self.may_skip(index, at, *there))
            .find_map(|there| self.follow(index + 1, there))
    }

    /// Whether what stands between two found words may be left out: within a clause one word that is no name, and at the
    /// end of a clause several where the claim has an end of a clause too.
    fn may_skip(&self, index: usize, at: usize, there: usize) -> bool {
        let tokens = &self.message.words.tokens;
        let left_out = tokens[at + 1..there].iter().filter(|token| token.kind != TokenKind::Free);
        let left_out: Vec<&WordToken> = left_out.collect();
        if left_out.is_empty() {
            return true;
        }
        let known = is_known_language(tokens, tokens[at].sentence);
        if !known || left_out.iter().any(|token| token.changes_meaning()) {
            return false;
        }
        if tokens[at].clause == tokens[there].clause {
            return left_out.len() == 1 && left_out[0].kind == TokenKind::Word;
        }
        let parted = self.claim[index].clause != self.claim[index + 1].clause;
        parted && left_out.len() <= TAIL && left_out.iter().all(|token| token.clause == tokens[at].clause)
    }

    /// Whether the claim may end at a token: what is left of the clause does not turn it, and nothing behind it does.
    fn ends(&self, at: usize) -> bool {
        let tokens = &self.message.words.tokens;
        let sentence = tokens[at].sentence;
        let rest = tokens[at + 1..].iter().take_while(|token| token.sentence == sentence);
        let rest: Vec<&WordToken> = rest.filter(|token| token.kind != TokenKind::Free).collect();
        let tail = rest.iter().take_while(|token| token.clause == tokens[at].clause).count();
        let allowed = if is_known_language(tokens, sentence) { TAIL } else { 0 };
        let turned = rest.iter().take(tail + 1).any(|token| token.changes_meaning());
        tail <= allowed && !turned
    }
}

/// Whether the words of a sentence are of the language in which it is known what may be left out.
fn is_known_language(tokens: &[WordToken], sentence: usize) -> bool {
    const TELLTALE: &str = "the";
    const LITTLE: usize = 2;
    let own = tokens.iter().skip_while(|token| token.sentence < sentence);
    let own = own.take_while(|token| token.sentence == sentence);
    let free: Vec<&str> =
        own.filter(|token| token.kind == TokenKind::Free).map(|token| token.text.as_str()).collect();
    free.contains(&TELLTALE) || free.iter().filter(|word| word.len() > LITTLE).count() > 1
}

/// What happened between a sentence and a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LaterSpeech {
    Nothing,
    /// The user spoke, and may have wanted it otherwise.
    UserSpoke,
}

/// Whether a message, from a token on, says something else of what a claim speaks of.
fn contradicts(message: &TextWords, from: usize, claim: &TextWords, since: LaterSpeech) -> bool {
    let claimed: Vec<&WordToken> = claim.significant_tokens().collect();
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
    let said: Vec<&WordToken> = sentence.iter().filter(|token| token.kind != TokenKind::Free).collect();
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
    let beginning = first.iter().filter(|token| token.kind != TokenKind::Free).take(BEGINNING);
    if !beginning.into_iter().any(|token| token.kind == TokenKind::Turning) {
        return false;
    }
    let shares = |tokens: &[WordToken]| {
        let telling = |token: &&WordToken| token.is_significant();
        tokens.iter().filter(telling).any(|token| first.iter().any(|other| token.is_supported_by(other)))
    };
    let mut spoken_of = message.sentences().filter(|tokens| shares(tokens)).peekable();
    spoken_of.peek().is_none() || spoken_of.any(|tokens| tokens[0].sentence == sentence)
}
