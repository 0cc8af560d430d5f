//! Paths of Gemini: they name the model and the form of the answer, which other formats have in the body.
//!
//! A body is kept with both, as two members before all others, so that it tells everything by itself. They are added
//! when a request comes in and removed when it is sent.

use std::borrow::Cow;

use crate::{
    endpoint::{AnswerForm, CallRoute, CallTarget},
    json::quote,
};

/// Path under which a configuration knows the calls of all models.
pub(crate) const ROUTE: &str = "/v1beta/models/*";

/// Member that holds the form of the answer: true if it is streamed as events.
pub(crate) const STREAM: &str = "stream";

/// Value of that member for an answer that is a list of pieces.
pub(crate) const LIST: &str = "list";

/// Reads a path such as `/v1beta/models/gemini-2.5-pro:streamGenerateContent`, in lower case.
pub(crate) fn call_at(path: &str, query: &str) -> Option<CallRoute> {
    let (model, action) = model_and_action(path)?;
    let answer = match action {
        "generatecontent" => AnswerForm::Whole,
        "streamgeneratecontent" if wants_events(query) => AnswerForm::Events,
        "streamgeneratecontent" => AnswerForm::List,
        _ => return None,
    };
    let target = CallTarget { model: model.to_owned(), answer };
    Some(CallRoute { purpose: None, target: Some(target) })
}

/// Reads a path such as `/v1beta/models/gemini-2.5-pro:countTokens`, in lower case.
pub(crate) fn counted_call_at(path: &str) -> Option<CallRoute> {
    let (model, action) = model_and_action(path)?;
    let target = CallTarget { model: model.to_owned(), answer: AnswerForm::Whole };
    (action == "counttokens").then_some(CallRoute { purpose: None, target: Some(target) })
}

/// The model that a path names, and what is to be done with it.
fn model_and_action(path: &str) -> Option<(&str, &str)> {
    if !is_versioned(path) {
        return None;
    }
    let (folder, action) = path.rsplit_once(':')?;
    let model =
        ["/models/", "/tunedmodels/"].into_iter().find_map(|name| Some(folder.rsplit_once(name)?.1))?;
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-@".contains(letter);
    (!model.is_empty() && model.chars().all(is_plain)).then_some((model, action))
}

/// Returns true if a path is below a version that only Gemini has, or names a model and an action.
pub(crate) fn owns(path: &str) -> bool {
    let below = |folder: &str| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
    ["/v1beta", "/v1alpha", "/v1beta1"].into_iter().any(below)
        || is_versioned(path) && path.contains("/models/") && path.contains(':')
}

fn is_versioned(path: &str) -> bool {
    ["/v1/", "/v1beta/", "/v1alpha/", "/v1beta1/"].into_iter().any(|folder| path.starts_with(folder))
}

fn wants_events(query: &str) -> bool {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.any(|(name, value)| matches!(name, "alt" | "$alt" | "%24alt") && value.eq_ignore_ascii_case("sse"))
}

/// Path of a call below the folder of the version.
pub(crate) fn call_path(model: &str, answer: AnswerForm) -> String {
    let model = model_name(model);
    match answer {
        AnswerForm::Whole => format!("models/{model}:generateContent"),
        AnswerForm::Events => format!("models/{model}:streamGenerateContent?alt=sse"),
        AnswerForm::List => format!("models/{model}:streamGenerateContent"),
    }
}

/// The path and query of a call whose answer comes in one piece, in place of those of any other call.
pub(crate) fn whole_call(path_and_query: &str) -> Option<String> {
    let (path, query) = path_and_query.split_once('?').unwrap_or((path_and_query, ""));
    let (folder, action) = path.rsplit_once(':')?;
    if !action.eq_ignore_ascii_case("streamGenerateContent") {
        return None;
    }
    let kept: Vec<&str> = query.split('&').filter(|pair| !pair.is_empty() && !wants_events(pair)).collect();
    let query = if kept.is_empty() { String::new() } else { format!("?{}", kept.join("&")) };
    Some(format!("{folder}:generateContent{query}"))
}

/// A model without the folder that may stand before it.
pub(crate) fn model_name(model: &str) -> &str {
    model.strip_prefix("models/").unwrap_or(model)
}

/// Adds the model and the form of the answer to a body.
pub(crate) fn with_target<'b>(body: &'b str, target: &CallTarget) -> Cow<'b, str> {
    let Some(rest) = body.trim_start_matches([' ', '\t', '\n', '\r']).strip_prefix('{') else {
        return Cow::Borrowed(body);
    };
    let stream = match target.answer {
        AnswerForm::Whole => format!(r#","{STREAM}":false"#),
        AnswerForm::Events => format!(r#","{STREAM}":true"#),
        AnswerForm::List => format!(r#","{STREAM}":"{LIST}""#),
    };
    let lead = &body[..body.len() - rest.len()];
    let comma = if rest.trim_start().starts_with('}') { "" } else { "," };
    Cow::Owned(format!(r#"{lead}"model":{}{stream}{comma}{rest}"#, quote(&target.model)))
}

/// Removes what [`with_target`] has added, with any value that it has by now.
pub(crate) fn without_target(body: &str) -> Cow<'_, str> {
    let start = body.len() - body.trim_start_matches([' ', '\t', '\n', '\r']).len();
    let Some(rest) = body[start..].strip_prefix('{') else { return Cow::Borrowed(body) };
    let Some(after) = after_member(rest, "model") else { return Cow::Borrowed(body) };
    let after = after.strip_prefix(',').and_then(|rest| after_member(rest, STREAM)).unwrap_or(after);
    let after = after.strip_prefix(',').unwrap_or(after);
    Cow::Owned(format!("{}{{{after}", &body[..start]))
}

/// The text after a member, if the text begins with it in the form in which it was added.
fn after_member<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let value = text.strip_prefix('"')?.strip_prefix(name)?.strip_prefix("\":")?;
    match value.strip_prefix('"') {
        Some(inner) => inner.split_once('"').map(|(_, after)| after),
        None => value.find([',', '}', ' ', '\t', '\r', '\n']).map(|end| &value[end..]),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn target(model: &str, answer: AnswerForm) -> CallTarget {
        CallTarget { model: model.to_owned(), answer }
    }

    #[test]
    fn a_path_names_the_model_and_the_form_of_the_answer() {
        let check = |path: &str, query: &str, expect: Option<(&str, AnswerForm)>| {
            let found = call_at(path, query).and_then(|route| route.target);
            assert_eq!(found, expect.map(|(model, answer)| target(model, answer)), "{path}?{query}");
        };
        let pro = "/v1beta/models/gemini-2.5-pro";
        check(&format!("{pro}:generatecontent"), "", Some(("gemini-2.5-pro", AnswerForm::Whole)));
        check(
            &format!("{pro}:streamgeneratecontent"),
            "alt=sse&key=k",
            Some(("gemini-2.5-pro", AnswerForm::Events)),
        );
        check(&format!("{pro}:streamgeneratecontent"), "key=k", Some(("gemini-2.5-pro", AnswerForm::List)));
        check(
            "/v1beta1/projects/p/locations/l/publishers/google/models/g:generatecontent",
            "",
            Some(("g", AnswerForm::Whole)),
        );
        check(&format!("{pro}:counttokens"), "", None);
        check("/v1beta/models", "", None);
        check("/v1beta/models/a\"b:generatecontent", "", None);
        check("/v2/models/g:generatecontent", "", None);
        assert!(
            owns(&format!("{pro}:counttokens")) && owns("/v1beta/models") && owns("/v1/models/g:counttokens")
        );
        assert!(!owns("/v1/models") && !owns("/v1betamax/x"));
    }

    #[test]
    fn a_summary_is_asked_for_in_one_piece() {
        let check =
            |path: &str, expect: Option<&str>| assert_eq!(whole_call(path).as_deref(), expect, "{path}");
        check("/v1beta/models/g:streamGenerateContent?alt=sse", Some("/v1beta/models/g:generateContent"));
        check(
            "/v1beta/models/g:streamGenerateContent?key=k&alt=sse",
            Some("/v1beta/models/g:generateContent?key=k"),
        );
        check("/v1beta/models/g:generateContent", None);
    }

    proptest! {
        #[test]
        fn what_is_added_to_a_body_is_removed_again(
            body in r#"( |\n)?\{( )?("contents":\[\],"model":"x"|"stream":true|)( )?\}"#,
            model in "[a-z0-9.-]{1,12}",
            form in 0_usize..3,
        ) {
            let answer = [AnswerForm::Whole, AnswerForm::Events, AnswerForm::List][form];
            let with = with_target(&body, &target(&model, answer)).into_owned();
            prop_assert!(serde_json::from_str::<serde_json::Value>(&with).is_ok(), "{}", with);
            prop_assert_eq!(without_target(&with), body);
        }
    }

    #[test]
    fn a_question_of_our_own_loses_its_target_too() {
        assert_eq!(without_target(r#"{"model":"g","stream":false,"contents":[]}"#), r#"{"contents":[]}"#);
        assert_eq!(without_target(r#"{"contents":[]}"#), r#"{"contents":[]}"#);
        assert_eq!(without_target("[]"), "[]");
    }
}
