"""How a command ends: whatever happens, at most one line on stderr and an exit code.

    0     done
    1     an error that the user can fix, an assay that failed, or a requirement that is not met
    2     the command line could not be read
    3     a requirement is undecided, and none fails
    70    a fault in zscope; its traceback is saved in a file that the line names
    130   stopped by Ctrl-C
    141   the reader of the output (head, less) has closed the pipe
    143   stopped by SIGTERM or SIGHUP

Characters that the terminal cannot show are replaced. A closed stderr discards what is printed; a
closed stdout too, which is said at the end, as of a full one.
A message that cannot be shown on stderr never stops the work.
"""

import errno
import io
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO, cast

from zscope.errors import Terminated, ZscopeError

__all__ = ["end", "run"]

STOPPED = "zscope: stopped."
LONGEST = 2000  # letters of a message: the first and the last of more


def run(command: Callable[[], None]) -> int:
    """Run a command, print how it ended if it did not end well, and return its exit code."""
    # Where its cache may not be written, matplotlib warns in five lines, and goes on.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    with open_streams():
        signals: list[int] = []
        try:
            with raise_on_signals(signals):
                code, line = end(command)
        except KeyboardInterrupt as late:
            code, line = _interrupted(late)
        if signals:  # also where a loop ends on any interrupt as if all were well
            code = 143
        try:
            sys.stdout.flush()
        except OSError as error:
            code, line = _unprintable(error)
        except KeyboardInterrupt as late:
            code, line = _interrupted(late)
        if code == 0 and isinstance(sys.stdout, _Closed) and sys.stdout.lost:
            code, line = _unprintable(OSError(errno.EBADF, "standard output is closed"))
        if line:
            print(line, file=sys.stderr)
        sys.stderr.flush()
        return code


def end(command: Callable[[], None]) -> tuple[int, str]:
    """The exit code of a command, and what there is to say about it."""
    try:
        command()
    except SystemExit as exit_:
        # Typer turns an interrupt and a closed pipe into exit codes of its own, and drops the
        # message, which may say how to resume.
        for cause in _contexts(exit_):
            if isinstance(cause, KeyboardInterrupt | BrokenPipeError):
                return _explain(cause)
        code = exit_.code if isinstance(exit_.code, int) else int(exit_.code is not None)
        return code, ""
    except (Exception, KeyboardInterrupt) as error:
        return _explain(error)
    return 0, ""


def _explain(error: BaseException) -> tuple[int, str]:
    if isinstance(error, KeyboardInterrupt):
        return _interrupted(error)
    if isinstance(error, BrokenPipeError):
        return _unprintable(error)
    if isinstance(error, ZscopeError):
        return 1, _line(str(error))
    return _unexpected(error)


def _contexts(error: BaseException | None) -> Iterator[BaseException]:
    """An exception, and those that were being handled when it was raised."""
    while error is not None:
        yield error
        error = error.__context__


def _interrupted(interrupt: KeyboardInterrupt) -> tuple[int, str]:
    # A search that was interrupted while it trained raises another one, which says how to go on.
    terminated = any(isinstance(each, Terminated) for each in _contexts(interrupt))
    return 143 if terminated else 130, _line(str(interrupt)) or STOPPED


def _unexpected(error: BaseException) -> tuple[int, str]:
    """What is not an error of zscope: the machine's, or a fault."""
    text = _line(str(error))
    if isinstance(error, OSError):
        try:
            sys.stdout.flush()
        except OSError as refused:
            return _unprintable(refused)
        place = "" if error.filename is None else f"{_short(str(error.filename))}: "
        return 1, _line(f"zscope: {place}{error.strerror or text}. {_cause(error)}")
    if isinstance(error, MemoryError) or "allocate memory" in text or "out of memory" in text:
        return 1, (
            f"zscope: there is not enough memory{f' ({_short(text)})' if text else ''}. Is the "
            "model or the dataset very large? Use fewer samples or a smaller batch, or a machine "
            "with more memory."
        )
    if isinstance(error, RecursionError):
        return 1, (
            f"zscope: something is nested too deeply ({_short(text)}). Is a file damaged, or does "
            "the model call itself? Try another file or model."
        )
    return 70, (
        f"zscope: {type(error).__name__}: {_short(text)}. This is a fault in zscope, or in the "
        f"model it called: please report it with the traceback, {_save_traceback(error)}."
    )


def _cause(error: OSError) -> str:
    from zscope.files import likely_cause

    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ESTALE):
        return "Was it, or the folder you are in, moved or deleted?"
    if error.errno in (errno.EACCES, errno.EPERM):
        return "You may not use it: ask its owner, or choose another place."
    return likely_cause(error)


def _save_traceback(error: BaseException) -> str:
    """Where the traceback of a fault is."""
    import tempfile
    import traceback

    try:
        handle, path = tempfile.mkstemp(prefix="zscope-traceback-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
            file.writelines(traceback.format_exception(error))
    except OSError:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"which could not be saved; it ends in {last.filename}, line {last.lineno}"
    return f"which is in {path}"


def _unprintable(error: OSError) -> tuple[int, str]:
    """The exit code where the output could not be printed, and what to say."""
    _discard(sys.stdout)
    if error.errno == errno.EPIPE:
        return 141, ""
    return 1, (
        f"zscope: the output could not be printed ({error.strerror or error}). Is the disk it goes "
        "to full, or was it closed? Send it somewhere else; what was to be saved is saved."
    )


def _line(text: str) -> str:
    """One line that can be read, whatever names and values are in it."""
    line = "".join(mark if mark.isprintable() else "?" for mark in " ".join(text.split()))
    return line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} … {line[-LONGEST // 2 :]}"


def _short(text: str, limit: int = 300) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


@contextmanager
def raise_on_signals(seen: list[int]) -> Iterator[None]:
    """Let SIGTERM and SIGHUP do what Ctrl-C does, so that files and locks are cleaned up.

    A second one ends the process at once. Signals that are ignored (nohup) stay ignored.
    """
    handled = [signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]

    def handle(number: int, frame: Any) -> None:
        seen.append(number)
        signal.signal(number, signal.SIG_DFL)
        raise Terminated

    before = {}
    with suppress(ValueError):  # not the main thread, which alone gets signals
        for number in handled:
            if signal.getsignal(number) != signal.SIG_IGN:
                before[number] = signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def open_streams() -> Iterator[None]:
    """Streams that take any text, also where they were closed or know only ASCII."""
    before = sys.stdin, sys.stdout, sys.stderr
    # Numbers that were closed are taken by the next files to be opened: a library that prints
    # on them would write into a checkpoint.
    while (handle := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(handle)
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            reading = name == "stdin"
            setattr(sys, name, open(os.devnull) if reading else _Closed(open(os.devnull, "wb")))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    sys.stderr = cast(TextIO, _Messages(sys.stderr))
    try:
        yield
    finally:
        sys.stdin, sys.stdout, sys.stderr = before


class _Closed(io.TextIOWrapper):
    """In place of a stream that was closed; knows whether something was to be printed."""

    lost = False

    def write(self, text: str) -> int:
        self.lost = self.lost or bool(text)
        return super().write(text)


class _Messages:
    """stderr, without its errors."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            self._stream.write(text)
        except OSError:
            _discard(self._stream)
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            _discard(self._stream)


def _discard(stream: Any) -> None:
    """Let what a stream still holds, and all that follows, go nowhere."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
        stream.flush()
