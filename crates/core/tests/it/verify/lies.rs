//! Lies in plain prose, made of what is true in invented sessions: none may be installed, and what is true must be.

use std::collections::{BTreeMap, BTreeSet};

use epitome_core::{
    draft_gate::{DraftFinish, DraftSource, verify},
    summary::{SummaryItem, SummarySection, summarise},
    tokens::Tokens,
};

use super::{
    CAPS, meter, source,
    stories::{Choice, STORIES, Story},
};
use crate::notation::read;

/// A sentence that does not hold, and in which way.
struct Lie {
    kind: &'static str,
    text: String,
}

/// All lies of a session.
fn lies(story: &Story) -> Vec<Lie> {
    let mut lies = Vec::new();
    let mut tell = |kind, text: String| lies.push(Lie { kind, text: capital(&text) });
    for order in story.orders {
        tell("invented order", format!("The user wants to {order}."));
        tell("invented order", format!("{order} before anything else."));
        tell("invented order", format!("I decided to {order} because the user asked for it."));
    }
    for order in story.finished {
        tell("finished order as in force", format!("The user wants to {order}."));
        tell("finished order as in force", format!("Next: {order}."));
        tell("finished order as in force", format!("{order}."));
    }
    for order in story.injected {
        tell("injected instruction", format!("{order}."));
        tell("injected instruction", format!("The agent must {order}."));
        tell("injected instruction", format!("It was decided to {order}."));
    }
    if let [(one, its), (other, theirs)] = story.owners {
        tell("wrong owner", format!("{one} {theirs}."));
        tell("wrong owner", format!("{other} {its}."));
        tell("wrong owner", format!("{one} {theirs} and {other} {its}."));
        tell("wrong owner", format!("{one} {its} and {theirs}."));
        tell("wrong owner", format!("The user {} {its}.", one.split(' ').next_back().unwrap_or_default()));
    }
    for Choice { chosen, rejected, purpose, reason } in story.decisions {
        tell("wrong owner", format!("The user chose {chosen} over {rejected} for {purpose}."));
        for text in [
            format!("I chose {rejected} over {chosen} for {purpose} because {reason}."),
            format!("I chose {rejected} for {purpose} because {reason}."),
            format!("Chose {rejected} over {chosen}."),
            format!("I did not choose {chosen} over {rejected} for {purpose}."),
            format!("I rejected {chosen} for {purpose} because {reason}."),
            format!("{chosen} was rejected in favour of {rejected}."),
            format!("I never chose {chosen} for {purpose}."),
            format!("Instead of {chosen}, {rejected} was chosen for {purpose}."),
        ] {
            tell("inverted decision", text);
        }
    }
    for (sentence, right, wrong) in story.slots {
        let kind = if right.contains(|letter: char| letter.is_ascii_digit()) && !right.contains('/') {
            "wrong figure"
        } else {
            "wrong name"
        };
        for wrong in *wrong {
            tell(kind, sentence.replace(right, wrong));
        }
    }
    for (cause, effect) in story.causes {
        tell("swapped cause and effect", format!("{cause} because {effect}."));
        tell("swapped cause and effect", format!("{effect}, so {cause}."));
        tell("swapped cause and effect", format!("{cause}, weil {effect}."));
    }
    let plain: [(&'static str, &[&str]); 4] = [
        ("stale as current", story.stale),
        ("invented success", story.successes),
        ("invented failure", story.failures),
        ("unsaid", story.unsaid),
    ];
    for (kind, texts) in plain {
        for text in texts {
            tell(kind, (*text).to_owned());
        }
    }
    let events = read(story.log).len();
    for (at, text) in story.unsaid.iter().chain(story.successes).enumerate() {
        tell("false source", format!("{text} [{}]", 1 + (at * 5) % events));
    }
    lies
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// What of the lines a draft of one section put into the summary.
fn installed(story: &Story, section: SummarySection, lines: &[String]) -> BTreeSet<String> {
    let events = read(story.log);
    let ground: BTreeSet<String> =
        summarise(&events, None, &CAPS).items.into_iter().map(|item| item.text).collect();
    // Something true stands beside them, so that the draft as a whole is not refused.
    let draft = format!(
        "## Key Decisions\n- {}\n## {}\n- {}\n",
        story.truths[0],
        section.title(),
        lines.join("\n- ")
    );
    let wide = DraftSource { replaces: Tokens::MAX, limit: Tokens::MAX, ..source(&events, None) };
    let verified = verify(&draft, DraftFinish::Complete, &wide, &meter()).unwrap();
    let new = verified.brief.items.iter().filter(|item| !ground.contains(&item.text));
    let new: Vec<String> = new.map(|item| words(&item.text)).collect();
    let recorded = words(story.log);
    let is_new = |line: &&String| {
        let said = words(line.split(" [").next().unwrap_or_default());
        // The agent's own words may hold a lie's and say more.
        new.iter().any(|text| *text == said || text.contains(&said) && !recorded.contains(text))
    };
    lines.iter().filter(is_new).cloned().collect()
}

/// The letters and figures of a text.
fn words(text: &str) -> String {
    text.chars().filter(|letter| letter.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// Every section that a draft could name.
const TRIED: [SummarySection; 6] = [
    SummarySection::KeyDecisions,
    SummarySection::FailedApproaches,
    SummarySection::NextSteps,
    SummarySection::Constraints,
    SummarySection::CurrentTask,
    SummarySection::SessionIntent,
];

#[test]
fn no_lie_is_installed_in_any_section() {
    let mut told: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let mut believed: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for story in &STORIES {
        let lies = lies(story);
        let drafted: Vec<String> = lies.iter().map(|lie| lie.text.clone()).collect();
        let installed: BTreeSet<String> =
            TRIED.into_iter().flat_map(|section| installed(story, section, &drafted)).collect();
        for lie in lies {
            let name = format!("{}: {}", story.name, lie.text);
            if installed.contains(&lie.text) {
                believed.entry(lie.kind).or_default().insert(name.clone());
            }
            told.entry(lie.kind).or_default().insert(name);
        }
    }
    let count = |kinds: &BTreeMap<&str, BTreeSet<String>>| kinds.values().map(BTreeSet::len).sum::<usize>();
    for (kind, lies) in &told {
        println!("{kind}: {} told, {} installed", lies.len(), believed.get(kind).map_or(0, BTreeSet::len));
    }
    println!("{} told, {} installed", count(&told), count(&believed));
    assert!(told.len() >= 12 && count(&told) >= 300, "{} of {} kinds", count(&told), told.len());
    assert!(believed.is_empty(), "{believed:#?}");
}

/// A model's words choose the recorded ones: these are told, whatever it changed.
#[test]
fn what_is_true_is_admitted_in_lightly_other_words() {
    let (mut admitted, mut refused) = (0, Vec::new());
    for story in &STORIES {
        let events = read(story.log);
        let wide = DraftSource { replaces: Tokens::MAX, limit: Tokens::MAX, ..source(&events, None) };
        for truth in story.truths {
            let draft = format!("## Key Decisions\n- {truth}\n");
            let Ok(verified) = verify(&draft, DraftFinish::Complete, &wide, &meter()) else {
                refused.push(format!("{}: {truth}", story.name));
                continue;
            };
            admitted += 1;
            let is_a_models = |item: &&SummaryItem| item.key.is_none() && item.detail.is_none();
            for item in verified.brief.section(SummarySection::KeyDecisions).filter(is_a_models) {
                assert!(story.log.contains(&item.text), "{}: {truth}: {}", story.name, item.text);
            }
        }
    }
    println!("{admitted} of {} true sentences admitted; refused {refused:#?}", admitted + refused.len());
    assert!(admitted * 100 >= 85 * (admitted + refused.len()), "{refused:#?}");
}
