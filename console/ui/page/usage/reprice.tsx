// Setting a price that was not known, and computing the costs of what was used before.
import { useState } from "preact/hooks";
import { call } from "../../api/client";
import { changed, useResource } from "../../api/resource";
import type { Repriced, Usage, UsageLine } from "../../api/types";
import { setParams } from "../../app/router";
import { Dialog } from "../../part/dialog";
import { Loaded } from "../../part/feedback";
import { Field, Form, FormButtons, FormFooterError, Select, useSubmission } from "../../part/form";
import { day, dollars, plural } from "../../part/format";
import { dateOf } from "../../part/moment";
import { PriceForm } from "../models/price_form";
import type { Span } from "./span";

type Props = {
  /** `provider/model`, or a part of it, as the address names it. */
  wanted: string;
  span: Span;
};

const idOf = ({ group }: UsageLine): string => `${group.provider}/${group.model}`;

export function Reprice({ wanted, span }: Props) {
  const search = new URLSearchParams({
    group_by: "provider,model",
    from: String(span.from),
    to: String(span.to),
    sort: "requests_unpriced",
    limit: "500",
  });
  const usage = useResource<Usage>(`usage?${search}`);
  return (
    <Dialog title="Set a price and reprice" wide onClose={() => setParams({ reprice: null })}>
      <Loaded resource={usage} rows={3}>
        {({ data }) => <Steps lines={data.filter((line) => line.group.model && line.group.provider)} wanted={wanted} span={span} />}
      </Loaded>
    </Dialog>
  );
}

function Steps({ lines, wanted, span }: Props & { lines: UsageLine[] }) {
  // What is chosen stays when the list is read again without it.
  const [all] = useState(() => lines.filter((line) => line.requests_unpriced > 0 || idOf(line) === wanted));
  const [id, choose] = useState(() => idOf(all.find((line) => idOf(line) === wanted || idOf(line).endsWith(wanted)) ?? all[0] ?? NOTHING));
  const [isPriced, setPriced] = useState(false);
  const line = all.find((other) => idOf(other) === id);
  if (!line) return <p>Every attempt of this time has a price.</p>;
  const { provider, model } = line.group;
  const target = { id, provider: provider ?? "", model: model ?? "" };
  if (isPriced) return <Recalculate of={target} requests={line.requests} span={span} />;
  return (
    <div class="form">
      <Field
        label="Model"
        name="model"
        help={`${plural(line.requests_unpriced, "attempt")} of ${day(span.from)} to ${day(span.to - 1)} without a price.`}
      >
        <Select value={id} onValue={choose} options={all.map((other): [string, string] => [idOf(other), idOf(other)])} />
      </Field>
      <PriceForm key={id} of={target} from={dateOf(span.from)} submit="Set price and go on" onSaved={() => setPriced(true)} />
    </div>
  );
}

const NOTHING = { group: {} } as UsageLine;

type Target = { id: string; provider: string; model: string };

function Recalculate({ of, requests, span }: { of: Target; requests: number; span: Span }) {
  const [sum, setSum] = useState<Repriced | null>(null);
  const submission = useSubmission();
  const run = (): void =>
    void submission.run(Date.now(), async () => {
      setSum(await reprice({ from: span.from, to: span.to, provider: of.provider, model: of.model }));
      changed("usage", "requests", "series");
    });
  if (sum) {
    return (
      <div class="form" role="status">
        <p>
          {plural(sum.changed, "request")} changed: {dollars(sum.cost_micro_usd_before)} became <b>{dollars(sum.cost_micro_usd)}</b>.
        </p>
        {sum.unpriced > 0 && (
          <p class="alert warn">{plural(sum.unpriced, "request")} still without a price: it holds from a later day, or lacks a class.</p>
        )}
        <div class="dialog-foot">
          <button type="button" class="btn primary" onClick={() => setParams({ reprice: null })}>
            Done
          </button>
        </div>
      </div>
    );
  }
  return (
    <Form submission={submission} onSubmit={run}>
      <p class="wrap">The price of {of.id} is set.</p>
      <p>
        Recalculates {plural(requests, "request")} from {day(span.from)} to {day(span.to - 1)}.
      </p>
      <FormFooterError />
      <FormButtons
        busy={submission.busy}
        submit="Recalculate"
        submitting="Recalculating…"
        cancel="Not now"
        onCancel={() => setParams({ reprice: null })}
        saves={false}
      />
    </Form>
  );
}

/** Recalculates in as many steps as the gateway takes, and sums them up. */
async function reprice(body: { from: number; to: number; provider: string; model: string }): Promise<Repriced> {
  let sum: Repriced | null = null;
  let cursor: string | null = null;
  do {
    const { data }: { data: Repriced } = await call<Repriced>("POST", "usage/reprice", { body: cursor ? { ...body, cursor } : body });
    sum = sum
      ? {
          ...data,
          records: sum.records + data.records,
          changed: sum.changed + data.changed,
          unpriced: sum.unpriced + data.unpriced,
          cost_micro_usd: sum.cost_micro_usd + data.cost_micro_usd,
          cost_micro_usd_before: sum.cost_micro_usd_before + data.cost_micro_usd_before,
        }
      : data;
    cursor = data.next_cursor;
  } while (cursor);
  return sum;
}
