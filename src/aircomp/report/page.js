"use strict";

// Theme: the reader's own setting until the button is pressed.
const root = document.documentElement;
const themeButton = document.getElementById("theme");
const systemDark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : systemDark.matches);
const nameTheme = () => { themeButton.textContent = isDark() ? "Light theme" : "Dark theme"; };
themeButton.hidden = false;
themeButton.addEventListener("click", () => {
  root.dataset.theme = isDark() ? "light" : "dark";
  nameTheme();
});
systemDark.addEventListener("change", nameTheme);
nameTheme();

// Sorting: numbers by value, words as people order them, missing values last either way.
function compareCells(a, b, sign) {
  const missing = (cell) => cell.textContent === "–";
  if (missing(a) || missing(b)) return missing(a) - missing(b);
  const [x, y] = [a.dataset.value, b.dataset.value];
  if (x !== undefined && y !== undefined) return sign * (x - y);
  return sign * a.textContent.localeCompare(b.textContent, "en", { numeric: true });
}

function sortBy(table, heading) {
  const column = heading.cellIndex;
  const order = heading.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
  for (const other of table.tHead.rows[0].cells) other.setAttribute("aria-sort", "none");
  heading.setAttribute("aria-sort", order);
  const sign = order === "ascending" ? 1 : -1;
  const rows = [...table.tBodies[0].rows];
  rows.sort((a, b) => compareCells(a.cells[column], b.cells[column], sign));
  table.tBodies[0].append(...rows);
}

for (const table of document.querySelectorAll("table")) {
  if (table.tBodies[0].rows.length < 2) continue;
  for (const heading of table.tHead.rows[0].cells) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    heading.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => sortBy(table, heading));
  }
}

// Copying: where the clipboard is closed to pages, the text is selected instead.
for (const button of document.querySelectorAll(".copy")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const text = button.parentElement.querySelector("pre");
    try {
      await navigator.clipboard.writeText(text.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(text);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
}

// Figures: the nearest point tells its numbers, and lines can be hidden.
const tip = document.createElement("div");
tip.className = "tip";
tip.hidden = true;
document.body.append(tip);

function centre(element) {
  const box = element.getBoundingClientRect();
  return [box.x + box.width / 2, box.y + box.height / 2];
}

function linesOf(drawing) {
  return JSON.parse(drawing.dataset.points).map(([label, points], number) => ({
    label,
    points,
    parts: [...drawing.querySelectorAll(`[id$="-series${number}"], [id*="-series${number}-"]`)],
    marks: [...drawing.querySelectorAll(`[id$="-series${number}"] use`)],
  }));
}

function nearest(lines, x, y) {
  let best = null;
  for (const line of lines) {
    line.marks.forEach((mark, place) => {
      if (mark.closest("[hidden]")) return;
      const [left, top] = centre(mark);
      const distance = Math.hypot(left - x, top - y);
      if (distance < 24 && (best === null || distance < best.distance)) best = { distance, line, place };
    });
  }
  return best;
}

function tell(lines, event) {
  const found = nearest(lines, event.clientX, event.clientY);
  tip.hidden = found === null;
  if (found === null) return;
  const [x, y, spread] = found.line.points[found.place];
  tip.textContent = `${found.line.label}: ${y}${spread && spread !== "–" ? ` ± ${spread}` : ""} at ${x}`;
  tip.style.left = `${Math.min(event.pageX + 12, document.documentElement.clientWidth - tip.offsetWidth - 4)}px`;
  tip.style.top = `${event.pageY + 12}px`;
}

function switches(lines) {
  const row = document.createElement("div");
  row.className = "switches";
  for (const line of lines) {
    const label = document.createElement("label");
    const box = document.createElement("input");
    box.type = "checkbox";
    box.checked = true;
    box.addEventListener("change", () => {
      for (const part of line.parts) {
        part.toggleAttribute("hidden", !box.checked);
        part.style.display = box.checked ? "" : "none";
      }
    });
    label.append(box, ` ${line.label}`);
    row.append(label);
  }
  return row;
}

for (const drawing of document.querySelectorAll(".drawing[data-points]")) {
  const lines = linesOf(drawing);
  drawing.addEventListener("pointermove", (event) => tell(lines, event));
  drawing.addEventListener("pointerleave", () => { tip.hidden = true; });
  if (lines.length > 1) drawing.after(switches(lines));
}

// Tables as files: what is shown, in the order shown.
function csvOf(table) {
  const quoted = (cell) => `"${(cell.dataset.value ?? cell.textContent).replaceAll('"', '""')}"`;
  return [...table.rows].map((row) => [...row.cells].map(quoted).join(",")).join("\r\n");
}

for (const table of document.querySelectorAll("table")) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "csv";
  button.textContent = "Download CSV";
  button.addEventListener("click", () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([csvOf(table)], { type: "text/csv" }));
    link.download = `${table.caption.textContent.toLowerCase().replace(/[^a-z0-9]+/g, "-")}.csv`;
    link.click();
    URL.revokeObjectURL(link.href);
  });
  table.closest(".scroll").after(button);
}
