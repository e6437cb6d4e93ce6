"""Old sessions expire: those that nobody named by default, others where the service is told so."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from callgate import Gate, GeminiModel, Media, ScriptedModel
from callgate.cli import main
from callgate.cli.file_undo import prune_files
from callgate.errors import StoreError, UsageError
from callgate.files.backups import Backups, Change, default_state_dir, new_id
from callgate.files.bounds import Bounds
from callgate.machine.facts import CallStarted
from callgate.server import Service, retention
from callgate.server.options import ServiceOptions
from callgate.server.retention import Sweeper
from callgate.store import Store, open_store
from callgate.store.anonymous import new_session_id
from callgate.store.sql import SqlStore
from callgate.testing import FakeGemini

DAY_S = 86_400.0


def run(story: Callable[[SqlStore], Coroutine[Any, Any, None]], path: Path) -> None:
    async def told() -> None:
        store = open_store(path / "s.db")
        assert isinstance(store, SqlStore)
        try:
            async with asyncio.timeout(120):
                await story(store)
        finally:
            await store.aclose()

    asyncio.run(told())


async def written(store: SqlStore, session: str, age_s: float) -> str:
    lease = await store.acquire(session, owner="me")
    await store.append(lease, [CallStarted(id="x")], position=0)
    await store.release(lease)
    then_s = time.time() - age_s
    await store._database.do(lambda tx: tx.run("UPDATE callgate_sessions SET updated_s = ? WHERE id = ?", then_s, session))
    return session


def sweeper(store: SqlStore, forgotten: list[str], **options: Any) -> Sweeper:
    return Sweeper(
        store,
        ServiceOptions(**options),
        delete=store.delete_older,
        is_live=lambda session: session == "live",
        forget=forgotten.append,
    )


async def ids(store: SqlStore) -> set[str]:
    return {info.id for info in await store.sessions()}


def test_sessions_that_nobody_named_expire_after_a_week_and_others_never(tmp_path: Path) -> None:
    async def story(store: SqlStore) -> None:
        old, new = await written(store, new_session_id(), 8 * DAY_S), await written(store, new_session_id(), 6 * DAY_S)
        await written(store, "named", 800 * DAY_S)
        forgotten: list[str] = []
        assert await sweeper(store, forgotten).sweep() == 1
        assert (await ids(store), forgotten) == ({new, "named"}, [old])

    run(story, tmp_path)


def test_old_backups_of_files_are_removed_by_the_sweeper_and_not_only_by_the_next_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    stored = Backups(default_state_dir(), Bounds())
    ids = [new_id(), new_id()]
    for id in ids:
        stored.keep(Change(id=id, root="/", path="x", time_s=time.time(), tool="write_file", existed=False), None)
    [record] = [path for path in tmp_path.rglob(f"{ids[0]}*") if path.is_file()]
    os.utime(record, (time.time() - 31 * DAY_S,) * 2)

    async def story(store: SqlStore) -> None:
        swept = Sweeper(store, ServiceOptions(), delete=store.delete_older, is_live=lambda session: False, prune=prune_files)
        await swept.sweep()

    run(story, tmp_path)
    assert [change.id for change in stored.changes()] == [ids[1]]


async def kept_files(monkeypatch: pytest.MonkeyPatch, folder: Path, changes: dict[str, str]) -> Backups:
    """The backups of a machine: ids of changes, each with its session."""
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    stored = Backups(default_state_dir(), Bounds())
    for id, session in changes.items():
        change = Change(id=id, root="/", path="x", time_s=time.time(), tool="write_file", existed=False, session=session)
        await asyncio.to_thread(stored.keep, change, None)
    return stored


def test_backups_of_a_session_that_was_deleted_from_another_machine_go_where_they_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(store: SqlStore) -> None:
        for session in ("gone", "stays"):
            await written(store, session, 0.0)
        ids = {new_id(): "gone", new_id(): "stays", new_id(): "of another store"}
        stored = await kept_files(monkeypatch, tmp_path / "here", ids)
        here = Sweeper(store, ServiceOptions(), delete=store.delete_older, is_live=lambda session: False, prune=prune_files)
        await here.sweep()
        assert {change.id for change in stored.changes()} == set(ids)
        elsewhere = open_store(tmp_path / "s.db")
        await elsewhere.delete("gone")
        await elsewhere.aclose()
        await written(store, "gone", 0.0)  # Another session of that name, which writes files again.
        later = {new_id(): "gone"}
        await kept_files(monkeypatch, tmp_path / "here", later)
        await here.sweep()
        left = {change.session for change in stored.changes() if change.id not in later}
        assert (left, {change.id for change in stored.changes()} >= set(later)) == ({"stays", "of another store"}, True)

    run(story, tmp_path)


@pytest.mark.parametrize("ahead_s", [-7200.0, 7200.0])
def test_backups_go_though_the_clock_of_their_machine_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead_s: float
) -> None:
    async def story(store: SqlStore) -> None:
        await written(store, "gone", 0.0)
        now = time.time
        monkeypatch.setattr(store._dialect, "now_s", lambda tx: now() - ahead_s)
        old, new = new_id(), new_id()
        stored = await kept_files(monkeypatch, tmp_path, {old: "gone"})
        await store.delete("gone")
        await kept_files(monkeypatch, tmp_path, {new: "gone"})
        assert await prune_files(store) == 1
        assert [change.id for change in stored.changes()] == [new]

    run(story, tmp_path)


def test_a_service_forgets_what_was_deleted_while_it_did_not_run_as_soon_as_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(store: SqlStore) -> None:
        await written(store, "gone", 0.0)
        stored = await kept_files(monkeypatch, tmp_path, {new_id(): "gone"})
        await store.delete("gone")
        pruned = asyncio.Event()

        async def prune(of: Store) -> None:
            await prune_files(of)
            pruned.set()

        async with Service(Gate(ScriptedModel([]), store=store), prune=prune):
            await pruned.wait()
        assert stored.changes() == []

    run(story, tmp_path)


def test_all_sessions_expire_where_the_service_is_told_so_but_none_that_is_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "PAGE", 2)

    async def story(store: SqlStore) -> None:
        for number in range(7):
            await written(store, f"old{number}", 3 * DAY_S + number)
        await written(store, "live", 9 * DAY_S)
        await written(store, "held", 9 * DAY_S)
        await store.acquire("held", owner="somebody else")
        await written(store, "new", 1 * DAY_S)
        unnamed = await written(store, new_session_id(), 9 * DAY_S)
        swept = sweeper(store, [], keep_sessions_s=2 * DAY_S, keep_anonymous_s=None)
        assert await swept.sweep() == 8
        assert await ids(store) == {"live", "held", "new"}
        assert unnamed not in await ids(store)
        assert (swept.swept, await swept.sweep()) == (8, 0)

    run(story, tmp_path)


def test_a_session_that_was_used_again_since_it_was_looked_at_is_kept(tmp_path: Path) -> None:
    async def story(store: SqlStore) -> None:
        await written(store, "a", 3 * DAY_S)
        [info] = await store.sessions()
        await store._database.do(lambda tx: tx.run("UPDATE callgate_sessions SET updated_s = ?", time.time()))
        assert not await store.delete_older("a", time.time() - DAY_S)
        assert not await sweeper(store, [], keep_sessions_s=DAY_S)._swept(info, time.time())
        assert await ids(store) == {"a"}
        assert await store.delete("a")

    run(story, tmp_path)


def test_a_session_that_is_swept_takes_its_uploads_at_the_provider_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("callgate.media_files.INLINE_BYTES_MAX", 1_000)

    async def story(store: SqlStore) -> None:
        async with FakeGemini(["A film."]) as fake:
            model = GeminiModel("gemini-3.8-flash", api_key="k", env={"GOOGLE_GEMINI_BASE_URL": fake.base_url})
            async with Gate(model, store=store) as gate:
                await gate.run(["What?", Media(data=bytes(2_000), mime_type="video/mp4")], session="film")
                assert len(fake.resources.files) == 1
                service = Service(gate, options=ServiceOptions(keep_sessions_s=DAY_S))
                assert await service.sweeper.sweep() == 0
                assert len(fake.resources.files) == 1
                await store._database.do(lambda tx: tx.run("UPDATE callgate_sessions SET updated_s = updated_s - 90000"))
                assert await service.sweeper.sweep() == 1
                assert (await ids(store), fake.resources.files) == (set(), {})

    run(story, tmp_path)


def test_the_service_sweeps_while_it_runs_and_a_store_that_fails_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "EVERY_S", 0.001)

    async def story(store: SqlStore) -> None:
        await written(store, new_session_id(), 8 * DAY_S)
        service = Service(Gate(ScriptedModel([]), store=store))
        failures, sweep = iter([StoreError("down")]), service.sweeper.sweep
        swept = asyncio.Event()

        async def counted() -> int:
            for failure in failures:
                raise failure
            count = await sweep()
            swept.set()
            return count

        service.sweeper.sweep = counted  # type: ignore[method-assign]
        async with service:
            await swept.wait()
        assert (await ids(store), service.sweeper.swept) == (set(), 1)

    run(story, tmp_path)


def test_ages_go_by_the_clock_of_the_store_and_not_by_that_of_a_service_whose_clock_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(store: SqlStore) -> None:
        young = await written(store, new_session_id(), 0.0)
        now_s = time.time()
        monkeypatch.setattr(store._dialect, "now_s", lambda tx: now_s)
        monkeypatch.setattr(time, "time", lambda: now_s + 3650 * DAY_S)
        assert await sweeper(store, []).sweep() == 0
        assert await ids(store) == {young}

    run(story, tmp_path)


@pytest.mark.parametrize("name", ["keep_sessions_s", "keep_anonymous_s"])
@pytest.mark.parametrize("kept_s", [0, -1.0, float("nan")])
def test_a_time_that_would_delete_every_session_is_refused(name: str, kept_s: float) -> None:
    with pytest.raises(UsageError, match=f"{name}=.* would delete every session when it is over"):
        ServiceOptions(**{name: kept_s})


@pytest.mark.parametrize("setting", ["retention.sessions", "retention.anonymous"])
@pytest.mark.parametrize(
    ("age", "said"),
    [
        ("0m", "would delete every session when it is over: use at least 1m, or never"),
        ("5", "give a whole number and a unit, as in 30d, 12h or 90m"),
        ("9" * 400 + "d", "give an age of at most 36500d"),
    ],
)
def test_an_age_that_makes_no_sense_is_refused_when_the_service_starts(
    setting: str, age: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--port", "0", "--ephemeral", "--provider", "demo", "--set", f"{setting}={age}"]) == 42
    assert said in capsys.readouterr().err
