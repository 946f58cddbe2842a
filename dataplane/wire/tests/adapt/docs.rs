//! Generates `docs/adaptations.md` from the tables of losses, and checks that the file is current.

use std::fmt::Write as _;

use shared::operation::Dialect;
use wire::adapt::{ADAPTATIONS, Loss};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/adaptations.md");

#[test]
fn the_page_of_adaptations_is_current() {
    let page = std::fs::read_to_string(PAGE).unwrap_or_default();
    assert!(
        page == wanted(),
        "docs/adaptations.md is not current: run `cargo test -p wire --test adapt -- --ignored renew`"
    );
}

#[test]
#[ignore = "writes docs/adaptations.md"]
fn renew_the_page_of_adaptations() {
    std::fs::write(PAGE, wanted()).unwrap();
}

fn wanted() -> String {
    let mut page = INTRODUCTION.to_owned();
    page.push_str(RULES);
    page.push_str("\nA top-level member that [`body`](providers.md#members-of-requests) of the provider or of the model names has the fate that the operator chose: it is set, added or left out last, in the
target's protocol, and the record names it.

The pairs:\n\n");
    for pair in ADAPTATIONS {
        let heading = format!("{} over {}", title(pair.client), title(pair.target));
        let _ = writeln!(page, "- [{heading}](#{})", heading.to_lowercase().replace(' ', "-"));
    }
    for pair in ADAPTATIONS {
        let _ = write!(page, "\n## {} over {}\n\n", title(pair.client), title(pair.target));
        match pair.via {
            Some(via) => {
                let _ = writeln!(
                    page,
                    "By way of {via}: the rules of {client} over {via} apply first, then those of {via} over {target}.",
                    via = title(via),
                    client = title(pair.client),
                    target = title(pair.target),
                );
                if pair.target == Dialect::Responses {
                    page.push_str(STOPS);
                }
            }
            None => {
                if (pair.client, pair.target) == (Dialect::Chat, Dialect::Responses) {
                    page.push_str(EXPERIMENTAL);
                }
                table(pair.losses, &mut page);
                if !pair.agents.is_empty() {
                    page.push_str(AGENTS);
                    table(pair.agents, &mut page);
                }
            }
        }
    }
    page
}

fn table(losses: &[Loss], page: &mut String) {
    page.push_str("| Field | Fate | |\n|---|---|---|\n");
    for loss in losses {
        let note = loss.note.replace('|', "\\|");
        let _ = writeln!(page, "| `{}` | {} | {note} |", loss.field.replace('|', "\\|"), loss.fate.name());
    }
}

fn title(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Chat => "Chat",
        Dialect::Responses => "Responses",
        Dialect::Messages => "Messages",
        Dialect::Gemini => "Gemini",
        Dialect::Bedrock => "Bedrock",
        Dialect::Images => "Images",
        Dialect::Embeddings => "Embeddings",
        Dialect::GeminiEmbeddings => "Gemini embeddings",
        other => other.name(),
    }
}

const STOPS: &str = "\
Stop sequences are an exception: the gateway cuts the answer at the first of up to 16, and the target, which does not know them, goes on
and bills what follows.
";

const EXPERIMENTAL: &str = "\
**Experimental**: only if the provider has `force_api_support: true`, and only for a model that is known to speak only Responses.

";

const AGENTS: &str = "
### For agents

With `responses_fallback: agents` the models of a [provider](providers.md#settings-of-a-provider-or-model) serve Codex, over Chat, Messages,
Gemini and Bedrock. These fields then have another fate; all others that are rejected above stay rejected.

";

const RULES: &str = "
## Rules of models

Models of one protocol differ: some think only adaptively, some refuse a temperature, some need their own reasoning back. The gateway knows
such rules from a built-in list, by the names that vendors give their models; `rules` of a model in the
[configuration](configuration.md) or in an override ([Providers](providers.md#rules-of-a-model)) takes precedence. A model without rules gets
the request as the tables below state. What a rule changes is named: members that were left out in `X-LLMGW-Dropped`, members with
another value in `X-LLMGW-Adapted`, such as `messages; max_tokens=8192, output_config.effort=high`.

| Rule of the model | The request that it changes | What is sent |
|---|---|---|
| `max_output_tokens` | a higher limit | this limit |
| `thinking` | a thinking budget, if the model only thinks adaptively | `thinking: {type: adaptive}` and the `effort` nearest to the budget |
| `thinking` | an effort or `adaptive`, if the model only thinks by a budget | the budget nearest to the effort |
| `thinking` | an effort, if the model never thinks | no effort |
| `efforts` | an effort that the model does not know | the next lower known one |
| `thinking_off` | the effort `none` | the member that turns thinking off; nothing if none does |
| `hides_thinking` | adaptive thinking | with `display: summarized` |
| `sampling` | `temperature`, `top_p`, `top_k` | those that the model accepts; `temperature` if it accepts only one |
| `tools_with_effort` | tools and an effort, over Chat | over Responses if the target speaks it, otherwise without thinking |
| `forced_tool_with_thinking` | a forced tool call | without thinking; 400 if the model always thinks |
| `reasoning_back`, `reasoning_member`, `reasoning_absent` | earlier messages, over Chat | with their reasoning in the messages in which it is required |
| `signed_thinking` | thoughts without a signature, or with another vendor's, in Messages | without these thoughts, also if client and target both speak Messages; within a running tool turn without thinking |
";

const INTRODUCTION: &str = "\
<!-- Made from the tables in dataplane/wire/src/adapt: cargo test -p wire --test adapt -- --ignored renew -->

# Adaptations

This page lists, for each pair of client protocol and target protocol, what happens to each field of a request. A target that does not
speak the client's protocol can serve the request where this page has the pair. A field that the target's protocol cannot express is
rejected before anything is sent: status 400, with the path of the field.

The answer has the header `X-LLMGW-Adapted`, and `X-LLMGW-Dropped` with the members that were left out because no protocol defines them or
the [rules of the model](#rules-of-models) exclude them, and the content that the other protocol cannot hold. Its `model` is the target's own name of the model, as in a native answer.

| Fate | Meaning |
|---|---|
| exact | the same field with the same value |
| mapped | translated into the target's form |
| hint | translated if the target has a form for it, otherwise dropped; the answer means the same |
| rejected | 400, because the answer would mean something else |

In the path of a field, `*` is any element, `[kind]` is an element or object of that `type`, and `=value` is only that value.
";
