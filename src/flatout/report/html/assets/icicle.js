"use strict";
// An account has the same colour in every chart and page.
const OF_ACCOUNT = {batch_wait: "--c1", forward: "--c2", backward: "--c3", optimizer: "--c4", validation: "--c6", checkpoint: "--c5", logging: "--c7", unaccounted: "--c8"};
function accountColour(id) {
  const sum = [...(id || "")].reduce((found, letter) => found + letter.charCodeAt(0), 0);
  return OF_ACCOUNT[id] || ["--c5", "--c6", "--c7"][sum % 3];
}

// The accounts of a ledger, each as wide as its share, with what it consists of below. A click shows one alone.
function icicle(accounts, whole) {
  const root = {label: "training window", seconds: whole, children: accounts};
  const box = el("div", {class: "icicle"});
  const path = el("p", {class: "soft"}), detail = el("p", {class: "soft", "aria-live": "polite"});
  let shown = [root];
  const depth = (node) => 1 + Math.max(0, ...(node.children || []).map(depth));
  const title = (node, of) => `${node.label}: ${seconds(node.seconds)}, ${percent(node.seconds / of)} of the window`;
  const about = (node) => () => { detail.textContent = visible(title(node, whole)); };

  function place(node, left, width, level, hue) {
    const share = node.seconds / whole;
    const made = el("button", {
      type: "button", title: title(node, whole), "aria-label": title(node, whole), "data-id": node.id || "", "data-level": level,
      tabindex: level ? "-1" : "0", onfocus: about(node), onpointerenter: about(node),
      "aria-disabled": !(node.children || []).length && node !== shown.at(-1) ? "true" : null,
      style: {left: left + "%", width: width + "%", top: level * 35 + "px", background: `var(${hue})`, color: hue === "--c0" ? "var(--on)" : textOn(hue)},
      onclick: () => { if ((node.children || []).length) zoom(node); },
    }, width > 4 ? `${node.label} ${percent(share)}` : "");
    box.append(made);
    let at = left;
    for (const child of node.children || []) {
      const part = node.seconds > 0 ? width * child.seconds / node.seconds : 0;
      if (part > 0.15) place(child, at, part, level + 1, node === root ? accountColour(child.id) : hue);
      at += part;
    }
  }

  function zoom(node) {
    const known = shown.indexOf(node);
    shown = known >= 0 ? shown.slice(0, known + 1) : [...shown, node];
    render();
    box.querySelector("button").focus(); // the one that was pressed is gone, and Escape has to arrive here
  }
  function back() {
    shown = shown.slice(0, -1);
    render();
    box.querySelector("button").focus();
  }

  function render() {
    const top = shown.at(-1);
    box.replaceChildren();
    box.style.height = depth(top) * 35 + "px";
    const hue = top === root ? "--c0" : accountColour(shown[1].id);
    place(top, 0, 100, 0, hue);
    path.replaceChildren(...(shown.length > 1
      ? [el("button", {type: "button", onclick: back}, "Back"), ` ${shown.map((node) => node.label).join(" › ")}`]
      : ["Width is time. Click a part, or press Enter on it, to see it alone; arrows go from part to part, Escape goes back."]));
  }

  box.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && shown.length > 1) back();
    const to = neighbour(event.key, document.activeElement);
    if (!to) return;
    event.preventDefault();
    document.activeElement.tabIndex = -1; // Tab comes back to the part that was looked at
    to.tabIndex = 0;
    to.focus();
  });
  // The part that an arrow leads to: beside it, what it consists of, or what it is a part of.
  function neighbour(key, from) {
    const edge = (one) => parseFloat(one.style.left), end = (one) => edge(one) + parseFloat(one.style.width);
    const on = (level) => [...box.children].filter((one) => Number(one.dataset.level) === level);
    const level = Number(from.dataset.level), beside = on(level), at = beside.indexOf(from);
    if (key === "ArrowLeft") return beside[at - 1];
    if (key === "ArrowRight") return beside[at + 1];
    if (key === "ArrowDown") return on(level + 1).find((one) => edge(one) > edge(from) - 1e-6 && edge(one) < end(from) - 1e-6);
    if (key === "ArrowUp") return on(level - 1).find((one) => edge(one) < edge(from) + 1e-6 && end(one) > edge(from) + 1e-6);
    return undefined;
  }
  render();
  return el("figure", {}, box, detail, path);
}

function accountRows(accounts, level) {
  return accounts.flatMap((one) => [
    [el("span", {style: {paddingLeft: level * 16 + "px"}}, one.label), percent(one.share), seconds(one.seconds),
      (one.lines || []).slice(0, 3).map((line) => el("div", {class: "mono"}, `${line.file.split("/").pop()}:${line.line} ${line.source.trim()}`))],
    ...accountRows(one.children || [], level + 1),
  ]);
}
