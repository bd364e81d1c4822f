"""fs: a descriptor that several threads use is closed once, when the last of them has left."""

from __future__ import annotations

import errno

import pytest

from zhin_host.storage.fs import Descriptor, FileSystem


class Closing(FileSystem):
    """Notes which descriptors were closed."""

    def __init__(self) -> None:
        self.closed: list[int] = []

    def close_quietly(self, fd: int) -> None:
        self.closed.append(fd)


def test_a_descriptor_stays_open_for_whom_a_present_user_lets_in_and_takes_nobody_once_they_have_left() -> (
    None
):
    fs = Closing()
    descriptor = Descriptor(fs, 7)
    assert descriptor.enter() == 7
    descriptor.close()
    assert descriptor.share() == 7
    descriptor.leave()
    assert fs.closed == []
    with pytest.raises(OSError, match="closed"):
        descriptor.enter()
    descriptor.leave()
    assert fs.closed == [7]
    with pytest.raises(OSError, match="closed") as caught:
        descriptor.share()
    assert caught.value.errno == errno.EBADF
    descriptor.close()
    assert fs.closed == [7]
