// The list of downloads: what the popup shows, and what is gone on with after the browser was closed. It holds no credentials:
// an address is kept without name, password, token and ticket once its download is over.
"use strict";

/** Most entries; the oldest of those that are over go first. */
const MAX_ENTRIES = 100;

/** Between two writings of what only moves a bar, milliseconds. */
const SAVE_TIME = 5_000;

const KEY = "downloads";
const api = globalThis.browser ?? globalThis.chrome;

/** States in which something is still to be done by the host. */
export const ACTIVE = ["waiting", "running"];

export class List {
  #entries = [];
  #loaded = null;
  #saved = 0;
  #onChange;

  constructor(onChange) {
    this.#onChange = onChange;
  }

  /** Reads what was written down before, once. */
  load() {
    this.#loaded ??= api.storage.local.get(KEY).then((kept) => {
      this.#entries = Array.isArray(kept[KEY]) ? kept[KEY].slice(0, MAX_ENTRIES) : [];
    });
    return this.#loaded;
  }

  all() { return this.#entries; }

  active() { return this.#entries.filter((entry) => ACTIVE.includes(entry.state)); }

  find(id) { return this.#entries.find((entry) => entry.id === id); }

  /** Adds an entry, the newest first. */
  add(entry) {
    this.#entries.unshift(entry);
    while (this.#entries.length > MAX_ENTRIES) {
      const over = this.#entries.findLastIndex((one) => !ACTIVE.includes(one.state));
      this.#entries.splice(over < 0 ? this.#entries.length - 1 : over, 1);
    }
    this.#changed(true);
  }

  /** Changes an entry. What only moves its bar is written down now and then. */
  change(entry, fields, onlyProgress = false) {
    Object.assign(entry, fields);
    if (entry.state === "done" || entry.state === "browser") { entry.source = shown(entry.source); }
    this.#changed(!onlyProgress);
  }

  remove(entry) {
    this.#entries = this.#entries.filter((one) => one !== entry);
    this.#changed(true);
  }

  #changed(save) {
    const now = Date.now();
    if (save || now - this.#saved > SAVE_TIME) {
      this.#saved = now;
      api.storage.local.set({ [KEY]: this.#entries });
    }
    this.#onChange();
  }
}

/** An address without what lets others in. */
export function shown(source) {
  try {
    const url = new URL(source);
    url.username = url.password = "";
    for (const secret of ["token", "ticket"]) { url.searchParams.delete(secret); }
    return url.href;
  } catch (error) {
    return "";
  }
}
