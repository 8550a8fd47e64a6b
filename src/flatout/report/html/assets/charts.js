"use strict";
// One time axis for all charts of a page: zoomed together, by buttons, keys, Ctrl and wheel, or dragging.
class View {
  constructor(from, to) { this.whole = [from, to]; this.from = from; this.to = to; this.redraw = []; this.at = null; }
  set(from, to) {
    const [least, most] = this.whole, width = Math.min(Math.max(to - from, 1e-5), most - least);
    this.from = Math.min(Math.max(from, least), most - width);
    this.to = this.from + width;
    this.changed();
  }
  zoom(by, at) { const middle = at ?? (this.from + this.to) / 2; this.set(middle - (middle - this.from) / by, middle + (this.to - middle) / by); }
  move(by) { const width = this.to - this.from; this.set(this.from + by * width, this.to + by * width); }
  // Time goes on: a view of all of it stays one.
  grow(most) {
    const follows = this.to >= this.whole[1];
    this.whole[1] = most;
    if (follows) this.to = most;
    this.changed();
  }
  changed() { for (const again of this.redraw) again(); }
  listen(canvas, left) {
    const timeAt = (event) => {
      const box = canvas.getBoundingClientRect();
      return this.from + (event.clientX - box.left - left) / Math.max(box.width - left, 1) * (this.to - this.from);
    };
    let dragged = null;
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return; // the page scrolls otherwise
      event.preventDefault();
      this.zoom(event.deltaY < 0 ? 1.3 : 1 / 1.3, timeAt(event));
    }, {passive: false});
    canvas.addEventListener("pointerdown", (event) => { dragged = [event.clientX, this.from]; canvas.setPointerCapture(event.pointerId); });
    canvas.addEventListener("pointerup", () => { dragged = null; });
    canvas.addEventListener("pointermove", (event) => {
      this.at = timeAt(event);
      if (dragged) {
        const width = this.to - this.from, box = canvas.getBoundingClientRect();
        const from = dragged[1] - (event.clientX - dragged[0]) / Math.max(box.width - left, 1) * width;
        this.set(from, from + width);
      } else this.changed();
    });
    canvas.addEventListener("pointerleave", () => { this.at = null; this.changed(); });
    canvas.addEventListener("keydown", (event) => {
      if (event.defaultPrevented) return; // a picked span has moved
      const keys = {ArrowLeft: () => this.move(-0.2), ArrowRight: () => this.move(0.2), "+": () => this.zoom(1.5), "-": () => this.zoom(1 / 1.5), "0": () => this.set(...this.whole)};
      if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
    });
  }
}

const LEFT = 108;
function axis(context, view, width, height) {
  const span = view.to - view.from, rough = span / Math.max(2, (width - LEFT) / 110);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough);
  context.fillStyle = colour("--soft");
  context.strokeStyle = colour("--line");
  context.textAlign = "center";
  for (let time = Math.ceil(view.from / step) * step; time <= view.to; time += step) {
    const x = LEFT + (time - view.from) / span * (width - LEFT);
    context.beginPath(); context.moveTo(x, 0); context.lineTo(x, height - 16); context.stroke();
    const text = (view.text || seconds)(Math.abs(time) < step / 1e6 ? 0 : time);
    if (x + context.measureText(text).width / 2 < width) context.fillText(text, x, height - 4);
  }
  context.textAlign = "left";
}
function pointer(context, view, width, height) {
  if (view.at === null || view.at < view.from || view.at > view.to) return;
  const x = LEFT + (view.at - view.from) / (view.to - view.from) * (width - LEFT);
  context.strokeStyle = colour("--ink");
  context.globalAlpha = 0.5;
  context.beginPath(); context.moveTo(x, 0); context.lineTo(x, height - 16); context.stroke();
  context.globalAlpha = 1;
}
function label(context, text, y, most) {
  context.fillStyle = colour("--soft");
  let shown = visible(text);
  while (shown.length > 1 && context.measureText(shown).width > (most || LEFT - 8)) shown = shown.slice(0, -2) + "…";
  context.fillText(shown, 0, y);
}

// Each step as a bar, as wide as the step and as high as its duration, in parts.
function stepChart(steps, view) {
  const names = Object.keys(steps.parts), text = el("figcaption", {"aria-live": "polite"}, " ");
  const count = (row) => steps.count ? steps.count[row] : steps.joined;
  let known = null, sorted, order, most;
  const [canvas, again] = drawing(150, "Duration of the steps, by phase", (context, width, height) => {
    if (known !== steps.total) { // on a live page they are replaced
      known = steps.total;
      // Most steps have to be seen beside one that took a minute.
      sorted = [...steps.total].sort((a, b) => a - b);
      // Those that stand alone are drawn last: bars of many steps would cover them.
      order = [...steps.start.keys()].sort((a, b) => count(b) - count(a) || a - b);
      most = Math.min(sorted.at(-1), 4 * sorted[Math.floor(sorted.length / 2)]) || 1;
    }
    axis(context, view, width, height);
    label(context, "a step", 12); label(context, seconds(most), 26);
    const scale = (width - LEFT) / (view.to - view.from), floor = height - 17, high = floor - 6;
    let under = null, nearest = Infinity;
    for (const row of order) {
      const start = steps.start[row], end = start + steps.length[row];
      if (end < view.from || start > view.to) continue;
      const x = LEFT + (Math.max(start, view.from) - view.from) * scale;
      const wide = Math.max((Math.min(end, view.to) - Math.max(start, view.from)) * scale - 0.4, count(row) < steps.joined ? 1 : 0.6);
      let y = floor;
      names.forEach((name, at) => {
        const tall = Math.min(steps.parts[name][row] / most, 1) * high;
        context.fillStyle = at === names.length - 1 ? colour("--c8") : colour(COLOURS[at]);
        context.fillRect(x, Math.max(y - tall, floor - high), wide, Math.min(tall, Math.max(y - (floor - high), 0)));
        y -= tall;
      });
      if (steps.slow[row]) { context.fillStyle = colour("--ink"); context.fillRect(x, 0, Math.max(wide, 2), 3); }
      if (view.at === null) continue;
      // Beside bars of many steps, one that stands alone may be narrower than the pointer.
      const away = Math.max(start - view.at, view.at - end, 0) * scale;
      const alone = steps.joined > 1 && count(row) === 1;
      if (alone ? away <= Math.min(nearest, 2) : away === 0) { under = row; if (alone) nearest = away; }
    }
    pointer(context, view, width, height);
    text.textContent = under === null
      ? `The marks on top are slow steps (over twice the median).${sorted.at(-1) > most ? " Higher bars are cut off." : ""}`
      : (count(under) > 1 ? `steps ${steps.number[under]} to ${steps.number[under] + count(under) - 1}, means: ` : `step ${steps.number[under]}: `)
        + `${seconds(steps.total[under])}; ` + names.map((name) => `${name} ${seconds(steps.parts[name][under])}`).join(", ");
  });
  view.redraw.push(again);
  view.listen(canvas, LEFT);
  const keys = names.map((name, at) => el("span", {class: "key"}, el("i", {style: {background: at === names.length - 1 ? "var(--c8)" : `var(${COLOURS[at]})`}}), name));
  return el("figure", {}, el("div", {}, el("span", {class: "key"}, "from below:"), keys), canvas, text);
}

function amount(value, unit) { return unit === "GiB" ? bytes(value * 2 ** 30) : `${Number(value.toPrecision(3))} ${unit}`; }
// Small charts below each other: each value over the same time.
function seriesChart(series, view) {
  const row = 44, text = el("figcaption", {"aria-live": "polite"}, " ");
  const [canvas, again] = drawing(row * series.length + 18, "Use of the machine over time", (context, width, height) => {
    axis(context, view, width, height);
    const said = [];
    series.forEach((one, at) => {
      const top = at * row + 4, high = row - 10, most = Math.max(...one.value, 1e-12);
      label(context, one.name, top + 12);
      label(context, `to ${amount(most, one.unit)}`, top + 26);
      context.strokeStyle = colour(COLOURS[at % COLOURS.length]);
      context.lineWidth = 1.4;
      context.beginPath();
      let begun = false, near = null;
      one.time.forEach((time, place) => {
        if (view.at !== null && (near === null || Math.abs(time - view.at) < Math.abs(one.time[near] - view.at))) near = place;
        if (one.time[Math.min(place + 1, one.time.length - 1)] < view.from || one.time[Math.max(place - 1, 0)] > view.to) return;
        const x = Math.max(LEFT + (time - view.from) / (view.to - view.from) * (width - LEFT), LEFT);
        const y = top + high - one.value[place] / most * high;
        if (begun) context.lineTo(x, y); else context.moveTo(x, y);
        begun = true;
      });
      context.stroke();
      context.lineWidth = 1;
      if (near !== null) said.push(`${one.name} ${amount(one.value[near], one.unit)}`);
    });
    pointer(context, view, width, height);
    text.textContent = said.join(", ") || " ";
  });
  view.redraw.push(again);
  view.listen(canvas, LEFT);
  return el("figure", {}, canvas, text);
}
