import type { JSX } from "preact";

import { Empty } from "../../design/Problem.tsx";
import { Page } from "../../frame/Page.tsx";

export default function InstancesPage(): JSX.Element {
  return (
    <Page title="Instances">
      <Empty title="No instances">
        <p>Instances appear here.</p>
      </Empty>
    </Page>
  );
}
