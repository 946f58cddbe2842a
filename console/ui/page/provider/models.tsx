// The models of one provider, with what is known of each.
import { useState } from "preact/hooks";
import { useList } from "../../api/list";
import type { Model, Provider } from "../../api/types";
import { Empty } from "../../part/feedback";
import { count, price, UNKNOWN } from "../../part/format";
import { asked, orderOf } from "../../part/order";
import { Card } from "../../part/page";
import { Table } from "../../part/table";
import { Proven } from "../models";
import { EditModel } from "./model";

type Props = {
  of: Provider;
  path: string;
  etag: string | null;
  /** True if the provider cannot be changed here. */
  isFixed: boolean;
  onProve: (model: string) => void;
  onSaved: () => void;
};

export function Models({ of, path, etag, isFixed, onProve, onSaved }: Props) {
  const [edited, setEdited] = useState<string | null>(null);
  const order = orderOf(["name", "context", "input_price", "output_price"]);
  const list = useList<Model>("catalog", { provider: of.id, ...asked(order) });
  return (
    <Card title="Models" bare>
      {edited !== null && <EditModel of={of} model={edited} path={path} etag={etag} onSaved={onSaved} onClose={() => setEdited(null)} />}
      <Table
        list={list}
        label="Models"
        order={order}
        rowKey={(model) => model.id}
        empty={
          <Empty icon="boxes" title="No model is known">
            Sync the catalog, or name models when you connect the provider.
          </Empty>
        }
        columns={[
          { head: "Model", width: "3fr", least: 160, sort: "name", cell: (model) => <span class="mono">{model.model}</span> },
          { head: "Context", width: 100, number: true, sort: "context", fold: 2, cell: (model) => count(model.context_window) },
          {
            head: "Input per million",
            width: 140,
            number: true,
            sort: "input_price",
            from: "asc",
            fold: 3,
            cell: (model) => priceOf(model, "input"),
          },
          {
            head: "Output per million",
            width: 152,
            number: true,
            sort: "output_price",
            from: "asc",
            fold: 4,
            cell: (model) => priceOf(model, "output"),
          },
          {
            head: "Proven",
            width: 88,
            fold: 1,
            cell: (model) => <Proven of={model} />,
          },
          {
            head: "Actions",
            width: 168,
            quiet: true,
            cell: (model) => (
              <>
                <button
                  type="button"
                  class="btn plain small"
                  onClick={() => onProve(model.model)}
                  aria-label={`Test ${model.model}`}
                  disabled={of.state !== "ready"}
                >
                  Test
                </button>
                <button
                  type="button"
                  class="btn plain small"
                  onClick={() => setEdited(model.model)}
                  aria-label={`Requests to ${model.model}`}
                  disabled={isFixed}
                >
                  Requests
                </button>
              </>
            ),
          },
        ]}
      />
    </Card>
  );
}

export function priceOf(model: Model, kind: "input" | "output"): string {
  const value = model.prices?.[kind];
  return typeof value === "number" ? price(value) : UNKNOWN;
}
