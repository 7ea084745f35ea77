"""The documentation's calculator, in a real browser, compared with `bloomery plan`. `scripts/docs` builds the site."""

import random
import re

import pytest

from kit.program import MISSING, PROGRAM, USAGE, as_json, run

PAGE = "guides/calculator.html"
SEED, QUESTIONS = 19, 126

LAYOUTS = ["", "", "blocked", "classic", "partitioned", "quotient"]
# For each kind: its option, if it has one, and its fields in order, with values to try. Fields have the names of the
# options.
KINDS = {
    "scaling": (None, {"expansion": ["", "", "1", "4", "32768"], "grow": ["", "", "1", "1000"], "layout": LAYOUTS}),
    "nonscaling": ("--nonscaling", {"on-full": ["", "saturate"], "layout": LAYOUTS}),
    "counting": (None, {"counting": ["4", "8", "16"], "expansion": ["", "", "0"], "layout": LAYOUTS}),
    "ttl": (None, {"ttl": ["24h", "15m", "90s", "86400000", "1"], "steps": ["", "", "1", "7", "999"]}),
    "window": (None, {"window": ["2", "4", "7", "64", "1000"], "every": ["", "1h"], "layout": LAYOUTS}),
    "static": (None, {"static": ["fuse", "ribbon"]}),
    "cuckoo": ("--cuckoo", {"bucket-size": ["", "", "1", "4", "8", "255"], "expansion": ["", "0", "2"]}),
}

ASK = """
const [kind, values] = arguments, form = document.getElementById("options");
const put = (field, value) => { field.value = value; field.dispatchEvent(new Event("input", { bubbles: true })); };
form.reset();
put(form.kind, kind);
for (const [name, value] of Object.entries(values)) put(form.querySelector(`[name="${name}"]:enabled`), value);
"""

READ = """
const visible = (id) => document.getElementById(id).checkVisibility();
const text = (id) => (visible(id) ? document.getElementById(id).innerText : "");
const at = (path) => path.getAttribute("d").match(/[^ML ]+ [^ML ]+/g).map((point) => point.split(" ").map(Number));
return {
  shown: visible("plan"),
  plan: ["title", "filter", "command", "grows", "kinds", "commands"].map(text).join(" "),
  line: text("line"),
  complaint: text("complaint"),
  at: [...document.querySelectorAll("#options [aria-invalid=true]")].map((field) => field.name),
  errors: [...document.querySelectorAll(".error")].map((error) => error.innerText).join(""),
  paths: [...document.querySelectorAll("#chart path")].map(at),
  base: Math.max(...[...document.querySelectorAll("#chart line")].map((line) => line.getAttribute("y1"))),
};
"""

# Finds texts whose contrast to what is behind them is below 4.5.
PALE = """
const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
const around = (element) => (element ? [element, ...around(element.parentElement)] : []);
const style = (element) => getComputedStyle(element);
const behind = (element) =>
  around(element).map((e) => numbers(style(e).backgroundColor)).find(([, , , alpha = 1]) => alpha === 1);
const light = (colour) => {
  const [red, green, blue] = colour.map((c) => (c / 255 <= 0.04045 ? c / 3294.6 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
};
const contrast = (element) => {
  const back = behind(element), opacity = around(element).reduce((all, e) => all * style(e).opacity, 1);
  const ink = numbers(element instanceof SVGElement ? style(element).fill : style(element).color);
  const seen = back.slice(0, 3).map((c, index) => c + (ink[index] - c) * opacity);
  const [low, high] = [light(seen), light(back)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
};
const hasText = (element) => [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
return [...document.querySelectorAll(".calculator *")]
  .filter((e) => e.checkVisibility() && (hasText(e) || e.matches("input, select")) && contrast(e) < 4.5)
  .map((e) => `${contrast(e).toFixed(2)} ${e.outerHTML.slice(0, 80)}`);
"""


@pytest.fixture
def page(tab, site):
    tab.resize(1280, 900)
    tab.open(f"{site}/{PAGE}")
    tab.wait_for("return document.getElementById('plan').checkVisibility()")
    return tab


def ask(page, kind, values):
    page.run(ASK, kind, values)
    return page.run(READ)


def words_of(kind, values):
    flag, fields = KINDS[kind]
    names = [name for name in ("capacity", "error-rate", *fields) if values.get(name)]
    return [*([flag] if flag else []), *(f"--{name}={values[name]}" for name in names)]


def questions():
    dice = random.Random(SEED)
    for number in range(QUESTIONS):
        kind = list(KINDS)[number % len(KINDS)]
        items = int(10 ** dice.uniform(0.3, 9.5))
        rate = 10 ** -dice.uniform(0.1, 7)
        values = {"capacity": dice.choice([str(items), f"{items:_}", f"{items % 1000 + 1}k", "10M", "2G"])}
        if kind != "cuckoo":
            values["error-rate"] = dice.choice([f"{rate:.3g}", f"{rate * 100:.2g}%", "1%", "0.1%"])
        yield kind, values | {name: dice.choice(choices) for name, choices in KINDS[kind][1].items()}


def squeezed(text):
    return " ".join(text.split())


def test_the_page_says_what_the_program_says(page):
    """Every number, every word and every command agrees for every question, and so do the refusals."""
    assert PROGRAM.exists(), MISSING
    planned = refused = 0
    for kind, values in questions():
        said, words = ask(page, kind, values), words_of(kind, values)
        asked = f"{kind} {values}: {said}"
        if said["shown"]:
            out, _ = run("plan", *words)
            assert said["line"] == " ".join(["bloomery plan", *words]), asked
            # The page shows the command and the tables without these words.
            out = out.replace("\n  command  ", "\n").replace("\nThe kinds, each for the same number of items\n", "\n")
            assert squeezed(said["plan"]) == squeezed(out), asked
            assert not said["at"] and not said["errors"] and not said["complaint"], asked
            planned += 1
        else:
            _, reason = run("plan", *words, status=USAGE)
            complaint = said["errors"].partition(": ")[2] or said["complaint"]
            assert complaint and squeezed(complaint) in squeezed(reason), f"{asked}\n{reason}"
            refused += 1
    assert planned >= 100 and refused >= 3, (planned, refused)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("scaling", {}),
        ("scaling", {"capacity": "3k", "error-rate": "0.1%", "grow": "1000"}),
        ("counting", {"capacity": "2M", "counting": "8", "expansion": "0"}),
        ("cuckoo", {"bucket-size": "4", "expansion": "2"}),
        ("ttl", {"error-rate": "", "ttl": "7d"}),
    ],
)
def test_its_address_can_be_shared(page, site, kind, values):
    """Opening the address of a page shows the same page."""
    said = ask(page, kind, values)
    address = page.run("return location.href")
    assert ("?" in address) == bool(values)
    page.open(f"{site}/index.html")
    page.open(address)
    page.wait_for("return document.getElementById('plan').checkVisibility() || document.querySelector('.error:not(:empty)')")
    again = page.run(READ)
    assert [again[name] for name in ("plan", "line", "errors")] == [said[name] for name in ("plan", "line", "errors")]
    assert page.run("return document.getElementById('kind').value") == kind


def test_an_address_of_another_page_is_no_obstacle(page, site):
    """Unknown names, choices that don't exist, and fields of another kind are left out."""
    said = page.run(READ)
    page.open(f"{site}/{PAGE}?highlight=filter&kind=quantum&layout=heap&ttl=5m&%00=1#calculator")
    page.wait_for("return document.getElementById('plan').checkVisibility()")
    assert page.run(READ) == said


@pytest.mark.parametrize("dark", [False, True])
def test_its_words_can_be_read(page, dark):
    """Each text has at least the contrast that WCAG 2 asks for."""
    page.resize(1280, 900, dark=dark)
    page.open(f"{page.run('return location.href')}?error-rate=5")  # with a complaint
    page.wait_for("return document.querySelector('.error:not(:empty)')")
    assert page.run("return document.documentElement.classList.contains('navy')") == dark
    assert not page.run(PALE)
    page.run(ASK, "scaling", {})
    assert page.run(READ)["shown"] and not page.run(PALE)


def test_the_page_does_not_send_its_reader_to_the_site(page):
    assert "builds the site" not in page.run("return document.body.innerText")


def test_the_chart_has_the_memory_of_the_plan(page):
    """The heights of points on the lines are in the same ratios as the plan's numbers."""
    for items, rate in (("1000", "1%"), ("250k", "0.1%"), ("10M", "3%")):
        said = ask(page, "scaling", {"capacity": items, "error-rate": rate})
        last = as_json("plan", "-n", items, "-e", rate)["growth"][-1]
        fixed, ours, rival = (said["base"] - path[-1][1] for path in said["paths"])
        assert ours / fixed == pytest.approx(last["memory_bytes"] / last["fixed_bytes"], rel=0.02)
        assert ours / rival == pytest.approx(last["memory_bytes"] / last["redisbloom_bytes"], rel=0.02)
    said = ask(page, "nonscaling", {"capacity": "10M", "error-rate": "0.1%"})
    plan = as_json("plan", "-n", "10M", "-e", "0.1%", "--nonscaling")
    # There are eight points per power of ten, beginning with 10%, so 0.1% is the 17th.
    rival, ours = (said["base"] - path[16][1] for path in said["paths"])
    memory = plan["filter"]["memory_bytes"] / plan["redisbloom"][0]["memory_bytes"]
    assert ours / rival == pytest.approx(memory, rel=0.02)
    # The chart has lines for both layouts of a static filter, whichever is chosen.
    for layout in ("fuse", "ribbon"):
        said = ask(page, "static", {"capacity": "10M", "error-rate": "0.1%", "static": layout})
        plan = as_json("plan", "-n", "10M", "-e", "0.1%", f"--static={layout}")
        rival, *both = (said["base"] - path[16][1] for path in said["paths"])
        static = [kind for kind in plan["kinds"] if kind["kind"] == "static"]
        assert [kind["layout"] for kind in static] == ["FUSE", "RIBBON"]
        for line, kind in zip(both, static, strict=True):
            memory = kind["memory_bytes"] / plan["redisbloom"][0]["memory_bytes"]
            assert line / rival == pytest.approx(memory, rel=0.02)


@pytest.mark.parametrize(
    ("kind", "field", "value", "text"),
    [
        ("scaling", "capacity", "", "Number of items: missing; give the number of items to size the filter for"),
        ("scaling", "capacity", "many", 'Number of items: "many" is not a number: write 1000000, 1_000_000, 1M or 1.5M'),
        ("scaling", "capacity", "0", 'Number of items: "0" is not a number of items from 1 to 2^48'),
        ("scaling", "error-rate", "", "Error rate: missing; give the share of absent items that may test positive, such as 1%"),
        (
            "scaling",
            "error-rate",
            "2",
            'Error rate: "2" is not an error rate: expected a number from 1e-12 to below 1, such as 0.01 or 1%',
        ),
        ("scaling", "expansion", "x", 'Expansion: "x" is not possible: expected 0 to 32768'),
        ("scaling", "grow", "0", 'Growth shown: "0" is not a whole number from 1 to 1000000'),
        ("ttl", "ttl", "soon", 'Time: "soon" is not a time in milliseconds: write 60000, 60s, 15m, 1h or 7d'),
        ("ttl", "ttl", "0", 'Time: "0" is not possible: expected a time for which an item is kept, such as 60000 (ms), 60s or 1h'),
        ("ttl", "steps", "1000", 'Steps: "1000" is not possible: expected 1 to 999 steps of a TTL'),
        ("window", "window", "1", 'Generations: "1" is not possible: expected 2 to 64 generations, with LAYOUT QUOTIENT 2 to 1000'),
        ("window", "every", "x", 'Rotate every: "x" is not a time in milliseconds: write 60000, 60s, 15m, 1h or 7d'),
        ("cuckoo", "bucket-size", "0", 'Bucket size: "0" is not a whole number from 1 to 255'),
        ("cuckoo", "expansion", "x", 'Expansion: "x" is not possible: expected 0 to 32768'),
        ("cuckoo", "capacity", "3", "Number of items: a cuckoo filter has two buckets, so at least 4 items"),
    ],
)
def test_a_mistake_is_explained_at_its_field(page, kind, field, value, text):
    said = ask(page, kind, {field: value})
    assert (said["shown"], said["at"], said["complaint"]) == (False, [field], "")
    assert said["errors"] == text
    # Users of a screen reader get the same information.
    described = page.run(f"return document.querySelector('[name={field}]:enabled').getAttribute('aria-describedby')")
    assert page.run("return document.getElementById(arguments[0]).innerText", described.split()[-1]) == said["errors"]


def test_it_is_usable_by_keyboard(page):
    tab_key, right = "\ue004", "\ue014"
    page.run("document.getElementById('kind').focus()")
    reached = []
    for _ in range(6):
        reached.append(page.run("return document.activeElement.id"))
        page.press(tab_key)
    assert reached == ["kind", "capacity", "error-rate", "expansion", "grow", "layout"]
    page.run("document.getElementById('capacity').focus(); document.getElementById('capacity').select()")
    page.press(*"20k", right, right)
    said = page.run(READ)
    assert "A scaling filter for 20,000 items" in said["plan"] and said["line"].startswith("bloomery plan --capacity=20k ")
    page.run("document.getElementById('kind').focus()")
    page.press(*"Cu")
    assert "A cuckoo filter" in page.run(READ)["plan"]
    assert page.run("return location.pathname").endswith(PAGE), "arrows turn the pages of the theme"


def test_every_field_has_a_label_and_nothing_comes_from_elsewhere(page, site):
    assert page.run("return [...document.querySelectorAll('#options :is(input, select)')].every((f) => f.labels.length)")
    loaded = page.run("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert any(re.search(r"calculator.*\.wasm$", name) for name in loaded)
    assert all(name.startswith((site, "data:", "blob:")) for name in loaded), loaded
