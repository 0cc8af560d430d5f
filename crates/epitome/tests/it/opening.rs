//! The beginning of a session: tools and settings as they were given, byte for byte, or an error that says what is wrong.

use epitome::{Format, Session, SessionBuilder, SessionError, Tokens, session::RequestJson, wire::WireError};
use serde_json::{Value, json, value::RawValue};

fn builder(format: Format) -> SessionBuilder {
    Session::builder(format, "a model nobody knows").window(Tokens(8_000)).system("Count.")
}

fn tool(format: Format) -> Value {
    let schema =
        json!({"type": "object", "properties": {"zebra": {"type": "string"}, "ant": {"type": "number"}}});
    match format {
        Format::OpenaiChat => {
            json!({"type": "function", "function": {"name": "count", "parameters": schema}})
        }
        Format::OpenaiResponses => json!({"type": "function", "name": "count", "parameters": schema}),
        Format::Anthropic => json!({"name": "count", "input_schema": schema}),
        Format::Gemini => {
            json!({"functionDeclarations": [{"name": "count", "parametersJsonSchema": schema}]})
        }
    }
}

async fn first_request(builder: SessionBuilder) -> String {
    let session = builder.begin().await.unwrap();
    session.user("How many?").await.unwrap();
    session.next_request().await.unwrap().body
}

#[tokio::test]
async fn values_are_sent_without_white_space_and_in_the_order_of_their_members() {
    for format in Format::ALL {
        let settings = json!({"zeta": 1.0, "alpha": {"d": 1, "c": 2}});
        let body = first_request(builder(format).tools(json!([tool(format)])).settings(settings)).await;
        assert!(body.contains(r#""zeta":1.0,"alpha":{"d":1,"c":2}"#), "{format}: {body}");
        let properties = r#""properties":{"zebra":{"type":"string"},"ant":{"type":"number"}}"#;
        assert!(body.contains(properties), "{format}: {body}");
        let same = first_request(
            builder(format)
                .tools(vec![tool(format)])
                .settings(json!({"zeta": 1.0, "alpha": {"d": 1, "c": 2}})),
        );
        assert_eq!(same.await, body, "{format}: equal values give equal bytes");
    }
}

#[tokio::test]
async fn raw_json_keeps_its_bytes() {
    for format in Format::ALL {
        let raw = |text: &str| -> Box<RawValue> { serde_json::from_str(text).unwrap() };
        let list = format!("[ {} ]", tool(format).to_string().replace(',', " , "));
        let builder = builder(format).tools(raw(&list)).settings(raw(r#"{ "zeta" : 1e0 }"#));
        let body = first_request(builder).await;
        assert!(body.contains(&list), "{format}: {body}");
        assert!(body.contains(r#""zeta" : 1e0"#), "{format}: {body}");
    }
}

#[tokio::test]
async fn the_last_settings_are_in_force() {
    for format in Format::ALL {
        let builder = builder(format).settings(json!({"zeta": 1})).settings(json!({"alpha": 2}));
        let body: Value = serde_json::from_str(&first_request(builder).await).unwrap();
        assert_eq!((body.get("zeta"), body.get("alpha")), (None, Some(&json!(2))), "{format}");
    }
}

#[tokio::test]
async fn a_wrong_shape_is_an_error_that_names_it() {
    type Change = fn(SessionBuilder, RequestJson) -> SessionBuilder;
    let tools: Change = |builder, json| builder.tools(json);
    let settings: Change = |builder, json| builder.settings(json);
    for format in Format::ALL {
        let check = async |change: Change, json: Value, expect: &str| {
            let error = change(builder(format), json.clone().into()).begin().await.unwrap_err();
            assert!(matches!(&error, SessionError::Wire(_)), "{format}, {json}: {error:?}");
            assert_eq!(error.to_string(), expect, "{format}, {json}");
        };
        let list = "reading a list of tools: expected a JSON list with at least one element, found";
        check(tools, tool(format), &format!("{list} an object")).await;
        check(tools, json!([]), &format!("{list} an empty one")).await;
        check(tools, json!("[]"), &format!("{list} a string")).await;
        let object = "reading a tool's definition: expected a JSON object, found a string";
        check(tools, json!([tool(format), "count"]), object).await;
        let object = "reading a session's settings: expected a JSON object, found an array";
        check(settings, json!([{"temperature": 1}]), object).await;
        let apart = "reading a session's settings: `tools` is not one; say it apart";
        check(settings, json!({"tools": [tool(format)]}), apart).await;
        let deep = (0..200).fold(json!({}), |inner, _| json!([inner]));
        let error = builder(format).settings(json!({"deep": deep})).begin().await.unwrap_err();
        assert!(matches!(error, SessionError::Wire(WireError::TooDeep { .. })), "{format}: {error:?}");
    }
}
