// Draws a sheet: boxes and wires where Graphviz put them. Every word is set as text, none is read as markup.
//
// Of a large sheet only what is in sight is drawn: 2,000 boxes with their words took seconds for every step of a zoom.

const SVG = "http://www.w3.org/2000/svg";

function element(space, name, attributes, ...children) {
  const made = space ? document.createElementNS(space, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

const svg = (name, attributes, ...children) => element(SVG, name, attributes, ...children);
const html = (name, attributes, ...children) => element(null, name, attributes, ...children);

// A long name may go on in a new line behind its dots and underscores.
const breakable = (text) => text.split(/(?<=[._])/).flatMap((part, i) => (i ? [html("wbr"), part] : [part]));

const LARGE = 400; // items

const ROUND = { operator: 5, leaf: 5, module: 7, input: 15, output: 15, entry: 15, exit: 15, constant: 0 };

class Drawing {
  constructor(book, sizes) {
    Object.assign(this, { book, sizes, place: null, items: [], wires: [], labels: [], chosen: null, flow: null });
  }

  // Begins the sheet of a place; `act` is told of clicks and of focus. The camera tells what is in sight.
  draw(place, act) {
    const { items, wires } = this.book.sheet(place);
    Object.assign(this, { place, act, isLarge: items.length > LARGE, chosen: null, flow: null });
    this.items = items.map(() => null);
    this.wires = wires.map(() => null);
    this.labels = wires.map(() => null);
    this.reach = { items: items.map(({ box: [x, y, width, height] }) => [x - width / 2, y - height / 2, x + width / 2, y + height / 2]), wires: wires.map(around) };
    document.getElementById("wires").replaceChildren();
    document.getElementById("items").replaceChildren();
    if (!this.isLarge) this.see([-Infinity, -Infinity, Infinity, Infinity], 1);
  }

  // Draws what is in a rectangle of the sheet, and takes the rest out of sight.
  see([left, top, right, bottom], scale) {
    document.getElementById("view").classList.toggle("far", this.isLarge && scale < UNREADABLE);
    const { items, wires } = this.book.sheet(this.place);
    const made = [];
    const look = (drawn, reach, draw) => {
      reach.forEach(([x0, y0, x1, y1], i) => {
        const isSeen = x1 >= left && x0 <= right && y1 >= top && y0 <= bottom;
        if (isSeen && !drawn[i]) made.push((drawn[i] = draw(i)));
        else if (drawn[i] && this.isLarge) drawn[i].style.display = isSeen ? "" : "none";
      });
    };
    look(this.wires, this.reach.wires, (i) => this.wire(wires[i], i));
    look(this.items, this.reach.items, (i) => this.item(items[i], i, this.act));
    if (!made.length) return;
    document.getElementById("wires").append(...made.filter((each) => each.classList.contains("wire")));
    document.getElementById("items").append(...made.filter((each) => each.classList.contains("item")));
    this.squeeze(made);
    this.relabel(this.mode);
    this.mark(this.chosen, this.flow);
  }

  // Boxes were sized without the reader's fonts: a line that is too long here is set tighter.
  squeeze(made) {
    const long = [];
    for (const drawn of made) {
      for (const text of drawn.querySelectorAll("text[data-room]")) {
        if (text.getComputedTextLength() > Number(text.dataset.room)) long.push(text);
      }
    }
    for (const text of long) {
      text.setAttribute("textLength", text.dataset.room);
      text.setAttribute("lengthAdjust", "spacingAndGlyphs");
    }
  }

  item(item, number, act) {
    const [x, y, width, height] = item.box;
    const [title, ...about] = item.lines;
    const first = -height / 2 + 6 + 13;
    const room = width - (opens(item) ? 34 : 12);
    const back = copies(item) > 1 ? [6, 3].map((by) => this.rectangle(item, width, height, by, "copy")) : [];
    return svg(
      "g",
      {
        class: `item ${item.type} ${this.found(item)} ${item.family ? `family-${item.family}` : ""}${opens(item) ? " opens" : ""}`,
        transform: `translate(${x} ${y})`,
        tabindex: 0,
        role: "button",
        "aria-label": this.spoken(item),
        "data-item": number,
        onclick: (event) => act.click(number, event),
        onfocus: () => act.focus(number),
      },
      back,
      this.rectangle(item, width, height, 0, "box"),
      this.text(title, "title", first + 1, room),
      about.map((line, i) => this.text(line, "about", first + 15 + 14 * i, width - 12)),
      this.badge(item, width, height),
      opens(item) ? this.handle(width, height, number, act) : null,
      svg("title", {}, this.spoken(item)),
    );
  }

  rectangle(item, width, height, by, name) {
    return svg("rect", { class: name, x: by - width / 2, y: by - height / 2, width, height, rx: ROUND[item.type] ?? 5 });
  }

  text(words, name, y, room) {
    return svg("text", { class: name, y, "data-room": room }, words);
  }

  // Red at a finding; a module is marked by the badge alone where it only has one inside.
  found(item) {
    return item.findings ? `found ${worst(item.findings.map((number) => this.book.findings[number]))}` : "";
  }

  // How many findings are here and inside, in the left corner.
  badge(item, width, height) {
    const found = this.book.foundAt(item).map((number) => this.book.findings[number]);
    if (!found.length) return null;
    const at = `translate(${2 - width / 2} ${2 - height / 2})`;
    return svg("g", { class: `badge ${worst(found)}`, transform: at }, svg("circle", { r: 8 }), svg("text", { y: 3.6 }, found.length === 1 ? "!" : found.length));
  }

  // The ⓘ of a module: selects it, where a click elsewhere opens it.
  handle(width, height, number, act) {
    const choose = (event) => {
      event.stopPropagation();
      act.choose(number);
    };
    const at = `translate(${width / 2 - 11} ${11 - height / 2})`;
    return svg("g", { class: "handle", transform: at, onclick: choose }, svg("circle", { r: 6.5 }), svg("text", { y: 3.4 }, "i"));
  }

  spoken(item) {
    const words = [shown(item), item.kind && item.kind !== item.title ? item.kind : "", item.operator && item.operator !== item.title ? item.operator : ""];
    if (item.parameters !== undefined) words.push(`${this.book.formulas[item.parameters][0]} parameters`);
    const outputs = (item.outputs ?? []).map((number) => this.book.shapes[number].text);
    if (outputs.length) words.push(`gives ${outputs.slice(0, 4).join(", ")}`);
    const found = this.book.foundAt(item);
    if (found.length) words.push(found.length > 3 ? counted(found.length, "finding") : found.map((n) => `${this.book.findings[n].level} ${this.book.findings[n].rule}`).join(", "));
    if (opens(item)) words.push("opens");
    return words.filter(Boolean).join(", ");
  }

  wire(wire, number) {
    const [label, labels] = this.label(wire);
    this.labels[number] = labels;
    const { items } = this.book.sheet(this.place);
    const reference = wire.reference ? this.reference(wire.reference, items[wire.from], () => this.act.choose(wire.from)) : null;
    const words = wire.tensors.map(([, , shape]) => this.book.shapes[shape].text);
    const about = `${items[wire.from].title} → ${items[wire.to].title}: ${words.join(", ")}`;
    return svg(
      "g",
      { class: `wire ${this.found(items[wire.to])}` },
      svg("path", { class: "line", d: curve(wire.points) }),
      svg("path", { class: "tip", d: arrow(wire.points) }),
      reference,
      label,
      svg("title", {}, about),
    );
  }

  label(wire) {
    if (!wire.at) return [null, null];
    const lines = [...wire.label, ...(wire.more ? [null] : [])];
    const [x, y] = wire.at;
    const texts = lines.map((line, i) => {
      const fresh = line && this.book.isFresh(line[0]) ? "fresh" : null;
      return svg("text", { x, y: y + 3.5 + (i - (lines.length - 1) / 2) * 13, class: fresh });
    });
    return [svg("g", { class: "label" }, texts), { texts, lines, more: wire.more }];
  }

  // A source that very many read is named at each reader.
  reference([x, y, width, height], source, choose) {
    const box = svg("rect", { x: -width / 2, y: -height / 2, width, height, rx: 4 });
    return svg("g", { class: "reference", transform: `translate(${x} ${y})`, onclick: choose }, box, svg("text", { y: 3.5 }, source.lines[0]));
  }

  // Writes names or sizes on the wires.
  relabel(mode) {
    this.mode = mode;
    for (const { texts, lines, more } of this.labels.filter(Boolean)) {
      texts.forEach((text, i) => {
        const [number, times] = lines[i] ?? [null, 1];
        const shape = this.book.shapes[number];
        const words = number === null ? `and ${more} more` : mode === "sizes" ? this.sizes.shape(shape) : shape.text;
        const said = times > 1 ? `${times} x ${words}` : words;
        if (text.textContent !== said) text.textContent = said; // setting it lays all words out anew
      });
    }
  }

  // Shows which item is chosen, and what is upstream or downstream.
  mark(chosen, flow) {
    Object.assign(this, { chosen, flow });
    const { wires } = this.book.sheet(this.place);
    this.items.forEach((drawn, number) => {
      if (!drawn) return;
      drawn.classList.toggle("chosen", number === chosen);
      drawn.classList.toggle("in-flow", Boolean(flow?.has(this.place, number)));
      drawn.classList.toggle("origin", Boolean(flow && flow.place.key === this.place.key && flow.item === number));
    });
    this.wires.forEach((drawn, number) => {
      if (!drawn) return;
      drawn.classList.toggle("near", wires[number].from === chosen || wires[number].to === chosen);
      drawn.classList.toggle("in-flow", Boolean(flow?.hasWire(this.place, number)));
    });
    document.getElementById("view").classList.toggle("flowing", Boolean(flow));
  }

  // The item to go to from another with an arrow key: along a wire, or the nearest beside it.
  towards(number, key) {
    const { items, wires } = this.book.sheet(this.place);
    const [x, y] = items[number].box;
    const nearest = (candidates, cost) => candidates.sort((a, b) => cost(a) - cost(b))[0] ?? null;
    if (key === "ArrowDown" || key === "ArrowUp") {
      const [here, there] = key === "ArrowDown" ? ["from", "to"] : ["to", "from"];
      const linked = wires.filter((wire) => wire[here] === number).map((wire) => wire[there]);
      return nearest([...new Set(linked)], (other) => Math.abs(items[other].box[1] - y) + Math.abs(items[other].box[0] - x));
    }
    const side = key === "ArrowRight" ? 1 : -1;
    const beside = items.map((_, other) => other).filter((other) => (items[other].box[0] - x) * side > 1);
    return nearest(beside, (other) => Math.abs(items[other].box[0] - x) + 4 * Math.abs(items[other].box[1] - y));
  }
}

// The rectangle that a wire keeps within, with its label and the name of its source.
function around({ points, at, label, reference }) {
  const xs = points.filter((_, i) => i % 2 === 0);
  const ys = points.filter((_, i) => i % 2);
  if (at) xs.push(at[0], at[0] + 200), ys.push(at[1] - 8 * label.length, at[1] + 8 * label.length);
  if (reference) xs.push(reference[0] - reference[2], reference[0] + reference[2]), ys.push(reference[1] - reference[3]);
  return [Math.min(...xs), Math.min(...ys), Math.max(...xs), Math.max(...ys)];
}

// Bezier points, of which the last is the tip of the arrow.
function curve(points) {
  const pairs = [];
  for (let i = 0; i + 3 < points.length; i += 2) pairs.push(`${points[i]} ${points[i + 1]}`);
  const end = points.slice(-2);
  return `M${pairs[0]}C${pairs.slice(1).join(" ")}L${end.join(" ")}`;
}

function arrow(points) {
  const [x, y, tx, ty] = points.slice(-4);
  const length = Math.hypot(tx - x, ty - y) || 1;
  const [dx, dy] = [(tx - x) / length, (ty - y) / length];
  const [bx, by] = [tx - 7 * dx, ty - 7 * dy];
  return `M${tx} ${ty}L${bx - 3 * dy} ${by + 3 * dx}L${bx + 3 * dy} ${by - 3 * dx}Z`;
}
