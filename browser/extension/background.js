// Takes downloads over from the browser and hands them to `sprat browser host`. The browser itself
// downloads what the host cannot fetch.
"use strict";

import { Host } from "./host.js";
import { List, shown } from "./list.js";

/** The value of `download` in the address of a link that may be taken over: `?download=sprat`. */
const MARK = "sprat";

/** The default port of `sprat share`. */
const SHARE_PORT = "8040";

/** Limit on the wait for a probe's answer, milliseconds. Without an answer the browser goes on. */
const PROBE_TIME = 10_000;

/** How long an idle host is kept, milliseconds: for its last reports, and for the next download. */
const REST_TIME = 2_000;

/** How long the browser may take to begin a download that the extension asked for, milliseconds. */
const OWN_TIME = 10_000;

/** Failures of the host after which the browser tries with its own credentials and certificates. */
const BROWSER_MAY = ["denied", "untrusted", "protocol"];

/** The name of the connection of a popup that reconnects after the background was suspended. */
const AGAIN = "again";

const MENU = "download";
const SETTINGS = "settings";
const api = globalThis.browser ?? globalThis.chrome;

const list = new List(update);
const host = new Host(report, gone);
const popups = new Set();
/** Functions that receive the answer to a probe, by the probe's id. */
const probes = new Map();
/**
 * Maps the address of a download that the extension asked the browser for to the time until which
 * the extension expects this download to begin, milliseconds since 1970. It is needed because
 * Chromium does not set `byExtensionId` on a download that has just begun.
 */
const own = new Map();
let settings = { all: false };
/** The host's hello, or why there is no host, for the popup; null before the first attempt. */
let about = null;
/** Number of exchanges with the host that belong to no active download. */
let talking = 0;
let resting = null;

/**
 * Resolves when the list and the settings are loaded. Then the downloads that ran when the browser
 * ended are resumed.
 */
const ready = Promise.all([list.load(), api.storage.local.get(SETTINGS)]).then(([, kept]) => {
  settings = { all: kept[SETTINGS]?.all === true };
  for (const entry of list.active()) { begin(entry); }
});

api.runtime.onInstalled.addListener(() => {
  api.contextMenus.removeAll(() => {
    api.contextMenus.create({ id: MENU, title: "Download with Sprat", contexts: ["link", "image", "video", "audio"] });
  });
});

// Because of this listener the browser starts the background when the browser itself starts. The
// background then resumes downloads.
api.runtime.onStartup.addListener(() => {});

api.contextMenus.onClicked.addListener(async (clicked) => {
  const source = clicked.linkUrl ?? clicked.srcUrl ?? "";
  await ready;
  if (protocol(source) !== null) { await start(source); }
});

api.downloads.onCreated.addListener(async (item) => {
  const known = protocol(item.url);
  const until = own.get(item.url) ?? 0;
  own.delete(item.url);
  if (until > Date.now()) { return; }
  if (known !== "http" || item.incognito || item.byExtensionId === api.runtime.id) { return; }
  const marked = new URL(item.url).searchParams.get("download") === MARK;
  await ready;
  if (marked || settings.all) { await takeOver(item, marked); }
});

api.runtime.onConnect.addListener((popup) => {
  popups.add(popup);
  popup.onDisconnect.addListener(() => popups.delete(popup));
  popup.onMessage.addListener(command);
  // A popup that reconnects knows already whether there is a host.
  ready.then(popup.name === AGAIN ? () => {} : look).then(update);
});

/** Returns "http" for an address of http or https, "sprat" for sprat or sprats, otherwise null. */
function protocol(source) {
  const scheme = source.split(":", 1)[0];
  if (scheme === "http" || scheme === "https") { return "http"; }
  return scheme === "sprat" || scheme === "sprats" ? "sprat" : null;
}

/** Returns an address that the browser understands. */
function plain(source) {
  if (protocol(source) === "http") { return source; }
  const url = new URL(source.replace(/^sprat/, "http"));
  // The default port of sprat:// is not that of http://, so the port is always written.
  const given = new URL(source).port;
  url.port = given || SHARE_PORT;
  return url.href;
}

/**
 * Takes over a download of the browser. The browser's download continues until the host runs and,
 * without the mark, the server has offered the verified form.
 */
async function takeOver(item, marked) {
  await talk(async () => {
    try {
      about = await host.connect();
      if (!marked && !(await hasVerifiedForm(item.url))) { return; }
    } catch (error) {
      // A download without the mark stays with the browser, and the popup does not mention it.
      if (marked) { note(item.url, error.message); }
      return;
    }
    if (await stopBrowser(item.id)) { await start(item.url); }
  });
}

/**
 * Stops a download of the browser, and removes its file and its entry. Returns false if the
 * download had failed, or was no longer in the browser's list.
 */
async function stopBrowser(id) {
  try { await api.downloads.cancel(id); } catch (error) { /* it has ended */ }
  const [item] = await api.downloads.search({ id });
  if (item?.state === "complete") { await api.downloads.removeFile(id); }
  await api.downloads.erase({ id });
  return item !== undefined && (item.state === "complete" || item.error === "USER_CANCELED");
}

/** Adds a new download to the list, and begins it. */
async function start(source) {
  const entry = {
    id: crypto.randomUUID(), source, name: null, state: "waiting", why: "", done: 0, bytes: null, rate: 0, rtt: 0,
    verified: null, blake3: null,
  };
  list.add(entry);
  await begin(entry);
}

/** Hands an entry to the host. If the entry has a file name, the host resumes that file. */
async function begin(entry) {
  try {
    about = await host.connect();
    list.change(entry, { state: "waiting", why: "" });
    const request = { type: "start", id: entry.id, source: entry.source };
    host.send(entry.name === null ? request : { ...request, name: entry.name });
  } catch (error) {
    about = { missing: error.message };
    // A download that the host has begun is not restarted by the browser.
    if (entry.name === null) { await withBrowser(entry, error.message); }
    else { list.change(entry, { state: "stopped", why: error.message }); }
  }
}

/** Has the browser download an entry. */
async function withBrowser(entry, why) {
  try {
    const url = new URL(plain(entry.source)).href;
    own.set(url, Date.now() + OWN_TIME);
    await api.downloads.download({ url });
    list.change(entry, { state: "browser", why });
  } catch (error) {
    list.change(entry, { state: "failed", why: why + "; the browser failed too: " + error.message });
  }
}

/** Adds an entry to the list for a download that stays with the browser, and the reason. */
function note(source, why) {
  about = { missing: why };
  list.add({
    id: crypto.randomUUID(), source: shown(source), name: null, state: "browser", why, done: 0, bytes: null, rate: 0, rtt: 0,
    verified: null, blake3: null,
  });
}

/** Asks the server through the host whether it has the verified form of a file. */
function hasVerifiedForm(source) {
  const id = crypto.randomUUID();
  return new Promise((resolve) => {
    const end = (verified) => {
      probes.delete(id);
      clearTimeout(timer);
      resolve(verified);
    };
    const timer = setTimeout(end, PROBE_TIME, false);
    probes.set(id, end);
    host.send({ type: "probe", id, source });
  });
}

/** Handles a report of the host. */
function report(report) {
  if (probes.has(report.id)) {
    probes.get(report.id)(report.type === "probed" && report.verified === true);
    return;
  }
  const entry = list.find(report.id);
  if (entry === undefined) { return; }
  switch (report.type) {
    case "waiting":
      list.change(entry, { state: "waiting" });
      break;
    case "opened":
      list.change(entry, {
        state: "running", name: report.name, bytes: report.bytes, verified: report.verified, done: report.resumed, why: "",
      });
      break;
    case "progress":
      list.change(entry, {
        done: report.done, bytes: report.bytes, rate: report.bytes_per_second, rtt: report.rtt_us / 1e6,
      }, true);
      break;
    case "note":
      list.change(entry, { why: report.text });
      break;
    case "done":
      list.change(entry, {
        state: "done", name: report.name, done: report.bytes, bytes: report.bytes, verified: report.verified,
        blake3: report.blake3, why: report.unchanged ? "existed already" : "",
      });
      break;
    case "stopped":
      if (report.discarded) { list.remove(entry); } else { list.change(entry, { state: "stopped", rate: 0 }); }
      break;
    case "failed":
      if (BROWSER_MAY.includes(report.code)) { withBrowser(entry, report.why).then(rest); }
      else { list.change(entry, { state: "failed", rate: 0, why: report.why }); }
      break;
    case "refused":
      list.change(entry, list.active().includes(entry) ? { state: "failed", rate: 0, why: report.why } : { why: report.why });
      break;
  }
  rest();
}

/** Handles an unexpected end of the host. */
function gone(why) {
  for (const entry of list.active()) { list.change(entry, { state: "stopped", rate: 0, why }); }
  for (const end of probes.values()) { end(false); }
}

/** Ends the host if it is still idle after `REST_TIME`. */
function rest() {
  const idle = () => list.active().length === 0 && talking === 0;
  if (!idle() || resting !== null) { return; }
  resting = setTimeout(() => {
    resting = null;
    if (idle()) { host.close(); }
  }, REST_TIME);
}

/** Runs `work`, and keeps the host meanwhile. */
async function talk(work) {
  talking += 1;
  try { await work(); } finally {
    talking -= 1;
    rest();
  }
}

/** Finds out for the popup whether there is a host. */
async function look() {
  await talk(async () => {
    try { about = await host.connect(); } catch (error) { about = { missing: error.message }; }
  });
}

/** Executes a command of the popup. */
async function command(asked) {
  await ready;
  if (asked.do === "all") {
    settings = { all: asked.on === true };
    await api.storage.local.set({ [SETTINGS]: settings });
    return update();
  }
  const entry = list.find(asked.id);
  if (entry === undefined) { return; }
  const active = list.active().includes(entry);
  switch (asked.do) {
    case "pause": if (active) { host.send({ type: "cancel", id: entry.id, discard: false }); } break;
    case "resume": if (!active) { await begin(entry); } break;
    case "browser": if (!active) { await withBrowser(entry, "at your request"); } break;
    case "remove": await remove(entry, active); break;
    case "show": await ask(entry, { type: "show", id: entry.id }); break;
  }
}

/** Removes an entry, and the received part of an incomplete file. A complete file stays. */
async function remove(entry, active) {
  if (active) { return host.send({ type: "cancel", id: entry.id, discard: true }); }
  const part = entry.name !== null && (entry.state === "stopped" || entry.state === "failed");
  if (part) { await ask(entry, { type: "discard", id: entry.id, name: entry.name }); } else { list.remove(entry); }
}

/** Sends a request that the host completes at once. */
async function ask(entry, request) {
  await talk(async () => {
    try {
      about = await host.connect();
      host.send(request);
    } catch (error) {
      list.change(entry, { why: error.message });
    }
  });
}

/** Sends the present state to the popups and to the badge. */
function update() {
  const active = list.active();
  api.action.setBadgeText({ text: active.length === 0 ? "" : String(active.length) });
  for (const popup of popups) { popup.postMessage({ entries: list.all(), about, settings }); }
}
