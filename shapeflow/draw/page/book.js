// The book: sheets, and the places in the model where each of them stands.
//
// A place is one module call: its sheet, its path, and the item of the parent's sheet that it is, with the number of
// the copy where that item stands for several. The whole model is the place without a parent.

class Book {
  constructor(data) {
    Object.assign(this, data);
    this.inside = new Map();
    this.found = null;
    this.root = { key: "", sheet: 0, path: "", parent: null, item: null, copy: 0, children: new Map() };
    this.hashes = null;
  }

  sheet(place) {
    return this.sheets[place.sheet];
  }

  // The place that opens behind an item, or null.
  child(place, item, copy = 0) {
    const { sheet } = this.sheet(place).items[item];
    if (sheet === undefined) return null;
    const key = `${item}x${copy}`;
    if (!place.children.has(key)) {
      place.children.set(key, {
        key: `${place.key}/${item}`, // of what is drawn: copies share it
        sheet,
        path: this.path(place, this.sheet(place).items[item].names[copy]),
        parent: place,
        item,
        copy,
        children: new Map(),
      });
    }
    return place.children.get(key);
  }

  // A name is told from the sheet's own module, or in a list from the model.
  path(place, name) {
    if (Array.isArray(name)) return name[0];
    return place.path ? `${place.path}.${name}` : name;
  }

  // Every place, the whole model first; all copies of what is drawn once.
  *places(place = this.root) {
    yield place;
    const { items } = this.sheet(place);
    for (let item = 0; item < items.length; item += 1) {
      if (items[item].sheet === undefined) continue;
      for (let copy = 0; copy < items[item].names.length; copy += 1) yield* this.places(this.child(place, item, copy));
    }
  }

  // Readable addresses: the module's path, and `~2` behind it where it ran a second time.
  addresses() {
    if (this.hashes) return this.hashes;
    this.hashes = { places: new Map(), texts: new Map() };
    for (const place of this.places()) {
      let text = place.path;
      for (let call = 2; this.hashes.places.has(text); call += 1) text = `${place.path}~${call}`;
      this.hashes.places.set(text, place);
      this.hashes.texts.set(place, text);
    }
    return this.hashes;
  }

  hash(place) {
    return `#${encodeURIComponent(this.addresses().texts.get(place))}`;
  }

  // The place of an address, null for one that the model does not have.
  find(hash) {
    let text = hash.replace(/^#/, "");
    try {
      text = decodeURIComponent(text);
    } catch {
      return null; // a half-written %: nobody's address
    }
    return this.addresses().places.get(text) ?? null;
  }

  // All places of one sheet.
  instances(sheet) {
    return [...this.places()].filter((place) => place.sheet === sheet);
  }

  // The numbers of what was found at an item, and inside of it; on a sheet and below.
  foundAt(item) {
    return [...new Set([...(item.findings ?? []), ...(opens(item) ? this.foundOn(item.sheet) : [])])];
  }

  foundOn(sheet) {
    if (!this.inside.has(sheet)) this.inside.set(sheet, [...new Set(this.sheets[sheet].items.flatMap((item) => this.foundAt(item)))]);
    return this.inside.get(sheet);
  }

  // Where one finding is, as [place, item]; what is in the module that the finding names comes first.
  spots(number) {
    this.found ??= this.findings.map(({ module }, each) => {
      const spots = [...this.places()].flatMap((place) => this.sheet(place).items.map((item, i) => [place, i, item]).filter(([, , item]) => item.findings?.includes(each)));
      const isNamed = ([place, , item]) => place.path === module || item.names?.some((name) => this.path(place, name) === module);
      return [...spots.filter(isNamed), ...spots.filter((spot) => !isNamed(spot))];
    });
    return this.found[number];
  }

  // Whether a shape has sizes that only values decide.
  isFresh(shape) {
    return this.shapes[shape].dims.some(([, number]) => namesIn(this.formulas[number][1]).some((name) => own(this.values, name)));
  }

  title(place) {
    if (!place.parent) return this.name;
    const item = this.sheet(place.parent).items[place.item];
    const name = item.names[place.copy];
    const text = Array.isArray(name) ? name[0] : name;
    const call = item.names.slice(0, place.copy).filter((other) => String(other) === String(name)).length + (item.call ?? 0);
    return text + (call ? ` (${call + 1})` : "");
  }

  trail(place) {
    return place.parent ? [...this.trail(place.parent), place] : [place];
  }

  // The item of which the place is the inside; for the whole model what is known of it.
  itemOf(place) {
    if (place.parent) return this.sheet(place.parent).items[place.item];
    return { type: "module", title: this.name, kind: this.name, parameters: this.parameters, names: [""] };
  }
}

const opens = (item) => item.sheet !== undefined;
const shown = (item) => item.title + (item.call ? ` (${item.call + 1})` : "") + (copies(item) > 1 ? ` x${copies(item)}` : "");
const copies = (item) => item.names?.length ?? 1;
const counted = (n, noun) => `${grouped(n)} ${noun}${n === 1 || n === 1n ? "" : "s"}`;
