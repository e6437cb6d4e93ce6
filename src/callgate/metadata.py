"""Data about an answer beside its content: sources, citations, ratings, probabilities, and steps at the provider.

`callgate.content.metadata` reads them from the wire; this file knows no wire format and imports nothing of ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

__all__ = ["AnswerMetadata", "Citation", "ReadUrl", "SearchLink", "ServerStep", "Source", "SourceKind", "StepKind"]

SourceKind: TypeAlias = Literal["web", "image", "maps", "document", "citation"]
"""The origin of a source: a web page, an image, a place, a document of a store, or a work that the answer quotes."""

StepKind: TypeAlias = Literal["code", "code_result", "tool_call", "tool_result"]
"""The kind of a step that ran at the provider."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A source that an answer is based on."""

    uri: str
    """The address."""
    title: str = ""
    """The title, if known."""
    kind: SourceKind = "web"
    """The kind of the source."""
    domain: str = ""
    """The domain of a web page, if reported."""
    text: str = ""
    """The passage of a document, if the provider sent it."""
    license: str = ""
    """The license of cited text or code, if reported."""

    @property
    def is_link(self) -> bool:
        """True if the address can be opened in a browser."""
        return self.uri.startswith(("https://", "http://"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    """A passage of the answer and its sources."""

    text: str
    """The passage of the answer; empty if the provider did not say which one."""
    start: int | None = None
    """The position of the passage in the text of the answer, in characters."""
    end: int | None = None
    """The position after its last character."""
    sources: tuple[Source, ...] = ()
    """The sources of the passage."""
    confidence: tuple[float, ...] = ()
    """The provider's confidence in each source, if reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchLink:
    """A search suggestion as text and an address: for places that do not show the provider's HTML."""

    text: str
    """The suggested search."""
    url: str
    """The address that performs it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadUrl:
    """A page that the provider tried to read for the answer."""

    url: str
    """The address of the page."""
    status: str
    """The raw status, such as `URL_RETRIEVAL_STATUS_SUCCESS`."""

    @property
    def ok(self) -> bool:
        """True if the page was read."""
        return self.status.endswith("_SUCCESS")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStep:
    """A step that ran at the provider, not here: code that it executed, a search, and their results."""

    kind: StepKind
    """The kind of the step."""
    tool: str
    """The provider's tool: `code_execution`, `google_search_web`, ..."""
    id: str | None = None
    """The provider's id, by which a result belongs to its call."""
    value: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The data of the step: `language` and `code`; `outcome` and `output`; `args`; or `response`."""

    @property
    def is_error(self) -> bool:
        """True if it is the result of a step that failed."""
        return self.value.get("is_error") is True or self.value.get("outcome") not in (None, "OUTCOME_OK")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerMetadata:
    """The metadata that a provider reports about one answer."""

    sources: tuple[Source, ...] = ()
    """The sources of the answer."""
    citations: tuple[Citation, ...] = ()
    """The passages that have sources."""
    queries: tuple[str, ...] = ()
    """The searches that were made for the answer."""
    search_suggestions: tuple[str, ...] = ()
    """HTML of search suggestions. Google's terms require that they are shown to the user with the answer."""
    search_links: tuple[SearchLink, ...] = ()
    """The same suggestions as links, without HTML."""
    urls: tuple[ReadUrl, ...] = ()
    """The pages that were read for the answer."""
    safety_ratings: tuple[Mapping[str, Any], ...] = ()
    """Safety ratings, as received."""
    logprobs: tuple[Mapping[str, Any], ...] = ()
    """Log probabilities of the tokens, as received."""
    avg_logprobs: float | None = None
    """The mean log probability of the tokens."""
    raw: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)
    """All of it as received, with the provider's own names: nothing is lost that has no field here.

    The last one has also what Gemini reports outside the candidate: `responseId`, `promptFeedback`, of `usageMetadata` what
    `Usage` has no field for, and in `response` the fields that callgate does not know. An answer of which no more than an id
    and tokens of text are reported has no metadata.
    """
    finish_message: str = ""
    """The provider's sentence about the finish reason."""
    response_id: str = ""
    """The provider's id of the answer."""

    @property
    def has_grounding(self) -> bool:
        """True if there is something to show with the answer: sources, searches, or pages that were read."""
        return bool(self.sources or self.citations or self.queries or self.search_suggestions or self.urls)
