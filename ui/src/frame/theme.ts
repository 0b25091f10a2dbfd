// Light and dark. `theme.js` sets the same attribute before the first paint.
import { effect } from "@preact/signals";

import { oneOf, remembered } from "../router/memory.ts";

export const theme = remembered<"system" | "light" | "dark">("theme", "system", oneOf("system", "light", "dark"));

effect(() => {
  if (theme.value === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = theme.value;
});
