"""How every command reads its flags, and how it ends.

Exit status: 0 done, 1 a run that failed, 2 wrong usage. One line says what failed and
the cure.
"""

import json
import os
import pathlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import cv2
import jax
from absl import app, flags, logging

CONFIG = "--config."


class UsageError(ValueError):
    """Wrong usage: the message names the thing, its value and the cure, in one line."""


class Failed(Exception):
    """A run that failed but has a result: a message in one line, and the result."""

    def __init__(self, message: str, result: Mapping[str, Any]):
        super().__init__(message)
        self.result = result


def run(
    main: Callable[..., Mapping[str, Any] | None],
    configures: bool = False,
    positional: Sequence[str] = (),
) -> None:
    """Parses the command line, runs `main`, prints its result and exits.

    A ValueError or an OSError is a run that failed for a reason that its message names;
    any other exception is a mistake of the program and keeps its traceback.

    Args:
        main: is given the `--config.FIELD=VALUE` arguments, FIELD -> VALUE, and the
            positional ones; what it returns becomes one line of JSON, the last on
            stdout.
        configures: whether the command takes `--config.` arguments.
        positional: names of the arguments that every call must give without a flag;
            after a last one that is "...", more may follow.
    """

    def parse(argv):
        try:
            overrides = [a for a in argv[1:] if configures and a.startswith(CONFIG)]
            values = flags.FLAGS([a for a in argv if a not in overrides])[1:]
            wanted = [name for name in positional if name != "..."]
            surplus, missing = values[len(wanted) :], wanted[len(values) :]
            if surplus and "..." not in positional:
                raise UsageError(
                    f"{surplus[0]!r} is no flag; settings are given as --name=value"
                )
            if missing:
                raise UsageError(f"{missing[0]} is missing; give it after the command")
            return [argv[0], *values, *overrides]
        except (flags.Error, UsageError) as error:
            _end(2, error)

    def guarded(argv):
        # Names of files can have letters that the terminal does not know.
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(errors="backslashreplace")
        # Libraries report at length what the one line below says.
        logging.set_verbosity(logging.ERROR)
        cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)
        overrides = [a for a in argv[1:] if a.startswith(CONFIG)]
        values = [a for a in argv[1:] if a not in overrides]
        failure = None
        try:
            result = main(_overrides(overrides), *values)
        except Failed as error:
            result, failure = error.result, error
        except UsageError as error:
            _end(2, error)
        except (ValueError, OSError) as error:
            _end(1, error)
        except KeyboardInterrupt:
            _end(1, "stopped by the keyboard")
        if result is not None:
            print(json.dumps(result, allow_nan=False), flush=True)
        if failure:
            _end(1, failure)

    app.run(guarded, flags_parser=parse)


def make_folder(flag: str, path: pathlib.Path) -> None:
    """Makes the folder that a flag names, if it is not there.

    Raises:
        UsageError: if there cannot be one.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"--{flag}={path} cannot be made a folder ({error.strerror}); name another"
        ) from error


def use_compilation_cache() -> None:
    """Keeps compiled programs in the user's cache folder, small ones too.

    `JAX_COMPILATION_CACHE_DIR` names another folder.
    """
    if jax.config.jax_compilation_cache_dir is None:
        root = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
        folder = pathlib.Path(root) / "facekp_jax" / "xla"
        jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def _overrides(arguments):
    overrides = {}
    for argument in arguments:
        name, found, value = argument.removeprefix(CONFIG).partition("=")
        if not found:
            raise UsageError(f"{argument} has no value; write {argument}=VALUE")
        overrides[name] = value
    return overrides


def _end(status, error):
    print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
    sys.exit(status)
