//! The agents that a Claude Code conversation starts, each on a thread of its own.
//!
//! Their messages are found in three places: in lines of the same file marked as a side chain (old versions), in a
//! file of their own (`agent-<id>.jsonl`), and in progress reports of the conversation that started them, which leave
//! out the final answer. A report and an agent's own file record the same messages in different bytes, so reports
//! have a separate thread.
//!
//! The call that started a side chain may become known only later, with its result: then the thread's start becomes
//! more precise, while its events stay as they were.

use std::collections::{HashMap, HashSet};

use epitome_core::{Fact, ThreadId, id::CallId};

use super::log::is_true;
use crate::{
    json::Json,
    transcripts::threads::{ThreadIndex, ThreadTree},
};

/// The agents met so far.
#[derive(Default)]
pub(super) struct ClaudeAgents {
    /// Threads of side chains, by the agent's id.
    chains: HashMap<String, ThreadIndex>,
    /// The same threads.
    chained: HashSet<ThreadIndex>,
    /// Threads of reports, by the agent's id.
    reports: HashMap<String, ThreadIndex>,
    /// Calls that give an agent its task, by the task.
    asked: HashMap<String, AgentOrigin>,
    /// The calls that started an agent, by the agent's id.
    started: HashMap<String, AgentOrigin>,
}

/// A call and the thread that made it.
#[derive(Clone)]
struct AgentOrigin {
    by: ThreadId,
    call: CallId,
}

impl ClaudeAgents {
    /// Looks for agents in a message: calls that start them, results that name them.
    pub(super) fn note_agents(
        &mut self,
        by: ThreadId,
        line: &Json<'_>,
        fact: &Fact,
        threads: &mut ThreadTree,
    ) {
        for call in fact.calls().filter(|call| matches!(call.name.0.as_str(), "Task" | "Agent")) {
            let input = Json::parse(&call.arguments, "a call's input").ok();
            if let Some(prompt) = input.as_ref().and_then(|input| input.text_at("prompt")) {
                self.asked.insert(prompt.to_owned(), AgentOrigin { by, call: call.id.clone() });
            }
        }
        let agent = line.get("toolUseResult").and_then(|result| result.text_at("agentId"));
        if let Some((agent, result)) = agent.zip(fact.results().first()) {
            if let Some(thread) = self.chains.get(agent) {
                threads.started_by(*thread, by, &result.call);
            }
            self.started.insert(agent.to_owned(), AgentOrigin { by, call: result.call.clone() });
        }
    }

    /// The thread of a side chain's line; `parent` is the thread of the line it follows.
    pub(super) fn sidechain_thread(
        &mut self,
        line: &Json<'_>,
        parent: Option<ThreadIndex>,
        threads: &mut ThreadTree,
    ) -> ThreadIndex {
        let agent = line.text_at("agentId");
        let known = agent.and_then(|agent| self.chains.get(agent)).copied();
        if let Some(thread) =
            known.or_else(|| parent.filter(|thread| agent.is_none() && self.chained.contains(thread)))
        {
            return thread;
        }
        let id = agent.or_else(|| line.text_at("uuid")).unwrap_or("without a name");
        let origin = self.started.get(id).or_else(|| self.asked.get(&prompt(line)?));
        let call = line.text_at("parentToolUseID").or_else(|| line.text_at("parent_tool_use_id"));
        let (by, call) = match (origin, call) {
            (Some(origin), _) => (origin.by, Some(origin.call.clone())),
            (None, call) => (threads.id(ThreadTree::MAIN), call.map(CallId::from)),
        };
        let thread = threads.spawn(format!("agent {id}"), Some(by), call);
        self.chains.insert(id.to_owned(), thread);
        self.chained.insert(thread);
        thread
    }

    /// The thread of the reports about an agent.
    pub(super) fn report_thread(
        &mut self,
        agent: &str,
        by: ThreadId,
        call: Option<CallId>,
        threads: &mut ThreadTree,
    ) -> ThreadIndex {
        if let Some(thread) = self.reports.get(agent) {
            return *thread;
        }
        let thread = threads.spawn(format!("reports of agent {agent}"), Some(by), call);
        self.reports.insert(agent.to_owned(), thread);
        thread
    }
}

/// The agent's task, from the first line of a side chain.
fn prompt(line: &Json<'_>) -> Option<String> {
    let content = line.get("message")?.get("content")?;
    let block = || content.as_array()?.first()?.text_at("text");
    content.as_text().or_else(block).filter(|_| !is_true(line, "isMeta")).map(str::to_owned)
}
