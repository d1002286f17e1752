"""The command line of nearfar: parses, calls, prints. A module for each group of commands."""

import contextlib
import sys
import warnings
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import typer

from nearfar import __version__
from nearfar.cli.data import ingest, sample, synthesize
from nearfar.cli.metrics import evaluate, search, transform
from nearfar.cli.options import note
from nearfar.cli.reports import report, watch
from nearfar.cli.simulating import simulate
from nearfar.cli.stopping import StoppableGroup, Stopped, stopped_by_signals
from nearfar.cli.studies import reproduce
from nearfar.cli.training import demo, plan, train
from nearfar.errors import Diverged, InvalidInput, MissingExtra, NearfarError

app = typer.Typer(
    cls=StoppableGroup,
    help="Learn a distance from examples of what is near and what is far.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for _command in (
    demo,
    ingest,
    synthesize,
    sample,
    train,
    plan,
    simulate,
    evaluate,
    transform,
    search,
    report,
    watch,
    reproduce,
):  # the order of --help
    app.command()(_command)


_WRONGLY_GIVEN = (InvalidInput, MissingExtra, Diverged)
"""What ends in exit code 2: it takes other input, an extra or another step size; 1 is for what may go well again."""
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]
"""What typer raises on a command line that it cannot parse; it has no public name."""


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"nearfar {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", help="Say which version this is.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """What may be given before a command."""


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    note([str(message)])


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; what was wrong ends in one line and exit code 1 or 2, never in a traceback."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    with warnings.catch_warnings(), stopped_by_signals():
        warnings.showwarning = _show_warning
        try:
            sys.exit(app(given or ["--help"], prog_name="nearfar", standalone_mode=False))
        except Stopped as stop:
            _end("stopped; nothing is left half-written", 128 + stop.number)
        except NearfarError as error:
            _fail(str(error), 2 if isinstance(error, _WRONGLY_GIVEN) else 1)
        except _UsageError as error:
            _fail(_usage_fault(error), 2)
        except OSError as error:
            _fail(*_system_fault(error))
        except MemoryError as error:
            _fail(f"memory is used up{f' ({error})' if str(error) else ''}; free some, or give less at once", 1)
        except (EOFError, typer.Abort):
            _fail("what was read ended before it should; look for a file that was cut short", 1)


def _system_fault(error: OSError) -> tuple[str, int]:
    reason = error.strerror or str(error) or type(error).__name__
    if error.filename is None:
        return reason, 1
    return f"{error.filename}: {reason}; choose a path that can be read and written", 2  # it cannot even be looked at


def _usage_fault(error: Any) -> str:
    fault = error.format_message().rstrip(".").replace("Value error, ", "")
    return f"{fault[:1].lower()}{fault[1:]}; see {error.ctx.command_path if error.ctx else 'nearfar'} --help"


def _fail(fault: str, code: int) -> NoReturn:
    _end(f"error: {' '.join(fault.split())}", code)


def _end(line: str, code: int) -> NoReturn:
    with contextlib.suppress(OSError):  # the terminal may be gone
        print(line, file=sys.stderr)
    sys.exit(code)
