// The panel beside the sheet: the sizes to type, and all that is known of what is chosen.

class Panel {
  constructor(book, sizes, findings, act) {
    Object.assign(this, { book, sizes, findings, act, refused: new Map() });
    this.fields();
  }

  fields() {
    const values = Object.keys(this.book.values);
    const names = [...this.book.free, ...values.filter((name) => !this.book.free.includes(name))];
    const form = html("div", { class: "fields" }, names.map((name) => this.field(name)));
    const fixed = Object.entries(this.book.fixed).map(([name, size]) => html("li", {}, html("code", {}, `${name} = ${grouped(size)}`)));
    this.defined = html("ul", { class: "facts" });
    const holds = this.book.domain ? html("p", { class: "faint" }, `holds for ${this.book.domain}`) : null;
    this.warning = html("p", { class: "warning", role: "alert" });
    document.getElementById("sizes").replaceChildren(
      html("h2", {}, "Sizes"),
      names.length ? form : html("p", { class: "faint" }, "All sizes are fixed."),
      this.warning,
      holds ?? "",
      fixed.length ? html("ul", { class: "facts" }, fixed) : "",
      this.defined,
    );
    this.follow();
  }

  field(name) {
    const origin = this.book.values[name];
    const input = html("input", {
      id: `size-${name}`,
      inputmode: "numeric",
      autocomplete: "off",
      placeholder: "size",
      "aria-label": `Size of ${name}`,
      oninput: (event) => this.act.type(name, event.target),
    });
    if (own(this.book.sizes, name)) input.value = this.book.sizes[name];
    const about = own(this.book.values, name) ? `decided by values${origin ? `, in ${origin}` : ""}` : `the size that ${name} stands for`;
    return html("label", { title: about }, html("code", { class: own(this.book.values, name) ? "fresh" : null }, name), input);
  }

  // What was typed for a name and is no size; "" when it is one.
  refuse(name, text) {
    if (text) this.refused.set(name, text);
    else this.refused.delete(name);
  }

  // What follows from the sizes that were typed.
  follow() {
    const entries = Object.entries(this.book.defined).map(([name, number]) => {
      const size = this.sizes.formula(number);
      return html("li", {}, html("code", {}, `${name} = ${this.book.formulas[number][0]}${size === null ? "" : ` = ${grouped(size)}`}`));
    });
    this.defined.replaceChildren(...entries);
    const outside = [...this.sizes.typed.keys()].filter((name) => this.sizes.outside(name));
    const refused = [...this.refused].map(([name, text]) => `${name}: ${text} is no size, which is a whole number`);
    if (outside.length) refused.push(`${outside.join(", ")}: outside of the sizes that this trace holds for`);
    this.warning.textContent = refused.join("; ");
  }

  // Shows the chosen item, or the sheet itself.
  show(place, number, flow) {
    const parts = number === null ? this.sheet(place) : this.item(place, number, flow);
    document.getElementById("details").replaceChildren(...parts.flat().filter(Boolean));
  }

  sheet(place) {
    const { items, wires, kind, operators } = this.book.sheet(place);
    const item = this.book.itemOf(place);
    const same = this.book.instances(place.sheet);
    const parameters = this.parameters(item.parameters);
    return [
      html("h2", {}, this.book.title(place)),
      html("p", { class: "kind" }, kind),
      place.path ? html("p", { class: "path" }, html("code", {}, place.path)) : null,
      this.facts([parameters, counted(operators, "operator"), this.flops(this.book.sheet(place).flops)]),
      this.shapes("Inputs", items.filter((each) => each.type === "entry" || each.type === "input").map((each) => [each.title, each.outputs?.[0]])),
      this.shapes("Outputs", this.leaving(items, wires)),
      same.length > 1 ? this.links(`${grouped(same.length)} equal modules share this sheet`, same, place) : null,
      place.parent || !this.book.unknown.length ? null : html("p", { class: "warning" }, `FLOPs leave out: ${this.book.unknown.join("; ")}`),
      place.parent ? null : this.asked("As long as", this.book.conditions),
      place.parent ? null : this.asked("Taking", this.book.assumptions),
    ];
  }

  leaving(items, wires) {
    const exits = items.filter((each) => each.type === "exit").map((each) => [each.title, each.outputs?.[0]]);
    const ends = wires.filter((wire) => items[wire.to].type === "output");
    const results = ends.flatMap((wire) => wire.tensors.map(([, into, shape]) => [into, this.output(into) || items[wire.from].title, shape]));
    return [...exits, ...results.sort((a, b) => a[0] - b[0]).map(([, ...row]) => row)];
  }

  // What the model calls its result of this number.
  output(number) {
    return this.book.outputs[number] ?? "";
  }

  item(place, number, flow) {
    const { items, wires } = this.book.sheet(place);
    const item = items[number];
    const reads = (item.reads ?? []).map(([name, shape]) => [this.book.path(place, name), shape]);
    const path = item.names?.length ? this.book.path(place, item.names[0]) : place.path;
    const arriving = wires.filter((wire) => wire.to === number);
    const inputs = arriving.flatMap((wire) => wire.tensors.map(([, into, shape]) => [into, wire.from, shape])).sort((a, b) => a[0] - b[0]);
    return [
      html("h2", {}, shown(item)),
      html("p", { class: "kind" }, this.kindOf(item)),
      path ? html("p", { class: "path" }, html("code", {}, path)) : null,
      this.buttons(item, number, flow),
      this.findings.details(item),
      this.facts([this.parameters(item.parameters, copies(item)), opens(item) ? counted(item.operators, "operator") : null, this.flops(item.flops, copies(item))]),
      this.shapes("Inputs", inputs.map(([into, from, shape]) => [(item.type === "output" && this.output(into)) || items[from].title, shape, () => this.act.choose(from)])),
      item.type === "output" ? null : this.shapes("Outputs", (item.outputs ?? []).map((shape, i) => [item.outputs.length > 1 ? String(i + 1) : "", shape])),
      this.shapes("Parameters", reads),
      this.arguments(item),
      item.code ? this.code(item.code) : null,
      opens(item) && copies(item) > 1 ? this.links(`Stands for ${counted(copies(item), "equal module")}`, item.names.map((_, copy) => this.book.child(place, number, copy)), null) : null,
      copies(item) > 1 && !opens(item) ? this.facts(item.names.map((name) => this.book.path(place, name))) : null,
      (item.type === "entry" || item.type === "exit") && place.parent ? this.outside(place, item) : null,
    ];
  }

  kindOf(item) {
    const words = { input: "input of the model", output: "output of the model", constant: "constant", entry: "comes from outside of this module", exit: "leaves this module", operator: "operator" };
    if (item.type in words) return words[item.type];
    return [item.kind, item.type === "leaf" ? item.operator : ""].filter(Boolean).join(" · ");
  }

  // What makes the tensor that enters the sheet, or what reads the one that leaves it.
  outside(place, item) {
    const up = this.book.sheet(place.parent);
    const way = item.type === "entry" ? UP : DOWN;
    const wires = up.wires.filter((each) => each[way.here] === place.item && each.tensors.some((tensor) => tensor[way.mine] === (item.port ?? 0)));
    const links = wires.slice(0, 12).map((wire) => html("li", {}, html("button", { class: "link", onclick: () => this.act.open(place.parent, wire[way.there]) }, shown(up.items[wire[way.there]]))));
    const title = `${item.type === "entry" ? "Made by" : "Read by"}, in ${this.book.title(place.parent)}`;
    return wires.length ? html("div", {}, html("h3", {}, title), html("ul", { class: "facts" }, links)) : null;
  }

  buttons(item, number, flow) {
    const flowing = (direction, words, key) =>
      html("button", { "aria-pressed": String(flow?.item === number && flow.direction === direction), title: `${words} (${key})`, onclick: () => this.act.flow(direction) }, words);
    return html(
      "div",
      { class: "buttons" },
      opens(item) ? html("button", { class: "primary", onclick: () => this.act.enter(number) }, "Open") : null,
      flowing("up", "Upstream", "u"),
      flowing("down", "Downstream", "d"),
      flowing("both", "Both", "b"),
    );
  }

  parameters(number, times = 1) {
    if (number === undefined || number === null) return null;
    const [text] = this.book.formulas[number];
    const size = this.sizes.formula(number);
    const count = size === null ? text : grouped(size);
    const formula = size !== null && !/^\d+$/.test(text) ? ` = ${text}` : "";
    const all = times > 1 ? ` each${size === null ? "" : `, ${grouped(size * BigInt(times))} in all`}` : "";
    return count === "0" ? null : `${count} parameter${count === "1" ? "" : "s"}${formula}${all}`;
  }

  // Operations of one forward: the number where the sizes tell it, and the formula.
  flops(number, times = 1) {
    if (number === undefined || !this.book.counted) return null;
    const [text] = this.book.formulas[number];
    const size = this.sizes.formula(number);
    const all = times > 1 ? " each" : "";
    if (size === null) return html("span", {}, "FLOPs", all, ": ", html("code", {}, text.length > 240 ? "type sizes to see the number" : text));
    return html("span", { title: text }, `${inUnits(size)}FLOPs${all}`, html("span", { class: "faint" }, ` = ${grouped(size)}`));
  }

  facts(words) {
    const found = words.filter(Boolean);
    return found.length ? html("ul", { class: "facts" }, found.map((word) => html("li", {}, word))) : null;
  }

  // A table of tensors: name, shape in names, its sizes and how much it holds.
  shapes(title, rows) {
    const known = rows.filter(([, shape]) => shape !== undefined);
    if (!known.length) return null;
    const cut = known.slice(0, 40);
    return html("div", { class: "shapes" }, html("h3", {}, title), html("table", {}, cut.map((row) => this.row(...row))), known.length > 40 ? html("p", { class: "faint" }, `and ${known.length - 40} more`) : null);
  }

  row(name, number, go) {
    const label = go ? html("button", { class: "link", onclick: go }, breakable(name)) : html("span", {}, breakable(name));
    if (number === null) return html("tr", {}, html("th", { scope: "row" }, label), html("td", {}, ""));
    const shape = this.book.shapes[number];
    const sizes = this.sizes.shape(shape);
    const words = shape.dims.map(([text]) => (text.includes(" ") ? `(${text})` : text)).join(" ") || "scalar";
    const numbers = sizes === words ? null : html("div", { class: "numbers" }, `= ${sizes}`);
    return html("tr", {}, html("th", { scope: "row" }, label), html("td", {}, html("code", { class: this.book.isFresh(number) ? "fresh" : null }, words), numbers, this.holds(shape)));
  }

  holds(shape) {
    const count = this.sizes.count(shape);
    const bytes = count === null ? null : bytesOf(shape.dtype, count);
    const words = [shape.dtype, count === null ? null : `${grouped(count)} numbers`, bytes === null ? null : inBytes(bytes)];
    return html("div", { class: "faint" }, words.filter(Boolean).join(", "));
  }

  // What an operator is given that is no tensor; of copies that are given others, each value.
  arguments({ arguments: given }) {
    return given ? html("div", { class: "arguments" }, html("h3", {}, "Arguments"), html("ul", { class: "facts" }, given.map((words) => html("li", {}, html("code", {}, words))))) : null;
  }

  code([place, text]) {
    return html("div", { class: "code" }, html("h3", {}, "Source"), html("p", { class: "faint" }, place), html("pre", {}, text));
  }

  links(title, places, current) {
    const list = places.slice(0, 400).map((place) => {
      const here = place === current;
      return html("li", {}, html("button", { class: "link", "aria-current": here ? "true" : null, onclick: () => this.act.open(place) }, place.path || this.book.name));
    });
    const rest = places.length > 400 ? html("p", { class: "faint" }, `and ${grouped(places.length - 400)} more`) : null;
    return html("details", { class: "instances", open: places.length < 7 }, html("summary", {}, title), html("ul", {}, list), rest);
  }

  asked(title, conditions) {
    if (!conditions.length) return null;
    const lines = conditions.map(({ text, code, times }) => html("li", { title: code ? `${code[0]}\n${code[1]}` : null }, html("code", {}, text), times > 1 ? ` x${times}` : ""));
    return html("details", { class: "instances" }, html("summary", {}, `${title} (${lines.length})`), html("ul", {}, lines));
  }
}
