//! Hooks of a session: what they add comes after the reduction, its reserve is kept free once, and it is replaced where
//! the hook says so.

use epitome::{
    ContentPart, Fact, Hook, Policy, Session, SessionBuilder, SessionRequest, Tokens, ToolOutput,
    core::{event::CompactionTrigger, inject::HookInput, model_view::EpochCause},
    wire::Format,
};
use serde_json::json;

/// Adds so many words that name the message, and may add so many tokens.
#[derive(Debug)]
struct Notes {
    words: usize,
    reserve: u64,
    is_replaced: bool,
}

impl Hook for Notes {
    fn name(&self) -> &'static str {
        "notes"
    }

    fn reserve(&self) -> Tokens {
        Tokens(self.reserve)
    }

    fn inject(&self, asked: &HookInput<'_>) -> Vec<ContentPart> {
        let words = vec!["remember"; self.words].join(" ");
        vec![ContentPart::text(format!("<note on=\"{}\">{words}</note>", asked.message.id.seq))]
    }

    fn is_replaced(&self) -> bool {
        self.is_replaced
    }
}

const WINDOW: u64 = 8_000;

/// The input that such a window takes: a quarter of it stays free for the answer.
const CEILING: Tokens = Tokens(6_000);

fn builder() -> SessionBuilder {
    Session::builder(Format::OpenaiChat, "a model nobody knows").system("Be brief.").window(Tokens(WINDOW))
}

async fn answered(session: &Session, call: &SessionRequest, text: &str) {
    let message = json!({"role": "assistant", "content": text});
    let body =
        json!({"id": format!("a{}", call.call), "model": "m", "choices": [{"index": 0, "message": message}]});
    session.answered(&body.to_string()).await.unwrap();
}

/// Asks `turns` questions of so many words and answers each; gives the requests.
async fn converse(session: &Session, turns: usize, words: usize) -> Vec<SessionRequest> {
    let mut requests = Vec::new();
    for turn in 0..turns {
        session.user(&format!("Question {turn}: {}", vec!["why"; words].join(" "))).await.unwrap();
        let request = session.next_request().await.unwrap();
        answered(session, &request, "Because.").await;
        requests.push(request);
    }
    requests
}

/// The causes of the epochs that a policy opened.
fn reductions(requests: &[SessionRequest]) -> Vec<EpochCause> {
    let causes = requests.iter().filter_map(|request| request.cause.clone());
    causes.filter(|cause| !matches!(cause, EpochCause::First | EpochCause::EveryCall(_))).collect()
}

/// A policy that acts as soon as a context is over half of what fits, by reducers alone.
fn half() -> Policy {
    Policy::read("name = 'half'\nbase = 'retention'\nlimits = { trigger = 0.5, target = 0.3 }\n").unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_hook_adds_is_not_reduced_with_the_request_that_first_shows_it() {
    // Without its note no request is over the trigger; with it the last one is.
    let plain = builder().policy(&half()).begin().await.unwrap();
    let alone = converse(&plain, 3, 500).await;
    assert_eq!(reductions(&alone), [], "{:?}", alone.iter().map(|made| made.tokens).collect::<Vec<_>>());
    let hook = Notes { words: 1_200, reserve: 1_300, is_replaced: true };
    let session = builder().policy(&half()).hook(hook).begin().await.unwrap();
    let with_notes = converse(&session, 3, 500).await;
    assert_eq!(reductions(&with_notes), []);
    let (last, before) = (with_notes.last().unwrap(), alone.last().unwrap());
    assert!(before.tokens + Tokens(1_200) < last.tokens, "{} and {}", before.tokens, last.tokens);
    // The trigger is half of what is left beside the reserve.
    assert!(last.tokens > Tokens((CEILING.0 - 1_300) / 2) && last.tokens <= CEILING, "{}", last.tokens);
    assert_eq!(last.body.matches("<note").count(), 1, "{}", last.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn room_is_kept_free_for_a_hook_until_it_has_added_and_not_beside_what_it_added() {
    let hook = Notes { words: 1_900, reserve: 2_000, is_replaced: false };
    let session = builder().hook(hook).begin().await.unwrap();
    session.user(&vec!["why"; 3_000].join(" ")).await.unwrap();
    let first = session.next_request().await.unwrap();
    assert!(
        first.tokens > Tokens(4_900),
        "what a hook added and its reserve would not both fit: {}",
        first.tokens
    );
    let call = json!({"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}});
    let message = json!({"role": "assistant", "content": null, "tool_calls": [call]});
    let body = json!({"id": "a", "model": "m", "choices": [{"index": 0, "message": message}]});
    let answer = session.answered(&body.to_string()).await.unwrap();
    session.tool_results(&[ToolOutput::of(&answer.calls[0], "Nothing.")]).await.unwrap();
    let second = session.next_request().await.unwrap();
    assert_eq!((second.cause.clone(), second.epoch), (None, first.epoch), "{:?}", second.cause);
    assert!(second.tokens > first.tokens && second.tokens <= CEILING, "{}", second.tokens);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_note_that_is_replaced_is_shown_once_and_one_that_is_not_stays() {
    let shown = async |is_replaced: bool| {
        let hook = Notes { words: 50, reserve: 100, is_replaced };
        let session = builder().hook(hook).begin().await.unwrap();
        let requests = converse(&session, 8, 10).await;
        for call in session.calls().await.unwrap() {
            session.replay(call.number).await.unwrap();
        }
        let notes: Vec<usize> = requests.iter().map(|made| made.body.matches("<note on").count()).collect();
        (notes, requests)
    };
    let (notes, requests) = shown(true).await;
    assert_eq!(notes, [1; 8]);
    assert_eq!(reductions(&requests), []);
    let replaced = EpochCause::EveryCall("drop_injected".into());
    assert!(requests[1..].iter().all(|request| request.cause.as_ref() == Some(&replaced)));
    let (notes, requests) = shown(false).await;
    assert_eq!(notes, [1, 2, 3, 4, 5, 6, 7, 8]);
    assert!(requests[1..].iter().all(|request| request.cause.is_none()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reserve_that_would_not_fit_makes_room_before_the_hook_is_asked() {
    let hook = Notes { words: 1_900, reserve: 2_000, is_replaced: true };
    let session = builder().hook(hook).begin().await.unwrap();
    let requests = converse(&session, 12, 500).await;
    assert!(requests.iter().all(|request| request.tokens <= CEILING));
    assert!(requests.iter().all(|request| request.body.matches("<note on").count() == 1));
    let log = session.store().read(session.thread(), epitome::Seq(1), 10_000).unwrap();
    let compactions = log.iter().filter(|logged| matches!(logged.event.fact, Fact::Compacted(_))).count();
    assert!(compactions > 0 && compactions <= 4, "{compactions} compactions in {} calls", requests.len());
    let overflows = log.iter().filter(|logged| {
        matches!(logged.event.fact, Fact::CompactionRequested { trigger: CompactionTrigger::Overflow, .. })
    });
    assert_eq!(overflows.count(), 0);
}
