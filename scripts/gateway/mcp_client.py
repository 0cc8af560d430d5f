"""Lists and calls everything of `epitome mcp` with the official SDK; run by scripts/mcp-clients in the SDK's Python."""
import asyncio, json, pathlib, subprocess, sys, tempfile, time

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

SESSION = "0199a1b2-c3d4-4000-8000-00000000c0de"
LARGEST = 4096


def transcript(folder):
    """A Claude Code session in which a test failed, a file was changed, and the test worked."""
    test, edit = {"command": "cargo test parser"}, {"file_path": f"{folder}/parser.rs", "old_string": "a", "new_string": "b"}
    call = lambda key, name, given: [{"type": "tool_use", "id": key, "name": name, "input": given}]
    back = lambda key, text, error=False: [{"type": "tool_result", "tool_use_id": key, "content": text, "is_error": error}]
    said = [
        ("user", "Fix the parser. Never touch the lock file."),
        ("assistant", call("t1", "Bash", test)),
        ("user", back("t1", "Exit code 101\nerror: cannot find value `widget` in this scope", True)),
        ("assistant", call("t2", "Edit", edit)),
        ("user", back("t2", "The file has been updated.")),
        ("assistant", call("t3", "Bash", test)),
        ("user", back("t3", "test result: ok. 4 passed\n" + "".join(f"test parser::case_{n} ... ok\n" for n in range(300)))),
        ("assistant", [{"type": "text", "text": "The parser works again."}]),
    ]
    for number, (kind, content) in enumerate(said * 12):
        role = {"role": kind, "content": content}
        if kind == "assistant":
            role |= {"id": f"msg_{number}", "type": "message", "model": "claude-sonnet-4-5"}
        parent = f"u-{number - 1}" if number else None
        yield json.dumps(
            {
                "type": kind, "uuid": f"u-{number}", "parentUuid": parent, "sessionId": SESSION, "cwd": str(folder),
                "timestamp": f"2026-01-05T10:{number // 60:02}:{number % 60:02}Z", "message": role,
            }
        )


async def main(program):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="epitome-mcp-"))
    database, file = folder / "log.db", folder / "session.jsonl"
    file.write_text("\n".join(transcript(folder)) + "\n")
    subprocess.run([program, "--db", database, "import", file], check=True, stdout=subprocess.DEVNULL)
    server = StdioServerParameters(command=program, args=["--db", str(database), "mcp"], cwd=str(folder))
    rows, missed = [], []
    async with stdio_client(server) as (read, write), ClientSession(read, write) as client:
        opened = await client.initialize()
        rows.append(["initialize", opened.server_info.name, opened.protocol_version, "", ""])
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}

        async def call(name, **arguments):
            begun = time.monotonic()
            answer = await client.call_tool(name, arguments)
            took = (time.monotonic() - begun) * 1000
            data = answer.structured_content or {}
            size = len(json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode())
            well = not answer.is_error and size <= LARGEST and "data" in data.get("notice", "")
            hint = tools[name].annotations
            hints = "reads" if hint.read_only_hint else "adds"
            rows.append([name, hints, f"{size} B", f"{took:.0f} ms", "yes" if well else f"no: {answer.content[0].text[:80]}"])
            if not well:
                missed.append(name)
            return data

        found = await call("search", query="widget")
        handle = found["items"][0]["handle"]
        await call("recall", handle=handle)
        await call("why", text="cannot find value `widget`")
        await call("failed", error="cannot find value `widget` in this scope")
        await call("failed", path="parser.rs")
        await call("pin", text="Never touch the lock file.")
        await call("context")
        await call("compact", focus="the parser")
        missed += [name for name in tools if name not in {row[0] for row in rows}]
        resources = (await client.list_resources()).resources
        brief = await client.read_resource(resources[0].uri)
        turn = await client.read_resource(str(resources[0].uri).replace("/brief", "/turn/1"))
        for name, read_back in [("brief", brief), ("turn", turn)]:
            rows.append(["resource", name, f"{len(read_back.contents[0].text)} B", "", "yes"])
        for prompt in (await client.list_prompts()).prompts:
            given = {argument.name: "Write docs." for argument in prompt.arguments or [] if argument.required}
            made = await client.get_prompt(prompt.name, given)
            rows.append(["prompt", prompt.name, f"{len(made.messages[0].content.text)} B", "", "yes"])
        refused = await client.call_tool("recall", {"handle": "nonsense"})
        rows.append(["recall", "a wrong handle", "", "", "refused" if refused.is_error else "no"])
        if not refused.is_error:
            missed.append("error")
    for row in rows:
        print("  ".join(f"{cell:<14}" for cell in row).rstrip())
    if missed:
        print("missed:", ", ".join(missed))
    return bool(missed)


sys.exit(asyncio.run(main(sys.argv[1])))
