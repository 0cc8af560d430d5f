"""llm by Simon Willison: its library, a conversation with a tool. Models are registered as extra-openai-models.yaml does."""
import llm

import zoo


def model():
    if zoo.FORM == "messages":
        from llm_anthropic import ClaudeMessages

        return ClaudeMessages(f"anthropic/{zoo.MODEL}", claude_model_id=zoo.MODEL, base_url=zoo.BASE)
    if zoo.FORM == "responses":
        return llm.get_model(f"openai/{zoo.MODEL}")
    from llm.default_plugins.openai_models import Chat

    return Chat(zoo.MODEL, model_name=zoo.MODEL, api_base=zoo.OPENAI, supports_tools=True, key=zoo.KEY)


asked = model()
asked.key = zoo.KEY
conversation = asked.conversation(tools=[zoo.read_part], chain_limit=zoo.STEPS)
options = {"max_output_tokens" if zoo.FORM == "responses" else "max_tokens": zoo.ANSWER} | ({"cache": True} if zoo.FORM == "messages" else {})
for prompt in zoo.PROMPTS:
    conversation.chain(prompt, system=zoo.SYSTEM, options=options).text()
