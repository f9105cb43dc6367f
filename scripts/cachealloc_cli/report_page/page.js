// SPDX-License-Identifier: MIT
// The page as a whole: drawing, pointer, keys, start.

// ---- drawing

function drawOver() {
  drawMemory(chosen);
  drawWaste(chosen);
  drawDriver(chosen);
}

function drawMoment() {
  const {model, cursor} = chosen;
  byId("moment").textContent = whenText(chosen, cursor);
  byId("slider").value = cursor;
  byId("memory").setAttribute("aria-label", `Memory over time; at ${momentText(chosen, cursor).replace(/\n/g, ", ")}`);
  if (!model.hasMap) return;
  const {free, rowBytes} = drawMap(chosen),
               outside = chosen.state.blocks.filter((b) => model.columns.segment[b] === NEVER).length;
  byId("map-note").textContent =
      `${plural(chosen.state.segments.length, "segment")}, ${plural(chosen.state.blocks.length, "block")} in use; ` +
      `${bytesText(free.bytes)} free in ${plural(free.pieces, "piece")}, the largest ${
          bytesText(free.largest)}. One row: ${
          bytesText(rowBytes)}, in the order of addresses; gaps are borders of segments.` +
      (outside ? ` ${plural(outside, "block")} outside of segments: the driver's own allocations.` : "");
}

function draw() {
  drawOver();
  drawMoment();
  if (chosen.model.hasMap && chosen.model.blocks) drawSizes(chosen);
  if (views.length > 1) {
    const max = Math.max(...views.map(
                    (view) => Math.max(view.model.limit, view.model.reserved[view.model.peakReserved] || 0))) *
        1.04;
    views.forEach(
        (view, k) => drawMemory({...view, from: 0, to: position(view, view.model.n - 1) || 1}, `rank-${k}`, true, max));
  }
}

let waiting = 0;
function later(what) {
  cancelAnimationFrame(waiting);
  waiting = requestAnimationFrame(what);
}

function setRange(from, to) {
  const end = position(chosen, chosen.model.n - 1) || 1, least = chosen.byTime ? Math.min(1000, end) : Math.min(4, end);
  let span = Math.min(end, Math.max(least, to - from));
  chosen.from = Math.max(0, Math.min(from, end - span));
  chosen.to = chosen.from + span;
  later(drawOver);
}

function setCursor(i) {
  chosen.cursor = Math.max(0, Math.min(chosen.model.n - 1, i));
  chosen.picked = -1;
  const at = position(chosen, chosen.cursor);
  if (at < chosen.from || at > chosen.to)
    setRange(at - (chosen.to - chosen.from) / 2, at + (chosen.to - chosen.from) / 2);
  later(() => {
    drawOver();
    drawMoment();
  });
}

function zoom(factor, around = position(chosen, chosen.cursor)) {
  setRange(around - (around - chosen.from) * factor, around + (chosen.to - around) * factor);
}

function setAxis(byTime) {
  chosen.byTime = byTime && chosen.model.clock;
  byId("axis-time").setAttribute("aria-pressed", chosen.byTime);
  byId("axis-event").setAttribute("aria-pressed", !chosen.byTime);
  byId("axis-time").disabled = !chosen.model.clock;
  setRange(0, Infinity);
}

function nextFailed() {
  const failed = chosen.model.marks.FAILED;
  if (failed.length) setCursor(failed.find((i) => i > chosen.cursor) ?? failed[0]);
}

function choose(view) {
  chosen = view;
  heading(view);
  cards(view);
  legends(view);
  figures(view);
  for (const id of ["map-section", "sizes-section"]) byId(id).hidden = !view.model.hasMap;
  byId("oom-next").disabled = !view.model.marks.FAILED.length;
  byId("slider").max = view.model.n - 1;
  byId("waste-note").textContent = view.part.waste_note || "";
  views.forEach((other, k) => byId(`choose-${k}`)?.setAttribute("aria-pressed", other === view));
  setAxis(view.byTime);
  cancelAnimationFrame(waiting);
  draw();
}

// ---- pointer and keys

function tip(event, words) {
  const box = byId("tip");
  box.hidden = !words;
  if (!words) return;
  box.textContent = words;
  const {width, height} = box.getBoundingClientRect();
  box.style.left = `${Math.max(4, Math.min(window.innerWidth - width - 8, event.clientX + 14))}px`;
  box.style.top =
      `${event.clientY + 18 + height > window.innerHeight ? event.clientY - height - 10 : event.clientY + 18}px`;
}

function pointAt(event) {
  const box = event.currentTarget.getBoundingClientRect();
  return {x: event.clientX - box.left, y: event.clientY - box.top};
}

function over(id, words) {
  const canvas = byId(id);
  canvas.addEventListener("pointermove", (event) => {
    const {x, y} = pointAt(event);
    tip(event, words(x, y));
  });
  canvas.addEventListener("pointerleave", (event) => tip(event, ""));
}

const eventUnder = (x) => eventAt(chosen, chosen.hits.scale.value(Math.max(LEFT, x)));

function callText(x) {
  const bin = chosen.calls[Math.floor((x - LEFT) / chosen.callWidth)];
  if (!bin) return "";
  return [
    `${plural(bin.taken, "segment")} taken${bin.takenBytes ? `: ${bytesText(bin.takenBytes)}` : ""}`,
    `${plural(bin.returned, "segment")} given back${bin.returnedBytes ? `: ${bytesText(bin.returnedBytes)}` : ""}`,
    bin.refused ? `${plural(bin.refused, "request")} refused by the driver` : "",
    bin.waited ? `the host waited ${plural(bin.waited, "time")}` : ""
  ].filter(Boolean)
      .join("\n");
}

function cellText(x, y) {
  const cell = chosen.cells?.find((each) => x >= each.x && x < each.x + each.w && y >= each.y && y < each.y + each.h);
  if (!cell) return "";
  const {size, life, count, bytes} = cell.bin;
  return `${plural(count, "block")} of ${bytesText(2 ** size)} to ${bytesText(2 ** (size + 1))}\nlifetime: ${
      lifeText(chosen, life)}\n${bytesText(bytes)} in all`;
}

function wasteText(x) {
  const i = eventUnder(x), waste = chosen.model.waste(i);
  return `${whenText(chosen, i)}\nrounding ${bytesText(waste.rounding)}\nwaiting ${bytesText(waste.waiting)}\n` +
      (chosen.model.hasMap ? `pieces ${bytesText(waste.pieces)}\nwhole segments ${bytesText(waste.whole)}` :
                             `free ${bytesText(waste.pieces)}`);
}

function drags(canvas) {
  let from = null;
  canvas.addEventListener("pointerdown", (event) => {
    from = pointAt(event).x;
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointerup", (event) => {
    const {x} = pointAt(event), {value} = chosen.hits.scale;
    if (from === null) return;
    if (Math.abs(x - from) > 6)
      setRange(value(Math.min(x, from)), value(Math.max(x, from)));
    else
      setCursor(eventUnder(x));
    from = null;
  });
  canvas.addEventListener("dblclick", () => setRange(0, Infinity));
}

function keys(event) {
  const step = event.shiftKey ?
      1 :
      Math.max(1, Math.round((eventAt(chosen, chosen.to) - eventAt(chosen, chosen.from)) / 200)),
        cursor = chosen.cursor;
  const acts = {
    ArrowLeft: () => setCursor(cursor - step),
    ArrowRight: () => setCursor(cursor + step),
    Home: () => setCursor(0),
    End: () => setCursor(chosen.model.n - 1),
    "+": () => zoom(.5),
    "=": () => zoom(.5),
    "-": () => zoom(2),
    0: () => setRange(0, Infinity),
    o: nextFailed,
    O: nextFailed,
    p: () => setCursor(chosen.model.peak),
    P: () => setCursor(chosen.model.peak)
  };
  if (!acts[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  acts[event.key]();
}

// In the map: up and down go from piece to piece, and tell of it what the pointer would.
function pick(event) {
  const move = {ArrowDown: 1, ArrowUp: -1}[event.key];
  if (event.key === "Escape") tip(event, "");
  if (!move || !chosen.state.runs.length) return;
  event.preventDefault();
  chosen.picked = Math.max(0, Math.min(chosen.state.runs.length - 1, (chosen.picked ?? -1) + move));
  drawMap(chosen);
  const box = byId("map").getBoundingClientRect(), {x, y} = runPlace(chosen, chosen.picked);
  tip({clientX: box.left + x, clientY: box.top + y}, blockText(chosen, chosen.state.runs[chosen.picked]));
}

function bind() {
  byId("map").addEventListener("keydown", pick);
  byId("map").addEventListener("blur", (event) => tip(event, ""));
  over("memory", (x) => momentText(chosen, eventUnder(x)));
  over("waste", wasteText);
  over("driver", callText);
  over("sizes", cellText);
  over("map", (x, y) => {
    const run = runAt(chosen, x, y);
    return run ? blockText(chosen, run) : "";
  });
  for (const id of ["memory", "waste", "driver"]) drags(byId(id));
  for (const id of ["memory", "waste", "driver", "map"]) byId(id).addEventListener("keydown", keys);
  byId("axis-time").onclick = () => setAxis(true);
  byId("axis-event").onclick = () => setAxis(false);
  byId("oom-next").onclick = nextFailed;
  byId("go-peak").onclick = () => setCursor(chosen.model.peak);
  byId("zoom-in").onclick = () => zoom(.5);
  byId("zoom-out").onclick = () => zoom(2);
  byId("zoom-all").onclick = () => setRange(0, Infinity);
  byId("slider").oninput = (event) => setCursor(Number(event.target.value));
  window.addEventListener("resize", () => later(draw));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  // paper is light
  for (const [name, prints] of [["beforeprint", true], ["afterprint", false]])
    window.addEventListener(name, () => {
      document.documentElement.classList.toggle("print", prints);
      draw();
    });
}

// ---- start

function viewOf(model) {
  const failed = model.marks.FAILED, byTime = model.clock && !model.part.axis_events;
  return {
    part: model.part,
    model,
    byTime,
    from: 0,
    to: 1,
    cursor: failed.length ? failed[failed.length - 1] : model.peak
  };
}

function rankButtons() {
  byId("ranks-section").hidden = views.length < 2;
  if (views.length < 2) return;
  byId("ranks").replaceChildren(...views.map((view, k) => {
    const {model, part} = view, button = element("button", "", {type: "button", id: `choose-${k}`, title: part.name}),
                  failed = model.marks.FAILED.length;
    button.append(
        element("b", `${part.name.replace(/.*\//, "")}${part.devices > 1 ? `, device ${part.device}` : ""}`),
        element(
            "small",
            `peak ${bytesText(model.totals.requested)} requested, ${bytesText(model.totals.reserved)} reserved `),
        element("small", failed ? "out of memory" : "", {class: "oom"}), element("canvas", "", {id: `rank-${k}`}));
    button.onclick = () => choose(view);
    return button;
  }));
}

async function start() {
  for (const part of data.parts) {
    const model = part.blob ? timelineModel(part, columnsOf(part, await inflated(part.blob))) : statsModel(part);
    if (model.n) views.push(viewOf(model));
  }
  byId("footer").textContent = `Made by cachealloc ${data.version}. This page is complete: it loads nothing.`;
  byId("loading").hidden = true;
  document.querySelector("main").hidden = false;
  if (!views.length) {
    document.querySelector("main").replaceChildren(element("p", "The files have no events."));
    return;
  }
  rankButtons();
  bind();
  choose(views.find((view) => view.model.marks.FAILED.length) || views[0]);
  document.documentElement.dataset.ready = Math.round(performance.now());
}

window.report = {
  views,
  chosen: () => chosen,
  setCursor,
  choose,
  start: start().catch((problem) => {
    byId("loading").textContent = `This page cannot be drawn by this browser: ${problem.message}`;
    throw problem;
  })
};
