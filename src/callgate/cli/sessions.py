"""`callgate sessions`: what is kept of conversations, and what can be done with it.

Ids and files come in; tables, conversations, JSON and changed sessions go out. Text of models and tools is escaped before it
is shown. What is done to a session is the business of `callgate.sessions`.
"""

from __future__ import annotations

import asyncio
import datetime
import math
import os
import sys
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from callgate import sessions as whole
from callgate import strict_json
from callgate.cli.convert import FORMAT_NAMES, echo_json, in_words_of_the_command, loss_lines
from callgate.cli.escaping import readable_args, readable_value
from callgate.cli.extras import media_line, source_lines, step_lines
from callgate.cli.file_undo import file_undo, forget_deleted, forget_files
from callgate.cli.input_history import HISTORY_FILE, forget_inputs
from callgate.cli.json_input import InputError, json_from
from callgate.cli.options import store_option
from callgate.cli.recap import own_words
from callgate.cli.render import escape, is_terminal, one_line
from callgate.cli.state import existing_place, opened, opened_to_read, state_dir, store_place
from callgate.cli.style import counted
from callgate.config.age import age_s
from callgate.config.known_secrets import redact_known, redact_known_in
from callgate.content.metadata import made_media, server_step
from callgate.content.read import call_of, is_call, is_response, is_thought, parts_of, response_of, role_of, text_of
from callgate.errors import JsonError, NewerSessionError, SessionBusyError, StoreError, UsageError
from callgate.history.repair import repaired, starts_exchange
from callgate.machine.facts import Fact, HistoryGiven, RunStarted, Unreadable
from callgate.sessions import (
    SessionState,
    facts_of,
    find,
    fork,
    import_session,
    load,
    metadata_by_content,
    rewind,
    state_from_facts,
)
from callgate.store import SessionInfo, Store
from callgate.store.dialect import DamagedStoreError
from callgate.store.listing import delete_older, now_s, read_facts, session_page
from callgate.store.owner import shown
from callgate.store.principals import keeps_principals
from callgate.types import Content, JsonObject, Loss

__all__ = ["session_rows", "sessions"]

T = TypeVar("T")

LISTED = 20
TITLE_CHARS_MAX = 60
LINE_CHARS_MAX = 400
HISTORY_FORMATS = tuple(name for name in FORMAT_NAMES if name not in ("json_schema", "mcp", "snakepit"))

_STATES = {"idle": "idle", "waiting": "waits for approval", "interrupted": "interrupted"}


@click.group(invoke_without_command=True)
@click.pass_context
def sessions(ctx: click.Context) -> None:
    """List stored conversations, show, change and delete them; without a command, list them.

    An ID may be abbreviated as long as it is unambiguous; `latest` is the session written to last.
    Exit codes: 0, 1 an error, 2 wrong usage, 42 bad input.
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_sessions)


def _read(place: str | None, work: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
    """Do something that only reads, in a store that is there."""
    with opened_to_read(place) as store:
        return _done(store, work)


def _change(place: str | None, work: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
    """Do something with sessions that are there, which may change them."""
    _read(place, lambda store: session_page(store, limit=1))  # There is a store, so none is created.
    with opened(existing_place(place)) as store:
        return _done(store, work)


def _done(store: Store, work: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
    try:
        return asyncio.run(work(store))
    except UsageError as error:
        raise InputError(str(error)) from error


# Looking -----------------------------------------------------------------------------------------------------------------


@sessions.command("list", short_help="List sessions, newest first.")
@click.option("--all", "everything", is_flag=True, help=f"List all sessions, not only the newest {LISTED}.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="A table, or JSON.")
@store_option
def list_sessions(*, everything: bool, output: str, store: str | None) -> None:
    """List sessions: id, when it was last written to, exchanges, state and title.

    The exit code is 1 if a session cannot be read because the store is damaged.
    """
    damage: list[DamagedStoreError] = []
    rows, more = _read(store, lambda store: _rows(store, None if everything else LISTED, damage))
    _print_rows(rows, more, output)
    if damage:
        raise click.ClickException(escape(str(damage[0])))


def _print_rows(rows: Sequence[JsonObject], more: int, output: str) -> None:
    rows = redact_known_in(rows)
    if output == "json":
        echo_json(rows)
        return
    if not rows:
        click.echo("There are no stored sessions.")
    # A program that reads the lines gets nothing but sessions.
    for line in _listed(rows, headed=bool(rows) and is_terminal(sys.stdout)):
        click.echo(line)
    if more:
        click.echo(f"... and {more} more; --all lists them")


async def session_rows(store: Store, count: int) -> tuple[list[str], int]:
    """The newest sessions as lines of a table, and how many there are beside them."""
    rows, more = await _rows(store, count, [])
    return list(_listed(rows, headed=True)) if rows else [], more


async def _rows(store: Store, count: int | None, damage: list[DamagedStoreError]) -> tuple[list[JsonObject], int]:
    """The newest sessions, and how many there are beside them; errors about damaged ones are added to the list.

    Raises:
        StoreError: the store cannot be used now, as while its tables are locked.
    """
    known = await store.sessions()
    rows = [await _row(store, info, damage) for info in known[:count]]
    return [row for row in rows if row is not None], len(known[count:]) if count is not None else 0


def _listed(rows: Sequence[JsonObject], *, headed: bool = False) -> Iterator[str]:
    columns = ("id", "updated", "exchanges", "state", "title")
    head = [[name.upper() for name in columns]] if headed else []
    cells = [{**row, "updated": row["updated"][:19].replace("T", " ")} for row in rows]
    yield from _table([*head, *([str(row[key]) for key in columns] for row in cells)])


async def _row(store: Store, info: SessionInfo, damage: list[DamagedStoreError]) -> JsonObject | None:
    """Describe a session; None if it was deleted meanwhile."""
    exchanges, state = 0, "cannot be read"
    try:
        found = await load(store, info.id)
        exchanges, state = found.exchanges, _state_of(info, found)
    except NewerSessionError:
        pass  # The others can be listed all the same, and `show` says what is wrong with this one.
    except DamagedStoreError as error:
        damage.append(error)
    except UsageError:
        return None
    return {
        "id": info.id,
        "created": _zoned(info.created_s),
        "updated": _zoned(info.updated_s),
        "exchanges": exchanges,
        "state": state,
        "title": info.title,
    }


def _state_of(info: SessionInfo, found: SessionState) -> str:
    return f"in use by {shown(info.owner)}" if info.owner else _STATES[found.state]


def _zoned(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="seconds")


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    cells = [[one_line(cell, TITLE_CHARS_MAX) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        yield "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()


@sessions.command("show", short_help="Print a conversation.")
@click.argument("id")
@store_option
def show_session(id: str, store: str | None) -> None:
    """Show the conversation of the session ID."""

    async def work(store: Store) -> tuple[SessionInfo, SessionState, list[Fact]]:
        info = await find(store, id)
        return info, await load(store, info.id), await read_facts(store, info.id)

    info, found, facts = _read(store, work)
    state = _state_of(info, found)
    reported = metadata_by_content(facts, found.reply.contents)
    click.echo(
        escape(f"session {info.id}: {counted(found.exchanges, 'exchange')}, {state}, last written {_when(info.updated_s)}")
    )
    for index, content in enumerate(redact_known_in(found.reply.contents)):
        for line in _content_lines(content):
            click.echo(line)
        for line in source_lines(reported[index]) if index in reported else ():
            click.echo(escape(redact_known(line)))
    for record in found.reply.approvals:
        click.echo(f"? {one_line(record.call.name, 100)} waits for an answer")


def _content_lines(content: Content) -> Iterator[str]:
    if starts_exchange(content):
        yield ""
    for part in parts_of(content):
        if is_thought(part):
            continue
        if is_call(part):
            call = call_of(part)
            args = one_line(readable_args(call.get("args") or {}), LINE_CHARS_MAX)
            yield f"-> {one_line(str(call.get('name')), 100)}({args})"
        elif is_response(part):
            response = response_of(part)
            said = one_line(readable_value(response.get("response")), LINE_CHARS_MAX)
            yield f"<- {one_line(str(response.get('name')), 100)}: {said}"
        elif not (text := text_of({"parts": [part]})) and part.get("text") == "":
            continue  # Only a signature for the next request: nothing to read.
        elif text:
            yield escape(f"> {text}" if role_of(content) == "user" else text)
        elif (step := server_step(part)) is not None:
            yield from map(escape, step_lines(step, mark="->" if step.kind == "tool_call" else "<-", cut="..."))
        elif (media := made_media(part)) is not None:
            yield escape(media_line(media))
        else:
            yield f"[{', '.join(one_line(key, 100) for key in part)}]"


# Out and in --------------------------------------------------------------------------------------------------------------


@sessions.command("export", short_help="Print a session as JSON, in callgate's format or another one.")
@click.argument("id", required=False)
@click.option("--format", "target", type=click.Choice(HISTORY_FORMATS), help="The history alone, in this format.")
@click.option("--salvage", metavar="FILE", help="The readable part of this damaged SQLite file, instead of ID.")
@store_option
def export_session(id: str | None, *, target: str | None, salvage: str | None, store: str | None) -> None:
    """Print the session ID as JSON. What another format cannot represent is reported on stderr."""
    if (id is None) == (salvage is None):
        raise click.UsageError("name a session to export, or a damaged file with --salvage")
    if salvage is not None:
        if target is not None:
            raise click.UsageError("--salvage writes callgate's own form: leave out --format")
        echo_json(_salvaged(salvage))
        return

    async def work(store: Store) -> tuple[SessionInfo, list[Fact]]:
        info = await find(store, cast("str", id))
        return info, await read_facts(store, info.id)

    info, facts = _read(store, work)
    _report_unreadable(info.id, facts)
    if target is None:
        about = {key: value for key, value in asdict(info).items() if key in ("id", "title", "created_s", "updated_s")}
        echo_json(whole.export_session(about, facts))
        return
    value, losses = _converted(state_from_facts(info.id, facts).reply.contents, source="gemini", target=target)
    echo_json(redact_known_in(value))
    _report_losses(losses)


def _salvaged(path: str) -> JsonObject:
    from callgate.store.sqlite import salvaged

    documents: list[JsonObject] = []
    try:
        for session, facts, problem in salvaged(Path(path.removeprefix("sqlite:///")).expanduser()):
            if problem is not None:
                click.echo(escape(f"session {session}: read up to fact {len(facts)}, then: {problem}"), err=True)
            _report_unreadable(session, facts)
            documents.append(whole.export_session({"id": session}, facts))
    except StoreError as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"{len(documents)} sessions could be read", err=True)
    return {"callgate": 1, "sessions": documents}


def _report_unreadable(session: str, facts: Sequence[Fact]) -> None:
    """Report facts that are exported as they are, because nobody can tell what they say."""
    for position, fact in enumerate(facts):
        if isinstance(fact, Unreadable):
            click.echo(escape(f"session {session}: fact {position} is damaged: {fact.problem}"), err=True)


def _converted(value: Any, *, source: str | None, target: str) -> tuple[Any, list[Loss]]:
    from callgate.definitions import convert

    converted = convert(value, source=source, target=target, kind="history")
    return converted.value, converted.losses


def _report_losses(losses: list[Loss]) -> None:
    if losses:
        click.echo("\n".join([f"{len(losses)} lost or changed:", *loss_lines(losses)]), err=True)


@sessions.command("import", short_help="Create sessions from JSON, in callgate's format or another one.")
@click.argument("file")
@click.option("--from", "source", type=click.Choice(HISTORY_FORMATS), help="The format of FILE; detected if omitted.")
@store_option
def import_sessions(file: str, *, source: str | None, store: str | None) -> None:
    """Create sessions from FILE (- for stdin): what `export` wrote, or a history of another system.

    Approvals are not imported: calls that wait are decided about again. The new ids are printed.
    """
    value = json_from(file, depth_max=strict_json.WRITTEN_DEPTH_MAX)
    try:
        found = list(_documents(value, source))
    except (UsageError, JsonError) as error:
        raise InputError(f"{'stdin' if file == '-' else repr(file)}: {in_words_of_the_command(str(error))}") from error

    async def work(store: Store) -> list[str]:
        taken = {info.id for info in await store.sessions()}
        made: list[str] = []
        for name, facts in found:
            session = name if name and name not in taken else f"import-{uuid.uuid4().hex[:12]}"
            await import_session(store, session, facts)
            taken.add(session)
            made.append(session)
        return made

    with opened(store_place(store)) as opened_store:
        made = _done(opened_store, work)
    for session in made:
        click.echo(escape(session))


def _documents(value: Any, source: str | None) -> Iterator[tuple[str | None, list[Fact]]]:
    """The sessions in a file: the name of each, if it has one, and its facts."""
    if isinstance(value, dict) and "callgate" in value and source is None:
        own = cast("JsonObject", value)
        listed = cast("list[Any]", own["sessions"]) if isinstance(own.get("sessions"), list) else [own]
        yield from map(_named, listed)
        return
    history, losses = _converted(value, source=source, target="gemini")
    if isinstance(history, dict):
        history = cast("JsonObject", history)
        if others := sorted(key for key in history if key != "contents"):
            click.echo(escape(f"not kept, because a session has no place for it: {', '.join(others)}"), err=True)
        history = history["contents"]
    contents, notes = repaired(history)
    if not contents:
        raise UsageError("there is no history in it")
    _report_losses(losses)
    for note in notes:
        click.echo(escape(note), err=True)
    yield None, [HistoryGiven(contents=contents)]


def _named(document: Any) -> tuple[str | None, list[Fact]]:
    about: Any = cast("JsonObject", document).get("session") if isinstance(document, dict) else None
    if not isinstance(about, dict):
        raise UsageError("a document has no 'session'")
    name = cast("JsonObject", about).get("id")
    return name if isinstance(name, str) else None, facts_of(cast("JsonObject", document))


# Changing ----------------------------------------------------------------------------------------------------------------


@sessions.command("delete", short_help="Delete sessions.")
@click.argument("ids", metavar="[ID...]", nargs=-1)
@click.option("--older-than", metavar="AGE", help="Sessions last written to before that: 30d, 12h, 90m.")
@click.option("--owner", metavar="NAME", help="Sessions that belong to this user of the service; may be given with an age.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@store_option
def delete_sessions(
    ids: tuple[str, ...], *, older_than: str | None, owner: str | None, yes: bool, store: str | None
) -> None:
    """Delete the sessions. This cannot be undone.

    With them go the backups on this machine of files that their calls changed (also of sessions that were deleted
    elsewhere), and their prompts in the input history. Services delete backups on their machines within minutes. An audit
    log is not changed: its records are kept by its own rules.
    """
    if bool(ids) == (older_than is not None or owner is not None):
        raise click.UsageError("name the sessions to delete, or choose them with --older-than or --owner")
    if not yes and not is_terminal(sys.stdin):
        raise click.UsageError("there is no terminal to ask at: use --yes")
    age = _age_s(older_than) if older_than is not None else None

    async def found(store: Store) -> tuple[list[SessionInfo], float]:
        if ids:
            return [await find(store, id) for id in ids], 0.0
        before_s = math.inf if age is None else await now_s(store) - age
        return await _chosen(store, before_s, owner), before_s

    infos, before_s = _read(store, found)
    if not infos:
        _read(store, forget_deleted)
    _show_deletion(infos, yes=yes)
    history = os.path.join(state_dir(), HISTORY_FILE)

    async def work(store: Store) -> list[str]:
        kept = [info.id for info in infos if not await _deleted(store, info, before_s, history)]
        await forget_deleted(store)
        return kept

    kept = _change(store, work)
    for session in kept:
        click.echo(escape(f"session {session} is in use, and was kept"), err=True)
    if kept and owner is not None:
        click.echo("Repeat the command when they are no longer in use.", err=True)
        raise click.exceptions.Exit(1)


def _show_deletion(infos: Sequence[SessionInfo], *, yes: bool) -> None:
    """Show what is to be deleted, and ask."""
    if not infos:
        click.echo("There is no such session.", err=True)
        raise click.exceptions.Exit(0)
    for line in _table([[info.id, _when(info.updated_s), info.title] for info in infos]):
        click.echo(line, err=True)
    if not yes:
        click.confirm(f"Delete {len(infos)} session{'s' if len(infos) > 1 else ''}?", abort=True, err=True)


async def _chosen(store: Store, before_s: float, owner: str | None) -> list[SessionInfo]:
    """Return the sessions last written to before then: those of an owner, or all that nobody uses."""
    known = [info for info in await store.sessions() if info.updated_s < before_s]
    if owner is None:
        return [info for info in known if info.owner is None]
    own = await store.owned([info.id for info in known], owner) if keeps_principals(store) else set[str]()
    return [info for info in known if info.id in own]


async def _forget_at_provider(store: Store, facts: list[Fact], session: str) -> None:
    """Delete the files and interactions of a session at Google, if there is a key; otherwise they expire there."""
    from callgate.run.provider_deletion import delete_at_provider, interactions_of, uploads_of

    made = {"uploaded files": uploads_of(facts), "interactions": interactions_of(facts)}
    if not any(made.values()):
        return
    from callgate.cli.settings import model_environment, settings_here
    from callgate.models.interactions import InteractionsModel

    try:
        model = InteractionsModel("gemini-flash-latest", env=model_environment(settings_here()))
    except UsageError as error:
        kept = " and ".join(name for name, left in made.items() if left)
        click.echo(escape(f"{kept} of session {session} stay at Google until they expire: {error}"), err=True)
        return
    try:
        for left in await delete_at_provider(model, store, facts, session):
            click.echo(escape(left), err=True)
    finally:
        await model.aclose()


async def _deleted(store: Store, info: SessionInfo, before_s: float, history: str) -> bool:
    """Delete a session and what else is kept of it; return False for one that was found by its age and is in use since."""
    facts: list[Fact] = []
    try:
        facts = await store.load(info.id)
        said = [text_of(fact.content) for fact in facts if isinstance(fact, RunStarted) and fact.content]
    except (NewerSessionError, DamagedStoreError):  # It cannot be read, and can be deleted all the same.
        said = []
    try:
        if not before_s:
            await store.delete(info.id)
        elif not await delete_older(store, info.id, before_s):
            return False
    except SessionBusyError:
        if not before_s:
            raise
        return False
    await _forget_at_provider(store, facts, info.id)
    forget_files(info.id)
    forget_inputs(history, said)
    return True


def _age_s(age: str) -> float:
    try:
        return age_s(age, name="--older-than")
    except UsageError as error:
        raise click.UsageError(str(error)) from error


@sessions.command("fork", short_help="Copy a session.")
@click.argument("id")
@click.option("--exchanges", type=click.IntRange(min=0), help="Copy only this many exchanges, from the first one.")
@store_option
def fork_session(id: str, *, exchanges: int | None, store: str | None) -> None:
    """Copy the session ID and print the id of the copy. Files are left as they are."""
    target = f"fork-{uuid.uuid4().hex[:12]}"

    async def work(store: Store) -> None:
        await fork(store, (await find(store, id)).id, target, exchange=exchanges)

    _change(store, work)
    click.echo(target)


@sessions.command("rewind", short_help="Remove the last exchanges, and restore the files written in them.")
@click.argument("id")
@click.option("--exchanges", type=click.IntRange(min=1), default=1, show_default=True, help="Number of exchanges to remove.")
@click.option("--keep-files", is_flag=True, help="Leave files as they are.")
@store_option
def rewind_session(id: str, *, exchanges: int, keep_files: bool, store: str | None) -> None:
    """Remove the last exchanges of the session ID, and restore the files that the file tools wrote in them.

    The journal still records what happened, and `callgate undo` can revert the change of the files.
    """

    async def work(store: Store) -> tuple[str, list[str], list[str]]:
        info = await find(store, id)
        taken = await rewind(store, info.id, exchanges=exchanges, undo=None if keep_files else file_undo())
        return info.id, [own_words(exchange) for exchange in taken.exchanges], taken.notes

    session, said, notes = _change(store, work)
    for note in notes:
        click.echo(escape(note))
    for line in said:
        click.echo(f"removed: {one_line(line, LINE_CHARS_MAX)}")
    click.echo(escape(f"To resume: callgate chat -r {session}"))
