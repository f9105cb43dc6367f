// SPDX-License-Identifier: MIT
// The views, each on its canvas. A view keeps what lies where, for the pointer.

// ---- memory over time

function drawMemory(view, id = "memory", small = false, scaleMax = 0) {
  const {model} = view, lanes = small ? 0 : LANES.filter(([name]) => model.marks[name].length).length * 17;
  const s = surface(id, small ? 120 : 330 + lanes), {context: c, colour} = s, scale = xScale(s, view);
  const bottom = s.height - BOTTOM - lanes,
        max = scaleMax ||
      Math.max(model.limit, model.reserved[model.peakReserved] || 0, model.requested[model.peak] || 0, 1) * 1.04;
  const y = (value) => bottom - value / max * (bottom - TOP);
  byteAxis(s, max, y, small ? "" : "memory");
  const reserved = envelope(view, scale, s.width, model.reserved);
  const allocated = envelope(view, scale, s.width, model.allocated),
        requested = envelope(view, scale, s.width, model.requested);
  area(c, reserved, y, 0, colour["reserved-fill"]);
  area(c, allocated, y, 0, colour.rounding);
  area(c, requested, y, 0, colour.used);
  line(c, reserved, y, colour.reserved, 2);
  if (model.limit && model.limit <= max) {
    c.strokeStyle = colour.limit;
    c.setLineDash([7, 4]);
    c.lineWidth = 1.5;
    c.beginPath();
    c.moveTo(LEFT, y(model.limit));
    c.lineTo(s.width - RIGHT, y(model.limit));
    c.stroke();
    c.setLineDash([]);
  }
  overAxis(s, view, bottom);
  const failed = model.marks.FAILED.filter((i) => position(view, i) >= view.from && position(view, i) <= view.to);
  c.strokeStyle = colour.bad;
  c.lineWidth = 1.5;
  let last = -1e9;
  for (const i of failed) {
    const x = scale.x(position(view, i));
    if (x - last < 2) continue;
    c.beginPath();
    c.moveTo(x, TOP);
    c.lineTo(x, bottom);
    c.stroke();
    last = x;
  }
  if (failed.length && !small) {
    const i = failed[failed.length - 1], x = scale.x(position(view, i)), asked = refusedAt(model, i);
    tag(s, asked ? `out of memory: ${bytesText(asked)} refused` : "out of memory", x, TOP + 14, colour.bad);
  }
  if (!small) {
    marksLanes(s, view, scale, bottom + BOTTOM);
    cursorLine(s, view, scale, bottom);
  }
  view.hits = {scale, s, bottom};
}

// Words on a plate, left of x where there is no room to the right.
function tag(s, words, x, y, ink) {
  const c = s.context, width = c.measureText(words).width + 12,
        left = x + 6 + width > s.width - RIGHT ? x - 6 - width : x + 6;
  c.fillStyle = ink;
  c.beginPath();
  c.roundRect(left, y - 10, width, 20, 4);
  c.fill();
  c.fillStyle = s.colour.card;
  text(c, words, left + 6, y);
}

function cursorLine(s, view, scale, bottom) {
  const at = position(view, view.cursor), c = s.context;
  if (at < view.from || at > view.to) return;
  c.strokeStyle = s.colour.text;
  c.lineWidth = 1;
  c.setLineDash([2, 2]);
  c.beginPath();
  c.moveTo(scale.x(at), TOP - 4);
  c.lineTo(scale.x(at), bottom);
  c.stroke();
  c.setLineDash([]);
  c.fillStyle = s.colour.text;
  c.beginPath();
  c.moveTo(scale.x(at) - 5, bottom + 7);
  c.lineTo(scale.x(at) + 5, bottom + 7);
  c.lineTo(scale.x(at), bottom);
  c.fill();
}

// ---- the map: memory as one strip that is broken into rows, all of it to one scale

const ROW = 17, ROW_GAP = 4, ROWS = 22;

function drawMap(view) {
  const {model} = view, state = view.state = stateAt(model, view.cursor), asked = refusedAt(model, view.cursor),
        free = freeOf(state);
  const total = state.runs.reduce((sum, run) => sum + run.bytes, 0),
        width = Math.max(320, document.getElementById("map").parentElement.clientWidth - 34) - 2;
  const nice = 2 ** Math.ceil(Math.log2(Math.max(total / ROWS, asked * 1.05, 1 << 21))),
        rowBytes = total / nice > ROWS / 2 ? nice : Math.max(nice / 2, asked * 1.05);
  const rows = Math.max(1, Math.ceil(total / rowBytes)), head = asked ? 2 * (ROW + 22) : 0,
        s = surface("map", head + rows * (ROW + ROW_GAP) + 2);
  const {context: c, colour} = s, px = (bytes) => bytes / rowBytes * width;
  if (asked) {
    c.fillStyle = colour.text;
    text(c, `refused: ${bytesText(asked)}`, 0, 8);
    c.fillStyle = colour.bad;
    c.fillRect(0, 18, px(asked), ROW);
    c.fillStyle = colour.text;
    text(c, `the largest free piece: ${bytesText(free.largest)}, to the same scale`, 0, 18 + ROW + 12);
    c.fillStyle = colour.free;
    c.fillRect(0, 18 + ROW + 22, px(free.largest), ROW - 5);
    c.strokeStyle = colour.text;
    c.lineWidth = 1;
    c.strokeRect(.5, 18 + ROW + 22.5, Math.max(1, px(free.largest) - 1), ROW - 6);
  }
  let at = 0, turn = 0, lastSegment = -1;
  view.strip = {head, rowBytes, px, starts: new Float64Array(state.runs.length), total};
  state.runs.forEach((run, number) => {
    view.strip.starts[number] = at;
    const fill = run.block < 0 ? colour.free : (turn ^= 1) ? colour.used : colour["used-2"];
    let from = at, left = run.bytes;
    while (left > 0) {
      const row = Math.floor(from / rowBytes), inside = Math.min(left, (row + 1) * rowBytes - from),
            x = px(from - row * rowBytes);
      c.fillStyle = fill;
      c.fillRect(x, head + row * (ROW + ROW_GAP), Math.max(px(inside), .4), ROW);
      from += inside;
      left -= inside;
    }
    if (run.segment !== lastSegment && number) {
      const row = Math.floor(at / rowBytes);
      c.fillStyle = colour.card;
      c.fillRect(px(at - row * rowBytes) - .6, head + row * (ROW + ROW_GAP) - 1, 1.4, ROW + 2);
    }
    lastSegment = run.segment;
    at += run.bytes;
  });
  if (view.picked >= 0 && view.picked < state.runs.length) outlineRun(s, view, view.picked);
  c.fillStyle = colour.soft;
  if (!total) text(c, "no segment at this moment", s.width / 2, head + ROW / 2, "center");
  return {free, rowBytes};
}

// A frame around the row in which the stretch begins; where that is, for the words on it.
function runPlace(view, number) {
  const strip = view.strip, at = strip.starts[number], row = Math.floor(at / strip.rowBytes),
        left = at - row * strip.rowBytes;
  return {
    x: strip.px(left),
    y: strip.head + row * (ROW + ROW_GAP),
    w: Math.max(3, strip.px(Math.min(view.state.runs[number].bytes, strip.rowBytes - left)))
  };
}

function outlineRun(s, view, number) {
  const {x, y, w} = runPlace(view, number);
  s.context.strokeStyle = s.colour.text;
  s.context.lineWidth = 3;
  s.context.strokeRect(x, y - 1, w, ROW + 2);
}

function runAt(view, x, y) {
  const strip = view.strip, row = Math.floor((y - strip.head) / (ROW + ROW_GAP)),
        at = row * strip.rowBytes + x / strip.px(1);
  if (row < 0 || (y - strip.head) % (ROW + ROW_GAP) > ROW || at >= strip.total || x > strip.px(strip.rowBytes))
    return null;
  let low = 0, high = strip.starts.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (strip.starts[middle] <= at)
      low = middle;
    else
      high = middle - 1;
  }
  return view.state.runs[low] || null;
}

// ---- waste

const WASTE = [["rounding", "rounding"], ["waiting", "waiting"], ["pieces", "free"], ["whole", "whole"]];

function drawWaste(view) {
  const {model} = view, s = surface("waste", 230), {context: c, colour} = s, scale = xScale(s, view),
        bottom = s.height - BOTTOM;
  const sums = model.wasteSums.map((values) => envelope(view, scale, s.width, values));
  const max = Math.max(1, ...sums[3].map((point) => point[2])) * 1.06,
        y = (value) => bottom - value / max * (bottom - TOP);
  byteAxis(s, max, y, "memory");
  for (let k = 3; k >= 0; k--) area(c, sums[k], y, 0, colour[WASTE[k][1]]);
  overAxis(s, view, bottom);
  cursorLine(s, view, scale, bottom);
  view.wasteHits = {scale, s};
}

// ---- sizes and lifetimes

function sizeBins(model) {
  const bins = new Map(), {birth, death, columns} = model, ends = [];
  for (let b = 0; b < model.blocks; b++) {
    const size = Math.max(9, Math.floor(Math.log2(columns.requested[b])));
    let life = 99;
    if (death[b] !== NEVER) {
      const lasted = model.clock ? (model.time[death[b]] - model.time[birth[b]]) / 1e3 : death[b] - birth[b];
      life = Math.max(0, Math.floor(Math.log10(Math.max(lasted, 1)) * 2));
      ends.push(life);
    }
    const key = size * 100 + life, bin = bins.get(key) || {size, life, count: 0, bytes: 0};
    bin.count++;
    bin.bytes += columns.requested[b];
    bins.set(key, bin);
  }
  return {bins: [...bins.values()], lives: Math.max(1, ...new Set(ends)) + 1};
}

function lifeText(view, life) {
  if (life === 99) return "never freed";
  const edge = (k) => (view.model.clock ? timeText(Number((10 ** (k / 2) * 1e3).toPrecision(2))) : countText(Number((10 ** (k / 2)).toPrecision(2))));
  return life ? `${edge(life)} to ${edge(life + 1)}` : `up to ${edge(1)}`;
}

function mix(from, to, share) {
  const part = (hex, k) => parseInt(hex.slice(1 + 2 * k, 3 + 2 * k), 16);
  return `rgb(${[0, 1, 2].map((k) => Math.round(part(from, k) + (part(to, k) - part(from, k)) * share)).join(",")})`;
}

function drawSizes(view) {
  const {model} = view, {bins, lives} = view.binned ||= sizeBins(model), rows = lives + 1,
        s = surface("sizes", rows * 22 + 60), {context: c, colour} = s;
  const low = Math.min(...bins.map((bin) => bin.size), 30), high = Math.max(...bins.map((bin) => bin.size), low) + 1,
        left = 128;
  const cell = (s.width - left - RIGHT) / (high - low), bottom = s.height - 44,
        most = Math.max(1, ...bins.map((bin) => bin.count));
  view.cells = bins.map((bin) => ({
                          bin,
                          x: left + (bin.size - low) * cell,
                          y: bottom - ((bin.life === 99 ? lives : bin.life) + 1) * 22,
                          w: cell,
                          h: 22
                        }));
  c.strokeStyle = colour.grid;
  c.fillStyle = colour.soft;
  for (let row = 0; row <= lives; row++)
    text(c, lifeText(view, row === lives ? 99 : row), left - 8, bottom - row * 22 - 11, "right");
  for (const {bin, x, y, w, h} of view.cells) {
    const share = Math.log1p(bin.count) / Math.log1p(most);
    c.fillStyle = mix(colour["reserved-fill"], colour.used, .15 + .85 * share);
    c.fillRect(x + 1, y + 1, w - 2, h - 2);
    if (w > 34) {
      c.fillStyle = share > .45 ? "#fff" : colour.text;
      text(
          c, bin.count > 9999 ? `${Math.round(bin.count / 1000)}k` : String(bin.count), x + w / 2, y + h / 2 + .5,
          "center");
    }
  }
  c.fillStyle = colour.soft;
  for (let size = low; size <= high; size++)
    if ((size - low) % Math.ceil(66 / cell) === 0)
      text(c, bytesText(2 ** size).replace(/\.0+ /, " "), left + (size - low) * cell, bottom + 12, "center");
  text(c, "size asked for", (left + s.width - RIGHT) / 2, bottom + 31, "center");
}

// ---- the driver

function callBins(view, count, scale) {
  const {model} = view,
        bins = Array.from(
            {length: count}, () => ({taken: 0, returned: 0, refused: 0, waited: 0, takenBytes: 0, returnedBytes: 0}));
  const first = eventAt(view, view.from), last = eventAt(view, view.to), span = view.to - view.from || 1;
  for (let i = first; i <= last; i++) {
    const at = position(view, i);
    if (at < view.from) continue;
    const bin = bins[Math.min(count - 1, Math.floor((at - view.from) / span * count))];
    if (!model.hasMap) {
      bin.taken += model.calls.taken[i];
      bin.returned += model.calls.returned[i];
      continue;
    }
    const kind = model.kind[i];
    if (kind === KIND.TAKEN) {
      bin.taken++;
      bin.takenBytes += model.reserved[i] - (i ? model.reserved[i - 1] : 0);
    } else if (kind >= KIND.FLUSH && kind <= KIND.TRIM) {
      bin.returned++;
      bin.returnedBytes += (i ? model.reserved[i - 1] : 0) - model.reserved[i];
    } else if (kind === KIND.REFUSED)
      bin.refused++;
    else if (kind === KIND.WAITED)
      bin.waited++;
  }
  return bins;
}

function drawDriver(view) {
  const s = surface("driver", 230), {context: c, colour} = s, width = s.width - LEFT - RIGHT,
        count = Math.floor(width / 8), bins = view.calls = callBins(view, count);
  const bottom = s.height - BOTTOM, lane = 24, high = bottom - TOP - lane - 6,
        up = Math.max(1, ...bins.map((bin) => bin.taken)), down = Math.max(0, ...bins.map((bin) => bin.returned));
  const zero = TOP + high * up / (up + down || 1), unit = high / (up + down || 1), w = width / count;
  c.fillStyle = colour.soft;
  text(c, countText(up), LEFT - 7, TOP + 4, "right");
  text(c, "0", LEFT - 7, zero, "right");
  if (down * unit > 16) text(c, countText(down), LEFT - 7, zero + down * unit - 4, "right");
  c.save();
  c.translate(11, TOP + high / 2);
  c.rotate(-Math.PI / 2);
  text(c, "calls", 0, 0, "center");
  c.restore();
  c.strokeStyle = colour.line;
  c.beginPath();
  c.moveTo(LEFT, Math.round(zero) + .5);
  c.lineTo(s.width - RIGHT, Math.round(zero) + .5);
  c.stroke();
  if (bins.some((bin) => bin.waited)) text(c, "waits", LEFT - 7, bottom - lane / 2, "right");
  bins.forEach((bin, k) => {
    const x = LEFT + k * w;
    c.fillStyle = colour.used;
    c.fillRect(x, zero - bin.taken * unit, w - 1, bin.taken * unit);
    c.fillStyle = colour.whole;
    c.fillRect(x, zero, w - 1, bin.returned * unit);
    c.fillStyle = colour.bad;
    if (bin.refused) shape(c, "FAILED", x + w / 2, TOP + 5, 4);
    c.fillStyle = colour.waiting;
    if (bin.waited) c.fillRect(x, bottom - lane / 2 - 5, w - 1, 10);
  });
  if (!bins.some((bin) => bin.taken + bin.returned + bin.refused + bin.waited)) {
    c.fillStyle = colour.soft;
    text(c, "no calls here", LEFT + width / 2, zero - 20, "center");
  }
  overAxis(s, view, bottom);
  cursorLine(s, view, xScale(s, view), bottom);
  view.callWidth = w;
}
