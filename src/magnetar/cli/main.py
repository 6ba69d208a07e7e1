"""The entry point of the command line: picks the fast or the full parser, and prints errors as one line.

`magnetar standalone` with plain options goes straight to the broker: importing Typer takes longer than opening the
storage and listening, and tests start many brokers. All other commands, help and mistakes included, go through `app`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from magnetar.cli.nouns import standalone
from magnetar.errors import InvalidSetting, MagnetarError

FAILED = 1
MISUSED = 2
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        return _run(words)
    except InvalidSetting as error:
        _print_error(str(error))
        return MISUSED
    except MagnetarError as error:
        _print_error(str(error))
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader closed the pipe (`| head`). Buffered output must not fail at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


def _run(words: list[str]) -> int:
    if words[:1] == ["standalone"]:
        options = standalone.read_plain(words[1:])
        if options is not None:
            return standalone.start(options)
    return _run_app(words)


def _run_app(words: list[str]) -> int:
    from magnetar.cli.app import command_for
    from magnetar.cli.completion import words_to_complete

    try:
        code = command_for(words or words_to_complete(os.environ))(
            words or ["--help"], prog_name="magnetar", standalone_mode=False
        )
    except Exception as error:
        # Only Typer's own errors have this method; their class is private.
        if not hasattr(error, "format_message"):
            raise
        if message := " ".join(error.format_message().split()):  # a noun alone has shown its help
            _print_error(message)
        return MISUSED
    return code if isinstance(code, int) else 0


def _print_error(message: str) -> None:
    print(f"magnetar: {message}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
