//! One call of a thread, written from its client's request: decided, written and committed in turn.

use epitome_core::{Seq, Tokens};

use super::{
    BodySlice, RewriteReport, RewriteStatus, RewrittenRequest,
    client_cache::RequestCacheFacts,
    rewrite_body::{RewriteInput, RewriteState, RewrittenBody},
    thread_cache::CachedThread,
};
use crate::session::{
    SessionError,
    call_input::CallInput,
    next_call::{CallDraft, PreparedCall},
    state::{SessionState, WrittenCall},
};

/// Makes the next request of a thread from its client's. `None` if the log has another history, or if it would be too
/// large.
pub(super) fn rewrite_request(
    cached: &CachedThread,
    (after, mut arriving): (Seq, CallInput),
    mut request: RewriteInput<'_, '_>,
) -> Result<Option<(PreparedCall, RewrittenRequest)>, SessionError> {
    let mut rewrite_state = cached.rewrite_state()?;
    arriving.recall = rewrite_state.recall_offer(&request);
    let is_new_thread = arriving.opens.is_some();
    let mut state = cached.engine.state_for_client(after, &mut arriving)?;
    let committed =
        commit_client_call(cached, &mut state, &mut rewrite_state, (after, arriving), &mut request);
    let restored = match &committed {
        Ok(Some(_)) => Ok(()),
        Ok(None) | Err(_) => cached.engine.restore_state(&mut state, is_new_thread),
    };
    drop(state);
    let Some(CommittedCall { made, body, is_warm, is_unread, lifetime }) =
        committed.map_err(|error| restored.err().unwrap_or(error))?
    else {
        return Ok(None);
    };
    let RewrittenBody { cuts, script, full, grown } = body;
    let recall = request.recall;
    if let Some(client) = request.client {
        let held = client.caches.find(client.beginnings, client.at, lifetime);
        let known = RequestCacheFacts {
            full,
            after: made.tokens,
            of_session: rewrite_state.last_sent().filter(|_| is_warm),
            is_asked: rewrite_state.asks_for_cache(),
            is_unread,
        };
        rewrite_state.client = held.cache(held.tokens(&request.frame, full), known);
    }
    let cache = rewrite_state.client;
    rewrite_state.note_sent(request, script, grown);
    let done = RewriteReport {
        call: Some((cached.engine.thread, made.call)),
        epoch: made.epoch,
        cause: made.cause.as_ref().map(ToString::to_string),
        before: full,
        after: made.tokens,
        cache,
        compaction: made.compaction.clone(),
        left: RewriteStatus::Composed,
    };
    Ok(Some((made, RewrittenRequest { cuts, done, recall })))
}

/// A call that was rewritten from its client's request and recorded.
struct CommittedCall {
    made: PreparedCall,
    body: RewrittenBody,
    /// True if the provider's cache may have held the last request.
    is_warm: bool,
    is_unread: bool,
    lifetime: Option<u64>,
}

/// A client's call that is decided and written, and not recorded.
struct WrittenClientCall {
    draft: CallDraft,
    written: WrittenCall,
    body: RewrittenBody,
    is_warm: bool,
    is_unread: bool,
    lifetime: Option<u64>,
}

/// Decides, writes and commits a client's call. `None` if its client has another history than the log, or if it would be
/// too large.
fn commit_client_call(
    cached: &CachedThread,
    state: &mut SessionState,
    rewrite_state: &mut RewriteState,
    (after, arriving): (Seq, CallInput),
    request: &mut RewriteInput<'_, '_>,
) -> Result<Option<CommittedCall>, SessionError> {
    let Some(call) = write_client_call(cached, state, rewrite_state, (after, arriving), request)? else {
        return Ok(None);
    };
    let WrittenClientCall { draft, written, body, is_warm, is_unread, lifetime } = call;
    let made = draft.commit(&cached.engine, state, written)?;
    Ok(Some(CommittedCall { made, body, is_warm, is_unread, lifetime }))
}

/// Decides and writes a client's call, with the same outcomes.
fn write_client_call(
    cached: &CachedThread,
    state: &mut SessionState,
    rewrite_state: &mut RewriteState,
    (after, arriving): (Seq, CallInput),
    request: &mut RewriteInput<'_, '_>,
) -> Result<Option<WrittenClientCall>, SessionError> {
    let engine = &*cached.engine;
    let mut draft = CallDraft::for_client(engine, state, arriving)?;
    let (is_warm, is_unread) = (state.is_warm(engine.now()), state.cache.is_unread());
    let lifetime = state.cache_lifetime();
    if request.below.is_some_and(|tried| state.view().context().tokens() >= tried) {
        return Ok(None);
    }
    request.recall = state.offers_recall();
    let written = rewrite_state.write_body(&*engine.store, state, &mut draft, request, after)?;
    Ok(written.map(|(written, body)| WrittenClientCall {
        draft,
        written,
        body,
        is_warm,
        is_unread,
        lifetime,
    }))
}

/// A client's request as it would be sent.
pub(super) struct DraftedRequest {
    pub(super) cuts: Vec<BodySlice>,
    /// Tokens that its provider is expected to count.
    pub(super) expected: Tokens,
}

/// Makes the next request of a thread from its client's and records nothing; the state of `cached` is wrong afterwards.
pub(super) fn draft_request(
    cached: &CachedThread,
    (after, mut arriving): (Seq, CallInput),
    mut request: RewriteInput<'_, '_>,
) -> Result<Option<DraftedRequest>, SessionError> {
    let mut rewrite_state = cached.rewrite_state()?;
    arriving.recall = rewrite_state.recall_offer(&request);
    let mut state = cached.engine.state_for_client(after, &mut arriving)?;
    let call = write_client_call(cached, &mut state, &mut rewrite_state, (after, arriving), &mut request)?;
    let expected = state.expected_tokens();
    Ok(call.map(|call| DraftedRequest { cuts: call.body.cuts, expected }))
}
