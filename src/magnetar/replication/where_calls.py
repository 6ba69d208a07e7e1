"""Calls, signs and comments in a condition, by its tokens: what is called, and each sign, must be on the list.

Runs before the parser, in time that is linear in the length: the parser tries many things at each bracket, and takes
exponential time for some that are nested deeply. Owns the names of calls, the syntax that has brackets too, the signs,
and comments that Spark ends elsewhere than our parser. Knows nothing of the grammar.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from magnetar.bounds import CONDITION_DEPTH
from magnetar.replication.spark_functions import FUNCTIONS

if TYPE_CHECKING:
    from sqlglot import Token

_LIST = "docs/replication.md lists the functions and operators that are allowed"
NOT_ALLOWED = f"a condition may not have: {_LIST}"
MAY_CALL = f"a condition may call: {_LIST}"

_OPENING, _CLOSING = frozenset({"(", "["}), frozenset({")", "]"})
_QUERIES = frozenset({"select", "table", "values", "with", "from"})
_MANY = frozenset({"any", "all", "some"})
_MANY_AFTER = frozenset({"like", "ilike"})
_SIZED_TYPES = frozenset({"decimal", "dec", "numeric", "char", "character", "varchar"})
_SIGNS = frozenset("!%&()*+,-./:<=>?@[]^{|}~")
_SIGN_LIST = "( ) [ ] , . ; { } : :: -> + - * / % & | ^ ~ || ! = == <=> <> != < <= > >="
_ALLOWED_SIGNS = frozenset(_SIGN_LIST.split())
_ENDING_OPERAND = frozenset({")", "]"})
_WORD_LIST = """
and or not in like ilike rlike regexp between case when then else is from div escape distinct both leading trailing
placing for
"""
_WORDS = frozenset(_WORD_LIST.split())
"""Words of the syntax that may be followed by a bracket."""

_CONTINUED = "\\\n"
CONTINUED_LINE = "has a backslash before a line break, after which Spark goes on with a comment"


def continues_line(where: str) -> bool:
    """Whether Spark may read a comment beyond its line. A condition may be followed by a line break, and by another."""
    return _CONTINUED in f"{where}\n"


def problems(tokens: Sequence[Token]) -> Iterator[str]:
    from sqlglot import TokenType

    literals = {TokenType.STRING, TokenType.RAW_STRING, TokenType.NUMBER}
    depth = 0
    for at, token in enumerate(tokens):
        if any("/*" in comment for comment in token.comments):
            yield f"has a /* in a comment near {token.start}: Spark may end the comment elsewhere"
        if token.token_type in literals:
            continue
        is_quoted = token.token_type is TokenType.IDENTIFIER
        text = token.text if is_quoted else token.text.lower()
        if is_quoted:
            pass
        elif text == "{":
            yield f"has a {{ at {token.start}, which {NOT_ALLOWED}"
        elif text in _OPENING or text == "case":
            depth += 1
        elif text in _CLOSING or text == "end":
            depth -= 1
        elif token.token_type is TokenType.SEMICOLON:
            yield f"has a ; at {token.start}: only one condition is allowed"
        elif not re.search(r"\w", text) and text not in _ALLOWED_SIGNS:
            yield f"has {text} at {token.start}, which {NOT_ALLOWED}"
        if text == "[" and not is_quoted and not _follows_operand(tokens, at):
            yield f"has a list at {token.start} that is not written as array(…), which {NOT_ALLOWED}"
        if depth > CONDITION_DEPTH.limit:
            yield f"is nested more than {CONDITION_DEPTH.limit} levels deep at {token.start}"
        if text == "(" and not is_quoted and any(_is(tokens, at + 1, word) for word in _QUERIES):
            yield f"has a subquery at {tokens[at + 1].start}: only columns of the message are allowed"
        elif _is(tokens, at + 1, "("):
            yield from _call(tokens, at, text, is_quoted)


def plain_calls(tokens: list[Token]) -> list[Token]:
    """Types that are called or indexed, as in int(x) and map[x], are names for the parser: otherwise it tries to read
    nested types, twice at each level."""
    from sqlglot import TokenType
    from sqlglot.dialects.spark import Spark

    types = Spark.Parser.TYPE_TOKENS
    for at, token in enumerate(tokens):
        name = token.text.lower()
        is_called = _is(tokens, at + 1, "(") and not (name in _SIZED_TYPES and _is_size(tokens, at + 1))
        if token.token_type in types and (is_called or _is(tokens, at + 1, "[")):
            token.token_type = TokenType.VAR
    return tokens


def near(name: str, names: Collection[str]) -> str:
    found = difflib.get_close_matches(name.lower(), names, n=1)
    return f"; did you mean {found[0]}" if found and found[0] != name else ""


def _is(tokens: Sequence[Token], at: int, text: str) -> bool:
    from sqlglot import TokenType

    others = {TokenType.STRING, TokenType.RAW_STRING, TokenType.IDENTIFIER}
    return 0 <= at < len(tokens) and tokens[at].text.lower() == text and tokens[at].token_type not in others


def _follows_operand(tokens: Sequence[Token], at: int) -> bool:
    """Whether there may be a value before this token."""
    from sqlglot import TokenType

    if at == 0:
        return False
    before = tokens[at - 1]
    if before.token_type in (TokenType.IDENTIFIER, TokenType.STRING, TokenType.RAW_STRING):
        return True
    text = before.text.lower()
    return text in _ENDING_OPERAND or not (text in _WORDS or _SIGNS.issuperset(text))


def _is_size(tokens: Sequence[Token], at: int) -> bool:
    """Whether this is the size of a type, as in decimal(10, 2)."""
    words = "".join(token.text for token in tokens[at : at + 5])
    return re.match(r"\(\d+(,\d+)?\)", words, re.ASCII) is not None


def _call(tokens: Sequence[Token], at: int, name: str, is_quoted: bool) -> Iterator[str]:
    """Problems of the word before a bracket."""
    if not is_quoted and (name in _WORDS or _SIGNS.issuperset(name)):
        return
    if not is_quoted and name in _MANY and any(_is(tokens, at - 1, word) for word in _MANY_AFTER):
        return
    if not is_quoted and name in _SIZED_TYPES and _is_size(tokens, at + 1):
        return
    if name.lower() not in FUNCTIONS or _is(tokens, at - 1, "."):
        hint = "" if is_quoted else near(name, FUNCTIONS)
        yield f"calls {name[:100]}, which is not a function that {MAY_CALL}{hint}"
