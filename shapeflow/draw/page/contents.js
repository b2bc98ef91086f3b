// The table of contents and the breadcrumbs: where the sheet stands in the model.

class Contents {
  constructor(book, act) {
    Object.assign(this, { book, act, opened: new Set([""]) });
  }

  show(place) {
    for (let each = place; each; each = each.parent) this.opened.add(each.key);
    this.place = place;
    const list = html("ul", {}, this.entry(this.book.root, this.book.name, this.book.name));
    document.getElementById("contents").replaceChildren(list);
    document.querySelector("#contents [aria-current]")?.scrollIntoView({ block: "nearest" });
    this.breadcrumbs(place);
  }

  entry(place, title, kind) {
    const below = this.book.sheet(place).items.map((item, number) => [item, number]).filter(([item]) => opens(item));
    const open = this.opened.has(place.key);
    const here = place.key === this.place.key;
    const words = html("button", { class: "entry", "aria-current": here ? "page" : null, title: kind, onclick: () => this.act.open(here ? this.place : place) }, html("span", {}, breakable(title), this.mark(place)), html("small", {}, kind === title ? "" : kind));
    const fold = below.length ? html("button", { class: "fold", "aria-expanded": String(open), "aria-label": `What is in ${title}`, onclick: () => this.toggle(place) }, open ? "▾" : "▸") : html("span", { class: "fold" });
    const inner = open && below.length ? html("ul", {}, below.map(([item, number]) => this.entry(this.near(place, number), shown(item), item.kind))) : null;
    return html("li", {}, html("div", {}, fold, words), inner);
  }

  // How many findings are on the sheet and below.
  mark(place) {
    const found = this.book.foundOn(place.sheet).map((number) => this.book.findings[number]);
    return found.length ? html("i", { class: `count ${worst(found)}`, title: counted(found.length, "finding") }, found.length) : null;
  }

  // The copy on the way to the open sheet where there is one, else the first.
  near(place, number) {
    const onTheWay = this.book.trail(this.place).find((each) => each.parent === place && each.item === number);
    return onTheWay ?? this.book.child(place, number);
  }

  toggle(place) {
    if (this.opened.has(place.key)) this.opened.delete(place.key);
    else this.opened.add(place.key);
    const focus = document.activeElement?.getAttribute("aria-label");
    const { opened } = this;
    const list = html("ul", {}, this.entry(this.book.root, this.book.name, this.book.name));
    document.getElementById("contents").replaceChildren(list);
    [...list.querySelectorAll(".fold")].find((each) => each.getAttribute("aria-label") === focus)?.focus();
    this.opened = opened;
  }

  breadcrumbs(place) {
    const trail = this.book.trail(place);
    const crumbs = trail.map((each, i) => {
      const last = i === trail.length - 1;
      const name = html("button", { class: "crumb", "aria-current": last ? "page" : null, onclick: () => this.act.open(each) }, this.book.title(each));
      return html("li", {}, name, this.turn(each));
    });
    document.getElementById("breadcrumbs").replaceChildren(html("ol", {}, crumbs));
  }

  // Beside a copy: a list to turn to another.
  turn(place) {
    if (!place.parent) return null;
    const item = this.book.sheet(place.parent).items[place.item];
    if (copies(item) < 2) return null;
    const choices = item.names.map((_, copy) => html("option", { value: copy, selected: copy === place.copy }, this.book.title(this.book.child(place.parent, place.item, copy))));
    const choose = (event) => this.act.turn(place, Number(event.target.value));
    return html("select", { "aria-label": `Copy of ${this.book.title(place)}`, title: "Another copy ([ and ])", onchange: choose }, choices);
  }
}
