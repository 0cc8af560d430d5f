"""LangChain: its ready-made agent, streamed, with Anthropic's caching middleware where that applies."""
from langchain.agents import create_agent
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

import langchain_model, zoo

middleware = []
if zoo.FORM == "messages":
    from langchain_anthropic.middleware import AnthropicPromptCachingMiddleware

    middleware.append(AnthropicPromptCachingMiddleware())
agent = create_agent(
    langchain_model.model(), [tool(zoo.read_part)], system_prompt=zoo.SYSTEM, middleware=middleware, checkpointer=InMemorySaver()
)
for prompt in zoo.PROMPTS:
    settings = {"configurable": {"thread_id": "one"}, "recursion_limit": zoo.STEPS}
    for _ in agent.stream({"messages": [{"role": "user", "content": prompt}]}, settings, stream_mode="messages"):
        pass
