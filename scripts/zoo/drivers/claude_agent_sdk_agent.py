"""Claude's Agent SDK: a client that holds a session, with the project's settings and the Claude Code that it brings along."""
import asyncio

from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient

import zoo


async def main():
    options = ClaudeAgentOptions(
        model=zoo.MODEL,
        system_prompt={"type": "preset", "preset": "claude_code", "append": zoo.SYSTEM},
        setting_sources=["project"],
        allowed_tools=["Bash"],
    )
    async with ClaudeSDKClient(options=options) as client:
        for prompt in zoo.PROMPTS:
            await client.query(prompt)
            async for _ in client.receive_response():
                pass


asyncio.run(main())
