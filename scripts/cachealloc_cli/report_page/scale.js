// SPDX-License-Identifier: MIT
// Scales, axes, lines and marks: the parts of the views.

const LEFT = 98, RIGHT = 14, BOTTOM = 38, TOP = 10;

function colours() {
  const style = getComputedStyle(document.documentElement);
  return new Proxy({}, {get: (_, name) => style.getPropertyValue(`--${name}`).trim()});
}

// A canvas of so many CSS pixels in height, cleared, with a font.
function surface(id, height) {
  const canvas = document.getElementById(id), ratio = Math.max(window.devicePixelRatio || 1, 1);
  const width = Math.max(320, Math.floor(canvas.parentElement.clientWidth - (canvas.closest("section") ? 34 : 0)));
  canvas.style.height = `${height}px`;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = "12px system-ui, \"DejaVu Sans\", sans-serif";
  context.lineJoin = "round";
  return {canvas, context, width, height, colour: colours()};
}

function steps(max, base, wanted = 5) {
  const raw = max / wanted, power = base ** Math.floor(Math.log(raw) / Math.log(base));
  const choices = base === 10 ? [1, 2, 5, 10] : [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
  return (choices.find((choice) => choice * power >= raw) || base) * power;
}

function text(context, words, x, y, align = "left", baseline = "middle") {
  context.textAlign = align;
  context.textBaseline = baseline;
  context.fillText(words, x, y);
}

function byteAxis(s, max, y, label) {
  const {context: c, colour} = s, step = Math.max(1, steps(Math.max(max, 1), 1024));
  c.strokeStyle = colour.grid;
  c.fillStyle = colour.soft;
  c.lineWidth = 1;
  for (let value = 0; value <= max * 1.0001; value += step) {
    c.beginPath();
    c.moveTo(LEFT, Math.round(y(value)) + .5);
    c.lineTo(s.width - RIGHT, Math.round(y(value)) + .5);
    c.stroke();
    text(c, value ? bytesText(value).replace(/\.0+ /, " ") : "0", LEFT - 7, y(value), "right");
  }
  c.save();
  c.translate(11, (y(0) + y(max)) / 2);
  c.rotate(-Math.PI / 2);
  text(c, label, 0, 0, "center");
  c.restore();
}

// The horizontal axis of a view over time: `view` has from, to, model and whether it shows times.
function position(view, i) { return view.byTime ? view.model.time[i] : i; }

function eventAt(view, value) {
  let low = 0, high = view.model.n - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (position(view, middle) <= value)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

function xScale(s, view) {
  const span = view.to - view.from || 1, width = s.width - LEFT - RIGHT;
  return {x: (value) => LEFT + (value - view.from) / span * width, value: (x) => view.from + (x - LEFT) / width * span};
}

function overAxis(s, view, bottom) {
  const {context: c, colour} = s, {x} = xScale(s, view), span = view.to - view.from || 1,
                     step = steps(span, 10, Math.max(2, Math.min(9, Math.floor((s.width - LEFT) / 110))));
  const unit = view.byTime ?
      [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]].find(([, scale]) => view.to >= scale * 2) || ["ns", 1] :
      ["", 1];
  c.strokeStyle = colour.line;
  c.fillStyle = colour.soft;
  c.lineWidth = 1;
  c.beginPath();
  c.moveTo(LEFT, bottom + .5);
  c.lineTo(s.width - RIGHT, bottom + .5);
  c.stroke();
  for (let value = Math.ceil(view.from / step) * step; value <= view.to + step * 1e-6; value += step) {
    c.beginPath();
    c.moveTo(x(value), bottom);
    c.lineTo(x(value), bottom + 4);
    c.stroke();
    if (x(value) < s.width - 30)
      text(
          c, view.byTime ? `${Number((value / unit[1]).toPrecision(6))}` : countText(value), x(value), bottom + 13,
          "center");
  }
  text(
      c,
      view.byTime ? `time since the recording began, ${unit[0]}` :
          view.model.hasMap ? "event, by its number" :
                              "line of statistics, by its number",
      (LEFT + s.width - RIGHT) / 2, bottom + 29, "center");
}

// For each pixel that has an event the least, greatest and last value of a series: [x, low, high, last].
function envelope(view, scale, width, values) {
  const points = [], end = Math.min(view.model.n - 1, eventAt(view, view.to)), right = width - RIGHT;
  let i = eventAt(view, view.from), last = values[i] || 0;
  while (i <= end) {
    const x = Math.min(right, Math.max(LEFT, Math.round(scale.x(position(view, i))))),
          next = eventAt(view, scale.value(x + .5));
    let low = values[i], high = low;
    const stop = Math.max(i, Math.min(end, next));
    for (let k = i + 1; k <= stop; k++) {
      const v = values[k];
      if (v < low)
        low = v;
      else if (v > high)
        high = v;
    }
    points.push([x, low, high, last = values[stop]]);
    i = stop + 1;
  }
  if (points.length) points.push([right, last, last, last]);
  return points;
}

function area(c, points, y, base, fill) {
  if (!points.length) return;
  c.fillStyle = fill;
  c.beginPath();
  c.moveTo(points[0][0], y(0) - base);
  let before = points[0][2];
  for (const [x, , high, last] of points) {
    c.lineTo(x, y(before));
    c.lineTo(x, y(high));
    before = last;
  }
  c.lineTo(points[points.length - 1][0], y(0) - base);
  c.closePath();
  c.fill();
}

function line(c, points, y, stroke, width = 1.5, dash = []) {
  c.strokeStyle = stroke;
  c.lineWidth = width;
  c.setLineDash(dash);
  c.beginPath();
  let before = null;
  for (const [x, low, high, last] of points) {
    if (before === null)
      c.moveTo(x, y(high));
    else
      c.lineTo(x, y(before));
    c.lineTo(x, y(high));
    if (low < high) c.lineTo(x, y(low));
    c.lineTo(x, y(last));
    before = last;
  }
  c.stroke();
  c.setLineDash([]);
}

// ---- marks: a lane each, and a shape each

const LANES = [
  ["FAILED", "out of memory", "bad"], ["FLUSH", "flush", "flush"], ["GIVE_BACK", "give-back", "whole"],
  ["TRIM", "trim", "soft"]
];

function shape(c, name, x, y, r) {
  c.beginPath();
  if (name === "FAILED") {
    c.moveTo(x - r, y - r);
    c.lineTo(x + r, y - r);
    c.lineTo(x, y + r);
  } else if (name === "FLUSH") {
    c.moveTo(x, y - r);
    c.lineTo(x + r, y);
    c.lineTo(x, y + r);
    c.lineTo(x - r, y);
  } else if (name === "GIVE_BACK") {
    c.moveTo(x - r, y + r);
    c.lineTo(x + r, y + r);
    c.lineTo(x, y - r);
  } else
    c.arc(x, y, r * .8, 0, 7);
  c.closePath();
  c.fill();
}

function marksLanes(s, view, scale, top) {
  const {context: c, colour} = s, lanes = LANES.filter(([name]) => view.model.marks[name].length);
  lanes.forEach(([name, label, ink], lane) => {
    const y = top + lane * 17 + 8;
    let last = -1e9;
    c.fillStyle = colour.soft;
    text(c, label, LEFT - 7, y, "right");
    c.strokeStyle = colour.grid;
    c.lineWidth = 1;
    c.beginPath();
    c.moveTo(LEFT, y + .5);
    c.lineTo(s.width - RIGHT, y + .5);
    c.stroke();
    c.fillStyle = colour[ink];
    for (const i of view.model.marks[name]) {
      const at = position(view, i), x = scale.x(at);
      if (at < view.from || at > view.to || x - last < 2) continue;
      shape(c, name, x, y, 5);
      last = x;
    }
  });
  return lanes.length * 17;
}
