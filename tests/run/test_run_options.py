"""Options of a single run: an object for its tools, further tools, instructions and headers."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Annotated, Any, Optional, Protocol, TypedDict, TypeVar

import pytest

from callgate import Gate, McpServer, Policy, ScriptedModel, ToolContext, ToolNotDeclarableError, UsageError, host, tool
from callgate.errors import ModelError
from callgate.testing import call

T = TypeVar("T")


def run(story: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(story, 120))


@dataclass
class User:
    name: str


class Sized(TypedDict):
    size: int


@tool(read_only=True)
def whoami(context: ToolContext[User]) -> str:
    """Say who the user is."""
    return context.deps.name


@tool(read_only=True)
async def whoami_by_another(context: ToolContext) -> str:
    """Ask another tool."""
    return f"{context.deps.name}, who is {await host.call('whoami')}"


def test_each_run_has_its_own_deps_also_in_nested_calls_and_parallel_runs():
    script = [call("whoami_by_another"), "Done."]

    async def story() -> list[Any]:
        gates = [Gate(ScriptedModel(script), [whoami, whoami_by_another]) for _ in range(3)]
        users = [User(name) for name in ("ann", "bob", "eve")]
        replies = await asyncio.gather(*(gate.run("Who?", deps=user) for gate, user in zip(gates, users, strict=True)))
        return [reply.calls[0].result.value for reply in replies]

    assert run(story()) == ["ann, who is ann", "bob, who is bob", "eve, who is eve"]


@pytest.mark.parametrize(("deps", "said"), [(None, "the run has none"), ({"name": "ann"}, "the run has a 'dict'")])
def test_deps_of_another_type_are_refused_before_the_model_is_asked(deps: Any, said: str):
    model = ScriptedModel([call("whoami")])
    with pytest.raises(UsageError, match=f"'whoami' takes a ToolContext\\[User\\], and {said}: pass deps= of the type User"):
        run(Gate(model, [whoami]).run("Who?", deps=deps))
    assert model.requests == []


def test_a_protocol_as_deps_is_for_checkers_alone():
    class Named(Protocol):
        name: str

    def name_of(context: ToolContext[Named]) -> str:
        return context.deps.name

    reply = run(Gate(ScriptedModel([call("name_of"), "Done."]), [name_of]).run("Who?", deps=User("ann")))
    assert reply.calls[0].result.value == "ann"


def test_further_tools_and_instructions_hold_for_one_run():
    def double(n: int) -> int:
        return 2 * n

    model = ScriptedModel([call("double", n=2), "4.", call("double", n=2), "No."])
    gate = Gate(model, [whoami_by_another], system="Be exact.")

    async def story() -> None:
        reply = await gate.run("2 * 2?", tools=[double], instructions="Be brief.", session="s")
        assert [record.result.value for record in reply.calls] == [4]
        reply = await gate.run("Again?", session="s")
        assert "There is no tool named 'double'" in (reply.calls[0].result.error or "")

    run(story())
    assert [request.system for request in model.requests] == ["Be exact.\n\nBe brief."] * 2 + ["Be exact."] * 2
    assert [d.name for d in gate.definitions] == ["whoami_by_another"]


def test_a_policy_holds_for_further_tools_and_find_tools_finds_them():
    def erase(n: int) -> int:
        """Erase numbers."""
        return n

    def double(n: int) -> int:
        """Double a number."""
        return 2 * n

    model = ScriptedModel([call("find_tools", query="double a number"), call("double", n=1), call("erase", n=1), "Done."])
    gate = Gate(model, [whoami_by_another], policy=Policy(rules=["deny erase"]), tools_shown=0)
    reply = run(gate.run("Go.", tools=[double, erase]))
    assert [record.state for record in reply.calls[1:]] == ["finished", "denied"]
    assert [tool["name"] for tool in reply.calls[0].result.value] == ["double"]


def test_a_further_tool_that_cannot_be_used_is_refused():
    gate = Gate(ScriptedModel([]), [whoami_by_another])
    with pytest.raises(ToolNotDeclarableError, match="registered already"):
        run(gate.run("Go.", tools=[whoami_by_another]))
    with pytest.raises(UsageError, match="use text"):
        run(gate.run("Go.", instructions=3))  # type: ignore[call-overload]


def test_headers_are_for_servers_of_the_gate_that_have_an_address():
    servers = [McpServer("docs", url="http://127.0.0.1:9/mcp"), McpServer("time", command=["mcp-server-time"])]
    gate = Gate(ScriptedModel([]), servers)
    with pytest.raises(UsageError, match="names the MCP server 'doc', which the gate does not have; it has 'docs', 'time'"):
        run(gate.run("Go.", headers={"doc": {"Authorization": "Bearer x"}}))
    with pytest.raises(UsageError, match="headers are for one with a url="):
        run(gate.run("Go.", headers={"time": {"Authorization": "Bearer x"}}))


def test_context_variables_of_the_caller_reach_tools():
    user: contextvars.ContextVar[str] = contextvars.ContextVar("user", default="nobody")

    def sync_tool() -> str:
        return user.get()

    async def async_tool() -> str:
        return user.get()

    async def one(name: str) -> list[str]:
        user.set(name)
        gate = Gate(ScriptedModel([[call("sync_tool"), call("async_tool")], "Done."]), [sync_tool, async_tool])
        return [record.result.value for record in (await gate.run("Who?")).calls]

    async def story() -> list[list[str]]:
        return await asyncio.gather(one("ann"), one("bob"))

    assert run(story()) == [["ann", "ann"], ["bob", "bob"]]


# Several runs -------------------------------------------------------------------------------------------------------------


def test_many_runs_keep_the_order_of_their_prompts_and_the_limit():
    running = most = 0
    three = asyncio.Event()

    async def work(n: str) -> str:
        nonlocal running, most
        running, most = running + 1, max(most, running + 1)
        if running == 3:
            three.set()
        await three.wait()
        running -= 1
        return f"to {n}"

    def answer(request: Any) -> Any:
        part = request.contents[-1]["parts"][0]
        return call("work", n=part["text"]) if "text" in part else part["functionResponse"]["response"]["result"]

    told: list[tuple[int, int]] = []
    gate = Gate(ScriptedModel([answer], repeat_last=True), [work])
    prompts = (f"p{n}" for n in range(7))
    replies = run(gate.run_many(prompts, parallel=3, progress=lambda done, count: told.append((done, count))))
    assert [reply.text for reply in replies] == [f"to p{n}" for n in range(7)]
    assert told == [(n, 7) for n in range(8)]
    assert most == 3
    assert len({reply.session for reply in replies}) == 7


def test_the_first_error_of_many_runs_is_raised_or_takes_the_place_of_its_reply():
    def answer(request: Any) -> str:
        if request.contents[-1]["parts"][0]["text"] == "bad":
            raise ModelError("asleep") from OSError("no network")
        return "fine"

    gate = Gate(ScriptedModel([answer], repeat_last=True))
    with pytest.raises(ModelError, match="asleep") as raised:
        run(gate.run_many(["good", "bad", "good"]))
    assert isinstance(raised.value.__cause__, OSError)
    assert raised.value.__notes__ == ["It is about prompts[1] of run_many."]
    found = run(gate.run_many(["good", "bad", "good"], return_errors=True))
    assert [type(item).__name__ for item in found] == ["Reply", "ModelError", "Reply"]
    assert run(gate.run_many([])) == []


@pytest.mark.parametrize(
    ("prompts", "options", "said"),
    [
        ("one", {}, "takes a list of prompts"),
        ({"text": "one"}, {}, "takes a list of prompts"),
        (None, {}, "takes a list of prompts"),
        (None, {"batch": True}, "takes a list of prompts"),
        (["a"], {"parallel": 0}, "at least 1"),
        (["a"], {"session": "s"}, "starts one for each prompt"),
    ],
)
def test_many_runs_refuse_what_cannot_work(prompts: Any, options: Any, said: str):
    with pytest.raises(UsageError, match=said):
        run(Gate(ScriptedModel([])).run_many(prompts, **options))


def test_an_option_that_does_not_exist_is_no_error_of_each_run():
    options: Any = {"sesion": "s"}
    with pytest.raises(TypeError, match="run_many got an unexpected keyword argument 'sesion'"):
        run(Gate(ScriptedModel([])).run_many(["a", "b"], return_errors=True, **options))


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt()])
def test_a_report_of_progress_that_fails_costs_no_reply_and_is_not_made_again(error: BaseException):
    reported: list[int] = []

    def report(done: int, count: int) -> None:
        reported.append(done)
        raise error

    gate = Gate(ScriptedModel(["Hi."], repeat_last=True))
    with pytest.warns(RuntimeWarning, match=f"progress is not reported any more.* {type(error).__name__}"):
        replies = run(gate.run_many(["a", "b"], progress=report))
    assert ([reply.text for reply in replies], reported) == (["Hi.", "Hi."], [0])


def test_a_bar_without_a_stderr_costs_no_reply(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.stderr", None)
    with pytest.warns(RuntimeWarning, match="progress is not reported any more"):
        replies = run(Gate(ScriptedModel(["Hi."], repeat_last=True)).run_many(["a", "b"], progress=True))
    assert [reply.text for reply in replies] == ["Hi.", "Hi."]


def test_a_bar_shows_the_progress(capsys: pytest.CaptureFixture[str]):
    run(Gate(ScriptedModel(["Hi."], repeat_last=True)).run_many(["a", "b"], progress=True, parallel=1))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"[{'.' * 30}] 0 of 2"
    assert lines[-1] == f"[{'#' * 30}] 2 of 2"


def test_sync_code_gets_the_events_and_cancels_by_leaving():
    with Gate(ScriptedModel([call("whoami"), "Hi.", "Bye."]), [whoami]) as gate:
        names = [type(event).__name__ for event in gate.stream_sync("Who?", deps=User("ann"))]
        assert names[-2:] == ["TurnEnded", "RunEnded"]
        assert names.count("CallFinished") == 1
        events = gate.stream_sync("Who?", deps=User("ann"))
        next(events)
        events.close()
        with pytest.raises(UsageError):
            list(gate.stream_sync("Who?"))


@pytest.mark.parametrize("options", [{"tools": 5}, {"tools": "google_search"}, {"headers": 5}, {"headers": [1]}], ids=str)
def test_an_option_of_a_wrong_type_is_refused_before_the_model_is_asked(options: dict[str, Any]) -> None:
    model = ScriptedModel(["Hello."])
    with Gate(model) as gate, pytest.raises(UsageError, match="use a"):
        gate.run_sync("Hi.", **options)
    assert model.requests == []


@pytest.mark.parametrize("options", [{"parallel": 1.5}, {"parallel": "2"}, {"progress": 5}], ids=str)
def test_many_runs_refuse_an_option_of_a_wrong_type(options: dict[str, Any]) -> None:
    model = ScriptedModel(["Hello."])
    with pytest.raises(UsageError, match="use "):
        run(Gate(model).run_many(["Hi."], **options))
    assert model.requests == []


def test_run_many_gives_what_an_iterator_has_to_every_run() -> None:
    model = ScriptedModel(["hi"], repeat_last=True)
    history = [{"role": "user", "parts": [{"text": "u"}]}, {"role": "model", "parts": [{"text": "m"}]}]
    replies = run(Gate(model).run_many(["a", "b", "c"], tools=iter([whoami]), history=iter(history), deps=User("Ann")))
    assert [request.tool_names for request in model.requests] == [["whoami"]] * 3
    assert [len(reply.contents) for reply in replies] == [4, 4, 4]


def test_a_tool_may_leave_the_type_of_deps_open_or_name_one_with_parameters() -> None:
    def loose(context: ToolContext[Any]) -> str:
        """Take anything."""
        return repr(context.deps)

    def listed(context: ToolContext[list[int]]) -> int:
        """Take a list."""
        return sum(context.deps)

    def typed(context: ToolContext[Sized]) -> int:
        """Take a typed dict."""
        return context.deps["size"]

    assert run(Gate(ScriptedModel(["hi"]), [loose]).run("x")).text == "hi"
    reply = run(
        Gate(ScriptedModel([call("listed"), "x"]), [listed], policy=Policy(rules=["allow listed"])).run("x", deps=[1, 2])
    )
    assert [found.result.value for found in reply.calls] == [3]
    with pytest.raises(UsageError, match=r"takes a ToolContext\[list\]"):
        run(Gate(ScriptedModel(["hi"]), [listed]).run("x", deps="no list"))
    reply = run(
        Gate(ScriptedModel([call("typed"), "x"]), [typed], policy=Policy(rules=["allow typed"])).run("x", deps={"size": 4})
    )
    assert [found.result.value for found in reply.calls] == [4]


@tool(isolation="process")
def isolated(context: ToolContext[User]) -> str:
    """Say who the user is, in another process."""
    return context.deps.name


def test_a_tool_of_a_worker_process_that_needs_deps_is_refused_when_it_is_registered() -> None:
    with pytest.raises(
        UsageError, match=r"'isolated' takes a ToolContext\[User\] and runs in a worker process, which deps="
    ):
        Gate(ScriptedModel(["x"]), [isolated])


def test_deps_may_be_one_of_several_classes_or_none() -> None:
    def greet(context: ToolContext[User | None]) -> str:
        """Greet the user, if there is one."""
        return f"Hello, {context.deps.name if context.deps is not None else 'you'}."

    def open_for(context: Annotated[ToolContext[Optional[User] | int], "the user, or a number"]) -> str:  # noqa: UP045
        """Open the door."""
        return str(context.deps)

    for deps, said in ((User("ann"), "Hello, ann."), (None, "Hello, you.")):
        reply = run(Gate(ScriptedModel([call("greet"), "x"]), [greet]).run("x", deps=deps))
        assert reply.calls[0].result.value == said
    assert run(Gate(ScriptedModel([call("open_for"), "x"]), [open_for]).run("x", deps=7)).calls[0].result.value == "7"
    with pytest.raises(UsageError, match=r"takes a ToolContext\[User \| None \| int\], and the run has a 'str'"):
        run(Gate(ScriptedModel(["x"]), [open_for]).run("x", deps="seven"))


@pytest.mark.parametrize("headers", [{"who": "x"}, {"who": {"Authorization": 3}}, {"who": {"A": "b\nc"}}])
def test_headers_that_cannot_be_sent_are_refused_before_the_run(headers: Any) -> None:
    gate = Gate(ScriptedModel(["x"]), [McpServer("who", url="http://127.0.0.1:9/mcp")])
    with pytest.raises(UsageError, match="headers= of 'who'"):
        run(gate.run("x", headers=headers))


def test_an_async_progress_function_is_refused() -> None:
    async def progress(done: int, count: int) -> None: ...

    with pytest.raises(UsageError, match="async function"):
        run(Gate(ScriptedModel(["x"])).run_many(["a"], progress=progress))


def test_a_stream_of_a_gate_that_is_closed_ends_with_an_error() -> None:
    gate = Gate(ScriptedModel(["hello world " * 10]))
    events = gate.stream_sync("x")
    next(events)
    gate.close()
    with pytest.raises(UsageError, match="closed before the run"):
        list(events)


def test_an_unknown_option_is_named_without_internals() -> None:
    async def story() -> None:
        options: Any = {"bogus": 1}
        async for _ in Gate(ScriptedModel(["x"])).stream("x", **options):
            pass

    with pytest.raises(TypeError, match=r"^a run got an unexpected keyword argument 'bogus'$"):
        run(story())


def test_prices_that_are_none_are_refused() -> None:
    prices: Any = {"m": 0.3}
    with pytest.raises(UsageError, match="'m'"):
        Gate(ScriptedModel(["x"]), prices=prices)


@pytest.mark.parametrize("option", [{"elicit": 5}, {"settings": {5: 1}}])
def test_an_option_of_the_wrong_kind_is_refused_by_the_gate(option: Any) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(option))}=.*5.*: expected"):
        Gate(ScriptedModel(["x"]), **option)
