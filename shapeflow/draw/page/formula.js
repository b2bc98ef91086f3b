// Sizes: evaluates the trees of formula.py, in whole numbers of any length.

const floorDivide = (a, b) => {
  const quotient = a / b; // rounds towards zero, Python's rounds down
  return a % b !== 0n && a < 0n !== b < 0n ? quotient - 1n : quotient;
};

const OPERATORS = {
  "+": (...parts) => parts.reduce((a, b) => a + b),
  "*": (...parts) => parts.reduce((a, b) => a * b),
  "^": (a, b) => a ** b,
  "//": (a, b) => (b === 0n ? null : floorDivide(a, b)),
  "%": (a, b) => (b === 0n ? null : a - b * floorDivide(a, b)),
  max: (...parts) => parts.reduce((a, b) => (a > b ? a : b)),
  min: (...parts) => parts.reduce((a, b) => (a < b ? a : b)),
};

// The number, or null where a name has no size; `known` gives a name's number or null.
function evaluate(tree, known) {
  if (typeof tree === "number") return BigInt(tree);
  if (typeof tree === "string") return known(tree);
  const [operator, ...parts] = tree;
  if (operator === "#") return BigInt(parts[0]);
  const values = parts.map((part) => evaluate(part, known));
  return values.includes(null) ? null : OPERATORS[operator](...values);
}

function namesIn(tree) {
  if (typeof tree === "string") return [tree];
  return Array.isArray(tree) && tree[0] !== "#" ? tree.slice(1).flatMap(namesIn) : [];
}

const grouped = (number) => number.toLocaleString("en-US");

// What the reader typed, and what follows from it.
class Sizes {
  constructor(book) {
    this.book = book;
    this.typed = new Map();
    this.found = new Map();
  }

  type(name, text) {
    if (/^\d+$/.test(text.trim())) this.typed.set(name, BigInt(text.trim()));
    else this.typed.delete(name);
    this.found.clear();
  }

  of(name) {
    if (!this.found.has(name)) this.found.set(name, this.find(name));
    return this.found.get(name);
  }

  find(name) {
    if (this.typed.has(name)) return this.typed.get(name);
    if (own(this.book.fixed, name)) return BigInt(this.book.fixed[name]);
    return own(this.book.defined, name) ? this.formula(this.book.defined[name]) : null;
  }

  // The number of a formula, by its place in the book.
  formula(number) {
    return evaluate(this.book.formulas[number][1], (name) => this.of(name));
  }

  // Whether a size is within what the trace holds for; null where the trace does not tell.
  outside(name) {
    if (!own(this.book.bounds, name) || !this.typed.has(name)) return false;
    const [low, high] = this.book.bounds[name];
    const size = this.typed.get(name);
    return size < BigInt(low) || (high !== null && size > BigInt(high));
  }

  // `2 5 32`: each axis as a number where there is one, else in its own words.
  shape(shape) {
    const words = shape.dims.map(([text, number]) => {
      const size = this.formula(number);
      return size === null ? (text.includes(" ") ? `(${text})` : text) : String(size);
    });
    return words.join(" ") || "scalar";
  }

  // How many numbers a tensor has, null where a size is missing.
  count(shape) {
    const sizes = shape.dims.map(([, number]) => this.formula(number));
    return sizes.includes(null) ? null : sizes.reduce((a, b) => a * b, 1n);
  }
}

// Names come from the model, and `constructor` is one that every object seems to have.
function own(object, name) {
  return Object.prototype.hasOwnProperty.call(object, name);
}

const WIDTHS = { 64: 8n, 32: 4n, 16: 2n, 8: 1n, bool: 1n, complex128: 16n, complex64: 8n, complex32: 4n };

function bytesOf(dtype, count) {
  const width = WIDTHS[dtype] ?? WIDTHS[(/^(?:b?float|u?int|q?u?int)(\d+)/.exec(dtype) ?? [])[1]];
  return width === undefined ? null : count * width;
}

// `1.23 G`: three digits, as nobody compares more.
function inUnits(number) {
  const units = ["", "k", "M", "G", "T", "P", "E"];
  let amount = Number(number);
  let unit = 0;
  for (; amount >= 1000 && unit < units.length - 1; unit += 1) amount /= 1000;
  return `${unit ? amount.toPrecision(3) : amount} ${units[unit]}`;
}

function inBytes(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let amount = Number(bytes);
  let unit = 0;
  for (; amount >= 1024 && unit < units.length - 1; unit += 1) amount /= 1024;
  return `${unit ? amount.toPrecision(3) : amount} ${units[unit]}`;
}
