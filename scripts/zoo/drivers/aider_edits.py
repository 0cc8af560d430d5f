"""aider: a file in the chat that is edited with every message. Each request shows the file as it now is, further down each time."""
import pathlib

from aider.coders import Coder
from aider.io import InputOutput
from aider.models import Model

import zoo

# What stands in the file besides the values is there for good.
values = "".join(f"value_{number} = None\n" for number in range(len(zoo.PROMPTS)))
pathlib.Path("parts.py").write_text(f'"""\n{zoo.SYSTEM}\n"""\n{values}')
model = Model(f"openai/{zoo.MODEL}", weak_model=None)
model.edit_format, model.use_repo_map, model.streaming = "diff", False, True
# Its own summaries are not what is tried here.
model.max_chat_history_tokens = 10**6
coder = Coder.create(main_model=model, fnames=["parts.py"], io=InputOutput(yes=True, pretty=False), auto_commits=False, use_git=False)
for number, prompt in enumerate(zoo.PROMPTS):
    coder.run(prompt)
    if f"value_{number} = {number * 7}\n" in pathlib.Path("parts.py").read_text():
        zoo.done(number)
