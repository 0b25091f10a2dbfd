import type { JSX } from "preact";

import { Empty } from "../../design/Problem.tsx";
import { Page } from "../../frame/Page.tsx";

export default function BlockedPage(): JSX.Element {
  return (
    <Page title="Blocked">
      <Empty title="No instance is blocked">
        <p>Instances that cannot go on with the code that is registered appear here, by cause.</p>
      </Empty>
    </Page>
  );
}
