"""LangGraph: a graph of a model and its tools with a checkpointer, as its tutorials build one."""
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

import langchain_model, zoo

tools = [tool(zoo.read_part)]
model = langchain_model.model().bind_tools(tools)
# Anthropic caches what is marked: the instructions, and the end of the history.
marked = {"cache_control": {"type": "ephemeral"}} if zoo.FORM == "messages" else {}
system = SystemMessage([{"type": "text", "text": zoo.SYSTEM, **marked}] if marked else zoo.SYSTEM)


def ask(state):
    return {"messages": [model.invoke([system, *state["messages"]], **marked)]}


graph = StateGraph(MessagesState)
graph.add_node("ask", ask)
graph.add_node("tools", ToolNode(tools))
graph.add_edge(START, "ask")
graph.add_conditional_edges("ask", tools_condition)
graph.add_edge("tools", "ask")
agent = graph.compile(checkpointer=InMemorySaver())
for prompt in zoo.PROMPTS:
    settings = {"configurable": {"thread_id": "one"}, "recursion_limit": zoo.STEPS}
    agent.invoke({"messages": [HumanMessage(prompt)]}, settings)
