//! Endpoints of each format below a base address.

use epitome_wire::{Format, endpoint::AnswerForm, plain_request::OutputLimitName};
use reqwest::Url;

use super::SummariserBuildError;

/// The endpoint below `address`, or that address if it is one already, with the host as people see it.
///
/// An address without a path gets the version. So does one whose path does not end in a version, where servers
/// document the folder above it: Anthropic's that of `/v1/messages`, not of `/messages`.
pub(super) fn endpoint(
    format: Format,
    model: &str,
    address: &str,
) -> Result<(Url, String), SummariserBuildError> {
    let mut url =
        Url::parse(address.trim()).map_err(|error| SummariserBuildError::Address { source: error.into() })?;
    let host = host(&url);
    let unfit = |what| SummariserBuildError::Unfit { host: host.clone(), what };
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(unfit("its address is no http one"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(unfit("its address holds a password"));
    }
    let endpoint = format.endpoint();
    let last = format.call_path(model, AnswerForm::Whole);
    let path = url.path().trim_end_matches('/').to_owned();
    if !path.ends_with(&format!("/{last}")) {
        let is_bare = path.is_empty() || endpoint.is_version_added && !ends_in_version(&path);
        let version = if is_bare { format!("/{}", endpoint.version) } else { String::new() };
        url.set_path(&format!("{path}{version}/{last}"));
    }
    url.set_fragment(None);
    Ok((url, host))
}

/// Returns true for paths such as `/v1` and `/v1beta`.
fn ends_in_version(path: &str) -> bool {
    let last = path.rsplit('/').next().unwrap_or_default();
    last.strip_prefix('v').is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
}

/// The host, with the port unless it is the usual one.
pub(super) fn host(url: &Url) -> String {
    let host = url.host_str().unwrap_or("an address without a host");
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// Name of the answer's limit for a Chat server on this host.
pub fn limit_name(host: &str) -> OutputLimitName {
    let is_openai = host == "api.openai.com" || host.ends_with(".api.openai.com");
    if is_openai || host.ends_with(".openai.azure.com") {
        OutputLimitName::MaxCompletionTokens
    } else {
        OutputLimitName::MaxTokens
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_address_leads_to_the_endpoint_of_its_format() {
        let check = |format, address: &str, expect: &str| {
            assert_eq!(endpoint(format, "m", address).unwrap().0.as_str(), expect, "{address}");
        };
        let chat = Format::OpenaiChat;
        check(chat, "https://api.openai.com/v1", "https://api.openai.com/v1/chat/completions");
        check(chat, "http://127.0.0.1:8080", "http://127.0.0.1:8080/v1/chat/completions");
        check(chat, " http://localhost:1/ ", "http://localhost:1/v1/chat/completions");
        check(chat, "https://openrouter.ai/api/v1/", "https://openrouter.ai/api/v1/chat/completions");
        check(chat, "https://h/openai", "https://h/openai/chat/completions");
        check(
            chat,
            "https://h/x/chat/completions?api-version=1",
            "https://h/x/chat/completions?api-version=1",
        );
        check(Format::OpenaiResponses, "https://h/v1#there", "https://h/v1/responses");
        let anthropic = Format::Anthropic;
        check(anthropic, "https://api.anthropic.com", "https://api.anthropic.com/v1/messages");
        check(anthropic, "https://h/anthropic", "https://h/anthropic/v1/messages");
        check(anthropic, "https://h/v1", "https://h/v1/messages");
        check(anthropic, "https://h/v1/messages", "https://h/v1/messages");
    }

    #[test]
    fn an_address_that_is_none_or_holds_a_password_is_refused_unseen() {
        let check = |address: &str, expect: &str| {
            let error = endpoint(Format::OpenaiChat, "m", address).unwrap_err();
            let shown = format!("{error} {error:?}");
            assert!(shown.contains(expect) && !shown.contains("canary"), "{shown}");
        };
        check("canary", "cannot be read");
        check("https://canary:canary@host/v1", "holds a password");
        check("file:///etc/canary", "no http one");
        check("https://", "cannot be read");
    }

    #[test]
    fn openai_itself_gets_the_name_its_reasoning_models_take() {
        let name = |address: &str| limit_name(Url::parse(address).unwrap().host_str().unwrap());
        assert_eq!(name("https://api.openai.com/v1"), OutputLimitName::MaxCompletionTokens);
        assert_eq!(name("https://eu.api.openai.com/v1"), OutputLimitName::MaxCompletionTokens);
        assert_eq!(name("https://me.openai.azure.com/openai/v1"), OutputLimitName::MaxCompletionTokens);
        assert_eq!(name("https://notapi.openai.com.example/v1"), OutputLimitName::MaxTokens);
        assert_eq!(name("http://localhost:8080/v1"), OutputLimitName::MaxTokens);
    }
}
