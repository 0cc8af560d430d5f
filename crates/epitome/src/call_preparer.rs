//! Preparation of a session's calls, one after another: the one place that drives a [`ModelView`].
//!
//! Each call takes the same steps. The policy [decides](CallPreparer::prepare) what the request shows, and thinking that
//! its model would no longer accept goes; the request is [rendered](CallPreparer::render) and compared with the last one;
//! and once it [is sent](CallPreparer::sent), its decisions are final. A live session, a replay, an observation and
//! `compact FILE` differ in where events and budgets come from, not in these steps. A gateway writes the request itself,
//! from its client's bytes, and takes the others.

use std::sync::Arc;

use epitome_core::{
    budget::Budget,
    cost::{Prompt, RequestExtension, extends},
    event::Timestamp,
    model_view::{EditRecord, EpochCause, ModelView, NextCall, PreparationReport},
    profile::ProviderRule,
};
use epitome_wire::{
    Format, PromptMemo, WireError,
    render::{RenderedRequest, settle_thinking},
};

use crate::{call_settings::CallSettings, compact::CompactError};

/// The view of a session and its last request, from which the next call is prepared.
#[derive(Debug)]
pub(crate) struct CallPreparer {
    view: ModelView,
    memo: PromptMemo,
    /// The last request, as a cache sees it.
    sent: Option<Prompt>,
}

/// A request that is ready to be sent.
#[derive(Clone, Debug)]
pub(crate) struct PreparedRequest {
    /// The request.
    pub(crate) rendered: RenderedRequest,
    /// The request as a cache sees it.
    pub(crate) prompt: Prompt,
}

impl CallPreparer {
    /// Prepares the calls of a view whose last request was `sent`, if that is known.
    pub(crate) fn new(view: ModelView, sent: Option<Prompt>) -> Self {
        let memo = PromptMemo::new(Arc::clone(view.context().meter()));
        Self { view, memo, sent }
    }

    /// The view.
    pub(crate) fn view(&self) -> &ModelView {
        &self.view
    }

    /// The view, to be told of new events.
    pub(crate) fn view_mut(&mut self) -> &mut ModelView {
        &mut self.view
    }

    /// The view after its last call.
    pub(crate) fn into_view(self) -> ModelView {
        self.view
    }

    /// Decides the content of the next request, and removes thinking that its model would no longer accept.
    pub(crate) fn prepare(
        &mut self,
        settings: &CallSettings,
        budget: &Budget,
        call: &NextCall<'_>,
    ) -> Result<PreparationReport, CompactError> {
        let prepared = self.decide(settings, budget, call)?;
        self.settle(settings, budget)?;
        Ok(prepared)
    }

    /// Decides the content of the next request. If the view [needs more](ModelView::needs_more) events for that, it is
    /// decided again once they are there.
    pub(crate) fn decide(
        &mut self,
        settings: &CallSettings,
        budget: &Budget,
        call: &NextCall<'_>,
    ) -> Result<PreparationReport, CompactError> {
        Ok(self.view.prepare(&settings.policy, budget, call)?)
    }

    /// Removes thinking from the decided content that its model would no longer accept.
    pub(crate) fn settle(&mut self, settings: &CallSettings, budget: &Budget) -> Result<(), CompactError> {
        let rules = &settings.options.rules;
        if rules.has(ProviderRule::PreservedThinking) {
            self.view.adjust_prepared(|context, sent| {
                settle_thinking(context, sent, rules, budget.ceiling()).map(|settled| settled.context)
            })?;
        }
        Ok(())
    }

    /// Renders the prepared request.
    pub(crate) fn render(
        &mut self,
        settings: &CallSettings,
        prepared: &mut PreparationReport,
    ) -> Result<PreparedRequest, CompactError> {
        let rendered = settings.format.render(self.view.context(), &settings.options)?;
        let prompt = settings.format.prompt(&rendered.body, &mut self.memo)?;
        let is_grown =
            self.sent.as_ref().is_none_or(|sent| extends(sent, &prompt) == RequestExtension::Extends);
        if !is_grown {
            self.note_reset(prepared, EpochCause::Format);
        }
        Ok(PreparedRequest { rendered, prompt })
    }

    /// Notes that the prepared request does not extend the last one: an epoch begins, unless a decision began one.
    pub(crate) fn note_reset(&mut self, prepared: &mut PreparationReport, cause: EpochCause) {
        if prepared.cause.is_none() {
            self.view.reset(cause.clone());
            prepared.cause = Some(cause);
        }
    }

    /// Prepares and renders the next request. If that is impossible, the view is as it was.
    pub(crate) fn next_request(
        &mut self,
        settings: &CallSettings,
        budget: &Budget,
        call: &NextCall<'_>,
    ) -> Result<(PreparationReport, PreparedRequest), CompactError> {
        let made = self.prepare(settings, budget, call).and_then(|mut prepared| {
            let request = self.render(settings, &mut prepared)?;
            Ok((prepared, request))
        });
        made.inspect_err(|_| self.view.abandon())
    }

    /// Marks the prepared request as sent, with its form as a cache sees it, if it was rendered. Returns the decisions
    /// to be recorded, if there are any.
    pub(crate) fn sent(&mut self, at: Option<Timestamp>, prompt: Option<Prompt>) -> Option<&EditRecord> {
        if prompt.is_some() {
            self.sent = prompt;
        }
        self.view.sent(at)
    }

    /// Gives up the prepared request: the view is as it was.
    pub(crate) fn abandon(&mut self) {
        self.view.abandon();
    }

    /// A request as a cache sees it. Texts that were counted before are not counted again.
    pub(crate) fn prompt(&mut self, format: Format, body: &str) -> Result<Prompt, WireError> {
        format.prompt(body, &mut self.memo)
    }
}
