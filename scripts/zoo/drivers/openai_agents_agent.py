"""OpenAI's Agents SDK: an agent with a tool, whose input is what came of the run before."""
from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

import zoo

set_tracing_disabled(True)
kind = OpenAIResponsesModel if zoo.FORM == "responses" else OpenAIChatCompletionsModel
client = AsyncOpenAI(api_key=zoo.KEY, base_url=zoo.OPENAI)
agent = Agent(
    name="reader",
    instructions=zoo.SYSTEM,
    tools=[function_tool(zoo.read_part)],
    model=kind(model=zoo.MODEL, openai_client=client),
    model_settings=ModelSettings(max_tokens=zoo.ANSWER, store=False),
)
history = []
for prompt in zoo.PROMPTS:
    result = Runner.run_sync(agent, [*history, {"role": "user", "content": prompt}], max_turns=zoo.STEPS)
    history = result.to_input_list()
