"""Runs Python in documents: fenced blocks of the language `python`, statement by statement.

A comment after an expression is its expected value: `users.add("ada")  # True`. `await` is allowed anywhere, as in
`python -m asyncio`. All blocks in a document share their variables.
"""

import ast
import asyncio
import inspect
import re
from pathlib import Path


def blocks(path: Path, language: str = "python") -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", path.read_text(), flags=re.M | re.S)


def run(code: str, names: dict, loop: asyncio.AbstractEventLoop | None = None) -> int:
    """Runs a block, and returns the number of values that it checked."""
    checked, lines = 0, code.splitlines()
    for statement in ast.parse(code).body:
        _, _, comment = lines[statement.end_lineno - 1][statement.end_col_offset :].partition("#")
        if isinstance(statement, ast.Expr) and comment:
            value = _evaluate(ast.Expression(statement.value), "eval", names, loop)
            expected = ast.literal_eval(comment.strip())
            assert value == expected, f"{ast.unparse(statement)} is {value!r}, not {expected!r}"
            checked += 1
        else:
            _evaluate(ast.Module([statement], []), "exec", names, loop)
    return checked


def _evaluate(tree: ast.AST, mode: str, names: dict, loop):
    code = compile(tree, "<document>", mode, flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    value = eval(code, names)
    return loop.run_until_complete(value) if code.co_flags & inspect.CO_COROUTINE else value
