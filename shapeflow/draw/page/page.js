// The page: what is open and what is chosen, and what the reader does with keys, clicks and the address.

const KEYS = [
  ["↑ ↓ ← →", "go along the wires, and to what stands beside"],
  ["Enter", "open the module"],
  ["Backspace", "go out to the module around"],
  ["[ and ]", "the copy before, the copy after"],
  ["u, d, b", "highlight all upstream, downstream, both; again to end"],
  ["e, E", "the next finding, the one before"],
  ["/", "search"],
  ["s", "type sizes"],
  ["n", "names or sizes on the drawing"],
  ["+ − f", "zoom in, zoom out, fit the sheet"],
  ["c, p", "show or hide contents, panel"],
  ["t", "light or dark"],
  ["Esc", "end the highlight, then choose nothing, then go out"],
  ["?", "these keys"],
];

const book = new Book(JSON.parse(document.getElementById("data").textContent));
const sizes = new Sizes(book);
const byId = (id) => document.getElementById(id);
const state = { place: null, chosen: null, flow: null, views: new Map(), wanted: undefined };

const act = {
  // A click opens a module and chooses anything else.
  click(number, event) {
    if (camera.moved) return;
    if (opens(book.sheet(state.place).items[number]) && !event.shiftKey) act.enter(number);
    else act.choose(number);
  },
  focus(number) {
    if (state.chosen !== number) choose(number);
  },
  choose(number) {
    camera.show(book.sheet(state.place).items[number].box);
    drawing.items[number].focus({ preventScroll: true });
    choose(number);
  },
  enter(number) {
    const inner = book.child(state.place, number);
    if (inner) act.open(inner);
  },
  // Opens a place through its address, so that the browser's back button leads back.
  open(place, number) {
    state.wanted = number;
    if (place === state.place) arrive(place);
    else location.hash = book.hash(place);
  },
  out() {
    const { place } = state;
    if (place.parent) act.open(place.parent, place.item);
  },
  // The same sheet in another copy of a module: what is open inside of it stays open.
  turn(place, copy) {
    let there = book.child(place.parent, place.item, copy);
    for (const inner of book.trail(state.place).slice(book.trail(place).length)) there = book.child(there, inner.item, inner.copy);
    act.open(there, state.chosen ?? undefined);
  },
  flow(direction) {
    const { flow, place, chosen } = state;
    if (chosen === null) return say("choose an item first");
    const again = flow && flow.place.key === place.key && flow.item === chosen && flow.direction === direction;
    state.flow = again ? null : new Flow(book, place, chosen, direction);
    refresh();
  },
  type(name, input) {
    const text = input.value.trim();
    const isSize = text === "" || /^\d+$/.test(text);
    input.setAttribute("aria-invalid", String(!isSize));
    panel.refuse(name, isSize ? "" : text);
    sizes.type(name, text);
    if (sizes.typed.size) setMode("sizes");
    panel.follow();
    refresh();
  },
};

const drawing = new Drawing(book, sizes);
const camera = new Camera(byId("drawing"), byId("view"), (sight, scale) => drawing.see(sight, scale));
for (const [name, size] of Object.entries(book.sizes)) sizes.type(name, String(size));
const findings = new Findings(book, act);
const panel = new Panel(book, sizes, findings, act);
const contents = new Contents(book, act);
const search = new Search(book, act);

// Shows a place; what was chosen there, and how far it was zoomed, is as it was left.
function arrive(place) {
  const before = state.place;
  if (before) state.views.set(before.key, { camera: camera.state, chosen: state.chosen });
  const kept = state.views.get(place.key);
  if (before !== place) drawing.draw(place, act);
  Object.assign(state, { place, chosen: state.wanted ?? (kept ? kept.chosen : cameFrom(before, place)) });
  state.wanted = undefined;
  camera.size = book.sheet(place).size;
  if (before !== place) {
    if (kept) camera.state = kept.camera;
    else camera.fit(false, book.sheet(place).items[0]?.box);
  }
  document.title = place.path ? `${place.path} · ${book.name}` : book.name;
  byId("drawing").setAttribute("aria-label", `Sheet of ${book.title(place)}`);
  contents.show(place);
  legend();
  refresh();
  if (state.chosen !== null) {
    camera.show(book.sheet(place).items[state.chosen].box);
    drawing.items[state.chosen].focus({ preventScroll: true });
  }
  say(`${book.title(place)}, ${book.sheet(place).kind}, ${counted(book.sheet(place).items.length, "item")}`);
}

// The item that was left by going out.
function cameFrom(before, place) {
  const trail = before ? book.trail(before) : [];
  return trail.find((each) => each.parent?.key === place.key)?.item ?? null;
}

function choose(number) {
  state.chosen = number;
  refresh();
}

function refresh() {
  const { place, chosen, flow } = state;
  drawing.relabel(mode);
  drawing.mark(chosen, flow);
  findings.show(place, chosen);
  panel.show(place, chosen, flow?.place.key === place.key ? flow : null);
  const note = byId("flow-note");
  note.hidden = !flow;
  if (!flow) return;
  const words = { up: "Upstream of", down: "Downstream of", both: "Upstream and downstream of" }[flow.direction];
  const here = flow.items.get(place.key)?.size ?? 0;
  const where = flow.place.key === place.key ? "" : ` in ${book.title(flow.place)}`;
  const clear = html("button", { class: "link", onclick: () => endFlow() }, "clear (Esc)");
  note.replaceChildren(`${words} ${shown(book.sheet(flow.place).items[flow.item])}${where}: ${here} of ${book.sheet(place).items.length} on this sheet  `, clear);
}

function endFlow() {
  state.flow = null;
  refresh();
}

function legend() {
  const present = new Set(book.sheet(state.place).items.map((item) => item.family).filter(Boolean));
  const rows = Object.entries(book.families).filter(([family]) => present.has(family));
  byId("legend").replaceChildren(...rows.map(([family, words]) => html("li", {}, html("span", { class: `swatch family-${family}` }), words)));
}

function say(words) {
  byId("status").textContent = words;
}

let mode = sizes.typed.size ? "sizes" : "names";
function setMode(wanted) {
  mode = wanted;
  byId("mode").textContent = `shapes: ${mode}`;
  byId("mode").setAttribute("aria-pressed", String(mode === "sizes"));
}

const system = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
function showTheme() {
  byId("theme").setAttribute("aria-pressed", String(isDark()));
}
function toggleTheme() {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  showTheme();
}

function toggle(name) {
  const hidden = document.body.classList.toggle(`without-${name}`);
  if (name === "contents") byId("toggle-contents").setAttribute("aria-expanded", String(!hidden));
}

function turnBy(step) {
  const place = book.trail(state.place).findLast((each) => each.parent && copies(book.sheet(each.parent).items[each.item]) > 1);
  if (!place) return say("no copies here");
  const copy = place.copy + step;
  if (copy >= 0 && copy < copies(book.sheet(place.parent).items[place.item])) act.turn(place, copy);
}

function arrowTo(key) {
  const next = state.chosen === null ? 0 : drawing.towards(state.chosen, key);
  if (next !== null) act.choose(next);
}

function escape() {
  if (state.flow) endFlow();
  else if (state.chosen !== null) {
    document.activeElement?.blur();
    choose(null);
  } else act.out();
}

const COMMANDS = {
  Enter: () => state.chosen !== null && act.enter(state.chosen),
  " ": () => state.chosen !== null && act.enter(state.chosen),
  Backspace: () => act.out(),
  Escape: () => escape(),
  "[": () => turnBy(-1),
  "]": () => turnBy(1),
  u: () => act.flow("up"),
  d: () => act.flow("down"),
  b: () => act.flow("both"),
  e: () => findings.step(1),
  E: () => findings.step(-1),
  "/": () => byId("search").select(),
  s: () => byId("sizes").querySelector("input")?.select(),
  n: () => byId("mode").click(),
  "+": () => camera.zoom(1.25),
  "=": () => camera.zoom(1.25),
  "-": () => camera.zoom(0.8),
  f: () => camera.fit(),
  c: () => toggle("contents"),
  p: () => toggle("panel"),
  t: () => toggleTheme(),
  "?": () => byId("help").showModal(),
};

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || byId("help").open) return;
  if (event.target.matches("input, select, textarea")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const pressesButton = (event.key === "Enter" || event.key === " ") && event.target.closest("button, summary");
  if (pressesButton) return;
  const command = event.key.startsWith("Arrow") ? () => arrowTo(event.key) : own(COMMANDS, event.key) ? COMMANDS[event.key] : null;
  if (!command) return;
  event.preventDefault();
  command();
}

document.addEventListener("keydown", onKey);
// Opens what the address says; one that the model does not have is put right.
function follow() {
  const place = book.find(location.hash);
  arrive(place ?? state.place ?? book.root);
  if (place) return;
  say("no such module in this model");
  location.replace(book.hash(state.place));
}

addEventListener("hashchange", follow);
addEventListener("resize", () => camera.apply());
byId("drawing").addEventListener("click", (event) => {
  if (!camera.moved && !event.target.closest(".item, .reference")) choose(null);
});
byId("zoom-in").addEventListener("click", () => camera.zoom(1.25));
byId("zoom-out").addEventListener("click", () => camera.zoom(0.8));
byId("fit").addEventListener("click", () => camera.fit());
byId("theme").addEventListener("click", () => toggleTheme());
system.addEventListener("change", () => showTheme());
byId("ask").addEventListener("click", () => byId("help").showModal());
byId("toggle-contents").addEventListener("click", () => toggle("contents"));
byId("mode").addEventListener("click", () => {
  setMode(mode === "names" ? "sizes" : "names");
  refresh();
});
byId("keys").replaceChildren(...KEYS.flatMap(([key, words]) => [html("dt", {}, html("kbd", {}, key)), html("dd", {}, words)]));

setMode(mode);
showTheme();
follow();
