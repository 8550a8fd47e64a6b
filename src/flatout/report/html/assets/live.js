"use strict";
// Grows with the run: each event replaces the numbers, the charts keep their zoom and the place of the pointer.
const number = (value, digits) => value === null || value === undefined ? null : Number(value.toPrecision(digits || 3)).toLocaleString("en");
const clock = (inSeconds) => new Date(Date.now() + 1000 * inSeconds).toLocaleTimeString();
const of = (used, whole) => used === null ? null : bytes(used) + (whole ? ` of ${bytes(whole)}` : "");

function headline(state) {
  if (state.stop === "broken off") return `The recording was broken off: nothing came for ${seconds(state.silent_s)}`;
  if (state.failure !== null) return `The recording has ended: ${state.failure}`;
  if (state.stop !== null) return `The recording has ended: ${{seconds: "its time is over", steps: "it has its steps"}[state.stop] || state.stop}`;
  if (state.silent_s !== null) return `Nothing was recorded for ${seconds(state.silent_s)}, after step ${state.steps.toLocaleString("en")}`;
  if (!state.steps) return `No training step yet, ${seconds(state.elapsed_s)} after the start`;
  const wait = state.wait_share === null ? "" : `, waiting for batches ${percent(state.wait_share)} of the time`;
  return `Step ${state.steps.toLocaleString("en")}${state.steps_per_s ? `, ${number(state.steps_per_s)} steps/s` : ""}${wait}`;
}

function facts(state) {
  const rows = [
    ["since the start", seconds(state.elapsed_s)],
    ["epoch", state.epoch === null ? null : state.epoch + (state.epoch_steps ? `: ${state.epoch_step.toLocaleString("en")} of ${state.epoch_steps.toLocaleString("en")}` : "")],
    ["samples/s", number(state.samples_per_s)],
    ["waiting since the first step", state.wait_share_all === null ? null : percent(state.wait_share_all)],
    state.loss ? [state.loss[0], typeof state.loss[1] === "number" ? number(state.loss[1], 4) : state.loss[1]] : ["loss", null],
    ["CPU", state.cores_busy === null ? null : state.cores_busy.toFixed(1) + (state.cores ? ` of ${state.cores} cores` : " cores")],
    ["memory", of(state.memory_used, state.memory_limit)],
    ["/dev/shm", of(state.shm_used, state.shm_size)],
    ...(state.gpus || []).map((gpu) => [`GPU ${gpu.index}`, (gpu.util === null ? "use not measured" : percent(gpu.util)) + (gpu.memory_used === null ? "" : `, ${of(gpu.memory_used, gpu.memory_total)}`)]),
    state.gpus === null ? ["GPU", null] : state.gpus.length ? null : ["GPU", "none"],
  ];
  if (state.end !== null && state.stop === null) {
    const at = (ns) => clock(state.end_in_s + (ns - state.end.at_ns) / 1e9);
    const interval = state.end.low_ns === state.end.high_ns ? "" : ` (${at(state.end.low_ns)} to ${at(state.end.high_ns)})`;
    rows.push([`${state.end.what} ends, predicted`, `${at(state.end.at_ns)}${interval}, from ${state.end.basis}`]);
  }
  if (state.deadline_in_s !== null && state.stop === null) rows.push(["deadline", clock(state.deadline_in_s)]);
  return el("dl", {class: "facts"}, rows.filter(Boolean).map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value === null ? "not measured" : value))));
}

shown(async () => {
  const {run, command} = await data(), main = document.getElementById("page");
  const title = el("h1", {id: "verdict"}, "Connecting …"), warnings = el("div", {role: "alert", id: "warnings"}), values = el("div", {});
  const link = el("p", {class: "soft", id: "link", role: "status"}, " "), charts = el("div", {});
  let paused = false, latest = null, steps = null, series = null, view = null;
  const pause = el("button", {type: "button", "aria-pressed": "false", onclick: () => { paused = !paused; pause.setAttribute("aria-pressed", String(paused)); pause.textContent = paused ? "Go on" : "Pause"; if (!paused && latest) show(latest); }}, "Pause");
  main.replaceChildren(title, el("p", {class: "mono"}, command), el("p", {class: "soft"}, run), warnings, values,
    section("Over time", charts), link,
    section("Next", el("p", {class: "mono"}, `flatout report ${run} --html`), el("p", {class: "soft"}, "after the end: where the time went, what holds it back, and what to do.")));

  function draw(found) {
    if (steps === null || series === null || series.length !== found.series.length) {
      view = new View(0, Math.max(found.now, 1));
      steps = found.steps; series = found.series;
      charts.replaceChildren(zoomTools(view, pause), stepChart(steps, view), series.length ? seriesChart(series, view) : "");
    } else {
      Object.assign(steps, found.steps);
      found.series.forEach((one, at) => Object.assign(series[at], one));
      view.grow(Math.max(found.now, 1));
    }
  }

  function show(found) {
    title.textContent = headline(found.state);
    document.title = `flatout: ${title.textContent}`;
    values.replaceChildren(facts(found.state));
    const said = found.state.warnings.map((one) => one.text).join("\n");
    if (warnings.dataset.said !== said) { // an alert is read out when it changes
      warnings.dataset.said = said;
      warnings.replaceChildren(...found.state.warnings.map((one) => el("p", {class: "warning", "data-warning": one.id}, `! ${one.text}`)));
    }
    if (found.steps) draw(found);
    document.documentElement.dataset.ready = "yes";
  }

  const events = new EventSource("events" + location.search);
  events.onopen = () => { link.textContent = "Connected: renewed once a second."; };
  events.onmessage = (event) => { latest = JSON.parse(event.data); if (!paused) show(latest); };
  events.onerror = () => { link.textContent = "The connection is lost: the recording may have ended, or flatout watch. Trying again …"; };
  events.addEventListener("over", () => { events.close(); link.textContent = "This page is complete and stays as it is; it can no longer be loaded again."; document.documentElement.dataset.over = "yes"; });
});
