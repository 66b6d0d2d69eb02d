document.addEventListener("click", event => {
  const head = event.target.closest("th"), table = head && head.closest("table");
  if (!head) return;
  const column = head.cellIndex, down = head.dataset.down = head.dataset.down ? "" : "1";
  const value = row => row.cells[column].textContent;
  const number = text => parseFloat(text.replace(/[^0-9.eE-]/g, ""));
  const rows = [...table.tBodies[0].rows].sort((a, b) => {
    const x = value(a), y = value(b), p = number(x), q = number(y);
    return isNaN(p) || isNaN(q) ? x.localeCompare(y) : p - q;
  });
  table.tBodies[0].append(...(down ? rows : rows.reverse()));
});
