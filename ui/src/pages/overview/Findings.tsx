// What `perennial doctor` finds: work that does not go on without help, each with its remedy.
import type { JSX } from "preact";

import type { Finding } from "../../api/ops.ts";
import { CodeLine } from "../../design/Copy.tsx";
import { useHeld } from "../../design/hold.tsx";
import { Id } from "../../design/Id.tsx";
import { Rich, capital } from "../../design/Rich.tsx";
import { Icon, type IconName } from "../../design/icons.tsx";
import { href } from "../../router/router.ts";

const PLACES: Record<string, { icon: IconName; path: string; word: string }> = {
  blocked: { icon: "blocked", path: "blocked", word: "See the cause" },
  missing_code: { icon: "deploy", path: "deploy", word: "See who has it" },
  activity_not_registered: { icon: "activities", path: "activities", word: "See activities" },
  activity_failing: { icon: "activities", path: "activities", word: "See activities" },
};
const SHOWN = 8;

export function Findings({
  findings,
  waiting,
  isComplete,
}: {
  findings: readonly Finding[];
  waiting: readonly Finding[];
  isComplete: boolean;
}): JSX.Element {
  const all = [
    ...findings.map((finding) => ({ finding, isNow: true })),
    ...waiting.map((finding) => ({ finding, isNow: false })),
  ];
  const held = useHeld(all, ({ finding }) => `${finding.kind} ${finding.instances[0] ?? finding.text}`);
  if (all.length === 0) {
    return (
      <section class="card findings-none">
        <Icon name="check" />
        <p>
          Nothing needs help.{" "}
          <span class="muted">
            {isComplete
              ? "Doctor looked at all instances: none is blocked, waits for code, or fails repeatedly."
              : "Doctor looked at the first instances only; there are too many to look at all."}
          </span>
        </p>
      </section>
    );
  }
  return (
    <section class="card findings" aria-labelledby="findings-title">
      <header>
        <h2 id="findings-title">Needs attention</h2>
        <span class="count">{all.length}</span>
        <details class="push findings-same">
          <summary>The same in a terminal</summary>
          <CodeLine text="perennial doctor" />
        </details>
      </header>
      <ul {...held.on}>
        {held.rows.slice(0, SHOWN).map(({ finding, isNow }) => (
          <Row key={`${finding.kind}${finding.instances[0] ?? finding.text}`} finding={finding} isNow={isNow} />
        ))}
      </ul>
      {(held.rows.length > SHOWN || !isComplete) && (
        <p class="findings-more muted">
          {held.rows.length > SHOWN && `${held.rows.length - SHOWN} more. `}
          {!isComplete && "There are too many instances to look at all of them."}
        </p>
      )}
    </section>
  );
}

function Row({ finding, isNow }: { finding: Finding; isNow: boolean }): JSX.Element {
  const place = PLACES[finding.kind] ?? { icon: "warning" as const, path: "instances", word: "See instances" };
  const [first, ...others] = finding.instances;
  return (
    <li class={isNow ? "now" : ""}>
      <Icon name={place.icon} />
      <div class="finding-text">
        <p>
          <Rich text={capital(finding.text)} />
        </p>
        <p class="muted">
          <Rich text={capital(finding.remedy)} />
        </p>
      </div>
      <div class="finding-places">
        {first !== undefined && <Id text={first} href={href(["instances", first])} isClipped />}
        {(others.length > 0 || finding.count > 1) && (
          <span class="muted nowrap">and {(finding.count - 1).toLocaleString("en")} more</span>
        )}
      </div>
      <a class="button small" data-row href={href([place.path])}>
        {place.word}
      </a>
    </li>
  );
}
