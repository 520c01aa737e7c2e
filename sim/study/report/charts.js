"use strict";
// Curves with bands, and predicted against observed: everything that plotly draws.
const charts = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const COLORS = 7;
  const settings = { displayModeBar: false, responsive: false, doubleClick: "reset" };
  const pinned = new Map();
  let hot = null;

  const probe = document.createElement("i");
  probe.hidden = true;
  document.body.append(probe);
  const color = (name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };
  const faint = (solid, opacity) => solid.replace(/^rgba?\(([^)]*)\)$/, (_, inside) =>
    `rgba(${inside.split(",").slice(0, 3).join(",")},${opacity})`);
  const escaped = (text) =>
    text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const short = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

  const significant = (value) => {
    if (value === null || !Number.isFinite(value)) return "–";
    const size = Math.abs(value);
    if (size && (size < 1e-3 || size >= 1e9)) return value.toExponential(2);
    return Number(value.toPrecision(3)).toLocaleString("en-US", { maximumFractionDigits: 6 });
  };
  const BYTES = [["TB", 1e12], ["GB", 1e9], ["MB", 1e6], ["kB", 1e3], ["B", 1]];
  const TIMES = [["h", 3600], ["min", 60], ["s", 1]];
  const scaleOf = (unit, most) => {
    if (unit === "bytes") return BYTES.find(([, size]) => most >= size) || ["B", 1];
    if (unit === "s") return TIMES.find(([, size]) => most >= 2.5 * size) || ["s", 1];
    return [unit, 1];
  };
  const shown = (value, unit) => {
    if (unit === "%") return `${significant(100 * value)} %`;
    const [name, size] = scaleOf(unit, Math.abs(value));
    return `${significant(value / size)}${name ? ` ${name}` : ""}`;
  };

  const facet = () => data.facets[page.chosen.facet || data.facets_in_order[0]];
  const groups = () => (facet() ? facet().groups : []);
  const group = (label) => groups().find((found) => found.label === label);

  const pinDefaults = () => {
    pinned.clear();
    data.standing.forEach((label, index) => pinned.set(label, index));
  };
  const pin = (label) => {
    if (pinned.has(label)) return;
    const taken = new Set(pinned.values());
    const free = [...Array(COLORS).keys()].find((index) => !taken.has(index));
    pinned.set(label, free === undefined ? pinned.size % COLORS : free);
  };
  // From the first of an order to its last, over three colors.
  const shade = (part) => {
    const at = 2 * part;
    const [from, to] = (at < 1 ? ["s0", "s1"] : ["s1", "s2"])
      .map((name) => color(name).match(/[\d.]+/g).slice(0, 3).map(Number));
    const rest = at < 1 ? at : at - 1;
    return `rgb(${from.map((value, i) => Math.round(value + (to[i] - value) * rest)).join(",")})`;
  };
  const nth = (index, all, isOrdered) =>
    (isOrdered && all > 2 ? shade(Math.min(1, index / (all - 1))) : color(`c${index % COLORS}`));
  const colorOf = (label) => {
    if (pinned.has(label)) return nth(pinned.get(label), data.standing.length, data.ordered);
    return color(label === hot ? "ink" : "muted");
  };
  const stands = (label) => pinned.has(label) || label === hot;

  // Labels one below the other, each as near to where it belongs as the others let it.
  const apart = (places, gap, least, most) => {
    const order = places.map((at, index) => ({ at, index })).sort((a, b) => a.at - b.at);
    order.forEach((one, i) => {
      if (i) one.at = Math.max(one.at, order[i - 1].at + gap);
    });
    for (let i = order.length - 1; i >= 0; i -= 1) {
      const limit = i === order.length - 1 ? most : order[i + 1].at - gap;
      order[i].at = Math.max(least, Math.min(order[i].at, limit));
    }
    const found = [];
    order.forEach(({ at, index }) => { found[index] = at; });
    return found;
  };

  const rangeOf = (values, isLog) => {
    const usable = values.filter((value) => Number.isFinite(value) && (!isLog || value > 0));
    if (!usable.length) return isLog ? [-1, 0] : [0, 1];
    let [least, most] = [Math.min(...usable), Math.max(...usable)];
    if (isLog) [least, most] = [Math.log10(least), Math.log10(most)];
    const room = 0.06 * (most - least) || Math.abs(most) * 0.1 || 0.1;
    return [least - room, most + room];
  };

  // Plain figures while they are short: 0.02 says more than 2 times a power.
  const logTicks = ([low, high]) => {
    const within = (steps) => {
      const found = [];
      for (let power = Math.floor(low); power <= high; power += 1) {
        for (const step of steps) {
          const at = power + Math.log10(step);
          if (at >= low && at <= high) found.push(step * 10 ** power);
        }
      }
      return found;
    };
    let values = within([1]);
    if (values.length < 3) values = within([1, 2, 5]);
    if (values.length < 3) values = within([1, 1.5, 2, 3, 5, 7]);
    if (values.length > 7) values = values.filter((_, i) => i % Math.ceil(values.length / 7) === 0);
    return { tickmode: "array", tickvals: values, ticktext: values.map(significant) };
  };

  const axis = (title, range, isLog, more) => ({
    title: { text: title, standoff: 10, font: { size: 13 } }, tickfont: { size: 12.5 },
    range, type: isLog ? "log" : "linear", autorange: false,
    gridcolor: color("line"), zeroline: false, linecolor: color("line"), showline: false,
    tickcolor: color("line"), fixedrange: matchMedia("(pointer: coarse)").matches,
    ...(isLog ? logTicks(range) : {}),
    ...more,
  });

  const layout = (more) => ({
    font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: color("dim") },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false,
    hovermode: "closest", hoverdistance: 12, dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
    hoverlabel: {
      bgcolor: color("bg"), bordercolor: color("muted"), align: "left",
      font: { family: getComputedStyle(document.body).fontFamily, color: color("ink"), size: 13 },
    },
    ...more,
  });

  // Those who are all alike at most moments have no line on a logarithmic axis, but a word.
  const isNothing = (curve) => curve[1].filter((mean) => mean <= 0).length > curve[1].length / 2;

  // A logarithm has no place for 0, where everybody begins from one model.
  const usable = (curve, isLog) => {
    if (!curve || !isLog) return curve;
    if (isNothing(curve)) return undefined;
    const kept = curve[1].flatMap((mean, i) => (mean > 0 ? [i] : []));
    const [at, mean, low, high] = curve.map((values) => kept.map((i) => values[i]));
    const least = Math.min(...mean) / 10;
    return kept.length ? [at, mean, low.map((value) => Math.max(value, least)), high] : undefined;
  };

  const lines = (figure) => {
    const y = data.ys.find((one) => one.key === figure.dataset.y);
    const x = data.xs.find((one) => one.key === (page.chosen.x || data.xs[0].key));
    const present = groups().map((one) => ({ ...one, curve: usable((one.curves[y.key] || {})[x.key], y.log) }))
      .filter((one) => one.curve);
    const alike = groups().filter((one) => one.curves[y.key]?.[x.key] && y.log
      && isNothing(one.curves[y.key][x.key])).map((one) => one.label);
    const [unit, size] = scaleOf(x.unit, Math.max(...present.flatMap(({ curve }) => curve[0].slice(-1)), 0));
    const isLogX = document.getElementById("log-x").checked;
    // What stands out is drawn last, above the rest.
    present.sort((a, b) => stands(a.label) - stands(b.label));
    const traces = present.flatMap((one) => tracesOf(one, x, y, unit, size));
    const times = y.unit === "%" ? 100 : 1;
    const yRange = rangeOf(present.flatMap(({ label, curve }) =>
      (stands(label) ? curve.slice(1).flat() : curve[1])), y.log);
    const firsts = present.map(({ curve }) => curve[0].find((at) => at > 0) / size);
    const lasts = present.map(({ curve }) => curve[0].at(-1) / size);
    const xRange = isLogX ? rangeOf([...firsts, ...lasts], true) : [0, Math.max(...lasts, 1e-9) * 1.01];
    const isWide = figure.clientWidth > 480;
    const labels = isWide ? present.filter(({ label }) => stands(label)) : [];
    const right = labels.length
      ? Math.min(180, 16 + 6.8 * Math.max(...labels.map(({ label }) => short(label, 25).length))) : 10;
    const margin = { l: 56, r: right, t: 10, b: 46 };
    const height = figure.clientHeight - margin.t - margin.b;
    Plotly.react(figure, traces, layout({
      margin,
      xaxis: axis(unit ? `${x.title}, ${unit}` : x.title, xRange, isLogX),
      yaxis: axis("", yRange.map((end) => end * times), y.log, y.unit === "%" ? { ticksuffix: " %" } : {}),
      shapes: y.target ? [{
        type: "line", xref: "paper", x0: 0, x1: 1, y0: 100 * data.target, y1: 100 * data.target,
        line: { color: color("dim"), width: 1, dash: "dot" },
      }] : [],
      annotations: [
        ...(y.target ? targetLabel(present) : []),
        ...(alike.length ? alikeLabel(alike) : []),
        ...directLabels(labels, y, yRange, height, times),
      ],
    }), settings);
    if (!figure.dataset.wired) wire(figure);
  };

  // Where lines are not: below at the end, where most have got there, else above at the start.
  const targetLabel = (present) => {
    const isEnd = present.filter(({ curve }) => curve[1].at(-1) > data.target).length > present.length / 2;
    return [{
      xref: "paper", x: isEnd ? 1 : 0, xanchor: isEnd ? "right" : "left", y: 100 * data.target,
      yanchor: isEnd ? "top" : "bottom", showarrow: false,
      bgcolor: faint(color("bg"), 0.7), borderpad: 1,
      text: `target ${significant(100 * data.target)} %`, font: { size: 12, color: color("dim") },
    }];
  };

  const alikeLabel = (labels) => [{
    xref: "paper", x: 0, xanchor: "left", xshift: 4, yref: "paper", y: 0, yanchor: "bottom", showarrow: false,
    align: "left", text: `0, all alike: ${escaped(short(labels.join(", "), 40))}`,
    font: { size: 12.5, color: labels.length === 1 ? colorOf(labels[0]) : color("dim") },
  }];

  const directLabels = (present, y, range, height, times) => {
    const ends = present.map(({ curve }) => (y.log ? Math.log10(curve[1].at(-1)) : curve[1].at(-1)));
    const places = ends.map((end) => height * (1 - (end - range[0]) / (range[1] - range[0])));
    const moved = apart(places, 16, 4, height - 4);
    return present.map(({ label }, index) => ({
      xref: "paper", x: 1, xanchor: "left", xshift: 6, y: times * ends[index],
      yshift: places[index] - moved[index], yanchor: "middle", showarrow: false, align: "left",
      text: escaped(short(label, 25)), font: { size: 12.5, color: colorOf(label) },
    }));
  };

  const scaled = (value, times) => (value === null ? null : value * times);

  // Where many overlap, what is below must still be seen.
  const bandOpacity = () => (pinned.size > 4 ? 0.1 : 0.16);

  const tracesOf = ({ label, curve, kind }, x, y, unit, size) => {
    const [at, mean, low, high] = curve;
    const places = at.map((value) => value / size);
    const times = y.unit === "%" ? 100 : 1;
    const text = mean.map((value, i) => `${shown(value, y.unit)}${kind === "single" ? ""
      : ` (${shown(low[i], y.unit)} to ${shown(high[i], y.unit)})`}<br>at ${shown(at[i], x.unit)}${x.unit ? "" : " steps"}`);
    const line = {
      x: places, y: mean.map((value) => scaled(value, times)), text, name: label, meta: label, mode: "lines", type: "scatter",
      hovertemplate: `<b>${escaped(label)}</b><br>%{text}<extra></extra>`,
      line: { color: colorOf(label), width: stands(label) ? 2.2 : 1.1 },
    };
    if (!stands(label) || kind === "single") return [line];
    const band = {
      x: [...places, ...[...places].reverse()], y: [...high, ...[...low].reverse()].map((value) => scaled(value, times)),
      mode: "lines", type: "scatter", fill: "toself", fillcolor: faint(colorOf(label), bandOpacity()),
      line: { width: 0 }, hoverinfo: "skip",
    };
    return [band, line];
  };

  const wire = (figure) => {
    figure.dataset.wired = "yes";
    figure.on("plotly_click", ({ points }) => points[0].data.meta && toggle(points[0].data.meta));
    figure.on("plotly_hover", ({ points }) => mark(points[0].data.meta || points[0].customdata));
    figure.on("plotly_unhover", () => mark(null));
  };
  const mark = (label) => {
    for (const chip of document.querySelectorAll(".chip")) {
      chip.classList.toggle("near", chip.dataset.label === label);
    }
  };

  const toggle = (label) => {
    if (pinned.has(label)) pinned.delete(label);
    else pin(label);
    draw();
  };

  const legend = () => {
    for (const chip of document.querySelectorAll(".chip[data-label]")) {
      const { label } = chip.dataset;
      chip.setAttribute("aria-pressed", String(pinned.has(label)));
      chip.style.setProperty("--swatch", pinned.has(label) ? colorOf(label) : "var(--muted)");
      chip.hidden = !group(label);
    }
  };
  const wireLegend = () => {
    for (const chip of document.querySelectorAll(".chip[data-label]")) {
      const { label } = chip.dataset;
      chip.addEventListener("click", () => toggle(label));
      chip.addEventListener("pointerenter", () => { hot = label; drawLines(); });
      chip.addEventListener("pointerleave", () => { hot = null; drawLines(); });
    }
    const on = (id, act) => document.getElementById(id)?.addEventListener("click", () => { act(); draw(); });
    on("best", pinDefaults);
    on("nobody", () => pinned.clear());
  };

  // A label goes where it covers no point and no other label; where there is no room, nowhere.
  const roomFor = (points, width, height) => {
    const boxes = points.map(({ px, py }) => [px - 5, py - 5, px + 5, py + 5]);
    const isFree = (box, own) => box[0] >= 0 && box[2] <= width && box[1] >= 0 && box[3] <= height
      && boxes.every((other, index) => index === own
        || box[2] < other[0] || box[0] > other[2] || box[3] < other[1] || box[1] > other[3]);
    const found = points.map(() => null);
    const order = points.map((_, index) => index)
      .sort((a, b) => stands(points[b].label) - stands(points[a].label));
    for (const index of order) {
      const { px, py, label } = points[index];
      const wide = 6.6 * short(label, 24).length;
      const tries = [
        ["left", 8, 0, [px + 7, py - 7, px + 9 + wide, py + 7]],
        ["right", -8, 0, [px - 9 - wide, py - 7, px - 7, py + 7]],
        ["center", 0, 14, [px - wide / 2, py - 21, px + wide / 2, py - 7]],
        ["center", 0, -14, [px - wide / 2, py + 7, px + wide / 2, py + 21]],
      ];
      const fit = tries.find(([, , , box]) => isFree(box, index));
      if (fit) {
        found[index] = fit;
        boxes.push(fit[3]);
      }
    }
    return found;
  };

  const scatter = (figure) => {
    const names = Object.keys(data.predictions);
    const place = [page.chosen.place, page.chosen.facet, "all"].find((key) => names.includes(key));
    const all = data.predictions[place] || [];
    const chosen = all.find((one) => one.key === page.chosen[`prediction-${place}`]) || all[0];
    const note = document.getElementById("prediction-words");
    figure.hidden = !chosen;
    note.textContent = chosen ? chosen.words : "";
    if (!chosen) return;
    const [unit, size] = scaleOf(chosen.y_unit, Math.max(...chosen.points.map((one) => one.y)));
    const factor = chosen.y_unit === "%" ? 0.01 : size;
    const points = chosen.points.map((one) => ({
      ...one, y: one.y / factor, low: one.low === null ? null : one.low / factor,
      high: one.high === null ? null : one.high / factor,
    }));
    const xRange = rangeOf(points.map((one) => one.x), chosen.log_x);
    // Points decide on the range: wide intervals would press them all into a line.
    const [lowest, highest] = rangeOf(points.map((one) => one.y), chosen.log_y);
    const room = 0.15 * (highest - lowest);
    const yRange = [lowest - room, highest + room];
    const margin = { l: 62, r: 14, t: 12, b: 50 };
    const [width, height] = [figure.clientWidth - margin.l - margin.r, figure.clientHeight - margin.t - margin.b];
    const at = (value, range, isLog) => ((isLog ? Math.log10(value) : value) - range[0]) / (range[1] - range[0]);
    points.forEach((one) => {
      one.px = width * at(one.x, xRange, chosen.log_x);
      one.py = height * (1 - at(one.y, yRange, chosen.log_y));
    });
    const places = roomFor(points, width, height);
    Plotly.react(figure, [{
      type: "scatter", mode: "markers", x: points.map((one) => one.x), y: points.map((one) => one.y),
      customdata: points.map((one) => one.label),
      text: chosen.points.map((one) => `<b>${escaped(one.label)}</b><br>${escaped(chosen.x_title)} ${significant(one.x)}`
        + `<br>${escaped(chosen.y_title)} ${shown(one.y, chosen.y_unit)}`
        + (one.low === null ? "" : ` (${shown(one.low, chosen.y_unit)} to ${shown(one.high, chosen.y_unit)})`)),
      hovertemplate: "%{text}<extra></extra>",
      error_y: {
        type: "data", symmetric: false, thickness: 1, width: 0, color: color("muted"),
        array: points.map((one) => (one.high === null ? 0 : one.high - one.y)),
        arrayminus: points.map((one) => (one.low === null ? 0 : one.y - one.low)),
      },
      marker: {
        size: 9, line: { width: 1, color: color("bg") },
        color: points.map((one) => (pinned.has(one.label) ? colorOf(one.label) : color("dim"))),
      },
    }], layout({
      margin,
      xaxis: axis(chosen.x_title, xRange, chosen.log_x),
      yaxis: axis(unit && chosen.y_unit !== "%" ? `${chosen.y_title}, ${unit}` : chosen.y_title, yRange, chosen.log_y,
        chosen.y_unit === "%" ? { ticksuffix: " %" } : {}),
      annotations: points.flatMap((one, index) => (places[index] ? [{
        x: chosen.log_x ? Math.log10(one.x) : one.x, y: chosen.log_y ? Math.log10(one.y) : one.y,
        xanchor: places[index][0], xshift: places[index][1], yshift: places[index][2], showarrow: false,
        text: escaped(short(one.label, 24)),
        font: { size: 12, color: pinned.has(one.label) ? colorOf(one.label) : color("dim") },
      }] : [])),
    }), settings);
    if (!figure.dataset.wired) wire(figure);
  };

  const response = (figure) => {
    const all = data.response;
    const one = all.measures[page.chosen.response] || Object.values(all.measures)[0];
    const known = one.lines.flatMap(({ points }) => points.flatMap((point) => point.slice(1)))
      .filter((value) => value !== null);
    const means = one.lines.flatMap(({ points }) => points.map((point) => point[1]));
    const isLog = one.ratio && Math.min(...means) > 0 && Math.max(...means) / Math.min(...means) > 10;
    const [unit, size] = one.unit === "%" ? ["%", 0.01] : scaleOf(one.unit, Math.max(...means));
    const least = isLog ? Math.min(...means) / 2 : -Infinity;
    const yRange = rangeOf(known.map((value) => Math.max(value, least) / size), isLog);
    // All numbers, so that it is seen where nobody arrived.
    const xRange = rangeOf(all.numbers, all.log);
    const isMain = (label) => !all.of_main && pinned.has(label);
    const paint = ({ label }, index) => (isMain(label) ? colorOf(label)
      : one.lines.length > COLORS ? color("dim") : nth(index, one.lines.length, false));
    const isWide = figure.clientWidth > 480 && one.lines.length > 1;
    const named = isWide ? one.lines.slice(0, 2 * COLORS) : [];
    const right = named.length ? Math.min(190, 18 + 7 * Math.max(...named.map(({ label }) => short(label, 26).length))) : 12;
    const margin = { l: 64, r: right, t: 12, b: 50 };
    const height = figure.clientHeight - margin.t - margin.b;
    const ends = named.map(({ points }) => points.at(-1)[1] / size).map((value) => (isLog ? Math.log10(value) : value));
    const places = ends.map((end) => height * (1 - (end - yRange[0]) / (yRange[1] - yRange[0])));
    const moved = apart(places, 16, 4, height - 4);
    const traces = one.lines.map((line, index) => ({
      type: "scatter", mode: "lines+markers", name: escaped(line.label), customdata: line.points.map(() => line.label),
      x: line.points.map(([at]) => at), y: line.points.map(([, mean]) => mean / size),
      text: line.points.map(([at, mean, low, high]) => `<b>${escaped(line.label)}</b><br>${escaped(all.axis)} ${significant(at)}`
        + `<br>${shown(mean, one.unit)}${low === null ? "" : ` (${shown(low, one.unit)} to ${shown(high, one.unit)})`}`),
      hovertemplate: "%{text}<extra></extra>",
      line: { color: paint(line, index), width: 2 }, marker: { color: paint(line, index), size: 7 },
      error_y: {
        type: "data", symmetric: false, thickness: 1.2, width: 0, color: paint(line, index),
        array: line.points.map(([, mean, , high]) => (high === null ? 0 : (high - mean) / size)),
        arrayminus: line.points.map(([, mean, low]) => (low === null ? 0 : (mean - Math.max(low, least)) / size)),
      },
    }));
    Plotly.react(figure, traces, layout({
      margin,
      xaxis: axis(all.axis, xRange, all.log, { tickmode: "array", tickvals: all.numbers, ticktext: all.labels.map(escaped) }),
      yaxis: axis(unit && unit !== "%" ? `${one.title}, ${unit}` : one.title, yRange, isLog,
        unit === "%" ? { ticksuffix: " %" } : {}),
      annotations: named.map((line, index) => ({
        xref: "paper", x: 1, xanchor: "left", xshift: 6, y: ends[index], yshift: places[index] - moved[index],
        yanchor: "middle", showarrow: false, text: escaped(short(line.label, 26)),
        font: { size: 12.5, color: paint(line, one.lines.indexOf(line)) },
      })),
      showlegend: !isWide && one.lines.length > 1,
      legend: { orientation: "h", y: -0.25, font: { size: 12 } },
    }), settings);
  };

  const wirePredictions = () => {
    for (const button of document.querySelectorAll(".matrix button")) {
      button.addEventListener("click", () => {
        for (const other of button.closest("table").querySelectorAll("button")) {
          other.setAttribute("aria-pressed", String(other === button));
        }
        page.choose(`prediction-${button.dataset.facet}`, button.dataset.prediction);
      });
    }
  };

  const drawLines = () => document.querySelectorAll(".plot[data-y]").forEach(lines);
  const draw = () => {
    legend();
    drawLines();
    const figure = document.getElementById("prediction");
    if (figure) scatter(figure);
    const depends = document.getElementById("response-plot");
    if (depends) response(depends);
  };

  const start = () => {
    pinDefaults();
    wireLegend();
    wirePredictions();
    document.getElementById("log-x")?.addEventListener("change", drawLines);
    page.listen(draw);
    draw();
    let width = innerWidth;
    addEventListener("resize", () => {
      if (innerWidth === width) return;
      width = innerWidth;
      draw();
    });
    document.documentElement.dataset.drawn = "yes";
  };
  return { start };
})();
