"""pydantic-ai: an agent with a tool, each run given the messages of the runs before it."""
from pydantic_ai import Agent, UsageLimits

import zoo


def model():
    if zoo.FORM == "messages":
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        return AnthropicModel(zoo.MODEL, provider=AnthropicProvider(api_key=zoo.KEY, base_url=zoo.BASE))
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    kind = OpenAIResponsesModel if zoo.FORM == "responses" else OpenAIChatModel
    return kind(zoo.MODEL, provider=OpenAIProvider(api_key=zoo.KEY, base_url=zoo.OPENAI))


settings = {"max_tokens": zoo.ANSWER}
if zoo.FORM == "messages":
    settings |= {"anthropic_cache_instructions": True, "anthropic_cache_tool_definitions": True, "anthropic_cache_messages": True}
agent = Agent(model(), instructions=zoo.SYSTEM, tools=[zoo.read_part], model_settings=settings)
history = []
for prompt in zoo.PROMPTS:
    result = agent.run_sync(prompt, message_history=history, usage_limits=UsageLimits(request_limit=zoo.STEPS))
    history = result.all_messages()
