//! Turns and loops, derived from a line of events.
//!
//! A turn is one model call: the messages since the last one, the answer, the results of its calls. Its id is
//! that of its first assistant event. A compaction is a turn too. A loop is a user's request and all turns
//! until the next one. None of this is stored as truth: [`TurnBuilder`] makes it again from the events at any time.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::{
    event::{Compaction, Event, Fact, LoggedEvent, Timestamp, Usage},
    id::{AnswerId, EventId, ModelName, Seq},
    lineage::CompactionStatus,
};

/// One model call, or one compaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The id of its first assistant event, or of the compaction.
    pub id: EventId,
    /// The turn before it on the thread.
    pub parent: Option<EventId>,
    /// Index of its loop, counted from 0; turns before any user message are in loop 0.
    pub loop_index: u64,
    /// The first event of the turn.
    pub first: Seq,
    /// The last event of the turn so far.
    pub last: Seq,
    /// Messages that were sent since the turn before.
    pub asked: Vec<EventId>,
    /// The answer, in fragments; a compaction has only itself here.
    pub answered: Vec<EventId>,
    /// The messages that carry the results of its calls.
    pub returned: Vec<EventId>,
    /// The provider's id of the answer.
    pub answer: Option<AnswerId>,
    /// The model that answered.
    pub model: Option<ModelName>,
    /// Time of the answer.
    pub time: Option<Timestamp>,
    /// Number of tool calls.
    pub tool_calls: u64,
    /// Usage that the provider reported; the last report counts.
    pub usage: Option<Usage>,
    /// The compaction, if the turn is one.
    pub compaction: Option<Compaction>,
    /// Of a compaction that is undone: where it was reverted.
    pub reverted: Option<Seq>,
    /// Of a compaction that was undone and brought back: from where to where, as often as that happened.
    pub suspended: Vec<CompactionSuspension>,
}

/// A time in which a compaction did not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionSuspension {
    /// Place at which it was reverted.
    pub from: Seq,
    /// Place at which it was restored.
    pub until: Seq,
}

impl Turn {
    /// Returns true if this turn is a compaction.
    pub fn is_compaction(&self) -> bool {
        self.compaction.is_some()
    }

    /// Returns true if this turn is a compaction that was in force at the event at `place`.
    pub fn in_force_at(&self, place: Seq) -> bool {
        let suspended = self.suspended.iter().any(|time| time.from < place && place <= time.until);
        self.is_compaction()
            && self.id.seq < place
            && !suspended
            && self.reverted.is_none_or(|reverted| place <= reverted)
    }

    /// Takes a change of this turn's standing, made at `at`. It has no effect unless the turn is an earlier
    /// compaction with another standing.
    pub fn apply_status(&mut self, standing: CompactionStatus, at: Seq) {
        if !self.is_compaction() || at <= self.id.seq {
            return;
        }
        match standing {
            CompactionStatus::Undone => {
                self.reverted.get_or_insert(at);
            }
            CompactionStatus::Holds => {
                self.suspended
                    .extend(self.reverted.take().map(|from| CompactionSuspension { from, until: at }));
            }
        }
    }
}

/// Derives turns from events, one event at a time.
///
/// To go on where an earlier derivation stopped, start with [`TurnBuilder::after`] its last turn's parent and feed the
/// events from that last turn's first on.
#[derive(Clone, Debug, Default)]
pub struct TurnBuilder {
    done: Vec<Turn>,
    current: Option<Turn>,
    asked: Vec<EventId>,
    asked_first: Option<Seq>,
    parent: Option<EventId>,
    model: Option<ModelName>,
    loops: Option<u64>,
    user_asked: bool,
}

impl TurnBuilder {
    /// Continues after the turn `parent` of loop `loop_index`, where `model` answers unless an event says otherwise.
    pub fn after(parent: EventId, loop_index: u64, model: Option<ModelName>) -> Self {
        Self { parent: Some(parent), loops: Some(loop_index), model, ..Self::default() }
    }

    /// All turns of a line of events.
    pub fn of<'a>(events: impl IntoIterator<Item = &'a LoggedEvent>) -> Vec<Turn> {
        let mut turns = Self::default();
        for event in events {
            turns.push(event);
        }
        turns.finish()
    }

    /// Takes the next event.
    pub fn push(&mut self, logged: &LoggedEvent) {
        self.push_at(logged.id, &logged.event);
    }

    /// The same of an event that is held apart from its place.
    pub fn push_at(&mut self, id: EventId, event: &Event) {
        match &event.fact {
            Fact::AssistantSaid { answer, model, .. } => {
                self.answer(
                    id,
                    answer.as_ref(),
                    model.as_ref(),
                    event.time,
                    event.fact.calls().count() as u64,
                );
            }
            Fact::Compacted(compaction) => {
                self.close();
                let mut turn = self.open(id, event.time);
                turn.compaction = Some(compaction.clone());
                self.finish_turn(turn);
            }
            Fact::ToolReturned { .. } => match &mut self.current {
                Some(turn) => {
                    turn.returned.push(id);
                    turn.last = id.seq;
                }
                None => self.ask(id),
            },
            Fact::UserSaid { .. } => {
                self.close();
                self.user_asked = true;
                self.ask(id);
            }
            Fact::Instructed { .. } | Fact::Injected { .. } | Fact::CompactionRequested { .. } => {
                self.close();
                self.ask(id);
            }
            Fact::ModelChanged { model } => {
                self.model = Some(model.clone());
                self.extend(id.seq);
            }
            Fact::UsageReported { answer, usage, .. } => {
                if let Some(turn) = &mut self.current
                    && (answer.is_none() || *answer == turn.answer)
                {
                    turn.usage = Some(*usage);
                }
                self.extend(id.seq);
            }
            Fact::CompactionReverted { compaction } => {
                self.apply_compaction_status(*compaction, CompactionStatus::Undone, id.seq);
                self.extend(id.seq);
            }
            Fact::CompactionRestored { compaction } => {
                self.apply_compaction_status(*compaction, CompactionStatus::Holds, id.seq);
                self.extend(id.seq);
            }
            Fact::Pinned { .. } | Fact::Unpinned { .. } | Fact::Carried { .. } => self.extend(id.seq),
        }
    }

    /// Hands over the turns that no later event can change, and goes on without them. That a compaction among them
    /// is reverted or restored later is for the caller to note.
    pub fn take_done(&mut self) -> Vec<Turn> {
        std::mem::take(&mut self.done)
    }

    /// The turn that the next event may still belong to.
    pub fn open_turn(&self) -> Option<&Turn> {
        self.current.as_ref()
    }

    /// Returns the turns so far. Messages that are not yet answered belong to none.
    pub fn finish(mut self) -> Vec<Turn> {
        self.close();
        self.done
    }

    fn answer(
        &mut self,
        id: EventId,
        answer: Option<&AnswerId>,
        model: Option<&ModelName>,
        time: Option<Timestamp>,
        calls: u64,
    ) {
        let fragment =
            answer.is_some() && self.current.as_ref().is_some_and(|turn| turn.answer.as_ref() == answer);
        if !fragment {
            self.close();
            if let Some(model) = model {
                self.model = Some(model.clone());
            }
            let mut turn = self.open(id, time);
            turn.answer = answer.cloned();
            turn.answered.clear();
            self.current = Some(turn);
        }
        if let Some(turn) = &mut self.current {
            turn.answered.push(id);
            turn.tool_calls += calls;
            turn.last = id.seq;
        }
    }

    /// Notes a word about a compaction. Turns are in order of their places.
    fn apply_compaction_status(&mut self, compaction: Seq, standing: CompactionStatus, at: Seq) {
        if let Ok(index) = self.done.binary_search_by_key(&compaction, |turn| turn.id.seq) {
            self.done[index].apply_status(standing, at);
        }
    }

    fn ask(&mut self, id: EventId) {
        self.asked_first.get_or_insert(id.seq);
        self.asked.push(id);
    }

    /// Events that are of no turn by themselves go with the turn they stand in, or with the next one.
    fn extend(&mut self, seq: Seq) {
        match &mut self.current {
            Some(turn) => turn.last = seq,
            None => {
                self.asked_first.get_or_insert(seq);
            }
        }
    }

    fn open(&mut self, id: EventId, time: Option<Timestamp>) -> Turn {
        let loop_index = match (self.loops, std::mem::take(&mut self.user_asked)) {
            (None, _) => 0,
            (Some(index), true) => index + 1,
            (Some(index), false) => index,
        };
        self.loops = Some(loop_index);
        Turn {
            id,
            parent: self.parent,
            loop_index,
            first: self.asked_first.take().unwrap_or(id.seq),
            last: id.seq,
            asked: std::mem::take(&mut self.asked),
            answered: vec![id],
            returned: Vec::new(),
            answer: None,
            model: self.model.clone(),
            time,
            tool_calls: 0,
            usage: None,
            compaction: None,
            reverted: None,
            suspended: Vec::new(),
        }
    }

    fn close(&mut self) {
        if let Some(turn) = self.current.take() {
            self.finish_turn(turn);
        }
    }

    fn finish_turn(&mut self, turn: Turn) {
        self.parent = Some(turn.id);
        self.done.push(turn);
    }
}

/// Turns of one loop by index, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnRange {
    /// The first turn.
    pub start_turn: usize,
    /// The last turn.
    pub end_turn: usize,
}

/// A range of turns and the messages that stand for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactedSection<M> {
    /// The turns.
    pub range: TurnRange,
    /// Messages that stand for them.
    pub messages: Vec<M>,
}

/// From turn indices to ranges in a list of messages. A message without a turn is a group of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TurnMap {
    groups: Vec<Range<usize>>,
}

impl TurnMap {
    /// Groups neighbours that `turn_of` puts in the same turn.
    ///
    /// ```
    /// use epitome_core::turn::{TurnMap, TurnRange};
    ///
    /// let messages = [("note", None), ("hi", Some(1)), ("hello", Some(1)), ("bye", Some(2))];
    /// let map = TurnMap::from_messages(&messages, |message| message.1);
    /// assert_eq!(map.turn_count(), 3);
    /// assert_eq!(map.turn_msg_range(1), Some(1..3));
    /// let range = TurnRange { start_turn: 1, end_turn: 2 };
    /// assert_eq!(map.messages_for_range(range, &messages).len(), 3);
    /// ```
    pub fn from_messages<M, T: PartialEq>(messages: &[M], turn_of: impl Fn(&M) -> Option<T>) -> Self {
        let mut groups: Vec<Range<usize>> = Vec::new();
        let mut previous: Option<T> = None;
        for (index, message) in messages.iter().enumerate() {
            let turn = turn_of(message);
            match groups.last_mut() {
                Some(group) if turn.is_some() && turn == previous => group.end = index + 1,
                _ => groups.push(index..index + 1),
            }
            previous = turn;
        }
        Self { groups }
    }

    /// Number of groups.
    pub fn turn_count(&self) -> usize {
        self.groups.len()
    }

    /// Range of one turn's messages in the list.
    pub fn turn_msg_range(&self, turn: usize) -> Option<Range<usize>> {
        self.groups.get(turn).cloned()
    }

    /// The messages of a range of turns; the part outside the list is left out.
    pub fn messages_for_range<'m, M>(&self, range: TurnRange, messages: &'m [M]) -> &'m [M] {
        let Some(last) = self.groups.len().checked_sub(1) else { return &[] };
        let (Some(first), Some(end)) =
            (self.groups.get(range.start_turn), self.groups.get(range.end_turn.min(last)))
        else {
            return &[];
        };
        messages.get(first.start..end.end).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        event::{CompactionTrigger, ContentPart, Event, Summary, ToolCall, ToolResult},
        hash_chain::ChainLink,
        id::ThreadId,
        lineage::{covered_by, turn_of},
    };

    /// A letter an event: `u`ser, `i`nstruction, `a`nswer without id, `f`ragment of one answer, `r`esult, `g` usage, `m`odel,
    /// `c`ompaction of everything so far, `k` compaction that keeps the last event, `v` its revert right after it, `w` its
    /// return right after that; `V` and `W` are about the newest compaction, wherever it is, and `X` restores the
    /// oldest.
    fn log(script: &str) -> Vec<LoggedEvent> {
        let thread = ThreadId::derived(&["test"]);
        let event = |(index, letter): (usize, char)| {
            let seq = Seq(index as u64 + 1);
            let oldest = || Seq(script[..index].find(['c', 'k']).map_or(0, |at| at as u64 + 1));
            let newest = || Seq(script[..index].rfind(['c', 'k']).map_or(0, |at| at as u64 + 1));
            let said = |answer: Option<&str>| Fact::AssistantSaid {
                answer: answer.map(Into::into),
                model: None,
                parts: vec![ContentPart::ToolCall(ToolCall::function("c", "t", "{}"))],
            };
            let compacted = |through: Seq, first_kept: Option<Seq>| {
                Fact::Compacted(Compaction {
                    summary: Summary::Text("s".into()),
                    through,
                    first_kept,
                    tokens_before: None,
                    tokens_after: None,
                    trigger: CompactionTrigger::Manual,
                })
            };
            let fact = match letter {
                'u' => Fact::UserSaid { parts: vec![ContentPart::text("u")] },
                'i' => Fact::Instructed { what: crate::event::InstructionKind::System, parts: vec![] },
                'a' => said(None),
                'f' => said(Some("m")),
                'r' => Fact::ToolReturned {
                    results: vec![ToolResult { call: "c".into(), name: None, parts: vec![], error: false }],
                    parts: vec![],
                },
                'm' => Fact::ModelChanged { model: format!("model {seq}").into() },
                'g' => Fact::UsageReported { answer: None, model: None, usage: Usage::default() },
                'c' => compacted(seq.previous(), None),
                'k' => compacted(Seq(seq.0.saturating_sub(2)), Some(seq.previous())),
                'v' => Fact::CompactionReverted { compaction: seq.previous() },
                'w' => Fact::CompactionRestored { compaction: seq.previous().previous() },
                'V' => Fact::CompactionReverted { compaction: newest() },
                'W' => Fact::CompactionRestored { compaction: newest() },
                'X' => Fact::CompactionRestored { compaction: oldest() },
                other => panic!("no event is written {other}"),
            };
            LoggedEvent {
                id: EventId { thread, seq },
                event: Event::from_fact(fact, None),
                link: ChainLink::ROOT,
            }
        };
        script.chars().enumerate().map(event).collect()
    }

    /// Each turn as `loop:id[first-last]`.
    fn shown(turns: &[Turn]) -> String {
        let turn = |turn: &Turn| format!("{}:{}[{}-{}]", turn.loop_index, turn.id.seq, turn.first, turn.last);
        turns.iter().map(turn).collect::<Vec<_>>().join(" ")
    }

    /// Groups of `messages`, whose turns are letters and `-` for none.
    fn groups(messages: &str) -> TurnMap {
        let messages: Vec<char> = messages.chars().collect();
        TurnMap::from_messages(&messages, |turn| (*turn != '-').then_some(*turn))
    }

    #[test]
    fn a_message_without_a_turn_is_a_group_of_its_own() {
        let map = groups("--aab-b");
        let ranges: Vec<_> =
            (0..map.turn_count()).map(|turn| map.turn_msg_range(turn).expect("counted")).collect();
        assert_eq!(ranges, [0..1, 1..2, 2..4, 4..5, 5..6, 6..7]);
        assert_eq!(map.turn_msg_range(6), None);
    }

    #[test]
    fn a_range_gives_its_messages_and_nothing_beyond() {
        let messages: Vec<char> = "aabccc".chars().collect();
        let map = groups("aabccc");
        let range = |start_turn, end_turn| {
            map.messages_for_range(TurnRange { start_turn, end_turn }, &messages).iter().collect::<String>()
        };
        assert_eq!([range(0, 0), range(0, 1), range(1, 9), range(9, 9)], ["aa", "aab", "bccc", ""]);
        assert_eq!(range(2, 0), "", "a range turned round is empty");
        assert!(
            TurnMap::default()
                .messages_for_range(TurnRange { start_turn: 0, end_turn: 0 }, &messages)
                .is_empty()
        );
        let section =
            CompactedSection { range: TurnRange { start_turn: 0, end_turn: 1 }, messages: vec!["s"] };
        let stored = serde_json::to_string(&section).expect("plain data");
        assert_eq!(stored, r#"{"range":{"start_turn":0,"end_turn":1},"messages":["s"]}"#);
    }

    #[test]
    fn a_turn_is_question_answer_and_results() {
        let turns = TurnBuilder::of(&log("iuararau"));
        assert_eq!(shown(&turns), "0:3[1-4] 0:5[5-6] 0:7[7-7]");
        assert_eq!(turns[1].parent, Some(turns[0].id));
        assert_eq!(turns[0].asked.len(), 2);
    }

    #[test]
    fn a_user_message_starts_a_loop() {
        assert_eq!(shown(&TurnBuilder::of(&log("uarauara"))), "0:2[1-3] 0:4[4-4] 1:6[5-7] 1:8[8-8]");
    }

    #[test]
    fn fragments_of_an_answer_are_one_turn_even_around_results() {
        let turns = TurnBuilder::of(&log("ufgrfgr"));
        assert_eq!(shown(&turns), "0:2[1-7]");
        assert_eq!((turns[0].answered.len(), turns[0].returned.len(), turns[0].tool_calls), (2, 2, 2));
        assert!(turns[0].usage.is_some());
    }

    #[test]
    fn a_compaction_is_a_turn_whose_parent_is_the_last_normal_one() {
        let turns = TurnBuilder::of(&log("uarckua"));
        assert_eq!(shown(&turns), "0:2[1-3] 0:4[4-4] 0:5[5-5] 1:7[6-7]");
        assert_eq!(turns[1].parent, Some(turns[0].id));
        assert_eq!(turns[3].parent, Some(turns[2].id));
    }

    #[test]
    fn a_compaction_covers_from_what_the_one_before_kept() {
        // Turns at 2, 4, 6; a compaction at 7 that keeps turn 6; turns 9 and 11; a compaction at 12 of all.
        let turns = TurnBuilder::of(&log("uauauakuauac"));
        let ids = |compaction: u64| {
            let id = turns.iter().find(|turn| turn.id.seq.0 == compaction).expect("in the log").id;
            covered_by(&turns, id).map(|ids| ids.iter().map(|id| id.seq.0).collect::<Vec<_>>())
        };
        assert_eq!(ids(7), Some(vec![2, 4]));
        assert_eq!(ids(12), Some(vec![6, 7, 9, 11]));
        assert_eq!(ids(2), None);
    }

    #[test]
    fn a_compaction_covers_what_the_last_one_in_force_left() {
        let check = |script: &str, compaction: u64, expect: &[u64]| {
            let turns = TurnBuilder::of(&log(script));
            let id = turns.iter().find(|turn| turn.id.seq.0 == compaction).expect("in the log").id;
            let covered: Vec<u64> =
                covered_by(&turns, id).expect("covers").iter().map(|id| id.seq.0).collect();
            assert_eq!(covered, expect, "{script}");
        };
        // The compaction at 5 was reverted, so the one at 9 takes up everything again.
        check("uauacvuac", 9, &[2, 4, 8]);
        // Only the second of two was reverted: the first stays the one before.
        check("uacuacvuac", 10, &[3, 5, 9]);
        // A compaction that is reverted later was in force before.
        check("uacuacv", 6, &[3, 5]);
        // A word about a turn that is no compaction reverts nothing.
        check("uavcuac", 7, &[4, 6]);
        // A compaction that was brought back counts again, from there on; for compactions made in between it
        // did not.
        check("uacvwuac", 8, &[3, 7]);
        check("uacuaVuaWc", 10, &[3, 5, 8]);
        check("uacuacVuaWuac", 13, &[6, 9, 12]);
        // Undone and brought back twice is brought back; undone once more is not.
        check("uacVWVWuac", 10, &[3, 9]);
        check("uacVWVuac", 9, &[2, 8]);
        // A compaction made while the one before was undone is not about it, even if that one is brought back
        // later.
        check("uacvuacXua", 7, &[2, 6]);
        // Bringing back a compaction in force changes nothing.
        check("uacWuac", 7, &[3, 6]);
    }

    #[test]
    fn what_was_undone_and_brought_back_says_when() {
        let turns = TurnBuilder::of(&log("uacVuaWua"));
        let compaction = turns.iter().find(|turn| turn.is_compaction()).expect("in the log");
        assert_eq!(compaction.reverted, None);
        assert_eq!(compaction.suspended, [CompactionSuspension { from: Seq(4), until: Seq(7) }]);
        let in_force: Vec<u64> = (1..=9).filter(|place| compaction.in_force_at(Seq(*place))).collect();
        assert_eq!(in_force, [4, 8, 9]);
    }

    proptest! {
        #[test]
        fn every_event_up_to_the_last_answer_is_in_exactly_one_turn(script in "[uiafrgmckvwVWX]{0,40}") {
            let log = log(&script);
            let turns = TurnBuilder::of(&log);
            let mut next = Seq(1);
            for turn in &turns {
                prop_assert_eq!(turn.first, next);
                prop_assert!(turn.first <= turn.id.seq && turn.id.seq <= turn.last);
                next = turn.last.next();
            }
            for event in log.iter().filter(|event| event.id.seq < next) {
                prop_assert!(turn_of(&turns, event.id.seq).is_some());
            }
        }

        #[test]
        fn a_traversal_visits_every_turn_once(script in "[uiafrgmckvwVWX]{0,40}") {
            let turns = TurnBuilder::of(&log(&script));
            let mut seen = Vec::new();
            let mut at = turns.last();
            while let Some(turn) = at {
                seen.push(turn.id);
                at = turn.parent.and_then(|parent| turns.iter().find(|turn| turn.id == parent));
            }
            seen.reverse();
            prop_assert_eq!(seen, turns.iter().map(|turn| turn.id).collect::<Vec<_>>());
        }

        #[test]
        fn a_derivation_continued_equals_one_in_a_go(script in "[uiafrgmckv]{2,40}", cut in any::<prop::sample::Index>()) {
            let log = log(&script);
            let whole = TurnBuilder::of(&log);
            let early = TurnBuilder::of(&log[..cut.index(log.len())]);
            let Some((last, before)) = early.split_last() else { return Ok(()) };
            let model = log.iter().filter(|event| event.id.seq < last.first).rev().find_map(|event| {
                match &event.event.fact {
                    Fact::ModelChanged { model } => Some(model.clone()),
                    _ => None,
                }
            });
            let mut turns = before
                .last()
                .map_or_else(TurnBuilder::default, |parent| TurnBuilder::after(parent.id, parent.loop_index, model));
            for event in log.iter().filter(|event| event.id.seq >= last.first) {
                turns.push(event);
            }
            let mut joined = before.to_vec();
            joined.extend(turns.finish());
            prop_assert_eq!(joined, whole);
        }
    }
}
