"use strict";
// Predicted against observed: a spot for every graph.
const spots = (() => {
  const { settings, color, escaped, short, significant, scaleOf, shown, rangeOf, axis, layout } = paint;
  const { data, pinned, colorOf, stands } = choice;

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

  // What is chosen among the predictions of the place that is looked at.
  const chosenOne = () => {
    const places = Object.keys(data.predictions);
    const place = [page.chosen.place, page.chosen.facet, "all"].find((key) => places.includes(key));
    const all = data.predictions[place] || [];
    return all.find((one) => one.key === page.chosen[`prediction-${place}`]) || all[0];
  };

  // Points decide on the range: wide intervals would press them all into a line.
  const rangesOf = (points, { log_x: isLogX, log_y: isLogY }) => {
    const [low, high] = rangeOf(points.map((one) => one.y), isLogY);
    const room = 0.15 * (high - low);
    return [rangeOf(points.map((one) => one.x), isLogX), [low - room, high + room]];
  };

  const textOf = (one, { x_title: xTitle, y_title: yTitle, y_unit: unit }) =>
    `<b>${escaped(one.label)}</b><br>${escaped(xTitle)} ${significant(one.x)}<br>${escaped(yTitle)} `
    + shown(one.y, unit)
    + (one.low === null ? "" : ` (${shown(one.low, unit)} to ${shown(one.high, unit)})`);

  // Bars from one end of the plot to the other would be a grid, and say nothing.
  const fits = (points, [low, high], isLog) => {
    const ends = (one) => [one.low, one.high].map((end) => (isLog ? Math.log10(end) : end));
    const known = points.filter((one) => one.low !== null && one.high !== null);
    return known.filter((one) => ends(one)[0] >= low && ends(one)[1] <= high).length >= known.length / 2;
  };

  const traceOf = (points, texts, hasBars) => ({
    type: "scatter", mode: "markers", x: points.map((one) => one.x), y: points.map((one) => one.y),
    customdata: points.map((one) => one.label), text: texts, hovertemplate: "%{text}<extra></extra>",
    error_y: {
      visible: hasBars, type: "data", symmetric: false, thickness: 1, width: 0, color: color("muted"),
      array: points.map((one) => (one.high === null ? 0 : one.high - one.y)),
      arrayminus: points.map((one) => (one.low === null ? 0 : one.y - one.low)),
    },
    marker: { size: 9, line: { width: 1, color: color("bg") }, color: points.map(({ label }) => paintOf(label)) },
  });
  const paintOf = (label) => (pinned.has(label) ? colorOf(label) : color("dim"));

  const labelsOf = (points, places, { log_x: isLogX, log_y: isLogY }) =>
    points.flatMap((one, index) => (places[index] ? [{
      x: isLogX ? Math.log10(one.x) : one.x, y: isLogY ? Math.log10(one.y) : one.y,
      xanchor: places[index][0], xshift: places[index][1], yshift: places[index][2], showarrow: false,
      text: escaped(short(one.label, 24)), font: { size: 12, color: paintOf(one.label) },
    }] : []));

  const scatter = (figure) => {
    const chosen = chosenOne();
    figure.hidden = !chosen;
    document.getElementById("prediction-words").textContent = chosen ? chosen.words : "";
    if (!chosen) return;
    const isPart = chosen.y_unit === "%";
    const [unit, factor] = isPart ? ["", 0.01] : scaleOf(chosen.y_unit, Math.max(...chosen.points.map((one) => one.y)));
    const over = (value) => (value === null ? null : value / factor);
    const points = chosen.points.map((one) => ({ ...one, y: over(one.y), low: over(one.low), high: over(one.high) }));
    const [xRange, yRange] = rangesOf(points, chosen);
    const margin = { l: 62, r: 14, t: 12, b: 50 };
    const [width, height] = [figure.clientWidth - margin.l - margin.r, figure.clientHeight - margin.t - margin.b];
    const at = (value, [low, high], isLog) => ((isLog ? Math.log10(value) : value) - low) / (high - low);
    points.forEach((one) => {
      one.px = width * at(one.x, xRange, chosen.log_x);
      one.py = height * (1 - at(one.y, yRange, chosen.log_y));
    });
    const hasBars = fits(points, yRange, chosen.log_y);
    if (!hasBars) document.getElementById("prediction-words").textContent += " Intervals are wider than the plot.";
    const texts = chosen.points.map((one) => textOf(one, chosen));
    Plotly.react(figure, [traceOf(points, texts, hasBars)], layout({
      margin,
      xaxis: axis(chosen.x_title, xRange, chosen.log_x),
      yaxis: axis(unit ? `${chosen.y_title}, ${unit}` : chosen.y_title, yRange, chosen.log_y,
        isPart ? { ticksuffix: " %" } : {}),
      annotations: labelsOf(points, roomFor(points, width, height), chosen),
    }), settings);
    if (!figure.dataset.wired) choice.wire(figure);
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

  const draw = () => {
    const figure = document.getElementById("prediction");
    if (figure) scatter(figure);
  };
  return { draw, wire: wirePredictions };
})();
