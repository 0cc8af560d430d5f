"""Cline's command line: one prompt, because it resumes a session only before a terminal."""
import json, os, pathlib, signal, subprocess

import zoo

HUB = pathlib.Path.home() / ".cline" / "data" / "locks" / "hub" / "production.json"

try:
    command = ["cline", "auth", "openai-compatible", "--apikey", zoo.KEY, "--modelid", zoo.MODEL, "--baseurl", zoo.OPENAI]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    for prompt in zoo.PROMPTS:
        subprocess.run(["cline", "--json", "--compaction", "off", prompt], check=True, stdin=subprocess.DEVNULL)
finally:
    # It leaves a process behind, which would outlive the run.
    if HUB.exists():
        os.kill(json.loads(HUB.read_text())["pid"], signal.SIGTERM)
