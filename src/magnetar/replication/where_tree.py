"""The tree of a condition, made of its tokens: calls, columns and literals, and what is made of them.

It has no grammar: all that is between AND, OR and commas is one part, which is small if it compares or calculates.
`where_limits` judges the tree. The parser has accepted the condition before; of another text the tree has no meaning.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from magnetar.replication.where_limits import NodeKind, SyntaxNode

if TYPE_CHECKING:
    from sqlglot import Token

_COMPARING_SIGNS = "in like ilike rlike regexp between is = == <=> <> != < <= > >="
_MATCHING_SIGNS = "like ilike rlike regexp"
_CALCULATING_SIGNS = "+ - * / % div & | ^ ~"
_SILENT_WORDS = "true false distinct from for both leading trailing placing escape interval any some all"
_COMPARING = frozenset(_COMPARING_SIGNS.split())
_MATCHING = frozenset(_MATCHING_SIGNS.split())
_CALCULATING = frozenset(_CALCULATING_SIGNS.split())
_SILENT = frozenset(_SILENT_WORDS.split())
_LOGICAL = frozenset({"and", "or", "not", "!"})
_JOINING = "||"
_OPENING, _CLOSING = frozenset({"(", "["}), frozenset({")", "]", "end"})
_SEPARATING = frozenset({",", "when", "then", "else", "as"})


def tree_of(tokens: Sequence[Token]) -> SyntaxNode:
    reader = _Reader(tokens)
    parts: list[SyntaxNode] = []
    while not reader.is_at_end:
        parts += reader.listed()
    return SyntaxNode(NodeKind.SEVERAL, "", tuple(parts))


class _Clause:
    """What is between two of AND, OR and NOT."""

    def __init__(self) -> None:
        self.operands: list[list[SyntaxNode]] = [[]]
        self.separators = [""]  # the sign before each operand
        self.signs: set[str] = set()

    def separate(self, sign: str) -> None:
        self.operands.append([])
        self.separators.append(sign)

    @property
    def part(self) -> SyntaxNode:
        if self.signs & _COMPARING or (self.signs & _CALCULATING and _JOINING not in self.signs):
            return SyntaxNode(NodeKind.SCALAR, "", tuple(self._compared()))
        return _several([part for parts in self.operands for part in parts])

    def _compared(self) -> Iterator[SyntaxNode]:
        for sign, parts in zip(self.separators, self.operands, strict=True):
            if sign in _MATCHING:
                yield SyntaxNode(NodeKind.PATTERN, sign, tuple(parts))
            elif parts:
                yield _several(parts)


class _Reader:
    def __init__(self, tokens: Sequence[Token]) -> None:
        from sqlglot import TokenType

        self._tokens = tokens
        self._at = 0
        self._texts = (TokenType.STRING, TokenType.RAW_STRING)
        self._number = TokenType.NUMBER
        self._named = (TokenType.IDENTIFIER, TokenType.HEX_STRING)

    @property
    def is_at_end(self) -> bool:
        return self._at >= len(self._tokens)

    def listed(self) -> tuple[SyntaxNode, ...]:
        """The parts up to the bracket that closes, which is passed."""
        found = [self._sequence()]
        while self._word() in _SEPARATING:
            is_named = self._word() == "as"
            self._at += 1
            found.append(self._type(is_last=True) if is_named else self._sequence())
        self._at += 1
        return tuple(part for part in found if part.kind is not NodeKind.SEVERAL or part.parts)

    def _word(self, ahead: int = 0) -> str:
        """In lower case; empty for a literal, a name in quotes and the end."""
        at = self._at + ahead
        if at >= len(self._tokens) or self._tokens[at].token_type in (*self._texts, self._number, *self._named):
            return ""
        return self._tokens[at].text.lower()

    def _sequence(self) -> SyntaxNode:
        """What is between two commas."""
        clauses = [_Clause()]
        while not self.is_at_end and (word := self._word()) not in _SEPARATING | _CLOSING:
            clause = clauses[-1]
            is_sign = word in _COMPARING | _CALCULATING and not self._begins_operand(clauses)
            if word == "->":
                self._at += 1
                return SyntaxNode(NodeKind.LAMBDA, "", (self._sequence(),))
            if word in _LOGICAL:
                clauses.append(_Clause())
            elif is_sign:
                clause.separate(word)
            if is_sign or word == _JOINING:
                clause.signs.add(word)
            if is_sign or word in _LOGICAL or word == _JOINING:
                self._at += 1
            else:
                self._operand(clause.operands[-1])
        if len(clauses) == 1:
            return clauses[0].part
        return SyntaxNode(NodeKind.LOGICAL, "", tuple(clause.part for clause in clauses))

    def _begins_operand(self, clauses: Sequence[_Clause]) -> bool:
        """Whether what would be a sign is the one of a number, or the name of a function as in like(a, 'x')."""
        if clauses[-1].operands[-1]:
            return False
        is_infix = self._word(-1) == "not" and len(clauses) > 1 and bool(clauses[-2].operands[-1])
        return self._is_negative() or (self._word() in _MATCHING and self._word(1) == "(" and not is_infix)

    def _is_negative(self) -> bool:
        following = self._tokens[self._at + 1 : self._at + 2]
        return self._word() == "-" and bool(following) and following[0].token_type is self._number

    def _operand(self, group: list[SyntaxNode]) -> None:
        """Adds what is next, or changes the last part."""
        token, word = self._tokens[self._at], self._word()
        sign = "-" if self._is_negative() else ""
        self._at += len(sign)
        is_name = bool(word) or token.token_type in self._named
        is_call = is_name and word not in _SILENT | _OPENING | {"case"} and self._word(1) == "("
        self._at += 2 if is_call else 1
        if is_call:
            group.append(SyntaxNode(NodeKind.CALL, token.text.lower(), self.listed()))
        elif token.token_type in self._texts or word == "null":
            group.append(SyntaxNode(NodeKind.TEXT, "" if word else token.text))
        elif sign or token.token_type is self._number:
            group.append(SyntaxNode(NodeKind.NUMBER, sign + self._tokens[self._at - 1].text))
        elif word in _OPENING or word == "case":
            group.append(SyntaxNode(NodeKind.SEVERAL, "", self.listed()))
        elif word == "::":
            cast = (_several(group), self._type())
            group[:] = [SyntaxNode(NodeKind.CALL, "cast", cast)]
        elif word in (".", ":"):
            self._at += 1  # a field is a part of what has it
        elif word not in _SILENT:
            group.append(SyntaxNode(NodeKind.COLUMN))

    def _type(self, *, is_last: bool = False) -> SyntaxNode:
        """A type, or a name that is given. `is_last`: nothing else is before the next comma or bracket."""
        first, depth = self._at, 0
        while not self.is_at_end:
            word = self._word()
            is_over = word in _SEPARATING | _CLOSING if is_last else self._at > first and word not in ("<", "(")
            if depth == 0 and is_over:
                break
            depth += (word in ("<", "(")) - (word in (">", ")"))
            self._at += 1
        return SyntaxNode(NodeKind.TEXT, " ".join(token.text for token in self._tokens[first : self._at]))


def _several(parts: Sequence[SyntaxNode]) -> SyntaxNode:
    return parts[0] if len(parts) == 1 else SyntaxNode(NodeKind.SEVERAL, "", tuple(parts))
