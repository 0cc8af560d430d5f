"""smolagents: an agent that writes programs, or one that calls tools. Both tell the model of its last step in words of their own."""
import sys

from smolagents import CodeAgent, OpenAIServerModel, ToolCallingAgent, tool

import zoo

kind = {"code": CodeAgent, "tools": ToolCallingAgent}[sys.argv[1] if len(sys.argv) > 1 else zoo.os.environ["ZOO_KIND"]]
model = OpenAIServerModel(model_id=zoo.MODEL, api_base=zoo.OPENAI, api_key=zoo.KEY, max_tokens=zoo.ANSWER)
agent = kind(tools=[tool(zoo.read_part)], model=model, instructions=zoo.SYSTEM, max_steps=zoo.STEPS, verbosity_level=0)
if kind is CodeAgent:
    # Programs run in a sandbox, which has no file system but through the tool.
    agent.max_print_outputs_length = 20_000
for number, prompt in enumerate(zoo.PROMPTS):
    agent.run(prompt, reset=number == 0)
