// The page of one instance: where it stands and why on top, then its timeline, history, waits, family and state.
import type { ComponentType, JSX } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";

import { Problem as ProblemError } from "../../api/problem.ts";
import type { InstanceDetails } from "../../api/types.ts";
import { Tabs } from "../../design/Controls.tsx";
import { CopyButton } from "../../design/Copy.tsx";
import { Id } from "../../design/Id.tsx";
import { useKeys } from "../../design/keys.ts";
import { Problem, Waiting, isToldAbove } from "../../design/Problem.tsx";
import { Status, WORDS, standingOf } from "../../design/Status.tsx";
import { Page } from "../../frame/Page.tsx";
import { change, choice, go, href, param, place } from "../../router/router.ts";
import { Actions } from "./Actions.tsx";
import { DeedLine, FateBanner } from "./Deed.tsx";
import { Facts } from "./Facts.tsx";
import { PastBar } from "./PastBar.tsx";
import { PastSentence, Sentence } from "./Sentence.tsx";
import { InstanceModel, pastOf } from "./model.ts";
import "./instance.css";

export interface TabProps {
  model: InstanceModel;
  details: InstanceDetails;
}
type TabModule = { default: ComponentType<TabProps> };

const TABS = ["timeline", "history", "waits", "tree", "state", "compare"] as const;
type TabName = (typeof TABS)[number];
const LABELS: Record<TabName, string> = {
  timeline: "Timeline",
  history: "History",
  waits: "Waits",
  tree: "Tree",
  state: "State",
  compare: "Compare",
};
const LOADERS: Record<TabName, () => Promise<TabModule>> = {
  timeline: () => import("./timeline/TimelineTab.tsx"),
  history: () => import("./history/HistoryTab.tsx"),
  waits: () => import("./waits/WaitsTab.tsx"),
  tree: () => import("./tree/TreeTab.tsx"),
  state: () => import("./state/StateTab.tsx"),
  compare: () => import("./compare/CompareTab.tsx"),
};

export default function InstancePage(): JSX.Element {
  const id = place.value.path[1] ?? "";
  const [generation, setGeneration] = useState(0);
  return <One key={`${generation} ${id}`} id={id} onNew={() => setGeneration((count) => count + 1)} />;
}

function One({ id, onNew }: { id: string; onNew: () => void }): JSX.Element {
  const model = useMemo(() => new InstanceModel(id, param("key")), []);
  useEffect(() => model.start(), [model]);
  const details = model.details.value.value;
  const problem = model.details.problem.value;
  const fate = model.fate.value;
  const standing = details === undefined ? null : standingOf(details);
  const heading = (
    <span class="one-title">
      {standing !== null && fate === null && <Status is={standing} isBare />}
      <Id text={id} />
    </span>
  );
  const showNew = () => {
    change({ key: null, event: null, execution: null, turn: null }, { replace: true });
    onNew();
  };
  return (
    <Page
      title={details === undefined ? id : `${id} ${WORDS[standingOf(details)].toLowerCase()}`}
      heading={heading}
      isFull
      beside={<CopyButton text={id} label="Copy the id" />}
      actions={details !== undefined && fate === null ? <Actions model={model} details={details} /> : undefined}
    >
      <div class={`one ${fate !== null ? "over" : ""}`}>
        {fate !== null && <FateBanner model={model} fate={fate} onNew={showNew} />}
        {problem !== null && fate === null && !(details !== undefined && isToldAbove(problem)) && (
          <div class="one-problem">
            <Problem problem={problem} onRetry={problem.code === "PER-0605" ? undefined : () => void model.details.reload()} />
            {problem.code === "PER-0605" && details === undefined && (
              <p class="row wrap">
                <a class="link" href={href(["instances"], { id_prefix: id })}>
                  Instances whose id begins like this
                </a>
                <a class="link" href={href(["instances"])}>
                  All instances
                </a>
              </p>
            )}
          </div>
        )}
        {details === undefined ? (
          problem === null &&
          fate === null && (
            <div class="one-problem">
              <Waiting />
            </div>
          )
        ) : (
          <Shown model={model} details={details} />
        )}
      </div>
    </Page>
  );
}

function Shown({ model, details }: TabProps): JSX.Element {
  const tab = choice("tab", TABS);
  const select = (next: TabName) => {
    // What is selected and zoomed belongs to the tab that one leaves.
    const kept = { execution: param("execution"), turn: param("turn"), key: param("key") };
    go(["instances", model.id], { tab: next === "timeline" ? null : next, ...kept });
  };
  // From where one is when the key is pressed: two may come before the page is drawn again.
  const step = (by: number) => {
    const at = TABS.indexOf(choice("tab", TABS));
    select(TABS[(at + by + TABS.length) % TABS.length] ?? "timeline");
  };
  useKeys(
    [
      { keys: "[", does: "Previous tab", act: () => step(-1), group: "Instance" },
      { keys: "]", does: "Next tab", act: () => step(1), group: "Instance" },
    ],
    [tab],
  );
  const past = pastOf(details.execution);
  const waiting = details.waits_for.length + details.more_waits;
  const tabs = TABS.map((name) => ({
    id: name,
    label: LABELS[name],
    count:
      name === "waits" && past === null
        ? waiting
        : name === "history" && past === null
          ? (details.events ?? undefined)
          : undefined,
  }));
  return (
    <>
      <section class="one-head" aria-label="Where it stands">
        {past === null ? (
          <Sentence model={model} details={details} />
        ) : (
          <PastSentence model={model} execution={past.execution} turn={past.turn} />
        )}
        <DeedLine model={model} />
        <Facts model={model} details={details} />
      </section>
      <div class="one-tabs">
        <Tabs label="Parts of the instance" tabs={tabs} selected={tab} onSelect={select} />
        <PastBar model={model} details={details} past={past} />
      </div>
      <div role="tabpanel" id={`panel-${tab}`} aria-labelledby={`tab-${tab}`} class={`one-panel ${past !== null ? "past" : ""}`}>
        <LazyTab key={tab} name={tab} model={model} details={details} />
      </div>
    </>
  );
}

const loaded = new Map<TabName, ComponentType<TabProps>>();

/** A tab whose code is loaded when it is first shown. */
function LazyTab({ name, model, details }: TabProps & { name: TabName }): JSX.Element {
  const [, draw] = useState(0);
  const [problem, setProblem] = useState<ProblemError | null>(null);
  const load = () => {
    if (loaded.has(name)) return;
    setProblem(null);
    LOADERS[name]().then(
      (module) => {
        loaded.set(name, module.default);
        draw((count) => count + 1);
      },
      () => setProblem(ProblemError.missingPart()),
    );
  };
  useEffect(load, [name]);
  const Component = loaded.get(name);
  if (Component !== undefined) return <Component model={model} details={details} />;
  return (
    <div class="one-problem">
      {problem === null ? <Waiting /> : <Problem problem={problem} onRetry={() => location.reload()} />}
    </div>
  );
}
