//! `epitome mcp`, spoken to as a client speaks: one line of JSON-RPC a message.

use std::{
    fmt::Write as _,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Stdio},
};

use serde_json::{Value, json};

use crate::harness::{Bench, text};

/// Largest answer of a tool, in bytes.
const LARGEST: usize = 4096;

/// Id of the session in `transcript`.
pub(crate) const SESSION: &str = "0199a1b2-c3d4-4000-8000-00000000c0de";

/// A client with a server of its own.
struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    last: u64,
}

impl Client {
    fn start(bench: &Bench, args: &[&str]) -> Self {
        let mut child = bench
            .command()
            .arg("mcp")
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary runs");
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut client = Self { child, stdin, stdout, last: 0 };
        let opened = client.ask(
            "initialize",
            json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}),
        );
        assert_eq!(opened["result"]["serverInfo"]["name"], "epitome", "{opened}");
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        client
    }

    fn send(&mut self, message: &Value) {
        let stdin = self.stdin.as_mut().expect("open");
        writeln!(stdin, "{message}").expect("the server reads");
        stdin.flush().expect("the server reads");
    }

    #[expect(clippy::needless_pass_by_value, reason = "a call reads better with the value itself")]
    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.last += 1;
        let id = self.last;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        loop {
            let mut line = String::new();
            assert!(self.stdout.read_line(&mut line).expect("the server writes") > 0, "the server ended");
            let answer: Value = serde_json::from_str(&line).expect("a line is JSON");
            if answer["id"] == id {
                return answer;
            }
        }
    }

    /// What a tool answers that must succeed.
    #[expect(clippy::needless_pass_by_value, reason = "a call reads better with the value itself")]
    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let answer = self.ask("tools/call", json!({"name": tool, "arguments": arguments}));
        let result = &answer["result"];
        assert_ne!(result["isError"], true, "{tool}: {answer}");
        let structured = result["structuredContent"].clone();
        let bytes = serde_json::to_vec(&structured).expect("JSON").len();
        assert!(bytes <= LARGEST, "{tool} answered {bytes} bytes");
        let said = result["content"][0]["text"].as_str().expect("the same as text");
        assert_eq!(serde_json::from_str::<Value>(said).expect("JSON"), structured);
        assert!(structured["notice"].as_str().expect("a notice").contains("data"), "{structured}");
        structured
    }

    /// What a tool says that must fail.
    #[expect(clippy::needless_pass_by_value, reason = "a call reads better with the value itself")]
    fn fails(&mut self, tool: &str, arguments: Value) -> String {
        let answer = self.ask("tools/call", json!({"name": tool, "arguments": arguments}));
        assert_eq!(answer["result"]["isError"], true, "{tool}: {answer}");
        answer["result"]["content"][0]["text"].as_str().expect("words").to_owned()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.stdin = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A line of a Claude Code transcript.
fn line(number: usize, kind: &str, content: &Value, folder: &str) -> String {
    let parent = if number == 0 { Value::Null } else { json!(format!("u-{}", number - 1)) };
    let role = if kind == "assistant" { "assistant" } else { "user" };
    let mut message = json!({"role": role, "content": content});
    if kind == "assistant" {
        message["id"] = json!(format!("msg_{number}"));
        message["model"] = json!("claude-sonnet-4-5");
        message["type"] = json!("message");
    }
    json!({
        "type": kind, "uuid": format!("u-{number}"), "parentUuid": parent, "sessionId": SESSION,
        "cwd": folder, "timestamp": format!("2026-01-05T10:{:02}:{:02}Z", number / 60, number % 60), "message": message,
    })
    .to_string()
}

fn call(id: &str, name: &str, input: &Value) -> Value {
    json!([{"type": "tool_use", "id": id, "name": name, "input": input}])
}

fn returned(id: &str, text: &str, error: bool) -> Value {
    json!([{"type": "tool_result", "tool_use_id": id, "content": text, "is_error": error}])
}

/// A session in `folder` in which a test failed, a file was changed, and the test worked; with a long output.
pub(crate) fn transcript(folder: &str) -> String {
    let test = json!({"command": "cargo test parser"});
    let edit = json!({"file_path": format!("{folder}/src/parser.rs"), "old_string": "a", "new_string": "b"});
    let long: String = (0..900).fold(String::new(), |mut text, n| {
        let _ = writeln!(text, "line {n} of a \"long\" output");
        text
    });
    let said = [
        ("user", json!("Fix the parser. Never touch the lock file.")),
        ("assistant", call("t1", "Bash", &test)),
        ("user", returned("t1", "Exit code 101\nerror: cannot find value `widget` in this scope", true)),
        ("assistant", call("t2", "Edit", &edit)),
        ("user", returned("t2", "String to replace not found in file.", true)),
        (
            "assistant",
            call(
                "t3",
                "Edit",
                &json!({"file_path": format!("{folder}/src/parser.rs"), "old_string": "x", "new_string": "y"}),
            ),
        ),
        ("user", returned("t3", "The file has been updated.", false)),
        ("assistant", call("t4", "Bash", &test)),
        ("user", returned("t4", "test result: ok. 4 passed", false)),
        ("assistant", call("t5", "Bash", &json!({"command": "cat big.log"}))),
        ("user", returned("t5", &long, false)),
        ("assistant", json!([{"type": "text", "text": "The parser works again: the widget was missing."}])),
    ];
    said.iter()
        .enumerate()
        .map(|(number, (kind, content))| line(number, kind, content, folder) + "\n")
        .collect()
}

fn bench() -> Bench {
    let bench = Bench::new();
    let file = bench.write("0199a1b2.jsonl", transcript("/src/app"));
    bench.ok(&["import", text(&file)]);
    bench
}

#[test]
fn every_tool_is_listed_with_what_a_client_may_rely_on() {
    let bench = bench();
    let mut client = Client::start(&bench, &["--project", "/src/app"]);
    let listed = client.ask("tools/list", json!({}));
    let tools = listed["result"]["tools"].as_array().expect("tools");
    let told: Vec<String> = tools
        .iter()
        .map(|tool| {
            let hint = |name: &str| tool["annotations"][name].as_bool().expect("a hint");
            assert_eq!(tool["inputSchema"]["additionalProperties"], false);
            assert_eq!(tool["outputSchema"]["type"], "object");
            format!(
                "{} reads={} idempotent={} destroys={}",
                tool["name"].as_str().expect("a name"),
                hint("readOnlyHint"),
                hint("idempotentHint"),
                hint("destructiveHint"),
            )
        })
        .collect();
    insta::assert_snapshot!(told.join("\n"), @r"
    search reads=true idempotent=true destroys=false
    recall reads=true idempotent=true destroys=false
    why reads=true idempotent=true destroys=false
    failed reads=true idempotent=true destroys=false
    context reads=true idempotent=true destroys=false
    pin reads=false idempotent=true destroys=false
    compact reads=false idempotent=false destroys=false
    ");
}

#[test]
fn words_are_found_and_brought_back_whole_in_parts() {
    let bench = bench();
    let mut client = Client::start(&bench, &["--project", "/src/app"]);
    let found = client.call("search", json!({"query": "widget", "kind": "tool"}));
    assert_eq!(found["items"].as_array().expect("items").len(), 1, "{found}");
    let hit = &found["items"][0];
    assert!(hit["text"].as_str().expect("an excerpt").contains("cannot find value"), "{hit}");
    let handle = hit["handle"].as_str().expect("a handle").to_owned();
    let back = client.call("recall", json!({"handle": format!("recall {handle}")}));
    assert!(back["text"].as_str().expect("a text").contains("error: cannot find value `widget`"), "{back}");
    assert!(back.get("next").is_none(), "{back}");

    let long = client.call("search", json!({"query": "line 17 of a", "limit": 1}));
    let mut arguments = json!({"handle": long["items"][0]["handle"]});
    let mut whole = String::new();
    loop {
        let part = client.call("recall", arguments.clone());
        whole.push_str(part["text"].as_str().expect("a text"));
        match part.get("next") {
            Some(next) => arguments = next.clone(),
            None => break,
        }
    }
    for n in [0, 450, 899] {
        assert_eq!(
            whole.matches(&format!("line {n} of a \"long\" output\n")).count().max(usize::from(n == 899)),
            1,
            "{n}"
        );
    }
    let little = client.call("recall", json!({"handle": long["items"][0]["handle"], "max_tokens": 20}));
    assert!(little["text"].as_str().expect("a text").len() < 120, "{little}");
    assert!(little.get("next").is_some());
    let part = client.call("recall", json!({"handle": long["items"][0]["handle"], "range": "10-40"}));
    assert_eq!(part["text"].as_str().expect("a text").len(), 30);
}

#[test]
fn a_search_stays_in_the_project_unless_it_is_asked_for_all_and_never_leaves_its_principal() {
    let bench = bench();
    let other = bench.write("other.jsonl", transcript("/src/other").replace("00000000c0de", "00000000beef"));
    bench.ok(&["import", text(&other)]);
    let mut client = Client::start(&bench, &["--project", "/src/app"]);
    let count = |client: &mut Client, arguments: Value| {
        client.call("search", arguments)["items"].as_array().expect("items").len()
    };
    assert_eq!(count(&mut client, json!({"query": "widget", "kind": "assistant"})), 1);
    assert_eq!(count(&mut client, json!({"query": "widget", "kind": "assistant", "scope": "session"})), 1);
    assert_eq!(count(&mut client, json!({"query": "widget", "kind": "assistant", "scope": "all"})), 2);
    assert_eq!(count(&mut client, json!({"query": "widget", "since": "2030-01-01"})), 0);
    let page = client.call("search", json!({"query": "widget", "scope": "all", "limit": 1}));
    let next = client.call("search", page["next"].clone());
    assert_ne!(page["items"][0]["handle"], next["items"][0]["handle"]);

    let handle = page["items"][0]["handle"].as_str().expect("a handle").to_owned();
    let mut stranger = Client::start(&bench, &["--principal", "somebody", "--project", "/src/app"]);
    assert_eq!(count(&mut stranger, json!({"query": "widget", "scope": "all"})), 0);
    assert!(stranger.fails("recall", json!({"handle": handle})).contains("leads nowhere"));
    let named = stranger.fails("context", json!({"session": "0199a1b2"}));
    assert!(named.contains("no session is called"), "{named}");
    assert!(stranger.fails("context", json!({})).contains("no session is recorded for /src/app"));
    assert_eq!(stranger.ask("resources/list", json!({}))["result"]["resources"], json!([]));
}

#[test]
fn what_failed_is_told_with_how_it_ended() {
    let bench = bench();
    let mut client = Client::start(&bench, &["--project", "/src/app"]);
    let told = client.call("failed", json!({"error": "error: cannot find value `gadget` in this scope"}));
    assert_eq!(told["items"], json!([]), "{told}");
    let told =
        client.call("failed", json!({"error": "error[E0425]: cannot find value `widget` in this scope"}));
    let item = &told["items"][0];
    assert_eq!(item["tried"], "`cargo test parser`", "{told}");
    assert_eq!((&item["times"], &item["ended"]["worked"]), (&json!(1), &json!(true)));
    assert!(
        item["ended"]["changed_before"][0].as_str().expect("a file").ends_with("src/parser.rs"),
        "{told}"
    );
    let told = client.call("failed", json!({"path": "src/parser.rs"}));
    assert!(
        told["items"][0]["error"].as_str().expect("words").contains("String to replace not found"),
        "{told}"
    );
    let told = client.call("failed", json!({"path": "src/lexer.rs"}));
    assert_eq!(told["items"], json!([]));
}

#[test]
fn a_text_is_explained_words_are_pinned_and_a_session_is_compacted() {
    let bench = bench();
    let mut client = Client::start(&bench, &["--project", "/src/app"]);
    let told = client.call("why", json!({"text": "cannot find value `widget`"}));
    assert_eq!(told["matched"], true);
    assert!(told["items"][0]["handle"].as_str().expect("a handle").contains(':'));
    assert_eq!(client.call("why", json!({"text": "nowhere at all"}))["matched"], false);

    assert_eq!(client.call("pin", json!({"text": "Never touch the lock file."}))["done"], "pinned");
    assert_eq!(client.call("pin", json!({"text": "Never touch the lock file."}))["done"], "unchanged");
    let shown = client.call("context", json!({}));
    let regions = shown["items"].as_array().expect("items");
    assert!(regions.iter().any(|item| item["region"] == "tool_results"), "{shown}");
    assert!(regions.iter().any(|item| item["pin"].to_string().contains("lock file")), "{shown}");
    assert_eq!(shown["model"], "claude-sonnet-4-5");

    // The newest turns stay as they are: so short a session has nothing old, and says so.
    assert!(client.fails("compact", json!({"focus": "the parser"})).contains("nothing"), "compact");
}

#[test]
fn resources_and_prompts_tell_a_session() {
    let bench = bench();
    let mut client = Client::start(&bench, &["--project", "/src/app"]);
    let listed = client.ask("resources/list", json!({}));
    let uri = listed["result"]["resources"][0]["uri"].as_str().expect("a resource").to_owned();
    assert!(uri.starts_with("epitome://session/") && uri.ends_with("/brief"), "{uri}");
    let brief = client.ask("resources/read", json!({"uri": uri}));
    let said = brief["result"]["contents"][0]["text"].as_str().expect("a text");
    assert!(said.contains("It is data") && said.contains("parser"), "{said}");
    let turn = uri.replace("/brief", "/turn/1");
    let turn = client.ask("resources/read", json!({"uri": turn}));
    assert!(
        turn["result"]["contents"][0]["text"].as_str().expect("a text").contains("cargo test parser"),
        "{turn}"
    );
    for (wrong, words) in [
        (uri.replace("/brief", "/turn/99"), "there is no turn 99"),
        (uri.replace("/brief", "/nothing"), "is no resource here"),
        ("file:///etc/passwd".to_owned(), "is no resource here"),
        ("epitome://session/zzzz/brief".to_owned(), "no session is called"),
    ] {
        let answer = client.ask("resources/read", json!({"uri": wrong}));
        assert!(answer["error"]["message"].as_str().expect("an error").contains(words), "{answer}");
    }
    assert_eq!(
        client.ask("resources/templates/list", json!({}))["result"]["resourceTemplates"]
            .as_array()
            .map(Vec::len),
        Some(2)
    );
    let prompts = client.ask("prompts/list", json!({}));
    assert_eq!(prompts["result"]["prompts"].as_array().map(Vec::len), Some(2), "{prompts}");
    let resumed = client.ask("prompts/get", json!({"name": "resume", "arguments": {}}));
    let words = resumed["result"]["messages"][0]["content"]["text"].as_str().expect("words");
    assert!(words.contains("<recorded_history>") && words.contains("Go on with this session"), "{words}");
    let handed = client.ask("prompts/get", json!({"name": "handoff", "arguments": {"goal": "Write docs."}}));
    assert!(
        handed["result"]["messages"][0]["content"]["text"].as_str().expect("words").ends_with("Write docs.")
    );
    let missing = client.ask("prompts/get", json!({"name": "handoff"}));
    assert!(
        missing["error"]["message"].as_str().expect("an error").contains("`goal` is missing"),
        "{missing}"
    );
}

#[test]
fn wrong_arguments_are_told_in_words_and_an_unknown_tool_by_the_protocol() {
    let bench = bench();
    let mut client = Client::start(&bench, &["--project", "/src/app"]);
    for (tool, arguments, words) in [
        ("search", json!({}), "`query` is missing"),
        ("search", json!({"query": "  "}), "`query` is missing"),
        ("search", json!({"query": "***"}), "no word to search for"),
        ("search", json!({"query": 5}), "`query` must be a text"),
        ("search", json!({"query": "x", "limit": -1}), "`limit` must be a whole number from 0 to 50"),
        ("search", json!({"query": "x", "limit": 1.5}), "`limit` must be a whole number"),
        ("search", json!({"query": "x", "kind": "tools"}), "`kind` must be"),
        ("search", json!({"query": "x", "scope": "world"}), "`scope` must be"),
        ("search", json!({"query": "x", "since": "yesterday"}), "`since`: expected a time such as"),
        (
            "search",
            json!({"query": "x", "words": "y"}),
            "`search` has no argument `words`; it has: query, scope",
        ),
        ("search", json!({"query": "x".repeat(9_000)}), "`query` is too long"),
        ("recall", json!({"handle": "nonsense"}), "`nonsense` is no handle: one looks like 1b2c3d4e:57"),
        ("recall", json!({"handle": "ffffffff:1"}), "leads nowhere"),
        ("recall", json!({"handle": "ffffffff:1", "range": "x"}), "`range` must be such as"),
        ("recall", json!({"handle": "ffffffff:1", "range": "9-3"}), "`range` must be such as"),
        ("why", json!({"text": "x", "session": "nobody"}), "no session is called `nobody`"),
        ("failed", json!({}), "give either `error` or `path`"),
        ("failed", json!({"error": "x", "path": "y"}), "give either `error` or `path`"),
        ("pin", json!({}), "`text` is missing"),
        ("pin", json!({"text": "x".repeat(600)}), "500"),
    ] {
        let said = client.fails(tool, arguments.clone());
        assert!(said.contains(words), "{tool} {arguments}: {said}");
    }
    let answer = client.ask("tools/call", json!({"name": "erase", "arguments": {}}));
    assert!(
        answer["error"]["message"].as_str().expect("an error").contains("there is no tool `erase`"),
        "{answer}"
    );
    let answer = client.ask("tools/call", json!({"name": "search", "arguments": "query"}));
    assert!(answer.get("error").is_some(), "{answer}");
    // It goes on after all of that.
    assert_eq!(
        client.call("search", json!({"query": "widget", "limit": 1}))["items"].as_array().map(Vec::len),
        Some(1)
    );
}

#[test]
fn without_a_database_it_starts_and_says_what_to_do_and_finds_one_that_is_made_later() {
    let bench = Bench::new();
    let mut client = Client::start(&bench, &["--project", "/src/app"]);
    let said = client.fails("search", json!({"query": "widget"}));
    assert!(said.contains("there is no database at") && said.contains("import a session first"), "{said}");
    assert_eq!(client.ask("resources/list", json!({}))["result"]["resources"], json!([]));
    let file = bench.write("0199a1b2.jsonl", transcript("/src/app"));
    bench.ok(&["import", text(&file)]);
    assert_eq!(
        client.call("search", json!({"query": "widget", "limit": 1}))["items"].as_array().map(Vec::len),
        Some(1)
    );
}

#[test]
fn a_database_that_is_locked_is_read_and_one_that_is_no_database_is_an_error() {
    let bench = bench();
    let holder = rusqlite::Connection::open(bench.path("log.db")).expect("a database");
    holder.execute_batch("BEGIN IMMEDIATE").expect("nobody else writes");
    let mut client = Client::start(&bench, &["--project", "/src/app"]);
    assert_eq!(
        client.call("search", json!({"query": "widget", "limit": 1}))["items"].as_array().map(Vec::len),
        Some(1)
    );
    let said = client.fails("pin", json!({"text": "Never."}));
    assert!(said.contains("another process"), "{said}");
    drop(holder);
    assert_eq!(client.call("pin", json!({"text": "Never."}))["done"], "pinned");

    let broken = Bench::new();
    broken.write("log.db", "this is no database, it is a text of some length that goes on for a while");
    let mut client = Client::start(&broken, &[]);
    let said = client.fails("search", json!({"query": "widget"}));
    assert!(said.contains("log.db") && !said.contains("panicked"), "{said}");
}

#[test]
fn among_ten_thousand_sessions_the_right_ones_are_found() {
    let bench = bench();
    let store = {
        use epitome::{
            Event, Fact, SessionId, StoreLocation, StoreOptions, ThreadId,
            core::{ContentPart, Seq},
            open_store,
            store::{NewThread, ThreadStart, records::NewSession},
        };
        let location = StoreLocation::named(bench.path("log.db")).expect("a file");
        let options =
            StoreOptions { durability: epitome::store::Durability::default(), ..StoreOptions::default() };
        let store = open_store(&location, options).expect("a database");
        std::thread::scope(|scope| {
            for part in 0..16 {
                let store = &store;
                scope.spawn(move || {
                    for n in (part..10_000).step_by(16) {
                        let name = format!("{n}");
                        let (session, thread) =
                            (SessionId::derived(&["s", &name]), ThreadId::derived(&["t", &name]));
                        store
                            .create_session(&NewSession::with_title(session, format!("number {n}")))
                            .expect("new");
                        store
                            .open(&NewThread {
                                id: thread,
                                session,
                                name: "main".into(),
                                key: None,
                                start: ThreadStart::Root,
                            })
                            .expect("new");
                        let said =
                            Fact::UserSaid { parts: vec![ContentPart::text(format!("common word{n}"))] };
                        store.append(thread, Seq::START, vec![Event::from_fact(said, None)]).expect("new");
                    }
                });
            }
        });
        store
    };
    drop(store);
    let mut client = Client::start(&bench, &["--project", "/src/app"]);
    assert_eq!(
        client.call("search", json!({"query": "widget", "kind": "assistant"}))["items"]
            .as_array()
            .map(Vec::len),
        Some(1)
    );
    let all = client.call("search", json!({"query": "common", "scope": "all", "limit": 50}));
    assert!(all.get("next").is_some());
    let one = client.call("search", json!({"query": "word7777", "scope": "all"}));
    let handle = one["items"][0]["handle"].as_str().expect("a handle").to_owned();
    assert!(
        client.call("recall", json!({"handle": handle}))["text"]
            .as_str()
            .expect("a text")
            .contains("word7777")
    );
    assert!(client.fails("recall", json!({"handle": "00000000:1"})).contains("leads nowhere"));
    assert_eq!(client.call("context", json!({}))["turns"], 6);
}
