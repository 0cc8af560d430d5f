//! `serve`: what it is told, before it serves anything.

use super::harness::{Bench, text};

const FILE: &str = r#"
listen = "0.0.0.0:8787"
mode = "observe"

[[upstream]]
name = "local"
url = "http://10.0.0.3:8080/v1"
formats = ["openai-chat"]
models = ["qwen*"]
key_env = "LOCAL_KEY"

[[token]]
principal = "anna"
env = "ANNA_TOKEN"
allow = ["inference", "GET /v1/files/*"]
"#;

/// Checks a file with a key and a token in the environment: what was printed, whatever came of it.
fn check(bench: &Bench, args: &[&str]) -> (bool, String) {
    let mut command = bench.command();
    command
        .args(["serve", "--check"])
        .args(args)
        .env("LOCAL_KEY", "sk-canary")
        .env("ANNA_TOKEN", "tk-canary");
    let output = command.output().expect("the binary runs");
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(said).expect("UTF-8"))
}

#[test]
fn a_configuration_is_checked_and_shown_without_its_secrets() {
    let bench = Bench::new();
    let file = bench.write("gateway.toml", FILE);
    let (right, said) = check(&bench, &["--config", text(&file)]);
    assert!(right, "{said}");
    for part in [
        "listen          0.0.0.0:8787",
        "mode            observe",
        "local at http://10.0.0.3:8080: openai-chat, qwen*; a key of its own, which anybody on the way can read",
        "tokens          anna",
        "                  routes: inference, GET /v1/files/*",
        "routes          inference, models with a key of the gateway's",
        "overrides       headers may not lower",
    ] {
        assert!(said.contains(part), "no {part} in\n{said}");
    }
    assert!(!said.contains("canary"), "{said}");
    let (right, said) = check(&bench, &["--config", text(&file), "--mode", "off", "--json"]);
    assert!(right && !said.contains("canary"), "{said}");
    let shown: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!((&shown["mode"], &shown["upstreams"][0]["key"]), (&"off".into(), &"configured".into()));
    assert_eq!(shown["tokens"][0]["allow"], serde_json::json!(["inference", "GET /v1/files/*"]));
    assert!(!bench.path("log.db").exists(), "checking makes no database");
}

#[test]
fn what_mode_compact_is_told_is_shown_without_its_key() {
    let bench = Bench::new();
    let text_of = |flags: &[&str]| check(&bench, &[&["--mode", "compact"], flags].concat());
    let (right, said) = text_of(&[]);
    assert!(right && said.contains("compact         the window that is known of each model\n"), "{said}");
    let flags = [
        "--window",
        "64k",
        "--holdout",
        "0.1",
        "--summariser",
        "http://10.0.0.3:8080/v1",
        "--summariser-model",
        "small",
        "--summariser-key-env",
        "LOCAL_KEY",
    ];
    let (right, said) = text_of(&flags);
    assert!(right && said.contains("small at http://10.0.0.3:8080 (openai-chat, a key of its own"), "{said}");
    assert!(said.contains("10 % of sessions") && !said.contains("canary"), "{said}");
    let (right, said) = text_of(&[&flags[..], &["--json"]].concat());
    assert!(right && !said.contains("canary"), "{said}");
    let shown: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    let expect = serde_json::json!({
        "window": 64_000,
        "holdout": 0.1,
        "command": null,
        "recall": false,
        "compaction_items": "provider",
        "tool_output": {},
        "summariser": {
            "model": "small",
            "url": "http://10.0.0.3:8080",
            "format": "openai-chat",
            "key": "configured",
            "exposed": true,
        },
        "summariser_timeout": "5m",
    });
    assert_eq!(shown["compact"], expect);
    let (right, said) = text_of(&["--summariser", "session", "--json"]);
    let shown: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    assert!(right && shown["compact"]["summariser"] == serde_json::json!({ "use": "session" }), "{said}");
}

#[test]
fn what_is_wrong_is_refused_before_anything_is_opened() {
    let bench = Bench::new();
    let file = bench.write("gateway.toml", "mode = 'record'\n[[upstream]]\nkey = 'sk-canary'\n");
    for (args, expect) in [
        (vec!["--config", text(&file)], "gateway.toml, line 3: unknown field `key`"),
        (vec!["--listen", "0.0.0.0:8787"], "can be reached by others"),
        (vec!["--openai-upstream", "https://me:canary@host"], "no password"),
        (vec!["--policy", "nobody"], "nobody"),
        (vec!["--holdout", "0.7"], "'--holdout <SHARE>'"),
        (vec!["--summariser", "http://host"], "--summariser-model"),
        (vec!["--config", "/nowhere.toml"], "cannot read the configuration"),
    ] {
        let (right, said) = check(&bench, &args);
        assert!(!right && said.contains(expect) && !said.contains("canary"), "{args:?}: {said}");
    }
}
