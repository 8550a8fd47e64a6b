"use strict";
// Lines over one axis, which zooms with the other charts; where points were joined, a lighter band between extremes.
// Lines differ in their dashes, too, so that they can be told apart without colours.
const DASHES = [[], [7, 3], [2, 2]];
function lineChart(chart, view) {
  const text = el("figcaption", {"aria-live": "polite"}, " "), shown = chart.text || ((value) => Number(value.toPrecision(4)).toString());
  const all = chart.lines.flatMap((line) => [...(line.low || line.y), ...(line.high || line.y)]);
  const low = chart.floor ?? Math.min(...all), high = Math.max(...all), range = high - low || Math.abs(high) || 1;
  // Of several fits, the colour says which, and the dashes say what.
  const fits = [...new Set(chart.lines.map((line) => line.fit))], metrics = [...new Set(chart.lines.map((line) => line.metric))];
  const style = (at) => fits.length > 1
    ? [COLOURS[fits.indexOf(chart.lines[at].fit) % COLOURS.length], DASHES[metrics.indexOf(chart.lines[at].metric) % DASHES.length]]
    : [COLOURS[at % COLOURS.length], DASHES[at % DASHES.length]];
  const [canvas, again] = drawing(150, chart.title, (context, width, height) => {
    axis(context, view, width, height);
    label(context, chart.title, 12); label(context, shown(high), 28); label(context, shown(low), height - 20);
    const across = (value) => LEFT + (value - view.from) / (view.to - view.from) * (width - LEFT);
    const up = (value) => 6 + (high - value) / range * (height - 28), said = [];
    context.save();
    context.beginPath(); context.rect(LEFT, 0, width - LEFT, height - 16); context.clip();
    chart.lines.forEach((line, at) => {
      const [hue, dashes] = style(at);
      context.strokeStyle = context.fillStyle = colour(hue);
      if (line.low) {
        context.beginPath();
        line.x.forEach((x, place) => context.lineTo(across(x), up(line.high[place])));
        for (let place = line.x.length - 1; place >= 0; place -= 1) context.lineTo(across(line.x[place]), up(line.low[place]));
        context.globalAlpha = 0.3; context.fill(); context.globalAlpha = 1;
      }
      context.lineWidth = 1.6; context.setLineDash(dashes);
      context.beginPath();
      line.x.forEach((x, place) => context.lineTo(across(x), up(line.y[place])));
      context.stroke();
      context.setLineDash([]); context.lineWidth = 1;
      const seen = line.x.filter((x) => x >= view.from && x <= view.to).length;
      if (seen <= 60) line.x.forEach((x, place) => context.fillRect(across(x) - 2, up(line.y[place]) - 2, 4, 4));
      if (view.at === null || !line.x.length) return;
      const near = line.x.reduce((best, x, place) => Math.abs(x - view.at) < Math.abs(line.x[best] - view.at) ? place : best, 0);
      said.push(`${line.name} ${shown(line.y[near])}${line.low ? ` (${shown(line.low[near])} to ${shown(line.high[near])})` : ""} at ${(view.text || seconds)(line.x[near])}`);
    });
    context.restore();
    pointer(context, view, width, height);
    text.textContent = visible(said.join("; ")) || " ";
  });
  view.redraw.push(again);
  canvas.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    view.at = (view.from + view.to) / 2; // arrows move the charts under it
    view.changed();
  });
  view.listen(canvas, LEFT);
  const keys = chart.lines.length < 2 ? [] : chart.lines.map((line, at) => {
    const [hue, dashes] = style(at), border = dashes.length ? (dashes[0] > 2 ? "dashed" : "dotted") : "solid";
    return el("span", {class: "key"}, el("i", {class: "stroke", style: {borderTop: `2px ${border} var(${hue})`}}), line.name);
  });
  return el("figure", {}, el("div", {}, keys), canvas, text);
}

// Buttons that zoom and move all charts of a view.
function zoomTools(view, ...more) {
  return el("div", {class: "tools"},
    [["Zoom in", () => view.zoom(2)], ["Zoom out", () => view.zoom(0.5)], ["‹", () => view.move(-0.3)], ["›", () => view.move(0.3)], ["Whole run", () => view.set(...view.whole)]]
      .map(([name, act]) => el("button", {type: "button", onclick: act}, name)), more,
    el("span", {class: "soft"}, "Ctrl and wheel zoom; drag moves; with the keyboard: arrows, +, -, 0, and Enter to read values."));
}
