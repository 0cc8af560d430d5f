//! Cycles between the top modules of a crate: modules that use each other cannot be read one after the other.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use super::source::{SourceFile, code_of, source_files};

/// The cycles there are: the modules of a crate that all reach each other. A new one, or one more module in one of these, fails
/// the test; so does one that is gone, so that the list stays true.
const CYCLES: [(&str, &str); 3] = [
    (
        "core",
        "annotated_event budget client_text context draft_gate event hash_chain id lineage loop_blocks media meter \
         pairing pipeline profile projection reducers seq_set standing_context summary turn unparsed_json",
    ),
    ("epitome", "recorder rewrite session"),
    // A provider's trait names the types of every step, and every step asks the format for its provider.
    (
        "wire",
        "append_instruction caller encode endpoint format incoming legality message_builder model_answer plain_request \
         prompt_blocks providers recall_tool render request response stream synthetic_response tools write",
    ),
];

/// Uses between the top modules of a crate.
#[derive(Default)]
struct ModuleGraph {
    /// The modules that each one uses, with a path that does so.
    uses: BTreeMap<String, BTreeMap<String, String>>,
    /// Names that the crate's root has from its modules.
    root_names: BTreeMap<String, String>,
}

#[test]
fn no_more_modules_use_each_other_in_a_circle() {
    let mut graphs: BTreeMap<String, ModuleGraph> = BTreeMap::new();
    let files = source_files();
    // The roots first: they name the modules.
    for file in &files {
        if let [name, "src", "lib.rs" | "main.rs"] = *segments(file) {
            graphs.entry(name.to_owned()).or_default().add_root(file);
        }
    }
    for file in &files {
        if let [name, "src", inner @ ..] = &*segments(file) {
            graphs.get_mut(*name).expect("each crate has a root").add(file, inner);
        }
    }
    let mut found = String::new();
    for (name, graph) in &graphs {
        for cycle in graph.cycles() {
            writeln!(found, "{name}: {}", cycle.into_iter().collect::<Vec<_>>().join(" ")).expect("a string");
        }
    }
    let mut known: Vec<_> = CYCLES.iter().map(|(name, cycle)| format!("{name}: {cycle}\n")).collect();
    known.sort();
    assert_eq!(found, known.concat(), "the cycles of modules changed; see `CYCLES`");
}

fn segments(file: &SourceFile) -> Vec<&str> {
    file.path.iter().map(|segment| segment.to_str().expect("UTF-8")).collect()
}

impl ModuleGraph {
    /// Reads the modules, and the names taken from them, from a crate's root.
    fn add_root(&mut self, file: &SourceFile) {
        let code = code(file);
        for line in code.lines().map(str::trim) {
            let line = line.strip_prefix("pub ").or_else(|| line.strip_prefix("pub(crate) ")).unwrap_or(line);
            if let Some(module) = line.strip_prefix("mod ").and_then(|module| module.strip_suffix(';')) {
                self.uses.insert(module.to_owned(), BTreeMap::new());
            }
        }
        for path in used_paths(&code) {
            let path = path.trim_start_matches("self::").trim_start_matches("crate::");
            if let Some((module, _)) =
                path.split_once("::").filter(|(module, _)| self.uses.contains_key(*module))
            {
                let name = path.rsplit([':', ' ']).next().unwrap_or_default();
                self.root_names.insert(name.to_owned(), module.to_owned());
            }
        }
    }

    /// Adds the uses of a file, which lies at `inner` below `src`.
    fn add(&mut self, file: &SourceFile, inner: &[&str]) {
        let mut modules: Vec<_> = inner.iter().map(|part| part.trim_end_matches(".rs")).collect();
        modules.pop_if(|last| *last == "mod");
        let Some(own) =
            modules.first().filter(|own| self.uses.contains_key(**own)).map(|own| (*own).to_owned())
        else {
            return;
        };
        let to_root = "super::".repeat(modules.len());
        let code = code(file);
        for path in used_paths(&code).into_iter().chain(inline_paths(&code)) {
            let Some(path) = path.strip_prefix("crate::").or_else(|| path.strip_prefix(&*to_root)) else {
                continue;
            };
            let name = path.split("::").next().unwrap_or_default().trim();
            let module = if self.uses.contains_key(name) {
                Some(name)
            } else {
                self.root_names.get(name).map(String::as_str)
            };
            if let Some(module) = module.filter(|module| *module != own).map(str::to_owned) {
                self.uses.entry(own.clone()).or_default().entry(module).or_insert_with(|| path.to_owned());
            }
        }
    }

    /// The strongly connected components of more than one module.
    fn cycles(&self) -> BTreeSet<BTreeSet<&str>> {
        let reached: BTreeMap<_, _> =
            self.uses.keys().map(|module| (&**module, self.reached(module))).collect();
        let component = |module: &str| -> BTreeSet<&str> {
            reached[module].iter().copied().filter(|other| reached[*other].contains(module)).collect()
        };
        reached.keys().map(|module| component(module)).filter(|component| component.len() > 1).collect()
    }

    /// The modules that a module uses, and those they use.
    fn reached<'g>(&'g self, module: &'g str) -> BTreeSet<&'g str> {
        let (mut reached, mut open) = (BTreeSet::new(), vec![module]);
        while let Some(module) = open.pop() {
            open.extend(self.uses[module].keys().map(|used| &**used).filter(|used| reached.insert(*used)));
        }
        reached
    }
}

/// The code of a file, without comments and strings.
fn code(file: &SourceFile) -> String {
    file.lines.iter().map(|line| code_of(line)).collect::<Vec<_>>().join("\n")
}

/// The paths of the `use` statements, each written out.
fn used_paths(code: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for (at, _) in code.match_indices("use ") {
        let line = code[..at].rsplit('\n').next().unwrap_or_default().trim();
        if matches!(line, "" | "pub" | "pub(crate)" | "pub(super)") {
            let tree = code[at + 4..].split(';').next().unwrap_or_default();
            write_out("", tree, &mut paths);
        }
    }
    paths
}

/// Writes out the paths of a tree such as `crate::{a::B, c}`.
fn write_out(prefix: &str, tree: &str, paths: &mut Vec<String>) {
    let (mut depth, mut from) = (0_usize, 0);
    for (at, letter) in tree.char_indices().chain([(tree.len(), ',')]) {
        match letter {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                let branch = tree[from..at].trim();
                from = at + 1;
                match branch.split_once('{') {
                    Some((start, inner)) => {
                        let inner = inner.strip_suffix('}').unwrap_or(inner);
                        write_out(&format!("{prefix}{}", start.trim()), inner, paths);
                    }
                    None if branch.is_empty() => {}
                    None => paths.push(format!("{prefix}{branch}")),
                }
            }
            _ => {}
        }
    }
}

/// The paths below the root or a parent that stand within code.
fn inline_paths(code: &str) -> Vec<String> {
    let is_of_path = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | ':');
    let words = code.split(|letter| !is_of_path(letter));
    words
        .filter(|word| word.starts_with("crate::") || word.starts_with("super::"))
        .map(str::to_owned)
        .collect()
}
