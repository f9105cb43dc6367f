// SPDX-License-Identifier: MIT
// The page's words, legends and tables, for the file and device that is chosen.

const byId = (id) => document.getElementById(id);
const data = JSON.parse(byId("data").textContent);
const views = [];
let chosen = null;

function element(name, words = "", attributes = {}) {
  const made = document.createElement(name);
  if (words) made.textContent = words;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function legend(id, items) {
  byId(id).replaceChildren(...items.map(([kind, ink, words]) => {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg"), at = (tag, attributes) => {
      const part = document.createElementNS("http://www.w3.org/2000/svg", tag);
      for (const [key, value] of Object.entries(attributes)) part.setAttribute(key, value);
      svg.append(part);
    };
    svg.setAttribute("aria-hidden", "true");
    const paint = `var(--${ink})`;
    if (kind === "line") at("path", {d: "M0 7H16", stroke: paint, "stroke-width": 2.5, fill: "none"});
    if (kind === "dash")
      at("path", {d: "M0 7H16", stroke: paint, "stroke-width": 2, "stroke-dasharray": "5 3", fill: "none"});
    if (kind === "box")
      at("rect", {width: 14, height: 12, y: 1, fill: paint, stroke: "var(--soft)", "stroke-width": .5});
    if (kind === "FAILED") at("path", {d: "M3 2H13L8 12Z", fill: paint});
    if (kind === "FLUSH") at("path", {d: "M8 2L13 7L8 12L3 7Z", fill: paint});
    if (kind === "GIVE_BACK") at("path", {d: "M3 12H13L8 2Z", fill: paint});
    if (kind === "TRIM") at("circle", {cx: 8, cy: 7, r: 4, fill: paint});
    const item = element("span");
    item.append(svg, document.createTextNode(words));
    return item;
  }));
}

// ---- words

function whenText(view, i) {
  const parts = [];
  if (view.model.clock) parts.push(timeText(view.model.time[i]));
  parts.push(`${view.model.hasMap ? "event" : "line"} ${countText(i)}`);
  return parts.join(", ");
}

function momentText(view, i) {
  const {model} = view, waste = model.waste(i), lines = [
    whenText(view, i), `requested ${bytesText(model.requested[i])}`, `allocated ${bytesText(model.allocated[i])}`,
    `reserved ${bytesText(model.reserved[i])}`
  ];
  if (waste.waiting) lines.push(`waiting ${bytesText(waste.waiting)}`);
  const asked = refusedAt(model, i);
  if (asked) lines.push(`refused ${bytesText(asked)}`);
  return lines.join("\n");
}

function blockText(view, run) {
  const {model, cursor} = view, {columns} = model,
                segment = `segment of ${bytesText(columns.segment_bytes[run.segment])}${
                    columns.segment_road[run.segment] ? " of a pool (async)" : ""}`;
  const address = `0x${run.address.toString(16)}`;
  if (run.block < 0) return `free piece: ${bytesText(run.bytes)}\n${address}, ${segment}`;
  const b = run.block, born = model.birth[b], died = model.death[b],
        span = (from, to) => (model.clock ? timeText(model.time[to] - model.time[from]) : plural(to - from, "event"));
  return `block: ${bytesText(columns.requested[b])} asked for, ${bytesText(columns.size[b])} with rounding\nage ${
             span(born, cursor)}; ` +
      (died === NEVER ? "never freed" : `lived for ${span(born, died)}`) +
      `\nallocated at ${whenText(view, born)}, stream ${columns.stream[b]}\n${address}, ${segment}`;
}

const MARK_WORDS = {
  FAILED: "out of memory",
  FLUSH: "flush: given back after the driver refused more",
  GIVE_BACK: "give-back: before more was taken",
  TRIM: "trim: given back otherwise"
};

function legends(view) {
  const {model} = view,
        marks =
            LANES.filter(([name]) => model.marks[name].length).map(([name, , ink]) => [name, ink, MARK_WORDS[name]]);
  legend("memory-legend", [
    ["box", "used", "requested by the program"], ["box", "rounding", "allocated: with rounding"],
    ["line", "reserved", "reserved from the driver"],
    ...(model.limit ? [["dash", "limit", `limit ${bytesText(model.limit)}`]] : []), ...marks
  ]);
  legend("map-legend", [
    ["box", "used", "block in use (shades only tell neighbours apart)"], ["box", "free", "free piece"],
    ["box", "bad", "request that was refused"]
  ]);
  legend("waste-legend", [
    ["box", "rounding", "rounding: blocks larger than asked for"],
    ["box", "waiting", "waiting: freed, not known to be finished (its own stream may have it)"],
    [
      "box", "free",
      model.hasMap ? "pieces: free, in segments in use" : "free (statistics do not tell pieces from whole segments)"
    ],
    ...(model.hasMap ? [["box", "whole", "whole segments that are free"]] : [])
  ]);
  legend("sizes-legend", [["box", "used", "many blocks"], ["box", "reserved-fill", "few"]]);
  legend("driver-legend", [
    ["box", "used", "segments taken"], ["box", "whole", "segments given back"],
    ["FAILED", "bad", "refused by the driver"], ["box", "waiting", "the host waited for the device"]
  ]);
}

function heading(view) {
  const {part, model} = view,
               source = part.source === "recorded" ? "as recorded" :
      part.source === "replayed"                   ? "as replayed on cachealloc" :
                                                     "statistics";
  byId("title").textContent = `Device memory of ${part.program || part.name.replace(/.*\//, "")}`;
  byId("about").textContent = [
    part.name, part.format, `device ${part.device}${part.device_name ? ` (${part.device_name})` : ""}`,
    part.source === "statistics" ? "" : source,
    part.start_unix_ns ?
        `recorded ${new Date(part.start_unix_ns / 1e6).toISOString().slice(0, 19).replace("T", " ")} UTC` :
        "",
    part.pid ? `pid ${part.pid}` : "", plural(model.n, model.hasMap ? "event" : "line"),
    (part.settings || "").split("\n").filter((line) => line && !line.startsWith("CACHEALLOC_TRACE=")).join(" ")
  ].filter(Boolean).join(" · ");
  const verdict = verdictOf(model), box = byId("verdict");
  box.className = verdict.bad ? "bad" : "";
  box.replaceChildren(element("strong", verdict.title), element("p", verdict.text));
}

function cards(view) {
  const {model} = view, {requested, reserved, refused} = model.totals, waste = Math.max(0, reserved - requested);
  const items = [
    ["peak requested", bytesText(requested), "live at the same time"],
    ["peak reserved", bytesText(reserved), "from the driver"],
    [
      "waste", reserved ? `${(100 * waste / reserved).toFixed(2)} %` : "-",
      "of the peak reserved, not requested at its own peak"
    ],
    ["refused", countText(refused), "requests of the program"],
    ["driver calls", countText(driverCalls(model)), "segments taken and given back"]
  ];
  byId("cards").replaceChildren(...items.map(([name, value, words]) => {
    const card = element("div");
    card.append(element("dt", name), element("dd", value), element("small", words));
    return card;
  }));
}

function driverCalls(model) {
  if (!model.hasMap) return model.calls.taken.concat(model.calls.returned).reduce((sum, calls) => sum + calls, 0);
  return model.marks.TAKEN.length + model.marks.FLUSH.length + model.marks.GIVE_BACK.length + model.marks.TRIM.length;
}

function figures(view) {
  const {part, model} = view, replay = part.figures, table = element("table"), body = element("tbody");
  const known = (value, kind) =>
      (value === undefined || value === null ? "-" :
           kind === "bytes"                  ? `${bytesText(value)} (${countText(value)})` :
                            kind === "ppm" ? `${(value / 1e4).toFixed(2)} %` :
                                             countText(value));
  const recorded = {
    peak_live_bytes: model.requested[model.peak],
    peak_reserved_bytes: model.reserved[model.peakReserved],
    driver_alloc_calls: model.marks.TAKEN.length,
    driver_free_calls: driverCalls(model) - model.marks.TAKEN.length,
    allocations: model.hasMap ? model.starts : undefined,
    frees: model.hasMap ? model.ends : undefined,
    ooms: model.marks.FAILED.length
  };
  const shows = part.source === "recorded";
  const head = element("thead"), row = element("tr");
  row.append(
      element("th", ""), ...(shows ? [element("th", "as recorded")] : []),
      element("th", replay ? "replayed on cachealloc" : "last line"));
  head.append(row);
  for (const [name, words, kind] of data.figure_names) {
    const values = replay || part.rows[part.rows.length - 1] || {},
          value = typeof values[name] === "object" && values[name] ? values[name].peak : values[name];
    if (value === undefined || value === null || (replay && ["requested_bytes", "reserved_bytes"].includes(name)))
      continue;
    const line = element("tr", "", {"data-figure": name, "data-value": value ?? ""});
    line.append(
        element("th", words), ...(shows ? [element("td", known(recorded[name], kind))] : []),
        element("td", known(value, kind)));
    body.append(line);
  }
  table.append(head, body);
  byId("figures").replaceChildren(table);
  if (replay && !part.found_completed)
    byId("figures").append(
        element("p", "The replay ran out of the memory it was given, and ended there.", {class: "note"}));
}
