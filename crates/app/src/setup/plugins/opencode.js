// epitome setup wrote this file. `epitome setup opencode --undo` removes it.
//
// OpenCode summarises by itself when its window is full. This plugin tells the summariser the facts of the session, and puts
// them, word for word, behind the summary in every later request. It asks `epitome hook`, waits a little, and says nothing if
// that fails: OpenCode then goes on as if the plugin were not there.
import { spawn } from "node:child_process"

const COMMAND = __EPITOME_COMMAND__
const PATIENCE_MS = 9000

function ask(event, question) {
  return new Promise((resolve) => {
    let child
    try {
      child = spawn(COMMAND[0], [...COMMAND.slice(1), "hook", "opencode", event], { stdio: ["pipe", "pipe", "ignore"] })
    } catch {
      return resolve(undefined)
    }
    const timer = setTimeout(() => child.kill("SIGKILL"), PATIENCE_MS)
    let said = ""
    child.on("error", () => resolve(undefined))
    child.stdin.on("error", () => {})
    child.stdout.on("data", (part) => (said += part))
    child.on("close", () => {
      clearTimeout(timer)
      try {
        resolve(JSON.parse(said))
      } catch {
        resolve(undefined)
      }
    })
    child.stdin.end(JSON.stringify(question))
  })
}

export const Epitome = async ({ client, directory }) => {
  // Facts by the summary that they stand behind, so that they are the same bytes in every request.
  const facts = new Map()

  async function transcript(id) {
    const [info, messages] = await Promise.all([
      client.session.get({ path: { id } }),
      client.session.messages({ path: { id } }),
    ])
    return { info: info.data, messages: messages.data }
  }

  async function factsOf(event, session) {
    try {
      const answer = await ask(event, { session_id: session, cwd: directory, transcript: await transcript(session) })
      return answer?.context
    } catch {
      return undefined
    }
  }

  return {
    "experimental.session.compacting": async (input, output) => {
      const context = await factsOf("compacting", input.sessionID)
      if (context) output.context.push(context)
    },

    "experimental.chat.messages.transform": async (_input, output) => {
      const at = output.messages.findLastIndex((message) => message.info.role === "assistant" && message.info.summary)
      if (at < 0) return
      const summary = output.messages[at]
      if (!facts.has(summary.info.id)) {
        const found = await factsOf("messages", summary.info.sessionID)
        // What was not told this time is asked for again.
        if (found) facts.set(summary.info.id, found)
      }
      const text = facts.get(summary.info.id)
      if (!text) return
      const next = output.messages[at + 1]
      const message = next?.info.role === "user" ? next : summary
      const id = `prt_epitome_${summary.info.id}`
      if (message.parts.some((part) => part.id === id)) return
      message.parts = [
        ...message.parts,
        { id, sessionID: message.info.sessionID, messageID: message.info.id, type: "text", synthetic: true, text },
      ]
    },
  }
}
