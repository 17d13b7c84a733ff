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
