"""Each guard is needed: with it switched off, at least one attack that names it succeeds.

The attacks really succeed here, perhaps as root: name only such whose targets are files of the test's own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from callgate.files import FileTools, backups, beneath, bounds, paths, root, tools, tree, writer

MonkeyPatch = pytest.MonkeyPatch


def follow_links_while_walking(patch: MonkeyPatch) -> None:
    patch.setattr(beneath, "NOFOLLOW", 0)


def let_the_kernel_follow_links(patch: MonkeyPatch) -> None:
    patch.setattr(beneath, "_RESOLVE", 0)
    patch.setattr(beneath, "NOFOLLOW", 0)
    beneath._how.cache_clear()


def take_parents(patch: MonkeyPatch) -> None:
    patch.setattr(paths, "_EACH", ())


def take_special_files(patch: MonkeyPatch) -> None:
    patch.setattr(root.Root, "require_regular", lambda self, names, known: None)


def read_hard_links(patch: MonkeyPatch) -> None:
    patch.setattr(root.Root, "require_one_link", lambda self, names, known: None)


def open_the_state(patch: MonkeyPatch) -> None:
    patch.setattr(root.Root, "keep_out_of", lambda self, folder: None)


def forget_the_first_root(patch: MonkeyPatch) -> None:
    """Opens the root anew for each call, as those do who keep a path."""

    def names(self: root.Root, path: str) -> paths.Names:
        import os

        self.descriptor = os.open(self.path, os.O_RDONLY)
        return paths.names_of(path)

    patch.setattr(root.Root, "names", names)


def search_everywhere(patch: MonkeyPatch) -> None:
    patch.setattr(tools, "_default_hides", lambda: lambda path, named: False)


def list_without_a_cap(patch: MonkeyPatch) -> None:
    patch.setattr(bounds.Bounds, "__init__", _bounds_with(entries=10**9))


def write_without_a_cap(patch: MonkeyPatch) -> None:
    patch.setattr(bounds.Bounds, "__init__", _bounds_with(write_bytes=10**9))


def write_without_backup(patch: MonkeyPatch) -> None:
    patch.setattr(backups.Backups, "keep", lambda self, change, source: change)


def leave_folders(patch: MonkeyPatch) -> None:
    patch.setattr(root.Root, "remove_folders", lambda self, made: None)


def forget_the_mode(patch: MonkeyPatch) -> None:
    patch.setattr(writer, "_carry_over", lambda old, descriptor: None)


def list_every_name(patch: MonkeyPatch) -> None:
    patch.setattr(tree, "is_speakable", lambda name: True)


def _bounds_with(**changed: int) -> Callable[..., None]:
    real = bounds.Bounds.__init__

    def make(self: Any, **named: Any) -> None:
        real(self, **(changed | named))

    return make


@pytest.mark.parametrize(
    ("switch_off", "used", "attack"),
    [
        (follow_links_while_walking, "walk", "link_file_outside"),
        (follow_links_while_walking, "walk", "link_folder_outside"),
        (let_the_kernel_follow_links, "openat2", "link_file_outside"),
        (let_the_kernel_follow_links, "openat2", "link_root_of_the_process"),
        (take_parents, "walk", "lexical_parent_file"),
        (take_special_files, "walk", "special_pipe"),
        (take_special_files, "openat2", "special_zero"),
        (read_hard_links, "walk", "hard_link_is_not_read"),
        (read_hard_links, "walk", "hard_link_cannot_be_laundered_by_appending"),
        (open_the_state, "walk", "root_that_holds_the_state"),
        (forget_the_first_root, "walk", "root_moved_while_running"),
        (search_everywhere, "walk", "search_does_not_look_into_secrets_unasked"),
        (list_without_a_cap, "walk", "list_is_cut_at_ten_thousand_and_goes_on"),
        (write_without_a_cap, "walk", "write_limit"),
        (write_without_backup, "walk", "write_is_backed_up_to_the_byte"),
        (leave_folders, "walk", "write_limit"),
        (forget_the_mode, "walk", "write_keeps_the_mode"),
        (list_every_name, "walk", "list_names_that_cannot_be_written"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_without_the_guard_the_attack_succeeds(
    switch_off: Callable[[MonkeyPatch], None],
    used: str,
    attack: str,
    tmp_path: Path,
    attack_table,
    needs_back_end,
    monkeypatch,
) -> None:
    needs_back_end(used)
    monkeypatch.setattr(attack_table, "CASE_S_MAX", 5.0)
    try:
        with monkeypatch.context() as patch:
            switch_off(patch)
            with pytest.raises((Exception, attack_table.TooLong)):
                attack_table.run_case(attack, tmp_path, lambda root, **options: FileTools(root, backend=used, **options))
    finally:
        beneath._how.cache_clear()
