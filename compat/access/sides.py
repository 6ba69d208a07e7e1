"""The two brokers with the same settings: started, asked as a caller, and their answers in the words of the matrix.

An answer is `allowed` or `refused`; a connection may be refused by itself. What else a broker says of an allowed one,
that something does not exist for example, is the subject of compat/admin. Apache Pulsar refuses with 401 or 403 as the
code of a route happens to be; ours says 401 to a client that it does not know, and 403 to one that lacks a right.
"""

from __future__ import annotations

import base64
import contextlib
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
from cast import ANONYMOUS, PROXY, SECRET, SUPER_USER, Caller, set_stage, signed
from questions import Command, Request

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from contestant import HOST, START_TIMEOUT_S, ApachePulsar, Contestant, StartFailed
from java import Java
from process import running, tail

from magnetar.wire.frames import FrameDecoder, encode_frame
from magnetar.wire.schema_pb2 import BaseCommand, ServerError

ALLOWED, REFUSED, NO_CONNECTION = "allowed", "refused", "no connection"
_REFUSALS = (ServerError.AuthenticationError, ServerError.AuthorizationError)
_AUTHENTICATION = "org.apache.pulsar.broker.authentication.AuthenticationProviderToken"


def settings() -> dict[str, str]:
    """Of both brokers."""
    return {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "authenticationProviders": _AUTHENTICATION,
        "tokenSecretKey": f"data:;base64,{base64.b64encode(SECRET).decode()}",
        "superUserRoles": SUPER_USER,
        "proxyRoles": PROXY,
        "anonymousUserRole": ANONYMOUS,
        "authorizationAllowWildcardsMatching": "true",
        "authenticateMetricsEndpoint": "true",
        "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
        "brokerClientAuthenticationParameters": f"token:{signed(SUPER_USER, SECRET)}",
        "brokerDeleteInactiveTopicsEnabled": "false",
    }


@dataclass
class Side:
    """A running broker."""

    name: str
    port: int
    http: httpx.Client

    def admin(self, method: str, path: str, body: object = None) -> None:
        headers = {"Authorization": f"Bearer {signed(SUPER_USER, SECRET)}", "Content-Type": "application/json"}
        answer = self.http.request(method, f"/admin/v2/{path}", json=body, headers=headers)
        assert answer.is_success, f"{method} {path} of {self.name}: {answer.status_code} {answer.text}"

    def answer(self, caller: Caller, question: Request | Command) -> str:
        if isinstance(question, Command):
            return self.commanded(caller, question)
        return self.requested(caller, question)

    def requested(self, caller: Caller, request: Request) -> str:
        return REFUSED if self.status(caller, request) in (401, 403) else ALLOWED

    def status(self, caller: Caller, request: Request) -> int:
        """The HTTP status of the answer."""
        headers = {"Content-Type": "application/json"}
        if caller.token:
            headers["Authorization"] = f"Bearer {caller.token}"
        if caller.original:
            headers["X-Original-Principal"] = caller.original
        return self.http.request(request.method, request.path, json=request.body, headers=headers).status_code

    def commanded(self, caller: Caller, command: Command) -> str:
        """The answer to a command on a connection of its own."""
        with contextlib.closing(socket.create_connection((HOST, self.port), 30)) as connection:
            connected = _answer(connection, _connect(caller))
            if connected.type == BaseCommand.ERROR:
                return NO_CONNECTION
            assert connected.type == BaseCommand.CONNECTED, connected
            return _word(_answer(connection, command.build(1)))


def _connect(caller: Caller) -> BaseCommand:
    command = BaseCommand(type=BaseCommand.CONNECT)
    command.connect.client_version, command.connect.protocol_version = "magnetar-access", 21
    if caller.token:
        command.connect.auth_method_name, command.connect.auth_data = "token", caller.token.encode()
    if caller.original:
        command.connect.original_principal = caller.original
    return command


def _answer(connection: socket.socket, command: BaseCommand) -> BaseCommand:
    """The next frame that answers; a connection that ends instead reads as an error without a code."""
    connection.sendall(encode_frame(command))
    decoder = FrameDecoder(1024 * 1024)
    while data := connection.recv(65536):
        for answer, _ in decoder.receive_data(data):
            if answer is not None and answer.type != BaseCommand.PING:
                return answer
    ended = BaseCommand(type=BaseCommand.ERROR)
    ended.error.error, ended.error.message = ServerError.UnknownError, "the broker closed the connection"
    return ended


def _word(answer: BaseCommand) -> str:
    failure: int | None = None
    if answer.type == BaseCommand.ERROR:
        failure = answer.error.error
    elif answer.type == BaseCommand.LOOKUP_RESPONSE and answer.lookupTopicResponse.HasField("error"):
        failure = answer.lookupTopicResponse.error
    elif answer.type == BaseCommand.PARTITIONED_METADATA_RESPONSE and answer.partitionMetadataResponse.HasField(
        "error"
    ):
        failure = answer.partitionMetadataResponse.error
    elif answer.type == BaseCommand.GET_SCHEMA_RESPONSE and answer.getSchemaResponse.HasField("error_code"):
        failure = answer.getSchemaResponse.error_code
    return REFUSED if failure in _REFUSALS else ALLOWED


class SecuredApache(ApachePulsar):
    """Apache Pulsar that asks every client for a token."""

    def command(self, ports: list[int]) -> list[str]:  # type: ignore[override]
        words = super().command(ports)
        with (self.folder / "standalone.conf").open("a") as file:
            file.writelines(f"{key}={value}\n" for key, value in settings().items())
        return words


class SecuredOurs(Contestant):
    name = "Magnetar"

    def command(self, ports: list[int]) -> list[str]:  # type: ignore[override]
        file = self.folder / "broker.conf"
        own = {"pipelinesEnabled": "false", **settings()}
        for key in ("brokerClientAuthenticationPlugin", "brokerClientAuthenticationParameters"):
            del own[key]  # are for clusters to replicate to
        file.write_text("".join(f"{key}={value}\n" for key, value in own.items()))
        file.chmod(0o600)
        options = {"--config": file, "--data": self.folder / "data", "--port": ports[0], "--http-port": ports[1]}
        words = [str(word) for option in options.items() for word in option]
        return [str(Path(sys.executable).parent / "magnetar"), "standalone", *words]


@contextlib.contextmanager
def serving(contestant: Contestant) -> Iterator[Side]:
    """The broker with the stage set."""
    contestant.folder.mkdir(parents=True, exist_ok=True)
    ports = _free_ports(3)
    log = contestant.folder / "log"
    command = contestant.command(ports)
    with (
        httpx.Client(base_url=f"http://{HOST}:{ports[1]}", timeout=60, trust_env=False) as http,
        running(command, log, contestant.folder) as process,
    ):
        side = Side(contestant.name, ports[0], http)
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not _serves(side):
            if process.poll() is not None or time.monotonic() > deadline_s:
                raise StartFailed(f"{contestant.name} did not serve; its log ends with:\n{tail(log)}")
            time.sleep(0.2)
        set_stage(side, "standalone")
        yield side


def _serves(side: Side) -> bool:
    headers = {"Authorization": f"Bearer {signed(SUPER_USER, SECRET)}"}
    try:
        return side.http.get("/admin/v2/namespaces/public/default", headers=headers).is_success
    except httpx.HTTPError:
        return False


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in sockets]


def apache(folder: Path, java: Java) -> SecuredApache:
    return SecuredApache(folder, java, journal_sync=False)
