"""`magnetar tokens`: keys and tokens from the shell, without a broker, and no secret where others see it."""

from __future__ import annotations

import base64
import io
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from magnetar.access.providers.token import TokenProvider
from magnetar.access.signing import secret_signer
from magnetar.access_bounds import TOKEN_SIZE
from magnetar.cli.main import main
from magnetar.cli.nouns.tokens import TOKEN_VARIABLES
from magnetar.clock import SystemClock
from magnetar.settings.settings import Settings
from tests.access.keys import by_hand
from tests.cli.conftest import Result


class Tokens:
    """Runs `magnetar tokens …` in a folder of its own."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def __call__(self, *words: str, stdin: bytes | None = None) -> Result:
        self._monkeypatch.setattr(sys, "stdin", _Stdin(stdin))
        self._capsys.readouterr()
        code = main(["tokens", *words])
        return Result(code, *self._capsys.readouterr())

    def ok(self, *words: str, stdin: bytes | None = None) -> str:
        code, out, err = self(*words, stdin=stdin)
        assert (code, err) == (0, "")
        return out.removesuffix("\n")

    def json(self, *words: str, stdin: bytes | None = None) -> Any:
        return json.loads(self.ok(*words, "--json", stdin=stdin))

    def fails(self, *words: str, stdin: bytes | None = None, code: int = 2) -> str:
        result = self(*words, stdin=stdin)
        assert (result.code, result.out) == (code, ""), result
        assert result.err.count("\n") == 1
        return result.err.removeprefix("magnetar: ").rstrip("\n")


class _Stdin:
    """A terminal without content, or a pipe with some."""

    def __init__(self, content: bytes | None) -> None:
        self.buffer = io.BytesIO(content or b"")
        self._is_terminal = content is None

    def isatty(self) -> bool:
        return self._is_terminal


@pytest.fixture
def tokens(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Tokens:
    monkeypatch.chdir(tmp_path)
    for name in TOKEN_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return Tokens(capsys, monkeypatch)


def role(token: str, **settings: str) -> str:
    return TokenProvider(Settings(**settings)).authenticate(token.encode(), "", SystemClock().now_ms()).role  # type: ignore[arg-type]


def mode_of(path: str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


@pytest.mark.parametrize(("algorithm", "size"), [(None, 32), ("HS384", 48), ("HS512", 64)])
@pytest.mark.parametrize("name", ["create-key", "create-secret-key"])
def test_a_secret_key_and_a_token(tokens: Tokens, tmp_path: Path, algorithm: str | None, size: int, name: str) -> None:
    made = tokens.json(name, "--output", "my.key", *(["-a", algorithm] if algorithm else []))
    path = tmp_path / "my.key"
    assert made == {"algorithm": algorithm or "HS256", "file": "my.key", "tokenSecretKey": f"file://{path}"}
    assert (len(path.read_bytes()), mode_of("my.key")) == (size, 0o600)
    token = tokens.ok("create", "--secret-key", "my.key", "--subject", "ann")
    assert role(token, tokenSecretKey=made["tokenSecretKey"]) == "ann"
    assert tokens.json("validate", "--secret-key", f"file://{path}", stdin=token.encode()) == {"sub": "ann"}
    assert tokens.json("show", stdin=token.encode()) == {
        "header": {"alg": algorithm or "HS256"},
        "claims": {"sub": "ann"},
    }


@pytest.mark.parametrize(
    "words",
    [
        ("create-key", "--private-key", "a", "--public-key", "b"),
        ("create-key", "-a", "ES256", "--private-key", "a", "--public-key", "b"),
        ("create-key-pair", "--output-private-key", "a", "--output-public-key", "b"),
        ("create-key-pair", "-a", "ES512", "--output-private-key", "a", "--output-public-key", "b"),
    ],
)
def test_a_key_pair_and_a_token(tokens: Tokens, tmp_path: Path, words: tuple[str, ...]) -> None:
    before = os.umask(0o022)  # a broker that another test started in this process leaves it private
    try:
        made = tokens.json(*words)
    finally:
        os.umask(before)
    assert made["tokenPublicAlg"] == made["algorithm"] == (words[2] if words[1] == "-a" else "RS256")
    assert (mode_of("a"), mode_of("b")) == (0o600, 0o644)
    token = tokens.ok("create", "-pk", "a", "-s", "ann", "-hs", "kid=one")
    assert role(token, tokenPublicKey=made["tokenPublicKey"], tokenPublicAlg=made["tokenPublicAlg"]) == "ann"
    assert tokens.json("show", "-i", stdin=token.encode())["header"] == {"alg": made["algorithm"], "kid": "one"}
    for options in ((), ("-a", made["algorithm"])):
        assert tokens.json("validate", "-pk", "b", *options, "--stdin", stdin=token.encode()) == {"sub": "ann"}
    public = base64.b64encode((tmp_path / "b").read_bytes()).decode()
    for literal in (public, f"data:;base64,{public}"):  # it is no secret
        assert tokens.json("validate", "--public-key", literal, stdin=token.encode()) == {"sub": "ann"}


def test_a_key_in_base64_is_for_a_setting(tokens: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    printed = tokens.ok("create-key", "--base64")
    assert len(base64.b64decode(printed, validate=True)) == 32
    assert tokens.json("create-key", "--base64").keys() == {"algorithm", "key"}
    monkeypatch.setenv("KEY", printed)
    token = tokens.ok("create", "--secret-key", "env:KEY", "--subject", "ann")
    assert role(token, tokenSecretKey=printed) == "ann"
    assert tokens.json("create-key", "-b", "-o", "my.key") == {"algorithm": "HS256", "file": "my.key"}
    token = tokens.ok("create", "--secret-key", "my.key", "--subject", "ann")
    assert role(token, tokenSecretKey="my.key") == "ann"  # as Pulsar: the bytes of a file are the key


def test_a_token_expires(tokens: Tokens) -> None:
    tokens.ok("create-key", "-o", "my.key")
    before_s = SystemClock().now_ms() // 1000
    made = tokens.json("create", "-sk", "my.key", "-s", "ann", "--expiry-time", "1d")
    claims = tokens.json("validate", "-sk", "my.key", stdin=made["token"].encode())
    assert 0 <= claims["exp"] - before_s - 86_400 < 3_600
    assert made["expires"] in tokens.ok("show", stdin=made["token"].encode())
    text = tokens.fails("create", "-sk", "my.key", "-s", "ann", "-e", "10000y")
    assert text == "the token would expire after the year 9999"
    text = tokens.fails("create", "-sk", "my.key", "-s", "ann", "-e", "0", "--output", "new.token")
    assert text == "--expiry-time 0: the token would have expired when it is made"
    assert not Path("new.token").exists()
    assert "is not a duration such as" in tokens.fails("create", "-sk", "my.key", "-s", "ann", "-e", "soon")


def test_a_token_that_is_not_valid_fails(tokens: Tokens) -> None:
    tokens.ok("create-key", "-o", "my.key")
    tokens.ok("create-key", "-o", "other.key")
    tokens.ok("create-key", "-a", "ES256", "--private-key", "a", "--public-key", "b")
    token = tokens.ok("create", "-sk", "my.key", "-s", "ann").encode()
    other_kind = "the token has another algorithm than those of the key"
    for words, stdin, reason in (
        (("-sk", "other.key"), token, "the signature of the token is not valid"),
        (("-pk", "b"), token, other_kind),
        (("-sk", "my.key"), b"", "the token is not a signed JSON web token"),
        (("-sk", "my.key"), b"a.b.c", "the token is not a signed JSON web token"),
        (("-sk", "my.key"), by_hand({"alg": "none"}, {"sub": "ann"}), other_kind),
        (("-sk", "my.key"), b"x" * (TOKEN_SIZE.limit + 1), f"the token of {TOKEN_SIZE.limit + 1} bytes exceeds 32768"),
    ):
        assert tokens.fails("validate", *words, stdin=stdin, code=1) == reason
    expired = secret_signer(Path("my.key").read_bytes(), "key").sign("ann", 1_700_000_000_000).encode()
    assert tokens.fails("validate", "-sk", "my.key", stdin=expired, code=1) == "the token has expired"
    assert "2023-11-14T22:13:20Z" in tokens.ok("show", stdin=expired)


def test_a_token_is_read_from_a_file_the_environment_or_stdin(
    tokens: Tokens, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tokens.ok("create-key", "-o", "my.key")
    made = tokens.json("create", "-sk", "my.key", "-s", "filed", "-o", "token.txt")
    assert "token" not in made
    assert mode_of("token.txt") == 0o600
    shown = {role: tokens.ok("create", "-sk", "my.key", "-s", role) for role in ("ours", "pulsars", "piped")}
    pipe = shown["piped"].encode() + b"\n"
    monkeypatch.setenv("TOKEN", shown["pulsars"])
    for name in ("show", "validate"):
        key = ("-sk", "my.key") if name == "validate" else ()

        def subject(*words: str, name: str = name, key: tuple[str, ...] = key) -> str:
            found = tokens.json(name, *key, *words, stdin=pipe)
            return str((found if name == "validate" else found["claims"])["sub"])

        assert subject("--token-file", "token.txt") == subject("-f", f"file://{tmp_path}/token.txt") == "filed"
        assert subject() == "pulsars"
        assert subject("--stdin") == "piped"
        with monkeypatch.context() as patch:
            for text in (shown["ours"], f"token:{shown['ours']}", shown["ours"] + "\n"):
                patch.setenv("MAGNETAR_TOKEN", text)
                assert subject() == "ours"
            patch.setenv("MAGNETAR_TOKEN", f"file://{tmp_path}/token.txt")
            assert subject() == "filed"
        with monkeypatch.context() as patch:
            patch.delenv("TOKEN")
            assert subject() == "piped"
            nothing = "there is no token: give --token-file FILE, --stdin or MAGNETAR_TOKEN"
            assert tokens.fails(name, *key) == nothing


def test_no_secret_is_taken_from_the_command_line_nor_shown(tokens: Tokens) -> None:
    secret = tokens.ok("create-key", "--base64")
    tokens.ok("create-key", "-o", "my.key")
    token = tokens.ok("create", "-sk", "my.key", "-s", "ann")
    for literal in (secret, f"data:;base64,{secret}", "no-such-file"):
        for words in (("create", "-s", "ann"), ("validate",)):
            text = tokens.fails(*words, "--secret-key", literal, stdin=token.encode())
            assert "is not taken from the command line" in text
            assert literal not in text
        assert literal not in tokens.fails("create", "-s", "ann", "--private-key", literal)
    for words in (("show",), ("validate", "-sk", "my.key")):
        text = tokens.fails(*words, token)
        assert text.startswith("a token is not taken from the command line")
        assert token not in text


def test_a_key_that_others_can_read_is_refused(tokens: Tokens) -> None:
    tokens.ok("create-key", "-o", "my.key")
    os.chmod("my.key", 0o644)
    text = tokens.fails("create", "-sk", "my.key", "-s", "ann")
    assert text == "--secret-key: my.key is open to every user of this machine (mode 0644): chmod o= my.key"


def test_a_file_is_never_overwritten(tokens: Tokens, tmp_path: Path) -> None:
    tokens.ok("create-key", "-o", "my.key")
    for name in ("old", "dangling"):
        (tmp_path / "old").write_bytes(b"old")
        (tmp_path / "dangling").unlink(missing_ok=True)
        (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
        for words in (
            ("create-key", "--output", name),
            ("create", "-sk", "my.key", "-s", "ann", "--output", name),
            ("create-key", "-a", "ES256", "--private-key", name, "--public-key", "new"),
            ("create-key", "-a", "ES256", "--private-key", "new", "--public-key", name),
        ):
            assert tokens.fails(*words).endswith(f": {name} exists, and is not overwritten")
    assert (tmp_path / "old").read_bytes() == b"old"
    assert sorted(os.listdir()) == ["dangling", "my.key", "old"]
    for public in ("new", "none/public"):  # the private key is not left alone
        tokens.fails("create-key", "-a", "ES256", "--private-key", "new", "--public-key", public)
    assert sorted(os.listdir()) == ["dangling", "my.key", "old"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("create-key",), "give --output FILE, which only you can read, or --base64 for a key that is printed"),
        (("create-key", "-a", "RS256"), "RS256 has a key pair: give --private-key FILE and --public-key FILE"),
        (("create-key", "--private-key", "a"), "RS256 has a key pair: give --private-key FILE and --public-key FILE"),
        (
            ("create-key", "-a", "HS256", "--private-key", "a", "--public-key", "b"),
            "HS256 has a secret key and no key pair: give --output, or another --algorithm",
        ),
        (
            ("create-key", "-a", "ES256", "--output", "a"),
            "--output and --base64 are of a secret key; a key pair has --private-key and --public-key",
        ),
        (
            ("create-key", "-a", "none", "-o", "a"),
            "Invalid value for '--algorithm' / '-a' / '--signature-algorithm': 'none' is not one of HS256, HS384,"
            " HS512, RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, ES512",
        ),
        (("create", "-s", "ann"), "give either --secret-key or --private-key"),
        (("create", "-s", "ann", "-sk", "a", "-pk", "b"), "give only one of --secret-key and --private-key"),
        (("validate",), "give either --secret-key or --public-key"),
        (("show", "-f", "a", "-i"), "give only one of --token-file and --stdin"),
        (("show", "-f", "none"), "--token-file: none cannot be read: No such file or directory"),
        (("create", "-s", "ann", "-sk", "env:NO_SUCH_KEY"), "--secret-key: the environment has no NO_SUCH_KEY"),
    ],
)
def test_mistakes(tokens: Tokens, words: tuple[str, ...], text: str) -> None:
    assert tokens.fails(*words) == text


def test_the_help_says_where_a_token_comes_from(tokens: Tokens) -> None:
    assert "create-secret-key" not in tokens.ok("--help")
    assert "--token-file" in tokens.ok("show", "--help")
    assert "Refused" not in tokens.ok("show", "--help")


def test_a_pipe_of_two_processes(tmp_path: Path) -> None:
    run = [sys.executable, "-m", "magnetar", "tokens"]
    subprocess.run([*run, "create-key", "-o", "my.key"], cwd=tmp_path, check=True, capture_output=True)
    words = [*run, "create", "-sk", "my.key", "-s", "ann"]
    token = subprocess.run(words, cwd=tmp_path, check=True, capture_output=True).stdout
    words = [*run, "validate", "-sk", "my.key", "-i", "--json"]
    found = subprocess.run(words, cwd=tmp_path, check=True, capture_output=True, input=token)
    assert (json.loads(found.stdout), found.stderr) == ({"sub": "ann"}, b"")
