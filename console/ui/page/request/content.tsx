// What was captured of a request. It is read when an administrator asks for it only, because the audit records each read.
import { useState } from "preact/hooks";
import { may } from "../../api/client";
import { useResource } from "../../api/resource";
import type { GatewayState, RecordedExchange } from "../../api/types";
import { href } from "../../app/router";
import { RecordedBytes } from "../../part/exchange";
import { Loaded } from "../../part/feedback";
import { Card } from "../../part/page";

export function ContentCard({ id, selector }: { id: string; selector: string }) {
  const [isShown, setShown] = useState(false);
  const isOn = useResource<GatewayState>(may("administer") ? "state" : null).data.value?.captures_bodies;
  return (
    <Card title="Content">
      <p class="muted">
        {isOn ? (
          <>Prompts and answers are kept for 24 hours. </>
        ) : (
          <>
            Prompts and answers are not kept. <code>LLMGW_LOG_REQUEST_BODIES=true</code> keeps those that follow for 24 hours, after a
            restart.{" "}
          </>
        )}
        The <a href={href("/playground", { model: selector })}>Playground</a> shows what a request carries on both sides of the gateway.
      </p>
      {isOn && !isShown && (
        <p class="content-act">
          <button type="button" class="btn" onClick={() => setShown(true)}>
            Show what was captured
          </button>{" "}
          <span class="faint">The audit records it.</span>
        </p>
      )}
      {isShown && <Captured id={id} />}
    </Card>
  );
}

function Captured({ id }: { id: string }) {
  const exchange = useResource<RecordedExchange>(`requests/${encodeURIComponent(id)}/exchange`);
  return (
    <Loaded resource={exchange} part missing={<p role="status">{exchange.error.value?.message}</p>}>
      {({ sides }) => sides.map((side, i) => <RecordedBytes key={`${i} ${side.side}`} of={side} />)}
    </Loaded>
  );
}
