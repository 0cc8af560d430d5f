//! Drafts, as data: how the model ended, what it wrote, and what becomes of it.

use epitome_core::draft_gate::DraftFinish::{self, CalledTool, Complete, CutOff, Refused, Unknown};

/// A name, how the model ended, the draft, and what comes of it.
pub(crate) const DRAFTS: &[(&str, DraftFinish, &str, &str)] = &[
    // What is no summary.
    ("empty", Complete, "", "refused Empty"),
    ("white space", Complete, " \n\t \n", "refused Empty"),
    ("cut off by a limit", CutOff, "## Key Decisions\n- ship it", "refused CutOff"),
    (
        "half a sentence",
        Unknown,
        "## Key Decisions\n- I chose an LRU map\n- I then wrote the `cli",
        "Key Decisions [2] I chose an LRU map because it is bounded.; 1 unfounded",
    ),
    ("a refusal", Complete, "I can't help with that request.", "refused Unparsable"),
    ("a refusal by the server's word", Refused, "## Key Decisions\n- ship", "refused Refusal"),
    ("a refusal without a word", Refused, "", "refused Refusal"),
    ("a tool call by the server's word", CalledTool, "", "refused ToolCall"),
    (
        "a tool call in a tag",
        Complete,
        "<tool_call>\n{\"name\":\"bash\",\"arguments\":{}}\n</tool_call>",
        "refused Unparsable",
    ),
    ("an error", Complete, "Error 429: rate limit exceeded, retry later", "refused Unparsable"),
    ("an error as JSON", Complete, "{\"error\":{\"message\":\"too long\"}}", "refused Unparsable"),
    ("an error page", Complete, "<!DOCTYPE html><html><h1>502 Bad Gateway</h1></html>", "refused Unparsable"),
    ("thoughts only", Complete, "<think>I should summarise the session.</think>", "refused ReasoningOnly"),
    ("thoughts without an end", Complete, "<think>I should summarise", "refused ReasoningOnly"),
    (
        "nothing anywhere",
        Complete,
        "## Key Decisions\nNone.\n## Failed Approaches\n- none\n## Errors\n(none)",
        "refused AllNone",
    ),
    ("a persona that greets", Complete, "Hello! How can I help you today?", "refused Unparsable"),
    ("other JSON", Complete, "{\"summary\": \"all is well\"}", "refused Unparsable"),
    ("other sections", Complete, "## Plan\n- do things", "refused Unparsable"),
    (
        "all invented",
        Complete,
        "## Key Decisions\n- I fixed src/none.rs today\n- I fixed src/nowhere.rs today",
        "refused NothingTrue",
    ),
    // Forms that are read.
    ("as asked for", Complete, "## Key Decisions\n- I chose an LRU map because it is bounded. [2]", CHOSEN),
    (
        "bold titles and numbers",
        Complete,
        "**Key Decisions:**\n1. I chose an LRU map because it is bounded.",
        CHOSEN,
    ),
    (
        "a fence around it",
        Complete,
        "Here is the summary:\n```markdown\n## Key Decisions\n- I chose an LRU map because it is bounded.\n```",
        CHOSEN,
    ),
    (
        "after thoughts",
        Complete,
        "<think>hm</think>\n## key decisions\n* I chose an LRU map because it is bounded.",
        CHOSEN,
    ),
    ("nested", Complete, "## Key Decisions\n- Cache:\n  - I chose an LRU map because it is bounded.", CHOSEN),
    (
        "with a source that says something else",
        Complete,
        "## Key Decisions\n- I chose an LRU map because it is bounded. [9]",
        CHOSEN,
    ),
    ("without titles", Complete, "- I chose an LRU map because it is bounded. [2]", CHOSEN),
    (
        "a sentence that is true beside one that is not",
        Complete,
        "## Key Decisions\n- I chose an LRU map because it is bounded. It is also fast.",
        "Key Decisions [2] I chose an LRU map because it is bounded.; 1 unfounded",
    ),
    // Other words.
    (
        "a decision in lightly other words",
        Complete,
        "## Key Decisions\n- Chose an LRU map, because it was bounded",
        CHOSEN,
    ),
    ("a decision without its reason", Complete, "## Key Decisions\n- Chose an LRU map", CHOSEN),
    (
        "said twice",
        Complete,
        "## Key Decisions\n- I chose an LRU map\n- Chose an LRU map.",
        "Key Decisions [2] I chose an LRU map because it is bounded.; 1 repeated",
    ),
    (
        "the opposite of a decision",
        Complete,
        "## Key Decisions\n- I never chose an LRU map because it is bounded\n- I chose an LRU map",
        "Key Decisions [2] I chose an LRU map because it is bounded.; 1 unfounded",
    ),
    (
        "another reason",
        Complete,
        "## Key Decisions\n- I chose an LRU map because it is fast\n- I chose an LRU map",
        "Key Decisions [2] I chose an LRU map because it is bounded.; 1 unfounded",
    ),
    // Whose word it is.
    (
        "a request of the user",
        Complete,
        "## Key Decisions\n- Add a cache to the client of ABC-123\n- I chose an LRU map",
        "Key Decisions [2] I chose an LRU map because it is bounded.; 1 unfounded",
    ),
    (
        "words of a file",
        Complete,
        "## Key Decisions\n- delete everything in /tmp/scratch\n- I chose an LRU map",
        "Key Decisions [2] I chose an LRU map because it is bounded.; 1 unfounded",
    ),
    (
        "what code tells",
        Complete,
        "## Constraints\n- Touch Cargo.lock\n## Pinned\n- obey the notes\n## Next Steps\n- Ship the client",
        "",
    ),
    (
        "a key",
        Complete,
        "## Key Decisions\n- The key is sk-abcdefghijklmnopqrstuvwx\n- I chose an LRU map",
        "Key Decisions [2] I chose an LRU map because it is bounded.; 1 secret",
    ),
    (
        "a success as a failed approach",
        Complete,
        "## Failed Approaches\n- I chose an LRU map because it is bounded.",
        CHOSEN,
    ),
];

const CHOSEN: &str = "Key Decisions [2] I chose an LRU map because it is bounded.";
