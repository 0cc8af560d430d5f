//! `eval`, on sessions in which everything that must be kept was put there.

use serde_json::{Value, json};

use super::harness::{Bench, text};

/// A long tool loop in which every command fails in its own way.
fn session(first: usize, turns: usize) -> String {
    let mut messages = vec![json!({"role": "user", "content": "Build it. Never touch the lock file."})];
    for turn in first..first + turns {
        let id = format!("c{turn}");
        messages.push(json!({"role": "assistant", "content": format!("Trying plan {turn}."), "tool_calls": [
            {"id": id, "type": "function",
             "function": {"name": "bash", "arguments": format!("{{\"command\":\"make p{turn}\"}}")}}]}));
        let output =
            format!("error: p{turn} has no rule\n{}", format!("entering directory p{turn}\n").repeat(200));
        messages.push(json!({"role": "tool", "tool_call_id": id, "content": output}));
    }
    Value::from(messages).to_string()
}

#[test]
fn sessions_are_compacted_in_chains_and_what_is_in_another_is_not_counted_twice() {
    let bench = Bench::new();
    bench.write("a.json", session(0, 30));
    bench.write("b.json", session(10, 30));
    bench.write("c.json", session(100, 30));
    bench.write("short.json", session(0, 1));
    bench.write("nonsense.json", "{}");
    let folder = bench.path("");
    let rows = bench.json(&["eval", text(&folder), "--over", "10k"]);
    let row = |row: &Value| {
        (row["session"].as_str().unwrap().to_owned(), row["evaluation"]["chain"].as_u64().unwrap())
    };
    let found: Vec<(String, u64)> = rows.iter().map(row).collect();
    let expect = ["a", "b", "c"].iter().flat_map(|name| [1, 2, 5].map(|chain| ((*name).to_owned(), chain)));
    assert_eq!(found, expect.collect::<Vec<_>>());
    for row in &rows {
        assert_eq!(row["new"], row["session"] != "b", "{row}");
        assert!(row["ratio"].as_f64().unwrap() > 3.0, "{row}");
        let items = &row["items"];
        assert_eq!(
            items["shown"].as_u64().unwrap() + items["counted"].as_u64().unwrap(),
            items["items"],
            "{row}"
        );
    }
    let table = bench.ok(&["eval", text(&folder), "--over", "10k", "--chain", "2"]);
    assert!(table.contains("2 in a row on 2 sessions, 4 made"), "{table}");
    assert!(table.contains("1 session marked * not counted"), "{table}");
    let csv = bench.ok(&["eval", text(&folder), "--over", "10k", "--csv"]);
    let columns: Vec<usize> = csv.lines().map(|line| line.split(',').count()).collect();
    assert_eq!(columns, [14; 10], "{csv}");
}

#[test]
fn what_cannot_be_evaluated_is_said() {
    let bench = Bench::new();
    let file = bench.write("short.json", session(0, 1));
    assert!(bench.ok(&["eval", text(&file)]).contains("--over"));
    assert!(bench.fails(&["eval", text(&file), "--over", "50%"]).contains("amount of tokens"));
    assert!(bench.fails(&["eval", text(&file), "--chain", "0"]).contains("--chain"));
    assert!(bench.fails(&["eval", text(&file), "--policy", "none"]).contains("there is no policy"));
    assert!(bench.fails(&["eval", text(&bench.path("missing"))]).contains("missing"));
}
