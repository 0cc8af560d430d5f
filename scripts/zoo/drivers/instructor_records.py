"""instructor: records with validation, asked for again where they are flawed, in a conversation that grows.

What is kept of an answer is the record, not the tool call that the model made, and not the tries that failed: the newest answer of
the history is never what the provider said.
"""
import instructor
from pydantic import BaseModel, Field

import zoo


class Record(BaseModel):
    """What is recorded of a part."""

    number: int
    rating: int = Field(ge=1, le=5)
    summary: str


def client():
    if zoo.FORM == "messages":
        from anthropic import Anthropic

        return instructor.from_anthropic(Anthropic(api_key=zoo.KEY, base_url=zoo.BASE))
    from openai import OpenAI

    return instructor.from_openai(OpenAI(api_key=zoo.KEY, base_url=zoo.OPENAI))


def marked(messages):
    """Anthropic caches what is marked: the newest message."""
    if zoo.FORM != "messages":
        return list(messages)
    block = {"type": "text", "text": messages[-1]["content"], "cache_control": {"type": "ephemeral"}}
    return [*messages[:-1], {**messages[-1], "content": [block]}]


asking = client()
history = [{"role": "system", "content": zoo.SYSTEM}]
for prompt in zoo.PROMPTS:
    history.append({"role": "user", "content": prompt})
    record = asking.chat.completions.create(
        model=zoo.MODEL, max_tokens=zoo.ANSWER, messages=marked(history), response_model=Record, max_retries=3
    )
    history.append({"role": "assistant", "content": record.model_dump_json()})
    zoo.done(record.number)
