// Shows the transfers in progress, from /.sprat/transfers. Text is always set as text, not as HTML.
"use strict";

const PERIOD = 2000; // milliseconds between two requests
const WIDTH = 120, HEIGHT = 24;

function human(bytes) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (bytes >= 1000 && unit < units.length - 1) { bytes /= 1000; unit += 1; }
  return (unit === 0 ? bytes.toFixed(0) : bytes.toFixed(bytes < 10 ? 2 : 1)) + " " + units[unit];
}

// Returns a path as people read it. A path that is not UTF-8 stays percent-encoded.
function readable(path) {
  try { return decodeURIComponent(path); } catch (error) { return path; }
}

function rates(history) {
  const rates = [];
  for (let at = 1; at < history.length; at += 1) {
    const seconds = history[at].seconds - history[at - 1].seconds;
    if (seconds > 0) { rates.push((history[at].bytes - history[at - 1].bytes) / seconds); }
  }
  return rates;
}

function curve(values) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  svg.setAttribute("viewBox", "0 0 " + WIDTH + " " + HEIGHT);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", "rate over time");
  const most = Math.max(1, ...values);
  const step = WIDTH / Math.max(1, values.length - 1);
  const points = values.map((value, at) => (at * step).toFixed(1) + "," + (HEIGHT - 1 - (HEIGHT - 2) * value / most).toFixed(1));
  const line = document.createElementNS(space, "polyline");
  line.setAttribute("points", points.join(" "));
  svg.append(line);
  return svg;
}

function cell(row, content, kind) {
  const cell = row.insertCell();
  if (kind) { cell.className = kind; }
  cell.append(content);
}

function show(body, transfer) {
  const row = body.insertRow();
  const all = rates(transfer.history);
  const now = transfer.ended ? transfer.sent / Math.max(transfer.seconds, 0.001) : (all[all.length - 1] || 0);
  cell(row, readable(transfer.path), "name");
  cell(row, (transfer.incoming ? "from " : "to ") + transfer.peer + (transfer.verified ? ", verified" : ""), "soft");
  cell(row, human(transfer.sent) + " of " + human(transfer.total), "number");
  cell(row, human(now) + "/s", "number");
  cell(row, curve(all));
  cell(row, transfer.ended || transfer.rtt_ms.toFixed(1) + " ms", "soft");
}

async function look() {
  const section = document.getElementById("transfers");
  try {
    const answer = await fetch("/.sprat/transfers", { credentials: "same-origin" });
    if (answer.ok) {
      const all = await answer.json();
      const body = document.createElement("tbody");
      for (const transfer of all.live.concat(all.past)) { show(body, transfer); }
      section.querySelector("tbody").replaceWith(body);
      section.hidden = body.rows.length === 0;
    }
  } catch (error) {
    // The server may be back at the next request.
  }
  setTimeout(look, PERIOD);
}

look();
