// Runs before the first paint, so that a chosen theme does not flash in after the system's.
try {
  const theme = localStorage.getItem("perennial.theme");
  if (theme === '"light"' || theme === '"dark"') document.documentElement.dataset.theme = JSON.parse(theme);
} catch {
  // Storage can be switched off; the system's theme is used.
}
