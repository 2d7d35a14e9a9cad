"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const find = (id) => document.getElementById(id);

  // Text goes in as text nodes only, so that no string from a run can become markup.
  function add(parent, name, attributes = {}, text = null) {
    const drawn = parent instanceof SVGElement || name === "svg";
    const made = drawn ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== null) made.textContent = text;
    parent.append(made);
    return made;
  }
  const short = (value) => {
    if (value === null) return "–";
    const size = Math.abs(value);
    return size !== 0 && (size < 1e-3 || size >= 1e6) ? value.toExponential(2) : String(Number(value.toPrecision(4)));
  };
  const mark = (value) => (value !== 0 && Math.abs(value) < 1e-3 ? Number(value.toPrecision(3)).toExponential() : String(value));
  const whole = (value) => value.toLocaleString("en");

  // -- which step is shown ---------------------------------------------------------------------------

  const main = data.steps.map((s, n) => n).filter((n) => data.steps[n].start === data.main);
  const every = data.steps.map((s, n) => n);
  let shown = main;
  let now = shown.length ? shown[shown.length - 1] : -1;
  const several = main.length < every.length;

  // -- the network -----------------------------------------------------------------------------------

  // Around the cores, for legs and what is written at their ends; names need more.
  const named = data.legs.some((lines) => lines.length > 1);
  const room = named ? [1.6, 1] : [0.8, 0.8];
  // Over all steps, so that the drawing keeps its scale.
  function reach(at) {
    let [low, high] = [0, 0];
    for (const { nodes } of data.structures) {
      for (const node of nodes) [low, high] = [Math.min(low, node[at]), Math.max(high, node[at])];
    }
    return [low - room[at], high + room[at]];
  }
  // Of arcs, which rise above all nodes.
  const peak = Math.max(0, ...data.structures.flatMap((s) => s.edges.map((e) => e[4] + 0.3)));
  function drawNetwork() {
    const box = find("network");
    const step = now < 0 ? null : data.steps[now];
    const { nodes, edges } = data.structures[step ? step.structure : data.final];
    const hot = step && step.edge ? step.edge.join() : "";
    box.replaceChildren();
    const [left, right] = reach(0);
    const [low, top] = reach(1);
    const high = Math.max(top, peak);
    const space = Math.max(box.clientWidth, 200);
    const unit = Math.min(Math.max(Math.min(space / (right - left), 430 / (high - low)), 30), 105);
    const width = (right - left) * unit;
    const height = (high - low) * unit;
    const x = (v) => (v - left) * unit;
    const y = (v) => (high - v) * unit;
    const radius = Math.min(17, 0.22 * unit);
    const svg = add(box, "svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img" });
    svg.setAttribute("aria-label", describe(nodes, edges));
    for (const [i, j, rank, , , ...bend] of edges) {
      const [from, over, to] = [nodes[i], bend.length ? bend : nodes[j], nodes[j]].map((p) => `${x(p[0])} ${y(p[1])}`);
      const width = Math.min(1.5 + 1.6 * Math.log2(rank), 0.4 * unit);
      const drawn = add(svg, "path", { d: `M${from}Q${over} ${to}`, "stroke-width": width, class: hot === `${i},${j}` ? "edge hot" : "edge" });
      add(drawn, "title", {}, `edge ${i}–${j}: rank ${rank}`);
    }
    nodes.forEach(([px, py, lx, ly, dim], k) => {
      if (dim === null) return;
      const end = [x(px) + lx * unit * 0.5, y(py) - ly * unit * 0.5];
      add(svg, "line", { x1: x(px), y1: y(py), x2: end[0], y2: end[1], class: "leg" });
      const lines = data.legs[k];
      const [aside, far] = [3 + 3 * Math.max(...lines.map((line) => line.length)), 4 + 6 * lines.length];
      lines.forEach((line, n) => {
        const place = { x: end[0] + lx * aside, y: end[1] - ly * far + 12 * (n - (lines.length - 1) / 2), class: "leg-text", "text-anchor": "middle", "dominant-baseline": "central" };
        add(svg, "text", place, line);
      });
    });
    nodes.forEach(([px, py, , , dim], k) => {
      const touched = step && step.edge && step.edge.includes(k) ? " hot" : "";
      const inner = dim === null;
      const side = radius * 1.25;
      const made = inner
        ? add(svg, "rect", { x: x(px) - side / 2, y: y(py) - side / 2, width: side, height: side, rx: 2, transform: `rotate(45 ${x(px)} ${y(py)})`, class: "node inner" + touched })
        : add(svg, "circle", { cx: x(px), cy: y(py), r: radius, class: "node" + touched });
      add(made, "title", {}, inner ? `internal core ${k}` : `core ${k}, leg ${data.legs[k].join(", of size ")}`);
      const size = Math.min(13, radius * (inner ? 0.75 : 0.95));
      if (size > 6) add(svg, "text", { x: x(px), y: y(py), class: "node-text", "text-anchor": "middle", "dominant-baseline": "central", "font-size": size }, k);
    });
    for (const [i, j, rank, lx, ly] of edges) {
      const place = { x: x(lx), y: y(ly) };
      const cls = hot === `${i},${j}` ? "rank-text hot" : "rank-text";
      add(svg, "text", { ...place, class: cls, "text-anchor": "middle", "dominant-baseline": "central", "font-size": Math.min(13, 0.34 * unit) }, rank);
    }
  }
  const describe = (nodes, edges) =>
    `Network of ${nodes.length} cores. ` + (edges.length ? `Edges: ${edges.map(([i, j, r]) => `${i}–${j} rank ${r}`).join(", ")}.` : "No edges: rank one.");

  // -- pictures --------------------------------------------------------------------------------------

  const images = data.images;
  let frame = null;
  let frameText = null;
  let frameLink = null;
  function buildPictures() {
    if (!images) return;
    const box = find("pictures");
    const stills = images.stills;
    const names = { original: "Original", observed: "Observed entries", difference: `Difference of the result, × ${images.gain}` };
    const still = (name) => {
      if (!stills[name]) return;
      const figure = add(box, "figure");
      image(figure, stills[name], names[name]);
      add(figure, "figcaption", {}, `${names[name]} `);
      savable(figure, stills[name], name);
    };
    const figure = add(box, "figure", { class: "main" });
    frame = image(figure, images.frames[images.frames.length - 1].src, "Reconstruction");
    frame.id = "frame";
    frameText = add(figure, "figcaption", { id: "frame-text" });
    frameLink = savable(figure, frame.src, "reconstruction");
    for (const name of ["original", "observed", "difference"]) still(name);
    box.classList.add(`show-${box.children.length}`);
    for (const other of document.querySelectorAll("#filled figure")) savable(other, other.querySelector("img").src, other.dataset.name);
  }
  function savable(figure, source, name) {
    const kind = source.slice("data:image/".length, source.indexOf(";"));
    return add(figure, "a", { href: source, download: `${data.name}-${name.replaceAll(" ", "-")}.${kind}`, class: "save" }, "Save");
  }
  function image(figure, source, text) {
    const cls = Math.max(images.width, images.height) < 150 ? "pixels" : "";
    return add(figure, "img", { src: source, alt: text, class: cls, width: images.width, height: images.height });
  }
  function showPicture() {
    if (!images) return;
    const last = images.frames.length - 1;
    const number = now < 0 ? last : data.steps[now].frame;
    const { src, size, error, name } = images.frames[number];
    frame.src = frameLink.href = src;
    frameText.textContent = `Reconstruction from ${whole(size)} numbers, ${name} ${short(error)}`;
  }

  // -- error against size ----------------------------------------------------------------------------

  let chart = null;
  function drawCurve() {
    const box = find("curve");
    box.replaceChildren();
    const points = data.series.flatMap((s) => s.points);
    if (!points.length) return;
    const width = Math.max(box.clientWidth, 240);
    const height = Math.min(420, Math.max(260, width * 0.5));
    const edge = { left: 58, right: 18, top: 12, bottom: 44 };
    const across = axis(points.map((p) => p[0]), edge.left, width - edge.right);
    const up = axis(points.map((p) => p[1]), height - edge.bottom, edge.top);
    const svg = add(box, "svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img" });
    svg.setAttribute("aria-label", `${data.error_name} against the number of parameters; the values are in the table of steps`);
    for (const v of across.ticks(width / 90)) {
      add(svg, "line", { x1: across.at(v), x2: across.at(v), y1: edge.top, y2: height - edge.bottom, class: "grid" });
      add(svg, "text", { x: across.at(v), y: height - edge.bottom + 17, "text-anchor": "middle", class: "axis-text" }, v >= 1e5 ? short(v) : whole(v));
    }
    for (const v of up.ticks(height / 45)) {
      add(svg, "line", { x1: edge.left, x2: width - edge.right, y1: up.at(v), y2: up.at(v), class: "grid" });
      add(svg, "text", { x: edge.left - 8, y: up.at(v), "text-anchor": "end", "dominant-baseline": "central", class: "axis-text" }, mark(v));
    }
    add(svg, "text", { x: (edge.left + width - edge.right) / 2, y: height - 8, "text-anchor": "middle", class: "axis-text" }, "parameters");
    add(svg, "text", { x: 14, y: height / 2, transform: `rotate(-90 14 ${height / 2})`, "text-anchor": "middle", class: "axis-text" }, data.error_name);
    const spots = [];
    for (const series of data.series) {
      const places = series.points.map((p) => [across.at(p[0]), up.at(p[1])]);
      if (series.line.length) add(svg, "polyline", { points: series.line.map((n) => places[n].join()).join(" "), class: `curve ${series.cls}` });
      places.forEach(([px, py], n) => {
        spots.push({ px, py, series, point: series.points[n] });
        if (series.role === "rival") add(svg, "rect", { x: px - 4, y: py - 4, width: 8, height: 8, class: series.cls });
        else if (series.role === "result" || series.role === "test") add(svg, "path", { d: star(px, py, 9), class: series.cls });
        else add(svg, "circle", { cx: px, cy: py, r: series.role === "other" ? 2.5 : 3, class: series.cls });
      });
      if (series.role === "rival") {
        const [px, py] = places[places.length - 1];
        const side = px > width - 120 ? { x: px - 8, "text-anchor": "end" } : { x: px + 8 };
        // Above and below in turn: rivals often lie close together.
        add(svg, "text", { ...side, y: series.cls.endsWith("0") || series.cls.endsWith("2") ? py - 9 : py + 17, class: "rival-name" }, series.name);
      }
    }
    const ring = add(svg, "circle", { r: 7, class: "now", visibility: "hidden" });
    const tip = add(box, "div", { class: "tip", hidden: "" });
    chart = { ring, spots };
    svg.addEventListener("pointermove", (event) => showTip(nearest(event), tip, width));
    svg.addEventListener("pointerleave", () => { tip.hidden = true; });
    svg.addEventListener("click", (event) => {
      const spot = nearest(event);
      if (spot && spot.point[2] !== null) go(spot.point[2]);
    });
    function nearest(event) {
      const frame = svg.getBoundingClientRect();
      const [mx, my] = [event.clientX - frame.left, event.clientY - frame.top];
      let best = null;
      let least = 60 ** 2;
      for (const spot of spots) {
        const far = (spot.px - mx) ** 2 + (spot.py - my) ** 2;
        if (far < least) [best, least] = [spot, far];
      }
      return best;
    }
    markNow();
  }
  function showTip(spot, tip, width) {
    tip.hidden = !spot;
    if (!spot) return;
    const [size, error, number] = spot.point;
    tip.textContent = `${spot.series.name}${number === null ? "" : ` · step ${data.steps[number].index}`}\n${whole(size)} parameters\n${data.error_name} ${short(error)}`;
    const left = Math.min(Math.max(spot.px + 12, 0), Math.max(width - tip.offsetWidth, 0));
    tip.style.left = `${left}px`;
    tip.style.top = `${Math.max(spot.py - tip.offsetHeight - 10, 0)}px`;
  }
  function markNow() {
    if (!chart) return;
    const roles = ["held-out", "fitted", "other"];
    const mine = chart.spots.filter((s) => s.point[2] === now && now >= 0);
    mine.sort((a, b) => roles.indexOf(a.series.role) - roles.indexOf(b.series.role));
    chart.ring.setAttribute("visibility", mine.length ? "visible" : "hidden");
    if (mine.length) {
      chart.ring.setAttribute("cx", mine[0].px);
      chart.ring.setAttribute("cy", mine[0].py);
    }
  }
  const star = (x, y, r) => {
    const tips = Array.from({ length: 10 }, (_, k) => {
      const [angle, length] = [(Math.PI * k) / 5 - Math.PI / 2, k % 2 ? r * 0.45 : r];
      return `${x + length * Math.cos(angle)},${y + length * Math.sin(angle)}`;
    });
    return `M${tips.join("L")}Z`;
  };
  // Logarithmic where every value is positive, else linear: losses may be negative, errors exactly zero.
  function axis(values, from, to) {
    const log = values.every((v) => v > 0);
    const warp = log ? Math.log10 : (v) => v;
    let [low, high] = [Math.min(...values.map(warp)), Math.max(...values.map(warp))];
    const least = log ? 0.04 : 0.05 * Math.max(Math.abs(high), 1);
    const room = high > low ? (high - low) * 0.06 : least;
    [low, high] = [low - room, high + room];
    const at = (v) => from + ((warp(v) - low) / (high - low)) * (to - from);
    const ticks = (most) => {
      const inside = (list) => list.filter((v) => warp(v) >= low && warp(v) <= high);
      if (log) {
        const decades = Array.from({ length: Math.ceil(high) - Math.floor(low) + 1 }, (_, k) => Math.floor(low) + k);
        const tries = [[1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2, 3, 5, 7], [1, 2, 5], [1, 3], [1]].map((marks) =>
          inside(decades.flatMap((d) => marks.map((m) => Number(`${m}e${d}`)))));
        const ones = tries[tries.length - 1];
        if (ones.length > most) return ones.filter((_, k) => k % Math.ceil(ones.length / most) === 0);
        const fitting = tries.find((list) => list.length <= most && list.length > 3) || (high - low > 1 ? ones : null);
        if (fitting) return fitting;
      }
      const [first, last] = log ? [10 ** low, 10 ** high] : [low, high];
      const rough = (last - first) / Math.max(most, 2);
      const power = 10 ** Math.floor(Math.log10(rough));
      const step = [1, 2, 5, 10].find((m) => m * power >= rough) * power;
      const out = [];
      for (let k = Math.ceil(first / step); k * step <= last; k += 1) out.push(Number((k * step).toPrecision(12)));
      return out;
    };
    return { at, ticks };
  }
  function buildLegend() {
    let rival = 0;
    for (const series of data.series) {
      series.cls = series.role === "rival" ? `rival-${rival++ % 4}` : series.role;
      const entry = add(find("legend"), "span");
      const svg = add(entry, "svg", { width: 14, height: 14, "aria-hidden": "true" });
      if (series.role === "rival") add(svg, "rect", { x: 3, y: 3, width: 8, height: 8, class: series.cls });
      else if (series.role === "result" || series.role === "test") add(svg, "path", { d: star(7, 7, 7), class: series.cls });
      else add(svg, "circle", { cx: 7, cy: 7, r: 4, class: series.cls });
      entry.append(series.name);
    }
  }

  // -- spectra ---------------------------------------------------------------------------------------

  function drawSpectra() {
    const box = find("spectra");
    find("spectra-panel").hidden = data.spectra.length === 0;
    const smallest = Math.min(...data.spectra.flatMap((s) => s.values).filter((v) => v > 0), 0.1);
    const floor = Math.max(Math.log10(smallest) - 0.15, -8);
    for (const { edge, rank, values } of data.spectra) {
      const figure = add(box, "figure");
      const caption = add(figure, "figcaption");
      add(caption, "b", {}, `${edge[0]}–${edge[1]}`);
      add(caption, "span", {}, `rank ${rank}`);
      const count = Math.max(values.length, 4);
      const svg = add(figure, "svg", { viewBox: `0 0 ${count} 10`, preserveAspectRatio: "none", role: "img" });
      svg.setAttribute("aria-label", `weights of edge ${edge.join("–")}: ${values.map(short).join(", ")}`);
      values.forEach((value, k) => {
        const tall = value > 0 ? Math.max(0.15, 10 * (1 - Math.max(Math.log10(value), floor) / floor)) : 0.15;
        const bar = add(svg, "rect", { x: k + 0.1, y: 10 - tall, width: 0.8, height: tall, class: "bar" });
        add(bar, "title", {}, `component ${k + 1}: ${short(value)}`);
      });
    }
    const left = data.num_edges - data.spectra.length;
    find("spectra-note").textContent = left > 0 ? `${left} edges of smaller rank are not shown.` : "";
  }

  // -- figures to save ------------------------------------------------------------------------------

  // What the style sheet says, written into a copy that stands alone.
  const STYLES = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-linecap", "stroke-linejoin", "stroke-dasharray", "paint-order", "font-family", "font-size", "font-weight", "visibility"];
  function standalone(svg) {
    const copy = svg.cloneNode(true);
    const [shown, copied] = [svg, copy].map((root) => [root, ...root.querySelectorAll("*")]);
    shown.forEach((element, n) => {
      const style = getComputedStyle(element);
      for (const name of STYLES) copied[n].setAttribute(name, style.getPropertyValue(name));
      copied[n].removeAttribute("class");
    });
    const back = getComputedStyle(svg.closest(".panel")).backgroundColor;
    copy.prepend(add(copy, "rect", { width: "100%", height: "100%", fill: back }));
    return new XMLSerializer().serializeToString(copy);
  }
  function save(blob, name) {
    const link = add(document.body, "a", { href: URL.createObjectURL(blob), download: name });
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }
  async function saveFigure(id, kind) {
    const svg = find(id).querySelector("svg");
    const text = standalone(svg);
    const name = `${data.name}-${id}.${kind}`;
    if (kind === "svg") return save(new Blob([text], { type: "image/svg+xml" }), name);
    const picture = new Image();
    picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
    await picture.decode();
    const canvas = document.createElement("canvas");
    const sharp = 3; // pixels per pixel of the page, enough for print
    [canvas.width, canvas.height] = [svg.width, svg.height].map((side) => Math.ceil(sharp * side.baseVal.value));
    canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => save(blob, name), "image/png");
  }
  for (const button of document.querySelectorAll("button[data-save]")) {
    button.addEventListener("click", () => saveFigure(button.dataset.save, button.dataset.kind));
  }

  // -- putting it together ---------------------------------------------------------------------------

  const rows = new Map();
  for (const button of document.querySelectorAll("#steps button")) {
    const number = Number(button.dataset.step);
    rows.set(number, button.closest("tr"));
    button.addEventListener("click", () => go(number));
  }
  let marked = null;

  function show() {
    drawNetwork();
    showPicture();
    markNow();
    if (marked) marked.classList.remove("now-row");
    marked = rows.get(now) || null;
    if (marked) marked.classList.add("now-row");
    const readout = find("readout");
    readout.replaceChildren();
    if (now < 0) return;
    const step = data.steps[now];
    const move = step.edge ? `${step.kind} edge ${step.edge.join("–")} to rank ${step.rank}` : step.kind;
    add(readout, "b", {}, `Step ${step.index}`);
    const parts = [several ? `growth ${step.start + 1}` : "", move, `${whole(step.size)} parameters`, `${data.error_name} ${short(step.error)}`];
    if (step.validation !== null) parts.push(`held-out ${short(step.validation)}`);
    if (step.seconds !== null) parts.push(`${step.seconds.toFixed(1)} s`);
    readout.append(" · " + parts.filter(Boolean).join(" · "));
    slider.setAttribute("aria-valuetext", readout.textContent);
  }

  const slider = find("slider");
  function range() {
    slider.max = Math.max(shown.length - 1, 0);
    slider.value = shown.indexOf(now);
  }
  function go(number) {
    now = number;
    if (!shown.includes(now)) {
      shown = every;
      find("all").checked = true;
    }
    range();
    show();
  }
  slider.addEventListener("input", () => {
    now = shown[Number(slider.value)];
    show();
  });
  find("all").addEventListener("change", (event) => {
    shown = event.target.checked ? every : main;
    if (!shown.includes(now)) now = shown[shown.length - 1];
    range();
    show();
  });

  const play = find("play");
  let timer = null;
  function pause() {
    clearInterval(timer);
    timer = null;
    play.textContent = "▶";
    play.setAttribute("aria-label", "Play the growth");
  }
  play.addEventListener("click", () => {
    if (timer !== null) return pause();
    let at = shown.indexOf(now);
    if (at === shown.length - 1) at = -1;
    play.textContent = "❚❚";
    play.setAttribute("aria-label", "Pause");
    const wait = Math.min(500, Math.max(60, 15000 / shown.length));
    timer = setInterval(() => {
      at += 1;
      if (at >= shown.length) return pause();
      now = shown[at];
      range();
      show();
    }, wait);
  });
  slider.addEventListener("pointerdown", pause);
  slider.addEventListener("keydown", pause);

  find("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });

  find("controls").hidden = every.length < 2;
  find("all-label").hidden = !several;
  buildPictures();
  buildLegend();
  drawSpectra();
  range();
  let drawnFor = 0;
  const resize = () => {
    if (document.body.clientWidth === drawnFor) return;
    drawnFor = document.body.clientWidth;
    drawCurve();
    show();
  };
  new ResizeObserver(resize).observe(document.body);
  addEventListener("beforeprint", resize);
  resize();
})();
