// epitome setup wrote this file. `epitome setup pi --undo` removes it.
//
// pi asks an extension before it compacts. This one answers with the summary that `epitome hook` makes of the session file, at
// once and without a model. If that fails it says nothing, and pi summarises as it always does.
import { spawn } from "node:child_process"

const COMMAND = __EPITOME_COMMAND__
const PATIENCE_MS = 9000

function ask(event, question) {
  return new Promise((resolve) => {
    let child
    try {
      child = spawn(COMMAND[0], [...COMMAND.slice(1), "hook", "pi", event], { stdio: ["pipe", "pipe", "ignore"] })
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

export default function (pi) {
  pi.on("session_before_compact", async (event, ctx) => {
    const { firstKeptEntryId, tokensBefore } = event.preparation
    const answer = await ask("session_before_compact", {
      transcript_path: ctx.sessionManager.getSessionFile(),
      cwd: ctx.cwd,
      first_kept: firstKeptEntryId,
    })
    if (!answer?.summary) return undefined
    return { compaction: { summary: answer.summary, firstKeptEntryId, tokensBefore } }
  })
}
