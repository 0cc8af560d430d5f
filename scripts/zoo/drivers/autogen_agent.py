"""AutoGen: an assistant with a tool that takes as many rounds as it needs, and keeps its context between tasks."""
import asyncio

from autogen_agentchat.agents import AssistantAgent

import zoo

KNOWN = {"vision": False, "function_calling": True, "json_output": True, "structured_output": True, "family": "unknown", "multiple_system_messages": False}


def model():
    if zoo.FORM == "messages":
        from autogen_ext.models.anthropic import AnthropicChatCompletionClient

        return AnthropicChatCompletionClient(
            model=zoo.MODEL, api_key=zoo.KEY, base_url=zoo.BASE, max_tokens=zoo.ANSWER, model_info=KNOWN
        )
    from autogen_ext.models.openai import OpenAIChatCompletionClient

    return OpenAIChatCompletionClient(model=zoo.MODEL, api_key=zoo.KEY, base_url=zoo.OPENAI, max_tokens=zoo.ANSWER, model_info=KNOWN)


async def main():
    agent = AssistantAgent(
        "reader",
        model_client=model(),
        tools=[zoo.read_part],
        system_message=zoo.SYSTEM,
        max_tool_iterations=zoo.STEPS,
        reflect_on_tool_use=False,
    )
    for prompt in zoo.PROMPTS:
        await agent.run(task=prompt)


asyncio.run(main())
