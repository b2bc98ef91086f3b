// Search over operators, modules, shapes, parameters and findings, in every copy; what is drawn once is found once.

const MOST = 60;

class Search {
  constructor(book, act) {
    Object.assign(this, { book, act, entries: null, found: [], at: -1 });
    this.input = document.getElementById("search");
    this.list = document.getElementById("results");
    this.input.addEventListener("input", () => this.run());
    this.input.addEventListener("keydown", (event) => this.key(event));
    this.input.addEventListener("focus", () => this.run());
    document.addEventListener("pointerdown", (event) => {
      if (!event.target.closest("#finder")) this.close();
    });
  }

  *index() {
    for (const place of this.book.places()) {
      for (const [number, item] of this.book.sheet(place).items.entries()) {
        if (item.type === "entry" || item.type === "exit") continue;
        const shapes = (item.outputs ?? []).map((shape) => this.book.shapes[shape].text);
        const reads = (item.reads ?? []).map(([name]) => this.book.path(place, name));
        const names = (item.names ?? []).map((name) => this.book.path(place, name));
        const paths = names.length ? names : [place.path];
        if (item.type === "output") reads.push(...this.book.outputs.filter(Boolean));
        const found = (item.findings ?? []).map((each) => this.book.findings[each]).map(({ rule, message }) => `${rule} ${message}`);
        const fields = [item.title, [...paths, item.kind, item.operator].join("\n"), reads.join("\n"), shapes.join("\n"), [...found, ...(item.arguments ?? [])].join("\n")];
        yield { place, number, item, fields: fields.map((field) => (field ?? "").toLowerCase()), shapes, reads, found, paths };
      }
    }
  }

  // Each word has to occur somewhere; where it does tells how good the match is.
  score(entry, words) {
    let worst = 0;
    for (const word of words) {
      const field = entry.fields.findIndex((text) => text.includes(word));
      if (field < 0) return null;
      worst = Math.max(worst, field === 0 && entry.fields[0].startsWith(word) ? 0 : field + 1);
    }
    return worst;
  }

  // Whether the words stand side by side, as in `p = 0.1` or `B T 64`: such a match goes before others.
  isPhrase(entry, words) {
    return entry.fields.some((text) => text.includes(words.join(" ")));
  }

  // Of copies the path that was looked for.
  pathOf({ paths }, words) {
    return paths.find((path) => words.some((word) => word.length > 1 && path.toLowerCase().endsWith(word))) ?? paths[0];
  }

  run() {
    const words = this.input.value.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return this.close();
    this.entries ??= [...this.index()];
    const groups = new Map();
    for (const entry of this.entries) {
      const score = this.score(entry, words);
      if (score === null) continue;
      const key = `${entry.place.sheet}:${entry.number}`;
      const group = groups.get(key);
      const match = { ...entry, score, rank: score + (this.isPhrase(entry, words) ? 0 : entry.fields.length), path: this.pathOf(entry, words) };
      if (!group) groups.set(key, { ...match, times: 1 });
      else {
        group.times += 1;
        if (match.rank < group.rank) Object.assign(group, match);
      }
    }
    const all = [...groups.values()].sort((a, b) => a.rank - b.rank);
    this.found = all.slice(0, MOST);
    this.at = this.found.length ? 0 : -1;
    this.show(all.length);
  }

  show(total) {
    const rows = this.found.map((entry, i) => this.row(entry, i));
    if (!rows.length) rows.push(html("li", { class: "none" }, "nothing is called that"));
    if (total > MOST) rows.push(html("li", { class: "none" }, `and ${total - MOST} more: add a word`));
    this.list.replaceChildren(...rows);
    this.list.hidden = false;
    this.input.setAttribute("aria-expanded", "true");
    this.point();
  }

  row(entry, i) {
    const about = [entry.path, entry.item.kind && entry.item.kind !== entry.item.title ? entry.item.kind : ""].filter(Boolean).join("  ");
    const shapes = entry.shapes.slice(0, 2).join(", ");
    const matched = { 3: entry.reads, 5: [...entry.found, ...(entry.item.arguments ?? [])] }[entry.score] ?? [];
    return html(
      "li",
      { role: "option", id: `found-${i}`, onpointerdown: (event) => event.preventDefault(), onclick: () => this.go(i) },
      html("b", { class: entry.item.family ? `family-${entry.item.family}` : opens(entry.item) ? "module" : "" }, shown(entry.item)),
      entry.times > 1 ? html("span", { class: "times" }, ` in ${entry.times} places`) : null,
      html("code", {}, shapes),
      html("small", {}, matched.join(", ") || about),
    );
  }

  point() {
    [...this.list.children].forEach((row, i) => row.setAttribute("aria-selected", String(i === this.at)));
    this.list.children[this.at]?.scrollIntoView({ block: "nearest" });
    if (this.at >= 0) this.input.setAttribute("aria-activedescendant", `found-${this.at}`);
    else this.input.removeAttribute("aria-activedescendant");
  }

  key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && this.found.length) {
      event.preventDefault();
      this.at = (this.at + step + this.found.length) % this.found.length;
      this.point();
    } else if (event.key === "Enter" && this.at >= 0) {
      event.preventDefault();
      this.go(this.at);
    } else if (event.key === "Escape") {
      event.stopPropagation();
      this.close();
      this.input.blur();
    }
  }

  go(i) {
    const { place, number } = this.found[i];
    this.close();
    this.input.blur();
    this.act.open(place, number);
  }

  close() {
    this.list.hidden = true;
    this.found = [];
    this.at = -1;
    this.input.setAttribute("aria-expanded", "false");
    this.input.removeAttribute("aria-activedescendant");
  }
}
