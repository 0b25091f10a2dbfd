// Instances whose version no owner has registered. They are not blocked yet: a deployment in progress often brings the code.
import type { JSX } from "preact";

import type { Finding } from "../../api/ops.ts";
import { Id } from "../../design/Id.tsx";
import { Rich, capital } from "../../design/Rich.tsx";
import { href } from "../../router/router.ts";

export function WaitingForCode({ findings }: { findings: readonly Finding[] }): JSX.Element | null {
  if (findings.length === 0) return null;
  return (
    <section class="stack">
      <div class="section-head">
        <h2>Not blocked yet</h2>
        <p>These wait for a while, because an upgrade in progress may bring what they need.</p>
      </div>
      <ul class="folds">
        {findings.map((finding) => (
          <li key={finding.text} class="fold waiting-code">
            <p>
              <Rich text={capital(finding.text)} />
            </p>
            <p class="muted">
              <Rich text={capital(finding.remedy)} />
            </p>
            <div class="row wrap">
              {finding.instances.slice(0, 5).map((id) => (
                <a key={id} class="chip" href={href(["instances", id])}>
                  <Id text={id} isClipped />
                </a>
              ))}
              {finding.count > 5 && <span class="muted">and {(finding.count - 5).toLocaleString("en")} others</span>}
            </div>
          </li>
        ))}
      </ul>
    </section>
  );
}
