"""That the strict provider does refuse, each thing in its words: python3 scripts/gateway/strict_test.py"""
import copy, sys, unittest

sys.dont_write_bytecode = True

import bindings, legality
from answers import CHAT, MESSAGES, RESPONSES, Call, Say, whole

CALLING = Say("I look.", [Call("read", {"part": 1})], thought="Which one?")


def check(form, body, expect):
    """The first refusal holds these words, or there is none."""
    found = legality.breach(form, body)
    assert (expect in found) if expect and found else found == expect, f"{found!r} and not {expect!r}"


class Chat(unittest.TestCase):
    def setUp(self):
        call = {"id": "a", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        self.said = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": None, "tool_calls": [call]}]
        self.result = {"role": "tool", "tool_call_id": "a", "content": "it"}

    def test_a_call_is_answered_before_anything_else(self):
        check(CHAT, {"messages": [*self.said, self.result]}, None)
        check(CHAT, {"messages": self.said}, "did not have response messages: a")
        check(CHAT, {"messages": [*self.said, {"role": "user", "content": "x"}, self.result]}, "did not have response messages: a")

    def test_a_result_answers_a_call(self):
        check(CHAT, {"messages": [self.said[0], self.result]}, "must be a response to a preceeding message")
        check(CHAT, {"messages": [*self.said, self.result, self.result]}, "must be a response to a preceeding message")


class Messages(unittest.TestCase):
    def setUp(self):
        self.said = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [use("a")]}]

    def test_results_come_at_once_and_first(self):
        text = {"type": "text", "text": "and"}
        check(MESSAGES, {"messages": [*self.said, user(result("a"), text)]}, None)
        check(MESSAGES, {"messages": [*self.said, user(text, result("a"))]}, "without `tool_result` blocks immediately after: a")
        check(MESSAGES, {"messages": [*self.said, user(text)]}, "without `tool_result` blocks immediately after: a")
        check(MESSAGES, {"messages": [self.said[0], user(result("a"))]}, "unexpected `tool_use_id`")

    def test_neighbours_of_one_role_are_one_message(self):
        both = [self.said[0], {"role": "assistant", "content": [use("a"), use("b")]}]
        check(MESSAGES, {"messages": [*both, user(result("a")), user(result("b"))]}, None)

    def test_no_text_is_empty_and_the_first_is_the_users(self):
        check(MESSAGES, {"messages": [{"role": "user", "content": ""}]}, "must be non-empty")
        check(MESSAGES, {"messages": self.said[1:]}, "first message must use")


class Responses(unittest.TestCase):
    def test_calls_and_outputs_pair(self):
        call = {"type": "function_call", "call_id": "a", "name": "read", "arguments": "{}"}
        output = {"type": "function_call_output", "call_id": "a", "output": "it"}
        check(RESPONSES, {"input": [call, output]}, None)
        check(RESPONSES, {"input": [call]}, "No tool output found for function call a")
        check(RESPONSES, {"input": [output]}, "No tool call found for function call output with call_id a")

    def test_reasoning_stays_with_what_followed_it(self):
        known = bindings.Bindings()
        known.note(RESPONSES, {}, CALLING, "1")
        items = whole(RESPONSES, CALLING, {}, "1")["output"]
        output = {"type": "function_call_output", "call_id": items[2]["call_id"], "output": "it"}
        self.assertIsNone(known.breach(RESPONSES, {"input": [*items, output]}))
        self.assertIn("required following item", known.breach(RESPONSES, {"input": [items[0], items[2], output]}))
        self.assertIn("required 'reasoning' item", known.breach(RESPONSES, {"input": [*items[1:], output]}))
        altered = {**items[0], "encrypted_content": "other"}
        self.assertIn("could not be verified", known.breach(RESPONSES, {"input": [altered, *items[1:], output]}))


class Thinking(unittest.TestCase):
    """Three calls in one loop."""

    def setUp(self):
        self.known = bindings.Bindings()
        self.body = {"model": "claude-sonnet-4-5", "thinking": {"type": "enabled"}, "messages": [{"role": "user", "content": "hi"}]}
        for seed in "123":
            self.known.note(MESSAGES, self.body, CALLING, seed)
            content = whole(MESSAGES, CALLING, self.body, seed)["content"]
            self.body["messages"] += [{"role": "assistant", "content": content}, user(result(content[-1]["id"]))]

    def refused(self, change, model=None):
        body = copy.deepcopy(self.body)
        body["model"] = model or body["model"]
        change(body["messages"])
        return self.known.breach(MESSAGES, body) or ""

    def test_as_it_came_it_holds(self):
        for model in (None, "claude-opus-5-5"):
            self.assertEqual(self.refused(lambda said: None, model), "")

    def test_it_is_never_altered(self):
        self.assertIn("Invalid `signature`", self.refused(lambda said: said[1]["content"][0].update(thinking="x")))
        self.assertIn("cannot be modified", self.refused(lambda said: said[5]["content"][0].update(signature="x")))

    def test_it_stays_in_an_open_loop(self):
        self.assertIn("must start with a thinking block", self.refused(lambda said: said[3]["content"].pop(0)))

    def test_a_closed_loop_may_lose_it(self):
        def change(said):
            said[3]["content"].pop(0)
            said.append({"role": "assistant", "content": "Done."})
            said.append({"role": "user", "content": "Thanks, and now?"})

        self.assertEqual(self.refused(change), "")

    def test_only_preserved_thinking_is_bound_to_what_stood_before(self):
        change = lambda said: said[2]["content"][0].update(content="short")
        self.assertEqual(self.refused(change), "")
        self.assertIn("no longer valid", self.refused(change, "claude-opus-5-5"))

    def test_preserved_thinking_goes_from_the_ends_or_altogether(self):
        def all_of_it(said):
            for message in said[1::2]:
                message["content"].pop(0)

        self.assertEqual(self.refused(all_of_it, "claude-opus-5-5"), "")
        self.assertEqual(self.refused(lambda said: said[1]["content"].pop(0), "claude-opus-5-5"), "")
        self.assertIn("not from between", self.refused(lambda said: said[3]["content"].pop(0), "claude-opus-5-5"))


def use(name):
    return {"type": "tool_use", "id": name, "name": "read", "input": {}}


def result(name):
    return {"type": "tool_result", "tool_use_id": name, "content": "it"}


def user(*blocks):
    return {"role": "user", "content": list(blocks)}


if __name__ == "__main__":
    unittest.main()
