//! Each rule with a request that breaks it, and it alone.

use epitome_wire::{
    Format,
    legality::{ProviderRule, ProviderRules, check, check_against},
};

/// What is found in a history of these messages.
fn check_history(format: Format, messages: &[&str], rules: &ProviderRules, expect: &[&str]) {
    let key = if format == Format::OpenaiResponses { "input" } else { "messages" };
    let body = format!(r#"{{"{key}":[{}]}}"#, messages.join(","));
    let found: Vec<String> = check(format, &body, rules).iter().map(ToString::to_string).collect();
    assert_eq!(found, expect, "{body}");
}

#[test]
fn what_is_no_request_is_unreadable() {
    for format in crate::SCRIPTED {
        for body in ["", "[]", "null", "{", &format!("{}{}", "[".repeat(500), "]".repeat(500))] {
            let found = check(format, body, &ProviderRules::of(format));
            assert_eq!(found.len(), 1);
            assert!(found[0].to_string().starts_with("request: it cannot be read"), "{}", found[0]);
        }
        check_history(format, &[], &ProviderRules::of(format), &["request: there is no message"]);
    }
    assert!(check(Format::OpenaiResponses, r#"{"input":"hi"}"#, &ProviderRules::default()).is_empty());
    assert!(
        check(Format::OpenaiResponses, r#"{"previous_response_id":"r"}"#, &ProviderRules::default())
            .is_empty()
    );
}

const USER: &str = r#"{"role":"user","content":"u"}"#;
const SAID: &str = r#"{"role":"assistant","content":"a"}"#;

mod chat {
    use super::*;

    fn check(messages: &[&str], expect: &[&str]) {
        check_history(Format::OpenaiChat, messages, &ProviderRules::of(Format::OpenaiChat), expect);
    }

    fn calls(ids: &[&str]) -> String {
        let call = |id: &&str| {
            format!(r#"{{"id":"{id}","type":"function","function":{{"name":"t","arguments":"{{}}"}}}}"#)
        };
        let calls: Vec<String> = ids.iter().map(call).collect();
        format!(r#"{{"role":"assistant","content":null,"tool_calls":[{}]}}"#, calls.join(","))
    }

    fn result(id: &str) -> String {
        format!(r#"{{"role":"tool","tool_call_id":"{id}","content":"r"}}"#)
    }

    #[test]
    fn reasoning_that_led_to_calls_comes_back_as_it_was() {
        let rules = ProviderRules::default().with(ProviderRule::ReasoningReturned);
        let (silent, r) = (calls(&["a"]), result("a"));
        let thought = |words: &str| {
            silent.replace("\"content\":null", &format!("\"content\":null,\"reasoning_content\":\"{words}\""))
        };
        let request = |messages: &[&str]| format!(r#"{{"messages":[{}]}}"#, messages.join(","));
        let against = |now: &[&str], rules: &ProviderRules, expect: &[&str]| {
            let sent = request(&[USER, &thought("hm"), &r]);
            let found = check_against(Format::OpenaiChat, &sent, &request(now), rules);
            let found: Vec<String> = found.iter().map(ToString::to_string).collect();
            assert_eq!(found, expect, "{now:?}");
        };
        against(&[USER, &thought("hm"), &r, SAID], &rules, &[]);
        against(&[USER], &rules, &[]);
        let missing = "message 1: the answer called tools, and its reasoning is not there";
        against(&[USER, &thought(""), &r], &rules, &[missing]);
        against(&[USER, &silent, &r], &rules, &[missing]);
        against(&[USER, &silent, &r], &ProviderRules::default(), &[]);
    }

    #[test]
    fn calls_of_the_current_turn_are_signed_where_that_is_demanded() {
        let rules = ProviderRules::default().with(ProviderRule::CallsSigned);
        let (unsigned, r) = (calls(&["a"]), result("a"));
        let signature = r#""id":"a","extra_content":{"google":{"thought_signature":"s"}}"#;
        let signed = unsigned.replace(r#""id":"a""#, signature);
        assert_ne!(signed, unsigned);
        let check = |messages: &[&str], expect: &[&str]| {
            check_history(Format::OpenaiChat, messages, &rules, expect);
        };
        check(&[USER, &signed, &r, &signed, &r], &[]);
        check(&[USER, &unsigned, &r, USER, &signed, &r], &[]);
        let missing = "message 3, block 0: the call \"a\" lacks its signature";
        check(&[USER, &signed, &r, &unsigned, &r], &[missing]);
        // Only the first call of an answer carries one.
        let both = calls(&["a", "b"]).replace(r#""id":"a""#, signature);
        check(&[USER, &both, &r, &result("b")], &[]);
    }

    #[test]
    fn a_list_of_nothing_says_nothing() {
        check(&[r#"{"role":"user","content":[]}"#], &["message 0: it says nothing"]);
    }

    #[test]
    fn reasoning_that_is_wanted_back_is_there_wherever_tools_were_called() {
        let rules = ProviderRules::default().with(ProviderRule::ReasoningReturned);
        let (silent, r) = (calls(&["a"]), result("a"));
        let thought = silent.replace("\"content\":null", "\"content\":null,\"reasoning_content\":\"\"");
        let check = |messages: &[&str], expect: &[&str]| {
            check_history(Format::OpenaiChat, messages, &rules, expect);
        };
        check(&[USER, &silent, &r, SAID, &silent, &r], &[]);
        check(&[USER, &thought, &r, SAID, &thought, &r], &[]);
        let missing = "message 1: the answer called tools, and its reasoning is not there";
        check(&[USER, &silent, &r, SAID, &thought, &r], &[missing]);
    }

    #[test]
    fn a_history_that_keeps_every_rule_is_legal() {
        let (two, again) = (calls(&["a", "b"]), calls(&["a"]));
        let (a, b) = (result("a"), result("b"));
        let system = r#"{"role":"system","content":"s"}"#;
        let by_name = r#"{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}}"#;
        let answer = r#"{"role":"function","name":"f","content":"r"}"#;
        check(&[system, USER, &two, &b, &a, SAID, SAID, &again, &a, by_name, answer, USER, USER], &[]);
    }

    #[test]
    fn every_call_is_answered_before_anyone_speaks() {
        let expect = &[r#"message 0: the call "a" is not answered"#];
        check(&[&calls(&["a"])], expect);
        check(&[&calls(&["a", "b"]), &result("b"), USER], expect);
        check(&[&calls(&["a"]), SAID], expect);
        let stray = r#"message 2: no open call is "a""#;
        check(&[&calls(&["a"]), USER, &result("a")], &[expect[0], stray]);
    }

    #[test]
    fn every_result_answers_a_call_of_the_answer_before_it() {
        check(&[USER, &result("a")], &[r#"message 1: no open call is "a""#]);
        check(&[&calls(&["a"]), &result("a"), &result("a")], &[r#"message 2: no open call is "a""#]);
        check(&[&calls(&["a"]), &result("a"), SAID, &result("a")], &[r#"message 3: no open call is "a""#]);
        check(&[USER, r#"{"role":"tool","content":"r"}"#], &[r#"message 1: no open call is """#]);
        check(
            &[USER, r#"{"role":"function","name":"f","content":"r"}"#],
            &[r#"message 1: no open call is "f""#],
        );
    }

    #[test]
    fn every_call_has_an_id_of_its_own() {
        let expect = &[r#"message 0, block 1: there is another call "a""#];
        check(&[&calls(&["a", "a"]), &result("a")], expect);
        let nameless = r#"{"role":"assistant","content":"x","tool_calls":[{"type":"function"}]}"#;
        check(&[nameless], &["message 0, block 0: the call has no id"]);
    }

    #[test]
    fn an_answer_says_something() {
        check(
            &[USER, r#"{"role":"assistant","content":null,"reasoning_content":"hm"}"#],
            &["message 1: it says nothing"],
        );
    }

    #[test]
    fn a_model_may_demand_who_speaks_first_and_last() {
        let rules =
            ProviderRules::default().with(ProviderRule::FirstIsUser).with(ProviderRule::PrefillRefused);
        let check =
            |messages: &[&str], expect: &[&str]| check_history(Format::OpenaiChat, messages, &rules, expect);
        check(&[USER, SAID, USER], &[]);
        check(
            &[r#"{"role":"system","content":"s"}"#, SAID, USER],
            &["message 1: the first message is not the user's"],
        );
        check(&[USER, SAID], &["message 1: the last message is the assistant's"]);
        check(&[USER, &calls(&["a"]), &result("a")], &[]);
    }
}

mod responses {
    use super::*;

    fn check(items: &[&str], expect: &[&str]) {
        check_history(Format::OpenaiResponses, items, &ProviderRules::of(Format::OpenaiResponses), expect);
    }

    fn call(kind: &str, id: &str) -> String {
        format!(r#"{{"type":"{kind}","call_id":"{id}","name":"t","arguments":"{{}}"}}"#)
    }

    fn output(kind: &str, id: &str) -> String {
        format!(r#"{{"type":"{kind}","call_id":"{id}","output":"r"}}"#)
    }

    const REASONING: &str = r#"{"type":"reasoning","summary":[]}"#;
    const COMPACTION: &str = r#"{"type":"compaction","encrypted_content":"x"}"#;

    #[test]
    fn a_history_that_keeps_every_rule_is_legal() {
        check(
            &[
                USER,
                REASONING,
                REASONING,
                &call("function_call", "a"),
                &call("custom_tool_call", "b"),
                &output("custom_tool_call_output", "b"),
                &output("function_call_output", "a"),
                &call("local_shell_call", "c"),
                r#"{"type":"local_shell_call_output","id":"c","output":"r"}"#,
                r#"{"type":"tool_search_call","arguments":{}}"#,
                REASONING,
                SAID,
                USER,
            ],
            &[],
        );
    }

    #[test]
    fn calls_and_outputs_pair_by_id() {
        check(&[&call("function_call", "a"), USER], &[r#"message 0: the call "a" is not answered"#]);
        check(&[&output("function_call_output", "a")], &[r#"message 0: no open call is "a""#]);
        let (a, r) = (call("function_call", "a"), output("function_call_output", "a"));
        check(&[&a, &r, &r], &[r#"message 2: no open call is "a""#]);
        check(&[&a, &r, &a], &[r#"message 2: there is another call "a""#]);
        check(&[r#"{"type":"function_call","name":"t"}"#], &["message 0: the call has no id"]);
        check(&[r#"{"type":"function_call_output","output":"r"}"#], &[r#"message 0: no open call is """#]);
        let wrong = r#"message 1: it is not the kind of result that the call "a" takes"#;
        check(&[&a, &output("custom_tool_call_output", "a")], &[wrong]);
    }

    #[test]
    fn reasoning_is_followed_by_what_it_led_to() {
        let expect = &["message 0: what the reasoning led to is not there"];
        check(&[REASONING], expect);
        check(&[REASONING, USER], expect);
        let (a, r) = (call("function_call", "a"), output("function_call_output", "a"));
        check(&[&a, REASONING, &r], &["message 1: what the reasoning led to is not there"]);
    }

    #[test]
    fn before_the_newest_compaction_anything_may_be_missing() {
        let r = output("function_call_output", "a");
        check(&[&call("function_call", "b"), REASONING, COMPACTION, &r, USER], &[]);
        let expect = &[r#"message 2: the call "b" is not answered"#];
        check(&[COMPACTION, USER, &call("function_call", "b")], expect);
    }
}

mod anthropic {
    use super::*;

    fn check(messages: &[&str], expect: &[&str]) {
        check_history(Format::Anthropic, messages, &ProviderRules::of(Format::Anthropic), expect);
    }

    fn message(role: &str, blocks: &[&str]) -> String {
        format!(r#"{{"role":"{role}","content":[{}]}}"#, blocks.join(","))
    }

    fn call(id: &str) -> String {
        format!(r#"{{"type":"tool_use","id":"{id}","name":"t","input":{{}}}}"#)
    }

    fn result(id: &str) -> String {
        format!(r#"{{"type":"tool_result","tool_use_id":"{id}","content":"r"}}"#)
    }

    const TEXT: &str = r#"{"type":"text","text":"t"}"#;
    const THINKING: &str = r#"{"type":"thinking","thinking":"","signature":"s"}"#;
    const COMPACTION: &str = r#"{"type":"compaction","content":"s","signature":"x"}"#;

    #[test]
    fn an_answer_to_be_continued_does_not_end_in_white_space() {
        let expect = &["message 1: the answer that is to be continued ends in white space"];
        let (string, blocks) = (
            r#"{"role":"assistant","content":"It is\n"}"#,
            r#"{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"text","text":"It is "}]}"#,
        );
        for said in [string, blocks] {
            check_history(Format::Anthropic, &[USER, said], &ProviderRules::of(Format::Anthropic), expect);
            check_history(Format::Anthropic, &[USER, said, USER], &ProviderRules::of(Format::Anthropic), &[]);
        }
    }

    #[test]
    fn a_history_that_keeps_every_rule_is_legal() {
        let two = message("assistant", &[THINKING, &call("a"), &call("b")]);
        let answers = message("user", &[&result("b"), &result("a"), TEXT]);
        check(&[USER, &two, &answers, SAID, r#"{"role":"system","content":"s"}"#, USER], &[]);
        check(&[&message("assistant", &[COMPACTION]), USER, SAID], &[]);
    }

    #[test]
    fn roles_alternate_from_the_user_on() {
        check(&[SAID, USER], &["message 0: the first message is not the user's"]);
        check(&[USER, USER], &["message 1: it has the same role as the message before"]);
        check(&[USER, SAID, SAID], &["message 2: it has the same role as the message before"]);
        let rules = ProviderRules::of(Format::Anthropic).with(ProviderRule::PrefillRefused);
        check_history(
            Format::Anthropic,
            &[USER, SAID],
            &rules,
            &["message 1: the last message is the assistant's"],
        );
        check_history(Format::Anthropic, &[SAID, SAID], &ProviderRules::default(), &[]);
    }

    #[test]
    fn every_call_is_answered_in_the_next_message() {
        let (a, b) = (message("assistant", &[&call("a")]), message("assistant", &[&call("b")]));
        let expect = &[r#"message 1: the call "a" is not answered"#];
        check(&[USER, &a], expect);
        check(&[USER, &a, USER], expect);
        let late = r#"message 4, block 0: no open call is "a""#;
        check(&[USER, &a, USER, SAID, &message("user", &[&result("a")])], &[expect[0], late]);
        check(
            &[USER, &b, &message("user", &[&result("b"), &result("b")])],
            &[r#"message 2, block 1: no open call is "b""#],
        );
        check(&[&message("user", &[&result("a")])], &[r#"message 0, block 0: no open call is "a""#]);
    }

    #[test]
    fn ids_are_used_once() {
        let (a, r) = (message("assistant", &[&call("a")]), message("user", &[&result("a")]));
        check(&[USER, &a, &r, &a, &r], &[r#"message 3, block 0: there is another call "a""#]);
        let nameless = message("assistant", &[r#"{"type":"tool_use","name":"t","input":{}}"#]);
        check(&[USER, &nameless, USER], &["message 1, block 0: the call has no id"]);
    }

    #[test]
    fn results_come_first() {
        let (a, r) = (message("assistant", &[&call("a")]), message("user", &[TEXT, &result("a")]));
        check(&[USER, &a, &r], &["message 2, block 1: the result stands after something else"]);
    }

    #[test]
    fn no_text_is_empty() {
        let blank = r#"{"type":"text","text":" \n"}"#;
        check(&[&message("user", &[TEXT, blank])], &["message 0, block 1: the text is empty"]);
        check(&[r#"{"role":"user","content":""}"#], &["message 0: it says nothing"]);
        check(&[&message("user", &[])], &["message 0: it says nothing"]);
        let inside = format!(r#"{{"type":"tool_result","tool_use_id":"a","content":[{blank}]}}"#);
        let a = message("assistant", &[&call("a")]);
        check(&[USER, &a, &message("user", &[&inside])], &["message 2, block 0: the text is empty"]);
        let body = format!(r#"{{"system":[{blank}],"messages":[{USER}]}}"#);
        let found = super::check(Format::Anthropic, &body, &ProviderRules::default());
        assert_eq!(found[0].to_string(), "request: the text is empty");
    }

    #[test]
    fn thinking_is_sealed_and_not_the_last_word() {
        let unsealed = [r#"{"type":"thinking","thinking":"t"}"#, r#"{"type":"redacted_thinking"}"#];
        for block in unsealed {
            let expect = &["message 1, block 0: the thinking lacks its signature"];
            check(&[USER, &message("assistant", &[block, TEXT])], expect);
        }
        check(
            &[USER, &message("assistant", &[TEXT, THINKING])],
            &["message 1, block 1: the answer ends with thinking"],
        );
    }

    #[test]
    fn a_signed_compaction_comes_first() {
        let expect = &["message 1, block 0: the compaction is not the first thing"];
        check(&[USER, &message("assistant", &[COMPACTION, TEXT])], expect);
    }

    fn thinking(text: &str) -> String {
        format!(r#"{{"type":"thinking","thinking":"{text}","signature":"s"}}"#)
    }

    fn request(system: &str, messages: &[&str]) -> String {
        format!(r#"{{"system":"{system}","messages":[{}]}}"#, messages.join(","))
    }

    /// What is found in `now`, given what was sent.
    fn against(sent: &str, now: &str, expect: &[&str]) {
        let rules = ProviderRules::of(Format::Anthropic).with(ProviderRule::PreservedThinking);
        let found = check_against(Format::Anthropic, sent, now, &rules);
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found, expect, "{now}");
    }

    #[test]
    fn thinking_holds_only_while_nothing_before_it_has_changed() {
        let [first, second] = ["1", "2"].map(|text| message("assistant", &[&thinking(text), TEXT]));
        let bare = message("assistant", &[TEXT]);
        let sent = request("s", &[USER, &first, USER, &second, USER]);
        let changed = r#"{"role":"user","content":"v"}"#;
        let third = message("assistant", &[&thinking("3"), TEXT]);
        against(&sent, &sent, &[]);
        against(&sent, &request("s", &[USER, &first, USER, &second, USER, &third]), &[]);
        // Thinking may go from the beginning, from the end, or all of it.
        against(&sent, &request("s", &[USER, &bare, USER, &second, USER]), &[]);
        against(&sent, &request("s", &[USER, &first, USER, &bare, USER]), &[]);
        // A string is the block it stands for, and a cache mark may move.
        let marked =
            r#"{"role":"user","content":[{"type":"text","text":"u","cache_control":{"type":"ephemeral"}}]}"#;
        against(&sent, &request("s", &[marked, &first, USER, &second, USER]), &[]);
        let expect = "something before the thinking has changed";
        let at = |message: usize| format!("message {message}, block 0: {expect}");
        against(&sent, &request("s", &[USER, &first, changed, &second, USER]), &[&at(3)]);
        against(&sent, &request("s", &[changed, &bare, USER, &second, USER]), &[&at(3)]);
        against(&sent, &request("t", &[USER, &first, USER, &second, USER]), &[&at(1), &at(3)]);
        // What is left out before it is a change as well.
        against(&sent, &request("s", &[USER, &second, USER]), &[&at(1)]);
        against(&sent, &request("s", &[changed, &bare, USER, &bare, USER]), &[]);
        // It may not go from the middle.
        let three = [USER, &first, USER, &second, USER, &third];
        against(&request("s", &three), &request("s", &[USER, &first, USER, &bare, USER, &third]), &[&at(5)]);
        let altered = message("assistant", &[&thinking("one"), TEXT]);
        against(
            &sent,
            &request("s", &[USER, &altered, USER, &second, USER]),
            &["message 1, block 0: the thinking is not as it was"],
        );
    }

    #[test]
    fn an_open_loop_keeps_its_thinking() {
        let first = message("assistant", &[&thinking("1"), &call("a")]);
        let second = message("assistant", &[&thinking("2"), &call("b")]);
        let (a, b) = (message("user", &[&result("a")]), message("user", &[&result("b")]));
        let bare = message("assistant", &[&call("a")]);
        let sent = request("s", &[USER, &first, &a, &second, &b]);
        against(
            &sent,
            &request("s", &[USER, &bare, &a, &second, &b]),
            &["message 1, block 0: the thinking of the open tool loop is gone"],
        );
        // A loop that has ended may lose it.
        let ended = request("s", &[USER, &first, &a, SAID, USER, &second, &b]);
        against(&ended, &request("s", &[USER, &bare, &a, SAID, USER, &second, &b]), &[]);
        // So may one that the user talks over: that begins another.
        let and_text = message("user", &[&result("b"), TEXT]);
        against(&sent, &request("s", &[USER, &bare, &a, &second, &and_text]), &[]);
    }

    #[test]
    fn reasoning_stays_with_the_item_that_followed_it() {
        let reasoning = r#"{"type":"reasoning","id":"r","summary":[]}"#;
        let items = |items: &[&str]| format!(r#"{{"input":[{}]}}"#, items.join(","));
        let other = r#"{"role":"assistant","content":"b"}"#;
        let sent = items(&[USER, reasoning, SAID, other]);
        let check = |now: &[&str], expect: &[&str]| {
            let found = check_against(Format::OpenaiResponses, &sent, &items(now), &ProviderRules::default());
            assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), expect);
        };
        check(&[reasoning, SAID], &[]);
        check(
            &[USER, reasoning, other],
            &["message 1: the reasoning is followed by something else than before"],
        );
    }
}

mod shapes {
    use epitome_wire::legality::{LEGALITY_RULES, RuleRemedy, inspect};
    use serde_json::{Value, json};

    use super::*;

    /// A request that every rule holds for.
    fn legal(format: Format) -> Value {
        match format {
            Format::OpenaiChat => json!({ "messages": [
                { "role": "user", "content": [{ "type": "text", "text": "u" }, { "type": "vendor", "x": 1 }] },
                { "role": "assistant", "content": null, "vendor": 1, "tool_calls": [
                    { "id": "a", "type": "function", "function": { "name": "t", "arguments": "{}" } }] },
                { "role": "tool", "tool_call_id": "a", "content": "r" }] }),
            Format::OpenaiResponses => json!({ "input": [
                { "role": "user", "content": [{ "type": "input_text", "text": "u" }] },
                { "type": "function_call", "call_id": "a", "name": "t", "arguments": "{}" },
                { "type": "function_call_output", "call_id": "a", "output": "r" },
                { "type": "vendor_item", "anything": { "x": 1 } }] }),
            Format::Anthropic => json!({ "messages": [
                { "role": "user", "content": [{ "type": "text", "text": "u" }, { "type": "vendor", "x": 1 }] },
                { "role": "assistant", "content": [{ "type": "tool_use", "id": "a", "name": "t", "input": {} }] },
                { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "a", "content": "r" }] }] }),
            Format::Gemini => unreachable!("it is tried in tests of its own"),
        }
    }

    /// The request with the value at a place changed, or taken away, breaks a rule there.
    #[track_caller]
    fn check(format: Format, at: &str, value: Option<Value>, place: &str, rule: &str) {
        let mut request = legal(format);
        let (parent, key) = at.rsplit_once('/').unwrap();
        let parent = request.pointer_mut(parent).unwrap();
        match (value, parent) {
            (Some(value), Value::Array(elements)) => elements[key.parse::<usize>().unwrap()] = value,
            (Some(value), parent) => parent[key] = value,
            (None, parent) => drop(parent.as_object_mut().unwrap().remove(key)),
        }
        let found = inspect(format, &request.to_string(), &ProviderRules::of(format));
        let found: Vec<(&str, &str)> =
            found.iter().map(|found| (&*found.place, found.breach.rule().id)).collect();
        assert!(found.contains(&(place, rule)), "{format} {at}: {found:?}");
        let rule = LEGALITY_RULES.iter().find(|known| known.id == rule).unwrap();
        assert!(rule.formats.contains(&format), "{format} {rule:?}");
    }

    #[test]
    fn every_shape_that_a_provider_refuses_is_named_with_its_place() {
        use Format::{Anthropic, OpenaiChat, OpenaiResponses};
        for format in crate::SCRIPTED {
            assert_eq!(inspect(format, &legal(format).to_string(), &ProviderRules::of(format)), []);
            let key = if format == OpenaiResponses { "input" } else { "messages" };
            let first = format!("/{key}/0");
            check(format, &format!("/{key}"), Some(json!({ "a": 1 })), &format!("/{key}"), "history-is-list");
            check(format, &first, Some(json!("u")), &first, "message-is-object");
            let role = format!("{first}/role");
            check(format, &role, Some(json!("narrator")), &role, "role-known");
            check(format, &role, Some(json!(7)), &role, "role-known");
            let missing = if format == OpenaiResponses { "item-has-type" } else { "role-present" };
            check(format, &role, None, &first, missing);
            let content = format!("{first}/content");
            check(format, &content, Some(json!(7)), &content, "content-type");
            check(format, &content, Some(json!({ "text": "u" })), &content, "content-type");
            let part = format!("{content}/0");
            check(format, &part, Some(json!("u")), &part, "message-is-object");
            check(format, &format!("{part}/type"), None, &part, "part-has-type");
            let text = format!("{part}/text");
            check(format, &text, Some(json!(["u"])), &text, "text-is-string");
        }
        let call = "/messages/1/tool_calls/0";
        check(OpenaiChat, "/messages/0/content", Some(json!(null)), "/messages/0", "content-not-null");
        check(
            OpenaiChat,
            "/messages/1/tool_calls",
            Some(json!("t")),
            "/messages/1/tool_calls",
            "calls-are-list",
        );
        check(OpenaiChat, &format!("{call}/id"), None, call, "call-has-id");
        check(OpenaiChat, &format!("{call}/function/name"), None, call, "call-has-name");
        let arguments = format!("{call}/function/arguments");
        check(OpenaiChat, &arguments, Some(json!({})), &arguments, "arguments-are-text");
        check(OpenaiResponses, "/input/0/content", None, "/input/0", "content-present");
        check(OpenaiResponses, "/input/1/call_id", None, "/input/1", "call-has-id");
        check(OpenaiResponses, "/input/1/name", None, "/input/1", "call-has-name");
        check(
            OpenaiResponses,
            "/input/1/arguments",
            Some(json!({})),
            "/input/1/arguments",
            "arguments-are-text",
        );
        check(OpenaiResponses, "/input/2/output", Some(json!({})), "/input/2/output", "content-type");
        let call = "/messages/1/content/0";
        check(Anthropic, &format!("{call}/id"), None, call, "call-has-id");
        check(Anthropic, &format!("{call}/name"), None, call, "call-has-name");
        check(
            Anthropic,
            &format!("{call}/input"),
            Some(json!("x")),
            &format!("{call}/input"),
            "input-is-object",
        );
    }

    #[test]
    fn rules_have_names_of_their_own() {
        for (index, rule) in LEGALITY_RULES.iter().enumerate() {
            assert!(LEGALITY_RULES[..index].iter().all(|other| other.id != rule.id), "{}", rule.id);
            assert!(rule.sentence.ends_with('.') && !rule.formats.is_empty(), "{}", rule.id);
        }
        assert!(LEGALITY_RULES.iter().any(|rule| rule.remedy == RuleRemedy::Named));
    }

    #[test]
    fn what_real_clients_send_has_no_shape_that_only_they_could_mend() {
        for (format, body) in [
            (Format::Anthropic, include_str!("../fixtures/anthropic/claude-code.json")),
            (Format::Anthropic, include_str!("../fixtures/anthropic/blocks.json")),
            (Format::OpenaiChat, include_str!("../fixtures/openai-chat/messages.json")),
            (Format::OpenaiChat, include_str!("../fixtures/openai-chat/reasoning.json")),
            (Format::OpenaiResponses, include_str!("../fixtures/openai-responses/codex.json")),
            (Format::OpenaiResponses, include_str!("../fixtures/openai-responses/items.json")),
        ] {
            let found = inspect(format, body, &ProviderRules::of(format));
            let named = found.iter().filter(|found| found.breach.rule().remedy == RuleRemedy::Named);
            let named: Vec<String> = named.map(|found| format!("{} {}", found.place, found.breach)).collect();
            assert!(named.is_empty(), "{format}: {named:?}");
        }
    }
}
