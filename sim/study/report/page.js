"use strict";
// What a reader chooses, and the charts that follow from it. `Plotly` draws; what is drawn was
// declared when the page was written.
const data = JSON.parse(document.getElementById("data").textContent);
const root = document.documentElement;
const chosen = {};
const pinned = new Map(Object.entries(data.standing));
let hot = null;

// ---- colors -------------------------------------------------------------------------------------
const probe = document.createElement("i");
probe.hidden = true;
document.body.append(probe);
const named = (name) => {
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
};
const channels = (color) => color.match(/[\d.]+/g).slice(0, 3).map(Number);
// A shade is a part of the way over three colors.
const color = (name, opacity = 1) => {
  let found = channels(named(name.startsWith("shade:") ? "s0" : name));
  if (name.startsWith("shade:")) {
    const at = 2 * Number(name.slice(6));
    const [from, to] = (at < 1 ? ["s0", "s1"] : ["s1", "s2"]).map((one) => channels(named(one)));
    found = from.map((value, i) => Math.round(value + (to[i] - value) * (at < 1 ? at : at - 1)));
  }
  return `rgba(${found.join(",")},${opacity})`;
};
const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark"
  : matchMedia("(prefers-color-scheme: dark)").matches);

// ---- charts -------------------------------------------------------------------------------------
const escaped = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const short = (text, most) => escaped(text.length > most ? `${text.slice(0, most - 1)}…` : text);
// In lines of so many letters, cut between words.
const wrapped = (text, most) => text.split(" ").reduce((lines, word) => {
  const last = lines.at(-1);
  return last !== undefined && last.length + word.length < most
    ? [...lines.slice(0, -1), `${last} ${word}`] : [...lines, word];
}, []).map(escaped).join("<br>");
const errors = (middles, one, ink) => ({
  type: "data", symmetric: false, thickness: 1.2, width: 0, color: ink,
  array: one.high.map((high, i) => (high === null ? 0 : Math.max(0, high - middles[i]))),
  arrayminus: one.low.map((low, i) => (low === null ? 0 : Math.max(0, middles[i] - low))),
});
const colorOf = (panel, one) => {
  if (panel.kind !== "curves") return one.color;
  return pinned.get(one.label) || (one.label === hot ? "ink" : "muted");
};

// Where on a scale a value is, from 0 to 1.
const partOf = ({ low, high, is_log: isLog }, value) => {
  const log = (each) => (isLog ? Math.log10(each) : each);
  return (log(value) - log(low)) / (log(high) - log(low));
};

const traceOf = (panel, one) => {
  const name = colorOf(panel, one);
  const [ink, stands] = [color(name), panel.kind !== "curves" || name !== "muted"];
  const along = panel.kind === "rows" ? "x" : "y";
  const trace = {
    type: "scatter", name: escaped(one.label), meta: one.label, x: one.x, y: one.y,
    mode: { curves: "lines", linked: "lines+markers" }[panel.kind] || "markers",
    line: { color: ink, width: stands ? 2.2 : 1.1 }, marker: { color: ink, size: 9 },
    hovertemplate: `<b>${escaped(one.label)}</b><br>%{${along}:.4~g}`
      + `${panel.kind === "rows" ? "" : "<br>at %{x:.4~g}"}<extra></extra>`,
  };
  if (panel.kind === "points" && pinned.has(one.label)) {
    // Toward the middle, where there is room for them.
    const side = partOf(panel.x, one.x[0]) > 0.5 ? "left" : "right";
    Object.assign(trace, { mode: "markers+text", text: [short(one.label, 24)],
      textposition: `top ${side}`, textfont: { color: ink, size: 12 } });
  }
  if (panel.kind === "curves") {
    if (!pinned.has(one.label) || !one.low.length) return [trace];
    return [{
      type: "scatter", mode: "lines", fill: "toself", hoverinfo: "skip", line: { width: 0 },
      x: [...one.x, ...[...one.x].reverse()], y: [...one.high, ...[...one.low].reverse()],
      fillcolor: color(name, pinned.size > 4 ? 0.1 : 0.16),
    }, trace];
  }
  const bar = name === "dim" ? color("muted") : ink;
  trace[`error_${along}`] = errors(one[along], one, bar);
  return [trace, ...cutsOf(panel, one, bar)];
};

// An arrow where an interval goes on beyond the panel.
const cutsOf = (panel, one, ink) => {
  const isRow = panel.kind === "rows", scale = isRow ? panel.x : panel.y, across = isRow ? one.y : one.x;
  const cut = across.flatMap((at, i) => [
    ...(one.low[i] !== null && one.low[i] < scale.low ? [[scale.low, at, isRow ? "triangle-left" : "triangle-down"]] : []),
    ...(one.high[i] !== null && one.high[i] > scale.high ? [[scale.high, at, isRow ? "triangle-right" : "triangle-up"]] : []),
  ]);
  if (!cut.length) return [];
  const [ends, places] = [cut.map(([end]) => end), cut.map(([, at]) => at)];
  return [{
    type: "scatter", mode: "markers", hoverinfo: "skip", cliponaxis: false, meta: one.label,
    x: isRow ? ends : places, y: isRow ? places : ends,
    marker: { color: ink, size: 9, symbol: cut.map(([, , symbol]) => symbol) },
  }];
};

const axisOf = (scale, most) => ({
  title: { text: escaped(scale.title), standoff: 10, font: { size: 13 } }, tickfont: { size: 12.5 },
  type: scale.is_log ? "log" : "linear", ticksuffix: scale.suffix, automargin: true,
  range: [scale.low, scale.high].map((end) => (scale.is_log ? Math.log10(end) : end)),
  gridcolor: color("line"), zeroline: false, fixedrange: matchMedia("(pointer: coarse)").matches,
  ...(scale.ticks.length ? {
    tickmode: "array", tickvals: scale.ticks.map(([at]) => at),
    ticktext: scale.ticks.map(([, text]) => short(text, most)),
  } : {}),
});

// Labels one below the other, each as near to where it belongs as the others let it.
const apart = (places, gap, most) => {
  const order = places.map((at, index) => ({ at, index })).sort((a, b) => a.at - b.at);
  order.forEach((one, i) => { if (i) one.at = Math.max(one.at, order[i - 1].at + gap); });
  for (let i = order.length - 1; i >= 0; i -= 1) {
    order[i].at = Math.min(order[i].at, i === order.length - 1 ? most : order[i + 1].at - gap);
  }
  const found = [];
  order.forEach(({ at, index }) => { found[index] = at; });
  return found;
};

const endsOf = (panel, height) => {
  const lines = panel.series.filter((one) => !["muted", "dim"].includes(colorOf(panel, one)));
  const places = lines.map((one) => height * (1 - partOf(panel.y, one.y.at(-1))));
  const moved = apart(places, 16, height - 4);
  return lines.map((one, i) => ({
    xref: "paper", x: 1, xanchor: "left", xshift: 6, y: panel.y.is_log ? Math.log10(one.y.at(-1)) : one.y.at(-1), yanchor: "middle",
    yshift: places[i] - moved[i], showarrow: false, align: "left", text: short(one.label, 25),
    font: { size: 12.5, color: color(colorOf(panel, one)) },
  }));
};

const targetOf = ({ target, falls, y: { suffix } }) => (target === null ? [] : [{
  xref: "paper", x: 0, xanchor: "left", y: target, yanchor: falls ? "top" : "bottom", showarrow: false,
  text: `target ${target}${suffix}`, font: { size: 12, color: color("dim") },
}]);
const remarksOf = (panel) => panel.remarks.map(([at, text]) => ({
  xref: "paper", x: 0, xanchor: "left", xshift: 4, showarrow: false, text: short(text, 60),
  ...(panel.kind === "rows" ? { y: at, yanchor: "middle" } : { yref: "paper", y: 0, yanchor: "bottom" }),
  font: { size: 12.5, color: color("dim") },
}));

const font = () => ({ family: getComputedStyle(document.body).fontFamily, size: 13, color: color("dim") });
const layoutOf = (more) => ({
  font: font(), paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false,
  hovermode: "closest", hoverlabel: {
    bgcolor: color("bg"), bordercolor: color("muted"), align: "left", font: { ...font(), color: color("ink") },
  },
  dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom", ...more,
});

const chart = (plot, panel) => {
  const isNarrow = plot.clientWidth < 430;
  const hasEnds = ["curves", "linked"].includes(panel.kind) && panel.series.length > 1 && !isNarrow;
  const ends = hasEnds ? endsOf(panel, plot.clientHeight - 62) : [];
  const letters = Math.max(0, ...ends.map(({ text }) => text.length));
  const xaxis = axisOf(panel.x, 24);
  if (panel.kind === "curves" && document.getElementById("log-x").checked) {
    Object.assign(xaxis, { type: "log", autorange: true, tickmode: "auto" });
  }
  if (!panel.series.length && panel.kind !== "rows") {
    const text = panel.remarks.map(([, words]) => escaped(words)).join("<br>") || "nothing was measured";
    return [[], layoutOf({
      xaxis: { visible: false }, yaxis: { visible: false }, margin: { l: 4, r: 4, t: 4, b: 4 },
      annotations: [{ xref: "paper", yref: "paper", x: 0, y: 1, xanchor: "left", yanchor: "top",
        align: "left", showarrow: false, text, font: { size: 12.5, color: color("dim") } }],
    })];
  }
  return [panel.series.flatMap((one) => traceOf(panel, one)), layoutOf({
    margin: { l: 52, r: ends.length ? Math.min(190, 18 + 7 * letters) : 14, t: 12, b: 50 },
    xaxis, yaxis: axisOf(panel.y, isNarrow ? 18 : 30), annotations: [...ends, ...targetOf(panel), ...remarksOf(panel)],
    showlegend: panel.kind === "linked" && isNarrow && panel.series.length > 1,
    legend: { orientation: "h", y: -0.25, font: { size: 12 } },
    shapes: panel.target === null ? [] : [{
      type: "line", xref: "paper", x0: 0, x1: 1, y0: panel.target, y1: panel.target,
      line: { color: color("dim"), width: 1, dash: "dot" },
    }],
  })];
};

const table = (plot, matrix) => {
  const columns = matrix.columns.map((one) => wrapped(one, 14));
  const rows = matrix.rows.map((one) => wrapped(one, plot.clientWidth < 700 ? 14 : 28));
  const annotations = matrix.shades.flatMap((row, y) => row.flatMap((shade, x) => (shade === null
    ? [{ x, y, text: wrapped(matrix.texts[y][x], 14), showarrow: false, font: { size: 11 } }] : [])));
  const axis = { type: "category", showgrid: false, zeroline: false, automargin: true, fixedrange: true };
  return [[{
    type: "heatmap", z: matrix.shades, x: columns.map((_, i) => i), y: rows.map((_, i) => i),
    text: matrix.texts.map((row, y) => row.map((text, x) => (matrix.shades[y][x] === null ? "" : text))), texttemplate: "%{text}", textfont: { size: 12 }, hoverinfo: "skip", showscale: false, xgap: 2, ygap: 2,
    zmin: 0, zmax: 1, colorscale: [[0, color("low")], [1, color("high")]],
  }], layoutOf({
    margin: { l: 20, r: 4, t: 30, b: 4 }, dragmode: false, annotations,
    xaxis: { ...axis, type: "linear", side: "top", tickangle: 0, tickvals: columns.map((_, i) => i), ticktext: columns },
    yaxis: { ...axis, type: "linear", autorange: "reversed", tickvals: rows.map((_, i) => i), ticktext: rows },
  })];
};

const draw = () => {
  for (const plot of document.querySelectorAll("[data-figure]")) {
    if (!plot.getClientRects().length) continue;
    const figure = data.figures[plot.dataset.figure];
    const [traces, layout] = figure.series ? chart(plot, figure) : table(plot, figure);
    // Once drawn, a plot would keep its width when the window has another.
    layout.width = plot.clientWidth;
    Plotly.react(plot, traces, layout, { displayModeBar: false, doubleClick: "reset" });
    if (figure.kind === "curves" && !plot.dataset.wired) {
      plot.dataset.wired = "yes";
      plot.on("plotly_click", ({ points }) => points[0].data.meta && toggle(points[0].data.meta));
    }
  }
};

// ---- who stands out -----------------------------------------------------------------------------
const showChips = () => {
  for (const chip of document.querySelectorAll(".chip")) {
    const name = pinned.get(chip.dataset.label);
    chip.setAttribute("aria-pressed", String(name !== undefined));
    chip.style.setProperty("--swatch", name ? color(name) : "var(--muted)");
  }
  draw();
};
const toggle = (label) => {
  if (pinned.has(label)) pinned.delete(label);
  else {
    const taken = new Set(pinned.values());
    const all = [...Array(7).keys()].map((i) => `c${i}`);
    pinned.set(label, data.standing[label] || all.find((one) => !taken.has(one)) || "c6");
  }
  showChips();
};
const wireChips = () => {
  for (const chip of document.querySelectorAll(".chip")) {
    chip.addEventListener("click", () => toggle(chip.dataset.label));
    chip.addEventListener("pointerenter", () => { hot = chip.dataset.label; draw(); });
    chip.addEventListener("pointerleave", () => { hot = null; draw(); });
  }
  const pin = (id, names) => document.getElementById(id)?.addEventListener("click", () => {
    pinned.clear();
    names.forEach(([label, name]) => pinned.set(label, name));
    showChips();
  });
  pin("best", Object.entries(data.standing));
  pin("nobody", []);
};

// ---- what is chosen -----------------------------------------------------------------------------
// data-show="facet=0-1 heat=accuracy": seen only while all of that is chosen.
const show = () => {
  for (const element of document.querySelectorAll("[data-show]")) {
    element.hidden = !element.dataset.show.split(" ").every((wanted) => {
      const [name, value] = wanted.split("=");
      return !(name in chosen) || chosen[name] === value;
    });
  }
  showCommand();
  draw();
};
const valueOf = (control) =>
  (control.matches("select") ? control.value : control.querySelector("input:checked").value);
// Several controls of one name, as those of further axes, make up one value between them.
const wireControls = () => {
  const controls = [...document.querySelectorAll("[data-chooses]")];
  for (const control of controls) {
    const name = control.dataset.chooses;
    const read = () => {
      chosen[name] = controls.filter((one) => one.dataset.chooses === name).map(valueOf).join("-");
    };
    control.addEventListener("change", () => { read(); show(); });
    read();
  }
  document.getElementById("log-x")?.addEventListener("change", draw);
};
const wireTheme = () => {
  const button = document.getElementById("theme");
  const tell = () => {
    button.textContent = isDark() ? "Light" : "Dark";
    showChips();
  };
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    tell();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", tell);
  const content = document.getElementById("content");
  let width = content.clientWidth;
  new ResizeObserver(() => {
    if (content.clientWidth !== width) draw();
    width = content.clientWidth;
  }).observe(content);
  tell();
};

// ---- tables and commands ------------------------------------------------------------------------
const figureOf = (row, column) => Number(row.cells[column].dataset.value || NaN);
// What has no figure stays at the end, whichever way the rest is sorted.
const inOrder = (column, sign) => (a, b) => {
  const [left, right] = [figureOf(a, column), figureOf(b, column)];
  if (Number.isNaN(left) || Number.isNaN(right)) return Number.isNaN(left) - Number.isNaN(right);
  return sign * (left - right);
};
const sort = (head) => {
  const body = head.closest("table").tBodies[0];
  const rising = head.getAttribute("aria-sort") !== "ascending";
  for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", rising ? "ascending" : "descending");
  body.append(...[...body.rows].sort(inOrder(head.cellIndex, rising ? 1 : -1)));
};
const showCommand = () => {
  const found = document.querySelector(`[data-trial="${chosen.trial}"]`);
  document.getElementById("command").textContent =
    found ? found.textContent : "No such trial: the study leaves it out.";
};
const copy = async (text) => {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Where a page from a file may not, a selection can still be copied by hand.
    getSelection().selectAllChildren(document.getElementById("command"));
  }
};

for (const hidden of document.querySelectorAll("[data-script]")) hidden.hidden = false;
wireControls();
wireChips();
show();
wireTheme();
for (const button of document.querySelectorAll(".table thead button")) {
  button.addEventListener("click", () => sort(button.closest("th")));
}
document.getElementById("copy").addEventListener("click", () =>
  copy(document.getElementById("command").textContent));
