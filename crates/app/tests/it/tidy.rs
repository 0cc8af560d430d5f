//! The shape of the project: dependency arrows, cycles of modules, names, and files that nobody may forget.

mod cycles;
mod names;
mod source;

use std::{collections::BTreeMap, fs, path::PathBuf};

use super::harness::workspace;

/// What each crate may see of the others. Development dependencies are free: tests are no part of the architecture.
const ARROWS: [(&str, &[&str]); 6] = [
    ("core", &[]),
    ("wire", &["epitome-core"]),
    ("store", &["epitome-core"]),
    ("epitome", &["epitome-core", "epitome-store", "epitome-wire"]),
    ("measure", &["epitome"]),
    ("app", &["epitome", "epitome-measure"]),
];

/// What only one crate may depend on: SQL, HTTP and the like stay where they belong.
const ONLY_IN: [(&str, &str); 4] =
    [("rusqlite", "store"), ("clap", "app"), ("anyhow", "app"), ("indicatif", "app")];

/// Files outside `crates/store` that may name a database of its own: those in which a person chooses one. A location is
/// enough so far.
const CHOOSES_A_DATABASE: [&str; 0] = [];

fn dependencies(name: &str) -> Vec<String> {
    let path = workspace().join("crates").join(name).join("Cargo.toml");
    let manifest: toml::Table = fs::read_to_string(path).expect("a manifest").parse().expect("TOML");
    let table = manifest.get("dependencies").and_then(toml::Value::as_table).cloned().unwrap_or_default();
    table.into_iter().map(|(name, _)| name).collect()
}

#[test]
fn arrows_point_down_only() {
    for (name, allowed) in ARROWS {
        let mut seen: Vec<_> =
            dependencies(name).into_iter().filter(|dependency| dependency.starts_with("epitome")).collect();
        seen.sort();
        assert_eq!(seen, allowed, "crates/{name} may depend on these of our crates and no others");
    }
}

#[test]
fn every_crate_has_its_arrows_written_down() {
    let folders = fs::read_dir(workspace().join("crates")).expect("a folder of crates");
    let mut names: Vec<_> =
        folders.map(|entry| entry.expect("readable").file_name().into_string().expect("UTF-8")).collect();
    names.sort();
    let mut known: Vec<_> = ARROWS.iter().map(|(name, _)| *name).collect();
    known.sort_unstable();
    assert_eq!(names, known);
}

#[test]
fn what_belongs_to_one_crate_stays_there() {
    let all: BTreeMap<_, _> = ARROWS.iter().map(|(name, _)| (*name, dependencies(name))).collect();
    for (dependency, home) in ONLY_IN {
        for (name, dependencies) in &all {
            let here = dependencies.iter().any(|other| other == dependency);
            assert!(
                !here || *name == home,
                "{dependency} belongs to crates/{home}, but crates/{name} has it"
            );
        }
    }
}

/// Tests, examples and benchmarks included: whatever holds for one database has to hold for the next.
#[test]
fn a_database_is_named_only_where_it_is_chosen() {
    let database = ["Sql", "ite"].concat();
    let mut naming = Vec::new();
    for (path, text) in rust_files() {
        if !path.starts_with("store") && text.contains(&database) {
            naming.push(path.to_string_lossy().into_owned());
        }
    }
    assert_eq!(naming, CHOOSES_A_DATABASE, "these name the type of a database; `store::Store` is enough");
}

/// Every Rust file below `crates`, with its path there.
fn rust_files() -> Vec<(PathBuf, String)> {
    let root = workspace().join("crates");
    let (mut folders, mut files) = (vec![root.clone()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("readable").map(|entry| entry.expect("readable").path()) {
            if entry.is_dir() {
                folders.push(entry);
            } else if entry.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&entry).expect("UTF-8");
                files.push((entry.strip_prefix(&root).expect("below the root").to_owned(), text));
            }
        }
    }
    files.sort();
    files
}

/// A row of `docs/conformance.md` names the test that proves it, and the test must exist.
#[test]
fn every_requirement_met_names_a_test_that_exists() {
    let page = fs::read_to_string(workspace().join("docs/conformance.md")).expect("docs/conformance.md");
    let sources: String = rust_files().into_iter().map(|(_, text)| text).collect();
    let mut rows = 0;
    for row in page.lines().filter(|line| line.starts_with("| S")) {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let tests: Vec<_> = cells[3].split('`').skip(1).step_by(2).collect();
        assert!(!tests.is_empty(), "no test in: {row}");
        for test in tests {
            let name = test.rsplit("::").next().unwrap_or(test);
            assert!(sources.contains(&format!("fn {name}(")), "no test is called `{name}`: {row}");
        }
        rows += 1;
    }
    assert!(rows > 0, "docs/conformance.md has no rows");
}

/// Most files through which a request is handed on.
const MAX_PATH_FILES: usize = 25;

/// The path of a request in ARCHITECTURE.md leads through files that exist, in order, and through no more than a reader follows.
#[test]
fn the_path_of_a_request_is_short_and_leads_through_files_that_exist() {
    let page = fs::read_to_string(workspace().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let (_, section) = page.split_once("## The path of a request").expect("the section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let mut files = 0;
    for line in section.lines() {
        let mut words = line.split_whitespace();
        let Some(number) = words.next().and_then(|word| word.parse::<usize>().ok()) else { continue };
        files += 1;
        assert_eq!(number, files, "{line}");
        let path = words.next().expect("a file");
        let (name, inner) = path.split_once('/').expect("a file of a crate");
        let file = workspace().join("crates").join(name).join("src").join(inner);
        assert!(file.with_extension("rs").is_file() || file.join("mod.rs").is_file(), "{line}");
    }
    assert!((1..=MAX_PATH_FILES).contains(&files), "{files} files");
}

/// The text of some files of a crate without their unit tests.
fn own_text(is_meant: impl Fn(&str) -> bool) -> Vec<(String, String)> {
    let files = rust_files().into_iter().map(|(path, text)| (path.to_string_lossy().into_owned(), text));
    let meant = files.filter(|(path, _)| is_meant(path));
    meant
        .map(|(path, text)| (path, text.split("#[cfg(test)]").next().unwrap_or_default().to_owned()))
        .collect()
}

/// They share a budget: neither is built on the other.
#[test]
fn injection_and_reduction_know_nothing_of_each_other() {
    const REDUCTION: [&str; 6] =
        ["reducers", "pipeline", "fit", "loop_blocks", "budget", "compaction_strategy"];
    let names = |text: &str, module: &str| {
        text.match_indices(&format!("{module}::")).any(|(at, _)| {
            let before = text[..at].chars().next_back();
            !before.is_some_and(|letter| letter.is_alphanumeric() || letter == '_')
        })
    };
    let injection = own_text(|path| path == "core/src/inject.rs");
    for module in REDUCTION {
        assert!(injection.iter().all(|(_, text)| !names(text, module)), "inject.rs names {module}");
        let (file, folder) = (format!("core/src/{module}.rs"), format!("core/src/{module}/"));
        let reduction = own_text(|path| path == file || path.starts_with(&folder));
        assert!(!reduction.is_empty(), "{module} is gone");
        for (path, text) in reduction {
            assert!(!names(&text, "inject"), "{path} names inject");
        }
    }
    assert!(names("use crate::{\n    budget::Budget,\n};", "budget"), "the test can see a use");
}

/// A reducer that no policy can name would be one that nobody runs.
#[test]
fn every_reducer_is_known_by_its_file() {
    let known = fs::read_to_string(workspace().join("crates/core/src/reducers/mod.rs")).expect("UTF-8");
    let reducers = own_text(|path| path.starts_with("core/src/reducers/") && !path.ends_with("mod.rs"));
    let reducers = reducers.iter().filter(|(_, text)| text.contains("\nimpl Reducer for "));
    for (path, text) in reducers {
        let name = text.split("\nimpl Reducer for ").nth(1).and_then(|rest| rest.split_once(" {"));
        let name = name.map_or("", |(name, _)| name);
        let (_, list) = known.split_once("any_reducer!(\n").expect("the list of reducers");
        assert!(list.contains(&format!("    {name},\n")), "{path}: {name} is not in `any_reducer!`");
    }
}

/// A method that no check calls is promised by nobody.
#[test]
fn the_suite_of_databases_calls_every_method_of_every_trait() {
    let traits = own_text(|path| path.starts_with("store/src/traits/") || path == "store/src/log.rs");
    let suite = own_text(|path| path.starts_with("store/src/conformance"));
    let methods: Vec<&str> = traits
        .iter()
        .flat_map(|(_, text)| text.lines())
        .filter_map(|line| line.strip_prefix("    fn ")?.split_once('(').map(|(name, _)| name))
        .collect();
    assert!(methods.len() > 60, "methods are found: {methods:?}");
    let is_called = |name: &&str| suite.iter().any(|(_, text)| text.contains(&format!(".{name}(")));
    let untried: Vec<_> = methods.iter().filter(|name| !is_called(name)).collect();
    assert!(untried.is_empty(), "no check calls {untried:?}");
}
