"use strict";
// Spans by keyboard: Enter picks one, arrows go to the ones before and after and to the row above and below, Enter
// again zooms to it, Escape lets it go. Arrows do that only while a span is picked: otherwise they move the charts.
function spanPicker(lanes, view) {
  let picked = null, known = null;
  const lines = () => known ??= lanes.flatMap((lane, at) => {
    const rows = Array.from({length: lane.rows}, () => []);
    lane.start.forEach((_, row) => rows[lane.depth[row]].push(row));
    return rows.filter((one) => one.length).map((one) => ({at, rows: one.sort((a, b) => lane.start[a] - lane.start[b])}));
  });
  const edges = (line, place) => {
    const lane = lanes[line.at], row = line.rows[place];
    return [lane.start[row], lane.start[row] + lane.length[row]];
  };
  const nearest = (line, time) => {
    let best = 0, least = Infinity;
    line.rows.forEach((_, place) => {
      const [start, end] = edges(line, place), away = Math.max(start - time, time - end, 0);
      if (away < least) { least = away; best = place; }
    });
    return best;
  };
  const pick = (line, place) => {
    picked = {line, place};
    const [start, end] = edges(lines()[line], place), width = view.to - view.from;
    view.lane = lines()[line].at;
    if (end < view.from || start > view.to) view.set((start + end - width) / 2, (start + end + width) / 2);
    view.at = (Math.max(start, view.from) + Math.min(end, view.to)) / 2;
    view.changed();
  };
  const time = () => view.at ?? (view.from + view.to) / 2;
  const to = (line) => { if (line >= 0 && line < lines().length) pick(line, nearest(lines()[line], time())); };
  const along = (by) => {
    const place = picked.place + by;
    if (place >= 0 && place < lines()[picked.line].rows.length) pick(picked.line, place);
  };
  const enter = () => {
    if (picked) {
      const [start, end] = edges(lines()[picked.line], picked.place), room = Math.max((end - start) / 4, 1e-5);
      view.set(start - room, end + room);
    } else to(Math.max(lines().findIndex((line) => line.at === view.lane), 0));
  };
  const keys = {ArrowLeft: () => along(-1), ArrowRight: () => along(1), ArrowUp: () => to(picked.line - 1), ArrowDown: () => to(picked.line + 1), Escape: () => { picked = null; view.at = null; view.changed(); }};
  return {
    // [lane, row] of the span that is picked; null: none.
    get picked() { return picked && [lines()[picked.line].at, lines()[picked.line].rows[picked.place]]; },
    drop() { picked = null; },
    key(event) {
      const act = event.key === "Enter" && lines().length ? enter : picked && keys[event.key];
      if (act) { event.preventDefault(); act(); }
    },
  };
}
