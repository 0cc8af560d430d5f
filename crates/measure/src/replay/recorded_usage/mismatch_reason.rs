//! Explanations of differences between simulated and recorded calls, in words.

use epitome::core::{Tokens, cost::CacheMiss};

use super::{
    cache_simulation::{CallChange, ComparedCall},
    is_cold,
};

/// State of the cache at a call, recorded and simulated.
enum CacheAgreement {
    BothCold,
    OnlyRecorded,
    OnlySimulated,
    BothWarm,
}

/// Explains a difference, as far as the recording shows the reason.
pub(super) fn why(call: &ComparedCall, before: Option<&ComparedCall>) -> String {
    let Some(before) = before else { return first(call) };
    let fate = match (is_cold(&before.recorded, &call.recorded), is_cold(&before.simulated, &call.simulated))
    {
        (true, true) => CacheAgreement::BothCold,
        (true, false) => CacheAgreement::OnlyRecorded,
        (false, true) => CacheAgreement::OnlySimulated,
        (false, false) => CacheAgreement::BothWarm,
    };
    match fate {
        CacheAgreement::OnlyRecorded => only_recorded(call, before),
        CacheAgreement::OnlySimulated => only_simulated(call),
        CacheAgreement::BothCold => format!("{}; {}", cold(call), sizes(call)),
        CacheAgreement::BothWarm => match call.change {
            CallChange::Fell => format!(
                "the client went back to an earlier request: {} tokens less, and most of them still cached",
                before.recorded.input().less(call.recorded.input())
            ),
            CallChange::First
            | CallChange::Grew
            | CallChange::Compacted
            | CallChange::Resumed
            | CallChange::Model => sizes(call),
        },
    }
}

fn first(call: &ComparedCall) -> String {
    let read = call.recorded.cache_read;
    if read > call.simulated.cache_read {
        return format!("the first call: {read} tokens were warm from another session");
    }
    format!("the first call; {}", sizes(call))
}

/// Explains why the provider read little of what the simulation finds.
fn only_recorded(call: &ComparedCall, before: &ComparedCall) -> String {
    let read = call.recorded.cache_read;
    let fell = before.recorded.input().less(call.recorded.input());
    if call.change == CallChange::Fell || fell > Tokens(0) {
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
fn only_simulated(call: &ComparedCall) -> String {
    match (call.change, call.pause) {
        (CallChange::Fell, _) => {
            "the client went back to an earlier request, which was still cached".to_owned()
        }
        (CallChange::Model, _) => "the model was changed, and still most was read".to_owned(),
        (CallChange::Resumed, _) => "the client was started anew, and still most was read".to_owned(),
        (CallChange::Compacted, _) => {
            "the client compacted, and more stayed as it was than the transcript shows".to_owned()
        }
        (CallChange::Grew | CallChange::First, Some(pause)) if call.missed == Some(CacheMiss::Expired) => {
            format!("the cache outlived a pause of {}", seconds(pause))
        }
        (CallChange::Grew | CallChange::First, _) => {
            "what was read is more than the transcript says was sent before".to_owned()
        }
    }
}

/// Explains why a call was cold on both sides.
fn cold(call: &ComparedCall) -> String {
    match (call.change, call.pause) {
        (CallChange::Compacted, _) => "the client compacted".to_owned(),
        (CallChange::Fell, _) => "the client took something out".to_owned(),
        (CallChange::Model, _) => "another model was asked".to_owned(),
        (CallChange::Resumed, _) => "the client was started anew".to_owned(),
        (CallChange::Grew | CallChange::First, Some(pause)) => format!("a pause of {}", seconds(pause)),
        (CallChange::Grew | CallChange::First, None) => "cold".to_owned(),
    }
}

/// Describes the sizes.
fn sizes(call: &ComparedCall) -> String {
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
