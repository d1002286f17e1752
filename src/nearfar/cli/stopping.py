"""How Ctrl-C, SIGTERM and the loss of its terminal end a command: as an error does, so that it cleans up."""

import contextlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Any

from typer.core import TyperGroup

_SECONDS_UNTIL_AGAIN = 0.01
_STOPPING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Stopped(BaseException):
    """A signal ended the command; like KeyboardInterrupt no Exception, so that nothing takes it for a fault."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class StoppableGroup(TyperGroup):
    """Commands that Ctrl-C ends by :class:`Stopped`, unless they take KeyboardInterrupt themselves."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise Stopped(signal.SIGINT) from error


@contextlib.contextmanager
def stopped_by_signals() -> Iterator[None]:
    """The first signal to stop raises KeyboardInterrupt (SIGINT) or :class:`Stopped`; those after it are passed over.

    So nothing ends the cleaning up before it is done. A signal that was ignored before stays so, as under nohup.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _STOPPING}
    heeded = {number: handler for number, handler in before.items() if handler not in (signal.SIG_IGN, None)}
    is_stopping = False

    def stop(number: int, _frame: FrameType | None) -> None:
        nonlocal is_stopping
        if not is_stopping:
            is_stopping = True
            raise KeyboardInterrupt if number == signal.SIGINT else Stopped(number)

    def stop_again(lost: "sys.UnraisableHookArgs") -> None:
        """What is raised in a callback of compiled code, as in Numba's, is lost: the signal is sent once more."""
        nonlocal is_stopping
        if not isinstance(lost.exc_value, KeyboardInterrupt | Stopped):
            if not is_stopping:  # else it is of something that was cut short, as it is cleared away
                sys.__unraisablehook__(lost)
            return
        is_stopping = False
        number = lost.exc_value.number if isinstance(lost.exc_value, Stopped) else signal.SIGINT
        threading.Timer(_SECONDS_UNTIL_AGAIN, os.kill, (os.getpid(), number)).start()

    hook, sys.unraisablehook = sys.unraisablehook, stop_again
    for number in heeded:
        signal.signal(number, stop)
    try:
        yield
    except BaseException as error:
        if is_stopping:
            _clear_away(error)
        raise
    finally:
        sys.unraisablehook = hook
        for number, handler in heeded.items():
            signal.signal(number, handler)


def _clear_away(error: BaseException) -> None:
    """Drop what a signal has cut short while nothing is told of it: it is held by the errors that led here."""
    link: BaseException | None = error
    while link is not None:
        traceback.clear_frames(link.__traceback__)
        link = link.__context__
