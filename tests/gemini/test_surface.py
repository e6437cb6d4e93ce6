"""Where requests go and how they are let in: every variable of the environment, every URL, and no key to be seen."""

from __future__ import annotations

import asyncio
import sys
import threading
import types
from typing import Any

import pytest

from callgate.errors import AuthError, ConnectionLostError, UsageError
from callgate.gemini.surface import GoogleTokens, Surface, surface_from_environment
from callgate.models.gemini import GeminiModel
from callgate.wire.credentials import redact

MODEL = "gemini-3.8-flash"
KEY = "AIzaSyA-key-that-nobody-may-ever-see-42"
DEVELOPER = "https://generativelanguage.googleapis.com"


def surface(**env: str) -> Surface:
    return surface_from_environment(env)


def headers(given: Surface) -> dict[str, str]:
    return asyncio.run(given.headers())


# The Developer API -------------------------------------------------------------------------------------------------------


def test_a_key_is_all_that_the_developer_api_needs() -> None:
    given = surface(GEMINI_API_KEY=KEY)
    assert given.kind == "developer"
    assert given.url(MODEL, stream=False) == f"{DEVELOPER}/v1beta/models/{MODEL}:generateContent"
    assert given.url(MODEL, stream=True) == f"{DEVELOPER}/v1beta/models/{MODEL}:streamGenerateContent?alt=sse"
    assert headers(given) == {"x-goog-api-key": KEY}


def test_the_key_of_google_beats_the_key_of_gemini_and_a_given_one_beats_both() -> None:
    both = {"GOOGLE_API_KEY": "google", "GEMINI_API_KEY": "gemini"}
    assert surface_from_environment(both).api_key == "google"
    assert surface_from_environment(both, api_key="given").api_key == "given"
    assert surface_from_environment({"GOOGLE_API_KEY": "", "GEMINI_API_KEY": "gemini"}).api_key == "gemini"


def test_the_environment_of_the_process_is_read_when_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GOOGLE_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_ENTERPRISE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GEMINI_API_KEY", "of the process".replace(" ", "-"))
    assert surface_from_environment().api_key == "of-the-process"


def test_a_missing_key_says_which_variables_to_set() -> None:
    with pytest.raises(UsageError, match="set GOOGLE_API_KEY or GEMINI_API_KEY, or pass api_key="):
        surface()


def test_another_base_url_takes_the_same_paths() -> None:
    given = surface(GEMINI_API_KEY=KEY, GOOGLE_GEMINI_BASE_URL="http://127.0.0.1:8099/gateway/")
    assert given.url(MODEL, stream=False) == f"http://127.0.0.1:8099/gateway/v1beta/models/{MODEL}:generateContent"


@pytest.mark.parametrize(
    ("asked", "developer", "vertex"),
    [("", "v1beta", "v1beta1"), ("beta", "v1beta", "v1beta1"), ("v1", "v1", "v1"), ("v1alpha", "v1alpha", "v1alpha")],
)
def test_the_version_is_beta_unless_the_environment_names_one(asked: str, developer: str, vertex: str) -> None:
    assert surface(GEMINI_API_KEY=KEY, GOOGLE_GENAI_API_VERSION=asked).version == developer
    assert surface(GOOGLE_API_KEY=KEY, GOOGLE_GENAI_USE_VERTEXAI="1", GOOGLE_GENAI_API_VERSION=asked).version == vertex


@pytest.mark.parametrize(
    ("model", "path"),
    [
        ("models/gemini-3.8-flash", "models/gemini-3.8-flash"),
        ("tunedModels/mine", "tunedModels/mine"),
        ("a b?c#d", "models/a%20b%3Fc%23d"),
    ],
)
def test_a_name_of_a_model_stays_within_its_place(model: str, path: str) -> None:
    assert surface(GEMINI_API_KEY=KEY).url(model, stream=False) == f"{DEVELOPER}/v1beta/{path}:generateContent"


@pytest.mark.parametrize("model", ["", "..", "../files", "models/../files", "a//b", "./x", "models/"])
def test_a_name_that_would_lead_elsewhere_is_refused_when_the_model_is_made(model: str) -> None:
    with pytest.raises(UsageError, match="cannot be the name of a model"):
        GeminiModel(model, env={"GEMINI_API_KEY": KEY})


# Vertex ------------------------------------------------------------------------------------------------------------------


def cloud(**env: str) -> Surface:
    return surface(**{"GOOGLE_GENAI_USE_VERTEXAI": "true", "GOOGLE_CLOUD_PROJECT": "p"} | env)


@pytest.mark.parametrize(
    ("location", "host"),
    [
        ("", "aiplatform.googleapis.com"),
        ("global", "aiplatform.googleapis.com"),
        ("us", "aiplatform.us.rep.googleapis.com"),
        ("eu", "aiplatform.eu.rep.googleapis.com"),
        ("europe-west4", "europe-west4-aiplatform.googleapis.com"),
    ],
)
def test_the_host_of_vertex_follows_the_location(location: str, host: str) -> None:
    place = f"projects/p/locations/{location or 'global'}/publishers/google/models/{MODEL}"
    given = cloud(GOOGLE_CLOUD_LOCATION=location)
    assert given.kind == "vertex"
    assert given.url(MODEL, stream=False) == f"https://{host}/v1beta1/{place}:generateContent"


def test_vertex_with_a_project_takes_tokens_even_if_there_is_a_key() -> None:
    given = cloud(GOOGLE_API_KEY=KEY)
    assert isinstance(given.tokens, GoogleTokens)
    assert given.api_key is None


def test_express_needs_a_key_and_no_project() -> None:
    given = surface(GOOGLE_GENAI_USE_VERTEXAI="1", GOOGLE_API_KEY=KEY, GOOGLE_CLOUD_LOCATION="europe-west4")
    assert given.tokens is None
    assert headers(given) == {"x-goog-api-key": KEY}
    url = f"https://aiplatform.googleapis.com/v1beta1/publishers/google/models/{MODEL}:streamGenerateContent?alt=sse"
    assert given.url(MODEL, stream=True) == url


def test_vertex_without_a_project_takes_the_one_that_the_credentials_name(credentials: Credentials) -> None:
    given = surface(GOOGLE_GENAI_USE_VERTEXAI="true")
    assert not given.is_known
    assert headers(given) == {"authorization": "Bearer token-1"}
    assert given.url(MODEL, stream=False) == (
        f"https://aiplatform.googleapis.com/v1beta1/projects/project/locations/global/publishers/google/models/{MODEL}"
        ":generateContent"
    )


def test_credentials_that_name_no_project_say_what_to_set(credentials: Credentials) -> None:
    given = surface(GOOGLE_GENAI_USE_VERTEXAI="true")
    credentials.project = ""
    headers(given)
    with pytest.raises(AuthError, match="set GOOGLE_CLOUD_PROJECT"):
        given.url(MODEL, stream=False)


@pytest.mark.parametrize("name", ["GOOGLE_CLOUD_LOCATION", "GOOGLE_CLOUD_PROJECT"])
@pytest.mark.parametrize("value", ["evil.example/x", "a b", "x?y", "x#y", "../x", "x@evil.example"])
def test_a_project_or_a_location_that_would_lead_elsewhere_is_refused(name: str, value: str) -> None:
    with pytest.raises(UsageError, match=name):
        surface(GOOGLE_GENAI_USE_VERTEXAI="true", **{"GOOGLE_CLOUD_PROJECT": "p", name: value})


def test_a_version_stays_one_step_of_the_path() -> None:
    given = cloud(GOOGLE_GENAI_API_VERSION="v1/../x?")
    assert "/v1%2F..%2Fx%3F/projects/" in given.url(MODEL, stream=False)


@pytest.mark.parametrize("vertex", [True, False])
@pytest.mark.parametrize(
    "name",
    [
        "gemini-3.8-flash", "publishers/google/models/gemini-3.8-flash", "google/gemini-3.8-flash", "meta/llama-4",
        "models/42", "projects/p/locations/l/endpoints/123", "tunedModels/mine",
        "projects/p/locations/l/publishers/anthropic/models/c@1",
    ],
)  # fmt: skip
def test_names_of_models_lead_where_the_sdk_of_google_leads(name: str, vertex: bool) -> None:
    genai = pytest.importorskip("google.genai")
    client = genai.Client(vertexai=True, project="p", location="l", credentials=object()) if vertex else None
    client = client or genai.Client(api_key="k")
    from google.genai import _transformers

    expected = _transformers.t_model(client._api_client, name)
    given = cloud(GOOGLE_CLOUD_LOCATION="l") if vertex else surface(GEMINI_API_KEY="k")
    assert given.resource(name) == expected
    around = "" if expected.startswith("projects/") or not vertex else "projects/p/locations/l/"
    assert given.place(name).endswith(f"/{around}{expected}")


def test_the_project_that_pays_is_named(credentials: Credentials) -> None:
    given = cloud()
    credentials.quota_project_id = "payer"
    assert headers(given) == {"authorization": "Bearer token-1", "x-goog-user-project": "payer"}


def test_a_login_in_the_base_url_becomes_a_header_and_is_not_to_be_seen() -> None:
    given = surface(GEMINI_API_KEY="k", GOOGLE_GEMINI_BASE_URL="https://ada:s3cret%21@gateway.example/x")
    assert given.base_url == "https://gateway.example/x"
    assert headers(given) == {"authorization": "Basic YWRhOnMzY3JldCE=", "x-goog-api-key": "k"}
    assert "s3cret" not in repr(given)
    with pytest.raises(UsageError) as caught:
        surface(GEMINI_API_KEY="k", GOOGLE_GEMINI_BASE_URL="https://ada:s3cret@gateway.example/x?y")
    assert "s3cret" not in str(caught.value)


def test_another_base_url_of_vertex_is_taken() -> None:
    given = cloud(GOOGLE_VERTEX_BASE_URL="http://127.0.0.1:1", GOOGLE_GEMINI_BASE_URL="http://127.0.0.1:2")
    assert given.url(MODEL, stream=False).startswith("http://127.0.0.1:1/v1beta1/projects/p/locations/global/")


@pytest.mark.parametrize("yes", ["1", "true", "TRUE", "yes", "on"])
def test_enterprise_is_switched_on_by_either_variable(yes: str) -> None:
    for name in ("GOOGLE_GENAI_USE_ENTERPRISE", "GOOGLE_GENAI_USE_VERTEXAI"):
        assert surface(**{name: yes, "GOOGLE_API_KEY": KEY}).kind == "vertex"
        assert surface(**{name: "false", "GOOGLE_API_KEY": KEY}).kind == "developer"


@pytest.mark.parametrize("name", ["GOOGLE_GENAI_USE_ENTERPRISE", "GOOGLE_GENAI_USE_VERTEXAI"])
def test_a_switch_that_says_neither_yes_nor_no_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name}='treu': use 'true' or 'false'"):
        surface(**{name: "treu", "GOOGLE_API_KEY": KEY})


def test_the_newer_switch_beats_the_older() -> None:
    env = {"GOOGLE_GENAI_USE_ENTERPRISE": "false", "GOOGLE_GENAI_USE_VERTEXAI": "true", "GOOGLE_API_KEY": KEY}
    assert surface(**env).kind == "developer"


# Keys --------------------------------------------------------------------------------------------------------------------


def test_a_line_end_behind_a_key_does_not_count() -> None:
    assert surface(GEMINI_API_KEY=f" {KEY}\n").api_key == KEY


@pytest.mark.parametrize("bad", ["two words", "schlüssel", "new\nline"])
def test_a_key_that_no_header_can_carry_is_refused_without_being_shown(bad: str) -> None:
    with pytest.raises(UsageError) as caught:
        surface(GEMINI_API_KEY=bad)
    assert bad not in str(caught.value)


@pytest.mark.parametrize("bad", ["127.0.0.1:80", "ftp://x", "https://", "https://x?key=1", "https://a b"])
def test_a_base_url_that_is_none_is_refused(bad: str) -> None:
    with pytest.raises(UsageError, match="base URL"):
        surface(GEMINI_API_KEY=KEY, GOOGLE_GEMINI_BASE_URL=bad)


def test_no_key_is_in_the_repr_or_the_url() -> None:
    given = surface(GEMINI_API_KEY=KEY)
    assert KEY not in repr(given)
    assert KEY not in given.url(MODEL, stream=True)


def test_keys_are_masked_wherever_they_stand_and_at_a_cut_end_too() -> None:
    assert redact(f"<{KEY}> and {KEY}!", [KEY]) == "<[key]> and [key]!"
    assert redact(f"the key is {KEY[:20]}", [KEY]) == "the key is [key]"
    assert redact("the key is AIza", [KEY]) == "the key is AIza"
    assert redact("no key here", [KEY, ""]) == "no key here"


# Tokens ------------------------------------------------------------------------------------------------------------------


class Credentials:
    def __init__(self, failure: Exception | None = None) -> None:
        self.valid = False
        self.token = ""
        self.refreshes = 0
        self.threads: set[str] = set()
        self.failure = failure
        self.project = "project"
        self.quota_project_id: str | None = None

    def refresh(self, request: Any) -> None:
        if self.failure is not None:
            raise self.failure
        self.refreshes += 1
        self.threads.add(threading.current_thread().name)
        self.token, self.valid = f"token-{self.refreshes}", True


class GoogleAuthError(Exception):
    retryable = False


class TransportError(GoogleAuthError):
    """Its kind for a network that does not work."""


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> Credentials:
    """What a `google.auth` without Google finds."""
    found = Credentials()
    auth: Any = types.ModuleType("google.auth")
    scopes_seen: list[Any] = []

    def default(*, scopes: list[str]) -> tuple[Credentials, str]:
        scopes_seen.append(scopes)
        return found, found.project

    auth.default = default
    exceptions: Any = types.ModuleType("google.auth.exceptions")
    exceptions.GoogleAuthError = GoogleAuthError
    exceptions.TransportError = TransportError
    requests: Any = types.ModuleType("google.auth.transport.requests")
    requests.Request = lambda: "transport"
    modules = {"google": types.ModuleType("google"), "google.auth": auth, "google.auth.exceptions": exceptions}
    modules |= {"google.auth.transport": types.ModuleType("transport"), "google.auth.transport.requests": requests}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return found


def test_a_token_is_fetched_once_and_again_when_it_is_not_valid_any_more(credentials: Credentials) -> None:
    given = cloud()
    assert headers(given) == {"authorization": "Bearer token-1"}
    assert headers(given) == {"authorization": "Bearer token-1"}
    credentials.valid = False
    assert headers(given) == {"authorization": "Bearer token-2"}
    assert threading.main_thread().name not in credentials.threads


def test_a_token_that_the_server_refused_is_not_given_out_again(credentials: Credentials) -> None:
    given = cloud()
    assert not given.renew(), "there is none yet"
    assert headers(given) == {"authorization": "Bearer token-1"}
    assert given.renew()
    assert headers(given) == {"authorization": "Bearer token-2"}
    assert headers(given) == {"authorization": "Bearer token-2"}
    assert not surface(GEMINI_API_KEY="k").renew()


def test_many_callers_share_one_refresh(credentials: Credentials) -> None:
    tokens = GoogleTokens()

    async def all_at_once() -> list[str]:
        return await asyncio.gather(*[tokens.token() for _ in range(20)])

    assert asyncio.run(all_at_once()) == ["token-1"] * 20
    assert credentials.refreshes == 1


def test_given_credentials_are_used_instead_of_the_default_ones(credentials: Credentials) -> None:
    own = Credentials()
    assert asyncio.run(GoogleTokens(own).token()) == "token-1"
    assert credentials.refreshes == 0


def test_missing_credentials_are_an_auth_error(credentials: Credentials) -> None:
    credentials.failure = GoogleAuthError("nobody is logged in")
    with pytest.raises(AuthError, match="nobody is logged in") as caught:
        headers(cloud())
    assert not caught.value.retryable


def test_a_network_failure_while_fetching_a_token_may_be_tried_again(credentials: Credentials) -> None:
    credentials.failure = GoogleAuthError("the server is busy")
    credentials.failure.retryable = True  # type: ignore[attr-defined]
    with pytest.raises(AuthError) as caught:
        headers(cloud())
    assert caught.value.retryable
    credentials.failure = TransportError("the network is down")
    with pytest.raises(ConnectionLostError, match="the network is down") as lost:
        headers(cloud())
    assert lost.value.retryable


class OwnTokens:
    def __init__(self, given: Any) -> None:
        self.given = given

    async def token(self) -> Any:
        if isinstance(self.given, Exception):
            raise self.given
        return self.given

    def expire(self) -> bool:
        return False


@pytest.mark.parametrize("given", [KeyError("x"), ValueError("y"), None, "", 5, "a\r\nX: y", "t\u00f6k"], ids=repr)
def test_tokens_of_the_programs_own_that_are_none_are_an_auth_error(given: Any) -> None:
    own = Surface(
        kind="vertex", base_url="http://127.0.0.1:9", version="v1", project="p", location="l", tokens=OwnTokens(given)
    )
    with pytest.raises(AuthError, match=r"no credentials: OwnTokens\.token\(\)"):
        headers(own)


@pytest.mark.parametrize(
    ("module", "package"), [("google.auth", "google-auth"), ("google.auth.transport.requests", "requests")]
)
def test_a_missing_package_is_named_with_what_to_install(module: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(AuthError, match=rf"the package {package},.*callgate\[vertex\]"):
        headers(cloud())
