// Keeps the numbers of a page current and draws its tables of history. Everything
// works without it: the page then loads itself again, and the tables have the
// numbers.
"use strict";

let paused = false;
const button = document.querySelector("[data-pause]");
if (button && document.querySelector("[data-live]")) {
  button.hidden = false;
  button.addEventListener("click", () => {
    paused = !paused;
    button.textContent = paused ? "Resume updates" : "Pause updates";
    button.setAttribute("aria-pressed", String(paused));
  });
}

// replace inserts new text and keeps the focus and opened details.
const replace = (live, text) => {
  const key = (e) => e.getAttribute("href") || e.id || e.tagName + e.textContent;
  const focused = live.contains(document.activeElement) ? key(document.activeElement) : null;
  const open = [...live.querySelectorAll("details")].map((d) => d.open);
  const scrolled = [...live.querySelectorAll(".scroll")].map((s) => s.scrollTop);
  live.innerHTML = text; // escaped by the server
  live.querySelectorAll("details").forEach((d, i) => { d.open = Boolean(open[i]); });
  live.querySelectorAll(".scroll").forEach((s, i) => { s.scrollTop = scrolled[i] || 0; });
  if (focused !== null) {
    const again = [...live.querySelectorAll("a,button,summary,[tabindex]")].find((e) => key(e) === focused && e.getClientRects().length);
    if (again) {
      again.focus({preventScroll: true});
    }
  }
  draw(live);
};

// keep updates a region from the server.
const keep = (live) => {
  const every = 1000 * Math.min(60, Math.max(2, Number(live.dataset.every || 2)));
  // show puts an answer in place; true when the page is loaded again instead.
  const show = (answer, text) => {
    if (answer.status === 401) {
      location.reload();
      return true;
    }
    if (answer.ok) {
      replace(live, text);
      if (live.querySelector("[data-ended]")) {
        location.reload(); // what came of it
        return true;
      }
      live.dataset.looks = String(Number(live.dataset.looks || 0) + 1);
    }
    live.classList.toggle("stale", !answer.ok);
    return false;
  };
  const refresh = async () => {
    if (!paused && !document.hidden) {
      try {
        const answer = await fetch(live.dataset.live, {credentials: "same-origin"});
        const text = await answer.text();
        // A paused page does not change, also with an answer under way.
        if (!paused && show(answer, text)) {
          return;
        }
      } catch {
        live.classList.add("stale"); // the process is away: the next look may find it
      }
    }
    setTimeout(refresh, every);
  };
  setTimeout(refresh, Math.min(every, live.dataset.every ? every : 1500));
};

// draw makes plots of the tables of history below an element.
const draw = (root) => {
  for (const section of root.querySelectorAll("[data-plots]")) {
    const heads = [...section.querySelectorAll("thead th[data-plot]")];
    const rows = [...section.querySelectorAll("tbody tr")].reverse();
    const place = section.querySelector("[data-canvases]");
    const times = rows.map((row) => Number(row.cells[0].dataset.t));
    const marks = [...section.querySelectorAll("[data-mark]")].map((m) => ({kind: m.dataset.mark, from: Number(m.dataset.t), until: Number(m.dataset.until || 0)}));
    const column = (i) => rows.map((row) => (row.cells[i + 1].dataset.v === "" ? null : Number(row.cells[i + 1].dataset.v)));
    place.replaceChildren();
    place.hidden = false;
    for (const plot of new Set(heads.map((h) => h.dataset.plot))) {
      const lines = heads.map((h, i) => ({name: h.dataset.name, unit: h.dataset.unit, title: h.dataset.title, plot: h.dataset.plot, i})).filter((l) => l.plot === plot);
      place.append(figure(lines, times, lines.map((l) => column(l.i)), marks));
    }
  }
};

const said = (v) => (v === null || v === undefined ? "–" : v >= 100 ? Math.round(v).toLocaleString("en") : String(Number(v.toPrecision(3))));

// alone are the places of values that no line leads to.
const alone = (values) => [...values.keys()].filter((i) => values[i] !== null && (values[i - 1] ?? values[i + 1] ?? null) === null);

// drawMarks draws outages as bands, starts and reloads as dashed lines.
const drawMarks = (u, marks, color) => {
  const c = u.ctx;
  const x = (t) => Math.min(u.bbox.left + u.bbox.width, Math.max(u.bbox.left, u.valToPos(t, "x", true)));
  const end = u.scales.x.max;
  c.save();
  for (const m of marks.filter((m) => m.from <= end && (m.kind === "outage" || m.from >= u.scales.x.min))) {
    c.fillStyle = c.strokeStyle = color({outage: "--bad", reload: "--c2", stop: "--weak"}[m.kind] || "--good");
    c.lineWidth = devicePixelRatio;
    c.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
    if (m.kind === "outage") {
      c.globalAlpha = 0.16;
      c.fillRect(x(m.from), u.bbox.top, Math.max(2, x(m.until || end) - x(m.from)), u.bbox.height);
      c.globalAlpha = 1;
    }
    c.beginPath();
    c.moveTo(x(m.from), u.bbox.top);
    c.lineTo(x(m.from), u.bbox.top + u.bbox.height);
    c.stroke();
  }
  c.restore();
};

const figure = (lines, times, columns, marks) => {
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
  const box = document.createElement("figure");
  const caption = document.createElement("figcaption");
  const canvas = document.createElement("div");
  const title = document.createElement("strong");
  title.textContent = lines[0].title + ", " + lines[0].unit;
  caption.append(title);
  const keys = lines.map((l, i) => {
    const key = document.createElement("span");
    key.className = "key k" + i;
    caption.append(key);
    return key;
  });
  const tell = (at) => keys.forEach((key, i) => {
    const last = columns[i].length - 1;
    const text = said(columns[i][at === null || at === undefined ? last : at]);
    key.textContent = lines[i].name + " " + text;
  });
  tell(null);
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", lines.map((l, i) => l.name + ", " + l.unit + ": at most " + said(Math.max(0, ...columns[i]))).join("; ") + ". The table below has the numbers.");
  box.append(caption, canvas);
  const axis = {stroke: color("--weak"), grid: {stroke: color("--line"), width: 1}, ticks: {stroke: color("--line"), width: 1}, font: "12px system-ui, sans-serif"};
  const options = {
    width: 400, height: 170, legend: {show: false}, cursor: {drag: {x: false, y: false}, y: false}, tzDate: (t) => uPlot.tzDate(new Date(t * 1000), "Etc/UTC"),
    scales: {y: {range: (u, min, max) => [0, max > 0 ? max * 1.1 : 1]}},
    axes: [{...axis, values: [[3600 * 24, "{YYYY}-{MM}-{DD}", null, null, null, null, null, null, 1], [3600, "{HH}:{mm}", null, null, null, null, null, null, 1], [60, "{HH}:{mm}", null, null, null, null, null, null, 1], [1, "{HH}:{mm}:{ss}", null, null, null, null, null, null, 1]]},
      {...axis, size: 58, values: (u, ticks) => ticks.map((v) => (v >= 10000 ? Math.round(v / 1000) + " k" : String(Number(v.toPrecision(4)))))}],
    series: [{}, ...lines.map((l, i) => ({label: l.name, stroke: color("--c" + i), width: 2, fill: i === 0 ? color("--c0") + "22" : undefined, points: {size: 6, fill: color("--c" + i), show: true, filter: (u, s) => alone(u.data[s])}}))],
    hooks: {setCursor: [(u) => tell(u.cursor.idx)], drawClear: [(u) => drawMarks(u, marks, color)]},
  };
  // The width is known once it is in the page.
  new ResizeObserver((entries) => {
    const width = Math.floor(entries[0].contentRect.width);
    if (width < 50) {
      return;
    }
    if (box.plot) {
      box.plot.setSize({width, height: options.height});
    } else {
      box.plot = new uPlot({...options, width}, [times, ...columns], canvas);
    }
  }).observe(box);
  return box;
};

for (const live of document.querySelectorAll("[data-live]")) {
  keep(live);
}
draw(document);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw(document));

// Where nothing renews them, times grow older here.
const loaded = Date.now();
const ago = new Intl.RelativeTimeFormat("en");
const units = [["year", 31536000], ["month", 2592000], ["week", 604800], ["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
const grow = () => {
  for (const time of [...document.querySelectorAll("time[data-ago]")].filter((t) => !t.closest("[data-live]"))) {
    const age = Math.max(1, Number(time.dataset.ago) + (Date.now() - loaded) / 1000);
    const [unit, size] = units.find((u) => age >= u[1]);
    time.textContent = ago.format(-Math.floor(age / size), unit);
  }
};
setInterval(grow, 30000);
document.addEventListener("visibilitychange", grow); // a page that nobody sees has slow timers

const all = document.querySelector("[data-all]");
if (all) {
  all.hidden = false;
  all.addEventListener("click", () => {
    const boxes = [...document.querySelectorAll("input[name=id]")];
    const tick = boxes.some((box) => !box.checked);
    boxes.forEach((box) => { box.checked = tick; });
  });
}
