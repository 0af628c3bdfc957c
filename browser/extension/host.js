// The connection to `sprat browser host`, a process that the browser starts and that ends with the connection.
// An open connection keeps the background from being suspended, so it is open only while there is something to do.
"use strict";

/** As the host's manifest is called. */
const NAME = "sprat.browser";

/** The version of the messages. */
const PROTOCOL = 1;

/** How long a host may take to say who it is, milliseconds. */
const HELLO_TIME = 10_000;

const api = globalThis.browser ?? globalThis.chrome;

export class Host {
  #port = null;
  #hello = null;
  #onReport;
  #onGone;

  /** `onReport` gets every report but the first, `onGone` why the connection ended when nobody here ended it. */
  constructor(onReport, onGone) {
    this.#onReport = onReport;
    this.#onGone = onGone;
  }

  /** The host's hello, once it is there; fails with a text for people when it cannot be had. */
  connect() {
    this.#hello ??= this.#open();
    return this.#hello;
  }

  /** Sends a request to a host that is connected. */
  send(request) {
    if (this.#port === null) { throw new Error("sprat is not running"); }
    this.#port.postMessage(request);
  }

  /** Ends the connection, and the host with it. */
  close() {
    const port = this.#port;
    this.#port = this.#hello = null;
    if (port !== null) { port.disconnect(); }
  }

  #open() {
    return new Promise((resolve, reject) => {
      let greeted = false;
      const port = api.runtime.connectNative(NAME);
      this.#port = port;
      const fail = (why) => {
        if (this.#port !== port) { return; }
        this.#port = this.#hello = null;
        port.disconnect();
        if (greeted) { this.#onGone(why); } else { reject(new Error(why)); }
      };
      const timer = setTimeout(() => { if (!greeted) { fail("sprat does not answer"); } }, HELLO_TIME);
      port.onMessage.addListener((report) => {
        if (this.#port !== port) { return; }
        if (greeted) { this.#onReport(report); return; }
        if (report.type !== "hello" || report.protocol !== PROTOCOL) {
          fail(report.why ?? "sprat and this extension have different versions: run sprat browser install again");
          return;
        }
        greeted = true;
        clearTimeout(timer);
        resolve(report);
      });
      port.onDisconnect.addListener(() => {
        clearTimeout(timer);
        const error = port.error ?? api.runtime.lastError;
        fail(greeted ? "sprat ended" : "sprat cannot be started (" + (error?.message ?? "no reason given") +
          "); run: sprat browser install");
      });
      port.postMessage({ type: "hello", protocol: PROTOCOL });
    });
  }
}
