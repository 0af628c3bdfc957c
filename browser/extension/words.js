// Formats numbers for people.
"use strict";

function scaled(value, units) {
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) { value /= 1000; unit += 1; }
  return (unit === 0 ? value.toFixed(0) : value.toFixed(value < 10 ? 2 : 1)) + " " + units[unit];
}

/** Formats a number of bytes. */
export function size(bytes) {
  return scaled(bytes, ["B", "kB", "MB", "GB", "TB", "PB"]);
}

/** Formats a rate, given in bytes per second, in bits per second, the unit of links. */
export function rate(bytes) {
  return scaled(bytes * 8, ["b/s", "kb/s", "Mb/s", "Gb/s", "Tb/s"]);
}

/** Formats the time that is left, given in seconds. */
export function left(seconds) {
  if (seconds < 90) { return Math.ceil(seconds) + " s left"; }
  if (seconds < 5400) { return Math.round(seconds / 60) + " min left"; }
  return Math.round(seconds / 3600) + " h left";
}
