// The pages, with counts where a count says something.
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";

import { countText } from "../design/Controls.tsx";
import { Icon } from "../design/icons.tsx";
import { FIRST, PAGES } from "../pages/pages.ts";
import { href, place } from "../router/router.ts";
import { operations, stats } from "./state.ts";

export function Nav(): JSX.Element {
  const here = place.value.path[0] ?? FIRST;
  const list = useRef<HTMLUListElement>(null);
  // On a small screen the pages are a strip, in which the current one may be out of sight.
  useEffect(() => {
    list.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  }, [here]);
  return (
    <nav class="nav" aria-label="Pages">
      <ul ref={list}>
        {PAGES.map((page) => (
          <li key={page.path}>
            <a href={href([page.path])} aria-current={page.path === here ? "page" : undefined}>
              {page.icon !== undefined && <Icon name={page.icon} />}
              <span>{page.title}</span>
              <NavCount path={page.path} />
            </a>
          </li>
        ))}
      </ul>
    </nav>
  );
}

function NavCount({ path }: { path: string }): JSX.Element | null {
  const counts = stats.value;
  if (counts === null) return null;
  if (path === "blocked" && counts.blocked.rows > 0) return <span class="chip amber push">{countText(counts.blocked)}</span>;
  if (path === "activities" && counts.tasks_waiting.rows > 0)
    return (
      <span class="count push" title="waiting for a retry">
        {countText(counts.tasks_waiting)}
      </span>
    );
  const running = operations.value.filter((operation) => operation.state === "running").length;
  if (path === "operations" && running > 0) return <span class="chip blue push">{running}</span>;
  return null;
}
