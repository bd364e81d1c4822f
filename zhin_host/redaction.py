"""Redaction: what must never be written, found in whole values and in text that comes in pieces (ADR 0008)."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import orjson
import regex

from zhin_host.errors import StartupError

MARK: Final = "[redacted]"
"""What stands for what was found."""

OFF: Final = "off"
"""In place of a pattern: the patterns of KEYS are not looked for."""

_FRESH: Final = (
    r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))"  # no word goes on here; JSON within JSON writes its line ends so
)
KEYS: Final = {  # what each finds -> (how it begins: three characters or classes, the first a character; the pattern)
    "bearer tokens": (
        ("b[Ee][Aa]", "B[Ee][Aa]"),
        _FRESH + r"[Bb][Ee][Aa][Rr][Ee][Rr] +(?=[A-Za-z._~+/=-]*[0-9])[A-Za-z0-9._~+/-]{8,}=*",
    ),
    "keys of OpenAI, Anthropic and others": (("sk-",), _FRESH + r"sk-[A-Za-z0-9_-]{16,}"),
    "GitHub tokens": (
        ("gh[pousr]", "git"),
        _FRESH + r"(?:gh[pousr]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{16,})",
    ),
    "GitLab tokens": (("glp",), _FRESH + r"glpat-[A-Za-z0-9_-]{16,}"),
    "AWS access keys": (("A[KS]I",), _FRESH + r"A[KS]IA[A-Z0-9]{16,}"),
    "Google API keys": (("AIz",), _FRESH + r"AIza[A-Za-z0-9_-]{30,}"),
    "Slack tokens": (("xox",), _FRESH + r"xox[a-z]-[A-Za-z0-9-]{10,}"),
    "JSON Web Tokens": (("eyJ",), _FRESH + r"eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){2,4}"),
    "private keys": (
        ("---",),
        (
            r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----(?:(?!-----END)[\s\S]){0,16384}"
            r"(?:-----END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----)?"
        ),
    ),
}

HELD_MAX: Final = 256
"""Characters that may turn out to be a key and are held back; of more, the first are told."""

_CONTEXT: Final = 64  # characters kept for a pattern that looks behind
_REMEMBERED_MAX: Final = 1 << 16  # a candidate longer than that is none any more
_LONG: Final = 1_024  # one longer than that is looked at again when it has grown by an eighth
_FLAGS = re.compile(r"\(\?([aimsux]+)\)")
_HEAD = re.compile(r"(?:\\b)?([A-Za-z0-9_-]{3})(?![?*+{])[^|]*")
_PART = re.compile(r"\[[^]]*\]|.")


class Redactor:
    """Replaces what its patterns match by MARK. What it has replaced once it leaves as it is.

    Args:
        patterns: Regular expressions to look for beside KEYS; OFF among them: instead of KEYS.

    Raises:
        StartupError: One is no regular expression, or matches nothing at all; it is named by its place, since it may
            hold what must not be told.
    """

    def __init__(self, patterns: Sequence[str] = ()) -> None:
        keys = {} if OFF in patterns else KEYS
        own = [_checked(pattern, at) for at, pattern in enumerate(patterns, 1) if pattern != OFF]
        found = [*(pattern for _, pattern in keys.values()), *own]
        self.is_on = bool(found)
        # In each alternative of (?|…) \1 is its own first group.
        self.pattern = regex.compile(
            "(?|" + "|".join(f"(?:{pattern})" for pattern in found or ["(?!)"]) + ")"
        )
        # Where a match may begin that is not over yet: one that ends with the text, or that the text breaks off.
        self.unfinished = regex.compile(rf"(?:{self.pattern.pattern})\Z[\s\S]")
        heads = [head for begins, _ in keys.values() for head in begins]
        known = [_HEAD.fullmatch(pattern) for pattern in own]
        heads += [match[1] for match in known if match is not None]
        # Without what no match can be, and without what none can begin, where that is known: far faster to look for.
        is_known = None not in known
        self._has = re.compile("|".join(heads)) if is_known else None
        self.may_begin = re.compile("|".join(map(_begun, heads)) if is_known else r"[\s\S]")

    def text(self, text: str) -> str:
        """The text with every match replaced, until there is none: once more changes nothing."""
        if not self.is_on or (self._has is not None and self._has.search(text) is None):
            return text
        before, redacted = "", text
        while redacted != before:  # it ends: each time there is less beside MARK
            before, redacted = redacted, "".join(self._parts(redacted))
        return text if redacted == text else redacted

    def _parts(self, text: str) -> Iterator[str]:
        at = told = 0
        while (start := self._next(text, at)) is not None:
            if told and start == told:  # nothing of a word stands before it any more
                behind = self.pattern.match(MARK + text[start : start + _REMEMBERED_MAX], len(MARK))
                end = None if behind is None else start + behind.end() - len(MARK)
            else:
                match = self.pattern.match(text, start)
                end = None if match is None else match.end()
            if end is None:
                at = start + 1
            elif (skipped := behind_nothing(text, start, end)) is not None:
                at = skipped
            else:
                yield text[told:start]
                yield MARK
                at = told = end
        yield text[told:]

    def _next(self, text: str, at: int) -> int | None:
        """Where the next match may begin."""
        found = self.pattern.search(text, at) if self._has is None else self._has.search(text, at)
        return None if found is None else found.start()

    def form(self, value: Any) -> Any:
        """A JSON value with every string and every object's key as `text` has it; the same value if nothing matches."""
        if not self.is_on or not isinstance(value, str | dict | list):
            return value
        if isinstance(value, str):
            return self.text(value)
        if self._has is not None and self._has.search(orjson.dumps(value).decode()) is None:
            return value  # nothing that a match begins with is written otherwise in JSON
        changed = self._walked(value)
        return value if changed == value else changed

    def _walked(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self._walked(item) for item in value]
        if not isinstance(value, dict):
            return value
        walked: dict[str, Any] = {}
        for key, item in value.items():
            name = first = self.text(key)
            count = 1
            while name in walked or (name != key and name in value):  # no two keys may become one
                count += 1
                name = f"{first}{count}"
            walked[name] = self._walked(item)
        return walked


class HeldText:
    """Text that comes in pieces, redacted as if it had come as one.

    What may be the beginning of a match is held back until more text, or `flush`, decides: of a key that was cut into
    pieces nothing slips through. Ordinary words are no such beginning and are not held.

    All pieces together give what `Redactor.text` gives of the whole, but that a flush tells what was held until then,
    and that a beginning of more than `held_max` characters is told as far as it is longer. Should it turn out to be
    one of a key after all, the rest of that is not told.
    """

    __slots__ = ("_again", "_at", "_held_max", "_is_marked", "_redactor", "_sent", "_text")

    def __init__(self, redactor: Redactor, held_max: int = HELD_MAX) -> None:
        self._redactor = redactor
        self._held_max = held_max
        self._text = ""  # what a match may still need: some context, then what is not decided
        self._at = 0  # where in it what is not decided begins
        self._sent = 0  # how far it is told; beyond `_at` after a flush
        self._is_marked = False  # of what is not decided, MARK has been told
        self._again = 0  # how long what is not decided must be to be looked at again

    def __bool__(self) -> bool:
        return self._sent < len(self._text)

    def add(self, text: str) -> str:
        """Take one more piece; what may be told now."""
        redactor = self._redactor
        if not redactor.is_on:
            return text
        if self._at == len(self._text) and redactor.may_begin.search(text) is None:
            self._text = (self._text + text)[-_CONTEXT:]
            self._at = self._sent = len(self._text)
            return text
        self._text += text
        if len(self._text) - self._at < self._again:
            return ""
        return "".join(self._decided())

    def flush(self) -> str:
        """What was held back, redacted as if the text ended here; more of it may come all the same."""
        if not self:
            return ""
        told = [*self._decided()]
        is_marked = self._is_marked
        for match in self._redactor.pattern.finditer(self._text, self._at):
            if behind_nothing(self._text, *match.span()) is None:
                told += self._tell(*match.span())
                is_marked = is_marked or match.start() == self._at
        told.append(self._text[self._sent :])
        self._sent, self._is_marked = len(self._text), is_marked
        return "".join(told)

    def skip(self, text: str) -> None:
        """Take a piece that was told before."""
        self.add(text)
        self.flush()

    def _decided(self) -> Iterator[str]:
        """Tell what no further text can change, and hold the rest."""
        redactor, at = self._redactor, self._at
        while True:
            head = redactor.may_begin.search(self._text, at)
            begins = len(self._text) if head is None else head.start()
            if head is None or redactor.unfinished.match(self._text, begins, partial=True) is not None:
                break
            match = redactor.pattern.match(self._text, begins)
            if match is None:
                at = begins + 1
            elif (behind := behind_nothing(self._text, *match.span())) is not None:
                at = behind
            else:
                yield from self._tell(*match.span())
                self._replace(*match.span())
                at = self._at
        if begins > self._sent:
            yield self._text[self._sent : begins]
            self._sent = begins
        self._is_marked = self._is_marked and begins == self._at
        self._at = begins
        yield from self._overlong()
        self._forget()

    def _tell(self, start: int, end: int) -> Iterator[str]:
        """The text up to a match that is over, and MARK for it, as far as they were not told."""
        if start > self._sent:
            yield self._text[self._sent : start]
        if end > self._sent:
            if not (self._is_marked and start <= self._at):
                yield MARK
            self._sent = end

    def _replace(self, start: int, end: int) -> None:
        """Have what follows a match stand behind MARK, as it does where it is told."""
        before = self._text[max(0, start - _CONTEXT) : start] + MARK
        self._sent = len(before) + self._sent - end
        self._text = before + self._text[end:]
        self._at = len(before)
        self._is_marked = False

    def _overlong(self) -> Iterator[str]:
        """Tell of what is held what there is too much of: nothing, where it is a match already."""
        end = len(self._text)
        held = end - self._at
        if held <= self._held_max:
            return
        is_match = self._is_marked or self._redactor.pattern.match(self._text, self._at) is not None
        told_to = end - self._held_max
        if held > _REMEMBERED_MAX:  # it is no candidate any more
            if is_match and not self._is_marked:
                yield MARK
            told_to = self._at = end
            self._is_marked = False
        if not is_match and self._sent < told_to:
            yield self._text[self._sent : told_to]
        if not is_match or self._at == end:
            self._sent = max(self._sent, told_to)

    def _forget(self) -> None:
        """Keep only what a match may need."""
        cut = max(0, self._at - _CONTEXT)
        self._text = self._text[cut:]
        self._at -= cut
        self._sent -= cut
        held = len(self._text) - self._at
        self._again = held + held // 8 if held > _LONG else 0


def behind_nothing(text: str, start: int, end: int) -> int | None:
    """Where to look on behind a match that hides nothing: an empty one, or one that begins within a MARK."""
    mark = text.find(MARK, max(0, start - len(MARK) + 1), start + len(MARK))
    if mark != -1:
        return mark + len(MARK)
    return end + 1 if start == end else None


@functools.lru_cache(64)
def redactor_of(patterns: tuple[str, ...]) -> Redactor:
    """The redactor of a setting, made once. Raises as Redactor does."""
    return Redactor(patterns)


def _checked(pattern: str, at: int) -> str:
    """One's own pattern in a form that may stand among others; its flags are its own."""
    flags = _FLAGS.match(pattern)
    scoped = pattern
    if flags is not None:
        line_end = "\n" if "x" in flags[1] else ""  # behind a comment
        scoped = f"(?{flags[1]}:{pattern[flags.end() :]}{line_end})"
    try:
        is_empty = regex.compile(scoped).fullmatch("") is not None
    except (regex.error, ValueError) as error:
        raise StartupError(f"Pattern {at} of redact is no regular expression: {error}.") from None
    if is_empty:
        raise StartupError(f"Pattern {at} of redact matches the empty text; say what it must hold.")
    return scoped


def _begun(head: str) -> str:
    """Finds what a head begins, also where the text ends within it."""
    first, second, third = _PART.findall(head)
    return rf"{first}(?:\Z|{second}(?:\Z|{third}))"
