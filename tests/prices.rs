//! Updates of the price list through `LLMGW_PRICES_URL` (ADM-6).

use serde_json::{Value, json};

use crate::support::gateway::Setup;
use crate::support::upstream::refusing_url;
use crate::support::{Answer, Gateway, Upstream, Yaml, wait};

/// Returns a list that prices the model `m` of compatible providers.
fn list(as_of: &str, input: f64) -> Answer {
    let prices = json!({"m": {"prices": {"input": input, "output": 2}}});
    Answer::json(200, json!({"as_of": as_of, "lists": {"compatible": prices}}).to_string())
}

/// Starts a gateway that fetches its list from `feed`.
async fn gateway(feed: &Upstream) -> Gateway {
    let url = feed.base_url().replace("/v1", "/prices.json");
    Setup::new(&Yaml::one(refusing_url().await)).env("LLMGW_PRICES_URL", url).start().await
}

/// Returns the price of input of the model `m`.
async fn input(gateway: &Gateway) -> Value {
    let rows = gateway.client().get("/admin/api/catalog?provider=up").await.unwrap().json();
    rows["data"][0]["prices"]["input"].clone()
}

async fn priced(gateway: &Gateway, want: f64) {
    let probe = async || (input(gateway).await == want).then_some(());
    wait::eventually("the fetched price in the catalog", probe).await;
}

#[tokio::test]
async fn a_newer_price_list_is_fetched_at_the_start_and_kept() {
    let feed = Upstream::start().await;
    feed.then(list("2999-01-01", 1.5));
    let gateway = gateway(&feed).await;
    priced(&gateway, 1.5).await;
    let request = feed.request(0).await;
    assert!(request.head.starts_with("GET /prices.json HTTP/1.1"), "{}", request.head);
    assert_eq!(request.header("authorization"), None);
    let state = gateway.client().get("/admin/api/state").await.unwrap().json();
    assert_eq!(state["prices_as_of"], "2999-01-01");

    feed.then(Answer::json(503, "{}"));
    let gateway = gateway.restart().await;
    feed.request(1).await;
    priced(&gateway, 1.5).await;

    // The database has the list; the file is a copy.
    let mut gateway = gateway;
    for (fetches, content) in [(2, None), (3, Some("{"))] {
        let setup = gateway.kill().await;
        let file = setup.state().join("prices.json");
        match content {
            Some(content) => std::fs::write(&file, content).unwrap(),
            None => std::fs::remove_file(&file).unwrap(),
        }
        feed.then(Answer::json(503, "{}"));
        gateway = setup.start().await;
        // A gateway that is killed before it fetches leaves its answer to the next one.
        feed.request(fetches).await;
        priced(&gateway, 1.5).await;
        let copy: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        assert_eq!(copy["as_of"], "2999-01-01");
    }

    feed.then(list("2999-01-02", 0.75));
    priced(&gateway.restart().await, 0.75).await;
}

#[tokio::test]
async fn a_newer_file_of_prices_is_taken_without_a_call_or_restart() {
    let gateway = Gateway::start(&Yaml::one(refusing_url().await)).await;
    let file = gateway.state().join("prices.json");
    let write = |text: &str| {
        let draft = gateway.state().join("prices.draft");
        std::fs::write(&draft, text).unwrap();
        std::fs::rename(draft, &file).unwrap();
    };
    let list = |as_of: &str, input: f64| {
        let prices = json!({"m": {"prices": {"input": input, "output": 2}}});
        json!({"as_of": as_of, "lists": {"compatible": prices}}).to_string()
    };
    let job_error = async |is_wanted: fn(Option<&str>) -> bool| {
        wait::eventually_within(2 * wait::PATIENCE, "the outcome of the job", async || {
            let state = gateway.client().get("/admin/api/state").await.unwrap().json();
            let job = state["jobs"].as_array().unwrap().iter().find(|job| job["name"] == "price_file")?;
            is_wanted(job["last_error"].as_str()).then_some(())
        })
        .await;
    };
    write("{}");
    job_error(|error| error.is_some_and(|error| error.starts_with("prices.json is not a price list"))).await;
    write(&list("2999-01-01", 1.5));
    wait::eventually_within(2 * wait::PATIENCE, "the price of the file", async || {
        (input(&gateway).await == 1.5).then_some(())
    })
    .await;
    job_error(|error| error.is_none()).await;
}

#[tokio::test]
async fn an_invalid_or_older_price_list_is_not_applied() {
    let feed = Upstream::start().await;
    feed.then(list("2999-01-01", 1.5));
    let mut gateway = gateway(&feed).await;
    priced(&gateway, 1.5).await;
    let (as_of, model) = ("2999-01-02", json!({"m": {"prices": {"input": 9}}}));
    for (index, (answer, logged)) in [
        (Answer::json(404, "{}"), "it returned status 404"),
        (Answer::json(200, "{\"as_of\":"), "EOF"),
        (Answer::json(200, json!({"as_of": as_of, "lists": {}}).to_string()), "contains no models"),
        (Answer::json(200, json!({"as_of": "soon", "lists": {"compatible": model}}).to_string()), "`as_of`"),
        (Answer::json(200, json!({"as_of": as_of, "lists": {"compatible": 7}}).to_string()), "invalid type"),
    ]
    .into_iter()
    .enumerate()
    {
        feed.then(answer);
        gateway = gateway.restart().await;
        feed.request(index + 1).await;
        gateway.logs(logged).await;
        gateway.logs("the current list stays in use").await;
        assert_eq!(input(&gateway).await, 1.5, "{logged}");
    }
    feed.then(list("2999-01-01", 9.0));
    let gateway = gateway.restart().await;
    feed.request(6).await;
    assert_eq!(input(&gateway).await, 1.5, "a list of the same day is not newer");
}
