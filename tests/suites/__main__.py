"""Runs the suite that the first argument names, and passes it the other arguments. Without arguments, it lists the
suites."""

import ast
import importlib
import sys
from pathlib import Path

from kit.suite import WITH_SCRIPT

SUITES = {path.stem: path for path in sorted(Path(__file__).parent.glob("[a-z]*.py"))}


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else None
    if name is None:
        for name, path in SUITES.items():
            line = ast.get_docstring(ast.parse(path.read_text())).splitlines()[0]
            print(f"{name:10} {line}{f' See scripts/{name}.' if name in WITH_SCRIPT else ''}")
    elif name in SUITES:
        del sys.argv[1]
        importlib.import_module(f"suites.{name}").main()
    else:
        sys.exit(f"there is no suite {name}; there are: {', '.join(SUITES)}")


main()
