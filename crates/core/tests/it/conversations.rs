//! Conversations, and what of them stands at their end.
//!
//! Each is told in few words: what the user says line by line, with `>` before what the assistant does. It is summarised in
//! one go and through five compactions, and both times what must stand is in force and what must not is not. What a summary
//! only reports as taken back is not in force.

use std::sync::Arc;

use epitome_core::{
    Fact,
    event::LoggedEvent,
    summary::{
        ConstraintForce, ItemDetail, SectionCaps, StructuredSummary, SummaryItem, SummarySection, summarise,
    },
};

use crate::notation::read;

/// Work that says nothing, so that there is something between two messages.
const WORK: &str = "assistant:\n  call bash {\"command\":\"ls\"}\n  -> a b c\n";

fn check(conversation: &str, stands: &[&str], gone: &[&str]) {
    let events = read(&log(conversation));
    for spans in [1, 5] {
        let brief = chained(&events, spans);
        let texts = in_force(&brief);
        for words in stands {
            assert!(
                texts.iter().any(|text| text.contains(words)),
                "{words:?} does not stand after {spans} compactions of\n{conversation}\nbut {texts:#?}"
            );
        }
        for words in gone {
            assert!(
                !texts.iter().any(|text| text.contains(words)),
                "{words:?} still stands after {spans} compactions of\n{conversation}\namong {texts:#?}"
            );
        }
    }
}

/// A conversation in the notation of the specs.
fn log(conversation: &str) -> String {
    let mut log = String::new();
    for line in conversation.lines().map(str::trim).filter(|line| !line.is_empty()) {
        match line.strip_prefix("> ") {
            Some(done) => log.push_str(&done_by_assistant(done)),
            None => log.extend(["user: ", line, "\nassistant: Very well.\n", WORK]),
        }
    }
    log + &WORK.repeat(6)
}

/// `run make` passes, `fail make: words` does not; `plan one | two` plans; `edit a: x -> y` edits; anything else is said.
pub(crate) fn done_by_assistant(done: &str) -> String {
    let call = |name: &str, arguments: serde_json::Value, result: &str| {
        format!("assistant:\n  call {name} {arguments}\n  {result}\n")
    };
    let (verb, rest) = done.split_once(' ').unwrap_or((done, ""));
    match verb {
        "run" => call("bash", serde_json::json!({ "command": rest }), "-> fine"),
        "fail" => {
            let (command, words) = rest.split_once(": ").expect("what failed, and how");
            call("bash", serde_json::json!({ "command": command }), &format!("!> {words}"))
        }
        "plan" => {
            let step = |step: &str| match step.strip_prefix("[x] ") {
                Some(step) => serde_json::json!({ "content": step, "status": "completed" }),
                None => serde_json::json!({ "content": step, "status": "pending" }),
            };
            let steps: Vec<serde_json::Value> = rest.split(" | ").map(step).collect();
            call("TodoWrite", serde_json::json!({ "todos": steps }), "-> ok")
        }
        "edit" => {
            let (path, change) = rest.split_once(": ").expect("a file, and its change");
            let (old, new) = change.split_once(" -> ").expect("what was and what is");
            call(
                "edit_file",
                serde_json::json!({ "path": path, "old_string": old, "new_string": new }),
                "-> done",
            )
        }
        _ => format!("assistant: {done}\n"),
    }
}

/// The summary of a session cut into spans, each on top of the one before; no call is parted from its result.
fn chained(events: &[Arc<LoggedEvent>], spans: usize) -> StructuredSummary {
    let caps = SectionCaps { trail: 2_000, ..SectionCaps::default() };
    let length = events.len().div_ceil(spans).max(1);
    let (mut brief, mut left) = (None, events);
    while !left.is_empty() {
        let is_result = |event: &Arc<LoggedEvent>| matches!(event.event.fact, Fact::ToolReturned { .. });
        let more = left.iter().skip(length).take_while(|event| is_result(event)).count();
        let (span, rest) = left.split_at((length + more).min(left.len()));
        brief = Some(summarise(span, brief.as_ref(), &caps));
        left = rest;
    }
    brief.unwrap_or_default()
}

/// What a summary says is so now.
fn in_force(brief: &StructuredSummary) -> Vec<String> {
    let stands = |item: &&SummaryItem| match item.section {
        SummarySection::Pins
        | SummarySection::CurrentTask
        | SummarySection::NextSteps
        | SummarySection::FailedApproaches => true,
        SummarySection::Constraints => item.detail != Some(ItemDetail::Wish(ConstraintForce::Withdrawn)),
        SummarySection::Errors => matches!(item.detail, Some(ItemDetail::Error { resolved: None, .. })),
        _ => false,
    };
    let stands = |item: &&SummaryItem| stands(item) && !brief.is_overtaken(item);
    let words = |item: &SummaryItem| {
        let first = brief.section(SummarySection::SessionIntent).next().map(|first| first.text.as_str());
        let text = if item.text == "The first request." { first.unwrap_or_default() } else { &item.text };
        text.split(" (takes back: ").next().unwrap_or_default().to_owned()
    };
    brief.items.iter().filter(stands).map(words).collect()
}

#[test]
fn a_rule_stands_until_it_is_taken_back() {
    check(
        "Never push to main.\nAdd a cache to the client.\nNow write the docs for the cache.",
        &["Never push to main."],
        &["Add a cache"],
    );
    check("Always use tabs.\nFix the parser.\nRename the lexer.", &["Always use tabs."], &[]);
    check("Please never edit generated files.\nFix the parser.", &["never edit generated files"], &[]);
    check("You should always run the linter before a commit.\nAdd a flag.", &["always run the linter"], &[]);
    check(
        "Fix the login form, and never log passwords.\nNow the logout button, please, with a test.",
        &["never log passwords"],
        &["logout buttons"],
    );
    check("Don't ever force-push.\nAdd a flag.\nAdd another flag.", &["force-push"], &[]);
    check("From now on answer in French.\nWhat does the lexer do?", &["answer in French"], &[]);
    check("In this repo, always sign the commits.\nAdd a flag.", &["always sign the commits"], &[]);
    check("Rules:\n- two spaces for indentation\n- the tests stay green\nAdd a flag.", &[], &[]);
    check(
        "Don't touch the billing folder.\nAdd a flag.\nAdd another one, with docs and tests.",
        &["billing folder"],
        &[],
    );
    check(
        "No new dependencies. Do not edit the vendored code.\nAdd a flag.",
        &["No new dependencies.", "vendored code"],
        &[],
    );
    check(
        "Add a flag for colours.\nNever write to stdout in the library.\nAdd a second flag for sizes, too.",
        &["Never write to stdout"],
        &["flag for colours"],
    );
}

#[test]
fn an_override_replaces_what_it_overrides() {
    check("Always use tabs.\nFix it.\nFrom now on use spaces.", &["use spaces"], &["Always use tabs."]);
    check("Always use tabs.\nUse spaces instead.", &["Use spaces instead."], &["Always use tabs."]);
    check(
        "Always indent with tabs.\nUse spaces, not tabs.",
        &["Use spaces, not tabs."],
        &["Always indent with tabs."],
    );
    check(
        "Always answer in English.\nFrom now on answer in German.\nWhat is this?",
        &["answer in German"],
        &["in English"],
    );
    check("Never push to main.\nAlways push to main.", &["Always push to main."], &["Never push to main."]);
    check(
        "Always run the slow tests.\nNever run the slow tests.",
        &["Never run the slow tests."],
        &["Always run"],
    );
    check(
        "Always deploy to staging.\nActually, deploy to production rather than staging.",
        &["production rather than staging"],
        &["Always deploy to staging."],
    );
    check(
        "Always name branches after the ticket.\nNew rule: name branches after the author, not the ticket.",
        &["after the author"],
        &["Always name branches"],
    );
    // What only shares a word is another rule.
    check(
        "Never push to main.\nNever push to release.",
        &["Never push to main.", "Never push to release."],
        &[],
    );
    check(
        "Always run the tests.\nAlways run clippy with warnings denied.",
        &["Always run the tests.", "clippy"],
        &[],
    );
}

#[test]
fn a_late_override_counts_as_much_as_an_early_one() {
    let between = "Add a flag to the exporter for compression.\nAdd a flag to the importer for encryption.\nWrite docs for both of these flags.\nTranslate the docs into Spanish.\n";
    check(
        &format!("Always use tabs.\n{between}From now on use spaces."),
        &["use spaces"],
        &["Always use tabs."],
    );
    check(
        &format!(
            "Never touch the migrations.\n{between}You can now change the migrations, the freeze is over."
        ),
        &[],
        &["Never touch"],
    );
    check(
        &format!("Alice takes the parser.\n{between}Bob takes over the parser."),
        &["Bob takes over the parser."],
        &["Alice takes"],
    );
    check(
        &format!("Never push to main.\n{between}Pushing to main is fine now."),
        &[],
        &["Never push to main."],
    );
    check(
        &format!("Never push to main.\n{between}You can now push to staging."),
        &["Never push to main."],
        &[],
    );
    check(
        &format!("Always use tabs.\n{between}From now on use spaces.\n{between}From now on use tabs."),
        &["From now on use tabs."],
        &["spaces"],
    );
}

#[test]
fn what_is_withdrawn_no_longer_stands() {
    check("Never touch the migrations.\nYou may now change the migrations.", &[], &["Never touch"]);
    check("Never push to main.\nForget what I said about pushing to main.", &[], &["Never push"]);
    check("Always squash the commits.\nNo need to squash the commits anymore.", &[], &["Always squash"]);
    check("Never use unsafe code.\nUnsafe code is allowed again.", &[], &["Never use unsafe"]);
    check(
        "Add a search box to the header.\nRename every button in the footer.\nScratch that.",
        &["Scratch that."],
        &["Rename every button"],
    );
    check(
        "Add a search box to the header.\nNever use red.\nNever mind.",
        &["Never mind."],
        &["Never use red."],
    );
    check(
        "Fix the parser for nested lists.\nDelete the whole cache folder.\nForget it.",
        &["Forget it."],
        &["Delete the whole cache"],
    );
    check(
        "Never push to main.\nAdd dark mode to the settings page.\nScratch that.",
        &["Never push to main."],
        &["Add dark mode"],
    );
    // Something else is let go of.
    check("Never push to main.\nNever mind the linter.", &["Never push to main."], &[]);
    check("Never edit the schema.\nThe parser no longer compiles.", &["Never edit the schema."], &[]);
    check("Never edit the schema.\nYou can now run the integration tests.", &["Never edit the schema."], &[]);
}

#[test]
fn an_order_goes_with_its_request() {
    check(
        "Fix the login bug, don't touch the tests.\nThanks. Now add a search box to the header.",
        &["search box"],
        &["don't touch the tests"],
    );
    check(
        "Add a flag.\nRewrite the exporter, but only the writer half of it.\nNow write the docs of the importer.",
        &["docs of the importer"],
        &["only the writer"],
    );
    check("Never commit yet.\nNow write the docs of the importer.", &[], &["Never commit yet."]);
    check(
        "For this change always run the slow suite.\nNow write the docs of the importer.",
        &[],
        &["slow suite"],
    );
    check("Don't run the tests this time.\nNow write the docs of the importer.", &[], &["Don't run"]);
    check("No commits for now.\nNow write the docs of the importer.", &[], &["No commits"]);
    check(
        "Explain the parser. Do not change it.\nNow write the docs of the importer.",
        &[],
        &["Do not change it."],
    );
    check(
        "Write the docs of the importer.\nFix the exporter. Use the old format.\nNow add a flag to the importer.",
        &["add a flag"],
        &["old format"],
    );
}

#[test]
fn a_story_is_no_order() {
    check("It never worked on Windows.\nFix it.", &["Fix it."], &["never worked on Mac"]);
    check(
        "Fix the importer.\nThe export always fails on large files, and I never saw why.\nLook into the docs of the importer now.",
        &["Look into"],
        &["always fails"],
    );
    check(
        "Fix the importer.\nAlways crashes here when I start it.\nLook into the docs of the importer now.",
        &["Look into"],
        &["Always crashes"],
    );
    check(
        "Fix the importer.\nIn my old job we never wrote tests, and it always hurt.\nLook into the docs of the importer now.",
        &[],
        &["never wrote"],
    );
    check(
        "Fix the importer.\nOnly happens on Linux.\nLook into the docs of the importer now.",
        &[],
        &["Only happens"],
    );
    check(
        "Fix the importer.\nNo, that is the old file.\nLook into the docs of the importer now.",
        &[],
        &["old file"],
    );
    check(
        "Fix the importer.\nWhy do we never flush the cache?\nLook into the docs of the importer now.",
        &[],
        &["flush"],
    );
    check(
        "Fix the importer.\nThe build takes five minutes, the tests take longer.\nLook into the docs of the importer now.",
        &[],
        &["takes five"],
    );
    check(
        "Fix the importer.\nMy colleague said the tests never pass and he never looks at them.\nLook into the docs of the importer now.",
        &[],
        &["colleague"],
    );
    check(
        "Fix the importer.\nNever seen that one before.\nLook into the docs of the importer now.",
        &[],
        &["Never seen"],
    );
}

#[test]
fn the_lesson_of_a_story_stands_and_the_story_does_not() {
    check(
        "Last year we stored money as floats and lost a week over it. Lesson: always store money as integers.\nAdd a price to the order.",
        &["always store money as integers"],
        &["lost a week"],
    );
    check(
        "Tom once deployed on a Friday and spent the weekend here. Never deploy on a Friday.\nAdd a price to the order.",
        &["Never deploy on a Friday."],
        &["Tom once"],
    );
    check(
        "The intern ran the script against production. So never run scripts against production.\nAdd a price to the order.",
        &["never run scripts"],
        &["The intern"],
    );
    check(
        "We always had trouble with that library; please, never upgrade it without asking me.\nAdd a price to the order.",
        &["never upgrade"],
        &[],
    );
}

#[test]
fn who_has_what_is_known_and_the_newest_owner_counts() {
    check("Alice takes the parser.\nAdd a flag.", &["Alice takes the parser."], &[]);
    check(
        "Alice takes the parser.\nBob takes the lexer.",
        &["Alice takes the parser.", "Bob takes the lexer."],
        &[],
    );
    check(
        "Alice takes the parser.\nAlice takes the docs.",
        &["Alice takes the parser.", "Alice takes the docs."],
        &[],
    );
    check(
        "Alice takes the parser.\nBob takes the parser.",
        &["Bob takes the parser."],
        &["Alice takes the parser."],
    );
    check("Maria übernimmt die Tests.\nJonas übernimmt die Tests.", &["Jonas übernimmt"], &["Maria"]);
    check("テストは田中さんが担当です。\nテストは佐藤さんが担当です。", &["佐藤"], &["田中"]);
    check(
        "Fix the importer.\nCompilation takes forever.\nWrite the docs of the importer now.",
        &[],
        &["takes forever"],
    );
}

#[test]
fn a_negated_order_keeps_its_negation_word_for_word() {
    check("Do not delete the old backups.\nAdd a flag.", &["Do not delete the old backups."], &[]);
    check(
        "You must not rename the public functions.\nAdd a flag.",
        &["You must not rename the public functions."],
        &[],
    );
    check("Never not check the signature.\nAdd a flag.", &["Never not check the signature."], &[]);
    check("Add a flag.\nNo need to run the tests.\nWrite the docs of the importer now.", &[], &["No need"]);
    check(
        "Add a flag.\nDon't worry about the style.\nWrite the docs of the importer now.",
        &[],
        &["Don't worry"],
    );
}

#[test]
fn other_languages_are_heard_too() {
    check("Pushe nie auf main.\nFüge einen Cache hinzu.", &["Pushe nie auf main."], &[]);
    check(
        "Bitte immer Tabs verwenden.\nAb jetzt Leerzeichen verwenden.",
        &["Ab jetzt Leerzeichen"],
        &["immer Tabs"],
    );
    check("Ändere niemals das Schema.\nDu kannst jetzt das Schema ändern.", &[], &["niemals"]);
    check(
        "Der Test schlägt immer fehl.\nSchau dir bitte die Doku des Importers an.",
        &["Schau dir"],
        &["schlägt immer fehl"],
    );
    check("Keine neuen Abhängigkeiten.\nFüge einen Cache hinzu.", &["Keine neuen Abhängigkeiten."], &[]);
    check(
        "Diesmal nie das alte Format verwenden.\nSchreib jetzt bitte die Doku des Importers.",
        &[],
        &["altes Format", "Diesmal"],
    );
    check(
        "mainには絶対にプッシュしないでください。\nキャッシュを追加してください。",
        &["絶対にプッシュしないでください"],
        &[],
    );
    check(
        "インデントは常にタブを使ってください。\n今後、インデントはスペースを使ってください。",
        &["スペース"],
        &["タブ"],
    );
    check("mainには絶対にプッシュしないでください。\nmainにプッシュしてもいいです。", &[], &["絶対に"]);
    check("テストは常に失敗します。\n輸入処理の説明書を書いてください。", &["説明書"], &["常に失敗"]);
    check("لا تدفع أبدا إلى main\nأضف ذاكرة مؤقتة", &["أبدا"], &[]);
    check("استخدم دائما المسافات\nمن الآن استخدم الجداول", &["الجداول"], &["دائما"]);
    check("لا تلمس أبدا مجلد الفواتير\nيمكنك الآن تعديل مجلد الفواتير", &[], &["أبدا"]);
    check("永远不要推送到 main。\n添加一个缓存。", &["永远不要推送到 main"], &[]);
    check("Ne pousse jamais sur main.\nAjoute un cache.", &["jamais"], &[]);
    check("Usa siempre tabuladores.\nA partir de ahora usa espacios.", &["espacios"], &["siempre"]);
}

#[test]
fn the_newest_words_are_the_task_and_a_short_answer_brings_its_question_along() {
    check(
        "Add a cache to the client, with a test.\nNow write the manual page of the exporter.",
        &["manual page"],
        &["Add a cache"],
    );
    check(
        "Add a cache to the client, with a test.\n> Added. Shall I bound it, too?\nYes, go on.",
        &["Yes, go on. (answers: “Shall I bound it, too?”)"],
        &["Add a cache"],
    );
    check("Add a cache to the client, with a test.\nthanks", &["Add a cache"], &["thanks"]);
    check(
        "Füge dem Client einen Cache hinzu, mit Test.\n> Fertig. Soll er begrenzt sein?\nJa, bitte.",
        &["Ja, bitte. (answers: “Soll er begrenzt sein?”)"],
        &["Füge dem Client"],
    );
    check(
        "クライアントにキャッシュを追加して、テストも書いてください。\n> 追加しました。上限も設定しますか？\nはい、お願いします。",
        &["はい、お願いします。 (answers: “上限も設定しますか？”)"],
        &["キャッシュ"],
    );
}

#[test]
fn a_plan_stands_as_it_was_recorded_last() {
    check("Go.\n> plan Write the cache | Test the cache", &["Write the cache", "Test the cache"], &[]);
    check(
        "Go.\n> plan Write the cache | Test the cache\n> plan [x] Write the cache | Test the cache",
        &["Test the cache"],
        &["Write the cache"],
    );
    check(
        "Go.\n> plan Write the cache | Test the cache\nNew plan: first the docs, then a release.",
        &["first the docs"],
        &["Write the cache", "Test the cache"],
    );
    check(
        "Go.\n> plan Write the cache | Test the cache\nNeuer Plan: erst die Doku.",
        &["erst die Doku"],
        &["Write the cache"],
    );
    check(
        "Go.\n> plan Write the cache\nWrite the manual page of the exporter.\nTranslate the manual page into Spanish.\nAdd an index to the manual page.",
        &["an index"],
        &["Write the cache"],
    );
    check(
        "Go.\n> plan Write the cache\nWrite the manual page of the exporter.",
        &["manual page"],
        &["Write the cache"],
    );
    check("Go.\n> plan Write the cache\n> edit cache.c: one -> two", &[], &["Write the cache"]);
    check("Go.\n> plan Write the cache\n> run git commit -am cache", &[], &["Write the cache"]);
    check("Go.\n> plan Write the cache\n> run cat cache.c", &["Write the cache"], &[]);
}

#[test]
fn what_fails_by_now_stands_and_what_passed_since_does_not() {
    check("Go.\n> fail make test: Error: boom", &["boom"], &[]);
    check("Go.\n> fail make test: Error: boom\n> run make test", &[], &["boom"]);
    check("Go.\n> fail make test: Error: boom\n> run make build", &["boom"], &[]);
    check(
        "Go.\n> fail make test: Error: boom\nWrite the manual page of the exporter instead.",
        &[],
        &["boom"],
    );
    check("Go.\n> fail cat nowhere: cat: nowhere: No such file or directory", &[], &["nowhere"]);
    check(
        "Go.\n> fail make test: Error: boom\n> fail make test: Error: boom\n> edit a.c: one -> two\n> run make test",
        &["failed 2 times"],
        &["failed when last tried"],
    );
    check(
        "Go.\n> fail make test: Error: boom\n> fail make test: Error: boom\n> run make test --fast",
        &[],
        &["failed 2 times", "boom"],
    );
    check("Go.\n> fail make: no rule\n> fail rm -r out && make: no symbol", &["no symbol"], &["no rule"]);
    check("Go.\n> fail go test ./a: exec format error\n> run go test -c ./a", &[], &["exec format error"]);
    check("Go.\n> edit a.c: one -> two\n> edit a.c: two -> one", &["a.c to `two` was taken back"], &[]);
    check(
        "Go.\n> edit a.c: one -> two\n> edit a.c: two -> one\n> edit a.c: one -> two",
        &[],
        &["to `two` was taken back"],
    );
    check("Go.\n> edit a.c: one -> two\n> run git checkout -- a.c", &["taken back with"], &[]);
    check("Go.\n> edit a.c: one -> two\n> run git stash\n> run git stash pop", &[], &["taken back"]);
    check(
        "Go.\n> edit a.c: one -> two\n> run git commit -am x\n> run git checkout -- a.c",
        &[],
        &["taken back"],
    );
}

/// What is replaced or taken back is told as that, with the user's words for it.
#[test]
fn an_override_says_what_it_overrides() {
    let brief = chained(&read(&log("Always use tabs.\nFrom now on use spaces.")), 1);
    let withdrawn = brief
        .section(SummarySection::Constraints)
        .find(|item| item.detail == Some(ItemDetail::Wish(ConstraintForce::Withdrawn)));
    let text = withdrawn.map(|item| item.text.as_str());
    assert_eq!(text, Some("No longer holds: Always use tabs. (the user: From now on use spaces.)"));
    let brief = chained(
        &read(&log("Add a search box to the header.\nRename every button in the footer.\nScratch that.")),
        1,
    );
    let task = brief.section(SummarySection::CurrentTask).map(|item| item.text.as_str()).collect::<Vec<_>>();
    assert!(task.contains(&"Scratch that. (takes back: Rename every button in the footer.)"), "{task:?}");
}
