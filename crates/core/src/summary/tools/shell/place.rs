//! Where a command runs and what its words stand for: folders that were changed to, variables that were set.

use std::collections::BTreeMap;

use super::{
    options::{Known, assignment},
    syntax::{Piece, Word},
};

/// What is known while a script is gone through.
#[derive(Debug)]
pub(super) struct Surroundings {
    /// The folder of each group, where it is known.
    folders: BTreeMap<usize, Option<String>>,
    variables: BTreeMap<String, Vec<String>>,
}

/// The most values that one word may stand for.
const MOST: usize = 32;

/// The longest folder, value or word that is followed: none that matters is longer.
const LONGEST: usize = 2 * 1024;

impl Surroundings {
    pub(super) fn new(folder: Option<&str>) -> Self {
        Self { folders: BTreeMap::from([(0, folder.map(str::to_owned))]), variables: BTreeMap::new() }
    }

    /// The folder a group runs in: its own, or that of the group it stands in.
    fn folder(&self, groups: &[usize], mut group: usize) -> Option<&str> {
        // A group's parent always has a smaller number.
        loop {
            match (self.folders.get(&group), groups.get(group)) {
                (Some(folder), _) => return folder.as_deref(),
                (None, Some(parent)) if *parent < group => group = *parent,
                (None, _) => return None,
            }
        }
    }

    /// Notes that a group changed to a folder, or to one that cannot be told.
    pub(super) fn enter(&mut self, groups: &[usize], group: usize, folder: Option<&str>) {
        let folder = folder.filter(|folder| *folder != "-").map(|folder| self.path(groups, group, folder));
        let folder = folder.filter(|folder| folder.len() <= LONGEST);
        self.folders.insert(group, folder);
    }

    /// A path as it stands in a group, seen from where the script began.
    pub(super) fn path(&self, groups: &[usize], group: usize, path: &str) -> String {
        join(self.folder(groups, group), path)
    }

    /// Notes that a variable has one of these values.
    pub(super) fn set(&mut self, name: &str, values: Vec<String>) {
        self.variables.insert(name.to_owned(), values);
    }

    /// Notes what a word sets, if it sets a variable.
    pub(super) fn assign(&mut self, word: &Word) {
        if let Some(Piece::Text(start)) = word.pieces.first()
            && let Some((name, _)) = assignment(start)
        {
            let values = self.values(word).into_iter().flatten();
            let values = values.filter_map(|word| assignment(&word).map(|(_, value)| value.to_owned()));
            let values: Vec<String> = values.filter(|value| value.len() <= LONGEST).collect();
            self.variables.insert(name.to_owned(), values);
        }
    }

    /// What a word stands for: several words if a variable in it has several values, one unknown if it is.
    pub(super) fn values(&self, word: &Word) -> Vec<Known> {
        let mut values = vec![String::new()];
        for piece in &word.pieces {
            let more = match piece {
                Piece::Text(text) => std::slice::from_ref(text),
                Piece::Variable(name) => self.variables.get(name).map(Vec::as_slice).unwrap_or_default(),
                Piece::Unknown => &[],
            };
            let longer =
                values.iter().flat_map(|value| more.iter().map(move |text| format!("{value}{text}")));
            values = longer.take(MOST).filter(|value| value.len() <= LONGEST).collect();
        }
        if values.is_empty() { vec![None] } else { values.into_iter().map(Some).collect() }
    }
}

/// A path seen from a folder, without the steps that lead nowhere.
pub(in super::super) fn join(folder: Option<&str>, path: &str) -> String {
    let whole = match folder {
        Some(folder) if !is_absolute(path) => format!("{folder}/{path}"),
        _ => path.to_owned(),
    };
    let mut steps: Vec<&str> = Vec::new();
    for step in whole.split('/') {
        match (step, steps.last()) {
            ("." | "", Some(_)) | (".", None) => {}
            ("..", Some(last)) if !matches!(*last, ".." | "" | "~") => {
                steps.pop();
            }
            _ => steps.push(step),
        }
    }
    match steps.as_slice() {
        [] => ".".to_owned(),
        [""] => "/".to_owned(),
        _ => steps.join("/"),
    }
}

fn is_absolute(path: &str) -> bool {
    path.starts_with(['/', '~', '\\']) || path.as_bytes().get(1) == Some(&b':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_seen_from_where_the_script_began() {
        let check = |folder, path, expect: &str| assert_eq!(join(folder, path), expect, "{folder:?} {path}");
        check(None, "./a//b/../c", "a/c");
        check(Some("/x/y"), "../a", "/x/a");
        check(Some("/x"), "/a", "/a");
        check(Some("/x"), "~/a", "~/a");
        check(Some("../x"), "../../a", "../../a");
        check(None, "a/..", ".");
        check(None, "/..", "/..");
    }

    #[test]
    fn a_word_stands_for_every_value_of_its_variable() {
        let mut surroundings = Surroundings::new(None);
        surroundings.set("f", vec!["a".to_owned(), "b".to_owned()]);
        let word = |pieces| Word { pieces };
        let both = word(vec![Piece::Text("x/".to_owned()), Piece::Variable("f".to_owned())]);
        assert_eq!(surroundings.values(&both), [Some("x/a".to_owned()), Some("x/b".to_owned())]);
        assert_eq!(surroundings.values(&word(vec![Piece::Variable("g".to_owned())])), [None]);
    }
}
