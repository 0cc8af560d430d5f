//! How a draft is written: the sections, and the earlier items by the names under which they may be superseded.

use std::fmt::Write as _;

use epitome_core::summary::{Brief, Section};

/// The form of a draft. What `previous` says is listed, as it is kept without being repeated.
pub(super) fn form(previous: Option<&Brief>) -> String {
    let mut form = String::from(
        "Write Markdown: a heading `## Title` for each section below, in this order, and under it one line `- …` for \
         each item. Under a section that has nothing write `None.`\n",
    );
    for section in Section::ALL.into_iter().filter(|section| *section != Section::Pins) {
        let _ = writeln!(form, "## {}", section.title());
    }
    let Some(previous) = previous.filter(|previous| !previous.items.is_empty()) else { return form };
    form.push_str(
        "Earlier notes say the following, and are kept: do not repeat them. If one no longer holds, add a section \
         `## Superseded` with a line `- k1: the reason`.\n",
    );
    for (number, item) in previous.items.iter().enumerate() {
        let _ = writeln!(form, "[k{}] {}: {}", number + 1, item.section.title(), item.text);
    }
    form
}
