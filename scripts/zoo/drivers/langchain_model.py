"""LangChain's models, one for each format."""
import zoo


def model():
    if zoo.FORM == "messages":
        from langchain_anthropic import ChatAnthropic

        return ChatAnthropic(model=zoo.MODEL, base_url=zoo.BASE, api_key=zoo.KEY, max_tokens=zoo.ANSWER)
    from langchain_openai import ChatOpenAI

    responses = zoo.FORM == "responses"
    return ChatOpenAI(
        model=zoo.MODEL, base_url=zoo.OPENAI, api_key=zoo.KEY, max_tokens=zoo.ANSWER, use_responses_api=responses, stream_usage=True
    )
