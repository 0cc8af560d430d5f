//! Commands that may be run again because they only read.
//!
//! To advise the repetition of a command that pushed, paid or deleted would be worse than to give no advice.
//! So a command is taken for harmless only if every program in it is on a short list and no file is written;
//! a command that is not understood is not harmless. Tests and builds are not on the list: they take long,
//! and leave files behind.

/// Programs that only read, with any arguments but those in [`WRITING`].
const LOOKING: &[&str] =
    &["ls", "cat", "grep", "rg", "find", "pwd", "head", "tail", "wc", "which", "cd", "echo"];

/// Subcommands of `git` that only read.
const GIT_LOOKING: &[&str] = &["status", "log", "diff", "show"];

/// Beginnings of arguments by which programs that look run or write something all the same.
const WRITING: &[&str] = &["-exec", "-ok", "-delete", "-fprint", "-fls", "--pre", "--output", "--ext-diff"];

/// Shells that run a command that is given to them as an argument.
const SHELLS: &[&str] = &["bash", "sh", "zsh"];

/// Returns true if a command line only reads.
pub(super) fn is_read_only(command: &str) -> bool {
    let Some(commands) = commands(in_shell(command)) else { return false };
    commands.iter().any(|words| !words.is_empty()) && commands.iter().all(|words| looks(words))
}

/// Command that a shell is given: `bash -lc` and the like stand before it.
fn in_shell(command: &str) -> &str {
    let inner = || {
        let (shell, rest) = command.trim().split_once(' ')?;
        let (option, rest) = rest.trim_start().split_once(' ')?;
        let is_shell = SHELLS.contains(&program(shell)) && matches!(option, "-c" | "-lc" | "-cl");
        is_shell.then_some(rest)
    };
    inner().unwrap_or(command)
}

fn program(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

fn looks(words: &[String]) -> bool {
    let Some((first, arguments)) = words.split_first() else { return true };
    let writes = |word: &String| WRITING.iter().any(|writing| word.starts_with(writing));
    if arguments.iter().any(writes) {
        return false;
    }
    match program(first) {
        "git" => git_looks(arguments),
        program => LOOKING.contains(&program),
    }
}

fn git_looks(arguments: &[String]) -> bool {
    let mut arguments = arguments.iter().map(String::as_str);
    loop {
        match arguments.next() {
            Some("--no-pager") => {}
            Some("-C") => drop(arguments.next()),
            Some(word) => return GIT_LOOKING.contains(&word),
            None => return false,
        }
    }
}

/// The words of each command in a line; `None` if there is something in it that a list of words does not say.
fn commands(line: &str) -> Option<Vec<Vec<String>>> {
    let mut commands = vec![Vec::new()];
    let mut word = String::new();
    let mut rest = line.trim();
    while let Some(letter) = rest.chars().next() {
        rest = &rest[letter.len_utf8()..];
        let ends_command = matches!(letter, '|' | ';' | '\n');
        match letter {
            '\'' => {
                let (quoted, after) = rest.split_once('\'')?;
                word.push_str(quoted);
                rest = after;
            }
            '"' => rest = double_quoted(rest, &mut word)?,
            '\\' => {
                let next = rest.chars().next()?;
                word.push(next);
                rest = &rest[next.len_utf8()..];
            }
            '&' => {
                // One alone sends a command to the background.
                rest = rest.strip_prefix('&')?;
                end(&mut word, &mut commands);
                commands.push(Vec::new());
            }
            '>' => rest = into_nothing(rest)?,
            '`' | '<' | '(' | ')' | '{' | '}' => return None,
            '$' if rest.starts_with('(') => return None,
            _ if letter.is_whitespace() || ends_command => {
                end(&mut word, &mut commands);
                if ends_command {
                    commands.push(Vec::new());
                }
            }
            _ => word.push(letter),
        }
    }
    end(&mut word, &mut commands);
    Some(commands)
}

fn end(word: &mut String, commands: &mut [Vec<String>]) {
    if let Some(command) = commands.last_mut()
        && !word.is_empty()
    {
        command.push(std::mem::take(word));
    }
}

/// Adds a text in double quotes; returns the rest after them.
fn double_quoted<'l>(text: &'l str, word: &mut String) -> Option<&'l str> {
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some(&text[at + 1..]),
            '`' => return None,
            '$' if text[at + 1..].starts_with('(') => return None,
            '\\' => word.push(letters.next()?.1),
            _ => word.push(letter),
        }
    }
    None
}

/// Rest after a redirection to nowhere, or to the other stream; `None` if it writes a file.
fn into_nothing(text: &str) -> Option<&str> {
    let text = text.trim_start();
    let after = ["&1", "&2", "/dev/null"].into_iter().find_map(|nowhere| text.strip_prefix(nowhere))?;
    let ends = after.chars().next().is_none_or(|next| next.is_whitespace() || "|;&".contains(next));
    ends.then_some(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_looks_is_recognised() {
        for command in [
            "ls -la",
            "cat a.rs | head -20",
            "grep -rn \"a|b; c\" src 2>/dev/null | wc -l",
            "cd src && rg 'fn main' ; pwd",
            "git status",
            "git --no-pager -C repo log --oneline -5",
            "bash -lc git diff HEAD~1",
            "/usr/bin/find . -name '*.rs'",
            "which cargo 2>&1",
        ] {
            assert!(is_read_only(command), "{command}");
        }
    }

    #[test]
    fn whatever_else_may_have_effects() {
        for command in [
            "",
            "git push origin b0",
            "git -c core.pager=rm log",
            "git",
            "git log --output=a",
            "cargo test",
            "pytest -q",
            "ls > a",
            "ls >> a",
            "cat a >/dev/nullish",
            "cat <<EOF",
            "cat `rm a`",
            "cat $(rm a)",
            "cat \"$(rm a)\"",
            "ls; rm a",
            "ls && make",
            "ls | xargs rm",
            "ls &",
            "find . -name a -delete",
            "find . -exec rm {} \\;",
            "A=1 ls",
            "ls \"unbalanced",
            "bash -lc rm a",
            "bash script.sh",
        ] {
            assert!(!is_read_only(command), "{command}");
        }
    }
}
