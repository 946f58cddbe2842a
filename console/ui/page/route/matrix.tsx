// Which target of the draft would serve which kind of request.

import type { Explanations } from "../../api/explain";
import { activeKeys } from "../../api/objects";
import { useResource } from "../../api/resource";
import type { Key, Model, Target } from "../../api/types";
import { Combobox, without } from "../../part/combobox";
import { Differences, showDifferences } from "../../part/differences";
import { FormError } from "../../part/form";
import { Icon } from "../../part/icon";
import { Ref } from "../../part/links";
import { Card } from "../../part/page";
import { type Cell, rowsOf } from "./cases";
import { idOf } from "./draft";

type Props = {
  of: Explanations;
  targets: Target[];
  /** What is known of the targets' models. */
  models: Map<string, Model>;
  keys: string[];
  onKeys: (keys: string[]) => void;
};

/** The keys that can be added as rows. */
export const KEYS_MAX = 8;

export function Matrix({ of, targets, models, keys, onKeys }: Props) {
  const rows = rowsOf(of.cases, targets, models);
  return (
    <Card title="Who would serve what" aside={<span class="faint">worked out from this draft; nothing is sent</span>} bare>
      {of.error && (
        <div class="card-body">
          <FormError error={of.error} />
        </div>
      )}
      <div class="table-wrap" role="group" aria-label="Who would serve what" tabIndex={0}>
        <table class="table matrix">
          <thead>
            <tr>
              <th scope="col">A request with</th>
              {targets.map((target, i) => (
                <th key={idOf(target)} scope="col" title={idOf(target)}>
                  {i + 1} <span class="clip narrow">{target.provider}</span>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.map(({ name, cells, refusal }) => (
              <tr key={name}>
                <th scope="row">
                  {keys.includes(name) ? <KeyName id={name} onRemove={() => onKeys(keys.filter((other) => other !== name))} /> : name}
                  {refusal && <p class="help bad">{refusal}</p>}
                </th>
                {cells.map((cell, i) => (
                  <td key={i}>
                    <CellMark of={cell} />
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <Differences />
      {keys.length < KEYS_MAX && (
        <div class="add">
          <Combobox
            label="Add a key"
            placeholder="Add a key: what would it get?"
            suggest={without(activeKeys.suggest, keys)}
            onPick={(key) => onKeys([...keys, key])}
          />
        </div>
      )}
    </Card>
  );
}

function KeyName({ id, onRemove }: { id: string; onRemove: () => void }) {
  const name = useResource<Key>(`keys/${encodeURIComponent(id)}`).data.value?.name;
  return (
    <span class="row-name">
      Key <Ref kind="key" id={id} name={name} />
      <button type="button" class="tag-x" aria-label={`Remove the key ${name ?? id}`} onClick={onRemove}>
        <Icon name="x" small />
      </button>
    </span>
  );
}

function CellMark({ of }: { of: Cell }) {
  if (of.short === null) {
    return (
      <>
        {of.isUnknown ? <Unknown /> : <Icon name="check" />}
        {of.adapted ? <Adapted of={of.adapted} /> : <span class="sr">serves</span>}
      </>
    );
  }
  return (
    <span class="tag" title={of.words}>
      <Icon name="minus" small />
      {of.short}
    </span>
  );
}

/** The target is tried, but its catalog does not say whether its model can do this. */
function Unknown() {
  return (
    <span class="tag" title="It is tried; whether its model can do this is not known.">
      ?<span class="sr"> not known whether its model can</span>
    </span>
  );
}

function Adapted({ of: [client, target] }: { of: [client: string, target: string] }) {
  return (
    <button type="button" class="link" aria-label={`Serves as ${target}: what changes`} onClick={() => showDifferences(client, target)}>
      as {target}
    </button>
  );
}
