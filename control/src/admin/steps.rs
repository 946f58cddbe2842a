//! The equal steps into which a query divides its time, for charts.

use super::ApiError;

/// The steps that a query may have.
pub(super) struct Steps {
    /// The name of the query parameter that chooses one.
    pub(super) parameter: &'static str,
    /// The lengths, the shortest first and the last one a day: the value of the parameter, and milliseconds.
    pub(super) lengths: &'static [(&'static str, u64)],
    /// The maximum number of steps in an answer. The time may cut the first and the last one.
    pub(super) most: u64,
}

/// A time of whole steps, in milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SteppedTime {
    pub(super) from_ms: u64,
    pub(super) to_ms: u64,
    pub(super) step_ms: u64,
}

impl Steps {
    /// Divides a time by the chosen length, or by the shortest one that does not exceed the maximum. Both ends are extended
    /// to whole steps.
    pub(super) fn divide(
        &self,
        from_ms: u64,
        to_ms: u64,
        chosen: Option<u64>,
    ) -> Result<SteppedTime, ApiError> {
        if from_ms > to_ms {
            return Err(ApiError::parameter("from", "from must not be after to."));
        }
        let number = |step_ms: u64| to_ms.div_ceil(step_ms).saturating_sub(from_ms / step_ms);
        let fitting = self.lengths.iter().find(|(_, step_ms)| number(*step_ms) <= self.most);
        let (parameter, most) = (self.parameter, self.most);
        let Some((fitting_name, fitting_ms)) = fitting else {
            let message = format!("At most {most} points are returned, of a day each; use a later from.");
            return Err(ApiError::parameter("from", message));
        };
        let step_ms = chosen.unwrap_or(*fitting_ms);
        let points = number(step_ms);
        if points > most {
            let message = format!(
                "This {parameter} divides the time into {points} points, and at most {most} are returned; use \
                 {parameter}={fitting_name} or a shorter time."
            );
            return Err(ApiError::parameter(parameter, message));
        }
        let from_ms = from_ms - from_ms % step_ms;
        let to_ms = to_ms.div_ceil(step_ms).saturating_mul(step_ms).max(from_ms + step_ms);
        Ok(SteppedTime { from_ms, to_ms, step_ms })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEPS: Steps = Steps { parameter: "step", lengths: &[("1", 1_000), ("10", 10_000)], most: 3 };

    fn message(from_ms: u64, to_ms: u64, chosen: Option<u64>) -> String {
        format!("{:?}", STEPS.divide(from_ms, to_ms, chosen).unwrap_err())
    }

    #[test]
    fn a_time_is_extended_to_whole_steps_of_the_shortest_length_that_fits() {
        let time = |from_ms, to_ms, step_ms| SteppedTime { from_ms, to_ms, step_ms };
        assert_eq!(STEPS.divide(1_500, 3_001, None).unwrap(), time(1_000, 4_000, 1_000));
        assert_eq!(STEPS.divide(1_500, 4_001, None).unwrap(), time(0, 10_000, 10_000));
        assert_eq!(STEPS.divide(1_500, 1_501, Some(10_000)).unwrap(), time(0, 10_000, 10_000));
        assert_eq!(STEPS.divide(2_000, 2_000, None).unwrap(), time(2_000, 3_000, 1_000));
    }

    #[test]
    fn too_many_steps_are_refused_with_what_would_fit() {
        assert!(
            message(1_500, 4_001, Some(1_000))
                .contains("into 4 points, and at most 3 are returned; use step=10")
        );
        assert!(message(0, 30_001, None).contains("use a later from"));
        assert!(message(2, 1, None).contains("from must not be after to"));
    }
}
