// Shows the downloads, and sends the user's commands to the background. Texts are set with
// `textContent`, never as HTML.
"use strict";

import { left, rate, size } from "./words.js";

const api = globalThis.browser ?? globalThis.chrome;

/** The commands of a download in each state, with the labels of their buttons. */
const BUTTONS = {
  waiting: [["pause", "Pause"], ["remove", "Cancel"]],
  running: [["pause", "Pause"], ["remove", "Cancel"]],
  stopped: [["resume", "Resume"], ["remove", "Cancel"]],
  failed: [["resume", "Try again"], ["browser", "Use the browser"], ["remove", "Remove"]],
  done: [["show", "Open folder"], ["remove", "Remove from list"]],
  browser: [["remove", "Remove from list"]],
};

let background = null;
/** Whether this popup has shown the host's version, or why there is no host. */
let knows = false;
const rows = new Map();

connect("");

/**
 * Connects to the background, and reconnects when the browser has suspended the background, which
 * then starts again without its state. On a connection named "again" the background does not look
 * for a host. So the popup uses this name only after it has shown a host: a background that was
 * suspended before it answered would otherwise never report the host.
 */
function connect(name) {
  background = api.runtime.connect({ name });
  background.onMessage.addListener(show);
  background.onDisconnect.addListener(() => connect(knows ? "again" : ""));
}

function show({ entries, about, settings }) {
  const list = document.getElementById("list");
  document.getElementById("empty").hidden = entries.length > 0;
  document.getElementById("all").checked = settings.all;
  if (about !== null) {
    knows = true;
    document.getElementById("about").textContent = aboutLine(about);
  }
  const kept = new Set(entries.map((entry) => entry.id));
  for (const [id, row] of rows) {
    if (!kept.has(id)) { row.remove(); rows.delete(id); }
  }
  entries.forEach((entry, at) => {
    const row = rows.get(entry.id) ?? newRow(entry.id);
    if (list.children[at] !== row) { list.insertBefore(row, list.children[at] ?? null); }
    fill(row, entry);
  });
}

document.getElementById("all").addEventListener("change", (event) => {
  background.postMessage({ do: "all", on: event.target.checked });
});

function newRow(id) {
  const row = document.createElement("li");
  row.dataset.id = id;
  for (const [tag, kind] of [["div", "name"], ["progress", "bar"], ["div", "line"], ["div", "why"], ["div", "buttons"]]) {
    const part = document.createElement(tag);
    part.className = kind;
    row.append(part);
  }
  rows.set(id, row);
  return row;
}

function fill(row, entry) {
  const part = (kind) => row.getElementsByClassName(kind)[0];
  part("name").textContent = entry.name ?? lastPart(entry.source);
  part("line").textContent = line(entry);
  part("why").textContent = entry.why;
  const bar = part("bar");
  bar.hidden = entry.state === "done" || entry.state === "browser";
  if (entry.bytes > 0) { bar.max = entry.bytes; bar.value = entry.done; } else { bar.removeAttribute("value"); }
  // Buttons are replaced only when the state changes, because a click on a replaced button is lost.
  if (row.dataset.state === entry.state) { return; }
  row.dataset.state = entry.state;
  part("buttons").replaceChildren(...BUTTONS[entry.state].map(([name, text]) => {
    const button = document.createElement("button");
    button.textContent = text;
    button.dataset.do = name;
    button.addEventListener("click", () => background.postMessage({ do: name, id: entry.id }));
    return button;
  }));
}

/** Returns the status of a download in one line. */
function line(entry) {
  const form = entry.verified ? "verified" : "not verified";
  const here = entry.bytes === null ? size(entry.done) : size(entry.done) + " of " + size(entry.bytes);
  switch (entry.state) {
    case "waiting": return "waiting";
    case "stopped": return "paused at " + here;
    case "failed": return "failed at " + here;
    case "browser": return "left to the browser";
    case "done": return size(entry.bytes) + ", " + form + (entry.blake3 ? ", blake3 " + entry.blake3 : "");
  }
  const parts = [here, rate(entry.rate)];
  if (entry.rtt > 0) { parts.push("RTT " + (entry.rtt * 1e3).toFixed(0) + " ms"); }
  if (entry.rate > 0 && entry.bytes !== null) { parts.push(left((entry.bytes - entry.done) / entry.rate)); }
  if (entry.verified) { parts.push("verified"); }
  return parts.join(", ");
}

/** Returns the last part of an address's path, decoded, or the address if this part is empty. */
function lastPart(source) {
  try { return decodeURIComponent(new URL(source).pathname.split("/").pop()) || source; } catch (error) { return source; }
}

function aboutLine(about) {
  return about.missing ?? "sprat " + about.version + ", downloads to " + about.folder;
}
