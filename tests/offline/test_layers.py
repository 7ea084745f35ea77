"""scripts/layers refuses files that depend on each other in a circle, and paths that lead nowhere, but nothing else."""

import subprocess
from pathlib import Path

import pytest

LAYERS = Path(__file__).parents[2] / "scripts" / "layers"


@pytest.fixture
def layers(tmp_path):
    """Runs scripts/layers on a crate with these files, and returns its exit status and its output."""

    def run(files):
        for name, text in files.items():
            file = tmp_path / "src" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        done = subprocess.run([LAYERS, tmp_path], capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    return run


CIRCLES = {
    "two files": {
        "lib.rs": "mod a;\nmod b;\n",
        "a.rs": "use crate::b::B;\npub struct A(B);\n",
        "b.rs": "pub struct B;\nfn back() -> super::a::A {}\n",
    },
    "three files": {
        "lib.rs": "mod a;\nmod b;\nmod c;\n",
        "a.rs": "use crate::{b::{self, Other}};\npub fn f() { b::f() }\n",
        "b.rs": "pub struct Other;\npub fn f() { crate::c::f() }\n",
        "c.rs": "pub fn f() { let _ = crate::a::f; }\n",
    },
    "through mod.rs": {
        "lib.rs": "mod parts;\n",
        "parts/mod.rs": "mod one;\nmod two;\npub use one::One;\npub use two::Two;\n",
        "parts/one.rs": "use super::Two;\npub struct One(Two);\n",
        "parts/two.rs": "pub struct Two;\nimpl From<crate::parts::One> for Two {}\n",
    },
    "of mod.rs itself": {
        "lib.rs": "mod parts;\n",
        "parts/mod.rs": "mod one;\npub use one::One;\npub struct All(One);\npub struct Base;\n",
        "parts/one.rs": "use super::Base;\npub struct One(Base);\n",
    },
    "by a glob": {
        "lib.rs": "mod a;\nmod b;\n",
        "a.rs": "use crate::b::*;\npub struct A(B);\n",
        "b.rs": "pub struct B;\nfn back(a: crate::a::A) {}\n",
    },
    "by the variants of an enum": {
        "lib.rs": "mod a;\nmod b;\n",
        "a.rs": "use crate::b::Kind::*;\npub fn f() { let _ = One; }\n",
        "b.rs": "pub enum Kind { One }\nfn back() { super::a::f() }\n",
    },
    "by a renamed import": {
        "lib.rs": "mod a;\nmod b;\n",
        "a.rs": "use crate::b as other;\npub struct A(other::B);\n",
        "b.rs": "use crate::a::A as Other;\npub struct B(Option<Box<Other>>);\n",
    },
    "by an item that a macro makes": {
        "lib.rs": "mod a;\nmod b;\n",
        "a.rs": "use crate::b::B;\npub struct A(B);\n",
        "b.rs": "macro_rules! make { ($($c:ident)*) => { pub enum B { $($c),* } } }\nmake! { One }\nfn f(a: crate::a::A) {}\n",
    },
}

LEGAL = {
    "a re-export of a child that uses its parent": {
        "lib.rs": "mod parts;\npub use parts::One;\n",
        "parts/mod.rs": "mod one;\npub use one::One;\npub struct Base;\n",
        "parts/one.rs": "use super::Base;\npub struct One(Base);\n",
    },
    "a re-export beside a sibling": {
        "lib.rs": "mod parts;\n",
        "parts/mod.rs": "mod one;\nmod two;\npub use one::One;\npub use two::Two;\n",
        "parts/one.rs": "pub struct One;\n",
        "parts/two.rs": "use super::One;\npub struct Two(One);\n",
    },
    "unit tests, models, comments and texts": {
        "lib.rs": "mod a;\nmod b;\n",
        "a.rs": "use crate::b::B;\npub struct A(B);\n",
        "b.rs": "#[cfg(all(loom, test))]\nmod model;\n//! [`crate::a::A`]\npub struct B(&'static str);\n"
        'const C: &str = "crate::a::A";\n#[cfg(test)]\nmod tests { use crate::a::A; }\n',
        "b/model.rs": "use crate::a::A;\n",
    },
    "the file's own name for something": {
        "lib.rs": "mod a;\nmod b;\n",
        "a.rs": "use crate::b::B;\npub struct A(B);\nmod inner { pub struct C; }\nuse inner::C;\nuse self::inner::C as D;\n",
        "b.rs": "pub struct B;\nfn f(a: std::sync::Arc<u8>) { a::<u8>() }\n",
    },
}


@pytest.mark.parametrize("files", CIRCLES.values(), ids=CIRCLES)
def test_a_circle_is_refused(layers, files):
    status, said = layers(files)
    assert status == 1
    assert "in a circle" in said


@pytest.mark.parametrize("files", LEGAL.values(), ids=LEGAL)
def test_what_is_no_circle_passes(layers, files):
    status, said = layers(files)
    assert (status, said) == (0, "layers: as drawn\n")


def test_a_circle_is_told_with_its_lines(layers):
    _, said = layers(CIRCLES["through mod.rs"])
    assert said.splitlines() == [
        "layers: 2 files depend on each other in a circle:",
        *(
            f"    src/parts/{one}.rs:{line} -> src/parts/{other}.rs, {name}"
            for one, line, other, name in [("one", 1, "two", "Two"), ("two", 2, "one", "One")]
        ),
    ]


def test_a_path_that_leads_nowhere_is_refused(layers):
    """Code that the script does not understand must not count as legal."""
    status, said = layers({"lib.rs": "mod a;\n", "a.rs": "fn f() { crate::nowhere::f() }\n"})
    assert status == 1
    assert "src/a.rs:1: nothing defines crate::nowhere::f" in said
