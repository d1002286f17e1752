"""How a command is stopped from outside: Ctrl-C and SIGTERM end it as an error does, so that it cleans up."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

from typer.core import TyperGroup

_SECONDS_UNTIL_AGAIN = 0.01


class Stopped(BaseException):
    """A signal ended the command; like KeyboardInterrupt no Exception, so that nothing takes it for a fault."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class StoppableGroup(TyperGroup):
    """Commands that Ctrl-C and SIGTERM end by :class:`Stopped`, unless they have handlers of their own."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            with _stopped_by_signals():
                return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise Stopped(signal.SIGINT) from error


@contextlib.contextmanager
def _stopped_by_signals() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    heeded = [number for number, handler in before.items() if handler is not signal.SIG_IGN]
    hook, sys.unraisablehook = sys.unraisablehook, _stop_again
    for number in heeded:
        signal.signal(number, _stop)
    try:
        yield
    finally:
        sys.unraisablehook = hook
        for number in heeded:
            signal.signal(number, before[number])


def _stop(number: int, _frame: FrameType | None) -> None:
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    signal.signal(number, signal.SIG_IGN)  # `timeout` and the like send it twice: nothing may stop the cleaning up
    raise Stopped(number)


def _stop_again(lost: "sys.UnraisableHookArgs") -> None:
    """What is raised in a callback of compiled code, as in Numba's, is lost: the signal is sent once more."""
    if not isinstance(lost.exc_value, KeyboardInterrupt | Stopped):
        sys.__unraisablehook__(lost)
        return
    number = lost.exc_value.number if isinstance(lost.exc_value, Stopped) else signal.SIGINT
    signal.signal(number, _stop)
    threading.Timer(_SECONDS_UNTIL_AGAIN, os.kill, (os.getpid(), number)).start()
