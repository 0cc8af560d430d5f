//! Functions of sessions that a configuration file switches on: hooks, memory files, a focus, a careful summariser, and
//! summaries while nobody asks.

use std::{fs, sync::Arc};

use epitome::wire::Format;
use serde_json::{Value, json};

use super::{
    super::harness::Bench,
    agent::{Agent, WINDOW, Watchful},
    http::Message,
    played::{Gateway, eventually, ok, post},
    recorded::Recorded,
};

/// Notes of a model, in the agent's words.
const NOTES: &str = "## Key Decisions\n- I look at every part because one of them is broken.\n";

fn notes(question: &Message) -> Vec<Vec<u8>> {
    let body: Value = serde_json::from_slice(&question.body).expect("JSON");
    let message = json!({ "role": "assistant", "content": NOTES });
    let body = json!({ "model": body["model"],
        "choices": [{ "index": 0, "message": message, "finish_reason": "stop" }] });
    vec![ok("Content-Type: application/json\r\n", &body.to_string()).into_bytes()]
}

fn gateway(bench: &Arc<Bench>, provider: &Watchful, flags: &[&str], file: &str) -> Gateway {
    let window = WINDOW.to_string();
    let flags = [&["--mode", "compact", "--window", &window], flags].concat();
    Gateway::on(bench, &provider.url(), &flags, file)
}

fn agents() -> [Agent; 2] {
    [
        Agent::chat("Authorization: Bearer sk-of-anna\r\n"),
        Agent::anthropic("x-api-key: sk-of-anna\r\nanthropic-version: 2023-06-01\r\n"),
    ]
}

#[test]
fn hooks_add_beside_the_message_of_a_user_and_are_sent_again_in_their_place() {
    for mut agent in agents() {
        let (bench, provider) = (Arc::new(Bench::new()), Watchful::new(|_| Vec::new()));
        bench.write("state.md", "The branch is called main-17.");
        let file = "[[compact.hook]]\nname = 'manners'\nreserve = 100\ntext = 'Be kind to every part.'\n\
                    [[compact.hook]]\nname = 'state'\nreserve = 100\nfile = 'state.md'\n";
        let gateway = gateway(&bench, &provider, &[], file);
        for _ in 0..5 {
            let fate = agent.goes_on(&gateway);
            assert_eq!(fate.left, "composed", "{fate:?}");
        }
        bench.write("state.md", "The branch is called other-18.");
        agent.goes_on(&gateway);
        provider.saw(|seen| {
            for request in &seen.requests {
                let text = request.text();
                for words in ["Be kind to every part.", "The branch is called main-17."] {
                    assert_eq!(text.matches(words).count(), 1, "{words}: {text}");
                }
                assert!(!text.contains("other-18"), "it was asked once for the message: {text}");
            }
        });
        let says = |agent: &mut Agent, text: &str| {
            agent.history.push(match agent.format {
                Format::Anthropic => json!({ "role": "user", "content": [{ "type": "text", "text": text }] }),
                _ => json!({ "role": "user", "content": text }),
            });
        };
        // What was sent stays as it was.
        says(&mut agent, "And what of the tests?");
        let fate = agent.goes_on(&gateway);
        assert_eq!((fate.left.as_str(), &fate.cause), ("composed", &None), "{fate:?}");
        provider.saw(|seen| {
            let newest = seen.requests.last().expect("a request").text();
            assert_eq!(newest.matches("Be kind to every part.").count(), 2, "{newest}");
        });
        agent.until_compacted(&gateway);
        // So does a gateway that starts anew go on.
        drop(gateway);
        let gateway = self::gateway(&bench, &provider, &[], file);
        bench.write("state.md", "The branch is called third-19.");
        says(&mut agent, "And what of the other branch?");
        agent.goes_on(&gateway);
        provider.saw(|seen| {
            let newest = seen.requests.last().expect("a request").text();
            assert!(newest.contains("third-19") && newest.contains("Be kind"), "{newest}");
        });
        let recorded = Recorded::on(&gateway.bench);
        recorded.check_health();
    }
}

#[test]
fn memory_files_are_written_for_each_session_and_named_in_its_requests() {
    for mut agent in agents() {
        let (bench, provider) = (Arc::new(Bench::new()), Watchful::new(|_| Vec::new()));
        let gateway = gateway(&bench, &provider, &[], "[compact]\nmemory_files = 'notes'\n");
        agent.until_compacted(&gateway);
        let after = agent.goes_on(&gateway);
        assert_eq!((after.left.as_str(), &after.cause), ("composed", &None), "{after:?}");
        let folder = fs::read_dir(bench.path("notes"))
            .expect("a folder")
            .next()
            .expect("a session")
            .expect("a folder");
        let status = folder.path().join("status.md");
        assert!(fs::read_to_string(&status).expect("a file").starts_with("# Status"));
        provider.saw(|seen| {
            let newest = seen.requests.last().expect("a request").text();
            assert_eq!(newest.matches(status.to_str().expect("a path")).count(), 1, "{newest}");
        });
        agent.until_compacted(&gateway);
        Recorded::on(&gateway.bench).check_health();
    }
}

#[test]
fn users_are_served_by_the_careful_summariser_and_all_summaries_have_the_focus() {
    let provider = Watchful::new(|_| Vec::new());
    let (small, large) = (Watchful::new(notes), Watchful::new(notes));
    let file = format!(
        "[compact]\ncommand = '/compact'\nfocus = 'the seventh part'\nnotes = ['The branch is main-17.']\n\
         [compact.summariser]\nmodel = 'small'\nurl = '{}'\n\
         [compact.careful_summariser]\nmodel = 'large'\nurl = '{}'\n",
        small.url(),
        large.url(),
    );
    let bench = Arc::new(Bench::new());
    let gateway = gateway(&bench, &provider, &[], &file);
    let [mut agent, _] = agents();
    let recorded = Recorded::on(&gateway.bench);
    while recorded.orders() == 0 {
        agent.goes_on(&gateway);
    }
    eventually("the small one is asked", || small.saw(|seen| !seen.questions.is_empty()));
    small.saw(|seen| {
        let text = seen.questions[0].text();
        assert!(text.contains("the seventh part") && text.contains("main-17"), "{text}");
    });
    agent.until_compacted(&gateway);
    for _ in 0..4 {
        agent.goes_on(&gateway);
    }
    agent.history.push(json!({ "role": "user", "content": "/compact the parser" }));
    let said = gateway.ask(&post(&agent.path, &agent.headers, &agent.body())).text();
    assert!(said.contains("A summary is being written"), "{said}");
    eventually("the large one is asked", || large.saw(|seen| !seen.questions.is_empty()));
    large.saw(|seen| assert!(seen.questions[0].text().contains("the parser")));
}

#[test]
fn a_pause_is_used_for_a_summary_if_the_file_says_so() {
    let provider = Watchful::new(|_| Vec::new());
    let small = Watchful::new(notes);
    let bench = Arc::new(Bench::new());
    let policy = bench.write("early.toml", "base = 'epitome'\nlimits = { cold = 0.3, target = 0.3 }\n");
    let file = format!(
        "policy = '{}'\n[compact]\nidle = '2s'\n[compact.summariser]\nmodel = 'small'\nurl = '{}'\n",
        policy.display(),
        small.url(),
    );
    let gateway = gateway(&bench, &provider, &[], &file);
    let [mut agent, _] = agents();
    while agent.goes_on(&gateway).after < 6_000 {}
    assert!(small.saw(|seen| seen.questions.is_empty()), "nothing demands a summary yet");
    eventually("it is asked in the pause", || small.saw(|seen| !seen.questions.is_empty()));
}
