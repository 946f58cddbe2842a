//! Two nodes write one row of the table `usage`: one adds exchanges to it, the other reprices them.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use postgres_server::shared;
use records::block;
use shared::prices::{Prices, Rates};
use shared::quota::Counters;
use shared::usage::Class;

use super::event;
use super::shipping::{Node, stored_in};
use crate::db::engine::Db;
use crate::db::packed_row::PackedRow;
use crate::db::testing::shared_database;
use crate::routing::catalog::facts::Priced;
use crate::routing::catalog::history::History;
use crate::usage::reprice::{Repriced, Repricing, RowTime};

/// Recalculates the costs of all exchanges from other prices.
fn reprice_all(db: &mut Db, done: &mut Repriced) -> bool {
    let rates = Rates::default().with(Class::Input, 3_000_000_000).with(Class::Output, 5_000_000_000);
    let prices = Prices::flat(rates).by_operator();
    let mut repricing = Repricing {
        from_ms: 0,
        to_ms: u64::MAX,
        provider: None,
        model: None,
        prices: Arc::new(History::of_one("p", "m", Priced { prices, label: "new".into() })),
        counters: Arc::<Counters>::default(),
        after: RowTime::default(),
    };
    repricing.step(db, done, Instant::now() + Duration::from_secs(60)).unwrap()
}

/// Returns the costs of the exchanges in the order of their rows, and their sum in the hours.
fn costs(db: &Db) -> (Vec<u64>, i64) {
    let (mut costs, mut statement) = (Vec::new(), db.prepare("SELECT * FROM usage ORDER BY id").unwrap());
    let mut rows = statement.query(()).unwrap();
    while let Some(row) = rows.next().unwrap() {
        let row = PackedRow::read(row).unwrap();
        let exchanges = block::rows(row.rows().unwrap(), &row.names);
        costs.extend(exchanges.map(|exchange| exchange.unwrap().0.cost_nano_usd.unwrap()));
    }
    let of_hours = db.row("SELECT CAST(sum(cost_nano_usd) AS BIGINT) FROM usage_hour", (), |row| row.get(0));
    (costs, of_hours.unwrap())
}

#[test]
fn exchanges_are_added_after_another_node_has_repriced_their_row() {
    let Some(database) = shared_database() else { return };
    let mut node = Node::start(&database, shared());
    (0..3).for_each(|n| node.append(event(n)));
    node.settle();
    let mut other = database.connect_as(2);
    assert!(reprice_all(&mut other, &mut Repriced::default()));
    let (repriced, sum) = costs(&other);
    assert_ne!(repriced[0], 1_500);
    (3..5).for_each(|n| node.append(event(n)));
    node.settle();
    assert_eq!(stored_in(&other), [5; 3]);
    assert_eq!(costs(&other), ([repriced, vec![1_500; 2]].concat(), sum + 3_000));
}

#[test]
fn a_row_that_grows_while_it_is_repriced_is_read_again() {
    let Some(database) = shared_database() else { return };
    let mut node = Node::start(&database, shared());
    (0..3).for_each(|n| node.append(event(n)));
    node.settle();
    let mut other = database.connect_as(2);
    // The node has written its row and not committed yet.
    let mut writing = database.connect();
    let grown = writing.transaction().unwrap();
    grown.execute("UPDATE usage SET digest = NULL WHERE exchanges = 3", ()).unwrap();
    let mut done = Repriced::default();
    let is_finished = thread::scope(|scope| {
        let repricing = scope.spawn(|| reprice_all(&mut other, &mut done));
        database.await_a_lock();
        grown.commit().unwrap();
        repricing.join().unwrap()
    });
    assert_eq!(
        (is_finished, done),
        (false, Repriced::default()),
        "nothing is done from what was read before"
    );
    assert!(reprice_all(&mut other, &mut Repriced::default()));
    let (costs, sum) = costs(&other);
    assert_eq!((costs.len(), i64::try_from(costs.iter().sum::<u64>()).unwrap()), (3, sum));
    assert_ne!(costs[0], 1_500);
}
