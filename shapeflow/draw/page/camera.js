// Pan and zoom: wheel, drag, pinch, buttons. `moved` tells a drag from a click.

const READABLE = 0.75; // of the size at which words are made
const UNREADABLE = 0.3; // smaller, those of a large sheet are left out

class Camera {
  // `see` is told the part of the sheet that is in sight, with as much again around it, and the scale.
  constructor(svg, view, see) {
    Object.assign(this, { svg, view, see, scale: 1, x: 0, y: 0, size: [1, 1], fingers: new Map(), moved: false });
    svg.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    svg.addEventListener("pointerdown", (event) => this.down(event));
    svg.addEventListener("pointermove", (event) => this.move(event));
    for (const end of ["pointerup", "pointercancel"]) svg.addEventListener(end, (event) => this.fingers.delete(event.pointerId));
  }

  apply() {
    this.view.setAttribute("transform", `translate(${this.x} ${this.y}) scale(${this.scale})`);
    const { width, height } = this.svg.getBoundingClientRect();
    const [left, top] = [(-this.x - width / 2) / this.scale, (-this.y - height / 2) / this.scale];
    this.see([left, top, left + (2 * width) / this.scale, top + (2 * height) / this.scale], this.scale);
  }

  get state() {
    return [this.scale, this.x, this.y];
  }

  set state([scale, x, y]) {
    Object.assign(this, { scale, x, y });
    this.apply();
  }

  // The whole sheet, or at its first showing as much of it as can be read, from the item where it begins.
  fit(whole = true, first = null) {
    const [width, height] = this.size;
    const room = this.svg.getBoundingClientRect();
    const across = (room.width - 48) / width;
    const down = (room.height - 48) / height;
    const all = Math.min(across, down, 1.4);
    this.scale = whole ? Math.max(all, 0.02) : Math.max(all, Math.min(READABLE, Math.max(across, 0.5)));
    this.x = (room.width - width * this.scale) / 2;
    this.y = height * this.scale > room.height - 40 ? 24 : (room.height - height * this.scale) / 2;
    if (!whole && first && width * this.scale > room.width) this.x = room.width / 2 - first[0] * this.scale;
    this.apply();
    if (!whole && first) this.show(first);
  }

  zoom(factor, x, y) {
    const room = this.svg.getBoundingClientRect();
    const [cx, cy] = [x ?? room.width / 2, y ?? room.height / 2];
    const scale = Math.min(6, Math.max(0.02, this.scale * factor));
    this.x = cx - ((cx - this.x) * scale) / this.scale;
    this.y = cy - ((cy - this.y) * scale) / this.scale;
    this.scale = scale;
    this.apply();
  }

  wheel(event) {
    event.preventDefault();
    const room = this.svg.getBoundingClientRect();
    const lines = event.deltaMode === 1 ? 16 : 1; // Firefox counts in lines
    this.zoom(Math.exp(-Math.max(-240, Math.min(240, event.deltaY * lines)) / 480), event.clientX - room.left, event.clientY - room.top);
  }

  down(event) {
    if (event.button > 0) return;
    if (!this.fingers.size) this.moved = false;
    this.fingers.set(event.pointerId, [event.clientX, event.clientY]);
  }

  move(event) {
    const before = this.fingers.get(event.pointerId);
    if (!before) return;
    const now = [event.clientX, event.clientY];
    if (!this.moved && Math.hypot(now[0] - before[0], now[1] - before[1]) < 4) return;
    if (!this.moved) this.svg.setPointerCapture(event.pointerId);
    this.moved = true;
    if (this.fingers.size > 1) this.pinch(event.pointerId, before, now);
    else this.state = [this.scale, this.x + now[0] - before[0], this.y + now[1] - before[1]];
    this.fingers.set(event.pointerId, now);
  }

  pinch(finger, before, now) {
    const [other] = [...this.fingers].filter(([id]) => id !== finger).map(([, at]) => at);
    const room = this.svg.getBoundingClientRect();
    const apart = (at) => Math.hypot(at[0] - other[0], at[1] - other[1]) || 1;
    this.zoom(apart(now) / apart(before), (now[0] + other[0]) / 2 - room.left, (now[1] + other[1]) / 2 - room.top);
  }

  // Bring a box into sight, as little as needed; into the middle where it is too small to be read.
  show([x, y, width, height]) {
    const room = this.svg.getBoundingClientRect();
    if (this.scale < UNREADABLE) {
      this.state = [READABLE, room.width / 2 - x * READABLE, room.height / 2 - y * READABLE];
      return;
    }
    const within = (centre, half, low, offset, length) => {
      const [start, end] = [(centre - half) * this.scale + offset, (centre + half) * this.scale + offset];
      return start < low ? low - start : end > length - low ? Math.max(length - low - end, low - start) : 0;
    };
    const [dx, dy] = [within(x, width / 2, 20, this.x, room.width), within(y, height / 2, 20, this.y, room.height)];
    if (dx || dy) this.state = [this.scale, this.x + dx, this.y + dy];
  }
}
