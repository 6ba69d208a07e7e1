"""A broker process that can be killed and restarted on the same folder and port."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

_START_LINES_MAX = 50


class KillableBroker:
    """The broker leads a session with the processes it starts, which are not killed with it."""

    def __init__(
        self,
        data: Path,
        settings: tuple[str, ...] = (),
        *,
        log: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Without a log file, the log is beside the data folder."""
        self._data = data
        self._settings = [word for setting in settings for word in ("--set", setting)]
        self._log = log or Path(f"{data}.log")
        self._environment = environment
        self._process: subprocess.Popen[str] | None = None
        self._port = self._http_port = 0
        self.service_url = self.http_url = ""
        self.options: list[str] = []
        """More options of the next start."""

    def start(self) -> None:
        """Returns when the broker serves."""
        command = [sys.executable, "-m", "magnetar", "standalone", "--data", str(self._data)]
        command += ["--port", str(self._port), "--http-port", str(self._http_port), *self._settings, *self.options]
        with ExitStack() as stack:
            self._process = subprocess.Popen(
                command,
                start_new_session=True,
                env=self._environment,
                stdout=subprocess.PIPE,
                stderr=stack.enter_context(self._log.open("a")),
                text=True,
            )
        assert self._process.stdout is not None
        lines = []
        for line in self._process.stdout:
            lines.append(line)
            if line.startswith("ready "):
                _, self.service_url, self.http_url = line.split()
                # The first start chose the ports; clients reconnect there from now on.
                self._port, self._http_port = (urlsplit(url).port or 0 for url in (self.service_url, self.http_url))
                return
            if len(lines) > _START_LINES_MAX:
                break
        self.kill()
        raise AssertionError(f"the broker did not start:\n{''.join(lines)}{self._log.read_text()}")

    @property
    def process_id(self) -> int:
        """The id of the broker and of its session."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """SIGKILL: no signal handler, no flush, no shutdown."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None
