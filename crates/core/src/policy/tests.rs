//! Tests of the built-in policies and of the files they are written in.

use super::*;
use crate::{budget::WindowReserves, loop_blocks::BlockConfig, profile::Profiles};

#[test]
fn the_built_in_policies_can_be_read_and_the_default_is_first() {
    let names: Vec<&str> = Policy::builtin().iter().map(|policy| policy.name.as_str()).collect();
    assert_eq!(names, ["epitome", "retention", "blocks", "lineage", "pivot", "tiered"]);
    insta::assert_snapshot!(Policy::named("epitom").unwrap_err(), @"there is no policy `epitom`; there are epitome, retention, blocks, lineage, pivot, tiered, or give a file");
}

#[test]
fn each_fits_on_a_screen_and_says_for_whom_it_is_in_a_few_lines() {
    for (text, policy) in FILES.iter().zip(Policy::builtin()) {
        assert!(text.lines().count() <= 50, "{}", policy.name);
        assert!(text.lines().all(|line| line.chars().count() <= 120), "{}", policy.name);
        assert!(policy.about.chars().count() <= 260, "{}: {}", policy.name, policy.about.chars().count());
        assert!(policy.about.ends_with('.') && !policy.about.contains('\n'), "{}", policy.name);
    }
}

fn profile(toml: &str) -> Budget {
    let mut profiles = Profiles::builtin();
    let entry = format!("[[model]]\nname = \"test\"\nwire = \"anthropic\"\n{toml}");
    profiles.with_overrides(&entry).unwrap();
    Budget::for_profile(profiles.find("test").unwrap(), WindowReserves::default())
}

/// Each policy's sizes in a window.
fn sizes(base: &Budget) -> String {
    let line = |policy: &Policy| {
        let budget = policy.budget(base.clone());
        let cold = policy.cold_level(&budget).map_or_else(String::new, |cold| format!(", cold {cold}"));
        let (target, trigger, force) = (budget.target(), budget.trigger(), budget.force());
        format!("{:<10} target {target}, trigger {trigger}, force {force}{cold}\n", policy.name)
    };
    Policy::builtin().iter().map(line).collect()
}

/// The designs speak of windows of 200 000 tokens, of which 16 000 are the answer's.
#[test]
fn each_acts_where_its_design_says() {
    insta::assert_snapshot!(sizes(&profile("window = 200_000")), @r"
    epitome    target 104000, trigger 159000, force 174800, cold 104000
    retention  target 110400, trigger 165600, force 165600
    blocks     target 92000, trigger 156400, force 156400
    lineage    target 110400, trigger 180000, force 180000
    pivot      target 147200, trigger 184000, force 184000
    tiered     target 82800, trigger 101200, force 156400
    ");
    let blocks = BlockConfig::default();
    let budget = Policy::named("blocks").unwrap().budget(profile("window = 200_000"));
    assert_eq!(budget.trigger(), blocks.trigger(budget.ceiling()));
}

#[test]
fn the_thresholds_of_a_model_hold_for_the_policy_that_has_none() {
    let base = profile("window = 200_000\nthresholds = { trigger = 0.7, target = 0.6 }");
    let tiered = Policy::named("tiered").unwrap().budget(base.clone());
    assert_eq!(tiered, base);
}

#[test]
fn in_a_small_window_there_is_room_between_the_target_and_the_trigger() {
    insta::assert_snapshot!(sizes(&profile("window = 40_000")), @r"
    epitome    target 17000, trigger 20400, force 22800, cold 17000
    retention  target 14400, trigger 21600, force 21600
    blocks     target 12000, trigger 20400, force 20400
    lineage    target 14400, trigger 20000, force 20400
    pivot      target 19200, trigger 24000, force 24000
    tiered     target 10800, trigger 13200, force 20400
    ");
    // A plain budget has no thresholds.
    insta::assert_snapshot!(sizes(&Budget::new(Tokens(10_000))), @r"
    epitome    target 8200, trigger 8500, force 9500, cold 8200
    retention  target 6000, trigger 9000, force 10000
    blocks     target 5000, trigger 8500, force 10000
    lineage    target 4000, trigger 5000, force 10000
    pivot      target 8000, trigger 10000, force 10000
    tiered     target 8000, trigger 10000, force 10000
    ");
}

#[test]
fn the_numbers_are_those_of_the_designs() {
    let steps = |name: &str| {
        let policy = Policy::named(name).unwrap();
        let steps = policy.reduce.iter().map(|step| serde_json::to_string(step).unwrap() + "\n");
        let summary = policy.summary.map_or_else(
            || "no summary".to_owned(),
            |rules| format!("{:?}, {:?}, {:?}", rules.keep, rules.length, rules.shape),
        );
        steps.chain([summary]).collect::<String>()
    };
    insta::assert_snapshot!(steps("retention"), @r#"
    {"when":"every_call","reducer":"expire_tool_results","default":{"turns":10},"tools":{"Read":{"last":5},"read":{"last":5},"read_file":{"last":5},"skill":"never_evict"}}
    {"when":"at_epoch","reducer":"slide_dialogue","max_turns":100,"max_tokens":null}
    Tokens(Tokens(20000)), Scaled { percent: 15, least: Tokens(1500), most: Tokens(6000) }, Message
    "#);
    insta::assert_snapshot!(steps("blocks"), @r#"
    {"when":"at_epoch","reducer":"blocks","compact_at_pct":0.9,"compact_budget_threshold_pct":0.05,"compaction_scope":{"fixed_count":3},"keep_first_turns":2,"keep_recent_turns":10,"max_summary_tokens":2000,"tool_output_max_lines":50,"keep_user_messages":false}
    no summary
    "#);
    insta::assert_snapshot!(steps("lineage"), @"Tokens(Tokens(30000)), Scaled { percent: 15, least: Tokens(1500), most: Tokens(6000) }, Message");
    insta::assert_snapshot!(steps("pivot"), @r#"
    {"when":"every_call","reducer":"prune","spare_user_turns":2,"protect":40000,"more_than":20000,"protected_tools":["skill"]}
    Turns(1), Scaled { percent: 15, least: Tokens(1500), most: Tokens(6000) }, QuestionAndAnswer
    "#);
    insta::assert_snapshot!(steps("tiered"), @r#"
    {"when":"at_epoch","reducer":"cut_outputs","tokens":{"over":2000,"head":500,"tail":500},"lines":null,"spare_turns":1}
    {"when":"at_epoch","reducer":"refer_outputs","spare_turns":5}
    {"when":"at_epoch","reducer":"cut_outputs","tokens":{"over":500,"head":250,"tail":250},"lines":null,"spare_turns":1}
    Recent(RecentWindow { turns: 5, tokens: Tokens(8000), output: Tokens(500) }), Fixed(Tokens(4000)), Message
    "#);
    insta::assert_snapshot!(steps("epitome"), @r#"
    {"when":"on_arrival","reducer":"cut_outputs","tokens":{"over":20000,"head":8000,"tail":8000},"lines":null,"share":0.6,"spare_turns":0}
    {"when":"at_epoch","reducer":"drop_superseded_reads"}
    {"when":"at_epoch","reducer":"drop_reasoning","scope":"keep_open_loop"}
    {"when":"at_epoch","reducer":"evict_media","keep_newest":3}
    {"when":"after_summary","reducer":"cut_outputs","tokens":{"over":2000,"head":500,"tail":500},"lines":null,"spare_turns":1}
    {"when":"after_summary","reducer":"refer_outputs","spare_turns":4}
    {"when":"after_summary","reducer":"expire_tool_results","default":{"turns":10},"tools":{"skill":"never_evict"}}
    Tokens(Tokens(120000)), Scaled { percent: 15, least: Tokens(1500), most: Tokens(6000) }, Message
    "#);
}

#[test]
fn a_file_over_a_base_changes_what_it_says_and_nothing_else() {
    let base = Policy::named("pivot").unwrap();
    let same = Policy::read("base = \"pivot\"").unwrap();
    assert_eq!(same, *base);
    let other = Policy::read("name = \"mine\"\nbase = \"pivot\"\nlimits = { target = 0.5 }").unwrap();
    assert_eq!(
        other.limits,
        PolicyLimits { target: Some(LimitSize::Share(Share::percent(50))), ..base.limits }
    );
    assert_eq!((other.name.as_str(), &other.reduce, other.summary), ("mine", &base.reduce, base.summary));
    assert_eq!(Policy::read("base = \"pivot\"\nsummary = false").unwrap().summary, None);
    let default = Policy::read("base = \"pivot\"\nsummary = true").unwrap().summary;
    assert_eq!(default, Some(SummaryRules::default()));
}

#[test]
fn a_level_is_a_share_or_what_stays_free() {
    let check = |toml: &str, expect: u64| {
        let policy = Policy::read(&format!("base = \"lineage\"\nlimits = {{ trigger = {toml} }}")).unwrap();
        assert_eq!(policy.limits.trigger.unwrap().of(Tokens(1_000), Tokens(0)), Tokens(expect), "{toml}");
    };
    check("0.7", 700);
    check("1", 1_000);
    check("1.0", 1_000);
    check("{ less = 300 }", 700);
    check("{ less = 900 }", 500);
    check("{ less = 900, least = 0.3 }", 300);
    check("{ less = 300, least = 0.3 }", 700);
}

/// Error message for a file.
fn wrong(toml: &str) -> String {
    Policy::read(toml).expect_err(toml).to_string()
}

#[test]
fn a_bad_file_is_refused_with_its_line_and_the_reason() {
    insta::assert_snapshot!(wrong("base = \"epitome\"\n\nsummery = false"), @"line 3: unknown field `summery`, expected one of `name`, `about`, `base`, `limits`, `caps`, `reduce`, `summary`");
    insta::assert_snapshot!(wrong("base = \"epitome\"\nname = \n"), @"line 2: string values must be quoted, expected literal string");
    insta::assert_snapshot!(wrong("base = \"epitome\"\n[limits\n"), @"line 2: unclosed table, expected `]`");
    insta::assert_snapshot!(wrong("base = \"epitome\"\nbase = \"pivot\""), @"line 2: duplicate key");
    insta::assert_snapshot!(wrong("name = \"mine\"\nbase = \"epitom\""), @"line 2: `base`: there is no built-in policy `epitom`; there are epitome, retention, blocks, lineage, pivot, tiered");
    insta::assert_snapshot!(wrong("\nabout = \"x\"\nreduce = []"), @"line 1: `name` is missing; only a policy with a `base` may go without");
    insta::assert_snapshot!(wrong("name = \"mine\"\nreduce = []"), @"line 1: `about` is missing; only a policy with a `base` may go without");
    insta::assert_snapshot!(wrong("name = \"mine\"\nabout = \"x\""), @"line 1: `reduce`, the list of steps, or `reduce = []` for none, is missing; only a policy with a `base` may go without");
    insta::assert_snapshot!(wrong("base = \"epitome\"\nname = \" \""), @"line 2: `name` is empty");
    insta::assert_snapshot!(wrong("base = \"epitome\"\nname = 7"), @"line 2: invalid type: integer `7`, expected a string");
    insta::assert_snapshot!(wrong(""), @"line 1: `name` is missing; only a policy with a `base` may go without");
}

#[test]
fn a_bad_step_is_refused_with_the_line_of_the_field() {
    let step = |toml: &str| wrong(&format!("base = \"epitome\"\n\n[[reduce]]\n{toml}"));
    insta::assert_snapshot!(step("protect = 3"), @"line 3: a step needs its `reducer`: one of blocks, cut_outputs, drop_injected, drop_middle, drop_reasoning, drop_superseded_reads, evict_media, expire_tool_results, prune, refer_outputs, shorten_summaries, slide_dialogue, split_turn, summarise_turns");
    insta::assert_snapshot!(step("when = \"every_call\"\nreducer = \"prunes\""), @"line 5: there is no reducer `prunes`; there are blocks, cut_outputs, drop_injected, drop_middle, drop_reasoning, drop_superseded_reads, evict_media, expire_tool_results, prune, refer_outputs, shorten_summaries, slide_dialogue, split_turn, summarise_turns");
    insta::assert_snapshot!(step("reducer = 7"), @"line 4: `reducer` is a name in quotes, and not of type integer");
    insta::assert_snapshot!(step("reducer = \"prune\"\n\nprotcet = 3"), @"line 6: reducer `prune`: unknown field `protcet`, expected one of `spare_user_turns`, `protect`, `at_least`, `more_than`, `protected_tools`");
    insta::assert_snapshot!(step("reducer = \"prune\"\nspare_user_turns = 2\nprotect = -3"), @"line 6: reducer `prune`: `protect`: invalid value: integer `-3`, expected a whole number");
    insta::assert_snapshot!(step("reducer = \"blocks\"\ncompact_at_pct = 90"), @"line 5: reducer `blocks`: `compact_at_pct`: expected a number from 0 to 1, found 90");
    insta::assert_snapshot!(step("reducer = \"blocks\"\ncompaction_scope = \"all\""), @"line 5: reducer `blocks`: `compaction_scope`: unknown variant `all`, expected `fixed_count` or `token_budget`");
    insta::assert_snapshot!(step("reducer = \"cut_outputs\"\ntokens = { over = 3, heads = 1 }"), @"line 5: reducer `cut_outputs`: `tokens`: unknown field `heads`, expected one of `over`, `head`, `tail`");
    insta::assert_snapshot!(step("reducer = \"expire_tool_results\"\ntools = { a = \"never\" }"), @"line 5: reducer `expire_tool_results`: `tools`: unknown variant `never`, expected one of `turns`, `last`, `never_evict`");
    insta::assert_snapshot!(step("reducer = \"prune\"\nwhen = \"sometimes\""), @"line 5: `when`: unknown variant `sometimes`, expected one of `at_epoch`, `after_summary`, `on_arrival`, `every_call`");
    insta::assert_snapshot!(step("reducer = \"prune\"\nwhen = true"), @"line 5: `when` is a name in quotes, and not of type boolean");
    insta::assert_snapshot!(step("reducer = \"slide_dialogue\"\nmax_turns = 0.5"), @"line 5: reducer `slide_dialogue`: `max_turns`: invalid type: floating point `0.5`, expected a whole number");
    insta::assert_snapshot!(step("reducer = \"expire_tool_results\"\ndefault = 5"), @"line 5: reducer `expire_tool_results`: `default`: invalid type: integer `5`, expected string or map");
    insta::assert_snapshot!(wrong("base = \"epitome\"\nreduce = [\n  { reducer = \"prune\" },\n  { reducer = \"prune\", protect = \"all\" },\n]"), @r#"line 4: reducer `prune`: `protect`: invalid type: string "all", expected a whole number"#);
    insta::assert_snapshot!(wrong("base = \"epitome\"\nreduce = \"prune\""), @r#"line 2: invalid type: string "prune", expected a list of tables"#);
}

#[test]
fn bad_limits_and_caps_are_refused_with_the_line_of_the_field() {
    // Sizes as shares, so that each row says one thing.
    let limits = |toml: &str| {
        let own = |name: &str| toml.trim_start().lines().any(|line| line.starts_with(name));
        let defaults = [("cold", "0.35"), ("target", "0.45"), ("trigger", "0.7"), ("force", "0.9")];
        let rest = defaults.iter().filter(|(name, _)| !own(name));
        let rest: Vec<String> = rest.map(|(name, level)| format!("{name} = {level}")).collect();
        let rest = rest.join("\n");
        wrong(&format!("base = \"epitome\"\n[limits]\n{toml}\n{rest}"))
    };
    insta::assert_snapshot!(limits("trigger = 0.5\ntarget = 0.5"), @"line 4: `target` must be below `trigger`, or every call would reset the cache: of 200000 tokens they are 100000 and 100000");
    insta::assert_snapshot!(limits("force = 0.9\ntarget = 0.8"), @"line 4: `target` must be below `trigger`, or every call would reset the cache: of 200000 tokens they are 160000 and 140000");
    insta::assert_snapshot!(limits("force = 0.4"), @"line 5: `target` must be below `force`, or every call would reset the cache: of 200000 tokens they are 90000 and 80000");
    insta::assert_snapshot!(limits("trigger = 0.95"), @"line 3: `trigger` must not be above `force`, or it would never be reached: of 200000 tokens they are 190000 and 180000");
    insta::assert_snapshot!(limits("cold = 0.95"), @"line 3: `cold` must not be above `force`, or it would never be reached: of 200000 tokens they are 190000 and 180000");
    insta::assert_snapshot!(limits("\ntrigger = 0.0"), @"line 4: `trigger` must be above 0");
    insta::assert_snapshot!(limits("cold = 0"), @"line 3: `cold` must be above 0");
    insta::assert_snapshot!(limits("trigger = 1.5"), @"line 3: expected a number from 0 to 1, found 1.5");
    insta::assert_snapshot!(limits("trigger = 70"), @"line 3: invalid value: integer `70`, expected a share such as 0.85, or what is to stay free, as `{ less = 20_000 }` of a request or `{ reserve = 20_000 }` of the window");
    insta::assert_snapshot!(limits("trigger = \"70 %\""), @r#"line 3: invalid type: string "70 %", expected a share such as 0.85, or what is to stay free, as `{ less = 20_000 }` of a request or `{ reserve = 20_000 }` of the window"#);
    insta::assert_snapshot!(limits("trigger = { more = 3 }"), @"line 3: unknown field `more`, expected one of `less`, `reserve`, `least`, `enough`");
    insta::assert_snapshot!(limits("triger = 0.7"), @"line 3: unknown field `triger`, expected one of `trigger`, `target`, `force`, `cold`, `heeds_degradation`");
    let caps = |toml: &str| wrong(&format!("base = \"epitome\"\n[caps]\n{toml}"));
    insta::assert_snapshot!(caps("tools = 0.3"), @"line 3: unknown variant `tools`, expected one of `prefix`, `summaries`, `dialogue`, `reasoning`, `tool_results`, `media`");
    insta::assert_snapshot!(caps("media = 0.1\ntool_results = 1.3"), @"line 4: expected a number from 0 to 1, found 1.3");
    insta::assert_snapshot!(caps("tool_results = 0.0"), @"line 3: a cap must be above 0, or nothing could ever meet it");
    insta::assert_snapshot!(wrong("name = \"mine\"\nabout = \"x\"\nreduce = []\nlimits = { trigger = 0.4, target = 0.6 }"), @"line 4: `target` must be below `trigger`, or every call would reset the cache: of 200000 tokens they are 120000 and 80000");
}

#[test]
fn a_bad_summary_is_refused_with_the_line_of_the_field() {
    let summary = |toml: &str| wrong(&format!("base = \"epitome\"\n[summary]\n{toml}"));
    insta::assert_snapshot!(summary("keep = { tokens = 9 }\nlenght = 3"), @"line 4: unknown field `lenght`, expected one of `keep`, `length`, `caps`, `shape`, `paid`");
    insta::assert_snapshot!(summary("keep = { loops = 3 }"), @"line 3: unknown variant `loops`, expected one of `turns`, `tokens`, `important`, `recent`");
    insta::assert_snapshot!(summary("keep = 3"), @"line 3: expected a name in quotes, or a table such as `{ tokens = 30_000 }`");
    insta::assert_snapshot!(summary("shape = \"song\""), @"line 3: unknown variant `song`, expected `message` or `question_and_answer`");
    insta::assert_snapshot!(summary("caps = { errors = 1, tests = 3 }"), @"line 3: unknown field `tests`, expected one of `session_intent`, `files_modified`, `files_read`, `commands`, `key_decisions`, `failed_approaches`, `errors`, `next_steps`, `trail`, `index`, `standing`");
    insta::assert_snapshot!(summary("length = { fixed = 0 }"), @"line 2: `summary`: a `length` of 0 leaves nothing to say");
    insta::assert_snapshot!(summary("length = { scaled = { percent = 10, least = 9, most = 3 } }"), @"line 2: `summary`: the least `length`, 9, is above the most, 3");
    insta::assert_snapshot!(summary("length = { scaled = { percent = 0, least = 1, most = 3 } }"), @"line 2: `summary`: a `length` of 0 percent of the span; expected 1 to 100");
    insta::assert_snapshot!(wrong("base = \"epitome\"\nsummary = \"no\""), @r#"line 2: invalid type: string "no", expected `false`, `true`, or a table with `keep`, `length`, `caps`, `shape`, `paid`"#);
}

#[test]
fn a_summary_and_what_is_kept_fit_the_target_in_any_window() {
    let policy = Policy::named("epitome").unwrap();
    let rules = policy.summary.unwrap();
    let check = |ceiling: u64, prefix: u64| {
        let budget = policy.budget(Budget::new(Tokens(ceiling)));
        let drafting = rules.compaction_settings(&budget, Tokens(prefix));
        let room = budget.target().less(Tokens(prefix));
        let kept = drafting.keep.tokens().expect("the default keeps by tokens") + drafting.length.most();
        assert!(kept <= room, "{ceiling} with {prefix}: {kept} of {room}");
        assert!(drafting.caps.index as u64 <= room.0, "{ceiling} with {prefix}: {:?}", drafting.caps);
        // It is rounded, by a sixteenth at most.
        let most = drafting.most.expect("a size");
        assert!(most <= budget.target() && most.0 >= budget.target().0 / 16 * 15, "{ceiling}: {most}");
        assert_eq!(drafting.limit, Some(budget.trigger()));
        assert!(budget.target() < budget.trigger(), "{ceiling} leaves no room for calls");
        drafting
    };
    for ceiling in [4_000, 8_000, 12_000, 24_000, 60_000, 200_000, 1_000_000] {
        // Beside the kept part there is always room for the trail.
        let drafting = check(ceiling, 0);
        assert!(drafting.caps.trail > drafting.caps.index, "{ceiling}: {:?}", drafting.caps);
        check(ceiling, ceiling / 4);
        check(ceiling, ceiling);
    }
}

#[test]
fn a_first_request_that_outputs_would_be_cut_for_is_not_left_as_it_came() {
    let policy = Policy::named("epitome").unwrap();
    let budget = Budget::new(Tokens(100_000)).with_thresholds(Tokens(50_000), Tokens(98_000), Tokens(99_000));
    let sizes = policy.untouched_sizes(&budget).expect("the default goes by sizes");
    assert!(sizes.whole <= Tokens(95_000), "{sizes:?}");
}

#[test]
fn blocks_are_made_where_their_configuration_says() {
    let check = |toml: &str, expect: u64| {
        let text = format!("base = \"blocks\"\n[[reduce]]\nreducer = \"blocks\"\n{toml}");
        let budget = Policy::read(&text).unwrap().budget(profile("window = 200_000"));
        assert_eq!(budget.trigger(), Tokens(expect), "{toml}");
        assert!(budget.target() < budget.trigger(), "{toml}");
    };
    check("", 156_400);
    check("compact_at_pct = 0.90", 156_400);
    check("compact_at_pct = 0.30", 46_000);
    check("compact_budget_threshold_pct = 0.25", 119_600);
    // A trigger that a file sets goes before.
    let own = "base = \"blocks\"\nlimits = { trigger = 0.70 }";
    assert_eq!(Policy::read(own).unwrap().budget(profile("window = 200_000")).trigger(), Tokens(128_800));
    insta::assert_snapshot!(wrong("base = \"blocks\"\n[[reduce]]\nreducer = \"blocks\"\ncompact_at_pct = 0.05"), @"line 2: reducer `blocks`: `compact_at_pct` must be above `compact_budget_threshold_pct`, or it would compact before every call");
}

#[test]
fn the_default_works_from_where_the_model_gets_worse_and_the_others_do_not() {
    let degraded =
        "\n[model.degradation]\nsource = \"x\"\nonset = [0.65, 0.75]\nrecommended_max = [0.60, 0.70]";
    let budget = |name: &str, toml: &str| Policy::named(name).unwrap().budget(profile(toml));
    for window in [200_000, 1_000_000] {
        let toml = format!("window = {window}{degraded}");
        let default = budget("epitome", &toml);
        assert_eq!(
            (default.trigger(), default.force()),
            (Tokens(window / 100 * 65), Tokens(window / 100 * 70))
        );
        assert!(default.target() < default.trigger(), "{default:?}");
        let cold = Policy::named("epitome").unwrap().cold_level(&default).unwrap();
        assert!(cold <= default.trigger(), "above it the planner is asked: {cold}");
        // A first request may be one question about a long text.
        assert_eq!(default.first_force(), Share::percent(95).of(default.ceiling()));
        for policy in Policy::builtin().iter().filter(|policy| policy.name != "epitome") {
            let plain = budget(&policy.name, &format!("window = {window}"));
            let known = budget(&policy.name, &toml);
            assert_eq!((known.trigger(), known.force()), (plain.trigger(), plain.force()), "{}", policy.name);
        }
    }
    // Where the money's sizes come first they hold.
    let small = budget("epitome", &format!("window = 200_000\ninput_limit = 100_000{degraded}"));
    let plain = budget("epitome", "window = 200_000\ninput_limit = 100_000");
    assert_eq!((small.trigger(), small.force()), (plain.trigger(), plain.force()));
    // An observation of another window counts as far as the model's own goes.
    let longer = format!("window = 100_000{degraded}\nwindow = 200_000");
    assert_eq!(
        budget("epitome", &longer).trigger(),
        budget("epitome", &format!("window = 100_000{degraded}")).trigger()
    );
}
