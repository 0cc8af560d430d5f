//! Our section of a file, and the marks around it.

use epitome_core::Digest;

const BEGIN: &str =
    "<!-- epitome: what stands from here to the end mark is written anew after each compaction; ";
const BEGIN_END: &str = " -->\n";
const END: &str = "<!-- epitome: end -->\n";

/// Puts `page` in place of our section of a text, or at its end if there is none. A section that users have
/// edited stays as theirs, without the marks.
pub(super) fn put(text: &str, page: &str) -> String {
    let page = format!("{page}\n");
    let ours = format!("{BEGIN}{}{BEGIN_END}{page}{END}", digest(&page));
    match find(text) {
        Some(SectionSplit { before, inside, after }) if inside.is_untouched() => {
            format!("{before}{ours}{after}")
        }
        Some(SectionSplit { before, inside, after }) => {
            let theirs = format!("{before}{}{after}", inside.text);
            append(&theirs, &ours)
        }
        None => append(text, &ours),
    }
}

fn append(text: &str, ours: &str) -> String {
    match text.trim_end() {
        "" => ours.to_owned(),
        _ if text.ends_with("\n\n") => format!("{text}{ours}"),
        _ if text.ends_with('\n') => format!("{text}\n{ours}"),
        _ => format!("{text}\n\n{ours}"),
    }
}

struct SectionSplit<'t> {
    before: &'t str,
    inside: SectionBody<'t>,
    after: &'t str,
}

struct SectionBody<'t> {
    digest: &'t str,
    text: &'t str,
}

impl SectionBody<'_> {
    fn is_untouched(&self) -> bool {
        digest(self.text) == self.digest
    }
}

/// Finds the last complete section. A first mark without a last one is a user's text.
fn find(text: &str) -> Option<SectionSplit<'_>> {
    let end = text.rfind(END)?;
    let start = text[..end].rfind(BEGIN)?;
    let (digest, inside) = text[start + BEGIN.len()..end].split_once(BEGIN_END)?;
    // A mark stands on a line of its own.
    let own_line = !digest.contains('\n') && (start == 0 || text[..start].ends_with('\n'));
    own_line.then(|| SectionSplit {
        before: &text[..start],
        inside: SectionBody { digest, text: inside },
        after: &text[end + END.len()..],
    })
}

fn digest(text: &str) -> String {
    Digest::of(text.as_bytes()).to_string().chars().take(16).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_section_is_replaced_and_everything_else_stays() {
        let first = put("# Status\n", "one");
        let edited = format!("Mine.\n{first}Mine too.\n");
        let second = put(&edited, "two");
        assert!(second.starts_with("Mine.\n# Status\n\n<!-- epitome"), "{second}");
        assert!(second.ends_with("two\n<!-- epitome: end -->\nMine too.\n"), "{second}");
        assert!(!second.contains("one"), "{second}");
        assert_eq!(put(&second, "two"), second);
    }

    #[test]
    fn what_somebody_wrote_into_our_section_becomes_theirs() {
        let first = put("# Status\n", "one");
        let edited = first.replace("one", "one, says Ann");
        let second = put(&edited, "two");
        assert!(second.starts_with("# Status\n\none, says Ann\n\n<!-- epitome"), "{second}");
        assert_eq!(second.matches(BEGIN).count(), 1);
        let third = put(&second, "three");
        assert!(third.contains("one, says Ann") && !third.contains("two"), "{third}");
    }

    #[test]
    fn a_mark_that_was_cut_off_is_text() {
        let whole = put("# Status\n", "one");
        let cut = whole.replace(END, "");
        let second = put(&cut, "two");
        assert!(second.starts_with(&cut), "{second}");
        assert_eq!(put(&second, "two"), second);
        let third = put(&second, "three");
        assert!(third.starts_with(&cut) && !third.contains("two"), "{third}");
        for odd in ["", "\n\n", END, BEGIN, "x", "<!-- epitome: end -->"] {
            let put_once = put(odd, "page");
            assert_eq!(put(&put_once, "page"), put_once, "{odd:?}");
            assert!(put_once.contains(odd.trim()), "{odd:?}");
        }
    }
}
