//! Pipelines: the same kind of statement many times, with one wait for all answers instead of one for each. The server
//! runs them in their order.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::error::Error;
use crate::session::{Prepared, Session, parameters};
use crate::value::{Field, Row};

/// A statement with its values.
pub type Call<'a> = (Prepared, Vec<Field<'a>>);

impl Session {
    /// Runs statements of the open transaction in their order. Returns of each the number of rows that it changed: once one
    /// has failed, all behind it fail.
    pub fn execute_each(&self, calls: &[Call<'_>]) -> Result<Vec<Result<u64, Error>>, Error> {
        let values = parameters_of(calls)?;
        self.run_each(async |client| {
            let answers =
                calls.iter().zip(&values).map(|((call, _), values)| client.execute(call.inner(), values));
            in_order(answers).await
        })
    }

    /// Runs statements of the open transaction in their order. Returns the rows that each finds: once one has failed, all
    /// behind it fail.
    pub fn query_each(&self, calls: &[Call<'_>]) -> Result<Vec<Result<Vec<Row>, Error>>, Error> {
        let values = parameters_of(calls)?;
        let found = self.run_each(async |client| {
            let answers =
                calls.iter().zip(&values).map(|((call, _), values)| client.query(call.inner(), values));
            in_order(answers).await
        })?;
        Ok(found.into_iter().map(|rows| Ok(rows?.into_iter().map(Row).collect())).collect())
    }
}

type Parameters<'a> = Vec<&'a (dyn tokio_postgres::types::ToSql + Sync)>;

fn parameters_of<'a>(calls: &'a [Call<'a>]) -> Result<Vec<Parameters<'a>>, Error> {
    calls.iter().map(|(statement, values)| parameters(statement, values)).collect()
}

/// An answer of the server.
enum Answer<F: Future> {
    Awaited(Pin<Box<F>>),
    Arrived(Option<F::Output>),
}

impl<F: Future> Answer<F> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<F::Output> {
        match self {
            Self::Awaited(answer) => answer.as_mut().poll(context),
            Self::Arrived(answer) => answer.take().map_or(Poll::Pending, Poll::Ready),
        }
    }

    /// Sends the statement, which the first poll does.
    fn send(&mut self, context: &mut Context<'_>) {
        if let Poll::Ready(answer) = self.poll(context) {
            *self = Self::Arrived(Some(answer));
        }
    }
}

/// Sends all statements in their order, and then waits for all answers, which come in the same order. Not `FuturesOrdered`: it
/// does not promise to poll first what came first.
async fn in_order<F: Future>(answers: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut waiting: VecDeque<_> = answers.map(|answer| Answer::Awaited(Box::pin(answer))).collect();
    let (mut arrived, mut is_sent) = (Vec::with_capacity(waiting.len()), false);
    poll_fn(|context| {
        if !is_sent {
            waiting.iter_mut().for_each(|answer| answer.send(context));
            is_sent = true;
        }
        while let Some(first) = waiting.front_mut() {
            let Poll::Ready(answer) = first.poll(context) else { return Poll::Pending };
            arrived.push(answer);
            waiting.pop_front();
        }
        Poll::Ready(())
    })
    .await;
    arrived
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::pin::pin;
    use std::task::Waker;

    use super::*;

    /// Each statement is answered once all are sent, as by a server that is far away.
    #[test]
    fn all_statements_are_sent_in_their_order_before_the_first_answer_is_awaited() {
        let sent = RefCell::new(Vec::new());
        let answers = (0..600).map(|number| {
            let (sent, mut is_sent) = (&sent, false);
            poll_fn(move |_| {
                if !is_sent {
                    sent.borrow_mut().push(number);
                    is_sent = true;
                }
                // The last one fails before it is sent, such as one with a value of another type.
                if number == 599 || sent.borrow().len() == 600 { Poll::Ready(number) } else { Poll::Pending }
            })
        });
        let mut all = pin!(in_order(answers));
        let arrived = all.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let numbers: Vec<_> = (0..600).collect();
        assert_eq!(*sent.borrow(), numbers);
        assert_eq!(arrived, Poll::Ready(numbers));
    }
}
