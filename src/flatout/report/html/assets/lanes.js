"use strict";
const HUES = {
  "waiting for a batch": "--c1", "forward": "--c2", "backward": "--c3", "optimizer": "--c4", "step": "--c8", "slow step": "--c0",
  "fetch a batch": "--c2", "sample": "--c6", "collate": "--c7", "wait for indices": "--c8", "hand over a batch": "--c5",
  "pickle a batch": "--c5", "unpickle a batch": "--c5", "validation": "--c6", "checkpoint": "--c5", "import": "--c8", "worker starts": "--c7",
};
// A row for each thread: what it did when. Short spans that were left out to keep the page small show as a grey share.
function laneChart(lanes, names, view, slow) {
  const ROW = 13, text = el("figcaption", {"aria-live": "polite"}, " ");
  const tops = [], picker = spanPicker(lanes, view);
  let height = 0;
  for (const lane of lanes) { tops.push(height); height += lane.rows * ROW + 8; }
  const hue = (name) => HUES[names[name]] || COLOURS[name % COLOURS.length];
  const [canvas, again] = drawing(height + 18, "What each thread did, over time", (context, width, tall) => {
    axis(context, view, width, tall);
    const scale = (width - LEFT) / (view.to - view.from);
    const x = (time) => LEFT + (time - view.from) * scale;
    const picked = picker.picked;
    let under = null;
    lanes.forEach((lane, at) => {
      const top = tops[at] + 2;
      context.fillStyle = colour("--c8");
      const column = (view.whole[1] - view.whole[0]) / Math.max(lane.rest.length, 1);
      lane.rest.forEach((share, place) => {
        const begin = view.whole[0] + place * column;
        if (share <= 0 || begin + column < view.from || begin > view.to) return;
        const from = Math.max(x(begin), LEFT), high = Math.max(share * ROW, 1);
        context.fillRect(from, top + ROW - high, Math.max(x(begin + column) - from, 0.5), high);
      });
      for (let row = 0; row < lane.start.length; row += 1) {
        const start = lane.start[row], end = start + lane.length[row];
        if (end < view.from || start > view.to) continue;
        const from = Math.max(x(start), LEFT), wide = Math.max(Math.min(x(end), width) - from, 0.7);
        const y = top + lane.depth[row] * ROW;
        context.fillStyle = colour(hue(lane.name[row]));
        context.fillRect(from, y, wide, ROW - 1);
        if (wide > 46) {
          context.fillStyle = textOn(hue(lane.name[row]));
          const shown = names[lane.name[row]];
          if (context.measureText(shown).width < wide - 6) context.fillText(shown, from + 3, y + 10);
        }
        if (picked) {
          if (picked[0] !== at || picked[1] !== row) continue;
          under = row;
          context.strokeStyle = colour("--mark"); context.lineWidth = 2;
          context.strokeRect(from, y, Math.max(wide, 2), ROW - 1);
          context.lineWidth = 1;
        } else if (view.at !== null && view.lane === at && start <= view.at && view.at <= end && (under === null || lane.depth[row] >= lane.depth[under])) under = row;
      }
      context.clearRect(0, tops[at], LEFT - 4, lane.rows * ROW + 6);
      label(context, lane.label, top + 10);
      if (under !== null && view.lane === at) {
        const note = lane.notes[under] === null ? "" : `, ${lane.notes[under]}`;
        text.textContent = visible(`${lane.label}: ${names[lane.name[under]]}, ${seconds(lane.length[under])}${note}`);
      }
    });
    pointer(context, view, width, tall);
    if (under === null) text.textContent = "Point at a span to see what it is; with the keyboard, Enter picks one, arrows go to its neighbours, and Escape lets it go. N goes to the next slow step, P to the previous one.";
  });
  canvas.addEventListener("pointermove", (event) => {
    picker.drop();
    const y = event.clientY - canvas.getBoundingClientRect().top;
    view.lane = tops.findLastIndex((top) => top <= y);
  }, true);
  const go = (by) => {
    if (!slow.length) return;
    const middle = (view.from + view.to) / 2;
    const next = by > 0 ? slow.find(([start]) => start > middle + 1e-9) ?? slow[0] : slow.findLast(([, end]) => end < middle - 1e-9) ?? slow.at(-1);
    const width = Math.max((next[1] - next[0]) * 3, 1e-4), centre = (next[0] + next[1]) / 2;
    picker.drop();
    view.at = centre; // all charts say what was then
    view.set(centre - width / 2, centre + width / 2);
  };
  canvas.addEventListener("keydown", (event) => {
    picker.key(event);
    const key = event.key.toLowerCase();
    if (key === "n" || key === "p") { event.preventDefault(); go(key === "n" ? 1 : -1); }
  });
  view.redraw.push(again);
  view.listen(canvas, LEFT);
  const tools = zoomTools(view, slow.length ? el("button", {type: "button", onclick: () => go(1)}, "Next slow step") : null);
  return el("figure", {}, tools, canvas, text);
}
