//! The routes that a token may use with the operator's key.
//!
//! A list names the permitted routes; all others are refused. It is matched with the path as the client wrote
//! it, because the provider gets the same bytes: another spelling of a route is another route, and is
//! refused.

use std::fmt;

use epitome::wire::Format;
use http::Method;
use serde::Serialize;

use super::pattern::matches_pattern;
use crate::units::printable;

/// Most letters of a rule.
const MAX_RULE_LETTERS: usize = 256;

/// Path of the tools that ask recorded sessions.
const HISTORY_PATH: &str = "/mcp";

/// The permitted routes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(crate) struct RouteList(Vec<RouteRule>);

/// A rule of such a list.
#[derive(Clone, Debug, PartialEq, Eq)]
enum RouteRule {
    /// Every route.
    All,
    /// Calls of models, and token counts.
    Inference,
    /// The list of models.
    Models,
    /// The tools at `/mcp`, which ask recorded sessions.
    History,
    /// A method, or any method, and a path in which `*` stands for any text.
    Path { method: Option<Method>, pattern: String },
}

impl Default for RouteList {
    /// The routes that agents need. None of them changes or shows data of others who share the same key.
    fn default() -> Self {
        Self(vec![RouteRule::Inference, RouteRule::Models])
    }
}

impl RouteList {
    /// Makes a list of these rules.
    pub(super) fn new(rules: impl IntoIterator<Item = RouteListEntry>) -> Self {
        Self(rules.into_iter().map(|entry| entry.0).collect())
    }

    /// Returns true if a request with this method and path is permitted. Paths that servers could read in two
    /// ways have to be refused by the caller.
    pub(crate) fn permits(&self, method: &Method, path: &str) -> bool {
        self.0.iter().any(|rule| rule.permits(method, path))
    }

    /// Returns true if every route is permitted.
    pub(crate) fn is_everything(&self) -> bool {
        self.0.contains(&RouteRule::All)
    }
}

/// One rule, as it was read.
#[derive(Debug)]
pub(super) struct RouteListEntry(RouteRule);

impl RouteListEntry {
    /// Reads `inference`, `models`, `history`, `all`, or a method and a path such as `GET /v1/files/*`.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{}` is no route: write inference, models, history, all, or a method and a path such as \"GET /v1/files/*\"",
                printable(text)
            )
        };
        Ok(Self(match text {
            "all" => RouteRule::All,
            "inference" => RouteRule::Inference,
            "models" => RouteRule::Models,
            "history" => RouteRule::History,
            _ => {
                let (method, path) = text.split_once(' ').ok_or_else(wrong)?;
                let is_path = path.starts_with("/v1") && path.bytes().all(|byte| byte.is_ascii_graphic());
                if !is_path || text.len() > MAX_RULE_LETTERS || path.contains(['?', '#']) {
                    return Err(wrong());
                }
                let is_method = !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase());
                let method = match method {
                    "*" => None,
                    _ if is_method => Some(Method::from_bytes(method.as_bytes()).map_err(|_| wrong())?),
                    _ => return Err(wrong()),
                };
                RouteRule::Path { method, pattern: path.to_owned() }
            }
        }))
    }
}

impl RouteRule {
    fn permits(&self, method: &Method, path: &str) -> bool {
        match self {
            Self::All => true,
            Self::Inference => {
                *method == Method::POST && Format::ALL.iter().any(|format| format.is_inference_path(path))
            }
            Self::Models => {
                let is_looking = *method == Method::GET || *method == Method::HEAD;
                is_looking && Format::ALL.iter().any(|format| format.is_model_path(path))
            }
            Self::History => path == HISTORY_PATH,
            Self::Path { method: only, pattern } => {
                only.as_ref().is_none_or(|only| only == method) && matches_pattern(pattern, path)
            }
        }
    }
}

impl fmt::Display for RouteRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Inference => f.write_str("inference"),
            Self::Models => f.write_str("models"),
            Self::History => f.write_str("history"),
            Self::Path { method: Some(method), pattern } => write!(f, "{method} {pattern}"),
            Self::Path { method: None, pattern } => write!(f, "* {pattern}"),
        }
    }
}

impl Serialize for RouteRule {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for RouteList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("nothing");
        }
        for (index, rule) in self.0.iter().enumerate() {
            write!(f, "{}{rule}", if index == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(rules: &[&str], line: &str, expect: bool) {
        let list = RouteList::new(rules.iter().map(|rule| RouteListEntry::read(rule).expect(rule)));
        let (method, path) = line.split_once(' ').expect("a method and a path");
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        assert_eq!(list.permits(&method, path), expect, "{rules:?} {line}");
    }

    #[test]
    fn models_and_inference_are_what_an_agent_needs_and_nothing_else() {
        let usual = ["inference", "models"];
        for line in [
            "POST /v1/chat/completions",
            "POST /v1/responses",
            "POST /v1/responses/compact",
            "POST /v1/messages",
            "POST /v1/messages/count_tokens",
            "POST /v1/embeddings",
            "GET /v1/models",
            "HEAD /v1/models",
            "GET /v1/models/gpt-5",
            "GET /v1/models/meta-llama%2Fllama-3",
        ] {
            check(&usual, line, true);
        }
        for line in [
            "DELETE /v1/files/file-1",
            "GET /v1/files",
            "POST /v1/fine_tuning/jobs",
            "POST /v1/batches",
            "POST /v1/messages/batches",
            "GET /v1/responses/resp_1",
            "DELETE /v1/responses/resp_1",
            "GET /v1/chat/completions",
            "DELETE /v1/models/ft:gpt-5:x",
            "POST /v1/models",
            "GET /v1/modelsque",
            "GET /v1/Models",
            "GET /v1//models",
            "POST /v1/%63hat/completions",
            "POST /v1/messages/",
            "GET /v1/organization/admin_api_keys",
        ] {
            check(&usual, line, false);
        }
        assert_eq!(RouteList::default().to_string(), "inference, models");
    }

    #[test]
    fn a_list_lets_through_what_it_names() {
        check(&["GET /v1/files/*"], "GET /v1/files/file-1/content", true);
        check(&["GET /v1/files/*"], "DELETE /v1/files/file-1", false);
        check(&["GET /v1/files/*"], "GET /v1/files", false);
        check(&["GET /v1/files/*"], "POST /v1/messages", false);
        check(&["* /v1/files*"], "DELETE /v1/files/file-1", true);
        check(&["POST /v1/messages"], "POST /v1/messages", true);
        check(&["all"], "DELETE /v1/files/file-1", true);
        check(&[], "POST /v1/messages", false);
    }

    #[test]
    fn what_is_no_route_is_refused() {
        let long = format!("GET /v1/{}", "a".repeat(300));
        for text in [
            "",
            "Inference",
            "GET",
            "/v1/files",
            "get /v1/files",
            "GET /files",
            "GET /v1/f?x",
            "GET /v1/a b",
            &long,
        ] {
            let said = RouteListEntry::read(text).expect_err(text);
            assert!(said.contains("GET /v1/files/*"), "{said}");
        }
    }
}
