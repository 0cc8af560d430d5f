//! Calls of every agent's tools, and what they did.

use proptest::prelude::*;

use super::*;
use crate::{ContentPart, event::CallForm};

fn result(text: &str, error: bool) -> ToolResult {
    ToolResult { call: "c".into(), name: None, parts: vec![ContentPart::text(text)], error }
}

/// An effect in a line: `edited a.rs`, `read b.rs 3-4`.
fn told(effect: &ToolEffect) -> String {
    match effect {
        ToolEffect::Read { path, part } => format!("read {path} {part}").trim_end().to_owned(),
        ToolEffect::Changed { path, how } => format!("{} {path}", format!("{how:?}").to_lowercase()),
        ToolEffect::Searched => "searched".to_owned(),
        ToolEffect::Ran { exit, .. } => exit.map_or_else(|| "ran".to_owned(), |exit| format!("ran {exit}")),
        ToolEffect::Planned { steps } => {
            let steps: Vec<String> =
                steps.iter().map(|step| format!("{} {:?}", step.text, step.state)).collect();
            format!("planned {}", steps.join(", "))
        }
        ToolEffect::Stepped { id, text, state } => format!("stepped {id:?} {text:?} {state:?}"),
    }
}

fn check_call(call: &ToolCall, result: Option<&ToolResult>, expect: &[&str]) {
    let found: Vec<String> = effects(call, result).iter().map(told).collect();
    assert_eq!(found, expect, "{} {} {result:?}", call.name.0, call.arguments);
}

/// What a call did that returned this.
fn check(tool: &str, arguments: &str, text: &str, expect: &[&str]) {
    let call = ToolCall::function("c", tool, arguments);
    check_call(&call, Some(&result(text, false)), expect);
}

/// What a command line did, besides being run.
fn check_shell(command: &str, text: &str, expect: &[&str]) {
    let arguments = serde_json::json!({ "command": command }).to_string();
    let call = ToolCall::function("c", "Bash", arguments);
    let found: Vec<String> = effects(&call, Some(&result(text, false))).iter().skip(1).map(told).collect();
    assert_eq!(found, expect, "{command}");
}

#[test]
fn claude_code() {
    check("Read", r#"{"file_path":"/a/b.rs"}"#, "     1→x\n     2→y", &["read /a/b.rs"]);
    check("Read", r#"{"file_path":"/b","offset":96,"limit":50}"#, "    96→x\n    97→y", &["read /b 50-96"]);
    check(
        "Edit",
        r#"{"file_path":"/b","old_string":"x","new_string":"y"}"#,
        "The file /b has been updated.",
        &["edited /b"],
    );
    check(
        "Edit",
        r#"{"file_path":"/b","old_string":"x","new_string":"y\nz"}"#,
        "The file /b has been updated. Here's the result of running `cat -n` on a snippet of the edited file:\n    \
         8→w\n     9→y\n    10→z\n    11→v\n",
        &["edited /b"],
    );
    check(
        "MultiEdit",
        r#"{"file_path":"/b","edits":[{"old_string":"x","new_string":"y"}]}"#,
        "Applied 1 edit",
        &["edited /b"],
    );
    check(
        "Write",
        r#"{"file_path":"/b","content":"x"}"#,
        "File created successfully at: /b",
        &["written /b"],
    );
    check(
        "NotebookEdit",
        r#"{"notebook_path":"/n.ipynb","new_source":"x"}"#,
        "Updated cell",
        &["edited /n.ipynb"],
    );
    check("Grep", r#"{"pattern":"fn main","path":"src"}"#, "src/a.rs", &["searched"]);
    check("Glob", r#"{"pattern":"**/*.rs"}"#, "a.rs", &["searched"]);
    check(
        "TodoWrite",
        r#"{"todos":[{"content":"a","status":"completed","activeForm":"x"},{"content":"b","status":"in_progress"}]}"#,
        "Todos have been modified",
        &["planned a Done, b Active"],
    );
    check(
        "TaskCreate",
        r#"{"subject":"a","description":"long","activeForm":"x"}"#,
        "Task #10 created successfully: a",
        &["stepped Some(\"10\") Some(\"a\") Some(Open)"],
    );
    check(
        "TaskUpdate",
        r#"{"taskId":"9","status":"completed"}"#,
        "Updated task #9 status",
        &["stepped Some(\"9\") None Some(Done)"],
    );
    check(
        "TaskList",
        "{}",
        "#1 [completed] a\n#2 [pending] b",
        &["stepped Some(\"1\") Some(\"a\") Some(Done)", "stepped Some(\"2\") Some(\"b\") Some(Open)"],
    );
    check("Bash", r#"{"command":"go build ./...","description":"x"}"#, "", &["ran"]);
    check("Task", r#"{"description":"edit","prompt":"p"}"#, "done", &[]);
    check("mcp__linear-server__create_issue", r#"{"title":"t"}"#, "{}", &[]);
}

#[test]
fn codex() {
    let output =
        "Chunk ID: 1\nWall time: 0.0 seconds\nProcess exited with code 0\nOriginal token count: 1\nOutput:\n";
    check(
        "exec_command",
        r#"{"cmd":"sed -n '10,20p' a.go","workdir":"/w"}"#,
        output,
        &["ran 0", "read /w/a.go 10-20"],
    );
    check("exec_command", r#"{"cmd":"nl -ba a.go | sed -n '5,9p'"}"#, output, &["ran 0", "read a.go"]);
    check("shell", r#"{"command":["bash","-lc","rg -n 'x y' src"],"workdir":"/w"}"#, output, &["ran 0"]);
    let patch = "*** Begin Patch\n*** Update File: a.go\n@@\n-x\n+y\n*** Add File: b.go\n+z\n*** End Patch\n";
    let heredoc =
        serde_json::json!({ "command": ["bash", "-lc", format!("apply_patch <<'EOF'\n{patch}EOF\n")] });
    check("shell", &heredoc.to_string(), output, &["ran 0", "edited a.go", "written b.go"]);
    let words = serde_json::json!({ "command": ["apply_patch", patch], "workdir": "/w" });
    check("shell", &words.to_string(), output, &["ran 0", "edited /w/a.go", "written /w/b.go"]);
    let custom =
        |name: &str, text: &str| ToolCall { form: CallForm::Custom, ..ToolCall::function("c", name, text) };
    let good = r#"{"output":"Success. Updated the following files:\nM a.go\n","metadata":{"exit_code":0}}"#;
    check_call(&custom("apply_patch", patch), Some(&result(good, false)), &["edited a.go", "written b.go"]);
    let bad = r#"{"output":"apply_patch verification failed: no\n","metadata":{"exit_code":1}}"#;
    check_call(&custom("apply_patch", patch), Some(&result(bad, false)), &[]);
    let half = r#"{"output":"Updated the following files:\nM a.go\nerror: no","metadata":{"exit_code":1}}"#;
    check_call(&custom("apply_patch", patch), Some(&result(half, false)), &["edited a.go"]);
    check(
        "apply_patch",
        &serde_json::json!({ "input": patch }).to_string(),
        "Success.",
        &["edited a.go", "written b.go"],
    );
    check(
        "update_plan",
        r#"{"plan":[{"step":"a","status":"pending"}]}"#,
        "Plan updated",
        &["planned a Open"],
    );
    let ended = "Command: /bin/zsh -lc 'make'\nChunk ID: 1\nProcess exited with code 2\nOutput:\nno";
    check("write_stdin", r#"{"session_id":1,"chars":""}"#, ended, &[]);
    check(
        "write_stdin",
        r#"{"session_id":1,"chars":""}"#,
        "Chunk ID: 1\nProcess running with session ID 1\nOutput:\n",
        &[],
    );
    let script = custom(
        "exec",
        "const r = await tools.exec_command({cmd:\"rm a\",\"workdir\":\"/w\"}); text(r.output)",
    );
    let parts = "Script completed\nWall time 0.1 seconds\nOutput:\n";
    check_call(&script, Some(&result(parts, false)), &["ran", "deleted /w/a"]);
    let script = custom(
        "exec",
        "const patch = \"*** Begin Patch\\n*** Delete File: /w/a\\n*** End Patch\"; tools.apply_patch(patch)",
    );
    check_call(&script, Some(&result(parts, false)), &["deleted /w/a"]);
}

#[test]
fn opencode_pi_and_gemini() {
    check(
        "read",
        r#"{"filePath":"/a","offset":50,"limit":30}"#,
        "<path>/a</path>\n<content>\n50: x\n51: y\n</content>",
        &["read /a 30-50"],
    );
    check(
        "edit",
        r#"{"filePath":"/a","oldString":"x","newString":"y"}"#,
        "Edit applied successfully.",
        &["edited /a"],
    );
    check("write", r#"{"filePath":"/a","content":"x"}"#, "Wrote file successfully.", &["written /a"]);
    check(
        "patch",
        r#"{"patchText":"*** Begin Patch\n*** Delete File: b\n*** End Patch"}"#,
        "ok",
        &["deleted b"],
    );
    check("todowrite", r#"{"todos":[{"content":"a","status":"cancelled"}]}"#, "[]", &["planned a Dropped"]);
    check("read", r#"{"path":"a","offset":3,"limit":5}"#, "x\ny", &["read a 5-3"]);
    check(
        "edit",
        r#"{"path":"a","edits":[{"oldText":"x","newText":"y"}]}"#,
        "Successfully replaced",
        &["edited a"],
    );
    check("bash", r#"{"command":"npm t","timeout":60}"#, "no\n\n\nCommand exited with code 2", &["ran 2"]);
    check("read_file", r#"{"absolute_path":"/a","offset":0,"limit":2}"#, "x\ny", &["read /a 2-0"]);
    check("read_many_files", r#"{"paths":["a.md","b.md"]}"#, "--- a.md ---", &["read a.md", "read b.md"]);
    check("read_many_files", r#"{"include":["*.md"]}"#, "--- a.md ---\nx\n", &[]);
    check(
        "replace",
        r#"{"file_path":"a","old_string":"x","new_string":"y"}"#,
        "Successfully modified",
        &["edited a"],
    );
    check(
        "run_shell_command",
        r#"{"command":"rm docs/b.md"}"#,
        "Command: rm docs/b.md\nDirectory: (root)\nOutput: (empty)\nError: (none)\nExit Code: 0\nSignal: 0",
        &["ran 0", "deleted docs/b.md"],
    );
    check("write_todos", r#"{"todos":[{"description":"a","status":"pending"}]}"#, "ok", &["planned a Open"]);
}

#[test]
fn swe_agent_and_openhands() {
    check(
        "str_replace_editor",
        r#"{"command":"view","path":"/a","view_range":[5,-1]}"#,
        "Here's the result of running `cat -n` on /a:\n     5\tx\n     6\ty",
        &["read /a 5-1"],
    );
    check(
        "str_replace_editor",
        r#"{"command":"create","path":"/a","file_text":"x"}"#,
        "File created successfully at: /a",
        &["written /a"],
    );
    check(
        "str_replace_editor",
        r#"{"command":"insert","path":"/a","insert_line":4,"new_str":"x\ny"}"#,
        "edited",
        &["edited /a"],
    );
    check(
        "str_replace_editor",
        r#"{"command":"str_replace","path":"/a","old_str":"x","new_str":"y"}"#,
        "ERROR:\nNo replacement was performed, old_str `x` did not appear verbatim in /a.",
        &[],
    );
    check(
        "execute_bash",
        r#"{"command":"touch LICENSE"}"#,
        "[The command completed with exit code 0.]",
        &["ran 0", "written LICENSE"],
    );
    check("create", r#"{"filename":"f.py"}"#, "[File: /t/f.py (1 lines total)]", &["written f.py"]);
    check("open", r#"{"path":"f.py","line_number":8}"#, "[File: /t/f.py (9 lines total)]", &["read f.py 8"]);
}

#[test]
fn generic_and_served_tools() {
    check("mcp__filesystem__read_text_file", r#"{"path":"./a","head":3}"#, "x", &["read a 3"]);
    check("filesystem.move_file", r#"{"source":"a","destination":"b"}"#, "ok", &[]);
    check("mcp__fs__read_multiple_files", r#"{"paths":["a","b"]}"#, "x", &["read a", "read b"]);
    check("mcp__fs__edit_file", r#"{"path":"a","edits":[],"dryRun":true}"#, "x", &[]);
    check("delete_file", r#"{"target_file":"a"}"#, "ok", &["deleted a"]);
    let by_lines = r#"{"path":"a","start_line":3,"end_line":3,"new_content":"x\ny"}"#;
    check("edit_file", by_lines, r#"{"applied":true}"#, &["edited a"]);
    check("edit_file", by_lines, "Your proposed edit was NOT applied: line 3 is beyond the end.", &[]);
    check("apply_diff", r#"{"path":"a","diff":"--- a\n+++ a\n@@ -1 +1 @@\n-x\n+y\n"}"#, "ok", &["edited a"]);
    check("write_to_file", r#"{"path":"a","content":"x"}"#, r#"{"error":"read-only"}"#, &[]);
    check("edit_file", r#"{"files":[{"path":"a"},{"path":"b"}]}"#, "ok", &["edited a", "edited b"]);
    check("create_directory", r#"{"path":"a"}"#, "ok", &[]);
    check("fetch_url", r#"{"path":"https://a.b/c"}"#, "x", &[]);
    check("read_resource", r#"{"uri":"https://a.b/c"}"#, "x", &[]);
    check("get_order", r#"{"order_id":"7"}"#, "x", &[]);
}

#[test]
fn files_changed_by_commands() {
    check_shell(
        "echo x > a; echo y >>b; make 2>&1 | tee -a log",
        "",
        &["written a", "edited b", "edited log"],
    );
    check_shell("cat > 'a b' <<'EOF'\nrm c > d\nEOF\n", "", &["written a b"]);
    check_shell(
        "sed -i 's/a.*/b/' x y; sed -i '' -e '3,4d' z; sed -n 3p q",
        "",
        &["edited x", "edited y", "edited z", "read q 3"],
    );
    check_shell("sed -i s/a/b/ x\nsed -i s/c/d/ x\nrm x", "", &["edited x", "deleted x"]);
    check_shell("perl -pi -e 's/a/b/' x; perl -0pi -e 's/a/b/' y", "", &["edited x", "edited y"]);
    check_shell(
        "mv a b && mv c d e/ && git mv f g",
        "",
        &["deleted a", "moved b", "deleted c", "moved e/c", "deleted d", "moved e/d", "deleted f", "moved g"],
    );
    check_shell(
        "cp -p a/b.c d/b.c; cp x ~/y/.; rm -rf q r; touch s; mkdir -p t",
        "",
        &["written d/b.c", "written ~/y/x", "deleted q", "deleted r", "written s"],
    );
    check_shell(
        "cd /w/x && (cd y; rm a); rm b; cd \"$Z\"; rm c",
        "",
        &["deleted /w/x/y/a", "deleted /w/x/b", "deleted c"],
    );
    // What only a running shell knows is no file's name.
    check_shell(
        "sed -i s/x/y/ $F; for f in b c; do rm \"src/$f.rs\"; rm d; done; rm *.o",
        "",
        &["deleted d"],
    );
    check_shell(
        "sudo bash -c 'echo x > /etc/a'; env A=1 rm b; git -C /w rm c; git rm --cached d",
        "",
        &["written /etc/a", "deleted b"],
    );
    let diff = "--- a/x.c\n+++ b/x.c\n@@ -1 +1,2 @@\n a\n+b\n--- /dev/null\n+++ b/y.c\n@@ -0,0 +1 @@\n+c\n";
    check_shell(&format!("git apply <<'E'\n{diff}E\n"), "", &["edited x.c", "written y.c"]);
    check_shell("go test > /dev/null 2>&1; [ -f a ] || make 2> err.log", "", &["written err.log"]);
    check_shell(
        "head -n 20 a; head -5 b; cat c d | grep x; tail -n 3 e; find . -name '*.rs'",
        "",
        &["read a 20", "read b 5", "read c", "read d", "read e 3"],
    );
    check_shell("python3 - <<'E'\nopen('a','w').write('x')\nE\n", "", &[]);
    check_shell("git commit -m \"$(cat <<'EOF'\nmv a b) > c\nEOF\n)\" && [[ 1 > 2 ]] && ((3 > 4))", "", &[]);
}

#[test]
fn a_call_that_failed_changed_nothing() {
    let failed = |tool: &str, arguments: &str, text: &str, expect: &[&str]| {
        check_call(&ToolCall::function("c", tool, arguments), Some(&result(text, true)), expect);
    };
    failed(
        "Edit",
        r#"{"file_path":"/b","old_string":"x","new_string":"y"}"#,
        "<tool_use_error>no</tool_use_error>",
        &[],
    );
    failed("Write", r#"{"file_path":"/b","content":"x"}"#, "The user doesn't want to proceed", &[]);
    failed("Bash", r#"{"command":"rm a"}"#, "The user doesn't want to proceed with this tool use.", &[]);
    failed("Bash", r#"{"command":"rm a"}"#, "Exit code 1\nrm: a: No such file or directory", &["ran 1"]);
    failed(
        "Bash",
        r#"{"command":"sed -i s/x/y/ a && make"}"#,
        "Exit code 2\nmake: no",
        &["ran 2", "edited a"],
    );
    failed("Bash", r#"{"command":"go test > log"}"#, "Exit code 1\n", &["ran 1", "written log"]);
    failed(
        "Bash",
        r#"{"command":"echo x > /q/a"}"#,
        "Exit code 1\nbash: /q/a: Permission denied",
        &["ran 1"],
    );
    check_shell("rm a b; ls", "rm: cannot remove 'a': No such file or directory\n", &["deleted b"]);
    check_shell("sed -n 1p a; cat b", "cat: b: No such file or directory\n", &["read a 1"]);
    failed("Read", r#"{"file_path":"/b"}"#, "File does not exist.", &[]);
}

#[test]
fn a_call_nobody_answered_is_taken_at_its_word() {
    check_call(&ToolCall::function("c", "Write", r#"{"file_path":"a"}"#), None, &["written a"]);
    check_call(&ToolCall::function("c", "bash", r#"{"command":"rm a"}"#), None, &["ran", "deleted a"]);
}

#[test]
fn arguments_that_say_nothing_do_nothing() {
    for arguments in [
        "",
        "{",
        "null",
        "[]",
        "7",
        r#"{"path":7}"#,
        r#"{"path":""}"#,
        r#"{"command":[1]}"#,
        r#"{"command":"  "}"#,
    ] {
        for tool in
            ["Read", "Write", "edit", "Bash", "apply_patch", "TodoWrite", "TaskUpdate", "move_file", "exec"]
        {
            check(tool, arguments, "", &[]);
        }
    }
}

fn fails(tool: &str, arguments: &str, text: &str, flag: bool, expect: Option<(Option<i64>, &str)>) {
    let found = failure(&ToolCall::function("c", tool, arguments), &result(text, flag));
    let expect = expect.map(|(exit, words)| ToolFailure { exit, words: words.to_owned() });
    assert_eq!(found, expect, "{tool} {arguments} {text}");
}

/// The words of a command that is marked as failed, with this output.
fn check_words(command: &str, output: &str, expect: &str) {
    let arguments = serde_json::json!({ "command": command }).to_string();
    fails("Bash", &arguments, &format!("Exit code 1\n{output}"), true, Some((Some(1), expect)));
}

#[test]
fn code_that_speaks_of_errors_is_no_failure() {
    let open = r#"{"code":"open_file('view.ts')"}"#;
    fails("run_ipython", open, "catch (e) {\n  console.error('Error fetching', e);\n}", false, None);
    fails("run_ipython", open, "7|  throw new Error('no such view');\n8|}", false, None);
}

#[test]
fn errors_are_told_in_their_own_words() {
    check_words("go test -race .", "WARNING: DATA RACE\nRead at 0x00", "WARNING: DATA RACE");
    check_words(
        "terraform init",
        "Error: Failed to query\n\nCould not retrieve the list: no release matches\nmore",
        "Error: Failed to query\nCould not retrieve the list: no release matches",
    );
    check_words(
        "dbt build",
        "09:14:09  1 OK\n09:14:11  Failure in test a (b.yml)",
        "09:14:11  Failure in test a (b.yml)",
    );
    check_words(
        "dbt show",
        "Runtime Error\n  002003 (42S02): SQL compilation error: Object 'A' does not exist",
        "002003 (42S02): SQL compilation error: Object 'A' does not exist",
    );
    check_words(
        "cargo build",
        "   Compiling x\nerror[E0277]: `X` is not `Send`\n  --> src/a.rs:3:4\n\nerror: could not compile `x`",
        "error[E0277]: `X` is not `Send`",
    );
    check_words(
        "cargo test",
        "test a ... FAILED\n\nthread 'a' panicked at src/a.rs:3:5:\nassertion failed: b\nnote: run with\n",
        "test a ... FAILED\nthread 'a' panicked at src/a.rs:3:5:\nassertion failed: b",
    );
    check_words(
        "go test ./...",
        "--- FAIL: TestA (0.00s)\n    a_test.go:12: got 1, want 2\nFAIL\nFAIL\tx/y\t0.1s\n",
        "--- FAIL: TestA (0.00s)\na_test.go:12: got 1, want 2",
    );
    check_words(
        "go test -v",
        "=== RUN TestA\n    a_test.go:12: bad\n--- FAIL: TestA (0.00s)\nFAIL\n",
        "a_test.go:12: bad\n--- FAIL: TestA (0.00s)",
    );
    check_words("go build ./...", "# x/y\ncmd/a.go:4:2: undefined: b\n", "cmd/a.go:4:2: undefined: b");
    check_words(
        "pytest",
        "=== test session ===\nE       assert 1 == 2\nFAILED tests/a.py::test_b - assert 1 == 2\n=== 1 failed ===",
        "E       assert 1 == 2\nFAILED tests/a.py::test_b - assert 1 == 2",
    );
    check_words(
        "python a.py",
        "Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\n    x()\nKeyboardInterrupt\n",
        "File \"a.py\", line 1, in <module>\nx()\nKeyboardInterrupt",
    );
    check_words(
        "node a.js",
        "a.js:1\nx\n^\n\nReferenceError: x is not defined\n    at b",
        "ReferenceError: x is not defined",
    );
    check_words("npm t", "a(83,49): error TS2345: no\nnpm ERR! code 2\n", "a(83,49): error TS2345: no");
    check_words("npm i", "npm ERR! code E404\nnpm ERR! 404 Not Found - x\n", "npm ERR! 404 Not Found - x");
    check_words(
        "git push",
        "To x\n ! [rejected] a -> a (fetch first)\nerror: failed to push",
        "! [rejected] a -> a (fetch first)\nerror: failed to push",
    );
    check_words("git status", "fatal: unable to read e53", "fatal: unable to read e53");
    check_words(
        "make",
        "/bin/sh: 1: cd: can't cd to /x\nmake: *** [all] Error 2",
        "/bin/sh: 1: cd: can't cd to /x",
    );
    check_words("make", "make: *** [all] Error 2", "make: *** [all] Error 2");
    check_words("ponyc x", "bash: ponyc: command not found", "bash: ponyc: command not found");
    check_words("eslint .", "/a.ts\n  12:5  error  no  rule-x\n", "12:5  error  no  rule-x");
    check_words("./check", "one\ntwo\nthree\nit was 7\n", "two\nthree\nit was 7");
    check_words(
        "cat a.log b",
        "Error: in the log\ncat: b: No such file or directory",
        "cat: b: No such file or directory",
    );
    check_words("true", "", "");
}

#[test]
fn every_agents_failures_are_found() {
    let bash = r#"{"command":"make"}"#;
    fails(
        "exec_command",
        r#"{"cmd":"make"}"#,
        "Chunk ID: 1\nProcess exited with code 2\nOutput:\nfatal: x",
        false,
        Some((Some(2), "fatal: x")),
    );
    fails("bash", bash, "Error: x\n\n\nCommand exited with code 3", true, Some((Some(3), "Error: x")));
    fails("execute_bash", bash, "Error: x", true, Some((None, "Error: x")));
    fails(
        "run_shell_command",
        bash,
        "Command: make\nDirectory: (root)\nOutput: no luck\nError: (none)\nExit Code: 1\nSignal: 0",
        false,
        Some((Some(1), "no luck")),
    );
    fails(
        "edit",
        r#"{"filePath":"a"}"#,
        "Could not find oldString in the file. It must match.",
        true,
        Some((None, "Could not find oldString in the file. It must match.")),
    );
    fails(
        "Edit",
        r#"{"file_path":"a"}"#,
        "<tool_use_error>String to replace not found in file.\nString: x</tool_use_error>",
        true,
        Some((None, "String to replace not found in file.")),
    );
    fails(
        "str_replace_editor",
        r#"{"command":"str_replace","path":"a"}"#,
        "ERROR:\nNo replacement was performed.",
        false,
        Some((None, "ERROR:\nNo replacement was performed.")),
    );
    fails(
        "Bash",
        bash,
        "The user doesn't want to proceed. To tell you how to proceed, the user said:\nnot now",
        true,
        Some((None, "The user doesn't want to proceed. To tell you how to proceed, the user said:\nnot now")),
    );
    fails("get_order", r#"{"id":1}"#, "Error: order not found", true, Some((None, "Error: order not found")));
    fails("get_order", r#"{"id":1}"#, r#"{"error": "no"}"#, false, Some((None, r#"{"error": "no"}"#)));
    // A hidden or missing exit code leaves the words.
    fails("Bash", r#"{"command":"make 2>&1 | tail -5"}"#, "x\nfatal: y", false, Some((None, "fatal: y")));
    fails(
        "bash",
        r#"{"command":"python a.py"}"#,
        "Traceback (most recent call last):\n  x\nValueError: y\n(Open file: n/a)",
        false,
        Some((None, "ValueError: y")),
    );
}

#[test]
fn output_that_only_mentions_errors_is_no_failure() {
    for (tool, arguments) in [
        ("Read", r#"{"file_path":"a.log"}"#),
        ("Bash", r#"{"command":"cat a.log"}"#),
        ("Bash", r#"{"command":"cd x && git diff | head -50"}"#),
        ("Bash", r#"{"command":"rg -n Error src"}"#),
        ("Grep", r#"{"pattern":"error"}"#),
    ] {
        let log = format!(
            "start\nError: x\nTraceback (most recent call last):\nValueError: y\n{}",
            "z\n".repeat(600)
        );
        fails(tool, arguments, &log, false, None);
    }
    fails(
        "exec_command",
        r#"{"cmd":"make"}"#,
        "Chunk ID: 1\nProcess exited with code 0\nOutput:\nError: x",
        false,
        None,
    );
    fails("Bash", r#"{"command":"go get x 2>&1 | tail"}"#, "go: upgraded x => y", false, None);
    fails("Bash", r#"{"command":"make"}"#, "0 errors, 0 warnings, no error at all", false, None);
    fails("bash", r#"{"command":"grep -n x a"}"#, "Command exited with code 1", true, None);
    fails(
        "bash",
        r#"{"command":"grep -n x a"}"#,
        "grep: a: No such file or directory\n\nCommand exited with code 2",
        true,
        Some((Some(2), "grep: a: No such file or directory")),
    );
}

#[test]
fn words_are_bounded_and_verbatim() {
    let long = format!("error: {}", "é".repeat(4_000));
    let call = ToolCall::function("c", "Bash", r#"{"command":"make"}"#);
    let words = failure(&call, &result(&format!("Exit code 1\n{long}"), true)).unwrap().words;
    assert!(words.len() <= 400 && long.starts_with(&words), "{words}");
}

/// Pieces of which odd calls are made.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "cat",
            "sed -i",
            "rm",
            "mv",
            "git",
            "bash -c",
            "cd",
            "for f in",
            "apply_patch",
            "edit 1:2\n",
            "$(",
            "`",
            "'",
            "\"",
            "\\",
            "<<E\n",
            "E\n",
            ">",
            ">>",
            "|",
            "&&",
            ";",
            "(",
            ")",
            "{",
            "}",
            "$x",
            "${",
            "[[",
            "]]",
            "a/b.rs",
            "*** Begin Patch\n",
            "*** Update File: ",
            "--- a\n+++ b\n",
            "@@ -1,2 +3,4 @@\n",
            "+x\n",
            "\n",
            " ",
            "Exit code ",
            "7",
            "Output:\n",
            "Command: ",
            "error: ",
            "Traceback (most recent call last):\n",
            "[File: x (",
            "tools.exec({",
            "\u{e9}\u{1f600}",
            "\u{0}",
        ])
        .prop_map(str::to_owned),
        ".{0,8}",
    ]
}

fn text() -> impl Strategy<Value = String> {
    prop::collection::vec(piece(), 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn no_call_breaks_it_and_what_is_told_has_bounds(
        tool in prop::sample::select(vec![
            "Bash", "exec", "apply_patch", "Read", "Edit", "str_replace_editor", "TodoWrite", "TaskUpdate", "Grep",
            "write_stdin", "run_ipython", "move_file", "shell", "x",
        ]),
        key in prop::sample::select(vec!["command", "path", "todos", "pattern", "input", "code", "edits"]),
        value in text(),
        output in text(),
        (custom, list, error, answered) in any::<(bool, bool, bool, bool)>(),
    ) {
        let arguments = if custom {
            value.clone()
        } else if list {
            serde_json::json!({ key: [value], "offset": 3, "limit": -7 }).to_string()
        } else {
            serde_json::json!({ key: value, "path": output, "view_range": [9, 2] }).to_string()
        };
        let form = if custom { CallForm::Custom } else { CallForm::Function };
        let call = ToolCall { form, ..ToolCall::function("c", tool, arguments) };
        let result = result(&output, error);
        let found = effects(&call, answered.then_some(&result));
        prop_assert!(found.len() <= MOST);
        let size: usize = found.iter().map(|deed| format!("{deed:?}").len()).sum();
        prop_assert!(size <= MOST * 8 * LONGEST_COMMAND, "{size}");
        if let Some(failure) = failure(&call, &result) {
            prop_assert!(failure.words.len() <= error_lines::MAX_ERROR_BYTES);
            for line in failure.words.lines() {
                prop_assert!(output.contains(line.trim()), "{line:?} is not in {output:?}");
            }
        }
    }
}

#[test]
fn huge_calls_are_gone_through_once() {
    let huge = "x/y.rs error: a\n".repeat(40_000);
    for tool in ["Bash", "apply_patch", "Write", "Edit", "exec", "Read"] {
        for form in [CallForm::Custom, CallForm::Function] {
            let arguments = match form {
                CallForm::Custom => huge.clone(),
                CallForm::Function => {
                    serde_json::json!({ "command": huge, "path": huge, "content": huge }).to_string()
                }
            };
            let call = ToolCall { form, ..ToolCall::function("c", tool, arguments) };
            let result = result(&huge, true);
            effects(&call, Some(&result));
            failure(&call, &result);
        }
    }
}
