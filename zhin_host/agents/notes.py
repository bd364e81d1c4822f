"""Notes: small texts by name in one folder, for the demo agent; nothing outside the folder can be named or reached."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

NOTE_BYTES_MAX: Final = 16 * 1024
NOTES_MAX: Final = 200

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_SUFFIX: Final = ".txt"
_SAFELY: Final = (
    os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
)  # O_NONBLOCK: no FIFO in a note's place holds us


class NoteError(ValueError):
    """A note cannot be read or written; the message is a sentence for a person."""


class Notes:
    """The notes of one folder, one file each. Plain calls: they touch the disk.

    Every file is reached through the folder's descriptor by a checked name, and no link is followed.

    Args:
        directory: Made, for this user alone, with the first note.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def names(self) -> list[str]:
        """The names of the notes there are, sorted, at most NOTES_MAX.

        Raises:
            NoteError: The folder cannot be read.
        """
        try:
            with self._opened() as folder, os.scandir(folder) as entries:
                found = [
                    entry.name.removesuffix(_SUFFIX)
                    for entry in entries
                    if entry.name.endswith(_SUFFIX) and entry.is_file(follow_symlinks=False)
                ]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise NoteError(f"The folder of the notes cannot be read: {error.strerror}.") from None
        return sorted(name for name in found if _NAME.fullmatch(name))[:NOTES_MAX]

    def read(self, name: str) -> str:
        """The text of a note.

        Raises:
            NoteError: The name is none, there is no such note, or what is there is no note.
        """
        file = _file_of(name)
        try:
            with self._opened() as folder:
                descriptor = os.open(file, os.O_RDONLY | _SAFELY, dir_fd=folder)
        except FileNotFoundError:
            raise NoteError(f"There is no note {name!r}.") from None
        except OSError as error:
            raise NoteError(f"The note {name!r} cannot be read: {error.strerror}.") from None
        with open(descriptor, "rb") as opened:  # noqa: PTH123 - a descriptor
            facts = os.fstat(descriptor)
            if not stat.S_ISREG(facts.st_mode) or facts.st_nlink != 1:
                raise NoteError(f"The note {name!r} is no plain file, so it is not read.")
            content = opened.read(NOTE_BYTES_MAX + 1)
        if len(content) > NOTE_BYTES_MAX:
            raise NoteError(f"The note {name!r} is over {NOTE_BYTES_MAX} bytes, so it is not read.")
        return content.decode("utf-8", "replace")

    def write(self, name: str, text: str) -> int:
        """Write a note as a whole, in place of the one that may be there; its size in bytes.

        Raises:
            NoteError: The name is none, the text too large, the folder full or not to be written to.
        """
        file, content = _file_of(name), checked_text(text)
        names = self.names()
        if len(names) >= NOTES_MAX and name not in names:
            raise NoteError(f"There are {NOTES_MAX} notes already; delete one first.")
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._opened() as folder:
                _replace(folder, file, content)
        except OSError as error:
            raise NoteError(f"The note {name!r} cannot be written: {error.strerror}.") from None
        return len(content)

    def delete(self, name: str) -> bool:
        """Remove a note; False when there was none.

        Raises:
            NoteError: The name is none, or it cannot be removed.
        """
        file = _file_of(name)
        try:
            with self._opened() as folder:
                os.unlink(file, dir_fd=folder)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise NoteError(f"The note {name!r} cannot be deleted: {error.strerror}.") from None
        return True

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        """A descriptor of the folder.

        Raises:
            OSError: There is none, or a link in its place.
        """
        folder = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | _SAFELY)
        try:
            yield folder
        finally:
            os.close(folder)


def checked_name(name: str) -> str:
    """The name itself, fit for a note.

    Raises:
        NoteError: It is none.
    """
    if _NAME.fullmatch(name) is None:
        raise NoteError(
            f"{name!r:.80} is no name for a note: use 1 to 64 of a-z, 0-9, - and _, a letter or digit first."
        )
    return name


def checked_text(text: str) -> bytes:
    """The bytes of a note's text.

    Raises:
        NoteError: There are none, or too many.
    """
    content = text.encode("utf-8", "replace")
    if not 0 < len(content) <= NOTE_BYTES_MAX:
        raise NoteError(f"A note has 1 to {NOTE_BYTES_MAX} bytes, and this one has {len(content)}.")
    return content


def _file_of(name: str) -> str:
    return checked_name(name) + _SUFFIX


def _replace(folder: int, file: str, content: bytes) -> None:
    """Write beside it, then rename: a reader sees the old text or the new one, and a link is not followed."""
    temporary = f".{secrets.token_hex(8)}.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFELY, 0o600, dir_fd=folder)
    try:
        with open(descriptor, "wb") as opened:  # noqa: PTH123 - a descriptor
            opened.write(content)
        os.replace(temporary, file, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise
