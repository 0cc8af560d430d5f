"""A provider that refuses: what is too long, what is illegal, and thoughts that come back otherwise. Around any script."""
import answers, bindings, counting, legality
from upstream import Fail


class Strict:
    """Asks the script only what this provider would take, and reports usage by its own count and its own cache.

    `limit` is how many tokens of input it takes. Each request of a model carries what was found about it: `tokens`, `cached`, and
    `refused`, which is None, "long" or "illegal"."""

    def __init__(self, script, limit, seed=lambda request: f"{request.number:04d}"):
        self.script, self.limit, self.seed = script, limit, seed
        self.forget()

    def forget(self):
        """The next request is the first."""
        self.cache, self.bindings = counting.Cache(), bindings.Bindings()

    def __call__(self, request):
        request.tokens = request.cached = 0
        request.refused = request.why = None
        if not request.form or request.bare.endswith("/count_tokens"):
            return self.script(request)
        request.purpose, request.task = "refused", None
        pieces = counting.pieces(request.form, request.json)
        request.tokens = sum(map(counting.tokens, pieces))
        request.why = legality.breach(request.form, request.json) or self.bindings.breach(request.form, request.json)
        if request.why:
            request.refused = "illegal"
            return Fail(400, legality.words(request.form, request.why))
        if request.tokens > self.limit:
            request.refused = "long"
            return too_long(request.form, request.tokens, self.limit)
        request.cached = self.cache.read(pieces)
        reply = self.script(request)
        if isinstance(reply, answers.Say):
            reply.usage, reply.cached = request.tokens, request.cached
            self.cache.write(pieces)
            self.bindings.note(request.form, request.json, reply, self.seed(request))
        return reply


def too_long(form, tokens, limit):
    """That a request is too long, as each provider says it."""
    if form == answers.MESSAGES:
        return Fail(400, legality.words(form, f"prompt is too long: {tokens} tokens > {limit} maximum"))
    message = (
        f"This model's maximum context length is {limit} tokens. However, your messages resulted in {tokens} tokens. Please reduce "
        "the length of the messages."
        if form == answers.CHAT
        else "Your input exceeds the context window of this model. Please adjust your input and try again."
    )
    error = {"type": "invalid_request_error", "code": "context_length_exceeded", "message": message}
    return Fail(400, {"error": {**error, "param": "messages" if form == answers.CHAT else "input"}})
