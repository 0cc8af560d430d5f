//! Addresses of a provider's calls, and what a program that sends or serves them must know: headers, errors, and models
//! that are named in a path.

use std::borrow::Cow;

use epitome_core::Tokens;

use crate::{caller::RequestPurpose, format::Format};

/// Address of a provider's calls below a base address, and the headers they need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Folder of the version, such as `v1`.
    pub version: &'static str,
    /// True if a base address that has a folder still lacks the version, unless it ends in one.
    pub is_version_added: bool,
    /// Place of the key.
    pub key: KeyHeader,
    /// Other headers that every request must have.
    pub headers: &'static [(&'static str, &'static str)],
    /// Name of the provider among upstreams.
    pub upstream: &'static str,
    /// Path under which a configuration knows the calls.
    pub route: &'static str,
    /// The provider's own address.
    pub base: &'static str,
}

/// Header that holds the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyHeader {
    /// `Authorization`, after the word `Bearer`.
    Bearer,
    /// A header of this name, which holds nothing else.
    Named(&'static str),
}

/// A call of a model, recognised by its path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallRoute {
    /// Purpose that the path shows.
    pub purpose: Option<RequestPurpose>,
    /// Model and form of the answer, in formats in which the path names them.
    pub target: Option<CallTarget>,
}

/// Model and form of an answer, as a path names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallTarget {
    /// The model.
    pub model: String,
    /// Form of the answer.
    pub answer: AnswerForm,
}

/// Form in which an answer is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerForm {
    /// In one piece.
    Whole,
    /// As server-sent events.
    Events,
    /// As a JSON list of pieces, sent element by element.
    List,
}

/// An error that a program tells a client in its provider's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorDetails<'e> {
    /// HTTP status.
    pub status: u16,
    /// Name of the error, for programs.
    pub code: Option<&'e str>,
    /// Description for people.
    pub message: &'e str,
}

impl Format {
    /// Address of the provider's calls, and the headers they need.
    pub fn endpoint(self) -> Endpoint {
        self.facts().endpoint
    }

    /// Title of the format, for people.
    pub fn title(self) -> &'static str {
        self.facts().title
    }

    /// Model that stands in for a session's own where that is unknown.
    pub fn usual_model(self) -> &'static str {
        self.facts().usual_model
    }

    /// Returns true if a client of the format's provider is known by this header.
    pub fn is_client_header(self, name: &str) -> bool {
        self.facts().client_headers.contains(&name)
    }

    /// The path and query of a call that continues a history with an answer in one piece, in place of those of another
    /// call; `None` if they are the same.
    pub fn whole_call(self, path_and_query: &str) -> Option<String> {
        self.provider().whole_call(path_and_query)
    }

    /// Member by which a request marks places for the provider's cache.
    pub fn mark_key(self) -> Option<&'static str> {
        self.facts().cache.mark_key
    }

    /// Name of the provider in telemetry.
    pub fn vendor(self) -> &'static str {
        self.facts().vendor
    }

    /// Path of a call of `model` below the folder of the version.
    ///
    /// ```
    /// use epitome_wire::{Format, endpoint::AnswerForm};
    ///
    /// assert_eq!(Format::OpenaiChat.call_path("gpt-5.1", AnswerForm::Whole), "chat/completions");
    /// ```
    pub fn call_path(self, model: &str, answer: AnswerForm) -> Cow<'static, str> {
        self.provider().call_path(model, answer)
    }

    /// The call at a path, which is in lower case and without empty segments; `None` if it is no call of this format.
    pub fn call_at(self, path: &str, query: &str) -> Option<CallRoute> {
        self.provider().call_at(path, query)
    }

    /// The call whose tokens are counted at a path, written as in [`call_at`](Self::call_at); `None` if nothing is counted
    /// there.
    pub fn counted_call_at(self, path: &str) -> Option<CallRoute> {
        self.provider().counted_call_at(path)
    }

    /// The request in the body of a counting call.
    pub fn counted_request(self, body: &str) -> Cow<'_, str> {
        self.provider().counted_request(body)
    }

    /// Writes the answer to a counting call.
    ///
    /// ```
    /// use epitome_core::Tokens;
    /// use epitome_wire::Format;
    ///
    /// assert_eq!(Format::Gemini.count_answer(Tokens(12)), r#"{"totalTokens":12}"#);
    /// ```
    pub fn count_answer(self, tokens: Tokens) -> String {
        self.provider().count_answer(tokens)
    }

    /// Returns true if the provider's interface has a version of this name.
    pub fn has_version(self, name: &str) -> bool {
        self.facts().versions.contains(&name)
    }

    /// Returns true if the format's provider owns a path that is no call.
    pub fn owns_path(self, path: &str) -> bool {
        self.provider().owns_path(path)
    }

    /// Returns true if a path, as a client writes it, leads to a model or counts its tokens.
    pub fn is_inference_path(self, path: &str) -> bool {
        self.provider().is_inference_path(path)
    }

    /// Returns true if a path, as a client writes it, lists models or describes one.
    pub fn is_model_path(self, path: &str) -> bool {
        self.provider().is_model_path(path)
    }

    /// Writes an error in the provider's form.
    pub fn error_body(self, error: &ErrorDetails<'_>) -> String {
        self.provider().error_body(error)
    }

    /// Adds to a request what its path says, so that the body alone says it all.
    pub fn with_target<'b>(self, body: &'b str, target: &CallTarget) -> Cow<'b, str> {
        self.provider().with_target(body, target)
    }

    /// Removes from a request what stands in its path: the body as it is sent.
    pub fn without_target(self, body: &str) -> Cow<'_, str> {
        self.provider().without_target(body)
    }

    /// Returns true if model and form of the answer stand in the path of a call, so that
    /// [`without_target`](Self::without_target) changes bodies.
    pub fn has_target(self) -> bool {
        self.facts().has_target
    }

    /// Name of the member that holds a request's history.
    pub fn history_key(self) -> &'static str {
        self.facts().keys.history
    }

    /// Returns true if an answer is a run of items, and not one message.
    pub fn answers_are_items(self) -> bool {
        self.facts().answer.is_items
    }

    /// Returns true if the provider caches only at marks, so that a request without any is cached nowhere.
    pub fn caches_at_marks_only(self) -> bool {
        self.facts().cache.only_at_marks
    }
}
