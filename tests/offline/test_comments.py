"""No line of a comment is longer than 120 characters. rustfmt and ruff leave comments as they are."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WIDTH = 120
# Rows of tables may be longer.
COMMENT = re.compile(r"\s*(//|# )(?!.*\|$)")


def test_no_comment_is_too_long():
    files = subprocess.check_output(["git", "ls-files", "*.rs", "*.py", "*.js", "*.mjs"], cwd=ROOT, text=True).split()
    assert len(files) > 100, "these are not the files of the repository"
    lines = [(f"{file}:{number}", line) for file in files
             for number, line in enumerate((ROOT / file).read_text().splitlines(), start=1)]
    long = [place for place, line in lines if len(line) > WIDTH and COMMENT.match(line)]
    assert not long, f"longer than {WIDTH} characters: {long}"
