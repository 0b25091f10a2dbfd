// The frame around every page.
import type { ComponentType, JSX } from "preact";
import { useEffect, useErrorBoundary, useRef, useState } from "preact/hooks";

import { Problem as ProblemError } from "../api/problem.ts";
import { Confirmation } from "../design/Confirm.tsx";
import { useCommands, useKeys, type Command } from "../design/keys.ts";
import { Empty, Problem, Waiting } from "../design/Problem.tsx";
import { timeForm, serverTime } from "../design/time.tsx";
import { Toasts } from "../design/Toast.tsx";
import { PAGES, pageAt, type PageEntry } from "../pages/pages.ts";
import { go, place } from "../router/router.ts";
import { Banners } from "./Banners.tsx";
import { Help } from "./Help.tsx";
import { Login } from "./Login.tsx";
import { Nav } from "./Nav.tsx";
import { Palette } from "./Palette.tsx";
import { TopBar } from "./TopBar.tsx";
import { openPalette, overlay, showHelp } from "./overlays.ts";
import { frozenSince, needsLogin, session } from "./state.ts";
import { theme } from "./theme.ts";

export function App(): JSX.Element {
  if (needsLogin.value) return <Login />;
  if (session.value.value === undefined) return <Opening />;
  return <Frame />;
}

function Opening(): JSX.Element {
  const problem = session.problem.value;
  return (
    <main class="login" id="main">
      {problem === null ? <Waiting /> : <Problem problem={problem} onRetry={() => void session.reload()} />}
    </main>
  );
}

/** What can be done on every page, for the palette. */
const COMMANDS: readonly Command[] = [
  { name: "Freeze or go on", run: () => (frozenSince.value = frozenSince.peek() === null ? serverTime() : null) },
  { name: "Light theme", run: () => (theme.value = "light") },
  { name: "Dark theme", run: () => (theme.value = "dark") },
  { name: "Theme of the system", run: () => (theme.value = "system") },
  { name: "Relative times", run: () => (timeForm.value = "relative") },
  { name: "Local times", run: () => (timeForm.value = "local") },
  { name: "UTC times", run: () => (timeForm.value = "utc") },
  { name: "List all keys", run: showHelp },
];

function Frame(): JSX.Element {
  useKeys(
    [
      { keys: "Ctrl+k", does: "Go to any id, page, view or action", act: openPalette, group: "Everywhere" },
      { keys: "?", does: "List all keys", act: showHelp, group: "Everywhere" },
      ...PAGES.flatMap((page) =>
        page.key === undefined
          ? []
          : [{ keys: `g ${page.key}`, does: `Go to ${page.title}`, act: () => go([page.path]), group: "Everywhere" }],
      ),
    ],
    [],
  );
  useCommands(COMMANDS, []);
  return (
    <div class="frame">
      <a
        class="skip"
        href="#main"
        onClick={(event) => {
          event.preventDefault();
          document.getElementById("main")?.focus();
        }}
      >
        Skip to the page
      </a>
      <TopBar />
      <Nav />
      <div class="content">
        <Banners />
        <main id="main" tabIndex={-1}>
          <CurrentPage />
        </main>
      </div>
      <Toasts />
      <Confirmation />
      {overlay.value === "help" && <Help />}
      {overlay.value === "palette" && <Palette />}
    </div>
  );
}

const loaded = new Map<PageEntry, ComponentType>();

function CurrentPage(): JSX.Element {
  const entry = pageAt(place.value.path);
  const [, draw] = useState(0);
  const [problem, setProblem] = useState<ProblemError | null>(null);
  const isFirst = useRef(true);
  const load = () => {
    if (entry === null || loaded.has(entry)) return;
    setProblem(null);
    entry.load().then(
      (module) => {
        loaded.set(entry, module.default);
        draw((count) => count + 1);
      },
      () => setProblem(ProblemError.missingPart()),
    );
  };
  useEffect(load, [entry]);
  useEffect(() => {
    // The focus goes to the new page's title, so that a screen reader reads on there.
    if (!isFirst.current) document.querySelector<HTMLElement>("main h1")?.focus({ preventScroll: true });
    isFirst.current = false;
  }, [entry]);
  if (entry === null)
    return (
      <Empty title="There is no such page">
        <p>The address names a page that this version does not have.</p>
      </Empty>
    );
  const Component = loaded.get(entry);
  if (Component !== undefined) return <Guarded key={entry.title} of={Component} />;
  return problem === null ? (
    <div class="page">
      <Waiting />
    </div>
  ) : (
    <Problem problem={problem} onRetry={() => location.reload()} />
  );
}

/** A page that fails says so; the frame and the other pages go on. */
function Guarded({ of: Component }: { of: ComponentType }): JSX.Element {
  const [error, reset] = useErrorBoundary((thrown: unknown) => console.error(thrown));
  if (error === undefined) return <Component />;
  return (
    <div class="page">
      <Problem problem={ProblemError.from(error)} onRetry={reset} />
    </div>
  );
}
