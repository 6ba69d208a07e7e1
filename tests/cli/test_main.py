"""The entry point of the command line: its two parsers, and errors as one line."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from typer.main import get_command

from magnetar.cli.app import app
from magnetar.cli.main import main
from magnetar.cli.nouns import standalone
from magnetar.errors import ServiceNotReady
from magnetar.log.output import stop_log
from magnetar.settings.settings import Settings
from magnetar.version import __version__


class Started:
    """A stand-in for the server: records its arguments, and can fail like it."""

    def __init__(self) -> None:
        self.settings: Settings | None = None
        self.data: Path | None = None
        self.rest: dict[str, object] = {}
        self.failure: BaseException | None = None

    def run_standalone(self, settings: Settings, data: Path, **rest: object) -> int:
        if self.failure:
            raise self.failure
        self.settings, self.data, self.rest = settings, data, rest
        rest["out"]("ready")  # type: ignore[operator]
        return 7


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    started = Started()
    module = ModuleType("magnetar.server.standalone")
    module.run_standalone = started.run_standalone  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "magnetar.server.standalone", module)
    yield started
    stop_log()


@pytest.fixture(params=["quick", "full"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both parsers must agree, so shared behaviour is tested on both."""
    if request.param == "full":
        monkeypatch.setattr(standalone, "read_plain", lambda words: None)
    return str(request.param)


@pytest.mark.usefixtures("way")
def test_without_options_all_settings_have_their_default(started: Started, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["standalone"]) == 7
    assert started.settings == Settings()
    assert started.data == Path("data/standalone")
    del started.rest["out"]
    assert started.rest == {
        "bind": "127.0.0.1",
        "port": 6650,
        "http_port": 8080,
        "secure": None,
        "console_port": None,
        "cluster": None,
        "rename_cluster": False,
        "accept_loss": False,
    }
    assert capsys.readouterr() == ("ready\n", "")


@pytest.mark.usefixtures("way")
def test_all_options_reach_the_broker(started: Started, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = f"--data {tmp_path} --port 0 --http-port=1 --cluster here --bind localhost --set maxMessageSize=2048"
    assert main(["standalone", *words.split(), "--set=defaultNumPartitions=3"]) == 7
    assert started.settings == Settings(
        brokerServicePort=0,
        webServicePort=1,
        clusterName="here",
        bindAddress="localhost",
        maxMessageSize=2048,
        defaultNumPartitions=3,
    )
    assert started.data == tmp_path
    del started.rest["out"]
    addresses = {"bind": "localhost", "port": 0, "http_port": 1}
    rest = {"cluster": "here", "rename_cluster": False, "accept_loss": False, "secure": None, "console_port": None}
    assert started.rest == {**addresses, **rest}
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--port abc", "--port: brokerServicePort=abc is not allowed: a whole number from 0 to 65535, or empty"),
        (
            "--http-port 65536",
            "--http-port: webServicePort=65536 is not allowed: a whole number from 0 to 65535, or empty",
        ),
        ("--port=", "--port is empty"),
        ("--secure=", "--secure is empty"),
        (
            "--secure s --port=abc",
            "--port: brokerServicePortTls=abc is not allowed: a whole number from 0 to 65535, or empty",
        ),
        ("--secure s --without-authentication", "--secure and --without-authentication contradict each other"),
        ("--data=", "--data is empty"),
        ("--set maxMessageSize=x", "--set maxMessageSize=x is not allowed: a whole number from 1024 to 134217728"),
        ("--set maxMesageSize=1", "--set maxMesageSize is not a setting; did you mean maxMessageSize?"),
        ("--set qqqqzzzz=1", "--set qqqqzzzz is not a setting"),
        ("--set maxMessageSize", "--set maxMessageSize is not of the form key=value"),
        (
            "--set brokerClientAuthenticationParameters=token:abc",
            "--set brokerClientAuthenticationParameters shows a secret to every user of this machine: use --config, the"
            " environment, file: or the path of a file that exists",
        ),
        (
            "--set tokenSecretKey=data:;base64,AAAA",
            "--set tokenSecretKey shows a secret to every user of this machine: use --config, the environment, file:"
            " or the path of a file that exists",
        ),
        (
            "--set basicAuthConf=/no/such/users",
            "--set basicAuthConf shows a secret to every user of this machine: use --config, the environment, file: or"
            " the path of a file that exists",
        ),
        ("--config no/such.conf", "--config no/such.conf cannot be read: No such file or directory"),
    ],
)
def test_an_invalid_value_is_one_line_and_code_2(
    started: Started, capsys: pytest.CaptureFixture[str], words: str, message: str
) -> None:
    assert main(["standalone", *words.split()]) == 2
    assert capsys.readouterr() == ("", f"magnetar: {message}\n")
    assert started.settings is None


@pytest.mark.parametrize(
    "words",
    [["standalone", "--prot", "1"], ["standalone", "extra"], ["standalone", "--port"], ["nonsense"], ["--nonsense"]],
)
def test_invalid_usage_is_one_line_and_code_2(
    started: Started, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("magnetar: ")
    assert err.count("\n") == 1
    assert started.settings is None


@pytest.mark.parametrize("text", ["file:///run/token", "tlsCertFile:/a,tlsKeyFile:/b", ""])
def test_a_path_to_a_secret_is_no_secret(started: Started, text: str) -> None:
    main(["standalone", "--set", f"brokerClientAuthenticationParameters={text}"])
    assert started.settings is not None


@pytest.mark.parametrize(
    "words",
    [
        "--set brokerClientAuthenticationParameters=file:s3cret",
        "--set brokerClientAuthenticationParameters=tlsCertFile:s3cret",
        "--set brokerClientAuthenticationPlugin=basic --set brokerClientAuthenticationParameters=file:/s3cret",
        "--config {config} --set brokerClientAuthenticationParameters=file:/s3cret",
        "--set tokenSecretKey=file:s3cret",
    ],
)
def test_what_only_begins_like_a_path_is_a_secret(
    started: Started, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    config = tmp_path / "broker.conf"
    config.write_text("brokerClientAuthenticationPlugin=org.apache.pulsar.client.impl.auth.AuthenticationBasic\n")
    assert main(["standalone", *words.format(config=config).split()]) == 2
    out, err = capsys.readouterr()
    assert "shows a secret to every user of this machine" in err and "s3cret" not in out + err
    assert started.settings is None


@pytest.mark.usefixtures("way")
def test_settings_that_protect_nothing_alone_are_a_warning(
    started: Started, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["standalone", "--set", "superUserRoles=ops", "--set", "proxyRoles=p"]) == 7
    assert capsys.readouterr().err.endswith(
        " WARNING settings: proxyRoles, superUserRoles: without effect, because authenticationEnabled is not true: any"
        " client may do everything\n"
    )


@pytest.mark.usefixtures("way")
def test_a_secured_broker_has_only_ports_with_tls(started: Started, tmp_path: Path) -> None:
    words = f"--secure {tmp_path}/s --port 0 --http-port 1 --bind 0.0.0.0 --set superUserRoles=ops"
    assert main(["standalone", *words.split()]) == 7
    settings = started.settings
    assert settings is not None
    assert (settings.brokerServicePort, settings.brokerServicePortTls) == (None, 0)
    assert (settings.webServicePort, settings.webServicePortTls) == (None, 1)
    assert settings.authenticationEnabled and settings.authorizationEnabled
    assert settings.superUserRoles == "ops,admin"
    assert started.rest["bind"] == "0.0.0.0", "it needs no second word"
    assert (tmp_path / "s" / "admin.token").exists()


@pytest.mark.parametrize(
    "word", ["brokerServicePort=6650", "authorizationEnabled=false", "tlsKeyFilePath=k.pem", "anonymousUserRole=guest"]
)
def test_a_setting_that_contradicts_secure_makes_nothing(
    started: Started, tmp_path: Path, capsys: pytest.CaptureFixture[str], word: str
) -> None:
    assert main(["standalone", "--secure", str(tmp_path / "s"), "--set", word]) == 2
    assert f"{word.partition('=')[0]} is set, and --secure {tmp_path / 's'} " in capsys.readouterr().err
    assert started.settings is None and not (tmp_path / "s").exists()


def test_an_option_does_not_swallow_the_next_one(started: Started) -> None:
    assert standalone.read_plain(["--data", "--port", "1"]) is None
    assert main(["standalone", "--set", "--port", "1"]) == 2


def test_a_file_sets_settings_and_its_unknown_keys_cause_one_warning(
    started: Started, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "broker.conf"
    config.write_text("zookeeperServers=a:1\nmaxMessageSize=4096\n# x\nfunctionsWorkerEnabled=false\nclusterName=\n")
    assert main(["standalone", "--config", str(config)]) == 7
    assert started.settings == Settings(maxMessageSize=4096)
    time, _, line = capsys.readouterr().err.partition(" ")
    assert time.endswith("Z")
    assert line == (
        f"WARNING settings: {config} has 2 settings without effect: zookeeperServers, functionsWorkerEnabled\n"
    )


def test_b6_protection_that_is_asked_for_and_missing_ends_the_start(
    started: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was a warning among dozens of unknown settings, and the broker was open."""
    config = tmp_path / "broker.conf"
    config.write_text("zookeeperServers=a:1\nbookkeeperTLSClientAuthentication=true\nathenzDomainNames=\n")
    monkeypatch.setenv("PULSAR_PREFIX_encryptionRequireOnProducer", "TRUE")
    monkeypatch.setenv("MAGNETAR_TLS_KEY_STORE_PASSWORD", "changeit")
    monkeypatch.setenv("athenzDomainNames", "shop")
    assert main(["standalone", "--config", str(config), "--set", "kinitCommand=/opt/kinit"]) == 2
    assert capsys.readouterr() == (
        "",
        f"magnetar: bookkeeperTLSClientAuthentication=true ({config}), athenzDomainNames=shop (athenzDomainNames),"
        " encryptionRequireOnProducer=TRUE (PULSAR_PREFIX_encryptionRequireOnProducer), tlsKeyStorePassword=(hidden)"
        " (MAGNETAR_TLS_KEY_STORE_PASSWORD), kinitCommand=/opt/kinit (--set) ask for protection that this broker does"
        " not have; to start without, remove the setting or make it empty\n",
    )
    assert started.settings is None


def test_a_misspelt_protection_ends_the_start(
    started: Started, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "broker.conf"
    config.write_text("authenticationEnbled=true\n")
    assert main(["standalone", "--config", str(config)]) == 2
    assert (
        f"authenticationEnbled=true ({config}; did you mean authenticationEnabled?) asks for protection"
        in capsys.readouterr().err
    )
    assert started.settings is None


def test_a_later_source_takes_protection_back(started: Started, tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    config.write_text("encryptionRequireOnProducer=true\n")
    assert main(["standalone", "--config", str(config), "--set", "encryptionRequireOnProducer=false"]) == 7
    assert started.settings == Settings()


def test_flags_override_set_which_overrides_the_file(started: Started, tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    config.write_text("brokerServicePort=1\nwebServicePort=1\nmaxMessageSize=2048\n")
    words = f"--config {config} --set brokerServicePort=2 --set webServicePort=2 --port 3"
    assert main(["standalone", *words.split()]) == 7
    assert started.settings == Settings(brokerServicePort=3, webServicePort=2, maxMessageSize=2048)


def test_the_environment_is_between_the_file_and_the_command_line(
    started: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "broker.conf"
    config.write_text("brokerServicePort=1\nwebServicePort=1\nmaxMessageSize=2048\ndefaultNumPartitions=2\n")
    monkeypatch.setenv("MAGNETAR_BROKER_SERVICE_PORT", "2")
    monkeypatch.setenv("PULSAR_PREFIX_webServicePort", "2")
    monkeypatch.setenv("maxMessageSize", "4096")
    monkeypatch.setenv("MAGNETAR_BIND_ADDRESS", "0.0.0.0")
    monkeypatch.setenv("PULSAR_PREFIX_zookeeperServers", "a:1")
    monkeypatch.setenv("MAGNETAR_WITHOUT_AUTHENTICATION", "true")
    assert main(["standalone", "--config", str(config), "--set", "webServicePort=3", "--port", "4"]) == 7
    assert started.settings == Settings(
        brokerServicePort=4,
        webServicePort=3,
        maxMessageSize=4096,
        defaultNumPartitions=2,
        bindAddress="0.0.0.0",
        withoutAuthentication=True,
    )
    assert "1 variable without effect: PULSAR_PREFIX_zookeeperServers\n" in capsys.readouterr().err


def test_an_invalid_value_in_the_environment_names_the_variable(
    started: Started, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MAGNETAR_LOG_LEVEL", "loud")
    assert main(["standalone", "--log-level", "info"]) == 2
    assert capsys.readouterr().err == (
        "magnetar: MAGNETAR_LOG_LEVEL: logLevel=loud is not allowed: one of debug, info, warning, error\n"
    )


def test_an_invalid_value_in_a_file_is_reported_with_the_file(
    started: Started, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "broker.conf"
    config.write_text("allowAutoTopicCreation=perhaps\n")
    assert main(["standalone", "--config", str(config), "--set", "allowAutoTopicCreation=true"]) == 2
    assert capsys.readouterr().err == (
        f"magnetar: {config}: allowAutoTopicCreation=perhaps is not allowed: true or false\n"
    )


def test_a_byte_order_mark_is_no_part_of_the_first_setting(started: Started, tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    config.write_text("maxMessageSize=4096\n", encoding="utf-8-sig")
    assert main(["standalone", "--config", str(config)]) == 7
    assert started.settings == Settings(maxMessageSize=4096)


def test_a_binary_file_is_rejected(started: Started, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "broker.conf"
    config.write_bytes(b"\xff\xfe")
    assert main(["standalone", "--config", str(config)]) == 2
    assert capsys.readouterr().err == f"magnetar: --config {config} cannot be read: not UTF-8 text\n"


_LITERAL = "tokenSecretKey=data:;base64,AAAA\n"
_NAMED = "tokenSecretKey=file:///run/token.key\nbasicAuthConf=\n"


@pytest.mark.parametrize(
    ("text", "mode", "message"),
    [
        (_LITERAL, 0o644, "exists: {0} is open to every user of this machine (mode 0644): chmod o= {0}"),
        (_LITERAL, 0o640, None),
        (_NAMED, 0o644, None),
        (_NAMED, 0o660, None),
        (_NAMED, 0o666, "--config: every user of this machine can write to {0} (mode 0666): chmod o-w {0}"),
    ],
)
def test_a_file_with_a_secret_is_private_and_no_file_is_written_by_others(
    started: Started, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, mode: int, message: str | None
) -> None:
    config = tmp_path / "broker.conf"
    config.write_text(text)
    config.chmod(mode)
    assert main(["standalone", "--config", str(config)]) == (2 if message else 7)
    err = capsys.readouterr().err
    assert (message or "").format(config) in err and "AAAA" not in err
    assert (started.settings is None) == (message is not None)


_REMEDY = "enable authentication (authenticationEnabled=true), or give --without-authentication too\n"


def test_the_address_of_pulsars_own_files_does_not_open_the_broker(
    started: Started, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "broker.conf"
    config.write_text("bindAddress=0.0.0.0\n")
    assert main(["standalone", "--config", str(config)]) == 7
    assert started.rest["bind"] == "127.0.0.1"
    assert capsys.readouterr().err.endswith(
        f" WARNING settings: bindAddress=0.0.0.0 of {config} is ignored, only this machine is served: {_REMEDY}"
    )
    assert main(["standalone", "--config", str(config), "--without-authentication"]) == 7
    assert started.rest["bind"] == "0.0.0.0"


def test_another_address_of_a_file_needs_the_second_word(
    started: Started, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "broker.conf"
    config.write_text("bindAddress=10.0.0.1\n")
    assert main(["standalone", "--config", str(config)]) == 2
    assert capsys.readouterr().err == (
        f"magnetar: {config}: bindAddress=10.0.0.1 lets other machines in, and without authentication any client can"
        f" read, write and delete: {_REMEDY}"
    )
    assert started.settings is None
    config.write_text("bindAddress=10.0.0.1\nwithoutAuthentication=true\n")
    assert main(["standalone", "--config", str(config)]) == 7
    assert started.rest["bind"] == "10.0.0.1"


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("words", ["--bind 0.0.0.0", "--set bindAddress=0.0.0.0", "--bind=::", "--bind 127.example"])
def test_opening_to_the_network_needs_the_second_word(
    started: Started, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    assert main(["standalone", *words.split()]) == 2
    out, err = capsys.readouterr()
    assert (out, err.endswith(_REMEDY)) == ("", True)
    assert started.settings is None
    assert main(["standalone", "--without-authentication", *words.split()]) == 7
    assert "without authentication: any client can read, write and delete" in capsys.readouterr().err


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ("", "with anonymousUserRole=guest and without authorization"),
        ("authorizationEnabled=true superUserRoles=ops,guest", "with the super user guest as anonymousUserRole"),
        ("authorizationEnabled=true superUserRoles=ops", None),
    ],
)
def test_anonymous_clients_that_may_do_everything_need_the_second_word(
    started: Started, capsys: pytest.CaptureFixture[str], settings: str, reason: str | None
) -> None:
    given = ["authenticationEnabled=true", "anonymousUserRole=guest", *settings.split()]
    words = ["standalone", "--bind", "10.0.0.1", *(word for setting in given for word in ("--set", setting))]
    assert main(words) == (7 if reason is None else 2)
    assert (f"and {reason} any client can read, write and delete: remove" in capsys.readouterr().err) == bool(reason)
    assert main([*words, "--without-authentication"]) == 7
    assert (f"10.0.0.1 {reason}: any client can read" in capsys.readouterr().err) == bool(reason)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.1.2.3", "localhost", "::1"])
def test_loopback_does_not_warn(started: Started, capsys: pytest.CaptureFixture[str], address: str) -> None:
    assert main(["standalone", "--bind", address]) == 7
    assert started.rest["bind"] == address
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("way")
def test_a_failed_start_is_one_line_and_code_1(started: Started, capsys: pytest.CaptureFixture[str]) -> None:
    started.failure = ServiceNotReady("the data folder is in use")
    assert main(["standalone"]) == 1
    assert capsys.readouterr() == ("", "magnetar: the data folder is in use\n")


@pytest.mark.usefixtures("way")
def test_a_bug_is_not_hidden(started: Started) -> None:
    started.failure = RuntimeError("a bug")
    with pytest.raises(RuntimeError, match="a bug"):
        main(["standalone"])


def test_an_interrupt_is_code_130(started: Started) -> None:
    started.failure = KeyboardInterrupt()
    assert main(["standalone"]) == 130


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"magnetar {__version__}\n"


@pytest.mark.parametrize("words", [[], ["--help"]])
def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert main(words) == 0
    assert "standalone" in capsys.readouterr().out


_FLAGS = (standalone.OPEN_OPTION, standalone.CONSOLE_OPTION)


def test_both_parsers_have_the_same_options() -> None:
    command = get_command(app).commands["standalone"]  # type: ignore[attr-defined]
    full = {option for parameter in command.params for option in parameter.opts}
    only_full = {"--help", "--rename-cluster", "--accept-loss"}
    assert full - only_full == {*standalone.SINGLE_OPTIONS, standalone.REPEATED_OPTION, *_FLAGS}


def test_help_explains_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["standalone", "--help"]) == 0
    out = capsys.readouterr().out
    for option in (*standalone.SINGLE_OPTIONS, standalone.REPEATED_OPTION, "data/standalone", "6650", "8080"):
        assert option in out


def test_the_parser_loads_no_client() -> None:
    """A broker started through the full parser, as by a script with unusual options, needs no client either."""
    code = (
        "import sys; from magnetar.cli.app import command_for; command_for(['standalone']); command_for(['topics']); "
        "print([name for name in ('httpx', 'rich.table', 'magnetar.client', 'magnetar.server') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_closed_pipe_is_no_error() -> None:
    """As in `magnetar … | head -1`."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "wb") as closed:
        done = subprocess.run(
            [sys.executable, "-m", "magnetar", "--help"], stdout=closed, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (1, "")


def test_a_renamed_cluster_needs_its_new_name(started: Started, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["standalone", "--rename-cluster"]) == 2
    assert "give --cluster NAME" in capsys.readouterr().err
    assert main(["standalone", "--set", "clusterName=east", "--rename-cluster"]) == 7
    assert (started.rest["cluster"], started.rest["rename_cluster"]) == ("east", True)


def test_the_quick_parser_loads_no_other() -> None:
    code = (
        "import sys; from magnetar.cli import main; from magnetar.cli.nouns import standalone; "
        "standalone.pairs_of(standalone.read_plain(['--port', '0', '--set', 'maxMessageSize=2048']), print); "
        "print([name for name in ('typer', 'rich', 'click', 'argparse', 'asyncio') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


COLLECTED = """
import gc, sys
from magnetar.cli.main import main
from magnetar.cli.nouns import standalone

standalone._print = lambda line: print(line.split()[0], gc.isenabled(), gc.get_freeze_count() > 0, flush=True)
sys.exit(main())
"""


def test_garbage_is_collected_from_when_the_broker_serves(tmp_path: Path) -> None:
    words = ["standalone", "--data", str(tmp_path), "--port", "0", "--http-port", "0"]
    with subprocess.Popen([sys.executable, "-c", COLLECTED, *words], stdout=subprocess.PIPE, text=True) as broker:
        assert broker.stdout is not None
        lines = [broker.stdout.readline().split() for _ in range(2)]
        broker.terminate()
    assert lines == [["Magnetar", "True", "True"], ["ready", "True", "True"]]


def test_garbage_is_collected_after_a_start_that_failed(started: Started) -> None:
    started.failure = ServiceNotReady("not today")
    assert main(["standalone"]) == 1
    assert gc.isenabled()
