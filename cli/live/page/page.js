// The page: takes views as they come, and keeps all parts of it up to date.

import { Curves, drawLanes } from "./charts.js";
import { Graph } from "./graph.js";
import { amount, byName, bytes, clock, find, html, look, rate, sentence, shownName, span, STATES, whole } from "./words.js";

const EVERY_MS = 1000, EVENTS_SHOWN = 100, SAMPLES_MAX = 600, PEERS_MAX = 256, CHANGES_MAX = 60;

const COLUMNS = [
  ["peer", (p) => p.id, (p) => shownName(p.id), "left"],
  ["state", (p) => p.state, (p) => p.state + (p.source === "others" ? "*" : ""), "left"],
  ["step", (p) => p.step, (p) => whole(p.step)],
  ["steps/s", (p) => p.steps_s, (p) => amount(p.steps_s)],
  ["weight", (p) => p.weight, (p) => amount(p.weight)],
  ["loss", (p) => p.loss, (p) => amount(p.loss)],
  ["accuracy", (p) => p.accuracy, (p) => amount(p.accuracy, 4)],
  ["staleness", (p) => p.staleness_mean, (p) => amount(p.staleness_mean, 2)],
  ["sent", (p) => p.bytes_out_s, (p) => rate(p.bytes_out_s)],
  ["received", (p) => p.bytes_in_s, (p) => rate(p.bytes_in_s)],
  ["up", (p) => p.uptime_s, (p) => span(p.uptime_s)],
  ["address", (p) => p.address, (p) => shownName(p.address || "dials out", 40), "left"],
];

const state = { view: null, isComplete: false, samples: [], lanes: new Map(), chosen: null, sort: 0, isFalling: false, filter: "", isLost: false };
const graph = new Graph(find("graph"), choose);
const loss = new Curves(find("loss"), find("loss-note"));
const distance = new Curves(find("distance"), find("distance-note"));

/** Ask for the view again and again; first, and after a pause, also for what was before. */
async function listen() {
  try {
    if (!state.isComplete) {
      [state.samples, state.lanes] = [[], new Map()];
      (await load("history.json")).forEach(addSample);
      state.isComplete = true;
    }
    const view = await load("status.json");
    state.isLost = false;
    if (view.time_s !== state.view?.time_s) {
      state.view = view;
      addSample({
        ...view,
        members: view.peers.map((p) => [p.id, p.state, ...(p.source === "self" ? [p.loss, p.distance] : [null, null])]),
      });
      draw();
    }
  } catch {
    [state.isLost, state.isComplete] = [true, false];
    drawBanner();
  }
  setTimeout(listen, EVERY_MS);
}

async function load(name) {
  const answer = await fetch(name);
  if (!answer.ok) throw new Error(answer.statusText);
  return answer.json();
}

/** Keep one more sample, of a bounded number, and what has changed since the one before. */
function addSample({ time_s, swarm_step, members }) {
  if (time_s <= state.samples.at(-1)?.time_s) return;
  if (state.samples.length >= SAMPLES_MAX) state.samples = state.samples.filter((_, at) => at % 2 === 0);
  const shown = members.slice(0, PEERS_MAX);
  state.samples.push({ time_s, swarm_step, figures: new Map(shown.map(([id, , loss, distance]) => [id, { loss, distance }])) });
  const states = new Map(shown.map(([id, now]) => [id, now]));
  for (const id of new Set([...state.lanes.keys(), ...states.keys()])) {
    if (!state.lanes.has(id) && state.lanes.size >= PEERS_MAX) continue;
    const lane = state.lanes.get(id) ?? [], now = states.get(id) ?? "";
    if ((lane.at(-1)?.[1] ?? "") !== now) lane.push([time_s, now]);
    state.lanes.set(id, lane.slice(-CHANGES_MAX));
  }
}

function draw() {
  // Nobody looks: the next view draws everything.
  if (document.hidden || !state.view) return;
  if (state.chosen !== null && !state.view.peers.some((peer) => peer.id === state.chosen)) state.chosen = null;
  drawBanner();
  drawTiles();
  drawGraph();
  drawPeer();
  drawCurves();
  drawCourse();
  drawMembers();
}

const count = (view, wanted) => view.peers.filter((peer) => peer.state === wanted).length;

function drawBanner() {
  const { view, isLost } = state;
  const banner = find("banner"), pulse = find("pulse");
  let words = "", now = "live";
  if (isLost) [words, now] = ["rumor top does not answer: it has ended, or the connection is cut. This page goes on when it is back.", "lost"];
  else if (!view) now = "waiting";
  else if (!view.answered) [words, now] = ["No member answers any more. The page shows the last known state, and continues when a member answers.", "silent"];
  else if (count(view, "cut off") > 1) [words, now] = [`Partition: ${count(view, "cut off")} members answer here, but other members do not hear them.`, "live"];
  if (banner.textContent !== words) banner.textContent = words;
  banner.hidden = !words;
  pulse.dataset.state = now;
  const told = { live: "live", lost: "no connection", silent: "nobody answers", waiting: "connecting" }[now];
  pulse.textContent = view && now === "live" ? `live, ${clock(view.time_s)}` : told;
}

function drawTiles() {
  const { view } = state, gone = view.peers.length - view.alive, dead = count(view, "dead");
  const tiles = [
    ["swarm's step", whole(view.swarm_step), ""],
    ["steps per second, all", view.answered ? amount(view.steps_s) : "–", ""],
    ["members", whole(view.alive), gone ? [[dead, "dead"], [gone - dead, "left"]].filter(([number]) => number).map((part) => part.join(" ")).join(", ") : "all alive"],
    ["weight", amount(view.weight, 4), view.weight === null ? "" : "in founders"],
    ["elapsed", span(view.uptime_s), ""],
  ];
  find("tiles").replaceChildren(...tiles.map(([name, value, more]) =>
    html("div", {}, html("dt", {}, name), html("dd", {}, value, more ? html("small", {}, more) : null))));
  find("swarm").textContent = view.swarm ? `swarm ${view.swarm.slice(0, 8)}` : "";
  document.title = `${view.answered ? view.alive : "nobody of"} ${view.answered ? "alive" : view.peers.length}, step ${whole(view.swarm_step)} – rumor`;
}

function drawGraph() {
  const told = graph.draw(state.view, state.chosen);
  const words = told.drawn
    ? `Disc area: weight. Arc width: bytes per second, at most ${rate(told.most)}${told.drawn < told.busy ? `; the busiest ${told.drawn} of ${told.busy} are drawn` : ""}. Blue arcs carry shares, gray ones only replies and membership${state.chosen === null ? "" : ", orange ones belong to the chosen member"}.${told.shares ? " Models read from shared memory on one machine are not counted." : ""}`
    : "Disc area: weight. No link has carried anything in the last seconds.";
  find("graph-note").textContent = words;
  const counts = new Map();
  for (const peer of state.view.peers) counts.set(peer.state, (counts.get(peer.state) ?? 0) + 1);
  const known = [...STATES.keys(), ...[...counts.keys()].filter((each) => !STATES.has(each))].filter((each) => counts.has(each));
  find("states").replaceChildren(...known.map((each) => html("li", { class: look(each) }, `${counts.get(each)} ${shownName(each)}`)));
}

function choose(id) {
  state.chosen = state.chosen === id ? null : id;
  draw();
}

function drawPeer() {
  const { view, chosen } = state, body = find("peer-body");
  const peer = view.peers.find((each) => each.id === chosen);
  find("peer-title").textContent = peer ? shownName(peer.id, 60) : "A member";
  if (!peer) {
    const latest = eventsOf(view).reverse().slice(0, 8);
    const words = "Select a member in the graph or the table to see its links and configuration.";
    body.replaceChildren(html("p", { class: "note" }, words), html("h3", {}, "Latest events"),
      html("ol", { class: "plain-list" }, ...latest.map((event) => html("li", {}, html("time", {}, clock(event.time_s)), ` ${sentence(event)}`))));
    return;
  }
  const facts = [
    ["state", peer.state === "training" || !STATES.has(peer.state) ? shownName(peer.state) : `${peer.state}: ${STATES.get(peer.state)}`],
    ["address", shownName(peer.address || (["dead", "left"].includes(peer.state) ? "–" : "dials out only"), 60)],
    ["machine", peer.settings.host ? shownName(peer.settings.host, 60) : null],
    ["step", `${whole(peer.step)}, ${amount(peer.steps_s)} per second`],
    ["weight", `${amount(peer.weight)}, and ${amount(peer.escrow)} on its way`],
    ["loss", `${amount(peer.loss)}${peer.accuracy === null ? "" : `, accuracy ${amount(peer.accuracy, 4)}`}`],
    ["pushed", `${whole(peer.pushes)} shares; ${whole(peer.refusals)} came back${peer.skipped ? `, ${whole(peer.skipped)} more could not be made` : ""}`],
    ["mixed", `${whole(peer.mixed)} shares; ${whole(peer.refused)} sent back; ${amount(peer.staleness_mean, 2)} steps behind`],
    ["network", `${rate(peer.bytes_out_s)} out, ${rate(peer.bytes_in_s)} in`],
    ["memory", peer.model_bytes === null ? null : `${bytes(peer.memory_bytes)} beside a model of ${bytes(peer.model_bytes)}`],
    ["awaits", peer.awaits.length ? peer.awaits.map((name) => shownName(name)).join(", ") : null],
    ["doubted", peer.suspected_by + peer.dead_by ? `suspected by ${peer.suspected_by}, considered dead by ${peer.dead_by}` : null],
    ["silent", peer.source === "others" ? `for ${span(peer.silent_s)}` : null],
  ];
  const links = view.links.filter((link) => link.source === peer.id).sort((a, b) => (b.bytes_out_s ?? 0) - (a.bytes_out_s ?? 0) || byName(a.target, b.target));
  const where = body.querySelector(".links")?.scrollTop ?? 0;
  const hadFocus = document.activeElement?.classList.contains("close");
  const close = html("button", { type: "button", class: "plain close", on: { click: () => { choose(peer.id); find("peer").focus(); } } }, "Close");
  body.replaceChildren(
    close,
    html("dl", { class: "facts" }, ...facts.filter(([, value]) => value !== null).map(([name, value]) => html("div", {}, html("dt", {}, name), html("dd", {}, value)))),
    html("h3", {}, "Configuration"),
    html("dl", { class: "facts short" }, ...Object.entries(peer.settings).map(([name, value]) => html("div", {}, html("dt", {}, shownName(name, 40)), html("dd", {}, shownName(value, 200))))),
    html("h3", {}, `Links (${links.length})`),
    html("div", { class: "scroll links", tabindex: "0", role: "region", "aria-label": "Links" }, linksTable(links)),
  );
  body.querySelector(".links").scrollTop = where;
  if (hadFocus) close.focus();
}

function linksTable(links) {
  const heads = ["to", "sent", "received", "pushed", "came back", "mixed", "under way", "round trip"];
  const rows = links.map((link) => [
    shownName(link.target) + (link.shares_memory ? " (memory)" : ""), rate(link.bytes_out_s), rate(link.bytes_in_s),
    whole(link.pushes), whole(link.refusals), whole(link.mixed), whole(link.in_flight), span(link.roundtrip_s || null)]);
  return html("table", {}, html("thead", {}, html("tr", {}, ...heads.map((head) => html("th", { scope: "col" }, head)))),
    html("tbody", {}, ...rows.map((row) => html("tr", {}, ...row.map((cell, at) => html(at ? "td" : "th", at ? {} : { scope: "row" }, cell))))));
}

function drawCurves() {
  const { samples, lanes, chosen } = state;
  const isTime = document.querySelector("input[name=axis]:checked").value === "time";
  const isLog = find("log").checked;
  const [xs, kept] = rising(samples.map((sample) => (isTime ? sample.time_s : sample.swarm_step)));
  const number = (value) => (typeof value === "number" ? value : null);
  const series = (name) => [...lanes.keys()].map((id) => [id, kept.map((at) => number(samples[at].figures.get(id)?.[name]))])
    .filter(([, values]) => values.some((value) => value !== null));
  const distances = series("distance");
  const isKnown = distances.length > 0;
  find("curves").classList.toggle("solo", !isKnown);
  find("distance").toggleAttribute("hidden", !isKnown);
  find("distance-none").hidden = isKnown;
  loss.draw(xs, series("loss"), { isTime, isLog, chosen, what: "Loss", nothing: "No member has reported a loss yet." });
  if (!isKnown) find("distance-note").replaceChildren();
  else distance.draw(xs, distances, { isTime, isLog, chosen, what: "Distance from the mean of all models, over its norm", nothing: "" });
}

/** Events, without those of members that notice one another: these add nothing to their joining. */
const eventsOf = (view) => view.events.filter((event) => event.event !== "met");

/** A swarm's clock may stand still, or go back when nobody is left who knows: only what is ahead counts. */
function rising(values) {
  const xs = [], kept = [];
  values.forEach((value, at) => { if (!xs.length || value > xs.at(-1)) { xs.push(value); kept.push(at); } });
  return [xs, kept];
}

function drawCourse() {
  const { view, lanes } = state;
  drawLanes(find("lanes"), [...lanes], eventsOf(view), view.time_s);
  const list = find("events"), where = list.scrollTop;
  list.replaceChildren(...eventsOf(view).reverse().slice(0, EVENTS_SHOWN).map((event) =>
    html("li", {}, html("time", {}, clock(event.time_s)), ` ${sentence(event)}`)));
  list.scrollTop = where;
}

function drawHeads() {
  const heads = COLUMNS.map(([name, , , side], at) => {
    const isSorted = state.sort === at;
    const sort = () => {
      state.isFalling = isSorted ? !state.isFalling : side !== "left";
      state.sort = at;
      drawHeads();
      drawMembers();
      find("members").querySelectorAll("th button")[at].focus();
    };
    const arrow = html("span", { "aria-hidden": "true" }, isSorted ? (state.isFalling ? " ↓" : " ↑") : "");
    return html("th", { scope: "col", class: side, "aria-sort": isSorted ? (state.isFalling ? "descending" : "ascending") : null },
      html("button", { type: "button", on: { click: sort } }, name, arrow));
  });
  find("members").tHead.rows[0].replaceChildren(...heads);
}

function drawMembers() {
  if (!state.view) return;
  const words = state.filter.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (peer) => words.every((word) => [peer.id, peer.state, peer.address, peer.settings.host ?? ""].some((text) => text.toLowerCase().includes(word)));
  const all = state.view.peers, shown = all.filter(fits);
  const [, value] = COLUMNS[state.sort];
  const known = (peer) => value(peer) !== null;
  shown.sort((a, b) => {
    // Unknown figures come last, whatever the order.
    if (known(a) !== known(b)) return known(a) ? -1 : 1;
    const [x, y] = [value(a), value(b)];
    const order = typeof x === "number" && typeof y === "number" ? x - y : byName(String(x), String(y));
    return (state.isFalling ? -order : order) || byName(a.id, b.id);
  });
  find("matching").textContent = words.length ? `${shown.length} of ${all.length}` : all.some((peer) => peer.source === "others") ? "* as other members report" : "";
  const focused = document.activeElement?.closest("#members tbody button")?.dataset.id;
  find("members").tBodies[0].replaceChildren(...shown.map(row));
  if (focused !== undefined) [...document.querySelectorAll("#members tbody button")].find((each) => each.dataset.id === focused)?.focus();
}

function row(peer) {
  const cells = COLUMNS.map(([name, , text, side]) => {
    if (name === "peer") {
      const button = html("button", { type: "button", class: "link", "aria-pressed": String(peer.id === state.chosen), on: { click: () => choose(peer.id) } }, text(peer));
      button.dataset.id = peer.id;
      return html("th", { scope: "row", class: "left" }, button);
    }
    return html("td", { class: name === "state" ? `left state ${look(peer.state)}` : side }, text(peer));
  });
  return html("tr", { class: peer.id === state.chosen ? "chosen" : null }, ...cells);
}

function followTheme() {
  const root = document.documentElement, button = find("theme"), system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const name = () => { button.textContent = isDark() ? "Light" : "Dark"; };
  button.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; name(); });
  system.addEventListener("change", name);
  name();
}

followTheme();
drawHeads();
find("filter").addEventListener("input", (event) => { state.filter = event.target.value; drawMembers(); });
for (const input of document.querySelectorAll("#axis input, #log")) input.addEventListener("change", () => { if (state.view) drawCurves(); });
// A hidden page asks rarely: when it is shown, it asks for what it has missed.
document.addEventListener("visibilitychange", () => { state.isComplete &&= document.hidden; draw(); });
let asked = 0;
addEventListener("resize", () => { cancelAnimationFrame(asked); asked = requestAnimationFrame(draw); });
listen();
