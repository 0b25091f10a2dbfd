import { render } from "preact";

import "./design/tokens.css";
import "./design/base.css";
import "./design/components.css";
import "./design/json.css";
import "./frame/frame.css";
import { App } from "./frame/App.tsx";
import { begin } from "./frame/state.ts";

const root = document.getElementById("app");
if (root !== null) render(<App />, root);
void begin();
