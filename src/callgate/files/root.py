"""The root: one folder, opened once, and everything below it by descriptors.

Names come in, descriptors of regular files and of folders go out, or a sentence for the model. A program that moves,
replaces or links anything meanwhile changes what is found here, never where it is looked for.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
import unicodedata
import weakref
from collections.abc import Iterator, Sequence

from callgate.base_errors import expect
from callgate.errors import ToolError, UsageError
from callgate.files.beneath import DIRECTORY, PASSING, BackEnd, GuardedWalk, Opener, let_go, opener, resolve_links, walk_open
from callgate.files.paths import Names, names_of, shown

__all__ = ["Root", "identity"]

Identity = tuple[int, int]


def identity(known: os.stat_result) -> Identity:
    """Identity of a file or folder on this machine."""
    return known.st_dev, known.st_ino


class Root:
    """A folder that nothing gets out of."""

    def __init__(self, path: str | os.PathLike[str], *, links: bool, hard_links: bool, back_end: BackEnd) -> None:
        expect(path, (str, os.PathLike), "the root is {}", "the path of a folder")
        self._opener: Opener = opener(back_end)
        self.path: str = os.path.abspath(os.fspath(path))
        self.paths = tuple(dict.fromkeys((self.path, os.path.realpath(self.path))))
        """The names of the root."""
        self._links = links
        self._hard_links = hard_links
        self._closed: frozenset[Identity] = frozenset()
        self._awaited: str | None = None
        try:
            self.descriptor = os.open(self.path, os.O_RDONLY | DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise UsageError(f"the root {self.path!r} cannot be opened as a folder: {error.strerror}") from error
        self._close = weakref.finalize(self, let_go, self.descriptor)

    def close(self) -> None:
        """Let go of the folder. Nothing can be opened after that."""
        self._close()
        self.descriptor = -1  # The number may soon mean something else.

    def keep_out_of(self, folder: str) -> None:
        """Close one folder to everything that is opened from now on, wherever below the root it lies.

        Raises:
            UsageError: the root lies in that folder, so that nothing would be left.
        """
        try:
            way = list(_climb(os.open(folder, PASSING | DIRECTORY | os.O_CLOEXEC)))
            # By the descriptor: the path of the root may lead elsewhere by now.
            ours = list(_climb(os.open(".", PASSING | DIRECTORY | os.O_CLOEXEC, dir_fd=self.descriptor)))
        except OSError:
            self._awaited = folder  # It is not there yet, and holds nothing; when it is, it shall be closed.
            return
        self._awaited = None
        if way[0] in ours:
            raise UsageError(
                f"the root {self.path!r} lies in callgate's own state directory {folder!r}: choose another root, "
                "or another state_dir="
            )
        if ours[0] in way[1:] and way[0] not in self._closed:
            self._closed |= {way[0]}
            self._opener = GuardedWalk(self._closed)

    def is_closed(self, known: os.stat_result) -> bool:
        """True if a folder is one that nothing may be opened in."""
        return identity(known) in self._closed

    @property
    def guards(self) -> bool:
        """True if some folder below the root is closed."""
        return bool(self._closed)

    def names(self, path: str, *, follow: bool = True) -> Names:
        """The names of a path that a model wrote; links inside the root are followed where that is allowed.

        Without `follow` none is: the path is one whose links were followed before.

        Raises:
            PathRefusedError: by its form alone it does not lie below the root.
            ToolError: the root is gone, or a link leads out of it.
        """
        names = names_of(path, roots=self.paths, windows=sys.platform == "win32")
        if self.descriptor < 0:
            raise ToolError("The file tools were closed; nothing can be opened any more.")
        if os.fstat(self.descriptor).st_nlink == 0:
            raise ToolError(
                "The root folder was deleted, so there is nothing to work in any more. Start again in a new one."
            )
        if self._awaited is not None:
            self.keep_out_of(self._awaited)
        if self._links and follow:
            try:
                return Names(resolve_links(self.descriptor, names.names), names.folder)
            except OSError as error:
                raise self.sentence(names.names, error) from error
        return names

    # Opening -------------------------------------------------------------------------------------------------------------

    def open_raw(self, names: Sequence[str], flags: int) -> int:
        """A descriptor for whatever is there. Raises `OSError`."""
        return self._opener(self.descriptor, names, flags)

    def open_file(self, names: Names) -> tuple[int, os.stat_result]:
        """A regular file for reading, and what is known of it.

        Raises:
            ToolError: there is none, or it is not one that may be read.
        """
        if names.folder or not names.names:
            raise ToolError(self._folder_sentence(names))
        try:
            descriptor = self.open_raw(names.names, os.O_RDONLY)
        except OSError as error:
            raise self.sentence(names.names, error) from error
        try:
            known = os.fstat(descriptor)
            self.require_regular(names, known)
            self.require_one_link(names, known)
        except BaseException:
            let_go(descriptor)
            raise
        return descriptor, known

    def open_folder(self, names: Names) -> int:
        """A folder for listing.

        Raises:
            ToolError: there is none.
        """
        try:
            return self.open_raw(names.names, os.O_RDONLY | DIRECTORY)
        except OSError as error:
            raise self.sentence(names.names, error, folder=True) from error

    def make_folder(self, names: Sequence[str]) -> tuple[int, list[tuple[str, ...]]]:
        """A folder, made with all that leads to it if need be, and the folders that were made, outermost first.

        Raises:
            ToolError: something on the way is no folder, or may not be made.
        """
        made: list[tuple[str, ...]] = []
        try:
            try:
                return self.open_raw(names, os.O_RDONLY | DIRECTORY), made
            except FileNotFoundError:
                self._make_missing(names, made)
                return self.open_raw(names, os.O_RDONLY | DIRECTORY), made
        except OSError as error:
            self.remove_folders(made)
            raise self.sentence(names, error, folder=True) from error

    def _make_missing(self, names: Sequence[str], made: list[tuple[str, ...]]) -> None:
        for count in range(1, len(names) + 1):
            with contextlib.suppress(FileNotFoundError):
                let_go(self.open_raw(names[:count], PASSING | DIRECTORY))
                continue
            above = self.open_raw(names[: count - 1], os.O_RDONLY | DIRECTORY)
            try:
                # Another call may have made it meanwhile; what counts is that it can be opened as a folder afterwards.
                with contextlib.suppress(FileExistsError):
                    os.mkdir(names[count - 1], 0o777, dir_fd=above)
                    made.append(tuple(names[:count]))
                os.fsync(above)
            finally:
                let_go(above)

    def remove_folders(self, made: Sequence[tuple[str, ...]]) -> None:
        """Remove folders that were made in vain; those that hold something by now stay."""
        for names in reversed(made):
            with contextlib.suppress(OSError):
                above = self.open_raw(names[:-1], PASSING | DIRECTORY)
                try:
                    os.rmdir(names[-1], dir_fd=above)
                finally:
                    let_go(above)

    def is_still(self, names: Sequence[str], descriptor: int) -> bool:
        """True if the names still lead to the folder that is open: it may have been moved out of the root."""
        try:
            again = self.open_raw(names, PASSING | DIRECTORY)
        except OSError:
            return False
        try:
            return os.path.sameopenfile(again, descriptor)
        finally:
            let_go(again)

    # What is not opened --------------------------------------------------------------------------------------------------

    def require_regular(self, names: Names, known: os.stat_result) -> None:
        """Raise `ToolError` for folders, pipes, sockets and devices."""
        if stat.S_ISDIR(known.st_mode):
            raise ToolError(self._folder_sentence(names))
        if not stat.S_ISREG(known.st_mode):
            raise ToolError(_special_sentence(names.text, known.st_mode))

    def require_one_link(self, names: Names, known: os.stat_result) -> None:
        """Raise `ToolError` for a file that has other names, which may lie outside the root."""
        if known.st_nlink > 1 and not self._hard_links:
            raise ToolError(
                f"{shown(names.text)} has {known.st_nlink} hard links, so it may also be a file outside the root, and is "
                "not read. (The program can allow it: FileTools(root, hard_links=True).)"
            )

    def _folder_sentence(self, names: Names) -> str:
        if names.names and names.folder:
            with contextlib.suppress(OSError):
                descriptor = self.open_raw(names.names, PASSING)
                mode = os.fstat(descriptor).st_mode
                let_go(descriptor)
                if stat.S_ISLNK(mode):
                    return str(self.sentence(names.names, OSError(errno.ELOOP, "")))
                if not stat.S_ISDIR(mode):
                    return f"{shown(names.text + '/')} ends with '/', but {shown(names.text)} is a file."
        return f"{shown(names.text)} is a folder, not a file; list_files shows what is in it."

    def sentence(self, names: Sequence[str], error: OSError, *, folder: bool = False) -> ToolError:
        """The sentence for an error of opening `names`: which of the names, and why."""
        at, known = self._first_odd(names)
        here = "/".join(at) or "."
        if known is not None and stat.S_ISLNK(known.st_mode):
            return ToolError(f"{shown(here)} is a symbolic link; links are not followed. Use the path of the file itself.")
        if error.errno == errno.EXDEV:
            return ToolError(f"{shown('/'.join(names))} leads out of the root by a link, and is not opened.")
        if error.errno == errno.ELOOP:
            return ToolError(f"{shown('/'.join(names))} goes through a link; links are not followed.")
        if known is not None and not stat.S_ISDIR(known.st_mode) and (len(at) < len(names) or folder):
            kind = "file" if stat.S_ISREG(known.st_mode) else _kind(known.st_mode)
            hint = "; read_file reads it." if len(at) == len(names) and stat.S_ISREG(known.st_mode) else "."
            return ToolError(f"{shown(here)} is a {kind}, not a folder{hint}")
        if known is not None and not stat.S_ISREG(known.st_mode) and not stat.S_ISDIR(known.st_mode):
            return ToolError(_special_sentence(here, known.st_mode))
        if error.errno == errno.ENOENT:
            what = "folder" if folder or len(at) < len(names) else "file"
            return ToolError(f"There is no {what} {shown(here)}.{self._similar_name(at)}")
        return ToolError(f"{shown('/'.join(names) or '.')} cannot be opened: {reason_of(error)}")

    def _first_odd(self, names: Sequence[str]) -> tuple[tuple[str, ...], os.stat_result | None]:
        """The names up to the first that is missing or no folder, and what is known of it. For sentences only."""
        for count in range(1, len(names) + 1):
            try:
                above = walk_open(self.descriptor, names[: count - 1], PASSING | DIRECTORY)
            except OSError:
                return tuple(names[: max(count - 1, 1)]), None
            try:
                known = os.stat(names[count - 1], dir_fd=above, follow_symlinks=False)
            except OSError:
                return tuple(names[:count]), None
            finally:
                let_go(above)
            if not stat.S_ISDIR(known.st_mode):
                return tuple(names[:count]), known
        return tuple(names), None

    def _similar_name(self, names: Sequence[str]) -> str:
        """A name beside the missing one that differs only in case or in how its letters are composed."""
        with contextlib.suppress(OSError, IndexError):
            above = self.open_raw(names[:-1], os.O_RDONLY | DIRECTORY)
            try:
                with os.scandir(above) as entries:
                    for entry, _ in zip(entries, range(10_000), strict=False):
                        if _folded(entry.name) == _folded(names[-1]):
                            return f" There is {shown('/'.join((*names[:-1], entry.name)))}."
            finally:
                let_go(above)
        return ""


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def reason_of(error: OSError) -> str:
    """Return the system's reason for a refusal, as the end of a sentence."""
    return _REASONS.get(error.errno or 0, f"{error.strerror or type(error).__name__}.")


_REASONS = {
    errno.EACCES: "permission denied.",
    errno.EPERM: "the system does not permit it.",
    errno.ENAMETOOLONG: "the name is too long for the file system.",
    errno.ENOSPC: "no space is left on the device.",
    getattr(errno, "EDQUOT", -1): "the disk quota is used up.",
    errno.EROFS: "the file system is read-only.",
    errno.EIO: "the device reported an input/output error.",
    errno.EMFILE: "too many files are open.",
    errno.ENXIO: "it is a pipe, a socket or a device, not a regular file.",
    errno.EFBIG: "the file would be larger than the system allows.",
}


def _kind(mode: int) -> str:
    kinds = {stat.S_IFIFO: "named pipe", stat.S_IFSOCK: "socket", stat.S_IFCHR: "device", stat.S_IFBLK: "device"}
    return kinds.get(stat.S_IFMT(mode), "special file")


def _special_sentence(path: str, mode: int) -> str:
    return f"{shown(path)} is a {_kind(mode)}, not a regular file, and is not opened."


def _climb(descriptor: int) -> Iterator[Identity]:
    """The identity of an open folder and of all folders above it, from the inside out. Closes the descriptor."""
    before: Identity | None = None
    try:
        while (here := identity(os.fstat(descriptor))) != before:
            yield here
            before = here
            above = os.open("..", PASSING | DIRECTORY | os.O_CLOEXEC, dir_fd=descriptor)
            let_go(descriptor)
            descriptor = above
    finally:
        let_go(descriptor)
