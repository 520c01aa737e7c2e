// Curves over time or over the steps of all, and a lane of states for each member.

import { amount, byName, clock, html, look, sentence, shownName, span, svg } from "./words.js";

const COLORS = 7, LEFT = 52, RIGHT = 12, TOP = 8, BOTTOM = 26;

/** Round values from low to high, about so many. */
function ticks(low, high, count) {
  const rough = (high - low) / Math.max(1, count);
  if (!(rough > 0)) return [low];
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = size * [1, 2, 5, 10].find((each) => each * size >= rough * 0.999);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-9; at += step) found.push(Number(at.toPrecision(12)));
  return found;
}

/** Powers of ten; where these are few, 2 and 5 times those, too. */
function logTicks(low, high) {
  const found = [];
  for (let power = Math.floor(low); power <= Math.ceil(high); power++)
    for (const part of high - low > 2.5 ? [1] : [1, 2, 5]) {
      const at = Math.log10(part) + power;
      if (at >= low - 1e-9 && at <= high + 1e-9) found.push(at);
    }
  const sparse = found.length > 8 ? found.filter((_, at) => at % Math.ceil(found.length / 8) === 0) : found;
  return sparse.length > 1 ? sparse : [low, high];
}

/** Round times: seconds, minutes, hours. */
function timeTicks(low, high, count) {
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400];
  const step = steps.find((each) => (high - low) / each <= count) ?? 86400 * Math.ceil((high - low) / 86400 / count);
  // On the reader's own clock, hours begin where they do there.
  const offset = 60 * new Date(1000 * low).getTimezoneOffset();
  const found = [];
  for (let at = Math.ceil((low - offset) / step) * step + offset; at <= high; at += step) found.push(at);
  return found;
}

const median = (values) => {
  const sorted = [...values].sort((a, b) => a - b), half = sorted.length >> 1;
  return sorted.length ? (sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2) : null;
};

/** One chart of curves. */
export class Curves {
  #root; #readout; #last = null; #width = 0;

  constructor(root, readout) {
    this.#root = root;
    this.#readout = readout;
    root.addEventListener("pointermove", (event) => this.#read(event));
    root.addEventListener("pointerleave", () => this.#point(null));
  }

  /**
   * @param xs where each sample lies, rising
   * @param series [name, values] of each member, null where nothing is known
   * @param about {isTime, isLog, chosen, what}
   */
  draw(xs, series, about) {
    const width = (this.#width = Math.max(240, this.#root.clientWidth)), height = 230;
    this.#root.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const isDrawn = (y) => typeof y === "number" && (!about.isLog || y > 0);
    const scale = about.isLog ? Math.log10 : (y) => y;
    // In the order in which they came: whoever comes later takes no other's color.
    const named = series;
    let low = Infinity, high = -Infinity;
    for (const [, values] of named) for (const y of values) if (isDrawn(y)) { low = Math.min(low, scale(y)); high = Math.max(high, scale(y)); }
    if (low > high || !xs.length) {
      this.#last = null;
      this.#root.replaceChildren(svg("text", { x: width / 2, y: height / 2, class: "none", "text-anchor": "middle" }, about.nothing));
      this.#root.setAttribute("aria-label", `${about.what}: ${about.nothing}`);
      return;
    }
    const margin = Math.max((high - low) * 0.06, about.isLog ? 0.04 : Math.abs(high) * 0.02 || 0.5);
    [low, high] = [low - margin, high + margin];
    if (!about.isLog && low < 0) low = 0;
    const first = xs[0], last = Math.max(xs.at(-1), first + 10);
    const x = (at) => LEFT + ((at - first) / (last - first)) * (width - LEFT - RIGHT);
    const y = (value) => TOP + (1 - (scale(value) - low) / (high - low)) * (height - TOP - BOTTOM);
    const grid = svg("g", { class: "grid" });
    for (const at of about.isLog ? logTicks(low, high) : ticks(low, high, 5)) {
      const value = about.isLog ? 10 ** at : at, place = y(value).toFixed(1);
      grid.append(svg("path", { d: `M${LEFT} ${place}H${width - RIGHT}` }),
        svg("text", { x: LEFT - 6, y: Number(place) + 4, "text-anchor": "end" }, amount(value, 2)));
    }
    const most = Math.floor((width - LEFT) / 80);
    for (const at of about.isTime ? timeTicks(first, last, most) : ticks(first, last, most))
      if (x(at) < width - 26)
        grid.append(svg("text", { x: x(at).toFixed(1), y: height - 8, "text-anchor": "middle" }, about.isTime ? clock(at) : amount(at)));
    const lines = named.map(([name, values], at) => svg("path", {
      d: pathOf(xs, values, isDrawn, x, y),
      class: `curve ${named.length <= COLORS ? `c${at}` : "one"}${about.chosen === name ? " chosen" : ""}`,
    }));
    const middle = named.length > COLORS ? xs.map((_, at) => median(named.map(([, values]) => values[at]).filter(isDrawn))) : null;
    if (middle) lines.push(svg("path", { d: pathOf(xs, middle, isDrawn, x, y), class: "curve median" }));
    // Who is chosen lies on top.
    const chosen = lines.findIndex((line) => line.classList.contains("chosen"));
    if (chosen >= 0) lines.push(...lines.splice(chosen, 1));
    const cursor = svg("path", { class: "cursor" });
    this.#root.replaceChildren(grid, ...lines, cursor);
    this.#last = { xs, named, x, isDrawn, about, cursor, height };
    this.#root.setAttribute("aria-label", `${about.what}. ${this.#words(xs.length - 1)}`);
    this.#point(null);
  }

  #read(event) {
    if (!this.#last) return;
    const box = this.#root.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * this.#width;
    const { xs, x } = this.#last;
    let best = 0;
    xs.forEach((each, index) => { if (Math.abs(x(each) - at) < Math.abs(x(xs[best]) - at)) best = index; });
    this.#point(best);
  }

  #point(index) {
    if (!this.#last) { this.#readout.replaceChildren(); return; }
    const { xs, x, cursor, height } = this.#last;
    cursor.setAttribute("d", index === null ? "" : `M${x(xs[index]).toFixed(1)} ${TOP}V${height - BOTTOM}`);
    this.#readout.replaceChildren(...this.#keys(), html("span", { class: "words" }, this.#words(index ?? xs.length - 1)));
  }

  #keys() {
    const { named } = this.#last;
    if (named.length > COLORS) return [html("span", { class: "key median" }, "median"), html("span", { class: "key one" }, "each member")];
    return named.map(([name], at) => html("span", { class: `key c${at}` }, shownName(name, 16)));
  }

  #words(index) {
    const { xs, named, about, isDrawn } = this.#last;
    const there = named.map(([name, values]) => [name, values[index]]).filter(([, y]) => isDrawn(y));
    const when = about.isTime ? clock(xs[index]) : `step ${amount(xs[index], 4)}`;
    if (!there.length) return `${when}: nobody says`;
    const values = there.map(([, y]) => y);
    const chosen = there.find(([name]) => name === about.chosen);
    return `${when}: median ${amount(median(values))}, from ${amount(Math.min(...values))} to ${amount(Math.max(...values))}${chosen ? `; ${shownName(chosen[0])} ${amount(chosen[1])}` : ""}`;
  }
}

function pathOf(xs, values, isDrawn, x, y) {
  let path = "", isOn = false;
  values.forEach((value, at) => {
    if (!isDrawn(value)) { isOn = false; return; }
    const alone = !isOn && !isDrawn(values[at + 1]);
    path += `${isOn ? "L" : "M"}${x(xs[at]).toFixed(1)} ${y(value).toFixed(1)}${alone ? "h0.1" : ""}`;
    isOn = true;
  });
  return path;
}

const MARKS = {
  founded: ["mark good", "M-3 0A3 3 0 1 0 3 0A3 3 0 1 0 -3 0"],
  joined: ["mark good", "M0 -4L4 3H-4Z"],
  recovered: ["mark good", "M0 -4L4 3H-4Z"],
  suspected: ["mark warn", "M0 -4L4 0L0 4L-4 0Z"],
  died: ["mark bad", "M-3.5 -3.5L3.5 3.5M-3.5 3.5L3.5 -3.5"],
  left: ["mark gone", "M0 4L4 -3H-4Z"],
};

/** Draw the lanes: states by color, events as marks. */
export function drawLanes(root, lanes, events, now) {
  const width = Math.max(240, root.clientWidth), count = lanes.length;
  const [pitch, text] = count <= 16 ? [22, 12] : count <= 40 ? [15, 11] : [11, 9];
  const left = width < 560 ? 74 : 110, height = count * pitch + 28;
  root.setAttribute("viewBox", `0 0 ${width} ${height}`);
  root.style.height = `${height}px`;
  const began = Math.min(now, ...lanes.map(([, lane]) => lane[0]?.[0] ?? now));
  // What happened shortly before is worth some room.
  const earlier = events.map((event) => event.time_s).filter((at) => at < began && began - at < 0.5 * (now - began) + 20);
  const first = Math.min(began, ...earlier) - 1, last = Math.max(now, first + 10);
  const x = (at) => left + ((at - first) / (last - first)) * (width - left - RIGHT);
  const grid = svg("g", { class: "grid" });
  for (const at of timeTicks(first, last, Math.floor((width - left) / 80)))
    grid.append(svg("path", { d: `M${x(at).toFixed(1)} 0V${height - 22}` }),
      svg("text", { x: x(at).toFixed(1), y: height - 7, "text-anchor": "middle" }, x(at) < width - 26 ? clock(at) : ""));
  const rows = new Map();
  const parts = [...lanes].sort((a, b) => byName(a[0], b[0])).map(([id, lane], at) => {
    const middle = at * pitch + pitch / 2;
    rows.set(id, middle);
    const label = svg("text", { x: left - 8, y: middle + text / 3, "text-anchor": "end", class: `name f${text}` }, shownName(id, left > 100 ? 15 : 9));
    const bars = lane.map(([from, state], index) => {
      const to = lane[index + 1]?.[0] ?? now;
      if (!state) return null;
      const bar = svg("rect", { x: x(from).toFixed(1), y: (middle - pitch * 0.3).toFixed(1), width: Math.max(1.5, x(to) - x(from)).toFixed(1), height: (pitch * 0.6).toFixed(1), class: `bar ${look(state)}` });
      bar.append(svg("title", {}, `${shownName(id)}: ${shownName(state)}, ${clock(from)}, for ${span(to - from)}`));
      return bar;
    });
    return svg("g", {}, label, ...bars);
  });
  const marks = events.map((event) => {
    const mark = MARKS[event.event];
    if (!mark || !rows.has(event.peer) || event.time_s < first) return null;
    const drawn = svg("path", { d: mark[1], class: mark[0], transform: `translate(${x(Math.min(event.time_s, now)).toFixed(1)}, ${rows.get(event.peer)})` });
    drawn.append(svg("title", {}, `${clock(event.time_s)} ${sentence(event)}`));
    return drawn;
  });
  root.replaceChildren(grid, ...parts, ...marks.filter((mark) => mark));
}
