// The connection to `sprat browser host`, a process that the browser starts, and that ends with the
// connection. The browser does not suspend the background while a connection is open, so the
// connection is open only while there is work.
"use strict";

/** The name in the host's manifest. */
const NAME = "sprat.browser";

/** The version of the messages. */
const PROTOCOL = 1;

/** Limit on the wait for the host's hello, milliseconds. */
const HELLO_TIME = 10_000;

const api = globalThis.browser ?? globalThis.chrome;

export class Host {
  #port = null;
  #hello = null;
  #onReport;
  #onGone;

  /**
   * `onReport` receives every report except the first, the hello. `onGone` receives the reason when
   * the connection ends after the hello, unless `close` ended it.
   */
  constructor(onReport, onGone) {
    this.#onReport = onReport;
    this.#onGone = onGone;
  }

  /**
   * Starts the host if it does not run, and returns a promise of its hello. If the host cannot be
   * started, the promise is rejected with an error message for the user.
   */
  connect() {
    this.#hello ??= this.#open();
    return this.#hello;
  }

  /** Sends a request. Throws an error if the host is not connected. */
  send(request) {
    if (this.#port === null) { throw new Error("sprat is not running"); }
    this.#port.postMessage(request);
  }

  /** Ends the connection, which ends the host. */
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
