//! Files of a session, under all the names used for them.
//!
//! A file may have an absolute path in one place and a relative one in another. Two paths mean the same file
//! if one ends with the other. A file is searched by the shortest end of its path that includes a folder and
//! that no other file of the session shares.

use std::collections::{BTreeSet, HashMap};

use super::search_patterns::MatchEdge;

/// The files of a session.
#[derive(Clone, Debug, Default)]
pub(super) struct SessionPaths {
    /// Files by the names used for them.
    names: HashMap<String, usize>,
    /// Files by the ends of their paths.
    ends: HashMap<String, Vec<usize>>,
    files: Vec<SessionFile>,
}

#[derive(Clone, Debug, Default)]
struct SessionFile {
    path: String,
    /// Names used without a folder.
    short: BTreeSet<String>,
}

impl SessionPaths {
    /// Files that these names mean.
    pub(super) fn of<'p>(names: impl IntoIterator<Item = &'p str>) -> Self {
        let mut by_depth: BTreeSet<(usize, &str)> = BTreeSet::new();
        for name in names {
            by_depth.insert((plain(name).split('/').count(), plain(name)));
        }
        let mut paths = Self::default();
        for (_, name) in by_depth.into_iter().rev().filter(|(_, name)| !name.is_empty()) {
            let known = paths.ends.get(name).filter(|ends| ends.len() == 1).map(|ends| ends[0]);
            let file = known.unwrap_or_else(|| {
                let file = paths.files.len();
                paths.files.push(SessionFile { path: name.to_owned(), ..SessionFile::default() });
                for end in ends_of(name) {
                    paths.ends.entry(end.to_owned()).or_default().push(file);
                }
                file
            });
            if !name.contains('/') {
                paths.files[file].short.insert(name.to_owned());
            }
            paths.names.insert(name.to_owned(), file);
        }
        paths
    }

    /// File with this name.
    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.names.get(plain(name)).copied()
    }

    /// Returns true if a path means one of the files, or may mean one.
    pub(super) fn is_among(&self, path: &str) -> bool {
        let path = plain(path);
        self.ends.contains_key(path)
            || ends_of(path).any(|end| end.contains('/') && self.names.contains_key(end))
    }

    /// Longest name of a file.
    pub(super) fn path(&self, file: usize) -> &str {
        &self.files[file].path
    }

    pub(super) fn len(&self) -> usize {
        self.files.len()
    }

    /// Words by which a file is found.
    pub(super) fn words(&self, file: usize) -> Vec<(String, MatchEdge)> {
        let SessionFile { path, short } = &self.files[file];
        let alone = |end: &&str| self.ends.get(*end).is_some_and(|files| files.len() == 1);
        let end =
            ends_of(path).collect::<Vec<_>>().into_iter().rev().filter(|end| end.contains('/')).find(alone);
        let mut words: Vec<(String, MatchEdge)> = match end {
            Some(end) => vec![(end.trim_start_matches('/').to_owned(), MatchEdge::Path)],
            None => vec![(path.clone(), MatchEdge::WholePath)],
        };
        words.extend(short.iter().map(|name| (name.clone(), MatchEdge::WholePath)));
        words.sort();
        words.dedup();
        words
    }
}

/// Strips the parts of a path that only say where it starts.
fn plain(path: &str) -> &str {
    path.trim().trim_start_matches("./").trim_end_matches('/')
}

/// A path and all its shorter ends.
fn ends_of(path: &str) -> impl Iterator<Item = &str> {
    std::iter::once(path)
        .chain(path.match_indices('/').map(|(at, _)| &path[at + 1..]))
        .filter(|end| !end.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_one_whatever_it_is_called_and_known_by_what_no_other_shares() {
        let paths = SessionPaths::of([
            "/p/src/a.rs",
            "src/a.rs",
            "./a.rs",
            "/p/lib/src/b.rs",
            "/p/old/src/b.rs",
            "Makefile",
        ]);
        assert_eq!(paths.len(), 4);
        assert_eq!(paths.find("src/a.rs"), paths.find("/p/src/a.rs"));
        assert_eq!(paths.find("a.rs"), paths.find("/p/src/a.rs"));
        let words = |name: &str| paths.words(paths.find(name).unwrap());
        let owned = |words: &[(&str, MatchEdge)]| -> Vec<(String, MatchEdge)> {
            words.iter().map(|(word, edge)| ((*word).to_owned(), *edge)).collect()
        };
        assert_eq!(
            words("src/a.rs"),
            owned(&[("a.rs", MatchEdge::WholePath), ("src/a.rs", MatchEdge::Path)])
        );
        assert_eq!(words("/p/old/src/b.rs"), owned(&[("old/src/b.rs", MatchEdge::Path)]));
        assert_eq!(words("Makefile"), owned(&[("Makefile", MatchEdge::WholePath)]));
        assert!(
            paths.is_among("/home/me/x/src/a.rs") && paths.is_among("a.rs") && !paths.is_among("src/c.rs")
        );
    }
}
