// The list of downloads, which the popup shows, and from which downloads are resumed after the
// browser was closed. When a download is complete or left to the browser, the user name, password,
// token and ticket are removed from its address.
"use strict";

/** Limit on the entries. Beyond it the oldest entry is removed, if possible an inactive one. */
const MAX_ENTRIES = 100;

/** Least time between two saves of the list if only progress changed, milliseconds. */
const SAVE_TIME = 5_000;

const KEY = "downloads";
const api = globalThis.browser ?? globalThis.chrome;

/** The states of an active download, one that the host has yet to complete. */
export const ACTIVE = ["waiting", "running"];

export class List {
  #entries = [];
  #loaded = null;
  #saved = 0;
  #onChange;

  constructor(onChange) {
    this.#onChange = onChange;
  }

  /** Loads the saved list. Further calls return the first call's promise. */
  load() {
    this.#loaded ??= api.storage.local.get(KEY).then((kept) => {
      this.#entries = Array.isArray(kept[KEY]) ? kept[KEY].slice(0, MAX_ENTRIES) : [];
    });
    return this.#loaded;
  }

  all() { return this.#entries; }

  active() { return this.#entries.filter((entry) => ACTIVE.includes(entry.state)); }

  find(id) { return this.#entries.find((entry) => entry.id === id); }

  /** Adds an entry at the front of the list. */
  add(entry) {
    this.#entries.unshift(entry);
    while (this.#entries.length > MAX_ENTRIES) {
      const over = this.#entries.findLastIndex((one) => !ACTIVE.includes(one.state));
      this.#entries.splice(over < 0 ? this.#entries.length - 1 : over, 1);
    }
    this.#changed(true);
  }

  /** Changes an entry. With `onlyProgress` the list is saved only every `SAVE_TIME`. */
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

/** Returns an address without its credentials; an empty text if the address is invalid. */
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
