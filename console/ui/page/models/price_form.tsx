// The form that sets the whole price of a model from a day on: every class of units, longer prompts and service tiers.
import { useMemo, useState } from "preact/hooks";
import { call } from "../../api/client";
import { changed, useResource } from "../../api/resource";
import type { Model, Page as PageOf, Usage } from "../../api/types";
import { Loaded, notify } from "../../part/feedback";
import { Field, Form, FormFooterError, Text, useSubmission } from "../../part/form";
import { capital } from "../../part/format";
import { Icon } from "../../part/icon";
import { CLASSES, draftOf, isBase, NEW_PART, type Part, partTitle, pricesOf, unknownAfter } from "./price_draft";

type Target = Pick<Model, "id" | "provider" | "model">;

type Props = {
  of: Target;
  /** What the catalog has about it, which is asked for if it is absent. */
  known?: Model;
  /** The day that the form begins with. */
  from?: string;
  submit?: string;
  onSaved?: () => void;
};

/** Sets the price of a model from a day on. The form begins with the standing price. */
export function PriceForm({ known, ...props }: Props) {
  const { provider, model } = props.of;
  const search = new URLSearchParams({ provider, q: model, limit: "500" });
  const models = useResource<PageOf<Model>>(known ? null : `catalog?${search}`);
  // It begins again when the standing price has changed.
  const fields = (found: Model | undefined) => <Fields key={JSON.stringify(found?.prices)} {...props} model={found} />;
  if (known) return fields(known);
  return (
    <Loaded resource={models} rows={3}>
      {({ data }) => fields(data.find((other) => other.model === model))}
    </Loaded>
  );
}

const DAYS_30_MS = 30 * 86_400_000;
const HOUR_MS = 3_600_000;

/** The names of the classes of which recent requests used some. */
function useUsed({ provider, model }: Target): string[] {
  const to = useMemo(() => Math.ceil(Date.now() / HOUR_MS) * HOUR_MS, []);
  const search = new URLSearchParams({ provider, model, from: String(to - DAYS_30_MS), to: String(to) });
  const totals = useResource<Usage>(`usage?${search}`).data.value?.totals;
  return Object.entries({ ...totals?.tokens, ...totals?.units }).flatMap(([name, amount]) => (amount > 0 ? [name] : []));
}

function Fields({ of, model, from: first = "", submit = "Set price", onSaved }: Omit<Props, "known"> & { model: Model | undefined }) {
  // What is typed stays when the catalog is read again.
  const [standing] = useState(() => draftOf(model?.prices ?? null));
  const [draft, setDraft] = useState(standing);
  const [from, setFrom] = useState(first);
  const used = useUsed(of);
  const submission = useSubmission();
  const unknown = unknownAfter(draft, standing, used);
  const save = (): void => {
    const body = {
      provider: of.provider,
      model: of.model,
      ...(from ? { effective_from: `${from}T00:00:00Z` } : {}),
      facts: { prices: pricesOf(draft) },
    };
    void submission.run(body, async (repeatKey) => {
      await call("POST", "catalog/overrides", { body, repeatKey });
      changed("catalog");
      notify(`The price of ${of.id} is set`);
      onSaved?.();
    });
  };
  const update = (at: number, part: Part): void => setDraft(draft.map((other, i) => (i === at ? part : other)));
  return (
    <Form submission={submission} onSubmit={save} label="Price from a day on">
      {draft.map((part, at) => (
        <PartFields
          // Parts have no identity but their place.
          key={String(at)}
          of={part}
          isStandard={at === 0}
          shown={[...used, ...(model?.unpriced ?? [])]}
          onChange={(changed) => update(at, changed)}
          onRemove={() => setDraft(draft.filter((_, i) => i !== at))}
        />
      ))}
      <div class="form-row">
        <Field label="From (UTC)" name="effective_from" optional help="Empty: from now on.">
          <Text type="date" value={from} onValue={setFrom} />
        </Field>
      </div>
      <div class="status-place" role="status">
        {unknown.length > 0 && (
          <p class="alert warn wrap">Unknown at this price: {unknown.join("; ")}. Requests that use it will have no known cost.</p>
        )}
      </div>
      <FormFooterError />
      <div class="dialog-foot">
        <button type="button" class="btn" onClick={() => setDraft([...draft, NEW_PART])}>
          <Icon name="plus" small />
          Add tier or longer prompts
        </button>
        <button type="submit" class="btn" data-save disabled={submission.busy}>
          {submit}
        </button>
      </div>
    </Form>
  );
}

type PartProps = {
  of: Part;
  isStandard: boolean;
  /** Names of classes that are shown even without a price. */
  shown: string[];
  onChange: (part: Part) => void;
  onRemove: () => void;
};

function PartFields({ of, isStandard, shown, onChange, onRemove }: PartProps) {
  // A class stays where it is while its price is typed.
  const [first] = useState(of);
  const isShown = ({ name, counted, isCommon }: (typeof CLASSES)[number]): boolean =>
    Boolean(first.rates[name]) || (isStandard && (isCommon || shown.includes(counted) || shown.includes(name)));
  const set = (changes: Partial<Part>): void => onChange({ ...of, ...changes });
  const classField = ({ name, title, unit }: (typeof CLASSES)[number]) => (
    <Field key={name} label={`${title} (${unit})`} name={`facts.prices.${name}`}>
      <Text inputMode="decimal" value={of.rates[name] ?? ""} onValue={(typed) => set({ rates: { ...of.rates, [name]: typed } })} />
    </Field>
  );
  const rest = CLASSES.filter((one) => !isShown(one));
  const title = isBase(of) ? (isStandard ? "Price" : "Tier or longer prompts") : capital(partTitle(of));
  return (
    <fieldset class="price-part">
      <legend>{title}</legend>
      {!isStandard && (
        <div class="form-row">
          <Field label="Service tier" name="facts.prices.tiers" help="As the answer names it; empty: the standard one.">
            <Text value={of.tier} onValue={(tier) => set({ tier: tier.trim() })} />
          </Field>
          <Field label="Prompts above (input tokens)" name="facts.prices.above" optional>
            <Text inputMode="numeric" value={of.above} onValue={(above) => set({ above: above.trim() })} />
          </Field>
          {of.tier !== "" && of.above === "" && (
            <Field label="Times the standard price" name="facts.prices.tiers.times" help="Instead of prices of its own.">
              <Text inputMode="decimal" value={of.times} onValue={(times) => set({ times })} />
            </Field>
          )}
        </div>
      )}
      <div class="form-row">{CLASSES.filter(isShown).map(classField)}</div>
      <details>
        <summary>Other units</summary>
        <div class="form-row">
          {rest.map(classField)}
          {of.above === "" && (
            <>
              <Field label="Known up to (input tokens)" name="facts.prices.input_tokens_max" optional>
                <Text inputMode="numeric" value={of.max} onValue={(max) => set({ max })} />
              </Field>
              <Field label="Sizes of images ($ each)" name="facts.prices.pictures" help="A line each: 1024x1024 0.04">
                <textarea class="input" rows={2} value={of.pictures} onInput={(e) => set({ pictures: e.currentTarget.value })} />
              </Field>
            </>
          )}
        </div>
      </details>
      {!isStandard && (
        <button type="button" class="btn small" aria-label={`Remove: ${title}`} onClick={onRemove}>
          <Icon name="x" small />
          Remove
        </button>
      )}
    </fieldset>
  );
}
