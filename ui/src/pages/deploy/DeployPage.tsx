// Which code is registered where, which of it is still needed, and whether the next deployment fits.
import type { JSX } from "preact";

import { get } from "../../api/client.ts";
import { useLoad } from "../../api/load.ts";
import { useRowKeys } from "../../design/Fold.tsx";
import { Part } from "../../design/Problem.tsx";
import { Page } from "../../frame/Page.tsx";
import { useRefresh } from "../../frame/refresh.ts";
import { Changes } from "./Changes.tsx";
import { Preflights } from "./Preflights.tsx";
import { Versions } from "./Versions.tsx";
import "./deploy.css";

export default function DeployPage(): JSX.Element {
  const versions = useLoad(
    (signal) => get("orchestrations", { signal, query: { since_ms: new Date().setHours(0, 0, 0, 0) } }),
    [],
  );
  const nodes = useLoad((signal) => get("nodes", { signal }), []);
  const preflights = useLoad((signal) => get("preflights", { signal }), []);
  const causes = useLoad((signal) => get("blocked", { signal }), []);
  useRefresh([versions, nodes, causes], { afterMs: 5_000 });
  useRefresh([preflights], { afterMs: 15_000 });
  useRowKeys();
  const live = (nodes.value.value?.nodes ?? []).filter((node) => node.is_live);
  return (
    <Page title="Deploy">
      <Part of={versions}>{(value) => <Versions rows={value.orchestrations} live={live} />}</Part>
      <Part of={preflights}>{(value) => <Preflights reports={value.preflights} />}</Part>
      <Part of={nodes} waiting={<></>}>
        {(value) => <Changes nodes={value.nodes} causes={causes.value.value?.causes ?? []} />}
      </Part>
    </Page>
  );
}
