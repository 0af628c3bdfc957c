// Takes downloads over and hands them to `sprat browser host`; what that cannot do is left to the browser.
"use strict";

import { Host } from "./host.js";
import { List, shown } from "./list.js";

/** How a link says that it may be taken over: `?download=sprat`, as on the pages of `sprat share`. */
const MARK = "sprat";

/** The port of `sprat share`, unless told. */
const SHARE_PORT = "8040";

/** How long a server may take to say whether it has the verified form, milliseconds. */
const PROBE_TIME = 10_000;

/** How long a host with nothing to do is kept, milliseconds: for its last answers, and for what comes next. */
const REST_TIME = 2_000;

/** How long the browser may take to begin a download that we asked it for, milliseconds. */
const OWN_TIME = 10_000;

/** Failures of the host where the browser may do better: it knows other credentials and certificates. */
const BROWSER_MAY = ["denied", "untrusted", "protocol"];

/** How a popup is called that only comes back to a background that was suspended meanwhile. */
const AGAIN = "again";

const MENU = "download";
const SETTINGS = "settings";
const api = globalThis.browser ?? globalThis.chrome;

const list = new List(update);
const host = new Host(report, gone);
const popups = new Set();
/** What waits for an answer to a probe, by its id. */
const probes = new Map();
/** Until when a download of an address is one that we asked the browser for: Chromium does not say so of one that has just begun. */
const own = new Map();
let settings = { all: false };
/** What is known of the host, for the popup. */
let about = null;
/** How many are talking to the host about something that is not in the list as active. */
let talking = 0;
let resting = null;

/** What was running when the browser ended is gone on with. */
const ready = Promise.all([list.load(), api.storage.local.get(SETTINGS)]).then(([, kept]) => {
  settings = { all: kept[SETTINGS]?.all === true };
  for (const entry of list.active()) { begin(entry); }
});

api.runtime.onInstalled.addListener(() => {
  api.contextMenus.removeAll(() => {
    api.contextMenus.create({ id: MENU, title: "Download with Sprat", contexts: ["link", "image", "video", "audio"] });
  });
});

// Being listened to is enough for the browser to start the background, which goes on with what ran.
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
  // One that was here before knows whether there is a host.
  ready.then(popup.name === AGAIN ? () => {} : look).then(update);
});

/** Which of the ways we know an address has: "http" of browsers, "sprat" of ours, or null. */
function protocol(source) {
  const scheme = source.split(":", 1)[0];
  if (scheme === "http" || scheme === "https") { return "http"; }
  return scheme === "sprat" || scheme === "sprats" ? "sprat" : null;
}

/** An address that the browser understands. */
function plain(source) {
  if (protocol(source) === "http") { return source; }
  const url = new URL(source.replace(/^sprat/, "http"));
  // What has no port here has the one of its own scheme.
  const given = new URL(source).port;
  url.port = given || SHARE_PORT;
  return url.href;
}

/** Takes a download of the browser's over; until the host is there, and has said that it can, the browser goes on. */
async function takeOver(item, marked) {
  await talk(async () => {
    try {
      about = await host.connect();
      if (!marked && !(await hasVerifiedForm(item.url))) { return; }
    } catch (error) {
      // Of what was not for us nothing is said.
      if (marked) { note(item.url, error.message); }
      return;
    }
    if (await stopBrowser(item.id)) { await start(item.url); }
  });
}

/** Stops a download of the browser's and takes away what there is of it. False: it failed, or somebody stopped it before. */
async function stopBrowser(id) {
  try { await api.downloads.cancel(id); } catch (error) { /* it has ended */ }
  const [item] = await api.downloads.search({ id });
  if (item?.state === "complete") { await api.downloads.removeFile(id); }
  await api.downloads.erase({ id });
  return item !== undefined && (item.state === "complete" || item.error === "USER_CANCELED");
}

/** Begins a download that was not there before. */
async function start(source) {
  const entry = {
    id: crypto.randomUUID(), source, name: null, state: "waiting", why: "", done: 0, bytes: null, rate: 0, rtt: 0,
    verified: null, blake3: null,
  };
  list.add(entry);
  await begin(entry);
}

/** Hands an entry to the host; what has a name goes on under it. */
async function begin(entry) {
  try {
    about = await host.connect();
    list.change(entry, { state: "waiting", why: "" });
    const request = { type: "start", id: entry.id, source: entry.source };
    host.send(entry.name === null ? request : { ...request, name: entry.name });
  } catch (error) {
    about = { missing: error.message };
    // What has begun with us is not begun anew by the browser.
    if (entry.name === null) { await withBrowser(entry, error.message); }
    else { list.change(entry, { state: "stopped", why: error.message }); }
  }
}

/** Leaves an entry to the browser's own download. */
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

/** Says in the list that the browser downloads something, and why. */
function note(source, why) {
  about = { missing: why };
  list.add({
    id: crypto.randomUUID(), source: shown(source), name: null, state: "browser", why, done: 0, bytes: null, rate: 0, rtt: 0,
    verified: null, blake3: null,
  });
}

/** Whether a server has the verified form of a file. */
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

/** Handles what the host reports. */
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

/** The host has ended without being told to. */
function gone(why) {
  for (const entry of list.active()) { list.change(entry, { state: "stopped", rate: 0, why }); }
  for (const end of probes.values()) { end(false); }
}

/** Lets the host go when there has been nothing for it to do for a while. */
function rest() {
  const idle = () => list.active().length === 0 && talking === 0;
  if (!idle() || resting !== null) { return; }
  resting = setTimeout(() => {
    resting = null;
    if (idle()) { host.close(); }
  }, REST_TIME);
}

/** Does something with the host, which stays as long. */
async function talk(work) {
  talking += 1;
  try { await work(); } finally {
    talking -= 1;
    rest();
  }
}

/** Looks whether there is a host, for the popup. */
async function look() {
  await talk(async () => {
    try { about = await host.connect(); } catch (error) { about = { missing: error.message }; }
  });
}

/** Does what the popup asks for. */
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
    case "browser": if (!active) { await withBrowser(entry, "you asked for it"); } break;
    case "remove": await remove(entry, active); break;
    case "show": await ask(entry, { type: "show", id: entry.id }); break;
  }
}

/** Takes an entry out of the list, with what there is of a file that is not whole. A whole file stays. */
async function remove(entry, active) {
  if (active) { return host.send({ type: "cancel", id: entry.id, discard: true }); }
  const part = entry.name !== null && (entry.state === "stopped" || entry.state === "failed");
  if (part) { await ask(entry, { type: "discard", id: entry.id, name: entry.name }); } else { list.remove(entry); }
}

/** Asks the host for something that is done at once. */
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

/** Tells popups and the badge how it is. */
function update() {
  const active = list.active();
  api.action.setBadgeText({ text: active.length === 0 ? "" : String(active.length) });
  for (const popup of popups) { popup.postMessage({ entries: list.all(), about, settings }); }
}
