//! The words of one command: its program, its options, its operands.

/// Programs that run the program named after them, with their options that take a value.
const RUNNERS: &[(&str, &[&str])] = &[
    ("sudo", &["-u", "-g"]),
    ("env", &["-u", "-C"]),
    ("command", &[]),
    ("exec", &[]),
    ("nohup", &[]),
    ("time", &["-f", "-o"]),
    ("nice", &["-n"]),
    ("stdbuf", &[]),
    ("timeout", &["-s", "-k"]),
    ("npx", &["-p", "--package"]),
    ("bunx", &[]),
    ("pnpx", &[]),
    ("uvx", &["--from"]),
];

/// Two words that run the program named after them.
const RUNNING: &[[&str; 2]] = &[
    ["pnpm", "exec"],
    ["pnpm", "dlx"],
    ["npm", "exec"],
    ["yarn", "dlx"],
    ["uv", "run"],
    ["poetry", "run"],
    ["mise", "exec"],
    ["mise", "x"],
    ["bundle", "exec"],
];

/// A command's words from its program's own name on: without assignments, runners and the folder it lies in.
pub(super) fn unwrapped(mut words: Vec<&str>) -> Vec<&str> {
    // So many runners in a row are no command anybody wrote.
    for _ in 0..8 {
        let start = words.iter().position(|word| !is_assignment(word)).unwrap_or(words.len());
        words.drain(..start);
        let runner = match words.as_slice() {
            [first, second, ..] if RUNNING.contains(&[*first, *second]) => Some((2, &[][..])),
            [first, ..] => RUNNERS.iter().find(|(name, _)| name == first).map(|(_, valued)| (1, *valued)),
            [] => None,
        };
        let Some((own, valued)) = runner else { break };
        let timed = words[0] == "timeout";
        let mut at = own;
        while let Some(word) = words.get(at).filter(|word| word.starts_with('-')) {
            at += if valued.contains(word) { 2 } else { 1 };
        }
        // Only `timeout` has an operand before the program.
        at += usize::from(timed);
        words.drain(..at.min(words.len()));
    }
    if let Some(first) = words.first_mut() {
        *first = first.rsplit('/').next().unwrap_or(first);
    }
    words
}

/// Whether a word sets a variable.
pub(super) fn is_assignment(word: &str) -> bool {
    assignment(word).is_some()
}

/// The variable that a word sets, and to what.
pub(super) fn assignment(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once('=')?;
    let first = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    (first && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')).then_some((name, value))
}

/// A word of a command, if it is known.
pub(super) type Known = Option<String>;

/// What a command's words after its program are.
#[derive(Debug, Default)]
pub(super) struct Words {
    /// The options, as they stand; those that take a value with it.
    pub(super) options: Vec<(String, Known)>,
    /// The rest, unknown ones included.
    pub(super) operands: Vec<Known>,
}

impl Words {
    /// Sorts words into options and operands. `valued` are the options which take the next word.
    pub(super) fn of(words: &[Known], valued: &[&str]) -> Self {
        let mut sorted = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.as_deref() {
                Some("--") => {
                    sorted.operands.extend(words.cloned());
                    break;
                }
                Some(option) if option.len() > 1 && option.starts_with('-') => {
                    let value = if valued.contains(&option) { words.next().cloned().flatten() } else { None };
                    sorted.options.push((option.to_owned(), value));
                }
                _ => sorted.operands.push(word.clone()),
            }
        }
        sorted
    }

    /// Whether one of the options was given. Single letters are also found where they are joined: `-rf`.
    pub(super) fn has(&self, names: &[&str]) -> bool {
        self.options.iter().any(|(option, _)| names.iter().any(|name| is_option(option, name)))
    }

    /// The value of the first of these options.
    pub(super) fn value(&self, names: &[&str]) -> Option<&str> {
        let given = |(option, value): &(String, Known)| names.contains(&option.as_str()) && value.is_some();
        self.options.iter().find(|option| given(option)).and_then(|(_, value)| value.as_deref())
    }

    /// The operands that are known.
    pub(super) fn known(&self) -> impl Iterator<Item = &str> {
        self.operands.iter().filter_map(|operand| operand.as_deref())
    }
}

fn is_option(option: &str, name: &str) -> bool {
    let joined = name.len() == 2 && !option.starts_with("--") && option.contains(&name[1..]);
    option == name || joined || option.strip_prefix(name).is_some_and(|rest| rest.starts_with('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_behind_what_runs_it() {
        let check = |line: &str, expect: &str| {
            assert_eq!(unwrapped(line.split(' ').collect()).join(" "), expect, "{line}");
        };
        check("A=1 B= /usr/bin/sed -i x", "sed -i x");
        check("sudo -u me env A=1 rm a", "rm a");
        check("timeout -k 3 30 make all", "make all");
        check("mise exec -- env GO=1 go test", "go test");
        check("npx --yes prettier --write a", "prettier --write a");
        check("sudo", "");
    }

    #[test]
    fn options_are_told_from_operands() {
        let words: Vec<Known> =
            "-rf -n 20 a --x=1 -- -b".split(' ').map(|word| Some(word.to_owned())).collect();
        let words = Words::of(&words, &["-n"]);
        assert!(words.has(&["-f"]) && words.has(&["--x"]) && !words.has(&["-q"]));
        assert_eq!(words.value(&["-n"]), Some("20"));
        assert_eq!(words.known().collect::<Vec<_>>(), ["a", "-b"]);
    }
}
