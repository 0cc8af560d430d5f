//! First reading of a request: its members, the units of its history, and the settings that instruct the model.

use std::{ops::Range, slice};

use epitome_core::Digest;

use super::{
    HistoryItem, HistoryUnit, IncomingRequest, UnitSpeaker,
    memo::{MessageMemo, PieceKind},
    memo_lookup,
    message_digests::{self, AnswerRun, DigestPiece},
    piece_properties::PreamblePosition,
    split::{self, RequestMember, RequestSlice},
};
use crate::{
    error::WireError,
    format::Format,
    json::Json,
    normal_digest,
    request::{self, RequestKeys},
};

/// Settings that differ from call to call, or mean nothing to the model: the caller and its session, the way the
/// answer is sent and its length, and the place where a history is kept.
pub(super) const VOLATILE_SETTINGS: [&str; 14] = [
    "cache_control",
    "client_metadata",
    "conversation",
    "max_completion_tokens",
    "max_output_tokens",
    "max_tokens",
    "metadata",
    "previous_response_id",
    "prompt_cache_key",
    "safety_identifier",
    "stream",
    "stream_options",
    "truncation",
    "user",
];

/// Reads a request.
pub(super) fn read<'a>(
    format: Format,
    body: &'a str,
    memo: &MessageMemo,
) -> Result<IncomingRequest<'a>, WireError> {
    let what = request::request_name(format);
    let keys = RequestKeys::of(format);
    let begins = |text: &str| memo.known_beginning(format, text);
    let Some(members) = split::members(body, keys.history, begins) else {
        Json::parse(body, what)?.require_object(what)?;
        return Err(WireError::TooDeep { what });
    };
    let history = members.iter().rposition(|member| member.key == keys.history);
    let member = history.and_then(|at| members.get(at));
    let list = member.and_then(|member| member.list.as_ref());
    let (place, slices) = items_of(format, member);
    let (names, wanted) = settings(&members, &keys, history.filter(|_| !slices.is_empty()), what)?;
    let settings = memo_lookup::look_up_pieces(format, &wanted, memo)?;
    let items = match (place, slices) {
        (PieceKind::Bare, [bare]) => memo_lookup::look_up_pieces(format, &[(place, *bare)], memo)?,
        _ => memo_lookup::history(format, body, slices, list.and_then(|list| list.begun.as_ref()), memo)?,
    };

    let opening = items.iter().take_while(|item| item.known.instructs()).count();
    let (units, spans) = units(format, &items, opening);
    if let (Some(list), Some(start)) = (list, member.map(|member| member.value.start)) {
        memo.remember_beginning(format, (&body[start..], start), list, &items, (&units, &spans));
    }
    let references =
        items.iter().filter_map(|item| item.known.reference.as_deref().map(str::to_owned)).collect();
    let stable: Vec<_> = names.into_iter().zip(&settings).collect();
    let system = stable.iter().rfind(|(name, _)| Some(*name) == keys.system);
    let system_asks = system.and_then(|(_, system)| system.known.asks);
    let instructions = instructions(stable, items.get(..opening).unwrap_or_default());
    Ok(IncomingRequest {
        format,
        body,
        members,
        items,
        opening,
        units,
        spans,
        references,
        instructions,
        system_asks,
    })
}

/// The members that instruct the model, by their names, and the kind of each.
#[expect(clippy::type_complexity, reason = "two lists of the same length, each wanted as it is")]
fn settings<'m, 'a>(
    members: &'m [RequestMember<'a>],
    keys: &RequestKeys,
    history: Option<usize>,
    what: &'static str,
) -> Result<(Vec<&'m str>, Vec<(PieceKind, RequestSlice<'a>)>), WireError> {
    let (mut names, mut wanted) = (Vec::new(), Vec::new());
    for (at, member) in members.iter().enumerate() {
        if VOLATILE_SETTINGS.contains(&&*member.key) {
            // Volatile settings are not remembered, but still they must be JSON.
            Json::parse(member.value.raw, what)?;
        } else if Some(at) != history {
            names.push(&*member.key);
            wanted.push((place_of(keys, &member.key), member.value));
        }
    }
    Ok((names, wanted))
}

/// The items of a history, and their kind.
fn items_of<'m, 'a>(
    format: Format,
    history: Option<&'m RequestMember<'a>>,
) -> (PieceKind, &'m [RequestSlice<'a>]) {
    let Some(history) = history else { return (PieceKind::Item, &[]) };
    match &history.list {
        Some(list) => (PieceKind::Item, &list.elements),
        None if format.facts().takes_bare_history && history.value.raw.starts_with('"') => {
            (PieceKind::Bare, slice::from_ref(&history.value))
        }
        None => (PieceKind::Item, &[]),
    }
}

fn place_of(keys: &RequestKeys, key: &str) -> PieceKind {
    match key {
        key if Some(key) == keys.system => PieceKind::System,
        key if key == keys.tools => PieceKind::Tools,
        _ => PieceKind::Setting,
    }
}

/// The units of a history, and the items of each.
pub(super) fn units(
    format: Format,
    items: &[HistoryItem<'_>],
    opening: usize,
) -> (Vec<HistoryUnit>, Vec<Range<usize>>) {
    let noted = items.iter().any(|item| item.known.noted);
    let leads = items.iter().take_while(|item| item.known.lead != PreamblePosition::Ends).count();
    let (mut units, mut spans): (Vec<HistoryUnit>, Vec<Range<usize>>) = (Vec::new(), Vec::new());
    let mut from = opening;
    // Pieces of the newest unit, if others may join it.
    let mut open: Option<Vec<DigestPiece>> = None;
    let mut has_joined = false;
    for (at, item) in items.iter().enumerate().skip(opening) {
        let Some(digest) = item.known.digest else {
            // A content of the model that says nothing, such as the last piece of a stream, ends the answer before it.
            if item.known.run == AnswerRun::Contents
                && let (Some(unit), Some(span)) = (units.last(), spans.last_mut())
                && (unit.speaker, span.end) == (UnitSpeaker::Model, at)
            {
                (span.end, from) = (at + 1, at + 1);
            }
            continue;
        };
        // A client describes its surroundings anew with every start: only the fact that it does becomes part of the
        // digest.
        let is_setup = at < leads && item.known.lead == PreamblePosition::Preamble;
        let digest = if is_setup { message_digests::preamble_digest(format) } else { digest };
        let speaker = item.known.speaker;
        let joins = item
            .known
            .joins
            .as_deref()
            .filter(|_| !is_setup && (noted || item.known.run == AnswerRun::Contents));
        if let (Some(pieces), Some(more), Some(unit), Some(span)) =
            (&mut open, joins, units.last_mut(), spans.last_mut())
            && unit.speaker == speaker
        {
            pieces.extend_from_slice(more);
            span.end = at + 1;
            has_joined = true;
        } else {
            if std::mem::take(&mut has_joined) {
                close(format, &mut units, open.as_deref());
            }
            open = joins.map(<[DigestPiece]>::to_vec);
            units.push(HistoryUnit { digest, speaker });
            spans.push(from..at + 1);
        }
        from = at + 1;
    }
    if has_joined {
        close(format, &mut units, open.as_deref());
    }
    (units, spans)
}

/// Gives the newest unit the digest of all its pieces, once they are complete.
fn close(format: Format, units: &mut [HistoryUnit], pieces: Option<&[DigestPiece]>) {
    if let (Some(unit), Some(pieces)) = (units.last_mut(), pieces) {
        unit.digest = message_digests::joined(format, unit.speaker, pieces);
    }
}

fn instructions(mut settings: Vec<(&str, &HistoryItem<'_>)>, opening: &[HistoryItem<'_>]) -> Digest {
    // Of repeated members the last counts.
    settings.reverse();
    settings.sort_by_key(|(key, _)| *key);
    settings.dedup_by_key(|(key, _)| *key);
    let mut out = Vec::new();
    for (key, setting) in settings {
        normal_digest::text(&mut out, key.as_bytes());
        out.extend(setting.known.digest.iter().flat_map(|digest| digest.0));
    }
    normal_digest::text(&mut out, b"");
    for item in opening {
        out.extend(item.known.digest.iter().flat_map(|digest| digest.0));
    }
    Digest::of(&out)
}
