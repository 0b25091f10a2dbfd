// Which code is registered where, which of it is still needed, and whether the next deployment fits.
import type { JSX } from "preact";

import { useLoad } from "../../api/load.ts";
import { read } from "../../api/ops.ts";
import { useRowKeys } from "../../design/Fold.tsx";
import { Part } from "../../design/Problem.tsx";
import { Page } from "../../frame/Page.tsx";
import { useRefresh } from "../../frame/refresh.ts";
import { Changes } from "./Changes.tsx";
import { Preflights } from "./Preflights.tsx";
import { Versions } from "./Versions.tsx";
import "./deploy.css";

export default function DeployPage(): JSX.Element {
  const versions = useLoad((signal) => read("orchestrations", signal, { since_ms: new Date().setHours(0, 0, 0, 0) }), []);
  const nodes = useLoad((signal) => read("nodes", signal), []);
  const preflights = useLoad((signal) => read("preflights", signal), []);
  const causes = useLoad((signal) => read("blocked", signal), []);
  useRefresh([versions, nodes, causes], { afterMs: 5_000 });
  useRefresh([preflights], { afterMs: 15_000 });
  useRowKeys();
  const live = (nodes.value.value?.nodes ?? []).filter((node) => node.is_live);
  return (
    <Page title="Deploy">
      <Part of={versions}>{(value) => <Versions rows={value.orchestrations} live={live} />}</Part>
      <Part of={preflights}>{(value) => <Preflights reports={value.preflights} />}</Part>
      <Part of={nodes} waiting={<></>}>{(value) => <Changes nodes={value.nodes} causes={causes.value.value?.causes ?? []} />}</Part>
    </Page>
  );
}
