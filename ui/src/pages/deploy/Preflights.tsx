// Reports of preflights: whether open instances can go on with the code of the next build.
import type { JSX } from "preact";
import { useState } from "preact/hooks";

import { API } from "../../api/client.ts";
import { Code, CodeLine } from "../../design/Copy.tsx";
import { Fold } from "../../design/Fold.tsx";
import { Id, Text } from "../../design/Id.tsx";
import { Payload } from "../../design/Json.tsx";
import { Time } from "../../design/time.tsx";
import { Icon } from "../../design/icons.tsx";
import { change, href, param } from "../../router/router.ts";
import { readReport, withoutCode, type Incompatible, type Report } from "./report.ts";

interface Left {
  label: string;
  at_ms: number;
  report: unknown;
}
const SHOWN = 50;

export function Preflights({ reports }: { reports: readonly Left[] }): JSX.Element {
  const opened = param("preflight");
  return (
    <section class="stack">
      <div class="section-head">
        <h2>Preflights</h2>
        <p>Open instances, replayed with the code of a build before it was deployed.</p>
      </div>
      {reports.length === 0 ? (
        <None />
      ) : (
        <ul class="folds">
          {reports.map((left) => {
            const id = `${left.at_ms} ${left.label}`;
            return (
              <Row
                key={id}
                left={left}
                isOpen={opened === id}
                onToggle={() => change({ preflight: opened === id ? null : id })}
              />
            );
          })}
        </ul>
      )}
    </section>
  );
}

function None(): JSX.Element {
  const send = `curl -H 'Content-Type: application/json' -d @- ${API}preflights`;
  return (
    <div class="card deploy-teach">
      <p>
        No report has been left. A preflight replays every open instance with the code of the calling program and changes nothing:
        run it with the new binary while the old one still runs, and leave its report here.
      </p>
      <pre tabIndex={0}>
        <code>{`let report = shop().preflight().await?;
println!("{}", serde_json::to_string(&report)?);`}</code>
      </pre>
      <CodeLine text={`shop preflight | jq '{label: "build 42", report: .}' | ${send}`} />
    </div>
  );
}

function Row({ left, isOpen, onToggle }: { left: Left; isOpen: boolean; onToggle: () => void }): JSX.Element {
  const report = readReport(left.report);
  const bad = report === null ? 0 : report.incompatible.length + withoutCode(report);
  return (
    <Fold
      isOpen={isOpen}
      onToggle={onToggle}
      title={
        <span class="fold-title">
          <b>
            <Text text={left.label} />
          </b>
          <span class="sub">
            <Time ms={left.at_ms} />
          </span>
        </span>
      }
      body={() => (report === null ? <Payload value={left.report} name="report" /> : <Body report={report} />)}
    >
      {report !== null && (
        <span class="figure">
          <b>{report.checked.toLocaleString("en")}</b>
          <span>open checked</span>
        </span>
      )}
      <span class="preflight-verdict">
        {report === null ? (
          <span class="chip plain">Not readable here</span>
        ) : bad === 0 ? (
          <span class="chip green">
            <Icon name="check" size={12} /> All can go on
          </span>
        ) : (
          <span class="chip red">
            <Icon name="warning" size={12} /> {bad.toLocaleString("en")} cannot go on
          </span>
        )}
      </span>
    </Fold>
  );
}

function Body({ report }: { report: Report }): JSX.Element {
  const missing = withoutCode(report);
  return (
    <>
      <p>
        {report.checked.toLocaleString("en")} open: {report.compatible.toLocaleString("en")} compatible,{" "}
        {report.incompatible.length.toLocaleString("en")} incompatible, {missing.toLocaleString("en")} without code.
      </p>
      {report.incompatible.length > 0 && (
        <div class="table-scroll deploy-bordered" tabIndex={0} role="region" aria-label="Incompatible instances">
          <table class="table cards">
            <thead>
              <tr>
                <th scope="col">Instance</th>
                <th scope="col">Orchestration</th>
                <th scope="col" class="num">
                  Event
                </th>
                <th scope="col">Source</th>
                <th scope="col">Difference</th>
              </tr>
            </thead>
            <tbody>
              {report.incompatible.slice(0, SHOWN).map((each) => (
                <IncompatibleRow key={each.id} each={each} />
              ))}
            </tbody>
          </table>
        </div>
      )}
      {report.incompatible.length > SHOWN && (
        <p class="hint">{(report.incompatible.length - SHOWN).toLocaleString("en")} more are in the report.</p>
      )}
      {report.missing.length > 0 && (
        <ul class="stack">
          {report.missing.map((each) => (
            <li key={`${each.name} ${each.version}`}>
              <Id text={each.name} /> <code>{each.version === "" ? "(any version)" : each.version}</code> is not registered;{" "}
              {each.instances.toLocaleString("en")} open {each.instances === 1 ? "instance needs" : "instances need"} it:{" "}
              {each.ids.slice(0, 5).map((id, index) => (
                <>
                  {index > 0 && ", "}
                  <Id text={id} href={href(["instances", id])} />
                </>
              ))}
            </li>
          ))}
        </ul>
      )}
    </>
  );
}

function IncompatibleRow({ each }: { each: Incompatible }): JSX.Element {
  const [isOpen, setOpen] = useState(false);
  return (
    <>
      <tr>
        <td class="deploy-instance whole">
          <Id text={each.id} href={href(["instances", each.id], { tab: "history", event: each.event })} isClipped />
        </td>
        <td class="nowrap" data-label="Orchestration">
          <Id text={each.name} /> <span class="muted">{each.version}</span>
        </td>
        <td class="num" data-label="Event">
          {each.event ?? "–"}
        </td>
        <td class="mono deploy-place whole">{each.location === null ? "–" : <Text text={each.location} />}</td>
        <td class="deploy-reason whole">
          {each.code !== "" && <Code code={each.code} />}{" "}
          <Text text={each.reason.replace(/^PER-\d{4}[^:]*: (instance .*?, event \d+: )?/, "")} />{" "}
          {each.report !== "" && (
            <button type="button" class="button quiet small" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
              Report
            </button>
          )}
        </td>
      </tr>
      {isOpen && (
        <tr>
          <td class="whole" colSpan={5}>
            <pre class="deploy-report" tabIndex={0}>
              <Text text={each.report} keepLines />
            </pre>
          </td>
        </tr>
      )}
    </>
  );
}
