// The targets of an endpoint in order, with what is known of each, and the picker that adds one.
import { useEffect, useState } from "preact/hooks";
import { call } from "../../api/client";
import { useLive } from "../../api/live";
import { useResource } from "../../api/resource";
import type { LiveProvider } from "../../api/shapes";
import { suggestModels } from "../../api/suggest";
import type { Endpoint, Model, Page as PageOf, Target, Usage } from "../../api/types";
import { href } from "../../app/router";
import { Combobox, without } from "../../part/combobox";
import { isByTraffic, provenAt } from "../../part/evidence";
import { isSettled } from "../../part/feedback";
import { ago, duration, short } from "../../part/format";
import { Icon, State } from "../../part/icon";
import { Ref } from "../../part/links";
import { Card } from "../../part/page";
import { Reorder } from "../../part/reorder";
import { priceOf } from "../provider/models";
import { CircuitMark } from "../providers";
import { sameTarget, targetOf } from "../routes";
import { FIRST_ONLY } from "./cases";
import { type Draft, idOf, movedFrom } from "./draft";

type Props = {
  of: Endpoint;
  draft: Draft;
  before: Draft;
  models: Map<string, Model>;
  usage: Usage | null;
  onDraft: (draft: Draft) => void;
};

export function TargetsCard({ of, draft, before, models, usage, onDraft }: Props) {
  const live = useLive().providers.value;
  const firstOnly = usedOf(usage).flatMap((operation) => FIRST_ONLY[operation] ?? []);
  const member = (target: Target, index: number) => (
    <>
      <Member
        target={target}
        model={models.get(idOf(target))}
        isNew={!before.failover.some((other) => sameTarget(other, target))}
        movedFrom={movedFrom(before, draft, target)}
        neverUsed={index > 0 ? firstOnly : []}
        isServing={(servedBy(usage, target)?.share ?? 0) > 0}
      />
      <Health
        live={live.get(target.provider)}
        reason={of.passed_over.find((other) => sameTarget(other, target))?.reason}
        served={servedBy(usage, target)}
        isProven={isProven(models.get(idOf(target)))}
      />
    </>
  );
  return (
    <Card title="Targets, in order" aside={<span class="faint">share of answers, last 24 h</span>} bare>
      <Reorder
        items={draft.failover}
        keyOf={idOf}
        nameOf={idOf}
        onItems={(failover) => onDraft({ ...draft, failover })}
        classOf={(target) => (before.failover.some((other) => sameTarget(other, target)) ? "" : "added")}
      >
        {member}
      </Reorder>
      {of.warnings.map((warning) => (
        <Warning key={warning}>{warning}</Warning>
      ))}
      <div class="add">
        <Combobox
          label="Add a target"
          placeholder="Add a target: type a model, a provider, or “images under $2”"
          suggest={without(suggestModels, draft.failover.map(idOf))}
          onPick={(picked) => onDraft({ ...draft, failover: [...draft.failover, targetOf(picked)] })}
        />
      </div>
    </Card>
  );
}

/** The facts of the targets' models; null until they are read. Those beyond the first page of the catalog are asked for one by one. */
export function useModels(targets: Target[]): Map<string, Model> | null {
  const catalog = useResource<PageOf<Model>>("catalog?limit=500");
  const first = catalog.data.value;
  const [more, setMore] = useState<Model[]>([]);
  const known = new Map([...(first?.data ?? []), ...more].map((model) => [model.id, model]));
  const missing = first?.next_cursor ? targets.filter((target) => !known.has(idOf(target))) : [];
  useEffect(() => {
    for (const { provider, model } of missing) {
      const search = new URLSearchParams({ provider, q: model, limit: "100" });
      void call<PageOf<Model>>("GET", `catalog?${search}`).then(
        ({ data }) => setMore((old) => [...old, ...data.data]),
        () => undefined,
      );
    }
  }, [missing.map(idOf).join()]);
  return isSettled(catalog) ? known : null;
}

/** The operations that the endpoint was used for. */
export const usedOf = (usage: Usage | null): string[] => [
  ...new Set(usage?.data.flatMap(({ group, requests }) => (requests > 0 && group.operation ? [group.operation] : [])) ?? []),
];

type Served = { share: number; first_us: number | null };

/** A target's share of the answers, and its average time to the first content; null without requests. */
export function servedBy(usage: Usage | null, target: Target): Served | null {
  const all = usage?.data.reduce((sum, { requests }) => sum + requests, 0) ?? 0;
  const own = usage?.data.filter(({ group }) => group.provider === target.provider && group.model === target.model) ?? [];
  const requests = own.reduce((sum, line) => sum + line.requests, 0);
  if (all === 0) return null;
  const timed = own.filter(({ first_content_us_avg }) => first_content_us_avg !== null);
  const weight = timed.reduce((sum, line) => sum + line.requests, 0);
  const spent = timed.reduce((sum, line) => sum + (line.first_content_us_avg ?? 0) * line.requests, 0);
  return { share: requests / all, first_us: weight ? spent / weight : null };
}

type MemberProps = {
  target: Target;
  model: Model | undefined;
  isNew: boolean;
  movedFrom: number | null;
  neverUsed: string[];
  isServing: boolean;
};

const CAPABILITIES = [
  ["vision", "images"],
  ["tools", "tools"],
  ["reasoning", "reasoning"],
  ["audio", "audio"],
] as const;

function Member({ target, model, isNew, movedFrom, neverUsed, isServing }: MemberProps) {
  return (
    <div>
      <div class="member-name">
        <Ref kind="provider" id={target.provider} name={target.provider} />
        <span class="sep">/</span>
        <span class="mono clip">{target.model}</span>
      </div>
      <div class="chips">
        {isNew && <span class="tag accent">added</span>}
        {target.tier !== undefined && target.tier > 1 && <span class="tag">tier {target.tier}</span>}
        {target.weight !== undefined && (
          <span class={target.weight === 0 ? "tag warn" : "tag"}>{target.weight === 0 ? "draining" : `weight ${target.weight}`}</span>
        )}
        {target.first_content_timeout !== undefined && <span class="tag">first content within {target.first_content_timeout} s</span>}
        {movedFrom !== null && <span class="tag accent">moved up from {movedFrom}</span>}
        {model && (isProven(model) || isServing ? <ProvenTag of={model} /> : <span class="tag">unproven</span>)}
        {model?.context_window && <span class="tag">{short(model.context_window)} context</span>}
        {model &&
          CAPABILITIES.map(
            ([field, word]) =>
              model[field] !== null && <span class={model[field] ? "tag" : "tag warn"}>{model[field] ? word : `no ${word}`}</span>,
          )}
        {model &&
          (model.prices ? (
            <span class="tag">{`${priceOf(model, "input")} in · ${priceOf(model, "output")} out`}</span>
          ) : (
            <span class="tag warn">price unknown</span>
          ))}
      </div>
      {model && !model.prices && (
        <Warning>
          Keys with a hard cost limit skip it until it has a price. <a href={href("/models", { open: model.id })}>Set a price</a>
        </Warning>
      )}
      {neverUsed.length > 0 && (
        <Warning>
          {neverUsed.join(", ")}: <b>never used for these: they go to the first target alone</b>
        </Warning>
      )}
    </div>
  );
}

const isProven = (model: Model | undefined): boolean => model !== undefined && provenAt(model) !== null;

function ProvenTag({ of }: { of: Model }) {
  const at = provenAt(of);
  return (
    <span class="tag ok">
      <Icon name="badge-check" small />
      {at === null ? "proven by traffic" : `${isByTraffic(of) ? "answered" : "proven"} ${ago(at)}`}
    </span>
  );
}

function Warning({ children }: { children: preact.ComponentChildren }) {
  return (
    <p class="warning">
      <Icon name="triangle-alert" small />
      <span>{children}</span>
    </p>
  );
}

type HealthProps = { live: LiveProvider | undefined; reason: string | undefined; served: Served | null; isProven: boolean };

/** From this share of failures among at least so many attempts on, a provider is failing. */
const FAILING_SHARE = 0.2;
const FAILING_ATTEMPTS = 10;

function Health({ live, reason, served, isProven }: HealthProps) {
  return (
    <div class="member-health">
      <HealthMark live={live} reason={reason} isUsed={(served?.share ?? 0) > 0 || isProven} />
      {served && (
        <span class="num">
          {Math.round(served.share * 100)} % of answers{served.first_us === null ? "" : `, ${duration(served.first_us)}`}
        </span>
      )}
    </div>
  );
}

function HealthMark({ live, reason, isUsed }: { live: LiveProvider | undefined; reason: string | undefined; isUsed: boolean }) {
  if (reason) return <State kind="off" word={`Skipped: ${reason.replace(/_/g, " ")}`} />;
  if (live && live.circuit.state !== "closed") return <CircuitMark circuit={live.circuit} />;
  if (live && live.attempts >= FAILING_ATTEMPTS && live.failures >= FAILING_SHARE * live.attempts)
    return <State kind="bad" word="Failing" />;
  return isUsed ? <State kind="ok" word="Working" /> : <State kind="off" word="Unproven" />;
}
