// The rehearsal: providers are made to fail, and the page shows what a client would wait for.
import type { Explained, Rehearsed } from "../../api/explain";
import type { ExplainFault, Target } from "../../api/types";
import { href } from "../../app/router";
import { Select } from "../../part/form";
import { duration, plural } from "../../part/format";
import { Icon, Mark } from "../../part/icon";
import { stepWords } from "../../part/outcome";
import { Card } from "../../part/page";
import { BUDGET } from "../provider/timeouts";

/** The ways to fail that can be chosen. */
const FAULTS: [id: string, words: string, fault: Omit<ExplainFault, "provider">][] = [
  ["529", "answers 529", { fault: "status", status: 529 }],
  ["500", "answers 500", { fault: "status", status: 500 }],
  ["429", "answers 429", { fault: "status", status: 429 }],
  ["401", "answers 401", { fault: "status", status: 401 }],
  ["hang", "does not answer", { fault: "hang" }],
  ["cut", "breaks off", { fault: "cut" }],
];

/** The chosen faults by provider, as the address has them: `provider:fault`, separated by commas. */
export type Faults = Map<string, string>;

export function faultsOf(text: string): Faults {
  const pairs = text.split(",").map((pair) => pair.split(":"));
  return new Map(pairs.filter((pair): pair is [string, string] => FAULTS.some(([id]) => id === pair[1])));
}

export const faultsText = (faults: Faults): string => [...faults].map((pair) => pair.join(":")).join(",");

/** The faults to assume. The gateway knows providers of the draft alone. */
export function assumed(faults: Faults, targets: Target[]): ExplainFault[] {
  return [...faults].flatMap(([provider, chosen]) => {
    const fault = FAULTS.find(([id]) => id === chosen)?.[2];
    return fault && targets.some((target) => target.provider === provider) ? [{ provider, ...fault }] : [];
  });
}

type Props = { targets: Target[]; faults: Faults; onFaults: (faults: Faults) => void; of: Explained | undefined };

export function Rehearse({ targets, faults, onFaults, of }: Props) {
  const providers = [...new Set(targets.map(({ provider }) => provider))];
  const choose = (provider: string, fault: string): void => {
    const next = new Map(faults);
    if (fault) next.set(provider, fault);
    else next.delete(provider);
    onFaults(next);
  };
  return (
    <Card title="Rehearse">
      <div class="rehearse">
        <p class="muted">Make targets fail and see what a client would wait for.</p>
        <p class="help">{BUDGET}</p>
        {providers.map((provider) => (
          <div key={provider} class="fault">
            <span class="clip" aria-hidden="true">
              {provider}
            </span>
            <Select
              aria-label={provider}
              value={faults.get(provider) ?? ""}
              onValue={(fault) => choose(provider, fault)}
              options={[["", "works"], ...FAULTS.map(([id, words]): [string, string] => [id, words])]}
            />
          </div>
        ))}
        <Path of={of} />
      </div>
    </Card>
  );
}

function Path({ of }: { of: Explained | undefined }) {
  const path = of?.path ?? [];
  const last = path.at(-1);
  if (!of || !last) return <p class="help steps-place">{of?.refusal?.message ?? "No target would be tried."}</p>;
  const isServed = last.result === "served";
  return (
    <div role="status">
      <ol class="waits" aria-label="What a client would wait for">
        {path.map((step, i) => (
          <li key={i}>
            <Mark kind={step.result === "served" ? "ok" : step.attempts === 0 ? "off" : "failed"} />
            <span class="wrap">{wordsOf(step)}</span>
            <span class="num">{waited(step.ends_at_ms)}</span>
          </li>
        ))}
        {!isServed && (
          <li>
            <Mark kind="bad" />
            <b>The client gets an error</b>
            <span class="num">{waited(last.ends_at_ms)}</span>
          </li>
        )}
      </ol>
      {last.ends_at_ms >= PATIENCE_MS && <TooLong slowest={slowestOf(path)} />}
    </div>
  );
}

const waited = (ms: number): string => (ms === 0 ? "at once" : duration(ms * 1000));

/** `openai-main, 2 attempts: did not answer in time`. */
export function wordsOf({ target, attempts, result, status }: Rehearsed): string {
  if (result === "served") return `${target.provider} answers`;
  if (attempts === 0) return `${target.provider} is skipped: its circuit has opened`;
  return `${target.provider}, ${plural(attempts, "attempt")}: ${stepWords({ ...target, result, status: status ?? undefined })}`;
}

/** The provider that costs the client the most time. */
function slowestOf(path: Rehearsed[]): string {
  const length = (step: Rehearsed): number => step.ends_at_ms - step.starts_at_ms;
  return path.reduce((slowest, step) => (length(step) > length(slowest) ? step : slowest)).target.provider;
}

function TooLong({ slowest }: { slowest: string }) {
  return (
    <p class="warning">
      <Icon name="triangle-alert" small />
      <span>
        A client that waits 60 s would have left. Shorten the <code>timeout</code> of{" "}
        <a href={href(`/providers/${encodeURIComponent(slowest)}`)}>{slowest}</a>.
      </span>
    </p>
  );
}

/** Many clients give up after this time. */
const PATIENCE_MS = 60_000;
