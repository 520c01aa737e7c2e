// The graph: members on a circle, and an arc for each link that carries something.

import { amount, byName, look, rate, shownName, STATES, svg } from "./words.js";

const RADIUS = 84, ARCS_MAX = 500, LABELS_MAX = 80, SPARKS_MAX = 40, PUSHED_S = 10;
const still = matchMedia("(prefers-reduced-motion: reduce)");

export class Graph {
  #root; #arcs; #sparks; #nodes = svg("g"); #choose; #known = new Map(); #pushes = new Map(); #pushed = new Map(); #chosen = null;

  constructor(root, choose) {
    this.#root = root;
    this.#choose = choose;
    this.#arcs = svg("g", { class: "arcs", "aria-hidden": "true" });
    this.#sparks = svg("g", { class: "sparks", "aria-hidden": "true" });
    root.append(this.#arcs, this.#sparks, this.#nodes);
    root.addEventListener("keydown", (event) => this.#walk(event));
  }

  /** Draw a view; returns what is to be said below. */
  draw(view, chosen) {
    this.#chosen = chosen;
    const peers = [...view.peers].sort((a, b) => byName(a.id, b.id));
    const places = new Map(peers.map((peer, at) => [peer.id, place(at, peers.length)]));
    this.#spark(view.links, places, view.time_s);
    const told = this.#drawArcs(view.links, places, view.time_s);
    this.#drawNodes(peers, places);
    return told;
  }

  #drawArcs(links, places, now) {
    const busy = links.filter((link) => link.bytes_out_s > 0 && places.has(link.source) && places.has(link.target));
    busy.sort((a, b) => b.bytes_out_s - a.bytes_out_s);
    const most = busy.length ? busy[0].bytes_out_s : 0;
    const drawn = busy.slice(0, ARCS_MAX);
    const crowd = Math.min(1, 8 / Math.sqrt(Math.max(1, drawn.length)));
    const paths = drawn.reverse().map(({ source, target, bytes_out_s: out, shares_memory: shares }) => {
      const isPush = now - (this.#pushed.get(keyOf(source, target)) ?? -Infinity) <= PUSHED_S;
      const part = Math.sqrt(out / most);
      const isNear = source === this.#chosen || target === this.#chosen;
      const faded = this.#chosen !== null && !isNear;
      const arc = svg("path", {
        d: arcOf(places.get(source), places.get(target)),
        class: `arc${isPush ? " push" : ""}${isNear ? " near" : ""}`,
        "stroke-width": (0.35 + 2.4 * part * Math.max(0.35, crowd)).toFixed(2),
        "stroke-opacity": ((0.25 + 0.6 * part) * (isNear ? 1 : Math.max(0.3, crowd)) * (faded ? 0.3 : 1)).toFixed(2),
      });
      arc.append(svg("title", {}, `${shownName(source)} → ${shownName(target)}: ${rate(out)}${shares ? ", models in shared memory" : ""}`));
      return arc;
    });
    this.#arcs.replaceChildren(...paths);
    return { drawn: drawn.length, busy: busy.length, most, shares: links.some((link) => link.shares_memory) };
  }

  /** A spark runs along each link on which something was pushed since the last view. */
  #spark(links, places, now) {
    const before = this.#pushes, pushed = this.#pushed;
    this.#pushes = new Map();
    this.#pushed = new Map();
    const fresh = [];
    for (const { source, target, pushes } of links) {
      const key = keyOf(source, target), last = before.get(key);
      this.#pushes.set(key, pushes);
      const isNew = last === undefined ? pushes > 0 : pushes > last;
      if (isNew || pushed.has(key)) this.#pushed.set(key, isNew ? now : pushed.get(key));
      if (last !== undefined && isNew && places.has(source) && places.has(target)) fresh.push([source, target]);
    }
    if (still.matches) return;
    // Of too many, some from all sides.
    const every = Math.ceil(fresh.length / SPARKS_MAX);
    for (const [source, target] of fresh.filter((_, at) => at % every === 0)) {
      const spark = svg("circle", { r: 1.5, class: "spark" });
      spark.style.offsetPath = `path("${arcOf(places.get(source), places.get(target))}")`;
      this.#sparks.append(spark);
      const run = spark.animate([{ offsetDistance: "0%", opacity: 1 }, { offsetDistance: "100%", opacity: 0.4 }],
        { duration: 700, delay: Math.random() * 250, easing: "ease-in-out" });
      run.onfinish = run.oncancel = () => spark.remove();
    }
  }

  #drawNodes(peers, places) {
    const room = (Math.PI * RADIUS) / Math.max(peers.length, 4);
    const size = Math.min(9, 0.55 * room);
    for (const [id, node] of this.#known) if (!places.has(id)) { node.group.remove(); this.#known.delete(id); }
    const first = places.has(this.#chosen) ? this.#chosen : peers[0]?.id;
    for (const peer of peers) {
      const node = this.#known.get(peer.id) ?? this.#make(peer.id);
      const [x, y, angle] = places.get(peer.id);
      // The area says what it holds: most hold about one.
      const held = Math.min(4, Math.max(0.2, typeof peer.weight === "number" ? peer.weight : 1));
      const radius = size * Math.sqrt(held) ** 0.9;
      node.group.style.transform = `translate(${x.toFixed(2)}px, ${y.toFixed(2)}px)`;
      node.group.setAttribute("class", `node ${look(peer.state)}${peer.id === this.#chosen ? " chosen" : ""}`);
      node.group.setAttribute("tabindex", peer.id === first ? "0" : "-1");
      node.group.setAttribute("aria-pressed", String(peer.id === this.#chosen));
      const words = `${shownName(peer.id, 60)}: ${STATES.get(peer.state) ?? shownName(peer.state)}, step ${amount(peer.step)}, weight ${amount(peer.weight)}`;
      node.group.setAttribute("aria-label", words);
      node.title.textContent = words;
      node.disc.setAttribute("r", Math.min(radius, 1.6 * size).toFixed(2));
      node.hit.setAttribute("r", Math.max(radius, 5).toFixed(2));
      const isGone = peer.state === "dead" || peer.state === "left";
      const arm = isGone ? 0.55 * size : 0;
      node.cross.setAttribute("d", arm ? `M${-arm} ${-arm}L${arm} ${arm}M${-arm} ${arm}L${arm} ${-arm}` : "");
      this.#label(node, peer, angle, size, peers.length);
    }
    // In the order of names, so that keys and screen readers go around.
    const wanted = peers.map((peer) => this.#known.get(peer.id).group);
    if (wanted.some((group, at) => this.#nodes.children[at] !== group)) this.#nodes.append(...wanted);
  }

  #label(node, peer, angle, size, count) {
    const isShown = count <= LABELS_MAX || peer.id === this.#chosen;
    node.label.textContent = isShown ? shownName(peer.id, count <= 12 ? 14 : 8) : "";
    const out = 1.3 * size + 3;
    if (count <= 12) {
      const s = Math.sin(angle);
      node.label.setAttribute("class", "label");
      node.label.setAttribute("text-anchor", "middle");
      node.label.setAttribute("transform", `translate(0, ${(s < 0 ? -(out + 2) : out + 6).toFixed(1)})`);
    } else {
      // Along the spokes, so that many have room.
      const turned = Math.cos(angle) < -1e-9, degrees = (180 * angle) / Math.PI + (turned ? 180 : 0);
      node.label.setAttribute("class", "label small");
      node.label.setAttribute("text-anchor", turned ? "end" : "start");
      node.label.setAttribute("transform", `rotate(${degrees.toFixed(2)}) translate(${(turned ? -out : out).toFixed(1)}, ${count > 40 ? 1.2 : 1.6})`);
    }
  }

  #make(id) {
    const node = { title: svg("title"), disc: svg("circle", { class: "disc" }), hit: svg("circle", { class: "hit" }),
      cross: svg("path", { class: "cross" }), label: svg("text") };
    node.group = svg("g", { role: "button", on: {
      click: () => this.#choose(id),
      keydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); this.#choose(id); } },
    } }, node.title, node.hit, node.disc, node.cross, node.label);
    node.group.dataset.id = id;
    this.#known.set(id, node);
    return node;
  }

  #walk(event) {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const all = [...this.#nodes.children];
    const at = all.indexOf(document.activeElement);
    if (!step || at < 0) return;
    event.preventDefault();
    const next = all[(at + step + all.length) % all.length];
    for (const each of all) each.setAttribute("tabindex", each === next ? "0" : "-1");
    next.focus();
  }
}

const keyOf = (source, target) => JSON.stringify([source, target]);

/** Where one of so many is: [x, y, angle], clockwise from the top. */
function place(at, count) {
  const turn = count === 4 ? Math.PI / 4 : 0;
  const angle = (2 * Math.PI * at) / Math.max(1, count) - Math.PI / 2 - (count === 4 ? turn : 0);
  const radius = count === 1 ? 0 : RADIUS;
  return [radius * Math.cos(angle), radius * Math.sin(angle), angle];
}

/** Bent to the right-hand side of its direction, so that there and back are two arcs. */
function arcOf([x1, y1], [x2, y2]) {
  const [mx, my, dx, dy] = [(x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1];
  const [cx, cy] = [0.82 * mx - 0.13 * dy, 0.82 * my + 0.13 * dx];
  return `M${x1.toFixed(1)} ${y1.toFixed(1)}Q${cx.toFixed(1)} ${cy.toFixed(1)} ${x2.toFixed(1)} ${y2.toFixed(1)}`;
}
