"""The command line: the table of contents, and the one place where errors become a line and an exit code."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shlex
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from flatout.commands.agents import agents
from flatout.commands.apply import apply
from flatout.commands.batch_size import batch_size
from flatout.commands.cache import WithCommand, cache
from flatout.commands.calibration import calibration
from flatout.commands.ceilings import ceilings
from flatout.commands.compare import compare
from flatout.commands.explain import explain
from flatout.commands.fix import fix
from flatout.commands.infer import infer
from flatout.commands.lr_find import lr_find
from flatout.commands.mcp import mcp
from flatout.commands.memory import memory
from flatout.commands.mount import mount, unmount
from flatout.commands.plan import WithSeparator, plan
from flatout.commands.profile import profile
from flatout.commands.read import read
from flatout.commands.recipes import recipes
from flatout.commands.report import report
from flatout.commands.runs import runs
from flatout.commands.stage import stage
from flatout.commands.storage import storage
from flatout.commands.trace import trace
from flatout.commands.train import train
from flatout.commands.try_change import try_change
from flatout.commands.warning_lines import warn_in_lines
from flatout.commands.watch import watch
from flatout.errors import FlatoutError, Interrupted, UsageError
from flatout.standard_streams import STANDARD_OUTPUT, drop_output, name_standard_output, open_closed_streams
from flatout.terminal_text import one_line
from flatout.version import __version__

READER_GONE = 1
# An error of the operating system (a full disk, no permission) is reported like flatout's own errors.
ENVIRONMENT = 2
FAULT = 70  # EX_SOFTWARE of sysexits.h: a fault of flatout's own, unlike any result of a command
OUT_OF_MEMORY = "out of memory: close other programs, or raise the limit of this shell (ulimit -v) or container"
_NO_ROOM_TO_LOAD = re.compile("failed to map segment|[Cc]annot allocate memory")  # of the dynamic loader
_KEPT = 120  # characters of each end of a word that is too long to show
_LONG_WORD = re.compile(rf"\S{{{3 * _KEPT},}}")
MEASURE = "Measure"
IMPROVE = "Improve"
READ = "Read"
DATA = "Data"
TRAIN = "Train"

EXAMPLE = "Example:\n  flatout profile --steps 200 -- python train.py --epochs 1"


class Contents(TyperGroup):
    """Commands in the order and under the headings of the user's work, not of the alphabet."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write one section for each heading (``rich_help_panel``)."""
        sections: dict[str, list[tuple[str, str]]] = {}
        longest = max(map(len, self.commands))
        for name, command in self.commands.items():
            heading = str(getattr(command, "rich_help_panel", None))
            line = command.get_short_help_str(limit=formatter.width - longest - 4)
            sections.setdefault(heading, []).append((name.ljust(longest), line))
        for heading, rows in sections.items():
            with formatter.section(heading):
                formatter.write_dl(rows)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the example verbatim: a wrapped command could not be pasted."""
        formatter.write(f"\n{EXAMPLE}\n")


app = typer.Typer(
    name="flatout",
    cls=Contents,
    # Plain help: reads the same everywhere, and saves importing rich before the work is known.
    rich_markup_mode=None,
    add_completion=False,
    # A traceback is a bug in flatout: plain, so that it can be pasted into a report.
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 80},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"flatout {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def flatout(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and end.", callback=_print_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an unexpected error.")] = False,
) -> None:
    """Measure where a PyTorch training's time goes and what holds it back."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


# Options end where the user's command begins, so that its own options stay its own, also without "--".
BEFORE_COMMAND = {"allow_extra_args": True, "allow_interspersed_args": False}
app.command("profile", rich_help_panel=MEASURE, context_settings=BEFORE_COMMAND)(profile)
app.command("ceilings", rich_help_panel=MEASURE, context_settings=BEFORE_COMMAND)(ceilings)
app.command("memory", rich_help_panel=MEASURE, context_settings=BEFORE_COMMAND)(memory)
app.command("plan", rich_help_panel=MEASURE, cls=WithSeparator)(plan)
app.command("fix", rich_help_panel=IMPROVE, context_settings=BEFORE_COMMAND)(fix)
app.command("try", rich_help_panel=IMPROVE, context_settings=BEFORE_COMMAND)(try_change)
app.command("batch-size", rich_help_panel=IMPROVE, context_settings=BEFORE_COMMAND)(batch_size)
app.command("apply", rich_help_panel=IMPROVE, context_settings=BEFORE_COMMAND)(apply)
app.command("calibration", rich_help_panel=IMPROVE)(calibration)
app.command("compare", rich_help_panel=MEASURE)(compare)
app.command("watch", rich_help_panel=MEASURE)(watch)
app.command("report", rich_help_panel=READ)(report)
app.command("explain", rich_help_panel=READ)(explain)
app.command("runs", rich_help_panel=READ)(runs)
app.command("trace", rich_help_panel=READ)(trace)
app.command("read", rich_help_panel=READ)(read)
app.command("agents", rich_help_panel=READ)(agents)
app.command("mcp", rich_help_panel=READ)(mcp)
app.command("stage", rich_help_panel=DATA)(stage)
app.command("mount", rich_help_panel=DATA)(mount)
app.command("unmount", rich_help_panel=DATA)(unmount)
app.command("storage", rich_help_panel=DATA)(storage)
app.command("cache", rich_help_panel=DATA, cls=WithCommand)(cache)
app.command("recipes", rich_help_panel=TRAIN)(recipes)
app.command("train", rich_help_panel=TRAIN)(train)
app.command("lr-find", rich_help_panel=TRAIN)(lr_find)
app.command("infer", rich_help_panel=TRAIN)(infer)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: What follows the program's name; None takes it from ``sys.argv``.

    Returns:
        The exit code: 0, an error's own, 130 after Ctrl-C, 1 when the reader of the output went away, 2 when the
        machine refused something (a full disk), 70 after a fault of flatout's own.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    open_closed_streams()
    name_standard_output()
    if arguments is None:  # a process of its own
        warn_in_lines()
    try:
        _refuse_empty_paths(given)
        code = app(args=given, prog_name="flatout", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except FlatoutError as error:
        return _complain(str(error), error.exit_code)
    except typer.TyperException as error:
        wrong_number = _wrong_number(error)
        if wrong_number is not None:
            return _complain(wrong_number, error.exit_code)
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "flatout"
        message = error.format_message().rstrip(".")
        end = "" if message.endswith("?") else "."
        return _complain(f"{message}{end} See `{command} --help`.", error.exit_code)
    except Interrupted as stop:
        return _complain(stop.lost, stop.exit_code) if stop.lost else stop.exit_code
    except KeyboardInterrupt:
        return Interrupted().exit_code
    except BrokenPipeError:
        drop_output()
        return READER_GONE
    except SystemExit as stop:
        # The exception with which rich and typer end if the reader is gone.
        return stop.code if isinstance(stop.code, int) else READER_GONE
    except MemoryError:
        return _complain(OUT_OF_MEMORY, ENVIRONMENT)
    except Exception as error:
        return _unexpected(error, given)


def _wrong_number(error: typer.TyperException) -> str | None:
    """The message for an option that is not a whole number in its range; None: the error is another one."""
    parameter, cause = getattr(error, "param", None), error.__cause__
    descriptor = getattr(parameter, "type_descriptor", None)
    errors = getattr(cause, "errors", None)
    if parameter is None or getattr(descriptor, "annotation", None) is not int or errors is None:
        return None
    least, most = parameter.min, parameter.max
    if least is not None and most is not None:
        allowed = f" from {least} to {most}"
    else:
        allowed = "" if least is None else f" of at least {least}"
    seen = str(errors()[0].get("input"))
    shown = seen if len(seen) <= _KEPT else f"{seen[:_KEPT]}…"
    return f"{parameter.opts[0]} is {shown!r}, but must be a whole number{allowed}"


def _refuse_empty_paths(arguments: list[str]) -> None:
    """Refuse an empty text (a variable that is not set, mostly) where a path belongs: it would mean this folder.

    Raises:
        UsageError: an option has none.
    """
    commands: dict[str, Any] = getattr(typer.main.get_command(app), "commands", {}) if "" in arguments else {}
    command = commands.get(arguments[0]) if arguments else None
    if command is None:
        return
    options = {name: one for one in command.params if one.param_type_name == "option" for name in one.opts}
    interspersed = command.context_settings.get("allow_interspersed_args", True)
    place = 1
    while place < len(arguments) and arguments[place] != "--":
        word = arguments[place]
        option = options.get(word)
        valued = option is not None and not option.is_flag
        own_command = not word.startswith("-") and not interspersed
        if own_command:
            return
        if option is not None and option.metavar in ("FOLDER", "FILE") and arguments[place + 1 : place + 2] == [""]:
            raise UsageError(f"{word} is empty: name a file or folder, or leave it out")
        place += 2 if valued else 1


def _unexpected(error: Exception, arguments: list[str]) -> int:
    """Report an unexpected exception: one line, or with ``--debug`` the traceback."""
    # Options of the user's command are not flatout's.
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if "--debug" in own:
        traceback.print_exception(error)
    if isinstance(error, OSError) and error.errno is not None:
        said = error.strerror or type(error).__name__
        if error.filename == STANDARD_OUTPUT:
            drop_output()
            return _complain(f"{STANDARD_OUTPUT}: {said}", ENVIRONMENT)
        where = f": {os.fsdecode(error.filename)}" if isinstance(error.filename, str | bytes) else ""
        if not where and error.errno in (errno.ENOSPC, errno.EDQUOT):
            where = ": free some, or name a folder on another disk (--runs-dir, --work-dir, --output, TMPDIR)"
        return _complain(f"{said}{where}", ENVIRONMENT)
    if isinstance(error, ImportError) and _NO_ROOM_TO_LOAD.search(str(error)):
        return _complain(OUT_OF_MEMORY, ENVIRONMENT)
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{os.path.basename(last.filename)}:{last.lineno}"
    message = str(error).strip().splitlines()
    what = f"{type(error).__name__}{f': {message[0][:200]}' if message else ''} ({place})"
    again = "" if "--debug" in own else f" `flatout --debug {shlex.join(arguments)[:200]}` shows the traceback."
    return _complain(f"a fault of flatout's own, please report it: {what}.{again}", FAULT)


def _complain(message: str, exit_code: int) -> int:
    """Print an error as one line; the middle of a very long word is elided."""
    shown = _LONG_WORD.sub(lambda found: f"{found[0][:_KEPT]}…{found[0][-_KEPT:]}", one_line(message))
    with contextlib.suppress(OSError, ValueError):  # nobody reads it: the exit code still tells
        print(f"flatout: {shown}", file=sys.stderr, flush=True)
    return exit_code
