// SPDX-License-Identifier: MIT
// From the page's data to arrays that can be drawn: a model for each file and device.

const KIND = {
  LIVE: 1,
  ALLOC: 2,
  FREED: 3,
  HELD: 4,
  TAKEN: 5,
  FLUSH: 6,
  GIVE_BACK: 7,
  TRIM: 8,
  REFUSED: 9,
  FAILED: 10,
  WAITED: 11,
  COMPLETED: 12
};
const NEVER = 0xffffffff;

// ---- text

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

function bytesText(bytes) {
  let value = Math.abs(bytes), unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit++;
  }
  const digits = unit === 0 || value >= 1000 ? 0 : value >= 100 ? 1 : 2;
  return `${bytes < 0 ? "−" : ""}${value.toFixed(digits)} ${UNITS[unit]}`;
}

function timeText(ns) {
  for (const [unit, scale] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]])
    if (ns >= scale) return `${Number((ns / scale).toPrecision(4))} ${unit}`;
  return `${Math.round(ns)} ns`;
}

function countText(number) { return Math.round(number).toString().replace(/\B(?=(\d{3})+$)/g, " "); }

function plural(number, word) { return `${countText(number)} ${word}${number === 1 ? "" : "s"}`; }

// ---- decoding

async function inflated(id) {
  const text = document.getElementById(id).textContent;
  const packed = Uint8Array.fromBase64 ? Uint8Array.fromBase64(text) :
                                         Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Columns lie byte by byte: all lowest bytes, then all second ones, and so on, as far as any is not 0.
function columnsOf(part, bytes) {
  const columns = {};
  let at = 0;
  for (const [name, type, count, planes] of part.columns) {
    const values = type === "u8" ? new Uint8Array(count) :
        type === "u32"           ? new Uint32Array(count) :
                                   new Float64Array(count);
    for (let k = 0, scale = 1; k < planes; k += 3, scale *= 1 << 24, at += 3 * count)
      addPlanes(values, bytes, at, Math.min(3, planes - k), scale);
    at -= (3 - planes % 3) % 3 * count;
    columns[name] = values;
  }
  return columns;
}

// Adds `planes` bytes of each value, 3 at most, times the scale.
function addPlanes(values, bytes, at, planes, scale) {
  const count = values.length, two = planes > 1 ? at + count : -1, three = planes > 2 ? at + 2 * count : -1;
  if (three >= 0)
    for (let i = 0; i < count; i++) values[i] += (bytes[at + i] | bytes[two + i] << 8 | bytes[three + i] << 16) * scale;
  else if (two >= 0)
    for (let i = 0; i < count; i++) values[i] += (bytes[at + i] | bytes[two + i] << 8) * scale;
  else
    for (let i = 0; i < count; i++) values[i] += bytes[at + i] * scale;
}

// ---- models

function timelineModel(part, columns) {
  const {kind, arg, waiting, requested, size, segment, segment_bytes: segmentBytes} = columns;
  const n = kind.length, blocks = requested.length, segments = segmentBytes.length;
  const model = {
    part,
    n,
    columns,
    kind,
    waiting,
    clock: part.clock,
    blocks,
    segments,
    time: new Float64Array(n),
    requested: new Float64Array(n),
    allocated: new Float64Array(n),
    reserved: new Float64Array(n),
    whole: new Float64Array(n),
    birth: new Uint32Array(blocks),
    death: new Uint32Array(blocks).fill(NEVER),
    segmentBirth: new Uint32Array(segments),
    segmentDeath: new Uint32Array(segments).fill(NEVER),
    marks: {},
    hasMap: true,
    starts: 0,
    ends: 0
  };
  const inUse = new Float64Array(segments), marks = model.marks;
  for (const name of ["FLUSH", "GIVE_BACK", "TRIM", "REFUSED", "FAILED", "WAITED", "TAKEN"]) marks[name] = [];
  const names = Object.fromEntries(Object.entries(KIND).map(([name, value]) => [value, name]));
  let now = 0, live = 0, rounded = 0, reserved = 0, whole = 0, block = 0, segmentAt = 0;
  for (let i = 0; i < n; i++) {
    const what = kind[i];
    now += columns.time_ns[i];
    if (what === KIND.LIVE || what === KIND.ALLOC) {
      const home = segment[block];
      live += requested[block];
      rounded += size[block];
      if (home !== NEVER) {
        if (!inUse[home]) whole -= segmentBytes[home];
        inUse[home] += size[block];
      }
      model.starts += what === KIND.ALLOC;
      model.birth[block++] = i;
    } else if (what === KIND.FREED) {
      const freed = arg[i], home = segment[freed];
      live -= requested[freed];
      rounded -= size[freed];
      model.death[freed] = i;
      model.ends++;
      if (home !== NEVER) {
        inUse[home] -= size[freed];
        if (!inUse[home] && model.segmentDeath[home] === NEVER) whole += segmentBytes[home];
      }
    } else if (what === KIND.HELD || what === KIND.TAKEN) {
      reserved += segmentBytes[segmentAt];
      whole += segmentBytes[segmentAt];
      model.segmentBirth[segmentAt++] = i;
    } else if (what === KIND.FLUSH || what === KIND.GIVE_BACK || what === KIND.TRIM) {
      reserved -= segmentBytes[arg[i]];
      if (!inUse[arg[i]]) whole -= segmentBytes[arg[i]];
      model.segmentDeath[arg[i]] = i;
    }
    if (marks[names[what]]) marks[names[what]].push(i);
    model.time[i] = now;
    model.requested[i] = live;
    model.allocated[i] = rounded;
    model.reserved[i] = reserved;
    model.whole[i] = whole;
  }
  return finished(model);
}

// Lines of statistics: each is a moment; what happened in between is known by its number only.
function statsModel(part) {
  const rows = part.rows, n = rows.length, pick = (name) => Float64Array.from(rows, (row) => row[name] ?? 0);
  const gauge = (name) => Float64Array.from(rows, (row) => row[name]?.current ?? 0);
  const model = {
    part,
    n,
    clock: part.clock,
    time: pick("elapsed_ns"),
    requested: gauge("requested_bytes"),
    allocated: gauge("allocated_bytes"),
    reserved: gauge("reserved_bytes"),
    whole: new Float64Array(n),
    marks: {},
    hasMap: false
  };
  model.waiting = gauge("active_bytes").map((active, i) => Math.max(0, active - model.allocated[i]));
  const rises = (name) => rows.flatMap((row, i) => ((row[name] ?? 0) > (i ? rows[i - 1][name] ?? 0 : 0) ? [i] : []));
  model.marks = {
    FAILED: rises("ooms"),
    FLUSH: rises("flushes"),
    TRIM: rises("trims"),
    GIVE_BACK: [],
    REFUSED: [],
    WAITED: rises("host_syncs"),
    TAKEN: rises("driver_alloc_calls")
  };
  model.calls = {
    taken: rows.map((row, i) => (row.driver_alloc_calls ?? 0) - (i ? rows[i - 1].driver_alloc_calls ?? 0 : 0)),
    returned: rows.map((row, i) => (row.driver_free_calls ?? 0) - (i ? rows[i - 1].driver_free_calls ?? 0 : 0))
  };
  const last = rows[n - 1];
  model.totals = {
    requested: last.requested_bytes?.peak ?? 0,
    reserved: last.reserved_bytes?.peak ?? 0,
    refused: last.ooms ?? 0
  };
  return finished(model);
}

function finished(model) {
  const peak = (values) => values.reduce((best, value, i) => (value > values[best] ? i : best), 0);
  model.peak = peak(model.requested);
  model.peakReserved = peak(model.reserved);
  // statistics know of peaks between their lines
  model.totals ||= {
    requested: model.requested[model.peak] || 0,
    reserved: model.reserved[model.peakReserved] || 0,
    refused: model.marks.FAILED.length
  };
  // rounding, and on top of it what waits, pieces, whole segments; memory that waits lies in the latter two: taken off
  // once
  model.wasteSums = [0, 1, 2, 3].map(() => new Float64Array(model.n));
  const [one, two, three, four] = model.wasteSums;
  for (let i = 0; i < model.n; i++) {
    const rounding = Math.max(0, model.allocated[i] - model.requested[i]),
          free = Math.max(0, model.reserved[i] - model.allocated[i]);
    const waits = Math.min(model.waiting[i], free), whole = Math.min(model.whole[i], free - waits);
    one[i] = rounding;
    two[i] = rounding + waits;
    three[i] = rounding + free - whole;
    four[i] = rounding + free;
  }
  model.waste = (i) =>
      ({rounding: one[i], waiting: two[i] - one[i], pieces: three[i] - two[i], whole: four[i] - three[i]});
  model.limit = model.part.limit_bytes || 0;
  return model;
}

// ---- a moment

// The live blocks and segments after event `at`, by address.
function stateAt(model, at) {
  const {columns, birth, death, segmentBirth, segmentDeath} = model, blocks = [], segments = [];
  for (let b = 0; b < model.blocks; b++)
    if (birth[b] <= at && death[b] > at) blocks.push(b);
  for (let s = 0; s < model.segments; s++)
    if (segmentBirth[s] <= at && segmentDeath[s] > at) segments.push(s);
  blocks.sort((a, b) => columns.address[a] - columns.address[b]);
  segments.sort((a, b) => columns.segment_address[a] - columns.segment_address[b]);
  return {at, blocks, segments, runs: runsOf(columns, blocks, segments)};
}

// Used and free stretches of each segment, one behind the other; `block` -1: free.
function runsOf(columns, blocks, segments) {
  const runs = [];
  let next = 0;
  for (const s of segments) {
    const first = columns.segment_address[s], end = first + columns.segment_bytes[s];
    let at = first;
    while (next < blocks.length && columns.address[blocks[next]] < first) next++;
    for (; next < blocks.length && columns.address[blocks[next]] < end; next++) {
      const b = blocks[next], from = columns.address[b], to = Math.min(end, from + columns.size[b]);
      if (from > at) runs.push({segment: s, block: -1, address: at, bytes: from - at});
      if (to > from) runs.push({segment: s, block: b, address: from, bytes: to - from});
      at = Math.max(at, to);
    }
    if (at < end) runs.push({segment: s, block: -1, address: at, bytes: end - at});
  }
  return runs;
}

function freeOf(state) {
  let bytes = 0, pieces = 0, largest = 0;
  for (const run of state.runs)
    if (run.block < 0) {
      bytes += run.bytes;
      pieces++;
      largest = Math.max(largest, run.bytes);
    }
  return {bytes, pieces, largest};
}

// The request that was refused at the event; 0: none was.
function refusedAt(model, at) {
  return model.hasMap && model.kind[at] === KIND.FAILED ? model.columns.failed[model.columns.arg[at]] : 0;
}

// Why a request was refused, as far as the recording tells.
function reasonFor(model, at, asked, free) {
  const unreserved = model.limit - model.reserved[at], device = model.part.device_bytes || 0;
  if (model.limit && unreserved >= asked + (64 << 20) && model.reserved[at] < .9 * model.limit)
    return `${bytesText(unreserved)} more could have been reserved by the limit, and the driver had none: others held it, another process ` +
        "or memory that does not come from the cache.";
  if (free.bytes >= asked && free.largest < asked)
    return "Enough in all, and no piece was large enough: the memory is in pieces (fragmentation).";
  if (free.largest >= asked)
    return "Large enough, and not to be had at that moment" +
        (model.waiting[at] ? `: ${bytesText(model.waiting[at])} still waited for the device.` :
                             ": kept for other streams, or for a capture.");
  if (model.limit && model.limit < device)
    return `Too little in all, and a limit was set: ${bytesText(model.limit)} of the device's ${bytesText(device)}.`;
  return "Too little in all: the program needs more memory than there was.";
}

// A headline and a few sentences for a reader who has never seen this page.
function verdictOf(model) {
  const failed = model.marks.FAILED, count = failed.length;
  if (!count) {
    const reserved = model.reserved[model.peak], requested = model.requested[model.peak];
    const text = `At its peak the program had ${bytesText(requested)}; ${bytesText(reserved)} were reserved at that moment, ` +
        `${bytesText(Math.max(0, reserved - requested))} more than it had asked for.`;
    return {bad: false, title: "No request was refused.", text};
  }
  const at = failed[count - 1], many = count > 1 ? ` (the last of ${countText(count)})` : "";
  if (!model.hasMap)
    return {bad: true, title: `Out of memory${many}.`, text: "Statistics do not tell how much was asked for; a trace does."};
  const asked = refusedAt(model, at), free = freeOf(stateAt(model, at));
  const held = `${bytesText(model.reserved[at])} were reserved${model.limit ? ` of ${bytesText(model.limit)}` : ""}, ` +
      `${bytesText(model.requested[at])} of them in use. `;
  const pieces = free.bytes ? `${bytesText(free.bytes)} were free, in ${plural(free.pieces, "piece")}; the largest has ${
                                  bytesText(free.largest)}. ` :
                              "Nothing was free. ";
  return {
    bad: true,
    title: `Out of memory${many}: ${bytesText(asked)} were asked for.`,
    text: held + pieces + reasonFor(model, at, asked, free)
  };
}
