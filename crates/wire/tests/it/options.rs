//! How a request was rendered can be written down, and the request made again.

use epitome_core::{Tokens, policy::SummaryShape};
use epitome_wire::{
    Format,
    legality::{ProviderRule, ProviderRules},
    render::{CacheBreakpoints, RenderOptions},
};
use proptest::prelude::*;

use crate::histories::{context, cut, cuts, events, history};

fn options(format: Format) -> [RenderOptions; 3] {
    let plain = RenderOptions::of(format);
    let placed = RenderOptions {
        model: Some("m \"1\"".into()),
        answer: Some(Tokens(u64::MAX)),
        breakpoints: CacheBreakpoints::Placed { most: 4, lifetime: 3_600 },
        summary: SummaryShape::QuestionAndAnswer,
        ..plain.clone()
    };
    let ruled = ProviderRules::of(format)
        .with(ProviderRule::PrefillRefused)
        .with(ProviderRule::RolesAlternate)
        .without(ProviderRule::FirstIsUser);
    [plain.clone(), placed, RenderOptions { rules: ruled, ..plain }]
}

fn read_back(options: &RenderOptions) -> RenderOptions {
    serde_json::from_str(&serde_json::to_string(options).unwrap()).unwrap()
}

proptest! {
    #[test]
    fn a_rendering_from_read_back_options_has_the_same_bytes(steps in history(16), cuts in cuts()) {
        let context = cut(context(&events(&steps)), &cuts);
        for format in Format::ALL {
            for options in options(format) {
                let again = read_back(&options);
                prop_assert_eq!(&again, &options);
                let (first, second) = (format.render(&context, &options), format.render(&context, &again));
                prop_assert_eq!(first.unwrap(), second.unwrap());
            }
        }
    }
}

#[test]
fn options_are_stored_in_words() {
    let stored = |options: &RenderOptions| serde_json::to_string(options).unwrap();
    let [plain, placed, _] = options(Format::Anthropic);
    insta::assert_snapshot!(stored(&plain), @r#"{"model":null,"answer":null,"rules":["roles_alternate","first_is_user","thinking_stays_in_open_loop"],"breakpoints":"as_sent","summary":"message"}"#);
    insta::assert_snapshot!(stored(&placed), @r#"{"model":"m \"1\"","answer":18446744073709551615,"rules":["roles_alternate","first_is_user","thinking_stays_in_open_loop"],"breakpoints":{"placed":{"most":4,"lifetime":3600}},"summary":"question_and_answer"}"#);
    for format in Format::ALL {
        let name = serde_json::to_string(&format).unwrap();
        assert_eq!(name, format!("\"{format}\""));
        assert_eq!(serde_json::from_str::<Format>(&name).unwrap(), format);
    }
}

#[test]
fn what_nobody_knows_is_refused() {
    let check = |stored: &str| assert!(serde_json::from_str::<RenderOptions>(stored).is_err(), "{stored}");
    let whole = serde_json::to_string(&RenderOptions::of(Format::Anthropic)).unwrap();
    check(&whole.replacen('{', r#"{"temperature":1,"#, 1));
    check(&whole.replace("roles_alternate", "roles_rotate"));
    check(&whole.replace("as_sent", "everywhere"));
    check(&whole.replace(r#""as_sent""#, r#"{"placed":{"most":1,"lifetime":300,"where":"here"}}"#));
    check("{}");
    assert!(serde_json::from_str::<Format>("\"bedrock\"").is_err());
}
