"""The strict fake of the Interactions API: each of its 77 rules refuses what breaks it, and a right request breaks none.

Every broken request goes over HTTP, by hand and by Google's own client where that can be made to send it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
from tests.testing.interaction_requests import ADD, BROKEN, CALL, RESULT, RIGHT, SAID, THOUGHT, USER, body

from callgate.testing import fake_interactions
from callgate.testing.fake_interactions import FakeInteractions, call, fault
from callgate.testing.interaction_rules import InteractionState, Stored

genai = pytest.importorskip("google.genai", reason="google-genai is not installed")

KEY = "test-key"
MODEL = "gemini-3.8-flash"
RULES = [f"IR{number:02}" for number in range(1, 78)]


class Site:
    """A fake server with interactions that it keeps, and requests to it by hand."""

    def __init__(self, fake: FakeInteractions) -> None:
        self.fake = fake
        self.http = httpx2.Client(base_url=fake.base_url, headers={"x-goog-api-key": KEY}, timeout=120)
        self.client = genai.Client(api_key=KEY, http_options={"base_url": fake.base_url})

    def fill(self) -> None:
        """Begin with the interactions that the broken requests speak of, and nothing else."""
        fake, now = self.fake, self.fake.clock.now()
        fake.state = InteractionState()
        fake.state.remember([THOUGHT, CALL])
        fake.refusals, fake.breaches, fake.repeats, fake.api_key = [], [], 0, None

        def keep(id: str, status: str = "completed", *, key: str = KEY, at: float = now, steps: Any = (USER, SAID)) -> None:
            fake.state.stored[id] = Stored(id=id, key=key, steps=[*steps], output=[], status=status, at=at)

        keep("v1_done")
        keep("v1_theirs", key="other")
        keep("v1_old", at=now - 100_000)
        keep("v1_busy", "in_progress")
        keep("v1_calls", "requires_action", steps=(USER, THOUGHT, CALL))
        fake.state.tokens |= {"of-done": "v1_done", "of-nobody": ""}

    def post(self, request: Any, path: str = "/v1beta/interactions", **options: Any) -> Any:
        return self.http.post(path, json=request, **options)

    def create(self, **changes: Any) -> Any:
        return self.post({"model": MODEL, "input": "Hi."} | changes).json()


@pytest.fixture(scope="module")
def running() -> Iterator[Site]:
    with FakeInteractions.in_thread(
        ["Hello."], repeat_last=True, models=[MODEL, "gemini-2.5-flash", "gemini-2.5-flash-lite"]
    ) as fake:
        made = Site(fake)
        yield made
        made.http.close()


@pytest.fixture
def site(running: Site) -> Site:
    running.fill()
    return running


def refused(response: Any, rule: str, status: int = 400) -> Any:
    assert (response.status_code, response.headers.get("X-Fake-Interactions-Rule")) == (status, rule)
    return response.json()


# Rules about more than one body ------------------------------------------------------------------------------------------


def no_other_places(site: Site) -> None:
    for method, path in (
        ("GET", "/v1beta/interactions"), ("POST", "/v2/interactions"), ("PUT", "/v1beta/interactions/v1_done"),
        ("POST", "/v1beta/interactions/v1_done"), ("GET", "/v1beta/interactions/v1_done/cancel"),
        ("POST", "/v1beta/interaction"),
    ):  # fmt: skip
        refused(site.http.request(method, path, json={}), "IR01", 404)
    assert all(site.post(body(), f"/{version}/interactions").status_code == 200 for version in ("v1", "v1beta"))


def a_known_key(site: Site) -> None:
    error = refused(site.post(body(), headers={"x-goog-api-key": ""}), "IR02", 403)
    assert error[0]["error"]["status"] == "PERMISSION_DENIED"
    site.fake.api_key = "another"
    error = refused(site.post(body()), "IR02")
    told = "API key not valid. Please pass a valid API key."
    assert error == [{"error": {"code": 400, "message": told, "status": "INVALID_ARGUMENT"}}]
    with pytest.raises(Exception, match="API key not valid"):
        site.client.interactions.create(model=MODEL, input="Hi.")


def one_sound_object(site: Site) -> None:
    sound = json.dumps(body()).encode()
    for bad in (
        b"", b"[]", b"nonsense", sound + sound, sound.replace(b"Hi.", b"\xff"), sound[:-1] + b', "store": true}',
        sound[:-1] + b', "generation_config": {"temperature": NaN}}',
    ):  # fmt: skip
        refused(site.http.post("/v1beta/interactions", content=bad), "IR03")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fake_interactions, "BODY_MAX", len(sound))
        assert site.http.post("/v1beta/interactions", content=sound).status_code == 200
        refused(site.http.post("/v1beta/interactions", content=sound + b" "), "IR03")


def no_key_in_the_url(site: Site) -> None:
    assert site.post(body(), f"/v1beta/interactions?key={KEY}").status_code == 200
    assert site.fake.breaches == ["IR04: the key is in the URL"]


def a_model_that_exists(site: Site) -> None:
    error = refused(site.post(body(model="gemini-9")), "IR09", 404)["error"]
    assert error == {"code": "not_found", "message": f"Model 'gemini-9' not found. Did you mean '{MODEL}'?"}
    retired = {"agent": "deep-research-pro-preview-12-2025", "input": "Hi.", "background": True}
    refused(site.post(retired), "IR09", 404)
    with pytest.raises(Exception, match="Did you mean"):
        site.client.interactions.create(model="gemini-9", input="Hi.")


def late_refusals_are_events(site: Site) -> None:
    unsigned = [USER, CALL, RESULT]
    empty = [USER, {"type": "thought", "signature": ""}, CALL, RESULT]
    other = [USER, {"type": "thought", "signature": "b3RoZXI="}, CALL, RESULT]
    changed = [USER, THOUGHT, {**CALL, "arguments": {"a": 2}}, RESULT]
    for rule, given in (("IR30", unsigned), ("IR31", empty), ("IR32", other), ("IR33", changed)):
        answered = site.post(body(input=given, stream=True))
        assert (answered.status_code, answered.headers["X-Fake-Interactions-Rule"]) == (400, rule)
        assert answered.headers["Content-Type"].startswith("text/event-stream")
        assert answered.text.startswith("event: error\ndata: {")
        assert refused(site.post(body(input=given)), rule)["error"]["code"] == "invalid_request"


def of_the_same_key(site: Site) -> None:
    refused(site.post(body(store=True, previous_interaction_id="v1_theirs")), "IR58", 404)
    theirs = site.client.interactions.create(model=MODEL, input="Hi.").id
    other = genai.Client(api_key="another-key", http_options={"base_url": site.fake.base_url})
    for ask in (
        lambda: other.interactions.create(model=MODEL, input="And?", previous_interaction_id=theirs),
        lambda: other.interactions.get(theirs),
        lambda: other.interactions.delete(theirs),
    ):
        with pytest.raises(Exception, match="not found"):
            ask()


def nothing_twice_beside_the_previous(site: Site) -> None:
    steps = [THOUGHT, CALL, RESULT]
    site.fake.state.stored["v1_answered"] = Stored(
        id="v1_answered", key=KEY, steps=[USER, *steps, SAID], output=[], status="completed", at=site.fake.clock.now()
    )
    right = site.post(body(store=True, previous_interaction_id="v1_answered"))
    assert (right.status_code, site.fake.breaches) == (200, [])
    again = site.post(body(store=True, previous_interaction_id="v1_answered", input=[USER, *steps]))
    assert (again.status_code, site.fake.breaches) == (200, ["IR61: steps that the server has are sent again"])


def tools_with_every_request(site: Site) -> None:
    chained = body(store=True, previous_interaction_id="v1_calls", input=[RESULT])
    assert (site.post(chained).status_code, site.fake.breaches) == (200, [])
    assert site.post({name: value for name, value in chained.items() if name != "tools"}).status_code == 200
    assert site.fake.breaches == ["IR62: the tools are not sent again"]


def tokens_once_and_in_their_place(site: Site) -> None:
    chained = {"model": MODEL, "store": True}
    for bad in (
        chained | {"continuation_token": "of-done"},
        chained | {"continuation_token": "of-done", "previous_interaction_id": "v1_calls"},
        chained | {"continuation_token": "of-done", "previous_interaction_id": "v1_done", "input": "Hi."},
        chained | {"continuation_token": "unknown", "previous_interaction_id": "v1_done"},
    ):
        refused(site.post(bad), "IR68")
    for right in (
        chained | {"continuation_token": "of-done", "previous_interaction_id": "v1_done"},
        {"model": MODEL, "store": False, "continuation_token": "of-nobody", "input": "Hi."},
    ):
        assert site.post(right).status_code == 200
        refused(site.post(right), "IR68")
    site.fake.state.tokens["another"] = ""
    refused(site.post({"model": MODEL, "store": False, "continuation_token": "another"}), "IR11")


def only_what_is_kept_is_found(site: Site) -> None:
    refused(site.http.get("/v1beta/interactions/v1_unknown"), "IR69", 404)
    refused(site.http.get("/v1beta/interactions/v1_old"), "IR69", 404)
    unkept = site.create(store=False)
    assert "id" not in unkept
    kept = site.create()["id"]
    shown = site.http.get(f"/v1beta/interactions/{kept}?include_input=true").json()["steps"]
    assert [step["type"] for step in shown] == ["user_input", "thought", "model_output"]
    assert site.client.interactions.get(kept).output_text == "Hello."
    with pytest.raises(Exception, match="not found"):
        site.client.interactions.get("v1_unknown")


def a_stream_goes_on_after_an_event(site: Site) -> None:
    place = f"/v1beta/interactions/{site.create()['id']}?stream=true"
    refused(site.http.get(f"{place}&last_event_id=evt_999"), "IR70")

    def ids(answered: Any) -> list[str]:
        lines = [line for line in answered.text.splitlines() if line.startswith("data: {")]
        return [json.loads(line.removeprefix("data: "))["event_id"] for line in lines]

    every = ids(site.http.get(place))
    for number, id in enumerate(every):
        assert ids(site.http.get(f"{place}&last_event_id={id}")) == every[number + 1 :]


def only_what_runs_is_cancelled(site: Site) -> None:
    done = site.create()["id"]
    error = refused(site.http.post(f"/v1beta/interactions/{done}/cancel"), "IR71")
    assert error["error"]["code"] == "failed_precondition"
    running = site.create(background=True)["id"]
    assert site.client.interactions.cancel(running).status == "cancelled"
    refused(site.http.post(f"/v1beta/interactions/{running}/cancel"), "IR71")


def nothing_after_a_deletion(site: Site) -> None:
    gone = site.create()["id"]
    assert site.http.delete(f"/v1beta/interactions/{gone}").json() == {}
    refused(site.http.get(f"/v1beta/interactions/{gone}"), "IR69", 404)
    for method, path in (("DELETE", ""), ("POST", "/cancel")):
        refused(site.http.request(method, f"/v1beta/interactions/{gone}{path}"), "IR72", 404)
    refused(site.post(body(store=True, previous_interaction_id=gone)), "IR57", 404)


def each_post_is_another_interaction(site: Site) -> None:
    made = [site.create(input=said)["id"] for said in ("Once.", "Once.", "Twice.")]
    assert (len({*made}), site.fake.repeats) == (3, 1)


def nothing_is_left_open(site: Site) -> None:
    script = ["Done.", "Done.", fault("IF20:held"), fault("IF36:held"), fault("IF36:held")]
    streamed = {"json": {"model": MODEL, "input": "Hi.", "stream": True}}
    with FakeInteractions.in_thread(script) as fake:
        other = Site(fake)
        waited, left = (other.create(background=True)["id"] for _ in range(2))
        while other.client.interactions.get(waited).status == "in_progress":
            pass
        for _ in range(2):
            with other.http.stream("POST", "/v1beta/interactions", **streamed) as answered:
                assert any("event: error" in line or "completed" in line for line in answered.iter_lines())
        answered = other.http.send(other.http.build_request("POST", "/v1beta/interactions", **streamed), stream=True)
        lines = answered.iter_lines()
        assert any("interaction.completed" in line for line in lines)
    answered.close()
    other.http.close()
    assert sorted(fake.breaches) == [
        "IR77: a stream was left open after its end",
        f"IR77: the background run {left} was neither waited for nor cancelled",
    ]


STORIES: dict[str, Callable[[Site], None]] = {
    "IR01": no_other_places, "IR02": a_known_key, "IR03": one_sound_object, "IR04": no_key_in_the_url,
    "IR09": a_model_that_exists, "IR34": late_refusals_are_events, "IR58": of_the_same_key,
    "IR61": nothing_twice_beside_the_previous, "IR62": tools_with_every_request, "IR68": tokens_once_and_in_their_place,
    "IR69": only_what_is_kept_is_found, "IR70": a_stream_goes_on_after_an_event, "IR71": only_what_runs_is_cancelled,
    "IR72": nothing_after_a_deletion, "IR73": each_post_is_another_interaction, "IR77": nothing_is_left_open,
}  # fmt: skip


# The tests ---------------------------------------------------------------------------------------------------------------


def test_every_rule_is_shown() -> None:
    assert sorted({*STORIES, *(rule for rule, _ in BROKEN)}) == RULES


@pytest.mark.parametrize("rule", RULES)
def test_a_request_that_breaks_a_rule_is_refused_by_it(site: Site, rule: str) -> None:
    for request in (request for name, request in BROKEN if name == rule):
        status = 404 if rule in ("IR57", "IR58") else 400
        assert refused(site.post(request), rule, status)["error"]["message"]
        # Google's client refuses it too, or hands the refusal on.
        if isinstance(request, dict):
            with pytest.raises(Exception, match=r".") as caught:
                site.client.interactions.create(**request)
            assert not isinstance(caught.value, AssertionError)
    if rule in STORIES:
        STORIES[rule](site)


@pytest.mark.parametrize("request_", RIGHT)
def test_a_right_request_breaks_none(site: Site, request_: Any) -> None:
    assert site.post(request_).status_code == 200
    assert site.client.interactions.create(**request_).status in ("completed", "in_progress")
    assert (site.fake.refusals, site.fake.breaches) == ([], [])


def test_what_the_server_said_can_be_given_back() -> None:
    """Every kind of step, as Google's client reads and sends it."""
    with FakeInteractions.in_thread([call("add", a=1), "Two."]) as fake:
        client = genai.Client(api_key=KEY, http_options={"base_url": fake.base_url})
        first = client.interactions.create(model=MODEL, input=[USER], tools=[ADD], store=False)
        steps = [step.model_dump(exclude_none=True) for step in first.steps]
        result = {**RESULT, "call_id": first.steps[-1].id}
        second = client.interactions.create(model=MODEL, input=[USER, *steps, result], tools=[ADD], store=False)
        assert second.output_text == "Two."
    assert fake.refusals == []
