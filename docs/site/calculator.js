// The calculator: fields become options of `bloomery plan`, and calculator.wasm (plan/src/page.rs) computes the plan.

// All lookups are inside the calculator, because the page for printing contains all other pages, too, with their ids.
const calculator = document.querySelector(".calculator");
const form = calculator.querySelector("form");
const $ = (id) => calculator.querySelector(`#${id}`);
const fields = [...form.querySelectorAll("input, select")];
const FLAGS = ["nonscaling", "cuckoo"]; // kinds that have an option; the others follow from their fields

function element(name, attributes = {}, ...children) {
  const svg = ["svg", "g", "path", "line", "text", "circle"].includes(name);
  const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// ---- the question ---------------------------------------------------------------------------------------------------

for (const field of fields) {
  const hint = field.parentElement.querySelector(".hint");
  const error = element("p", { class: "error", id: `${field.id}-error` });
  if (hint) hint.id = `${field.id}-hint`;
  field.parentElement.append(error);
  field.setAttribute("aria-describedby", [hint?.id, error.id].filter(Boolean).join(" "));
}

// Shows only the fields of the chosen kind. The others are also disabled, because FormData leaves disabled fields out.
function showKind() {
  for (const part of form.querySelectorAll("[data-kinds]")) {
    part.hidden = !part.dataset.kinds.split(" ").includes(form.kind.value);
    for (const field of part.querySelectorAll("input, select")) field.disabled = part.hidden;
  }
}

function options() {
  const words = FLAGS.includes(form.kind.value) ? [`--${form.kind.value}`] : [];
  for (const [name, value] of new FormData(form)) {
    const word = value.replace(/\s/g, "");
    if (name !== "kind" && word) words.push(`--${name}=${word}`);
  }
  return words;
}

// ---- the page's address ---------------------------------------------------------------------------------------------

// It has the fields that differ from what they begin with.
const usual = (field) => field.defaultValue ?? field.options[0].value; // a select has no defaultValue

// The kind is first, because it decides which of two fields with the same name is meant.
function recall() {
  for (const [name, value] of new URLSearchParams(location.search)) {
    const field = fields.find((field) => field.name === name && !field.disabled);
    if (!field) continue; // not a field of this kind, or a word of the theme, such as `highlight`
    field.value = value;
    if (field.selectedIndex === -1) field.value = usual(field); // no such choice
    showKind();
  }
}

function remember() {
  const changed = fields.filter((field) => !field.disabled && field.value !== usual(field));
  const state = new URLSearchParams(changed.map((field) => [field.name, field.value]));
  history.replaceState(null, "", location.pathname + (changed.length ? `?${state}` : "") + location.hash);
}

// ---- the answer -----------------------------------------------------------------------------------------------------

async function load() {
  const file = await fetch(new URL("calculator.wasm", import.meta.url));
  if (!file.ok) throw new Error(`${file.url}: ${file.status}`);
  return (await WebAssembly.instantiate(await file.arrayBuffer())).instance.exports;
}

function ask(wasm, words) {
  const question = new TextEncoder().encode(words.join("\n"));
  const room = wasm.room(question.length);
  new Uint8Array(wasm.memory.buffer, room, question.length).set(question);
  const length = wasm.answer();
  return JSON.parse(new TextDecoder().decode(new Uint8Array(wasm.memory.buffer, wasm.text(), length)));
}

// Shows a complaint at the field that it is about, after the field's label. If no such field is shown, the complaint is
// below all fields.
function complain(complaint) {
  const blamed = complaint && form.querySelector(`[name="${complaint.option}"]:enabled`);
  for (const field of fields) {
    field.setAttribute("aria-invalid", field === blamed);
    $(`${field.id}-error`).textContent = field === blamed ? `${field.labels[0].textContent}: ${complaint.text}` : "";
  }
  $("complaint").textContent = complaint && !blamed ? complaint.text : "";
}

function table({ columns, rows }) {
  const kind = (index) => (columns[index].startsWith(">") ? "number" : "");
  const line = (tag, cells) => element("tr", {}, ...cells.map((cell, at) => element(tag, { class: kind(at) }, cell)));
  const code = (text, index) => (columns[index] === "command" ? element("code", {}, text) : text);
  const head = line("th", columns.map((name) => name.replace(">", "")));
  const body = rows.map((row) => line("td", row.map(code)));
  return element("table", {}, element("thead", {}, head), element("tbody", {}, ...body));
}

function draw(chart) {
  const [width, height, left, right, above, below] = [Math.min($("chart").clientWidth, 720), 300, 68, 16, 8, 44];
  const x = (value) => left + ((value - chart.x[0]) / (chart.x[1] - chart.x[0])) * (width - left - right);
  const y = (value) => height - below - (value / chart.top) * (height - above - below);
  const label = (text, at) => element("text", at, text);
  const svg = element("svg", { width, height, role: "img", "aria-label": chart.title });
  for (const [value, text] of chart.y_ticks) {
    svg.append(element("line", { class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value) }));
    svg.append(label(text, { x: left - 8, y: y(value) + 4, "text-anchor": "end" }));
  }
  const step = width < 480 ? 2 : 1; // otherwise, labels would touch each other
  chart.x_ticks.forEach(([value, text], index) => {
    if (index % step === 0) svg.append(label(text, { x: x(value), y: height - below + 18, "text-anchor": "middle" }));
  });
  svg.append(label(chart.x_name, { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }));
  const legend = [];
  [...chart.lines, ...chart.points].forEach(({ name, points }, index) => {
    if (!points.length) return; // no filter of this kind is that large
    const at = points.map(([a, b]) => [x(a).toFixed(1), y(b).toFixed(1)]);
    const isLine = index < chart.lines.length;
    const mark = isLine
      ? [element("path", { d: "M" + at.map((point) => point.join(" ")).join("L") })]
      : at.map(([cx, cy]) => element("circle", { cx, cy, r: 5 }));
    const look = `series series-${index} ${isLine ? "" : "point"} ${name.startsWith("RedisBloom") ? "rival" : ""}`;
    svg.append(element("g", { class: look }, ...mark));
    legend.push(element("li", { class: look }, name));
  });
  $("chart").replaceChildren(element("figcaption", {}, chart.title), svg, element("ul", {}, ...legend));
}

let drawn;
function show(wasm) {
  showKind();
  const words = options();
  const answer = ask(wasm, words);
  const failed = "text" in answer;
  complain(failed ? answer : null);
  $("plan").hidden = failed;
  if (failed) return;
  const { title, filter, growth, kinds, commands } = answer.words;
  $("title").textContent = title;
  const lines = filter.filter(([name]) => name !== "command");
  $("filter").replaceChildren(...lines.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
  $("command").textContent = answer.plan.filter.command;
  $("line").textContent = ["bloomery plan", ...words].join(" ");
  $("grows").hidden = !growth.rows.length;
  $("growth").replaceChildren(table(growth));
  $("kinds").replaceChildren(table(kinds));
  $("commands").replaceChildren(table(commands));
  draw((drawn = answer.chart));
}

form.addEventListener("submit", (event) => event.preventDefault());
try {
  const wasm = await load();
  form.addEventListener("input", () => {
    show(wasm);
    remember();
  });
  new ResizeObserver(() => drawn && !$("plan").hidden && draw(drawn)).observe($("plan"));
  showKind();
  recall();
  show(wasm);
} catch (error) {
  $("complaint").textContent = `The calculator could not be loaded (${error.message}). bloomery plan computes the same.`;
}
