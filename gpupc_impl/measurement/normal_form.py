"""Computes the normal form of a source file, which contains only what affects its execution.

Two versions of a file with the same normal form behave alike, so `digest` hashes the normal form.

- Python: the syntax tree, without docstrings, without annotations (except those in class bodies, which dataclasses
  read), without code under ``if TYPE_CHECKING:``, and without the wording of messages (`MESSAGE_CALLS` and raised
  exceptions). The tree is written in a form that does not depend on the version of Python.
- CUDA and C++: the tokens, without comments and white space. Each preprocessor directive stays on a line of its own.
- Any other file: its bytes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from fnmatch import fnmatchcase

CPP_SUFFIXES = (".cu", ".cuh", ".cpp", ".hpp")

MESSAGE_CALLS = {
    "debug": "a line of a log",
    "info": "a line of a log",
    "warning": "a line of a log",
    "warn": "a warning",
    "Parameter": "the description of a parameter",
    "method": "the source and the summary of a method",
}
"""The calls whose text is for readers, by the last part of the called name."""

MESSAGE_KEYWORDS = ("description", "source", "summary")
"""The arguments of `Parameter` and `method` that are text for readers."""

_UNWRITTEN = {"ctx", "kind", "type_comment"}
"""The fields of syntax trees that follow from other fields, or that have no effect."""


def python_tree(source: bytes, excluded: Collection[str] = (), docstrings: bool = False) -> ast.Module:
    """Return the syntax tree of Python source, without parts that have no effect.

    Args:
        excluded: patterns of the qualified names (``"Class.method"``) of functions and classes to leave out.
        docstrings: whether docstrings are kept, because the program shows them.
    """
    tree = ast.parse(source)
    _prune(tree, "", excluded, docstrings)
    return tree


def _prune(node: ast.AST, scope: str, excluded: Collection[str], docstrings: bool) -> None:
    """Remove the statements and annotations that have no effect from a node and all nodes below it."""
    for field in ("body", "orelse", "finalbody"):
        statements = getattr(node, field, None)
        if isinstance(statements, list):
            kept = list(_effective(statements, scope, excluded, docstrings))
            setattr(node, field, kept or ([ast.Pass()] if statements and field == "body" else []))
    for field in ("handlers", "cases"):
        for part in getattr(node, field, ()):
            _prune(part, scope, excluded, docstrings)


def _effective(
    statements: list[ast.stmt], scope: str, excluded: Collection[str], docstrings: bool
) -> Iterator[ast.stmt]:
    """Yield the statements that have an effect, each pruned in turn."""
    for statement in statements:
        inner = scope
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            if docstrings:
                yield statement
            continue
        if isinstance(statement, ast.If) and _last_name(statement.test) == "TYPE_CHECKING":
            yield from _effective(statement.orelse, scope, excluded, docstrings)
            continue
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            inner = f"{scope}{statement.name}."
            if any(fnmatchcase(inner[:-1], pattern) for pattern in excluded):
                continue
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            inner += "<locals>."
            statement.returns = None
            arguments = statement.args
            for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
                argument.annotation = None
            for rest in (arguments.vararg, arguments.kwarg):
                if rest is not None:
                    rest.annotation = None
        if isinstance(statement, ast.AnnAssign) and (not scope or scope.endswith("<locals>.")):
            if statement.value is not None:
                yield ast.Assign([statement.target], statement.value)
            continue
        _prune(statement, inner, excluded, docstrings)
        yield statement


def python_form(tree: ast.Module) -> bytes:
    """Return the normal form of a tree that `python_tree` made."""
    parts: list[str] = []
    _write(tree, parts, message=False)
    return "".join(parts).encode()


def _write(node: ast.AST, parts: list[str], message: bool) -> None:
    """Append a node to the parts; inside a message the text of strings is left out."""
    if isinstance(node, ast.Constant):
        parts.append("''," if message and isinstance(node.value, str) else f"{node.value!r},")
        return
    if isinstance(node, ast.Name):
        parts.append(f"{node.id},")
        return
    if isinstance(node, ast.Call) and (name := _last_name(node.func)) in MESSAGE_CALLS:
        _write_message_call(node, name, parts)
        return
    parts.append(f"{type(node).__name__}(")
    for field in node._fields:
        value = getattr(node, field, None)
        if value is None or field in _UNWRITTEN or value == []:
            continue
        parts.append(f"{field}=")
        inside = message or (isinstance(node, ast.Raise) and field == "exc")
        if isinstance(value, list):
            for each in value:
                if isinstance(each, ast.AST):
                    _write(each, parts, inside)
                else:
                    parts.append(f"{each!r},")
            parts.append(";")
        elif isinstance(value, ast.AST):
            _write(value, parts, inside)
        else:
            parts.append(f"{value!r},")
    parts.append(")")


def _last_name(expression: ast.expr) -> str:
    """Return the last part of a dotted name; an empty string for any other expression."""
    return str(getattr(expression, "attr", getattr(expression, "id", "")))


def _write_message_call(call: ast.Call, name: str, parts: list[str]) -> None:
    """Append a call of `MESSAGE_CALLS`."""
    parts.append("Call(")
    _write(call.func, parts, message=False)
    described = name in ("Parameter", "method")
    for position, argument in enumerate(call.args):
        _write(argument, parts, message=not described or (name == "Parameter" and position == 1))
    for keyword in call.keywords:
        parts.append(f"{keyword.arg}=")
        _write(keyword.value, parts, message=not described or keyword.arg in MESSAGE_KEYWORDS)
    parts.append(")")


_CPP_TOKEN = re.compile(
    r"""
    (?P<literal>
        (?:u8|[uUL])?R"(?P<delimiter>[^()\\\s]*)\(.*?\)(?P=delimiter)"
      | (?:u8|[uUL])?"(?:\\.|[^"\\])*"
      | (?:u8|[uUL])?'(?:\\.|[^'\\])+'
    )
  | (?P<blank>//(?:\\\r?\n|[^\n])*|/\*.*?\*/|(?:[^\S\n]|\\\r?\n)+)
  | (?P<newline>\n)
  | (?P<word>[A-Za-z_]\w*)
  | (?P<number>\.?\d(?:[eEpP][+-]|'(?=\w)|[\w.])*)
  | (?P<operator><<=|>>=|\.\.\.|->|::|\+\+|--|&&|\|\||<<|>>|\#\#|[-+*/%&|^=!<>]=|.)
    """,
    re.VERBOSE | re.DOTALL,
)


def cpp_form(source: str) -> bytes:
    """Return the normal form of CUDA or C++ source: its tokens, with each preprocessor directive on a line of its own.

    A macro whose name is directly followed by a parenthesis has parameters, and is distinguished from one with a space
    before the parenthesis.
    """
    parts: list[str] = []
    directive: list[str] | None = None
    starts_line, name_end = True, -1
    for match in _CPP_TOKEN.finditer(source):
        kind, token = match.lastgroup, match.group()
        if kind == "blank":
            continue
        if kind == "newline":
            if directive is not None:
                parts.append("\n")
            directive, starts_line = None, True
            continue
        if starts_line and token == "#":
            directive = []
            parts.append("\n")
        starts_line = False
        if directive is not None:
            if token == "(" and match.start() == name_end:
                parts.pop()  # the space after the macro's name
            directive.append(token)
            name_end = match.end() if directive[:2] == ["#", "define"] and len(directive) == 3 else -1
        parts += [token, " "]
    return "".join(parts).encode()
