// What the checker found: a list to jump through, and each finding in full beside what it is at.

class Findings {
  constructor(book, act) {
    Object.assign(this, { book, act, at: null });
    document.getElementById("findings").hidden = book.checked === null;
    const button = document.getElementById("found");
    button.hidden = !book.findings.length;
    button.textContent = counted(book.findings.length, "finding");
    button.classList.add(worst(book.findings));
    button.addEventListener("click", () => this.step(1));
  }

  // Lists all of them; those of the chosen item, or of the sheet, are marked.
  show(place, chosen) {
    const { findings, checked } = this.book;
    const item = chosen === null ? null : this.book.sheet(place).items[chosen];
    const here = item ? this.book.foundAt(item) : this.book.foundOn(place.sheet);
    const rows = findings.map((finding, number) => this.entry(finding, number, here.includes(number)));
    const head = html("h2", {}, findings.length ? counted(findings.length, "finding") : "Nothing found");
    const list = rows.length ? html("ol", {}, rows) : "";
    document.getElementById("findings").replaceChildren(head, list, checked ? html("p", { class: "faint" }, checked) : "");
    document.querySelector("#findings [aria-current]")?.scrollIntoView({ block: "nearest" });
  }

  entry(finding, number, here) {
    const where = [finding.module, finding.code?.[0]].filter(Boolean).join("  ");
    const words = [html("b", {}, finding.rule), ` ${finding.message}`, where ? html("small", {}, where) : ""];
    const attributes = { class: `link ${paintOf(finding.level)}`, "aria-current": here ? "true" : null };
    if (!this.book.spots(number).length) return html("li", {}, html("div", { ...attributes, title: "at no place of this drawing" }, words), this.told(finding, true));
    return html("li", {}, html("button", { ...attributes, title: finding.level, onclick: () => this.go(number) }, words));
  }

  // The finding after, or before, the last one that was jumped to.
  step(by) {
    const placed = [...this.book.findings.keys()].filter((number) => this.book.spots(number).length);
    if (!placed.length) return;
    const last = placed.indexOf(this.at);
    this.go(placed[last < 0 ? (by > 0 ? 0 : placed.length - 1) : (last + by + placed.length) % placed.length]);
  }

  go(number) {
    const [place, item] = this.book.spots(number)[0];
    this.at = number;
    this.act.open(place, item);
  }

  // In full, for the panel: those at the item itself, then links to those inside of it.
  details(item) {
    const own = item.findings ?? [];
    const inside = this.book.foundAt(item).filter((number) => !own.includes(number));
    const links = inside.map((number) => this.entry(this.book.findings[number], number, false));
    return [...own.map((number) => this.told(this.book.findings[number])), links.length ? html("div", { class: "inside" }, html("h3", {}, "Found inside"), html("ol", {}, links)) : null];
  }

  told({ level, rule, message, details, witness, fix, code }, brief = false) {
    const lines = (details ?? []).map((line) => html("p", {}, line));
    return html(
      "div",
      { class: `finding ${paintOf(level)}` },
      brief ? null : html("p", {}, html("b", {}, `${level} ${rule}`), ` ${message}`),
      lines,
      witness ? html("p", { class: "faint" }, `seen at ${witness}`) : null,
      code ? [html("p", { class: "faint" }, code[0]), code[1] ? html("pre", {}, code[1]) : null] : null,
      fix ? [html("h3", {}, "Fix"), html("pre", {}, fix)] : null,
    );
  }
}

const paintOf = (level) => (level === "error" ? "error" : "warned");
const worst = (findings) => (findings.some(({ level }) => level === "error") ? "error" : "warned");
