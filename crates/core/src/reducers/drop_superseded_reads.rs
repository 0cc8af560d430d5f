//! Drops superseded reads: a result that was read again later, or whose file was rewritten, is not worth
//! showing twice.
//!
//! **Trigger:** the context is over the target, or tool results over their cap. A read, search or command
//! gives way to the same call made again; a read of a file also to a later read of all of it, and to a later
//! call that wrote all of it. An edit supersedes nothing: most of the earlier read still holds, and stands
//! nowhere else. A superseding call must have succeeded and be shown. Errors stay: a failure is worth
//! knowing. The line does not name the later call: it stands in the context under the same name, and it may
//! give way in its turn.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::{
    budget::Budget,
    context::{Context, Fidelity, Segment, SegmentEdit, Tier},
    id::Seq,
    pipeline::{Reducer, ReducerOutput, ReducerState},
    reducers::{
        failed_result::FailedResult,
        fetch_subject::{FetchKind, FetchSubject, FileExtent},
        stub_text::{StubWriter, shorten_to, size, tool},
    },
};

/// Drops superseded reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DropSupersededReads {}

impl Reducer for DropSupersededReads {
    fn name(&self) -> &'static str {
        "drop_superseded_reads"
    }

    fn serves(&self, tier: Tier) -> bool {
        tier == Tier::ToolResults
    }

    fn reduce(&self, context: Context, _: &Budget, state: ReducerState) -> ReducerOutput {
        let superseded = superseded(&context);
        let scribe = StubWriter::of(&context);
        let context = context.edit(self.name(), |index, segment| match &superseded[index] {
            Some(by) => stub(&scribe, segment, by),
            None => SegmentEdit::Keep,
        });
        ReducerOutput { context, state }
    }
}

/// Call that supersedes a result.
struct SupersedingCall {
    what: SupersededBy,
    target: String,
}

#[derive(Clone, Copy)]
enum SupersededBy {
    Again,
    Written,
}

/// For each segment, the call that supersedes it.
fn superseded(context: &Context) -> Vec<Option<SupersedingCall>> {
    let mut later = LaterAccesses::default();
    let mut superseded: Vec<Option<SupersedingCall>> = Vec::new();
    for segment in context.segments().iter().rev() {
        superseded.push(later.see(segment).filter(|_| !context.is_pinned(segment)));
    }
    superseded.reverse();
    superseded
}

/// Reads and changes after a segment: of each call and each file, the newest.
#[derive(Default)]
struct LaterAccesses<'c> {
    calls: HashMap<(&'c str, &'c str), Seq>,
    files: HashMap<String, (SupersededBy, Seq)>,
}

impl<'c> LaterAccesses<'c> {
    /// The call that supersedes the segment; the segment itself is then among the later ones.
    fn see(&mut self, segment: &'c Segment) -> Option<SupersedingCall> {
        let (call, at) = (segment.call()?, segment.source()?);
        let fetched = FetchSubject::of(call)?;
        // A failed call neither gives way nor supersedes, and a stub has no content to show.
        let is_stub = segment.fidelity() > Fidelity::Cut && fetched.kind != FetchKind::Change;
        if FailedResult::of(segment).is_some() || is_stub {
            return None;
        }
        let same_call = (call.name.0.as_str(), call.arguments.as_str());
        let again = self.calls.get(&same_call).map(|later| (SupersededBy::Again, *later));
        let of_file = self.files.get(&fetched.target).copied();
        let found = match fetched.kind {
            FetchKind::Read => again.into_iter().chain(of_file).max_by_key(|(_, at)| *at),
            FetchKind::Search | FetchKind::Command => again,
            // A page may be another each time it is got, and a change is no reading.
            FetchKind::Page | FetchKind::Change => None,
        };
        self.calls.entry(same_call).or_insert(at);
        let whole = fetched.extent == FileExtent::Whole;
        match fetched.kind {
            // Written text stands in the call, however its result is shown.
            FetchKind::Change if whole => {
                self.files.entry(fetched.target.clone()).or_insert((SupersededBy::Written, at));
            }
            FetchKind::Read if whole && segment.fidelity() == Fidelity::Verbatim => {
                self.files.entry(fetched.target.clone()).or_insert((SupersededBy::Again, at));
            }
            FetchKind::Read
            | FetchKind::Change
            | FetchKind::Search
            | FetchKind::Command
            | FetchKind::Page => {}
        }
        found.map(|(what, _)| SupersedingCall { what, target: fetched.target })
    }
}

/// `[read_file result superseded: src/a.rs was read again later; 214 lines, 3120 tokens; recall 1b2c3d4e:12]`
fn stub(scribe: &StubWriter, segment: &Segment, by: &SupersedingCall) -> SegmentEdit {
    let (tool, target) = (tool(segment), shorten_to(&by.target, 120));
    let how = match by.what {
        SupersededBy::Again => "again later",
        SupersededBy::Written => "written anew later",
    };
    let line = format!(
        "[{tool} result superseded: `{target}` {how}; {}{}]",
        size(segment),
        scribe.recall_instruction(segment)
    );
    SegmentEdit::line(line, Fidelity::Stub)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{notation::context, reducers::testing::reduced, tokens::Tokens};

    /// Checks the places of the superseded calls of a loop.
    fn check(calls: &[&str], expect: &[usize]) {
        let log: String = calls
            .iter()
            .map(|call| match call.strip_prefix('!') {
                Some(call) => format!("assistant:\n  call {call}\n  !> 40 words of \"failed\"\n"),
                None => format!("assistant:\n  call {call}\n  -> 40 words of \"x\"\n"),
            })
            .collect();
        let context = reduced(&DropSupersededReads::default(), 0, &log);
        let touched =
            context.segments().iter().enumerate().filter(|(_, segment)| segment.last_author().is_some());
        let found: Vec<usize> = touched.map(|(index, _)| index).collect();
        assert_eq!(found, expect, "{calls:?}");
    }

    #[test]
    fn the_newest_of_several_reads_stays() {
        let read = r#"read {"path":"a"}"#;
        check(&[read, read, read], &[0, 1]);
        check(&[read, r#"read {"path":"./a"}"#], &[0]);
        check(&[read, r#"read {"path":"b"}"#], &[]);
    }

    #[test]
    fn a_whole_write_supersedes_what_was_read_before_and_not_after() {
        let (read, part) = (r#"read {"path":"a"}"#, r#"read {"path":"a","limit":5}"#);
        let write = r#"write {"path":"a","content":"x"}"#;
        check(&[read, part, write], &[0, 1]);
        check(&[write, read], &[]);
        check(&[read, write, read], &[0]);
    }

    #[test]
    fn an_edit_leaves_what_was_read() {
        let edit = r#"edit {"path":"a","old":"x","new":"y"}"#;
        check(&[r#"read {"path":"a"}"#, edit], &[]);
        check(&[r#"read {"path":"a"}"#, edit, r#"read {"path":"a"}"#], &[0]);
    }

    #[test]
    fn two_parts_of_a_file_both_stay() {
        check(&[r#"read {"path":"a","pages":"1-5"}"#, r#"read {"path":"a","pages":"6-10"}"#], &[]);
        check(&[r#"read {"path":"a","pages":"1-5"}"#, r#"read {"path":"a","pages":"1-5"}"#], &[0]);
    }

    #[test]
    fn failures_neither_give_way_nor_take_a_place() {
        let read = r#"read {"path":"a"}"#;
        check(&[&format!("!{read}"), read], &[]);
        check(&[read, &format!("!{read}")], &[]);
        check(&[read, r#"!write {"path":"a","content":"x"}"#], &[]);
    }

    #[test]
    fn only_the_same_command_supersedes_a_command() {
        let test = r#"bash {"command":"cargo test"}"#;
        check(&[test, r#"bash {"command":"cargo test -p a"}"#], &[]);
        check(&[test, test], &[0]);
        check(&[r#"fetch {"url":"u"}"#, r#"fetch {"url":"u"}"#], &[]);
        check(&["wait {}", "wait {}"], &[]);
    }

    #[test]
    fn what_is_not_shown_takes_no_place() {
        let log = r#"
assistant:
  call read {"path":"a"}
  -> 40 words of "x"
assistant:
  call read {"path":"a"}
  -> 40 words of "x"
"#;
        let expired = context(log).edit("test", |index, segment| match index {
            1 => SegmentEdit::line(size(segment), Fidelity::Stub),
            _ => SegmentEdit::Keep,
        });
        let reduced =
            DropSupersededReads::default().reduce(expired, &Budget::new(Tokens(0)), ReducerState::default());
        assert_eq!(reduced.context.segments()[0].last_author(), None);
    }
}
