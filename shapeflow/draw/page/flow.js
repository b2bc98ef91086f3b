// What is upstream or downstream of an item, through the borders of modules: tensor by tensor, so that of a module with
// two outputs only what leads to the one that is read counts.

class Flow {
  // `direction` is "up", "down" or "both"; marks are kept by the key of the place, as copies are drawn once.
  constructor(book, place, item, direction) {
    Object.assign(this, { book, place, item, direction });
    this.items = new Map();
    this.wires = new Map();
    this.mark(this.items, place, item);
    if (direction !== "up") this.walk(place, item, DOWN);
    if (direction !== "down") this.walk(place, item, UP);
    for (let inner = place; inner.parent; inner = inner.parent) this.mark(this.items, inner.parent, inner.item);
  }

  mark(marks, place, number) {
    if (!marks.has(place.key)) marks.set(place.key, new Set());
    marks.get(place.key).add(number);
  }

  walk(place, item, way) {
    const seen = new Set();
    const waiting = [...this.beyond(place, item, null, way)];
    while (waiting.length) {
      const [where, number, port] = waiting.pop();
      const key = `${where.key}:${number}:${port}`;
      if (seen.has(key)) continue;
      seen.add(key);
      this.mark(this.items, where, number);
      waiting.push(...this.next(where, number, port, way));
    }
  }

  // The steps from an item that was reached by its `port`.
  *next(place, number, port, way) {
    const item = this.book.sheet(place).items[number];
    if (opens(item)) {
      const inner = this.book.child(place, number);
      const border = this.book.sheet(inner).items.findIndex((each) => each.type === way.enters && (each.port ?? 0) === port);
      if (border >= 0) yield [inner, border, 0];
    } else if (item.type === way.leaves && place.parent) {
      this.mark(this.items, place.parent, place.item);
      yield* this.beyond(place.parent, place.item, item.port ?? 0, way);
    } else {
      yield* this.beyond(place, number, null, way);
    }
  }

  // The items behind the wires of an item, of all its tensors or of one.
  *beyond(place, number, port, way) {
    for (const [wire, each] of this.book.sheet(place).wires.entries()) {
      if (each[way.here] !== number) continue;
      for (const tensor of each.tensors) {
        if (port !== null && tensor[way.mine] !== port) continue;
        this.mark(this.wires, place, wire);
        yield [place, each[way.there], tensor[way.theirs]];
      }
    }
  }

  has(place, item) {
    return this.items.get(place.key)?.has(item) ?? false;
  }

  hasWire(place, wire) {
    return this.wires.get(place.key)?.has(wire) ?? false;
  }
}

// A tensor on a wire is [output of the source, input of the target, shape].
const DOWN = { here: "from", there: "to", mine: 0, theirs: 1, enters: "entry", leaves: "exit" };
const UP = { here: "to", there: "from", mine: 1, theirs: 0, enters: "exit", leaves: "entry" };
