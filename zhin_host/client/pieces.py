"""Pieces: text that is added to and cut back, and never changed in place."""

from __future__ import annotations

from dataclasses import dataclass

Block = tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class Pieces:
    """Deltas with the index of the event each came in, ascending.

    They lie in blocks whose sizes fall, two of a size becoming one: so adding one to n costs log n on average, where
    one tuple would cost n and one string the whole text.
    """

    blocks: tuple[Block, ...] = ()

    @property
    def text(self) -> str:
        """All of them, one behind the other."""
        return "".join(delta for block in self.blocks for _, delta in block)

    def __bool__(self) -> bool:
        return bool(self.blocks)

    def add(self, index: int, delta: str) -> Pieces:
        """These and one more."""
        blocks: tuple[Block, ...] = self.blocks
        last: Block = ((index, delta),)
        while blocks and len(blocks[-1]) <= len(last):
            blocks, last = blocks[:-1], blocks[-1] + last
        return Pieces((*blocks, last))

    def before(self, index: int) -> Pieces:
        """Those of events before `index`."""
        cut = (tuple(row for row in block if row[0] < index) for block in self.blocks)
        return Pieces(tuple(block for block in cut if block))
