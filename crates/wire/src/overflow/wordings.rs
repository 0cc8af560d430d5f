//! Wordings of providers and servers for a request that is too long: data, each with its source.
//!
//! A wording is matched anywhere in an error's text, ignoring case. `*` stands for anything, `{limit}` for the
//! window, `{asked}` for the size of the request, `{answer}` for the room for the answer that is to be added to that,
//! `{within}` for that room where it is counted already, and `{large}` for a count of characters so large that only a
//! history's text can be meant. The first match counts, so wordings that give more numbers stand before those that
//! give fewer. `#` names a thread of a repository; a repository alone means that its code, or code written against
//! it, has the wording.

/// A wording of the error.
pub(super) struct OverflowWording {
    /// Provider or server that uses it.
    #[cfg_attr(not(test), expect(dead_code, reason = "it is for whoever reads the table, and the tests"))]
    pub(super) who: &'static str,
    /// The words, in lower case.
    pub(super) says: &'static str,
    /// Source in which it was seen.
    #[cfg_attr(not(test), expect(dead_code, reason = "it is for whoever reads the table, and the tests"))]
    pub(super) seen: &'static str,
}

const fn wording(who: &'static str, says: &'static str, seen: &'static str) -> OverflowWording {
    OverflowWording { who, says, seen }
}

/// All known wordings.
pub(super) const WORDINGS: [OverflowWording; 47] = [
    // Anthropic.
    wording(
        "Anthropic, and Bedrock, Vertex and gateways which pass it on",
        "prompt is too long: {asked} tokens > {limit} maximum",
        "stackblitz/bolt.new#1465",
    ),
    wording(
        "Anthropic: the answer's limit counts, too",
        "input length and `max_tokens` exceed context limit: {asked} + {answer} > {limit}",
        "anthropics/claude-code#408; docker/docker-agent#569",
    ),
    wording(
        "the same through a gateway",
        "input length and max_tokens exceed context limit: {asked} + {answer} > {limit}",
        "stackblitz/bolt.new#7414",
    ),
    wording("the same without numbers", "exceed context limit", "anthropics/claude-code#5346"),
    wording(
        "Fireworks, Ollama's cloud",
        "prompt is too long: {asked}, model maximum context length: {limit}",
        "the tests of several agents, found in public code",
    ),
    wording("the same without numbers", "prompt is too long", "badlogic/pi-mono"),
    // OpenAI, and the many that copy its words: Azure, DeepSeek, vLLM, Together, Fireworks, OpenRouter.
    wording(
        "OpenAI Chat, Azure",
        "maximum context length is {limit} tokens*resulted in {asked} tokens",
        "bytedance/deer-flow#310; webtimemachine/wtm2#579",
    ),
    wording(
        "OpenRouter: the answer counts, too",
        "maximum context length is {limit} tokens*you requested about {asked} tokens (*, {within} in the output)",
        "OpenHands/OpenHands#9937; Aider-AI/aider#3721",
    ),
    wording(
        "OpenRouter",
        "maximum context length is {limit} tokens*you requested about {asked} tokens",
        "topoteretes/cognee#1061",
    ),
    wording(
        "vLLM since 0.15, Cloudflare, Bedrock's open models",
        "maximum context length is {limit} tokens*you requested {answer} output tokens and your prompt contains at least {asked} input tokens",
        "AIDotNet/OpenCowork#82",
    ),
    wording(
        "OpenAI, Azure, DeepSeek, vLLM, Together: the answer counts, too",
        "maximum context length is {limit} tokens*you requested {asked} tokens (*, {within} in the completion)",
        "evalstate/fast-agent#621; vllm-project/vllm#20409",
    ),
    wording(
        "OpenAI, as it once said it",
        "maximum context length is {limit} tokens*you requested {asked} tokens (*; {within} for the completion)",
        "langchain-ai/langchain#11001; run-llama/llama_index#948",
    ),
    wording(
        "the same, whatever it counts",
        "maximum context length is {limit} tokens*you requested {asked} tokens",
        "langchain-ai/langchain#24058",
    ),
    wording(
        "vLLM before 0.15: what is left is less than the answer's limit",
        "is too large: {answer}. this model's maximum context length is {limit} tokens and your request has {asked} input tokens",
        "vllm-project/vllm",
    ),
    wording(
        "the same, the rest unknown",
        "maximum context length is {limit} tokens",
        "oobabooga/textgen#3658",
    ),
    wording(
        "OpenAI, models whose input has a limit of its own",
        "input tokens exceed the configured limit of {limit} tokens*resulted in {asked} tokens",
        "BerriAI/litellm",
    ),
    wording(
        "the same, the rest unknown",
        "input tokens exceed the configured limit of {limit} tokens",
        "BerriAI/litellm",
    ),
    wording(
        "OpenAI Responses",
        "input exceeds the context window of this model",
        "james-6-23/codex2api#415; onyx-dot-app/onyx#6051",
    ),
    wording(
        "OpenAI: one text is too long for any window; an id that is too long is another mistake",
        "string too long. expected a string with maximum length {large}",
        "VectorlyApp/bluebox#31; the other mistake: AnswerDotAI/fastllm#45",
    ),
    // Other cloud providers.
    wording(
        "Gemini",
        "input token count ({asked}) exceeds the maximum number of tokens allowed ({limit})",
        "google-gemini/gemini-cli#6678",
    ),
    wording(
        "Gemini, the rest unknown",
        "input token count exceeds the maximum number of tokens allowed ({limit})",
        "arkavo-org/arkavo-edge#371",
    ),
    wording(
        "xAI",
        "maximum prompt length is {limit} but the request contains {asked} tokens",
        "cline/cline#3120",
    ),
    wording("Cerebras", "current length is {asked} while limit is {limit}", "BerriAI/litellm"),
    wording(
        "Groq",
        "please reduce the length of the messages or completion",
        "OpenHands/OpenHands#1902; thepersonalaicompany/amurex-backend#51",
    ),
    wording(
        "Mistral",
        "prompt contains {asked} tokens*too large for model with {limit} maximum context length",
        "badlogic/pi-mono",
    ),
    wording(
        "Together, SGLang",
        "the input ({asked} tokens) is longer than the model's context length ({limit} tokens)",
        "QwenLM/Qwen3#1321",
    ),
    wording(
        "SGLang, LiteLLM: the answer counts, too",
        "requested token count exceeds the model's maximum context length of {limit} tokens*requested a total of {asked} tokens*and {within} tokens for the completion",
        "sgl-project/sglang",
    ),
    wording(
        "the same, the rest unknown",
        "requested token count exceeds the model's maximum context length of {limit} tokens",
        "badlogic/pi-mono",
    ),
    wording(
        "SGLang",
        "input length ({asked} tokens) exceeds the maximum allowed length ({limit} tokens)",
        "sgl-project/sglang#4048",
    ),
    wording(
        "Poolside",
        "input length {asked} exceeds the maximum allowed input length of {limit} tokens",
        "badlogic/pi-mono",
    ),
    wording("Bedrock", "input is too long for requested model", "aws-samples/bedrock-chat#95"),
    wording(
        "Bedrock's Titan",
        "too many input tokens. max input tokens: {limit}, request input token count: {asked}",
        "aws-samples/amazon-bedrock-workshop#136",
    ),
    wording("Kimi", "exceeded model token limit: {limit} (requested: {asked})", "badlogic/pi-mono"),
    wording("MiniMax", "context window exceeds limit", "badlogic/pi-mono"),
    wording(
        "GitHub Copilot",
        "prompt token count of {asked} exceeds the limit of {limit}",
        "badlogic/pi-mono",
    ),
    wording("DashScope", "range of input length should be [1, {limit}]", "badlogic/pi-mono"),
    wording(
        "Hugging Face TGI, Together: the answer counts, too",
        "`inputs` tokens + `max_new_tokens` must be <= {limit}. given: {asked} `inputs` tokens and {answer} `max_new_tokens`",
        "stanford-crfm/helm#2079; huggingface/chat-ui#1149",
    ),
    wording(
        "Hugging Face TGI",
        "`inputs` must have less than {limit} tokens. given: {asked}",
        "meta-llama/llama#1103",
    ),
    // Servers on one's own machine.
    wording(
        "llama.cpp",
        "request ({asked} tokens) exceeds the available context size ({limit} tokens)",
        "ggml-org/llama.cpp",
    ),
    wording(
        "llama.cpp; the numbers stand beside it",
        "exceeds the available context size",
        "ggml-org/llama.cpp#15780; continuedev/continue#9797",
    ),
    wording(
        "llama-cpp-python",
        "requested tokens ({asked}) exceed context window of {limit}",
        "fedora-copr/logdetective-website#193; rllm-team/rllm#55",
    ),
    wording(
        "LM Studio",
        "trying to keep the first {asked} tokens when context the overflows*context length of only {limit} tokens",
        "lmstudio-ai/lmstudio-bug-tracker#546",
    ),
    wording("LM Studio", "n_keep ({asked}) >= n_ctx ({limit})", "anomalyco/opencode#11141"),
    wording(
        "LM Studio",
        "initial prompt is greater than the context length",
        "lmstudio-ai/lmstudio-bug-tracker#2256",
    ),
    wording(
        "LM Studio, while answering",
        "reached context length of {limit} tokens",
        "lmstudio-ai/lmstudio-bug-tracker#1251",
    ),
    wording(
        "vLLM's engine",
        "prompt (length {asked}) is longer than the maximum model length of {limit}",
        "xorbitsai/inference#3785",
    ),
    wording(
        "Ollama, where it does not cut the prompt silently",
        "prompt too long; exceeded max context length",
        "badlogic/pi-mono",
    ),
];

/// Codes and types of errors that mean this by themselves.
pub(super) const OVERFLOW_CODES: [&str; 6] = [
    // OpenAI, Azure, Groq, Cerebras.
    "context_length_exceeded",
    // llama.cpp.
    "exceed_context_size_error",
    // z.ai, LiteLLM.
    "model_context_window_exceeded",
    "context_window_exceeded",
    // Anthropic: more bytes than it takes.
    "request_too_large",
    // The code that Claude Code expects from a gateway.
    "prompt_too_long",
];

/// Words for limits of time or money, which may name sizes too: waiting or paying helps there, a shorter request does
/// not.
pub(super) const OTHER_LIMITS: [&str; 8] = [
    "rate limit",
    "rate_limit",
    "ratelimit",
    "tokens per min",
    "tokens per day",
    "too many requests",
    "throttl",
    "quota",
];
