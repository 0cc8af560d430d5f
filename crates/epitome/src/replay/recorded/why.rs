//! Explanations of differences between simulated and recorded calls, in words.

use epitome_core::{Tokens, cost::Miss};

use super::{
    is_cold,
    simulate::{Change, Seen},
};

/// State of the cache at a call, recorded and simulated.
enum Fate {
    BothCold,
    OnlyRecorded,
    OnlySimulated,
    BothWarm,
}

/// Explains a difference, as far as the recording shows the reason.
pub(super) fn why(call: &Seen, before: Option<&Seen>) -> String {
    let Some(before) = before else { return first(call) };
    let fate = match (is_cold(&before.recorded, &call.recorded), is_cold(&before.simulated, &call.simulated))
    {
        (true, true) => Fate::BothCold,
        (true, false) => Fate::OnlyRecorded,
        (false, true) => Fate::OnlySimulated,
        (false, false) => Fate::BothWarm,
    };
    match fate {
        Fate::OnlyRecorded => only_recorded(call, before),
        Fate::OnlySimulated => only_simulated(call),
        Fate::BothCold => format!("{}; {}", cold(call), sizes(call)),
        Fate::BothWarm => match call.change {
            Change::Fell => format!(
                "the client went back to an earlier request: {} tokens less, and most of them still cached",
                before.recorded.input().less(call.recorded.input())
            ),
            Change::First | Change::Grew | Change::Compacted | Change::Resumed | Change::Model => sizes(call),
        },
    }
}

fn first(call: &Seen) -> String {
    let read = call.recorded.cache_read;
    if read > call.simulated.cache_read {
        return format!("the first call: {read} tokens were warm from another session");
    }
    format!("the first call; {}", sizes(call))
}

/// Explains why the provider read little of what the simulation finds.
fn only_recorded(call: &Seen, before: &Seen) -> String {
    let read = call.recorded.cache_read;
    let fell = before.recorded.input().less(call.recorded.input());
    if call.change == Change::Fell || fell > Tokens(0) {
        return format!(
            "the client sent {fell} tokens less than before and the transcript does not say which, so only {read} were read"
        );
    }
    if call.since.tools {
        return format!(
            "the model looked up tools, which the client put into its requests, so only {read} were read"
        );
    }
    match (call.pause, call.lifetime) {
        (Some(0) | None, _) => format!(
            "{read} tokens were read, as after a pause, but the transcript tells of none: its times are those of a copy"
        ),
        (Some(pause), Some(lifetime)) if is_longer(pause, lifetime) => {
            format!("{read} tokens were read after a pause of {}", seconds(pause))
        }
        (Some(pause), _) => format!(
            "{read} tokens were read after {} though the transcript shows no change: the client changed what it had sent, \
             or the provider had lost it",
            seconds(pause)
        ),
    }
}

/// Explains why the provider read what the simulation does not find.
fn only_simulated(call: &Seen) -> String {
    match (call.change, call.pause) {
        (Change::Fell, _) => "the client went back to an earlier request, which was still cached".to_owned(),
        (Change::Model, _) => "the model was changed, and still most was read".to_owned(),
        (Change::Resumed, _) => "the client was started anew, and still most was read".to_owned(),
        (Change::Compacted, _) => {
            "the client compacted, and more stayed as it was than the transcript shows".to_owned()
        }
        (Change::Grew | Change::First, Some(pause)) if call.missed == Some(Miss::Expired) => {
            format!("the cache outlived a pause of {}", seconds(pause))
        }
        (Change::Grew | Change::First, _) => {
            "what was read is more than the transcript says was sent before".to_owned()
        }
    }
}

/// Explains why a call was cold on both sides.
fn cold(call: &Seen) -> String {
    match (call.change, call.pause) {
        (Change::Compacted, _) => "the client compacted".to_owned(),
        (Change::Fell, _) => "the client took something out".to_owned(),
        (Change::Model, _) => "another model was asked".to_owned(),
        (Change::Resumed, _) => "the client was started anew".to_owned(),
        (Change::Grew | Change::First, Some(pause)) => format!("a pause of {}", seconds(pause)),
        (Change::Grew | Change::First, None) => "cold".to_owned(),
    }
}

/// Describes the sizes.
fn sizes(call: &Seen) -> String {
    let (recorded, simulated) = (call.recorded.input(), call.simulated.input());
    if recorded.0.abs_diff(simulated.0) < recorded.0 / 50 {
        let (read, found) = (call.recorded.cache_read, call.simulated.cache_read);
        return if read < found {
            format!("of {found} cached tokens {read} were read")
        } else {
            format!("{read} tokens were read, of which {found} are accounted for")
        };
    }
    let cause = match (call.since.media, call.known) {
        (true, _) => "an image or a document, which is counted by guess",
        (false, Tokens(0)) if recorded > simulated => {
            "hidden thinking, or something that the transcript leaves out"
        }
        (false, _) if recorded > simulated => "something that the transcript leaves out",
        (false, _) => "something in the transcript that was not sent, or is counted too high",
    };
    format!("{recorded} tokens were sent and {simulated} are accounted for: {cause}")
}

fn is_longer(pause: i64, lifetime: u64) -> bool {
    u64::try_from(pause).is_ok_and(|pause| pause > lifetime.saturating_mul(1_000))
}

fn seconds(pause: i64) -> String {
    format!("{} s", pause / 1_000)
}
