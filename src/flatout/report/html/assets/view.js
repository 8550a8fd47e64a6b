"use strict";
// Elements are made by el(), which sets text and never markup: whatever a run contains stays text.
function el(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "style") Object.assign(made.style, value);
    else made.setAttribute(key, value === true ? "" : value);
  }
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false) continue;
    made.append(child instanceof Node ? child : document.createTextNode(visible(String(child))));
  }
  return made;
}

// Characters that reorder or hide text are shown by their numbers.
function visible(text) {
  return text.replace(/[\u061c\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g,
    (found) => "\\u" + found.charCodeAt(0).toString(16).padStart(4, "0"));
}

// A command as it can be pasted into bash or zsh.
function shellLine(words) {
  return words.map((word) => {
    if (/[\u0000-\u001f\u007f]/.test(word)) {
      const escaped = word.replace(/[\\']/g, "\\$&").replace(/\n/g, "\\n").replace(/\t/g, "\\t");
      return `$'${escaped.replace(/[\u0000-\u001f\u007f]/g, (found) => "\\x" + found.charCodeAt(0).toString(16).padStart(2, "0"))}'`;
    }
    return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`;
  }).join(" ");
}

const COLOURS = ["--c1", "--c2", "--c3", "--c4", "--c5", "--c6", "--c7"];
const DARK = "screen and (prefers-color-scheme: dark)"; // paper is light
// Text that can be read on a colour; the darkest one is light in the dark.
const DARK_TEXT = ["--c1", "--c3", "--c6", "--c7", "--c8"];
function textOn(hue) {
  const dark = DARK_TEXT.includes(hue) || (hue === "--c0" && matchMedia(DARK).matches);
  return dark ? "#10141a" : "#ffffff";
}
function colour(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

function percent(share) {
  if (share === null || share === undefined) return "–";
  const value = 100 * share;
  return (Math.abs(value) >= 9.95 || value === 0 ? value.toFixed(0) : value.toFixed(1)) + "%";
}

function seconds(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  const three = (number) => number >= 99.5 ? number.toFixed(0) : number >= 9.95 ? number.toFixed(1) : number.toFixed(2);
  const sign = value < 0 ? "-" : "";
  const whole = Math.round(size);
  if (size >= 3600) return sign + Math.floor(whole / 3600) + " h " + Math.floor(whole % 3600 / 60) + " min";
  if (size >= 120) return sign + Math.floor(whole / 60) + " min " + whole % 60 + " s";
  if (size >= 1) return sign + three(size) + " s";
  if (size >= 1e-3) return sign + three(size * 1e3) + " ms";
  return size === 0 ? "0 s" : sign + three(size * 1e6) + " µs";
}

function factor(value) { return value === null || value === undefined ? "–" : value.toFixed(value >= 10 ? 1 : 2) + "x"; }

function rate(value) { return value === null || value === undefined ? "–" : Number(value.toPrecision(4)).toLocaleString("en", {maximumSignificantDigits: 4}); }

function bytes(value) {
  if (value === null || value === undefined) return "not known";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let size = Math.abs(value), unit = 0;
  while (size >= 1024 && unit < units.length - 1) { size /= 1024; unit += 1; }
  return (value < 0 ? "-" : "") + (size >= 100 || unit === 0 ? size.toFixed(0) : size.toFixed(1)) + " " + units[unit];
}

function section(title, ...children) { return el("section", {}, el("h2", {}, title), ...children); }

// Heads of columns with numbers begin with "#". On a narrow screen, the cells of a stacked table lie below each other.
function table(heads, rows, stacked) {
  const numeric = (head) => head.startsWith("#");
  return el("div", {class: "wide"}, el("table", {class: stacked ? "stacked" : null},
    el("thead", {}, el("tr", {}, heads.map((head) => el("th", {class: numeric(head) ? "n" : null, scope: "col"}, head.replace(/^#/, ""))))),
    el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell, at) => el("td", {class: numeric(heads[at]) ? "n" : null, "data-head": heads[at].replace(/^#/, "")}, cell)))))));
}

function list(items) { return el("ul", {}, items.map((item) => el("li", {}, item))); }
// What the classes of remedies that are shown mean.
function classLegend(meanings, shown) {
  const used = Object.keys(meanings || {}).filter((name) => shown.includes(name));
  return el("dl", {class: "classes", "aria-label": "Classes"}, used.map((name) => el("div", {}, el("dt", {}, name), el("dd", {}, meanings[name]))));
}

function bar(share) {
  return el("div", {class: "bar", role: "img", "aria-label": percent(share)}, el("i", {style: {width: 100 * Math.max(0, Math.min(1, share)) + "%"}}));
}

// A predicted factor with its interval, on a logarithmic axis from 0.5 to the largest of all.
function interval(gain, most) {
  const at = (value) => 100 * Math.log(Math.max(value, 0.5) / 0.5) / Math.log(most / 0.5) + "%";
  return el("div", {class: "span", role: "img", "aria-label": factor(gain.predicted) + " (" + factor(gain.low) + " to " + factor(gain.high) + ")"},
    el("u", {style: {left: at(1)}}), el("i", {style: {left: at(gain.low), width: `calc(${at(gain.high)} - ${at(gain.low)})`}}),
    el("b", {style: {left: at(gain.predicted)}}));
}

function download(name, text) {
  return el("a", {class: "button", download: name, href: "data:application/json;charset=utf-8," + encodeURIComponent(text)}, "JSON");
}

async function data() {
  const raw = atob(document.getElementById("data").textContent);
  const stream = new Blob([Uint8Array.from(raw, (c) => c.charCodeAt(0))]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

// A canvas as sharp as the screen; draw(context, width, height) is called again when the size or the colours change.
function drawing(height, label, draw) {
  const canvas = el("canvas", {height, tabindex: "0", role: "img", "aria-label": label, style: {height: height + "px"}});
  const again = () => {
    const width = canvas.clientWidth;
    if (!width) return;
    const scale = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    const context = canvas.getContext("2d");
    context.scale(scale, scale);
    context.font = "11px system-ui, sans-serif";
    draw(context, width, height);
  };
  new ResizeObserver(again).observe(canvas);
  for (const query of [DARK, "print"]) matchMedia(query).addEventListener("change", again);
  return [canvas, again];
}

// A fault is said where the page would be, instead of leaving it empty.
function shown(make) {
  make().catch((error) => {
    document.getElementById("page").replaceChildren(el("h1", {}, "This page cannot be shown"), el("p", {}, String(error)),
      el("p", {}, "The result as text: run the command without --html."));
    throw error;
  });
}
