// Search, lists of values, sort and pages for long tables; without scripts a table is shown whole.
const ROWS = 25;

for (const table of document.querySelectorAll("table.listing")) {
  const body = table.tBodies[0];
  const all = [...body.rows];
  const heads = [...table.tHead.rows[0].cells];
  let shown = all;
  let page = 0;

  const add = (parent, tag, properties) =>
    parent.appendChild(Object.assign(document.createElement(tag), properties));
  const tools = Object.assign(document.createElement("div"), { className: "tools" });
  const search = add(tools, "input", { type: "search", placeholder: "Search " + all.length + " rows" });
  const lists = heads.map((head, column) => {
    if (!("filter" in head.dataset)) return null;
    const values = [...new Set(all.map((row) => row.cells[column].textContent))].sort(compare);
    const list = add(tools, "select", { title: head.textContent });
    add(list, "option", { value: "", textContent: head.textContent + ": all" });
    values.forEach((value) => add(list, "option", { value, textContent: value }));
    list.addEventListener("change", filter);
    return list;
  });
  const pages = add(tools, "span", {});
  const back = add(pages, "button", { textContent: "‹", title: "Previous rows" });
  const place = add(pages, "span", {});
  const forth = add(pages, "button", { textContent: "›", title: "Next rows" });
  if (all.length > ROWS) table.parentElement.before(tools);

  function draw() {
    const first = page * ROWS;
    const last = Math.min(first + ROWS, shown.length);
    body.replaceChildren(...shown.slice(first, last));
    place.textContent = shown.length ? first + 1 + " to " + last + " of " + shown.length : "none";
    back.disabled = page === 0;
    forth.disabled = last >= shown.length;
  }

  function value(row, column) {
    const cell = row.cells[column];
    return "value" in cell.dataset ? Number(cell.dataset.value) : cell.textContent;
  }

  function compare(a, b) {
    return typeof a === "number" ? a - b : a.localeCompare(b, undefined, { numeric: true });
  }

  function sort(column) {
    const ascending = heads[column].ariaSort !== "ascending";
    heads.forEach((head) => (head.ariaSort = "none"));
    heads[column].ariaSort = ascending ? "ascending" : "descending";
    all.sort((a, b) => (ascending ? 1 : -1) * compare(value(a, column), value(b, column)));
    filter();
  }

  function filter() {
    const words = search.value.toLowerCase().split(/\s+/);
    const chosen = (row) => lists.every((list, k) => !list?.value || row.cells[k].textContent === list.value);
    const found = (row) => words.every((word) => row.textContent.toLowerCase().includes(word));
    shown = all.filter((row) => chosen(row) && found(row));
    page = 0;
    draw();
  }

  heads.forEach((head, column) => {
    head.ariaSort = "none";
    head.addEventListener("click", () => sort(column));
  });
  search.addEventListener("input", filter);
  back.addEventListener("click", () => (page--, draw()));
  forth.addEventListener("click", () => (page++, draw()));
  draw();
}
