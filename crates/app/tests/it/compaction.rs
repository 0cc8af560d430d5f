//! The commands of compaction: a turn, its undoing, jobs, pins, handles, and the proof of what was sent.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    sync::{Arc, Mutex},
    thread,
};

use epitome::{
    core::event::Timestamp,
    session::Session,
    store::{StoreLocation, StoreOptions, open_store},
    wire::Format,
};
use serde_json::{Value, json};

use super::harness::{Bench, text};

/// A model that answers as it was told to, each request with the next answer, the last one for ever.
struct Scripted {
    address: String,
    /// What it was asked, headers and all.
    asked: Arc<Mutex<Vec<String>>>,
}

impl Scripted {
    fn new(answers: Vec<(u16, String)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = format!("http://{}/v1", listener.local_addr().expect("an address"));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&asked);
        // It is left behind when the test ends: nobody asks it then.
        thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let mut stream = BufReader::new(stream.expect("a connection"));
                let (mut request, mut length) = (String::new(), 0);
                while stream.read_line(&mut request).expect("a line") > 2 {
                    let line = request.lines().last().unwrap_or_default().to_ascii_lowercase();
                    if let Some(given) = line.strip_prefix("content-length:") {
                        length = given.trim().parse().expect("a number");
                    }
                }
                let mut body = vec![0; length];
                stream.read_exact(&mut body).expect("a body");
                request.push_str(&String::from_utf8(body).expect("UTF-8"));
                heard.lock().expect("nobody panicked").push(request);
                let (status, body) = &answers[number.min(answers.len() - 1)];
                let headers = format!(
                    "HTTP/1.1 {status} So\r\ncontent-type: application/json\r\nconnection: close\r\n"
                );
                let answer = format!("{headers}content-length: {}\r\n\r\n{body}", body.len());
                stream.get_mut().write_all(answer.as_bytes()).expect("somebody listens");
            }
        });
        Self { address, asked }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("nobody panicked").clone()
    }
}

fn said(text: &str) -> (u16, String) {
    let message = json!({"role": "assistant", "content": text});
    let choice = json!({"index": 0, "finish_reason": "stop", "message": message});
    (200, json!({"id": "a", "model": "small", "choices": [choice]}).to_string())
}

const DRAFT: &str = "## Session Intent\n- Plan a workshop with a bench.\n\n## Current Task\n- Choosing wood.\n\n\
                     ## Key Decisions\n- I chose ash for the bench because it is tough.\n\n## Next Steps\n- Buy ash.\n";

/// Twelve questions about wood, with enough words that a summary saves some.
pub(crate) fn talk() -> String {
    talk_of(12)
}

/// The same, with so many sentences in each question.
fn talk_of(sentences: usize) -> String {
    let mut messages = vec![json!({"role": "system", "content": "Be brief."})];
    for turn in 1..=12 {
        let words = "It is for a bench in the workshop, and it must not warp. ".repeat(sentences);
        messages.push(json!({"role": "user", "content": format!("Question {turn}: which wood? {words}")}));
        messages.push(json!({"role": "assistant", "content": format!("Answer {turn}: ash, for the bench. I chose ash for the bench because it is tough.")}));
    }
    json!(messages).to_string()
}

fn events(bench: &Bench, session: &str) -> usize {
    bench.ok(&["export", session, "--format", "jsonl"]).lines().count()
}

/// What the model sees now, as a request.
fn seen(bench: &Bench, session: &str) -> String {
    bench.ok(&["compact", session, "--budget", "100k"])
}

#[test]
fn a_session_is_compacted_undone_and_redone_and_its_log_only_grows() {
    let bench = Bench::new();
    let session = bench.session("talk.json", &talk());
    let before = seen(&bench, &session);
    let said = bench.fails(&["compact", &session, "--keep-turns", "100"]);
    assert!(said.contains("nothing to compact") && said.contains("--keep-turns N"), "{said}");
    let count = events(&bench, &session);

    let turn = &bench.json(&["compact", &session, "--keep-turns", "2"])[0];
    assert_eq!(
        (&turn["by"], &turn["trigger"], &turn["first_kept"]),
        (&json!("built-in"), &json!("manual"), &json!(22))
    );
    assert!(turn["tokens_after"].as_u64() < turn["tokens_before"].as_u64(), "{turn}");
    assert!(turn["summary"].as_str().is_some_and(|summary| summary.contains("## What Happened")), "{turn}");
    let compacted = seen(&bench, &session);
    assert!(compacted.len() < before.len() && compacted.contains("Answer 12:"), "{compacted}");

    let undone = &bench.json(&["undo", &session])[0];
    assert_eq!((&undone["compaction"], &undone["state"]), (&turn["compaction"], &json!("undone")));
    assert_eq!(seen(&bench, &session), before);
    assert_eq!(bench.json(&["redo", &session])[0]["state"], "in_force");
    assert_eq!(seen(&bench, &session), compacted);
    assert!(bench.fails(&["redo", &session]).contains("nothing to redo"));
    bench.ok(&["undo", &session]);
    assert!(bench.fails(&["undo", &session]).contains("nothing to undo"));
    // The marker, the compaction, undone, redone, undone.
    assert_eq!(events(&bench, &session), count + 5);
    assert_eq!(bench.json(&["doctor"])[0]["healthy"], true);
}

#[test]
fn a_budget_or_a_place_to_write_asks_for_a_request_and_leaves_the_log_alone() {
    let bench = Bench::new();
    let session = bench.session("talk.json", &talk());
    let count = events(&bench, &session);
    let out = bench.path("out.json");
    for args in [
        vec!["--budget", "100k"],
        vec!["--budget", "100k", "--out", text(&out)],
        vec!["--budget", "1k", "--format", "anthropic"],
    ] {
        bench.ok(&[&["compact", session.as_str()], args.as_slice()].concat());
    }
    assert_eq!(events(&bench, &session), count);
    for (args, expect) in [
        (
            vec![session.as_str(), "--budget", "9k", "--keep-turns", "2"],
            "--budget asks for a request and --keep-turns",
        ),
        (vec![session.as_str(), "--focus", " … "], "there is no word in it"),
        (
            vec![text(&bench.path("talk.json")), "--budget", "1k", "--policy", "fit", "--focus", "wood"],
            "the policy fit makes none",
        ),
        (
            vec![session.as_str(), "--out", text(&out), "--background"],
            "--out asks for a request and --background",
        ),
        (vec![text(&bench.path("talk.json")), "--keep-turns", "2"], "a file has no log"),
        (vec![text(&bench.path("none.json")), "--keep-turns", "2"], "there is no file"),
        (vec!["tolk", "--keep-turns", "2"], "no session is called `tolk`"),
        (vec![session.as_str(), "--keep-turns", "0"], "--keep-turns"),
        (vec![session.as_str(), "--keep-tokens", "5%"], "an amount of tokens"),
        (vec![session.as_str(), "--keep-turns", "2", "--thread", "x"], "there is no thread `x`"),
        (vec![session.as_str(), "--keep-turns", "2", "--model", "gpt-5.11"], "gpt-5.1"),
        (vec![session.as_str(), "--summariser", "http://127.0.0.1:1/v1"], "--summariser-model"),
        (vec![session.as_str(), "--summariser", "nowhere", "--summariser-model", "m"], "its address"),
        (vec![session.as_str(), "--key-env", "HOME"], "--summariser"),
    ] {
        let said = bench.fails(&[&["compact"], args.as_slice()].concat());
        assert!(said.contains(expect), "{args:?}: {said}");
    }
    assert_eq!(events(&bench, &session), count);
}

/// Thirty questions with long answers, of which the second is about varnish.
fn talk_with_varnish() -> String {
    let mut messages = vec![json!({"role": "system", "content": "Be brief."})];
    for turn in 1..=30 {
        let wood = if turn == 2 { "varnish" } else { "wood" };
        let fact = |at: u64| format!("{wood} fact {turn}-{at}. ");
        let words = (0..60).map(fact).collect::<Vec<_>>().concat();
        messages.push(json!({"role": "user", "content": format!("Question {turn}: which {wood}?")}));
        messages.push(json!({"role": "assistant", "content": format!("Answer {turn}. {words}")}));
    }
    json!(messages).to_string()
}

#[test]
fn a_focus_has_what_speaks_of_it_told_without_a_model() {
    let bench = Bench::new();
    let session = bench.session("talk.json", &talk_with_varnish());
    let compact = ["compact", session.as_str(), "--keep-turns", "1", "--model", "gpt-5.1"];
    let plain = bench.json(&compact).remove(0);
    bench.ok(&["undo", &session]);
    let focused = bench.json(&[&compact[..], &["--focus", "the varnish"]].concat()).remove(0);
    assert_eq!((&focused["focus"], &focused["focus_applied"]), (&json!("the varnish"), &json!(true)));
    assert_eq!((&plain["focus"], &plain["focus_applied"]), (&Value::Null, &Value::Null));
    let told = |turn: &Value| turn["summary"].as_str().unwrap().matches("varnish fact").count();
    assert!(told(&focused) == 60 && told(&plain) < 40, "{} and {}", told(&focused), told(&plain));
    // From then on it stays as it was written.
    let seen_after = seen(&bench, &session);
    assert_eq!(seen(&bench, &session), seen_after);
    bench.ok(&["undo", &session]);
    let said = bench.ok(&[&compact[..], &["--focus", "varnish"]].concat());
    assert!(said.contains("focus “varnish”: what speaks of it was given room before the rest"), "{said}");
    bench.ok(&["undo", &session]);
    let said = bench.ok(&[&compact[..], &["--focus", "submarines"]].concat());
    assert!(said.contains("nothing that was summarised speaks of it"), "{said}");
}

#[test]
fn a_file_takes_a_focus_too() {
    let bench = Bench::new();
    let file = bench.write("talk.json", talk_with_varnish());
    let args = ["compact", text(&file), "--budget", "3k"];
    let told = |request: &str| request.matches("varnish fact").count();
    let (plain, focused) = (bench.ok(&args), bench.ok(&[&args[..], &["--focus", "varnish"]].concat()));
    assert!(told(&focused) > told(&plain) + 10, "{} and {}", told(&focused), told(&plain));
    let report = &bench.json(&[&args[..], &["--focus", "varnish"]].concat())[0];
    assert_eq!((&report["focus"], &report["focus_applied"]), (&json!("varnish"), &json!(true)));
}

#[test]
fn a_model_writes_the_summary_with_a_key_that_nothing_shows() {
    let bench = Bench::new();
    let session = bench.session("talk.json", &talk());
    let server = Scripted::new(vec![said(DRAFT)]);
    let key = "sk-canary-0123456789";
    let file = bench.write("key", key);
    let args = ["compact", &session, "--keep-turns", "2", "--focus", "the bench", "--json"];
    let who = ["--summariser", &server.address, "--summariser-model", "small"];
    let mut shown = String::new();
    for from in [["--key-env", "EPITOME_TEST_KEY"], ["--key-file", text(&file)]] {
        let output = bench.command().args(args).args(who).args(from).env("EPITOME_TEST_KEY", key).output();
        let output = output.expect("the binary runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let stdout = String::from_utf8(output.stdout).expect("UTF-8");
        let turn: Value = serde_json::from_str(&stdout).expect("JSON");
        assert_eq!(turn["by"], format!("small at {}", server.address[7..].trim_end_matches("/v1")));
        let summary = turn["summary"].as_str().expect("a summary");
        assert!(
            summary.contains("## Key Decisions\n- I chose ash for the bench because it is tough."),
            "{summary}"
        );
        shown.push_str(&stdout);
        shown.push_str(&String::from_utf8_lossy(&output.stderr));
        bench.ok(&["undo", &session]);
    }
    for asked in server.asked() {
        assert!(asked.contains(&format!("Bearer {key}")), "the key is sent");
        assert!(asked.contains("the bench") && !asked.contains("\"tools\""), "{asked}");
    }
    assert_eq!(server.asked().len(), 2);
    assert!(shown.contains("small at") && !shown.contains("canary"), "{shown}");
    for name in ["log.db", "log.db-wal"] {
        let bytes = fs::read(bench.path(name)).unwrap_or_default();
        assert!(!bytes.windows(6).any(|piece| piece == b"canary"), "the key is in {name}");
    }
    // Whoever gives the key for its name does not find it in the error either.
    let wrong = [&args[..], &who, &["--key-env", key]].concat();
    let said = bench.fails(&wrong);
    assert!(said.contains("--key-env names no variable") && !said.contains("canary"), "{said}");
}

#[test]
fn a_job_is_queued_and_worked_off_though_its_summariser_fails_at_first() {
    let bench = Bench::new();
    let session = bench.session("talk.json", &talk());
    assert!(bench.ok(&["jobs"]).contains("No jobs"));
    assert!(bench.ok(&["jobs", "--work"]).contains("Nothing to do"));
    let said_first =
        bench.ok(&["compact", &session, "--keep-turns", "2", "--background", "--focus", "the bench"]);
    assert!(
        said_first.contains("is queued") && said_first.contains(&format!("epitome jobs {session} --work")),
        "{said_first}"
    );
    let again = &bench.json(&["compact", &session, "--background"])[0];
    let job = &bench.json(&["jobs", &session])[0];
    assert_eq!(
        (&again["id"], &job["state"], &job["focus"]),
        (&job["id"], &json!("queued"), &json!("the bench"))
    );
    assert_eq!((&job["first"], &job["through"], &job["attempts"]), (&json!(2), &json!(21), &json!(0)));

    let server =
        Scripted::new(vec![(401, r#"{"error":{"message":"who are you?"}}"#.to_owned()), said(DRAFT)]);
    let run = bench.run(&["jobs", "--work", "--summariser", &server.address, "--summariser-model", "small"]);
    assert!(run.success && run.stdout.contains("is ready"), "{}{}", run.stdout, run.stderr);
    assert!(
        run.stderr.contains("who are you?") && run.stderr.contains("it is tried again"),
        "{}",
        run.stderr
    );
    let job = &bench.json(&["jobs"])[0];
    assert_eq!((&job["state"], &job["attempts"]), (&json!("ready"), &json!(2)));
    assert!(seen(&bench, &session).contains("Answer 3:"), "what is ready is not yet in force");

    let turn = &bench.json(&["compact", &session])[0];
    assert!(
        turn["summary"].as_str().is_some_and(|summary| summary.contains("- I chose ash for the bench")),
        "{turn}"
    );
    let job = &bench.json(&["jobs"])[0];
    assert_eq!((&job["state"], &job["compaction"]), (&json!("adopted"), &turn["compaction"]));
    let id = job["id"].as_str().expect("an id");
    assert!(bench.fails(&["jobs", "cancel", id]).contains("epitome undo"));
    assert!(bench.ok(&["jobs"]).contains("adopted at event"));
}

#[test]
fn a_job_is_cancelled_and_can_be_asked_for_again() {
    let bench = Bench::new();
    let session = bench.session("talk.json", &talk());
    let queue = ["compact", session.as_str(), "--keep-turns", "2", "--background"];
    let job = bench.json(&queue)[0]["id"].as_str().expect("an id").to_owned();
    assert!(bench.fails(&["jobs", "cancel", "ffffffff"]).contains("there is no job"));
    assert_eq!(bench.json(&["jobs", "cancel", &job[job.len() - 8..]])[0]["state"], "cancelled");
    assert!(bench.fails(&["jobs", "cancel", &job]).contains("it was cancelled before"));
    assert!(bench.ok(&["jobs", "--work"]).contains("Nothing to do"));
    assert_ne!(bench.json(&queue)[0]["id"], job.as_str());
    assert_eq!(bench.json(&["jobs", &session, "--work"])[0]["state"], "ready");
    assert!(bench.fails(&["jobs", "--summariser", "http://x", "--summariser-model", "m"]).contains("--work"));
}

#[test]
fn a_job_of_a_worker_that_died_is_finished_and_one_of_a_worker_that_lives_is_left_to_it() {
    let bench = Bench::new();
    let session = bench.session("talk.json", &talk());
    bench.ok(&["compact", &session, "--keep-turns", "2", "--background"]);
    let store =
        open_store(&StoreLocation::named(bench.path("log.db")).expect("a path"), StoreOptions::default())
            .expect("a database");
    let claim = |from: i64, until: i64| {
        store.claim_job("dead", Timestamp(from), Timestamp(until), None).expect("a store")
    };
    let far = i64::from(u32::MAX) * 1_000;
    assert!(claim(far - 2, far).is_some());
    let said = bench.ok(&["jobs", "--work"]);
    assert!(said.contains("in the hands of another process"), "{said}");
    // Its time is over, as far as this one knows, and the next takes it for a moment that is past.
    assert!(claim(far + 1, 1).is_some());
    assert!(bench.ok(&["jobs"]).contains("left unfinished"));
    assert_eq!(bench.json(&["jobs", "--work"])[0]["state"], "ready");
    let turn = &bench.json(&["compact", &session])[0];
    let chain = bench.json(&["history", &session]);
    let compactions = chain.iter().filter(|turn| turn["type"] == "compaction").count();
    assert_eq!((compactions, &turn["first_kept"]), (1, &json!(22)));
}

#[test]
fn a_handle_brings_back_what_a_summary_stands_for_from_any_session() {
    let bench = Bench::new();
    let session = bench.session("talk.json", &talk());
    bench.session("other.json", r#"[{"role":"user","content":"hello"},{"role":"assistant","content":"hi"}]"#);
    let turn = &bench.json(&["compact", &session, "--keep-turns", "2"])[0];
    let summary = turn["summary"].as_str().expect("a summary");
    // No model of this session has a tool to ask for it; people do.
    assert!(summary.starts_with("This message stands for") && !summary.contains("recall"), "{summary}");
    let said = bench.ok(&["why", &session, "Answer 1: ash"]);
    let (thread, _) = said.split("recall ").nth(1).and_then(|said| said.split_once(':')).expect("a handle");
    let handle = &format!("{thread}:2-21");
    let recalled = bench.json(&["recall", handle]);
    assert_eq!(recalled.len(), 20);
    assert_eq!(
        recalled[1]["fact"]["parts"][0]["text"],
        "Answer 1: ash, for the bench. I chose ash for the bench because it is tough."
    );
    let thread = handle.split(':').next().expect("a thread");
    let said = bench.ok(&["recall", &format!("recall {thread}:3")]);
    assert!(said.contains("Answer 1: ash") && !said.contains("Answer 2"), "{said}");
    assert_eq!(bench.ok(&["recall", "recall", &format!("{thread}:3")]), said);
    // A fork shows the same events under its own name.
    let fork = &bench.json(&["fork", &session, "--at", "4"])[0];
    let fork = fork["thread"].as_str().expect("a thread");
    assert_eq!(
        bench.json(&["recall", &format!("{}:3", &fork[fork.len() - 8..])])[0]["id"],
        recalled[1]["id"]
    );
    for (wrong, expect) in [
        ("x", "is no handle"),
        ("ffffffff:3", "leads nowhere"),
        (&format!("{thread}:9999"), "leads to nothing"),
        (&format!("{thread}:18446744073709551615"), "leads to nothing"),
        (&format!("{thread}:0"), "leads to nothing"),
        (&format!("{thread}:9-3"), "leads to nothing"),
        (&format!("{thread}:three"), "leads to nothing"),
        ("", "is no handle"),
    ] {
        let said = bench.fails(&["recall", wrong]);
        assert!(said.contains(expect), "{wrong}: {said}");
    }
}

#[test]
fn pins_are_kept_word_for_word_by_the_next_summary_and_can_be_taken_away() {
    let bench = Bench::new();
    let session = bench.session("talk.json", &talk());
    let rule = "Never buy from Mr. O'Hara — 12 % too dear.";
    assert!(bench.ok(&["pins", &session]).contains("Nothing is pinned"));
    assert_eq!(bench.json(&["pin", &session, rule])[0]["done"], "pinned");
    assert_eq!(bench.json(&["pin", &session, rule])[0]["done"], "unchanged");
    let thread = bench.json(&["sessions"])[0]["head"].as_str().expect("a thread").to_owned();
    bench.ok(&["pin", &session, "--event", &format!("{}:3", &thread[thread.len() - 8..])]);
    let pins = bench.json(&["pins", &session]);
    assert_eq!(pins, [json!({"pin": {"text": rule}}), json!({"pin": {"event": 3}})]);
    let turn = &bench.json(&["compact", &session, "--keep-turns", "2"])[0];
    assert!(turn["summary"].as_str().is_some_and(|summary| summary.contains(rule)), "{turn}");
    assert_eq!(bench.json(&["unpin", &session, "--event", "3"])[0]["done"], "unpinned");
    for (args, expect) in [
        (vec!["pin", &session], "--event"),
        (vec!["pin", &session, ""], "the text is empty"),
        (vec!["pin", &session, "x", "--event", "3"], "cannot be used with"),
        (vec!["pin", &session, "--event", "9999"], "the session ends with event"),
        (vec!["pin", &session, "--event", "ffffffff:3"], "leads to nothing"),
        (vec!["pin", &session, "--event", "three"], "is no event"),
        (vec!["unpin", &session, "something else"], "is not pinned"),
        (vec!["unpin", &session, "--event", "3"], "is not pinned"),
    ] {
        let said = bench.fails(&args);
        assert!(said.contains(expect), "{args:?}: {said}");
    }
    let long = "x".repeat(501);
    assert!(bench.fails(&["pin", &session, &long]).contains("a pin may have 500"));
    assert_eq!(bench.json(&["pins", &session]).len(), 1);
}

#[test]
fn a_fork_begins_with_a_summary_or_in_full() {
    let bench = Bench::new();
    let session = bench.session("talk.json", &talk());
    bench.ok(&["compact", &session, "--keep-turns", "2"]);
    let fork = |at: &str, mode: &[&str]| {
        let made = bench.json(&[&["fork", session.as_str(), "--at", at], mode].concat());
        let id = made[0]["session"].as_str().expect("a session").to_owned();
        (made[0]["appended"].as_u64().expect("a number"), seen(&bench, &id))
    };
    let (_, whole) = fork("9", &["--full"]);
    assert!(whole.contains("Answer 9:") && whole.contains("Answer 1:"), "{whole}");
    // The compaction is turn 13.
    let (appended, shown) = fork("13", &["--full"]);
    assert!(appended == 1 && shown.contains("Answer 1:") && shown.contains("Answer 12:"), "{shown}");
    for mode in [&[][..], &["--with-summary"]] {
        let (appended, shown) = fork("13", mode);
        assert!(appended == 0 || !mode.is_empty(), "{mode:?}: it stands on the summary that is there");
        assert!(shown.contains("## What Happened") && shown.contains("Answer 12:"), "{shown}");
        // What is kept is as much as there is room for: of so few words, nearly all.
        let (appended, shown) = fork("9", mode);
        assert!(
            appended == 1 && shown.starts_with("{\"messages\":") && shown.contains("This message stands for"),
            "{shown}"
        );
        assert!(
            shown.len() < whole.len() && (2..=9).all(|turn| shown.contains(&format!("Answer {turn}:"))),
            "{shown}"
        );
    }
    assert!(
        bench.fails(&["fork", &session, "--at", "9", "--full", "--with-summary"]).contains("cannot be used")
    );
}

#[test]
fn a_fork_begins_with_a_summary_at_any_turn_if_it_is_told_to() {
    let bench = Bench::new();
    let session = bench.session("talk.json", &talk());
    for at in ["4", "8", "12"] {
        let fork = |mode: &[&str]| {
            let made = bench.json(&[&["fork", session.as_str(), "--at", at], mode].concat());
            let id = made[0]["session"].as_str().expect("a session").to_owned();
            (made[0]["appended"].as_u64().expect("a number"), seen(&bench, &id))
        };
        let (appended, whole) = fork(&[]);
        assert!(appended == 0 && whole.contains("Answer 1:"), "nothing was compacted: {whole}");
        let (appended, shown) = fork(&["--with-summary"]);
        assert!(appended == 1 && shown.contains("This message stands for"), "turn {at}: {shown}");
        assert!(shown.len() < whole.len() && shown.contains(&format!("Answer {at}:")), "turn {at}: {shown}");
    }
}

#[test]
fn a_session_is_handed_over_with_a_goal() {
    let bench = Bench::new();
    let session = bench.session("talk.json", &talk());
    let count = events(&bench, &session);
    let new = &bench.json(&["handoff", &session, "Now draw the bench."])[0];
    assert_eq!((&new["of"], &new["summarised"]), (&json!(session), &json!(true)));
    let id = new["session"].as_str().expect("a session");
    let shown = seen(&bench, id);
    assert!(shown.contains("Now draw the bench.") && shown.contains("## What Happened"), "{shown}");
    assert_eq!(events(&bench, &session), count);
    assert!(bench.fails(&["handoff", &session, "  "]).contains("the goal is empty"));
    let said = bench.ok(&["handoff", "Now draw the bench.", "Then build it."]);
    assert!(said.contains("Then build it."), "{said}");
}

#[test]
fn a_model_writes_the_summary_of_a_handoff() {
    let bench = Bench::new();
    let session = bench.session("talk.json", &talk());
    let model = Scripted::new(vec![said(DRAFT)]);
    let new = &bench.json(&[
        "handoff",
        &session,
        "Now draw the bench.",
        "--summariser",
        &model.address,
        "--summariser-model",
        "small",
    ])[0];
    assert_eq!(new["summarised"], json!(true));
    assert!(model.asked().iter().any(|asked| asked.contains("Now draw the bench.")));
    let shown = seen(&bench, new["session"].as_str().expect("a session"));
    assert!(shown.contains("because it is tough"), "{shown}");
}

/// A session that the library ran, of so many calls.
fn played(bench: &Bench, calls: usize) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let builder = Session::builder(Format::OpenaiChat, "gpt-5.1").file(bench.path("log.db")).title("played");
        let session = builder.system("Be brief.").begin().await.expect("a session");
        for call in 0..calls {
            session.user(&format!("Question {call}.")).await.expect("a log");
            session.next_request().await.expect("a request");
            let answer = json!({"id": format!("a{call}"), "model": "gpt-5.1", "choices": [{"index": 0, "finish_reason": "stop",
                "message": {"role": "assistant", "content": format!("Answer {call}.")}}],
                "usage": {"prompt_tokens": 40, "completion_tokens": 4, "total_tokens": 44,
                    "prompt_tokens_details": {"cached_tokens": 30}}});
            session.answered(&answer.to_string()).await.expect("an answer");
        }
        session.user("One more.").await.expect("a log");
        session.next_request().await.expect("a request");
        session.failed("no connection").await.expect("a log");
        session.id().to_string()
    })
}

#[test]
fn every_call_is_listed_and_renders_to_the_bytes_that_were_sent() {
    let bench = Bench::new();
    let session = played(&bench, 3);
    let calls = bench.json(&["calls", &session]);
    let numbers: Vec<_> = calls.iter().map(|call| call["call"].as_u64().expect("a number")).collect();
    assert_eq!(numbers, [0, 1, 2, 3]);
    assert_eq!((&calls[1]["actual"], &calls[1]["usage"]["cache_read"]), (&json!(40), &json!(30)));
    assert!(calls[1]["cost"].as_f64().is_some_and(|cost| cost > 0.0) && calls[3]["cost"].is_null());
    assert_eq!(calls[3]["outcomes"][0]["error"], "no connection");
    assert_eq!(bench.json(&["calls", &session, "-n", "2"])[0]["call"], 2);
    let table = bench.ok(&["calls", &session]);
    assert!(
        table.contains("failed: no connection") && table.contains("75 % of them from the cache"),
        "{table}"
    );

    let body = bench.ok(&["replay-call", &session, "2", "--body"]);
    let request: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(request["messages"].as_array().map(Vec::len), Some(6));
    assert_eq!(body.trim_end().len() as u64, calls[2]["bytes"].as_u64().expect("bytes"));
    assert_eq!(bench.json(&["replay-call", &session, "2"])[0]["sent"], calls[2]["hash"]);
    assert!(bench.ok(&["replay-call", &session, "--all"]).contains("4 of 4 calls"));
    assert!(bench.fails(&["replay-call", &session, "4"]).contains("call"));
    assert!(bench.fails(&["replay-call", &session]).contains("<N>"));
    let imported = bench.session("talk.json", &talk());
    assert!(bench.ok(&["calls", &imported]).contains("from the transcript"));
    assert!(bench.fails(&["replay-call", &imported, "0"]).contains("no requests are recorded"));
}

#[test]
fn a_call_that_no_longer_comes_out_as_it_was_sent_is_found() {
    let bench = Bench::new();
    let session = played(&bench, 3);
    bench.ok(&["backup", text(&bench.path("copy.db"))]);
    let mut bytes = fs::read(bench.path("copy.db")).expect("readable");
    let (from, to) = (b"Question 1.", b"Question 7.");
    let places: Vec<usize> =
        (0..bytes.len() - from.len()).filter(|at| bytes[*at..].starts_with(from)).collect();
    assert!(!places.is_empty(), "the question is in the file");
    for place in places {
        bytes[place..place + to.len()].copy_from_slice(to);
    }
    bench.write("forged.db", bytes);
    let forged = bench.path("forged.db");
    let run = bench.run(&["replay-call", &session, "--all", "--json", "--db", text(&forged)]);
    let found: Value = serde_json::from_str(&run.stdout).expect("JSON");
    let wrong: Vec<_> =
        found["wrong"].as_array().expect("a list").iter().map(|wrong| wrong["call"].clone()).collect();
    assert!(!run.success && found["same"] == 1 && wrong == [json!(1), json!(2), json!(3)], "{found}");
    let said = bench.fails(&["replay-call", &session, "1", "--db", text(&forged)]);
    assert!(said.contains("behind the store's back"), "{said}");
    assert!(bench.ok(&["replay-call", &session, "0", "--db", text(&forged)]).contains("the very bytes"));
}

#[test]
fn why_says_what_became_of_a_text_and_how_to_get_it_back() {
    let bench = Bench::new();
    let session = bench.session("talk.json", &talk());
    let shown = &bench.json(&["why", &session, "Answer 3: ash"])[0];
    assert_eq!((&shown["matched"], &shown["events"][0]["now"]["how"]), (&json!("exact"), &json!("verbatim")));
    bench.ok(&["compact", &session, "--keep-turns", "2"]);
    let gone = &bench.json(&["why", &session, "Answer 3: ash"])[0];
    assert_eq!(gone["events"][0]["now"]["how"], "summarised");
    let said = bench.ok(&["why", &session, "Answer 3: ash"]);
    let handle = said.split("recall ").nth(1).expect("a handle");
    let handle = handle.split(|letter: char| letter != ':' && !letter.is_ascii_alphanumeric()).next();
    let recalled = bench.ok(&["recall", handle.expect("a handle")]);
    assert!(recalled.contains("Answer 3: ash"), "{said}: {recalled}");
    let run = bench.run(&["why", &session, "balsa"]);
    assert!(!run.success && !run.stdout.is_empty() && run.stderr.is_empty(), "{}{}", run.stdout, run.stderr);
    assert!(bench.fails(&["why", &session, " "]).contains("this is empty"));
}

#[test]
fn metrics_are_five_figures_and_what_was_not_measured_is_not_guessed() {
    let bench = Bench::new();
    let session = bench.session("talk.json", &talk());
    let rows = |session: &str| bench.json(&["metrics", session])[0]["rows"].as_array().expect("rows").clone();
    let before = rows(&session);
    assert_eq!(before.len(), 5);
    assert!(before.iter().all(|row| row["met"] == "unknown"), "{before:?}");
    bench.ok(&["compact", &session, "--keep-turns", "2"]);
    let after = rows(&session);
    assert!(
        after.iter().any(|row| row["met"] != "unknown" && row["value"] != before[0]["value"]),
        "{after:?}"
    );
    let table = bench.ok(&["metrics", &session]);
    assert!(after.iter().all(|row| table.contains(row["name"].as_str().expect("a name"))), "{table}");
}

#[test]
fn every_command_of_compaction_teaches_by_example() {
    let bench = Bench::new();
    for command in [
        "compact",
        "jobs",
        "undo",
        "redo",
        "recall",
        "pin",
        "unpin",
        "fork",
        "handoff",
        "why",
        "metrics",
        "calls",
        "replay-call",
    ] {
        let help = bench.ok(&[command, "--help"]);
        assert!(help.contains(&format!("  epitome {command}")), "{command}: {help}");
    }
}
