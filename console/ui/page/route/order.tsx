// The order of an endpoint's targets, and its further names.
import { useState } from "preact/hooks";
import type { Target, TargetOrder } from "../../api/types";
import { Check, Labelled, Select, Text } from "../../part/form";
import { Icon } from "../../part/icon";
import { Card } from "../../part/page";
import { type Draft, idOf, staysWith } from "./draft";

type Props = { draft: Draft; onDraft: (draft: Draft) => void };

const ORDERS: [TargetOrder, string, string][] = [
  ["listed", "As listed", "The first target that can serve gets the request."],
  ["weighted", "By weight, at random", "Each target gets its share of the requests."],
  ["least_busy", "Least busy", "The target with the fewest requests in flight for its weight."],
  ["fastest", "Fastest", "The faster of two drawn targets, by the time to the first content and the requests in flight."],
  ["cheapest", "Cheapest", "The target at which the request probably costs least."],
];

export function OrderCard({ draft, onDraft }: Props) {
  const { order, failover } = draft;
  const isAlone = failover.length < 2;
  const choose = (next: string): void => {
    const chosen = ORDERS.find(([name]) => name === next)?.[0] ?? "listed";
    onDraft({ ...draft, order: chosen, sticky: null });
  };
  return (
    <Card title="Order">
      {!isAlone && <Select aria-label="Order" value={order} onValue={choose} options={ORDERS.map(([name, label]) => [name, label])} />}
      <p class="help">{isAlone ? "An order needs two targets." : ORDERS.find(([name]) => name === order)?.[2]}</p>
      {!isAlone && (
        <Check
          label="Sessions stay at their target"
          help="A conversation keeps its prompt cache. After a failover it stays at the new target."
          checked={staysWith(draft)}
          onChange={(stays) => onDraft({ ...draft, sticky: stays === (order !== "listed") ? null : stays })}
        />
      )}
      {!isAlone &&
        order !== "listed" &&
        failover.map((target) => <ShareFields key={idOf(target)} target={target} draft={draft} onDraft={onDraft} />)}
    </Card>
  );
}

/** The time in which a stream of each target must have content. */
export function FirstContentCard({ draft, onDraft }: Props) {
  const change = (target: Target, text: string): void => {
    const seconds = Number(text);
    const { first_content_timeout: _, ...rest } = target;
    const changed = text.trim() === "" || Number.isNaN(seconds) ? rest : { ...rest, first_content_timeout: seconds };
    onDraft({ ...draft, failover: draft.failover.map((other) => (other === target ? changed : other)) });
  };
  return (
    <Card title="First content">
      {draft.failover.map((target) => (
        <div key={idOf(target)} class="row">
          <span class="mono clip grow">{idOf(target)}</span>
          <Labelled label="Seconds">
            <input
              class="input"
              type="number"
              aria-label={`Seconds until the first content of ${idOf(target)}`}
              min={0}
              step="any"
              value={target.first_content_timeout ?? ""}
              onChange={(e) => change(target, e.currentTarget.value)}
            />
          </Labelled>
        </div>
      ))}
      <p class="help">A stream without content by then is given up, and the next target is tried. Empty: the time of the provider.</p>
    </Card>
  );
}

/** The weight and the tier of a target. */
function ShareFields({ target, draft, onDraft }: Props & { target: Target }) {
  const change = (field: "weight" | "tier", text: string): void => {
    const number = Number.parseInt(text, 10);
    const { [field]: _, ...rest } = target;
    const changed = Number.isNaN(number) || number === 1 ? rest : { ...rest, [field]: number };
    onDraft({ ...draft, failover: draft.failover.map((other) => (other === target ? changed : other)) });
  };
  const isCheapest = draft.order === "cheapest";
  return (
    <div class="row">
      <span class="mono clip grow">{idOf(target)}</span>
      {isCheapest ? (
        <Check label="Drains" checked={target.weight === 0} onChange={(drains) => change("weight", drains ? "0" : "1")} />
      ) : (
        <Labelled label="Weight">
          <input
            class="input"
            type="number"
            aria-label={`Weight of ${idOf(target)}`}
            min={0}
            max={1000}
            value={target.weight ?? 1}
            onInput={(e) => change("weight", e.currentTarget.value)}
          />
        </Labelled>
      )}
      <Labelled label="Tier">
        <input
          class="input"
          type="number"
          aria-label={`Tier of ${idOf(target)}`}
          min={1}
          max={9}
          value={target.tier ?? 1}
          onInput={(e) => change("tier", e.currentTarget.value)}
        />
      </Labelled>
    </div>
  );
}

export function NamesCard({ draft, onDraft }: Props) {
  const [text, setText] = useState("");
  const add = (): void => {
    const name = text.trim();
    if (name && !draft.also.includes(name)) onDraft({ ...draft, also: [...draft.also, name] });
    setText("");
  };
  return (
    <Card title="Further names and clients">
      <div class="chosen">
        {draft.also.map((name) => (
          <span key={name} class="tag">
            <span class="mono clip">{name}</span>
            <button
              type="button"
              aria-label={`Remove ${name}`}
              onClick={() => onDraft({ ...draft, also: draft.also.filter((other) => other !== name) })}
            >
              <Icon name="x" small />
            </button>
          </span>
        ))}
      </div>
      <form
        class="row"
        onSubmit={(e) => {
          e.preventDefault();
          add();
        }}
      >
        <Text aria-label="Further name" value={text} onValue={setText} placeholder="claude-sonnet-5, or claude-haiku-*" />
        <button type="submit" class="btn" disabled={!text.trim()}>
          Add
        </button>
      </form>
      <p class="help">Clients may send these names too. A name that ends in * stands for all that begin so.</p>
      <Check
        label="Accept bodies of Cursor"
        help="Cursor sends requests of the Responses API to /v1/chat/completions. Without this they are refused."
        checked={draft.cursor_bodies}
        onChange={(accepts) => onDraft({ ...draft, cursor_bodies: accepts })}
      />
    </Card>
  );
}
